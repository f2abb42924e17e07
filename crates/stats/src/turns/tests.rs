//! Tests of turns: the rules one by one, and many threads that come, wait, are taken from and die.

extern crate std;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::vec::Vec;

use super::*;
use crate::Config;
use crate::session::tests::Shared;

impl Shared {
    fn new(ranks_at_once: u32, next: Next) -> Shared {
        Shared::with(&Config { budget_bytes: 1000 * 4096, ranks_at_once, next: next as u32, ..Config::new() })
    }

    /// Ranks that have joined in this order, the first ones with a place.
    fn with_ranks(ranks_at_once: u32, next: Next, ranks: u32) -> (Shared, Vec<usize>) {
        let shared = Shared::new(ranks_at_once, next);
        let join = |rank| {
            let me = shared.session.claim(Identity { pid: rank + 1, start: 1, space: 0 }, 0).unwrap();
            shared.decide(|decision| decision.join(me, rank, 1, &mut |_| ()));
            me
        };
        let all = (0..ranks).map(join).collect();
        (shared, all)
    }

    fn decide(&self, work: impl FnOnce(&Decision)) {
        work(&self.session.decide(None, |_| true, || ()));
    }

    fn stand(&self, me: usize) -> Stand {
        self.seat(me).stand()
    }

    fn seat(&self, me: usize) -> &Seat {
        self.session.process(me).unwrap().seat()
    }

    fn running(&self, all: &[usize]) -> Vec<usize> {
        all.iter().copied().filter(|me| self.stand(*me).holds()).collect()
    }

    /// The rank begins a call and finds nothing to do there.
    fn block(&self, me: usize) {
        self.seat(me).enter();
        self.decide(|decision| decision.give_up(me, 2, &mut |_| ()));
    }

    /// What it waited for has come.
    fn wants(&self, me: usize, stand: Stand) {
        assert!(!self.seat(me).leave());
        self.decide(|decision| decision.want(me, stand, 3, &mut |_| ()));
    }
}

#[test]
fn as_many_as_there_are_places() {
    let (shared, all) = Shared::with_ranks(2, Next::Fifo, 4);
    assert_eq!(shared.running(&all), all[..2]);
    assert!(shared.session.turns().anybody_waits());
    shared.block(all[0]);
    assert_eq!(shared.running(&all), all[1..3]);
    shared.wants(all[0], Stand::Waiting);
    assert_eq!(shared.stand(all[0]), Stand::Waiting);
    shared.block(all[1]);
    shared.block(all[2]);
    assert_eq!(shared.running(&all), [all[0], all[3]]);
    assert!(!shared.session.turns().anybody_waits());
}

#[test]
fn a_call_that_kept_nobody_waiting_costs_no_place() {
    let (shared, all) = Shared::with_ranks(1, Next::Fifo, 1);
    let seat = shared.seat(all[0]);
    seat.enter();
    assert_eq!(seat.stand(), Stand::Calling);
    assert!(seat.idle() && seat.idle() && seat.leave());
    assert_eq!(seat.stand(), Stand::Running);
}

#[test]
fn whoever_sits_in_a_call_loses_the_place() {
    let (shared, all) = Shared::with_ranks(1, Next::Fifo, 3);
    // Idle: at once when another one comes, or looks.
    shared.seat(all[0]).enter();
    assert!(shared.seat(all[0]).idle());
    shared.decide(|decision| decision.look(5, 1 << 40, &mut |_| ()));
    assert_eq!((shared.stand(all[0]), shared.stand(all[1])), (Stand::Blocked, Stand::Running));
    assert!(!shared.seat(all[0]).idle() && !shared.seat(all[0]).leave());
    // In a call, as seen twice: after a while. In another call by then: not.
    let look = |now| shared.decide(|decision| decision.look(now, 1 << 40, &mut |_| ()));
    shared.seat(all[1]).enter();
    look(1000);
    look(1000 + STALE_US - 1);
    assert_eq!(shared.stand(all[1]), Stand::Calling);
    assert!(shared.seat(all[1]).leave());
    shared.seat(all[1]).enter();
    look(1000 + 2 * STALE_US);
    assert_eq!(shared.stand(all[1]), Stand::Calling);
    look(1000 + 3 * STALE_US);
    assert_eq!((shared.stand(all[1]), shared.stand(all[2])), (Stand::Blocked, Stand::Running));
    // One that computes keeps it.
    shared.wants(all[0], Stand::Waiting);
    look(1 << 30);
    look(1 << 31);
    assert_eq!(shared.running(&all), [all[2]]);
}

#[test]
fn work_in_a_call_has_a_place_until_it_ends_or_comes_to_nothing() {
    let (shared, all) = Shared::with_ranks(1, Next::Fifo, 3);
    let want = |me, now| shared.decide(|decision| decision.want_inside(me, now, &mut |_| ()));
    let look = |now| shared.decide(|decision| decision.look(now, 1 << 40, &mut |_| ()));
    // Only who has none and waits for no other.
    want(all[0], 5);
    want(all[1], 5);
    assert_eq!((shared.stand(all[0]), shared.stand(all[1])), (Stand::Running, Stand::Waiting));
    assert!(!shared.seat(all[1]).waits_inside());
    shared.block(all[0]);
    shared.block(all[1]);
    assert_eq!(shared.running(&all), [all[2]]);
    want(all[0], 6);
    assert!(shared.seat(all[0]).waits_inside() && shared.session.turns().anybody_waits());
    shared.block(all[2]);
    // It has one, which it keeps as long as it does something, and after the call.
    let seat = shared.seat(all[0]);
    assert!(seat.busy_inside() && !seat.waits_inside());
    shared.decide(|decision| decision.want(all[1], Stand::Waiting, 7, &mut |_| ()));
    for now in 1..9 {
        seat.goes_on_inside(now * STALE_US);
        look(now * STALE_US + STALE_US / 2);
    }
    assert!(seat.busy_inside() && seat.leave());
    assert_eq!((seat.stand(), seat.busy_inside(), shared.session.turns().inside.get()), (Stand::Running, false, 1));
    // Another one finds nothing to do: it loses the place at once.
    shared.block(all[0]);
    shared.block(all[1]);
    want(all[2], 8);
    assert!(shared.seat(all[2]).busy_inside());
    want(all[0], 9);
    assert!(shared.seat(all[2]).idle() && !shared.seat(all[2]).busy_inside());
    look(10);
    assert_eq!((shared.stand(all[2]), shared.seat(all[0]).busy_inside()), (Stand::Blocked, true));
    // This one does nothing for long.
    want(all[2], 11);
    look(1 << 30);
    look((1 << 30) + STALE_US);
    assert_eq!((shared.stand(all[0]), shared.seat(all[2]).busy_inside()), (Stand::Blocked, true));
    assert!(!shared.seat(all[0]).leave());
}

#[test]
fn who_comes_next() {
    for (rule, expected) in [(Next::Vrss, 2), (Next::Fifo, 1), (Next::Lifo, 3), (Next::Pending, 3)] {
        let (shared, all) = Shared::with_ranks(1, rule, 4);
        for (me, pages) in all.iter().zip([0, 10, 30, 20]) {
            shared.session.process(*me).unwrap().acquire(shared.session.ledger(), pages);
        }
        shared.decide(|decision| {
            decision.sent(3);
            decision.sent(0);
        });
        shared.block(all[0]);
        assert_eq!(shared.running(&all), [all[expected]], "{rule:?}");
    }
}

#[test]
fn the_polite_come_last_and_nobody_is_passed_over_for_ever() {
    let (shared, all) = Shared::with_ranks(1, Next::Vrss, 3);
    for (me, pages) in all.iter().zip([100, 50, 1]) {
        shared.session.process(*me).unwrap().acquire(shared.session.ledger(), pages);
    }
    // The largest asks again and again for what has not come.
    shared.decide(|decision| decision.want(all[0], Stand::Polite, 2, &mut |_| ()));
    assert_eq!(shared.running(&all), [all[1]]);
    let mut turns = 0;
    while shared.running(&all) != [all[2]] {
        let now = shared.running(&all)[0];
        shared.block(now);
        shared.wants(now, Stand::Waiting);
        turns += 1;
        assert!(turns < 20, "passed over for ever");
    }
}

#[test]
fn where_nothing_happens_one_more_computes() {
    let (shared, all) = Shared::with_ranks(1, Next::Fifo, 3);
    let look = |now| shared.decide(|decision| decision.look(now, 1000, &mut |_| ()));
    let faults = &shared.session.process(all[0]).unwrap().counters.faults;
    look(1000);
    // It brings pages in: it is at work.
    faults.add(1);
    look(2100);
    assert_eq!(shared.running(&all), [all[0]]);
    look(3200);
    assert_eq!(shared.running(&all), all[..2]);
    // That one ends its turn: it was one too many, and the third does not come.
    shared.block(all[1]);
    assert_eq!(shared.running(&all), [all[0]]);
    // However busy, not for ever.
    faults.add(1);
    look(3200 + LIMIT * 1000 - 1);
    faults.add(1);
    look(5000 + LIMIT * 1000);
    assert_eq!(shared.running(&all), [all[0], all[2]]);
}

#[test]
fn as_many_as_fit() {
    let (shared, all) = Shared::with_ranks(0, Next::Vrss, 4);
    assert_eq!(shared.session.ranks_at_once(), u32::MAX);
    let grow = |by| {
        for me in &all {
            shared.session.process(*me).unwrap().change_managed(shared.session.ledger(), by);
        }
        shared.session.ranks_at_once()
    };
    assert_eq!(grow(250), u32::MAX);
    // With a third more each.
    assert_eq!(grow(80), 2);
    shared.session.process(all[0]).unwrap().change_managed(shared.session.ledger(), 4000);
    assert_eq!(shared.session.ranks_at_once(), 1);
}

#[test]
fn places_too_many_are_noticed() {
    let (shared, all) = Shared::with_ranks(0, Next::Vrss, 4);
    assert!(!shared.session.is_crowded());
    // They got their places while all had room.
    for me in &all {
        shared.session.process(*me).unwrap().change_managed(shared.session.ledger(), 330);
    }
    assert!(shared.session.is_crowded());
    shared.block(all[0]);
    assert!(shared.session.is_crowded());
    shared.block(all[1]);
    assert!(!shared.session.is_crowded());
    shared.wants(all[0], Stand::Waiting);
    assert_eq!((shared.running(&all), shared.session.is_crowded()), (all[2..].to_vec(), false));
    // Whoever is let in has a place of its own.
    shared.decide(|decision| decision.look(5000, 1000, &mut |_| ()));
    shared.decide(|decision| decision.look(9000, 1000, &mut |_| ()));
    assert_eq!((shared.running(&all).len(), shared.session.is_crowded()), (3, false));
}

#[test]
fn ranks_that_compute_briefly_are_tried_all_at_once() {
    let (shared, all) = Shared::with_ranks(0, Next::Vrss, 4);
    let session = shared.session;
    let mut now = 1;
    // A second in which each computes for so long before each of so many waits; whether all did so at once at its end.
    let mut second = |ns, times| {
        for _ in 0..50 {
            for me in &all {
                (0..times).for_each(|_| session.note_stretch(shared.seat(*me), ns));
            }
            now += 20_000;
            session.decide(None, |_| true, || ()).weigh(now, &mut |_| ());
        }
        session.ranks_at_once() == u32::MAX
    };
    for me in &all {
        session.process(*me).unwrap().change_managed(session.ledger(), 330);
    }
    assert_eq!(session.ranks_at_once(), 2);
    // Long stretches are not.
    assert!(!second(50_000_000, 1) && !second(50_000_000, 1));
    // As much again, in short ones, is; while more is computed so, it stays.
    assert!((0..20).any(|_| second(1_000_000, 40)));
    assert!(second(1_000_000, 80) && second(1_000_000, 80));
    assert!(all.iter().all(|me| shared.stand(*me) == Stand::Running));
    // One that computes for long after many waits is none of these.
    (0..50).for_each(|_| session.note_stretch(shared.seat(all[3]), 10_000_000_000));
    assert!(!second(1_000_000, 1));
    assert_eq!(session.ranks_at_once(), 2);
}

#[test]
fn the_dead_give_their_place_and_their_lock_back() {
    let (shared, all) = Shared::with_ranks(1, Next::Fifo, 2);
    // Killed in the middle of a decision.
    core::mem::forget(shared.session.decide(Some(all[0]), |_| true, || ()));
    let lives = |who: Identity| who.pid != 1;
    shared.session.sweep(Identity { pid: 9, start: 1, space: 0 }, 100, |who, _| lives(who));
    shared.session.decide(Some(all[1]), lives, || ()).look(5, 1 << 40, &mut |_| ());
    assert_eq!(shared.stand(all[1]), Stand::Running);
    // A pager does not wait, but takes over from the dead where it looks for them.
    let decision = shared.session.decide(Some(all[1]), |_| true, || ());
    assert!(shared.session.try_decide(all[1], None).is_none());
    assert!(shared.session.try_decide(all[1], Some(|_| true)).is_none());
    assert!(shared.session.try_decide(all[1], Some(|_| false)).is_some());
    drop(decision);
    assert!(shared.session.try_decide(all[1], None).is_some());
}

#[test]
fn who_finds_nothing_to_do_while_it_waits_inside_withdraws() {
    let (shared, all) = Shared::with_ranks(1, Next::Fifo, 2);
    shared.block(all[0]);
    shared.decide(|decision| decision.want_inside(all[0], 5, &mut |_| ()));
    assert!(shared.seat(all[0]).waits_inside());
    shared.decide(|decision| decision.withdraw(all[0], 6, &mut |_| ()));
    assert_eq!((shared.stand(all[0]), shared.session.turns().anybody_waits()), (Stand::Blocked, false));
    // Not who waits outside.
    shared.wants(all[0], Stand::Waiting);
    shared.decide(|decision| decision.withdraw(all[0], 7, &mut |_| ()));
    assert_eq!(shared.stand(all[0]), Stand::Waiting);
}

#[test]
fn as_many_as_fit_by_what_turns_needed() {
    let (shared, all) = Shared::with_ranks(0, Next::Vrss, 4);
    let (session, at_once) = (shared.session, || shared.session.ranks_at_once());
    let managed = |by| all.iter().for_each(|me| session.process(*me).unwrap().change_managed(session.ledger(), by));
    managed(700);
    assert_eq!(at_once(), 1);
    all.iter().for_each(|me| shared.seat(*me).set_needs(300, 700));
    assert_eq!(at_once(), 2);
    // A buffer that was not there then does not matter; data that have outgrown all that is known do.
    managed(200);
    assert_eq!(at_once(), 2);
    managed(600);
    assert_eq!(at_once(), 1);
    all.iter().for_each(|me| shared.seat(*me).set_needs(0, 700));
    assert_eq!(at_once(), 1);
}

/// Ranks in threads: never more than allowed compute, all come to an end, some die in the middle of anything.
#[test]
fn turns_of_many() {
    const RANKS: u32 = 8;
    for rule in [Next::Vrss, Next::Fifo, Next::Lifo, Next::Pending] {
        let shared = Shared::new(2, rule);
        let session = shared.session;
        let computing = AtomicU32::new(0);
        let dead: Vec<AtomicBool> = (0..RANKS + 1).map(|_| AtomicBool::new(false)).collect();
        let alive = |who: Identity| !dead[who.pid as usize].load(SeqCst);
        let pause = || std::thread::yield_now();
        std::thread::scope(|scope| {
            for rank in 0..RANKS {
                let (dead, computing, alive, pause) = (&dead, &computing, &alive, &pause);
                scope.spawn(move || {
                    let me = session.claim(Identity { pid: rank + 1, start: 1, space: 0 }, 0).unwrap();
                    let seat = session.process(me).unwrap().seat();
                    let until_running = || {
                        while seat.stand() != Stand::Running {
                            pause();
                            session.sweep(Identity { pid: 99, start: 1, space: 0 }, 1, |who, _| alive(who));
                            session.decide(Some(me), alive, pause).look(1, 1 << 40, &mut |_| ());
                        }
                    };
                    session.decide(Some(me), alive, pause).join(me, rank, 1, &mut |_| ());
                    until_running();
                    for round in 0..300u32 {
                        let now = computing.fetch_add(1, SeqCst) + 1;
                        assert!(now <= 2, "{now} compute at once");
                        computing.fetch_sub(1, SeqCst);
                        if rank % 4 == 3 && round == 150 {
                            if rank == 3 {
                                core::mem::forget(session.decide(Some(me), alive, pause));
                            }
                            dead[rank as usize + 1].store(true, SeqCst);
                            return;
                        }
                        seat.enter();
                        if round % 3 == 0 {
                            session.decide(Some(me), alive, pause).give_up(me, 1, &mut |_| ());
                        } else if round % 3 == 1 {
                            seat.idle();
                        }
                        if !seat.leave() {
                            let stand = if round % 2 == 0 { Stand::Waiting } else { Stand::Polite };
                            session.decide(Some(me), alive, pause).want(me, stand, 1, &mut |_| ());
                            until_running();
                        }
                    }
                    session.decide(Some(me), alive, pause).go(me, 1, &mut |_| ());
                });
            }
        });
    }
}
