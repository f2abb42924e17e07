//! Functions that hand over memory in ways of their own.

use crate::input::call;
use crate::list::wrapped;
use crate::loan::{Loan, keep, value_at};

/// Messages with a length behind each, as sendmmsg and recvmmsg take them.
const MESSAGE: usize = 64;
/// Most bytes that an argument of an unknown call is taken to name.
const GUESS: usize = 16 << 20;

/// Numbers of system calls that treat memory as such, which must not be brought in for them, or do not return.
#[cfg(target_arch = "x86_64")]
mod number {
    pub const READ: usize = 0;
    pub const WRITE: usize = 1;
    pub const PREAD: usize = 17;
    pub const PWRITE: usize = 18;
    /// readv, writev, preadv, pwritev, preadv2, pwritev2, vmsplice.
    pub const VECTORS: &[usize] = &[19, 20, 295, 296, 327, 328, 278];
    /// sendmsg, recvmsg.
    pub const MESSAGES: &[usize] = &[46, 47];
    /// mmap, mprotect, munmap, brk, mremap, msync, madvise, clone, fork, vfork, exit, mlock, munlock, exit_group, mlock2,
    /// clone3, process_madvise.
    pub const OTHERS: &[usize] = &[9, 10, 11, 12, 25, 26, 28, 56, 57, 58, 60, 149, 150, 231, 325, 435, 440];
}
#[cfg(target_arch = "aarch64")]
mod number {
    pub const READ: usize = 63;
    pub const WRITE: usize = 64;
    pub const PREAD: usize = 67;
    pub const PWRITE: usize = 68;
    /// As for the other machine.
    pub const VECTORS: &[usize] = &[65, 66, 69, 70, 286, 287, 75];
    /// As for the other machine.
    pub const MESSAGES: &[usize] = &[211, 212];
    /// As for the other machine.
    pub const OTHERS: &[usize] = &[222, 226, 215, 214, 216, 227, 233, 220, 93, 228, 229, 94, 284, 435, 440];
}

wrapped! {
    raw [sendmmsg](fd, messages, count, flags) { |next| {
        // SAFETY: the program's messages.
        let _loan = unsafe { all_messages(messages, count & 0xffff_ffff) };
        call!(next, fd, messages, count, flags)
    } };
    raw [recvmmsg](fd, messages, count, flags, timeout) { |next| {
        // SAFETY: the program's messages.
        let _loan = unsafe { all_messages(messages, count & 0xffff_ffff) }.page(timeout);
        call!(next, fd, messages, count, flags, timeout)
    } };
    raw [sigaltstack](new, old) { |next| {
        if new != 0 {
            // SAFETY: the program's stack_t: address, flags, bytes.
            let [address, _, bytes] = unsafe { value_at::<[usize; 3]>(new) };
            keep(address, bytes);
        }
        let _loan = Loan::new().page(new).page(old);
        call!(next, new, old)
    } };
    raw [makecontext](context, start, count, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p) { |next| {
        // Signals may be delivered on that stack.
        // SAFETY: the program's ucontext_t: flags, link, and a stack_t.
        let [_, _, address, _, bytes] = unsafe { value_at::<[usize; 5]>(context) };
        keep(address, bytes);
        call!(next, context, start, count, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p)
    } };
    raw [io_submit](context, count, blocks) { |next| {
        let mut loan = Loan::new().bytes(blocks, count.saturating_mul(8));
        for index in 0..count.min(1 << 16) {
            // SAFETY: the program's list of blocks: the buffer at 24, its bytes at 32; used until the block is done.
            unsafe {
                let block = value_at::<usize>(blocks + index * 8);
                let [address, bytes] = value_at::<[usize; 2]>(block + 24);
                loan = loan.page(block);
                keep(address, bytes);
            }
        }
        call!(next, context, count, blocks)
    } };
    raw [aio_read aio_read64 aio_write aio_write64](block) { |next| {
        // SAFETY: the program's block.
        unsafe { keep_control(block) };
        call!(next, block)
    } };
    raw [lio_listio lio_listio64](mode, list, count, event) { |next| {
        // SAFETY: the program's list.
        unsafe { keep_controls(list, count & 0xffff_ffff) };
        call!(next, mode, list, count, event)
    } };
    raw [syscall](what, a, b, c, d, e, f) { |next| match what {
        // SAFETY: our own, for the same call.
        number::READ => unsafe { crate::input::read(a, b, c) },
        // SAFETY: as above.
        number::WRITE => unsafe { crate::input::write(a, b, c) },
        // SAFETY: as above.
        number::PREAD => unsafe { crate::input::pread64(a, b, c, d) },
        // SAFETY: as above.
        number::PWRITE => unsafe { crate::input::pwrite64(a, b, c, d) },
        other if number::OTHERS.contains(&other) => call!(next, what, a, b, c, d, e, f),
        _ => {
            // SAFETY: the program passes what the manual asks for.
            let mut loan = unsafe {
                match what {
                    other if number::VECTORS.contains(&other) => Loan::new().parts(b, c),
                    other if number::MESSAGES.contains(&other) => Loan::new().message(b),
                    _ => Loan::new(),
                }
            };
            // An address is often followed by a length.
            for [address, bytes] in [[a, b], [b, c], [c, d], [d, e], [e, f], [f, 0]] {
                loan = if bytes > 4096 && bytes <= GUESS { loan.bytes(address, bytes) } else { loan.page(address) };
            }
            call!(next, what, a, b, c, d, e, f)
        }
    } };
}

/// # Safety
/// So many messages.
unsafe fn all_messages(messages: usize, count: usize) -> Loan {
    let count = count.min(1024);
    let mut loan = Loan::new().bytes(messages, count * MESSAGE);
    for index in 0..count {
        // SAFETY: the caller's promise.
        loan = unsafe { loan.message(messages + index * MESSAGE) };
    }
    loan
}

/// # Safety
/// The address of a control block of asynchronous I/O.
unsafe fn keep_control(block: usize) {
    // SAFETY: the caller's promise: the buffer at 16, its bytes at 24.
    let [address, bytes] = unsafe { value_at::<[usize; 2]>(block + 16) };
    keep(block, 168);
    keep(address, bytes);
}

/// # Safety
/// So many addresses of blocks, or null.
unsafe fn keep_controls(list: usize, count: usize) {
    for index in 0..count {
        // SAFETY: the caller's promise.
        unsafe {
            let block = value_at::<usize>(list + index * 8);
            if block != 0 {
                keep_control(block);
            }
        }
    }
}
