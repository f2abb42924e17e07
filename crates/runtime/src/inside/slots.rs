//! The symbol slots of loaded objects: the words through which they call functions of other objects, and read their
//! addresses. Those that lead to a function that we take over are led to ours, wherever the linker has put them: lazily
//! bound ones before their first call, those of objects bound at once, which are read-only by then, and words of data.
//! So are words of data that hold the address of a function that frees: somebody has taken it before we came.

use super::calls::Calls;
use super::loads;
use super::symbols::{self, Tables, VERSIONS, tables};
use crate::abi::caller;
use crate::exports;
use crate::objects::{self, Object, PT_GNU_RELRO, PT_LOAD, WRITABLE};
use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};
use ream_page::PAGE_BYTES;
use ream_sys::futex::Mutex;
use ream_sys::memory::{self, Protection};
use ream_sys::process;

/// A function that we take over: its name, and ours.
struct Function {
    name: &'static CStr,
    ours: fn() -> usize,
    /// The one that the process uses, in its versions, and what the linker says its address is, which may be a place in
    /// the program that leads there. 0 until they were looked up.
    theirs: [AtomicUsize; VERSIONS + 1],
    /// Gets blocks: an address of it taken before is led to us, too.
    frees: bool,
}

impl Function {
    fn definition(&self) -> usize {
        self.theirs[0].load(Ordering::Relaxed)
    }
    fn is(&self, address: usize) -> bool {
        address != 0 && self.theirs.iter().any(|theirs| theirs.load(Ordering::Relaxed) == address)
    }
}

macro_rules! functions {
    ($($kind:ident $name:literal => $ours:path,)*) => {
        static FUNCTIONS: [Function; [$($name),*].len()] = [
            $(Function {
                name: $name,
                ours: || $ours as *const () as usize,
                theirs: [const { AtomicUsize::new(0) }; VERSIONS + 1],
                frees: functions!(@ $kind),
            },)*
        ];
    };
    (@ gets) => { true };
    (@ plain) => { false };
}

functions! {
    plain c"malloc" => exports::malloc,
    plain c"calloc" => exports::calloc,
    gets c"realloc" => exports::realloc,
    gets c"reallocarray" => exports::reallocarray,
    gets c"free" => exports::free,
    plain c"posix_memalign" => exports::posix_memalign,
    plain c"aligned_alloc" => exports::aligned_alloc,
    plain c"memalign" => exports::memalign,
    plain c"valloc" => exports::valloc,
    plain c"pvalloc" => exports::pvalloc,
    gets c"malloc_usable_size" => exports::malloc_usable_size,
    plain c"malloc_trim" => exports::malloc_trim,
    plain c"mmap" => exports::mmap,
    plain c"mmap64" => exports::mmap64,
    plain c"munmap" => exports::munmap,
    plain c"mremap" => exports::mremap,
    plain c"madvise" => exports::madvise,
    plain c"posix_madvise" => exports::posix_madvise,
    plain c"shmget" => exports::shmget,
    plain c"shmat" => exports::shmat,
    plain c"mprotect" => exports::mprotect,
    plain c"pkey_mprotect" => exports::pkey_mprotect,
    plain c"mlock" => exports::mlock,
    plain c"mlock2" => exports::mlock2,
    plain c"munlock" => exports::munlock,
    plain c"mlockall" => exports::mlockall,
    plain c"munlockall" => exports::munlockall,
    plain c"vmsplice" => exports::vmsplice,
    plain c"setsockopt" => exports::setsockopt,
    plain c"pthread_create" => exports::pthread_create,
    plain c"_exit" => exports::_exit,
    plain c"_Exit" => exports::exit_at_once,
    plain c"setuid" => exports::setuid,
    plain c"seteuid" => exports::seteuid,
    plain c"setreuid" => exports::setreuid,
    plain c"setresuid" => exports::setresuid,
    plain c"setgid" => exports::setgid,
    plain c"setegid" => exports::setegid,
    plain c"setregid" => exports::setregid,
    plain c"setresgid" => exports::setresgid,
    plain c"setgroups" => exports::setgroups,
    plain c"initgroups" => exports::initgroups,
    plain c"capset" => exports::capset,
    plain c"dlopen" => loads::dlopen,
    plain c"dlmopen" => loads::dlmopen,
}

unsafe extern "C" {
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// Elf64_Rela.
#[repr(C)]
struct Relocation {
    offset: u64,
    info: u64,
    addend: i64,
}

/// Kinds of relocations: a call's slot, an address's slot, and a word of data.
#[cfg(target_arch = "x86_64")]
const KINDS: [u32; 3] = [7, 6, 1];
#[cfg(target_arch = "aarch64")]
const KINDS: [u32; 3] = [1026, 1025, 257];

/// So often in a row nothing new has come, after which nothing does; and so often it is waited for in all.
const QUIET: u32 = 5;
const PATIENCE: u32 = 200;

/// So much zeroed data behind what comes from the file are looked through.
const MOST_LOOKED_AT: u64 = 16 << 20;

/// What a look at all objects has found.
#[derive(Clone, Copy)]
pub struct Seen {
    /// Some were new.
    new: bool,
    /// All were whole.
    whole: bool,
}

/// Leads the slots of all objects to us that lead elsewhere. May be called again, for what has come since.
///
/// The linker may be relocating an object for another thread meanwhile: what keeps objects from coming and going does not
/// keep it from that. Its slots that hold no address yet are left alone, as is what it will make read-only, and it counts
/// as new until it has been seen whole.
pub fn lead_here() -> Seen {
    for function in &FUNCTIONS {
        if function.definition() == 0 {
            let known = ask_linker(function.name);
            let found = symbols::definitions(function.name).into_iter().chain([known]);
            function.theirs.iter().zip(found).for_each(|(place, found)| place.store(found, Ordering::Relaxed));
        }
    }
    let calls = Calls::find();
    let mut seen = Seen { new: false, whole: true };
    objects::each(&mut |object| {
        // Our own slots lead to what we have taken over.
        if !object.holds((&raw const FUNCTIONS).addr()) && is_new(&object) {
            seen.new = true;
            // SAFETY: of a loaded object, and none is unloaded meanwhile.
            let whole = unsafe {
                taken_before(&object);
                relocations(&object, calls.as_ref())
            };
            if whole {
                know(&object);
            }
            seen.whole &= whole;
        }
    });
    seen
}

/// As of [`lead_here`], when nothing leads here yet: what other threads are loading comes by no way of ours, so it is
/// waited for.
pub fn lead_all_here() {
    KNOWN.lock().count = 0;
    lead_here();
    // Again: a call that was being bound meanwhile may have got the old address.
    KNOWN.lock().count = 0;
    let mut seen = lead_here();
    if process::thread_count() == 1 {
        return;
    }
    // Whoever loads something has the linker's lock until it is there, and others may be waiting for that.
    let mut quiet = 0;
    for _ in 0..PATIENCE {
        quiet = if seen.new || !seen.whole { 0 } else { quiet + 1 };
        if quiet > QUIET {
            return;
        }
        process::sleep_us(1000);
        ask_linker(c"malloc");
        seen = lead_here();
    }
}

/// The address that the linker gives a name, when it has time.
fn ask_linker(name: &CStr) -> usize {
    // SAFETY: a name that ends with a zero byte; 0 is RTLD_DEFAULT.
    unsafe { dlsym(core::ptr::null_mut(), name.as_ptr()) }.expose_provenance()
}

/// Objects that were led here already. A program that loads hundreds of libraries has many thousand relocations.
struct Known {
    /// By the addresses of their headers.
    objects: [usize; 1024],
    count: usize,
    unloaded: u64,
}

static KNOWN: Mutex<Known> = Mutex::new(Known { objects: [0; 1024], count: 0, unloaded: 0 });

/// Whether an object was not led here yet.
fn is_new(object: &Object) -> bool {
    let mut known = KNOWN.lock();
    if known.unloaded != object.unloaded {
        // Another may have taken the place of any.
        (known.count, known.unloaded) = (0, object.unloaded);
    }
    let place = object.headers.as_ptr().addr();
    !known.objects.iter().take(known.count).any(|known| *known == place)
}

/// It was led here, all of it. One for which there is no room is looked at again each time.
fn know(object: &Object) {
    let mut known = KNOWN.lock();
    let count = known.count;
    if let Some(free) = known.objects.get_mut(count) {
        *free = object.headers.as_ptr().addr();
        known.count += 1;
    }
}

/// In a child: whichever thread of the parent held it, no other has.
///
/// # Safety
/// By the child's only thread.
pub unsafe fn fork_child() {
    // SAFETY: the caller's promise; a list cut short is one.
    unsafe { KNOWN.reset() };
    KNOWN.lock().count = 0;
}

/// What is read-only since it was relocated: first and last address, whole pages.
fn read_only(object: &Object) -> (usize, usize) {
    let relro = object.headers.iter().find(|header| header.kind == PT_GNU_RELRO);
    relro.map_or((0, 0), |relro| {
        let start = object.base.wrapping_add(relro.address as usize);
        (start & !(PAGE_BYTES - 1), start.wrapping_add(relro.memory_bytes as usize) & !(PAGE_BYTES - 1))
    })
}

/// Whether all slots that concern us have been relocated.
///
/// # Safety
/// The object is loaded.
unsafe fn relocations(object: &Object, calls: Option<&Calls>) -> bool {
    // SAFETY: the caller's promise.
    let Some(tables) = (unsafe { tables(object) }) else { return true };
    let mut whole = true;
    for (start, bytes) in [tables.data, tables.calls] {
        if start == 0 || !object.holds(start) {
            continue;
        }
        let list: *const Relocation = core::ptr::with_exposed_provenance(start);
        for index in 0..bytes / size_of::<Relocation>() {
            // SAFETY: within the table, as its length says.
            whole &= unsafe { relocation(object, &tables, &*list.add(index), calls) };
        }
    }
    whole
}

/// False for a slot that concerns us and was not relocated yet: it holds nothing, or an offset.
///
/// # Safety
/// One of the object's relocations.
unsafe fn relocation(object: &Object, tables: &Tables, relocation: &Relocation, calls: Option<&Calls>) -> bool {
    let (kind, index) = (relocation.info as u32, (relocation.info >> 32) as usize);
    if index == 0 || !KINDS.contains(&kind) || relocation.addend != 0 {
        return true;
    }
    // SAFETY: an index of the object's own tables.
    let (symbol, name) = unsafe { tables.symbol(index) };
    let named = |function: &&Function| function.name.to_bytes() == name;
    let function = FUNCTIONS.iter().find(named).filter(|function| function.definition() != 0);
    let ours = match function {
        Some(function) => Some((function.ours)()),
        None => calls.and_then(|calls| calls.ours(name, object)),
    };
    let place = object.base.wrapping_add(relocation.offset as usize);
    let Some(ours) = ours.filter(|_| object.holds(place)) else { return true };
    let is_theirs = |address: usize| match (function, calls) {
        (Some(function), _) => function.is(address),
        (None, Some(calls)) => calls.is_libc(address),
        (None, None) => false,
    };
    let slot = core::ptr::with_exposed_provenance::<AtomicUsize>(place);
    // SAFETY: an aligned word of the object, which other threads may read.
    let now = unsafe { (*slot).load(Ordering::Relaxed) };
    // Not bound yet: it leads into the object itself, which has no such function, or the one that all use.
    let own = object.base.wrapping_add(symbol.value as usize);
    let unbound = kind == KINDS[0] && object.holds(now) && (symbol.section == 0 || is_theirs(own));
    if is_theirs(now) || unbound {
        write(object, place, now, ours);
    }
    now >= object.base
}

/// Words of data that hold the address of a function that gets blocks.
///
/// # Safety
/// The object is loaded.
unsafe fn taken_before(object: &Object) {
    // libc and the linker have them for blocks of their own.
    if FUNCTIONS.iter().any(|function| object.holds(function.definition())) {
        return;
    }
    let (from, to) = read_only(object);
    for header in object.headers.iter().filter(|header| header.kind == PT_LOAD && header.flags & WRITABLE != 0) {
        let start = object.base.wrapping_add(header.address as usize).next_multiple_of(8);
        // Not gigabytes of static arrays, which to look at is to touch.
        let bytes = header.memory_bytes.min(header.file_bytes + MOST_LOOKED_AT);
        let end = object.base.wrapping_add((header.address + bytes) as usize);
        for place in (start..end.saturating_sub(7)).step_by(8).filter(|place| !(from..to).contains(place)) {
            let word = core::ptr::with_exposed_provenance::<AtomicUsize>(place);
            // SAFETY: an aligned word of a writable part of the object.
            let now = unsafe { (*word).load(Ordering::Relaxed) };
            if let Some(function) = FUNCTIONS.iter().find(|function| function.frees && function.is(now)) {
                write(object, place, now, (function.ours)());
            }
        }
    }
}

/// Unless somebody else has just written there.
fn write(object: &Object, place: usize, old: usize, new: usize) {
    let (from, to) = read_only(object);
    let slot = core::ptr::with_exposed_provenance::<AtomicUsize>(place);
    let exchange = || {
        // SAFETY: an aligned word of the object, in a page that may be written to.
        let _ = unsafe { (*slot).compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed) };
    };
    if !(from..to).contains(&place) {
        return exchange();
    }
    // Where the linker is not done yet its page may still be written to, must stay so, and may cease to be at any time.
    if caller::put_where_allowed(place, &new.to_ne_bytes()) == Ok(true) {
        return;
    }
    let page = core::ptr::with_exposed_provenance_mut::<u8>(place & !(PAGE_BYTES - 1));
    // SAFETY: a page of the object's data, which the linker had written to until it was relocated.
    if unsafe { memory::protect(page, PAGE_BYTES, Protection::ReadWrite) }.is_ok() {
        exchange();
        // SAFETY: as it was.
        let _ = unsafe { memory::protect(page, PAGE_BYTES, Protection::Read) };
    }
}
