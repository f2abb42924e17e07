//! Processes of one run, found by a mark in their environment, and what they were doing when they hung.

use crate::place::ream_binary;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// The processes of one run: those whose environment holds the run's mark.
pub struct Left {
    mark: String,
}

fn number(path: &std::path::Path) -> Option<i32> {
    path.file_name()?.to_str()?.parse().ok()
}

impl Left {
    /// Of the run with this mark, an environment entry `NAME=value` that no other run has.
    pub fn of(mark: String) -> Left {
        Left { mark }
    }

    /// Ids of those that are alive (not zombies).
    pub fn alive(&self) -> Vec<i32> {
        let Ok(list) = fs::read_dir("/proc") else { return Vec::new() };
        let own = std::process::id() as i32;
        let marked = |pid: &i32| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|entry| entry == self.mark.as_bytes())
        };
        list.flatten().filter_map(|entry| number(&entry.path())).filter(|pid| *pid != own).filter(marked).collect()
    }

    /// Waits until none is alive; after `patience`, returns those that are.
    pub fn gone_within(&self, patience: Duration) -> Vec<i32> {
        let deadline = Instant::now() + patience;
        loop {
            let alive = self.alive();
            if alive.is_empty() || Instant::now() > deadline {
                return alive;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Kills those that are alive, until none is left.
    pub fn kill(&self) {
        for _ in 0..100 {
            let alive = self.alive();
            if alive.is_empty() {
                return;
            }
            for pid in alive {
                // SAFETY: kill only sends a signal; the process carries the mark that only this run's have.
                unsafe { libc::kill(pid, libc::SIGKILL) };
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// What each thread of a process is doing, for the message of a test that hung.
pub fn report(pid: i32) -> String {
    let read = |path: PathBuf| fs::read_to_string(path).unwrap_or_else(|error| format!("({error})"));
    let root = PathBuf::from(format!("/proc/{pid}"));
    let mut text = format!("process {pid}: {}\n", read(root.join("cmdline")).replace('\0', " "));
    let Ok(tasks) = fs::read_dir(root.join("task")) else { return text };
    for task in tasks.flatten().map(|entry| entry.path()) {
        let status = read(task.join("status"));
        let state = status.lines().find(|line| line.starts_with("State:")).unwrap_or("State: ?");
        let name = read(task.join("comm"));
        let id = number(&task).unwrap_or(0);
        let _ = writeln!(text, "  thread {id} {} {state} syscall {}", name.trim(), read(task.join("syscall")).trim());
        let signals = status.lines().filter(|line| line.starts_with("Sig") || line.starts_with("ShdPnd"));
        let _ = writeln!(text, "    {}", signals.collect::<Vec<_>>().join(" ").replace('\t', " "));
        let _ = writeln!(text, "    {}", read(task.join("stack")).trim().replace('\n', "\n    "));
    }
    // What the pager says of it; one that does not answer is not waited for.
    let status = Command::new("timeout").arg("5").arg(ream_binary()).arg("status").arg(pid.to_string()).output();
    if let Ok(Output { stdout, stderr, .. }) = status {
        let _ = writeln!(text, "{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    }
    text
}
