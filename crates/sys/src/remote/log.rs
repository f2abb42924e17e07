//! Writes where pages have a sum: what a write has to store goes out in pieces, each to the next free rows of one server, and
//! each is added to the sum of its group as it is sent. When a group is full and all of it was sent, its sum goes out.
//!
//! A piece that a server does not keep gets other rows, and is taken out of the sum again, which is sent when all that it is the sum
//! of is kept. A group that lost a server, or its sum, is emptied later, as one of many gaps is.

use super::groups::{Groups, Place, ROWS};
use super::{Lost, Message, Nature, News, Remote, Table, WRITE};
use crate::file::Part;
use crate::memory::{MapSlice, Zeroable};
use crate::queue::Queue;
use crate::{Errno, process};
use core::sync::atomic::{AtomicU64, Ordering};
use ream_page::PAGE_BYTES;
use ream_wire::SEAL;
use ream_wire::message::Status;
use ream_wire::seal;

mod answers;
#[cfg(test)]
mod tests;

/// In a lane's queue: the number is that of a piece.
pub(super) const PIECE: u32 = 1 << 30;
/// Instead of a write: the piece is a sum.
const SUM: u32 = u32::MAX;
/// How often it is counted how many pages depend on servers that must not be lost, in microseconds.
const COUNT: u64 = 20_000;
/// How long no copying begins after somebody wanted all to be settled, in microseconds.
const CALM: u64 = 5_000;
/// How long writes are held back for the sake of copying that does not get on, in microseconds.
const HELD: u64 = 1_000_000;

#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Step {
    Free,
    /// It has no rows yet.
    Waiting,
    Queued,
    Sent,
}

/// Part of a write, or a sum.
#[derive(Clone, Copy)]
struct Piece {
    step: Step,
    server: u8,
    write: u32,
    /// Where in the write it begins.
    offset: u32,
    pages: u32,
    group: u32,
    row: u32,
    /// Bit by page: zeros were sent instead.
    blank: u64,
}

const _: () = assert!(ROWS <= u64::BITS, "a bit for each page of a piece");

// SAFETY: zero is one that is free.
unsafe impl Zeroable for Piece {}

const NOTHING: Piece = Piece { step: Step::Free, server: 0, write: 0, offset: 0, pages: 0, group: 0, row: 0, blank: 0 };

/// Writes and their pieces.
pub(super) struct Log {
    pieces: MapSlice<Piece>,
    free: Queue<u32>,
    /// Pieces that wait for rows, and writes that wait for pieces.
    waiting: Queue<u32>,
    writes: Queue<u32>,
    /// Sums that wait for their groups' pages to be sent.
    sums: Queue<u32>,
    /// Pieces of pages that are not free.
    busy: u32,
    /// What is exposed is to be counted again, and when it was.
    pub(super) stale: bool,
    counted: u64,
    /// Pages that too few have, and who must not be lost.
    pub(super) exposed: (u64, u32),
    /// Groups are being emptied; they need not be soon, since servers have much room.
    pub(super) leaving: bool,
    roomy: bool,
    /// When those that could not be emptied are tried again, and no others are chosen before; 0 when there are none.
    pub(super) choose_at: u64,
    /// Since when writes are held back and nothing was copied; 0 when none are.
    held_since: u64,
    /// Since when nobody has kept a page, and some wait for servers that are away; 0 when none do.
    stranded_since: u64,
    /// That was for too long: until somebody keeps one, who writes hears that there is no room.
    pub(super) in_vain: bool,
    /// When somebody wanted all to be settled.
    asked: AtomicU64,
}

impl Log {
    /// None.
    pub(super) const fn none() -> Log {
        Log {
            pieces: MapSlice::empty(),
            free: Queue::none(),
            waiting: Queue::none(),
            writes: Queue::none(),
            sums: Queue::none(),
            busy: 0,
            stale: false,
            counted: 0,
            exposed: (0, 0),
            leaving: false,
            roomy: false,
            choose_at: 0,
            held_since: 0,
            stranded_since: 0,
            in_vain: false,
            asked: AtomicU64::new(0),
        }
    }

    /// For so many writes at once.
    pub(super) fn new(writes: usize) -> Result<Log, Errno> {
        let count = Log::pieces_for(writes);
        let mut log = Log {
            pieces: MapSlice::new(count)?,
            free: Queue::new(count)?,
            waiting: Queue::new(count)?,
            writes: Queue::new(writes)?,
            sums: Queue::new(count)?,
            ..Log::none()
        };
        (0..count as u32).for_each(|number| _ = log.free.push(number));
        Ok(log)
    }

    /// Pieces that there are for so many writes: enough for the longest one, and a few of each.
    pub(super) fn pieces_for(writes: usize) -> usize {
        if writes == 0 { 0 } else { writes * 4 + (u16::MAX as u32 / ROWS) as usize + 1 }
    }

    /// Since when pages wait for servers that are away, if any do.
    pub(super) fn stranded_since(&self) -> Option<u64> {
        (self.stranded_since > 0).then_some(self.stranded_since)
    }

    /// Lets the waiting have begun later.
    pub(super) fn forgive(&mut self, us: u64) {
        self.stranded_since += if self.stranded_since > 0 { us } else { 0 };
    }

    /// The waiting for servers that are away begins now, if there is any.
    pub(super) fn wait_anew(&mut self) {
        self.stranded_since = if self.stranded_since > 0 { process::now_us() } else { 0 };
    }

    /// A server has kept a piece.
    fn kept(&mut self, copied: bool) {
        (self.stranded_since, self.in_vain) = (0, false);
        if copied {
            self.held_since = 0;
        }
    }

    /// What is exposed is counted at once.
    pub(super) fn count_anew(&mut self) {
        (self.stale, self.counted) = (self.is_some(), 0);
    }

    pub(super) fn is_some(&self) -> bool {
        !self.pieces.is_empty()
    }

    /// Whether something is on its way to a server.
    pub(super) fn has_pieces_for(&self, server: usize) -> bool {
        let to = |piece: &Piece| matches!(piece.step, Step::Queued | Step::Sent) && usize::from(piece.server) == server;
        self.pieces.as_slice().iter().any(to)
    }

    /// Whether no page is on its way.
    pub(super) fn is_settled(&self) -> bool {
        let settled = self.busy == 0;
        if !settled {
            self.asked.store(process::now_us(), Ordering::Relaxed);
        }
        settled
    }

    /// Whether nobody waits for all to be settled.
    pub(super) fn may_copy(&self) -> bool {
        process::now_us().saturating_sub(self.asked.load(Ordering::Relaxed)) > CALM
    }

    fn take(&mut self, piece: Piece) -> Option<u32> {
        let number = self.free.pop()?;
        *self.pieces.get_mut(number as usize)? = piece;
        self.busy += u32::from(piece.write != SUM);
        Some(number)
    }

    fn release(&mut self, number: u32) {
        let Some(piece) = self.pieces.get_mut(number as usize).filter(|piece| piece.step != Step::Free) else { return };
        self.busy -= u32::from(piece.write != SUM);
        *piece = NOTHING;
        self.free.push(number);
    }
}

impl Remote {
    /// Sends a write on its way.
    pub(super) fn begin_pieces(&mut self, tag: u32) {
        self.log.writes.push(tag);
        self.advance_log();
    }

    /// Cuts writes into pieces, finds rows for them, has sums sent, and frees groups that nobody wants.
    pub(super) fn advance_log(&mut self) {
        for _ in 0..self.log.writes.len() {
            let Some(tag) = self.log.writes.pop() else { break };
            if !self.cut(tag) {
                self.log.writes.push(tag);
                break;
            }
        }
        for _ in 0..self.log.waiting.len() {
            let Some(number) = self.log.waiting.pop() else { break };
            if !self.place_piece(number) {
                self.log.waiting.push(number);
            }
        }
        let stranded = !self.log.waiting.is_empty() && self.usable() == 0;
        self.log.stranded_since = match self.log.stranded_since {
            // Those that wait are offered again to servers that had no room: only what is kept, or given up, waits no more.
            _ if self.log.busy == 0 => 0,
            0 if stranded => process::now_us(),
            since => since,
        };
        for _ in 0..self.log.sums.len() {
            let Some(group) = self.log.sums.pop() else { break };
            self.send_sum(group);
        }
        self.free_groups();
        self.count_exposed();
    }

    /// False when there are no pieces left.
    fn cut(&mut self, tag: u32) -> bool {
        while let Some(op) = self.ops.get(tag as usize).copied().filter(|op| op.done < op.pages) {
            let pages = (op.pages - op.done).min(ROWS);
            let piece = Piece { step: Step::Waiting, write: tag, offset: op.done, pages, ..NOTHING };
            let Some(number) = self.log.take(piece) else { return false };
            self.log.waiting.push(number);
            if let Some(op) = self.ops.get_mut(tag as usize) {
                op.done += pages;
                op.pieces += 1;
            }
        }
        true
    }

    /// Servers that take pages.
    pub(super) fn usable(&self) -> u32 {
        let now = process::now_us();
        let able = |with_ending: bool| {
            let peers = self.peers.iter().enumerate().take(self.count);
            let able = peers.filter(|(_, peer)| peer.is_up() && !peer.is_full(now) && (with_ending || !peer.ending));
            able.fold(0, |all, (index, _)| all | 1 << index)
        };
        match able(false) {
            0 => able(true),
            some => some,
        }
    }

    /// Whether somebody takes pages.
    pub(super) fn has_room(&self) -> bool {
        self.usable() != 0
    }

    /// Whether pages can be had a place with a sum.
    pub(super) fn can_make_whole(&self) -> bool {
        self.usable().count_ones() > 1
    }

    /// False when it is to be waited for.
    fn place_piece(&mut self, number: u32) -> bool {
        let Some(piece) = self.log.pieces.get(number as usize).copied() else { return true };
        if piece.step != Step::Waiting {
            return true;
        }
        let usable = self.usable();
        if usable == 0 {
            // While one is away that may have room, it is waited for, but not for ever.
            let full = self.all_are_up() || self.up != 0 && self.log.in_vain;
            if full {
                self.piece_failed(number, Errno::NOSPC.negative());
            }
            return full;
        }
        // What is copied makes room, so it does not wait for any.
        if piece.write < self.config.io_limit && self.holds_back() {
            return false;
        }
        let together = self.log.free.is_empty();
        let sums = &mut self.log.sums;
        let Some(groups) = self.tables.get_mut(0).and_then(|own| own.groups_mut()) else { return true };
        let Some(place) = groups.take(piece.pages, together, usable, &mut |group| _ = sums.push(group)) else {
            return false;
        };
        if usable.count_ones() == 1 && !core::mem::replace(&mut self.log.stale, true) {
            self.mend.wake();
        }
        self.queue_piece(number, &place);
        let left = piece.pages - place.pages;
        if left > 0 {
            // There is one: they need not stay together.
            let rest = Piece { step: Step::Waiting, pages: left, offset: piece.offset + place.pages, ..piece };
            if let Some(rest) = self.log.take(rest) {
                self.log.waiting.push(rest);
            }
            if let Some(op) = self.ops.get_mut(piece.write as usize) {
                op.pieces += 1;
            }
        }
        true
    }

    fn queue_piece(&mut self, number: u32, place: &Place) {
        if let Some(piece) = self.log.pieces.get_mut(number as usize) {
            (piece.step, piece.blank) = (Step::Queued, 0);
            (piece.server, piece.group, piece.row, piece.pages) =
                (place.server as u8, place.group, place.row, place.pages);
        }
        if let Some(peer) = self.peers.get_mut(place.server) {
            peer.free = peer.free.saturating_sub(u64::from(place.pages) * PAGE_BYTES as u64);
            // As many places as there are pieces.
            peer.todo[WRITE].push(PIECE | number);
        }
    }

    /// Sends the sum of a group that is full, when all that it is the sum of is kept.
    fn send_sum(&mut self, group: u32) {
        let own = self.tables.get_mut(0).and_then(|own| own.groups_mut());
        let Some(it) = own.and_then(|groups| groups.get_mut(group)).filter(|it| !it.sending) else { return };
        let (Some(server), rows) = (it.sum_for(), it.rows()) else { return };
        if rows == 0 {
            // Its server kept nothing.
            return self.with_groups(|groups| groups.let_go_of_sum(group));
        }
        let piece = Piece { step: Step::Waiting, write: SUM, pages: rows, ..NOTHING };
        match if it.open == 0 { self.log.take(piece) } else { None } {
            Some(number) => {
                (it.sending, it.open) = (true, it.open + 1);
                self.queue_piece(number, &Place { group, server, row: group * ROWS, pages: rows });
            }
            None => _ = self.log.sums.push(group),
        }
    }

    /// Puts a piece into a message. Returns whether to go on at once.
    pub(super) fn compose_piece(&mut self, index: usize, number: u32) -> Result<bool, Lost> {
        let Some(piece) = self.log.pieces.get(number as usize).copied() else { return Ok(true) };
        if piece.step != Step::Queued || usize::from(piece.server) != index {
            return Ok(true);
        }
        let groups = self.tables.get(0).and_then(|own| own.groups());
        let wanted = groups.is_some_and(|groups| match piece.write {
            SUM => groups.get(piece.group).is_some_and(|it| it.sum_for().is_some()),
            _ => groups.has_row(index, piece.row),
        });
        if !wanted {
            // Of no use any more, or the rows are not to be had.
            self.replace_piece(number);
            return Ok(true);
        }
        let Some(peer) = self.peers.get_mut(index) else { return Ok(false) };
        let Some(lane) = peer.lanes.as_mut().map(|lanes| &mut lanes[WRITE]) else { return Ok(false) };
        if !lane.begin(piece.pages) {
            // Behind what is to be sent before it.
            peer.writing = Some(PIECE | number);
            return Ok(false);
        }
        let Some(own) = self.tables.get_mut(0) else { return Ok(false) };
        let (lease, bound, store) = (own.lease, own.store, own.store_for(index));
        if piece.write == SUM {
            let Some(groups) = own.groups_mut() else { return Ok(false) };
            for (row, bytes) in groups.sum(piece.group, 0, piece.pages).chunks_exact(super::groups::ROW).enumerate() {
                let (page, seal) = bytes.split_at(PAGE_BYTES);
                lane.raw_page(row as u32, piece.pages, page, seal.try_into().unwrap_or(&[0; SEAL]));
            }
        } else {
            let Some(op) = self.ops.get(piece.write as usize).copied() else { return Ok(false) };
            let copied = piece.write.checked_sub(self.config.io_limit);
            // SAFETY: the list and the frames do not change until the end of the write has been told.
            let parts = unsafe {
                core::slice::from_raw_parts(core::ptr::with_exposed_provenance::<Part>(op.address), op.parts as usize)
            };
            let pages = parts.iter().flat_map(|part| (part.address..part.address + part.bytes).step_by(PAGE_BYTES));
            let key = self.config.sealed.then_some(&self.key);
            let mut blank = 0;
            for (at, page) in (0..piece.pages).zip(pages.skip(piece.offset as usize)) {
                let (slot, row) = (op.slot + piece.offset + at, piece.row + at);
                // What is copied must be what was written last, since its seal is that of the last. Nobody wants the row then.
                if copied.is_some_and(|job| !self.mend.has(job as usize, slot, own)) {
                    lane.raw_page(at, piece.pages, &[0; PAGE_BYTES], &[0; SEAL]);
                    blank |= 1 << at;
                    continue;
                }
                let place = seal::Place { lease, store: bound, slot, version: own.version(slot) };
                // SAFETY: a frame, whole.
                unsafe { lane.page(at, piece.pages, page, key, &place) };
                let Some(groups) = own.groups_mut() else { break };
                let (page, seal) = lane.sealed(at, piece.pages);
                groups.add(row, page, seal);
            }
            if let Some(piece) = self.log.pieces.get_mut(number as usize) {
                piece.blank = blank;
            }
        }
        lane.end(PIECE | number, store, piece.row, piece.pages);
        if let Some(piece) = self.log.pieces.get_mut(number as usize) {
            piece.step = Step::Sent;
        }
        // One at a time: what others have asked for meanwhile is looked at before the next.
        Ok(false)
    }

    pub(super) fn with_groups(&mut self, work: impl FnOnce(&mut Groups)) {
        if let Some(groups) = self.tables.get_mut(0).and_then(|own| own.groups_mut()) {
            work(groups);
        }
    }

    /// The group that is being filled gets no more pages: its sum is sent as it is.
    pub(super) fn close_group(&mut self) {
        let Some(groups) = self.tables.get_mut(0).and_then(|own| own.groups_mut()) else { return };
        if let Some(group) = groups.current() {
            groups.finish(group);
            self.log.sums.push(group);
        }
    }

    /// Whether writes wait until groups of many gaps are emptied. Not where somebody waits for all to be settled, since nothing is
    /// copied then, nor where nothing gets copied.
    fn holds_back(&mut self) -> bool {
        if !self.log.leaving || self.log.roomy || !self.has_many_gaps() {
            self.log.held_since = 0;
            return false;
        }
        let now = process::now_us();
        if self.log.held_since == 0 {
            self.log.held_since = now;
        }
        self.log.may_copy() && now.saturating_sub(self.log.held_since) < HELD
    }

    fn has_many_gaps(&self) -> bool {
        self.tables.get(0).and_then(Table::groups).is_some_and(Groups::has_many_gaps)
    }

    /// Looks whether each server that takes pages has as much room as all that was stored takes.
    fn look_for_room(&mut self) {
        let usable = self.usable();
        let taken = self.tables.get(0).and_then(Table::groups).map_or(0, |groups| groups.taken) * PAGE_BYTES as u64;
        let few = self.tables.get(0).and_then(Table::groups).is_some_and(Groups::are_few);
        let mut roomy = usable.count_ones() > 1 && !few;
        for (index, peer) in self.peers.iter_mut().enumerate().take(self.count) {
            let told = self.config.session.servers().get(index).map_or(0, |server| server.free());
            peer.told(told);
            roomy &= usable >> index & 1 == 0 || peer.free > taken;
        }
        self.log.roomy = roomy;
    }

    /// Tells servers of groups in which nobody wants anything.
    fn free_groups(&mut self) {
        self.look_for_room();
        let Some(groups) = self.tables.get_mut(0).and_then(|own| own.groups_mut()) else { return };
        while let Some((group, was)) = groups.pop_empty() {
            let there = was.members & !was.lost;
            let holders =
                self.peers.iter_mut().enumerate().filter(|(index, peer)| there >> index & 1 != 0 && peer.is_up());
            for (_, peer) in holders {
                // All of them, since a column that was cut may be kept beyond that. Where there is no room the space stays
                // taken, until the rows are written again.
                peer.frees.push((group * ROWS, ROWS));
            }
        }
        if !self.log.leaving && process::now_us() >= self.log.choose_at {
            let again = core::mem::take(&mut self.log.choose_at) > 0;
            if groups.choose_leaving(self.log.roomy) || again {
                self.log.leaving = true;
                self.mend.wake();
            }
        }
    }

    /// How many pages have no sum, or need it, in all stores, and who must not be lost.
    pub(super) fn count_exposed(&mut self) {
        let now = process::now_us();
        if !self.log.stale || now - self.log.counted < COUNT {
            return;
        }
        let all = self.tables.as_slice().iter().take(self.table_count).filter_map(|table| table.groups());
        let exposed = all.map(Groups::exposed).fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 | one.1));
        if exposed.0 > 0 && self.log.exposed.0 == 0 {
            self.mend.wake();
        }
        self.log.exposed = exposed;
        self.log.counted = now;
        // While there are any they change.
        self.log.stale = exposed.0 > 0;
        if exposed.0 == 0 {
            self.degraded = false;
        }
    }
}
