//! What is done when a server is lost, or slow, and when it is back.
//!
//! A connection that fails or closes, and an answer that is not genuine, are a loss at once. One that says nothing is
//! given up after a second, so that the program does not wait longer, if nobody depends on it alone, and if others do
//! answer: where all are silent it is the network, or ourselves, and waiting is better.

use super::dial::Dialler;
use super::peer::{Peer, State};
use super::{DIAL, LANES, Lost, Nature, News, Remote, Table, Tier, WRITE};
use crate::{Errno, Wait, process};
use ream_wire::message::Kind;

/// How long a server may say nothing while others do, in microseconds, and how much longer for each page that goes along.
const SOFT: u64 = 800_000;
const SOFT_PAGE: u64 = 500;
/// Whoever sleeps so much longer than it meant to was stopped itself: that time does not count.
const OVERSLEPT: u64 = 100_000;
/// How long nothing is asked of a server before it is asked whether it is there, in microseconds.
const QUIET: u64 = 2_000_000;
/// How often what has changed elsewhere is looked at while a server is away, in microseconds.
const GLANCE: u64 = 20_000;

impl Remote {
    /// A server is lost.
    pub(super) fn lose(&mut self, index: usize, lost: Lost) {
        if !self.peers.get(index).is_some_and(Peer::is_up) {
            return;
        }
        self.config.session.servers().lose(index, process::now_us());
        self.config.process.counters.server_losses.add(1);
        let alone = self.count == 1 && self.spill.is_none();
        if alone {
            self.part_from(index);
            self.fatal = true;
            return self.tell(News::Fatal(index, lost));
        }
        self.do_without(index, lost, News::Lost(index, lost));
    }

    /// Ends the lanes of a server.
    fn part_from(&mut self, index: usize) {
        let Some(peer) = self.peers.get_mut(index) else { return };
        peer.shut();
        self.up &= !(1 << index);
        if self.up == 0 {
            // Each has the whole time to come back.
            self.log.wait_anew();
        }
    }

    /// Goes on without a server, whose loss is `lost` where that is the program's end, and `news` otherwise.
    pub(super) fn do_without(&mut self, index: usize, lost: Lost, news: News) {
        self.part_from(index);
        self.close_group();
        self.forget_copies(1 << index, lost);
        self.look_who_leaves();
        if self.fatal {
            return;
        }
        self.tell(news);
        self.mend.wake();
        for tag in 0..self.ops.len() as u32 {
            let writes = self
                .ops
                .get(tag as usize)
                .is_some_and(|op| op.nature() == Nature::Write && op.open() >> index & 1 != 0);
            // Nothing more is answered there, whatever was sent.
            if let Some(op) = self.ops.get_mut(tag as usize) {
                if let (Some(answered), Some(sent)) = (op.answered.get_mut(index), op.sent.get(index)) {
                    *answered = *sent;
                }
                // What it had kept of a write that others are still to answer is gone as well.
                if op.good >> index & 1 != 0 {
                    op.good &= !(1 << index);
                    op.bad |= 1 << index;
                }
            }
            if writes {
                self.part_failed(tag, index, Errno::IO.negative());
            } else if self.ops.get(tag as usize).is_some_and(|op| op.nature() == Nature::Write && op.targets != 0) {
                self.settle(tag);
            }
        }
        self.replace_pieces(index);
    }

    /// What these servers had is gone. Where nobody else has a page, the program is to be stopped.
    pub(super) fn forget_copies(&mut self, who: u32, lost: Lost) {
        let mut gone = 0;
        for table in self.tables.as_mut_slice().iter_mut().take(self.table_count) {
            let summed = table.groups().is_some();
            let lose = if summed { Table::lose_columns } else { Table::lose };
            gone += lose(table, who, &mut self.counts);
            table.ours &= !who;
            table.making &= !who;
        }
        if let Some(own) = self.tables.get_mut(0) {
            own.ours = u32::MAX;
        }
        self.log.count_anew();
        self.count_exposed();
        if gone > 0 {
            self.fatal = true;
            self.tell(News::Fatal(who.trailing_zeros() as usize, lost));
        }
    }

    /// Nobody can be asked just now.
    pub(super) fn park(&mut self, tag: u32) {
        if self.parked.is_empty() {
            self.parked_since = process::now_us();
        }
        self.parked.push(tag);
    }

    /// Asks again, now that something has changed.
    fn unpark(&mut self) {
        let since = self.parked_since;
        for _ in 0..self.parked.len() {
            let Some(tag) = self.parked.pop() else { break };
            match self.ops.get(tag as usize).map(|op| op.nature()) {
                Some(Nature::Read) => self.route(tag),
                Some(Nature::Write) => self.begin_write(tag),
                _ => {}
            }
        }
        // What is still there has waited all the time.
        self.parked_since = since;
    }

    /// Lets go of servers that were lost, and calls them again.
    pub(super) fn look_after(&mut self) {
        let all = (1u32 << self.count) - 1;
        let now = process::now_us();
        self.knock(now);
        if self.up == all && self.dialler.is_none() {
            return;
        }
        let others = self.up != 0 || self.spill.is_some();
        for index in 0..self.count {
            let Some(peer) = self.peers.get_mut(index) else { continue };
            match peer.state {
                State::Closing if peer.is_quiet() => {
                    peer.fall(now);
                    self.ask_others(index);
                }
                State::Down => {
                    let generation = self.config.session.servers().get(index).map_or(0, |server| server.generation());
                    if generation != peer.generation {
                        peer.generation = generation;
                        peer.ending = false;
                        peer.hurry();
                    }
                    // Who is about to end is not kept from it, as long as there are others.
                    let ends = peer.ending && others;
                    if now >= peer.retry_at && !ends && self.dialler.is_none() {
                        self.call(index, now);
                    }
                }
                _ => {}
            }
        }
        if let Some(dialler) = self.dialler.take_if(|dialler| dialler.is_done()) {
            self.called(dialler, now);
        }
        if !self.parked.is_empty() && self.up != 0 {
            self.unpark();
        }
    }

    /// Asks servers of which nothing was asked for a while whether they are there: their copies are relied upon. At once where
    /// another process has lost one, or has heard that it is about to end: it may be gone by now, and be there again with nothing of
    /// ours.
    fn knock(&mut self, now: u64) {
        let servers = self.config.session.servers();
        for (index, peer) in self.peers.iter_mut().enumerate().take(self.count).filter(|(_, peer)| peer.is_up()) {
            let since = servers.get(index).and_then(|server| peer.suspected(server.alarms(), now));
            for lane in peer.lanes.iter_mut().flatten() {
                let quiet = now.saturating_sub(lane.heard) > QUIET || since.is_some_and(|since| lane.heard <= since);
                if quiet && lane.open_requests() == 0 && lane.is_clear() && lane.has_room() {
                    lane.request(Kind::Ping, u32::MAX, 0, 0, 0);
                }
            }
        }
    }

    /// What was asked of a server whose lanes are gone is asked of others.
    fn ask_others(&mut self, index: usize) {
        for tag in 0..self.ops.len() as u32 {
            let Some(op) = self.ops.get(tag as usize) else { continue };
            if op.nature() == Nature::Read && op.peer == index as u32 {
                self.route(tag);
            }
        }
    }

    fn call(&mut self, index: usize, now: u64) {
        self.note_alarms(index);
        let way = self.way(index);
        let Some(peer) = self.peers.get_mut(index) else { return };
        let started = way.map(|(way, generation)| {
            (peer.way, peer.generation) = (Some(way), generation);
            Dialler::start(index, &way, DIAL.min(self.config.deadline_us))
        });
        match started {
            Some(Ok(dialler)) => {
                peer.state = State::Dialling;
                self.dialler = Some(dialler);
            }
            _ => peer.wait(now),
        }
    }

    /// Alarms about a server before it is called are not about the lanes that are made then.
    pub(super) fn note_alarms(&mut self, index: usize) {
        if let (Some(peer), Some(server)) = (self.peers.get_mut(index), self.config.session.servers().get(index)) {
            peer.outlived = server.alarms();
        }
    }

    fn called(&mut self, dialler: Dialler, now: u64) {
        let index = dialler.peer;
        let dialled = dialler.take();
        let Some(peer) = self.peers.get_mut(index) else { return };
        let (way, generation) = (peer.way, peer.generation);
        let others = self.up != 0 || self.spill.is_some();
        match (dialled, way) {
            (Ok((lanes, _)), _) if others && lanes[WRITE].ending => peer.decline(&lanes, now),
            (Ok(dialled), Some(way)) => {
                self.rise(index, dialled, way, generation);
                self.mend.wake();
                self.tell(News::Back(index));
            }
            (Err(_), _) | (_, None) => {
                peer.wait(now);
                // The lease may have ended there, with all that was in it.
                if let Some(server) = self.config.session.servers().get(index) {
                    server.doubt();
                }
            }
        }
    }

    /// Tells others how things stand.
    pub(super) fn publish(&mut self) {
        let (missing, soles) =
            if self.log.is_some() { self.log.exposed } else { (self.counts.missing, self.counts.soles()) };
        let mut held = self.counts.held;
        if self.log.is_some() {
            // There that bit says something else.
            held[ream_stats::SPILL] = 0;
        }
        let outlived = core::array::from_fn(|index| self.peers.get(index).map_or(0, |peer| peer.outlived));
        let now = (self.counts.stored, missing, soles, self.up, held, outlived);
        if now != self.told {
            self.told = now;
            let copies = self.config.process.copies();
            copies.set_outlived(&now.5);
            copies.set(now.0, now.1, now.2, now.3, &now.4);
        }
    }

    /// How long may be waited, so that a late answer is noticed, and what else is to be looked at.
    pub(crate) fn patience(&mut self, wait: Wait) -> Wait {
        let now = process::now_us();
        if now.saturating_sub(self.looked) > OVERSLEPT {
            self.forgive(now - self.looked);
        }
        let mut left = u64::MAX;
        for index in (0..self.count).filter(|index| self.up >> index & 1 != 0) {
            let soft = self.mend.is_some() && !self.is_sole(index);
            let Some(peer) = self.peers.get(index) else { continue };
            for (since, pages) in peer.lanes.iter().flatten().filter_map(|lane| lane.since()) {
                let limit = if soft { SOFT + pages * SOFT_PAGE } else { self.config.deadline_us };
                left = left.min((since + limit.min(self.config.deadline_us)).saturating_sub(now).max(GLANCE) + 1000);
            }
        }
        let moves = self.tier.as_ref().is_some_and(Tier::is_busy);
        let waits = moves || !self.parked.is_empty() || self.builds.is_waited_for() || self.log.choose_at > 0;
        if self.up != (1 << self.count) - 1 || self.mend.is_busy() || waits {
            left = left.min(GLANCE);
        }
        let wait = match wait {
            Wait::No => Wait::No,
            Wait::Micros(us) => Wait::Micros(us.min(left)),
            Wait::Forever if left == u64::MAX => Wait::Forever,
            Wait::Forever => Wait::Micros(left),
        };
        self.asleep_until = match wait {
            Wait::No => now,
            Wait::Micros(us) => now + us,
            Wait::Forever => u64::MAX,
        };
        wait
    }

    /// Lets all waiting have begun later.
    fn forgive(&mut self, us: u64) {
        let later = |since: u64| since + us;
        for lane in self.peers.iter_mut().flat_map(|peer| peer.lanes.iter_mut()).flatten() {
            lane.forgive(us);
            lane.heard = later(lane.heard);
        }
        self.parked_since = later(self.parked_since);
        self.log.forgive(us);
    }

    /// Notices late answers. Whoever looks much too late was stopped itself meanwhile.
    pub(crate) fn look_at_clock(&mut self) {
        let now = process::now_us();
        if now.saturating_sub(self.asleep_until) > OVERSLEPT && self.asleep_until > 0 {
            self.forgive(now - self.asleep_until);
        }
        self.looked = now;
        let late = |since: u64| now.saturating_sub(since) > self.config.deadline_us;
        let parked = !self.parked.is_empty() && late(self.parked_since);
        let stranded = self.log.stranded_since().is_some_and(late);
        // Those that are there have no room: it is as when all are, and the program goes on with the memory that it has.
        self.log.in_vain |= stranded && self.up != 0;
        if (parked || stranded && self.up == 0) && !self.fatal {
            self.fatal = true;
            // One that is away, if any is.
            let away = self.up.trailing_ones() as usize;
            self.tell(News::Fatal(if away < self.count { away } else { 0 }, Lost::Late));
        }
        // The one that has been silent for longest first.
        let mut worst: Option<(u64, usize, bool)> = None;
        for index in (0..self.count).filter(|index| self.up >> index & 1 != 0) {
            let Some(lanes) = self.peers.get(index).and_then(|peer| peer.lanes.as_ref()) else { continue };
            let heard = lanes.iter().map(|lane| lane.heard).max().unwrap_or(0);
            for (since, pages) in lanes.iter().filter_map(|lane| lane.since()) {
                let late = now.saturating_sub(since);
                let silent = now.saturating_sub(since.max(heard));
                let soft = SOFT + pages * SOFT_PAGE;
                let hard = late > self.config.deadline_us;
                if (hard || silent > soft) && worst.is_none_or(|(most, ..)| late > most) {
                    worst = Some((late, index, hard));
                }
            }
        }
        if let Some((_, index, hard)) = worst {
            if hard || self.can_do_without(index, now) {
                self.lose(index, Lost::Late);
            }
        }
    }

    /// Whether pages would be gone with a server.
    fn is_sole(&self, index: usize) -> bool {
        if self.log.is_some() { self.log.exposed.1 >> index & 1 != 0 } else { self.counts.sole(index) > 0 }
    }

    /// Whether a server that says nothing can be given up at once.
    fn can_do_without(&self, index: usize, now: u64) -> bool {
        if !self.mend.is_some() || self.is_sole(index) || self.config.session.sole() >> index & 1 != 0 {
            return false;
        }
        // Somebody else answers, or would: nothing has been asked of it for long.
        let answers = |lanes: &[super::Lane; LANES]| {
            let heard = lanes.iter().map(|lane| lane.heard).max().unwrap_or(0);
            lanes
                .iter()
                .filter_map(|lane| lane.since())
                .all(|(since, _)| now.saturating_sub(since.max(heard)) < SOFT / 2)
        };
        let others = self.peers.iter().enumerate().filter(|(other, peer)| *other != index && peer.is_up());
        let somebody = others.filter_map(|(_, peer)| peer.lanes.as_ref()).any(answers);
        (somebody || self.spill.is_some() && self.counts.stored > 0 || self.counts.stored == 0)
            && self.config.session.servers().may_give_up(index, now)
    }
}

#[cfg(test)]
mod tests;
