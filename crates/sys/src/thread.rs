//! Threads as the kernel makes them: raw clone, a stack of their own with a guard page, all signals blocked from the
//! first instruction on. libc does not know them, so a single-threaded program stays one; they must not use libc.

use crate::Errno;
use crate::deserted;
use crate::futex::{self, Scope};
use crate::memory::{self, Advice, Protection};
use crate::process::{self, SignalSet};
use crate::syscall::{call1, number};
use core::arch::asm;
use core::sync::atomic::{AtomicU32, Ordering};
use ream_page::PAGE_BYTES;

const CLONE_VM: usize = 0x100;
const CLONE_FS: usize = 0x200;
const CLONE_FILES: usize = 0x400;
const CLONE_SIGHAND: usize = 0x800;
const CLONE_THREAD: usize = 0x1_0000;
const CLONE_SYSVSEM: usize = 0x4_0000;
const CLONE_PARENT_SETTID: usize = 0x10_0000;
const CLONE_CHILD_CLEARTID: usize = 0x20_0000;

/// Whose descriptors a new thread uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Files {
    /// The same table as its maker.
    Shared,
    /// A copy of the maker's table as it is at that moment.
    Copied,
}

/// What the new thread finds at the top of its stack.
#[repr(C, align(64))]
struct Start {
    entry: fn(*mut ()) -> !,
    argument: *mut (),
    /// Thread id while it lives; the kernel sets it to 0 and wakes waiters when it ends.
    id: AtomicU32,
}

/// A thread made by [`spawn`]. Dropping it leaves the thread running and its stack mapped.
pub struct Thread {
    stack: *mut u8,
    bytes: usize,
    start: *const Start,
}

// SAFETY: the pointers are to a mapping that lives until `join` or `forget_after_fork`, which consume the value.
unsafe impl Send for Thread {}

impl Thread {
    /// Thread id, 0 when it has ended.
    pub fn id(&self) -> u32 {
        // SAFETY: the stack is mapped as long as self lives, and the word is atomic.
        unsafe { (*self.start).id.load(Ordering::Acquire) }
    }
    /// Waits until the thread has ended, and frees its stack.
    pub fn join(self) {
        loop {
            let id = self.id();
            if id == 0 {
                break;
            }
            // SAFETY: as in `id`. The kernel wakes this word as a shared one.
            futex::wait(unsafe { &(*self.start).id }, id, None, Scope::Shared);
        }
        // SAFETY: the thread runs no more, so nobody uses the stack.
        let _ = unsafe { memory::unmap(self.stack, self.bytes) };
    }
    /// Frees the stack of a thread that exists in the parent only.
    ///
    /// # Safety
    /// Only in a forked child, for a thread of its parent.
    pub unsafe fn forget_after_fork(self) {
        // SAFETY: fork copies only the calling thread, so nobody runs on this copy of the stack.
        let _ = unsafe { memory::unmap(self.stack, self.bytes) };
    }
}

extern "C" fn begin(start: *const Start) -> ! {
    // SAFETY: `spawn` wrote it before the thread existed, at the top of the stack we run on.
    let (entry, argument) = unsafe { ((*start).entry, (*start).argument) };
    deserted::begins();
    entry(argument)
}

/// Starts a thread that runs `entry(argument)`, which ends by [`exit`].
///
/// # Safety
/// `entry` must not use thread-local data or libc (the thread has its maker's thread pointer), must not unwind, and
/// must be content with `stack_bytes` of stack. `argument` must be good for it.
pub unsafe fn spawn(
    entry: fn(*mut ()) -> !,
    argument: *mut (),
    stack_bytes: usize,
    files: Files,
) -> Result<Thread, Errno> {
    let bytes = stack_bytes.next_multiple_of(PAGE_BYTES) + 2 * PAGE_BYTES;
    let stack = memory::map(bytes, PAGE_BYTES, Protection::ReadWrite)?.as_ptr();
    // SAFETY: the mapping made above: first page the guard, `Start` at the upper end, 64-byte aligned.
    let start = unsafe {
        let _ = memory::protect(stack, PAGE_BYTES, Protection::None);
        // Keys, and what shows who we are, have been on it.
        let _ = memory::advise(stack.expose_provenance(), bytes, Advice::DontDump);
        let start: *mut Start = stack.add(bytes - size_of::<Start>()).cast();
        start.write(Start { entry, argument, id: AtomicU32::new(0) });
        start
    };
    let mut flags = CLONE_VM | CLONE_FS | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;
    flags |= CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID;
    if files == Files::Shared {
        flags |= CLONE_FILES;
    }
    // Blocked here, so that not even the first instruction over there can meet a signal.
    let before = process::set_signal_mask(SignalSet::ALL);
    // SAFETY: the child starts on its own stack, below `Start`, and never returns from `begin`; the word that the
    // kernel writes lies in the mapping, which outlives the thread.
    let result = unsafe { clone(flags, start, (&raw mut (*start).id).cast()) };
    process::set_signal_mask(before);
    match result {
        Ok(_) => Ok(Thread { stack, bytes, start }),
        Err(error) => {
            // SAFETY: no thread came to be.
            let _ = unsafe { memory::unmap(stack, bytes) };
            Err(error)
        }
    }
}

/// # Safety
/// `start` is the top of a fresh stack, and holds a valid `Start`.
#[cfg(target_arch = "x86_64")]
unsafe fn clone(flags: usize, start: *mut Start, id: *mut u32) -> Result<usize, Errno> {
    let result: isize;
    // SAFETY: in the parent an ordinary system call; the child, which has all registers but rax, rcx and r11, runs
    // `begin` on the new stack and never comes back here.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, rsp",
            "call {begin}",
            "ud2",
            "2:",
            begin = sym begin,
            inlateout("rax") number::__NR_clone as isize => result,
            in("rdi") flags, in("rsi") start, in("rdx") id, in("r10") id, in("r8") 0,
            lateout("rcx") _, lateout("r11") _,
        );
    }
    if result < 0 { Err(Errno(-result as u16)) } else { Ok(result as usize) }
}

/// # Safety
/// `start` is the top of a fresh stack, and holds a valid `Start`.
#[cfg(target_arch = "aarch64")]
unsafe fn clone(flags: usize, start: *mut Start, id: *mut u32) -> Result<usize, Errno> {
    let result: isize;
    // SAFETY: in the parent an ordinary system call; the child, which has all registers but x0, runs `begin` on the
    // new stack and never comes back here.
    unsafe {
        asm!(
            "svc 0",
            "cbnz x0, 2f",
            "mov x29, xzr",
            "mov x30, xzr",
            "mov x0, sp",
            "bl {begin}",
            "brk 1",
            "2:",
            begin = sym begin,
            in("x8") number::__NR_clone as usize,
            inlateout("x0") flags as isize => result,
            in("x1") start, in("x2") id, in("x3") 0usize, in("x4") id,
            lateout("x30") _,
        );
    }
    if result < 0 { Err(Errno(-result as u16)) } else { Ok(result as usize) }
}

/// Ends the calling thread, and nothing else. Only for threads made by [`spawn`].
pub fn exit() -> ! {
    deserted::ends();
    loop {
        // SAFETY: the thread has no destructors to run and no locks of libc.
        let _ = unsafe { call1(number::__NR_exit, 0) };
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    static SEEN: AtomicU32 = AtomicU32::new(0);

    fn note(argument: *mut ()) -> ! {
        let all = process::signal_mask();
        let mine = if all == SignalSet::ALL { process::thread_id() } else { 0 };
        SEEN.store(mine, Ordering::Release);
        // SAFETY: the test waits until we have ended.
        unsafe { *argument.cast::<u32>() = 42 };
        exit()
    }

    #[test]
    fn a_thread_runs_blocked_and_ends() {
        for files in [Files::Shared, Files::Copied] {
            let mut told = 0u32;
            let before = process::signal_mask();
            // SAFETY: `note` uses no thread-local data; `told` outlives the join.
            let thread = unsafe { spawn(note, (&raw mut told).cast(), 64 << 10, files) }.unwrap();
            thread.join();
            assert_eq!(told, 42);
            let id = SEEN.swap(0, Ordering::Acquire);
            assert!(id != 0 && id != process::thread_id());
            assert_eq!(process::signal_mask(), before);
        }
    }

    fn close_all(_: *mut ()) -> ! {
        let _ = crate::file::close_all_but(&mut []);
        exit()
    }

    #[test]
    fn a_copied_table_is_its_own() {
        let fd = crate::file::memory_file(c"kept").unwrap();
        // SAFETY: no thread-local data, no argument.
        unsafe { spawn(close_all, core::ptr::null_mut(), 64 << 10, Files::Copied) }.unwrap().join();
        crate::file::write(fd, b"still open").unwrap();
        crate::file::close(fd);
    }
}
