//! Blocks of `ream_alloc`: mappings of their own, with the pages and the treatment that the caller asked for, and a name.

use super::caller;
use crate::engine::{self, volumes, wishes};
use crate::heap::in_session;
use crate::kernel::*;
use crate::regions::{Kind, Regions};
use crate::{holds, maps, pages};
use core::ffi::CStr;
use ream_heap::placing;
use ream_page::{BLOCK_BYTES, PAGE_BYTES, Page, Run};
use ream_stats::{Phases, Region};
use ream_sys::Errno;
use ream_sys::futex::{Guard, Mutex};
use ream_sys::memory::{MapSlice, Zeroable};
use ream_sys::process::{SignalSet, set_signal_mask};

/// Never paged.
pub const RESIDENT: u32 = 1;
/// Paged once it is unpinned.
pub const PINNED: u32 = 2;

/// Advice against large pages.
const MADV_NOHUGEPAGE: usize = 15;
/// Largest block.
const MOST: usize = 1 << 46;

/// A block.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Block {
    /// Its number, in the order of allocation; 0 for a place that is free.
    pub number: u64,
    pub start: usize,
    pub bytes: usize,
    pub flags: u32,
    /// 1 when it is managed.
    pub managed: u32,
    /// Pages of the budget that it takes for itself alone.
    taken: u64,
    pub name: [u8; 32],
}

// SAFETY: numbers; nothing happens at drop.
unsafe impl Zeroable for Block {}

struct Blocks {
    /// Which place in `list` the block at a page has.
    places: Regions<u32>,
    list: MapSlice<Block>,
    /// Places of `list` that were ever used, and one that may be free.
    used: usize,
    free: usize,
    numbers: u64,
}

static BLOCKS: Mutex<Blocks> =
    Mutex::new(Blocks { places: Regions::new(), list: MapSlice::empty(), used: 0, free: 0, numbers: 0 });

/// While it exists, in a fork, no block comes or goes.
pub struct Frozen {
    _blocks: Guard<'static, Blocks>,
}

/// Takes the lock for the duration of a fork. Signals are blocked then.
pub fn freeze() -> Frozen {
    Frozen { _blocks: BLOCKS.lock() }
}

/// In a child: the budget counts what its parent has taken, and not what the child has of it.
pub fn fork_child() {
    with_blocks(|blocks| {
        let used = blocks.used;
        blocks.list.as_mut_slice().iter_mut().take(used).for_each(|block| block.taken = 0);
    });
}

/// Runs `work` on the list with all signals blocked: a handler may come to use it, too. No other lock is taken inside.
fn with_blocks<T>(work: impl FnOnce(&mut Blocks) -> T) -> T {
    let before = set_signal_mask(SignalSet::ALL);
    let result = work(&mut BLOCKS.lock());
    set_signal_mask(before);
    result
}

fn run(block: &Block) -> Run {
    Run::inside(block.start, block.bytes)
}

impl Blocks {
    fn enter(&mut self, mut block: Block) -> Result<(), Errno> {
        let is_free = |block: &Block| block.number == 0;
        let place = match self.list.get(self.free).filter(|_| self.free < self.used) {
            Some(block) if is_free(block) => self.free,
            _ => self.used,
        };
        if place == self.list.len() {
            let mut larger = MapSlice::<Block>::new((place * 2).max(64))?;
            for (to, from) in larger.as_mut_slice().iter_mut().zip(self.list.as_slice()) {
                *to = *from;
            }
            self.list = larger;
        }
        self.numbers += 1;
        block.number = self.numbers;
        self.places.insert(run(&block), place as u32)?;
        if let Some(entry) = self.list.get_mut(place) {
            *entry = block;
        }
        self.used = self.used.max(place + 1);
        // The next place that was freed, if there is one near.
        let near = self.list.as_slice().iter().take(self.used).skip(place + 1).take(64).position(is_free);
        self.free = near.map_or(self.used, |offset| place + 1 + offset);
        Ok(())
    }

    fn at(&self, page: Page) -> Option<(usize, Block)> {
        let place = self.places.kind_of(page)? as usize;
        Some((place, *self.list.get(place)?))
    }

    fn take(&mut self, start: usize) -> Option<Block> {
        let (place, block) = self.at(Page::containing(start))?;
        if block.start != start {
            return None;
        }
        self.places.remove(run(&block));
        if let Some(entry) = self.list.get_mut(place) {
            entry.number = 0;
        }
        self.free = self.free.min(place);
        Some(block)
    }
}

/// The first block that ends behind `page`.
pub fn next(page: Page) -> Option<Block> {
    with_blocks(|blocks| {
        let (_, place) = blocks.places.next_from(page)?;
        blocks.list.get(place as usize).copied()
    })
}

/// Whether a run lies in one block.
pub fn whole(run_of: Run) -> bool {
    with_blocks(|blocks| blocks.at(run_of.start).is_some_and(|(_, block)| run(&block).and(run_of) == run_of))
}

/// What a caller wishes.
#[derive(Default)]
struct Hints {
    page_bytes: u64,
    flags: u32,
    /// The volume of the store that its pages go to.
    volume: u8,
    name: [u8; 32],
}

impl Hints {
    const BYTES: usize = 40;

    fn read(from: usize) -> Result<Hints, Errno> {
        let mut hints = Hints::default();
        if from == 0 {
            return Ok(hints);
        }
        let size = caller::size(from)?;
        if size < size_of::<usize>() {
            return Err(Errno::INVAL);
        }
        let mut bytes = [0u8; Hints::BYTES];
        // What the library does not know yet is not looked at.
        if let Some(known) = bytes.get_mut(..size.min(Hints::BYTES)) {
            caller::get(from, known)?;
        }
        let mut words = [0u64; 5];
        for (word, piece) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = piece.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte));
        }
        let [_, page_bytes, flags, store, name] = words;
        hints.page_bytes = page_bytes;
        hints.flags = u32::try_from(flags).map_err(|_| Errno::INVAL)?;
        if hints.flags & !(RESIDENT | PINNED) != 0 || hints.flags == RESIDENT | PINNED {
            return Err(Errno::INVAL);
        }
        if !matches!(page_bytes, 0 | 0x1000 | 0x20_0000) {
            return Err(Errno::OPNOTSUPP);
        }
        if store != 0 {
            let mut name = [0; volumes::NAME];
            caller::text(store as usize, &mut name)?;
            hints.volume = volumes::find(CStr::from_bytes_until_nul(&name).map_err(|_| Errno::INVAL)?)?;
        }
        if name != 0 {
            let length = caller::text(name as usize, &mut hints.name)?;
            if !Phases::is_name(hints.name.get(..length).unwrap_or(&[])) {
                return Err(Errno::INVAL);
            }
            hints.name.iter_mut().skip(length).for_each(|byte| *byte = 0);
        }
        Ok(hints)
    }
}

/// Makes a block.
pub fn allocate(bytes: usize, hints: usize) -> Result<usize, Errno> {
    let hints = Hints::read(hints)?;
    if bytes == 0 {
        return Err(Errno::INVAL);
    }
    if bytes > MOST {
        return Err(Errno::NOMEM);
    }
    let length = Run::covering(0, bytes).bytes();
    let mut block = Block {
        number: 0,
        start: 0,
        bytes: length,
        flags: hints.flags,
        managed: (in_session() && hints.flags & RESIDENT == 0 && !holds::all_locked()).into(),
        taken: 0,
        name: hints.name,
    };
    if let (RESIDENT, Some((entry, session))) = (hints.flags, engine::account()) {
        let pages = (length / PAGE_BYTES) as u64;
        if !entry.pin_ahead(session.ledger(), pages) {
            return Err(Errno::NOMEM);
        }
        block.taken = pages;
        wishes::budget_changed();
    }
    map(&mut block, hints.page_bytes).inspect_err(|_| give_back(&block))?;
    if hints.volume > 0 && block.managed != 0 {
        volumes::send(run(&block), hints.volume).inspect_err(|_| unmap(&block))?;
    }
    with_blocks(|blocks| blocks.enter(block)).inspect_err(|_| unmap(&block))?;
    if hints.flags == PINNED {
        let pinned = if in_session() { holds::pin(run(&block)) } else { mlock(block.start, length, 0) };
        pinned.inspect_err(|_| _ = free(block.start))?;
    }
    Ok(block.start)
}

fn map(block: &mut Block, page_bytes: u64) -> Result<(), Errno> {
    let reserve = if block.managed != 0 { MAP_NORESERVE } else { 0 };
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | reserve;
    let _placing = placing();
    // SAFETY: without MAP_FIXED the kernel picks a range that nobody uses.
    let fresh = |bytes| unsafe { mmap(0, bytes, PROT_READ_WRITE, flags, -1, 0) }.map(|start| start.addr());
    block.start = if block.bytes < BLOCK_BYTES { fresh(block.bytes)? } else { maps::at_block(block.bytes, fresh)? };
    let large = match page_bytes {
        0 => !in_session() || pages::wanted(Region::Heap).large(),
        bytes => bytes == BLOCK_BYTES as u64,
    };
    let advice = if large { MADV_HUGEPAGE } else { MADV_NOHUGEPAGE };
    if large || page_bytes != 0 {
        // SAFETY: advice on memory that nobody has used yet.
        let _ = unsafe { madvise(block.start, block.bytes, advice) };
    }
    if block.managed != 0 {
        engine::add(run(block), Kind::Large);
    }
    Ok(())
}

fn give_back(block: &Block) {
    if let (true, Some((entry, session))) = (block.taken > 0, engine::account()) {
        entry.unpin(session.ledger(), block.taken);
    }
}

fn unmap(block: &Block) {
    {
        let _placing = placing();
        engine::remove(run(block));
        volumes::forget(run(block));
        holds::forget(run(block));
        // SAFETY: a block that its owner has given up.
        if unsafe { munmap(block.start, block.bytes) }.is_err() {
            // As many mappings as a process may have: the addresses are lost, the memory is not.
            // SAFETY: as above.
            let _ = unsafe { madvise(block.start, block.bytes, MADV_DONTNEED_LOCKED) };
        }
    }
    give_back(block);
}

/// How many bytes the block has that begins at an address.
pub fn bytes_of(address: usize) -> Option<usize> {
    let (_, block) = with_blocks(|blocks| blocks.at(Page::containing(address)))?;
    (block.start == address).then_some(block.bytes)
}

/// Gives a block back, by its first byte.
pub fn free(address: usize) -> Result<(), Errno> {
    if address == 0 {
        return Ok(());
    }
    let block = with_blocks(|blocks| blocks.take(address)).ok_or(Errno::INVAL)?;
    unmap(&block);
    Ok(())
}
