//! Lines of Ream's own, written so that who does not read them stops nothing: neither the command nor the program that it
//! becomes gets a SIGPIPE.

use ream_sys::file::Fd;
use ream_sys::quiet;
use std::os::fd::AsRawFd;

/// Writes a line to standard error. Where that is closed there is nobody to tell.
pub fn say(line: &str) {
    write_line(&std::io::stderr(), line);
}

/// Writes a line; false where it cannot be.
pub fn write_line(file: &impl AsRawFd, line: &str) -> bool {
    quiet::write_all(Fd(file.as_raw_fd()), format!("{line}\n").as_bytes()).is_ok()
}
