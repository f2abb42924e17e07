//! Brings blocks of a file into the page cache as large pages. A fault in a mapping that is advised MADV_HUGEPAGE reads
//! what the cache lacks as one folio of 2 MiB, where the file system can; what the cache has already in small ones is
//! dropped first, which works for pages that are written back and mapped by nobody. Whoever maps the file later, at
//! addresses that fit, has it on large pages. Nothing else needs to be known: each step is looked at in /proc/self/smaps.

use super::why::Why;
use crate::failure::reason;
use crate::os::{self, BLOCK, Window};
use std::collections::HashMap;
use std::fs::File;
use std::time::{Duration, Instant};

/// How much may be done; shared by all files of a run.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Blocks that may still be looked at.
    pub blocks: usize,
    /// When to stop.
    pub deadline: Instant,
    /// Whether what is not yet on the disk is written first, and the unused blocks of a file in use are taken.
    pub insist: bool,
    /// Whether it is only found out what could be done, by one block.
    pub trial: bool,
}

/// What came of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Warmth {
    /// Blocks that the cache holds as large pages.
    pub large: usize,
    /// Why it does not hold the others.
    pub why: Option<Why>,
}

/// Blocks dropped and read at once: the first shows whether the file system can.
/// (To drop some costs the kernel a word with every processor, however many they are.)
const TOGETHER: [usize; 3] = [1, 8, 32];

/// Brings these blocks of a file, by their offsets, into the page cache as large pages.
pub fn warm(file: &File, offsets: &[u64], effort: &mut Effort) -> Warmth {
    if os::large_pages_are_off() {
        return Warmth { large: 0, why: Some(Why::Off) };
    }
    let taken = offsets.len().min(effort.blocks);
    effort.blocks -= taken;
    let mut warmth = attempt(file, &offsets[..taken], effort)
        .unwrap_or_else(|error| Warmth { large: 0, why: Some(Why::Failed(reason(&error))) });
    if taken < offsets.len() {
        warmth.why.get_or_insert(Why::Bound);
    }
    warmth
}

fn attempt(file: &File, offsets: &[u64], effort: &Effort) -> std::io::Result<Warmth> {
    // Whoever only looks has pages mapped, which would look like use to one who wants to drop them.
    wait_for_lock(file, false, effort);
    let mut view = View::open(file, offsets, effort)?;
    if view.all_are_large() {
        os::unlock(file);
        return Ok(view.warmth(Why::Bound));
    }
    drop(view);
    wait_for_lock(file, true, effort);
    view = View::open(file, offsets, effort)?;
    let why = if view.all_are_large() { None } else { view.convert(effort)? };
    os::unlock(file);
    Ok(view.warmth(why.unwrap_or(Why::Bound)))
}

/// Other runs of the same program are waited for, since they do what we want. Where the file cannot be locked, or somebody
/// keeps the lock for purposes of his own, it goes without.
fn wait_for_lock(file: &File, alone: bool, effort: &Effort) {
    while !os::lock(file, alone).unwrap_or(false) && Instant::now() < effort.deadline {
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// What smaps says of a block.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct State {
    /// On a large page.
    large: bool,
    /// Some of it is mapped by others.
    shared: bool,
    /// Some of it is not yet on the disk.
    dirty: bool,
}

/// Blocks of a file in a window of their own.
struct View<'a> {
    file: &'a File,
    offsets: &'a [u64],
    window: Window,
    states: Vec<State>,
}

impl View<'_> {
    /// Maps the blocks and touches one page of each, which reads those of which the cache has nothing.
    fn open<'a>(file: &'a File, offsets: &'a [u64], effort: &Effort) -> std::io::Result<View<'a>> {
        let window = Window::new(offsets.len())?;
        let mut view = View { file, offsets, window, states: vec![State::default(); offsets.len()] };
        for place in 0..offsets.len() {
            if Instant::now() > effort.deadline {
                break;
            }
            view.read(place)?;
        }
        view.look()?;
        Ok(view)
    }

    fn read(&self, place: usize) -> std::io::Result<()> {
        self.window.map(place, self.file, self.offsets[place])?;
        self.window.touch(place, false)
    }

    fn look(&mut self) -> std::io::Result<()> {
        let smaps = std::fs::read_to_string("/proc/self/smaps")?;
        let found = states(&smaps);
        for (place, state) in self.states.iter_mut().enumerate() {
            *state = found.get(&self.window.address(place)).copied().unwrap_or_default();
        }
        Ok(())
    }

    fn all_are_large(&self) -> bool {
        self.states.iter().all(|state| state.large)
    }

    fn warmth(&self, why: Why) -> Warmth {
        let large = self.states.iter().filter(|state| state.large).count();
        Warmth { large, why: (large < self.states.len()).then_some(why) }
    }

    /// Replaces small pages by large ones; returns what kept it from doing so everywhere.
    fn convert(&mut self, effort: &Effort) -> std::io::Result<Option<Why>> {
        let small = |view: &Self, usable: fn(&State) -> bool| -> Vec<usize> {
            let wanted = |place: &usize| !view.states[*place].large && usable(&view.states[*place]);
            (0..view.states.len()).filter(wanted).collect()
        };
        if !effort.insist && self.states.iter().any(|state| !state.large && state.shared) {
            return Ok(Some(Why::InUse));
        }
        // Who else maps a page shows only where we map it, too.
        for place in small(self, |state| !state.shared) {
            if Instant::now() > effort.deadline {
                return Ok(Some(Why::Bound));
            }
            self.window.touch(place, true)?;
        }
        self.look()?;
        let mut why = None;
        if self.states.iter().any(|state| !state.large && state.dirty) {
            if effort.insist {
                self.file.sync_data()?;
                self.look()?;
            }
            if self.states.iter().any(|state| !state.large && state.dirty) {
                why = Some(if os::is_in_ram(self.file) { Why::InRam } else { Why::Unwritten });
            }
        }
        if self.states.iter().any(|state| !state.large && state.shared) {
            why = Some(Why::InUse);
        }
        let mut rest = small(self, |state| !state.shared && !state.dirty);
        let mut sizes = TOGETHER.iter().chain(std::iter::repeat(&TOGETHER[2]));
        while !rest.is_empty() {
            if Instant::now() > effort.deadline {
                return Ok(Some(Why::Bound));
            }
            let together = sizes.next().map_or(rest.len(), |size| rest.len().min(*size));
            let batch: Vec<usize> = rest.drain(..together).collect();
            batch.iter().for_each(|place| self.window.clear(*place));
            let follows = |one: &usize, next: &usize| self.offsets[*one] + BLOCK as u64 == self.offsets[*next];
            for run in batch.chunk_by(follows) {
                os::evict(self.file, self.offsets[run[0]], (run.len() * BLOCK) as u64);
            }
            for &place in &batch {
                self.read(place)?;
            }
            self.look()?;
            // Each further one would be read in vain as well.
            if batch.iter().any(|place| !self.states[*place].large) {
                return Ok(Some(Why::NotHeld));
            }
            if effort.trial && !rest.is_empty() {
                return Ok(Some(why.unwrap_or(Why::Ready)));
            }
        }
        Ok(why)
    }
}

/// What smaps says of each mapping, by its address.
fn states(smaps: &str) -> HashMap<usize, State> {
    let mut states = HashMap::new();
    let mut at = 0;
    for line in smaps.lines() {
        let (first, rest) = line.split_once(' ').unwrap_or((line, ""));
        let Some(name) = first.strip_suffix(':') else {
            at = first.split_once('-').and_then(|(start, _)| usize::from_str_radix(start, 16).ok()).unwrap_or(0);
            continue;
        };
        let amount = rest.trim_start().split(' ').next().unwrap_or("0");
        if !amount.starts_with(|digit: char| digit.is_ascii_digit()) || amount == "0" {
            continue;
        }
        let state: &mut State = states.entry(at).or_default();
        match name {
            "FilePmdMapped" => state.large = true,
            "Shared_Clean" => state.shared = true,
            "Shared_Dirty" => (state.shared, state.dirty) = (true, true),
            "Private_Dirty" => state.dirty = true,
            _ => {}
        }
    }
    states
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smaps_is_read_by_address() {
        let found = states(
            "7f0000200000-7f0000400000 r--p 00800000 fe:00 77   /a b/prog\n\
             Size:               2048 kB\nShared_Clean:          0 kB\nPrivate_Dirty:         4 kB\nFilePmdMapped:    0 kB\n\
             VmFlags: rd mr hg\n\
             7f0000600000-7f0000800000 r--p 00a00000 fe:00 77   /a b/prog\n\
             Shared_Clean:         64 kB\nFilePmdMapped:      2048 kB\n\
             7f0000a00000-7f0000c00000 r--p 00c00000 fe:00 77   /a b/prog\nPrivate_Clean:   64 kB\nShared_Dirty:   8 kB\n",
        );
        assert_eq!(found[&0x7f00_0020_0000], State { large: false, shared: false, dirty: true });
        assert_eq!(found[&0x7f00_0060_0000], State { large: true, shared: true, dirty: false });
        assert_eq!(found[&0x7f00_00a0_0000], State { large: false, shared: true, dirty: true });
    }
}
