//! System calls of the fake's program: mapping, unmapping, moving, protecting, discarding and pinning memory,
//! with or without the pager hearing of it.

use super::FakeMachine;
use super::memory::{Content, Mapping};
use super::threads::Access;
use crate::machine::Event;
use ream_page::{Page, Run};

impl FakeMachine {
    /// mmap: a private anonymous mapping, writable, not registered.
    pub fn map(&mut self, run: Run) {
        self.map_as(run, false);
    }

    /// The same with MADV_HUGEPAGE: before registration, the first write into a block maps a large page.
    pub fn map_huge(&mut self, run: Run) {
        self.map_as(run, true);
    }

    fn map_as(&mut self, run: Run, huge: bool) {
        self.note("(map)", run.start.0, 0, run.pages);
        let id = self.memory.new_mapping(Mapping { writable: true, locked: false, huge });
        for page in pages(run) {
            let cell = self.memory.cell_mut(page);
            if cell.mapping != 0 {
                self.fail("mapping over a mapping: error in the test");
            }
            cell.mapping = id;
        }
        self.memory.areas.push(run);
    }

    /// munmap: pages are gone at once; where the run was registered the calling thread stays in the call until the
    /// message has been read, see [`FakeMachine::unmap_is_done`].
    pub fn unmap(&mut self, run: Run) {
        self.unmap_then(run, false);
    }

    /// munmap by which the program goes on, as soon as the message has been read, with a new mapping at the same place
    /// and writes to it.
    pub fn unmap_and_map(&mut self, run: Run) {
        self.unmap_then(run, true);
    }

    fn unmap_then(&mut self, run: Run, map: bool) {
        self.note("(unmap)", run.start.0, map as u64, run.pages);
        let mut heard = Run { start: run.start, pages: 0 };
        for page in pages(run) {
            self.memory.remove(page);
            let cell = self.memory.cell_mut(page);
            let registered = cell.registered;
            *cell = Default::default();
            if registered && heard.end() == page {
                heard.pages += 1;
            } else if registered {
                self.send_unmapped(heard, map);
                heard = Run { start: page, pages: 1 };
            }
        }
        self.send_unmapped(heard, map);
        self.memory.leave(run);
    }

    fn send_unmapped(&mut self, run: Run, map: bool) {
        if run.pages > 0 {
            self.changes.push_back((Event::Unmapped { run }, map));
        }
    }

    /// Whether the threads that unmapped or moved mappings have returned from their calls.
    pub fn unmap_is_done(&self) -> bool {
        self.changes.is_empty()
    }

    pub(super) fn map_what_was_unmapped(&mut self) {
        for run in std::mem::take(&mut self.map_next) {
            self.map(run);
            for page in pages(run) {
                if self.random.one_in(2) {
                    let content = self.fresh_content();
                    self.touch(u32::MAX, page, Access::Write(content));
                }
            }
        }
    }

    /// mremap of a whole or partial mapping to a place where nothing is mapped. Registration moves along.
    pub fn remap(&mut self, from: Run, to: Page) {
        self.note("(remap)", from.start.0, to.0, from.pages);
        let first = self.memory.cell(from.start);
        let id = self.memory.new_mapping(self.memory.mapping(first.mapping));
        for n in 0..from.pages {
            let (old, new) = (Page(from.start.0 + n), Page(to.0 + n));
            self.memory.split(old.block());
            let cell = std::mem::take(self.memory.cell_mut(old));
            let cost = (cell.content.is_some() && !cell.zero_page) as i64;
            self.memory.charge(old.block(), cell.registered, -cost);
            self.memory.charge(new.block(), cell.registered, cost);
            let target = self.memory.block(new.block());
            if cell.mapping != first.mapping || target.cells[new.in_block()].mapping != 0 {
                self.fail("mremap of several mappings or over a mapping: error in the test");
            }
            target.table |= cell.content.is_some();
            target.cells[new.in_block()] = super::memory::Cell { mapping: id, ..cell };
        }
        self.memory.leave(from);
        self.memory.areas.push(Run { start: to, pages: from.pages });
        if first.registered {
            self.changes.push_back((Event::Remapped { from: from.start, to, pages: from.pages }, false));
        }
    }

    /// mprotect: cuts mappings, and pages of read-only ones do not move.
    pub fn protect(&mut self, run: Run, writable: bool) {
        self.cut(run, |m| Mapping { writable, ..m });
    }

    /// mlock or munlock without population: pages of locked mappings do not move.
    pub fn lock(&mut self, run: Run, locked: bool) {
        self.cut(run, |m| Mapping { locked, ..m });
    }

    fn cut(&mut self, run: Run, change: impl Fn(Mapping) -> Mapping) {
        let mut last = (0, 0);
        for page in pages(run) {
            let old = self.memory.cell(page).mapping;
            if old == 0 {
                self.fail("changing what is not mapped: error in the test");
            }
            if old != last.0 {
                let changed = change(self.memory.mapping(old));
                last = (old, self.memory.new_mapping(changed));
            }
            self.memory.cell_mut(page).mapping = last.1;
        }
    }

    /// madvise(MADV_DONTNEED) as the kernel does it, of which the pager hears nothing: mapped pages are gone and read
    /// as zeros from now on; absent ones stay what the pager makes of them.
    pub fn discard(&mut self, run: Run) {
        self.note("(discard)", run.start.0, 0, run.pages);
        for page in pages(run) {
            if self.memory.remove(page).is_some() {
                let expect = &mut self.memory.cell_mut(page).expect;
                expect.note_write(Content::ZERO);
            }
        }
    }

    /// From here on zeros are right in the run as well as what was written: the program has asked the pager to discard
    /// it, or to let it go.
    pub fn discard_begins(&mut self, run: Run) {
        for page in pages(run) {
            self.memory.cell_mut(page).expect.discard_begins();
        }
    }

    /// From here on only zeros are right in the run, or what was written since the beginning.
    pub fn discard_ends(&mut self, run: Run) {
        for page in pages(run) {
            let cell = self.memory.cell_mut(page);
            let mapped = cell.content;
            cell.expect.discard_ends(mapped);
        }
    }

    /// Running threads and the crowd leave these pages alone from now on.
    pub fn leave_alone(&mut self, run: Run) {
        self.memory.leave(run);
    }

    /// Running threads and the crowd use these pages again.
    pub fn use_again(&mut self, run: Run) {
        self.memory.leave(run);
        self.memory.areas.push(run);
    }

    /// Pins a mapped page for writing, as a device or a registered buffer does; returns false when it is absent, or guarded
    /// (the kernel would wait for the pager). It answers Busy until it is unpinned.
    pub fn pin(&mut self, page: Page) -> bool {
        let cell = self.memory.cell_mut(page);
        let mapped = cell.content.is_some() && !cell.zero_page && !cell.guarded;
        cell.pinned |= mapped;
        mapped
    }

    /// Ends a pin.
    pub fn unpin(&mut self, page: Page) {
        self.memory.cell_mut(page).pinned = false;
    }

    /// Whether a pin is on the page; it went with the page if that was discarded.
    pub fn is_pinned(&self, page: Page) -> bool {
        self.memory.cell(page).pinned
    }

    /// Whether all pages of the run belong to one mapping.
    pub fn is_one_mapping(&self, run: Run) -> bool {
        let first = self.memory.cell(run.start).mapping;
        first != 0 && pages(run).all(|page| self.memory.cell(page).mapping == first)
    }

    /// A device writes to a pinned page.
    pub fn device_write(&mut self, page: Page, content: Content) {
        let cell = self.memory.cell_mut(page);
        if !cell.pinned {
            self.fail("a device writes to a page that is not pinned: error in the test");
        }
        cell.content = Some(content);
        cell.expect.note_write(content);
    }

    /// Marks mapped pages as shared with a forked child: they answer Busy until they are written or made ours alone.
    pub fn share(&mut self, run: Run) {
        for page in pages(run) {
            let cell = self.memory.cell_mut(page);
            cell.shared = cell.content.is_some() && !cell.zero_page;
        }
    }
}

/// The pages of a run.
pub(super) fn pages(run: Run) -> impl Iterator<Item = Page> {
    (run.start.0..run.start.0 + run.pages).map(Page)
}
