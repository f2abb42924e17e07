//! A memory server of a test's own, and a proxy between it and its clients.

use crate::place::{Scratch, ream_binary};
use crate::run::Run;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longest that anything may take which is a matter of moments, on a machine that may stand still for some of them.
const PATIENCE: Duration = Duration::from_secs(60);

/// `ream serve`, killed when dropped.
pub struct MemoryServer {
    scratch: Scratch,
    child: Child,
    /// `HOST:PORT`.
    pub address: String,
    /// Its public key; empty without security.
    pub public: String,
    log: Arc<Mutex<String>>,
    /// Reads what it writes, to its end.
    reader: Option<JoinHandle<()>>,
}

fn ream(arguments: &[&str]) -> Output {
    Command::new(ream_binary()).args(arguments).output().expect("starting ream")
}

/// Makes a key pair; returns its public half.
pub fn make_key(file: &Path) -> String {
    let output = ream(&["keys", &file.display().to_string()]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

impl MemoryServer {
    /// Starts one for one client, with these further options.
    pub fn start(memory: &str, options: &[&str]) -> MemoryServer {
        MemoryServer::start_in(Command::new(ream_binary()), "127.0.0.1:0", memory, options)
    }

    /// The same by this command, which may put others before `ream`, at this address.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start_in(mut command: Command, listen: &str, memory: &str, options: &[&str]) -> MemoryServer {
        let scratch = Scratch::new("server");
        let insecure = options.contains(&"--insecure");
        let mut public = String::new();
        command.args(["serve", "--listen", listen, "--memory", memory]).args(options);
        if !insecure {
            public = make_key(&scratch.file("server.key"));
            command.arg("--key").arg(scratch.file("server.key"));
            // A test that names its clients has their keys.
            if !options.contains(&"--clients") {
                let client = make_key(&scratch.file("client.key"));
                fs::write(scratch.file("clients"), format!("{client} tester\n")).expect("the list of clients");
                command.arg("--clients").arg(scratch.file("clients"));
            }
        }
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().expect("starting ream serve");
        let mut lines = BufReader::new(child.stderr.take().expect("its standard error"));
        let mut first = String::new();
        lines.read_line(&mut first).expect("its first line");
        let address = first.split("tcp://").nth(1).and_then(|rest| rest.split([',', ';']).next());
        let address = address.unwrap_or_else(|| panic!("it did not start: {first}")).to_owned();
        let log = Arc::new(Mutex::new(first));
        let kept = log.clone();
        let reader = std::thread::spawn(move || {
            let mut line = String::new();
            while lines.read_line(&mut line).is_ok_and(|got| got > 0) {
                kept.lock().expect("the log").push_str(&line);
                line.clear();
            }
        });
        fs::write(scratch.file("servers"), format!("{address} {public}\n")).expect("the list of servers");
        MemoryServer { scratch, child, address, public, log, reader: Some(reader) }
    }

    /// Its process.
    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: i32) {
        // SAFETY: kill only sends a signal, to a child of ours that has not been waited for.
        unsafe { libc::kill(self.pid(), signal) };
    }

    /// Waits for its end; its exit status. The log is whole then.
    pub fn wait(&mut self) -> Option<i32> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("waiting for the server") {
                if let Some(reader) = self.reader.take() {
                    reader.join().expect("its log");
                }
                return status.code();
            }
            assert!(Instant::now() < deadline, "the server does not end\n{}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// What it has written so far.
    pub fn log(&self) -> String {
        self.log.lock().expect("the log").clone()
    }

    /// Waits until it has written that: what it counts may be known before what it writes has been read.
    ///
    /// # Panics
    /// When it never does.
    pub fn until_written(&self, words: &str) {
        let deadline = Instant::now() + PATIENCE;
        while !self.log().contains(words) {
            assert!(Instant::now() < deadline, "it does not write {words}\n{}", self.log());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// A file of the server's or its client's: `client.key`, `servers`, `clients`, `server.key`.
    pub fn file(&self, name: &str) -> PathBuf {
        self.scratch.file(name)
    }

    /// Has a run use it.
    pub fn store(&self, run: Run) -> Run {
        self.store_at(run, &self.address)
    }

    /// The same by another address, such as a proxy's.
    pub fn store_at(&self, run: Run, address: &str) -> Run {
        let run = run.store(Path::new(&format!("tcp://{address}")));
        if self.public.is_empty() {
            return run.option("--insecure");
        }
        let servers = self.file(&format!("servers-{}", address.replace(':', "-")));
        // Programs that were started before may be reading it.
        if !servers.exists() {
            fs::write(&servers, format!("{address} {}\n", self.public)).expect("the list of servers");
        }
        run.option("--key").option(self.file("client.key")).option("--servers").option(servers)
    }

    /// One of its figures, as `ream status` shows it.
    pub fn figure(&self, name: &str) -> u64 {
        let (key, servers) =
            (self.file("client.key").display().to_string(), self.file("servers").display().to_string());
        let server = format!("tcp://{}", self.address);
        let mut arguments = vec!["status", "--json", "--server", &server];
        if self.public.is_empty() {
            arguments.push("--insecure");
        } else {
            arguments.extend(["--key", &key, "--servers", &servers]);
        }
        let output = ream(&arguments);
        assert!(output.status.success(), "{}\n{}", String::from_utf8_lossy(&output.stderr), self.log());
        let all: serde_json::Value = serde_json::from_slice(&output.stdout).expect("figures");
        let full = format!("ream_server_{name}");
        all.get(&full).and_then(serde_json::Value::as_u64).unwrap_or_else(|| panic!("no {full} in {all}"))
    }

    /// Waits until a figure is as wanted.
    ///
    /// # Panics
    /// When it never is.
    pub fn until(&self, name: &str, wanted: impl Fn(u64) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let value = self.figure(name);
            if wanted(value) {
                return;
            }
            assert!(Instant::now() < deadline, "{name} stays {value}\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for MemoryServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a proxy does with bytes on their way: number of the connection, whether they go to the server, how many went that
/// way before, and the bytes.
pub type Meddle = dyn Fn(usize, bool, usize, &mut [u8]) + Send + Sync;

/// A proxy that listens on the loopback and meddles with what passes.
pub struct Proxy {
    /// `HOST:PORT`.
    pub address: String,
}

impl Proxy {
    /// Starts one before a server; it lives as long as the test.
    pub fn before(server: &str, meddle: Arc<Meddle>) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        // What is on its way is at the ends, not here.
        let bytes: libc::c_int = 128 << 10;
        let (place, length) = ((&raw const bytes).cast(), size_of_val(&bytes) as libc::socklen_t);
        // SAFETY: the kernel reads a word.
        unsafe { libc::setsockopt(listener.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, place, length) };
        let address = listener.local_addr().expect("an address").to_string();
        let server = server.to_owned();
        std::thread::spawn(move || {
            for (number, client) in listener.incoming().flatten().enumerate() {
                let Ok(there) = TcpStream::connect(&server) else { continue };
                let copies = (client.try_clone(), there.try_clone());
                let (Ok(client_too), Ok(there_too)) = copies else { continue };
                let (one, other) = (meddle.clone(), meddle.clone());
                std::thread::spawn(move || pass(client, there, number, true, &one));
                std::thread::spawn(move || pass(there_too, client_too, number, false, &other));
            }
        });
        Proxy { address }
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, number: usize, there: bool, meddle: &Arc<Meddle>) {
    let mut bytes = vec![0; 64 << 10];
    let mut before = 0;
    while let Ok(got) = from.read(&mut bytes) {
        if got == 0 {
            break;
        }
        meddle(number, there, before, &mut bytes[..got]);
        before += got;
        if to.write_all(&bytes[..got]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
    let _ = from.shutdown(Shutdown::Read);
}
