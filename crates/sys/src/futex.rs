//! Sleeping until a word changes, and a lock made of it that any thread may use: no libc, no thread-local data.
//! Words in memory shared between processes need [`Scope::Shared`].

use crate::Errno;
use crate::syscall::{call4, number};
use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU32, Ordering};

/// Who shares the word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Scope {
    /// Other processes may: memory mapped shared.
    Shared = 0,
    /// Threads of one process only.
    Private = 128,
}

/// How a wait ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Woken {
    /// Woken, or the word had another value, or for no reason: look again.
    Look,
    /// The time was up.
    TimeUp,
}

#[repr(C)]
pub(crate) struct TimeSpec {
    pub(crate) seconds: i64,
    pub(crate) nanoseconds: i64,
}

impl TimeSpec {
    pub(crate) fn micros(us: u64) -> TimeSpec {
        // Ten years are as good as for ever, and far from overflow.
        let us = us.min(315_360_000_000_000);
        TimeSpec { seconds: (us / 1_000_000) as i64, nanoseconds: (us % 1_000_000 * 1000) as i64 }
    }
}

/// Sleeps while `word` holds `expected`, at most `timeout_us` microseconds.
pub fn wait(word: &AtomicU32, expected: u32, timeout_us: Option<u64>, scope: Scope) -> Woken {
    let limit = timeout_us.map(TimeSpec::micros);
    let pointer = limit.as_ref().map_or(0, |limit| core::ptr::from_ref(limit).expose_provenance());
    let address = word.as_ptr().expose_provenance();
    // SAFETY: FUTEX_WAIT (0) only reads the word and the time.
    match unsafe { call4(number::__NR_futex, address, scope as usize, expected as usize, pointer) } {
        Err(Errno::TIMEDOUT) => Woken::TimeUp,
        _ => Woken::Look,
    }
}

/// Wakes at most `count` sleepers; returns how many.
pub fn wake(word: &AtomicU32, count: u32, scope: Scope) -> u32 {
    let address = word.as_ptr().expose_provenance();
    // The kernel takes it for a signed number, and after one below zero it stops at the first sleeper.
    let count = count.min(i32::MAX as u32);
    // SAFETY: FUTEX_WAKE (1) uses only the address.
    unsafe { call4(number::__NR_futex, address, scope as usize | 1, count as usize, 0) }.unwrap_or(0) as u32
}

const FREE: u32 = 0;
const HELD: u32 = 1;
const CONTENDED: u32 = 2;

/// A lock for any thread of the process, also raw ones. Not recursive, not for signal handlers.
pub struct Mutex<T> {
    state: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the lock lets one thread at a time at the value.
unsafe impl<T: Send> Sync for Mutex<T> {}
// SAFETY: it owns the value.
unsafe impl<T: Send> Send for Mutex<T> {}

impl<T> Mutex<T> {
    /// A free lock around `value`.
    pub const fn new(value: T) -> Mutex<T> {
        Mutex { state: AtomicU32::new(FREE), value: UnsafeCell::new(value) }
    }
    /// Waits for the lock.
    pub fn lock(&self) -> Guard<'_, T> {
        if self.state.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.lock_contended();
        }
        Guard { lock: self }
    }
    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        let free = self.state.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed);
        free.ok().map(|_| Guard { lock: self })
    }
    /// Makes the lock free whoever holds it.
    ///
    /// # Safety
    /// For the only thread of a forked child, when the holder was a thread of the parent and the value is usable.
    pub unsafe fn reset(&self) {
        self.state.store(FREE, Ordering::Release);
    }
    #[cold]
    fn lock_contended(&self) {
        for _ in 0..100 {
            if self.state.load(Ordering::Relaxed) == FREE
                && self.state.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                return;
            }
            core::hint::spin_loop();
        }
        while self.state.swap(CONTENDED, Ordering::Acquire) != FREE {
            wait(&self.state, CONTENDED, None, Scope::Private);
        }
    }
}

/// Access to the locked value; lets go when dropped.
pub struct Guard<'a, T> {
    lock: &'a Mutex<T>,
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: we hold the lock.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: we hold the lock, and `&mut self` is the only way to the value through this guard.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        if self.lock.state.swap(FREE, Ordering::Release) == CONTENDED {
            wake(&self.lock.state, 1, Scope::Private);
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    #[test]
    fn eight_threads_count_exactly() {
        let lock = Mutex::new(0u64);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        *lock.lock() += 1;
                    }
                });
            }
        });
        assert_eq!(*lock.lock(), 160_000);
        let held = lock.lock();
        assert!(lock.try_lock().is_none());
        drop(held);
        assert!(lock.try_lock().is_some());
    }

    #[test]
    fn waiting_ends_by_time_and_by_value() {
        let word = AtomicU32::new(5);
        assert_eq!(wait(&word, 5, Some(1000), Scope::Private), Woken::TimeUp);
        assert_eq!(wait(&word, 6, None, Scope::Shared), Woken::Look);
        assert_eq!(wake(&word, 1, Scope::Private), 0);
    }
    #[test]
    fn all_sleepers_are_woken() {
        const SLEEPERS: usize = 3;
        let word = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..SLEEPERS {
                // Whoever is not woken would sleep for a minute.
                scope.spawn(|| wait(&word, 0, Some(60_000_000), Scope::Private));
            }
            let argument = std::format!(" {:#x} ", word.as_ptr().addr());
            let asleep = || {
                let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
                let calls = tasks.map(|task| std::fs::read_to_string(task.path().join("syscall")).unwrap_or_default());
                calls.filter(|call| call.contains(&argument)).count()
            };
            while asleep() < SLEEPERS {
                std::thread::yield_now();
            }
            assert_eq!(wake(&word, u32::MAX, Scope::Private), SLEEPERS as u32);
        });
    }
}
