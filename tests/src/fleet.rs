//! Several memory servers, each on a host of its own behind a [`Gate`], one client, and the program that pages to them.

use crate::gate::Gate;
use crate::paged::{PATIENCE, Paged};
use crate::place::{Scratch, is_root, ream_binary, tool};
use crate::space::Space;
use crate::{Build, build, make_key, skip};
use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A memory server.
pub struct Member {
    space: Space,
    /// The proxy before it.
    pub gate: Gate,
    child: Option<Child>,
    number: usize,
}

/// The servers, and the client's host.
pub struct Fleet {
    scratch: Scratch,
    client: Space,
    /// The servers.
    pub members: Vec<Member>,
    memory: &'static str,
    /// How many seconds a server that is told to end gives its clients.
    pub drain: &'static str,
}

/// The program `c/steadfast.c`, under Ream.
pub struct Steadfast {
    paged: Paged,
    waits: PathBuf,
}

fn address(number: usize) -> String {
    format!("10.77.{}.2:7400", number + 1)
}

impl Fleet {
    /// So many servers with so much memory each, and nobody else with others: each fleet has the machine's processors busy.
    /// `None`, loudly, where they cannot be had.
    pub fn alone(count: usize, memory: &'static str) -> Option<(MutexGuard<'static, ()>, Fleet)> {
        static ALONE: Mutex<()> = Mutex::new(());
        let what = "servers that are lost";
        if !is_root() || tool("ip").is_none() {
            skip(what, "needs root and ip (iproute2)");
            return None;
        }
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        match Fleet::new(count, memory) {
            Ok(fleet) => Some((alone, fleet)),
            Err(error) => {
                skip(what, &format!("hosts cannot be made: {error}"));
                None
            }
        }
    }

    /// So many servers with so much memory each.
    ///
    /// # Errors
    /// Why hosts cannot be made here.
    pub fn new(count: usize, memory: &'static str) -> io::Result<Fleet> {
        let client = Space::new()?;
        let scratch = Scratch::new("fleet");
        let key = make_key(&scratch.file("client.key"));
        let other = make_key(&scratch.file("other.key"));
        fs::write(scratch.file("clients"), format!("{key} tester\n{other} other\n"))?;
        let mut fleet = Fleet { scratch, client, members: Vec::new(), memory, drain: "1" };
        fleet.add(count)?;
        Ok(fleet)
    }

    /// So many servers more.
    ///
    /// # Errors
    /// Why hosts cannot be made here.
    pub fn add(&mut self, count: usize) -> io::Result<()> {
        let list = self.scratch.file("servers");
        let mut known = fs::read_to_string(&list).unwrap_or_default();
        for number in self.members.len()..self.members.len() + count {
            let space = Space::new()?;
            let (here, there) = (format!("10.77.{}.1", number + 1), format!("10.77.{}.2", number + 1));
            self.client.cable(&format!("v{number}"), &here, &space, &there)?;
            let public = make_key(&self.scratch.file(&format!("server{number}.key")));
            let gate = Gate::before(&self.client, address(number).parse().map_err(io::Error::other)?);
            known += &format!("{} {public}\n{} {public}\n", gate.address, address(number));
            self.members.push(Member { space, gate, child: None, number });
            self.start(number);
        }
        fs::write(list, known)
    }

    /// Starts a server.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start(&mut self, number: usize) {
        let member = &mut self.members[number];
        let path = self.scratch.file(&format!("server{number}.log"));
        let log = fs::File::options().create(true).append(true).open(&path).expect("a log");
        let before = log.metadata().expect("a log").len() as usize;
        let mut command = Command::new(ream_binary());
        command.args([
            "serve",
            "--drain",
            self.drain,
            "--listen",
            &address(member.number),
            "--memory",
            self.memory,
            "--key",
        ]);
        command.arg(self.scratch.file(&format!("server{number}.key")));
        command.arg("--clients").arg(self.scratch.file("clients")).stdin(Stdio::null()).stderr(log);
        member.space.run(&mut command);
        let child = member.child.insert(command.spawn().expect("starting ream serve"));
        // It says where it listens. Who asks before that is turned away by the proxy, and a program with this server alone ends.
        let listens = || fs::read(&path).is_ok_and(|log| log.get(before..).is_some_and(|log| log.contains(&b'\n')));
        let deadline = Instant::now() + PATIENCE;
        while !listens() && child.try_wait().is_ok_and(|ended| ended.is_none()) {
            assert!(Instant::now() < deadline, "server {number} does not listen");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Sends a server a signal.
    pub fn signal(&self, number: usize, signal: i32) {
        if let Some(child) = &self.members[number].child {
            // SAFETY: kill only sends a signal, to a child of ours that has not been waited for.
            unsafe { libc::kill(child.id() as i32, signal) };
        }
    }

    /// A server's process.
    pub fn pid(&self, number: usize) -> Option<u32> {
        self.members[number].child.as_ref().map(Child::id)
    }

    /// Waits for the end of a server that was told to end.
    ///
    /// # Panics
    /// When it does not.
    pub fn gone(&mut self, number: usize) {
        let Some(mut child) = self.members[number].child.take() else { return };
        let deadline = Instant::now() + PATIENCE;
        while child.try_wait().expect("waiting for the server").is_none() {
            assert!(Instant::now() < deadline, "server {number} does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Pulls the cable of a server, or puts it back.
    pub fn cable(&self, number: usize, there: bool) {
        let state = if there { "up" } else { "down" };
        self.client.ip(&format!("link set v{number} {state}")).expect("ip");
    }

    /// The command `ream`, at the client's host, with this user's key.
    pub fn ream(&self, key: &str) -> Command {
        let mut command = Command::new(ream_binary());
        command.env("REAM_KEY", self.scratch.file(key)).env("REAM_SERVERS", self.scratch.file("servers"));
        self.client.run(&mut command);
        command
    }

    /// These servers as a store, by their proxies.
    pub fn store(&self, members: &[usize]) -> String {
        let names: Vec<_> =
            members.iter().map(|number| format!("tcp://{}", self.members[*number].gate.address)).collect();
        names.join(",")
    }

    /// Has somebody else fill up a server: it ends when there is no room left, or is killed with what this returns.
    pub fn fill(&self, number: usize) -> Option<Child> {
        let Build::Ready(program) = build("c/checksum.c", &[]) else { return None };
        let mut command = self.ream("other.key");
        command.args(["run", "--memory", "16M", "--store"]).arg(format!("tcp://{}", address(number)));
        command.arg("--").arg(program).args(["1024", "1", "1", "0"]);
        Some(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starting ream"))
    }

    /// Starts a program with these options of `ream run`; which one, is added to the command.
    pub fn begin(&self, options: &[&str], program: impl FnOnce(&mut Command)) -> Paged {
        let mut command = self.ream("client.key");
        command.args(["run", "--summary"]).args(options).arg("--").stdin(Stdio::null());
        program(&mut command);
        Paged::begin(command, self.scratch.file("output"), self.scratch.file("errors"))
    }

    /// Starts `c/steadfast.c` with these options of `ream run`, and arguments; `None` without a compiler.
    ///
    /// # Panics
    /// When it does not begin to page.
    pub fn run(&self, options: &[&str], mebibytes: &str, forks: &str) -> Option<Steadfast> {
        let Build::Ready(program) = build("c/steadfast.c", &[]) else { return None };
        let waits = self.scratch.file("waits");
        let paged = self.begin(options, |command| {
            command.arg(program).arg(mebibytes).arg(&waits).arg(forks);
        });
        let mut steadfast = Steadfast { paged, waits };
        steadfast.until("it pages", |condition| condition.pages > 1000);
        Some(steadfast)
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for child in self.members.iter_mut().filter_map(|member| member.child.as_mut()) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl std::ops::Deref for Steadfast {
    type Target = Paged;

    fn deref(&self) -> &Paged {
        &self.paged
    }
}

impl std::ops::DerefMut for Steadfast {
    fn deref_mut(&mut self) -> &mut Paged {
        &mut self.paged
    }
}

impl Steadfast {
    /// Its waits that were long: when they ended, by the monotonic clock, and how long they were, in milliseconds.
    pub fn waits(&self) -> Vec<(u64, u64)> {
        let text = fs::read_to_string(&self.waits).unwrap_or_default();
        let pair = |line: &str| Some((line.split_once(' ')?.0.parse().ok()?, line.split_once(' ')?.1.parse().ok()?));
        text.lines().filter_map(pair).collect()
    }

    /// Ends it, which checks everything once more.
    ///
    /// # Panics
    /// When a byte was wrong.
    pub fn finish(mut self) -> String {
        self.paged.signal(libc::SIGTERM);
        let status = self.paged.end();
        let told = self.told();
        assert!(status.success() && told.contains("all right"), "{status}\n{told}");
        told
    }
}
