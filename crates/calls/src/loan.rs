//! What libream.so offers: memory that stays resident during a call, or for good.

#[cfg(not(test))]
unsafe extern "C" {
    safe fn ream_lend(address: usize, bytes: usize, chain: u32) -> u32;
    safe fn ream_take_back(chain: u32);
    safe fn ream_keep(address: usize, bytes: usize);
    safe fn ream_status(status: usize) -> i32;
}

/// What tests have in place of libream.so: a count of what is lent and kept.
#[cfg(test)]
mod stand_in {
    use std::sync::Mutex;
    pub static LENT: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());
    pub fn ream_lend(address: usize, bytes: usize, chain: u32) -> u32 {
        LENT.lock().unwrap().push((address, bytes));
        chain + 1
    }
    pub fn ream_take_back(chain: u32) {
        assert!(chain > 0);
    }
    pub fn ream_keep(address: usize, bytes: usize) {
        LENT.lock().unwrap().push((address, bytes));
    }
    pub fn lent_so_far() -> Vec<(usize, usize)> {
        LENT.lock().unwrap().clone()
    }
    pub const BUDGET: usize = 256 << 20;
    pub fn ream_status(status: usize) -> i32 {
        // SAFETY: a status as far as its budget.
        unsafe { *core::ptr::with_exposed_provenance_mut::<usize>(status + 48) = BUDGET };
        0
    }
}
#[cfg(test)]
pub use stand_in::lent_so_far;
#[cfg(test)]
use stand_in::{ream_keep, ream_lend, ream_status, ream_take_back};

/// Bytes that a structure of unknown size has at most.
pub const PAGE: usize = 4096;
/// Most bytes that a call gets at a time where it may be done in several.
pub const MOST: usize = 1 << 20;
/// Most vectors, or messages, of a call.
pub const IOV_MAX: usize = 1024;

/// Whether so much may be resident for one call that could be done in parts, if not quite as well: a quarter of the budget, and
/// a little in any case.
pub fn fits(bytes: usize) -> bool {
    const LITTLE: usize = 16 << 20;
    /// `struct ream_status` of ream.h, as far as the budget.
    #[repr(C)]
    struct Status {
        size: usize,
        _others: [u64; 5],
        budget: usize,
    }
    if bytes <= LITTLE {
        return true;
    }
    let mut status = Status { size: size_of::<Status>(), _others: [0; 5], budget: 0 };
    ream_status((&raw mut status).expose_provenance()) == 0 && bytes <= status.budget / 4
}

/// Memory that stays resident until this is dropped.
pub struct Loan(u32);

impl Loan {
    /// Nothing yet.
    pub fn new() -> Loan {
        Loan(0)
    }

    /// Whether nothing of it is managed.
    pub fn is_empty(&self) -> bool {
        self.0 == 0
    }

    /// And these bytes.
    pub fn bytes(self, address: usize, bytes: usize) -> Loan {
        let loan = Loan(ream_lend(address, bytes, self.0));
        core::mem::forget(self);
        loan
    }

    /// And a structure.
    pub fn page(self, address: usize) -> Loan {
        self.bytes(address, PAGE)
    }

    /// And a string with its end.
    ///
    /// # Safety
    /// The address of a string, or null.
    pub unsafe fn text(self, address: usize) -> Loan {
        let before = self.0;
        let loan = self.bytes(address, 1);
        if loan.0 == before {
            // Not managed: the kernel looks itself, and says EFAULT where there is no string at all.
            return loan;
        }
        // SAFETY: the caller's promise.
        loan.bytes(address, unsafe { length(address) } + 1)
    }

    /// And the vectors of a call with what they name.
    ///
    /// # Safety
    /// So many pairs of address and length.
    pub unsafe fn parts(self, parts: usize, count: usize) -> Loan {
        let count = count.min(IOV_MAX);
        let mut loan = self.bytes(parts, count * 16);
        for index in 0..count {
            // SAFETY: the caller's promise.
            let [address, bytes] = unsafe { value_at(parts + index * 16) };
            loan = loan.bytes(address, bytes);
        }
        loan
    }

    /// And the vectors of a call on another process, with what they name where that is this one.
    ///
    /// # Safety
    /// As for [`Loan::parts`].
    pub unsafe fn theirs(self, process: usize, parts: usize, count: usize) -> Loan {
        unsafe extern "C" {
            safe fn getpid() -> i32;
        }
        if process as i32 == getpid() {
            // SAFETY: the caller's promise.
            return unsafe { self.parts(parts, count) };
        }
        self.bytes(parts, count.min(IOV_MAX) * 16)
    }

    /// And a message, as sendmsg and recvmsg take it.
    ///
    /// # Safety
    /// The address of one.
    pub unsafe fn message(self, address: usize) -> Loan {
        // SAFETY: the caller's promise: name, its length, vectors, their number, control data, their length.
        let [name, name_bytes, parts, count, control, control_bytes] = unsafe { value_at::<[usize; 6]>(address) };
        let loan = self.page(address).bytes(name, name_bytes & 0xffff_ffff).bytes(control, control_bytes);
        // SAFETY: the caller's promise.
        unsafe { loan.parts(parts, count) }
    }

    /// And messages with a length behind each, as sendmmsg and recvmmsg take them.
    ///
    /// # Safety
    /// So many messages.
    pub unsafe fn messages(self, messages: usize, count: usize) -> Loan {
        const BYTES: usize = 64;
        let count = count.min(IOV_MAX);
        let mut loan = self.bytes(messages, count * BYTES);
        for index in 0..count {
            // SAFETY: the caller's promise.
            loan = unsafe { loan.message(messages + index * BYTES) };
        }
        loan
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        if self.0 != 0 {
            ream_take_back(self.0);
        }
    }
}

/// Keeps these bytes resident for as long as they are mapped.
pub fn keep(address: usize, bytes: usize) {
    ream_keep(address, bytes);
}

/// Length of a string; 0 for null.
///
/// # Safety
/// The address of a string, or null.
pub unsafe fn length(address: usize) -> usize {
    let start = core::ptr::with_exposed_provenance::<u8>(address);
    let mut length = 0;
    // SAFETY: the caller's promise: a zero byte ends it.
    while address != 0 && unsafe { start.add(length).read() } != 0 {
        length += 1;
    }
    length
}

/// Reads a value of the program's.
///
/// # Safety
/// There is one.
pub unsafe fn value_at<T: Copy>(address: usize) -> T {
    // SAFETY: the caller's promise.
    unsafe { core::ptr::with_exposed_provenance::<T>(address).read_unaligned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_of_the_budget_fits() {
        assert!(fits(0) && fits(16 << 20) && fits(stand_in::BUDGET / 4));
        assert!(!fits(stand_in::BUDGET / 4 + 1));
    }

    #[test]
    fn everything_that_a_message_names_is_lent() {
        let parts = [[0x1000usize, 10], [0x2000, 20]];
        let list = parts.as_ptr().expose_provenance();
        let message = [0x3000usize, 0xffff_0000_0000_0010, list, 2, 0x4000, 40];
        // SAFETY: a message as the manual describes it.
        let loan = unsafe {
            Loan::new().message(message.as_ptr().expose_provenance()).text(c"abc".as_ptr().expose_provenance())
        };
        drop(loan);
        keep(0x5000, 50);
        let lent = lent_so_far();
        let text = (c"abc".as_ptr().expose_provenance(), 4);
        for wanted in [(0x1000, 10), (0x2000, 20), (0x3000, 16), (list, 32), (0x4000, 40), text, (0x5000, 50)] {
            assert!(lent.contains(&wanted), "{wanted:x?} of {lent:x?}");
        }
    }
}
