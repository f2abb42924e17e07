//! The program's own anonymous private mappings: which of them come under management, and what the engine must know
//! before the kernel changes a managed one. Everything else is passed on as it is.
//!
//! Managed: readable and writable, not for stacks, code, locked or pool memory, and of the threshold's size. What is
//! reserved without access is remembered, and comes under management when enough of it is opened.

use crate::abi::switch;
use crate::engine;
use crate::heap::in_session;
use crate::holds;
use crate::kernel::*;
use crate::regions::{Kind, Regions, rest};
use crate::{locks, pages, pieces, pool, pooled_shared, prefault, scattered, shared};
use core::sync::atomic::{AtomicUsize, Ordering};
use ream_heap::{Left, placing, relocate};
use ream_page::{ADDRESS_BITS, BLOCK_BYTES, PAGE_BYTES, Page, Run};
use ream_stats::Region;
use ream_sys::Errno;
use ream_sys::futex::{Guard, Mutex};
use ream_sys::memory::{self, Zeroable};
use ream_sys::process;

/// Smallest mapping that is managed, in bytes.
static THRESHOLD: AtomicUsize = AtomicUsize::new(1 << 20);
/// Smallest range that asks for large pages, in bytes.
pub const LARGE_FROM: usize = 2 * BLOCK_BYTES;

/// Sets the smallest size that is managed.
pub fn set_threshold(bytes: usize) {
    THRESHOLD.store(bytes.max(PAGE_BYTES), Ordering::Relaxed);
}

fn threshold() -> usize {
    THRESHOLD.load(Ordering::Relaxed)
}

/// An anonymous private mapping that is not managed, but may be one day.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum Access {
    /// Not readable and writable.
    Closed = 0,
    /// Readable and writable, in pieces too small to be managed.
    Open = 1,
}

// SAFETY: zero is `Closed`; nothing happens at drop.
unsafe impl Zeroable for Access {}

/// Taken inside [`placing`].
static RESERVED: Mutex<Regions<Access>> = Mutex::new(Regions::new());

/// While it exists, in a fork, the list of reservations does not change.
pub struct Frozen {
    _reserved: Guard<'static, Regions<Access>>,
}

/// Takes the lock for the duration of a fork, inside [`placing`].
pub fn freeze() -> Frozen {
    Frozen { _reserved: RESERVED.lock() }
}

/// Whether a range is one that the kernel would accept: the start of a page, and not empty.
pub fn valid(address: usize, bytes: usize) -> bool {
    address % PAGE_BYTES == 0 && bytes > 0 && address.checked_add(bytes).is_some_and(|end| end < 1 << 56)
}

/// Calls `each` for every managed part of a run.
pub fn managed_parts(run: Run, mut each: impl FnMut(Run)) {
    let mut left = run;
    while let Some(found) = engine::next_managed(left.start) {
        let part = found.and(left);
        if part.pages == 0 {
            return;
        }
        each(part);
        left = rest(run, part.end());
    }
}

/// Calls `each` for every part of a run that is not managed, until one fails.
pub fn unmanaged_parts(run: Run, mut each: impl FnMut(Run) -> Result<(), Errno>) -> Result<(), Errno> {
    let mut left = run;
    while left.pages > 0 {
        let next = engine::next_managed(left.start).map_or(left.end(), |found| found.start);
        let part = Run { start: left.start, pages: next.0.min(left.end().0) - left.start.0 };
        if part.pages > 0 {
            each(part)?;
        }
        left = rest(run, engine::next_managed(part.end()).map_or(left.end(), |found| found.end()));
    }
    Ok(())
}

/// Whether any page of a run is managed.
pub fn any_managed(run: Run) -> bool {
    engine::next_managed(run.start).is_some_and(|found| found.and(run).pages > 0)
}

/// Nothing of the run is managed, held or reserved any more: it is about to be unmapped or replaced.
pub fn forget(run: Run) {
    engine::remove(run);
    locks::forget(run);
    holds::forget(run);
    RESERVED.lock().remove(run);
}

/// A mapping that we do not make is about to replace what is there.
pub fn replaced(run: Run) {
    if known(run) {
        let _placing = placing();
        forget(run);
    }
    pooled_shared::make_way(run);
}

/// More than any address space: the kernel refuses it, and there is nothing to compute with such lengths.
const BEYOND: usize = 1 << 57;

/// Whether [`forget`] has anything to do.
fn known(run: Run) -> bool {
    any_managed(run) || locks::any(run) || holds::any(run) || engine::masked(|| RESERVED.lock().first_in(run).is_some())
}

/// # Safety
/// As for mmap: with MAP_FIXED the caller answers for what was mapped there.
pub unsafe fn map(
    address: usize,
    bytes: usize,
    protection: usize,
    flags: usize,
    fd: i32,
    offset: u64,
) -> Result<usize, Errno> {
    // SAFETY: the caller's promise.
    let kernel =
        |address, flags| unsafe { mmap(address, bytes, protection, flags, fd, offset) }.map(|start| start.addr());
    if !in_session() || bytes >= BEYOND {
        return kernel(address, flags);
    }
    let anonymous = flags & MAP_ANONYMOUS != 0 && flags & MAP_TYPE == MAP_PRIVATE;
    let odd = flags & (MAP_STACK | MAP_GROWSDOWN | MAP_HUGETLB | MAP_LOCKED) != 0 || protection & !PROT_READ_WRITE != 0;
    let candidate = anonymous && !odd && !holds::all_locked();
    // The kernel heeds the second first.
    let fixed = flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) == MAP_FIXED;
    let anonymous_shared = flags & (MAP_TYPE | MAP_ANONYMOUS | MAP_FIXED) == MAP_SHARED | MAP_ANONYMOUS;
    let beforehand = anonymous_shared && protection == PROT_READ_WRITE && prefault::populated(Region::Shared);
    let flags = if beforehand { flags | MAP_POPULATE } else { flags };
    let shared = |kernel: shared::Kernel<'_>| shared::map(address, bytes, protection, flags, fd, offset, kernel);
    if !fixed {
        if let Some(placed) = shared(&kernel) {
            return placed;
        }
    }
    let length = Run::covering(0, bytes).bytes();
    if candidate && !fixed {
        if let Some(place) = wished(address, length, protection, flags) {
            return Ok(place);
        }
    }
    let small = bytes < threshold();
    if !fixed && (!candidate || small && !pieces::SIZES.contains(&length)) {
        return kernel(address, flags);
    }
    let _placing = placing();
    let ours = if candidate { (flags | MAP_NORESERVE) & !MAP_POPULATE } else { flags };
    let start = if fixed {
        let target = Run::covering(address, bytes);
        if valid(address, bytes) {
            pool::can_change(target)?;
            scattered::used(target);
            pooled_shared::make_way(target);
        }
        let made = |address, ours| {
            if !valid(address, bytes) || !(any_managed(target) || locks::any(target)) {
                let start = kernel(address, ours)?;
                if valid(address, bytes) && known(target) {
                    forget(target);
                }
                return Ok(start);
            }
            // Made elsewhere first: when it cannot be made, what is here now must stay.
            let elsewhere = kernel(0, ours & !MAP_FIXED)?;
            forget(target);
            // SAFETY: the program wants this range replaced, and nobody knows of the new mapping yet.
            unsafe { mremap(elsewhere, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, address) }.inspect_err(|_| {
                // SAFETY: as above.
                let _ = unsafe { munmap(elsewhere, length) };
            })
        };
        shared(&made).unwrap_or_else(|| made(address, ours)).inspect(|_| pool::gone(target))?
    } else if let Some(piece) = piece(address, length, protection, flags, ours) {
        if small {
            // Remembered: together they are a heap, and managed when they fill the threshold.
            let _ = RESERVED.lock().insert(Run::covering(piece, bytes), Access::Closed);
        }
        piece
    } else if small {
        return kernel(address, flags);
    } else if address == 0 && bytes >= LARGE_FROM && flags & MAP_32BIT == 0 {
        // SAFETY: without MAP_FIXED the kernel picks a range that nobody uses.
        at_block(length, |bytes| unsafe { mmap(0, bytes, protection, ours, -1, 0) }.map(|start| start.addr()))?
    } else {
        kernel(address, ours)?
    };
    if candidate {
        admit(Run::covering(start, bytes), protection == PROT_READ_WRITE);
        if flags & MAP_POPULATE != 0 && protection == PROT_READ_WRITE {
            // SAFETY: brings pages of the new mapping in.
            let _ = unsafe { madvise(start, length, MADV_POPULATE_WRITE) };
        }
    }
    Ok(start)
}

/// A place for a reservation that need not lie where it wishes to, where large pages are wanted. It is remembered, however
/// small: those beside it may be opened, too.
fn wished(address: usize, length: usize, protection: usize, flags: usize) -> Option<usize> {
    if address == 0 || protection != 0 || !pages::wanted(Region::Heap).large() {
        return None;
    }
    let _placing = placing();
    let place = scattered::take(address, length, protection, flags)?;
    let run = Run::covering(place, length);
    if length >= LARGE_FROM {
        admit(run, false);
    } else {
        let _ = RESERVED.lock().insert(run, Access::Closed);
    }
    Some(place)
}

/// A place for a small mapping that may be anywhere, where large pages are wanted.
fn piece(address: usize, length: usize, protection: usize, flags: usize, ours: usize) -> Option<usize> {
    let anywhere = address == 0 && flags & MAP_32BIT == 0 && protection == PROT_READ_WRITE;
    let wanted = anywhere && ours & MAP_NORESERVE != 0 && pages::wanted(Region::Heap).large();
    if wanted { pieces::take(length, ours) } else { None }
}

/// A mapping that begins at a multiple of 2 MiB, made by `map` from a length; unaligned where address space is short.
pub fn at_block(length: usize, map: impl Fn(usize) -> Result<usize, Errno>) -> Result<usize, Errno> {
    // Kernels since 6.7 align whole blocks by themselves.
    let spare = if length % BLOCK_BYTES == 0 { 0 } else { BLOCK_BYTES - PAGE_BYTES };
    let Ok(start) = map(length + spare) else { return map(length) };
    let aligned = start.next_multiple_of(BLOCK_BYTES);
    if spare == 0 {
        if start == aligned {
            return Ok(start);
        }
        // SAFETY: made above.
        unsafe { munmap(start, length) }?;
        let Ok(start) = map(length + BLOCK_BYTES - PAGE_BYTES) else { return map(length) };
        return Ok(trim(start, length, BLOCK_BYTES - PAGE_BYTES));
    }
    Ok(trim(start, length, spare))
}

/// Keeps `length` bytes at a multiple of 2 MiB of a mapping that is longer by `spare`.
fn trim(start: usize, length: usize, spare: usize) -> usize {
    let aligned = start.next_multiple_of(BLOCK_BYTES);
    let (head, tail) = (aligned - start, spare - (aligned - start));
    // SAFETY: both ends of a mapping that nobody knows of yet.
    unsafe {
        if head > 0 {
            let _ = munmap(start, head);
        }
        if tail > 0 {
            let _ = munmap(aligned + length, tail);
        }
    }
    aligned
}

/// Whether a run lies where nothing can be managed.
fn out_of_reach(run: Run) -> bool {
    run.end().0 * PAGE_BYTES as u64 > 1 << ADDRESS_BITS
}

/// A new anonymous private mapping: managed at once, or remembered.
fn admit(run: Run, open: bool) {
    if out_of_reach(run) {
        return;
    }
    if run.bytes() >= LARGE_FROM && pages::wanted(Region::Heap).large() && switch::wanted(run.bytes()) {
        // SAFETY: advice on memory that nobody has used yet.
        let _ = unsafe { madvise(run.start.address(), run.bytes(), MADV_HUGEPAGE) };
    }
    if open && run.bytes() >= threshold() {
        if switch::wanted(run.bytes()) {
            locks::manage(run, Kind::Mapped);
        }
    } else if open {
        // A piece put into a reservation.
        let inside = [Page(run.start.0.saturating_sub(1)), run.start, run.end()];
        let mut reserved = RESERVED.lock();
        if inside.into_iter().any(|page| reserved.contains(page) || engine::is_managed(page)) {
            let _ = reserved.insert(run, Access::Open);
            promote(&mut reserved, run);
        }
    } else if run.bytes() >= threshold() {
        let _ = RESERVED.lock().insert(run, Access::Closed);
    }
}

/// Has an open piece managed when it has become large enough, or touches managed memory.
fn promote(reserved: &mut Regions<Access>, run: Run) {
    // The piece may have been joined with its neighbours.
    let Some((piece, Access::Open)) = reserved.next_from(run.start) else { return };
    let before = Page(piece.start.0.saturating_sub(1));
    if piece.bytes() >= threshold() || engine::is_managed(before) || engine::is_managed(piece.end()) {
        reserved.remove(piece);
        locks::manage(piece, Kind::Mapped);
    }
}

/// The kernel has changed the protection of a run: pieces of reservations open or close.
pub fn protection_changed(run: Run, open: bool) {
    let _placing = placing();
    scattered::used(run);
    let mut reserved = RESERVED.lock();
    let mut left = run;
    while let Some((part, access)) = reserved.first_in(left) {
        left = rest(run, part.end());
        let now = if open { Access::Open } else { Access::Closed };
        if access != now && reserved.insert(part, now).is_ok() && open {
            promote(&mut reserved, part);
        }
    }
}

/// # Safety
/// As for munmap.
pub unsafe fn unmap(address: usize, bytes: usize) -> Result<(), Errno> {
    let (mut address, mut bytes) = (address, bytes);
    if in_session() && valid(address, bytes) {
        if let Some(gone) = pooled_shared::give_up(Run::covering(address, bytes)) {
            if gone.pages == 0 {
                return Ok(());
            }
            (address, bytes) = (gone.start.address(), gone.bytes());
        }
    }
    let mut was_managed = false;
    if in_session() && valid(address, bytes) {
        let run = Run::covering(address, bytes);
        pool::can_change(run)?;
        was_managed = any_managed(run);
        let _placing = placing();
        pieces::unmapped(address..run.end().address());
        if known(run) {
            forget(run);
        }
        // SAFETY: the caller's promise.
        if unsafe { scattered::give_back(run) } {
            return Ok(());
        }
        if pool::any(run) {
            // SAFETY: the caller's promise.
            return unsafe { munmap(address, bytes) }.inspect(|()| pool::gone(run));
        }
    }
    // SAFETY: the caller's promise.
    match unsafe { munmap(address, bytes) } {
        // As many mappings as a process may have: the addresses are lost, the memory is not.
        // SAFETY: the program has given the range up.
        Err(ENOMEM) if was_managed => unsafe { madvise(address, bytes, MADV_DONTNEED) },
        result => result,
    }
}

/// # Safety
/// As for mremap.
pub unsafe fn remap(old: usize, old_bytes: usize, bytes: usize, flags: usize, new: usize) -> Result<usize, Errno> {
    // SAFETY: the caller's promise.
    let kernel = |flags| unsafe { mremap(old, old_bytes, bytes, flags, new) };
    if !in_session() || !valid(old, old_bytes) || refused((old, old_bytes), bytes, flags, new) {
        return kernel(flags);
    }
    let from = Run::covering(old, old_bytes);
    let first = Run { start: from.start, pages: 1 };
    if Run::covering(0, bytes).pages < from.pages
        && flags & MREMAP_FIXED == 0
        && (any_managed(first) || locks::any(first))
    {
        let kept = Run::covering(0, bytes).bytes();
        // SAFETY: the caller's promise.
        return unsafe { unmap(old + kept, from.bytes() - kept) }.map(|()| old);
    }
    // Only with a flag that says so is `new` a place; else it is any number.
    let replaced = Run { start: Page::containing(new), pages: Run::covering(0, bytes).pages };
    let replaces = flags & MREMAP_FIXED != 0 && valid(new, bytes) && from.and(replaced).pages == 0;
    let pooled = pooled_shared::any(from) || replaces && pooled_shared::any(replaced);
    if !(pooled || known(from) || replaces && known(replaced)) {
        return kernel(flags).inspect(|place| outgrown(*place, old_bytes, bytes));
    }
    let _placing = placing();
    // Asked only now: what was known may be another's, who has moved it away and not yet said so.
    let managed = any_managed(from) || locks::any(from);
    if managed && replaces && out_of_reach(replaced) {
        return Err(ENOMEM);
    }
    if replaces {
        scattered::used(replaced);
        forget(replaced);
        pooled_shared::make_way(replaced);
    }
    // SAFETY: the caller's promise.
    if let Some(moved) = unsafe { pooled_shared::remap(old, old_bytes, bytes, flags, new) } {
        return moved;
    }
    if !managed {
        RESERVED.lock().remove(from);
        let place = kernel(flags)?;
        drop(_placing);
        outgrown(place, old_bytes, bytes);
        return Ok(place);
    }
    let _moving = (locks::moving(from), engine::moving(from));
    let mut ours = locks::known_pages(from);
    managed_parts(from, |part| ours += part.pages);
    let whole = ours == from.pages;
    let kept = from.pages.min(replaced.pages);
    let grows = replaced.pages > from.pages;
    let (may_move, left) =
        (flags & MREMAP_MAYMOVE != 0, if flags & MREMAP_DONTUNMAP != 0 { Left::Zeros } else { Left::Nothing });
    let place = match kernel(if grows && !replaces { flags & !MREMAP_MAYMOVE } else { flags }) {
        Err(EFAULT) if whole => {
            let to = replaces.then_some(replaced.start);
            // SAFETY: the caller's promise; all of it is the program's, readable and writable.
            unsafe { resize_pieces(from, replaced.bytes(), to, may_move, left) }?
        }
        // Of a range with a hole in it nothing is moved.
        Err(error) if error != EFAULT && grows && !replaces && may_move => {
            // SAFETY: the caller's promise.
            unsafe { move_and_grow(from, replaced.bytes(), flags) }?
        }
        result => result?,
    };
    if kept < from.pages {
        // Not before: where the kernel refuses, all of it stays.
        forget(Run { start: Page(from.start.0 + kept), pages: from.pages - kept });
    }
    let to = Page::containing(place);
    if to != from.start {
        let kept = Run { start: from.start, pages: kept };
        managed_parts(kept, |part| engine::moved(part, Page(to.0 + (part.start.0 - from.start.0))));
        locks::moved(kept, to);
        holds::moved(kept, to);
        if flags & MREMAP_DONTUNMAP != 0 {
            locks::manage(kept, Kind::Mapped);
        }
    }
    if grows {
        locks::manage(Run { start: Page(to.0 + from.pages), pages: replaced.pages - from.pages }, Kind::Mapped);
    }
    Ok(place)
}

/// A mapping that was too small to be managed has become large enough by growing.
fn outgrown(place: usize, before: usize, bytes: usize) {
    if bytes <= before || bytes < threshold() || holds::all_locked() {
        return;
    }
    let _placing = placing();
    let run = Run::covering(place, bytes);
    if !any_managed(run) && !locks::any(run) && process::is_anonymous_and_writable(place, run.bytes()) {
        admit(run, true);
    }
}

/// Whether the kernel answers so with an error, before it has changed anything.
fn refused((old, old_bytes): (usize, usize), bytes: usize, flags: usize, new: usize) -> bool {
    let pages = |bytes| Run::covering(0, bytes).pages;
    let placed = flags & (MREMAP_FIXED | MREMAP_DONTUNMAP) != 0;
    let apart = |new| Run::covering(old, old_bytes).and(Run::covering(new, bytes)).pages == 0;
    bytes == 0
        || bytes > 1 << 56
        || flags & !(MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP) != 0
        || placed && flags & MREMAP_MAYMOVE == 0
        || flags & MREMAP_DONTUNMAP != 0 && pages(old_bytes) != pages(bytes)
        || flags & MREMAP_FIXED != 0 && !(valid(new, bytes) && apart(new))
}

/// Moves a managed mapping to a larger place, which begins at a multiple of 2 MiB when large pages fit.
///
/// # Safety
/// As for mremap.
unsafe fn move_and_grow(from: Run, length: usize, flags: usize) -> Result<usize, Errno> {
    if length < LARGE_FROM || flags & MREMAP_DONTUNMAP != 0 {
        // SAFETY: the caller's promise.
        return unsafe { mremap(from.start.address(), from.bytes(), length, flags, 0) };
    }
    // SAFETY: the caller's promise.
    unsafe { move_elsewhere(from, length, Left::Nothing) }
}

/// Moves or resizes what is one mapping for the program and several for the kernel: parts that were touched while a
/// wire lay between them stay mappings of their own, each with its list of owners. With `to` it moves there.
///
/// # Safety
/// As for mremap; all of `from` is managed.
unsafe fn resize_pieces(
    from: Run,
    length: usize,
    to: Option<Page>,
    may_move: bool,
    left: Left,
) -> Result<usize, Errno> {
    if let Some(to) = to {
        let kept = from.bytes().min(length);
        let place = core::ptr::with_exposed_provenance_mut(to.address());
        // SAFETY: the caller's promise: what is at the new place is replaced.
        unsafe {
            relocate(core::ptr::with_exposed_provenance_mut(from.start.address()), kept, place, length, left)?;
            if kept < from.bytes() {
                munmap(from.start.address() + kept, from.bytes() - kept)?;
            }
        }
        return Ok(to.address());
    }
    if length > from.bytes() {
        let fresh = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
        // SAFETY: replaces nothing.
        if unsafe { mmap(from.end().address(), length - from.bytes(), PROT_READ_WRITE, fresh, -1, 0) }.is_ok() {
            return Ok(from.start.address());
        }
    }
    if !may_move {
        return Err(ENOMEM);
    }
    // SAFETY: the caller's promise.
    unsafe { move_elsewhere(from, length, left) }
}

/// Moves a managed mapping to a place of our choice that is as large or larger.
///
/// # Safety
/// As for mremap.
unsafe fn move_elsewhere(from: Run, length: usize, left: Left) -> Result<usize, Errno> {
    let align = if length < LARGE_FROM { PAGE_BYTES } else { BLOCK_BYTES };
    let place = memory::map(length, align, memory::Protection::None)?.as_ptr();
    let old = core::ptr::with_exposed_provenance_mut(from.start.address());
    // SAFETY: the old range is the caller's, the new place nobody else's.
    if let Err(error) = unsafe { relocate(old, from.bytes(), place, length, left) } {
        // SAFETY: mapped above.
        let _ = unsafe { memory::unmap(place, length) };
        return Err(error);
    }
    Ok(place.expose_provenance())
}

#[cfg(test)]
mod tests;
