//! Libraries that the program opens while it runs: their large static data that lies behind what comes from the file is
//! anonymous memory already, and comes under management where it is. What comes from the file is made anonymous first, as at
//! start, in a program that has one thread; where there are others, which may use it, it stays as it is.
//!
//! They are noticed when the program asks for an address in one, as it does after dlopen. dlopen itself is not taken over: the
//! linker looks at who calls it. It does so with dlsym, too, which therefore is left by a jump and not called.

use crate::{engine, init, locks, objects, statics};
use core::arch::global_asm;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use ream_page::Run;
use ream_sys::futex::Mutex;
use ream_sys::process;

/// Who is asked: libc, or a library behind us that has taken its place. Found at the first call.
static NEXT: AtomicUsize = AtomicUsize::new(0);
/// How many objects had been loaded when they were last gone through.
static SEEN: AtomicU64 = AtomicU64::new(0);
/// Objects that were there at start: the first that the linker tells of, and never unloaded.
static AT_START: AtomicUsize = AtomicUsize::new(0);
/// Held while memory is brought under management, and never while the linker is asked for anything: whoever waits for it may
/// be in dlopen, and hold the linker's own lock.
static BRINGING: Mutex<()> = Mutex::new(());

const RTLD_LAZY: c_int = 1;
const RTLD_NOLOAD: c_int = 4;
const RTLD_NODELETE: c_int = 0x1000;
const RTLD_NEXT: *mut c_void = core::ptr::without_provenance_mut(usize::MAX);

#[cfg(target_arch = "x86_64")]
const FIRST_VERSION: &CStr = c"GLIBC_2.2.5";
#[cfg(target_arch = "aarch64")]
const FIRST_VERSION: &CStr = c"GLIBC_2.17";

unsafe extern "C" {
    fn dlvsym(library: *mut c_void, name: *const c_char, version: *const c_char) -> *mut c_void;
    fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
    #[cfg(not(test))]
    fn ream_dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

// Saves the arguments, has `look` look, and goes on where it says as if nothing had been called.
#[cfg(target_arch = "x86_64")]
global_asm!(
    ".p2align 4",
    ".type ream_dlsym, @function",
    ".hidden ream_dlsym",
    ".globl ream_dlsym",
    "ream_dlsym:",
    "push rdi",
    "push rsi",
    "sub rsp, 8",
    "call {look}",
    "add rsp, 8",
    "pop rsi",
    "pop rdi",
    "jmp rax",
    ".size ream_dlsym, . - ream_dlsym",
    look = sym look,
);

#[cfg(target_arch = "aarch64")]
global_asm!(
    ".p2align 4",
    ".type ream_dlsym, %function",
    ".hidden ream_dlsym",
    ".globl ream_dlsym",
    "ream_dlsym:",
    "stp x29, x30, [sp, #-32]!",
    "stp x0, x1, [sp, #16]",
    "bl {look}",
    "mov x16, x0",
    "ldp x0, x1, [sp, #16]",
    "ldp x29, x30, [sp], #32",
    "br x16",
    ".size ream_dlsym, . - ream_dlsym",
    look = sym look,
);

/// dlsym(3). The linker's list of what we export has only functions of Rust's; this one is nothing but a jump, so that the
/// return address is where it was. For others only, and never inlined: within a function of ours it would jump out of that,
/// and the compiler takes what follows a call for out of reach, because the jump does not return.
///
/// # Safety
/// As the manual says.
#[cfg(not(test))]
#[inline(never)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void {
    // SAFETY: the arguments are where they came, and nothing is on the stack.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        core::arch::asm!("jmp {}", sym ream_dlsym, in("rdi") library, in("rsi") name, options(noreturn, nostack));
        #[cfg(target_arch = "aarch64")]
        core::arch::asm!("b {}", sym ream_dlsym, in("x0") library, in("x1") name, options(noreturn, nostack));
    }
}

/// The address of the next dlsym.
pub fn next() -> usize {
    let mut next = NEXT.load(SeqCst);
    if next == 0 {
        // SAFETY: strings that end with zero bytes.
        let found = unsafe { dlvsym(RTLD_NEXT, c"dlsym".as_ptr(), FIRST_VERSION.as_ptr()) };
        // "Next" is counted from the caller: the call must come back here.
        next = core::hint::black_box(found).expose_provenance();
        NEXT.store(next, SeqCst);
    }
    next
}

/// The address of a symbol by its name, of whatever the process uses.
pub fn find(name: &CStr) -> *mut c_void {
    type Symbol = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
    let dlsym = core::ptr::with_exposed_provenance::<c_void>(next());
    // SAFETY: the function's type, and a name that ends with a zero byte; null is RTLD_DEFAULT.
    unsafe { core::mem::transmute::<*const c_void, Symbol>(dlsym)(core::ptr::null_mut(), name.as_ptr()) }
}

/// Brings what has been loaded since under management; returns where dlsym goes on.
extern "C" fn look() -> usize {
    if init::session().is_some() {
        let loaded = objects::loaded();
        if SEEN.load(SeqCst) != loaded {
            manage(&pin);
            SEEN.store(loaded, SeqCst);
        }
    }
    next()
}

/// What is loaded now was gone through at start.
pub fn begin() {
    SEEN.store(objects::loaded(), SeqCst);
    objects::each(&mut |_| _ = AT_START.fetch_add(1, SeqCst));
}

/// In a child: no thread is there any more that was at it.
///
/// # Safety
/// By the child's only thread.
pub unsafe fn fork_child() {
    // SAFETY: the caller's promise; the lock guards nothing of its own.
    unsafe { BRINGING.reset() };
}

/// Runs `work` while no other thread brings anything under management: what one finds there then is guarded, and nobody fills
/// a library that another thread has only begun with. `None` where this is a child that shares its parent's memory, and a
/// thread of the parent is at it: a child that is killed must not keep the lock for good.
fn by_turns<T>(work: impl FnOnce() -> T) -> Option<T> {
    // A handler may come here, too.
    engine::masked(|| {
        let turn = if engine::is_own_process() { Some(BRINGING.lock()) } else { BRINGING.try_lock() };
        turn.map(|_turn| work())
    })
}

/// Keeps an object from being unloaded. False when it is not there.
fn pin(file: &CStr) -> bool {
    // SAFETY: a string; nothing is loaded.
    !unsafe { dlopen(file.as_ptr(), RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE) }.is_null()
}

/// Brings the large static data of objects that have come since the start under management, after `pin` has kept the object
/// of that name from being unloaded; it says whether it could. Nothing is done while the linker's lock is held but to look.
fn manage(pin: &dyn Fn(&CStr) -> bool) {
    let mut room = [0; 4096];
    for place in 0.. {
        let (mut count, mut found) = (0, None);
        each_large(&mut |name, part, from_file| {
            if count == place {
                let name = name.to_bytes_with_nul();
                room.get_mut(..name.len()).into_iter().for_each(|room| room.copy_from_slice(name));
                found = Some((part, from_file));
            }
            count += 1;
        });
        let Some((part, from_file)) = found else { return };
        let Ok(name) = CStr::from_bytes_until_nul(&room) else { continue };
        let known = || engine::is_managed(part.start) || locks::any(part);
        if by_turns(known) != Some(false) || !pin(name) {
            continue;
        }
        let mut there = false;
        each_large(&mut |other, same, _| there |= other == name && same == part);
        if !there {
            continue;
        }
        by_turns(|| match known() {
            // By another thread, meanwhile.
            true => {}
            false if from_file => {
                // The parent of a child that shares our memory has threads of its own. What is not writable any more has
                // been made so on purpose.
                let own = engine::is_own_process() && process::alone();
                if own && process::is_private_and_writable(part.start.address(), part.bytes()) {
                    // SAFETY: no other thread runs, and signals are blocked.
                    let _ = unsafe { statics::make_anonymous(part) };
                }
            }
            false => _ = statics::add(part),
        });
    }
}

/// Tells of the large parts of objects that have come since the start, with the file's name, and whether they come from it.
fn each_large(tell: &mut dyn FnMut(&CStr, Run, bool)) {
    let mut before = AT_START.load(SeqCst);
    objects::each(&mut |object| {
        if before > 0 {
            before -= 1;
        } else {
            statics::each_part(&object, &mut |part, from_file| tell(object.name, part, from_file));
        }
    });
}
