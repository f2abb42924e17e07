//! Symbols of loaded objects, by their own tables. dlsym does not do: for a function whose address a program at a fixed
//! place has taken, it answers with a place in that program which jumps through the very slot that we lead here.

use crate::objects::{self, Object, PT_DYNAMIC};
use core::ffi::{CStr, c_char};

/// Most definitions of a function that are looked for: versions of it, in one object.
pub const VERSIONS: usize = 3;

/// Where the function of this name is that the process uses: that of the first object which has it, in every version, but
/// for ours. Zeros where there are fewer.
pub fn definitions(name: &CStr) -> [usize; VERSIONS] {
    definitions_but(name, 0)
}

/// The same, but not in the object that holds an address.
pub fn definitions_but(name: &CStr, other: usize) -> [usize; VERSIONS] {
    let mut found = [0; VERSIONS];
    objects::each(&mut |object| {
        if found[0] == 0 && !object.holds((&raw const MARK).addr()) && !object.holds(other) {
            // SAFETY: of a loaded object, which stays meanwhile.
            unsafe { defined(&object, name, &mut found) };
        }
    });
    found
}

/// Lies in our own data.
static MARK: u8 = 1;

/// # Safety
/// The object is loaded.
unsafe fn defined(object: &Object, name: &CStr, found: &mut [usize; VERSIONS]) {
    // SAFETY: the caller's promise.
    let Some(tables) = (unsafe { tables(object) }) else { return };
    let mut places = found.iter_mut();
    // SAFETY: as above.
    unsafe {
        tables.each_like(name, &mut |symbol| {
            let address = object.base.wrapping_add(symbol.value as usize);
            // Defined here, and code.
            if symbol.section != 0 && symbol.info & 15 == 2 {
                if let Some(place) = places.next() {
                    *place = address;
                }
            }
        });
    }
}

impl Tables {
    /// A symbol and its name.
    ///
    /// # Safety
    /// An index of these tables, of an object that is loaded.
    pub unsafe fn symbol(&self, index: usize) -> (&Symbol, &[u8]) {
        // SAFETY: the caller's promise: a symbol, and a name that ends with a zero byte.
        unsafe {
            let symbol = &*core::ptr::with_exposed_provenance::<Symbol>(self.symbols).add(index);
            let name = core::ptr::with_exposed_provenance::<c_char>(self.names).add(symbol.name as usize);
            (symbol, CStr::from_ptr(name).to_bytes())
        }
    }

    /// A function that the object itself has; `base` is what its addresses are counted from.
    ///
    /// # Safety
    /// The object is loaded.
    pub unsafe fn function(&self, base: usize, name: &CStr) -> Option<usize> {
        let mut found = None;
        // SAFETY: the caller's promise.
        unsafe {
            self.each_like(name, &mut |symbol| {
                if symbol.section != 0 && symbol.info & 15 == 2 {
                    found = Some(base.wrapping_add(symbol.value as usize));
                }
            });
        }
        found
    }

    /// Tells of the symbols of this name.
    ///
    /// # Safety
    /// The object is loaded.
    unsafe fn each_like(&self, wanted: &CStr, tell: &mut dyn FnMut(&Symbol)) {
        let word = |address: usize, index: usize| {
            // SAFETY: the layout of the tables, which end as they say.
            unsafe { core::ptr::with_exposed_provenance::<u32>(address).add(index).read() }
        };
        let mut look = |index: usize| {
            // SAFETY: an index that the tables name.
            let (symbol, name) = unsafe { self.symbol(index) };
            if name == wanted.to_bytes() {
                tell(symbol);
            }
        };
        if self.gnu_hash != 0 {
            let [buckets, first, bloom] = [0, 1, 2].map(|index| word(self.gnu_hash, index) as usize);
            let hash = wanted
                .to_bytes()
                .iter()
                .fold(5381u32, |hash, byte| hash.wrapping_mul(33).wrapping_add(u32::from(*byte)));
            let table = self.gnu_hash + 16 + bloom * 8;
            let chains = table + buckets * 4;
            let mut index = if buckets == 0 { 0 } else { word(table, hash as usize % buckets) as usize };
            while index >= first && index != 0 {
                let chain = word(chains, index - first);
                if chain | 1 == hash | 1 {
                    look(index);
                }
                index = if chain & 1 == 0 { index + 1 } else { 0 };
            }
        } else if self.hash != 0 {
            (1..word(self.hash, 1) as usize).for_each(look);
        }
    }
}

/// Elf64_Sym.
#[repr(C)]
pub struct Symbol {
    pub name: u32,
    info: u8,
    other: u8,
    pub section: u16,
    pub value: u64,
    bytes: u64,
}

const DT_HASH: u64 = 4;
const DT_GNU_HASH: u64 = 0x6fff_fef5;
const DT_PLTRELSZ: u64 = 2;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_RELA: u64 = 7;
const DT_RELASZ: u64 = 8;
const DT_JMPREL: u64 = 23;

/// What the dynamic section tells.
#[derive(Default)]
pub struct Tables {
    pub names: usize,
    pub symbols: usize,
    pub data: (usize, usize),
    pub calls: (usize, usize),
    hash: usize,
    gnu_hash: usize,
}

/// # Safety
/// The object is loaded.
pub unsafe fn tables(object: &Object) -> Option<Tables> {
    let dynamic = object.headers.iter().find(|header| header.kind == PT_DYNAMIC)?;
    let entries = dynamic.memory_bytes as usize / 16;
    let place: *const [u64; 2] = core::ptr::with_exposed_provenance(object.base.wrapping_add(dynamic.address as usize));
    let mut tables = Tables::default();
    for index in 0..entries {
        // SAFETY: within the section.
        let [tag, value] = unsafe { place.add(index).read() };
        let value = value as usize;
        // The linker writes addresses over offsets, but in objects that it must not write to.
        let address = if value < object.base { object.base.wrapping_add(value) } else { value };
        match tag {
            0 => break,
            DT_HASH => tables.hash = address,
            DT_GNU_HASH => tables.gnu_hash = address,
            DT_STRTAB => tables.names = address,
            DT_SYMTAB => tables.symbols = address,
            DT_RELA => tables.data.0 = address,
            DT_RELASZ => tables.data.1 = value,
            DT_JMPREL => tables.calls.0 = address,
            DT_PLTRELSZ => tables.calls.1 = value,
            _ => {}
        }
    }
    (tables.names != 0 && tables.symbols != 0 && object.holds(tables.names) && object.holds(tables.symbols))
        .then_some(tables)
}
