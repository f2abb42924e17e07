//! What rows of `ream bench all` stand on: the programs, who may be asked for what, swap when it is needed, and the journal
//! of what was changed for it.

use crate::coverage;
use crate::driver::Commands;
use crate::interrupt;
use crate::journal::Journal;
use crate::measured::{self, Ran};
use crate::others::{OTHERS, PLAIN, Proof, Setting, TIERS, under, under_ream};
use crate::pool::Pool;
use crate::swap::{self, Swap};
use crate::zram;
use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The kernel's setting of transparent large pages.
const LARGE: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
/// Bytes of swap at least: it serves several rows.
const SWAP: u64 = 512 << 20;
/// The longest that one run may take.
const LIMIT: Duration = Duration::from_secs(900);

/// How a program is started.
#[derive(Clone, PartialEq, Debug)]
pub enum Start {
    /// As it is; with arguments of its own, where it asks for large pages itself.
    Plain,
    /// Under `ream run` with these options, beside those of all rows.
    Ream(Vec<String>),
    /// With one of the settings that promise large pages.
    Setting(&'static str),
    /// While the kernel uses large pages wherever it can.
    Always,
    /// In a cgroup with so many bytes, and swap.
    Swap(u64, Means),
}

/// What helps a program in a cgroup that is too small for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Means {
    /// Swap as it is set; or nothing but the file that the program maps by itself.
    Usual,
    /// Swap with this page-cluster.
    Cluster(u32),
    /// Compressed memory as swap.
    Zram,
    /// Swap with compressed memory before it.
    Zswap,
    /// A library that puts every other allocation into a file.
    Tiers,
}

/// The kernel's switch of compressed memory before swap.
const ZSWAP: &str = "/sys/module/zswap/parameters/enabled";

/// Programs, the journal, and what is set up while rows are measured.
pub struct Ground {
    /// `ream` and its workers.
    pub commands: Commands,
    /// The directory of stores and of the swap file.
    pub store: PathBuf,
    /// Options of `ream run` in all rows.
    with: Vec<String>,
    journal: Option<Journal>,
    swap: Option<Result<Swap, String>>,
    absent: HashMap<&'static str, Option<String>>,
    /// When whatever runs is ended.
    pub end: Option<Instant>,
}

impl Ground {
    /// With these programs, in this directory.
    ///
    /// # Errors
    /// Another benchmark is running.
    pub fn new(commands: Commands, store: &Path, with: &[String]) -> Result<Ground, String> {
        let journal = if is_root() { Some(Journal::open(&commands.worker)?) } else { None };
        crate::swap::clean(store);
        let with = with.to_vec();
        Ok(Ground { commands, store: store.to_owned(), with, journal, swap: None, absent: HashMap::new(), end: None })
    }

    /// One of the workers' programs.
    pub fn program(&self, name: &str) -> PathBuf {
        self.commands.worker.with_file_name(name)
    }

    /// The options of `ream run`.
    fn options(&self, own: &[String]) -> Vec<OsString> {
        let store = ["--store".into(), self.store.as_os_str().to_owned()];
        store.into_iter().chain(own.iter().chain(&self.with).map(OsString::from)).collect()
    }

    /// Swap for so many bytes of data, limited to so many bytes of RAM.
    ///
    /// # Errors
    /// Why there is none.
    pub fn swap(&mut self, data: u64, limit: u64) -> Result<&Swap, String> {
        if self.swap.is_none() {
            let made = match &mut self.journal {
                None => Err("needs root: a swap file and a memory cgroup".to_owned()),
                Some(journal) => journal
                    .swap(&self.store)
                    .and_then(|()| Swap::new(&self.store, (data + data / 4).max(SWAP), limit, &self.commands.worker)),
            };
            self.swap = Some(made);
        }
        match &self.swap {
            Some(Ok(swap)) => Ok(swap),
            Some(Err(why)) => Err(why.clone()),
            None => Err("not set up".into()),
        }
    }

    /// Takes swap down, if it is there.
    pub fn no_swap(&mut self) {
        self.swap = None;
    }

    /// Notes that a chapter sets swap up by itself.
    pub fn announce_swap(&mut self) -> Result<(), String> {
        let directory = self.store.clone();
        match &mut self.journal {
            Some(journal) => journal.swap(&directory),
            None => Err("needs root: a swap file and a memory cgroup".into()),
        }
    }

    /// Why a program cannot be started so; `None` when it can.
    pub fn absent(&mut self, start: &Start, data: u64) -> Option<String> {
        match start {
            Start::Plain => self.probed("plain", PLAIN),
            Start::Ream(_) => {
                let proof = Proof::Library("libream.so");
                let observer = self.program("ream-bench-coverage");
                let command = under_ream(&self.commands.ream, &self.options(&[]), &observer);
                let probe = || coverage::probe(command, proof).err();
                self.absent.entry("Ream").or_insert_with(probe).clone()
            }
            Start::Setting(name) => match OTHERS.iter().find(|setting| setting.name == *name) {
                Some(setting) => self.probed(name, *setting),
                None => Some("not known".into()),
            },
            Start::Always => match std::fs::read_to_string(LARGE) {
                Err(_) => Some("this kernel has no transparent large pages".into()),
                Ok(text) if text.contains("[always]") => Some("is how this machine is set, so plain is that".into()),
                Ok(_) if self.journal.is_none() => Some("needs root: a setting of the kernel".into()),
                Ok(_) => None,
            },
            Start::Swap(limit, means) => {
                let missing = match means {
                    Means::Zram => zram::absent(),
                    Means::Zswap if !Path::new(ZSWAP).exists() => Some("this kernel has no zswap".into()),
                    Means::Tiers => self.probed("memkind tiers", TIERS),
                    _ => None,
                };
                // Whoever may not have swap need not know what else is missing.
                self.swap(data, *limit).err().or(missing)
            }
        }
    }

    fn probed(&mut self, name: &'static str, setting: Setting) -> Option<String> {
        let observer = self.program("ream-bench-coverage");
        let probe = || {
            if setting.pool {
                if let Err(why) = Pool::as_it_is(coverage::POOL) {
                    return Some(why);
                }
            }
            coverage::probe(under(&setting, &observer), setting.proof).err()
        };
        self.absent.entry(name).or_insert_with(probe).clone()
    }

    /// Runs a program once.
    ///
    /// # Errors
    /// It could not be started, did not end well, or the benchmark was interrupted.
    pub fn run(&mut self, start: &Start, program: &Path, arguments: &[String]) -> Result<Ran, String> {
        let mut command = match start {
            Start::Swap(_, Means::Tiers) => {
                let mut command = under(&TIERS, program);
                command.env(crate::others::TIERS_PLACE, crate::others::tiers_in(&self.store));
                command
            }
            Start::Plain | Start::Always | Start::Swap(..) => under(&PLAIN, program),
            Start::Ream(own) => under_ream(&self.commands.ream, &self.options(own), program),
            Start::Setting(name) => {
                let setting = OTHERS.iter().find(|setting| setting.name == *name).ok_or("not known")?;
                under(setting, program)
            }
        };
        command.args(arguments);
        let left = self.end.map_or(LIMIT, |end| end.saturating_duration_since(Instant::now()));
        let prepared = self.prepare(start).and_then(|()| self.limited(start, &mut command));
        let ran = prepared.and_then(|()| measured::run(&mut command, LIMIT.min(left)));
        self.put_right(start);
        let ran = ran?;
        interrupt::check()?;
        match ran.status.success() {
            true => Ok(ran),
            false => {
                let last = ran.errors.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("said nothing");
                Err(format!("{}: {last}", ran.status))
            }
        }
    }

    /// Sets the machine as a run needs it.
    fn prepare(&mut self, start: &Start) -> Result<(), String> {
        let (file, value) = match start {
            Start::Always => (LARGE, "always".to_owned()),
            Start::Swap(_, Means::Cluster(power)) => (swap::CLUSTER, power.to_string()),
            Start::Swap(_, Means::Zswap) => (ZSWAP, "Y".to_owned()),
            Start::Swap(limit, Means::Zram) => {
                // Data are four times the limit at most.
                return self.journal.as_mut().ok_or("needs root")?.zram((limit * 6).max(SWAP));
            }
            _ => return Ok(()),
        };
        self.journal.as_mut().ok_or("needs root")?.change(Path::new(file), &value)
    }

    /// Sets it back.
    fn put_right(&mut self, start: &Start) {
        let Some(journal) = &mut self.journal else { return };
        match start {
            Start::Always => journal.restore(Path::new(LARGE)),
            Start::Swap(_, Means::Cluster(_)) => journal.restore(Path::new(swap::CLUSTER)),
            Start::Swap(_, Means::Zswap) => journal.restore(Path::new(ZSWAP)),
            Start::Swap(_, Means::Zram) => journal.no_zram(),
            _ => {}
        }
    }

    /// Has a command begin in the cgroup, if it is to.
    fn limited(&self, start: &Start, command: &mut Command) -> Result<(), String> {
        let (Start::Swap(limit, _), Some(Ok(swap))) = (start, &self.swap) else { return Ok(()) };
        swap.limit(*limit)?;
        swap::join(command, &swap.entrance())
    }
}

/// Whether this process is root's.
pub fn is_root() -> bool {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// In words, how a program is started so; with the version of a library that is loaded for it.
pub fn in_words(start: &Start) -> String {
    match start {
        Start::Plain => "as it is".into(),
        Start::Ream(own) => format!("ream run {}", own.join(" ")).trim_end().to_owned(),
        Start::Always => "transparent_hugepage/enabled=always".into(),
        Start::Swap(limit, means) => {
            let with = match means {
                Means::Usual => "swap file, page-cluster as it is".to_owned(),
                Means::Cluster(power) => format!("swap file, page-cluster {power}"),
                Means::Zram => "zram as swap, whose memory does not count".to_owned(),
                Means::Zswap => "swap file with zswap before it".to_owned(),
                Means::Tiers => in_environment(&TIERS),
            };
            format!("memory cgroup of {} MiB, {with}", limit >> 20)
        }
        Start::Setting(name) => {
            let Some(setting) = OTHERS.iter().find(|setting| setting.name == *name) else { return String::new() };
            in_environment(setting)
        }
    }
}

/// What a setting sets, with the version of its library.
fn in_environment(setting: &Setting) -> String {
    let words = setting.environment.iter().map(|(name, value)| format!("{name}={value}"));
    let library = setting.environment.iter().find(|(name, _)| *name == "LD_PRELOAD").map(|(_, library)| *library);
    let version = library.and_then(package_of).map(|version| format!(" ({version})")).unwrap_or_default();
    words.collect::<Vec<_>>().join(" ") + &version
}

/// Debian's name and version of the package that a library comes with.
fn package_of(library: &str) -> Option<String> {
    let places = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"];
    let file = places.iter().map(|place| Path::new(place).join(library)).find(|file| file.exists())?;
    let answer = |words: &[&str]| {
        let output = Command::new("dpkg-query").args(words).output().ok().filter(|output| output.status.success())?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let owner = answer(&["-S", file.to_str()?])?;
    let package = owner.split(':').next()?;
    answer(&["-W", "-f", "${Package} ${Version}", package])
}
