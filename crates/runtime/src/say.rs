//! Messages from inside the program: single lines on its standard error, made on the stack and written at once.

use core::fmt::{self, Write};
use ream_sys::file::Fd;
use ream_sys::quiet;

/// Text of at most `N` bytes; what does not fit is cut off.
pub struct Line<const N: usize> {
    bytes: [u8; N],
    length: usize,
}

impl<const N: usize> Line<N> {
    /// No text.
    pub const fn new() -> Line<N> {
        Line { bytes: [0; N], length: 0 }
    }
    /// The text.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or(&[])
    }
}

impl<const N: usize> Write for Line<N> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.bytes.get_mut(self.length..).unwrap_or(&mut []);
        for (place, byte) in room.iter_mut().zip(text.bytes()) {
            *place = byte;
        }
        let fits = text.len().min(room.len());
        self.length += fits;
        if fits == text.len() { Ok(()) } else { Err(fmt::Error) }
    }
}

/// Writes one line, beginning with "ream: ".
pub fn tell(message: fmt::Arguments<'_>) {
    let mut line = Line::<1024>::new();
    // What does not fit is cut off, and what cannot be written is lost.
    let _ = writeln!(line, "ream: {message}");
    let _ = quiet::write_all(Fd(2), line.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_cut_off() {
        let mut line = Line::<8>::new();
        assert!(write!(line, "{}", 1234).is_ok());
        assert!(write!(line, "{}", 567890).is_err());
        assert_eq!(line.as_bytes(), b"12345678");
        assert!(write!(line, "x").is_err());
    }
}
