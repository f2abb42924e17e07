//! A program under Ream that runs while something is done to its store: what `ream status` says of it meanwhile, and its end.

use crate::place::ream_binary;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

/// Longest that anything may take which is a matter of moments.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The end of its output that is shown when something is wrong, in bytes.
const SHOWN: usize = 4000;

/// What `ream status` says of the store.
#[derive(Debug)]
pub struct Condition {
    /// Pages with fewer copies than wanted.
    pub missing: u64,
    /// Pages stored.
    pub pages: u64,
    /// Which servers are used, and how often each was lost.
    pub servers: Vec<(bool, u64)>,
    /// Pages that each has, and the local copy.
    pub held: Vec<u64>,
    /// Pages from each that were not genuine.
    pub forged: Vec<u64>,
    /// Bytes that each has left.
    pub free: Vec<u64>,
}

impl Condition {
    /// Whether each page has its copies, and all servers are used.
    pub fn is_whole(&self) -> bool {
        self.missing == 0 && self.servers.iter().all(|server| server.0)
    }
}

/// The program.
pub struct Paged {
    child: Child,
    output: PathBuf,
    errors: PathBuf,
}

impl Paged {
    /// Starts this command, which is `ream run`; what it says goes to these files.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn begin(mut command: Command, output: PathBuf, errors: PathBuf) -> Paged {
        // New ones: of an earlier program some process may still write to those of these names.
        let file = |path: &PathBuf| {
            let _ = fs::remove_file(path);
            fs::File::create(path).expect("a file")
        };
        command.stdout(file(&output)).stderr(file(&errors));
        Paged { child: command.spawn().expect("starting ream"), output, errors }
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: i32) {
        // SAFETY: kill only sends a signal, to a child of ours that has not been waited for.
        unsafe { libc::kill(self.child.id() as i32, signal) };
    }

    /// What `ream status` says of it; `None` while it says nothing of a store.
    pub fn condition(&self) -> Option<Condition> {
        let output = Command::new(ream_binary()).args(["status", "--json", &self.child.id().to_string()]).output();
        let all: serde_json::Value = serde_json::from_slice(&output.ok()?.stdout).ok()?;
        let store = all.get("store")?;
        let number = |value: &serde_json::Value, name: &str| value.get(name).and_then(serde_json::Value::as_u64);
        let server = |one: &serde_json::Value| Some((one.get("used")?.as_bool()?, number(one, "losses")?));
        let servers = store.get("servers")?.as_array()?;
        let each = |name: &'static str| servers.iter().filter_map(move |one| number(one, name));
        Some(Condition {
            missing: number(store, "copies_missing")?,
            pages: number(store, "pages")?,
            servers: servers.iter().filter_map(server).collect(),
            forged: each("not_genuine").collect(),
            free: each("free").collect(),
            held: each("pages").chain([number(store, "spilled")?]).collect(),
        })
    }

    /// How it ended, if it has.
    ///
    /// # Panics
    /// When that cannot be asked.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("waiting for the program")
    }

    /// Waits until that is so; false when the program has ended before.
    ///
    /// # Panics
    /// When it does not come to be.
    pub fn comes(&mut self, what: &str, wanted: impl Fn(&Condition) -> bool) -> bool {
        let deadline = Instant::now() + PATIENCE;
        while self.ended().is_none() {
            let condition = self.condition();
            if condition.as_ref().is_some_and(&wanted) {
                return true;
            }
            assert!(Instant::now() < deadline, "it never is so that {what}: {condition:?}\n{}", self.told());
            std::thread::sleep(Duration::from_millis(10));
        }
        false
    }

    /// Waits until that is so. The program runs all the while.
    ///
    /// # Panics
    /// When it does not come to be, or the program ends.
    pub fn until(&mut self, what: &str, wanted: impl Fn(&Condition) -> bool) {
        if !self.comes(what, wanted) {
            panic!("waiting until {what}, it ended: {:?}\n{}", self.ended(), self.told());
        }
    }

    /// Waits for its end, which is to come soon.
    ///
    /// # Panics
    /// When it goes on.
    pub fn end(&mut self) -> ExitStatus {
        self.end_within(PATIENCE)
    }

    /// Waits for its end so long.
    ///
    /// # Panics
    /// When it goes on.
    pub fn end_within(&mut self, patience: Duration) -> ExitStatus {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(status) = self.ended() {
                return status;
            }
            assert!(Instant::now() < deadline, "it goes on: {:?}\n{}", self.condition(), self.told());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// What it has written to its standard output so far.
    pub fn output(&self) -> Vec<u8> {
        fs::read(&self.output).unwrap_or_default()
    }

    /// The end of that, and what it and Ream said besides.
    pub fn told(&self) -> String {
        let output = self.output();
        let shown = &output[output.len().saturating_sub(SHOWN)..];
        String::from_utf8_lossy(shown).into_owned() + &fs::read_to_string(&self.errors).unwrap_or_default()
    }
}

impl Drop for Paged {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
