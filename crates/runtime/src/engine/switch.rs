//! What the pager of a rank does when its turn ends and when it begins: room given up at once or when it is asked for, what
//! was there brought back at once or when it is touched; and which of these costs less.

use super::ENGINE;
use super::seat;
use super::shares::{fair, is_pressed, left, share};
use core::sync::atomic::Ordering::SeqCst;
use ream_pager::Shard;
use ream_stats::{Process, Seat, Session, Stand, Switch};
use ream_sys::{LinuxMachine, process};

/// After its turn has ended a rank is the first to be asked for room: it looks every so many microseconds, for so long.
const SOON: u64 = 500;
const AWAKE: u64 = 50_000;
/// How often it looks later.
const LATER: u64 = 4_000;
/// Microseconds until what was asked for and has not come is asked for again.
const PATIENCE: u64 = 20_000;
/// Pages that are worth being brought back at once.
const WORTH: u64 = 64;
/// A turn in which less is computed than so many nanoseconds says nothing of what the next one needs, nor of what turns cost:
/// a rank gets some between two collectives.
const SHORT: u64 = 5_000_000;
/// Faults without a poll in between after which what a rank does in MPI is work, and no exchange of messages.
const WORK: u64 = 128;
/// Longest that touches wait for a turn inside a call, and how long they are served then, in microseconds.
const WITHHELD: u64 = 100_000;
const SERVED: u64 = 10_000;
/// Turns until the way that seemed to cost more is tried again.
const AGAIN: u32 = 16;
/// Turns of each way that are measured before they are compared.
const ENOUGH: u32 = 2;

/// What a rank's turns cost, by one of the two ways.
#[derive(Clone, Copy, Default)]
struct Cost {
    /// Turns that were measured.
    turns: u32,
    /// Waiting and computing, in microseconds, and what was read, in bytes; what is older counts for less.
    waited: u64,
    ran: u64,
    read: u64,
}

impl Cost {
    fn note(&mut self, waited: u64, ran: u64, read: u64) {
        (self.waited, self.ran) = (self.waited / 2 + waited, self.ran / 2 + ran);
        self.read = self.read / 2 + read;
        self.turns = self.turns.saturating_add(1);
    }
    /// Whether enough turns were measured: the first one, in which others come to be paged, says little.
    fn is_known(&self) -> bool {
        self.turns >= ENOUGH
    }
    /// Waiting for each second of computing, in thousandths, where the device reads so many bytes in a millisecond: a long turn
    /// counts for more than a short one. What is read counts, too: while the device is busy with it, others wait.
    fn value(&self, rate: u64) -> u64 {
        let busy = self.read.saturating_mul(1000) / rate.max(1);
        self.waited.saturating_add(busy).saturating_mul(1000) / self.ran.max(1)
    }
}

/// How fast what was there comes back, beside what others read.
#[derive(Clone, Copy, Default)]
struct Rate {
    /// Bytes and microseconds; what is older counts for less.
    read: u64,
    took: u64,
    /// What had been read when this began, and when that was.
    began: Option<(u64, u64)>,
}

impl Rate {
    fn begin(&mut self, read: u64, now: u64) {
        self.began = Some((read, now));
    }
    fn end(&mut self, read: u64, now: u64) {
        if let Some((before, began)) = self.began.take() {
            self.read = self.read / 2 + read.saturating_sub(before);
            self.took = self.took / 2 + now.saturating_sub(began);
        }
    }
    /// Bytes in a millisecond; without end as long as nothing is known.
    fn value(&self) -> u64 {
        self.read.saturating_mul(1000).checked_div(self.took).unwrap_or(u64::MAX)
    }
}

/// The part of something that turns out to be needed, in thousandths.
#[derive(Clone, Copy, Default)]
struct Share {
    known: bool,
    value: u64,
}

impl Share {
    fn note(&mut self, value: u64) {
        self.value = if self.known { (self.value + value) / 2 } else { value };
        self.known = true;
    }
}

/// Turns of this rank.
#[derive(Default)]
pub(super) struct Switching {
    turns: u32,
    /// Waiting and computing, in nanoseconds, and bytes read, as they were when the turn began.
    waited: u64,
    ran: u64,
    read: u64,
    rate: Rate,
    /// Whether what was there comes back at once in this turn, and whether there was anything.
    at_once: bool,
    counts: bool,
    /// By way: when touched, at once.
    costs: [Cost; 2],
    /// Whether room was given up at once when the last turn ended, and of how many thousandths it is good to.
    gave: bool,
    needed: Share,
    /// When the last turn ended, while it is nobody's, and how many faults there were by then.
    aside_us: Option<u64>,
    aside_faults: u64,
    /// Times that its thread had found nothing to do, as of the last look: what it did before is no work.
    polls: u32,
    /// Whether the turn is for what the rank does inside a call.
    inside: bool,
    /// Since when its touches wait for such a turn.
    withheld_us: Option<u64>,
    /// When it was last looked whether there is a place for it.
    sought_us: u64,
    asked_us: u64,
    /// Faults as of the last look at them, and when that was.
    faults: u64,
    looked_us: u64,
    /// When turns were last weighed against none.
    weighed_us: u64,
}

/// Time that the program's threads have had on processors, in nanoseconds; ours but for this one are counted, too.
pub(super) fn ran_ns() -> u64 {
    process::process_time_ns().saturating_sub(process::thread_time_ns())
}

impl Switching {
    /// The rank's turn has ended.
    pub(super) fn aside(&mut self, shard: &mut Shard<LinuxMachine>, now: u64) {
        let Some((session, entry)) = ENGINE.session().zip(ENGINE.entry()) else { return };
        if self.aside_us.is_some() {
            // The pager has seen it by itself.
            return;
        }
        let ran = ran_ns().saturating_sub(self.ran);
        self.aside_faults = entry.counters.faults.get();
        let noted = if core::mem::take(&mut self.inside) {
            shard.keep_noted()
        } else if ran < SHORT && shard.noted() > 0 {
            self.counts = false;
            shard.keep_noted()
        } else {
            self.rate.end(entry.counters.bytes_in.get(), now);
            self.learn(entry, ran);
            let (pressed, used) = (is_pressed(shard, session), shard.used());
            let noted = shard.note_resident();
            entry.seat().set_needs(if pressed { 0 } else { used.max(noted) }, entry.managed_pages());
            noted
        };
        self.aside_us = Some(now);
        let room = entry.held_pages().saturating_sub(left(session));
        self.gave = match session.config().on_block() {
            Switch::Lazy => false,
            Switch::Aggressive => true,
            Switch::Auto => !self.needed.known || self.needed.value > 250,
        } && noted > 0;
        if self.gave {
            entry.seat().ask(room.saturating_sub(entry.seat().asked()));
            share(shard, session, entry);
        }
    }

    /// What the turn that ends has cost, in which the rank has computed for `ran` nanoseconds.
    fn learn(&mut self, entry: &Process, ran: u64) {
        if !core::mem::take(&mut self.counts) {
            return;
        }
        let waited = entry.counters.waited_ns.get().saturating_sub(self.waited);
        let read = entry.counters.bytes_in.get().saturating_sub(self.read);
        if let Some(cost) = self.costs.get_mut(usize::from(self.at_once)) {
            cost.note(waited / 1000, ran / 1000, read);
        }
    }

    /// The way that costs less, and now and then the other one.
    fn choose(&self) -> bool {
        let ([touched, at_once], rate) = (self.costs, self.rate.value());
        match (touched.is_known(), at_once.is_known()) {
            (false, _) => false,
            // Where threads hardly wait there is nothing to be gained.
            (true, false) => touched.value(u64::MAX) >= 100,
            (true, true) => {
                let best = at_once.value(rate) <= touched.value(rate);
                let (other, own) = if best { (touched, at_once) } else { (at_once, touched) };
                best != (self.turns % AGAIN == 0 && other.value(rate) < own.value(rate).saturating_mul(2))
            }
        }
    }

    /// The rank's turn has begun.
    pub(super) fn turn(&mut self, shard: &mut Shard<LinuxMachine>, now: u64) {
        let Some((session, entry)) = ENGINE.session().zip(ENGINE.entry()) else { return };
        self.aside_us = None;
        self.inside = false;
        self.turns = self.turns.wrapping_add(1);
        shard.begin_turn();
        let noted = shard.noted();
        if noted > 0 {
            let (free, gone) = (session.ledger().free_pages().max(0) as u64, noted.saturating_sub(shard.used()));
            let needed = if self.gave { u64::from(free < noted / 2) * 1000 } else { gone * 1000 / noted };
            self.needed.note(needed);
        }
        self.counts = noted >= WORTH && noted.saturating_sub(shard.used()) > noted / 4;
        self.at_once = self.counts
            && match session.config().on_run() {
                Switch::Lazy => false,
                Switch::Aggressive => true,
                Switch::Auto => self.choose(),
            };
        (self.waited, self.ran, self.read) = (entry.counters.waited_ns.get(), ran_ns(), entry.counters.bytes_in.get());
        self.asked_us = 0;
        if self.at_once {
            self.rate.begin(self.read, now);
            shard.begin_bringing();
        }
        self.hunger(shard, session, entry, now);
    }

    /// The rank has got a place for what it does inside its call: nothing comes back but what that touches.
    fn turn_inside(&mut self, shard: &mut Shard<LinuxMachine>, session: &Session, entry: &Process, now: u64) {
        // The thread does not know it, and tells of the end.
        seat::ASIDE.store(0, SeqCst);
        self.aside_us = None;
        (self.inside, self.at_once, self.counts, self.asked_us) = (true, false, false, 0);
        self.hunger(shard, session, entry, now);
    }

    /// Touches wait for the turn that is wanted, since what they bring in meanwhile would soon leave again; but not for ever,
    /// nor while the rank's thread sleeps in MPI: then they are others', which read its messages.
    fn withhold(&mut self, shard: &mut Shard<LinuxMachine>, seat: &Seat, now: u64) {
        let waits = seat.waits_inside();
        if waits && seat::POLLS.load(SeqCst) != self.polls {
            seat::withdraw();
        } else if waits && now.saturating_sub(self.sought_us) >= LATER {
            self.sought_us = now;
            seat::look();
        }
        let since = *self.withheld_us.get_or_insert(now);
        let is_over = now.saturating_sub(since) % (WITHHELD + SERVED) >= WITHHELD;
        shard.withhold(waits && !is_over && !seat.naps());
        if !waits {
            self.withheld_us = None;
        }
    }

    /// Takes room that is free, and asks those for more whose turn it is not. Returns whether more is wanted.
    fn hunger(&mut self, shard: &mut Shard<LinuxMachine>, session: &Session, entry: &Process, now: u64) -> bool {
        share(shard, session, entry);
        let (held, fair) = (entry.held_pages(), fair(session, entry));
        let pressed = is_pressed(shard, session);
        if held >= fair || !(pressed || shard.bringing()) {
            return false;
        }
        // With the stage that pages come and go through.
        let want = if self.at_once { shard.noted() + shard.noted() / 3 } else { 0 };
        let want = want.max(held + held / 2).max(held + 1024).min(fair);
        if want > held && now.saturating_sub(self.asked_us) >= PATIENCE {
            self.asked_us = now;
            session.ask(want - held, left(session));
        }
        true
    }

    /// In each turn of the pager: goes on with what a switch has begun. Returns how long the pager may sleep at most, in
    /// microseconds, where there is something to look at.
    pub(super) fn go_on(&mut self, shard: &mut Shard<LinuxMachine>, now: u64) -> Option<u64> {
        let (session, entry) = ENGINE.session().zip(ENGINE.entry())?;
        let stand = entry.seat().stand();
        if !shard.bringing() {
            self.rate.end(entry.counters.bytes_in.get(), now);
        }
        self.withhold(shard, entry.seat(), now);
        if stand != Stand::Away && now.saturating_sub(self.weighed_us) >= PATIENCE {
            self.weighed_us = now;
            seat::weigh();
        }
        match stand {
            Stand::Away => None,
            Stand::Running | Stand::Calling | Stand::Idle => {
                if stand == Stand::Running && (self.inside || self.aside_us.is_some()) {
                    // The call has ended, or the thread is about to wake up.
                    seat::ASIDE.store(0, SeqCst);
                    self.turn(shard, now);
                } else if self.aside_us.is_some() && entry.seat().busy_inside() {
                    self.turn_inside(shard, session, entry, now);
                }
                // Faults that are served at once, by pages that were about to leave, show a lack of room as well: a rank
                // that asked for more only where they waited went on with too little for ever, and nobody else gave any.
                // No more often than shares are looked at anyway.
                let faults = entry.counters.faults.get();
                let faulted = faults != self.faults && now.saturating_sub(self.looked_us) >= PATIENCE;
                if self.inside && faults != self.faults {
                    entry.seat().goes_on_inside(now);
                }
                if faulted {
                    (self.faults, self.looked_us) = (faults, now);
                }
                let pressed = is_pressed(shard, session);
                let lacks = shard.bringing() || pressed && (faulted || shard.waiting() > 0);
                let hungry = lacks && self.hunger(shard, session, entry, now);
                match (hungry, self.inside) {
                    (true, _) => Some(SOON),
                    (false, true) => Some(if stand == Stand::Idle { LATER } else { SOON }),
                    (false, false) => None,
                }
            }
            Stand::Blocked | Stand::Waiting | Stand::Polite => {
                if stand == Stand::Blocked && self.aside_us.is_none() && seat::POLLS.load(SeqCst) != 0 {
                    // Its place was taken away, which its thread finds out when it polls next.
                    seat::ASIDE.store(1, SeqCst);
                    self.aside(shard, now);
                }
                if entry.seat().asked() > 0 {
                    share(shard, session, entry);
                    return Some(SOON);
                }
                let ended = self.aside_us?;
                let (faults, polls) = (entry.counters.faults.get(), seat::POLLS.load(SeqCst));
                if polls != self.polls {
                    (self.aside_faults, self.polls) = (faults, polls);
                }
                let faulted = faults.saturating_sub(self.aside_faults);
                if stand == Stand::Blocked && is_pressed(shard, session) && faulted >= WORK && !entry.seat().naps() {
                    seat::want_inside();
                }
                Some(if now.saturating_sub(ended) < AWAKE { SOON } else { LATER })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(touched: u64, at_once: u64, turns: u32) -> Switching {
        let cost = |value| Cost { turns: ENOUGH, waited: value, ran: 1000, read: 0 };
        Switching { turns, costs: [cost(touched), cost(at_once)], ..Switching::default() }
    }

    #[test]
    fn the_way_that_costs_less_is_taken_and_the_other_one_tried_again() {
        let mut new = Switching::default();
        assert!(!new.choose());
        new.costs[0].note(50, 1000, 0);
        new.costs[0].note(50, 1000, 0);
        assert!(!new.choose());
        new.costs[0].note(1, 10, 0);
        new.costs[0].note(900, 1000, 0);
        assert!(new.choose());
        assert!(known(900, 300, 5).choose() && !known(300, 900, 5).choose());
        assert!(!known(500, 300, AGAIN).choose() && known(900, 300, AGAIN).choose());
    }

    /// What comes back for nothing keeps the device from others, though this rank waits a little less.
    #[test]
    fn what_is_read_for_nothing_counts() {
        let mut ranks = known(900, 800, 5);
        for (cost, read) in ranks.costs.iter_mut().zip([1 << 20, 20 << 20]) {
            cost.read = read;
        }
        assert!(ranks.choose());
        ranks.rate.begin(5 << 20, 1000);
        ranks.rate.end(25 << 20, 41_000);
        assert!(!ranks.choose());
        // On a device so fast that it does not matter.
        ranks.rate = Rate { read: 1 << 40, took: 1000, began: None };
        assert!(ranks.choose());
    }
}
