//! What a benchmark prints. `println!`, `print!` and `eprintln!` of this crate are the ones below: those of the standard library
//! panic where the reader has gone away.

use crate::interrupt;
use std::fmt::Arguments;
use std::io::{Error, ErrorKind, Write as _};
use std::sync::{Mutex, PoisonError};

/// Why something could not be printed.
static FAILED: Mutex<Option<Error>> = Mutex::new(None);

/// To standard output. A reader that has gone away has read enough, and ends a benchmark as Ctrl-C does.
pub fn out(text: Arguments) {
    let mut out = std::io::stdout().lock();
    match out.write_fmt(text).and_then(|()| out.flush()) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::BrokenPipe => interrupt::nobody_reads(),
        Err(error) => *FAILED.lock().unwrap_or_else(PoisonError::into_inner) = Some(error),
    }
}

/// Why not all of it reached standard output, when it did not.
pub fn failed() -> Option<Error> {
    FAILED.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// To standard error; where that is closed, there is nobody to tell.
pub fn err(text: Arguments) {
    let _ = std::io::stderr().lock().write_fmt(text);
}

macro_rules! print {
    ($($text:tt)*) => { $crate::told::out(format_args!($($text)*)) };
}

macro_rules! println {
    () => { $crate::told::out(format_args!("\n")) };
    ($($text:tt)+) => { $crate::told::out(format_args!("{}\n", format_args!($($text)+))) };
}

macro_rules! eprintln {
    ($($text:tt)+) => { $crate::told::err(format_args!("{}\n", format_args!($($text)+))) };
}
