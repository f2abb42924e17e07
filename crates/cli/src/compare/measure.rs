//! One run of a comparison: started, waited for, its output digested while it comes.

use super::group::Groups;
use crate::child::{self, Signals};
use crate::failure::{Failure, reason};
use std::ffi::OsString;
use std::fs::File;
use std::hash::{DefaultHasher, Hasher};
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// How much of the end of standard error is kept.
const LAST_WORDS: usize = 2048;
/// How long output may go on after the program has ended.
const PATIENCE: Duration = Duration::from_secs(3);

/// What every run of a comparison has in common.
pub struct Bench {
    /// The program's file.
    pub file: PathBuf,
    /// Its name and arguments.
    pub program: Vec<OsString>,
    /// Its standard input; `None` for none.
    pub input: Option<PathBuf>,
    /// `ream` itself.
    pub ream: PathBuf,
    /// Where the runs' memory is counted together, if it can be.
    pub groups: Option<Groups>,
    /// What asks for an end.
    pub signals: Signals,
}

/// What a program printed, in so many bytes and a number; `None` when that did not end with the program.
pub type Digest = Option<(u64, u64)>;

/// One run.
#[derive(Clone, Debug)]
pub struct Ran {
    /// How it ended.
    pub status: ExitStatus,
    /// Seconds on the wall's clock.
    pub wall: f64,
    /// Seconds of processor time.
    pub processor: f64,
    /// Peak memory, in bytes.
    pub peak: u64,
    /// Standard output.
    pub output: Digest,
    /// The end of standard error.
    pub last_words: String,
}

/// How a run went.
pub enum Outcome {
    /// To its end.
    Ended(Ran),
    /// A signal asked this process to end meanwhile.
    Interrupted(i32),
}

impl Bench {
    /// Runs the program, plain or under `ream run` with these options.
    ///
    /// # Errors
    /// It could not be started or waited for.
    pub fn run(&mut self, settings: Option<&[OsString]>) -> Result<Outcome, Failure> {
        if let Some(signal) = self.signals.next() {
            return Ok(Outcome::Interrupted(signal));
        }
        let mut command = self.command(settings);
        let input = match &self.input {
            None => Stdio::null(),
            Some(file) => Stdio::from(opened(file)?),
        };
        command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped());
        let cannot = |what: &str, error: &std::io::Error| Failure::new(format!("compare: {what}: {}", reason(error)));
        let mut group = None;
        if let Some(groups) = &mut self.groups {
            group = Some(groups.make().map_err(|error| cannot("cgroup", &error))?);
        }
        let entrance = group.as_ref().map(|group| group.entrance()).transpose();
        child::detach(&mut command, entrance.map_err(|error| cannot("cgroup", &error))?);
        let begun = Instant::now();
        let mut running = command.spawn().map_err(|error| crate::program::refusal(&self.program[0], &error))?;
        let output = running.stdout.take().map(|pipe| aside(pipe, digest));
        let errors = running.stderr.take().map(|pipe| aside(pipe, last_words));
        let end = child::wait(&running, &self.signals);
        let wall = begun.elapsed().as_secs_f64();
        let mut peak = None;
        if let (Some(groups), Some(group)) = (&mut self.groups, group) {
            peak = group.peak();
            groups.give_back(group);
        }
        let end = end.map_err(|error| cannot("wait", &error))?;
        if let Some(signal) = end.interrupted {
            return Ok(Outcome::Interrupted(signal));
        }
        let failed = !end.status.success();
        let patience = if failed { PATIENCE } else { Duration::ZERO };
        Ok(Outcome::Ended(Ran {
            status: end.status,
            wall,
            processor: end.processor.as_secs_f64(),
            peak: peak.unwrap_or(end.peak),
            output: output.and_then(|receiver| receiver.recv_timeout(PATIENCE).ok()),
            last_words: errors.and_then(|receiver| receiver.recv_timeout(patience).ok()).unwrap_or_default(),
        }))
    }

    fn command(&self, settings: Option<&[OsString]>) -> Command {
        use std::os::unix::process::CommandExt;
        let Some(settings) = settings else {
            let mut command = Command::new(&self.file);
            command.arg0(&self.program[0]).args(&self.program[1..]);
            return command;
        };
        let mut command = Command::new(&self.ream);
        command.arg("run").args(settings).arg("--").args(&self.program);
        // What was saved before is not to mix with what is tried.
        command.env(crate::programs::VARIABLE, "");
        command
    }
}

/// Opens the file for standard input.
pub fn opened(file: &Path) -> Result<File, Failure> {
    File::open(file).map_err(|error| {
        Failure::new(format!("--stdin: {}: {}; name a file that can be read", file.display(), reason(&error)))
    })
}

/// Lets a thread read a pipe to its end; what came of it can be received then.
fn aside<P: Read + Send + 'static, T: Send + 'static>(pipe: P, read: fn(P) -> T) -> Receiver<T> {
    let (sender, receiver) = channel();
    let spawned = std::thread::Builder::new().stack_size(256 << 10).spawn(move || sender.send(read(pipe)));
    drop(spawned);
    receiver
}

/// The digest of what comes out of a pipe, whatever pieces it comes in.
pub fn digest(mut pipe: impl Read) -> (u64, u64) {
    let mut hasher = DefaultHasher::new();
    let mut buffer = vec![0; 64 << 10];
    let (mut filled, mut bytes) = (0, 0);
    loop {
        match pipe.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(count) => (filled, bytes) = (filled + count, bytes + count as u64),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
        if filled == buffer.len() {
            hasher.write(&buffer);
            filled = 0;
        }
    }
    hasher.write(&buffer[..filled]);
    (bytes, hasher.finish())
}

/// The end of what comes out of a pipe.
fn last_words(mut pipe: impl Read) -> String {
    let mut kept = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(count) = pipe.read(&mut buffer) {
        if count == 0 {
            break;
        }
        kept.extend_from_slice(&buffer[..count]);
        kept.drain(..kept.len().saturating_sub(LAST_WORDS));
    }
    String::from_utf8_lossy(&kept).trim().to_owned()
}

/// An exit status in words.
pub fn in_words(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => {
            let name = match signal {
                libc::SIGABRT => " (SIGABRT)",
                libc::SIGBUS => " (SIGBUS)",
                libc::SIGFPE => " (SIGFPE)",
                libc::SIGILL => " (SIGILL)",
                libc::SIGKILL => " (SIGKILL; perhaps for want of memory)",
                libc::SIGSEGV => " (SIGSEGV)",
                libc::SIGTERM => " (SIGTERM)",
                _ => "",
            };
            format!("killed by signal {signal}{name}")
        }
        _ => status.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hands out its bytes in pieces of this size.
    struct Pieces<'a>(&'a [u8], usize);

    impl Read for Pieces<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let count = self.1.min(buffer.len()).min(self.0.len());
            buffer[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    #[test]
    fn digests_do_not_depend_on_the_pieces() {
        let text: Vec<u8> = (0..200_000u32).map(|i| (i.wrapping_mul(i) >> 7) as u8).collect();
        let whole = digest(text.as_slice());
        assert_eq!(whole.0, 200_000);
        for size in [1, 7, 4096, 65_536, 65_537] {
            assert_eq!(digest(Pieces(&text, size)), whole, "{size}");
        }
        let mut other = text.clone();
        other[199_999] ^= 1;
        assert_ne!(digest(other.as_slice()), whole);
        assert_ne!(digest(&text[..199_999]), whole);
    }

    #[test]
    fn the_last_words_are_the_last() {
        let text = "x".repeat(10_000) + " at last\n";
        let words = last_words(Pieces(text.as_bytes(), 100));
        assert!(words.ends_with("x at last") && words.len() < LAST_WORDS);
    }
}
