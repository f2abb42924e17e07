//! The memory that a caller points at, read and written by the kernel: an address where nothing is mapped, or which may not
//! be written, is an error then and no crash. Where the kernel does not let a process do that, it is touched directly.

use crate::lending;
use ream_page::PAGE_BYTES;
use ream_sys::loans::Chain;
use ream_sys::syscall::{call6, number};
use ream_sys::{Errno, process};

/// Copies between memory of our own and the caller's, in the direction of the call. False when the kernel does not do that.
///
/// # Safety
/// So many bytes at `own` may be read and written.
unsafe fn transfer(call: u32, own: usize, theirs: usize, bytes: usize) -> Result<bool, Errno> {
    if theirs == 0 || theirs.checked_add(bytes).is_none() {
        return Err(Errno::FAULT);
    }
    let (own, place) = ([own, bytes], [theirs, bytes]);
    let (own, place) = (own.as_ptr().expose_provenance(), place.as_ptr().expose_provenance());
    let chain = lending::lend(theirs, bytes, Chain::default());
    // SAFETY: the kernel checks the caller's addresses; ours are good (caller).
    let done = unsafe { call6(call, process::process_id() as usize, own, 1, place, 1, 0) };
    lending::take_back(chain);
    match done {
        Ok(done) if done == bytes => Ok(true),
        Err(Errno::PERM | Errno::NOSYS) => Ok(false),
        Ok(_) | Err(_) => Err(Errno::FAULT),
    }
}

/// Copies from the caller's memory.
pub fn get(from: usize, to: &mut [u8]) -> Result<(), Errno> {
    let own = to.as_mut_ptr();
    // SAFETY: the slice's own bytes.
    if !unsafe { transfer(number::__NR_process_vm_readv, own.expose_provenance(), from, to.len()) }? {
        // SAFETY: nobody checks the address: as with every function of libc, it must be good.
        unsafe { core::ptr::copy(core::ptr::with_exposed_provenance(from), own, to.len()) };
    }
    Ok(())
}

/// Copies to the caller's memory.
pub fn put(to: usize, from: &[u8]) -> Result<(), Errno> {
    let own = from.as_ptr();
    // SAFETY: the slice's own bytes, which are only read.
    if !unsafe { transfer(number::__NR_process_vm_writev, own.expose_provenance(), to, from.len()) }? {
        // SAFETY: nobody checks the address: as with every function of libc, it must be good.
        unsafe { core::ptr::copy(own, core::ptr::with_exposed_provenance_mut(to), from.len()) };
    }
    Ok(())
}

/// Copies to memory that may not be written to, which is an error then. False where the kernel does not do that.
pub fn put_where_allowed(to: usize, from: &[u8]) -> Result<bool, Errno> {
    // SAFETY: the slice's own bytes, which are only read.
    unsafe { transfer(number::__NR_process_vm_writev, from.as_ptr().expose_provenance(), to, from.len()) }
}

/// Copies memory of ours that may be gone by now, where a touch would end the process, to other memory of ours. (Read the
/// other way round, the kernel would first make pages that are shared after a fork our own, which takes new ones.)
///
/// # Safety
/// So many bytes are mapped at `from`, and at `to` they are nobody else's.
pub unsafe fn copy(from: usize, to: usize, bytes: usize) -> Result<(), Errno> {
    // SAFETY: the caller's promise; what cannot be read is an error.
    if !unsafe { transfer(number::__NR_process_vm_writev, from, to, bytes) }? {
        let (from, to) = (core::ptr::with_exposed_provenance::<u8>(from), core::ptr::with_exposed_provenance_mut(to));
        // SAFETY: the caller's promise. Nobody checks the address.
        unsafe { core::ptr::copy_nonoverlapping(from, to, bytes) };
    }
    Ok(())
}

/// A size in the caller's memory.
pub fn size(from: usize) -> Result<usize, Errno> {
    let mut bytes = [0; size_of::<usize>()];
    get(from, &mut bytes)?;
    Ok(usize::from_ne_bytes(bytes))
}

/// Copies a string, which must be shorter than there is room for; returns its length.
pub fn text(from: usize, to: &mut [u8]) -> Result<usize, Errno> {
    let mut done = 0;
    // Not beyond the page in which it ends.
    while done < to.len() {
        let at = from.checked_add(done).ok_or(Errno::FAULT)?;
        let count = (PAGE_BYTES - at % PAGE_BYTES).min(to.len() - done);
        let part = to.get_mut(done..done + count).ok_or(Errno::FAULT)?;
        get(at, part)?;
        if let Some(end) = part.iter().position(|byte| *byte == 0) {
            return Ok(done + end);
        }
        done += count;
    }
    Err(Errno::INVAL)
}

/// A structure of numbers without room between them.
///
/// # Safety
/// Every byte of the type belongs to a number.
pub unsafe trait Plain {}

/// Copies the front of a structure, as much as the caller has room for.
pub fn put_front<T: Plain>(to: usize, value: &T, room: usize) -> Result<(), Errno> {
    // SAFETY: the structure's own bytes, all of which have a value.
    let bytes = unsafe { core::slice::from_raw_parts(core::ptr::from_ref(value).cast::<u8>(), size_of::<T>()) };
    put(to, bytes.get(..room).unwrap_or(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_addresses_are_errors_and_good_ones_are_copied() {
        let mut word = [0; 8];
        for address in [0, 16, usize::MAX - 3, 1 << 47, 1 << 63] {
            assert_eq!(get(address, &mut word), Err(Errno::FAULT), "{address:x}");
            assert_eq!(put(address, &word), Err(Errno::FAULT), "{address:x}");
        }
        let value = 77usize;
        assert_eq!(size((&raw const value).expose_provenance()), Ok(77));
        // A constant may be read and not written.
        let fixed = c"a name";
        let address = fixed.as_ptr().expose_provenance();
        assert_eq!(put(address, &word), Err(Errno::FAULT));
        assert_ne!(put_where_allowed(address, &word), Ok(true));
        let mut name = [0; 8];
        assert_eq!(text(address, &mut name), Ok(6));
        assert_eq!(&name[..6], b"a name");
        assert_eq!(text(address, &mut [0; 6]), Err(Errno::INVAL));
    }
}
