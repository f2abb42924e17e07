//! Tests of the table and of the ledger under threads that come, take, return and die.

extern crate std;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::vec::Vec;

use super::*;

/// A session in zeroed memory of its own, freed at the end.
pub(crate) struct Shared {
    memory: *mut u8,
    pub(crate) session: &'static Session,
}

const LAYOUT: std::alloc::Layout = std::alloc::Layout::new::<Session>();

impl Shared {
    fn with_pages(pages: u64) -> Shared {
        Shared::with(&Config { budget_bytes: pages * 4096, ..Config::new() })
    }

    pub(crate) fn with(config: &Config) -> Shared {
        // SAFETY: a fresh zeroed allocation of the session's own layout, kept until drop.
        unsafe {
            let memory = std::alloc::alloc_zeroed(LAYOUT);
            Shared { memory, session: Session::create(memory, 42, config, 7) }
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout; tests do not keep the reference beyond the value.
        unsafe { std::alloc::dealloc(self.memory, LAYOUT) };
    }
}

fn id(pid: u32) -> Identity {
    Identity { pid, start: pid as u64 * 10, space: 7 }
}

#[test]
fn opening_checks_what_it_is() {
    let shared = Shared::with_pages(1);
    // SAFETY: the memory lives until the end of the test.
    unsafe {
        assert_eq!(Session::open(shared.memory, Session::BYTES, 41).unwrap_err(), Refused::OtherSession);
        assert_eq!(Session::open(shared.memory, 4096, 42).unwrap_err(), Refused::Short);
        assert!(Session::open(shared.memory, Session::BYTES, 42).is_ok());
        shared.session.version.store(VERSION + 1, SeqCst);
        assert_eq!(Session::open(shared.memory, Session::BYTES, 42).unwrap_err(), Refused::OtherVersion);
        shared.session.magic.store(1, SeqCst);
        assert_eq!(Session::open(shared.memory, Session::BYTES, 42).unwrap_err(), Refused::NotASession);
    }
}

#[test]
fn the_engine_that_is_told_is_the_one_in_use() {
    let shared = Shared::with_pages(1);
    assert_eq!(shared.session.engine(), Engine::Auto);
    shared.session.uses(Engine::Copy);
    assert_eq!(shared.session.engine(), Engine::Copy);
}

#[test]
fn what_is_handed_to_a_child_never_lies_free_and_comes_back_with_it() {
    let shared = Shared::with_pages(100);
    let (session, ledger) = (shared.session, shared.session.ledger());
    let index = session.claim(id(5), 0).unwrap();
    let parent = session.process(index).unwrap();
    assert_eq!(parent.acquire(ledger, 100), 100);
    let kept = session.expect(index, 0).unwrap();
    let child = session.process(kept.index).unwrap();
    parent.hand_over(ledger, child, 60);
    assert_eq!((parent.held_pages(), child.held_pages(), ledger.free_pages()), (40, 60, 0));
    assert!(session.adopt(kept, id(5), id(6)));
    assert_eq!(child.held_pages(), 60);
    assert_eq!(session.release(kept.index), 60);
    assert_eq!(ledger.free_pages(), 60);
    // The fork failed.
    let kept = session.expect(index, 0).unwrap();
    let child = session.process(kept.index).unwrap();
    parent.hand_over(ledger, child, 50);
    assert_eq!((parent.held_pages(), child.held_pages()), (0, 40));
    session.cancel(kept, id(5));
    assert_eq!(ledger.free_pages(), 100);
    assert_eq!(ledger.peak_held(), 100);
}

#[test]
fn claim_and_release_return_everything() {
    let shared = Shared::with_pages(100);
    let session = shared.session;
    let index = session.claim(id(5), 0).unwrap();
    let process = session.process(index).unwrap();
    assert_eq!(process.identity(), Some(id(5)));
    assert_eq!(process.acquire(session.ledger(), 30), 30);
    process.change_managed(session.ledger(), 50);
    process.set_hungry(true);
    assert!(!process.hungry(), "it is not paged");
    process.set_engaged(session.ledger(), true);
    process.set_engaged(session.ledger(), true);
    assert!(process.hungry());
    process.set_starving(session.ledger(), true);
    process.counters.faults.add(3);
    assert_eq!((session.ledger().engaged(), session.ledger().starving()), (1, 1));
    assert_eq!(process.give_back(session.ledger(), 10), 10);
    assert_eq!(session.release(index), 20);
    process.set_engaged(session.ledger(), true);
    assert!(!process.hungry());
    process.set_engaged(session.ledger(), false);
    assert_eq!(session.ledger().free_pages(), 100);
    assert_eq!((session.ledger().engaged(), session.ledger().starving()), (0, 0));
    assert_eq!((session.ledger().managed_pages(), session.ledger().peak_managed()), (0, 50));
    assert_eq!(session.ended().faults.get(), 3);
    assert_eq!(session.release(index), 0);
    assert_eq!(session.others(None), 0);
}

#[test]
fn executing_another_program_begins_anew() {
    let shared = Shared::with_pages(100);
    let session = shared.session;
    let first = session.claim(id(5), 0).unwrap();
    let old = session.process(first).unwrap().generation();
    session.process(first).unwrap().acquire(session.ledger(), 60);
    assert!(session.process(first).unwrap().lease(9));
    let second = session.claim(id(5), 0).unwrap();
    let process = session.process(second).unwrap();
    assert_ne!(process.generation(), old);
    assert_eq!(session.ledger().free_pages(), 100);
    assert!(!process.leases(9));
    assert_eq!(session.others(None), 1);
}

#[test]
fn leases_last_from_before_the_fork_to_the_end_of_the_child() {
    let shared = Shared::with_pages(100);
    let session = shared.session;
    let parent = session.claim(id(1), 0).unwrap();
    let fork = session.next_fork();
    assert!(!session.leased_by_others(fork, parent));
    let kept = session.expect(parent, 0).unwrap();
    assert!(session.process(kept.index).unwrap().lease(fork));
    assert!(session.leased_by_others(fork, parent));
    assert!(session.adopt(kept, id(1), id(2)));
    assert!(!session.adopt(kept, id(1), id(3)));
    let generation = session.process(parent).unwrap().generation();
    assert_eq!(session.process(kept.index).unwrap().parent(), Some((parent, generation)));
    assert!(session.leased_by_others(fork, parent));
    assert!(!session.leased_by_others(fork, kept.index));
    session.process(kept.index).unwrap().end_lease(fork);
    assert!(!session.leased_by_others(fork, parent));
    session.release(kept.index);
    let failed = session.expect(parent, 0).unwrap();
    session.cancel(failed, id(1));
    assert!(!session.adopt(failed, id(1), id(4)));
    assert_eq!(session.others(Some(parent)), 0);
}

#[test]
fn a_full_list_of_leases_refuses_more() {
    let shared = Shared::with_pages(1);
    let index = shared.session.claim(id(1), 0).unwrap();
    let process = shared.session.process(index).unwrap();
    for fork in 1..=crate::LEASES as u64 {
        assert!(process.lease(fork));
    }
    assert!(!process.lease(1000));
    assert_eq!(process.each_lease().count(), crate::LEASES);
}

#[test]
fn the_sweep_clears_dead_ones_at_every_stage() {
    let shared = Shared::with_pages(100);
    let session = shared.session;
    let live = session.claim(id(1), 0).unwrap();
    let killed = session.claim(id(2), 0).unwrap();
    session.process(killed).unwrap().acquire(session.ledger(), 40);
    let late = session.expect(live, 0).unwrap();
    let half = session.take_free(id(3)).unwrap();
    let alive = |who: Identity| who.pid == 1;
    assert_eq!(session.sweep(id(1), 100, |who, _| alive(who)), Swept { processes: 2, pages: 40 });
    assert_eq!(session.ledger().free_pages(), 100);
    assert_eq!(session.process(half).unwrap().lifecycle().0, Lifecycle::Free);
    assert_eq!(session.process(late.index).unwrap().lifecycle().0, Lifecycle::Expected);
    assert_eq!(session.sweep(id(1), Session::EXPECTED_MS + 1, |who, _| alive(who)).processes, 1);
    assert!(!session.adopt(late, id(1), id(7)));
    assert_eq!(session.others(None), 1);
    // The same number with another start time is another process.
    assert_eq!(session.sweep(id(1), 0, |who, _| who == Identity { start: 11, ..id(1) }).processes, 1);
}

/// A forked child that executes a program outside the session keeps number and start time, and needs nothing any more.
#[test]
fn who_executes_a_program_outside_the_session_holds_nothing() {
    let shared = Shared::with_pages(100);
    let session = shared.session;
    let parent = session.claim(id(1), 0).unwrap();
    session.process(parent).unwrap().set_program(70);
    let kept = session.expect(parent, 0).unwrap();
    let child = session.process(kept.index).unwrap();
    assert!(child.lease(9) && session.adopt(kept, id(1), id(2)));
    child.acquire(session.ledger(), 40);
    child.set_engaged(session.ledger(), true);
    // Not told, or not to be seen: it counts as the one that it was.
    assert_eq!(session.sweep(id(1), 0, |_, program| program == 0 || program == 70).processes, 0);
    child.set_program(70);
    assert_eq!(session.sweep(id(1), 0, |_, program| program == 70).processes, 0);
    let executed = |who: Identity, program| program == if who.pid == 2 { 80 } else { 70 };
    assert_eq!(session.sweep(id(1), 0, executed), Swept { processes: 1, pages: 40 });
    assert_eq!((session.ledger().free_pages(), session.ledger().engaged()), (100, 0));
    assert!(!session.leased_by_others(9, parent) && session.others(None) == 1);
}

/// It joins again between the look at it and what follows from that.
#[test]
fn who_has_joined_anew_is_not_taken_for_what_it_was() {
    let shared = Shared::with_pages(100);
    let session = shared.session;
    let first = session.claim(id(5), 0).unwrap();
    session.process(first).unwrap().set_program(70);
    let mut second = None;
    let swept = session.sweep(id(1), 0, |who, program| {
        second = session.claim(who, 0);
        program != 70
    });
    assert_eq!((swept.processes, second), (0, Some(first)));
    assert_eq!(session.process(first).unwrap().identity(), Some(id(5)));
}

/// A daemon's first process ends as soon as it has forked; its child may not have run yet.
#[test]
fn a_child_whose_parent_has_ended_takes_its_entry() {
    let shared = Shared::with_pages(100);
    let session = shared.session;
    let parent = session.claim(id(1), 0).unwrap();
    let kept = session.expect(parent, 0).unwrap();
    session.release(parent);
    assert_eq!(session.sweep(id(9), 100, |who, _| who.pid == 9).processes, 0);
    assert!(session.adopt(kept, id(1), id(2)));
    assert_eq!(session.sweep(id(9), 100, |who, _| who.pid == 2).processes, 0);
}

#[test]
fn the_audit_finds_pages_lost_by_a_kill() {
    let shared = Shared::with_pages(100);
    let session = shared.session;
    let index = session.claim(id(1), 0).unwrap();
    let process = session.process(index).unwrap();
    process.acquire(session.ledger(), 10);
    assert_eq!(session.audit(), 0);
    // Killed after the ledger was charged and before the entry said so.
    process.moving.store(1, SeqCst);
    session.ledger().take(25);
    assert_eq!(session.audit(), 0);
    session.sweep(id(9), 0, |_, _| false);
    assert_eq!(session.ledger().free_pages(), 75);
    assert_eq!(session.audit(), 25);
    assert_eq!(session.ledger().free_pages(), 100);
}

/// Killed between an entry's flag and the ledger's count, either way round, and at the other sums.
#[test]
fn the_audit_counts_anew_what_a_kill_left() {
    let config = Config { budget_bytes: 100 * 4096, zip_bytes: 500, ..Config::new() };
    let shared = Shared::with(&config);
    let (session, ledger) = (shared.session, shared.session.ledger());
    let lives = session.process(session.claim(id(1), 0).unwrap()).unwrap();
    lives.set_engaged(ledger, true);
    lives.change_managed(ledger, 40);
    assert!(lives.acquire_zip(ledger, 100));
    let sums = ledger.sums();
    // Counted in its entry only: none is taken away that was not added, and no count passes below zero.
    let killed = session.process(session.claim(id(2), 0).unwrap()).unwrap();
    killed.moving.store(1, SeqCst);
    killed.set_flags(3);
    killed.managed.store(30, SeqCst);
    session.audit();
    assert_eq!(ledger.sums(), sums, "it was in the middle of a change");
    session.sweep(id(9), 0, |who, _| who == id(1));
    assert_eq!((ledger.starving(), ledger.engaged(), ledger.managed_pages()), (0, 0, 10));
    assert_eq!(session.audit(), 0);
    assert_eq!(ledger.sums(), sums);
    // Counted in the ledger only.
    let killed = session.process(session.claim(id(3), 0).unwrap()).unwrap();
    killed.moving.store(1, SeqCst);
    ledger.change_engaged(true);
    ledger.change_starving(true);
    ledger.change_managed(30);
    assert!(ledger.take_zip(200));
    session.sweep(id(9), 0, |who, _| who == id(1));
    assert_ne!(ledger.sums(), sums);
    assert_eq!(session.audit(), 0);
    assert_eq!(ledger.sums(), sums);
    assert_eq!(ledger.zip_free(), 400);
}

/// What a file takes is counted as long as somebody reads it, with whoever that is.
#[test]
fn stores_share_a_limit_and_a_file_that_is_read_counts() {
    let config = Config { budget_bytes: 100 * 4096, store_limit_bytes: 64 << 20, ..Config::new() };
    let shared = Shared::with(&config);
    let (session, ledger) = (shared.session, shared.session.ledger());
    let parent = session.claim(id(1), 0).unwrap();
    let first = session.process(parent).unwrap();
    assert!(first.acquire_store(ledger, 40 << 20) && !first.acquire_store(ledger, 25 << 20));
    first.set_stored(ledger, 30 << 20);
    let other = session.claim(id(3), 0).unwrap();
    assert!(!session.process(other).unwrap().acquire_store(ledger, 25 << 20));
    assert!(session.process(other).unwrap().acquire_store(ledger, 10 << 20));
    session.process(other).unwrap().set_stored(ledger, 8 << 20);
    session.process(other).unwrap().give_back_store(ledger, 2 << 20);
    let total = Counters::default();
    session.add_to(&total);
    assert_eq!((ledger.store_free(), total.store_bytes.get()), (16 << 20, 38 << 20));
    // A child reads the parent's file, and a grandchild that and the child's.
    let mut kept = [parent; 3];
    let forks = [session.next_fork(), session.next_fork()];
    for generation in 0..2 {
        let expected = session.expect(kept[generation], 0).unwrap();
        let child = session.process(expected.index).unwrap();
        session.process(kept[generation]).unwrap().set_leased_as(forks[generation]);
        assert!(forks[..=generation].iter().all(|fork| child.lease(*fork)));
        assert!(session.adopt(expected, id(1 + 3 * generation as u32), id(4 + 3 * generation as u32)));
        kept[generation + 1] = expected.index;
    }
    assert!(session.process(kept[1]).unwrap().acquire_store(ledger, 4 << 20));
    session.release(parent);
    assert_eq!((session.audit(), ledger.store_free()), (0, 12 << 20));
    session.release(kept[1]);
    assert_eq!(ledger.store_free(), 12 << 20);
    session.release(other);
    assert_eq!(ledger.store_free(), 20 << 20);
    session.release(kept[2]);
    assert_eq!((ledger.store_free(), ledger.sums().stored), (64 << 20, 0));
    // Killed after the ledger was charged and before the entry said so.
    assert!(ledger.take_store(5 << 20));
    session.audit();
    assert_eq!(ledger.store_free(), 64 << 20);
}

#[test]
fn a_full_table_refuses_and_one_summary_is_claimed() {
    let shared = Shared::with_pages(1);
    let session = shared.session;
    for pid in 1..=PROCESSES as u32 {
        assert!(session.claim(id(pid), 0).is_some());
    }
    assert_eq!(session.claim(id(9999), 0), None);
    session.release(77);
    assert_eq!(session.claim(id(9999), 0), Some(77));
    assert!(session.claim_summary());
    assert!(!session.claim_summary());
}

#[test]
fn the_last_to_leave_is_told_so() {
    let shared = Shared::with_pages(100);
    let session = shared.session;
    session.set_root(id(1));
    let everyone = |_: Identity| true;
    let root = session.claim(id(1), 0).unwrap();
    let child = session.claim(id(2), 0).unwrap();
    let killed = session.claim(id(3), 0).unwrap();
    session.process(child).unwrap().acquire(session.ledger(), 30);
    assert!(!session.leave(child, everyone));
    assert_eq!(session.ledger().free_pages(), 70);
    // The root is alone but for a killed process.
    assert!(!session.leave(root, everyone));
    assert!(session.leave(root, |who| who != id(3)));
    // A last one whose root runs something else, has left, or is gone.
    session.release(killed);
    session.release(root);
    assert!(!session.leave(child, everyone));
    assert!(session.leave(child, |who| who != id(1)));
    let root = session.claim(id(1), 0).unwrap();
    assert!(!session.leave(child, everyone));
    session.process(root).unwrap().set_leaving(true);
    assert!(session.leave(child, everyone));
    assert!(!session.process(session.claim(id(1), 0).unwrap()).unwrap().leaving());
}

/// Counts a thread as finished, also when an assertion fails in it.
struct Finished<'a>(&'a AtomicU64);

impl Drop for Finished<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// Threads stand for processes: they join, take, return, are killed without a word, and are swept by others. At any
/// moment no more than the budget is out, and in the end all of it is back.
#[test]
fn the_sums_hold_under_threads() {
    const BUDGET: u64 = 1000;
    let shared = Shared::with_pages(BUDGET);
    let session = shared.session;
    let out = AtomicU64::new(0);
    let finished = AtomicU64::new(0);
    let dead: Vec<AtomicBool> = (0..4096).map(|_| AtomicBool::new(false)).collect();
    let next_pid = AtomicU64::new(1);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (out, dead, next_pid, finished) = (&out, &dead, &next_pid, &finished);
            scope.spawn(move || {
                let _finished = Finished(finished);
                let mut seed = 0x1234_5678_9abc_def1 ^ (thread + 1) << 32;
                for _ in 0..400 {
                    let pid = next_pid.fetch_add(1, SeqCst) as u32;
                    let index = session.claim(id(pid), 0).unwrap();
                    let process = session.process(index).unwrap();
                    for _ in 0..50 {
                        seed ^= seed << 13;
                        seed ^= seed >> 7;
                        seed ^= seed << 17;
                        if seed & 1 == 0 {
                            let granted = process.acquire(session.ledger(), seed >> 8 & 511);
                            let now = out.fetch_add(granted, SeqCst) + granted;
                            assert!(now <= BUDGET, "{now} pages are out");
                        } else {
                            let some = (seed >> 8 & 511).min(process.held_pages());
                            out.fetch_sub(some, SeqCst);
                            assert_eq!(process.give_back(session.ledger(), some), some);
                        }
                    }
                    out.fetch_sub(process.held_pages(), SeqCst);
                    process.counters.faults.add(1);
                    if seed & 2 == 0 {
                        session.release(index);
                    } else {
                        dead[pid as usize].store(true, SeqCst);
                    }
                }
            });
        }
        let (dead, finished) = (&dead, &finished);
        for sweeper in 0..2 {
            scope.spawn(move || {
                while finished.load(SeqCst) < 4 {
                    session.sweep(id(5000 + sweeper), 0, |who, _| {
                        !dead.get(who.pid as usize).is_some_and(|dead| dead.load(SeqCst))
                    });
                    std::thread::yield_now();
                }
            });
        }
    });
    session.sweep(id(6000), 0, |_, _| false);
    assert_eq!(session.ledger().free_pages(), BUDGET as i64);
    assert_eq!(session.audit(), 0);
    assert_eq!(session.ended().faults.get(), 1600);
    assert_eq!(session.others(None), 0);
}

#[test]
fn children_that_never_were_do_not_count_at_the_end() {
    let shared = Shared::with_pages(100);
    let session = shared.session;
    session.set_root(id(1));
    let root = session.claim(id(1), 0).unwrap();
    let unborn = session.expect(root, 0).unwrap();
    session.forget_unborn(id(1), || false);
    session.forget_unborn(id(2), || true);
    assert!(!session.leave(root, |who| who.pid == 1));
    // One that is taken over while the question is asked stays.
    let born = session.expect(root, 0).unwrap();
    session.forget_unborn(id(1), || session.adopt(born, id(1), id(3)));
    assert!(!session.adopt(unborn, id(1), id(2)));
    assert_eq!(session.process(born.index).unwrap().identity(), Some(id(3)));
    session.release(born.index);
    assert!(session.leave(root, |who| who.pid == 1));
}

/// The first process of every namespace has the number 1, and two may have begun at the same time.
#[test]
fn processes_with_the_same_number_in_two_namespaces_are_two() {
    let shared = Shared::with_pages(100);
    let session = shared.session;
    let (one, other) = (id(1), Identity { space: Identity::SPACES, ..id(1) });
    let first = session.claim(one, 0).unwrap();
    let second = session.claim(other, 0).unwrap();
    assert_eq!(session.process(first).unwrap().identity(), Some(one));
    assert_eq!(session.process(second).unwrap().identity(), Some(other));
    // Neither does the one's children take for its own.
    let kept = session.expect(second, 0).unwrap();
    session.forget_unborn(one, || true);
    assert!(!session.adopt(kept, one, id(2)) && session.adopt(kept, other, id(2)));
    // One that was stopped while it took its place is asked about in its own namespace.
    let half = session.take_free(other).unwrap();
    let mut asked = None;
    session.sweep(one, 0, |who, _| {
        asked = Some(who).filter(|who| who.start == 0).or(asked);
        true
    });
    assert_eq!(asked, Some(Identity { start: 0, ..other }));
    session.sweep(other, 0, |_, _| false);
    assert_eq!(session.process(half).unwrap().lifecycle().0, Lifecycle::Claiming);
}
