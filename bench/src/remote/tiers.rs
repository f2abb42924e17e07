//! Stores above each other: compressed pages, a memory server that has room for half of what is not in memory, and a disk.

use super::server::Server;
use super::{Bench, Place};
use serde_json::Value;
use std::ffi::OsString;
use std::path::PathBuf;

/// Compressed pages have this much room at least.
const ZIP: u64 = 16 << 20;

impl Bench {
    /// Starts the server of a worker with such stores, and returns the worker's options.
    pub(super) fn tiers(&mut self, place: Place) -> Result<Vec<OsString>, String> {
        let name = format!("tiers-{place:?}");
        let memory = (self.options.data - self.options.memory) / 2;
        let server = Server::start(&self.commands, &self.path, &self.scratch, &name, true, memory)?;
        let mut options: Vec<OsString> =
            vec!["--store".into(), format!("zip:{}", (self.options.memory / 4).max(ZIP)).into()];
        options.extend(server.options.iter().cloned());
        options.extend(["--store".into(), self.options.store.as_os_str().to_owned()]);
        options.push(format!("--summary={}", self.summary(place).display()).into());
        self.tiers.push(server);
        Ok(options)
    }

    fn summary(&self, place: Place) -> PathBuf {
        self.scratch.file(&format!("{place:?}.json"))
    }

    /// Per cent of the reads of a worker that has ended which the server answered; what it did not, the disk did.
    pub(super) fn answered(&self, place: Place) -> Result<f64, String> {
        let path = self.summary(place);
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        share(&text)
    }
}

/// The same of a summary; an error if one of the two answered none.
fn share(summary: &str) -> Result<f64, String> {
    let value: Value = serde_json::from_str(summary).map_err(|error| format!("summary: {error}"))?;
    let reads = |name: &str| value[name].as_f64().filter(|reads| *reads > 0.0);
    match (reads("servers_reads"), reads("disk_reads")) {
        (Some(servers), Some(disk)) => Ok(servers * 100.0 / (servers + disk)),
        (servers, _) => {
            let who = if servers.is_none() { "the server" } else { "the disk below" };
            Err(format!("{who} answered no read; are its pages there?"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_must_have_answered() {
        assert_eq!(share(r#"{"servers_reads": 30, "disk_reads": 10}"#), Ok(75.0));
        assert!(share(r#"{"servers_reads": 30, "disk_reads": 0}"#).unwrap_err().contains("the disk below"));
        assert!(share(r#"{"disk_reads": 10}"#).unwrap_err().contains("the server"));
    }
}
