//! Tripwires: while nothing is paged yet, a few absent blocks of the managed ranges are registered, so that a program
//! that touches memory faster than the watcher looks runs into one and waits for it. Between two wires of a range lies
//! a small part of the budget; memory that is touched in order therefore cannot outrun the watcher at all, and memory
//! that is touched all over meets a wire soon. Who only reads there gets to see zeros, which cost nothing, and the wire
//! stays for whoever writes: a program that looked through its memory before it filled it met none any more, and had four
//! times its budget before the watcher got a processor.

use super::ENGINE;
use crate::lending;
use ream_page::{BLOCK_PAGES, Block, Page, Run};
use ream_sys::memory::MapSlice;
use ream_sys::{Errno, LinuxMachine, Machine};

/// Most wires at a time: each is a mapping of its own, of which a process may have 65 530.
const MOST: usize = 4096;
/// A wire where no whole block fits.
const SMALL: u64 = 16;
/// Closest that wires are, in pages: every other block.
const CLOSEST: u64 = 2 * BLOCK_PAGES as u64;
/// Who may have fewer pages than these has wires at a sixteenth of them, and no large pages between: one is an eighth of it or
/// more, and is there before its owner sees that others have the rest.
const LITTLE: u64 = 4096;

/// The wires of this process.
pub struct Wires {
    list: MapSlice<(u64, u64)>,
    len: usize,
    /// Pages of a range from one wire to the next; 0 before there are any.
    interval: u64,
    /// Pages added since the last wire, in ranges too short for one.
    short: u64,
    /// Whether there are wires that have been read.
    read: bool,
    /// They would have been too far apart when it was time to set them.
    too_far: bool,
}

/// What became of setting wires.
pub enum Placed {
    /// They are where they belong.
    All,
    /// So much is reserved that they would be too far apart: there are none.
    TooFar,
    /// The program touches memory faster than they can be set; some are.
    Outrun,
}

impl Wires {
    /// None yet.
    pub fn new() -> Result<Wires, Errno> {
        Ok(Wires { list: MapSlice::new(MOST)?, len: 0, interval: 0, short: 0, read: false, too_far: false })
    }

    /// Whether there are any.
    pub fn set(&self) -> bool {
        self.interval > 0
    }

    /// Whether there are any, or there can be none.
    pub fn settled(&self) -> bool {
        self.set() || self.too_far
    }

    /// Pages that a thread can touch in order before it meets a wire.
    pub fn interval(&self) -> u64 {
        self.interval
    }

    /// Sets wires in all managed ranges, for a process that may hold `limit` pages, until `outrun` tells that much is touched
    /// meanwhile: each waits for whoever is in a fault near it, and where processors are few, these wait for theirs.
    pub fn place(&mut self, machine: &mut LinuxMachine, limit: u64, outrun: &mut dyn FnMut() -> bool) -> Placed {
        let reserved = ENGINE.regions.read().total();
        let closest = if limit < LITTLE { (limit / 16).max(2 * SMALL) } else { CLOSEST };
        let interval = (limit / 256).max(closest).max(reserved / (MOST as u64 / 2));
        self.too_far = interval > (limit / 8).max(CLOSEST);
        if self.too_far {
            return Placed::TooFar;
        }
        self.interval = interval;
        let mut from = Page(0);
        loop {
            // In pieces, so that the lock is not held during the calls.
            let mut piece = [Run { start: Page(0), pages: 0 }; 64];
            let len = ENGINE.regions.read().copy_from(from, &mut piece);
            for run in piece.iter().take(len) {
                if !self.extend_while(machine, *run, &mut || !outrun()) {
                    return Placed::Outrun;
                }
                from = run.end();
            }
            if len < piece.len() {
                return Placed::All;
            }
        }
    }

    /// A range has been added: it gets its wires before it is touched.
    pub fn extend(&mut self, machine: &mut LinuxMachine, run: Run) {
        self.extend_while(machine, run, &mut || true);
    }

    /// The same, as long as it is worth while, which is asked before each wire. Returns whether it was to the end.
    fn extend_while(&mut self, machine: &mut LinuxMachine, run: Run, worth: &mut dyn FnMut() -> bool) -> bool {
        if self.interval == 0 {
            return true;
        }
        if run.pages < self.interval {
            self.short += run.pages;
            if self.short >= self.interval {
                self.short = 0;
                self.hang(machine, run.start, run.end());
            }
            return true;
        }
        let mut at = run.start;
        while at.0 < run.end().0 {
            if !worth() {
                return false;
            }
            let end = Page(run.end().0.min(at.0 + self.interval));
            self.hang(machine, at, end);
            at = end;
        }
        true
    }

    /// Registers the last block from `start` to `end` if nothing was written there, or a few pages where there is no whole block.
    fn hang(&mut self, machine: &mut LinuxMachine, start: Page, end: Page) {
        let last = Block(end.0 / BLOCK_PAGES as u64).first().0.checked_sub(BLOCK_PAGES as u64).map(Page);
        let wire = match last.filter(|first| first.0 >= start.0) {
            Some(first) => Run { start: first, pages: BLOCK_PAGES as u64 },
            None => {
                let first = Page(end.0.saturating_sub(SMALL).max(start.0));
                Run { start: first, pages: end.0 - first.0 }
            }
        };
        let (mut is_free, mut read) = (true, false);
        machine.present(wire, &mut |_, mapped| {
            read = true;
            is_free &= mapped.zero && !lending::on();
            is_free
        });
        let Some(place) = self.list.get_mut(self.len).filter(|_| is_free && wire.pages > 0) else { return };
        if machine.register(wire).is_ok() {
            *place = (wire.start.0, wire.pages);
            self.len += 1;
            if read {
                self.read = true;
                machine.let_read(wire, wire.start);
            }
        }
    }

    /// Takes the wires of a range away.
    pub fn cut_all(&mut self, machine: &mut LinuxMachine, run: Run) {
        let mut index = 0;
        while index < self.len {
            match self.list.get(index).copied() {
                Some((start, _)) if run.contains(Page(start)) => self.cut(machine, Page(start)),
                _ => index += 1,
            }
        }
    }

    /// Takes all wires away.
    #[cfg(not(feature = "inside"))]
    pub fn cut_each(&mut self, machine: &mut LinuxMachine) {
        while let Some((start, _)) = self.list.get(0).copied().filter(|_| self.len > 0) {
            self.cut(machine, Page(start));
        }
    }

    /// The wire at a page, by its place in the list.
    fn find(&self, page: Page) -> Option<usize> {
        let mut wires = self.list.as_slice().iter().take(self.len);
        wires.position(|(start, pages)| (*start..*start + *pages).contains(&page.0))
    }

    /// A thread ran into a wire: lets it go on. Who reads sees zeros, and the wire stays for whoever writes; not for ordinary
    /// users, for whom the kernel's own writes there would fail. Otherwise the wire is taken away.
    pub fn touched(&mut self, machine: &mut LinuxMachine, page: Page, write: bool) {
        let wire = self.find(page).filter(|_| !write && !lending::on()).and_then(|index| self.list.get(index).copied());
        if let Some((start, pages)) = wire {
            self.read = true;
            if machine.let_read(Run { start: Page(start), pages }, page) {
                return;
            }
        }
        self.cut(machine, page);
    }

    /// Takes a wire away, which lets who ran into it go on.
    fn cut(&mut self, machine: &mut LinuxMachine, page: Page) {
        let found = self.find(page);
        let mut wire = page.block().run();
        if let Some(index) = found {
            if let Some((start, pages)) = self.list.get(index).copied() {
                wire = Run { start: Page(start), pages };
            }
            self.len -= 1;
            let last = self.list.get(self.len).copied();
            if let Some((place, last)) = self.list.get_mut(index).zip(last) {
                *place = last;
            }
        }
        // A wire that was moved or cut in two by the program: at least its page.
        let one = Run { start: page, pages: 1 };
        if self.read {
            machine.let_write(wire);
        }
        if machine.unregister(wire).is_err() && machine.unregister(one).is_err() {
            machine.zero_in(page);
        }
        machine.wake(wire);
        machine.wake(one);
    }
}
