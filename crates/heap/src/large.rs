//! Large blocks: each a mapping of its own whose data begins at a multiple of 2 MiB, so that large pages fit from the
//! first byte on, and which grows by moving pages instead of bytes.

use core::marker::PhantomData;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering};
use ream_page::{BLOCK_BYTES, PAGE_BYTES, Page, Run};
use ream_sys::futex::{Guard, Mutex};
use ream_sys::memory::{self, Advice, Protection};

use crate::cache::{self, Cache, Kept};
use crate::table::Table;
use crate::{Engine, Kind, Left, placing, relocate};

/// Blocks from this size on are large.
pub const LARGE_BYTES: usize = 4 << 20;

/// From so many blocks on, lengths are rounded up to whole 2 MiB blocks, so that the kernel can merge neighbours: a
/// process may have about 65 000 mappings.
const MANY: usize = 8192;

/// All large blocks of the process.
pub struct Large<E> {
    table: Table,
    count: AtomicUsize,
    cache: Mutex<Cache>,
    engine: PhantomData<fn() -> E>,
}

impl<E: Engine> Large<E> {
    /// No blocks.
    pub const fn new() -> Large<E> {
        Large { table: Table::new(), count: AtomicUsize::new(0), cache: Mutex::new(Cache::new()), engine: PhantomData }
    }

    /// A block of at least `bytes`, aligned to `align` (a power of two) and at least to 2 MiB. Its content is zeros if
    /// `zeroed`, else anything. `None` when there is no memory.
    pub fn allocate(&self, bytes: usize, align: usize, zeroed: bool) -> Option<NonNull<u8>> {
        let length = self.length_for(bytes)?;
        // What is asked for decides, not what it is rounded up to.
        let plain = !E::wanted(bytes);
        if align <= BLOCK_BYTES && length <= cache::MOST_EACH {
            let kept = self.cache.lock().best(length, plain);
            if let Some(kept) = kept {
                return self.reuse(kept, zeroed);
            }
        }
        let place = || self.place(length, align.max(BLOCK_BYTES), plain);
        place().or_else(|| if self.drain() { place() } else { None })
    }

    /// Maps and enters a fresh block.
    fn place(&self, length: usize, align: usize, plain: bool) -> Option<NonNull<u8>> {
        let _placing = placing();
        if let Some((address, length)) = E::pooled(length, align, length) {
            return self.enter_pooled(address, length);
        }
        let start = map_block::<E>(length, align, plain)?;
        if !self.table.set(start.addr().get(), length, plain) {
            // SAFETY: mapped above; nobody knows of it.
            let _ = unsafe { memory::unmap(start.as_ptr(), length) };
            return None;
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        if !plain {
            E::add(run(start.addr().get(), length), Kind::Large);
        }
        Some(start)
    }

    /// Enters a fresh block on pages of a pool.
    fn enter_pooled(&self, address: usize, length: usize) -> Option<NonNull<u8>> {
        if !self.table.set(address, length, false) {
            unmap::<E>(Kept { address, length, plain: false });
            return None;
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        NonNull::new(core::ptr::with_exposed_provenance_mut(address))
    }

    /// Usable bytes of the block that begins at `address`; `None` when no large block does.
    pub fn length(&self, address: *const u8) -> Option<usize> {
        self.table.get(address.addr())
    }

    /// Frees the block that begins at `address`; false when no large block does.
    pub fn free(&self, address: *mut u8) -> bool {
        let Some((length, plain)) = self.table.take(address.addr()) else { return false };
        self.count.fetch_sub(1, Ordering::Relaxed);
        let block = Kept { address: address.expose_provenance(), length, plain };
        // A pool is scarce: others may want its pages. And what is marked is so for good, for the kernel too.
        let kept = length <= cache::MOST_EACH && !E::engaged() && E::pool_unit(block.address).is_none();
        if !kept || E::marked(Run::covering(block.address, length)) {
            give_back::<E>(block);
            return true;
        }
        let mut cache = self.cache.lock();
        while !cache.fits(length) {
            let Some(oldest) = cache.oldest() else { break };
            drop(cache);
            give_back::<E>(oldest);
            cache = self.cache.lock();
        }
        cache.keep(block);
        true
    }

    /// Changes the size of the block at `address` to at least `bytes`, moving it if need be. The outer `None` says that
    /// no large block begins there; the inner one that there is no memory, and the block is as before.
    pub fn resize(&self, address: *mut u8, bytes: usize) -> Option<Option<NonNull<u8>>> {
        let old = self.table.get(address.addr())?;
        Some(self.resize_block(address, old, bytes))
    }

    fn resize_block(&self, address: *mut u8, old: usize, bytes: usize) -> Option<NonNull<u8>> {
        let start = NonNull::new(address)?;
        let unit = E::pool_unit(address.addr());
        let plain = self.table.is_plain(address.addr());
        let length = self.length_for(bytes)?.checked_next_multiple_of(unit.unwrap_or(1))?;
        if length == old {
            return Some(start);
        }
        if unit.is_some() && length > old {
            // The kernel does not let such a mapping grow.
            let place = self.allocate(bytes, BLOCK_BYTES, false)?;
            // SAFETY: both are the caller's, and so long.
            unsafe { core::ptr::copy_nonoverlapping(address, place.as_ptr(), old) };
            self.free(address);
            return Some(place);
        }
        if length < old {
            self.table.set(address.addr(), length, plain);
            give_back::<E>(Kept { address: address.expose_provenance() + length, length: old - length, plain });
            return Some(start);
        }
        let _placing = placing();
        let _moving = E::moving(run(address.addr(), old));
        // SAFETY: the block is the caller's; without MREMAP_MAYMOVE it stays where it is.
        if unsafe { memory::remap(address, old, length, 0, 0) }.is_ok() {
            self.table.set(address.addr(), length, plain);
            if !plain {
                E::add(run(address.addr() + old, length - old), Kind::Large);
            }
            return Some(start);
        }
        let place = memory::map(length, BLOCK_BYTES, Protection::None).ok()?;
        if !self.table.set(place.addr().get(), length, plain) {
            // SAFETY: mapped above; nobody knows of it.
            let _ = unsafe { memory::unmap(place.as_ptr(), length) };
            return None;
        }
        // Before the kernel can give the old addresses to another thread.
        self.table.take(address.addr());
        // SAFETY: the old block is the caller's, the new place was mapped above.
        if unsafe { relocate(address, old, place.as_ptr(), length, Left::Nothing) }.is_err() {
            self.table.set(address.addr(), old, plain);
            self.table.take(place.addr().get());
            // SAFETY: mapped above; nobody knows of it.
            let _ = unsafe { memory::unmap(place.as_ptr(), length) };
            return None;
        }
        if !plain {
            E::moved(run(address.addr(), old), Page::containing(place.addr().get()));
        }
        if !plain {
            E::add(run(place.addr().get() + old, length - old), Kind::Large);
        }
        Some(place)
    }

    /// Gives back what is kept for later use; false when that was nothing.
    pub fn drain(&self) -> bool {
        let mut any = false;
        loop {
            let oldest = self.cache.lock().oldest();
            let Some(oldest) = oldest else { return any };
            give_back::<E>(oldest);
            any = true;
        }
    }

    /// Takes the lock for the duration of a fork, so that it is free in the child. With `alone` only if it is free: the one
    /// thread that there is may fork in a signal handler, with the lock in its own hands, and so it is in the child.
    pub fn freeze(&self, alone: bool) -> FrozenLarge<'_> {
        FrozenLarge { _guard: if alone { self.cache.try_lock() } else { Some(self.cache.lock()) } }
    }

    /// The first block that begins at `address` or behind it and is not a plain one, with its length.
    pub fn next(&self, address: usize) -> Option<(usize, usize)> {
        let mut from = address;
        loop {
            match self.table.next(from)? {
                (address, length, false) => return Some((address, length)),
                (address, length, true) => from = address + length,
            }
        }
    }

    /// Number of blocks in use.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    fn reuse(&self, kept: Kept, zeroed: bool) -> Option<NonNull<u8>> {
        let start: *mut u8 = core::ptr::with_exposed_provenance_mut(kept.address);
        if zeroed {
            // SAFETY: a mapping of so many bytes that nobody uses.
            unsafe { start.write_bytes(0, kept.length) };
        }
        if !self.table.set(kept.address, kept.length, kept.plain) {
            return None;
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        NonNull::new(start)
    }

    fn length_for(&self, bytes: usize) -> Option<usize> {
        // Without a session blocks are here to lie on large pages, of which they have whole ones.
        let whole = !E::in_session() && E::large_pages();
        let unit = if self.count.load(Ordering::Relaxed) < MANY && !whole { PAGE_BYTES } else { BLOCK_BYTES };
        let length = bytes.max(1).checked_next_multiple_of(unit)?;
        (length <= isize::MAX as usize).then_some(length)
    }
}

impl<E: Engine> Default for Large<E> {
    fn default() -> Large<E> {
        Large::new()
    }
}

/// While it exists, no large block is kept for later use or taken from those kept.
pub struct FrozenLarge<'a> {
    _guard: Option<Guard<'a, Cache>>,
}

fn run(address: usize, bytes: usize) -> Run {
    Run::inside(address, bytes)
}

/// Maps a block; with large pages where they are asked for.
fn map_block<E: Engine>(length: usize, align: usize, plain: bool) -> Option<NonNull<u8>> {
    let session = E::in_session();
    let start = map_aligned(length, align, session)?;
    if !plain && E::large_pages() {
        // SAFETY: advice on fresh memory loses nothing.
        let _ = unsafe { memory::advise(start.addr().get(), length, Advice::HugePage) };
    }
    Some(start)
}

const MAP_PRIVATE_ANONYMOUS: usize = 0x22;
const MAP_NORESERVE: usize = 0x4000;

/// Fresh memory at a multiple of `align`. Kernels since 6.7 align whole blocks by themselves, so they are asked first.
pub(crate) fn map_aligned(length: usize, align: usize, no_reserve: bool) -> Option<NonNull<u8>> {
    let flags = MAP_PRIVATE_ANONYMOUS | if no_reserve { MAP_NORESERVE } else { 0 };
    let map = |bytes: usize| {
        // SAFETY: without MAP_FIXED the kernel picks a range that nobody uses.
        unsafe { memory::mmap(0, bytes, Protection::ReadWrite as usize, flags, -1, 0) }.ok()
    };
    if length % align == 0 {
        let start = map(length)?;
        if start.addr() % align == 0 {
            return NonNull::new(start);
        }
        // SAFETY: mapped above; nobody knows of it.
        let _ = unsafe { memory::unmap(start, length) };
    }
    let extra = align - PAGE_BYTES;
    let start = map(length.checked_add(extra)?)?;
    let skip = start.addr().next_multiple_of(align) - start.addr();
    // SAFETY: head and tail of the mapping made above.
    unsafe {
        if skip > 0 {
            let _ = memory::unmap(start, skip);
        }
        if extra > skip {
            let _ = memory::unmap(start.add(skip + length), extra - skip);
        }
        NonNull::new(start.add(skip))
    }
}

/// Unmaps a block. No fork comes between the engine's hearing of it and the kernel's: a child would have neither the mapping nor
/// word that it is gone, and would take what it maps there for the block.
fn give_back<E: Engine>(block: Kept) {
    let _placing = placing();
    unmap::<E>(block);
}

/// The same where the caller is placing.
fn unmap<E: Engine>(block: Kept) {
    let pooled = E::pool_unit(block.address).is_some();
    if !pooled {
        E::remove(run(block.address, block.length));
    }
    let start: *mut u8 = core::ptr::with_exposed_provenance_mut(block.address);
    // SAFETY: a whole block, or the end of one, that its owner has given up.
    unsafe {
        if memory::unmap(start, block.length).is_err() {
            // As many mappings as a process may have: the addresses are lost, the memory is not.
            let _ = memory::advise(block.address, block.length, Advice::DontNeed);
        }
    }
    if pooled {
        E::unpooled(run(block.address, block.length));
    }
}

#[cfg(test)]
mod tests;
