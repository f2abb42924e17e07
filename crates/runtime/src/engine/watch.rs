//! Before paging: a thread that looks at how much of what is managed is really in RAM, often enough that the budget
//! cannot be outrun, and engages in time. While everything reserved fits the ledger and leaves half of it, it does not
//! exist.

use super::deserted::Deserted;
use super::mailbox::Command;
use super::message::warn;
use super::missed::Waiting;
use super::shares::others_are_hungry;
use super::switch::ran_ns;
use super::wires::{Placed, Wires};
use super::{ENGINE, Phase, follow, pager, setup};
use crate::agent;
use core::sync::atomic::{AtomicBool, Ordering::SeqCst};
use ream_page::{Page, Run};
use ream_stats::{Session, Stand};
use ream_sys::file::{self, Fd};
use ream_sys::futex::{self, Guard, Mutex, Scope};
use ream_sys::pagemap::Pagemap;
use ream_sys::thread::{self, Files, Thread};
use ream_sys::{Errno, Event, Events, LinuxMachine, Machine, Wait};
use ream_sys::{clock, process};

/// The thread's stack: half of it is used on the way to a memory server.
pub(super) const STACK: usize = 1024 * 1024;
/// Fastest that a program can touch memory for the first time, in pages a microsecond: 20 GB/s.
pub(super) const TOUCH_RATE: u64 = 5;
/// Shortest and longest sleep, microseconds.
pub(super) const SHORTEST: u64 = 200;
pub(super) const LONGEST: u64 = 50_000;
/// The sleep while even everything reserved would fit: whoever starves meanwhile takes more than the budget after half a second.
const IDLE: u64 = 200_000;

/// Longest that a thread waits until the watcher is ready, microseconds: longer than this one waits for the agent, after which it
/// gives up and says so. Whoever is let go before touches twice the budget in a tenth of a second, and where processors are busy,
/// or the store is other machines' memory, the way there takes longer than that.
const PATIENCE: u64 = 30_000_000;
/// How often such a thread looks whether paging has begun, or cannot, microseconds.
const GLANCE: u64 = 10_000;
/// Pages from which on it is said that nobody watches them: 64 MiB. Those who begin namespaces for others have less.
const MUCH: u64 = 16 * 1024;
/// The watcher answers the doorbell. (Ranges added before it did are in the list that it then reads.)
const LISTENING: u32 = 1;
/// It has read the list, too.
const GUARDING: u32 = 2;

/// What a fork wants of the watcher.
#[repr(u32)]
pub(super) enum Demand {
    /// Nothing.
    None = 0,
    /// To page now: both would not fit otherwise.
    Page = 1,
    /// Wires, though all is charged.
    Guard = 2,
}

impl Demand {
    fn now() -> Demand {
        match ENGINE.demanded.load(SeqCst) {
            0 => Demand::None,
            2 => Demand::Guard,
            _ => Demand::Page,
        }
    }
}

/// The thread.
static STARTED: Mutex<Option<Thread>> = Mutex::new(None);

/// In a forked child: it is the parent's. (Where another thread had the lock at the fork, nobody has it ever again, nor a thread.)
pub(super) fn forget_thread() {
    let _ = STARTED.try_lock().map(|mut place| *place = None);
}

/// Waits until the thread has ended.
#[cfg(not(feature = "inside"))]
pub(super) fn join() {
    if let Some(thread) = STARTED.try_lock().and_then(|mut place| place.take()) {
        thread.join();
    }
}

/// Returns when the thread listens, or paging has begun, or cannot.
#[cfg(not(feature = "inside"))]
pub(super) fn until_listening() {
    let began = process::now_us();
    while ENGINE.phase() == Phase::Watching
        && process::now_us() - began < PATIENCE
        && ENGINE.listening.load(SeqCst) == 0
    {
        futex::wait(&ENGINE.listening, 0, Some(GLANCE), Scope::Private);
    }
}

/// Starts the thread. Called with signals blocked, by whoever found that the ledger cannot grant what is reserved; with
/// `wait` it returns when the watcher has set its wires.
pub fn start(wait: bool) {
    if ENGINE.phase.compare_exchange(Phase::Idle as u32, Phase::Watching as u32, SeqCst, SeqCst).is_err() {
        return;
    }
    // SAFETY: `main` uses neither libc nor thread-local data, never unwinds, and needs far less stack than this.
    let started = unsafe { thread::spawn(main, core::ptr::null_mut(), STACK, Files::Copied) };
    match started {
        Ok(thread) => _ = STARTED.try_lock().map(|mut place| *place = Some(thread)),
        Err(Errno(22)) => return cannot(),
        Err(errno) => {
            pager::give_up(&pager::failed("starting its thread")(errno));
            return;
        }
    }
    if wait {
        until_guarding();
    }
}

/// The program has begun a namespace of process numbers, and the kernel gives it no more threads (EINVAL), as long as it executes
/// nothing: its children are the first there, and have theirs. Tried again with whatever it asks for next.
fn cannot() {
    static TOLD: AtomicBool = AtomicBool::new(false);
    ENGINE.set_phase(Phase::Idle);
    if ENGINE.reserved.load(SeqCst) >= MUCH && !TOLD.swap(true, SeqCst) {
        warn(format_args!(
            "memory of this program is not limited: it has begun a namespace of process numbers, in which only its children are, \
             and can have no thread that pages it"
        ));
    }
}

/// Before part of what is charged here becomes a child's: the watcher has set its wires when this returns, whether all is charged
/// or not. Whoever heard of it after the copy only had filled everything by then, on a busy machine.
pub(super) fn guard() {
    let _ = ENGINE.demanded.compare_exchange(0, Demand::Guard as u32, SeqCst, SeqCst);
    match ENGINE.phase() {
        Phase::Idle => start(true),
        Phase::Watching => {
            super::tell_watcher(Command::Nothing);
            until_guarding();
        }
        _ => {}
    }
}

/// Returns when the watcher has set its wires. Until then memory that was not granted must not be handed out: a program
/// touches gigabytes in the time that it takes to reach a memory server.
pub fn until_guarding() {
    let began = process::now_us();
    while ENGINE.phase() == Phase::Watching && process::now_us() - began < PATIENCE {
        let listening = ENGINE.listening.load(SeqCst);
        if listening == GUARDING {
            return;
        }
        // Where it finds at its first look that paging must begin, it never guards, and only the phase changes.
        futex::wait(&ENGINE.listening, listening, Some(GLANCE), Scope::Private);
    }
    if ENGINE.phase() == Phase::Watching {
        warn(format_args!(
            "memory of this program is not watched after {} s, and may exceed the budget: no processor is left for that",
            PATIENCE / 1_000_000
        ));
    }
}

fn main(_: *mut ()) -> ! {
    // The copies of the program's descriptors must not keep its pipes open.
    let _ = file::close_all_but(&mut []);
    setup::place();
    clock::find();
    pager::watch_and_run()
}

/// Returns when the managed memory in RAM comes near what the ledger has for this process, and no mapping is being
/// moved; none will be while the guard is kept. Also what was counted there last. `None` when it is to end.
pub(super) fn until_full(machine: &mut LinuxMachine) -> Option<(Guard<'static, ()>, Counted)> {
    // Nobody asks the watcher for anything before it listens.
    let Some((mut pagemap, mut wires)) = Pagemap::open(agent::open).ok().zip(Wires::new().ok()) else {
        // Zeros, for all that is known: then it is all looked at before anybody goes on.
        return Some((ENGINE.moving.lock(), Counted { pages: 0, zeros: 1 }));
    };
    let statm = file::open(c"/proc/self/statm", 0o2_000_000, 0);
    let (mut events, mut deserted, mut waiting) = (Events::new(), Deserted::default(), Waiting::default());
    ENGINE.listening.store(LISTENING, SeqCst);
    // Rights that were given up before it listened.
    follow::follow(machine);
    let settled = 'watching: loop {
        deserted.look(process::now_us());
        let mut counted = None;
        let waits = waiting.look(ran_ns(), process::now_us());
        let sleep = match look(machine, statm, waits, &mut pagemap, &mut wires, &mut counted) {
            Some(sleep) => sleep,
            None => match ENGINE.moving.try_lock() {
                // Counted before anything is registered, while everybody goes on.
                Some(settled) => break Some((settled, counted.unwrap_or_else(|| exact(&mut pagemap)))),
                None => SHORTEST,
            },
        };
        // Who wants wires waits on while a mapping is being moved.
        let done = wires.settled() || !matches!(Demand::now(), Demand::Guard);
        if done && ENGINE.listening.swap(GUARDING, SeqCst) != GUARDING {
            futex::wake(&ENGINE.listening, u32::MAX, Scope::Private);
        }
        events.clear();
        machine.poll(Wait::Micros(sleep), &mut events);
        for event in events.as_slice() {
            if let Event::Fault { page, write, .. } = *event {
                if !fault(machine, &mut wires, page, write) {
                    break 'watching None;
                }
            }
        }
    };
    if let Ok(statm) = statm {
        file::close(statm);
    }
    settled
}

/// Sets wires where it is time to, and charges what is in RAM. Returns how long to sleep, in microseconds; `None` when
/// it is time to engage. Where all pages were counted for that, `counted` tells what was found. `waits`: it hardly computes.
fn look(
    machine: &mut LinuxMachine,
    statm: Result<Fd, Errno>,
    waits: bool,
    pagemap: &mut Pagemap,
    wires: &mut Wires,
    counted: &mut Option<Counted>,
) -> Option<u64> {
    let demand = Demand::now();
    if matches!(demand, Demand::Page) {
        return None;
    }
    let guard = matches!(demand, Demand::Guard);
    let (entry, session) = ENGINE.entry().zip(ENGINE.session())?;
    let ledger = session.ledger();
    let mut used = statm.map_or(u64::MAX, anonymous);
    let wanted = ledger.starving() > 0;
    // A rank whose turn it is not leaves others what it has.
    let among = if entry.seat().aside() { 64 } else { sharers(session) };
    if wanted && used.min(entry.held_pages()) > ledger.total_pages() / among {
        return None;
    }
    // Who waits leaves what it has to those that do not, if it is worth it.
    let worth = used.min(entry.held_pages()) > ledger.total_pages() / 16;
    if waits && worth && entry.seat().stand() == Stand::Away && others_are_hungry(session, entry) {
        return None;
    }
    let (held, reserved) = (entry.held_pages(), ENGINE.reserved.load(SeqCst));
    // Fewer than none are free where others have more than their part, or the budget was made smaller.
    let limit = held.saturating_add_signed(ledger.free_pages() / unwatched_ranks(session));
    if !wanted && !guard && limit >= held && reserved <= held.max(limit - margin(limit, wires)) {
        // All of it is charged: then it does not matter how much is touched when.
        entry.give_back(ledger, held.saturating_sub(reserved));
        if entry.acquire(ledger, reserved.saturating_sub(held)) >= reserved.saturating_sub(held) {
            return Some(IDLE);
        }
    }
    if !wires.set() {
        let Some(_settled) = ENGINE.moving.try_lock() else { return Some(SHORTEST) };
        let touched = || statm.map_or(u64::MAX, anonymous);
        match wires.place(machine, limit, &mut || touched() > used + limit / 8) {
            Placed::Outrun => return None,
            Placed::TooFar if used >= limit / 2 => return None,
            Placed::TooFar | Placed::All => used = touched(),
        }
    }
    let engage = limit - margin(limit, wires);
    let mut spent = 0;
    if used >= engage {
        let began = process::now_us();
        used = counted.insert(exact(pagemap)).pages;
        spent = process::now_us() - began;
        if used >= engage {
            return None;
        }
    }
    // What is in RAM is charged, so that other processes of the session know of it. What is not is divided by the fork.
    let held = entry.held_pages();
    if used > held {
        entry.acquire(ledger, used - held);
    } else if !guard && held - used > limit / 4 {
        entry.give_back(ledger, held - used);
    }
    Some(((engage - used) / TOUCH_RATE).clamp(SHORTEST, LONGEST).max(spent * 20))
}

/// Processes that have some of the budget, this one and whoever starves among them: those that are paged, and those that have all
/// that they reserved and would keep it for ever.
fn sharers(session: &Session) -> u64 {
    let ledger = session.ledger();
    let much = session.used().iter().filter(|other| other.held_pages() > ledger.total_pages() / 64).count();
    (much as u64).max(u64::from(ledger.engaged()) + 1)
}

/// Ranks of a job that nothing is paged of yet, and at least one: they begin alike, and share what is free until then.
fn unwatched_ranks(session: &Session) -> i64 {
    let ranks = session.used().iter().filter(|other| other.seat().stand() != Stand::Away && !other.engaged());
    ranks.count().max(1) as i64
}

/// The doorbell, or a wire. Returns false when it was to end.
fn fault(machine: &mut LinuxMachine, wires: &mut Wires, page: Page, write: bool) -> bool {
    let Some(command) = ENGINE.mailbox.rung(page) else {
        wires.touched(machine, page, write);
        return true;
    };
    match command {
        #[cfg(not(feature = "inside"))]
        Command::Leave => {
            // Not answered: who asks goes on when nothing of ours is left.
            wires.cut_each(machine);
            return false;
        }
        Command::Manage(run) => {
            wires.extend(machine, run);
            look_again(!wires.set());
        }
        // Something has changed.
        Command::Nothing => look_again(true),
        Command::Release(run) => wires.cut_all(machine, run),
        // There is no helper yet that could be busy.
        Command::Follow => _ = follow::follow(machine),
        _ => {}
    }
    machine.answer(page);
    ENGINE.mailbox.rearm(page);
    true
}

/// Who waits for the watcher now waits for its next look.
fn look_again(whether: bool) {
    if whether {
        ENGINE.listening.store(LISTENING, SeqCst);
    }
}

/// What is left for pages touched before the registration takes hold: an eighth of the budget, or a distance between wires for
/// each thread, and two at least, if that is more.
fn margin(limit: u64, wires: &Wires) -> u64 {
    let threads = process::thread_count().saturating_sub(1).max(2);
    (limit / 8).max((wires.interval() * threads).min(limit * 3 / 4))
}

/// Anonymous pages of the whole process: an upper bound for the managed ones, for the price of one read.
pub(super) fn anonymous(statm: Fd) -> u64 {
    let mut text = [0u8; 128];
    let Ok(len) = file::read_at(statm, &mut text, 0) else { return u64::MAX };
    let mut fields = text.get(..len).unwrap_or(&[]).split(|byte| *byte == b' ').map(|field| {
        field.iter().take_while(|byte| byte.is_ascii_digit()).fold(0u64, |n, byte| n * 10 + (byte - b'0') as u64)
    });
    let (resident, shared) = (fields.nth(1).unwrap_or(u64::MAX), fields.next().unwrap_or(0));
    resident.saturating_sub(shared)
}

/// The same, asked by somebody else.
pub(super) fn anonymous_now() -> u64 {
    let Ok(statm) = file::open(c"/proc/self/statm", 0o2_000_000, 0) else { return u64::MAX };
    let pages = anonymous(statm);
    file::close(statm);
    pages
}

/// What is in RAM of managed memory.
#[derive(Clone, Copy, Default)]
pub(super) struct Counted {
    /// Pages of its own.
    pub(super) pages: u64,
    /// Pages that show the shared page of zeros.
    pub(super) zeros: u64,
}

/// Managed pages that are in RAM, counted.
pub(super) fn exact(pagemap: &mut Pagemap) -> Counted {
    let mut counted = Counted::default();
    // A copy of the list in pieces, so that the lock is not held while page tables are walked.
    let mut from = Page(0);
    loop {
        let mut piece = [Run { start: Page(0), pages: 0 }; 64];
        let len = ENGINE.regions.read().copy_from(from, &mut piece);
        for run in piece.iter().take(len) {
            pagemap.walk(*run, &mut |part, mapped| {
                counted.pages += part.pages * !mapped.zero as u64;
                counted.zeros += part.pages * mapped.zero as u64;
            });
            from = run.end();
        }
        if len < piece.len() {
            return counted;
        }
    }
}
