//! Ream's own functions for programs that know of it: `include/ream.h` says what they mean. They answer in every state of
//! the process, with a session and without, before paging begins and while it goes on, and in forked children.
//!
//! What a caller names by a pointer is read and written by the kernel for us (`caller`), so an address that is none is an
//! error and no crash. No lock is held while a caller's function runs.

pub mod allocator;
pub mod begin;
mod blocks;
pub mod caller;
mod list;
pub mod phases;
pub mod switch;

use crate::blocks::set_errno;
use crate::engine::{volumes, wishes};
use crate::heap::in_session;
use crate::kernel::*;
use crate::maps::{any_managed, managed_parts};
use crate::{advice, blocks as heap_blocks, engine, heap, holds, init};
use core::ffi::{c_char, c_int, c_long, c_void};
use ream_page::Run;
use ream_pager::Usage;
use ream_stats::Engine;
use ream_sys::Errno;
use ream_sys::syscall::{call3, number};

/// No session: the program was not started with `ream run` (ENOTCONN).
const NO_SESSION: Errno = Errno(107);

/// While it exists, in a fork, nothing here changes.
pub struct Frozen {
    _usages: wishes::Frozen,
    _volumes: volumes::Frozen,
    _blocks: blocks::Frozen,
    _phase: phases::Frozen,
}

/// Takes the locks for the duration of a fork, after all others. Signals are blocked then.
pub fn freeze() -> Frozen {
    let (usages, volumes) = (wishes::freeze(), volumes::freeze());
    Frozen { _usages: usages, _volumes: volumes, _blocks: blocks::freeze(), _phase: phases::freeze() }
}

/// In a child.
///
/// # Safety
/// By the child's only thread.
pub unsafe fn fork_child() {
    blocks::fork_child();
    // SAFETY: the caller's promise.
    unsafe {
        begin::fork_child();
        #[cfg(feature = "inside")]
        crate::inside::fork_child();
    }
}

/// 0, or the error as a negative number.
fn answer(result: Result<(), Errno>) -> c_int {
    result.map_or_else(Errno::negative, |()| 0)
}

/// `struct ream_status` of the header.
#[repr(C)]
#[derive(Clone, Copy)]
struct Status {
    size: usize,
    support: u32,
    enabled: u32,
    session: u32,
    paging: u32,
    min: u64,
    max: u64,
    large_page: u64,
    budget: u64,
    managed: u64,
    resident: u64,
    engine: [u8; 16],
}

const LARGE_PAGES: u32 = 1;
const BUDGET: u32 = 2;
const PAGING: u32 = 4;

/// Fills in the state of the process.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn ream_status(to: *mut c_void) -> c_int {
    answer(status(to.expose_provenance()))
}

fn status(to: usize) -> Result<(), Errno> {
    let wanted = caller::size(to)?;
    if wanted < size_of::<usize>() {
        return Err(Errno::INVAL);
    }
    let session = init::session();
    let (on, min, max) = switch::state();
    let large = switch::kernel_has_large_pages();
    let mut status = Status {
        size: wanted.min(size_of::<Status>()),
        support: if large { LARGE_PAGES } else { 0 },
        enabled: on.into(),
        session: session.is_some().into(),
        paging: engine::engaged().into(),
        min,
        max,
        large_page: if large { ream_page::BLOCK_BYTES as u64 } else { 0 },
        budget: 0,
        managed: wishes::managed_pages() * ream_page::PAGE_BYTES as u64,
        resident: 0,
        engine: [0; 16],
    };
    if let Some(session) = session {
        status.support |= BUDGET | if engine::can_page() { PAGING } else { 0 };
        status.budget = session.ledger().budget_pages() * ream_page::PAGE_BYTES as u64;
        let name: &[u8] = match session.engine() {
            Engine::Auto => b"auto",
            Engine::Move => b"move",
            Engine::Copy | Engine::CopyAlways => b"copy",
            Engine::UserMode => b"usermode",
        };
        for (place, byte) in status.engine.iter_mut().zip(name) {
            *place = *byte;
        }
    }
    status.resident = list::resident_bytes();
    caller::put_front(to, &status, wanted)
}

/// Decides for which blocks that are made from now on there is large pages and management.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn ream_enable(on: c_int, min: usize, max: usize) -> c_int {
    answer(switch::set(on, min, max))
}

/// Fills in the regions of the process; returns how many there are.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn ream_regions(to: *mut c_void, count: usize, each: usize) -> c_long {
    match list::fill(to.expose_provenance(), count, each) {
        Ok(found) => found as c_long,
        Err(error) => error.negative().into(),
    }
}

/// Calls a function with each region, until it returns something else than 0.
///
/// # Safety
/// `tell` is null or a function of this type.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn ream_each_region(
    tell: Option<unsafe extern "C" fn(*const c_void, *mut c_void) -> c_int>,
    argument: *mut c_void,
) -> c_int {
    let Some(tell) = tell else { return Errno::INVAL.negative() };
    let mut result = 0;
    list::each(|region| {
        // SAFETY: the caller's promise; the region lives through the call.
        result = unsafe { tell(core::ptr::from_ref(region).cast(), argument) };
        result == 0
    });
    result
}

/// Memory of the caller's own; null with errno set when there is none.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn ream_alloc(bytes: usize, hints: *const c_void) -> *mut c_void {
    match blocks::allocate(bytes, hints.expose_provenance()) {
        Ok(address) => core::ptr::with_exposed_provenance_mut(address),
        Err(error) => {
            set_errno(error.0.into());
            core::ptr::null_mut()
        }
    }
}

/// Gives back what [`ream_alloc`] gave; null is fine.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn ream_free(block: *mut c_void) -> c_int {
    answer(blocks::free(block.expose_provenance()))
}

const WILLNEED: c_int = 1;
const COLD: c_int = 2;
const DROP: c_int = 3;
const SEQUENTIAL: c_int = 4;
const RANDOM: c_int = 5;
const KEEP: c_int = 6;
const NORMAL: c_int = 0;

/// The pages that hold a range, all of them mapped.
fn mapped(address: usize, bytes: usize) -> Result<Run, Errno> {
    let end = address.checked_add(bytes).ok_or(Errno::INVAL)?;
    if address == 0 || bytes == 0 || end > 1 << 56 {
        return Err(Errno::INVAL);
    }
    let run = Run::covering(address, bytes);
    const MS_ASYNC: usize = 1;
    // SAFETY: does nothing, except that it looks whether all of it is mapped.
    unsafe { call3(number::__NR_msync, run.start.address(), run.bytes(), MS_ASYNC) }.map_err(|_| Errno::NOMEM)?;
    Ok(run)
}

/// Says what is going to happen with a range.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn ream_advise(address: *mut c_void, bytes: usize, what: c_int) -> c_int {
    answer(advise(address.expose_provenance(), bytes, what))
}

fn advise(address: usize, bytes: usize, what: c_int) -> Result<(), Errno> {
    if !(NORMAL..=KEEP).contains(&what) {
        return Err(Errno::INVAL);
    }
    let run = mapped(address, bytes)?;
    let usage = match what {
        WILLNEED => {
            managed_parts(run, wishes::fetch);
            return Ok(());
        }
        COLD => {
            managed_parts(run, |part| holds::open_parts(part, wishes::cool));
            return Ok(());
        }
        DROP => return drop_content(address, bytes),
        SEQUENTIAL => Usage::Sequential,
        RANDOM => Usage::Random,
        KEEP => Usage::Keep,
        _ => Usage::Unknown,
    };
    if any_managed(run) {
        wishes::set_usage(run, usage);
    }
    Ok(())
}

/// The whole pages of a range read as zeros afterwards. Only in blocks of [`ream_alloc`], in large blocks of malloc and in
/// the program's own mappings: what else there is has other users.
fn drop_content(address: usize, bytes: usize) -> Result<(), Errno> {
    let run = Run::inside(address, bytes);
    if run.pages == 0 {
        return Ok(());
    }
    if !blocks::whole(run) && !list::may_drop(run) {
        return Err(Errno::PERM);
    }
    // SAFETY: memory of the program, which has said that it needs the content no more.
    unsafe { advice::advise(run.start.address(), run.bytes(), MADV_DONTNEED) }
}

/// Brings a range in, and keeps it in RAM.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn ream_pin(address: *mut c_void, bytes: usize) -> c_int {
    answer(
        mapped(address.expose_provenance(), bytes)
            .and_then(|run| if in_session() { holds::pin(run) } else { mlock(run.start.address(), run.bytes(), 0) }),
    )
}

/// Lets a range be paged again.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn ream_unpin(address: *mut c_void, bytes: usize) -> c_int {
    answer(mapped(address.expose_provenance(), bytes).and_then(|run| {
        if !in_session() {
            return munlock(run.start.address(), run.bytes());
        }
        holds::unpin(run);
        Ok(())
    }))
}

/// A part of the program's work begins; null: it ends, and none begins.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn ream_phase(name: *const c_char) -> c_int {
    answer(phases::enter(name.expose_provenance()))
}

/// Changes the budget of the session.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn ream_budget(bytes: u64) -> c_int {
    answer(budget(bytes))
}

fn budget(bytes: u64) -> Result<(), Errno> {
    /// Least budget.
    const LEAST: u64 = 16 << 20;
    let (entry, session) = engine::account().ok_or(NO_SESSION)?;
    // Pagers have places for what is on its way: as many as the budget at the beginning asked for, and they suffice for
    // four times as much.
    let most = session.config().budget_bytes.saturating_mul(4);
    if bytes < LEAST || bytes > most {
        return Err(Errno(34));
    }
    if !entry.set_budget(session.ledger(), ream_stats::whole_pages(bytes)) {
        return Err(Errno::BUSY);
    }
    wishes::budget_changed();
    Ok(())
}

/// Begins a session in this process.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn ream_start(budget: u64, store: *const c_char) -> c_int {
    answer(begin::start(budget, store.expose_provenance()))
}

/// What an error code of these functions means: a text that stays.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn ream_error(code: c_int) -> *const c_char {
    let text = match code.checked_neg() {
        Some(0) => c"no error",
        Some(1) => c"not allowed here: only blocks of ream_alloc, large blocks of malloc and mappings can be dropped",
        Some(2) => c"no ream command: neither beside the library nor in PATH",
        Some(12) => c"no memory: none is mapped there, or there is none left, or it would exceed half of the budget",
        Some(14) => c"bad address",
        Some(16) => c"in use: too much is kept in RAM for this budget, or libream.so is in the process already",
        Some(22) => c"invalid argument",
        Some(28) => c"no room: there are 32 phases, or three other stores, already",
        Some(34) => c"out of range: a budget is 16 MiB at least, and four times that of the start at most",
        Some(95) => c"not supported: the page size, or a store of its own without a session whose store is plain files on a disk",
        Some(107) => c"no session: start the program with 'ream run', or begin one with ream_start",
        Some(114) => c"there is a session already: ream_budget changes its budget",
        _ => c"error of the system",
    };
    text.as_ptr()
}

/// What blocks of malloc are large, unless the program says otherwise.
fn usual_large() -> usize {
    // Where no others are ours, smaller ones are worth it, too.
    if cfg!(feature = "inside") { 1 << 20 } else { ream_heap::LARGE_BYTES }
}

/// Puts the switch into effect for malloc's blocks.
fn switched(min: usize) -> Result<(), Errno> {
    #[cfg(feature = "inside")]
    crate::inside::take_over()?;
    if heap::alone() || cfg!(feature = "inside") {
        heap_blocks::set_large_from(min);
    }
    heap::LARGE.drain();
    Ok(())
}
