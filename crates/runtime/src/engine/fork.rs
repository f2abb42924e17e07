//! fork(): libc runs our handlers, last before the copy is made and first after it. Around the copy the pager sleeps, with
//! nothing staged and nothing in flight; the child starts a pager of its own before any other code runs in it.

use super::mailbox::Command;
use super::message::tell;
use super::watch::{self, Demand};
use super::{ENGINE, Phase, follow, libc_data, pager, setup, shares, unreached};
use crate::blocks::{errno, set_errno};
use crate::identity;
use crate::lending::LOANS;
use crate::locks;
use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::fmt::Write;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering::SeqCst};
use ream_page::{Run, StoreId};
use ream_stats::{Expected, Identity, Process, Session};
use ream_sys::file::{self, Fd};
use ream_sys::futex::{self, Guard, Scope};
use ream_sys::memory::{self, Advice, Protection};
use ream_sys::process::{self, SignalSet, set_signal_mask};
use ream_sys::rwlock::ReadGuard;
use ream_sys::thread::{self, Files};
use ream_sys::{Anchors, Errno, LinuxMachine};

/// Changes when a parked pager may go on.
pub(super) static RELEASED: AtomicU32 = AtomicU32::new(0);
/// 0: the child's pager is not ready yet; 1: it is; 2: it could not start.
static READY: AtomicU32 = AtomicU32::new(0);

/// Behind an error's number.
const TOO_MANY_FILES: &str = ": it has as many files open as it may; raise the limit (ulimit -n)";

/// Descriptors of one store: a connection to each memory server, and a file for each volume.
const PARTS: usize = size_of::<Anchors>() / size_of::<Fd>();
const STORES: usize = 256 * PARTS;

/// What is kept from the prepare handler to the parent's and the child's.
struct Kept {
    signals: SignalSet,
    child: Option<Expected>,
    parent: Identity,
    engaged: bool,
    /// Guards of the locks that are held across the copy; kept as values so that the child can let go of them too. What is
    /// managed can be looked up meanwhile: handlers of other libraries may come after ours, where paging was begun from
    /// inside, and wait there for threads that look something up.
    mailbox: Option<Guard<'static, ()>>,
    regions: Option<ReadGuard<'static, crate::regions::Regions>>,
    /// Descriptors of our ancestors' stores and of ours, for the child: [`PARTS`] of each, some of them none.
    stores: [Fd; STORES],
    store_count: usize,
    /// Pages that the parent has left when a child is made.
    limit: u64,
    /// Whether it was said already that the child will not run.
    refused: bool,
    /// The program's errno: it is 0 while the copy is made, and set when that fails, which libc tells its handlers in
    /// no other way.
    errno: c_int,
}

impl Kept {
    /// Adds a descriptor for the child; false when there are too many.
    fn keep(&mut self, fd: Fd) -> bool {
        let Some(place) = self.stores.get_mut(self.store_count) else { return false };
        *place = fd;
        self.store_count += 1;
        true
    }

    /// The child has its own now, or there is none.
    fn close_stores(&mut self) {
        for fd in self.stores.get(..self.store_count).unwrap_or(&[]).iter().filter(|fd| **fd != Fd::NONE) {
            file::close(*fd);
        }
        self.store_count = 0;
        LENT.store(false, SeqCst);
    }
}

struct Cell(UnsafeCell<Kept>);
// SAFETY: libc lets one fork happen at a time: prepare and its two successors run under its own lock, in one thread.
unsafe impl Sync for Cell {}

static KEPT: Cell = Cell(UnsafeCell::new(Kept {
    signals: SignalSet(0),
    child: None,
    parent: Identity { pid: 0, start: 0, space: 0 },
    engaged: false,
    mailbox: None,
    regions: None,
    stores: [Fd(-1); STORES],
    store_count: 0,
    limit: 0,
    refused: false,
    errno: 0,
}));

/// More than one of so many parts of the budget is much.
const MUCH: i64 = 64;

/// Our own store's descriptors in the pager's table.
static OWN: [AtomicI32; PARTS] = [const { AtomicI32::new(-1) }; PARTS];

/// In the pager: tells which descriptors a child needs copies of.
pub(super) fn publish(machine: &LinuxMachine) {
    for (place, fd) in OWN.iter().zip(machine.anchors()) {
        place.store(fd.0, SeqCst);
    }
}

/// The ancestors' stores that this process reads: descriptors in its pager's table, [`PARTS`] of each, by store number less
/// one.
struct Ancestors(UnsafeCell<([Fd; STORES], usize)>);
// SAFETY: written by the child's pager thread before its program runs, read by the prepare handler afterwards.
unsafe impl Sync for Ancestors {}
static ANCESTORS: Ancestors = Ancestors(UnsafeCell::new(([Fd(-1); STORES], 0)));

/// In the pager, while it is not parked: what ancestors have stored at a memory server is not needed any more. Their stores there
/// end when no other process has a connection of them.
pub(super) fn let_go(server: usize) {
    // SAFETY: see `Ancestors`: the prepare handler reads it while the pager is parked.
    let (ancestors, count) = unsafe { &mut *ANCESTORS.0.get() };
    for parts in ancestors.get_mut(..*count).unwrap_or(&mut []).chunks_exact_mut(PARTS) {
        if let Some(fd) = parts.get_mut(server).filter(|fd| **fd != Fd::NONE) {
            file::close(core::mem::replace(fd, Fd::NONE));
        }
    }
}

/// The number under which children lease our store: that of the first fork since its slots were frozen, for all of them,
/// since slots thaw all at once when the last lease has ended. 0 while nothing is leased. Changed by the prepare handler
/// while the pager is parked, and by the pager otherwise.
static LEASED_AS: AtomicU64 = AtomicU64::new(0);

/// A fork is between its first and its last handler.
static FORKING: AtomicBool = AtomicBool::new(false);

/// Whether this process, or one that it descends from, has forked.
static FORKED: AtomicBool = AtomicBool::new(false);

/// Whether pages may be shared with another process.
pub(super) fn forked() -> bool {
    FORKED.load(SeqCst)
}

/// Whether the program's table holds descriptors of ours, which a child is to have.
pub(super) fn lends_stores() -> bool {
    LENT.load(SeqCst)
}

/// See [`lends_stores`].
static LENT: AtomicBool = AtomicBool::new(false);

/// Whether some thread is forking just now.
pub fn forking() -> bool {
    FORKING.load(SeqCst)
}

/// Before the copy: makes room, empties the staging area, parks the pager, keeps the locks. `freeze` takes those that come
/// after the engine's; the result is to be kept until our other handlers are done. It is called while the pager serves: a
/// thread that has such a lock may be asleep in a fault, on a stack that is paged.
pub fn fork_prepare<T>(freeze: impl Fn() -> T) -> T {
    let signals = set_signal_mask(SignalSet::ALL);
    // SAFETY: see `Cell`: one fork at a time, and this is its thread.
    let kept = unsafe { &mut *KEPT.0.get() };
    kept.errno = errno();
    let mut frozen = None;
    prepare(kept, signals, &mut || frozen = Some(freeze()));
    let frozen = frozen.unwrap_or_else(freeze);
    set_errno(0);
    frozen
}

fn prepare(kept: &mut Kept, signals: SignalSet, freeze: &mut dyn FnMut()) {
    kept.signals = signals;
    FORKING.store(true, SeqCst);
    FORKED.store(true, SeqCst);
    kept.child = None;
    kept.engaged = false;
    kept.refused = false;
    kept.parent = identity::owner();
    let Some((session, entry)) = ENGINE.session().zip(ENGINE.entry()) else { return };
    let mut complete = true;
    let regions = loop {
        if matches!(ENGINE.phase(), Phase::Idle | Phase::Watching) && is_scarce(entry, session) {
            watch::guard();
        }
        if ENGINE.phase() == Phase::Watching && !fits_twice() {
            demand();
        }
        if ENGINE.phase() == Phase::Engaged {
            kept.engaged = true;
            let mailbox = ENGINE.mailbox.lock();
            // Parent and child together must fit: each gets half of what this process has, when what is locked here, which
            // the child has beside, is counted with the child's. Others get nothing of it meanwhile (`shares`).
            kept.limit = (entry.held_pages().saturating_sub(locks::pages()) / 2).max(shares::CHILD);
            ENGINE.mailbox.call_locked(Command::Quiet(kept.limit), &mailbox);
            libc_data::touch();
            let regions = ENGINE.regions.write().show();
            freeze();
            ENGINE.mailbox.call_locked(Command::Park, &mailbox);
            kept.mailbox = Some(mailbox);
            complete = open_stores(kept);
            break regions;
        }
        if ENGINE.phase() == Phase::Watching {
            // Free in the child, too.
            kept.mailbox = Some(ENGINE.mailbox.lock());
        }
        let regions = ENGINE.regions.write().show();
        if ENGINE.phase() != Phase::Engaged {
            break regions;
        }
        // The watcher engaged just now.
        drop(regions);
        kept.mailbox = None;
    };
    if kept.engaged {
        advise(&regions, Advice::DoFork);
        each_left_out(&mut |part| {
            // SAFETY: says only that a child does not inherit the range, as the program has asked.
            let _ = unsafe { memory::advise(part.start.address(), part.bytes(), Advice::DontFork) };
        });
    }
    kept.regions = Some(regions);
    kept.child = session.expect(ENGINE.process.load(SeqCst), process::now_us() / 1000);
    let Some(child) = kept.child.and_then(|child| session.process(child.index)) else {
        return;
    };
    if !kept.engaged {
        let (ledger, held) = (session.ledger(), entry.held_pages());
        let free = ledger.free_pages().max(0) as u64;
        if held > free {
            // What the child has in RAM as soon as it writes and is not free, and half of what is left: charged here, but
            // not used.
            let used = in_ram(entry);
            let unused = held - used;
            let missing = used.saturating_sub(free).min(unused);
            entry.hand_over(ledger, child, missing + (unused - missing) / 2);
        }
        return;
    }
    if LEASED_AS.load(SeqCst) == 0 {
        LEASED_AS.store(session.next_fork(), SeqCst);
        entry.set_leased_as(LEASED_AS.load(SeqCst));
    }
    complete &= child.lease(LEASED_AS.load(SeqCst));
    for inherited in entry.each_lease() {
        complete &= child.lease(inherited);
    }
    if !complete {
        // Too many generations at once: without a lease the child must not run.
        session.cancel(child_of(kept), kept.parent);
        kept.child = None;
    }
    let held = entry.held_pages();
    if kept.child.is_some() && held > kept.limit {
        // The child's half: it is in its entry before anybody runs who could take it.
        entry.hand_over(session.ledger(), child, held - kept.limit);
    }
    entry.counters.forks.add(1);
}

fn child_of(kept: &Kept) -> Expected {
    kept.child.unwrap_or(Expected { index: usize::MAX, generation: 0 })
}

/// After the copy, in the parent; also when it failed.
pub fn fork_parent() {
    // SAFETY: as in `fork_prepare`.
    let kept = unsafe { &mut *KEPT.0.get() };
    if errno() == 0 {
        set_errno(kept.errno);
    } else if let Some((session, entry)) = ENGINE.session().zip(ENGINE.entry()) {
        // There is no child: its part of the budget comes back. Its entry stays until it is swept, should somebody else's
        // handler have set errno, and there be a child all the same.
        if let Some(child) = kept.child.and_then(|child| session.process(child.index)) {
            child.hand_over(session.ledger(), entry, u64::MAX);
        }
    }
    if let Some(regions) = kept.regions.take() {
        if kept.engaged {
            advise(&regions, Advice::DontFork);
        }
        drop(regions);
    }
    kept.close_stores();
    if kept.engaged {
        RELEASED.fetch_add(1, SeqCst);
        futex::wake(&RELEASED, u32::MAX, Scope::Private);
        kept.engaged = false;
    }
    drop(kept.mailbox.take());
    FORKING.store(false, SeqCst);
    unguard();
    match ENGINE.phase() {
        // Part of what was charged is the child's now: what is touched has to be watched.
        Phase::Idle if !super::charged() => watch::start(false),
        Phase::Watching if !super::charged() => super::tell_watcher(Command::Nothing),
        _ => {}
    }
    set_signal_mask(kept.signals);
}

/// After the copy, in the child; [`fork_child_watched`] is to follow.
pub fn fork_child() {
    // SAFETY: as in `fork_prepare`; the child has this thread only.
    let kept = unsafe { &mut *KEPT.0.get() };
    set_errno(kept.errno);
    FORKING.store(false, SeqCst);
    unguard();
    // Those of threads that stayed behind.
    super::UNTOLD.store(0, SeqCst);
    let (regions, mailbox) = (kept.regions.take(), kept.mailbox.take());
    // SAFETY: nobody moves mappings during a fork, so that it was free, or the parent's watcher had it.
    unsafe { ENGINE.moving.reset() };
    if let Some(regions) = &regions {
        // SAFETY: who else read it stayed behind.
        unsafe { ENGINE.regions.forget_others(regions) };
    }
    super::bloat::reset();
    super::watch::forget_thread();
    follow::begin_anew();
    // Those of threads that stayed behind.
    LOANS.forget_all();
    if let Some(session) = ENGINE.session() {
        let adopted = kept.child.is_some_and(|child| session.adopt(child, kept.parent, identity::begin()));
        if adopted {
            ENGINE.process.store(child_of(kept).index, SeqCst);
            if let Some(entry) = ENGINE.entry() {
                entry.set_program(identity::program());
            }
        } else if kept.engaged {
            if !kept.refused {
                tell(format_args!(
                    "this forked process cannot go on: the session has no place for it (more than 4096 processes, or 255 forks one inside the other)"
                ));
            }
            process::end_process(125);
        }
        session.ring();
        futex::wake(session.bell(), u32::MAX, Scope::Shared);
        // Nobody reads our own store yet.
        LEASED_AS.store(0, SeqCst);
    }
    if kept.engaged {
        // First of all: our own memory must not come to lie there before the program goes on (`keep_left_out_free`), and where
        // the kernel could not leave something out, its content is gone.
        each_left_out(&mut |part| {
            let place = core::ptr::with_exposed_provenance_mut(part.start.address());
            // SAFETY: the program wants nothing there, and nobody else was told of the addresses.
            let _ = unsafe { memory::map_over(place, part.bytes(), Protection::None) };
        });
        if let Some(regions) = &regions {
            advise(regions, Advice::DontFork);
        }
    }
    drop(regions);
    if kept.engaged {
        super::forget_noted();
    }
    drop(mailbox);
    if kept.engaged {
        kept.engaged = false;
        READY.store(0, SeqCst);
        // SAFETY: `child_main` uses neither libc nor thread-local data, never unwinds, and needs less stack than this.
        let started = unsafe { thread::spawn(child_main, core::ptr::null_mut(), watch::STACK, Files::Copied) };
        if started.is_err() {
            READY.store(2, SeqCst);
        }
        while READY.load(SeqCst) == 0 {
            futex::wait(&READY, 0, None, Scope::Private);
        }
        kept.close_stores();
        if READY.load(SeqCst) == 2 {
            process::end_process(125);
        }
    } else {
        super::forget_left_out();
        if unreached::begin_anew() || ENGINE.phase() == Phase::Watching {
            // The watcher was the parent's.
            ENGINE.listening.store(0, SeqCst);
            ENGINE.set_phase(Phase::Idle);
        }
    }
    set_signal_mask(kept.signals);
}

/// Last in the child: what it has is watched, should it come to more than is left for it. No lock is held any more: where paging
/// must begin at once, the watcher wants to read what they guard first, and this waits for it.
pub fn fork_child_watched() {
    if matches!(ENGINE.phase(), Phase::Idle | Phase::Watching) {
        super::masked(|| charge_child(ENGINE.entry().map_or(0, Process::held_pages)));
    }
}

/// What a fork has asked the watcher for is over.
fn unguard() {
    let _ = ENGINE.demanded.compare_exchange(Demand::Guard as u32, Demand::None as u32, SeqCst, SeqCst);
}

/// Charges what the parent has not handed over, if that fits; otherwise nothing more: what is in RAM is charged already,
/// and a watcher charges what comes to it. Where that may be much, the child waits for its watcher.
fn charge_child(handed: u64) {
    let missing = ENGINE.reserved.load(SeqCst).saturating_sub(handed);
    let (free, total) =
        ENGINE.session().map_or((0, 0), |session| (session.ledger().free_pages(), session.ledger().total_pages()));
    let short = missing as i64 - free;
    if handed > 0 && short > 0 {
        watch::start(short > total as i64 / MUCH);
    } else {
        super::charge(missing, false);
    }
}

fn child_main(_: *mut ()) -> ! {
    // SAFETY: the child's only other thread waits for READY.
    let kept = unsafe { &mut *KEPT.0.get() };
    // Our own copies of the stores' descriptors survive the closing of everything else.
    let (mut sorted, mut fds, count) = (kept.stores, kept.stores, kept.store_count);
    let _ = file::close_all_but(sorted.get_mut(..count).unwrap_or(&mut []));
    let generations = count / PARTS;
    setup::place();
    // The parent's own store is the last: the nearest ancestor has the highest number.
    let inherited = fds.get_mut(..count).unwrap_or(&mut []);
    let outcome = pager::engage_child(StoreId(generations as u8), inherited);
    // SAFETY: see `Ancestors`; the program waits for READY.
    unsafe { *ANCESTORS.0.get() = (fds, count) };
    if let Err(failure) = outcome {
        let why = match failure.errno {
            Errno::PERM | Errno::ACCES => {
                ": the program has given up its user's rights, and the session's agent could not help"
            }
            Errno::MFILE => TOO_MANY_FILES,
            _ => "",
        };
        tell(format_args!(
            "this forked process cannot go on: {} failed (errno {}{}{why}); see 'ream doctor'",
            failure.what,
            failure.errno.0,
            super::remote::name()
        ));
        READY.store(2, SeqCst);
        futex::wake(&READY, u32::MAX, Scope::Private);
        thread::exit()
    }
    READY.store(1, SeqCst);
    futex::wake(&READY, u32::MAX, Scope::Private);
    pager::run()
}

/// In the pager: sleeps until the fork is over.
pub(super) fn sleep_while_parked(ticket: u32) {
    while RELEASED.load(SeqCst) == ticket {
        futex::wait(&RELEASED, ticket, None, Scope::Private);
    }
}

/// In the pager: whether some live process may still read our frozen slots.
pub(super) fn leased() -> bool {
    let Some(session) = ENGINE.session() else { return false };
    let me = ENGINE.process.load(SeqCst);
    // A process that was killed, or has executed another program, holds no lease: whoever looks first takes it off the list.
    sweep(session);
    let leased = session.leased_by_others(LEASED_AS.load(SeqCst), me);
    if !leased {
        LEASED_AS.store(0, SeqCst);
    }
    leased
}

/// Clears the entries of processes that have gone, or have executed a program outside the session.
pub(super) fn sweep(session: &Session) {
    session.sweep(identity::owner(), process::now_us() / 1000, identity::runs);
}

/// Pages of what is charged that are in RAM, at most.
fn in_ram(entry: &Process) -> u64 {
    entry.held_pages().min(watch::anonymous_now())
}

/// Whether a child's part comes out of this process's, and that is worth a wait.
fn is_scarce(entry: &Process, session: &Session) -> bool {
    let (ledger, held) = (session.ledger(), entry.held_pages() as i64);
    held > ledger.free_pages() && held > ledger.total_pages() as i64 / MUCH
}

/// Whether parent and child could both keep all of this in RAM.
fn fits_twice() -> bool {
    let Some((session, entry)) = ENGINE.session().zip(ENGINE.entry()) else { return true };
    2 * in_ram(entry) as i64 <= entry.held_pages() as i64 + session.ledger().free_pages()
}

/// Has the watcher engage now, and waits until it has.
fn demand() {
    ENGINE.demanded.store(Demand::Page as u32, SeqCst);
    super::tell_watcher(Command::Nothing);
    loop {
        let phase = ENGINE.phase.load(SeqCst);
        if phase != Phase::Watching as u32 {
            return;
        }
        futex::wait(&ENGINE.phase, phase, Some(100_000), Scope::Private);
    }
}

fn advise(regions: &crate::regions::Regions, advice: Advice) {
    regions.each(&mut |run| {
        // SAFETY: says only whether a child inherits the range; a child of ours serves what is absent in it.
        let _ = unsafe { memory::advise(run.start.address(), run.bytes(), advice) };
    });
}

/// Calls `tell` for all that is paged and that children are not to have (MADV_DONTFORK). Not what was unmapped without a word to us:
/// something else may be there. While the pager is parked, or in a child before it has one.
fn each_left_out(tell: &mut dyn FnMut(Run)) {
    // SAFETY: set before anything was paged; nobody changes it meanwhile.
    let Some(shard) = (unsafe { pager::SHARD.load(SeqCst).as_ref() }) else { return };
    crate::holds::each_left_out(|run| shard.each_managed(run, tell));
}

/// Opens, in the program's table, the stores that the child will read: the pager has them in its own table only.
/// Returns whether all could be opened.
fn open_stores(kept: &mut Kept) -> bool {
    // SAFETY: see `Ancestors`.
    let (ancestors, count) = unsafe { &*ANCESTORS.0.get() };
    let thread = pager::THREAD.load(SeqCst);
    kept.store_count = 0;
    LENT.store(true, SeqCst);
    let own = OWN.iter().map(|fd| Fd(fd.load(SeqCst)));
    // The program's table may be full, and these are there for a moment only.
    let mut more = file::MoreFiles::not_yet();
    for fd in ancestors.iter().take(*count).copied().chain(own) {
        if fd == Fd::NONE {
            if !kept.keep(fd) {
                return false;
            }
            continue;
        }
        let mut path = crate::say::Line::<128>::new();
        let _ = write!(path, "/proc/self/task/{thread}/fd/{}\0", fd.0);
        const READ_DIRECT_CLOEXEC: u32 = 0o40_000 | 0o2_000_000;
        let open = || {
            core::ffi::CStr::from_bytes_until_nul(path.as_bytes())
                .map_err(|_| Errno::INVAL)
                .and_then(|path| file::open(path, READ_DIRECT_CLOEXEC, 0).or_else(|_| file::open(path, 0o2_000_000, 0)))
                // Where /proc is not to be seen any more.
                .or_else(|error| process::copy_descriptor_of_thread(thread, fd).map_err(|_| error))
        };
        let opened = open().or_else(|error| if error == Errno::MFILE && more.raise() { open() } else { Err(error) });
        match opened {
            Ok(fd) if kept.keep(fd) => {}
            Err(errno) => {
                let why = match errno {
                    Errno::ACCES => ": the program has given up its user's rights",
                    Errno::MFILE => TOO_MANY_FILES,
                    _ => "",
                };
                tell(format_args!(
                    "a store cannot be opened for a forked child (errno {}{why}); the child will not run",
                    errno.0
                ));
                kept.refused = true;
                return false;
            }
            Ok(fd) => {
                file::close(fd);
                return false;
            }
        }
    }
    true
}
