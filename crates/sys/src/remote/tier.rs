//! A disk below the memory servers. Each page has its place in the file, wherever it is. What the servers have no room for
//! goes to the disk at once. What has not been asked for there for longest sinks, a segment at a time, when a server had no
//! room for a process of the session; what is read from the disk again and again rises, and is in both then.

use super::changes::Change;
use super::mend::Job;
use super::{CHUNK, Nature, Op, Remote, SEGMENT, SPILLED};
use crate::memory::MapSlice;
use crate::queue::Queue;
use crate::{Errno, process};
use ream_stats::{SERVERS, SPILL};

/// Of what is known of a segment: something of it was read or written at a server since the hand came by.
const USED: u16 = 1 << 15;
/// Small reads from the disk after which a segment rises, if those are twice as many as segments there have in the mean.
const OFTEN: u16 = 8;
/// How long until half of the reads from the disk are forgotten, in microseconds.
const HALF: u64 = 2_000_000;
/// Most segments that sink for one press, and how long until the next are looked for, in microseconds.
const ROUND: u32 = 16;
const PAUSE: u64 = 250_000;
/// How long a segment is tried again that somebody is just reading, in microseconds.
const TRY: u64 = 200_000;
/// Segments that the hand passes at once.
const LOOK: u32 = 4096;
/// Segments that wait to rise.
const RISING: usize = 64;

/// A segment on its way.
#[derive(Clone, Copy)]
struct Move {
    segment: u32,
    /// The slot from which on it is looked for what is to be copied.
    at: u32,
    /// Who is to get it.
    target: usize,
    /// When it is given up.
    until: u64,
}

pub(super) struct Tier {
    /// By segment: [`USED`], and small reads from the disk.
    heat: MapSlice<u16>,
    cooled: u64,
    /// Those reads, added up.
    reads: u64,
    /// Segments below this one have something that a child reads: they stay where they are.
    frozen: u32,
    /// The next segment that may sink, how many are to, and how many were passed since one was found.
    hand: u32,
    wanted: u32,
    passed: u32,
    not_before: u64,
    /// Presses of each server that were heard, and those servers whose presses have not been answered.
    heard: [u64; SERVERS],
    pressed: u32,
    sinking: Option<Move>,
    rising: Option<Move>,
    waiting: Queue<u32>,
}

impl Tier {
    /// Of a store with so many segments.
    pub(super) fn new(segments: usize) -> Result<Tier, Errno> {
        Ok(Tier {
            heat: MapSlice::new(segments)?,
            cooled: 0,
            reads: 0,
            frozen: 0,
            hand: 0,
            wanted: 0,
            passed: 0,
            not_before: 0,
            heard: [0; SERVERS],
            pressed: 0,
            sinking: None,
            rising: None,
            waiting: Queue::new(RISING)?,
        })
    }

    /// Whether there is something to be looked at soon.
    pub(super) fn is_busy(&self) -> bool {
        self.sinking.is_some() || self.rising.is_some() || self.wanted > 0 || !self.waiting.is_empty()
    }

    fn moves(&self, segment: u32) -> bool {
        [self.sinking, self.rising].iter().flatten().any(|it| it.segment == segment)
    }

    /// Something of a segment is read or written at a server.
    fn touch(&mut self, slot: u32) {
        if let Some(heat) = self.heat.get_mut((slot / SEGMENT) as usize) {
            *heat |= USED;
        }
    }

    fn is_used(&self, segment: u32) -> bool {
        self.heat.get(segment as usize).is_some_and(|heat| heat & USED != 0)
    }

    /// A small read of a segment goes to the disk, where so many segments are, of a store up to a slot.
    fn read_below(&mut self, slot: u32, now: u64, below: u64, end: u32) {
        if now.saturating_sub(self.cooled) > HALF {
            (self.cooled, self.reads) = (now, 0);
            for heat in self.heat.as_mut_slice().iter_mut().take((end / SEGMENT) as usize + 1) {
                let reads = (*heat & !USED) / 2;
                *heat = (*heat & USED) | reads;
                self.reads += u64::from(reads);
            }
        }
        let segment = slot / SEGMENT;
        let Some(heat) = self.heat.get_mut(segment as usize) else { return };
        let reads = ((*heat & !USED) + 1).min(!USED);
        *heat = (*heat & USED) | reads;
        self.reads += 1;
        let hot = reads % OFTEN == 0 && u64::from(reads) * below >= 2 * self.reads;
        // Where there is no place it will be read again.
        if hot && self.rising.is_none_or(|it| it.segment != segment) {
            self.waiting.push(segment);
        }
    }
}

/// The slots of a segment.
fn slots(segment: u32) -> core::ops::Range<u32> {
    segment * SEGMENT..(segment + 1) * SEGMENT
}

impl Remote {
    /// A read, or a part of one, goes to a server.
    pub(super) fn read_above(&mut self, tag: u32) {
        let (Some(tier), Some(op)) = (&mut self.tier, self.ops.get_mut(tag as usize)) else { return };
        op.from_servers = 1;
        // What is copied is not asked for by the program.
        if op.table == 0 && tag < self.config.io_limit {
            tier.touch(op.slot + op.done);
            tier.touch(op.slot + op.done + op.part.saturating_sub(1));
        }
    }

    /// A read, or a part of one, goes to the disk.
    pub(super) fn read_below(&mut self, tag: u32) {
        let (Some(tier), Some(op)) = (&mut self.tier, self.ops.get_mut(tag as usize)) else { return };
        op.from_disk = 1;
        if op.table == 0 && op.part <= super::SMALL && tag < self.config.io_limit {
            let end = self.tables.get(0).map_or(0, |own| own.end);
            let below = self.counts.held.get(SPILL).map_or(0, |slots| slots / u64::from(SEGMENT) + 1);
            tier.read_below(op.slot + op.done, process::now_us(), below, end);
        }
    }

    /// Servers above a disk have a slot, by whose segment it may sink: where a write ends another one may begin.
    pub(super) fn is_at_home(&mut self, slot: u32, who: u32) {
        if let Some(place) = self.homes.get_mut((slot / SEGMENT) as usize).filter(|_| self.tier.is_some()) {
            *place |= (who & !SPILLED) as u8;
        }
    }

    /// Whether a server above a disk has something of a segment.
    pub(super) fn has_of(&self, segment: u32, index: usize) -> bool {
        let Some(own) = self.tables.get(0).filter(|_| self.tier.is_some()) else { return false };
        slots(segment).any(|slot| own.holder(slot) >> index & 1 != 0)
    }

    /// A write goes to servers.
    pub(super) fn written_above(&mut self, slot: u32) {
        if let Some(tier) = &mut self.tier {
            tier.touch(slot);
        }
    }

    /// A read has ended: whoever had to answer it.
    pub(super) fn count_read(&mut self, tag: u32) {
        let Some(op) = self.ops.get(tag as usize).filter(|op| op.nature() == Nature::Read) else { return };
        let it = &self.config.process.counters;
        let (reads, waited, waited_us) = match (op.from_servers, op.from_disk) {
            (_, 1) => (&it.disk_reads, &it.disk_waited, &it.disk_waited_us),
            (1, _) => (&it.servers_reads, &it.servers_waited, &it.servers_waited_us),
            _ => return,
        };
        reads.add(1);
        if op.lane as usize == super::DEMAND {
            waited.add(1);
            waited_us.add(process::now_us().saturating_sub(op.began));
        }
    }

    /// A child is about to be forked, which reads what is where now.
    pub(super) fn freeze_tier(&mut self) {
        let end = self.tables.get(0).map_or(0, |own| own.end);
        if let Some(tier) = &mut self.tier {
            tier.frozen = end.div_ceil(SEGMENT);
        }
    }

    /// No child does any more.
    pub(super) fn thaw_tier(&mut self) {
        if let Some(tier) = &mut self.tier {
            tier.frozen = 0;
        }
    }

    /// Moves segments between servers and disk, where that is to be done. Returns whether to go on at once.
    pub(super) fn advance_tier(&mut self) -> bool {
        if self.tier.is_none() {
            return false;
        }
        let now = process::now_us();
        self.hear_presses();
        if !self.tier.as_ref().is_some_and(Tier::is_busy) {
            return false;
        }
        self.choose_moves(now);
        while let Some(number) = self.mend.free_place() {
            let job = self.find_move(false).or_else(|| self.find_move(true));
            let Some(job) = job else { break };
            self.start_job(number, job);
        }
        self.end_moves(now);
        false
    }

    /// Which servers had no room for somebody of the session.
    fn hear_presses(&mut self) {
        let Some(tier) = &mut self.tier else { return };
        let servers = self.config.session.servers();
        for (index, heard) in tier.heard.iter_mut().enumerate().take(self.count) {
            let presses = servers.get(index).map_or(0, |server| server.presses());
            if presses == *heard {
                continue;
            }
            *heard = presses;
            tier.pressed |= 1 << index;
            let held = self.counts.held.get(index).copied().unwrap_or(0);
            let most = ((held / u64::from(SEGMENT) / 8) as u32 + 1).min(ROUND);
            tier.wanted = tier.wanted.max(most);
            tier.passed = 0;
        }
    }

    /// Chooses a segment that sinks, and one that rises.
    fn choose_moves(&mut self, now: u64) {
        let end = self.tables.get(0).map_or(0, |own| own.end).div_ceil(SEGMENT);
        let works = self.spill.as_ref().is_some_and(|spill| spill.works(now));
        if let Some(tier) = self.tier.as_mut().filter(|tier| tier.sinking.is_none()) {
            let mut looks = if works && tier.wanted > 0 && now >= tier.not_before { LOOK } else { 0 };
            while looks > 0 {
                looks -= 1;
                // Twice round: all was used once.
                if tier.passed > end.saturating_mul(2) {
                    (tier.wanted, tier.pressed, tier.passed) = (0, 0, 0);
                    break;
                }
                let segment = if tier.hand < end { tier.hand } else { 0 };
                tier.hand = segment + 1;
                tier.passed += 1;
                let there = self.homes.get(segment as usize).is_some_and(|homes| u32::from(*homes) & tier.pressed != 0);
                if !there || segment < tier.frozen || tier.moves(segment) {
                    continue;
                }
                let Some(heat) = tier.heat.get_mut(segment as usize) else { continue };
                if *heat & USED != 0 {
                    *heat &= !USED;
                    continue;
                }
                tier.sinking = Some(Move { segment, at: segment * SEGMENT, target: SPILL, until: now + TRY });
                break;
            }
        }
        if self.tier.as_ref().is_some_and(|tier| tier.rising.is_none()) {
            self.choose_rising(now);
        }
    }

    fn choose_rising(&mut self, now: u64) {
        let Some(segment) = self.tier.as_mut().and_then(|tier| tier.waiting.pop()) else { return };
        if self.tier.as_ref().is_some_and(|tier| tier.moves(segment)) {
            return;
        }
        let homes = u32::from(self.homes.get(segment as usize).copied().unwrap_or(0));
        let stays = |index: &usize| self.peers.get(*index).is_some_and(|peer| !peer.ending);
        let home = (0..self.count).filter(|index| homes & self.up >> index & 1 != 0).find(stays);
        let Some(target) = home.or_else(|| self.choose(0)) else {
            // There is no room: it is made, and this one will be read again.
            if self.tier.as_ref().is_some_and(|tier| tier.wanted == 0 && now >= tier.not_before) {
                let up = (0..self.count).filter(|index| self.up >> index & 1 != 0);
                up.filter_map(|index| self.config.session.servers().get(index)).for_each(|server| server.press());
            }
            return;
        };
        if let Some(place) = self.homes.get_mut(segment as usize) {
            *place |= 1 << target;
        }
        if let Some(tier) = &mut self.tier {
            tier.touch(segment * SEGMENT);
            tier.rising = Some(Move { segment, at: segment * SEGMENT, target, until: now });
        }
    }

    /// The next run of pages of the segment that sinks, or rises.
    fn find_move(&mut self, rises: bool) -> Option<Job> {
        let tier = self.tier.as_mut()?;
        let it = (if rises { &mut tier.rising } else { &mut tier.sinking }).as_mut()?;
        let own = self.tables.get(0)?;
        let end = slots(it.segment).end.min(own.end);
        let can = self.up | SPILLED;
        let moves = |slot: &u32| {
            let who = own.holder(*slot);
            who & can != 0 && (who == SPILLED) == rises && (rises || who & SPILLED == 0)
        };
        let first = (it.at..end).find(moves);
        let Some(first) = first else {
            it.at = end.max(it.at);
            return None;
        };
        let who = own.holder(first);
        let run = (first..end.min(first + CHUNK)).take_while(|slot| own.holder(*slot) == who).count() as u32;
        it.at = first + run;
        if self.mend.copies(0, first, run) {
            return None;
        }
        let filed = self.config.seals_anew(it.target, who);
        let mut job = Job::new(0, first, run, it.target);
        (job.filed, job.moved) = (filed, true);
        Some(job)
    }

    /// A segment that has risen is done; one that is on the disk as a whole is forgotten at the servers.
    fn end_moves(&mut self, now: u64) {
        let Some(tier) = &mut self.tier else { return };
        let end = self.tables.get(0).map_or(0, |own| own.end);
        let done =
            |it: &Move| it.at >= slots(it.segment).end.min(end) && !self.mend.copies(0, it.segment * SEGMENT, SEGMENT);
        if tier.rising.as_ref().is_some_and(done) {
            tier.rising = None;
        }
        let Some(it) = tier.sinking.filter(done) else { return };
        let gone = match self.may_drop(it.segment) {
            // It has been asked for, or written anew, meanwhile.
            None => false,
            Some(false) if now < it.until => return,
            Some(false) => false,
            Some(true) => {
                self.drop_segment(it.segment);
                true
            }
        };
        let Some(tier) = &mut self.tier else { return };
        tier.sinking = None;
        if gone {
            // What does not sink counts as passed, so that it is not tried for ever.
            (tier.wanted, tier.passed) = (tier.wanted.saturating_sub(1), 0);
        }
        if tier.wanted == 0 {
            (tier.pressed, tier.not_before) = (0, now + PAUSE);
        }
    }

    /// Whether what servers have of a segment can be forgotten there: not just now, or, `None`, not at all.
    fn may_drop(&self, segment: u32) -> Option<bool> {
        let (tier, own) = (self.tier.as_ref()?, self.tables.get(0)?);
        let below = |slot| own.holder(slot) == 0 || own.holder(slot) & SPILLED != 0;
        if tier.is_used(segment) || segment < tier.frozen || !slots(segment).all(below) {
            return None;
        }
        let busy = |op: &Op| op.nature() != Nature::None && op.touches(0, segment * SEGMENT, SEGMENT);
        let room = self.peers.iter().filter(|peer| peer.is_up()).all(|peer| peer.frees.has_room());
        Some(room && !self.ops.as_slice().iter().any(busy))
    }

    fn drop_segment(&mut self, segment: u32) {
        let Some(own) = self.tables.get_mut(0) else { return };
        let mut sunk = 0;
        for slot in slots(segment) {
            let who = own.holder(slot);
            if who & !SPILLED != 0 {
                own.put(slot, 1, who & SPILLED, &mut self.counts);
                sunk += 1;
            }
        }
        self.changes.add(0, segment * SEGMENT, SEGMENT, Change::Moved);
        self.config.process.counters.servers_sunk.add(sunk);
        if let Some(homes) = self.homes.get_mut(segment as usize) {
            *homes = 0;
        }
        for peer in self.peers.iter_mut().filter(|peer| peer.is_up()) {
            peer.frees.push((segment * SEGMENT, SEGMENT));
            peer.has_room_again();
        }
    }
}

#[cfg(test)]
mod tests;
