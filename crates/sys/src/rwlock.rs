//! A readers-writer lock for any thread of the process, also raw ones, with what a fork needs: whoever has it for himself can
//! let readers in, and those do not wait behind a writer then.

use crate::futex::{Scope, wait, wake};
use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU32, Ordering};

/// Somebody has it for himself.
const WRITING: u32 = 1 << 31;
/// Somebody who was to have it for himself has let readers in, and is one of them.
const SHOWN: u32 = 1 << 30;
/// Somebody sleeps until the state changes, maybe to write: no more readers come until those that are there have gone. What is
/// below counts readers.
const WAITING: u32 = 1 << 29;
/// Looks before a thread sleeps.
const SPINS: u32 = 100;

/// Not recursive, not for signal handlers.
pub struct RwLock<T> {
    state: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the lock lets one thread at a time change the value, and none read it then.
unsafe impl<T: Send + Sync> Sync for RwLock<T> {}
// SAFETY: it owns the value.
unsafe impl<T: Send> Send for RwLock<T> {}

impl<T> RwLock<T> {
    /// A free lock around `value`.
    pub const fn new(value: T) -> RwLock<T> {
        RwLock { state: AtomicU32::new(0), value: UnsafeCell::new(value) }
    }

    /// Waits until nobody changes the value.
    pub fn read(&self) -> ReadGuard<'_, T> {
        self.take(|state| state & WRITING == 0 && (state & WAITING == 0 || state & SHOWN != 0), 1);
        ReadGuard { lock: self, own: 1 }
    }

    /// Waits until nobody else has it.
    pub fn write(&self) -> WriteGuard<'_, T> {
        self.take(|state| state & !WAITING == 0, WRITING);
        WriteGuard { lock: self }
    }

    /// Adds `own` to the state as soon as that is `open`.
    fn take(&self, open: impl Fn(u32) -> bool, own: u32) {
        let mut looks = 0;
        loop {
            let state = self.state.load(Ordering::Relaxed);
            if open(state) {
                let took = self.state.compare_exchange_weak(state, state + own, Ordering::Acquire, Ordering::Relaxed);
                if took.is_ok() {
                    return;
                }
            } else if looks < SPINS {
                looks += 1;
                core::hint::spin_loop();
            } else if state & WAITING != 0
                || self.state.compare_exchange(state, state | WAITING, Ordering::Relaxed, Ordering::Relaxed).is_ok()
            {
                wait(&self.state, state | WAITING, None, Scope::Private);
            }
        }
    }

    /// Takes `own` from the state. Whoever is the last wakes all that sleep.
    fn let_go(&self, own: u32) {
        let mut state = self.state.load(Ordering::Relaxed);
        loop {
            let left = state - own;
            // With nobody left, those who wait begin anew.
            let left = if left == WAITING { 0 } else { left };
            match self.state.compare_exchange_weak(state, left, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => break,
                Err(other) => state = other,
            }
        }
        if state & WAITING != 0 {
            wake(&self.state, u32::MAX, Scope::Private);
        }
    }

    /// Leaves the lock to the holder of the one guard that is to be kept: all other readers have gone.
    ///
    /// # Safety
    /// For the only thread of a forked child, which has that guard.
    pub unsafe fn forget_others(&self, kept: &ReadGuard<'_, T>) {
        self.state.store(kept.own, Ordering::Release);
    }
}

/// Lets the value be read.
pub struct ReadGuard<'a, T> {
    lock: &'a RwLock<T>,
    /// What it has added to the state.
    own: u32,
}

/// Lets the value be changed.
pub struct WriteGuard<'a, T> {
    lock: &'a RwLock<T>,
}

impl<'a, T> WriteGuard<'a, T> {
    /// Lets readers in, also before writers that wait, until the guard is dropped.
    pub fn show(self) -> ReadGuard<'a, T> {
        let lock = self.lock;
        core::mem::forget(self);
        let own = SHOWN | 1;
        lock.state.fetch_sub(WRITING - own, Ordering::Release);
        wake(&lock.state, u32::MAX, Scope::Private);
        ReadGuard { lock, own }
    }
}

impl<T> Deref for ReadGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: nobody changes it while there are readers, of which we are one.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> Deref for WriteGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: nobody else has the lock.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for WriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: nobody else has the lock, and `&mut self` is the only way to the value through this guard.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for ReadGuard<'_, T> {
    fn drop(&mut self) {
        self.lock.let_go(self.own);
    }
}

impl<T> Drop for WriteGuard<'_, T> {
    fn drop(&mut self) {
        self.lock.let_go(WRITING);
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn readers_see_whole_values_and_writers_count_exactly() {
        let lock = RwLock::new((0u64, 0u64));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        let mut value = lock.write();
                        value.0 += 1;
                        value.1 += 1;
                    }
                });
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        let value = lock.read();
                        assert_eq!(value.0, value.1);
                    }
                });
            }
        });
        assert_eq!(*lock.read(), (80_000, 80_000));
        assert_eq!(lock.state.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn what_is_shown_is_read_while_a_writer_waits() {
        let lock = RwLock::new(1);
        let wrote = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let mut own = lock.write();
            *own = 2;
            scope.spawn(|| {
                *lock.write() = 3;
                wrote.store(true, Ordering::SeqCst);
            });
            while lock.state.load(Ordering::Relaxed) & WAITING == 0 {
                std::thread::yield_now();
            }
            let shown = own.show();
            // The writer may be about to sleep again.
            for _ in 0..100 {
                assert_eq!(*lock.read(), 2);
                std::thread::yield_now();
            }
            assert!(!wrote.load(Ordering::SeqCst));
            assert_eq!(*shown, 2);
        });
        assert_eq!(*lock.read(), 3);
    }

    #[test]
    fn while_a_writer_waits_no_more_readers_come() {
        let lock = RwLock::new(0);
        let came = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let first = lock.read();
            scope.spawn(|| *lock.write() += 1);
            while lock.state.load(Ordering::Relaxed) & WAITING == 0 {
                std::thread::yield_now();
            }
            scope.spawn(|| {
                drop(lock.read());
                came.store(true, Ordering::SeqCst);
            });
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert!(!came.load(Ordering::SeqCst));
            drop(first);
        });
        assert!(came.load(Ordering::SeqCst) && *lock.read() == 1);
    }

    #[test]
    fn of_a_shown_lock_one_guard_stays() {
        let lock = RwLock::new(5);
        let shown = lock.write().show();
        core::mem::forget(lock.read());
        // SAFETY: the guard that was forgotten is not used.
        unsafe { lock.forget_others(&shown) };
        drop(shown);
        assert_eq!(*lock.write(), 5);
    }
}
