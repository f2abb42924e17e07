//! The memory servers of a program's session: which are used, what they have left, and whether all copies are there.

use crate::doctor::quoted;
use crate::os;
use ream_options::show_size;
use ream_stats::{SPILL, Session};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

/// One server.
pub struct Server {
    name: String,
    /// Processes that have their connections to it, of all that page.
    linked: usize,
    /// What it had left when it was last asked; `None` where nobody asks it.
    free: Option<u64>,
    latency_us: u64,
    losses: u64,
    /// Pages that it has of all that page, and how many that came from it were not genuine.
    pages: u64,
    forged: u64,
}

/// Those of a session.
pub struct Servers {
    list: Vec<Server>,
    copies: u32,
    spill: bool,
    below: bool,
    parity: bool,
    processes: usize,
    stored: u64,
    missing: u64,
    again: u64,
    /// Pages that are in the local copy.
    spilled: u64,
    forged: u64,
}

/// What a process's session pages to; `None` where it is in none, or has no memory server.
pub fn of(id: u32) -> Option<Servers> {
    let session = session_of(id)?;
    let config = session.config();
    if !config.is_remote() {
        return None;
    }
    let paging: Vec<_> = session.used().iter().filter(|process| process.engaged()).collect();
    let held = |who: usize| paging.iter().map(|process| process.copies().held(who)).sum();
    // The only one is asked once, when the session begins: that is soon no longer true.
    let several = session.remotes().len() > 1;
    let list = session.remotes().iter().enumerate().filter_map(|(index, remote)| {
        let server = session.servers().get(index)?;
        Some(Server {
            name: format!("tcp://{}", String::from_utf8_lossy(remote.name.as_bytes())),
            linked: paging.iter().filter(|process| is_used(process.copies(), index, server.alarms())).count(),
            free: several.then(|| server.free()),
            latency_us: server.latency_us(),
            losses: server.losses(),
            pages: held(index),
            forged: server.forged(),
        })
    });
    let counters = ream_stats::Counters::default();
    session.add_to(&counters);
    Some(Servers {
        list: list.collect(),
        copies: config.copies(),
        spill: config.spill != 0,
        below: config.below != 0,
        parity: config.parity != 0,
        processes: paging.len(),
        stored: paging.iter().map(|process| process.copies().stored()).sum(),
        missing: session.copies_missing(),
        again: counters.pages_copied_again.get(),
        spilled: held(SPILL),
        forged: counters.pages_not_genuine.get(),
    })
}

/// Whether a process has its connections to a server, and has heard from there since the last of so many alarms about it.
fn is_used(copies: &ream_stats::Copies, index: usize, alarms: u64) -> bool {
    copies.linked() >> index & 1 != 0 && copies.outlived(index) == alarms
}

/// The session that a process was told of when it was started.
#[allow(unsafe_code)]
pub(super) fn session_of(id: u32) -> Option<&'static Session> {
    let variables = std::fs::read(format!("/proc/{id}/environ")).ok()?;
    let value = variables.split(|byte| *byte == 0).find_map(|variable| variable.strip_prefix(b"REAM_SESSION="))?;
    let (path, rest) = std::str::from_utf8(value).ok()?.split_once(':')?;
    let nonce = u64::from_str_radix(rest.split('-').next()?, 16).ok()?;
    let file = File::options().read(true).write(true).open(std::ffi::OsStr::from_bytes(path.as_bytes())).ok()?;
    let bytes = usize::try_from(file.metadata().ok()?.len()).ok()?;
    if bytes < Session::BYTES {
        return None;
    }
    let mapping = os::map_shared(&OwnedFd::from(file), Session::BYTES).ok()?;
    // SAFETY: just mapped, shared and for good, large enough; what is in it is checked, and only read.
    unsafe { Session::open(mapping, bytes, nonce) }.ok()
}

impl Server {
    /// How long it takes to answer, in microseconds, if that was ever measured.
    fn latency(&self) -> Option<u64> {
        Some(self.latency_us).filter(|us| *us > 0)
    }
}

impl Servers {
    /// A few lines.
    pub fn text(&self) -> String {
        let place = if self.below { " and on the disk below" } else { "" };
        let mut text = format!("store: {} of pages at memory servers{place}", show_size(self.stored * 4096));
        text += &match (self.copies, self.missing) {
            (1, _) => ", one copy of each\n".to_owned(),
            (_, 0) if self.below => ", two copies of each at servers\n".to_owned(),
            (_, 0) if self.spill => ", with a local copy of each\n".to_owned(),
            (_, 0) if self.parity => ", one copy of each, and sums of them\n".to_owned(),
            (_, 0) => ", two copies of each\n".to_owned(),
            (_, missing) if self.parity => {
                format!(", of which {} have no sum, or need it\n", show_size(missing * 4096))
            }
            (_, missing) => format!(", of which {} lack a copy\n", show_size(missing * 4096)),
        };
        for server in &self.list {
            let state = if server.linked == self.processes { "used" } else { "away" };
            let pages = show_size(server.pages * 4096);
            let left = server.free.map_or_else(String::new, |free| format!(", {} left", show_size(free)));
            let latency = server.latency().map_or_else(|| "-".to_owned(), |us| format!("{us} us"));
            text += &format!("  {}: {state}, {pages} there{left}, {latency}", server.name);
            if server.losses > 0 {
                text += &format!(", lost {} times", server.losses);
            }
            if server.forged > 0 {
                text += &format!(", {} pages not genuine", server.forged);
            }
            text += "\n";
        }
        if self.spill || self.below {
            let name = if self.spill { "local copy" } else { "disk below" };
            text += &format!("  {name}: {} there\n", show_size(self.spilled * 4096));
        }
        text
    }

    /// A member of an object.
    pub fn json(&self) -> String {
        let servers = self.list.iter().map(|server| {
            format!(
                "      {{\"name\": {}, \"used\": {}, \"free\": {}, \"latency_us\": {}, \"losses\": {}, \"pages\": {}, \"not_genuine\": {}}}",
                quoted(&server.name),
                server.linked == self.processes,
                server.free.map_or_else(|| "null".to_owned(), |free| free.to_string()),
                server.latency().map_or_else(|| "null".to_owned(), |us| us.to_string()),
                server.losses,
                server.pages,
                server.forged
            )
        });
        let servers: Vec<String> = servers.collect();
        format!(
            "\"store\": {{\n    \"pages\": {}, \"copies\": {}, \"copies_missing\": {}, \"copied_again\": {}, \"not_genuine\": {}, \"spill\": {}, \"below\": {}, \"spilled\": {}, \"parity\": {},\n    \"servers\": [\n{}\n    ]\n  }}",
            self.stored,
            self.copies,
            self.missing,
            self.again,
            self.forged,
            self.spill,
            self.below,
            self.spilled,
            self.parity,
            servers.join(",\n")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a server that nobody asks what it has left nothing is said.
    #[test]
    fn what_is_left_is_said_where_it_is_known() {
        let servers = |free, latency_us| {
            let name = "tcp://a:1".to_owned();
            let server = Server { name, linked: 1, free, latency_us, losses: 0, pages: 256, forged: 0 };
            let (stored, missing, again, spilled, forged) = (256, 0, 0, 0, 0);
            let (copies, processes, list) = (1, 1, vec![server]);
            let (spill, below, parity) = (false, false, false);
            Servers { list, copies, spill, below, parity, processes, stored, missing, again, spilled, forged }
        };
        let (asked, alone) = (servers(Some(1 << 30), 9), servers(None, 0));
        assert!(asked.text().contains("tcp://a:1: used, 1 MiB there, 1 GiB left, 9 us"), "{}", asked.text());
        assert!(alone.text().contains("tcp://a:1: used, 1 MiB there, -\n"), "{}", alone.text());
        let json: serde_json::Value = serde_json::from_str(&format!("{{{}}}", alone.json())).unwrap();
        assert!(json["store"]["servers"][0]["free"].is_null(), "{json}");
        assert!(json["store"]["servers"][0]["latency_us"].is_null(), "{json}");
    }
}
