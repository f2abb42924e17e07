//! What the kernel lets this user do: userfaultfd, moving pages, io_uring; and which engine follows from it.

use super::{Finding, Verdict, setting};
use crate::setup::SETUP;
use ream_sys::Errno;
use ream_sys::ring::Ring;
use ream_sys::uffd::{Access, Uffd, feature};
use std::fmt::Write;
use std::io;

/// What was found, and what follows.
pub struct Findings {
    /// The points looked at.
    pub findings: Vec<Finding>,
    /// The engine that a run will get; `None` when it cannot page.
    pub engine: Option<&'static str>,
    /// How the store will be read and written.
    pub io: &'static str,
    why: String,
    mend: String,
}

/// What the probes answered. Made by [`Probe::ask`], or by tests.
#[derive(Clone, Debug)]
struct Probe {
    release: String,
    full: Result<u64, Errno>,
    device: Result<u64, Errno>,
    user_only: Result<u64, Errno>,
    ring: Result<(), Errno>,
    /// vm.unprivileged_userfaultfd.
    unprivileged: Option<String>,
    /// kernel.io_uring_disabled.
    ring_disabled: Option<String>,
    seccomp: bool,
    container: Option<&'static str>,
}

/// The engines, the one that a run prefers first.
const BEST_FIRST: [&str; 3] = ["move", "copy", "usermode"];

/// The engine that a run gets who asks for this one and this way of reading and writing.
///
/// # Errors
/// Why it cannot have them (`auto`: any at all).
pub fn choose(engine: &str, io: &str) -> Result<&'static str, String> {
    let probe = Probe::ask();
    match probe.refuses(engine, io) {
        Some(why) => Err(why),
        None => Ok(probe.best(engine)),
    }
}

/// What a run may ask for.
const WANTED: u64 =
    feature::MOVE | feature::WRITE_PROTECT | feature::THREAD_ID | feature::EVENT_REMAP | feature::EVENT_UNMAP;

impl Probe {
    fn ask() -> Probe {
        let open = |access| {
            Uffd::open_with(access, WANTED).map(|uffd| {
                uffd.close();
                uffd.features
            })
        };
        let status = setting("/proc/self/status").unwrap_or_default();
        Probe {
            release: setting("/proc/sys/kernel/osrelease").unwrap_or_default(),
            full: open(Access::Full),
            device: open(Access::Device),
            user_only: open(Access::UserOnly),
            ring: Ring::new(8, 16).map(drop),
            unprivileged: setting("/proc/sys/vm/unprivileged_userfaultfd"),
            ring_disabled: setting("/proc/sys/kernel/io_uring_disabled"),
            seccomp: status.lines().any(|line| line.starts_with("Seccomp:") && line.ends_with('2')),
            container: container(),
        }
    }

    fn refuses(&self, engine: &str, io: &str) -> Option<String> {
        let found = |finding: Finding| Some(format!("{}: {}; see ream doctor", finding.name, finding.text));
        let lacking = match engine {
            "auto" => !BEST_FIRST.iter().any(|engine| self.allows(engine)),
            engine => !self.allows(engine),
        };
        if lacking {
            let features = self.full.or(self.device).unwrap_or(0);
            // Whole, but without what the engine needs: then the kernel is too old.
            return found(if features != 0 { moving(features) } else { userfaultfd(self).0 });
        }
        if io == "uring" && self.ring.is_err() { found(ring(self)) } else { None }
    }

    /// The engine meant by a word.
    fn best(&self, engine: &str) -> &'static str {
        let meant = |name: &&&str| if engine == "auto" { self.allows(name) } else { **name == engine };
        BEST_FIRST.iter().find(meant).copied().unwrap_or("move")
    }

    /// Whether this user may have an engine.
    fn allows(&self, engine: &str) -> bool {
        let full = self.full.or(self.device).unwrap_or(0);
        match engine {
            "move" => full & feature::MOVE != 0,
            "copy" | "copy-always" => full & feature::WRITE_PROTECT != 0,
            "usermode" => full != 0 || self.user_only.is_ok(),
            _ => false,
        }
    }

    /// The container's name for messages where a filter of system calls is in force.
    fn filter(&self) -> &'static str {
        match (self.seccomp, self.container) {
            (true, Some(container)) => container,
            (true, None) => "a filter of system calls (seccomp)",
            (false, _) => "the kernel",
        }
    }

    /// How to run a container that lets these calls through.
    fn filter_mend(&self, calls: &str) -> String {
        match self.container {
            Some(name @ ("Docker" | "Podman")) => {
                let command = name.to_lowercase();
                format!("{command} run --security-opt seccomp=PROFILE ..., with {calls} allowed in PROFILE")
            }
            Some("Apptainer") => {
                format!("apptainer exec without --security seccomp:..., or allow {calls} in that profile")
            }
            _ => format!("allow {calls} in the seccomp profile under which this runs"),
        }
    }
}

fn container() -> Option<&'static str> {
    let set = |name: &str| std::env::var_os(name).is_some();
    if set("APPTAINER_CONTAINER") || set("SINGULARITY_CONTAINER") {
        return Some("Apptainer");
    }
    let there = |path: &str| std::path::Path::new(path).exists();
    if there("/run/.containerenv") {
        return Some("Podman");
    }
    there("/.dockerenv").then_some("Docker")
}

impl Findings {
    /// Asks the kernel.
    pub fn look() -> Findings {
        Findings::of(&Probe::ask())
    }

    fn of(probe: &Probe) -> Findings {
        let mut findings = vec![kernel(&probe.release)];
        let full = probe.full.or(probe.device);
        let (userfaultfd, mend) = userfaultfd(probe);
        findings.push(userfaultfd);
        let features = full.or(probe.user_only).unwrap_or(0);
        if features != 0 {
            findings.push(moving(features));
        }
        findings.push(ring(probe));
        let io = if probe.ring.is_ok() { "uring" } else { "threads" };
        let engine = probe.refuses("auto", "auto").is_none().then(|| probe.best("auto"));
        let why = match engine {
            Some("move") => "userfaultfd is whole and pages can be moved",
            Some("copy") => {
                "userfaultfd is whole, but pages cannot be moved before Linux 6.8: they are copied, and nothing \
                 leaves RAM while the program has something open by which devices write to memory (O_DIRECT, io_uring, RDMA)"
            }
            Some(_) => "only faults of the program's own code may be answered, so only large blocks are paged",
            None => "there is no userfaultfd",
        };
        Findings { findings, engine, io, why: why.to_owned(), mend }
    }

    /// Which engine a run will get, and why; `store` tells whether there is a place for the store.
    pub fn conclusion(&self, store: bool) -> Finding {
        let text = |engine: &str| format!("{engine}, with {} for the store: {}", self.io, self.why);
        match self.engine {
            None => Finding::new("a run", Verdict::Bad, format!("cannot page: {}", self.why)).mend(&self.mend),
            Some(_) if !store => Finding::new("a run", Verdict::Bad, "cannot page: there is no place for a store")
                .mend("ream run --store DIRECTORY, on a local disk"),
            Some("move") => Finding::ok("a run", format!("gets the engine {}", text("move"))),
            Some(engine) => {
                Finding::new("a run", Verdict::Warn, format!("gets the engine {}", text(engine))).mend(&self.mend)
            }
        }
    }
}

fn kernel(release: &str) -> Finding {
    let version = super::large::version(release);
    let text = format!("Linux {release}");
    let newer = "a newer kernel: 6.8 or later moves pages instead of copying them";
    match version {
        (6, 8..) | (7.., _) => Finding::ok("kernel", text),
        (6, _) | (5, 7..) => Finding::new("kernel", Verdict::Warn, text).mend(newer),
        _ => Finding::new("kernel", Verdict::Bad, format!("{text} is too old")).mend(newer),
    }
}

fn words(error: Errno) -> String {
    crate::failure::reason(&io::Error::from_raw_os_error(i32::from(error.0)))
}

/// The finding on userfaultfd, and how to get a better engine.
fn userfaultfd(probe: &Probe) -> (Finding, String) {
    const NAME: &str = "userfaultfd";
    if probe.full.is_ok() {
        let why = match probe.unprivileged.as_deref() {
            Some("1") => "vm.unprivileged_userfaultfd is 1",
            _ => "this user has CAP_SYS_PTRACE",
        };
        return (Finding::ok(NAME, format!("whole: {why}")), String::new());
    }
    if probe.device.is_ok() {
        return (Finding::ok(NAME, "whole, through /dev/userfaultfd"), String::new());
    }
    let error = probe.full.err().unwrap_or(Errno::NOSYS);
    match probe.user_only {
        Ok(_) => {
            let mut why = format!("user-mode-only: {}", words(error));
            if let Some(value) = &probe.unprivileged {
                let _ = write!(why, ", as vm.unprivileged_userfaultfd is {value}");
            }
            let device = probe.device.err().unwrap_or(Errno::NOSYS);
            let _ = write!(why, " and this user lacks CAP_SYS_PTRACE; /dev/userfaultfd: {}", words(device));
            (Finding::new(NAME, Verdict::Warn, why).mend(SETUP), SETUP.to_owned())
        }
        Err(refused) => {
            let (why, mend) = match refused {
                // An ordinary user may always have this kind, so somebody else has refused it.
                Errno::PERM => (format!("refused by {}", probe.filter()), probe.filter_mend("userfaultfd")),
                Errno::NOSYS if probe.seccomp => {
                    (format!("unknown to {}", probe.filter()), probe.filter_mend("userfaultfd"))
                }
                Errno::NOSYS => ("not in this kernel".into(), "a kernel with CONFIG_USERFAULTFD=y".to_owned()),
                // Kernels before 5.11 do not know the flag, and have no other way for ordinary users.
                Errno::INVAL => (format!("whole only, and that is refused: {}", words(error)), SETUP.to_owned()),
                other => (words(other), SETUP.to_owned()),
            };
            (Finding::new(NAME, Verdict::Bad, why).mend(&mend), mend)
        }
    }
}

fn moving(features: u64) -> Finding {
    let known = [
        (feature::MOVE, "move"),
        (feature::WRITE_PROTECT, "write protection"),
        (feature::EVENT_UNMAP, "unmap events"),
        (feature::EVENT_REMAP, "remap events"),
        (feature::THREAD_ID, "thread ids"),
    ];
    let list = |there: bool| {
        let names: Vec<_> =
            known.iter().filter(|(bit, _)| (features & bit != 0) == there).map(|(_, name)| *name).collect();
        names.join(", ")
    };
    let (has, lacks) = (list(true), list(false));
    match lacks.is_empty() {
        true => Finding::ok("its features", has),
        false => Finding::new("its features", Verdict::Warn, format!("{has}; without {lacks}")).mend("a newer kernel"),
    }
}

fn ring(probe: &Probe) -> Finding {
    const NAME: &str = "io_uring";
    let Err(error) = probe.ring else { return Finding::ok(NAME, "allowed") };
    let (why, mend) = match (probe.ring_disabled.as_deref(), error) {
        (Some(value @ ("1" | "2")), _) => (
            format!("switched off: kernel.io_uring_disabled is {value}"),
            "sudo sysctl -w kernel.io_uring_disabled=0".into(),
        ),
        (_, Errno::PERM) => {
            (format!("refused by {}", probe.filter()), probe.filter_mend("io_uring_setup, io_uring_enter"))
        }
        (_, Errno::NOSYS) if probe.seccomp => {
            (format!("unknown to {}", probe.filter()), probe.filter_mend("io_uring_setup, io_uring_enter"))
        }
        (_, Errno::NOSYS) => ("not in this kernel".into(), "a kernel with CONFIG_IO_URING=y".to_owned()),
        (_, error) => (words(error), String::new()),
    };
    Finding::new(NAME, Verdict::Warn, format!("{why}; threads read and write the store instead")).mend(mend)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn best() -> Probe {
        Probe {
            release: "6.18.44-x".into(),
            full: Ok(WANTED),
            device: Ok(WANTED),
            user_only: Ok(WANTED),
            ring: Ok(()),
            unprivileged: Some("0".into()),
            ring_disabled: Some("0".into()),
            seccomp: false,
            container: None,
        }
    }

    fn finding(findings: &Findings, name: &str) -> Finding {
        findings.findings.iter().find(|finding| finding.name == name).unwrap().clone()
    }

    #[test]
    fn the_best_machine() {
        let found = Findings::of(&best());
        assert!(found.findings.iter().all(|finding| finding.verdict == Verdict::Ok));
        assert_eq!((found.engine, found.io), (Some("move"), "uring"));
        assert_eq!(found.conclusion(true).verdict, Verdict::Ok);
        assert_eq!(found.conclusion(false).verdict, Verdict::Bad);
    }

    #[test]
    fn an_ordinary_user() {
        let probe = Probe { full: Err(Errno::PERM), device: Err(Errno::ACCES), ..best() };
        let found = Findings::of(&probe);
        assert_eq!(found.engine, Some("usermode"));
        let finding = finding(&found, "userfaultfd");
        assert_eq!(finding.verdict, Verdict::Warn);
        assert!(finding.text.contains("vm.unprivileged_userfaultfd is 0"), "{}", finding.text);
        assert_eq!(finding.mend, SETUP);
        assert_eq!(found.conclusion(true).mend, finding.mend);
        let found = Findings::of(&Probe { device: Err(Errno::NOENT), ..probe.clone() });
        assert_eq!(found.mend, SETUP);
        // The rule was applied.
        let found = Findings::of(&Probe { device: Ok(WANTED), ..probe });
        assert_eq!(found.engine, Some("move"));
    }

    #[test]
    fn what_is_asked_for_and_cannot_be_had() {
        assert_eq!(best().refuses("auto", "auto"), None);
        assert_eq!(best().refuses("usermode", "uring"), None);
        let ordinary = Probe { full: Err(Errno::PERM), device: Err(Errno::ACCES), ..best() };
        assert_eq!(ordinary.refuses("auto", "threads"), None);
        assert_eq!(ordinary.refuses("usermode", "auto"), None);
        assert!(ordinary.refuses("move", "auto").unwrap().starts_with("userfaultfd: user-mode-only"));
        let older = Probe { full: Ok(WANTED & !feature::MOVE), ring: Err(Errno::NOSYS), ..best() };
        assert_eq!(older.refuses("copy", "auto"), None);
        assert!(older.refuses("move", "auto").unwrap().contains("without move"));
        assert!(older.refuses("auto", "uring").unwrap().starts_with("io_uring: not in this kernel"));
        let none = Probe { user_only: Err(Errno::PERM), ..ordinary };
        assert!(none.refuses("auto", "auto").unwrap().contains("refused by"));
    }

    #[test]
    fn in_a_container() {
        let probe = Probe {
            full: Err(Errno::PERM),
            device: Err(Errno::NOENT),
            user_only: Err(Errno::PERM),
            ring: Err(Errno::PERM),
            seccomp: true,
            container: Some("Docker"),
            ..best()
        };
        let found = Findings::of(&probe);
        assert_eq!((found.engine, found.io), (None, "threads"));
        let finding = finding(&found, "userfaultfd");
        assert!(finding.text.contains("refused by Docker") && finding.mend.contains("seccomp"), "{finding:?}");
        assert_eq!(found.conclusion(true).verdict, Verdict::Bad);
    }

    #[test]
    fn old_kernels() {
        let older = WANTED & !feature::MOVE;
        let probe =
            Probe { release: "6.1.0-18".into(), full: Ok(older), device: Ok(older), user_only: Ok(older), ..best() };
        let found = Findings::of(&probe);
        assert_eq!(found.engine, Some("copy"));
        assert_eq!(finding(&found, "kernel").verdict, Verdict::Warn);
        assert!(finding(&found, "its features").text.ends_with("without move"));
        assert_eq!(kernel("4.18.0-553.el8").verdict, Verdict::Bad);
        assert_eq!(kernel("6.8.0").verdict, Verdict::Ok);
        assert_eq!(kernel("7.0").verdict, Verdict::Ok);
        let probe =
            Probe { full: Err(Errno::NOSYS), device: Err(Errno::NOENT), user_only: Err(Errno::NOSYS), ..best() };
        assert!(Findings::of(&probe).mend.contains("CONFIG_USERFAULTFD"));
    }

    #[test]
    fn io_uring_switched_off() {
        let probe = Probe { ring: Err(Errno::PERM), ring_disabled: Some("2".into()), ..best() };
        let finding = finding(&Findings::of(&probe), "io_uring");
        assert!(finding.text.contains("is 2") && finding.mend.contains("kernel.io_uring_disabled=0"), "{finding:?}");
    }
}
