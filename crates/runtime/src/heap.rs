//! The process's heap: one registry of large blocks, one set of chunks for small ones, joined to the engine and, through
//! the linker, to jemalloc.

use crate::engine;
use crate::lending;
use crate::regions;
use core::sync::atomic::{AtomicU8, Ordering};
use ream_heap::small::Arenas;
use ream_heap::{Chunks, Engine, Kind, Large};
use ream_page::{Page, Run};

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

/// From now on mappings are made without reserve and ask for large pages.
pub fn join_session(large_from_the_start: bool) {
    STAGE.store(JOINED, Ordering::Relaxed);
    CHUNKS.join_session(large_from_the_start);
}

/// The program runs without a session.
pub fn stay_alone() {
    STAGE.store(ALONE, Ordering::Relaxed);
}

fn told() -> bool {
    STAGE.load(Ordering::Relaxed) != ALONE
}

/// Takes the lock of the chunks for the duration of a fork.
pub fn freeze_chunks() -> ream_heap::FrozenChunks<'static> {
    CHUNKS.freeze()
}

impl Engine for Paged {
    type Moving = engine::Moving;
    fn add(run: Run, kind: Kind) {
        let kind = match kind {
            Kind::Large => regions::Kind::Large,
            Kind::Small => regions::Kind::Small,
        };
        // Small blocks stay resident where the kernel could not use them otherwise: libc's own data are among them.
        if told() && !(kind == regions::Kind::Small && lending::on()) {
            engine::add(run, kind);
        }
    }
    fn remove(run: Run) {
        if told() {
            engine::remove(run);
        }
    }
    fn discard(run: Run) {
        engine::discard(run);
    }
    fn moving(run: Run) -> engine::Moving {
        engine::moving(run)
    }
    fn moved(from: Run, to: Page) {
        if told() {
            engine::moved(from, to);
        }
    }
    fn engaged() -> bool {
        engine::engaged()
    }
    fn in_session() -> bool {
        in_session()
    }
}

impl Arenas for Paged {
    fn chunks() -> &'static Chunks<Paged> {
        &CHUNKS
    }
}

/// jemalloc's seams, where there is a linker that joins them: not in unit tests.
#[cfg(not(test))]
pub mod seams {
    ream_heap::seams!(super::Paged);
}
