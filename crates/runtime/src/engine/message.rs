//! What Ream says to the user from a thread of the engine: one line on the program's standard error, or in the file that
//! `--log` names.

use super::ENGINE;
use crate::say::Line;
use core::fmt::{self, Write};
use ream_sys::file::{self, Fd};
use ream_sys::process;
use ream_sys::quiet::write_all;

/// The level of `--log` at which warnings are written.
const WARN: u32 = 1;

/// An error: the program is stopped, or was not helped. Always on standard error, and in the log where there is one.
pub fn tell(arguments: fmt::Arguments<'_>) {
    let mut line = Line::<512>::new();
    let _ = writeln!(line, "ream: {arguments}");
    log(line.as_bytes());
    say(line.as_bytes());
}

/// A warning: in the log, or on standard error where there is none; not at all when only errors are wanted.
pub fn warn(arguments: fmt::Arguments<'_>) {
    if ENGINE.session().is_some_and(|session| session.config().log_level < WARN) {
        return;
    }
    let mut line = Line::<512>::new();
    let _ = writeln!(line, "ream: {arguments}");
    if !log(line.as_bytes()) {
        say(line.as_bytes());
    }
}

/// Appends to the log; false when there is none, or it cannot be written.
fn log(line: &[u8]) -> bool {
    let path = ENGINE.session().filter(|session| !session.config().log_path.is_empty());
    let Some(path) = path.and_then(|session| session.config().log_path.as_c_str()) else { return false };
    // A FIFO that nobody reads would be waited for.
    let flags = file::flags::WRITE | file::flags::CREATE | file::flags::APPEND | file::flags::NONBLOCK;
    let Ok(fd) = file::open(path, flags, 0o666) else { return false };
    let written = write_all(fd, line);
    file::close(fd);
    written.is_ok()
}

/// Writes to the standard error of the process, from a thread whose descriptor table does not hold it: at the program's
/// own position in a file, so that neither overwrites the other.
fn say(line: &[u8]) {
    if let Ok(whole) = process::watch_process(process::process_id()) {
        let copy = process::copy_descriptor(whole, Fd(2));
        file::close(whole);
        if let Ok(fd) = copy {
            let _ = write_all(fd, line);
            file::close(fd);
            return;
        }
    }
    let _ = write_all(Fd(2), line);
}
