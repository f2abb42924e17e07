//! Gives back what a large page wastes: a block is moved out, its pages of zeros are dropped, and the others are moved
//! back as small pages. Moving is atomic, and refused for pages that a device may be writing to; whoever touches the
//! block meanwhile sleeps for a moment.
//!
//! Nothing may be lost while content is out. What the program discards, unmaps or moves then is told by events, which the
//! kernel lets nobody pass before they have been read; children made meanwhile do not inherit the block.

use crate::Errno;
use crate::file::{self, Fd};
use crate::memory::{self, Advice, MapSlice, Protection};
use crate::process;
use crate::uffd::{Access, Message, News, Uffd, feature, mode};
use crate::user::Ask;
use ream_page::{BLOCK_BYTES, BLOCK_PAGES, Block, PAGE_BYTES};

const PAGE_WORDS: usize = PAGE_BYTES / 8;

/// One bit a page of a block.
type Pages = [u64; BLOCK_PAGES as usize / 64];

/// What came of giving back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Given {
    /// So many pages, and the others are small ones now.
    Part(u32),
    /// All of it: the next touch finds a fresh block.
    All,
    /// Nothing: it is as it was, and too little of it was zeros.
    Nothing,
}

/// The means to do it, of one thread.
pub struct Sparse {
    uffd: Uffd,
    stage: usize,
    memory: Fd,
    /// What is read of a block at a time.
    words: MapSlice<u64>,
}

/// Pages read at a time.
const READ: u32 = 16;

const FEATURES: u64 = feature::MOVE | feature::EVENT_REMAP | feature::EVENT_UNMAP | feature::EVENT_REMOVE;

impl Sparse {
    /// Opens what is needed, in the calling thread's descriptor table.
    ///
    /// # Errors
    /// The kernel or the user's rights do not suffice: pages must be movable, and the kernel's own accesses answered.
    pub fn new(ask: Ask) -> Result<Sparse, Errno> {
        let uffd = Uffd::open(FEATURES, false, ask)?;
        if uffd.access == Access::UserOnly || !uffd.has(FEATURES) {
            uffd.close();
            return Err(Errno::PERM);
        }
        let made = Sparse::stage().and_then(|stage| {
            let memory = file::open(c"/proc/self/mem", file::flags::READ, 0)?;
            let words = MapSlice::new(READ as usize * PAGE_WORDS).inspect_err(|_| file::close(memory))?;
            Ok(Sparse { uffd, stage, memory, words })
        });
        made.inspect_err(|_| uffd.close())
    }

    /// A block of its own, with guards around it, that no child inherits.
    fn stage() -> Result<usize, Errno> {
        let place = memory::map(3 * BLOCK_BYTES, BLOCK_BYTES, Protection::None)?.as_ptr().wrapping_add(BLOCK_BYTES);
        let address = place.expose_provenance();
        // SAFETY: fresh memory that nobody else knows of.
        unsafe {
            memory::protect(place, BLOCK_BYTES, Protection::ReadWrite)?;
            memory::advise(address, BLOCK_BYTES, Advice::HugePage)?;
            memory::advise(address, BLOCK_BYTES, Advice::DontFork)?;
            let _ = memory::advise(address, BLOCK_BYTES, Advice::DontDump);
        }
        Ok(address)
    }

    /// How many of 32 pages spread over the block, which is in RAM, begin and go on with zeros: a guess for little.
    pub fn guess_zeros(&self, block: Block) -> u32 {
        const STEP: usize = BLOCK_PAGES as usize / 32;
        let start = block.first().address();
        let zeros = (0..32usize).filter(|index| {
            // Not always the same place of the page.
            let place = start + index * STEP * PAGE_BYTES + index * 64;
            let mut bytes = [1u8; 64];
            matches!(file::read_at(self.memory, &mut bytes, place as u64), Ok(64))
                && bytes.iter().all(|byte| *byte == 0)
        });
        zeros.count() as u32
    }

    /// How many pages of the block, which is in RAM, are zeros; it may change meanwhile.
    pub fn count_zeros(&mut self, block: Block) -> u32 {
        let mut zeros = 0;
        for index in (0..BLOCK_PAGES).step_by(READ as usize) {
            let place = block.first().plus(index).address() as u64;
            let words = self.words.as_mut_slice();
            // SAFETY: numbers seen as bytes, all of them.
            let bytes = unsafe { core::slice::from_raw_parts_mut(words.as_mut_ptr().cast::<u8>(), size_of_val(words)) };
            let read = file::read_at(self.memory, bytes, place).unwrap_or(0);
            let pages = words.chunks_exact(PAGE_WORDS).take(read / PAGE_BYTES);
            zeros += pages.filter(|page| page.iter().all(|word| *word == 0)).count() as u32;
        }
        zeros
    }

    /// Gives back the pages of zeros of so many blocks side by side, of those that are one large page and have at least
    /// `least` of them, and tells what came of each. An error says that a block is as it was: pinned, shared with a child,
    /// locked, registered with another, or no large page.
    ///
    /// What concerns them together is asked of the kernel once: each such call takes milliseconds in a program that is
    /// busy touching its memory.
    ///
    /// # Safety
    /// The blocks are anonymous private memory of the program that children inherit.
    pub unsafe fn give_back(
        &mut self,
        first: Block,
        count: u32,
        least: u32,
        tell: &mut dyn FnMut(Block, Result<Given, Errno>),
    ) {
        let all = Range { start: first.first().address(), bytes: count as usize * BLOCK_BYTES };
        // SAFETY: advice that only concerns children made meanwhile.
        if let Err(error) = unsafe { all.advise(Advice::DontFork) } {
            // Of what is unmapped in part, or could not be split, a part has it already.
            // SAFETY: as above.
            let _ = unsafe { all.advise(Advice::DoFork) };
            (0..u64::from(count)).for_each(|index| tell(Block(first.0 + index), Err(error)));
            return;
        }
        // Those that are to keep small pages, side by side.
        let mut small = Range { start: all.start, bytes: 0 };
        for index in 0..u64::from(count) {
            let block = Block(first.0 + index);
            let home = block.first().address();
            let mut out = Out::at(home);
            let outcome = self.registered(&mut out, least);
            let part = matches!(outcome, Ok(Given::Part(_)));
            out.each_piece(|start, bytes| {
                let piece = Range { start, bytes };
                if !all.holds(start) {
                    // SAFETY: as above, where it has been moved to.
                    unsafe {
                        let _ = piece.advise(Advice::DoFork);
                        if part {
                            let _ = piece.advise(Advice::NoHugePage);
                        }
                    }
                }
            });
            if part && small.start + small.bytes == home {
                small.bytes += BLOCK_BYTES;
            } else {
                small.keep_small();
                small = Range { start: home, bytes: if part { BLOCK_BYTES } else { 0 } };
            }
            tell(block, outcome);
        }
        small.keep_small();
        // SAFETY: as above. What is not mapped any more is passed over.
        let _ = unsafe { all.advise(Advice::DoFork) };
    }

    fn registered(&mut self, out: &mut Out, least: u32) -> Result<Given, Errno> {
        // Emptied while nobody hears of it: an event would be our own to answer.
        // SAFETY: nothing that is needed lies there.
        let _ = unsafe { memory::advise(self.stage, BLOCK_BYTES, Advice::DontNeed) };
        self.uffd.register(self.stage, BLOCK_BYTES, mode::WRITE_PROTECT)?;
        let home = out.homes.first().copied().unwrap_or(0);
        let outcome = self.uffd.register(home, BLOCK_BYTES, mode::MISSING).and_then(|()| {
            let outcome = self.moved(out, home, least);
            self.let_go(out, home);
            outcome
        });
        let _ = self.uffd.unregister(self.stage, BLOCK_BYTES);
        // SAFETY: what the program needs has been moved back.
        let _ = unsafe { memory::advise(self.stage, BLOCK_BYTES, Advice::DontNeed) };
        outcome
    }

    fn moved(&mut self, out: &mut Out, home: usize, least: u32) -> Result<Given, Errno> {
        // SAFETY: whoever misses the pages sleeps until they are back.
        let progress = unsafe { self.uffd.move_pages(self.stage, home, BLOCK_BYTES, false) };
        // Of a move that failed the count can be short, also nothing, though pages were moved: in 6.18 a migration that it
        // met sticks to the next step. What has come is looked for then: the others read as zeros in the stage, and are at
        // home as they were.
        let complete = progress.result.is_ok();
        let mut zeros: Pages = [0; 8];
        for page in (0..BLOCK_PAGES as usize).filter(|page| self.is_zero(*page)) {
            if let Some(word) = zeros.get_mut(page / 64) {
                *word |= 1 << (page % 64);
            }
        }
        let count = zeros.iter().map(|word| word.count_ones()).sum();
        let given = match count {
            _ if !complete || count < least => Given::Nothing,
            BLOCK_PAGES => Given::All,
            _ => Given::Part(count),
        };
        let wanted = |page: usize| match given {
            // In one piece.
            Given::Nothing if complete => true,
            _ => zeros.get(page / 64).is_some_and(|word| word >> (page % 64) & 1 == 0),
        };
        let moved = BLOCK_PAGES as usize;
        let mut page = 0;
        let mut tries = 0;
        while page < moved {
            self.drain(out);
            let end = (page..moved).find(|page| !wanted(*page)).unwrap_or(moved);
            let end = (page..end).find(|page| out.is_dropped(*page)).unwrap_or(end);
            let settled = match out.together(page, end) {
                _ if !wanted(page) || out.is_dropped(page) => 1,
                // Not wanted any more.
                0 => 1,
                length => self.back(out, page, length, tries),
            };
            page += settled;
            tries = if settled == 0 { tries + 1 } else { 0 };
        }
        progress.result.map(|()| given)
    }

    /// Moves pages back home. Returns how many are settled: 0 where it has to be tried again.
    fn back(&mut self, out: &Out, page: usize, length: usize, tries: u32) -> usize {
        let (to, from) = (out.homes.get(page).copied().unwrap_or(0), self.stage + page * PAGE_BYTES);
        // SAFETY: back to where sleepers wait for them.
        let progress = unsafe { self.uffd.move_pages(to, from, length * PAGE_BYTES, true) };
        let done = (progress.bytes / PAGE_BYTES).min(length);
        let error = match progress.result {
            _ if done > 0 => return done,
            Ok(()) => return length,
            Err(error) => error,
        };
        // Somebody unmaps or moves, which has to be heard first; or a page is busy for a moment.
        if matches!(error, Errno::AGAIN | Errno::NOENT | Errno::BUSY) && tries < 100 {
            process::yield_now();
            return 0;
        }
        if error == Errno::NOENT && !memory::is_mapped(to) {
            return 1;
        }
        // SAFETY: a page of our own, at rest.
        match unsafe { self.uffd.copy(to, from, PAGE_BYTES, false) }.result {
            // Something else is mapped there, or nothing that could be ours.
            Ok(()) | Err(Errno::EXIST | Errno::NOENT | Errno::INVAL) => 1,
            Err(_) => {
                process::yield_now();
                0
            }
        }
    }

    /// Ends registration wherever the block is by now, which wakes whoever sleeps on it, and hears of everything that is to
    /// be told: a thread that unmaps or moves sleeps until then.
    fn let_go(&mut self, out: &mut Out, home: usize) {
        loop {
            // Also where it was: mremap can leave a mapping behind, registered and empty.
            if self.uffd.unregister(home, BLOCK_BYTES).is_err() {
                for page in 0..BLOCK_PAGES as usize {
                    let _ = self.uffd.unregister(home + page * PAGE_BYTES, PAGE_BYTES);
                }
            }
            out.each_piece(|address, bytes| {
                let _ = self.uffd.unregister(address, bytes);
            });
            let mut news = self.drain(out);
            // The kernel answers so before it looks at the address, while somebody has something to tell.
            while self.uffd.zero(0, PAGE_BYTES) == Err(Errno::AGAIN) {
                process::yield_now();
                news |= self.drain(out);
            }
            if !news {
                return;
            }
        }
    }

    /// Reads what has happened to the block; whether anything but touches has.
    fn drain(&mut self, out: &mut Out) -> bool {
        let mut any = false;
        let mut messages = [Message::EMPTY; 16];
        while let Ok(count @ 1..) = self.uffd.read(&mut messages) {
            for news in messages.iter().take(count).map(Message::news) {
                any |= !matches!(news, News::Missing { .. } | News::Protected { .. });
                out.hear(news);
            }
        }
        any
    }

    fn is_zero(&self, page: usize) -> bool {
        let words: *const u64 = core::ptr::with_exposed_provenance(self.stage + page * PAGE_BYTES);
        // SAFETY: a page of the stage, which is mapped and which nobody changes.
        (0..PAGE_BYTES / 8).all(|index| unsafe { words.add(index).read() } == 0)
    }

    /// Closes what it has opened. The stage stays.
    pub fn close(self) {
        self.uffd.close();
        file::close(self.memory);
    }
}

/// A part of the program's memory, in bytes.
#[derive(Clone, Copy)]
struct Range {
    start: usize,
    bytes: usize,
}

impl Range {
    fn holds(self, address: usize) -> bool {
        address.wrapping_sub(self.start) < self.bytes
    }

    /// # Safety
    /// As for [`memory::advise`].
    unsafe fn advise(self, advice: Advice) -> Result<(), Errno> {
        // SAFETY: the caller's promise.
        unsafe { memory::advise(self.start, self.bytes, advice) }
    }

    /// Else the kernel would make large pages of it again.
    fn keep_small(self) {
        if self.bytes > 0 {
            // SAFETY: this advice loses nothing.
            let _ = unsafe { self.advise(Advice::NoHugePage) };
        }
    }
}

/// A block that is out.
struct Out {
    /// Where each page belongs; 0 when nothing is mapped there any more.
    homes: [usize; BLOCK_PAGES as usize],
    /// Pages whose content the program has discarded.
    dropped: Pages,
}

impl Out {
    fn at(home: usize) -> Out {
        Out { homes: core::array::from_fn(|page| home + page * PAGE_BYTES), dropped: [0; 8] }
    }

    fn is_dropped(&self, page: usize) -> bool {
        self.dropped.get(page / 64).is_some_and(|word| word >> (page % 64) & 1 != 0)
    }

    fn hear(&mut self, news: News) {
        for (page, home) in self.homes.iter_mut().enumerate() {
            let address = *home as u64;
            match news {
                News::Removed { start, end } if (start..end).contains(&address) => {
                    if let Some(word) = self.dropped.get_mut(page / 64) {
                        *word |= 1 << (page % 64);
                    }
                }
                News::Unmapped { start, end } if (start..end).contains(&address) => *home = 0,
                News::Remapped { from, to, bytes } if (from..from + bytes).contains(&address) => {
                    *home = (to + (address - from)) as usize;
                }
                _ => {}
            }
        }
    }

    /// How many pages from `page` on, before `end`, belong side by side.
    fn together(&self, page: usize, end: usize) -> usize {
        let homes = self.homes.get(page..end).unwrap_or(&[]);
        let first = homes.first().copied().unwrap_or(0);
        let follow = |(index, home): (usize, &usize)| first != 0 && *home == first + index * PAGE_BYTES;
        homes.iter().enumerate().position(|place| !follow(place)).unwrap_or(homes.len())
    }

    /// Address and bytes of what belongs side by side.
    fn each_piece(&self, mut each: impl FnMut(usize, usize)) {
        let mut page = 0;
        while page < self.homes.len() {
            let length = self.together(page, self.homes.len());
            if let Some(home) = self.homes.get(page).filter(|_| length > 0) {
                each(*home, length * PAGE_BYTES);
            }
            page += length.max(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_follow_what_happens_to_their_block() {
        let home = 0x40_0000;
        let mut out = Out::at(home);
        let at = |page: u64| home as u64 + page * PAGE_BYTES as u64;
        out.hear(News::Removed { start: at(3), end: at(5) });
        out.hear(News::Remapped { from: at(100), to: 0x900_0000, bytes: 50 * PAGE_BYTES as u64 });
        out.hear(News::Unmapped { start: at(200), end: at(600) });
        assert_eq!([2, 3, 4, 5].map(|page| out.is_dropped(page)), [false, true, true, false]);
        assert_eq!((out.together(0, 512), out.together(200, 512), out.together(150, 512)), (100, 0, 50));
        let mut pieces = [(0, 0); 4];
        let mut count = 0;
        out.each_piece(|address, bytes| {
            pieces[count] = (address, bytes / PAGE_BYTES);
            count += 1;
        });
        assert_eq!(pieces, [(home, 100), (0x900_0000, 50), (at(150) as usize, 50), (0, 0)]);
    }
}
