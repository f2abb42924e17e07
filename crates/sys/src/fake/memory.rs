//! The fake's memory: pages of the program with what each must hold, and the places of the staging area.
//! Contents are one word per page; what a program may read is kept beside what is mapped, and never derived from it.

use ream_page::{BLOCK_PAGES, Block, Page, Run};
use std::boxed::Box;
use std::collections::{BTreeMap, BTreeSet};
use std::vec::Vec;

/// What a page holds: a word that stands for its 4096 bytes. Zero stands for a page of zeros.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash, PartialOrd, Ord)]
pub struct Content(pub u64);

impl Content {
    /// A page of zeros.
    pub const ZERO: Content = Content(0);
    const JUNK: u64 = 0xbad0 << 48;

    /// What nobody wrote: left-overs of failed reads, slots without content.
    pub(super) const fn junk(n: u64) -> Content {
        Content(Content::JUNK | n)
    }

    /// Whether it is what nobody wrote.
    pub const fn is_junk(self) -> bool {
        self.0 >> 48 == Content::JUNK >> 48
    }
}

/// What the program may find in a page.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Expect {
    /// What was written last.
    pub value: Content,
    /// Zeros are right as well: a discard is under way, or raced with the last write.
    pub or_zero: bool,
    /// Discards under way.
    discards: u8,
    /// Written since the latest of them began.
    written: bool,
}

impl Expect {
    pub const fn allows(&self, content: Content) -> bool {
        content.0 == self.value.0 || self.or_zero && content.0 == 0
    }

    pub fn note_write(&mut self, content: Content) {
        self.value = content;
        self.written = true;
        self.or_zero = self.discards > 0;
    }

    /// What was read settles what was open.
    pub fn note_read(&mut self, content: Content) {
        if self.discards == 0 {
            self.value = content;
            self.or_zero = false;
        }
    }

    pub fn discard_begins(&mut self) {
        self.discards += 1;
        self.or_zero = true;
        self.written = false;
    }

    pub fn discard_ends(&mut self, mapped: Option<Content>) {
        self.discards = self.discards.saturating_sub(1);
        if self.discards == 0 && !self.written {
            self.value = Content::ZERO;
            self.or_zero = false;
        }
        if let Some(content) = mapped.filter(|c| self.allows(*c)) {
            self.note_read(content);
        }
    }
}

/// One page of the program.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Cell {
    /// Mapped content; `None` is an absent page.
    pub content: Option<Content>,
    /// It maps the shared zero page and costs no memory.
    pub zero_page: bool,
    pub registered: bool,
    /// Write-protected: a write is reported.
    pub guarded: bool,
    pub pinned: bool,
    pub shared: bool,
    /// The mapping it belongs to; 0 is none.
    pub mapping: u32,
    /// The NUMA node on which its memory lies.
    pub node: u8,
    pub expect: Expect,
}

/// What holds for a whole mapping.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mapping {
    pub writable: bool,
    pub locked: bool,
    /// MADV_HUGEPAGE: a first write outside registered ranges maps a large page.
    pub huge: bool,
}

/// The pages of one block.
#[derive(Clone)]
pub(super) struct Cells {
    pub cells: [Cell; BLOCK_PAGES as usize],
    /// Mapped by one large page.
    pub huge: bool,
    /// A page table hangs under the block: a large page moved in would be split.
    pub table: bool,
    /// Pages of memory behind its registered pages.
    pub backed: i64,
}

/// The program's address space.
#[derive(Clone)]
pub(super) struct Memory {
    blocks: BTreeMap<u64, Box<Cells>>,
    mappings: Vec<Mapping>,
    /// What is mapped, for picking pages at random.
    pub areas: Vec<Run>,
    /// Pages of memory behind what is mapped in registered ranges, and elsewhere.
    pub backed: u64,
    pub outside: u64,
    /// Blocks with memory behind registered pages.
    pub blocks_backed: u64,
    /// Large pages split.
    pub splits: u64,
}

impl Memory {
    pub fn new() -> Memory {
        let none = Mapping { writable: false, locked: false, huge: false };
        Memory {
            blocks: BTreeMap::new(),
            mappings: std::vec![none],
            areas: Vec::new(),
            backed: 0,
            outside: 0,
            blocks_backed: 0,
            splits: 0,
        }
    }

    pub fn cell(&self, page: Page) -> Cell {
        self.blocks.get(&page.block().0).map_or_else(Cell::default, |b| b.cells[page.in_block()])
    }

    pub fn block(&mut self, block: Block) -> &mut Cells {
        self.blocks.entry(block.0).or_insert_with(|| {
            Box::new(Cells { cells: [Cell::default(); BLOCK_PAGES as usize], huge: false, table: false, backed: 0 })
        })
    }

    pub fn cell_mut(&mut self, page: Page) -> &mut Cell {
        &mut self.block(page.block()).cells[page.in_block()]
    }

    pub fn mapping(&self, id: u32) -> Mapping {
        self.mappings[id as usize]
    }

    pub fn new_mapping(&mut self, mapping: Mapping) -> u32 {
        self.mappings.push(mapping);
        self.mappings.len() as u32 - 1
    }

    /// Whether no page of the block is mapped.
    pub fn block_absent(&self, block: Block) -> bool {
        self.blocks.get(&block.0).is_none_or(|b| b.cells.iter().all(|c| c.content.is_none()))
    }

    pub fn is_huge(&self, block: Block) -> bool {
        self.blocks.get(&block.0).is_some_and(|b| b.huge)
    }

    /// Ends the mapping of a block by one large page.
    pub fn split(&mut self, block: Block) {
        let cells = self.block(block);
        if cells.huge {
            cells.huge = false;
            cells.table = true;
            self.splits += 1;
        }
    }

    /// Maps one small page.
    pub fn install(&mut self, page: Page, content: Content, zero_page: bool) {
        let cells = self.block(page.block());
        cells.table = true;
        let cell = &mut cells.cells[page.in_block()];
        debug_assert!(cell.content.is_none());
        cell.content = Some(content);
        cell.zero_page = zero_page;
        cell.shared = false;
        cell.pinned = false;
        let registered = cell.registered;
        self.charge(page.block(), registered, !zero_page as i64);
    }

    /// Counts memory behind a page, or no longer.
    pub fn charge(&mut self, block: Block, registered: bool, pages: i64) {
        if !registered {
            self.outside = self.outside.wrapping_add_signed(pages);
            return;
        }
        self.backed = self.backed.wrapping_add_signed(pages);
        let count = &mut self.block(block).backed;
        let before = *count;
        *count += pages;
        self.blocks_backed += (before == 0 && pages > 0) as u64;
        self.blocks_backed -= (before > 0 && before + pages == 0) as u64;
    }

    /// Registers or deregisters a page.
    pub fn set_registered(&mut self, page: Page, on: bool) {
        let cell = self.cell(page);
        if cell.registered != on {
            let cost = (cell.content.is_some() && !cell.zero_page) as i64;
            self.charge(page.block(), cell.registered, -cost);
            self.charge(page.block(), on, cost);
            let cell = self.cell_mut(page);
            (cell.registered, cell.guarded) = (on, false);
        }
    }

    /// Unmaps one page and says what it held and whether that cost memory.
    pub fn remove(&mut self, page: Page) -> Option<(Content, bool)> {
        self.split(page.block());
        let cell = self.cell_mut(page);
        let content = cell.content.take()?;
        let zero_page = std::mem::take(&mut cell.zero_page);
        cell.shared = false;
        cell.pinned = false;
        cell.guarded = false;
        let registered = cell.registered;
        self.charge(page.block(), registered, -(!zero_page as i64));
        Some((content, zero_page))
    }

    /// Moves a whole block's large page out; the caller has checked that it is one.
    pub fn remove_huge(&mut self, block: Block) -> Vec<Content> {
        let registered = self.block(block).cells[0].registered;
        self.charge(block, registered, -(BLOCK_PAGES as i64));
        let cells = self.block(block);
        cells.huge = false;
        cells.cells.iter_mut().map(|c| c.content.take().unwrap_or_default()).collect()
    }

    /// Maps a block by one large page; the caller has checked that nothing is mapped and no table hangs there.
    pub fn install_huge(&mut self, block: Block, contents: &[Content]) {
        let registered = self.block(block).cells[0].registered;
        self.charge(block, registered, BLOCK_PAGES as i64);
        let cells = self.block(block);
        cells.huge = true;
        for (cell, content) in cells.cells.iter_mut().zip(contents) {
            cell.content = Some(*content);
        }
    }

    /// As a forked child finds it: nothing is registered or pinned.
    pub fn become_child(&mut self) {
        for cell in self.blocks.values_mut().flat_map(|b| &mut b.cells) {
            cell.registered = false;
            cell.guarded = false;
            cell.pinned = false;
        }
        for block in self.blocks.values_mut() {
            block.backed = 0;
        }
        self.blocks_backed = 0;
        self.outside += std::mem::take(&mut self.backed);
    }

    /// Whether any page is write-protected.
    pub fn any_guarded(&self) -> bool {
        self.blocks.values().flat_map(|block| &block.cells).any(|cell| cell.guarded)
    }

    /// Every mapped page is shared with another process.
    pub fn share_all(&mut self) {
        for cell in self.blocks.values_mut().flat_map(|b| &mut b.cells) {
            // A pinned page is copied at once for the child.
            cell.shared = cell.content.is_some() && !cell.zero_page && !cell.pinned;
        }
    }

    /// What the program must find in pages that are absent, zeros left out.
    pub fn absent_contents(&self) -> BTreeSet<Content> {
        let cells = self.blocks.values().flat_map(|b| &b.cells);
        let absent = cells.filter(|c| c.mapping != 0 && c.content.is_none());
        absent.map(|c| c.expect.value).filter(|c| *c != Content::ZERO).collect()
    }

    /// Forgets the areas' share of `run`.
    pub fn leave(&mut self, run: Run) {
        let mut rest = Vec::new();
        for area in &self.areas {
            let cut = area.and(run);
            if cut.pages == 0 {
                rest.push(*area);
                continue;
            }
            let before = Run { start: area.start, pages: cut.start.0 - area.start.0 };
            let after = Run { start: cut.end(), pages: area.end().0 - cut.end().0 };
            rest.extend([before, after].into_iter().filter(|r| r.pages > 0));
        }
        self.areas = rest;
    }
}

/// What uses a place of the staging area at the moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Use {
    Nothing,
    Reading(u32),
    Writing(u32),
}

/// One place of the staging area.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// `None` is an empty place.
    pub content: Option<Content>,
    pub zero_page: bool,
    pub used_by: Use,
    /// The NUMA node on which its memory lies.
    pub node: u8,
}

/// The staging area.
pub(super) struct Staging {
    pub places: Vec<Place>,
    pub huge_start: u32,
    /// Of each 512 places of the huge area: one large page; a page table hangs there.
    groups: Vec<(bool, bool)>,
    /// Pages of memory behind it.
    pub backed: u64,
    /// Large pages split.
    pub splits: u64,
}

impl Staging {
    pub fn new(small: u32, huge_groups: u32) -> Staging {
        let huge_start = small.next_multiple_of(BLOCK_PAGES);
        let empty = Place { content: None, zero_page: false, used_by: Use::Nothing, node: 0 };
        let places = std::vec![empty; (huge_start + huge_groups * BLOCK_PAGES) as usize];
        Staging { places, huge_start, groups: std::vec![(false, false); huge_groups as usize], backed: 0, splits: 0 }
    }

    fn group_index(&self, at: u32) -> Option<usize> {
        at.checked_sub(self.huge_start).map(|n| (n / BLOCK_PAGES) as usize)
    }

    /// Whether a whole group starts at `at` and `pages` cover it.
    pub fn covers_group(&self, at: u32, pages: u32) -> bool {
        at >= self.huge_start && at % BLOCK_PAGES == 0 && pages >= BLOCK_PAGES
    }

    /// Whether the group that starts at `at` is one large page, nothing uses it.
    pub fn is_huge(&self, at: u32) -> bool {
        self.group_index(at).is_some_and(|g| self.groups[g].0)
    }

    /// Whether a large page can appear in the group that `at` lies in: all of it empty and no table under it.
    pub fn takes_huge(&self, at: u32) -> bool {
        let Some(group) = self.group_index(at) else { return false };
        let first = (self.huge_start + group as u32 * BLOCK_PAGES) as usize;
        let all_empty = self.places[first..first + BLOCK_PAGES as usize].iter().all(|p| p.content.is_none());
        !self.groups[group].1 && all_empty
    }

    fn split(&mut self, at: u32) {
        if let Some(group) = self.group_index(at) {
            self.splits += self.groups[group].0 as u64;
            self.groups[group] = (false, true);
        }
    }

    /// Puts a small page into an empty place, or overwrites what a populated one holds.
    pub fn put(&mut self, at: u32, content: Content, zero_page: bool) {
        if self.places[at as usize].content.is_none() {
            self.split(at);
            self.backed += !zero_page as u64;
        } else if self.places[at as usize].zero_page && !zero_page {
            self.backed += 1;
        }
        let place = &mut self.places[at as usize];
        place.content = Some(content);
        place.zero_page = zero_page;
    }

    /// Takes a small page out of its place.
    pub fn take(&mut self, at: u32) -> Option<(Content, bool)> {
        let place = &mut self.places[at as usize];
        let content = place.content.take()?;
        let zero_page = std::mem::take(&mut place.zero_page);
        self.backed -= !zero_page as u64;
        self.split(at);
        Some((content, zero_page))
    }

    pub fn put_huge(&mut self, at: u32, contents: &[Content]) {
        self.backed += BLOCK_PAGES as u64;
        for (place, content) in self.places[at as usize..].iter_mut().zip(contents) {
            place.content = Some(*content);
            place.zero_page = false;
        }
        if let Some(group) = self.group_index(at) {
            self.groups[group] = (true, false);
        }
    }

    pub fn take_huge(&mut self, at: u32) -> Vec<Content> {
        self.backed -= BLOCK_PAGES as u64;
        if let Some(group) = self.group_index(at) {
            self.groups[group] = (false, false);
        }
        let places = &mut self.places[at as usize..(at + BLOCK_PAGES) as usize];
        places.iter_mut().map(|p| p.content.take().unwrap_or_default()).collect()
    }

    /// A whole group was given back: its page table went with it.
    pub fn forget_table(&mut self, at: u32) {
        if let Some(group) = self.group_index(at) {
            self.groups[group] = (false, false);
        }
    }
}
