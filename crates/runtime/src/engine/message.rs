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

/// Writes one line to the standard error of the process, from a thread whose descriptor table does not hold it.
pub fn tell(arguments: fmt::Arguments<'_>) {
    let mut path = Line::new();
    let _ = write!(path, "/proc/{}/fd/2\0", process::process_id());
    let mut line = Line::new();
    let _ = writeln!(line, "ream: {arguments}");
    let Ok(path) = core::ffi::CStr::from_bytes_until_nul(path.as_bytes()) else { return };
    const WRITE_APPEND_NOCTTY_CLOEXEC: u32 = 0o1 | 0o2000 | 0o400 | 0o2_000_000;
    if let Ok(fd) = file::open(path, WRITE_APPEND_NOCTTY_CLOEXEC, 0) {
        let _ = file::write(fd, line.as_bytes());
        file::close(fd);
    } else {
        let _ = file::write(Fd(2), line.as_bytes());
    }
}
