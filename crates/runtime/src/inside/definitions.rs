//! Where a function is that the process uses. dlsym knows that, but for executables that are loaded at a fixed address and
//! take the function's address themselves, as Debian's Python does: then its address is, for all, that of code of the
//! executable's own that calls it, through a slot that we lead to us.

use super::slots::{Symbol, Tables, tables};
use crate::objects::{self, Object};
use core::ffi::{CStr, c_char, c_void};

unsafe extern "C" {
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// Bit of a symbol's version: it is for programs that name that version only.
const OLD_VERSION: u16 = 0x8000;
/// Kind of a symbol: its value is the address of a function that chooses.
const CHOOSES: u8 = 10;

/// The address of the function of this name; 0 when there is none.
pub fn address_of(name: &CStr) -> usize {
    // SAFETY: a name that ends with a zero byte; 0 is RTLD_DEFAULT.
    let told = unsafe { dlsym(core::ptr::null_mut(), name.as_ptr()) };
    // The call must come back here, since dlsym looks at its caller.
    let told = core::hint::black_box(told).expose_provenance();
    let (mut first, mut elsewhere, mut address) = (true, false, told);
    objects::each(&mut |object| {
        // The executable is the first; what it does not define, the first of the others does that defines it.
        if first {
            // SAFETY: a loaded object.
            elsewhere = object.holds(told) && unsafe { defined(&object, name) }.is_none();
        } else if elsewhere {
            // SAFETY: a loaded object.
            if let Some(found) = unsafe { defined(&object, name) } {
                (address, elsewhere) = (found, false);
            }
        }
        first = false;
    });
    address
}

/// The address of a function that the object defines.
///
/// # Safety
/// The object is loaded.
unsafe fn defined(object: &Object, name: &CStr) -> Option<usize> {
    // SAFETY: the caller's promise.
    let tables = unsafe { tables(object) }?;
    if tables.hash == 0 || !object.holds(tables.hash) {
        return None;
    }
    // SAFETY: the object's own tables.
    unsafe { in_hash(object, &tables, name) }
}

/// Looks a name up in the object's hash table (DT_GNU_HASH).
///
/// # Safety
/// The object is loaded, and these are its tables.
unsafe fn in_hash(object: &Object, tables: &Tables, name: &CStr) -> Option<usize> {
    let hash = name.to_bytes().iter().fold(5381u32, |hash, byte| hash.wrapping_mul(33).wrapping_add(u32::from(*byte)));
    let words: *const u32 = core::ptr::with_exposed_provenance(tables.hash);
    // SAFETY: the head of the table, then filters of 8 bytes, buckets, and the hashes of the symbols from `first` on, of which
    // the last of a bucket has the lowest bit set.
    unsafe {
        let [buckets, first, filters] = [words.read(), words.add(1).read(), words.add(2).read()];
        if buckets == 0 {
            return None;
        }
        let bucket = words.add(4 + 2 * filters as usize);
        let chain = bucket.add(buckets as usize);
        let mut index = bucket.add((hash % buckets) as usize).read();
        while index >= first && index != 0 {
            let found = chain.add((index - first) as usize).read();
            if found | 1 == hash | 1 {
                let symbol = &*core::ptr::with_exposed_provenance::<Symbol>(tables.symbols).add(index as usize);
                let text = core::ptr::with_exposed_provenance::<c_char>(tables.names).add(symbol.name as usize);
                let old = tables.versions != 0
                    && core::ptr::with_exposed_provenance::<u16>(tables.versions).add(index as usize).read()
                        & OLD_VERSION
                        != 0;
                if symbol.section != 0 && symbol.info & 15 != CHOOSES && !old && CStr::from_ptr(text) == name {
                    return Some(object.base.wrapping_add(symbol.value as usize));
                }
            }
            if found & 1 != 0 {
                break;
            }
            index += 1;
        }
    }
    None
}
