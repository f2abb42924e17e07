//! The memory server that is measured, with keys of its own, and how a program finds it.

use super::path::{End, Path, tie};
use crate::driver::Commands;
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path as File, PathBuf};
use std::process::{Child, Command, Stdio};

const SCRATCH: &str = "ream-bench-remote-";

/// A directory for keys that nobody needs afterwards; removed when dropped, and by the next benchmark if this one is killed.
pub struct Scratch(PathBuf);

impl Scratch {
    /// A new one, after those of benchmarks that are no more.
    ///
    /// # Errors
    /// There is no place for it.
    pub fn new() -> Result<Scratch, String> {
        let place = std::env::temp_dir();
        for entry in fs::read_dir(&place).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let pid = name.strip_prefix(SCRATCH).and_then(|pid| pid.parse::<u32>().ok());
            if pid.is_some_and(|pid| !File::new(&format!("/proc/{pid}")).exists()) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        let own = place.join(format!("{SCRATCH}{}", std::process::id()));
        let made = fs::DirBuilder::new().mode(0o700).create(&own);
        made.map_err(|error| format!("{}: {error}", own.display()))?;
        Ok(Scratch(own))
    }

    /// A file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn write(&self, name: &str, text: &str) -> Result<PathBuf, String> {
        let file = self.file(name);
        fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
        Ok(file)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A running server; it ends when dropped.
pub struct Server {
    child: Child,
    /// What `ream run` needs to use it.
    pub options: Vec<OsString>,
    /// Its address, and its line in the list of servers.
    address: String,
    line: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    /// What `ream run` needs to use several, which have security.
    ///
    /// # Errors
    /// Their keys cannot be written down.
    pub fn together(servers: &[Server], scratch: &Scratch) -> Result<Vec<OsString>, String> {
        let store: Vec<String> = servers.iter().map(|server| format!("tcp://{}", server.address)).collect();
        let lines: String = servers.iter().map(|server| server.line.as_str()).collect();
        let list = scratch.write("servers-together", &lines)?;
        Ok(vec![
            "--store".into(),
            store.join(",").into(),
            "--key".into(),
            scratch.file("client.key").into(),
            "--servers".into(),
            list.into(),
        ])
    }

    /// Starts one of this name at the path's other end.
    ///
    /// # Errors
    /// It does not start.
    pub fn start(
        commands: &Commands,
        path: &Path,
        scratch: &Scratch,
        name: &str,
        sealed: bool,
        memory: u64,
    ) -> Result<Server, String> {
        let mut command = Command::new(&commands.ream);
        let (listen, memory) = (format!("{}:0", path.address()), memory.to_string());
        command.args(["serve", "--listen", &listen, "--memory", &memory]);
        let mut public = String::new();
        if sealed {
            let own = scratch.file(&format!("{name}.key"));
            public = key(commands, &own)?;
            let client = key(commands, &scratch.file("client.key"))?;
            let clients = scratch.write("clients", &format!("{client} bench\n"))?;
            command.arg("--key").arg(own).arg("--clients").arg(clients);
        } else {
            command.arg("--insecure");
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        path.at(End::Server, &mut command);
        let mut child = command.spawn().map_err(|error| format!("{command:?}: {error}"))?;
        let mut lines = BufReader::new(child.stderr.take().ok_or("the server has no standard error")?).lines();
        let first = lines.next().and_then(Result::ok).unwrap_or_default();
        // What it says later is read, so that it never waits for us.
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
        let mut server = Server { child, options: Vec::new(), address: String::new(), line: String::new() };
        let address = first.split("tcp://").nth(1).and_then(|rest| rest.split([',', ';']).next());
        let address = address.ok_or_else(|| format!("ream serve did not start: {first}"))?;
        (server.address, server.line) = (address.to_owned(), format!("{address} {public}\n"));
        server.options = vec!["--store".into(), format!("tcp://{address}").into()];
        if sealed {
            let servers = scratch.write(&format!("servers-{name}"), &server.line)?;
            server.options.extend(["--key".into(), scratch.file("client.key").into()]);
            server.options.extend(["--servers".into(), servers.into()]);
        } else {
            server.options.push("--insecure".into());
        }
        Ok(server)
    }

    /// Seconds of processor time that it has used so far, threads that are gone included.
    pub fn cpu(&self) -> f64 {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: both results outlive their calls; the process is our child.
        unsafe {
            let mut clock = 0;
            if libc::clock_getcpuclockid(self.child.id() as libc::pid_t, &raw mut clock) == 0 {
                libc::clock_gettime(clock, &raw mut time);
            }
        }
        time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
    }
}

/// Makes a key pair, unless it is there; its public half.
fn key(commands: &Commands, file: &File) -> Result<String, String> {
    let mut command = Command::new(&commands.ream);
    command.arg("keys").arg(file);
    tie(&mut command);
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}
