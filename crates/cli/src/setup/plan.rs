//! What has to change on this machine so that it is as asked for. Only looks.

use super::change::{self, ABSENT, Change, Kind, PRESENT};
use super::lines::{self, Form};
use super::wishes::{Amount, Limit, ONE_GIB, Pool, Wishes};
use super::{binfmt, userfaultfd_rule};
use crate::doctor::large_size_off;
use crate::failure::{Failure, reason};
use crate::machine::Machine;
use crate::os;
use crate::shared;
use crate::tree::{Tree, chosen};
use ream_options::show_size;
use std::path::Path;

const THP: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
const DEVICE: &str = "/dev/userfaultfd";
const UNPRIVILEGED: &str = "/proc/sys/vm/unprivileged_userfaultfd";
const RULE_FILE: &str = "/etc/udev/rules.d/60-userfaultfd.rules";
const LIMITS_FILE: &str = "/etc/security/limits.d/60-ream.conf";
const SYSCTL_FILE: &str = "/etc/sysctl.d/60-ream.conf";
/// Fewest mappings a process that `ream doctor` is content with.
pub const MAPPINGS: u64 = 65_530;

/// What is to be done.
pub struct Plan<'a> {
    tree: &'a Tree,
    /// In this order.
    pub changes: Vec<Change>,
    /// What the user should know besides.
    pub notes: Vec<String>,
    /// Pages that pools are to gain, in bytes.
    gain: u64,
}

/// Compares the machine with what is asked for.
///
/// # Errors
/// What is asked for cannot be had here; nothing should be changed then.
pub fn plan<'a>(tree: &'a Tree, wishes: &Wishes) -> Result<Plan<'a>, Failure> {
    let mut plan = Plan { tree, changes: Vec::new(), notes: Vec::new(), gain: 0 };
    let group = wishes.group.as_deref().map(|name| Ok((name, group_number(tree, name)?))).transpose()?;
    let mut sysctl = Vec::new();
    if wishes.userfaultfd {
        plan.userfaultfd(group, &mut sysctl)?;
    }
    // What is set at boot comes before what is set now: setup finds out by the latter whether anything is to be done.
    let (form, boot_file) = lines::boot(tree);
    let mut boot = Vec::new();
    let mut now = Vec::new();
    if wishes.thp {
        plan.thp(form, &mut boot, &mut now)?;
        plan.shared_memory(form, &mut boot, &mut now);
    }
    for pool in &wishes.pools {
        plan.pool(pool, form, &mut boot, &mut now)?;
    }
    plan.room()?;
    plan.file(boot_file, form, &boot)?;
    if form == Form::Sysfs && !boot.is_empty() && !tree.has("/etc/init.d/sysfsutils") {
        plan.notes.push(format!("{boot_file} is read at boot by sysfsutils; install that package"));
    }
    if wishes.sysctl {
        plan.least(&mut sysctl);
    }
    if let (Some((name, number)), false) = (group, wishes.pools.is_empty()) {
        plan.shared_segments(name, number, &mut sysctl);
    }
    let text: Vec<_> = sysctl.iter().map(|(name, value)| format!("{name} = {value}")).collect();
    plan.file(SYSCTL_FILE, Form::Sysctl, &text)?;
    for (name, value) in &sysctl {
        now.push((Kind::Knob, format!("/proc/sys/{}", name.replace('.', "/")), value.clone()));
    }
    if let Some(limit) = wishes.memlock {
        plan.memlock(limit, group.map(|(name, _)| name))?;
    }
    for (kind, path, value) in now {
        plan.to(kind, &path, value.into_bytes())?;
    }
    if wishes.binfmt {
        plan.binfmt(wishes.handler.as_deref())?;
    }
    Ok(plan)
}

fn group_number(tree: &Tree, name: &str) -> Result<u32, Failure> {
    let known = if tree.is_machine() {
        os::group_number(name)
    } else {
        let lines = tree.setting("/etc/group").unwrap_or_default();
        let number = |line: &str| line.strip_prefix(name)?.strip_prefix(':')?.split(':').nth(1)?.parse().ok();
        lines.lines().find_map(number)
    };
    known
        .ok_or_else(|| Failure::new(format!("--group: {name}: no such group; make it first: groupadd --system {name}")))
}

impl Plan<'_> {
    /// A thing is to be in a state.
    fn to(&mut self, kind: Kind, path: &str, new: Vec<u8>) -> Result<(), Failure> {
        let old = change::look(self.tree, kind, path)
            .map_err(|error| Failure::new(format!("setup: {path}: {}; nothing was changed", reason(&error))))?;
        if old != new {
            self.changes.push(Change { kind, path: path.to_owned(), old, new });
        }
        Ok(())
    }

    /// A file of settings is to have these lines.
    fn file(&mut self, path: &str, form: Form, lines: &[String]) -> Result<(), Failure> {
        if lines.is_empty() {
            return Ok(());
        }
        let mut parents: Vec<_> = Path::new(path).ancestors().skip(1).filter_map(Path::to_str).collect();
        parents.reverse();
        for parent in parents {
            let known = self.changes.iter().any(|change| change.path == parent);
            if !known && parent != "/" {
                self.to(Kind::Directory, parent, PRESENT.to_vec())?;
            }
        }
        let now = change::look(self.tree, Kind::File, path)
            .map_err(|error| Failure::new(format!("setup: {path}: {}; nothing was changed", reason(&error))))?;
        let kept = change::parts(&now).filter(|_| now.starts_with(b"file "));
        let (mode, owner) = kept.map_or((0o644, os::user_and_group()), |(mode, owner, _)| (mode, owner));
        let had = kept.map(|(_, _, contents)| String::from_utf8_lossy(contents).into_owned());
        let text = lines::merged(form, had.as_deref(), lines);
        if had.as_deref() != Some(text.as_str()) {
            self.to(Kind::File, path, change::file(mode, owner, text.as_bytes()))?;
        }
        Ok(())
    }

    fn userfaultfd(&mut self, group: Option<(&str, u32)>, sysctl: &mut Vec<(String, String)>) -> Result<(), Failure> {
        let everybody = self.tree.count(UNPRIVILEGED) == Some(1);
        if !self.tree.has(DEVICE) {
            if group.is_none() && self.tree.has(UNPRIVILEGED) && !everybody {
                sysctl.push(("vm.unprivileged_userfaultfd".into(), "1".into()));
            }
            let why = "userfaultfd: there is no /dev/userfaultfd (Linux 6.1)";
            match (group, self.tree.has(UNPRIVILEGED)) {
                (Some((name, _)), true) => {
                    self.notes.push(format!("{why}, so it cannot be for {name} alone; --group left out allows all"));
                }
                (_, false) => self.notes.push(format!("{why} and no vm.unprivileged_userfaultfd: left out")),
                _ => {}
            }
            return Ok(());
        }
        if everybody {
            if let Some((name, _)) = group {
                self.notes.push(format!(
                    "userfaultfd: {UNPRIVILEGED} is 1, so everybody has it and not {name} alone; write 0 there first"
                ));
            }
            return Ok(());
        }
        self.file(RULE_FILE, Form::Whole, &[userfaultfd_rule(group.map(|(name, _)| name))])?;
        // The same now, as udev will do it at boot.
        let now = change::look(self.tree, Kind::Device, DEVICE)
            .map_err(|error| Failure::new(format!("setup: {DEVICE}: {}", reason(&error))))?;
        let Some((_, (user, its), _)) = change::parts(&now) else { return Ok(()) };
        let wanted = match group {
            Some((_, number)) => change::device(0o660, (user, number)),
            None => change::device(0o666, (user, its)),
        };
        self.to(Kind::Device, DEVICE, wanted)
    }

    fn thp(
        &mut self,
        form: Form,
        boot: &mut Vec<String>,
        now: &mut Vec<(Kind, String, String)>,
    ) -> Result<(), Failure> {
        if let Some(file) = large_size_off(self.tree) {
            boot.push(lines::boot_line(form, &file, "inherit"));
            now.push((Kind::Knob, file, "inherit".to_owned()));
        }
        match self.tree.setting(THP) {
            Some(text) if chosen(&text) == "never" => {
                boot.push(lines::boot_line(form, THP, "madvise"));
                now.push((Kind::Knob, THP.to_owned(), "madvise".to_owned()));
            }
            Some(_) => {}
            None => self.notes.push("transparent large pages: not in this kernel, left out".to_owned()),
        }
        Ok(())
    }

    /// Shared memory gets large pages where a program asks; what somebody has forbidden stays so.
    fn shared_memory(&self, form: Form, boot: &mut Vec<String>, now: &mut Vec<(Kind, String, String)>) {
        let word = self.tree.setting(shared::GENERAL);
        if word.is_some_and(|text| chosen(&text) == "never") {
            boot.push(lines::boot_line(form, shared::GENERAL, "advise"));
            now.push((Kind::Knob, shared::GENERAL.to_owned(), "advise".to_owned()));
        }
    }

    fn pool(
        &mut self,
        pool: &Pool,
        form: Form,
        boot: &mut Vec<String>,
        now: &mut Vec<(Kind, String, String)>,
    ) -> Result<(), Failure> {
        let size = show_size(pool.page * 1024);
        let parts: Vec<_> = match &pool.amount {
            Amount::Anywhere(bytes) => vec![(None, *bytes)],
            Amount::Nodes(nodes) => nodes.iter().map(|(node, bytes)| (Some(*node), *bytes)).collect(),
        };
        let nodes = self.tree.numbered("/sys/devices/system/node", "node", "");
        for (node, bytes) in parts {
            if let Some(node) = node.filter(|node| !nodes.contains(node)) {
                let there = nodes.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
                return Err(Failure::new(format!("--hugetlb: node {node}: no such node; there are {there}")));
            }
            let path = pool_file(pool.page, node);
            let Some(have) = self.tree.count(&path) else {
                return Err(Failure::new(format!("--hugetlb: this machine has no pages of {size} ({path})")));
            };
            let wanted = bytes.div_ceil(pool.page * 1024);
            if have > wanted {
                self.notes.push(format!(
                    "{path}: holds {have} pages of {size}, more than the {wanted} asked for; left as it is"
                ));
                continue;
            }
            let more = (wanted - have).saturating_mul(pool.page * 1024);
            self.gain = self.gain.saturating_add(more);
            boot.push(lines::boot_line(form, &path, &wanted.to_string()));
            now.push((Kind::Pool, path, wanted.to_string()));
        }
        if pool.page == ONE_GIB {
            self.notes.push(format!(
                "pages of {size} are sure to be had only when the kernel reserves them first of all: add to its \
                 command line {}",
                kernel_words(pool)
            ));
        }
        Ok(())
    }

    /// Whether there is memory for what the pools are to gain: what they take, nothing else can use.
    fn room(&self) -> Result<(), Failure> {
        let Ok(machine) = Machine::under(self.tree.root()) else { return Ok(()) };
        let most = (u128::from(machine.available) * 9 / 10) as u64;
        if self.gain <= most {
            return Ok(());
        }
        Err(Failure::new(format!(
            "--hugetlb: {} more are asked for, and {} of RAM are available, of which a tenth should stay; ask for less",
            show_size(self.gain),
            show_size(machine.available)
        )))
    }

    /// Settings that must not be below what Ream works well with.
    fn least(&self, sysctl: &mut Vec<(String, String)>) {
        let total = Machine::under(self.tree.root()).map_or(0, |machine| machine.total);
        let wanted = [("vm.max_map_count", MAPPINGS), ("kernel.shmmax", total), ("kernel.shmall", total / 4096)];
        for (name, least) in wanted {
            let path = format!("/proc/sys/{}", name.replace('.', "/"));
            if self.tree.count(&path).is_some_and(|value| value < least) {
                sysctl.push((name.to_owned(), least.to_string()));
            }
        }
    }

    fn shared_segments(&mut self, name: &str, number: u32, sysctl: &mut Vec<(String, String)>) {
        match self.tree.count("/proc/sys/vm/hugetlb_shm_group") {
            Some(0) => sysctl.push(("vm.hugetlb_shm_group".into(), number.to_string())),
            Some(other) if other != u64::from(number) => {
                self.notes.push(format!("vm.hugetlb_shm_group is {other} already and stays so, not {name}"));
            }
            _ => {}
        }
    }

    fn memlock(&mut self, limit: Limit, group: Option<&str>) -> Result<(), Failure> {
        let value = match limit {
            Limit::Unlimited => "unlimited".to_owned(),
            Limit::Bytes(bytes) => (bytes / 1024).to_string(),
        };
        let whom: &[String] = match group {
            Some(name) => &[format!("@{name}")],
            // The star does not mean root.
            None => &["*".to_owned(), "root".to_owned()],
        };
        let text: Vec<_> = whom.iter().map(|whom| format!("{whom} - memlock {value}")).collect();
        let before = self.changes.len();
        self.file(LIMITS_FILE, Form::Limits, &text)?;
        if self.changes.len() > before {
            self.notes.push(
                "the limit on locked memory holds from the next login on; services have their own (LimitMEMLOCK=)"
                    .to_owned(),
            );
        }
        Ok(())
    }

    fn binfmt(&mut self, named: Option<&Path>) -> Result<(), Failure> {
        let installed = || std::env::current_exe().ok().and_then(|command| binfmt::installed(&command));
        let Some(handler) = named.map(Path::to_owned).or_else(installed) else {
            self.notes.push(format!("marked binaries: {} is not installed with this ream; left out", binfmt::HANDLER));
            return Ok(());
        };
        let refuse = |why: String| Failure::new(format!("marked binaries: {why}; --no-binfmt leaves them out"));
        if !binfmt::executable(&handler) {
            return Err(refuse(format!("{}: not a program that everybody may execute", handler.display())));
        }
        if self.tree.is_machine() {
            if let Some(why) = binfmt::untrusted(&handler) {
                return Err(refuse(format!("{why}, and the kernel would start it for all users")));
            }
        }
        let entry = binfmt::entry(&handler).map_err(refuse)?;
        self.file(binfmt::BOOT_FILE, Form::Whole, std::slice::from_ref(&entry))?;
        // Asking for a file of it makes systemd mount it where it does so on demand.
        let mounted = self.tree.has(&format!("{}/register", binfmt::DIRECTORY));
        if !mounted && !self.tree.is_machine() {
            return Ok(());
        }
        if !mounted {
            if !self.tree.has(binfmt::DIRECTORY) {
                self.notes
                    .push("marked binaries: this kernel has no binfmt_misc, or not yet (modprobe binfmt_misc)".into());
                return Ok(());
            }
            self.to(Kind::Mount, binfmt::DIRECTORY, PRESENT.to_vec())?;
        }
        let path = format!("{}/{}", binfmt::DIRECTORY, binfmt::NAME);
        if mounted {
            self.to(Kind::Entry, &path, entry.into_bytes())
        } else {
            self.changes.push(Change { kind: Kind::Entry, path, old: ABSENT.to_vec(), new: entry.into_bytes() });
            Ok(())
        }
    }
}

/// The file with the number of a pool's pages.
fn pool_file(page: u64, node: Option<u64>) -> String {
    match node {
        Some(node) => format!("/sys/devices/system/node/node{node}/hugepages/hugepages-{page}kB/nr_hugepages"),
        None => format!("/sys/kernel/mm/hugepages/hugepages-{page}kB/nr_hugepages"),
    }
}

/// The words of the kernel's command line that reserve a pool.
pub fn kernel_words(pool: &Pool) -> String {
    let pages = |bytes: u64| bytes.div_ceil(pool.page * 1024);
    let amount = match &pool.amount {
        Amount::Anywhere(bytes) => pages(*bytes).to_string(),
        Amount::Nodes(nodes) => {
            nodes.iter().map(|(node, bytes)| format!("{node}:{}", pages(*bytes))).collect::<Vec<_>>().join(",")
        }
    };
    let size = if pool.page == ONE_GIB { "1G" } else { "2M" };
    format!("hugepagesz={size} hugepages={amount}")
}
