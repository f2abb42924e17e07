//! The session agent: a detached process that keeps a session's memory reachable, gives back what killed processes
//! held, and writes the summary when no process of the session could.

mod door;
pub mod find;
mod join;

use crate::failure::reason;
use crate::keeper;
use crate::os;
use find::{Found, find};
use join::Doors;
use ream_stats::{Config, Identity, Report, Session, Summary};
use ream_sys::file::Fd;
use ream_sys::quiet;
use std::collections::HashMap;
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Duration;

/// The name under which the command is the agent.
pub const NAME: &str = "ream-agent";
/// The agent's descriptor of the session's memory.
pub const MEMORY: RawFd = 3;
/// The agent's descriptor of the pipe to its launcher.
const REPORT: RawFd = 4;
/// The agent's descriptor of the socket at which ranks of a job come.
const RANKS: RawFd = 5;
/// How long a session without processes may still be joined by a program that is just starting, in milliseconds.
const LINGER_MS: u64 = 1000;

/// Makes a session of freshly mapped shared memory.
#[allow(unsafe_code)]
pub fn create(mapping: *mut u8, nonce: u64, door: u64, config: &Config) -> &'static Session {
    // SAFETY: the caller has just mapped `Session::BYTES` zeros of a new file, which nobody else knows yet and which
    // is never unmapped; mappings are aligned to pages.
    let session = unsafe { Session::create(mapping, nonce, config, os::now_ms()) };
    session.set_door(door);
    session
}

/// What the ranks of a job go by: a socket where they come, and a digest of their options.
pub struct Job {
    /// The socket.
    pub listener: UnixListener,
    /// The digest.
    pub digest: u64,
}

/// Descriptors that are enough for an agent, and of which `ream doctor` warns that there are fewer.
pub const FILES: u64 = 64;

/// Starts the agent for a session and returns its process number once it is watching.
pub fn start(memory: &OwnedFd, job: Option<&Job>) -> io::Result<u32> {
    let (from_agent, to_launcher) = os::pipe()?;
    let digest = job.map(|job| format!("{:016x}", job.digest));
    let socket = job.map(|job| job.listener.as_raw_fd());
    if std::process::id() == 1 {
        // Of a container without an init process, for example: whatever is detached would become a child of the program.
        if os::start_unseen(memory, &to_launcher, socket)? {
            os::clear_environment();
            os::replace_arguments(c"ream-agent");
            os::end(main(digest.as_deref().map(OsStr::new)));
        }
    } else {
        let arguments = [NAME].into_iter().chain(digest.as_deref()).map(CString::new).collect::<Result<Vec<_>, _>>()?;
        let arguments: Vec<&std::ffi::CStr> = arguments.iter().map(CString::as_c_str).collect();
        os::start_detached(c"/proc/self/exe", &arguments, memory, &to_launcher, socket)?;
    }
    drop(to_launcher);
    let mut answer = Vec::new();
    File::from(from_agent).read_to_end(&mut answer)?;
    // Eight bytes: zero and the process number. Four: the errno of a failed exec.
    let number =
        |at: usize| answer.get(at..at + 4).map(|four| u32::from_ne_bytes([four[0], four[1], four[2], four[3]]));
    match (number(0), number(4)) {
        (Some(0), Some(pid)) => Ok(pid),
        (Some(error), _) => Err(io::Error::from_raw_os_error(error as i32)),
        // It could not say why: most often for want of descriptors.
        _ => Err(io::Error::other(match os::limit(libc::RLIMIT_NOFILE) {
            Some(most) if most < FILES => {
                format!("ended before it was ready: only {most} files may be open (ulimit -n)")
            }
            _ => "ended before it was ready".to_owned(),
        })),
    }
}

/// The agent's life. `digest` is that of the options of a job. Returns its exit status.
pub fn main(digest: Option<&OsStr>) -> i32 {
    os::set_name(c"ream-agent");
    os::ignore_signals_of_groups();
    os::raise_descriptor_limit();
    os::lift_size_limit();
    // Page maps that it opens for others must not show them where in RAM their pages lie.
    os::give_up_administration();
    let (Ok(memory), Ok(report)) = (os::inherited(MEMORY), os::inherited(REPORT)) else {
        return crate::failure::OWN;
    };
    let mut report = File::from(report);
    match prepare(&memory, digest) {
        Ok(watch) => {
            let pid = std::process::id();
            watch.session.set_agent(pid, os::user_and_group().0);
            let answer = [0u32.to_ne_bytes(), pid.to_ne_bytes()].concat();
            if report.write_all(&answer).is_err() {
                return crate::failure::OWN;
            }
            drop(report);
            watch.watch();
            0
        }
        Err(error) => {
            let _ = report.write_all(&error.raw_os_error().unwrap_or(libc::EINVAL).to_ne_bytes());
            crate::failure::OWN
        }
    }
}

/// A session and the processes being watched.
struct Watch {
    session: &'static Session,
    /// As it was at the start: what lies in the session's memory its processes can change, with less rights than ours.
    config: &'static Config,
    bell: File,
    me: Identity,
    processes: HashMap<Identity, Found>,
    ranks: Doors,
}

fn prepare(memory: &OwnedFd, digest: Option<&OsStr>) -> io::Result<Watch> {
    let mapping = os::map_shared(memory, Session::BYTES)?;
    let file = File::from(memory.try_clone()?);
    let bytes = usize::try_from(file.metadata()?.len()).unwrap_or(0);
    // Not from the command line, which everybody can read.
    let mut nonce = [0; 8];
    file.read_exact_at(&mut nonce, Session::NONCE_AT)?;
    let nonce = u64::from_ne_bytes(nonce);
    #[allow(unsafe_code)]
    // SAFETY: mapped above, shared, writable and for good; it was made by `create`, and is used through this crate.
    let session = unsafe { Session::open(mapping, bytes, nonce) }.map_err(|_| io::Error::other("not the session"))?;
    let bell = File::from(os::event_counter()?);
    let counter = bell.try_clone()?;
    std::thread::Builder::new().stack_size(64 << 10).spawn(move || {
        let word = session.bell();
        let mut seen = word.load(std::sync::atomic::Ordering::SeqCst);
        loop {
            os::wait_while(word, seen);
            seen = word.load(std::sync::atomic::Ordering::SeqCst);
            // Full means that it is readable anyway.
            let _ = (&counter).write(&1u64.to_ne_bytes());
        }
    })?;
    let config = Box::leak(Box::new(*session.config()));
    let leases = config.is_remote().then(|| keeper::keep(session, config)).transpose()?;
    // Without it processes that give up rights have less, and no memory server can be added; all others lack nothing.
    let _ = door::open(memory, nonce, session, config, leases);
    let ranks = match digest.and_then(|text| u64::from_str_radix(text.to_str()?, 16).ok()) {
        Some(digest) => {
            let address = address(std::process::id(), nonce, session.door(), session.config());
            Doors::open(UnixListener::from(os::inherited(RANKS)?), session, address, digest)?
        }
        None => Doors::closed(),
    };
    let mut watch = Watch { session, config, bell, me: find::me(), processes: HashMap::new(), ranks };
    if let Some(root) = session.root() {
        // It waits for our answer, so it lives, unless it was killed.
        watch.add(root);
    }
    Ok(watch)
}

impl Watch {
    fn add(&mut self, who: Identity) {
        if let Some(process) = find(who) {
            self.processes.insert(who, process);
        }
    }

    /// Looks after the session until no process of it is left.
    fn watch(mut self) {
        if self.config.summary() == Summary::Off {
            close_standard_error();
        }
        let mut empty_since = None;
        loop {
            let mut drained = [0; 8];
            // Read before looking, so that what happens from now on rings again. Empty is fine.
            let _ = (&self.bell).read(&mut drained);
            self.look();
            let others = self.session.others(None);
            let timeout = if self.processes.is_empty() && others == 0 {
                summarise(self.session, self.config);
                let since = *empty_since.get_or_insert_with(os::now_ms);
                let left = (since + LINGER_MS).saturating_sub(os::now_ms());
                if left == 0 && self.ranks.close(|| self.session.others(None) == 0) {
                    return;
                }
                Some(left.max(1) as u32)
            } else {
                empty_since = None;
                self.let_go();
                // Entries without a process behind them, such as that of a child before its first instruction, and
                // processes without a descriptor are looked at again; all others wake us when they end.
                let watched = self.descriptors().count();
                (watched < self.processes.len().max(others)).then_some(LINGER_MS as u32)
            };
            os::wait_readable(self.descriptors().chain([self.bell.as_raw_fd()]), timeout);
        }
    }

    /// Where the summary goes to a file only its failure would go to standard error, which is not kept open for those who go on
    /// when the program itself has ended.
    fn let_go(&self) {
        let lives = |root: Identity| self.processes.contains_key(&root);
        if self.config.summary() == Summary::Json && !self.session.root().is_some_and(lives) {
            close_standard_error();
        }
    }

    fn descriptors(&self) -> impl Iterator<Item = RawFd> + '_ {
        self.processes.values().filter_map(|process| process.descriptor.as_ref()).map(AsRawFd::as_raw_fd)
    }

    /// Gives the places of ranks that have ended to others.
    fn hand_on(&self) {
        if self.session.turns().anybody_waits() {
            let alive = |who| find(who).is_some();
            let decision = self.session.decide(None, alive, || std::thread::sleep(Duration::from_micros(200)));
            let patience_us = u64::from(self.config.patience_ms) * 1000;
            decision.look(os::now_ms() * 1000, patience_us, &mut |seat| os::wake(seat.word()));
        }
    }

    /// Clears what ended processes held, and learns of new ones.
    fn look(&mut self) {
        self.processes.retain(|who, process| match &process.descriptor {
            Some(process) => !os::has_ended(process),
            None => find(*who).is_some(),
        });
        let processes = &self.processes;
        self.session.sweep(self.me, os::now_ms(), |who, program| match processes.get(&who) {
            Some(process) => process.may_run(program),
            None => find(who).is_some_and(|process| process.may_run(program)),
        });
        self.session.audit();
        self.hand_on();
        let known = |who: &Identity| self.processes.contains_key(who);
        let live = self.session.used().iter().filter_map(|process| process.identity());
        let new: Vec<_> = live.filter(|who| !known(who)).collect();
        for who in new {
            self.add(who);
        }
    }
}

/// The value of `REAM_SESSION`.
pub fn address(agent: u32, nonce: u64, door: u64, config: &Config) -> String {
    let promise = if config.promises_pages() { "!" } else { "" };
    format!("/proc/{agent}/fd/{MEMORY}:{nonce:016x}-{door:016x}{promise}")
}

/// Writes the summary unless a process of the session has, and lets go of standard error, for whose end somebody may be
/// waiting.
fn summarise(session: &Session, config: &Config) {
    if session.claim_summary() {
        let report = Report::of(session, os::now_ms());
        let path = Path::new(OsStr::from_bytes(config.summary_path.as_bytes()));
        let mut text = String::new();
        let written = match config.summary() {
            Summary::Off => Ok(()),
            Summary::Text => report
                .write_text(&mut text)
                .map_err(io::Error::other)
                // Whoever cannot have it on standard error cannot be told either.
                .map(|()| drop(io::stderr().write_all(text.as_bytes()))),
            Summary::Json => {
                report.write_json(&mut text).map_err(io::Error::other).and_then(|()| save(path, text.as_bytes()))
            }
        };
        if let Err(error) = written {
            let why = match error.raw_os_error() {
                Some(libc::ENXIO | libc::EPIPE) => "nobody reads it".to_owned(),
                Some(libc::EAGAIN) => "its reader does not read on".to_owned(),
                _ => reason(&error),
            };
            let _ = writeln!(io::stderr(), "ream: --summary: {}: {why}; the summary is left out", path.display());
        }
    }
    close_standard_error();
}

/// Writes a file; a FIFO that nobody reads is not waited for.
fn save(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut options = File::options();
    let file = options.write(true).create(true).truncate(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    quiet::write_all(Fd(file.as_raw_fd()), bytes).map_err(|error| io::Error::from_raw_os_error(error.0.into()))
}

fn close_standard_error() {
    if let Ok(null) = std::fs::OpenOptions::new().write(true).open("/dev/null") {
        os::replace_standard_error(&null);
    }
}
