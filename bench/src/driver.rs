//! A worker process: started plain, under Ream or in a cgroup; told slices of work, asked for what they came to.

use crate::work::{Done, Slice, Times, Walk};
use crate::{others, swap};
use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Where the commands lie.
#[derive(Clone, Debug)]
pub struct Commands {
    /// `ream` itself.
    pub ream: PathBuf,
    /// The worker.
    pub worker: PathBuf,
}

impl Commands {
    /// This program and the worker beside it; `REAM_BIN` names another `ream`.
    ///
    /// # Errors
    /// Which one is missing.
    pub fn find() -> Result<Commands, String> {
        let own = std::env::current_exe().map_err(|error| format!("/proc/self/exe: {error}"))?;
        let ream = std::env::var_os("REAM_BIN").map_or(own.clone(), PathBuf::from);
        let places = [own.with_file_name("ream-bench-worker"), ream.with_file_name("ream-bench-worker")];
        let worker = places.iter().find(|path| path.is_file()).ok_or_else(|| {
            format!("{}: not there; build it with cargo build --release -p ream-bench", places[0].display())
        })?;
        Ok(Commands { ream, worker: worker.clone() })
    }

    /// With the worker that computes in place of the one that pages.
    ///
    /// # Errors
    /// It is missing.
    pub fn with_kernels(self) -> Result<Commands, String> {
        let worker = self.worker.with_file_name("ream-bench-kernels");
        match worker.is_file() {
            true => Ok(Commands { worker, ..self }),
            false => Err(format!("{}: not there; build it with cargo build --release -p ream-bench", worker.display())),
        }
    }
}

/// How a worker is started.
#[derive(Clone, Debug)]
pub enum Under<'a> {
    /// As it is.
    Nothing,
    /// Under `ream run` with these options.
    Ream(&'a [OsString]),
    /// In the cgroup with this file of processes.
    Group(&'a Path),
}

/// The command that runs the worker with these arguments.
pub fn command(commands: &Commands, under: &Under<'_>, arguments: &[String]) -> Result<Command, String> {
    let mut command = match under {
        Under::Ream(options) => others::under_ream(&commands.ream, options, &commands.worker),
        Under::Nothing | Under::Group(_) => others::under(&others::PLAIN, &commands.worker),
    };
    command.args(arguments);
    if let Under::Group(entrance) = under {
        swap::join(&mut command, entrance)?;
    }
    Ok(command)
}

/// A worker that waits for commands.
pub struct Worker {
    child: Child,
    replies: Receiver<String>,
    what: &'static str,
    until: Option<Instant>,
}

impl Worker {
    /// Starts one with this many pages of data, and fills them in order.
    ///
    /// # Errors
    /// It could not be started, or ended.
    pub fn start(commands: &Commands, under: &Under<'_>, pages: u64) -> Result<(Worker, Done), String> {
        let what = match under {
            Under::Nothing => "the plain worker",
            Under::Ream(_) => "the worker under Ream",
            Under::Group(_) => "the worker in swap",
        };
        Worker::begin(command(commands, under, &["data".into(), pages.to_string()])?, what)
    }

    /// Starts one by this command, whose last words are the worker's, and has it fill its data in order.
    ///
    /// # Errors
    /// It could not be started, or ended.
    pub fn begin(mut command: Command, what: &'static str) -> Result<(Worker, Done), String> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        if others::corrupts() {
            command.arg("--corrupt");
        }
        let mut child = command.spawn().map_err(|error| format!("{command:?}: {error}"))?;
        let (sender, replies) = channel();
        if let Some(output) = child.stdout.take() {
            std::thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    if sender.send(line).is_err() {
                        return;
                    }
                }
            });
        }
        let mut worker = Worker { child, replies, what, until: None };
        let filled = worker.say("fill", 900.0)?.parse()?;
        Ok((worker, filled))
    }

    /// Does a slice.
    ///
    /// # Errors
    /// It ended, found wrong data, or did not answer for minutes.
    pub fn slice(&mut self, slice: &Slice) -> Result<Done, String> {
        let patience = if slice.accesses > 0 { 900.0 } else { slice.seconds + 120.0 };
        self.say(&slice.to_string(), patience)?.parse()
    }

    /// Reads all data once and verifies them: what was written is looked at after the clock has stopped.
    ///
    /// # Errors
    /// As of [`Worker::slice`].
    pub fn verify(&mut self, pages: u64) -> Result<(), String> {
        self.slice(&Slice { walk: Walk::Sequential, threads: 1, seconds: 0.0, accesses: pages }).map(|_| ())
    }

    /// Times so many touches at random, those that waited for the store.
    ///
    /// # Errors
    /// As of [`Worker::slice`].
    pub fn touches(&mut self, count: u64) -> Result<Times, String> {
        self.say(&format!("touches {count}"), 120.0)?.parse()
    }

    /// Answers are waited for until then only.
    pub fn until(&mut self, until: Option<Instant>) {
        self.until = until;
    }

    fn say(&mut self, command: &str, patience: f64) -> Result<String, String> {
        let sent = self.child.stdin.as_mut().map(|input| writeln!(input, "{command}").and_then(|()| input.flush()));
        let left = self.until.map(|until| until.saturating_duration_since(Instant::now()).as_secs_f64());
        let patience = left.unwrap_or(patience).min(patience);
        let reply = self.replies.recv_timeout(Duration::from_secs_f64(patience));
        match (sent, reply) {
            (Some(Ok(())), Ok(line)) => Ok(line),
            (_, Err(RecvTimeoutError::Timeout)) => {
                Err(format!("{} did not answer to '{command}' for {patience} s", self.what))
            }
            _ => {
                let status = self.child.wait().map(|status| status.to_string()).unwrap_or_default();
                Err(format!("{} ended at '{command}': {status}", self.what))
            }
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        for _ in 0..100 {
            if matches!(self.child.try_wait(), Ok(Some(_)) | Err(_)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
