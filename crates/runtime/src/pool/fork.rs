//! A fork of a process with memory on pages of a pool: the child copies it to ordinary memory before it goes on, and the
//! parent waits for that.
//!
//! Kernels lose pages of 1 GiB in some children (6.18: in one of ten, though nobody writes): the child finds them absent,
//! and would be killed if it touched them. It asks its parent then, which sends their content.
//!
//! Other threads of the parent do not wait. When one writes to a page, and the pool has no other, the kernel takes the child's:
//! a child that lacks a page that was there is stopped.

use super::{GIGANTIC_BYTES, POOLED, Pooled, forget};
use crate::abi::caller;
use crate::engine;
use crate::kernel::*;
use crate::lending;
use crate::pages::wanted;
use crate::regions::{self, Regions};
use crate::reserve;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use ream_page::{BLOCK_BYTES, PAGE_BYTES, Page, Run};
use ream_stats::Region;
use ream_sys::Errno;
use ream_sys::file::{self, Fd};
use ream_sys::futex::{self, Scope};
use ream_sys::memory::{self, MapSlice, Protection};
use ream_sys::process::{self, Mapping, SignalSet, set_signal_mask};
use ream_sys::syscall::{call3, call4, call6, number};

/// What parent and child have in common for that time.
#[repr(C)]
struct Shared {
    state: AtomicU32,
    /// Of the page that the child asks for.
    address: AtomicU64,
}

/// The child copies.
const BUSY: u32 = 0;
/// It has its copy.
const DONE: u32 = 1;
/// It asks.
const ASKS: u32 = 2;

/// Answers: the page was never touched, or its content follows.
const ABSENT: u8 = 0;
const FOLLOWS: u8 = 1;

/// From the prepare handler of a fork to the others.
struct Kept {
    /// Null when nothing is to be copied.
    shared: *const Shared,
    /// A socket's ends, the parent's and the child's, which closes when it has ended.
    ends: [i32; 2],
    signals: SignalSet,
    /// Which pages there were, in order of address.
    there: MapSlice<bool>,
}

struct Cell(UnsafeCell<Kept>);
// SAFETY: libc lets one fork happen at a time, and calls all handlers on its thread.
unsafe impl Sync for Cell {}
static KEPT: Cell = Cell(UnsafeCell::new(Kept {
    shared: core::ptr::null(),
    ends: [-1; 2],
    signals: SignalSet(0),
    there: MapSlice::empty(),
}));

/// Of a child's page that a thread of its parent has cost it, which no call of the kernel answers.
const TAKEN: Errno = Errno(u16::MAX - 1);

/// Before a fork, before all else: signals are blocked, so that no handler writes what the child is about to copy.
pub fn fork_prepare() {
    if super::PAGES.load(Ordering::Relaxed) == 0 {
        return;
    }
    const SHARED_ANONYMOUS: usize = 0x21;
    const UNIX: usize = 1;
    /// SOCK_STREAM and SOCK_CLOEXEC.
    const STREAM: usize = 0o2_000_001;
    // SAFETY: see `Cell`; a fresh mapping that stays until both sides have unmapped it; room for two descriptors.
    unsafe {
        let kept = &mut *KEPT.0.get();
        kept.signals = set_signal_mask(SignalSet::ALL);
        let Ok(shared) = mmap(0, PAGE_BYTES, PROT_READ_WRITE, SHARED_ANONYMOUS, -1, 0) else {
            // So short of memory that the fork will hardly be made; a child would have its pages as the kernel shares them.
            set_signal_mask(kept.signals);
            return;
        };
        kept.shared = shared.cast_const().cast();
        kept.ends = [-1; 2];
        let _ = call4(number::__NR_socketpair, UNIX, STREAM, 0, kept.ends.as_mut_ptr().expose_provenance());
    }
}

/// Before the copy is made: notes which pages are there.
pub(super) fn look(pooled: &Regions<Pooled>) {
    // SAFETY: see `Cell`.
    let kept = unsafe { &mut *KEPT.0.get() };
    if kept.shared.is_null() {
        return;
    }
    // Where there is no memory for that, the fork will hardly be made.
    kept.there = MapSlice::new(pooled.total() as usize * PAGE_BYTES / BLOCK_BYTES).unwrap_or(MapSlice::empty());
    let mut places = kept.there.as_mut_slice().iter_mut();
    let mut from = Page(0);
    while let Some((run, what)) = pooled.next_from(from) {
        from = run.end();
        for address in (run.start.address()..run.end().address()).step_by(what.unit()) {
            if let Some(place) = places.next() {
                *place = is_there(address).unwrap_or(false);
            }
        }
    }
}

/// In the parent: waits until the child has its copy, or has ended. A write before that would take a page from it.
pub fn fork_parent(failed: bool) {
    let Some((shared, ends, signals)) = kept() else { return };
    close(ends[1]);
    // Without a socket the child's end is not seen.
    let mut patience = 3000;
    while !failed && patience > 0 {
        match shared.state.load(Ordering::Acquire) {
            DONE => break,
            ASKS => {
                shared.state.store(BUSY, Ordering::Release);
                if send(Fd(ends[0]), shared.address.load(Ordering::Acquire) as usize).is_err() {
                    break;
                }
                continue;
            }
            _ => _ = futex::wait(&shared.state, BUSY, Some(20_000), Scope::Shared),
        }
        let mut news = [false];
        if ends[0] < 0 {
            patience -= 1;
        } else if process::poll_readable(&[Fd(ends[0])], &mut news, Some(0)).is_ok() && news[0] {
            break;
        }
    }
    close(ends[0]);
    end(shared, signals);
}

/// Sends what the child asks for.
fn send(to: Fd, address: usize) -> Result<(), Errno> {
    // The child names pages that it has inherited from us.
    let there = is_there(address)?;
    all(&[if there { FOLLOWS } else { ABSENT }], to)?;
    let (mut at, end) = (address, if there { address + GIGANTIC_BYTES } else { address });
    while at < end {
        // SAFETY: a page of a pool that is there as a whole; nobody else runs who could free it (it is locked for the fork).
        let part = unsafe { core::slice::from_raw_parts(core::ptr::with_exposed_provenance(at), PIECE) };
        all(part, to)?;
        at += PIECE;
    }
    Ok(())
}

/// Bytes sent at once.
const PIECE: usize = 1 << 20;

/// Sends all of it. No signal is raised when nobody reads any more.
fn all(bytes: &[u8], to: Fd) -> Result<(), Errno> {
    const NOSIGNAL: usize = 0x4000;
    let mut rest = bytes;
    while !rest.is_empty() {
        let (place, length) = (rest.as_ptr().expose_provenance(), rest.len());
        // SAFETY: the kernel reads the slice.
        let sent = unsafe { call6(number::__NR_sendto, to.0 as usize, place, length, NOSIGNAL, 0, 0) }?;
        rest = rest.get(sent..).unwrap_or(&[]);
    }
    Ok(())
}

/// Has the parent send what it has at `address`; false when that is nothing.
///
/// # Safety
/// There is room for a gigantic page at `to`.
unsafe fn ask(shared: &Shared, from: Fd, address: usize, to: *mut u8) -> Result<bool, Errno> {
    shared.address.store(address as u64, Ordering::Release);
    shared.state.store(ASKS, Ordering::Release);
    futex::wake(&shared.state, 1, Scope::Shared);
    let mut answer = [ABSENT];
    // It may have died.
    if file::read(from, &mut answer)? != 1 {
        return Err(Errno::IO);
    }
    let mut done = 0;
    while answer == [FOLLOWS] && done < GIGANTIC_BYTES {
        // SAFETY: the caller's room.
        let place = unsafe { core::slice::from_raw_parts_mut(to.add(done), PIECE.min(GIGANTIC_BYTES - done)) };
        match file::read(from, place)? {
            0 => return Err(Errno::IO),
            read => done += read,
        }
    }
    Ok(answer == [FOLLOWS])
}

/// Whether the page of a pool at this address is there.
pub(super) fn is_there(address: usize) -> Result<bool, Errno> {
    let mut present = [0u8];
    // SAFETY: the kernel writes one byte.
    unsafe { call3(number::__NR_mincore, address, PAGE_BYTES, present.as_mut_ptr().expose_provenance()) }?;
    Ok(present[0] & 1 != 0)
}

/// In the child, when the engine runs again: everything private moves to ordinary memory.
pub fn fork_child() {
    reserve::fork_child();
    let Some((shared, ends, signals)) = kept() else { return };
    close(ends[0]);
    let _placing = ream_heap::placing();
    let mut from = Page(0);
    // SAFETY: see `Cell`.
    let there = core::mem::replace(unsafe { &mut (*KEPT.0.get()).there }, MapSlice::empty());
    let mut there = there.as_slice().iter().copied();
    loop {
        let next = POOLED.lock().next_from(from);
        let Some((run, what)) = next else { break };
        from = run.end();
        if let Err(error) = copy_to_ordinary(run, what, &mut there, shared, Fd(ends[1])) {
            let mib = run.bytes() >> 20;
            match error {
                TAKEN => engine::tell(format_args!(
                    "a forked process cannot have its copy of {mib} MiB on pages of a pool: other threads of its parent wrote \
                     to them, and the pool had none left; it is stopped (as root: ream setup --hugetlb SIZE)"
                )),
                error => engine::tell(format_args!(
                    "a forked process cannot have its copy of {mib} MiB on pages of a pool (errno {}); it is stopped",
                    error.0
                )),
            }
            process::end_process(125);
        }
        forget(run);
    }
    shared.state.store(DONE, Ordering::Release);
    futex::wake(&shared.state, 1, Scope::Shared);
    close(ends[1]);
    end(shared, signals);
}

/// What the prepare handler left, when it left something.
fn kept() -> Option<(&'static Shared, [i32; 2], SignalSet)> {
    // SAFETY: see `Cell`; it stays mapped until `end`.
    unsafe {
        let kept = &mut *KEPT.0.get();
        let shared = core::mem::replace(&mut kept.shared, core::ptr::null()).as_ref()?;
        Some((shared, kept.ends, kept.signals))
    }
}

fn end(shared: &'static Shared, signals: SignalSet) {
    // SAFETY: see `Cell`.
    drop(core::mem::replace(unsafe { &mut (*KEPT.0.get()).there }, MapSlice::empty()));
    // SAFETY: mapped in `fork_prepare`; nobody uses it any more.
    let _ = unsafe { munmap(core::ptr::from_ref(shared).expose_provenance(), PAGE_BYTES) };
    set_signal_mask(signals);
}

fn close(fd: i32) {
    if fd >= 0 {
        file::close(Fd(fd));
    }
}

/// Copies inherited memory, page by page, to ordinary memory at the same address, which comes under management and may be used
/// as before. `were` tells of each page whether it was there.
fn copy_to_ordinary(
    run: Run,
    what: Pooled,
    were: &mut dyn Iterator<Item = bool>,
    shared: &Shared,
    parent: Fd,
) -> Result<(), Errno> {
    let unit = what.unit();
    let copy = memory::map(unit, BLOCK_BYTES, Protection::ReadWrite)?.as_ptr();
    let (region, kind) = match what {
        Pooled::Static | Pooled::GiganticStatic => (Region::Static, regions::Kind::Static),
        // Blocks of both sizes share the pages of 1 GiB.
        _ => (Region::Heap, regions::Kind::Large),
    };
    let mut mapping = None;
    for address in (run.start.address()..run.end().address()).step_by(unit) {
        let were = were.next().unwrap_or(false);
        let place: *mut u8 = core::ptr::with_exposed_provenance_mut(address);
        mapping = mapping.filter(|known: &Mapping| known.end > address).or_else(|| process::mapping_at(address));
        // Where that cannot be told it is as it was made.
        let protection = mapping.map_or(PROT_READ_WRITE, |known| known.protection);
        // SAFETY: a page of a pool is there as a whole or not at all. It is ours to replace: nobody else runs here. `copy` has
        // room for it. The kernel reads it for us: it may be taken just now, and a touch would end the process without a
        // word.
        unsafe {
            let mut there = match is_there(address) {
                // The program has unmapped it, or does not want it inherited.
                Err(ENOMEM) => continue,
                answer => answer?,
            };
            if protection & PROT_READ == 0 {
                mprotect(address, unit, PROT_READ, None)?;
            }
            let copied = there && caller::copy(address, copy.expose_provenance(), unit).is_ok();
            if !copied && unit == GIGANTIC_BYTES {
                there = ask(shared, parent, address, copy)?;
            } else if !copied && (there || were) {
                return Err(TAKEN);
            }
            memory::map_over(place, unit, Protection::ReadWrite)?;
            if wanted(region).large() {
                let _ = madvise(address, unit, MADV_HUGEPAGE);
            }
            let open = protection == PROT_READ_WRITE;
            // What the program has protected stays plain memory, which need not be held anywhere.
            if open && (!lending::on() || kind == regions::Kind::Static) {
                engine::add(Run::inside(address, unit), kind);
            }
            if there {
                core::ptr::copy_nonoverlapping(copy, place, unit);
            }
            if !open {
                mprotect(address, unit, protection, None)?;
            }
        }
    }
    // SAFETY: our own mapping.
    unsafe { memory::unmap(copy, unit) }
}
