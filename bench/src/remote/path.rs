//! The network between a program and its memory server: two networks of their own on one machine with a cable between them,
//! whose speed can be capped; the loopback for those who may not make such. A process holds each network and ends with the
//! benchmark, however that ends, so the kernel takes them down by itself.

use crate::measured;
use std::fs::File;
use std::net::TcpListener;
use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path as File_;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// What one end of the cable is called, and the other.
const ENDS: [&str; 2] = ["ream0", "ream1"];
const ADDRESSES: [&str; 2] = ["10.77.11.1", "10.77.11.2"];
/// The longest that setting something up may take.
const LIMIT: Duration = Duration::from_secs(20);

/// The cap: 8 Gbit/s, as of a network card of 10.
pub const CAP: &str = "8gbit";

/// An end of the path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// Where the program runs.
    Client,
    /// Where the memory server runs.
    Server,
}

/// A network, which lives as long as its process.
struct Network {
    holder: Child,
    file: File,
}

impl Drop for Network {
    fn drop(&mut self) {
        drop(self.holder.stdin.take());
        let _ = self.holder.wait();
    }
}

/// A path from client to server.
pub struct Path {
    networks: Option<[Network; 2]>,
}

/// Has a command end with this process, and leave its terminal's group: Ctrl-C is ours to heed.
pub fn tie(command: &mut Command) {
    command.process_group(0);
    // SAFETY: prctl is a system call on constants.
    unsafe {
        command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        })
    };
}

fn enter(command: &mut Command, network: &File) {
    let fd = network.as_raw_fd();
    // SAFETY: setns is a system call on numbers; the descriptor is open here as long as the command is made and started.
    unsafe {
        command.pre_exec(move || match libc::setns(fd, libc::CLONE_NEWNET) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        })
    };
}

fn run(command: &mut Command) -> Result<(), String> {
    let ran = measured::run(command, LIMIT)?;
    match ran.status.success() {
        true => Ok(()),
        false => Err(format!("{command:?}: {}", ran.errors.trim())),
    }
}

impl Network {
    fn new(worker: &File_) -> Result<Network, String> {
        let mut command = Command::new(worker);
        command.arg("hold").stdin(Stdio::piped()).stdout(Stdio::null());
        tie(&mut command);
        // SAFETY: unshare is a system call on a constant.
        unsafe {
            command.pre_exec(|| match libc::unshare(libc::CLONE_NEWNET) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            })
        };
        let holder = command.spawn().map_err(|error| format!("a network of its own: {error}"))?;
        let name = format!("/proc/{}/ns/net", holder.id());
        let file = File::open(&name).map_err(|error| format!("{name}: {error}"))?;
        Ok(Network { holder, file })
    }

    fn ip(&self, words: &[&str]) -> Result<(), String> {
        let mut command = Command::new("ip");
        command.args(words);
        enter(&mut command, &self.file);
        run(&mut command)
    }
}

impl Path {
    /// Two networks and a cable.
    ///
    /// # Errors
    /// Why there are none, in a few words.
    pub fn cable(worker: &File_) -> Result<Path, String> {
        // SAFETY: takes nothing and cannot fail.
        if unsafe { libc::geteuid() } != 0 {
            return Err("needs root: networks of its own".into());
        }
        let networks = [Network::new(worker)?, Network::new(worker)?];
        let pids = [0, 1].map(|end: usize| networks[end].holder.id().to_string());
        let [one, other] = &pids;
        let mut link = Command::new("ip");
        link.args(["link", "add", ENDS[0], "netns", one, "type", "veth", "peer", "name", ENDS[1], "netns", other]);
        run(&mut link)?;
        for end in [0, 1] {
            let address = format!("{}/24", ADDRESSES[end]);
            networks[end].ip(&["addr", "add", &address, "dev", ENDS[end]])?;
            networks[end].ip(&["link", "set", ENDS[end], "up"])?;
            networks[end].ip(&["link", "set", "lo", "up"])?;
        }
        Ok(Path { networks: Some(networks) })
    }

    /// The loopback.
    pub fn loopback() -> Path {
        Path { networks: None }
    }

    /// What it is, in words.
    pub fn words(&self) -> &'static str {
        if self.networks.is_some() { "a veth pair between two network namespaces" } else { "the loopback" }
    }

    /// Caps the speed in both directions, or lifts the cap.
    ///
    /// # Errors
    /// What `tc` says.
    pub fn cap(&self, on: bool) -> Result<(), String> {
        let Some(networks) = &self.networks else { return Err("needs root: a queue with a limit".into()) };
        for (network, device) in networks.iter().zip(ENDS) {
            let mut command = Command::new("tc");
            match on {
                true => command.args(["qdisc", "replace", "dev", device, "root", "tbf", "rate", CAP, "burst", "1mb"]),
                false => command.args(["qdisc", "del", "dev", device, "root"]),
            };
            if on {
                command.args(["latency", "50ms"]);
            }
            enter(&mut command, &network.file);
            run(&mut command)?;
        }
        Ok(())
    }

    /// Has a command run at an end, and end with this process.
    pub fn at(&self, end: End, command: &mut Command) {
        tie(command);
        if let Some([client, server]) = &self.networks {
            enter(command, if end == End::Client { &client.file } else { &server.file });
        }
    }

    /// The address of the server's end.
    pub fn address(&self) -> &'static str {
        if self.networks.is_some() { ADDRESSES[1] } else { "127.0.0.1" }
    }

    /// A port that is free at the server's end: of its own network any, of the loopback's one that was free just now.
    pub fn port(&self) -> u16 {
        const ANY: u16 = 5201;
        if self.networks.is_some() {
            return ANY;
        }
        TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).map_or(ANY, |address| address.port())
    }
}
