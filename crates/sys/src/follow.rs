//! Keeping the pager on the processor of the thread that faults: a fault answered on the same processor takes a tenth
//! of one answered across.

use crate::Errno;
use crate::file::{self, Fd};
use crate::process::{self, Processors};
use crate::procfs;
use core::sync::atomic::{AtomicU64, Ordering};

/// Where the pager may run at all, for the threads that it starts while it is kept on one processor.
static ALLOWED: [AtomicU64; 16] = [const { AtomicU64::new(0) }; 16];

/// Lets the calling thread, made by a pager, run wherever the pager may.
pub(crate) fn run_anywhere() {
    let mut set = Processors::NONE;
    for (index, word) in ALLOWED.iter().enumerate() {
        set.set_word(index, word.load(Ordering::Relaxed));
    }
    if set.count() > 0 {
        let _ = process::set_processors(&set);
    }
}

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
        let allowed = process::processors()?;
        for (index, word) in ALLOWED.iter().enumerate() {
            word.store(allowed.word(index), Ordering::Relaxed);
        }
        Ok(Follower { allowed, now: None, last: None })
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
                let fd = procfs::open_status(b"/proc/self/task/", thread)?;
                self.last = Some((thread, fd));
                fd
            }
        };
        // Field 39 is the processor on which it ran last.
        let processor = procfs::read_field(fd, 39);
        if processor.is_none() {
            // It has ended; a new thread may get its number.
            file::close(fd);
            self.last = None;
        }
        u32::try_from(processor?).ok()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_itself_and_lets_go() {
        let before = process::processors().unwrap();
        let mut follower = Follower::new().unwrap();
        follower.follow(Some(process::thread_id()));
        assert_eq!(process::processors().unwrap().count(), 1);
        follower.follow(Some(0));
        assert_eq!(process::processors().unwrap(), before);
        follower.follow(Some(process::thread_id()));
        // As a thread would that was started now.
        run_anywhere();
        assert_eq!(process::processors().unwrap(), before);
        follower.follow(None);
        assert_eq!(process::processors().unwrap(), before);
    }
}
