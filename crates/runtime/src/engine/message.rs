//! What Ream says to the user from inside the program: one line on the program's standard error, made on the stack.

use core::fmt::{self, Write};
use ream_sys::file::{self, Fd};
use ream_sys::process;

/// A line of text of fixed size; what does not fit is cut off.
pub struct Line {
    bytes: [u8; 512],
    len: usize,
}

impl Line {
    pub const fn new() -> Line {
        Line { bytes: [0; 512], len: 0 }
    }
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&[])
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            match self.bytes.get_mut(self.len) {
                Some(place) => *place = byte,
                None => break,
            }
            self.len += 1;
        }
        Ok(())
    }
}

/// Writes one line to the standard error of the process, from a thread whose descriptor table does not hold it: at the
/// program's own position in a file, so that neither overwrites the other.
pub fn tell(arguments: fmt::Arguments<'_>) {
    let mut line = Line::new();
    let _ = writeln!(line, "ream: {arguments}");
    if let Ok(whole) = process::watch_process(process::process_id()) {
        let copy = process::copy_descriptor(whole, Fd(2));
        file::close(whole);
        if let Ok(fd) = copy {
            let _ = file::write(fd, line.as_bytes());
            file::close(fd);
            return;
        }
    }
    let _ = file::write(Fd(2), line.as_bytes());
}
