//! Keeping the pager on the processor of the thread that faults: a fault answered on the same processor takes a tenth
//! of one answered across.

use crate::Errno;
use crate::file::{self, Fd};
use crate::process::{self, Processors};
use core::ffi::CStr;

pub(crate) struct Follower {
    /// Where the pager may run at all.
    allowed: Processors,
    /// Where it is kept now; `None` anywhere allowed.
    now: Option<u32>,
    /// The thread asked about last, and its open status file.
    last: Option<(u32, Fd)>,
}

impl Follower {
    pub(crate) fn new() -> Result<Follower, Errno> {
        Ok(Follower { allowed: process::processors()?, now: None, last: None })
    }

    pub(crate) fn follow(&mut self, thread: Option<u32>) {
        let wanted = thread.and_then(|thread| self.processor_of(thread));
        let wanted = wanted.filter(|processor| self.allowed.contains(*processor));
        if wanted == self.now {
            return;
        }
        let set = wanted.map_or(self.allowed, Processors::only);
        if process::set_processors(&set).is_ok() {
            self.now = wanted;
        }
    }

    fn processor_of(&mut self, thread: u32) -> Option<u32> {
        let fd = match self.last {
            Some((last, fd)) if last == thread => fd,
            other => {
                if let Some((_, fd)) = other {
                    file::close(fd);
                }
                self.last = None;
                let fd = open_status(thread)?;
                self.last = Some((thread, fd));
                fd
            }
        };
        let mut text = [0u8; 1024];
        match file::read_at(fd, &mut text, 0) {
            Ok(bytes) => parse_processor(text.get(..bytes)?),
            Err(_) => {
                // It has ended; a new thread may get its number.
                file::close(fd);
                self.last = None;
                None
            }
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        if let Some((_, fd)) = self.last {
            file::close(fd);
        }
        if self.now.is_some() {
            let _ = process::set_processors(&self.allowed);
        }
    }
}

fn open_status(thread: u32) -> Option<Fd> {
    let mut path = *b"/proc/self/task/\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    let mut digits = [0u8; 10];
    let mut rest = thread;
    let mut count = 0;
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
        count += 1;
        if rest == 0 {
            break;
        }
    }
    let name = digits.iter().skip(10 - count).chain(b"/stat");
    for (place, letter) in path.iter_mut().skip(16).zip(name) {
        *place = *letter;
    }
    file::open(CStr::from_bytes_until_nul(&path).ok()?, file::flags::READ, 0).ok()
}

/// Field 39 of /proc/PID/stat. The name, field 2, is in parentheses and may hold anything.
fn parse_processor(text: &[u8]) -> Option<u32> {
    let close = text.iter().rposition(|byte| *byte == b')')?;
    let field = text.get(close + 2..)?.split(|byte| *byte == b' ').nth(36)?;
    core::str::from_utf8(field).ok()?.trim_ascii().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_is_field_39() {
        let text =
            b"1 (a) b) S 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 \
                     35 36 37 38 3 40 41\n";
        assert_eq!(parse_processor(text), Some(3));
        assert_eq!(parse_processor(b"garbage"), None);
    }

    #[test]
    fn follows_itself_and_lets_go() {
        let before = process::processors().unwrap();
        let mut follower = Follower::new().unwrap();
        follower.follow(Some(process::thread_id()));
        assert_eq!(process::processors().unwrap().count(), 1);
        follower.follow(Some(0));
        assert_eq!(process::processors().unwrap(), before);
        follower.follow(Some(process::thread_id()));
        follower.follow(None);
        assert_eq!(process::processors().unwrap(), before);
    }
}
