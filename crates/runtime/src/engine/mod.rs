//! The process's engine: which ranges are managed, when paging starts, and how the program's threads talk to the pager.
//!
//! Phases: *idle* (everything reserved is charged to the ledger and fits), *watching* (more is reserved than could be
//! charged; a thread looks at what is really used), *engaged* (that thread is the pager), *broken* (paging could not
//! start; memory stays plain).

#[cfg(not(feature = "inside"))]
mod alone;
mod bloat;
mod company;
mod dense;
mod deserted;
mod devices;
mod follow;
mod fork;
mod libc_data;
mod mailbox;
mod message;
mod minute;
mod missed;
mod pager;
mod quiet;
mod relief;
mod remote;
pub mod seat;
mod setup;
mod shares;
mod stop;
mod switch;
mod unreached;
pub mod volumes;
mod watch;
mod wires;
pub mod wishes;
mod zeros;

use crate::lending;
use crate::regions::{Kind, Regions};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering::SeqCst};
use mailbox::{Command, Mailbox};
use ream_page::{Page, Run};
use ream_stats::{Process, Session};
use ream_sys::futex::{self, Guard, Mutex, Scope};
use ream_sys::memory::{self, Advice};
use ream_sys::process::{SignalSet, set_signal_mask};
use ream_sys::rwlock::RwLock;

#[cfg(not(feature = "inside"))]
pub use alone::alone;
pub use bloat::give_nothing;
pub use follow::follow_rights;
pub use fork::{fork_child, fork_child_watched, fork_parent, fork_prepare, forking};
pub use libc_data::find as find_libc_data;
pub use message::{tell, warn};

/// How far paging has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
enum Phase {
    Off = 0,
    Idle = 1,
    Watching = 2,
    Engaged = 3,
    Broken = 4,
}

struct Engine {
    session: AtomicPtr<Session>,
    process: AtomicUsize,
    phase: AtomicU32,
    regions: RwLock<Regions>,
    /// Pages in `regions`, readable without its lock.
    reserved: AtomicU64,
    mailbox: Mailbox,
    /// Held while the kernel moves or resizes a managed mapping and the registry does not know of it yet, and by the
    /// watcher while it sets wires or engages. Taken inside [`ream_heap::placing`]. The watcher never waits for it:
    /// whoever holds it may be waiting for the watcher.
    moving: Mutex<()>,
    /// Not 0 once the watcher answers the doorbell.
    listening: AtomicU32,
    /// The program asks for engagement now (a fork that would not fit otherwise).
    demanded: AtomicU32,
}

static ENGINE: Engine = Engine {
    session: AtomicPtr::new(core::ptr::null_mut()),
    process: AtomicUsize::new(0),
    phase: AtomicU32::new(Phase::Off as u32),
    regions: RwLock::new(Regions::new()),
    reserved: AtomicU64::new(0),
    mailbox: Mailbox::new(),
    moving: Mutex::new(()),
    listening: AtomicU32::new(0),
    demanded: AtomicU32::new(0),
};

impl Engine {
    fn phase(&self) -> Phase {
        match self.phase.load(SeqCst) {
            1 => Phase::Idle,
            2 => Phase::Watching,
            3 => Phase::Engaged,
            4 => Phase::Broken,
            _ => Phase::Off,
        }
    }
    fn set_phase(&self, phase: Phase) {
        self.phase.store(phase as u32, SeqCst);
        futex::wake(&self.phase, u32::MAX, Scope::Private);
    }
    /// The session; only called in phases that have one.
    fn session(&self) -> Option<&'static Session> {
        // SAFETY: null or the reference that `start` was given, which is good for the rest of the process's life.
        unsafe { self.session.load(SeqCst).as_ref() }
    }
    fn entry(&self) -> Option<&'static Process> {
        self.session()?.process(self.process.load(SeqCst))
    }
}

/// The process's entry and its session, once it has joined one.
pub fn account() -> Option<(&'static Process, &'static Session)> {
    ENGINE.entry().zip(ENGINE.session())
}

/// The process's place in its session's table.
pub fn place() -> Option<usize> {
    ENGINE.session().map(|_| ENGINE.process.load(SeqCst))
}

/// Whether this is the process that joined the session, and not a child of it that shares its memory until it executes something.
#[cfg(not(feature = "inside"))]
pub fn is_own_process() -> bool {
    ENGINE.entry().is_some_and(|entry| entry.lifecycle().1 == ream_sys::process::process_id())
}

/// Runs `work` with all signals blocked: no handler may come upon a half-made change or a held lock.
pub fn masked<T>(work: impl FnOnce() -> T) -> T {
    let before = set_signal_mask(SignalSet::ALL);
    let result = work();
    set_signal_mask(before);
    result
}

/// Joins the session: from now on ranges are charged to its budget. Ranges added before count from here on.
pub fn start(session: &'static Session, process: usize) {
    ENGINE.session.store(core::ptr::from_ref(session).cast_mut(), SeqCst);
    ENGINE.process.store(process, SeqCst);
    ENGINE.set_phase(Phase::Idle);
    let pages = ENGINE.reserved.load(SeqCst);
    masked(|| charge(pages, true));
}

/// A range of fresh or existing anonymous private memory, readable and writable, comes under management.
pub fn add(run: Run, kind: Kind) {
    if run.pages == 0 {
        return;
    }
    masked(|| {
        let (phase, before, added) = {
            let mut regions = ENGINE.regions.write();
            let before = regions.total();
            if regions.insert(run, kind).is_err() {
                // No memory for the registry: the range stays plain memory.
                return;
            }
            ENGINE.reserved.store(regions.total(), SeqCst);
            (ENGINE.phase(), before, regions.total() - before)
        };
        lending::changed();
        match phase {
            Phase::Engaged => {
                // SAFETY: managed memory must never be inherited by a raw fork, where absent pages would read as zeros.
                let _ = unsafe { memory::advise(run.start.address(), run.bytes(), Advice::DontFork) };
                ENGINE.mailbox.call(Command::Manage(run));
            }
            Phase::Idle => charge(added, true),
            Phase::Watching => {
                if let Some((entry, session)) = ENGINE.entry().zip(ENGINE.session()) {
                    // Where all was charged, all is to be.
                    if entry.held_pages() >= before {
                        entry.acquire(session.ledger(), added);
                    }
                }
                tell_watcher(Command::Manage(run));
                if !charged() {
                    watch::until_guarding();
                }
            }
            Phase::Off | Phase::Broken => {}
        }
        if let Some((entry, session)) = ENGINE.entry().zip(ENGINE.session()) {
            entry.change_managed(session.ledger(), added as i64);
        }
        bloat::consider();
    });
}

/// No range of this kind is managed any more. Before the session is joined.
pub fn forget(kind: Kind) {
    let mut from = Page(0);
    while let Some((run, found)) = masked(|| ENGINE.regions.read().next_from(from)) {
        from = run.end();
        if found == kind {
            remove(run);
        }
    }
}

/// Charges newly reserved pages, and starts to watch when the ledger cannot grant them, or when most of it is gone: who
/// holds a good part of it must be able to give some up.
fn charge(pages: u64, wait: bool) {
    let Some((entry, session)) = ENGINE.entry().zip(ENGINE.session()) else { return };
    let ledger = session.ledger();
    let granted = entry.acquire(ledger, pages);
    let total = ledger.total_pages();
    let scarce = ledger.free_pages() < (total / 2) as i64 && entry.held_pages() >= total / 64;
    if (granted < pages || scarce) && ENGINE.phase() == Phase::Idle {
        watch::start(wait && granted < pages);
    }
}

/// In a child, before anything is mapped there: what it has not inherited, since the program registers it with a device, for
/// example (MADV_DONTFORK), is not managed any more. The pager's own memory may come to lie there.
fn forget_left_out() {
    let mut regions = ENGINE.regions.write();
    let mut from = Page(0);
    while let Some((run, _)) = regions.next_from(from) {
        from = run.end();
        crate::kernel::each_mapped(run, &mut |part, mapped| {
            if !mapped {
                regions.remove(part);
            }
        });
    }
    ENGINE.reserved.store(regions.total(), SeqCst);
}

/// The same where memory is paged, and the kernel does not know what the program does not want inherited. The pager hears of it
/// when it is made (`pager::engage_child`).
fn forget_noted() {
    let mut regions = ENGINE.regions.write();
    crate::holds::each_left_out(|run| regions.remove(run));
    ENGINE.reserved.store(regions.total(), SeqCst);
}

/// Tells the watcher something, or wakes it, once it listens. Before that it has not looked at anything yet.
fn tell_watcher(command: Command) {
    if ENGINE.listening.load(SeqCst) != 0 {
        ENGINE.mailbox.call(command);
    }
}

/// The range is about to be unmapped or replaced: it is not managed any more when this returns.
pub fn remove(run: Run) {
    if run.pages == 0 || ENGINE.reserved.load(SeqCst) == 0 {
        return;
    }
    masked(|| {
        let (phase, gone) = {
            let mut regions = ENGINE.regions.write();
            let before = regions.total();
            regions.remove(run);
            let after = regions.total();
            ENGINE.reserved.store(after, SeqCst);
            (ENGINE.phase(), before - after)
        };
        if gone == 0 {
            return;
        }
        match phase {
            Phase::Engaged => {
                ENGINE.mailbox.call(Command::Release(run));
            }
            Phase::Idle => {
                if let Some((entry, session)) = ENGINE.entry().zip(ENGINE.session()) {
                    entry.give_back(session.ledger(), gone);
                }
            }
            Phase::Off | Phase::Watching | Phase::Broken => {}
        }
        if let Some((entry, session)) = ENGINE.entry().zip(ENGINE.session()) {
            entry.change_managed(session.ledger(), -(gone as i64));
        }
    });
}

/// Discards that began before paging did, of which the kernel is still to make some.
static UNTOLD: AtomicU32 = AtomicU32::new(0);
/// Longest that the pager waits for those, in microseconds.
const PATIENCE: u64 = 10_000_000;

/// While it exists, nothing is evicted that the pager was not told about.
pub struct Discarding {
    /// Those of the thread before, where the pager was not told: no handler may come between that needs it.
    signals: Option<SignalSet>,
}

/// Content is about to be discarded by the kernel call that follows, after which the result is dropped. `tell` says to the
/// pager, if there is one, what it is.
///
/// Without a pager the kernel alone is told. Should paging begin just then, the pages that it finds are to be zeros a moment
/// later, and must not go to the store before.
pub fn discarding(tell: impl FnOnce()) -> Discarding {
    let signals = set_signal_mask(SignalSet::ALL);
    UNTOLD.fetch_add(1, SeqCst);
    if !engaged() {
        return Discarding { signals: Some(signals) };
    }
    UNTOLD.fetch_sub(1, SeqCst);
    tell();
    set_signal_mask(signals);
    Discarding { signals: None }
}

impl Drop for Discarding {
    fn drop(&mut self) {
        if let Some(signals) = self.signals {
            UNTOLD.fetch_sub(1, SeqCst);
            set_signal_mask(signals);
        }
    }
}

/// In the pager, before it evicts anything: waits for discards of which it was not told.
fn until_discarded() {
    let began = ream_sys::process::now_us();
    while ream_sys::process::now_us() - began < PATIENCE {
        match UNTOLD.load(SeqCst) {
            0 => return,
            count => futex::wait(&UNTOLD, count, Some(200), Scope::Private),
        };
    }
}

/// The content of the range is discarded: see [`discarding`].
pub fn discard(run: Run) {
    if run.pages > 0 && engaged() {
        masked(|| ENGINE.mailbox.call(Command::Discard(run)));
    }
}

/// While it exists, no wires are set and paging does not start.
pub struct Moving {
    _lock: Guard<'static, ()>,
}

/// The kernel is about to move or resize the mapping of a range: wires would cut it in pieces, which it does not do.
/// Called inside [`ream_heap::placing`]; the result is kept until the registry knows how it ended.
pub fn moving(run: Run) -> Moving {
    let lock = ENGINE.moving.lock();
    if run.pages > 0 && ENGINE.phase() == Phase::Watching {
        masked(|| tell_watcher(Command::Release(run)));
    }
    Moving { _lock: lock }
}

/// The kernel has moved the mapping of `from` to `to`. The pager heard of it from the kernel; here the registry follows.
pub fn moved(from: Run, to: Page) {
    let target = Run { start: to, pages: from.pages };
    masked(|| {
        let mut regions = ENGINE.regions.write();
        let kind = regions.kind_of(from.start);
        regions.remove(from);
        if let Some(kind) = kind {
            let _ = regions.insert(target, kind);
        }
        ENGINE.reserved.store(regions.total(), SeqCst);
    });
}

/// Pages of which all are brought in where one is to be.
const TOGETHER: u64 = 16;

/// Keeps a range resident where it is until [`unhold`]: brings its pages in first, those never touched if `all`.
pub fn hold(run: Run, all: bool) {
    // Whoever engages reads the list of what is held with the lock on the regions, and lets go of that when it has engaged.
    if run.pages == 0 || unless_engaged(|| ()).is_some() {
        return;
    }
    masked(|| ENGINE.mailbox.call(Command::Hold(run, true)));
    bring(run, all);
}

/// Touches a range's managed pages, or, where that is enough, those that have content which is not mapped.
fn bring(run: Run, all: bool) {
    if !all {
        let away = wishes::whereabouts(run).map_or(0, |found| found.stored + found.staged);
        if away == 0 {
            return;
        }
        if run.pages > TOGETHER && away < run.pages / 2 {
            let half = run.pages / 2;
            bring(Run { start: run.start, pages: half }, false);
            return bring(Run { start: Page(run.start.0 + half), pages: run.pages - half }, false);
        }
    }
    for index in 0..run.pages {
        let address = Page(run.start.0 + index).address();
        if is_managed(Page(run.start.0 + index)) {
            // SAFETY: a managed page is mapped and readable; only one byte of it is read, and nothing done with it.
            unsafe { core::ptr::with_exposed_provenance::<u8>(address).read_volatile() };
        }
    }
}

/// Lets a held range be paged again.
pub fn unhold(run: Run) {
    if run.pages > 0 && engaged() {
        masked(|| ENGINE.mailbox.call(Command::Hold(run, false)));
    }
}

/// Whether the page belongs to a managed range.
pub fn is_managed(page: Page) -> bool {
    ENGINE.reserved.load(SeqCst) > 0 && masked(|| ENGINE.regions.read().contains(page))
}

/// The first managed range at or after `page`, cut so that it does not begin before it.
pub fn next_managed(page: Page) -> Option<Run> {
    if ENGINE.reserved.load(SeqCst) == 0 {
        return None;
    }
    masked(|| {
        let (run, _) = ENGINE.regions.read().next_from(page)?;
        let start = Page(run.start.0.max(page.0));
        Some(Run { start, pages: run.end().0 - start.0 })
    })
}

/// The first managed range that ends after `page`, and what it is.
pub fn next_labelled(page: Page) -> Option<(Run, Kind)> {
    masked(|| ENGINE.regions.read().next_from(page))
}

/// Whether everything that is managed fits the budget, and is charged to it.
pub fn idle() -> bool {
    matches!(ENGINE.phase(), Phase::Idle | Phase::Watching) && charged()
}

/// Whether all that is reserved is charged.
fn charged() -> bool {
    ENGINE.entry().is_none_or(|entry| entry.held_pages() >= ENGINE.reserved.load(SeqCst))
}

/// Whether memory can be paged, now or later.
pub fn can_page() -> bool {
    !matches!(ENGINE.phase(), Phase::Off | Phase::Broken)
}

/// Runs `work` if nothing is paged; paging does not begin meanwhile.
pub fn unless_engaged<T>(work: impl FnOnce() -> T) -> Option<T> {
    masked(|| {
        let _regions = ENGINE.regions.write();
        if engaged() { None } else { Some(work()) }
    })
}

/// This rank's turn has ended, or begun: its pager does what is to be done with its memory.
#[cfg(not(feature = "inside"))]
pub fn switch(begun: bool) {
    if engaged() {
        masked(|| ENGINE.mailbox.call(if begun { Command::Turn } else { Command::Aside }));
    }
}

/// What a managed range has in the store is not needed any more, nor with `all` what it has in RAM.
#[cfg(not(feature = "inside"))]
pub fn drop_stored(run: Run, all: bool) {
    if run.pages > 0 && engaged() {
        masked(|| ENGINE.mailbox.call(Command::DropStored(run, all)));
    }
}

/// Whether memory is being paged.
pub fn engaged() -> bool {
    ENGINE.phase() == Phase::Engaged
}

/// The process is about to end by itself: brings its counters up to date. Nothing is torn down.
pub fn at_exit() {
    if engaged() {
        masked(|| ENGINE.mailbox.call(Command::Report));
    }
}
