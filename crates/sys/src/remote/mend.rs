//! Copies that were lost are made again, while there is nothing more urgent: pages are read from who has them and written to
//! who has not, a few at a time, by the lanes for read-ahead and write-back.
//!
//! A page that is written anew meanwhile is left out: what was read then is no longer what its seal is for. So is one that did
//! not open: what is there instead is not what its number was used for, and the same number with anything else gives the page
//! away. Whoever seals asks for both.

use super::changes::Change;
use super::{AHEAD, CHUNK, Nature, Op, Remote, SEGMENT, SPILLED, Table};
use crate::file::Part;
use crate::memory::MapSlice;
use crate::{Errno, process};
use ream_page::PAGE_BYTES;
use ream_stats::SERVERS;

/// Runs of pages that are copied at once.
pub(super) const JOBS: usize = 4;
/// Slots that are looked at, at once.
pub(super) const LOOK: u32 = 1 << 16;
/// Instead of a server: new rows, where pages have a sum.
pub(super) const LOG: usize = usize::MAX;
/// When all was looked at and some of it is under way, how long until it is looked at again.
const BRIEF: u64 = 1000;
/// When there was nobody to copy to, or to copy from, how long until that is tried again, in microseconds.
pub(super) const AGAIN: u64 = 100_000;

/// A run of pages that is being copied.
#[derive(Clone, Copy)]
pub(super) struct Job {
    busy: bool,
    table: u32,
    slot: u32,
    pages: u32,
    /// Who is to get it.
    target: usize,
    /// It comes from where pages are in clear: nobody vouches for it, so it gets a number of its own.
    pub(super) filed: bool,
    /// It moves between servers and the disk below; no copy of it is missing.
    pub(super) moved: bool,
    /// Its pages keep their numbers: only those are copied that have opened, bit by page.
    must_open: bool,
    opened: u64,
    versions: [u32; CHUNK as usize],
    part: Part,
}

const _: () = assert!(CHUNK <= u64::BITS, "a bit for each page of a job");

impl Job {
    pub(super) fn new(table: u32, slot: u32, pages: u32, target: usize) -> Job {
        Job { busy: true, table, slot, pages, target, ..FREE }
    }

    /// Its slots: the first, and how many.
    #[cfg(test)]
    pub(super) fn run(&self) -> (u32, u32) {
        (self.slot, self.pages)
    }

    /// Whether a page of it may be sealed with the number that it had.
    fn may_seal(&self, slot: u32) -> bool {
        let at = slot.wrapping_sub(self.slot);
        at < self.pages && (!self.must_open || self.opened >> at & 1 != 0)
    }
}

const FREE: Job = Job {
    busy: false,
    table: 0,
    slot: 0,
    pages: 0,
    target: 0,
    filed: false,
    moved: false,
    must_open: true,
    opened: 0,
    versions: [0; CHUNK as usize],
    part: Part { address: 0, bytes: 0 },
};

/// The copying.
pub(super) struct Mend {
    first_tag: u32,
    memory: MapSlice<u8>,
    jobs: [Job; JOBS],
    /// Where the search goes on; whether there is anything to be found.
    table: u32,
    slot: u32,
    awake: bool,
    /// Whether something was found since the search began at the start, where pages have a sum whether that got on, and when it
    /// may begin again.
    found: bool,
    not_before: u64,
    /// Pages could not be copied, since they did not open, or nobody took them: that may be otherwise later.
    refused: bool,
}

impl Mend {
    /// None: there is one server alone, so far.
    pub(super) const fn none() -> Mend {
        Mend {
            first_tag: 0,
            memory: MapSlice::empty(),
            jobs: [FREE; JOBS],
            table: 0,
            slot: 0,
            awake: false,
            found: false,
            not_before: 0,
            refused: false,
        }
    }

    pub(super) fn new(first_tag: u32) -> Result<Mend, Errno> {
        let memory = MapSlice::new(JOBS * CHUNK as usize * PAGE_BYTES)?;
        Ok(Mend { first_tag, memory, ..Mend::none() })
    }

    pub(super) fn is_some(&self) -> bool {
        !self.memory.is_empty()
    }

    /// There may be something to do.
    pub(super) fn wake(&mut self) {
        self.awake = true;
        self.not_before = 0;
        (self.table, self.slot) = (0, 0);
    }

    /// A place for a job.
    pub(super) fn free_place(&self) -> Option<usize> {
        self.jobs.iter().position(|job| !job.busy)
    }

    pub(super) fn is_busy(&self) -> bool {
        self.awake
    }

    /// Where the search goes on: a store, and a slot.
    pub(super) fn place(&self) -> (u32, u32) {
        (self.table, self.slot)
    }

    pub(super) fn go_on_at(&mut self, place: (u32, u32)) {
        (self.table, self.slot) = place;
    }

    /// The search begins at the start; whether anything came of what it had found, or may still.
    pub(super) fn begin_again(&mut self) -> bool {
        self.go_on_at((0, 0));
        core::mem::take(&mut self.found) || self.jobs.iter().any(|job| job.busy)
    }

    /// There is something to be copied, in a moment.
    pub(super) fn has_found(&mut self) {
        self.found = true;
    }

    /// Whether there was something that could not be copied; once.
    pub(super) fn take_refused(&mut self) -> bool {
        core::mem::take(&mut self.refused)
    }

    /// Who is just getting something of a store's slots, a bit for each.
    pub(super) fn targets(&self, table: u32, slot: u32, pages: u32) -> u32 {
        let mut jobs = self.jobs.iter().filter(|job| job.busy && job.table == table && job.target < SERVERS);
        let touching = jobs.by_ref().filter(|job| job.slot < slot + pages && slot < job.slot + job.pages);
        touching.fold(0, |all, job| all | 1 << job.target)
    }

    /// Whether slots are being copied.
    pub(super) fn copies(&self, table: u32, slot: u32, pages: u32) -> bool {
        let mut jobs = self.jobs.iter();
        jobs.any(|job| job.busy && job.table == table && job.slot < slot + pages && slot < job.slot + job.pages)
    }

    pub(super) fn found(&self, table: u32, slot: u32, pages: u32, target: usize) -> Found {
        Found::Job(Job::new(table, slot, pages, target))
    }

    /// The number that a job's slot had when that was begun.
    pub(super) fn version_of(&self, job: usize, slot: u32) -> u32 {
        let job = self.jobs.get(job);
        job.and_then(|job| job.versions.get(slot.checked_sub(job.slot)? as usize)).copied().unwrap_or(0)
    }

    /// A page of a read has opened; if the read is a job's, it is what was written.
    pub(super) fn opened(&mut self, tag: u32, slot: u32) {
        let job = tag.checked_sub(self.first_tag).and_then(|number| self.jobs.get_mut(number as usize));
        let Some(job) = job.filter(|job| (job.slot..job.slot + job.pages).contains(&slot)) else { return };
        job.opened |= 1 << (slot - job.slot);
    }

    /// From this slot on a job's pages are read once more.
    pub(super) fn reads_again(&mut self, tag: u32, slot: u32) {
        let job = tag.checked_sub(self.first_tag).and_then(|number| self.jobs.get_mut(number as usize));
        let Some(job) = job.filter(|job| (job.slot..job.slot + job.pages).contains(&slot)) else { return };
        job.opened &= (1 << (slot - job.slot)) - 1;
    }

    /// Of a job that has been read the first run is left that may be copied. False when there is none.
    fn keep_opened(&mut self, job: usize, tables: &MapSlice<Table>) -> bool {
        let Some(job) = self.jobs.get_mut(job) else { return false };
        let Some(table) = tables.get(job.table as usize) else { return false };
        let (first, end) = (job.slot, job.slot + job.pages);
        // What was written anew meanwhile need not open.
        let stays = |(slot, version): &(u32, &u32)| table.version(*slot) == **version && table.holder(*slot) != 0;
        let mut staying = (first..end).zip(&job.versions).filter(stays);
        self.refused |= staying.any(|(slot, _)| !job.may_seal(slot));
        let lead = (first..end).take_while(|slot| !job.may_seal(*slot)).count();
        let pages = (first + lead as u32..end).take_while(|slot| job.may_seal(*slot)).count();
        (job.slot, job.pages) = (first + lead as u32, pages as u32);
        if pages > 0 {
            job.opened >>= lead;
            job.versions.copy_within(lead.., 0);
            job.part = Part { address: job.part.address + lead * PAGE_BYTES, bytes: pages * PAGE_BYTES };
        }
        pages > 0
    }

    /// Whether a slot of the own store is one of a job, may be sealed, and was not written since that was begun.
    pub(super) fn has(&self, job: usize, slot: u32, own: &Table) -> bool {
        let Some(job) = self.jobs.get(job) else { return false };
        let version = slot.checked_sub(job.slot).and_then(|at| job.versions.get(at as usize));
        version == Some(&own.version(slot)) && job.may_seal(slot) && own.holder(slot) != 0
    }

    /// Whether all pages of a job may be sealed, and none was written since it was read.
    pub(super) fn is_current(&self, job: usize, tables: &MapSlice<Table>) -> bool {
        let Some((job, table)) = self.jobs.get(job).and_then(|job| Some((job, tables.get(job.table as usize)?))) else {
            return false;
        };
        let pages = job.versions.iter().zip(job.slot..job.slot + job.pages);
        pages
            .take(job.pages as usize)
            .all(|(version, slot)| table.version(slot) == *version && table.holder(slot) != 0 && job.may_seal(slot))
    }
}

impl Remote {
    /// Begins to copy what has too few copies. Returns whether to go on at once.
    pub(super) fn advance_mend(&mut self) -> bool {
        if !self.mend.awake {
            return false;
        }
        if self.counts.missing + self.log.exposed.0 == 0 && !self.log.leaving {
            self.mend.awake = self.mend.jobs.iter().any(|job| job.busy);
            return false;
        }
        if self.log.is_some() && !(self.log.may_copy() && self.has_room()) {
            return false;
        }
        let now = process::now_us();
        if now < self.mend.not_before || self.room.holds(now) {
            return false;
        }
        while let Some(number) = self.mend.free_place() {
            match self.find_job() {
                Found::Job(job) => self.start_job(number, job),
                Found::Nothing => {
                    self.mend.not_before = now + AGAIN;
                    return false;
                }
                Found::More => {
                    let refused = self.mend.take_refused();
                    self.mend.not_before = now + if refused { AGAIN } else { BRIEF };
                    return false;
                }
            }
        }
        false
    }

    /// Looks for a run of slots that somebody has, and somebody else should.
    fn find_job(&mut self) -> Found {
        if self.log.is_some() {
            return self.find_row_job();
        }
        let can = self.up | SPILLED;
        let mut looked = 0;
        while looked < LOOK {
            let (index, first) = (self.mend.table, self.mend.slot);
            let Some(table) = self.tables.get(index as usize).filter(|_| (index as usize) < self.table_count) else {
                (self.mend.table, self.mend.slot) = (0, 0);
                return if core::mem::take(&mut self.mend.found) { Found::More } else { Found::Nothing };
            };
            let short = |slot: &u32| self.counts.is_short(table.holder(*slot) as u8);
            let end = table.end.max(first).min(first + LOOK);
            let Some(slot) = (first..end).find(short) else {
                looked += end - first + 1;
                self.mend.slot = end;
                if end >= table.end {
                    (self.mend.table, self.mend.slot) = (index + 1, 0);
                }
                continue;
            };
            looked += slot - first + 1;
            let who = table.holder(slot);
            let most = CHUNK.min(SEGMENT - slot % SEGMENT);
            let pages = (slot..slot + most).take_while(|slot| table.holder(*slot) == who).count() as u32;
            self.mend.slot = slot + pages;
            let busy = self.mend.copies(index, slot, pages);
            // An ancestor's pages in a file stay there: whoever sealed them again, others might do it differently.
            if who & can == 0 || busy || index > 0 && who == SPILLED {
                continue;
            }
            let Some(target) = self.target_of(index, slot, who) else { continue };
            self.mend.found = true;
            let filed = self.config.seals_anew(target, who);
            return Found::Job(Job { filed, ..Job::new(index, slot, pages, target) });
        }
        Found::More
    }

    /// Who is to have a slot that these have. A store that we may not write there is made first.
    pub(super) fn target_of(&mut self, index: u32, slot: u32, who: u32) -> Option<usize> {
        let leaving = self.counts.leaving();
        let remote = (who & !SPILLED & !leaving).count_ones();
        if self.config.spill && who & SPILLED == 0 {
            let works = self.spill.as_ref().is_some_and(|spill| spill.works(process::now_us()));
            return (index == 0 && works).then_some(ream_stats::SPILL);
        }
        if remote >= self.config.replicas {
            return None;
        }
        let segment = (slot / SEGMENT) as usize;
        // The disk below may have it instead; not an ancestor's.
        let works = self.spill.as_ref().is_some_and(|spill| spill.works(process::now_us()));
        let below = (self.config.below && index == 0 && works).then_some(ream_stats::SPILL);
        let homes = if index == 0 { self.homes.get(segment).copied().unwrap_or(0).into() } else { 0u32 };
        let home = homes & self.up & !who;
        let now = process::now_us();
        let has_room = |index: usize| self.peers.get(index).is_some_and(|peer| !peer.is_full(now) && !peer.ending);
        let target = match (0..self.count).find(|index| home >> index & 1 != 0 && has_room(*index)) {
            Some(home) => home,
            None => match self.choose_for(index, slot, who) {
                Some(other) => other,
                None => return below,
            },
        };
        if index == 0 {
            if let Some(place) = self.homes.get_mut(segment) {
                *place = (who & self.up & !leaving | 1 << target) as u8;
            }
        }
        self.attic(index, target)
    }

    pub(super) fn start_job(&mut self, number: usize, mut job: Job) {
        let Some(table) = self.tables.get(job.table as usize) else { return };
        for (version, slot) in job.versions.iter_mut().zip(job.slot..job.slot + job.pages) {
            *version = table.version(slot);
        }
        let bytes = CHUNK as usize * PAGE_BYTES;
        let address = self.mend.memory.as_ptr().expose_provenance() + number * bytes;
        job.part = Part { address, bytes: job.pages as usize * PAGE_BYTES };
        // What is in clear where it goes has no seal.
        let sealed = if job.target == ream_stats::SPILL { self.config.spill_sealed } else { self.config.sealed };
        job.must_open = sealed && !job.filed;
        let tag = self.mend.first_tag + number as u32;
        if let (Some(place), Some(op)) = (self.mend.jobs.get_mut(number), self.ops.get_mut(tag as usize)) {
            *place = job;
            *op = Op::read(job.table, job.slot, job.pages, address, AHEAD);
            self.route(tag);
        }
    }

    /// The reading or the writing of a job has ended.
    pub(super) fn mended(&mut self, number: usize, result: i32) {
        let tag = self.mend.first_tag + number as u32;
        let read = self.ops.get(tag as usize).is_some_and(|op| op.parts == 0);
        if read && result >= 0 && !self.mend.keep_opened(number, &self.tables) {
            self.mend.found |= self.log.is_some() && !self.mend.refused;
            return self.end_job(number);
        }
        let Some(job) = self.mend.jobs.get(number).copied() else { return };
        let current = self.mend.is_current(number, &self.tables);
        let there = matches!(job.target, ream_stats::SPILL | LOG) || self.up >> job.target & 1 != 0;
        let goes_on = result >= 0 && current && there;
        // It has got on when it is copied, or was overtaken.
        self.mend.found |= self.log.is_some() && result >= 0 && !(read && goes_on);
        self.mend.refused |= result < 0;
        if !goes_on {
            return self.end_job(number);
        }
        if read {
            if job.filed && !self.renew(number) {
                return self.end_job(number);
            }
            let place = self.mend.jobs.get(number).map_or(0, |job| (&raw const job.part).expose_provenance());
            if let Some(op) = self.ops.get_mut(tag as usize) {
                *op = Op::write(job.table, job.slot, job.pages, place, 1);
                debug_assert!(op.nature() == Nature::Write);
            }
            return if job.target == LOG { self.begin_pieces(tag) } else { self.send_to(tag, 1 << job.target) };
        }
        if self.log.is_some() {
            self.log.stale = true;
            self.with_copies(&job);
            return self.end_job(number);
        }
        if let Some(table) = self.tables.get_mut(job.table as usize) {
            for slot in job.slot..job.slot + job.pages {
                let who = table.holder(slot) | 1 << job.target;
                table.put(slot, 1, who, &mut self.counts);
            }
        }
        self.changes.add(job.table, job.slot, job.pages, Change::Moved);
        let counters = &self.config.process.counters;
        match (job.moved, job.target) {
            (false, _) => counters.pages_copied_again.add(job.pages.into()),
            (true, ream_stats::SPILL) => {}
            (true, _) => counters.servers_risen.add(job.pages.into()),
        }
        if self.counts.missing == 0 {
            self.degraded = false;
        }
        self.end_job(number);
    }

    /// Where pages have a sum: a job is done, and an ancestor's pages have one copy more.
    fn with_copies(&mut self, job: &Job) {
        if let Some(table) = self.tables.get_mut(job.table as usize).filter(|_| job.target != LOG) {
            (job.slot..job.slot + job.pages).for_each(|slot| table.add_copy(slot, job.target));
        }
        self.changes.add(job.table, job.slot, job.pages, Change::Moved);
        self.config.process.counters.pages_copied_again.add(job.pages.into());
    }

    /// Numbers pages anew that come from where they are in clear: a seal's number must not be used again for what may be something
    /// else.
    fn renew(&mut self, number: usize) -> bool {
        let Some(job) = self.mend.jobs.get_mut(number) else { return false };
        let Some(table) = self.tables.get_mut(job.table as usize) else { return false };
        // Nobody has them sealed, under their old number.
        let sealed = if self.config.spill_sealed { SPILLED } else { 0 } | if self.config.sealed { !SPILLED } else { 0 };
        let alone = (job.slot..job.slot + job.pages).all(|slot| table.holder(slot) & sealed == 0);
        if !alone || !table.renew(job.slot, job.pages) {
            return false;
        }
        for (version, slot) in job.versions.iter_mut().zip(job.slot..job.slot + job.pages) {
            *version = table.version(slot);
        }
        true
    }

    fn end_job(&mut self, number: usize) {
        if let Some(job) = self.mend.jobs.get_mut(number) {
            job.busy = false;
        }
    }
}

/// What the search has found.
#[allow(clippy::large_enum_variant, reason = "it is looked at at once, and there is no heap")]
pub(super) enum Found {
    Job(Job),
    /// Nothing, at the moment.
    Nothing,
    /// Nothing yet.
    More,
}

#[cfg(test)]
mod tests;
