//! The session as it lies in shared memory: header, settings, ledger and the table of processes.
//!
//! A new session is a file of zeros to which [`Session::create`] adds the header. Entries of the table are claimed,
//! handed to forked children and cleared without locks; an entry whose owner was killed half-way is cleared by
//! whoever finds it ([`Session::sweep`]).

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};

use crate::ledger::Sums;
use crate::process::{Identity, Lifecycle, Process};
use crate::{Config, Counters, Engine, Ledger, Phases, Remote, Servers, Turns, whole_pages};

/// First eight bytes of a session.
pub const MAGIC: u64 = u64::from_le_bytes(*b"REAMsess");
/// Changes with every change of the layout.
pub const VERSION: u32 = 11;
/// Entries of the table: most processes that live in a session at once.
pub const PROCESSES: usize = 4096;

/// Why a mapping was not accepted as a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// Shorter than a session.
    Short,
    /// Does not begin with [`MAGIC`].
    NotASession,
    /// Made by another version of Ream.
    OtherVersion,
    /// Another session: the nonce differs.
    OtherSession,
}

/// What [`Session::sweep`] found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Swept {
    /// Entries of dead processes that were cleared.
    pub processes: u32,
    /// Pages that went back to the ledger.
    pub pages: u64,
}

/// An entry kept for a child about to be forked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Expected {
    /// Place in the table.
    pub index: usize,
    /// The generation that the child will have.
    pub generation: u64,
}

/// Shared memory of a session. Only ever used behind a reference into a shared mapping.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct Session {
    magic: AtomicU64,
    nonce: AtomicU64,
    bytes: AtomicU64,
    version: AtomicU32,
    /// Set once by whoever writes the closing summary.
    closed: AtomicU32,
    /// Raised, and its waiters woken, when a process joins or leaves.
    bell: AtomicU32,
    /// Entries `used..` of the table were never claimed.
    used: AtomicU32,
    generations: AtomicU64,
    forks: AtomicU64,
    root_pid: AtomicU32,
    agent_pid: AtomicU32,
    /// User of the agent.
    agent_user: AtomicU32,
    /// Namespace of the process numbers of agent and root.
    space: AtomicU32,
    /// Stored form of the [`Engine`] that the last process to begin paging got; 0 before that.
    engine: AtomicU32,
    /// What the name of the agent's socket is made of.
    door: AtomicU64,
    root_start: AtomicU64,
    began_ms: AtomicU64,
    config: Config,
    ledger: Ledger,
    ended: Counters,
    phases: Phases,
    turns: Turns,
    servers: Servers,
    table: [Process; PROCESSES],
}

impl Session {
    /// The engine with which memory is paged: what was asked for, until a process has begun.
    pub fn engine(&self) -> Engine {
        let used = Engine::from_u32(self.engine.load(SeqCst));
        if used == Engine::Auto { self.config.engine() } else { used }
    }

    /// A process begins to page with this engine.
    pub fn uses(&self, engine: Engine) {
        self.engine.store(engine as u32, SeqCst);
    }

    /// Where in the file its nonce lies.
    pub const NONCE_AT: u64 = core::mem::offset_of!(Session, nonce) as u64;
    /// Bytes of the file that holds a session. Most are never touched and take no memory.
    pub const BYTES: usize = core::mem::size_of::<Session>();

    /// Makes a session of a mapping of zeros. `now_ms` is the monotonic clock.
    ///
    /// # Safety
    /// `memory` is the start of a writable shared mapping of at least [`Session::BYTES`] bytes, all zero, aligned to
    /// 4096, that stays mapped as long as the process lives and that nobody else uses yet.
    pub unsafe fn create(memory: *mut u8, nonce: u64, config: &Config, now_ms: u64) -> &'static Session {
        let session = memory.cast::<Session>();
        // SAFETY: the caller owns the mapping alone; the field lies within it.
        unsafe { (&raw mut (*session).config).write(*config) };
        // SAFETY: large, aligned and mapped for good (caller); all-zero bytes are valid for every field.
        let session = unsafe { &*session };
        session.ledger.set_total(whole_pages(config.budget_bytes));
        session.ledger.set_zip(config.zip_bytes);
        session.ledger.set_store(config.file_limit());
        for remote in config.remotes.iter().take_while(|remote| remote.is_some()) {
            session.servers.add(remote, false);
        }
        session.servers.raise_limit(config.store_limit_bytes);
        session.nonce.store(nonce, SeqCst);
        session.bytes.store(Session::BYTES as u64, SeqCst);
        session.version.store(VERSION, SeqCst);
        session.began_ms.store(now_ms, SeqCst);
        session.magic.store(MAGIC, SeqCst);
        session
    }

    /// Accepts a mapping as the session with this nonce.
    ///
    /// # Errors
    /// [`Refused`] says what does not fit; nothing was changed.
    ///
    /// # Safety
    /// `memory` is the start of a writable shared mapping of `bytes` bytes, aligned to 4096, that stays mapped as long
    /// as the process lives, and whose other users keep to this crate.
    pub unsafe fn open(memory: *mut u8, bytes: usize, nonce: u64) -> Result<&'static Session, Refused> {
        if bytes < Session::BYTES {
            return Err(Refused::Short);
        }
        // SAFETY: large enough (checked), aligned and mapped for good (caller); any bytes are valid for every field.
        let session = unsafe { &*memory.cast::<Session>() };
        if session.magic.load(SeqCst) != MAGIC {
            return Err(Refused::NotASession);
        }
        if session.version.load(SeqCst) != VERSION || session.bytes.load(SeqCst) != Session::BYTES as u64 {
            return Err(Refused::OtherVersion);
        }
        if session.nonce.load(SeqCst) != nonce {
            return Err(Refused::OtherSession);
        }
        Ok(session)
    }

    /// The settings.
    pub fn config(&self) -> &Config {
        &self.config
    }
    /// The budget.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }
    /// What the program marked.
    pub fn phases(&self) -> &Phases {
        &self.phases
    }
    /// Whose turn it is to compute.
    pub fn turns(&self) -> &Turns {
        &self.turns
    }
    /// The memory servers that are the store, if they are: those with which the session began, and behind them those that
    /// were added since. They become more, never fewer, and none changes its place.
    pub fn remotes(&self) -> &[Remote] {
        self.servers.remotes()
    }
    /// The memory servers as they are now.
    pub fn servers(&self) -> &Servers {
        &self.servers
    }
    /// Pages with fewer copies than wanted, of all processes.
    pub fn copies_missing(&self) -> u64 {
        self.used().iter().map(|process| process.copies().missing()).sum()
    }
    /// Bit by server: some process has the only copy of a page there.
    pub fn sole(&self) -> u32 {
        self.used().iter().fold(0, |all, process| all | process.copies().sole())
    }
    /// Counters of the processes that have ended.
    pub fn ended(&self) -> &Counters {
        &self.ended
    }
    /// Adds the counters of ended and of living processes to `total`.
    pub fn add_to(&self, total: &Counters) {
        self.ended.add_to(total);
        for process in self.used() {
            process.counters.add_to(total);
        }
        // More than that of one process, where several have a store.
        total.store_bytes.raise(self.ledger.peak_stored());
    }
    /// Monotonic clock in milliseconds when the session began.
    pub fn began_ms(&self) -> u64 {
        self.began_ms.load(SeqCst)
    }
    /// Tells which process the launcher became; its descendants may outlive it.
    pub fn set_root(&self, root: Identity) {
        self.root_start.store(root.start, SeqCst);
        self.space.store(root.space, SeqCst);
        self.root_pid.store(root.pid, SeqCst);
    }
    /// The process that the launcher became; `None` before it was told.
    pub fn root(&self) -> Option<Identity> {
        let pid = self.root_pid.load(SeqCst);
        (pid != 0).then(|| Identity { pid, start: self.root_start.load(SeqCst), space: self.space() })
    }
    /// The namespace in which agent and root have their numbers, as [`Identity::space`].
    pub fn space(&self) -> u32 {
        self.space.load(SeqCst)
    }
    /// Tells the process number and the user of the session's agent.
    pub fn set_agent(&self, pid: u32, user: u32) {
        self.agent_user.store(user, SeqCst);
        self.agent_pid.store(pid, SeqCst);
    }
    /// Tells what the name of the agent's socket is made of; not 0.
    pub fn set_door(&self, door: u64) {
        self.door.store(door, SeqCst);
    }
    /// What the name of the agent's socket is made of; 0 before it was told.
    pub fn door(&self) -> u64 {
        self.door.load(SeqCst)
    }
    /// User of the session's agent.
    pub fn agent_user(&self) -> u32 {
        self.agent_user.load(SeqCst)
    }
    /// What every process of the session knows, and nobody else.
    pub fn nonce(&self) -> u64 {
        self.nonce.load(SeqCst)
    }
    /// Process number of the session's agent, 0 before it was told.
    pub fn agent(&self) -> u32 {
        self.agent_pid.load(SeqCst)
    }
    /// True for one caller only: the one that writes the closing summary.
    pub fn claim_summary(&self) -> bool {
        self.closed.swap(1, SeqCst) == 0
    }
    /// Whether somebody has claimed the closing summary.
    pub fn closed(&self) -> bool {
        self.closed.load(SeqCst) != 0
    }
    /// A futex word that changes whenever a process joins or leaves. Waiters are woken by whoever calls
    /// [`Session::ring`], with a shared (not private) futex operation.
    pub fn bell(&self) -> &AtomicU32 {
        &self.bell
    }
    /// Changes the bell; the caller then wakes its waiters.
    pub fn ring(&self) {
        self.bell.fetch_add(1, SeqCst);
    }
    /// A number for a fork, never given twice in a session and never 0.
    pub fn next_fork(&self) -> u64 {
        self.forks.fetch_add(1, SeqCst) + 1
    }

    /// An entry of the table.
    pub fn process(&self, index: usize) -> Option<&Process> {
        self.table.get(index)
    }
    /// Entries that were ever claimed: all others are free and their memory untouched.
    pub fn used(&self) -> &[Process] {
        self.table.get(..self.used.load(SeqCst) as usize).unwrap_or(&self.table)
    }
    /// Live and expected processes other than entry `me`. Killed ones count until a sweep finds them.
    pub fn others(&self, me: Option<usize>) -> usize {
        self.used()
            .iter()
            .enumerate()
            .filter(|(index, process)| Some(*index) != me && process.lifecycle().0 != Lifecycle::Free)
            .count()
    }

    /// The process of entry `me` is about to end. It keeps what it holds until it has, when a sweep finds it: its memory
    /// is there until then. Returns whether it is the session's last, which writes the closing summary if it can
    /// [claim](Session::claim_summary) it: no other process lives that is not about to end too, nor the one that the
    /// launcher became, which may be running a program that is not in the session. `alive` as for [`Session::sweep`].
    pub fn leave(&self, me: usize, mut alive: impl FnMut(Identity) -> bool) -> bool {
        let Some(process) = self.table.get(me) else { return false };
        process.set_leaving(true);
        let mine = process.identity();
        let others = self.used().iter().enumerate().any(|(index, other)| {
            let word = other.state.load(SeqCst);
            let who = other.identity().unwrap_or_else(|| Lifecycle::owner(word));
            index != me && Lifecycle::from_u64(word) != Lifecycle::Free && !other.leaving() && alive(who)
        });
        if others {
            return false;
        }
        let Some(root) = self.root().filter(|root| Some(*root) != mine) else { return true };
        let leaving = self.used().iter().any(|other| other.identity() == Some(root) && other.leaving());
        leaving || !alive(root)
    }

    /// Claims an entry for the calling process. If it had one already (it executed another program), what that one
    /// held is given back and it begins anew. `None` when the table is full.
    pub fn claim(&self, who: Identity, now_ms: u64) -> Option<usize> {
        for process in self.used() {
            let seen = process.state.load(SeqCst);
            if process.identity() == Some(who) {
                self.clear(process, seen, who);
            }
        }
        let index = self.take_free(who)?;
        let process = self.table.get(index)?;
        process.since_ms.store(now_ms, SeqCst);
        process.start.store(who.start, SeqCst);
        process.space.store(who.space, SeqCst);
        let generation = self.generations.fetch_add(1, SeqCst) + 1;
        process.generation.store(generation, SeqCst);
        process.counters.processes.add(1);
        process.state.store(Lifecycle::live(who.pid, generation), SeqCst);
        Some(index)
    }

    /// Keeps an entry for a child that entry `parent` is about to fork. Leases that the child will need must be added
    /// to it before the fork. `None` when the table is full.
    pub fn expect(&self, parent: usize, now_ms: u64) -> Option<Expected> {
        let parent_entry = self.table.get(parent)?;
        let owner = parent_entry.known_as(parent_entry.lifecycle().1);
        let parent_generation = parent_entry.generation();
        let index = self.take_free(owner)?;
        let process = self.table.get(index)?;
        let generation = self.generations.fetch_add(1, SeqCst) + 1;
        process.since_ms.store(now_ms, SeqCst);
        process.generation.store(generation, SeqCst);
        process.parent.store(parent as u32, SeqCst);
        process.parent_generation.store(parent_generation, SeqCst);
        process.state.store(Lifecycle::Expected.owned_by(owner), SeqCst);
        Some(Expected { index, generation })
    }

    /// Takes over the entry that the parent kept, as the first thing in the child. False when it was given up in the
    /// meantime (the child had been stopped for longer than [`Session::EXPECTED_MS`]): then slots that the child needs
    /// may be gone, and it must not go on.
    pub fn adopt(&self, kept: Expected, parent: Identity, who: Identity) -> bool {
        let Some(process) = self.table.get(kept.index) else { return false };
        if process.generation() != kept.generation {
            return false;
        }
        let expected = Lifecycle::Expected.owned_by(parent);
        let claiming = Lifecycle::Claiming.owned_by(who);
        if process.state.compare_exchange(expected, claiming, SeqCst, SeqCst).is_err() {
            return false;
        }
        process.start.store(who.start, SeqCst);
        process.space.store(who.space, SeqCst);
        process.counters.processes.add(1);
        process.state.store(Lifecycle::live(who.pid, kept.generation), SeqCst);
        true
    }

    /// Gives up the entry kept for a child: the fork failed.
    pub fn cancel(&self, kept: Expected, parent: Identity) {
        if let Some(process) = self.table.get(kept.index) {
            if process.generation() == kept.generation {
                self.clear(process, Lifecycle::Expected.owned_by(parent), parent);
            }
        }
    }

    /// Gives up the entries kept for children of the calling process that ended before they took them over. None of its
    /// forks is under way, and `childless` tells, asked after the entries were looked at, that no child of it is left.
    pub fn forget_unborn(&self, parent: Identity, childless: impl FnOnce() -> bool) {
        let expected = Lifecycle::Expected.owned_by(parent);
        let mut unborn = [Expected { index: usize::MAX, generation: 0 }; 64];
        let entries = self.used().iter().enumerate().filter(|(_, process)| process.state.load(SeqCst) == expected);
        for (place, (index, process)) in unborn.iter_mut().zip(entries) {
            *place = Expected { index, generation: process.generation() };
        }
        if childless() {
            for entry in unborn {
                self.cancel(entry, parent);
            }
        }
    }

    /// The calling process ends: what it holds is given back and its counters are added to those of ended ones.
    /// Returns the pages that it held.
    pub fn release(&self, index: usize) -> u64 {
        let Some(process) = self.table.get(index) else { return 0 };
        let seen = process.state.load(SeqCst);
        match Lifecycle::from_u64(seen) {
            Lifecycle::Live => self.clear(process, seen, process.known_as((seen >> 32) as u32)).unwrap_or(0),
            _ => 0,
        }
    }

    /// Whether a live or expected process other than entry `me` reads slots that were alive at a fork.
    pub fn leased_by_others(&self, fork: u64, me: usize) -> bool {
        self.used().iter().enumerate().any(|(index, process)| {
            index != me
                && matches!(
                    process.lifecycle().0,
                    Lifecycle::Live | Lifecycle::Expected | Lifecycle::Claiming | Lifecycle::Clearing
                )
                && process.leases(fork)
        })
    }

    /// Milliseconds after which an entry kept for a child that never appeared is given up.
    pub const EXPECTED_MS: u64 = 10_000;

    /// Clears the entries of processes that are gone without having said so. `alive` tells whether a process lives, and
    /// runs the program that [`Process::set_program`] told, where that is not 0: one that has executed a program outside
    /// the session has none of its memory any more. With start time 0 it is asked about the number alone. `me` is the
    /// caller.
    pub fn sweep(&self, me: Identity, now_ms: u64, mut alive: impl FnMut(Identity, u64) -> bool) -> Swept {
        let mut swept = Swept::default();
        for process in self.used() {
            let seen = process.state.load(SeqCst);
            let (stage, pid) = (Lifecycle::from_u64(seen), (seen >> 32) as u32);
            let (live, owner) = (process.known_as(pid), Lifecycle::owner(seen));
            let program = process.program.load(SeqCst);
            let gone = match stage {
                Lifecycle::Free => false,
                Lifecycle::Live => !alive(live, program),
                Lifecycle::Claiming | Lifecycle::Clearing => {
                    (owner.pid, owner.space) != (me.pid, me.space) && !alive(owner, 0)
                }
                // The parent may end at once, while the child that it forked has not run yet: its end says nothing.
                Lifecycle::Expected => now_ms.saturating_sub(process.since_ms.load(SeqCst)) > Session::EXPECTED_MS,
            };
            if gone {
                if let Some(pages) = self.clear(process, seen, me) {
                    swept.processes += 1;
                    swept.pages += pages;
                }
            }
        }
        swept
    }

    /// Sets the free pages right after a process was killed between the two steps of taking or returning some: free
    /// must be the budget less what live processes hold. So, too, with what else the ledger counts of all processes: who
    /// starves, who is paged, what is managed, what is left for compressed pages and on disk. Returns the correction in pages, 0 when
    /// there was nothing to correct or when somebody was just changing something (try again later).
    pub fn audit(&self) -> i64 {
        let changes = self.ledger.changes.load(SeqCst);
        let free = self.ledger.free_pages();
        let total = self.ledger.total_pages();
        let seen = self.ledger.sums();
        let (zip_free, store_free) = (self.config.zip_bytes as i64, self.config.file_limit());
        let mut sums = Sums { zip_free, store_free, ..Sums::default() };
        let (mut held, mut pinned) = (0, 0);
        for process in self.used() {
            if process.moving.load(SeqCst) != 0 {
                return 0;
            }
            held += process.held_pages();
            pinned += process.pinned_pages();
            sums.starving += u32::from(process.starving());
            sums.engaged += u32::from(process.engaged());
            sums.managed += process.managed.load(SeqCst);
            sums.zip_free -= process.zip_bytes() as i64;
            sums.store_free -= process.store_bytes() as i64;
            sums.stored += process.stored.load(SeqCst) as i64;
        }
        let right_total = self.ledger.budget_pages().saturating_sub(pinned);
        let right = right_total as i64 - held as i64;
        if (right, right_total, sums) == (free, total, seen)
            || self.used().iter().any(|process| process.moving.load(SeqCst) != 0)
            || self.ledger.changes.load(SeqCst) != changes
        {
            return 0;
        }
        self.ledger.correct_sums(seen, sums);
        if self.ledger.correct((total, free), (right_total, right)) { right - free } else { 0 }
    }

    /// Finds a free entry and leaves it in stage Claiming under `owner`.
    fn take_free(&self, owner: Identity) -> Option<usize> {
        let claiming = Lifecycle::Claiming.owned_by(owner);
        let free = Lifecycle::Free as u64;
        let used = self.used.load(SeqCst) as usize;
        // First those used before, so that untouched ones stay without memory; `used` may grow meanwhile.
        for (index, process) in self.table.iter().enumerate() {
            if index >= used {
                self.used.fetch_max(index as u32 + 1, SeqCst);
            }
            if process.state.load(SeqCst) == free
                && process.state.compare_exchange(free, claiming, SeqCst, SeqCst).is_ok()
            {
                return Some(index);
            }
        }
        None
    }

    /// A process that reads slots that were alive at a fork.
    fn reader(&self, fork: u64) -> Option<&Process> {
        self.used().iter().find(|process| {
            !matches!(process.lifecycle().0, Lifecycle::Free | Lifecycle::Clearing) && process.leases(fork)
        })
    }

    /// Clears an entry if its state word still is `seen`, and returns the pages it held.
    fn clear(&self, process: &Process, seen: u64, me: Identity) -> Option<u64> {
        process.state.compare_exchange(seen, Lifecycle::Clearing.owned_by(me), SeqCst, SeqCst).ok()?;
        process.leave_store(&self.ledger, |fork| self.reader(fork));
        let pages = process.clear(&self.ledger, &self.ended);
        process.state.store(Lifecycle::Free as u64, SeqCst);
        Some(pages)
    }
}

#[cfg(test)]
pub(crate) mod tests;
