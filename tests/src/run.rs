//! Starts a program, plain or under `ream run`, waits for it with a deadline, and sees that nothing is left.

use crate::mpi::{between, lives};
use crate::outcome::{Outcome, Summary};
use crate::place::{Scratch, ream_binary};
use crate::process::{Left, report};
use crate::{Cgroup, MIB};
use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::fd::AsRawFd as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A thread that collects one stream of output.
type Reader = JoinHandle<Vec<u8>>;

/// Longest that what is a matter of moments may take: a disk that is written to makes everything stand still for many seconds.
const MOMENT: Duration = Duration::from_secs(60);

/// A program to be run, and how.
pub struct Run {
    program: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    options: Vec<OsString>,
    memory: Option<u64>,
    under_ream: bool,
    store: Option<PathBuf>,
    zip: Option<u64>,
    ream: PathBuf,
    user: Option<u32>,
    directory: Option<PathBuf>,
    input: Option<PathBuf>,
    deadline: Duration,
    measured: bool,
}

impl Run {
    /// Of this program.
    pub fn of(program: impl AsRef<OsStr>) -> Run {
        Run {
            program: vec![program.as_ref().to_owned()],
            environment: Vec::new(),
            options: Vec::new(),
            memory: None,
            under_ream: false,
            store: None,
            zip: None,
            ream: ream_binary(),
            user: None,
            directory: None,
            input: None,
            deadline: Duration::from_secs(150),
            measured: true,
        }
    }

    /// Adds an argument of the program.
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Run {
        self.program.push(argument.as_ref().to_owned());
        self
    }

    /// Adds arguments of the program.
    pub fn args<A: AsRef<OsStr>>(self, arguments: impl IntoIterator<Item = A>) -> Run {
        arguments.into_iter().fold(self, Run::arg)
    }

    /// Sets an environment variable.
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Run {
        self.environment.push((name.into(), value.as_ref().to_owned()));
        self
    }

    /// Runs it under Ream within so many MiB.
    pub fn memory(mut self, mebibytes: u64) -> Run {
        self.memory = Some(mebibytes);
        self
    }

    /// Runs it under Ream without a budget.
    pub fn under_ream(mut self) -> Run {
        self.under_ream = true;
        self
    }

    /// Adds an option of `ream run`.
    pub fn option(mut self, option: impl AsRef<OsStr>) -> Run {
        self.options.push(option.as_ref().to_owned());
        self
    }

    /// Uses this store directory in place of one made for the run.
    pub fn store(mut self, directory: &Path) -> Run {
        self.store = Some(directory.to_owned());
        self
    }

    /// Puts so many MiB of compressed memory above its store.
    pub fn zip(mut self, mebibytes: u64) -> Run {
        self.zip = Some(mebibytes);
        self
    }

    /// Uses this copy of the `ream` command.
    pub fn ream(mut self, path: &Path) -> Run {
        self.ream = path.to_owned();
        self
    }

    /// Runs it as this user and group, with no further groups (root only).
    pub fn user(mut self, id: u32) -> Run {
        self.user = Some(id);
        self
    }

    /// Runs it in this directory.
    pub fn within(mut self, directory: &Path) -> Run {
        self.directory = Some(directory.to_owned());
        self
    }

    /// Reads its standard input from this file.
    pub fn input(mut self, file: &Path) -> Run {
        self.input = Some(file.to_owned());
        self
    }

    /// Calls it hung after so many seconds (150 unless told).
    pub fn deadline(mut self, seconds: u64) -> Run {
        self.deadline = Duration::from_secs(seconds);
        self
    }

    /// Does not measure it in a cgroup (it reads or writes many files, whose cached pages would count).
    pub fn unmeasured(mut self) -> Run {
        self.measured = false;
        self
    }

    /// Starts it.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start(self) -> Running {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let mark = format!("{}-{number}", std::process::id());
        let scratch = match self.user {
            None => Scratch::new("run"),
            Some(_) => Scratch::for_everybody("run"),
        };
        let summary = scratch.file("summary.json");
        let own_store = scratch.directory("store");
        if let Some(user) = self.user {
            for path in [scratch.path(), &own_store] {
                std::os::unix::fs::chown(path, Some(user), Some(user)).expect("giving a directory to the user");
            }
        }
        let mut command = match self.memory {
            None if !self.under_ream => Command::new(&self.program[0]),
            memory => {
                let mut command = Command::new(&self.ream);
                command.arg("run");
                if let Some(mebibytes) = memory {
                    command.arg("--memory").arg(format!("{mebibytes}M"));
                }
                if let Some(mebibytes) = self.zip {
                    command.arg("--store").arg(format!("zip:{mebibytes}M"));
                }
                command.arg("--store").arg(self.store.as_ref().unwrap_or(&own_store));
                command.arg(format!("--summary={}", summary.display()));
                // All tests can be run on another engine.
                if let Some(engine) = std::env::var_os("REAM_TEST_ENGINE") {
                    command.arg("--engine").arg(engine);
                }
                command.args(&self.options).arg("--").arg(&self.program[0]);
                command
            }
        };
        command.args(&self.program[1..]).env("REAM_TEST_RUN", &mark).process_group(0);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        match &self.input {
            Some(path) => command.stdin(std::fs::File::open(path).expect("the input")),
            None => command.stdin(Stdio::null()),
        };
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        let cgroup = if self.measured { Cgroup::new() } else { None };
        let entrance = cgroup.as_ref().map(|group| {
            std::fs::OpenOptions::new().write(true).open(group.entrance()).expect("the cgroup's list of processes")
        });
        if let Some(file) = &entrance {
            let descriptor = file.as_raw_fd();
            // SAFETY: between fork and exec only write() is called, which is async-signal-safe, on a descriptor that
            // stays open until the child has been started.
            unsafe {
                command.pre_exec(move || match libc::write(descriptor, b"0".as_ptr().cast(), 1) {
                    1 => Ok(()),
                    _ => Err(std::io::Error::last_os_error()),
                })
            };
        }
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        let begun = Instant::now();
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        fn collect(source: Option<impl Read + Send + 'static>) -> Reader {
            std::thread::spawn(move || {
                let mut bytes = Vec::new();
                if let Some(mut source) = source {
                    let _ = source.read_to_end(&mut bytes);
                }
                bytes
            })
        }
        let (stdout, stderr) = (collect(child.stdout.take()), collect(child.stderr.take()));
        let left = Left::of(format!("REAM_TEST_RUN={mark}"));
        let text = format!("{command:?}");
        let deadline = begun + self.deadline * patience();
        let pid = child.id() as i32;
        let readers = Cell::new(Some([stdout, stderr]));
        let (reaped, agent) = (false, Cell::new(None));
        Running { pid, child, reaped, readers, scratch, own_store, summary, cgroup, left, agent, begun, deadline, text }
    }

    /// Starts it and waits for its end.
    pub fn finish(self) -> Outcome {
        self.start().finish()
    }
}

/// By how much longer runs may take than on an ordinary machine.
fn patience() -> u32 {
    std::env::var("REAM_TEST_PATIENCE").map_or(1, |factor| factor.parse().expect("REAM_TEST_PATIENCE: a number"))
}

/// A program that has been started.
pub struct Running {
    /// Its process id: under Ream, too, the program's own.
    pub pid: i32,
    /// Never waited for by std: [`Running::finish`] wants the resource usage as well.
    child: Child,
    reaped: bool,
    /// Read standard output and standard error; `None` once it has ended.
    readers: Cell<Option<[Reader; 2]>>,
    scratch: Scratch,
    own_store: PathBuf,
    summary: PathBuf,
    cgroup: Option<Cgroup>,
    left: Left,
    agent: Cell<Option<i32>>,
    begun: Instant,
    deadline: Instant,
    text: String,
}

impl Running {
    /// Sends it a signal.
    pub fn signal(&self, signal: i32) {
        // SAFETY: kill only sends a signal, to a child of ours that has not been waited for.
        unsafe { libc::kill(self.pid, signal) };
    }

    /// The run's processes that are alive, without the session's agent.
    pub fn processes(&self) -> Vec<i32> {
        self.left.alive()
    }

    /// The session's agent: the program's environment names it, of which it has nothing itself. [`Running::finish`] waits for
    /// its end, too, then.
    ///
    /// # Panics
    /// When the program has no session within a minute.
    pub fn agent(&self) -> i32 {
        let deadline = Instant::now() + MOMENT;
        loop {
            let environment = std::fs::read(format!("/proc/{}/environ", self.pid)).unwrap_or_default();
            let mut entries = environment.split(|byte| *byte == 0);
            if let Some(session) = entries.find_map(|entry| entry.strip_prefix(b"REAM_SESSION=/proc/")) {
                let agent = between(&String::from_utf8_lossy(session), "", "/");
                self.agent.set(Some(agent));
                return agent;
            }
            if Instant::now() > deadline {
                self.hung("has no session");
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Kills the session's agent.
    ///
    /// # Panics
    /// When it is not there any more.
    pub fn kill_agent(&self) {
        // SAFETY: kill only sends a signal, to the agent of this run's session.
        let killed = unsafe { libc::kill(self.agent(), libc::SIGKILL) };
        assert_eq!(killed, 0, "{}: the agent is not there", self.text);
    }

    /// The directory made for the run: `store/` and `summary.json` lie in it.
    pub fn directory(&self) -> &Path {
        self.scratch.path()
    }

    /// Resident memory of the program itself now, in bytes.
    pub fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or("0");
        line.split_whitespace().next().and_then(|number| number.parse::<u64>().ok()).unwrap_or(0) * 1024
    }

    fn hung(&self, what: &str) -> ! {
        let elapsed = self.begun.elapsed();
        let processes: Vec<String> = self.left.alive().into_iter().map(report).collect();
        self.kill();
        // What they have said says most; a pipe that somebody else has as well does not end.
        let late = Instant::now() + Duration::from_secs(5);
        let said = self.readers.take().map(|readers| {
            while !readers.iter().all(Reader::is_finished) && Instant::now() < late {
                std::thread::sleep(Duration::from_millis(5));
            }
            readers.map(|reader| match reader.is_finished() {
                true => String::from_utf8_lossy(&reader.join().unwrap_or_default()).into_owned(),
                false => "(not known: the pipe is still open)".to_string(),
            })
        });
        let [stdout, stderr] = said.unwrap_or_default();
        let text = &self.text;
        panic!("{text}\n{what} after {elapsed:.0?}\n{}stdout: {stdout}\nstderr: {stderr}", processes.concat());
    }

    /// Kills it, and everything it has started.
    fn kill(&self) {
        self.left.kill();
        if !self.reaped {
            self.signal(libc::SIGKILL);
        }
    }

    /// Waits for its end, and for that of everything it has started.
    ///
    /// # Panics
    /// When it or anything it started does not end in time, or leaves anything in its store or in shared memory.
    pub fn finish(mut self) -> Outcome {
        let mut status = 0;
        // SAFETY: all-zero bytes are a valid rusage.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        loop {
            // SAFETY: waits for our own child; both places outlive the call.
            let ended = unsafe { libc::wait4(self.pid, &mut status, libc::WNOHANG, &mut usage) };
            if ended != 0 {
                self.reaped = true;
                assert_eq!(ended, self.pid, "waiting for {}", self.text);
                break;
            }
            if Instant::now() > self.deadline {
                self.hung("did not end");
            }
            std::thread::sleep(Duration::from_millis(3));
        }
        let elapsed = self.begun.elapsed();
        // Daemons may outlive the program; the session's agent must go once none is left.
        if !self.left.gone_within(MOMENT * patience()).is_empty() {
            self.hung("processes are left");
        }
        let late = Instant::now() + MOMENT;
        while self.agent.get().is_some_and(lives) {
            if Instant::now() > late {
                self.hung("the session's agent is left");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let [stdout, stderr] = self.readers.take().expect("it is finished once only");
        let (stdout, stderr) = (stdout.join().expect("stdout"), stderr.join().expect("stderr"));
        let files: Vec<_> = std::fs::read_dir(&self.own_store).into_iter().flatten().flatten().collect();
        assert!(files.is_empty(), "{}\nleft in its store: {files:?}", self.text);
        // Where the program could not write it the agent does, which is no process of the run's, and may be at it.
        let mut tries = 0..2000;
        let ran = libc::WIFEXITED(status) && !matches!(libc::WEXITSTATUS(status), 125..=127);
        let expected = ran && self.text.contains("--summary=") && !self.text.contains("--summary=no");
        let text = || std::fs::read_to_string(&self.summary);
        // One that was killed has a summary or none; the agent may have made the file and not yet filled it. Counted, not timed: a
        // machine that stands still takes nothing off.
        let whole = || text().map_or(!expected, |text| text.ends_with("}\n"));
        while !whole() && tries.next().is_some() {
            std::thread::sleep(Duration::from_millis(5));
        }
        let summary = text().ok().map(|text| {
            Summary(serde_json::from_str(&text).unwrap_or_else(|error| panic!("summary: {error}\n{text}")))
        });
        Outcome {
            status: ExitStatus::from_raw(status),
            stdout,
            stderr,
            elapsed,
            peak_rss: usage.ru_maxrss as u64 * 1024,
            peak_cgroup: self.cgroup.as_ref().and_then(Cgroup::peak),
            summary,
            command: std::mem::take(&mut self.text),
        }
    }

    /// Waits until the program has at least so many MiB resident, or has paged for a while already.
    pub fn until_resident(&self, mebibytes: u64) {
        let deadline = Instant::now() + MOMENT;
        while self.resident() < mebibytes * MIB {
            if Instant::now() > deadline {
                self.hung("never became so large");
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits until the program, which sleeps nowhere else, waits for a signal.
    pub fn until_paused(&self) {
        let deadline = Instant::now() + MOMENT;
        let call = format!("{} ", if cfg!(target_arch = "x86_64") { 34 } else { 73 });
        let path = format!("/proc/{}/syscall", self.pid);
        while !std::fs::read_to_string(&path).unwrap_or_default().starts_with(&call) {
            if Instant::now() > deadline {
                self.hung("never came to rest");
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Running {
    /// A test that fails in the middle leaves nothing behind.
    fn drop(&mut self) {
        if self.readers.take().is_some() {
            self.kill();
        }
        if !self.reaped {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
