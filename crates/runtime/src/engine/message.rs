//! What Ream says to the user from a thread of the engine: one line on the program's standard error.

use crate::say::{Line, write_all};
use core::fmt::{self, Write};
use ream_sys::file::{self, Fd};
use ream_sys::process;

/// Writes one line to the standard error of the process, from a thread whose descriptor table does not hold it: at the
/// program's own position in a file, so that neither overwrites the other.
pub fn tell(arguments: fmt::Arguments<'_>) {
    let mut line = Line::<512>::new();
    let _ = writeln!(line, "ream: {arguments}");
    if let Ok(whole) = process::watch_process(process::process_id()) {
        let copy = process::copy_descriptor(whole, Fd(2));
        file::close(whole);
        if let Ok(fd) = copy {
            write_all(fd, line.as_bytes());
            file::close(fd);
            return;
        }
    }
    write_all(Fd(2), line.as_bytes());
}
