//! Memory of the program that the kernel is about to use, where the userfaultfd is one for ordinary users and serves no
//! accesses by the kernel itself. `libream_calls.so` wraps libc's functions and says here what each call will touch.

use crate::holds;
use crate::maps::{managed_parts, valid};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use ream_page::{PAGE_BYTES, Page, Run};
use ream_sys::loans::{Chain, Loans};
use ream_sys::process;

/// The loans of this process.
pub static LOANS: Loans = Loans::new();
static ON: AtomicBool = AtomicBool::new(false);

/// Longest that a thread waits for a free slot before it keeps its pages for good, in microseconds.
const PATIENCE: u64 = 1_000_000;

/// From now on memory is lent. At the start of a process, before its program runs.
pub fn begin() {
    ON.store(true, Relaxed);
}

/// Whether accesses by the kernel must be prepared.
pub fn on() -> bool {
    ON.load(Relaxed)
}

/// The pages that hold `bytes` bytes at `address`, cut where address space ends; none for null.
fn covering(address: usize, bytes: usize) -> Run {
    let end = address.saturating_add(bytes).min((1 << 56) - PAGE_BYTES);
    if address == 0 || end <= address {
        return Run { start: Page(0), pages: 0 };
    }
    Run::covering(address, end - address)
}

/// Lends what is managed of a range, adding to `chain`: its pages are resident until [`take_back`].
pub fn lend(address: usize, bytes: usize, chain: Chain) -> Chain {
    if !on() {
        return chain;
    }
    let run = covering(address, bytes);
    let mut now = chain;
    managed_parts(run, |part| now = lend_part(part, now));
    if now != chain {
        LOANS.settle();
        // Of what is protected as well: pages without content were not brought in when it was.
        managed_parts(run, |part| holds::readable_parts(part, touch));
    }
    now
}

fn lend_part(part: Run, chain: Chain) -> Chain {
    let mut began = None;
    loop {
        if let Some(chain) = LOANS.lend(part, chain) {
            return chain;
        }
        // Who need not wait does not look at the clock.
        let now = process::now_us();
        if now - *began.get_or_insert(now) > PATIENCE {
            // Thousands of threads wait in calls.
            holds::keep(part);
            return chain;
        }
        process::yield_now();
    }
}

/// Brings the pages in.
fn touch(part: Run) {
    for index in 0..part.pages {
        // SAFETY: managed pages that the program has not closed are readable; a byte is read, and not used.
        unsafe { core::ptr::with_exposed_provenance::<u8>(Page(part.start.0 + index).address()).read_volatile() };
    }
}

/// The call has returned.
pub fn take_back(chain: Chain) {
    LOANS.take_back(chain);
}

/// Pages known to be kept or not managed, each with the number of changes of what is managed.
static KNOWN: [AtomicU64; 512] = [const { AtomicU64::new(0) }; 512];
static CHANGES: AtomicU64 = AtomicU64::new(0);
/// As much of that number as fits beside a page's.
const COUNTED: u64 = 0xffff;

/// What is managed has changed: pages known not to be may be now.
pub fn changed() {
    // Before a number comes again, nothing is known with it.
    if CHANGES.fetch_add(1, Relaxed) & COUNTED == COUNTED {
        KNOWN.iter().for_each(|known| known.store(0, Relaxed));
    }
}

/// Keeps what is managed of a range resident for as long as it is mapped: libc hands it to the kernel again and again
/// without being asked (locks, stacks of signals, buffers of streams).
pub fn keep(address: usize, bytes: usize) {
    if !on() {
        return;
    }
    let run = covering(address, bytes);
    for index in 0..run.pages {
        let page = run.start.0 + index;
        let changes = CHANGES.load(Relaxed);
        let Some(known) = KNOWN.get(page as usize % KNOWN.len()) else { continue };
        let entry = page << COUNTED.count_ones() | changes & COUNTED;
        if known.load(Relaxed) != entry {
            managed_parts(Run { start: Page(page), pages: 1 }, holds::keep);
            known.store(entry, Relaxed);
        }
    }
}

/// Lends the vectors of a call, and what they name.
///
/// # Safety
/// So many pairs of address and length.
pub unsafe fn lend_parts(parts: usize, count: usize) -> Chain {
    let mut chain = lend(parts, count.saturating_mul(16), Chain::default());
    if on() && valid(parts & !(PAGE_BYTES - 1), PAGE_BYTES) {
        // SAFETY: the caller's promise.
        let list =
            unsafe { core::slice::from_raw_parts(core::ptr::with_exposed_provenance::<[usize; 2]>(parts), count) };
        for [address, bytes] in list {
            chain = lend(*address, *bytes, chain);
        }
    }
    chain
}
