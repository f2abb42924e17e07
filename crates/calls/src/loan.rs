//! What libream.so offers: memory that stays resident during a call, or for good.

#[cfg(not(test))]
unsafe extern "C" {
    safe fn ream_lend(address: usize, bytes: usize, chain: u32) -> u32;
    safe fn ream_take_back(chain: u32);
    safe fn ream_keep(address: usize, bytes: usize);
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
}
#[cfg(test)]
use stand_in::{ream_keep, ream_lend, ream_take_back};

/// Bytes that a structure of unknown size has at most.
const PAGE: usize = 4096;
/// Most bytes that a call gets at a time: more is done in several.
pub const MOST: usize = 1 << 20;

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
        const IOV_MAX: usize = 1024;
        let count = count.min(IOV_MAX);
        let mut loan = self.bytes(parts, count * 16);
        for index in 0..count {
            // SAFETY: the caller's promise.
            let [address, bytes] = unsafe { value_at(parts + index * 16) };
            loan = loan.bytes(address, bytes);
        }
        loan
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
        let lent = stand_in::LENT.lock().unwrap();
        let text = (c"abc".as_ptr().expose_provenance(), 4);
        for wanted in [(0x1000, 10), (0x2000, 20), (0x3000, 16), (list, 32), (0x4000, 40), text, (0x5000, 50)] {
            assert!(lent.contains(&wanted), "{wanted:x?} of {lent:x?}");
        }
    }
}
