//! The state of every managed page, by address: blocks of 512 words and hashes, found through a two-level table.

mod room;

use ream_page::{ADDRESS_BITS, BLOCK_BYTES, BLOCK_PAGES, Block, Page, Run, State, Word};
use ream_sys::Errno;
use ream_sys::memory::{MapSlice, Zeroable};

/// Address bits of user space on the supported machines, in blocks.
const LEVEL_BITS: u32 = 13;
const LEVEL: usize = 1 << LEVEL_BITS;
/// Entries of the upper level, each for 16 GiB.
const TOP: usize = 1 << (ADDRESS_BITS - BLOCK_BYTES.ilog2() - LEVEL_BITS);
/// Blocks per allocation of metadata.
const CHUNK: usize = 32;

/// Entry of a block all of whose pages are managed and Zero: it needs no metadata.
const ALL_ZERO: *mut Meta = core::ptr::without_provenance_mut(1);

/// Everything known about the pages of one block.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Meta {
    words: [u64; BLOCK_PAGES as usize],
    hashes: [u64; BLOCK_PAGES as usize],
    /// One bit for each page that must not be moved out for now.
    held: [u64; BLOCK_PAGES as usize / 64],
    block: u64,
    next_free: *mut Meta,
    managed: u32,
    resident: u32,
    /// Pages brought back one by one since the block was last moved out whole.
    rescued: u32,
    flags: u32,
}

const HUGE: u32 = 1;
const IN_USE: u32 = 2;
/// Pages of it may be guarded.
const GUARDED: u32 = 4;
/// It has left as one.
const AS_ONE: u32 = 8;
/// From this bit on: the block's NUMA node and one, or 0.
const NODE: u32 = 8;
/// From this bit on: the block's epoch.
const EPOCH: u32 = 16;

// SAFETY: needed to keep metadata in zeroed mapped memory; all-zero bytes are a valid Meta (no pages managed, null link).
unsafe impl Zeroable for Meta {}

impl Meta {
    /// Number of Resident pages.
    pub fn resident(&self) -> u32 {
        self.resident
    }
    /// Whether the block is thought to be mapped by a large page.
    pub fn huge(&self) -> bool {
        self.flags & HUGE != 0
    }
    /// Says whether the block is mapped by a large page.
    pub fn set_huge(&mut self, on: bool) {
        self.flags = if on { self.flags | HUGE } else { self.flags & !HUGE };
    }
    /// Pages of the block may be guarded from now on.
    pub fn set_guarded(&mut self) {
        self.flags |= GUARDED;
    }
    /// Whether the block has left as one, and is to be written so.
    pub fn as_one(&self) -> bool {
        self.flags & AS_ONE != 0
    }
    /// Says whether it has.
    pub fn set_as_one(&mut self, on: bool) {
        self.flags = if on { self.flags | AS_ONE } else { self.flags & !AS_ONE };
    }
    /// Changes whenever a page becomes Resident after there was none: what was queued of the block's Resident pages in an
    /// earlier epoch is not there any more.
    pub fn epoch(&self) -> u32 {
        self.flags >> EPOCH
    }
    /// The NUMA node to which pages of the block come back, once it has one.
    pub fn node(&self) -> Option<u8> {
        ((self.flags >> NODE) as u8).checked_sub(1)
    }
    /// Sets it.
    pub fn set_node(&mut self, node: u8) {
        self.flags = self.flags & !(0xff << NODE) | (node as u32 + 1) << NODE;
    }
    /// Whether the page at this place of the block must not be moved out for now.
    pub fn held(&self, index: usize) -> bool {
        self.held.get(index / 64).is_some_and(|bits| bits >> (index % 64) & 1 != 0)
    }
    /// Says whether that page must stay.
    fn set_held(&mut self, index: usize, on: bool) {
        if let Some(bits) = self.held.get_mut(index / 64) {
            let bit = 1 << (index % 64);
            *bits = if on { *bits | bit } else { *bits & !bit };
        }
    }
    /// Pages brought back one by one since the block was moved out whole.
    pub fn rescued(&mut self) -> &mut u32 {
        &mut self.rescued
    }
}

/// The table of blocks. Owned by the pager thread; a forked child inherits a copy.
pub struct Table {
    top: MapSlice<usize>,
    free: *mut Meta,
    blocks: u64,
    /// Blocks that are managed and Zero, without metadata.
    all_zeros: u64,
    /// Blocks that there is room for, in chunks and in what is spare.
    room: u64,
    /// Addresses for chunks that are not in use yet.
    spare: *mut room::Spare,
    /// Resident pages that must not be moved out for now.
    held_resident: u64,
    first_chunk: *mut Chunk,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Chunk {
    next: *mut Chunk,
    metas: [Meta; CHUNK],
}

// SAFETY: as for Meta.
unsafe impl Zeroable for Chunk {}

// SAFETY: needed to hand the table to the pager's thread at its start; the pointers lead to memory that the table alone
// owns and never frees.
unsafe impl Send for Table {}

impl Table {
    /// An empty table.
    pub fn new() -> Result<Table, Errno> {
        Ok(Table {
            top: MapSlice::new(TOP)?,
            free: core::ptr::null_mut(),
            blocks: 0,
            all_zeros: 0,
            room: 0,
            spare: core::ptr::null_mut(),
            held_resident: 0,
            first_chunk: core::ptr::null_mut(),
        })
    }

    /// Blocks with metadata.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Resident pages that must not be moved out for now.
    pub fn held_resident(&self) -> u64 {
        self.held_resident
    }

    fn find(&self, block: Block) -> *mut Meta {
        let high = (block.0 >> LEVEL_BITS) as usize;
        let low = (block.0 & (LEVEL as u64 - 1)) as usize;
        match self.top.get(high) {
            Some(&leaf) if leaf != 0 => {
                // SAFETY: a non-zero entry is the address of a leaf of LEVEL pointers that is never freed; low < LEVEL.
                unsafe { *(leaf as *const *mut Meta).add(low) }
            }
            _ => core::ptr::null_mut(),
        }
    }

    /// The block's metadata: none when no page of it is managed, or all are and are Zero.
    pub fn meta(&self, block: Block) -> Option<&Meta> {
        match self.find(block) {
            ALL_ZERO => None,
            // SAFETY: other entries are null or point to a Meta in a chunk that is never freed; `&self` forbids writers.
            meta => unsafe { meta.as_ref() },
        }
    }

    /// The same, to change it.
    pub fn meta_mut(&mut self, block: Block) -> Option<&mut Meta> {
        match self.find(block) {
            ALL_ZERO => None,
            // SAFETY: as in `meta`; `&mut self` makes the access exclusive.
            meta => unsafe { meta.as_mut() },
        }
    }

    /// Whether all pages of the block are managed and Zero, without metadata.
    pub fn all_zero(&self, block: Block) -> bool {
        self.find(block) == ALL_ZERO
    }

    /// Whether all pages of the block are managed.
    pub fn manages_all(&self, block: Block) -> bool {
        self.all_zero(block) || self.meta(block).is_some_and(|meta| meta.managed == BLOCK_PAGES)
    }

    /// Tells the parts of a range that are managed, as long as they can be, in order of address.
    pub fn each_managed(&self, run: Run, tell: &mut dyn FnMut(Run)) {
        let mut part = Run { start: run.start, pages: 0 };
        let mut add = |next: Run| {
            if next.pages > 0 && part.end() == next.start {
                part.pages += next.pages;
                return;
            }
            if part.pages > 0 {
                tell(part);
            }
            part = next;
        };
        for (block, within) in blocks(run) {
            if self.manages_all(block) {
                add(within);
            } else if self.meta(block).is_some() {
                let managed = pages(within).filter(|page| self.word(*page).state() != State::Unmanaged);
                managed.for_each(|page| add(Run { start: page, pages: 1 }));
            }
        }
        add(Run { start: run.end(), pages: 0 });
    }

    /// The leaf in which a block's entry is.
    fn leaf(&mut self, block: Block) -> Result<*mut *mut Meta, Errno> {
        let high = (block.0 >> LEVEL_BITS) as usize;
        if *self.top.get(high).ok_or(Errno(22))? == 0 {
            let leaf = match MapSlice::<usize>::new(LEVEL) {
                Ok(leaf) => leaf.leak().as_mut_ptr(),
                // A chunk is larger, and zeros as well.
                Err(error) => self.take_spare().ok_or(error)?.cast(),
            };
            *self.top.get_mut(high).ok_or(Errno(22))? = leaf as usize;
        }
        Ok(*self.top.get(high).ok_or(Errno(22))? as *mut *mut Meta)
    }

    fn set_entry(&mut self, block: Block, meta: *mut Meta) -> Result<(), Errno> {
        let low = (block.0 & (LEVEL as u64 - 1)) as usize;
        // SAFETY: a leaf holds LEVEL pointers and is never freed; low < LEVEL; `&mut self` makes the access exclusive.
        let entry = unsafe { &mut *self.leaf(block)?.add(low) };
        self.all_zeros = self.all_zeros + (meta == ALL_ZERO) as u64 - (*entry == ALL_ZERO) as u64;
        *entry = meta;
        Ok(())
    }

    fn meta_or_new(&mut self, block: Block) -> Result<&mut Meta, Errno> {
        let entry = self.find(block);
        if entry.is_null() || entry == ALL_ZERO {
            if self.free.is_null() {
                self.grow()?;
            }
            let meta = self.free;
            self.set_entry(block, meta)?;
            // SAFETY: `grow` left a valid, unused Meta at the head of the free list; `&mut self` makes the access
            // exclusive.
            unsafe {
                self.free = (*meta).next_free;
                (*meta).next_free = core::ptr::null_mut();
                (*meta).block = block.0;
                (*meta).flags = IN_USE;
                if entry == ALL_ZERO {
                    (*meta).words = [zero_word(); BLOCK_PAGES as usize];
                    (*meta).managed = BLOCK_PAGES;
                }
            }
            self.blocks += 1;
        }
        self.meta_mut(block).ok_or(Errno(12))
    }

    fn grow(&mut self) -> Result<(), Errno> {
        let chunk: *mut Chunk = match self.take_spare() {
            Some(chunk) => chunk,
            None => MapSlice::<Chunk>::new(1)?.leak().as_mut_ptr(),
        };
        self.room += CHUNK as u64;
        // SAFETY: the chunk is zeroed, large enough, never freed, and known to nobody else.
        unsafe {
            (*chunk).next = self.first_chunk;
            self.first_chunk = chunk;
            for index in (0..CHUNK).rev() {
                let meta: *mut Meta = &raw mut (*chunk).metas[index];
                (*meta).next_free = self.free;
                self.free = meta;
            }
        }
        Ok(())
    }

    /// The page's word; the zero word (Unmanaged) where nothing is known.
    pub fn word(&self, page: Page) -> Word {
        match self.meta(page.block()) {
            Some(meta) => Word(meta.words.get(page.in_block()).copied().unwrap_or(0)),
            None if self.all_zero(page.block()) => Word(zero_word()),
            None => Word(0),
        }
    }

    /// Sets the word of a page in a block that was prepared, and keeps the counts. Returns false when there was no
    /// memory for the block's metadata.
    pub fn set(&mut self, page: Page, word: Word) -> bool {
        if self.all_zero(page.block()) && self.meta_or_new(page.block()).is_err() {
            return false;
        }
        self.set_known(page, word);
        true
    }

    fn set_known(&mut self, page: Page, word: Word) {
        let Some(meta) = self.meta_mut(page.block()) else { return };
        let Some(place) = meta.words.get_mut(page.in_block()) else { return };
        let old = Word(*place);
        *place = word.0;
        let was = (old.state() != State::Unmanaged, old.state() == State::Resident);
        let is = (word.state() != State::Unmanaged, word.state() == State::Resident);
        if meta.resident == 0 && is.1 {
            meta.flags = meta.flags.wrapping_add(1 << EPOCH);
        }
        meta.managed = meta.managed + is.0 as u32 - was.0 as u32;
        meta.resident = meta.resident + is.1 as u32 - was.1 as u32;
        if was.1 != is.1 && meta.held(page.in_block()) {
            self.held_resident = self.held_resident + is.1 as u64 - was.1 as u64;
        }
    }

    /// The hash of the content that the page's slot holds.
    pub fn hash(&self, page: Page) -> u64 {
        self.meta(page.block()).and_then(|meta| meta.hashes.get(page.in_block()).copied()).unwrap_or(0)
    }

    /// Sets the hash.
    pub fn set_hash(&mut self, page: Page, hash: u64) {
        if let Some(place) = self.meta_mut(page.block()).and_then(|meta| meta.hashes.get_mut(page.in_block())) {
            *place = hash;
        }
    }

    /// Whether the page must not be moved out for now.
    pub fn held(&self, page: Page) -> bool {
        self.meta(page.block()).is_some_and(|meta| meta.held(page.in_block()))
    }

    /// Says whether the managed pages of a run must stay. Returns false when there was no memory for that.
    pub fn set_held(&mut self, run: Run, on: bool) -> bool {
        for (block, part) in blocks(run) {
            if self.all_zero(block) {
                if !on {
                    continue;
                }
                if self.meta_or_new(block).is_err() {
                    return false;
                }
            }
            let mut change = 0i64;
            let Some(meta) = self.meta_mut(block) else { continue };
            for page in pages(part) {
                let word = Word(meta.words.get(page.in_block()).copied().unwrap_or(0));
                if meta.held(page.in_block()) != on && word.state() == State::Resident {
                    change += if on { 1 } else { -1 };
                }
                meta.set_held(page.in_block(), on);
            }
            self.held_resident = self.held_resident.wrapping_add_signed(change);
        }
        true
    }

    /// Makes the unmanaged pages of a run managed and Zero. Whole blocks cost nothing until a page of them is used.
    pub fn prepare(&mut self, run: Run) -> Result<(), Errno> {
        for (block, part) in blocks(run) {
            if part.pages == BLOCK_PAGES as u64 && self.find(block).is_null() {
                self.set_entry(block, ALL_ZERO)?;
                continue;
            }
            if self.all_zero(block) {
                continue;
            }
            self.meta_or_new(block)?;
            for page in pages(part) {
                if self.word(page).0 == 0 {
                    self.set_known(page, Word(zero_word()));
                }
            }
        }
        Ok(())
    }

    /// A block whose pages are all Zero, without metadata, is no longer managed.
    pub fn forget_all_zero(&mut self, block: Block) {
        if self.all_zero(block) {
            let _ = self.set_entry(block, core::ptr::null_mut());
        }
    }

    /// Drops the metadata of a block none of whose pages is managed. Returns whether it did.
    pub fn retire(&mut self, block: Block) -> bool {
        let meta = self.find(block);
        if meta.is_null() || meta == ALL_ZERO {
            return false;
        }
        // SAFETY: `meta` is a live entry of the table and `&mut self` makes the access exclusive; the leaf exists
        // because the entry was found through it.
        unsafe {
            if (*meta).managed != 0 {
                return false;
            }
            let high = (block.0 >> LEVEL_BITS) as usize;
            let low = (block.0 & (LEVEL as u64 - 1)) as usize;
            if let Some(leaf) = self.top.get(high) {
                *(*leaf as *mut *mut Meta).add(low) = core::ptr::null_mut();
            }
            core::ptr::write_bytes(meta, 0, 1);
            (*meta).next_free = self.free;
            self.free = meta;
        }
        self.blocks -= 1;
        true
    }
}

/// The word of a page that is managed and Zero.
const fn zero_word() -> u64 {
    match Word(0).step(ream_page::Step::Manage) {
        Some(word) => word.0,
        None => 0,
    }
}

impl Table {
    /// Calls `visit` for every run of resident pages within a block, in the order in which blocks were first used.
    pub fn each_resident(&self, mut visit: impl FnMut(Run)) {
        let mut chunk: *const Chunk = self.first_chunk;
        while !chunk.is_null() {
            // SAFETY: chunks are linked by `grow`, valid and never freed; `&self` forbids writers.
            let (metas, next) = unsafe { (&(*chunk).metas, (*chunk).next) };
            for meta in metas.iter().filter(|meta| meta.flags & IN_USE != 0 && meta.resident > 0) {
                let first = Block(meta.block).run().start;
                let is =
                    |index: usize| meta.words.get(index).is_some_and(|word| Word(*word).state() == State::Resident);
                let mut index = 0;
                while index < BLOCK_PAGES as usize {
                    let length = (index..BLOCK_PAGES as usize).take_while(|index| is(*index)).count();
                    if length > 0 {
                        visit(Run { start: first.plus(index as u32), pages: length as u64 });
                    }
                    index += length.max(1);
                }
            }
            chunk = next;
        }
    }

    /// Calls `visit` with the words of every block that has metadata; the visitor must keep each page's state.
    pub fn each_words_mut(&mut self, mut visit: impl FnMut(&mut [u64; BLOCK_PAGES as usize])) {
        self.each_meta_mut(|meta| visit(&mut meta.words));
    }

    /// Ends the guards of all pages: calls `end` for each block that has some and, where that answers false, for those pages one
    /// by one. Those for which it answers false, too, stay guarded. Returns whether there are none.
    pub fn end_guards(&mut self, mut end: impl FnMut(Run) -> bool) -> bool {
        let mut all = true;
        self.each_meta_mut(|meta| {
            if meta.flags & GUARDED == 0 {
                return;
            }
            let block = Block(meta.block);
            let guarded = |word: &u64| Word(*word).guarded();
            let whole = !meta.words.iter().any(guarded) || end(block.run());
            let mut left = false;
            for (index, word) in meta.words.iter_mut().enumerate().filter(|(_, word)| guarded(word)) {
                if whole || end(Run { start: block.first().plus(index as u32), pages: 1 }) {
                    *word = Word(*word).with_guard(false).0;
                } else {
                    left = true;
                }
            }
            if !left {
                meta.flags &= !GUARDED;
            }
            all &= !left;
        });
        all
    }

    fn each_meta_mut(&mut self, mut visit: impl FnMut(&mut Meta)) {
        let mut chunk = self.first_chunk;
        while !chunk.is_null() {
            // SAFETY: chunks are linked by `grow`, valid and never freed; `&mut self` makes the access exclusive.
            let (metas, next) = unsafe { (&mut (*chunk).metas, (*chunk).next) };
            for meta in metas.iter_mut().filter(|meta| meta.flags & IN_USE != 0) {
                visit(meta);
            }
            chunk = next;
        }
    }
}

/// The blocks that a run touches, each with the part of the run inside it.
pub fn blocks(run: Run) -> impl Iterator<Item = (Block, Run)> {
    let first = run.start.block().0;
    let last = if run.pages == 0 { first } else { Page(run.end().0 - 1).block().0 + 1 };
    (first..last).map(move |number| (Block(number), Block(number).run().and(run)))
}

/// The pages of a run.
pub fn pages(run: Run) -> impl Iterator<Item = Page> {
    (run.start.0..run.start.0 + run.pages).map(Page)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ream_page::Step;

    #[test]
    fn counts_follow_the_words() {
        let mut table = Table::new().unwrap();
        let run = Run { start: Page(510), pages: 4 };
        table.prepare(run).unwrap();
        table.prepare(run).unwrap();
        assert_eq!(table.blocks(), 2);
        for page in pages(run) {
            assert_eq!(table.word(page).state(), State::Zero);
            table.set(page, table.word(page).step(Step::Fill).unwrap());
        }
        assert_eq!(table.meta(Block(0)).unwrap().resident(), 2);
        assert_eq!(table.word(Page(513)).state(), State::Resident);
        assert_eq!(table.word(Page(514)).state(), State::Unmanaged);
        assert!(!table.retire(Block(0)));
        for page in pages(run) {
            table.set(page, Word(0));
        }
        assert!(table.retire(Block(0)) && table.retire(Block(1)));
        assert_eq!(table.blocks(), 0);
        let mut seen = 0;
        table.each_words_mut(|_| seen += 1);
        assert_eq!(seen, 0);
    }

    #[test]
    fn held_pages_are_counted_while_resident() {
        let mut table = Table::new().unwrap();
        let run = Run { start: Page(512), pages: 512 };
        table.prepare(run).unwrap();
        assert!(table.set_held(Run { start: Page(510), pages: 6 }, true));
        assert!(!table.held(Page(511)) && table.held(Page(512)) && table.held(Page(515)) && !table.held(Page(516)));
        assert_eq!(table.held_resident(), 0);
        for page in pages(run) {
            table.set(page, table.word(page).step(Step::Fill).unwrap());
        }
        assert_eq!(table.held_resident(), 4);
        assert!(table.set_held(Run { start: Page(515), pages: 100 }, true));
        assert_eq!(table.held_resident(), 103);
        assert!(table.set_held(run, false));
        assert_eq!(table.held_resident(), 0);
        assert!(!table.held(Page(515)));
    }

    #[test]
    fn whole_blocks_cost_nothing_until_used() {
        let mut table = Table::new().unwrap();
        table.prepare(Run { start: Page(512 * 8), pages: 512 << 19 }).unwrap();
        assert_eq!(table.blocks(), 0);
        let page = Page(512 * 100 + 7);
        assert_eq!(table.word(page).state(), State::Zero);
        table.set(page, table.word(page).step(Step::Fill).unwrap());
        assert_eq!(table.blocks(), 1);
        assert_eq!(table.word(page).state(), State::Resident);
        assert_eq!(table.word(page.plus(1)).state(), State::Zero);
        table.forget_all_zero(Block(101));
        assert_eq!(table.word(Page(512 * 101)).state(), State::Unmanaged);
    }
}
