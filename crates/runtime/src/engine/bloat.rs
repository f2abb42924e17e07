//! What large pages waste under `--pages=auto` is given back: a thread looks once in a while which blocks are large pages
//! that are mostly zeros, and where they make up more than the session's share of what is in RAM, their zeros go back
//! and the rest becomes small pages. It also makes large pages of full blocks: `dense`. Only while nothing is paged: then
//! eviction does the one, and whole blocks that are read the other.

use super::dense::{Count, Dense};
use super::deserted::Deserted;
use super::{ENGINE, Phase, setup, watch};
use crate::pages::wanted;
use crate::regions::Kind;
use crate::{agent, holds, lending, prefault, statics};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use ream_page::{BLOCK_PAGES, Block, Page, Run};
use ream_stats::{Pages, Region};
use ream_sys::Errno;
use ream_sys::file;
use ream_sys::futex::{self, Scope};
use ream_sys::memory::MapSlice;
use ream_sys::pagemap::Pagemap;
use ream_sys::sparse::{Given, Sparse};
use ream_sys::thread::{self, Files};
use ream_sys::{clock, process};

/// Reserved memory from which a process is looked after, in pages: 64 MiB.
const LEAST: u64 = 16 * 1024;
/// Microseconds between two looks where no block is new, at most; else a quarter of the age that they must have.
const SELDOM: u64 = 2_000_000;
/// A look where no block is new may take one part in so many of the time.
const RARE: u64 = 100;
/// Pages walked at a time.
const WINDOW: u64 = 64 * BLOCK_PAGES as u64;
/// A block found dense is looked at again after this: it may have been freed and used anew.
const AGAIN: u64 = 60_000_000;
/// Zeros that make a block worth the trouble, in pages.
const WORTH: u32 = BLOCK_PAGES / 8;
/// Of 32 guesses at most so many are zeros in a dense block.
const DENSE: u32 = 3;

/// No thread yet.
const NONE: u32 = 0;
/// It looks.
const LOOKING: u32 = 1;
/// It is to end.
const ENDING: u32 = 2;
/// There is none, and will be none.
const ENDED: u32 = 3;

static STATE: AtomicU32 = AtomicU32::new(NONE);
/// The thread's id, once it runs.
static THREAD: AtomicU32 = AtomicU32::new(0);

/// Whether anything may be given back.
static GIVING: AtomicBool = AtomicBool::new(true);

/// Nothing is given back from now on: the program says itself what children inherit, which giving back would undo.
pub fn give_nothing() {
    if GIVING.load(SeqCst) {
        let _placing = ream_heap::placing();
        GIVING.store(false, SeqCst);
    }
}

/// Nothing is given back or gathered from now on: the program has given up rights, which the thread would keep. When this
/// returns there is no thread.
pub(super) fn hands_off() {
    if STATE.compare_exchange(NONE, ENDED, SeqCst, SeqCst).is_ok() {
        return;
    }
    let _ = STATE.compare_exchange(LOOKING, ENDING, SeqCst, SeqCst);
    futex::wake(&STATE, u32::MAX, Scope::Private);
    while STATE.load(SeqCst) == ENDING {
        futex::wait(&STATE, ENDING, None, Scope::Private);
    }
    let thread = THREAD.load(SeqCst);
    while thread != 0 && process::has_thread(thread) {
        process::yield_now();
    }
    THREAD.store(0, SeqCst);
}

/// Ends the thread for a while. Returns whether there was one: then [`resume`] may start another.
#[cfg(not(feature = "inside"))]
pub(super) fn pause() -> bool {
    let looks = STATE.load(SeqCst) == LOOKING;
    if looks {
        hands_off();
    }
    looks
}

/// After [`pause`].
#[cfg(not(feature = "inside"))]
pub(super) fn resume() {
    let _ = STATE.compare_exchange(ENDED, NONE, SeqCst, SeqCst);
    consider();
}

/// In a forked child: the thread was its parent's.
pub(super) fn reset() {
    THREAD.store(0, SeqCst);
    let _ = STATE.compare_exchange(LOOKING, NONE, SeqCst, SeqCst);
    let _ = STATE.compare_exchange(ENDING, ENDED, SeqCst, SeqCst);
}

/// Starts to look, when there is so much that it can matter. Called with signals blocked.
pub(super) fn consider() {
    if STATE.load(SeqCst) != NONE || ENGINE.reserved.load(SeqCst) < LEAST {
        return;
    }
    let large = [Region::Heap, Region::Static].into_iter().any(|region| wanted(region).large());
    if !large || STATE.compare_exchange(NONE, LOOKING, SeqCst, SeqCst).is_err() {
        return;
    }
    // SAFETY: `main` uses neither libc nor thread-local data, never unwinds, and needs less stack than this.
    if unsafe { thread::spawn(main, core::ptr::null_mut(), watch::STACK, Files::Copied) }.is_err() {
        STATE.store(ENDED, SeqCst);
    }
}

/// Whether waste is given back, and not only full blocks made large.
fn gives() -> bool {
    let auto = [Region::Heap, Region::Static].into_iter().any(|region| wanted(region) == Pages::Auto);
    // What was brought in beforehand is zeros that are wanted.
    auto && GIVING.load(SeqCst) && !lending::on() && !prefault::keeps_zeros() && share() < 100
}

/// How old a block must be, in microseconds: it may be filled slowly.
fn age() -> u64 {
    u64::from(ENGINE.session().map_or(700, |session| session.config().bloat_age_ms)) * 1000
}

/// Percent of what is in RAM that may be waste.
fn share() -> u64 {
    ENGINE.session().map_or(100, |session| session.config().bloat_percent.into())
}

fn main(_: *mut ()) -> ! {
    THREAD.store(process::thread_id(), SeqCst);
    let _ = file::close_all_but(&mut []);
    setup::place();
    clock::find();
    if let Ok(mut watch) = Watch::new() {
        watch.run();
        if let Some(sparse) = watch.sparse {
            sparse.close();
        }
    }
    STATE.store(ENDED, SeqCst);
    futex::wake(&STATE, u32::MAX, Scope::Private);
    thread::exit()
}

/// Whether there is anything to do for the thread.
fn wanted_still() -> bool {
    STATE.load(SeqCst) == LOOKING && matches!(ENGINE.phase(), Phase::Idle | Phase::Watching)
}

/// What is known of a block: as what it was seen, and when it is to be looked at again; zeros where nothing is.
type Known = (u64, u64);

fn seen_large(block: Block) -> u64 {
    block.0 * 2 + 2
}

fn seen_small(block: Block) -> u64 {
    block.0 * 2 + 1
}

/// Places of the table; blocks beyond share them, and are then looked at more often.
const PLACES: usize = 1 << 16;

struct Watch {
    /// The means to give back; `None` where that is not wanted, or this user may not.
    sparse: Option<Sparse>,
    dense: Dense,
    /// Pages that large ones have added of late, and when.
    added: (u64, u64),
    /// Pages in RAM, and those of them wasted, at the last look.
    seen: (u64, u64),
    pagemap: Pagemap,
    known: MapSlice<Known>,
    /// Blocks that are mostly zeros, and how many of their pages are.
    found: MapSlice<(u64, u64)>,
    count: usize,
    /// A block was seen for the first time.
    fresh: bool,
    /// Mappings that blocks with advice of their own have become, at most.
    mappings: u32,
    /// The block behind those given back last.
    next: u64,
}

const FOUND: usize = 1 << 16;
/// Most mappings that are made by giving back: a process may have 65 530.
const MAPPINGS: u32 = 16 * 1024;
/// Blocks that are given back at a time: nobody of us maps or forks meanwhile.
const TOGETHER: usize = 8;

impl Watch {
    fn new() -> Result<Watch, Errno> {
        Ok(Watch {
            sparse: if gives() { Sparse::new(agent::open).ok() } else { None },
            dense: Dense::new()?,
            added: (0, 0),
            seen: (0, 0),
            pagemap: Pagemap::open(agent::open)?,
            known: MapSlice::new(PLACES)?,
            found: MapSlice::new(FOUND)?,
            count: 0,
            fresh: false,
            mappings: 0,
            next: 0,
        })
    }

    fn run(&mut self) {
        let (mut took, mut deserted) = (0, Deserted::default());
        loop {
            let often = age() / 4;
            let sleep =
                if self.fresh || self.count > 0 { often } else { (RARE * took).clamp(often, SELDOM.max(often)) };
            let due = process::now_us() + sleep;
            let began = loop {
                let now = process::now_us();
                deserted.look(now);
                if !wanted_still() {
                    return;
                }
                if now >= due {
                    break now;
                }
                futex::wait(&STATE, LOOKING, Some(deserted.sleep(due - now)), Scope::Private);
            };
            let (resident, waste) = self.look();
            took = process::now_us() - began;
            if waste * 100 > (resident - waste) * share() {
                self.give_back();
                statics::let_go_of_own_code();
            }
            self.seen = (resident, waste);
            let known = &mut self.known;
            self.fresh |= self.dense.gather(&self.pagemap, |block| {
                // A part of it was being freed, or used by a device.
                if let Some(place) = known.get_mut(block.0 as usize % PLACES) {
                    place.1 = process::now_us() + 8 * age();
                }
            });
        }
    }

    /// Finds blocks that waste. Returns the pages in RAM, and how many of them are wasted.
    fn look(&mut self) -> (u64, u64) {
        (self.count, self.fresh) = (0, false);
        self.dense.clear();
        let (mut resident, mut waste) = (0, 0);
        let mut from = Page(0);
        loop {
            // In pieces, so that the lock is not held while page tables are walked.
            let mut piece = [(Run { start: Page(0), pages: 0 }, Kind::Large); 64];
            let len = ENGINE.regions.read().copy_labelled(from, &mut piece);
            for (run, kind) in piece.iter().take(len) {
                let region = if *kind == Kind::Static { Region::Static } else { Region::Heap };
                // In windows, none of which has more runs of large pages than there is room for.
                let mut at = run.start;
                while at.0 < run.end().0 {
                    let window = Run { start: at, pages: WINDOW.min(run.end().0 - at.0) };
                    let mut huge = [Run { start: Page(0), pages: 0 }; (WINDOW / BLOCK_PAGES as u64) as usize + 1];
                    let mut count = 0;
                    let mut small = Count::<{ (WINDOW / BLOCK_PAGES as u64) as usize + 1 }>::from(at);
                    self.pagemap.walk(window, &mut |part, mapped| {
                        small.add(part, mapped);
                        resident += part.pages * u64::from(!mapped.zero);
                        if let Some(place) = huge.get_mut(count).filter(|_| mapped.huge && !mapped.zero) {
                            *place = part;
                            count += 1;
                        }
                    });
                    for part in huge.iter().take(count) {
                        waste += self.blocks(*part);
                    }
                    if wanted(region).large() {
                        small.full().for_each(|(block, adds)| self.full(block, adds));
                    }
                    at = Page((window.end().0 / BLOCK_PAGES as u64 * BLOCK_PAGES as u64).max(at.0 + 1));
                    if window.end() == run.end() {
                        break;
                    }
                }
                from = run.end();
            }
            if len < piece.len() {
                return (resident, waste);
            }
        }
    }

    /// A block of small pages is full, or a large one would add so many pages: it is to become large when it is still so
    /// after a while, and if all that is added stays below half of what may be wasted.
    fn full(&mut self, block: Block, adds: u64) {
        let now = process::now_us();
        let Some(place) = self.known.get_mut(block.0 as usize % PLACES) else { return };
        // A large page that was looked at and has become small ones, since a part of it was freed, is another matter.
        if place.0 != seen_small(block) {
            *place = (seen_small(block), now + age());
            self.fresh = true;
            return;
        }
        if place.1 > now {
            return;
        }
        let (mut added, when) = self.added;
        if now > when + 4 * age() {
            added = 0;
        }
        let (resident, waste) = self.seen;
        // Where memory may become short nothing is added.
        let allowed = if super::idle() { resident * share().min(100) / 200 } else { 0 };
        if (adds == 0 || waste + added + adds <= allowed) && self.dense.add(block) {
            self.added = (added + adds, if adds > 0 { now } else { when });
            // As a large page it is looked at anew.
            place.1 = now + AGAIN;
        }
    }

    /// Looks at the blocks of a run of large pages, and returns the pages that they waste.
    fn blocks(&mut self, run: Run) -> u64 {
        let Some(sparse) = &mut self.sparse else { return 0 };
        let now = process::now_us();
        let mut waste = 0;
        let mut block = run.start.block();
        while block.run().end().0 <= run.end().0 {
            let this = block;
            block = Block(block.0 + 1);
            if this.first().0 < run.start.0 {
                continue;
            }
            let Some(place) = self.known.get_mut(this.0 as usize % PLACES) else { continue };
            if place.0 != seen_large(this) {
                *place = (seen_large(this), now + age());
                self.fresh = true;
            }
            if place.1 > now {
                continue;
            }
            if sparse.guess_zeros(this) <= DENSE {
                place.1 = now + AGAIN;
                continue;
            }
            let zeros = sparse.count_zeros(this);
            if zeros < WORTH {
                place.1 = now + AGAIN;
                continue;
            }
            waste += u64::from(zeros);
            if let Some(found) = self.found.get_mut(self.count) {
                *found = (this.0, zeros.into());
                self.count += 1;
            }
        }
        waste
    }

    /// Gives back what the blocks found waste, a few that lie side by side at a time.
    fn give_back(&mut self) {
        let mut index = 0;
        while index < self.count && self.mappings < MAPPINGS && wanted_still() {
            let Some((first, _)) = self.found.get(index).copied() else { return };
            let beside =
                |more: &u64| self.found.get(index + *more as usize).is_some_and(|next| next.0 == first + *more);
            let left = (self.count - index).min(TOGETHER) as u64;
            let blocks = (1..left).find(|more| !beside(more)).unwrap_or(left);
            self.give_back_blocks(Block(first), blocks as u32);
            index += blocks as usize;
        }
    }

    fn give_back_blocks(&mut self, first: Block, count: u32) {
        let run = Run { start: first.first(), pages: u64::from(count * BLOCK_PAGES) };
        // Nobody of us maps, unmaps or forks; nor does the watcher hang wires or begin to page.
        let _placing = ream_heap::placing();
        let Some(_settled) = ENGINE.moving.try_lock() else { return };
        let ours = ENGINE.regions.read().first_in(run).is_some_and(|(part, _)| part == run);
        if !wanted_still() || !GIVING.load(SeqCst) || !ours || holds::any_locked(run) {
            return;
        }
        let Some(sparse) = &mut self.sparse else { return };
        let (known, age) = (&mut self.known, age());
        let mut any = false;
        let mut tell = |block: Block, outcome: Result<Given, Errno>| {
            let wait = match outcome {
                // What is touched of it from now on comes in small pages.
                Ok(Given::Part(_)) => age,
                Err(Errno::BUSY | Errno::AGAIN) => 4 * age,
                // One that was all zeros begins anew only once: whoever writes zeros to all of it wants it.
                Ok(Given::All | Given::Nothing) | Err(_) => AGAIN,
            };
            any |= matches!(outcome, Ok(Given::Part(_)));
            if let Some(place) = known.get_mut(block.0 as usize % PLACES) {
                place.1 = process::now_us() + wait;
            }
        };
        // SAFETY: anonymous private memory of the program that is managed by us, and that children inherit: see `give_nothing`.
        unsafe { sparse.give_back(first, count, WORTH, &mut tell) };
        // A mapping of its own, and one behind it, unless it is joined with those beside it.
        let joined = any && first.0 == self.next;
        self.mappings += if any && !joined { 2 } else { 0 };
        self.next = first.0 + u64::from(count);
    }
}
