//! What libc itself touches between our handlers of a fork: open streams, whose locks it resets in the child, and the state of
//! the name service, which it reads before the copy and writes after it. Both may lie on the program's heap. And the stack
//! that fork() was called on, with the thread's own data: of a context, or given to pthread_attr_setstack, it may be any
//! memory. There is no pager then to bring them back, so they are made resident before, and nothing is evicted from there to
//! the fork.

use super::ENGINE;
use crate::holds;
use crate::maps::managed_parts;
use crate::objects::{self, PT_LOAD, WRITABLE};
use crate::regions::Kind;
use core::ffi::{c_int, c_ulong};
use core::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use ream_page::{Page, Run};

/// libc's writable data: first address, and bytes.
static START: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicUsize = AtomicUsize::new(0);

/// How far what libc points at may reach: its state of the name service has less than 400 bytes.
const REACH: usize = 511;

/// How far below its frame and above it the stack is used between our handlers: by ourselves and by libc.
const BELOW: usize = 32 << 10;
const ABOVE: usize = 16 << 10;

/// Bytes of what libc keeps of a thread, at most, on 64 bits.
const THREAD: usize = 2304;

/// Bytes of an entry in libc's lists of threads, and how far from the beginning of what it keeps of a thread that ends: after
/// the header, 704 bytes with x86-64, fewer elsewhere.
const LINK: usize = 16;
const LINKED: usize = 704 + LINK;

unsafe extern "C" {
    fn __errno_location() -> *mut c_int;
    fn pthread_self() -> c_ulong;
    /// The first open stream; libc exports it for its own older parts.
    static _IO_list_all: *const u8;
}

/// Finds libc's data. Not in a fork: the linker's lock may be held then by a thread that waits for one of ours.
pub fn find() {
    let marker = (&raw const _IO_list_all) as usize;
    objects::each(&mut |object| {
        for part in object.headers.iter().filter(|part| part.kind == PT_LOAD && part.flags & WRITABLE != 0) {
            let start = object.base.wrapping_add(part.address as usize);
            if marker.wrapping_sub(start) < part.memory_bytes as usize {
                START.store(start.next_multiple_of(size_of::<usize>()), SeqCst);
                BYTES.store(part.memory_bytes as usize, SeqCst);
            }
        }
    });
}

/// Touches all of it, while the pager still serves.
pub fn touch() {
    touch_streams();
    touch_pointed_at();
    touch_own();
}

/// The calling thread's stack and data, and what libc links the latter to: the child takes it out of a list of threads.
fn touch_own() {
    let here = 0u8;
    let here = (&raw const here).addr();
    touch_range(here.saturating_sub(BELOW), BELOW + ABOVE);
    // SAFETY: neither uses memory.
    let (errno, thread) = unsafe { (__errno_location().addr(), pthread_self() as usize) };
    touch_range(errno, size_of::<c_int>());
    touch_range(thread, THREAD);
    for place in (thread..thread + LINKED).step_by(size_of::<usize>()) {
        // SAFETY: an aligned word of what libc keeps of this thread.
        let address = unsafe { core::ptr::with_exposed_provenance::<usize>(place).read_volatile() };
        if address % size_of::<usize>() == 0 && address.checked_add(LINK).is_some_and(|end| end < 1 << 56) {
            touch_range(address, LINK);
        }
    }
}

/// Touches what is managed of a range, whatever it is. Not what the program has protected, such as the end of a stack: that
/// is resident, and may not be readable.
fn touch_range(address: usize, bytes: usize) {
    managed_parts(Run::covering(address, bytes), |part| {
        holds::open_parts(part, |open| {
            for page in 0..open.pages {
                let address = Page(open.start.0 + page).address();
                // SAFETY: managed, readable, and so until the fork is over: whoever unmaps it waits for the heap's locks,
                // and whoever protects it for the mailbox. What is there is not looked at.
                unsafe { core::ptr::with_exposed_provenance::<u8>(address).read_volatile() };
            }
        });
    });
}

fn touch_streams() {
    /// Offsets of the next stream, of the pointer to the lock, and of the last byte, in glibc's FILE on 64 bits.
    const NEXT: usize = 0x68;
    const LOCK: usize = 0x88;
    const LAST: usize = 0xdf;
    // SAFETY: the list of glibc's streams, whose layout has been part of its ABI since 2.1. The fork holds the lock on it, so
    // no stream is opened or closed meanwhile. Reads only, and bounded.
    unsafe {
        let mut stream = (&raw const _IO_list_all).read_volatile();
        for _ in 0..65_536 {
            if stream.is_null() {
                break;
            }
            stream.add(LAST).read_volatile();
            let lock = stream.add(LOCK).cast::<*const u8>().read_volatile();
            if !lock.is_null() {
                lock.read_volatile();
            }
            stream = stream.add(NEXT).cast::<*const u8>().read_volatile();
        }
    }
}

/// Whatever a word of libc's data points at, if it is a small block of the heap: where libc keeps the state is not told.
fn touch_pointed_at() {
    let (start, bytes) = (START.load(SeqCst), BYTES.load(SeqCst));
    let mut last = usize::MAX;
    for place in (start..start + bytes / size_of::<usize>() * size_of::<usize>()).step_by(size_of::<usize>()) {
        // SAFETY: an aligned word of libc's writable data, which stay mapped; libc may change it meanwhile, as it may
        // between any two of its own looks.
        let address = unsafe { (place as *const usize).read_volatile() };
        if address == 0 || address % size_of::<usize>() != 0 || address == last {
            continue;
        }
        last = address;
        for address in [address, address.wrapping_add(REACH)] {
            let small = ENGINE.regions.read().kind_of(Page::containing(address)) == Some(Kind::Small);
            if small {
                // SAFETY: a managed range of small blocks, which the heap's locks, held since before, keep mapped. What
                // is there is not looked at.
                unsafe { (address as *const u8).read_volatile() };
            }
        }
    }
}
