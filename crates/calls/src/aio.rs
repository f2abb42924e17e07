//! Asynchronous I/O: libc's, which threads of its own do, and libaio's, which the kernel does. Buffers are kept for good, as
//! they are used until an operation is done.

use crate::input::call;
use crate::list::{count, wrapped};
use crate::loan::{Loan, keep, value_at};
use crate::next::{SYSCALL, errno};

/// Numbers of libaio's system calls.
#[cfg(target_arch = "x86_64")]
mod number {
    pub const SETUP: usize = 206;
    pub const GET_EVENTS: usize = 208;
    pub const SUBMIT: usize = 209;
    pub const CANCEL: usize = 210;
    pub const GET_EVENTS_MASKED: usize = 333;
}
#[cfg(target_arch = "aarch64")]
mod number {
    pub const SETUP: usize = 0;
    pub const GET_EVENTS: usize = 4;
    pub const SUBMIT: usize = 2;
    pub const CANCEL: usize = 3;
    pub const GET_EVENTS_MASKED: usize = 292;
}

/// A function of libaio's, or, where a library has brought libaio for itself, so that we do not see it, the system call: minus
/// the error's number is what libaio answers.
macro_rules! libaio {
    ($next:expr, $number:expr $(, $argument:expr)*) => {
        if $next.is_missing() { answer(call!(SYSCALL, $number $(, $argument)*)) } else { call!($next $(, $argument)*) }
    };
}

fn answer(result: isize) -> isize {
    if result == -1 { -(errno() as isize) } else { result }
}

/// Bytes of so many events.
pub fn events(count: usize) -> usize {
    const BYTES: usize = 32;
    if count > isize::MAX as usize { 0 } else { count.saturating_mul(BYTES) }
}

wrapped! {
    raw [aio_read aio_read64 aio_write aio_write64](block) { |next| {
        // SAFETY: the program's block.
        unsafe { keep_control(block) };
        call!(next, block)
    } };
    raw [lio_listio lio_listio64](mode, list, number, event) { |next| {
        // SAFETY: the program's list.
        unsafe { keep_controls(list, count(number)) };
        call!(next, mode, list, number, event)
    } };
    plain [aio_suspend aio_suspend64](a, b, c) [page(c)];
    raw [io_setup](number, context) { |next| {
        let _loan = Loan::new().page(context);
        libaio!(next, number::SETUP, number, context)
    } };
    raw [io_submit](context, count, blocks) { |next| {
        // SAFETY: the program's blocks.
        let _loan = unsafe { submitted(count, blocks) };
        libaio!(next, number::SUBMIT, context, count, blocks)
    } };
    raw [io_cancel](context, block, event) { |next| {
        let _loan = Loan::new().page(block).page(event);
        libaio!(next, number::CANCEL, context, block, event)
    } };
    raw [io_getevents](context, least, most, list, limit) { |next| {
        let _loan = Loan::new().bytes(list, events(most)).page(limit);
        libaio!(next, number::GET_EVENTS, context, least, most, list, limit)
    } };
    raw [io_pgetevents](context, least, most, list, limit, mask) { |next| {
        // As the kernel takes a mask.
        let pair = [mask, 8];
        let pair = pair.as_ptr().expose_provenance();
        let _loan = Loan::new().bytes(list, events(most)).page(limit).page(mask).bytes(pair, 16);
        if next.is_missing() {
            answer(call!(SYSCALL, number::GET_EVENTS_MASKED, context, least, most, list, limit, pair))
        } else {
            call!(next, context, least, most, list, limit, mask)
        }
    } };
}

/// Lends blocks that are submitted, and keeps what they name.
///
/// # Safety
/// So many addresses of blocks, as io_submit takes them.
pub unsafe fn submitted(count: usize, blocks: usize) -> Loan {
    const BYTES: usize = 64;
    const OPERATION: usize = 16;
    const BUFFER: usize = 24;
    /// IOCB_CMD_PREADV and IOCB_CMD_PWRITEV.
    const OF_VECTORS: [u16; 2] = [7, 8];
    if count > isize::MAX as usize {
        return Loan::new();
    }
    let count = count.min(1 << 16);
    let mut loan = Loan::new().bytes(blocks, count * 8);
    for index in 0..count {
        // SAFETY: the caller's promise: a buffer and its bytes, or vectors and their number.
        unsafe {
            let block = value_at::<usize>(blocks + index * 8);
            let [address, bytes] = value_at::<[usize; 2]>(block + BUFFER);
            loan = loan.bytes(block, BYTES);
            if OF_VECTORS.contains(&value_at(block + OPERATION)) {
                let number = bytes.min(crate::loan::IOV_MAX);
                loan = loan.bytes(address, number * 16);
                for vector in 0..number {
                    let [address, bytes] = value_at::<[usize; 2]>(address + vector * 16);
                    keep(address, bytes);
                }
            } else {
                keep(address, bytes);
            }
        }
    }
    loan
}

/// # Safety
/// The address of a control block of libc's.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loan::lent_so_far;

    #[test]
    fn what_blocks_name_is_kept() {
        let vectors = [[0x71000usize, 10], [0x72000, 20]];
        let list = vectors.as_ptr().expose_provenance();
        let block = |operation: usize, address: usize, bytes: usize| [0, 0, operation, address, bytes, 0, 0, 0];
        let blocks = [block(1, 0x73000, 30), block(8 | 0xf_0000, list, 2)];
        let places = blocks.each_ref().map(|block| block.as_ptr().expose_provenance());
        // SAFETY: blocks as libaio has them.
        drop(unsafe { submitted(2, places.as_ptr().expose_provenance()) });
        let lent = lent_so_far();
        for wanted in [(0x71000, 10), (0x72000, 20), (0x73000, 30), (places[0], 64), (list, 32)] {
            assert!(lent.contains(&wanted), "{wanted:x?} of {lent:x?}");
        }
        assert_eq!((events(3), events(usize::MAX)), (96, 0));
    }

    #[test]
    fn the_system_calls_answer_where_libaio_is_not_seen() {
        let mut context = 0usize;
        let place = (&raw mut context).expose_provenance();
        // SAFETY: a place for a context, and no blocks.
        unsafe {
            if io_setup(4, place) == -38 {
                // This kernel has none.
                return;
            }
            assert_ne!(context, 0);
            assert_eq!(io_submit(context, 0, 0), 0);
            let none = [0u64; 2];
            assert_eq!(io_getevents(context, 0, 4, 0x1000, none.as_ptr().expose_provenance()), 0);
            const BAD: isize = -22;
            assert_eq!(io_submit(context + 64, 0, 0), BAD);
        }
    }
}
