//! The process's heap: one registry of large blocks, one set of chunks for small ones, joined to the engine and, through
//! the linker, to jemalloc.

use crate::abi::switch;
use crate::{blocks, engine, holds, lending, locks, pages, pool, regions};
use core::sync::atomic::{AtomicU8, Ordering};
#[cfg(not(feature = "inside"))]
use ream_heap::small::Arenas;
use ream_heap::{Chunks, Engine, Kind, Large};
use ream_page::{Page, Run};
use ream_stats::{Pages, Region};

/// How the heap reaches the engine.
pub struct Paged;

static CHUNKS: Chunks<Paged> = Chunks::new();
/// All large blocks.
pub static LARGE: Large<Paged> = Large::new();
/// Not known yet: other constructors may allocate before ours. The engine is told of everything, in case.
const EARLY: u8 = 0;
/// No session: the engine is told of nothing any more.
const ALONE: u8 = 1;
/// In a session.
const JOINED: u8 = 2;
static STAGE: AtomicU8 = AtomicU8::new(EARLY);

/// Whether the process has joined a session.
pub fn in_session() -> bool {
    STAGE.load(Ordering::Relaxed) == JOINED
}

/// From now on mappings are made without reserve and on the pages that the session wants.
pub fn join_session() {
    STAGE.store(JOINED, Ordering::Relaxed);
    let wanted = pages::wanted(Region::Heap);
    CHUNKS.join_session(wanted == Pages::Huge);
    if wanted == Pages::Gigantic {
        // Blocks that a page of 1 GiB is too large for share one.
        blocks::set_large_from(blocks::MOST_SHARED);
    }
}

/// The heap begins on pages of a pool, where those are wanted; false when the pool has none to give, or none so large.
pub fn begin_pooled() -> bool {
    !pages::wanted(Region::Heap).pooled() || CHUNKS.begin_pooled(0) && !pool::has_fallen()
}

/// The program runs without a session.
pub fn stay_alone() {
    STAGE.store(ALONE, Ordering::Relaxed);
}

/// Whether it is known that the program runs without a session.
pub fn alone() -> bool {
    STAGE.load(Ordering::Relaxed) == ALONE
}

fn told() -> bool {
    STAGE.load(Ordering::Relaxed) != ALONE
}

/// Bytes that small blocks have, or had.
pub fn small_bytes() -> usize {
    CHUNKS.carved()
}

/// Takes the lock of the chunks for the duration of a fork; with `alone` only if it is free.
pub fn freeze_chunks(alone: bool) -> ream_heap::FrozenChunks<'static> {
    CHUNKS.freeze(alone)
}

impl Engine for Paged {
    type Moving = (locks::Moving, engine::Moving);
    type Discarding = engine::Discarding;
    fn add(run: Run, kind: Kind) {
        let kind = match kind {
            Kind::Large => regions::Kind::Large,
            Kind::Small => regions::Kind::Small,
        };
        // Small blocks stay resident where the kernel could not use them otherwise: libc's own data are among them.
        if told() && !(kind == regions::Kind::Small && lending::on()) {
            locks::manage(run, kind);
        } else if told() {
            locks::take(run, kind);
        }
    }
    fn remove(run: Run) {
        if told() {
            locks::forget(run);
            engine::remove(run);
            holds::forget(run);
        }
    }
    fn discard(run: Run) -> engine::Discarding {
        engine::discarding(|| engine::discard(run))
    }
    fn moving(run: Run) -> (locks::Moving, engine::Moving) {
        (locks::moving(run), engine::moving(run))
    }
    fn moved(from: Run, to: Page) {
        if told() {
            locks::moved(from, to);
            engine::moved(from, to);
            holds::moved(from, to);
        }
    }
    fn engaged() -> bool {
        engine::engaged()
    }
    fn in_session() -> bool {
        in_session()
    }
    fn large_pages() -> bool {
        if in_session() { pages::wanted(Region::Heap).large() } else { switch::on_alone() }
    }
    fn wanted(bytes: usize) -> bool {
        switch::wanted(bytes)
    }
    fn pooled(bytes: usize, align: usize, welcome: usize) -> Option<(usize, usize)> {
        pool::take(bytes, align, welcome)
    }
    fn pool_unit(address: usize) -> Option<usize> {
        pool::unit(address)
    }
    fn marked(run: Run) -> bool {
        holds::any(run)
    }
    fn unpooled(run: Run) {
        pool::unmapped(run);
    }
}

#[cfg(not(feature = "inside"))]
impl Arenas for Paged {
    fn chunks() -> &'static Chunks<Paged> {
        &CHUNKS
    }
}

/// jemalloc's seams, where there is a linker that joins them: not in unit tests.
#[cfg(not(any(test, feature = "inside")))]
pub mod seams {
    ream_heap::seams!(super::Paged);
}
