//! Moving pages without UFFDIO_MOVE, for kernels before 6.8: protect, copy, drop; and copy, empty the other way.
//! To the pager it looks the same, but pins are not recognised, and every page is copied.

use crate::file::{self, Fd};
use crate::inbox::Inbox;
use crate::memory::{self, Advice};
use crate::pagemap::Pagemap;
use crate::pieces::{Next, piecewise};
use crate::{Errno, Moved, Stop};
use ream_page::{PAGE_BYTES, Page, Run};

/// Pages protected and copied at a time, so that writers do not sleep for long.
const CHUNK: u32 = 64;

fn run(start: Page, pages: u32) -> Run {
    Run { start, pages: pages as u64 }
}

/// Pages of the run, counted from the first, that are all mapped (or all not).
fn prefix(pagemap: &mut Pagemap, whole: Run, mapped: bool) -> u32 {
    // Up to here everything was mapped, and the first page that was.
    let (mut end, mut first) = (whole.start, None);
    pagemap.walk(whole, &mut |part, _| {
        first.get_or_insert(part.start);
        if part.start == end {
            end = part.end();
        }
    });
    let stop = if mapped { end } else { first.unwrap_or(whole.end()) };
    stop.0.saturating_sub(whole.start.0) as u32
}

/// Calls again and again while mappings change. EAGAIN at the end.
fn settle(inbox: &mut Inbox, mut call: impl FnMut(&mut Inbox) -> Result<(), Errno>) -> Result<(), Errno> {
    let mut attempt = 0;
    loop {
        match call(inbox) {
            Err(Errno::AGAIN) if inbox.wait_for_change(attempt) => attempt += 1,
            other => return other,
        }
    }
}

/// Protects the first pages of a run, as many as one mapping holds; an error when the first cannot be.
fn protect(inbox: &mut Inbox, start: Page, pages: u32) -> Result<u32, Stop> {
    let mut part = pages;
    loop {
        let whole = run(start, part);
        match settle(inbox, |inbox| inbox.uffd.write_protect(start.address(), whole.bytes(), true)) {
            Ok(()) => return Ok(part),
            Err(Errno::AGAIN | Errno::NOMEM) => return Err(Stop::Busy),
            Err(_) if part > 1 => part /= 2,
            Err(_) => return Err(Stop::Mapping),
        }
    }
}

/// Frees a run, part by part where mappings have changed meanwhile.
pub(crate) fn unprotect(inbox: &mut Inbox, whole: Run) {
    let mut attempt = 0;
    loop {
        match inbox.uffd.write_protect(whole.start.address(), whole.bytes(), false) {
            Err(Errno::AGAIN) if attempt < 200_000 => {
                // Once it is known, whoever made the change goes on, and the kernel lets us.
                inbox.absorb_or_wait(attempt);
                attempt += 1;
            }
            Err(_) if whole.pages > 1 => {
                let half = whole.pages / 2;
                unprotect(inbox, Run { start: whole.start, pages: half });
                return unprotect(inbox, Run { start: whole.start.plus(half as u32), pages: whole.pages - half });
            }
            _ => return,
        }
    }
}

/// Copies mapped pages to empty frames and drops them.
///
/// # Safety
/// Content leaves the source, and the frames are overwritten. `memory` is /proc/self/mem.
pub(crate) unsafe fn move_out(
    inbox: &mut Inbox,
    pagemap: &mut Pagemap,
    memory: Fd,
    source: Page,
    frames: Page,
    pages: u32,
) -> Moved {
    let mut done = 0;
    while done < pages {
        if inbox.has_changed() {
            return Moved { pages: done, stop: Some(Stop::Busy) };
        }
        // SAFETY: the caller's promise.
        let step = unsafe {
            move_out_some(inbox, pagemap, memory, source.plus(done), frames.plus(done), (pages - done).min(CHUNK))
        };
        done += step.pages;
        if step.stop.is_some() {
            return Moved { pages: done, stop: step.stop };
        }
    }
    Moved { pages: done, stop: None }
}

unsafe fn move_out_some(
    inbox: &mut Inbox,
    pagemap: &mut Pagemap,
    memory: Fd,
    source: Page,
    frames: Page,
    pages: u32,
) -> Moved {
    let stopped = |stop| Moved { pages: 0, stop: Some(stop) };
    let free = prefix(pagemap, run(frames, pages), false);
    if free == 0 {
        return stopped(Stop::Exists);
    }
    if !memory::is_mapped(source.address()) {
        return stopped(Stop::Mapping);
    }
    let mapped = prefix(pagemap, run(source, free), true);
    if mapped == 0 {
        return stopped(Stop::Absent);
    }
    let held = match protect(inbox, source, mapped) {
        Ok(held) => held,
        Err(stop) => return stopped(stop),
    };
    // Through /proc, where a page that the program discards just now is an error and not a fault that would wait for
    // ourselves.
    let address = core::ptr::with_exposed_provenance_mut::<u8>(frames.address());
    // SAFETY: empty frames of the staging area, mapped for writing, which nobody else uses.
    let room = unsafe { core::slice::from_raw_parts_mut(address, run(frames, held).bytes()) };
    let copied = file::read_at(memory, room, source.address() as u64).unwrap_or(0) / PAGE_BYTES;
    let copied = (copied as u32).min(held);
    let mut gone = 0;
    if copied > 0 {
        // One mapping, and every page of it protected since before the copy: nothing written can be lost.
        // SAFETY: the content is in the frames.
        let dropped = unsafe { memory::advise(source.address(), run(source, copied).bytes(), Advice::DontNeed) };
        gone = if dropped.is_ok() { copied } else { 0 };
    }
    // Also wakes those who ran into the protection: they look again, and find the page absent. That is done whatever has
    // changed meanwhile: nothing stays protected.
    unprotect(inbox, run(source, held));
    inbox.uffd.wake(source.address(), run(source, held).bytes());
    if gone < held {
        let rest = run(frames.plus(gone), held - gone);
        // SAFETY: copies of pages that stay with the program.
        let _ = unsafe { memory::advise(rest.start.address(), rest.bytes(), Advice::DontNeed) };
    }
    match gone {
        0 if copied == 0 && pagemap.none(run(source, 1)) => stopped(Stop::Absent),
        0 => stopped(Stop::Mapping),
        _ => Moved { pages: gone, stop: None },
    }
}

/// Copies populated frames to absent pages, write-protected ones with `protect`; the frames stay. Wakes whoever sleeps on those
/// copied.
///
/// # Safety
/// The frames are populated, and nobody writes in them.
pub(crate) unsafe fn copy(inbox: &mut Inbox, frames: Page, destination: Page, pages: u32, protect: bool) -> Moved {
    let mut retries = 0;
    if inbox.has_changed() {
        return Moved { pages: 0, stop: Some(Stop::Busy) };
    }
    piecewise(pages, |done, part| {
        let (to, from) = (destination.plus(done), frames.plus(done));
        // SAFETY: the caller's promise.
        let progress = unsafe { inbox.uffd.copy(to.address(), from.address(), run(from, part).bytes(), protect) };
        let copied = ((progress.bytes / PAGE_BYTES) as u32).min(part);
        let next = match progress.result {
            Ok(()) => Next::Rest,
            Err(Errno::AGAIN) if copied > 0 => {
                retries = 0;
                Next::Rest
            }
            Err(Errno::AGAIN) if inbox.wait_for_change(retries) => {
                retries += 1;
                Next::Again
            }
            Err(Errno::AGAIN | Errno::NOMEM) => Next::Stop(Stop::Busy),
            Err(Errno::EXIST) => Next::Stop(Stop::Exists),
            Err(_) => Next::Half,
        };
        (copied, next)
    })
}

/// Copies populated frames to absent pages and empties them.
///
/// # Safety
/// Content leaves the frames.
pub(crate) unsafe fn move_in(
    inbox: &mut Inbox,
    pagemap: &mut Pagemap,
    frames: Page,
    destination: Page,
    pages: u32,
) -> Moved {
    let full = prefix(pagemap, run(frames, pages), true);
    // SAFETY: the caller's promise.
    let Moved { pages: done, stop } = unsafe { copy(inbox, frames, destination, full, false) };
    let stop = stop.or((full < pages).then_some(Stop::Absent));
    if done > 0 {
        // SAFETY: their content is with the program now.
        let _ = unsafe { memory::advise(frames.address(), run(frames, done).bytes(), Advice::DontNeed) };
    }
    Moved { pages: done, stop }
}
