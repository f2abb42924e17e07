//! Reads, writes and waiting: by io_uring, or by threads where that is not allowed. Both offer the same.

use crate::file::{Fd, Part};
use crate::ring::{Completion, Ring};
use crate::workers::Workers;
use crate::{Errno, Wait, process};

#[allow(clippy::large_enum_variant, reason = "there is one of it, and no heap to put a variant on")]
pub(crate) enum Io {
    Ring(Ring),
    Workers(Workers),
}

impl Io {
    /// Room for `limit` transfers and as many other operations.
    pub(crate) fn new(uring: bool, limit: u32) -> Result<Io, Errno> {
        let size = (limit * 2).next_power_of_two();
        Ok(if uring { Io::Ring(Ring::new(size, (size * 4).max(1024))?) } else { Io::Workers(Workers::new(size)?) })
    }

    pub(crate) fn descriptor(&self) -> Fd {
        match self {
            Io::Ring(ring) => ring.descriptor(),
            Io::Workers(workers) => workers.descriptor(),
        }
    }

    /// # Safety
    /// The memory may be overwritten until the completion has been seen.
    pub(crate) unsafe fn read(&mut self, fd: Fd, at: usize, bytes: u32, offset: u64, data: u64) -> Result<(), Errno> {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Io::Ring(ring) => ring.read(fd, at, bytes, offset, data),
                Io::Workers(workers) => workers.read(fd, at, bytes, offset, data),
            }
        }
    }

    /// # Safety
    /// The parts are readable and, like their list, do not change until the completion has been seen.
    pub(crate) unsafe fn write(&mut self, fd: Fd, parts: &[Part], offset: u64, data: u64) -> Result<(), Errno> {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Io::Ring(ring) => ring.write(fd, parts, offset, data),
                Io::Workers(workers) => workers.write(fd, parts, offset, data),
            }
        }
    }

    /// Sends what a message header at `header` describes.
    ///
    /// # Safety
    /// The header, its parts and their memory stay as they are until the completion has been seen.
    pub(crate) unsafe fn send(&mut self, fd: Fd, header: usize, data: u64) -> Result<(), Errno> {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Io::Ring(ring) => ring.message(fd, header, true, data),
                Io::Workers(workers) => workers.message(fd, header, true, data),
            }
        }
    }

    /// Whether [`Io::receive`] waits for the socket's low-water mark.
    pub(crate) fn heeds_marks(&self) -> bool {
        matches!(self, Io::Ring(ring) if ring.heeds_marks())
    }

    /// Receives into what a message header at `header` describes: all of it, or what is there when the socket's low-water
    /// mark is reached.
    ///
    /// # Safety
    /// The same, and the memory may be overwritten until then.
    pub(crate) unsafe fn receive(&mut self, fd: Fd, header: usize, data: u64) -> Result<(), Errno> {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Io::Ring(ring) => ring.message(fd, header, false, data),
                Io::Workers(workers) => workers.message(fd, header, false, data),
            }
        }
    }

    pub(crate) fn punch(&mut self, fd: Fd, offset: u64, bytes: u64, data: u64) -> Result<(), Errno> {
        match self {
            Io::Ring(ring) => ring.punch(fd, offset, bytes, data),
            Io::Workers(workers) => workers.punch(fd, offset, bytes, data),
        }
    }

    pub(crate) fn watch(&mut self, fd: Fd, data: u64) -> Result<(), Errno> {
        match self {
            Io::Ring(ring) => ring.watch(fd, data),
            Io::Workers(workers) => workers.watch(fd, data),
        }
    }

    /// Ends the threads, if there are any; others are made when they are needed.
    pub(crate) fn rest(&mut self) {
        match self {
            Io::Ring(_) => {}
            Io::Workers(workers) => workers.rest(),
        }
    }

    /// Ends a watch. False when nothing more will come of it.
    pub(crate) fn unwatch(&mut self, watch: u64, data: u64) -> bool {
        match self {
            Io::Ring(ring) => ring.unwatch(watch, data).is_ok(),
            Io::Workers(_) => false,
        }
    }

    /// Waits so many microseconds at most for something to happen, without going to sleep. Whether it has.
    pub(crate) fn spin(&self, us: u64) -> bool {
        let Io::Ring(ring) = self else { return false };
        let until = process::now_us() + us;
        while !ring.stirs() {
            if process::now_us() >= until {
                return false;
            }
            for _ in 0..16 {
                core::hint::spin_loop();
            }
        }
        true
    }

    pub(crate) fn enter(&mut self, wait: Wait) -> Result<(), Errno> {
        match self {
            Io::Ring(ring) => ring.enter(wait),
            Io::Workers(workers) => workers.enter(wait),
        }
    }

    pub(crate) fn take(&mut self) -> Option<Completion> {
        match self {
            Io::Ring(ring) => ring.take(),
            Io::Workers(workers) => workers.take(),
        }
    }
}
