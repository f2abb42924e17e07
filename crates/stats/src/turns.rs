//! Whose turn it is: the ranks of an MPI job that share a node compute a few at a time, and whoever waits for a message
//! lets another one compute.
//!
//! Each rank has a seat in its entry of the table of processes. A rank that computes, or has begun a call that nobody
//! else was kept waiting by, holds a *place*. What is decided for several is decided under a lock that whoever finds its
//! owner dead takes over; nothing is remembered that could be half done: the number of places taken is counted anew each
//! time.

mod places;
mod trial;

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};

use trial::Trial;

use crate::process::{Identity, Lifecycle, Process};
use crate::{Counter, Session};

/// Where a rank is. Kept in the low bits of its word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Stand {
    /// No rank, or none any more.
    Away = 0,
    /// It computes, and holds a place.
    Running = 1,
    /// It is in a call of MPI and holds a place, which is taken away if it stays there while others wait.
    Calling = 2,
    /// The same, and it has found nothing to do: taken away at once when another one wants to compute.
    Idle = 3,
    /// It waits in MPI and holds none.
    Blocked = 4,
    /// It could compute, and waits for a place.
    Waiting = 5,
    /// The same, after those: it asks again and again for something that has not come.
    Polite = 6,
}

const STAND: u32 = 7;
const CALL: u32 = 8;

impl Stand {
    const fn of(word: u32) -> Stand {
        match word & STAND {
            1 => Stand::Running,
            2 => Stand::Calling,
            3 => Stand::Idle,
            4 => Stand::Blocked,
            5 => Stand::Waiting,
            6 => Stand::Polite,
            _ => Stand::Away,
        }
    }
    /// Whether it counts as one of those that compute.
    pub const fn holds(self) -> bool {
        matches!(self, Stand::Running | Stand::Calling | Stand::Idle)
    }
    /// Whether it must not compute now: then its memory is for those that do.
    pub const fn aside(self) -> bool {
        matches!(self, Stand::Blocked | Stand::Waiting | Stand::Polite)
    }
    /// Whether it wants a place.
    pub const fn waits(self) -> bool {
        matches!(self, Stand::Waiting | Stand::Polite)
    }
}

/// Which of the ranks that could compute does so next. The number is what a session keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Next {
    /// The one with most pages in RAM.
    Vrss = 0,
    /// The one that has waited longest.
    Fifo = 1,
    /// The one that has waited least.
    Lifo = 2,
    /// The one that most messages were sent to since it last computed; of several, as `Vrss`.
    Pending = 3,
}

impl Next {
    /// The rule with this number; the first for a number that has none.
    pub const fn from_u32(number: u32) -> Next {
        match number {
            1 => Next::Fifo,
            2 => Next::Lifo,
            3 => Next::Pending,
            _ => Next::Vrss,
        }
    }
}

/// A rank's part of its entry in the table.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Seat {
    /// [`Stand`], and above it how many calls were begun. A futex word: whoever waits for a place sleeps on it.
    word: AtomicU32,
    /// A futex word: changed when there may be something to receive.
    bell: AtomicU32,
    /// 1 while the rank sleeps on `bell`.
    napping: AtomicU32,
    /// How often one that had come later was taken first.
    passed: AtomicU32,
    /// Messages sent to it since it last got a place.
    pending: AtomicU32,
    /// Its number in the job, plus one.
    rank: AtomicU32,
    /// The word as it was at `seen_us`, while in a call.
    seen: AtomicU32,
    /// 1 while it wants or has a place for what it does inside its call.
    inside: AtomicU32,
    seen_us: AtomicU64,
    ticket: AtomicU64,
    /// When it got its place.
    since_us: AtomicU64,
    /// When it lost its place.
    aside_us: AtomicU64,
    /// Pages that others ask it to give up.
    asked: AtomicU64,
    /// How long it computed, and how often it waited then; of older ones half.
    computed_ns: AtomicU64,
    waits: AtomicU64,
    /// Pages that its last turn needed, 0 when that is not known, or was more than it could have; and those it managed then.
    needs: AtomicU64,
    managed: AtomicU64,
}

impl Seat {
    /// Where the rank is.
    pub fn stand(&self) -> Stand {
        Stand::of(self.word.load(SeqCst))
    }
    /// Whether it must not compute now: then its memory is for those that do.
    pub fn aside(&self) -> bool {
        self.stand().aside()
    }
    /// The futex word that a rank without a place sleeps on.
    pub fn word(&self) -> &AtomicU32 {
        &self.word
    }
    /// The futex word that a rank in a call sleeps on.
    pub fn bell(&self) -> &AtomicU32 {
        &self.bell
    }
    /// When it got its place, in microseconds.
    pub fn since_us(&self) -> u64 {
        self.since_us.load(SeqCst)
    }
    /// Pages that it is asked to give up.
    pub fn asked(&self) -> u64 {
        self.asked.load(SeqCst)
    }
    /// It is asked for so many pages more.
    pub fn ask(&self, pages: u64) {
        self.asked.fetch_add(pages, SeqCst);
    }
    /// It has given up so many, or will not.
    pub fn answered(&self, pages: u64) {
        let _ = self.asked.fetch_update(SeqCst, SeqCst, |asked| Some(asked.saturating_sub(pages)));
    }
    fn note_stretch(&self, ns: u64) {
        let (computed, waits) = (self.computed_ns.load(SeqCst) + ns, self.waits.load(SeqCst) + 1);
        let older = if waits < STRETCHES { 1 } else { 2 };
        self.computed_ns.store(computed / older, SeqCst);
        self.waits.store(waits / older, SeqCst);
    }
    /// Whether it has a place for what it does inside its call of MPI, and has not said that this is nothing.
    pub fn busy_inside(&self) -> bool {
        self.stand() == Stand::Calling && self.inside.load(SeqCst) != 0
    }
    /// Whether it wants one.
    pub fn waits_inside(&self) -> bool {
        self.stand() == Stand::Waiting && self.inside.load(SeqCst) != 0
    }
    /// It did something inside its call just now, for which it keeps its place.
    pub fn goes_on_inside(&self, now_us: u64) {
        self.seen_us.store(now_us, SeqCst);
    }
    /// Pages that its last turn needed, 0 when it may need more than it had; and those it manages.
    pub fn set_needs(&self, pages: u64, managed: u64) {
        self.needs.store(pages, SeqCst);
        self.managed.store(managed, SeqCst);
    }
    /// Pages that it needs to compute, where it manages so many.
    fn needs(&self, managed: u64) -> u64 {
        let needs = self.needs.load(SeqCst);
        // What has grown since by more than that, nothing is known of.
        let grown = managed.saturating_sub(self.managed.load(SeqCst));
        if grown > needs || needs == 0 { managed } else { needs.min(managed) }
    }
    /// Whether it sleeps in a call of MPI until something may have come.
    pub fn naps(&self) -> bool {
        self.napping.load(SeqCst) != 0
    }
    /// It begins or ends a sleep on the bell.
    pub fn set_napping(&self, yes: bool) {
        self.napping.store(yes.into(), SeqCst);
    }
    /// Changes the bell of one that sleeps; true when it has to be woken.
    pub fn poke(&self) -> bool {
        let naps = self.napping.load(SeqCst) != 0;
        if naps {
            self.bell.fetch_add(1, SeqCst);
        }
        naps
    }
    /// The rank begins a call of MPI.
    pub fn enter(&self) {
        let word = self.word.load(SeqCst);
        if Stand::of(word) == Stand::Running {
            let calling = (word & !STAND).wrapping_add(CALL) | Stand::Calling as u32;
            let _ = self.word.compare_exchange(word, calling, SeqCst, SeqCst);
        }
    }
    /// The rank ends a call of MPI. False when its place was taken away: it needs one before it goes on.
    pub fn leave(&self) -> bool {
        loop {
            let word = self.word.load(SeqCst);
            match Stand::of(word) {
                Stand::Away | Stand::Running => return true,
                Stand::Calling | Stand::Idle => {}
                Stand::Blocked | Stand::Waiting | Stand::Polite => return false,
            }
            if self.change(word, Stand::Running) {
                self.inside.store(0, SeqCst);
                return true;
            }
        }
    }
    /// The rank finds nothing to do in its call. False when it does not hold a place.
    pub fn idle(&self) -> bool {
        let word = self.word.load(SeqCst);
        match Stand::of(word) {
            Stand::Calling => {
                self.inside.store(0, SeqCst);
                self.change(word, Stand::Idle)
            }
            stand => stand.holds(),
        }
    }
    fn change(&self, word: u32, to: Stand) -> bool {
        self.word.compare_exchange(word, word & !STAND | to as u32, SeqCst, SeqCst).is_ok()
    }
    pub(crate) fn clear(&self) {
        for word in [&self.word, &self.napping, &self.passed, &self.pending, &self.rank, &self.seen, &self.inside] {
            word.store(0, SeqCst);
        }
        self.asked.store(0, SeqCst);
        self.computed_ns.store(0, SeqCst);
        self.waits.store(0, SeqCst);
        self.needs.store(0, SeqCst);
    }
}

/// What the ranks of a session have together.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Turns {
    /// Generation of the entry that holds the lock, [`AGENT`], or 0.
    lock: AtomicU64,
    tickets: AtomicU64,
    /// When a place last changed hands.
    changed_us: AtomicU64,
    poked_us: AtomicU64,
    /// Faults of those that compute, and when they were counted.
    faults: AtomicU64,
    counted_us: AtomicU64,
    /// Ranks that want a place, as of the last decision.
    waiting: AtomicU32,
    /// Ranks that compute beyond their number, since nothing else has happened for long.
    extra: AtomicU32,
    /// Places handed out.
    pub given: Counter,
    /// Of these, for what a rank did inside a call of MPI.
    pub inside: Counter,
    /// Places taken away from ranks that stayed in a call.
    pub taken: Counter,
    /// Ranks let in beyond the number of places.
    pub let_in: Counter,
    trial: Trial,
}

/// The agent's mark as an owner of the lock.
const AGENT: u64 = u64::MAX;
/// How long a rank stays in a call before its place can be taken away, if it has not said that it is idle.
const STALE_US: u64 = 20_000;
/// Least time between two rounds of poking.
const POKE_US: u64 = 300;
/// Waits after which what was before counts for half.
const STRETCHES: u64 = 1024;
/// Longer than this times the patience nobody waits, whatever those that compute do.
const LIMIT: u64 = 30;

impl Turns {
    /// Whether a rank waits for a place.
    pub fn anybody_waits(&self) -> bool {
        self.waiting.load(SeqCst) != 0
    }
    /// Whether those who sleep in their calls are to be woken now; true for one caller in a while.
    pub fn may_poke(&self, now_us: u64) -> bool {
        let last = self.poked_us.load(SeqCst);
        now_us.saturating_sub(last) >= POKE_US && self.poked_us.compare_exchange(last, now_us, SeqCst, SeqCst).is_ok()
    }
}

/// Ranks that were given a place and have to be woken: those of the entries with these numbers.
pub type Wake<'a> = &'a mut dyn FnMut(&Seat);

/// The right to decide, given back when it is dropped.
pub struct Decision<'a> {
    session: &'a Session,
    owner: u64,
}

impl Drop for Decision<'_> {
    fn drop(&mut self) {
        let _ = self.session.turns().lock.compare_exchange(self.owner, 0, SeqCst, SeqCst);
    }
}

impl Session {
    /// Waits for the right to decide, as the process of entry `me` (`None`: as the agent). `pause` sleeps a little;
    /// `alive` as for [`Session::sweep`].
    pub fn decide(
        &self,
        me: Option<usize>,
        mut alive: impl FnMut(Identity) -> bool,
        mut pause: impl FnMut(),
    ) -> Decision<'_> {
        let owner = me.and_then(|index| self.process(index)).map_or(AGENT, Process::generation);
        let lock = &self.turns().lock;
        let mut tries = 0u32;
        while let Err(holder) = lock.compare_exchange(0, owner, SeqCst, SeqCst) {
            tries += 1;
            if tries % 256 != 0 {
                core::hint::spin_loop();
                continue;
            }
            pause();
            let dead = tries % 4096 == 0 && !self.lives(holder, &mut alive);
            if dead && lock.compare_exchange(holder, owner, SeqCst, SeqCst).is_ok() {
                break;
            }
        }
        Decision { session: self, owner }
    }

    /// The same as the process of entry `me`, unless somebody else decides just now: for its pager, which whoever has the
    /// right may be waiting for. Of one that is dead it is taken over; `alive` says so where it is asked for.
    pub fn try_decide(&self, me: usize, alive: Option<fn(Identity) -> bool>) -> Option<Decision<'_>> {
        let owner = self.process(me)?.generation();
        let lock = &self.turns().lock;
        if let Err(holder) = lock.compare_exchange(0, owner, SeqCst, SeqCst) {
            let mut alive = alive?;
            if self.lives(holder, &mut alive) || lock.compare_exchange(holder, owner, SeqCst, SeqCst).is_err() {
                return None;
            }
        }
        Some(Decision { session: self, owner })
    }

    fn lives(&self, generation: u64, alive: &mut impl FnMut(Identity) -> bool) -> bool {
        if generation == AGENT {
            return alive(Identity { pid: self.agent(), start: 0, space: self.space() });
        }
        let owner = self.used().iter().find(|process| process.generation() == generation);
        owner.and_then(Process::identity).is_some_and(alive)
    }

    /// Asks ranks whose turn it is not for `pages`, of which each keeps `left`: first those that computed last, since it
    /// is longest until they do again. Returns how many are on the way, or can be had.
    pub fn ask(&self, pages: u64, left: u64) -> u64 {
        let mut missing = pages;
        let mut before = (u64::MAX, 0);
        while missing > 0 {
            let aside = self.used().iter().enumerate().filter(|(_, one)| one.engaged() && one.seat().aside());
            // Those that have had no turn yet have all the same time.
            let when = |(place, one): &(usize, &Process)| (one.seat().aside_us.load(SeqCst), *place);
            let Some(next) = aside.filter(|one| when(one) < before).max_by_key(when) else { break };
            before = when(&next);
            let process = next.1;
            let spare = process.held_pages().saturating_sub(left + process.seat().asked());
            process.seat().ask(spare.min(missing));
            missing -= spare.min(missing);
        }
        pages - missing
    }
}

impl Decision<'_> {
    fn seats(&self) -> impl Iterator<Item = (&Process, &Seat)> {
        let live = self.session.used().iter().filter(|process| process.lifecycle().0 == Lifecycle::Live);
        live.map(|process| (process, process.seat()))
    }

    /// The process of entry `me` is a rank of the job from now on; it waits for a place.
    pub fn join(&self, me: usize, rank: u32, now_us: u64, wake: Wake) {
        if let Some(process) = self.session.process(me) {
            process.seat().clear();
            process.seat().rank.store(rank.wrapping_add(1), SeqCst);
        }
        self.want(me, Stand::Waiting, now_us, wake);
    }

    /// The rank of entry `me` wants a place, `as` [`Stand::Waiting`] or [`Stand::Polite`]. It has none, or gives it up.
    pub fn want(&self, me: usize, stand: Stand, now_us: u64, wake: Wake) {
        let Some(process) = self.session.process(me) else { return };
        let turns = self.session.turns();
        let seat = process.seat();
        seat.ticket.store(turns.tickets.fetch_add(1, SeqCst) + 1, SeqCst);
        if seat.stand().holds() {
            seat.aside_us.store(now_us, SeqCst);
        }
        seat.inside.store(0, SeqCst);
        self.put(seat, stand);
        self.grant(now_us, wake);
    }

    /// The rank of entry `me`, which has no place and is in MPI, does something there that needs its memory: it wants a place
    /// as if its call had ended, and loses it when it finds nothing to do.
    pub fn want_inside(&self, me: usize, now_us: u64, wake: Wake) {
        let turns = self.session.turns();
        let Some(seat) = self.session.process(me).map(Process::seat) else { return };
        if seat.stand() == Stand::Blocked {
            seat.ticket.store(turns.tickets.fetch_add(1, SeqCst) + 1, SeqCst);
            seat.inside.store(1, SeqCst);
            self.put(seat, Stand::Waiting);
            self.grant(now_us, wake);
        }
    }

    /// The rank of entry `me` found nothing to do while it wanted a place for what it did in its call.
    pub fn withdraw(&self, me: usize, now_us: u64, wake: Wake) {
        let Some(seat) = self.session.process(me).map(Process::seat) else { return };
        if seat.waits_inside() {
            seat.inside.store(0, SeqCst);
            seat.passed.store(0, SeqCst);
            self.put(seat, Stand::Blocked);
            // Its thread may wait outside by now.
            wake(seat);
            self.grant(now_us, wake);
        }
    }

    /// The rank of entry `me` waits in MPI: its place is for another.
    pub fn give_up(&self, me: usize, now_us: u64, wake: Wake) {
        let Some(process) = self.session.process(me) else { return };
        if process.seat().stand().holds() {
            self.put(process.seat(), Stand::Blocked);
            process.seat().aside_us.store(now_us, SeqCst);
        }
        self.grant(now_us, wake);
    }

    /// The process of entry `me` is no rank any more.
    pub fn go(&self, me: usize, now_us: u64, wake: Wake) {
        if let Some(process) = self.session.process(me) {
            process.seat().clear();
        }
        self.grant(now_us, wake);
    }

    /// A message was sent to the rank with this number.
    pub fn sent(&self, rank: u32) {
        for (_, seat) in self.seats().filter(|(_, seat)| seat.rank.load(SeqCst) == rank.wrapping_add(1)) {
            seat.pending.fetch_add(1, SeqCst);
        }
    }

    fn put(&self, seat: &Seat, stand: Stand) {
        if seat.stand().holds() {
            // Somebody else's turn comes by itself.
            self.session.turns().extra.store(0, SeqCst);
        }
        while !seat.change(seat.word.load(SeqCst), stand) {}
    }

    /// What time brings: called now and then by those who wait, and by the agent when somebody has ended. Hands out
    /// what is free, takes places from those that stay in a call, and where nothing has happened for `patience_us` and
    /// those that compute have not even brought a page in, lets one more compute: they may wait for something that one
    /// of the others has to do.
    pub fn look(&self, now_us: u64, patience_us: u64, wake: Wake) {
        let turns = self.session.turns();
        if now_us.saturating_sub(turns.counted_us.load(SeqCst)) >= patience_us {
            let holders = self.seats().filter(|(_, seat)| seat.stand().holds());
            let faults = holders.map(|(process, _)| process.counters.faults.get()).sum::<u64>();
            let quiet = turns.faults.swap(faults, SeqCst) == faults;
            turns.counted_us.store(now_us, SeqCst);
            let for_long = now_us.saturating_sub(turns.changed_us.load(SeqCst));
            if turns.anybody_waits() && for_long >= patience_us && (quiet || for_long >= LIMIT * patience_us) {
                turns.extra.fetch_add(1, SeqCst);
                turns.let_in.add(1);
            }
        }
        self.grant(now_us, wake);
    }

    /// Now and then: finds out whether ranks that compute briefly do better in turns or all at once.
    pub fn weigh(&self, now_us: u64, wake: Wake) {
        let trial = &self.session.turns().trial;
        let before = trial.all_at_once();
        if self.session.is_brief() {
            trial.weigh(now_us);
        } else {
            trial.pause();
        }
        if trial.all_at_once() != before {
            self.grant(now_us, wake);
        }
    }

    fn grant(&self, now_us: u64, wake: Wake) {
        let turns = self.session.turns();
        let most = self.session.places();
        while let Some(seat) = self.choose() {
            let holders = self.seats().filter(|(_, seat)| seat.stand().holds()).count();
            if holders >= most && !self.take_away(now_us) {
                break;
            }
            let ticket = seat.ticket.load(SeqCst);
            let earlier = |other: &Seat| other.stand().waits() && other.ticket.load(SeqCst) < ticket;
            for (_, other) in self.seats().filter(|(_, other)| earlier(other)) {
                other.passed.fetch_add(1, SeqCst);
            }
            seat.passed.store(0, SeqCst);
            seat.pending.store(0, SeqCst);
            seat.since_us.store(now_us, SeqCst);
            turns.changed_us.store(now_us, SeqCst);
            turns.given.add(1);
            if seat.inside.load(SeqCst) != 0 {
                // Until it has done nothing for as long as any other that is in a call.
                seat.seen.store(0, SeqCst);
                turns.inside.add(1);
                self.put(seat, Stand::Calling);
            } else {
                self.put(seat, Stand::Running);
            }
            wake(seat);
        }
        let waiting = self.seats().filter(|(_, seat)| seat.stand().waits()).count();
        turns.waiting.store(waiting as u32, SeqCst);
        // Somebody may have become idle before it could see that another one waits.
        if waiting > 0 && self.seats().any(|(_, seat)| seat.stand() == Stand::Idle) && self.take_away(now_us) {
            self.grant(now_us, wake);
        }
    }

    /// Who comes next. Nobody is passed over for ever: whoever was, twice as often as there are others, is next.
    fn choose(&self) -> Option<&Seat> {
        let waiting = || self.seats().filter(|(_, seat)| seat.stand().waits());
        let bound = 2 * waiting().count() as u32;
        let passed = waiting().map(|(_, seat)| seat).max_by_key(|seat| seat.passed.load(SeqCst));
        if let Some(seat) = passed.filter(|seat| seat.passed.load(SeqCst) >= bound) {
            return Some(seat);
        }
        let rule = Next::from_u32(self.session.config().next);
        let rank = |(process, seat): &(&Process, &Seat)| {
            let (resident, ticket) = (process.held_pages(), seat.ticket.load(SeqCst));
            let order = match rule {
                Next::Vrss => (0, resident),
                Next::Fifo => (0, 0),
                Next::Lifo => (ticket, 0),
                Next::Pending => (seat.pending.load(SeqCst).into(), resident),
            };
            (seat.stand() == Stand::Waiting, order, core::cmp::Reverse(ticket))
        };
        waiting().max_by_key(rank).map(|(_, seat)| seat)
    }

    /// Takes the place of a rank that does nothing with it. False when there is none.
    fn take_away(&self, now_us: u64) -> bool {
        for (_, seat) in self.seats() {
            let word = seat.word.load(SeqCst);
            let unused = match Stand::of(word) {
                Stand::Idle => true,
                Stand::Calling if seat.seen.swap(word, SeqCst) == word => {
                    now_us.saturating_sub(seat.seen_us.load(SeqCst)) >= STALE_US
                }
                Stand::Calling => {
                    seat.seen_us.store(now_us, SeqCst);
                    false
                }
                _ => false,
            };
            if unused && seat.change(word, Stand::Blocked) {
                seat.aside_us.store(now_us, SeqCst);
                self.session.turns().taken.add(1);
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
#[path = "turns/tests.rs"]
mod tests;
