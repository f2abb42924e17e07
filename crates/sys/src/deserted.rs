//! Whether nobody of the program is left in this process: its main thread has ended by itself (exit(2), not exit_group), and all
//! other threads are Ream's own or the kernel's. A plain process would have ended then, with its main thread's status.

use crate::file;
use crate::process;
use crate::procfs;
use core::sync::atomic::{AtomicU64, Ordering};

/// Our threads that run, each as the number of its process above its own; 0 is a free place. A child has its parent's list, and
/// none of its threads: what is another process's is free as well.
static OURS: [AtomicU64; PLACES] = [const { AtomicU64::new(0) }; PLACES];
/// More than ever run at a time. One that finds no place counts as the program's, which then never seems to have gone.
const PLACES: usize = 128;

fn entry(process: u32, thread: u32) -> u64 {
    u64::from(process) << 32 | u64::from(thread)
}

/// In a thread of ours, first of all.
pub(crate) fn begins() {
    let (process, mine) = (process::process_id(), entry(process::process_id(), process::thread_id()));
    for place in &OURS {
        let there = place.load(Ordering::Relaxed);
        let free = there == 0 || (there >> 32) as u32 != process;
        if free && place.compare_exchange(there, mine, Ordering::SeqCst, Ordering::Relaxed).is_ok() {
            return;
        }
    }
}

/// In a thread of ours, last of all.
pub(crate) fn ends() {
    let mine = entry(process::process_id(), process::thread_id());
    for place in &OURS {
        let _ = place.compare_exchange(mine, 0, Ordering::SeqCst, Ordering::Relaxed);
    }
}

fn is_ours(process: u32, thread: u32) -> bool {
    let wanted = entry(process, thread);
    OURS.iter().any(|place| place.load(Ordering::SeqCst) == wanted)
}

/// How often it is looked, and when a second time where nobody was found, in microseconds.
const SELDOM: u64 = 1_000_000;
const AGAIN: u64 = 50_000;

/// What a thread of ours that lasts asks now and then. The first look is a while after the beginning.
#[derive(Default)]
pub struct Deserted {
    next_us: u64,
    seen: Option<i32>,
}

impl Deserted {
    /// The status with which the process is to end, should nobody of the program be left: that of its main thread. It is looked
    /// about once a second, which takes some microseconds, and where nobody is found once more, so that no listing which threads
    /// came and went under counts alone. Without /proc everybody is there.
    pub fn look(&mut self, now_us: u64) -> Option<i32> {
        if self.next_us == 0 {
            self.next_us = now_us + SELDOM;
        }
        if now_us < self.next_us {
            return None;
        }
        let before = self.seen.take();
        self.seen = status_left();
        self.next_us = now_us + if self.seen.is_some() { AGAIN } else { SELDOM };
        self.seen.filter(|_| before == self.seen)
    }

    /// Microseconds until the next look.
    pub fn until_next(&self, now_us: u64) -> u64 {
        self.next_us.saturating_sub(now_us).min(SELDOM)
    }
}

/// The exit status of the main thread, if no other of the program's is there.
fn status_left() -> Option<i32> {
    let process = process::process_id();
    let (status, threads) = procfs::main_ended(process)?;
    let folder = file::open(c"/proc/self/task", file::flags::READ, 0).ok()?;
    let (mut met, mut nobody) = (0, true);
    procfs::each_number(folder, &mut |id| {
        met += 1;
        nobody &= id == process || is_ours(process, id) || procfs::is_of_io(id);
    });
    file::close(folder);
    // All were met: as many as there were before, and still are.
    let now = procfs::main_ended(process)?;
    (nobody && met == threads && now == (status, threads)).then_some(status)
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::memory::{Atomics, Shared};
    use crate::thread::{self, Files};
    use core::sync::atomic::AtomicU32;

    struct Told {
        stay: AtomicU32,
        seen: AtomicU32,
    }
    // SAFETY: atomics only, valid as zeros, and few.
    unsafe impl Atomics for Told {}

    /// A thread of ours: tells what it sees until it is let go.
    fn looks(argument: *mut ()) -> ! {
        // SAFETY: the test waits for us.
        let told = unsafe { &*argument.cast::<Told>() };
        assert!(is_ours(process::process_id(), process::thread_id()));
        while told.stay.load(Ordering::SeqCst) == 1 {
            process::sleep_us(1000);
        }
        told.seen.store(1 + u32::from(status_left().is_some()), Ordering::SeqCst);
        thread::exit()
    }

    #[test]
    fn a_process_whose_main_thread_lives_is_not_deserted() {
        assert_eq!(status_left(), None);
        let told = Shared::<Told>::new().unwrap();
        told.stay.store(1, Ordering::SeqCst);
        let argument = core::ptr::from_ref(&*told).cast_mut().cast();
        // SAFETY: `looks` uses no thread-local data; what it is given outlives the join.
        let thread = unsafe { thread::spawn(looks, argument, 64 << 10, Files::Shared) }.unwrap();
        let id = loop {
            match thread.id() {
                id if is_ours(process::process_id(), id) => break id,
                _ => process::sleep_us(100),
            }
        };
        assert!(!is_ours(process::process_id() + 1, id));
        told.stay.store(0, Ordering::SeqCst);
        thread.join();
        assert!(!is_ours(process::process_id(), id) && told.seen.load(Ordering::SeqCst) == 1);
    }

    #[test]
    fn it_is_looked_once_a_second() {
        let mut deserted = Deserted::default();
        assert_eq!((deserted.look(5), deserted.until_next(5)), (None, SELDOM));
        assert_eq!((deserted.look(SELDOM), deserted.until_next(SELDOM)), (None, 5));
        assert_eq!((deserted.look(SELDOM + 5), deserted.until_next(SELDOM + 5)), (None, SELDOM));
    }
}
