//! What the path gives without Ream: bytes a second by iperf3, or by a bare sender and receiver of our own where that is not
//! installed, and how long a request for 4 KiB and its reply take.

use super::path::{End, Path};
use crate::driver::Commands;
use crate::measured;
use crate::work::Times;
use serde_json::Value;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Connections, as many as a program has to its server.
pub const CONNECTIONS: u32 = 3;
/// Requests of one measurement.
const PINGS: u32 = 2000;
const LIMIT: Duration = Duration::from_secs(60);

/// Which way bytes go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// From the server, as pages that are read.
    In,
    /// To the server, as pages that are written.
    Out,
    /// Both at once.
    Both,
}

/// The other end of bare TCP, and whether iperf3 is there.
pub struct Line {
    peer: Child,
    address: String,
    iperf: bool,
}

impl Drop for Line {
    fn drop(&mut self) {
        drop(self.peer.stdin.take());
        let _ = self.peer.wait();
    }
}

/// The first line that a child says.
fn first_line(child: &mut Child, wanted: &str) -> Result<String, String> {
    let lines = BufReader::new(child.stdout.take().ok_or("no standard output")?).lines();
    let mut lines = lines.map_while(Result::ok);
    let line = lines.find(|line| line.contains(wanted)).ok_or("the other end did not start")?;
    std::thread::spawn(move || lines.for_each(drop));
    Ok(line)
}

impl Line {
    /// On this path.
    ///
    /// # Errors
    /// The other end does not start.
    pub fn new(commands: &Commands, path: &Path) -> Result<Line, String> {
        let mut command = Command::new(&commands.worker);
        command.args(["peer", &format!("{}:0", path.address())]).stdin(Stdio::piped()).stdout(Stdio::piped());
        path.at(End::Server, &mut command);
        let mut peer = command.spawn().map_err(|error| format!("{command:?}: {error}"))?;
        let address = first_line(&mut peer, ":")?;
        let iperf = Command::new("iperf3").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        Ok(Line { peer, address, iperf: iperf.is_ok_and(|status| status.success()) })
    }

    /// What measures bytes a second.
    pub fn tool(&self) -> &'static str {
        if self.iperf { "iperf3" } else { "a bare TCP sender and receiver (iperf3 is not installed)" }
    }

    fn call(&self, commands: &Commands, path: &Path, words: &[&str]) -> Result<String, String> {
        let mut command = Command::new(&commands.worker);
        command.args(["call", &self.address]).args(words);
        path.at(End::Client, &mut command);
        finished(&mut command)
    }

    /// Request and reply of 4 KiB, one after the other, by blocking calls.
    ///
    /// # Errors
    /// The connection failed.
    pub fn ping(&self, commands: &Commands, path: &Path) -> Result<Times, String> {
        self.call(commands, path, &["ping", &PINGS.to_string()])?.parse()
    }

    /// MB/s.
    ///
    /// # Errors
    /// What the tool says.
    pub fn rate(&self, commands: &Commands, path: &Path, way: Way, seconds: f64) -> Result<f64, String> {
        let connections = CONNECTIONS.to_string();
        if !self.iperf {
            let bulk = |way: &str| {
                let text = self.call(commands, path, &[way, &connections, &seconds.to_string()])?;
                text.trim().parse::<f64>().map(|rate| rate / 1e6).map_err(|_| format!("the caller said: {text}"))
            };
            return match way {
                Way::In => bulk("receive"),
                Way::Out => bulk("send"),
                Way::Both => std::thread::scope(|scope| {
                    let sent = scope.spawn(|| bulk("send"));
                    let received = bulk("receive")?;
                    Ok(received + sent.join().map_err(|_| "the sender failed")??)
                }),
            };
        }
        let port = path.port().to_string();
        let mut server = Command::new("iperf3");
        server.args(["-s", "-1", "--forceflush", "-B", path.address(), "-p", &port]);
        server.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        path.at(End::Server, &mut server);
        let mut server = server.spawn().map_err(|error| format!("iperf3: {error}"))?;
        let said = first_line(&mut server, "listening").and_then(|_| {
            let mut client = Command::new("iperf3");
            // It takes whole seconds only.
            let seconds = (seconds.round().max(1.0) as u64).to_string();
            client.args(["-c", path.address(), "-p", &port, "-P", &connections, "-t", &seconds, "-J"]);
            match way {
                Way::In => client.arg("-R"),
                Way::Out => &mut client,
                Way::Both => client.arg("--bidir"),
            };
            path.at(End::Client, &mut client);
            finished(&mut client)
        });
        let _ = server.kill();
        let _ = server.wait();
        read_iperf(&said?, way)
    }
}

fn finished(command: &mut Command) -> Result<String, String> {
    let ran = measured::run(command, LIMIT)?;
    match ran.status.success() {
        true => Ok(ran.out),
        false => Err(format!("{command:?}: {} {}", ran.errors.trim(), ran.out.trim())),
    }
}

/// MB/s that were received, from what iperf3 says.
fn read_iperf(text: &str, way: Way) -> Result<f64, String> {
    let value: Value = serde_json::from_str(text).map_err(|error| format!("iperf3: {error}"))?;
    let rate = |name: &str| value["end"][name]["bits_per_second"].as_f64().map(|bits| bits / 8e6);
    let there = rate("sum_received").ok_or_else(|| format!("iperf3: {}", value["error"]))?;
    Ok(match way {
        Way::Both => there + rate("sum_received_bidir_reverse").unwrap_or(0.0),
        Way::In | Way::Out => there,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_iperf_says_is_read() {
        let text = r#"{"end": {"sum_received": {"bits_per_second": 8e9},
            "sum_received_bidir_reverse": {"bits_per_second": 4e9}}}"#;
        assert_eq!(read_iperf(text, Way::In), Ok(1000.0));
        assert_eq!(read_iperf(text, Way::Both), Ok(1500.0));
        let error = read_iperf(r#"{"end": {}, "error": "unable to connect"}"#, Way::Out).unwrap_err();
        assert!(error.contains("unable to connect"), "{error}");
    }
}
