//! The pager's thread: takes the managed ranges over, then serves events, commands and its share of the budget for the
//! rest of the process's life.

use super::company::{Company, Used};
use super::deserted::Deserted;
use super::devices::Devices;
use super::mailbox::Command;
use super::message::tell;
use super::minute::Minute;
use super::setup::{Inherited, machine, most_slots, slots_now};
use super::shares::{self, available, share};
use super::stop::stop;
use super::switch::Switching;
use super::watch::{self, Counted};
use super::zeros::{self, Zeros};
use super::{ENGINE, Phase, follow, fork, quiet, remote, unreached, volumes, wishes};
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering::SeqCst};
use ream_page::{Page, Run, StoreId};
use ream_pager::{Config, Fetch, Progress, Shard};
use ream_stats::Process;
use ream_sys::digest::Key;
use ream_sys::file::Fd;
use ream_sys::memory::{self, Advice, Protection};
use ream_sys::{Anchors, Errno, Event, Events, LinuxMachine, Machine, Wait, process};

/// The one shard of the process, in memory that a forked child inherits.
pub(super) static SHARD: AtomicPtr<Shard<LinuxMachine>> = AtomicPtr::new(core::ptr::null_mut());
static KEY: AtomicPtr<Key> = AtomicPtr::new(core::ptr::null_mut());
/// The pager's thread: a fork opens its stores through it.
pub(super) static THREAD: AtomicU32 = AtomicU32::new(0);

/// How often the shares of several processes are looked at, and leases, in microseconds.
const HOUSEKEEPING: u64 = 20_000;
/// The same while this process has the whole budget: a newcomer waits no longer for its share.
const IDLE: u64 = 100_000;
/// How long to wait before something that could not be done is tried again.
const BRIEF: u64 = 1000;
/// How often processes that have executed another program are looked for while somebody starves, in microseconds.
const SWEEPING: u64 = 1_000_000;

/// Why paging cannot start.
pub(super) struct Failure {
    pub(super) what: &'static str,
    pub(super) errno: Errno,
}

pub(super) fn failed(what: &'static str) -> impl Fn(Errno) -> Failure {
    move |errno| Failure { what, errno }
}

/// The watcher's thread and, from its engagement on, the pager's. Everything is made ready before it watches, so that
/// engaging is only a matter of registering: the program touches memory meanwhile.
pub(super) fn watch_and_run() -> ! {
    // It looks briefly and must not be late: ahead of others while it watches, one of them once it pages.
    process::hurry(true);
    let outcome = prepare().and_then(|()| {
        // SAFETY: set by `prepare` on this thread, and used by no other.
        match watch::until_full(unsafe { &mut *SHARD.load(SeqCst) }.machine_mut()) {
            Some((_settled, counted)) => engage(counted).map(|()| true),
            None => Ok(false),
        }
    });
    process::hurry(false);
    match outcome {
        Ok(true) => run(),
        Ok(false) => leave(),
        Err(failure) if unreached::is_why(&failure) => unreached::until_missed(&failure),
        Err(failure) => {
            give_up(&failure);
            ream_sys::thread::exit()
        }
    }
}

/// Paging will not begin in this process.
pub(super) fn give_up(failure: &Failure) {
    if let Some(entry) = ENGINE.entry() {
        entry.counters.engagements_failed.add(1);
    }
    ENGINE.set_phase(Phase::Broken);
    complain(failure);
}

fn complain(failure: &Failure) {
    let why = match failure.errno {
        Errno::MFILE => "it has as many files open as it may (ulimit -n); ",
        _ => "",
    };
    tell(format_args!(
        "cannot page this program: {} failed (errno {}{}): {why}its memory is not limited; see 'ream doctor'",
        failure.what,
        failure.errno.0,
        remote::name()
    ));
}

/// Makes a shard of this process with its own store, which manages nothing yet.
fn prepare() -> Result<(), Failure> {
    let session = ENGINE.session().ok_or(Failure { what: "finding the session", errno: Errno(2) })?;
    let entry = ENGINE.entry().ok_or(Failure { what: "finding the session", errno: Errno(2) })?;
    let key = match KEY.load(SeqCst) {
        known if !known.is_null() => known.cast_const(),
        _ => core::ptr::from_ref(Key::draw().map_err(failed("drawing a random key"))?),
    };
    KEY.store(key.cast_mut(), SeqCst);
    let machine = machine(session, key, Inherited::default())?;
    let total = session.ledger().total_pages();
    let fetch = match session.config().fetch() {
        ream_stats::Fetch::Auto => Fetch::Auto,
        ream_stats::Fetch::Lazy => Fetch::Lazy,
        ream_stats::Fetch::Aggressive => Fetch::Aggressive,
    };
    let config = Config { limit: total, slots: most_slots(), fetch, swap: session.config().swap() };
    let mut shard = Shard::new(machine, config, &entry.counters).map_err(failed("mapping the page tables"))?;
    shard.set_store_limit(slots_now());
    let place = memory::map(size_of::<Shard<LinuxMachine>>(), 4096, Protection::ReadWrite)
        .map_err(failed("mapping the pager's state"))?
        .cast::<Shard<LinuxMachine>>();
    // Keys to pages are in it.
    // SAFETY: what is left out of a core dump is no other.
    let _ = unsafe {
        memory::advise(place.as_ptr().expose_provenance(), size_of::<Shard<LinuxMachine>>(), Advice::DontDump)
    };
    // SAFETY: fresh memory of sufficient size and alignment; from here on it is used through this pointer by this
    // thread alone (and, in a forked child, by the child's).
    let shard = unsafe {
        place.write(shard);
        &mut *place.as_ptr()
    };
    SHARD.store(place.as_ptr(), SeqCst);
    let doorbell = ENGINE.mailbox.hang_up().map_err(failed("mapping the doorbell"))?;
    shard.machine_mut().register(doorbell).map_err(failed("registering the doorbell"))
}

/// The watcher ends: another may be started from now on. What it had made ready goes in its own thread, whose the descriptors are;
/// with the last of them, whoever sleeps on us goes on.
fn leave() -> ! {
    ENGINE.listening.store(0, SeqCst);
    ENGINE.set_phase(Phase::Idle);
    let place = SHARD.swap(core::ptr::null_mut(), SeqCst);
    if !place.is_null() {
        // SAFETY: `prepare` made it on this thread, in a mapping of this size, and nobody else uses it.
        unsafe {
            core::ptr::drop_in_place(place);
            let _ = memory::unmap(place.cast(), size_of::<Shard<LinuxMachine>>());
        }
    }
    ream_sys::thread::exit()
}

/// Takes the managed ranges over, in which so much was counted just before. What is in RAM is learnt by and by.
fn engage(counted: Counted) -> Result<(), Failure> {
    let session = ENGINE.session().ok_or(Failure { what: "finding the session", errno: Errno(2) })?;
    let entry = ENGINE.entry().ok_or(Failure { what: "finding the session", errno: Errno(2) })?;
    // SAFETY: set by `prepare` on this thread, and used by no other.
    let shard = unsafe { &mut *SHARD.load(SeqCst) };
    // All that the ledger has; other processes get their share when they ask.
    entry.acquire(session.ledger(), available(session.ledger(), entry.held_pages()));
    shard.set_limit(entry.held_pages());
    let regions = ENGINE.regions.write();
    // Before anything is registered: whoever has it would sleep in a fault on its stack, should that be paged, while nobody serves.
    let held = crate::holds::freeze();
    if fork::forked() {
        shard.set_forked();
    }
    // Where zeros can be read, whoever writes to them waits until all is known: nobody hears of them otherwise.
    let later = counted.zeros == 0;
    if later {
        shard.expect(counted.pages);
    }
    regions.each(&mut |run| {
        // SAFETY: managed memory must not be inherited by a raw fork, where absent pages would read as zeros.
        unsafe {
            let _ = memory::advise(run.start.address(), run.bytes(), Advice::DontFork);
        }
        // A range that was unmapped behind our back cannot be registered; what is left of it stays plain.
        let _ = if later {
            shard.manage_later(run)
        } else if crate::lending::on() {
            // Writers are not held: the kernel's own writes would fail, of an ordinary user.
            shard.manage(run)
        } else {
            shard.manage_after(run, |machine| machine.hold_writers(run))
        };
    });
    if !shard.machine().holds_writers() {
        // Wires in what could not be registered.
        regions.each(&mut |run| shard.machine_mut().let_write(run));
        shard.machine_mut().none_is_held();
    }
    held.each(&mut |run| shard.hold(run, true));
    drop(held);
    wishes::each_usage(|run, usage| shard.set_usage(run, usage));
    volumes::engage(shard);
    // What was in RAM already may be more than was left: it is evicted down to the limit at once.
    let used = shard.used();
    if used > entry.held_pages() {
        entry.overdraw(session.ledger(), used - entry.held_pages());
    }
    // The limit stays what was granted: the rest is evicted, and given back as it goes.
    entry.set_engaged(session.ledger(), true);
    entry.counters.engagements.add(1);
    ENGINE.set_phase(Phase::Engaged);
    drop(regions);
    super::until_discarded();
    Ok(())
}

/// Serves for ever.
pub(super) fn run() -> ! {
    // SAFETY: set by `engage` or by the child's counterpart on this thread, and used by no other.
    let shard = unsafe { &mut *SHARD.load(SeqCst) };
    let mut pager = Pager {
        shard,
        events: Events::new(),
        asked: Events::new(),
        command: None,
        last_housekeeping: 0,
        last_look: process::now_us(),
        starving_since: 0,
        quiet: quiet::Steps::default(),
        last_sweep: 0,
        company: Company::default(),
        minute: Minute::default(),
        overdrawn: false,
        switching: Switching::default(),
        zeros: Zeros::default(),
        devices: Devices::default(),
        deserted: Deserted::default(),
    };
    loop {
        pager.turn();
    }
}

pub(super) struct Pager {
    pub(super) shard: &'static mut Shard<LinuxMachine>,
    events: Events,
    /// What is heard while it is waited for that all threads wait.
    asked: Events,
    /// A command under way, and the doorbell page of whoever waits for it.
    command: Option<(Command, Page)>,
    last_housekeeping: u64,
    pub(super) last_look: u64,
    /// When a thread began to wait for a frame that nothing here can free; 0 if none does.
    pub(super) starving_since: u64,
    pub(super) quiet: quiet::Steps,
    last_sweep: u64,
    company: Company,
    minute: Minute,
    /// The user has been told that the budget does not hold.
    pub(super) overdrawn: bool,
    switching: Switching,
    zeros: Zeros,
    pub(super) devices: Devices,
    deserted: Deserted,
}

impl Pager {
    fn turn(&mut self) {
        remote::look(self.shard);
        self.devices.look(self.shard);
        if self.command.is_some() {
            self.shard.withhold(false);
        }
        if self.shard.withholds() {
            // Who waits for a turn does not starve.
            self.starving_since = 0;
        }
        let more = self.shard.work();
        self.zeros.look(self.shard, self.last_look);
        if let Some(why) = self.shard.fatal() {
            stop(why, self.shard);
        }
        let more = more || self.shard.starved() && !self.shard.is_learning() && self.relieve();
        if self.command.is_some() {
            self.go_on();
        }
        let soon = self.switching.go_on(self.shard, self.last_look);
        let wait = match (more, self.command.is_some(), self.lonely()) {
            (true, _, _) => Wait::No,
            (false, true, _) => Wait::Micros(BRIEF),
            (false, false, _) if self.shard.waiting() > 0 => Wait::Micros(BRIEF),
            (false, false, true) => Wait::Micros(IDLE),
            (false, false, false) => Wait::Micros(HOUSEKEEPING),
        };
        let wait = match (soon, wait) {
            (Some(soon), Wait::Micros(micros)) => Wait::Micros(micros.min(soon)),
            (_, wait) => wait,
        };
        self.listen(wait);
        // Reads go out before anything is tidied up: the device works meanwhile. With nothing to tidy up, the next
        // wait submits them.
        while self.shard.take_started() && !self.shard.at_ease() {
            self.listen(Wait::No);
        }
        if self.last_look - self.last_housekeeping > HOUSEKEEPING {
            self.last_housekeeping = self.last_look;
            self.keep_house();
        }
    }

    /// Submits what was started, sleeps as told, and serves what has happened.
    fn listen(&mut self, wait: Wait) {
        let waiting = self.shard.threads_waiting();
        self.events.clear();
        let one = waiting == 1 && self.shard.waiting() == 0;
        self.shard.machine_mut().one_waits(one);
        self.shard.machine_mut().poll(wait, &mut self.events);
        let now = self.shard.machine_mut().now_us();
        self.shard.count_waiting(waiting, now.saturating_sub(self.last_look));
        self.last_look = now;
        let (mut index, mut arriving) = (0, false);
        while let Some(event) = self.events.as_slice().get(index).copied() {
            index += 1;
            // What was asked for goes out before what has arrived is looked at.
            if matches!(event, Event::Io { .. }) && self.shard.take_started() {
                self.shard.machine_mut().submit();
            }
            if matches!(event, Event::Io { .. }) && !core::mem::replace(&mut arriving, true) {
                self.shard.before_arrivals(&mut self.asked, &mut self.events);
            }
            if let Event::Fault { thread, .. } = event {
                self.follow(thread);
            }
            if !self.shard.event(event) {
                if let Event::Fault { page, .. } = event {
                    self.foreign(page);
                }
            }
        }
    }

    /// Whether there is nobody to share with and nothing to watch, so that an idle pager may sleep for good.
    fn lonely(&self) -> bool {
        let Some((session, entry)) = ENGINE.session().zip(ENGINE.entry()) else { return true };
        let total = session.ledger().total_pages();
        entry.held_pages() + shares::SPARE >= total && !self.shard.is_frozen()
    }

    /// A fault outside managed memory: the doorbell, or a page that is registered but not managed.
    fn foreign(&mut self, page: Page) {
        match ENGINE.mailbox.rung(page) {
            Some(command) => {
                self.command = Some((command, page));
                self.go_on();
            }
            None => {
                self.shard.machine_mut().zero_in(page);
                self.shard.machine_mut().wake(Run { start: page, pages: 1 });
            }
        }
    }

    /// Carries the command out, as far as it can be now; answers when it is done.
    fn go_on(&mut self) {
        let Some((command, page)) = self.command else { return };
        let shard = &mut *self.shard;
        let progress = match command {
            Command::Nothing | Command::Leave => Progress::Done,
            Command::Manage(run) => {
                // A range that cannot be registered stays plain memory.
                let _ = shard.manage(run);
                Progress::Done
            }
            Command::Release(run) => {
                shard.release(run);
                Progress::Done
            }
            Command::Discard(run) => {
                shard.discard(run);
                Progress::Done
            }
            Command::Hold(run, on) => {
                shard.hold(run, on);
                Progress::Done
            }
            Command::Cool(mut left) => {
                let progress = shard.cool(&mut left);
                self.command = Some((Command::Cool(left), page));
                progress
            }
            Command::Fetch(run) => {
                shard.fetch_range(run);
                Progress::Done
            }
            Command::Use(run, usage) => {
                shard.set_usage(run, usage);
                Progress::Done
            }
            Command::Send(run, volume) => {
                volumes::sent(shard, run, volume);
                Progress::Done
            }
            Command::Look(run) => {
                shard.know(run);
                ENGINE.mailbox.answer(shard.whereabouts(run));
                Progress::Done
            }
            Command::Quiet(target) => {
                let progress = shard.prepare_fork(target - (target / 32).min(quiet::ROOM));
                if progress == Progress::Done {
                    let held = ENGINE.entry().map_or(0, Process::held_pages);
                    shard.set_limit(held.min(target.max(shard.used() + quiet::LEAST)));
                    self.quiet = quiet::Steps::default();
                }
                progress
            }
            Command::Park => {
                zeros::release(shard);
                let mut progress = shard.prepare_fork(u64::MAX);
                // A child reads the file, and not what is still on its way there.
                if progress == Progress::Done && !shard.machine().is_settled() {
                    progress = Progress::Again;
                }
                if progress == Progress::Done {
                    shard.freeze();
                    shard.machine_mut().freeze();
                    fork::publish(shard.machine());
                }
                progress
            }
            Command::Report => {
                report(shard);
                Progress::Done
            }
            Command::Aside => {
                self.switching.aside(shard, process::now_us());
                Progress::Done
            }
            Command::Turn => {
                self.switching.turn(shard, process::now_us());
                Progress::Done
            }
            Command::DropStored(run, all) => {
                shard.drop_stored(run, all);
                Progress::Done
            }
            Command::Follow => match follow::follow(shard.machine_mut()) {
                true => Progress::Done,
                false => Progress::Again,
            },
        };
        if progress == Progress::Again {
            return;
        }
        self.command = None;
        let parked = matches!(command, Command::Park);
        let ticket = fork::RELEASED.load(SeqCst);
        self.shard.machine_mut().answer(page);
        ENGINE.mailbox.rearm(page);
        if parked {
            fork::sleep_while_parked(ticket);
            if let Some(entry) = ENGINE.entry() {
                self.shard.set_limit(entry.held_pages());
            }
            self.shard.go_on();
        }
    }

    /// Takes note of a fault, and now and then decides where the pager runs.
    fn follow(&mut self, thread: u32) {
        let Some(entry) = ENGINE.entry() else { return };
        let used = || Used { process: process::process_time_ns(), pager: process::thread_time_ns() };
        if let Some(thread) = self.company.fault(thread, self.last_look, &entry.counters, used) {
            self.shard.machine_mut().follow(thread);
        }
    }

    /// The process's share of the session's budget, leases that ended, counters.
    fn keep_house(&mut self) {
        report(self.shard);
        self.shard.look_for_store();
        self.deserted.look(self.last_look);
        if self.shard.is_preparing() {
            return;
        }
        let Some((session, entry)) = ENGINE.session().zip(ENGINE.entry()) else { return };
        share(self.shard, session, entry);
        self.minute.complain(self.last_look, session, entry);
        let missing = shares::least(self.shard, session).saturating_sub(self.shard.limit());
        if missing > 0 {
            self.overdraw(missing);
        }
        let starving = session.ledger().starving() > 0;
        if self.shard.is_frozen() && !fork::leased() {
            self.shard.thaw();
            self.shard.machine_mut().thaw();
        } else if starving && self.last_look - self.last_sweep > SWEEPING {
            // What somebody held who has executed a program outside the session: of that nobody else hears.
            self.last_sweep = self.last_look;
            fork::sweep(session);
        }
    }
}

fn report(shard: &mut Shard<LinuxMachine>) {
    let Some((session, entry)) = ENGINE.session().zip(ENGINE.entry()) else { return };
    entry.counters.pager_ns.set(process::thread_time_ns());
    entry.set_stored(session.ledger(), shard.slots_in_use() * 4096);
}

/// In a forked child's pager thread: goes on with the inherited table. `stores` are the descriptors by which its ancestors' stores
/// live, the nearest's last; some are exchanged. What it has in RAM with its parent is charged to it if that had too little.
pub(super) fn engage_child(parent: StoreId, stores: &mut [Fd]) -> Result<(), Failure> {
    let session = ENGINE.session().ok_or(Failure { what: "finding the session", errno: Errno(2) })?;
    let entry = ENGINE.entry().ok_or(Failure { what: "finding the session", errno: Errno(2) })?;
    // SAFETY: inherited from the parent, whose pager had parked; this thread is its only user here.
    let (bequest, kept) = unsafe { &mut *SHARD.load(SeqCst) }.machine_mut().bequeath();
    let inherited = Inherited { bequest, kept: kept.map(|kept| (kept, parent)) };
    let mut machine = machine(session, KEY.load(SeqCst), inherited)?;
    const PARTS: usize = size_of::<Anchors>() / size_of::<Fd>();
    if let Some(anchors) = stores.chunks_exact_mut(PARTS).next_back() {
        machine.exchange_anchors(anchors);
    }
    for (anchors, store) in stores.chunks_exact(PARTS).zip(1..) {
        machine.add_store(StoreId(store), anchors);
    }
    // SAFETY: inherited from the parent, whose pager had parked; this thread is its only user here.
    let shard = unsafe { &mut *SHARD.load(SeqCst) };
    let had = volumes::those_of(shard);
    shard.become_child(machine, parent, most_slots(), &entry.counters).map_err(failed("mapping the page tables"))?;
    shard.set_store_limit(slots_now());
    volumes::engage_child(shard, had);
    let doorbell = ENGINE.mailbox.hang_up().map_err(failed("mapping the doorbell"))?;
    shard.machine_mut().register(doorbell).map_err(failed("registering the doorbell"))?;
    // What children are not to have is unmapped when all of ours has its place elsewhere, and before it would be charged.
    crate::holds::each_left_out(|run| {
        shard.each_managed(run, &mut |part| {
            // SAFETY: reserved by `fork_child`, and nobody's.
            let _ =
                unsafe { memory::unmap(core::ptr::with_exposed_provenance_mut(part.start.address()), part.bytes()) };
        });
        shard.release(run);
    });
    let used = shard.used().max(shares::CHILD);
    entry.overdraw(session.ledger(), used.saturating_sub(entry.held_pages()));
    shard.set_limit(entry.held_pages());
    let mut outcome = Ok(());
    let regions = ENGINE.regions.read();
    regions.each(&mut |run| {
        if let Err(errno) = shard.register_again(run) {
            outcome = Err(errno);
        }
    });
    drop(regions);
    outcome.map_err(failed("registering inherited memory"))?;
    entry.set_engaged(session.ledger(), true);
    entry.counters.engagements.add(1);
    Ok(())
}
