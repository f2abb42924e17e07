//! io_uring, as much of it as a pager needs: reads, writes, punching, polling, and one call that submits and waits.
//! A ring belongs to the thread that makes it.

use crate::file::{self, Fd, Part};
use crate::futex::TimeSpec;
use crate::memory::{self, Advice, Protection};
use crate::syscall::{call2, call6, number};
use crate::{Errno, Wait, tcp};
use core::sync::atomic::{AtomicU32, Ordering};
use linux_raw_sys::io_uring as raw;
use ream_page::PAGE_BYTES;

/// Submission queue entry, the fields that are used here.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Entry {
    operation: u8,
    flags: u8,
    priority: u16,
    fd: i32,
    offset: u64,
    address: u64,
    len: u32,
    operation_flags: u32,
    user_data: u64,
    rest: [u64; 3],
}

const _: () = {
    assert!(size_of::<Entry>() == size_of::<raw::io_uring_sqe>() && size_of::<Entry>() == 64);
    assert!(size_of::<Completion>() == size_of::<raw::io_uring_cqe>());
};

/// Completion queue entry.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// What the operation was started with.
    pub user_data: u64,
    /// Its result, or a negative errno.
    pub result: i32,
    /// The kernel's flags.
    flags: u32,
}

impl Completion {
    /// One that does not come from a ring.
    pub(crate) fn with(user_data: u64, result: i32, more: bool) -> Completion {
        Completion { user_data, result, flags: if more { raw::IORING_CQE_F_MORE } else { 0 } }
    }
    /// Whether a poll that reports more than once will go on.
    pub fn more(&self) -> bool {
        self.flags & raw::IORING_CQE_F_MORE != 0
    }
}

/// A mapping of a ring, unmapped when dropped.
struct Mapping {
    start: *mut u8,
    bytes: usize,
}

impl Mapping {
    fn new(fd: Fd, bytes: usize, offset: u32) -> Result<Mapping, Errno> {
        const SHARED_POPULATED: usize = 0x8001;
        let bytes = bytes.next_multiple_of(PAGE_BYTES);
        // SAFETY: without MAP_FIXED the kernel picks a range that nobody uses.
        let start =
            unsafe { memory::mmap(0, bytes, Protection::ReadWrite as usize, SHARED_POPULATED, fd.0, offset as u64) }?;
        // A forked child must not touch its parent's ring.
        // SAFETY: nothing is lost in this process.
        unsafe { memory::advise(start.expose_provenance(), bytes, Advice::DontFork) }?;
        Ok(Mapping { start, bytes })
    }
    fn word(&self, offset: u32) -> *const AtomicU32 {
        self.start.wrapping_add(offset as usize).cast()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the ring that used it is going away.
        let _ = unsafe { memory::unmap(self.start, self.bytes) };
    }
}

/// A ring.
pub struct Ring {
    fd: Fd,
    queues: Mapping,
    entries: Mapping,
    size: u32,
    mask: u32,
    completion_mask: u32,
    /// Our submission tail; the kernel learns it at the next entry.
    tail: u32,
    offsets: raw::io_sqring_offsets,
    completion_offsets: raw::io_cqring_offsets,
    /// Whether completions are posted only when we ask, with a flag that says that there is something to ask for.
    deferred: bool,
}

impl Ring {
    /// Makes a ring with room for `size` submissions and `completions` completions. Must be called, like everything
    /// else, by the one thread that uses it. EPERM, ENOSYS where io_uring is not allowed.
    pub fn new(size: u32, completions: u32) -> Result<Ring, Errno> {
        let base = raw::IORING_SETUP_CQSIZE | raw::IORING_SETUP_CLAMP | raw::IORING_SETUP_SUBMIT_ALL;
        let best = raw::IORING_SETUP_SINGLE_ISSUER | raw::IORING_SETUP_DEFER_TASKRUN | raw::IORING_SETUP_TASKRUN_FLAG;
        let mut last = Errno::NOSYS;
        for flags in [base | best, base | raw::IORING_SETUP_COOP_TASKRUN, raw::IORING_SETUP_CQSIZE] {
            match Ring::with_flags(size, completions, flags) {
                Ok(ring) => return Ok(ring),
                Err(Errno::INVAL) => last = Errno::INVAL,
                Err(error) => return Err(error),
            }
        }
        Err(last)
    }

    fn with_flags(size: u32, completions: u32, flags: u32) -> Result<Ring, Errno> {
        // SAFETY: a structure of integers.
        let mut parameters: raw::io_uring_params = unsafe { core::mem::zeroed() };
        parameters.flags = flags;
        parameters.cq_entries = completions;
        let place = (&raw mut parameters).expose_provenance();
        // SAFETY: the kernel fills in the structure.
        let fd = unsafe { call2(number::__NR_io_uring_setup, size as usize, place) }?;
        let fd = Fd(fd as i32);
        Ring::with_descriptor(fd, &parameters).inspect_err(|_| file::close(fd))
    }

    fn with_descriptor(fd: Fd, parameters: &raw::io_uring_params) -> Result<Ring, Errno> {
        // One mapping for both queues (Linux 5.4), timeouts in the call (5.11), arguments copied at submission (5.5),
        // completions never dropped (5.5).
        let needed = raw::IORING_FEAT_SINGLE_MMAP
            | raw::IORING_FEAT_EXT_ARG
            | raw::IORING_FEAT_SUBMIT_STABLE
            | raw::IORING_FEAT_NODROP;
        if parameters.features & needed != needed {
            return Err(Errno::NOSYS);
        }
        let (submissions, completions) = (parameters.sq_off, parameters.cq_off);
        let size = parameters.sq_entries;
        let bytes = (submissions.array as usize + size as usize * 4)
            .max(completions.cqes as usize + parameters.cq_entries as usize * size_of::<Completion>());
        let queues = Mapping::new(fd, bytes, raw::IORING_OFF_SQ_RING)?;
        let entries = Mapping::new(fd, size as usize * size_of::<Entry>(), raw::IORING_OFF_SQES)?;
        let ring = Ring {
            fd,
            queues,
            entries,
            size,
            mask: size.wrapping_sub(1),
            completion_mask: parameters.cq_entries.wrapping_sub(1),
            tail: 0,
            offsets: submissions,
            completion_offsets: completions,
            deferred: parameters.flags & raw::IORING_SETUP_DEFER_TASKRUN != 0,
        };
        for index in 0..size {
            // Entries are used in order, so the indirection is set once.
            ring.word(submissions.array + index * 4).store(index, Ordering::Relaxed);
        }
        Ok(ring)
    }

    pub(crate) fn descriptor(&self) -> Fd {
        self.fd
    }

    fn word(&self, offset: u32) -> &AtomicU32 {
        // SAFETY: the kernel's offsets lie in the mapping, which lives as long as self; they are aligned words that
        // both sides access atomically.
        unsafe { &*self.queues.word(offset) }
    }

    /// Entries not yet taken by the kernel.
    fn waiting(&self) -> u32 {
        self.tail.wrapping_sub(self.word(self.offsets.head).load(Ordering::Acquire))
    }

    fn push(&mut self, entry: Entry) -> Result<(), Errno> {
        if self.waiting() == self.size {
            self.enter(Wait::No)?;
            if self.waiting() == self.size {
                return Err(Errno::AGAIN);
            }
        }
        let index = (self.tail & self.mask) as usize;
        // SAFETY: the index is below the number of entries that were mapped, and the kernel does not read this entry
        // before it learns the new tail.
        unsafe { self.entries.start.cast::<Entry>().add(index).write(entry) };
        self.tail = self.tail.wrapping_add(1);
        Ok(())
    }

    /// Starts a read into memory.
    ///
    /// # Safety
    /// The memory may be overwritten until the completion has been seen.
    pub unsafe fn read(&mut self, fd: Fd, address: usize, bytes: u32, offset: u64, data: u64) -> Result<(), Errno> {
        let operation = raw::io_uring_op::IORING_OP_READ as u8;
        let address = address as u64;
        let entry = Entry { operation, fd: fd.0, offset, address, len: bytes, user_data: data, ..Entry::default() };
        self.push(entry)
    }

    /// Starts a write of one or more parts of memory.
    ///
    /// # Safety
    /// The parts are readable and, like their list, do not change until the completion has been seen.
    pub unsafe fn write(&mut self, fd: Fd, parts: &[Part], offset: u64, data: u64) -> Result<(), Errno> {
        let base = Entry { fd: fd.0, offset, user_data: data, ..Entry::default() };
        self.push(match parts {
            [part] => Entry {
                operation: raw::io_uring_op::IORING_OP_WRITE as u8,
                address: part.address as u64,
                len: part.bytes as u32,
                ..base
            },
            _ => Entry {
                operation: raw::io_uring_op::IORING_OP_WRITEV as u8,
                address: parts.as_ptr().expose_provenance() as u64,
                len: parts.len() as u32,
                ..base
            },
        })
    }

    /// Whether [`Ring::message`] receives when the socket's low-water mark is reached, and what is there then. Else it
    /// receives all of what is described, as it comes.
    pub(crate) fn heeds_marks(&self) -> bool {
        // Such receiving came before such rings.
        self.deferred
    }

    /// Starts sending, or receiving, what a message header describes.
    ///
    /// # Safety
    /// The header, its parts and their memory are good for that until the completion has been seen.
    pub unsafe fn message(&mut self, fd: Fd, header: usize, sends: bool, data: u64) -> Result<(), Errno> {
        let operations = [raw::io_uring_op::IORING_OP_RECVMSG as u8, raw::io_uring_op::IORING_OP_SENDMSG as u8];
        let operation = operations[sends as usize];
        // Receiving all of it would take what is there, and then wait for the mark to be reached by the rest.
        let marked = !sends && self.heeds_marks();
        let all = if marked { 0 } else { tcp::MSG_WAITALL };
        let operation_flags = (tcp::MSG_NOSIGNAL | all) as u32;
        let priority = if marked { raw::IORING_RECVSEND_POLL_FIRST as u16 } else { 0 };
        let address = header as u64;
        let base = Entry { operation, priority, fd: fd.0, ..Entry::default() };
        self.push(Entry { address, len: 1, operation_flags, user_data: data, ..base })
    }

    /// Starts giving the space of a range of the file back.
    pub fn punch(&mut self, fd: Fd, offset: u64, bytes: u64, data: u64) -> Result<(), Errno> {
        // For this operation the length travels in the address and the mode in the length.
        let operation = raw::io_uring_op::IORING_OP_FALLOCATE as u8;
        let len = file::PUNCH as u32;
        self.push(Entry { operation, fd: fd.0, offset, address: bytes, len, user_data: data, ..Entry::default() })
    }

    /// Starts watching a descriptor for readability, again and again while completions say [`Completion::more`].
    pub fn watch(&mut self, fd: Fd, data: u64) -> Result<(), Errno> {
        const POLLIN: u32 = 1;
        let operation = raw::io_uring_op::IORING_OP_POLL_ADD as u8;
        let len = raw::IORING_POLL_ADD_MULTI;
        let operation_flags = if cfg!(target_endian = "big") { POLLIN.rotate_left(16) } else { POLLIN };
        self.push(Entry { operation, fd: fd.0, len, operation_flags, user_data: data, ..Entry::default() })
    }

    /// Ends a watch; both it and this operation then complete, this one with `data`.
    pub fn unwatch(&mut self, watch: u64, data: u64) -> Result<(), Errno> {
        let operation = raw::io_uring_op::IORING_OP_POLL_REMOVE as u8;
        self.push(Entry { operation, fd: -1, address: watch, user_data: data, ..Entry::default() })
    }

    /// Submits what was started, and waits as told for at least one completion unless there is one already. One
    /// system call at most; none when there is nothing to do.
    pub fn enter(&mut self, wait: Wait) -> Result<(), Errno> {
        let submit = self.waiting();
        self.word(self.offsets.tail).store(self.tail, Ordering::Release);
        let ready = self.has_completions();
        if submit == 0 && (ready || wait == Wait::No) && !self.wants_entry() {
            return Ok(());
        }
        let limit = match wait {
            Wait::Micros(us) => TimeSpec::micros(us),
            _ => TimeSpec { seconds: 0, nanoseconds: 0 },
        };
        // struct io_uring_getevents_arg: signal mask, its size and padding, time.
        let pointer = if matches!(wait, Wait::Micros(_)) { (&raw const limit).expose_provenance() as u64 } else { 0 };
        let argument = [0u64, 0, pointer];
        let least = (wait != Wait::No && !ready) as usize;
        let flags = raw::IORING_ENTER_GETEVENTS | raw::IORING_ENTER_EXT_ARG;
        let place = argument.as_ptr().expose_provenance();
        // SAFETY: whoever started the operations promised that their memory is good; the kernel reads the argument.
        let result = unsafe {
            call6(
                number::__NR_io_uring_enter,
                self.fd.arg(),
                submit as usize,
                least,
                flags as usize,
                place,
                size_of_val(&argument),
            )
        };
        match result {
            // Time up, a signal, or completions to be fetched first: the caller looks and comes back.
            Ok(_) | Err(Errno::TIME | Errno::INTR | Errno::BUSY | Errno::AGAIN) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Whether the kernel has work that only an entry gets done.
    fn wants_entry(&self) -> bool {
        let flags = self.word(self.offsets.flags).load(Ordering::Relaxed);
        !self.deferred || flags & (raw::IORING_SQ_TASKRUN | raw::IORING_SQ_CQ_OVERFLOW) != 0
    }

    /// Whether an entry would find something that has happened. Always false where that cannot be seen from outside.
    pub(crate) fn stirs(&self) -> bool {
        self.has_completions() || self.deferred && self.wants_entry()
    }

    /// Whether a completion can be taken.
    pub fn has_completions(&self) -> bool {
        let tail = self.word(self.completion_offsets.tail).load(Ordering::Acquire);
        self.word(self.completion_offsets.head).load(Ordering::Relaxed) != tail
    }

    /// Takes the oldest completion.
    pub fn take(&mut self) -> Option<Completion> {
        if !self.has_completions() {
            return None;
        }
        let head = self.word(self.completion_offsets.head).load(Ordering::Relaxed);
        let index = (head & self.completion_mask) as usize;
        let offset = self.completion_offsets.cqes as usize + index * size_of::<Completion>();
        // SAFETY: the masked index lies in the mapped completion queue; the kernel wrote the entry before the tail.
        let completion = unsafe { self.queues.start.add(offset).cast::<Completion>().read() };
        self.word(self.completion_offsets.head).store(head.wrapping_add(1), Ordering::Release);
        Some(completion)
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        file::close(self.fd);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process;

    fn ring() -> Option<Ring> {
        // Containers may forbid io_uring; the thread pool is tested everywhere.
        Ring::new(8, 64).ok()
    }

    #[test]
    fn waits_end_by_time_and_by_news() {
        let Some(mut ring) = ring() else { return };
        let before = process::now_us();
        ring.enter(Wait::Micros(3000)).unwrap();
        assert!(process::now_us() - before >= 2500);
        assert_eq!(ring.take(), None);
        let counter = file::event_counter().unwrap();
        ring.watch(counter, 77).unwrap();
        for _ in 0..3 {
            file::write(counter, &1u64.to_ne_bytes()).unwrap();
            ring.enter(Wait::Forever).unwrap();
            let completion = ring.take().unwrap();
            assert_eq!(completion.user_data, 77);
            assert!(completion.more());
            let mut count = [0u8; 8];
            file::read(counter, &mut count).unwrap();
        }
        ring.enter(Wait::No).unwrap();
        assert_eq!(ring.take(), None);
        file::close(counter);
    }

    #[test]
    fn more_operations_than_room_still_all_complete() {
        let Some(mut ring) = ring() else { return };
        let fd = file::memory_file(c"ring").unwrap();
        let bytes = [7u8; 16];
        let parts = [Part { address: bytes.as_ptr().expose_provenance(), bytes: 16 }; 2];
        for index in 0..40u64 {
            let list = if index % 2 == 0 { &parts[..1] } else { &parts[..] };
            // SAFETY: both arrays outlive the completions awaited below.
            unsafe { ring.write(fd, list, index * 32, index) }.unwrap();
        }
        let mut seen = 0u64;
        while seen != (1 << 40) - 1 {
            ring.enter(Wait::Forever).unwrap();
            while let Some(completion) = ring.take() {
                assert_eq!(completion.result, if completion.user_data % 2 == 0 { 16 } else { 32 });
                seen |= 1 << completion.user_data;
            }
        }
        file::close(fd);
    }
}
