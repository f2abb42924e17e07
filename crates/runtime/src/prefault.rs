//! `--prefault`: memory that is there before the program touches it. Pages of a pool are reserved (`reserve.rs`); other
//! memory is populated by the thread that maps it, at once, as long as it fits the budget. On machines of several NUMA
//! nodes the session asks for that only where it takes nothing to a node that others would have chosen.

use crate::engine::{tell, warn};
use crate::kernel::*;
use crate::statics;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use ream_page::{PAGE_BYTES, Run};
use ream_stats::{Config, Region};
use ream_sys::Errno;
use ream_sys::process;

/// Bits by [`Region`]: what is populated.
static POPULATED: AtomicU32 = AtomicU32::new(0);
/// Bits by [`Region`]: without which the program does not run.
static REQUIRED: AtomicU32 = AtomicU32::new(0);
/// Bytes of the heap that are still to be populated.
static HEAP_LEFT: AtomicU64 = AtomicU64::new(0);
/// Bytes of a stack that are populated.
static STACK_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Whether memory of a region is populated when it is mapped.
pub fn populated(region: Region) -> bool {
    POPULATED.load(Ordering::Relaxed) >> region as u32 & 1 != 0
}

/// What the session wants.
pub fn begin(config: &Config) {
    let all = |region: Region| config.prefault_bytes.get(region as usize).copied().filter(|bytes| *bytes > 0);
    HEAP_LEFT.store(all(Region::Heap).unwrap_or(u64::MAX), Ordering::Relaxed);
    STACK_BYTES.store(all(Region::Stack).unwrap_or(1 << 40) as usize, Ordering::Relaxed);
    REQUIRED.store(config.prefault_required, Ordering::Relaxed);
    POPULATED.store(config.prefault_populate, Ordering::Relaxed);
}

/// A range of the heap or of static data has been mapped; it can be populated if it fits the budget.
pub fn mapped(run: Run, region: Region, fits: bool) {
    if !populated(region) || run.pages == 0 {
        return;
    }
    let mut bytes = run.bytes();
    if region == Region::Heap {
        let take = |left: u64| left.checked_sub(left.min(bytes as u64));
        let left = HEAP_LEFT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).unwrap_or(0);
        bytes = left.min(bytes as u64) as usize / PAGE_BYTES * PAGE_BYTES;
    }
    if bytes == 0 {
        return;
    }
    if !fits {
        return refused(region, bytes, None);
    }
    populate(run.start.address(), bytes, region);
}

/// Pages of a pool have been mapped for a region.
///
/// # Errors
/// There is a page that cannot be had.
pub fn pooled(address: usize, bytes: usize, region: Region) -> Result<(), Errno> {
    if !populated(region) {
        return Ok(());
    }
    // SAFETY: brings pages in.
    unsafe { madvise(address, bytes, MADV_POPULATE_WRITE) }
}

/// The calling thread's stack lies between these addresses.
pub fn stack(low: usize, top: usize) {
    if populated(Region::Stack) {
        let low = low.max(top.saturating_sub(STACK_BYTES.load(Ordering::Relaxed)) / PAGE_BYTES * PAGE_BYTES);
        populate(low, top - low, Region::Stack);
    }
}

fn populate(address: usize, bytes: usize, region: Region) {
    // SAFETY: brings pages in, and changes no content.
    if let Err(error) = unsafe { madvise(address, bytes, MADV_POPULATE_WRITE) } {
        refused(region, bytes, Some(error));
    }
}

/// Says, once, that a range is not there beforehand; or ends the process, where it must be.
fn refused(region: Region, bytes: usize, error: Option<Errno>) {
    static SAID: AtomicBool = AtomicBool::new(false);
    let required = required(region);
    if !required && SAID.swap(true, Ordering::Relaxed) {
        return;
    }
    let (mib, name) = (bytes.next_multiple_of(1 << 20) >> 20, name(region));
    let say = |line: core::fmt::Arguments<'_>| {
        if required {
            tell(format_args!("--prefault: {line}; the program is stopped"));
        } else {
            warn(format_args!("--prefault: {line}; it comes at its first touch"));
        }
    };
    match error {
        None => say(format_args!("{mib} MiB more of the {name} than the budget has room for")),
        Some(error) => say(format_args!("{mib} MiB of the {name} cannot be brought in (errno {})", error.0)),
    }
    if required {
        process::end_process(125);
    }
}

/// Whether the program must not run without.
pub fn required(region: Region) -> bool {
    REQUIRED.load(Ordering::Relaxed) >> region as u32 & 1 != 0
}

fn name(region: Region) -> &'static str {
    match region {
        Region::Static => "static data",
        Region::Stack => "stack",
        _ => "heap",
    }
}

/// Maps the pages of the program's code and its libraries'.
pub fn code() {
    if populated(Region::Code) {
        statics::each_code(&mut |run| {
            // The kernel's own object has pages that cannot be brought in.
            // SAFETY: maps pages for reading.
            let _ = unsafe { madvise(run.start.address(), run.bytes(), MADV_POPULATE_READ) };
        });
    }
}

/// Whether memory that was brought in beforehand must not be taken for waste.
pub fn keeps_zeros() -> bool {
    populated(Region::Heap) || populated(Region::Static)
}

/// Says that so many bytes of the heap could not be reserved; or ends the process, where they must be.
pub fn not_reserved(bytes: usize, why: impl core::fmt::Display) {
    let mib = bytes >> 20;
    if required(Region::Heap) {
        tell(format_args!(
            "--prefault: {mib} MiB of the heap cannot be reserved: {why}; the program is not started (as root: ream setup \
             --hugetlb SIZE)"
        ));
        process::end_process(125);
    }
    warn(format_args!("--prefault: {mib} MiB of the heap cannot be reserved: {why}"));
}
