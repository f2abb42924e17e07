//! Address space for small blocks: chunks of 64 MiB and more, from which jemalloc's arenas carve their extents one
//! after the other. What was carved is never returned; jemalloc keeps and reuses it, and gives back only its pages.

use core::marker::PhantomData;
use ream_page::{BLOCK_BYTES, PAGE_BYTES, Run};
use ream_sys::futex::{Guard, Mutex};
use ream_sys::memory::{self, Advice};

use crate::large::map_aligned;
use crate::{Engine, Kind, placing};

/// Chunks are multiples of this.
const CHUNK_BYTES: usize = 64 << 20;

/// The first bytes carved keep small pages: a program with a small heap would only clear large ones in vain.
const PLAIN_BYTES: usize = 4 << 20;

/// When the heap has grown to this they get large pages as well. That takes 2 ms, most of it for one call of the kernel
/// however much is to be done.
const LARGE_HEAP: usize = 32 << 20;

/// Where the next extent is carved.
#[derive(Clone, Copy)]
struct Cursor {
    next: usize,
    end: usize,
    /// Start of what keeps small pages in the present chunk, and its length.
    plain: (usize, usize),
    carved: usize,
    /// The present chunk lies on pages of a pool.
    pooled: bool,
}

/// All chunks of the process.
pub struct Chunks<E> {
    cursor: Mutex<Cursor>,
    engine: PhantomData<fn() -> E>,
}

impl<E: Engine> Chunks<E> {
    /// No chunks.
    pub const fn new() -> Chunks<E> {
        let cursor = Cursor { next: 0, end: 0, plain: (0, 0), carved: 0, pooled: false };
        Chunks { cursor: Mutex::new(cursor), engine: PhantomData }
    }

    /// Carves `bytes` (a multiple of 4096) at a multiple of `align`; they read as zeros. With `at` not 0 the extent
    /// begins there or is not carved. Returns the address.
    pub fn carve(&self, bytes: usize, align: usize, at: usize) -> Option<usize> {
        let mut cursor = self.cursor.lock();
        let _placing = placing();
        let align = align.max(PAGE_BYTES);
        let fit = |cursor: &Cursor| {
            let start = cursor.next.checked_next_multiple_of(align)?;
            (cursor.next != 0 && start.checked_add(bytes)? <= cursor.end).then_some(start)
        };
        let start = match fit(&cursor) {
            Some(start) if at == 0 || at == start => start,
            _ if at != 0 => return None,
            _ => {
                map_chunk::<E>(&mut cursor, bytes.checked_add(align)?)?;
                fit(&cursor)?
            }
        };
        cursor.next = start + bytes;
        cursor.carved += bytes;
        if E::in_session() && E::large_pages() {
            outgrow(&mut cursor);
        }
        if !cursor.pooled {
            E::add(Run::inside(start, bytes), Kind::Small);
        }
        Some(start)
    }

    /// Bytes carved so far.
    pub fn carved(&self) -> usize {
        self.cursor.lock().carved
    }

    /// The process has joined a session: the present chunk asks for large pages like those to come; from its first
    /// byte on with `all`.
    pub fn join_session(&self, all: bool) {
        let mut cursor = self.cursor.lock();
        if all {
            cursor.plain.1 = 0;
        }
        want_large_pages::<E>(&cursor);
    }

    /// A chunk of at least `bytes` on pages of a pool from which everything is carved from now on; false when there is
    /// none to be had.
    pub fn begin_pooled(&self, bytes: usize) -> bool {
        let mut cursor = self.cursor.lock();
        let _placing = placing();
        map_pooled::<E>(&mut cursor, bytes.max(PAGE_BYTES)).is_some()
    }

    /// Takes the lock for the duration of a fork, so that it is free in the child; with `alone` as
    /// [`Large::freeze`](crate::Large::freeze) does.
    pub fn freeze(&self, alone: bool) -> FrozenChunks<'_> {
        FrozenChunks { _guard: if alone { self.cursor.try_lock() } else { Some(self.cursor.lock()) } }
    }
}

impl<E: Engine> Default for Chunks<E> {
    fn default() -> Chunks<E> {
        Chunks::new()
    }
}

/// While it exists, nothing is carved.
pub struct FrozenChunks<'a> {
    _guard: Option<Guard<'a, Cursor>>,
}

fn map_pooled<E: Engine>(cursor: &mut Cursor, least: usize) -> Option<()> {
    let (start, length) = E::pooled(least, BLOCK_BYTES, least.checked_next_multiple_of(CHUNK_BYTES)?)?;
    *cursor = Cursor { next: start, end: start + length, plain: (0, 0), pooled: true, ..*cursor };
    Some(())
}

fn map_chunk<E: Engine>(cursor: &mut Cursor, least: usize) -> Option<()> {
    if map_pooled::<E>(cursor, least).is_some() {
        return Some(());
    }
    let session = E::in_session();
    let length = least.checked_next_multiple_of(CHUNK_BYTES)?;
    let map = |length| Some((map_aligned(length, BLOCK_BYTES, session)?.as_ptr().expose_provenance(), length));
    // Under a tight limit on address space the least will do.
    let (start, length) = map(length).or_else(|| map(least.next_multiple_of(PAGE_BYTES)))?;
    let plain = if cursor.end == 0 { PLAIN_BYTES.min(length) } else { 0 };
    *cursor = Cursor { next: start, end: start + length, plain: (start, plain), pooled: false, ..*cursor };
    if session {
        want_large_pages::<E>(cursor);
    }
    Some(())
}

fn want_large_pages<E: Engine>(cursor: &Cursor) {
    let start = cursor.plain.0 + cursor.plain.1;
    if start < cursor.end && E::large_pages() {
        // SAFETY: advice loses nothing.
        let _ = unsafe { memory::advise(start, cursor.end - start, Advice::HugePage) };
    }
}

/// Gives what kept small pages large ones, once the heap is large.
fn outgrow(cursor: &mut Cursor) {
    let (start, bytes) = cursor.plain;
    if bytes > 0 && cursor.carved > LARGE_HEAP {
        cursor.plain.1 = 0;
        // SAFETY: advice loses nothing, and the content stays. Where it cannot be done now, the kernel may do it later.
        unsafe {
            let _ = memory::advise(start, bytes, Advice::HugePage);
            let _ = memory::advise(start, bytes, Advice::Collapse);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::{AtomicU64, Ordering};
    use ream_page::Page;

    static ADDED: AtomicU64 = AtomicU64::new(0);

    struct Noted;
    impl Engine for Noted {
        fn add(run: Run, kind: Kind) {
            assert_eq!(kind, Kind::Small);
            ADDED.fetch_add(run.pages, Ordering::SeqCst);
        }
        fn remove(_: Run) {}
        fn discard(_: Run) {}
        fn moved(_: Run, _: Page) {}
        type Moving = ();
        type Discarding = ();
        fn moving(_: Run) {}
        fn engaged() -> bool {
            false
        }
        fn in_session() -> bool {
            true
        }
    }

    #[test]
    fn extents_are_apart_aligned_zero_and_told() {
        let chunks = Chunks::<Noted>::new();
        let sizes = [
            (2 << 20, 4096),
            (5 << 20, 4096),
            (40 << 20, 4096),
            (3 << 20, 2 << 20),
            (100 << 20, 4096),
            (4096, 8 << 20),
        ];
        let mut all = [(0, 0); 6];
        for ((bytes, align), place) in sizes.into_iter().zip(&mut all) {
            let start = chunks.carve(bytes, align, 0).unwrap();
            assert_eq!(start % align, 0);
            // SAFETY: carved for the test alone.
            unsafe {
                let start: *mut u8 = core::ptr::with_exposed_provenance_mut(start);
                assert_eq!((start.read(), start.add(bytes - 1).read()), (0, 0));
                start.write_bytes(1, 1);
                start.add(bytes - 1).write(1);
            }
            *place = (start, start + bytes);
        }
        all.sort_unstable();
        assert!(all.windows(2).all(|pair| pair[0].1 <= pair[1].0));
        let bytes: usize = sizes.iter().map(|(bytes, _)| bytes).sum();
        assert_eq!((chunks.carved(), ADDED.load(Ordering::SeqCst) as usize), (bytes, bytes / 4096));
        let end = chunks.carve(8192, 4096, 0).unwrap() + 8192;
        assert_eq!(chunks.carve(4096, 4096, end + 4096), None);
        assert_eq!(chunks.carve(4096, 4096, end), Some(end));
    }
}
