//! A compressed block device in RAM as swap, in front of any other: made for a run, and taken down after it. Who makes one notes
//! it in the journal.

use crate::swap::{run, tool};
use std::path::{Path, PathBuf};

const CONTROL: &str = "/sys/class/zram-control";

/// Why there can be none.
pub fn absent() -> Option<String> {
    let there = Path::new(CONTROL).join("hot_add").exists();
    (!there).then(|| "this kernel has no zram, or its module is not loaded".into())
}

/// The device of a number.
fn device(number: u32) -> PathBuf {
    format!("/dev/zram{number}").into()
}

/// Makes an empty device, which takes no memory; returns its number.
///
/// # Errors
/// The kernel refuses.
pub fn add() -> Result<u32, String> {
    let file = format!("{CONTROL}/hot_add");
    // Reading makes it.
    let text = std::fs::read_to_string(&file).map_err(|error| format!("{file}: {error}"))?;
    text.trim().parse().map_err(|_| format!("{file}: '{}' is no number", text.trim()))
}

/// Makes a device of so many bytes the first swap that the kernel uses.
///
/// # Errors
/// The kernel refuses.
pub fn on(number: u32, bytes: u64) -> Result<(), String> {
    let size = format!("/sys/block/zram{number}/disksize");
    std::fs::write(&size, bytes.to_string()).map_err(|error| format!("{size}: {error}"))?;
    run(tool("mkswap").arg(device(number)))?;
    run(tool("swapon").args(["--priority", "32000"]).arg(device(number)))
}

/// Takes it down, whatever state it is in.
pub fn remove(number: u32) {
    let name = device(number);
    let on = || {
        let swaps = std::fs::read_to_string("/proc/swaps").unwrap_or_default();
        swaps.lines().any(|line| line.split_whitespace().next() == name.to_str())
    };
    if on() {
        if let (Err(error), true) = (run(tool("swapoff").arg(&name)), on()) {
            eprintln!("ream: bench: swap stays on: {error}");
            return;
        }
    }
    // What opened it a moment ago, to see what it is, keeps it for as long.
    for _ in 0..50 {
        let _ = std::fs::write(format!("/sys/block/zram{number}/reset"), "1");
        let removed = std::fs::write(format!("{CONTROL}/hot_remove"), number.to_string());
        if removed.is_ok() || !name.exists() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    eprintln!("ream: bench: {}: stays; write {number} to {CONTROL}/hot_remove", name.display());
}
