//! Ranges of pages with a label each: sorted, disjoint, joined where they touch and agree. Found in logarithmic time,
//! also when there are hundreds of thousands; kept on mappings of its own.
//!
//! Entries lie in leaves of at most 128, and a directory holds the leaves in order, so that no change moves more than
//! one leaf and the part of the directory behind it.

use ream_page::{Page, Run};
use ream_sys::Errno;
use ream_sys::memory::{MapSlice, Zeroable};

/// What a managed range is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// A large block of malloc.
    Large = 0,
    /// Small blocks of malloc.
    Small = 1,
    /// The program's own anonymous private mapping.
    Mapped = 2,
    /// Writable static data of the program or of a library.
    Static = 3,
}

// SAFETY: zero is `Kind::Large`; nothing happens at drop.
unsafe impl Zeroable for Kind {}

const FULL: usize = 128;

#[derive(Clone, Copy)]
struct Entry<K> {
    start: u64,
    pages: u64,
    label: K,
}

impl<K> Entry<K> {
    fn end(&self) -> u64 {
        self.start + self.pages
    }
}

#[derive(Clone, Copy)]
struct Leaf<K> {
    len: usize,
    entries: [Entry<K>; FULL],
}

// SAFETY: numbers and labels, all valid as zeros; nothing happens at drop.
unsafe impl<K: Zeroable> Zeroable for Leaf<K> {}

/// The pages of `run` that come after `page`, which may be its end.
pub fn rest(run: Run, page: Page) -> Run {
    Run { start: page, pages: run.end().0.saturating_sub(page.0) }
}

/// A set of labelled ranges.
pub struct Regions<K: Zeroable = Kind> {
    leaves: MapSlice<Leaf<K>>,
    /// Places in `leaves`, in order of address: the first `used` of them, none empty. Behind them come the free ones.
    directory: MapSlice<u32>,
    used: usize,
    pages: u64,
}

/// Place of an entry: position in the directory, and within the leaf.
#[derive(Clone, Copy)]
struct Place {
    leaf: usize,
    index: usize,
}

impl<K: Zeroable + PartialEq> Regions<K> {
    /// No ranges.
    pub const fn new() -> Regions<K> {
        Regions { leaves: MapSlice::empty(), directory: MapSlice::empty(), used: 0, pages: 0 }
    }

    /// Pages in all ranges together.
    pub fn total(&self) -> u64 {
        self.pages
    }

    /// Whether a range holds the page.
    pub fn contains(&self, page: Page) -> bool {
        self.kind_of(page).is_some()
    }

    /// Label of the range that holds the page.
    pub fn kind_of(&self, page: Page) -> Option<K> {
        let entry = self.at(self.find(page.0))?;
        (entry.start <= page.0).then_some(entry.label)
    }

    /// The first range that ends after `page`: the one that holds it, or else the next.
    pub fn next_from(&self, page: Page) -> Option<(Run, K)> {
        let entry = self.at(self.find(page.0))?;
        Some((Run { start: Page(entry.start), pages: entry.pages }, entry.label))
    }

    /// The first part of a range that lies inside `run`.
    pub fn first_in(&self, run: Run) -> Option<(Run, K)> {
        let (found, label) = self.next_from(run.start)?;
        let part = found.and(run);
        (part.pages > 0).then_some((part, label))
    }

    /// Copies the ranges from `from` on, cut so that none begins before it; returns how many, fewer than there is room
    /// for only at the end.
    pub fn copy_from(&self, from: Page, to: &mut [Run]) -> usize {
        self.copy(from, to, |run, _| run)
    }

    /// The same, with what they are.
    pub fn copy_labelled(&self, from: Page, to: &mut [(Run, K)]) -> usize {
        self.copy(from, to, |run, label| (run, label))
    }

    fn copy<T>(&self, from: Page, to: &mut [T], of: impl Fn(Run, K) -> T) -> usize {
        let mut place = self.find(from.0);
        let mut count = 0;
        for room in to {
            let Some(entry) = self.at(place) else { break };
            let start = entry.start.max(from.0);
            *room = of(Run { start: Page(start), pages: entry.end() - start }, entry.label);
            place = self.after(place);
            count += 1;
        }
        count
    }

    /// Tells each range, in order of address.
    pub fn each(&self, tell: &mut dyn FnMut(Run)) {
        let mut place = Place { leaf: 0, index: 0 };
        while let Some(entry) = self.at(place) {
            tell(Run { start: Page(entry.start), pages: entry.pages });
            place = self.after(place);
        }
    }

    /// Labels the pages of a run, whatever they were before.
    ///
    /// # Errors
    /// No memory; nothing was changed.
    pub fn insert(&mut self, run: Run, label: K) -> Result<(), Errno> {
        if run.pages == 0 {
            return Ok(());
        }
        self.make_room()?;
        self.remove(run);
        self.make_room()?;
        let mut entry = Entry { start: run.start.0, pages: run.pages, label };
        self.pages += run.pages;
        let place = self.find(run.start.0);
        if let Some(next) = self.at(place) {
            if next.start == entry.end() && next.label == label {
                entry.pages += next.pages;
                self.delete(place);
            }
        }
        let place = self.find(run.start.0);
        if let Some(previous) = self.before(place).and_then(|place| self.at_mut(place)) {
            if previous.end() == entry.start && previous.label == label {
                previous.pages += entry.pages;
                return Ok(());
            }
        }
        self.put(place, entry);
        Ok(())
    }

    /// Takes the pages of a run out; ranges that reach beyond it are cut.
    pub fn remove(&mut self, run: Run) {
        let (start, end) = (run.start.0, run.end().0);
        loop {
            let place = self.find(start);
            let Some(entry) = self.at_mut(place) else { return };
            if entry.start >= end || start >= end {
                return;
            }
            let whole = *entry;
            let cut = whole.end().min(end) - whole.start.max(start);
            if whole.start < start {
                entry.pages = start - whole.start;
                if whole.end() > end {
                    let tail = Entry { start: end, pages: whole.end() - end, label: whole.label };
                    // Without memory for one more leaf the tail is forgotten: it stays what it is, unknown.
                    let kept = self.make_room().is_ok();
                    if kept {
                        self.put(self.find(end), tail);
                    }
                    self.pages -= if kept { cut } else { cut + tail.pages };
                    return;
                }
            } else if whole.end() > end {
                entry.start = end;
                entry.pages = whole.end() - end;
            } else {
                self.delete(place);
            }
            self.pages -= cut;
        }
    }

    /// Place of the first entry that ends after `page`; one past the last entry if there is none.
    fn find(&self, page: u64) -> Place {
        let order = self.directory.as_slice().get(..self.used).unwrap_or(&[]);
        let leaf = order.partition_point(|leaf| self.last_end(*leaf) <= page);
        let entries = order.get(leaf).map_or(&[][..], |leaf| self.entries(*leaf));
        Place { leaf, index: entries.partition_point(|entry| entry.end() <= page) }
    }

    fn entries(&self, leaf: u32) -> &[Entry<K>] {
        self.leaves.get(leaf as usize).and_then(|leaf| leaf.entries.get(..leaf.len)).unwrap_or(&[])
    }

    fn last_end(&self, leaf: u32) -> u64 {
        self.entries(leaf).last().map_or(0, Entry::end)
    }

    fn leaf(&self, position: usize) -> Option<&Leaf<K>> {
        let order = self.directory.as_slice().get(..self.used)?;
        self.leaves.get(*order.get(position)? as usize)
    }

    fn leaf_mut(&mut self, position: usize) -> Option<&mut Leaf<K>> {
        let order = self.directory.as_slice().get(..self.used)?;
        self.leaves.get_mut(*order.get(position)? as usize)
    }

    fn at(&self, place: Place) -> Option<&Entry<K>> {
        let leaf = self.leaf(place.leaf)?;
        leaf.entries.get(..leaf.len)?.get(place.index)
    }

    fn at_mut(&mut self, place: Place) -> Option<&mut Entry<K>> {
        let leaf = self.leaf_mut(place.leaf)?;
        leaf.entries.get_mut(..leaf.len)?.get_mut(place.index)
    }

    fn after(&self, place: Place) -> Place {
        match self.leaf(place.leaf) {
            Some(leaf) if place.index + 1 < leaf.len => Place { leaf: place.leaf, index: place.index + 1 },
            _ => Place { leaf: place.leaf + 1, index: 0 },
        }
    }

    fn before(&self, place: Place) -> Option<Place> {
        if place.index > 0 {
            return Some(Place { leaf: place.leaf, index: place.index - 1 });
        }
        let leaf = place.leaf.checked_sub(1)?;
        Some(Place { leaf, index: self.leaf(leaf)?.len.checked_sub(1)? })
    }

    /// Puts an entry before the one at `place`. There is room: see [`Regions::make_room`].
    fn put(&mut self, place: Place, entry: Entry<K>) {
        let mut place = place;
        if place.leaf == self.used {
            // Behind the last entry: at the end of the last leaf.
            match self.used.checked_sub(1) {
                Some(last) => place = Place { leaf: last, index: self.leaf(last).map_or(0, |leaf| leaf.len) },
                None => {
                    self.used = 1;
                    place = Place { leaf: 0, index: 0 };
                }
            }
        }
        if self.leaf(place.leaf).is_some_and(|leaf| leaf.len == FULL) {
            self.split(place.leaf);
            if place.index > FULL / 2 {
                place = Place { leaf: place.leaf + 1, index: place.index - FULL / 2 };
            }
        }
        if let Some(leaf) = self.leaf_mut(place.leaf) {
            leaf.len += 1;
            if let Some(tail) = leaf.entries.get_mut(place.index..leaf.len) {
                tail.rotate_right(1);
                if let Some(first) = tail.first_mut() {
                    *first = entry;
                }
            }
        }
    }

    /// Moves the upper half of a full leaf to a free one, which comes behind it.
    fn split(&mut self, position: usize) {
        let (used, order) = (self.used, self.directory.as_mut_slice());
        let Some(&new) = order.get(used) else { return };
        let Some(old) = self.leaf(position) else { return };
        let mut upper = Leaf { len: FULL / 2, ..*old };
        upper.entries.rotate_left(FULL / 2);
        if let Some(place) = self.leaves.get_mut(new as usize) {
            *place = upper;
        }
        if let Some(old) = self.leaf_mut(position) {
            old.len = FULL / 2;
        }
        if let Some(tail) = self.directory.as_mut_slice().get_mut(position + 1..=used) {
            tail.rotate_right(1);
        }
        self.used += 1;
    }

    fn delete(&mut self, place: Place) {
        let Some(leaf) = self.leaf_mut(place.leaf) else { return };
        let len = leaf.len;
        if let Some(tail) = leaf.entries.get_mut(place.index..len) {
            tail.rotate_left(1);
        }
        leaf.len = len - 1;
        if leaf.len == 0 {
            let used = self.used;
            if let Some(tail) = self.directory.as_mut_slice().get_mut(place.leaf..used) {
                tail.rotate_left(1);
            }
            self.used -= 1;
        }
    }

    /// Ensures that one more entry, wherever it goes, finds a place.
    fn make_room(&mut self) -> Result<(), Errno> {
        if self.used < self.directory.len() {
            return Ok(());
        }
        let count = (self.directory.len() * 2).max(8);
        let mut leaves = MapSlice::new(count)?;
        let mut directory = MapSlice::new(count)?;
        for (new, old) in leaves.as_mut_slice().iter_mut().zip(self.leaves.as_slice()) {
            *new = *old;
        }
        for (index, place) in directory.as_mut_slice().iter_mut().enumerate() {
            *place = self.directory.get(index).copied().unwrap_or(index as u32);
        }
        self.leaves = leaves;
        self.directory = directory;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
