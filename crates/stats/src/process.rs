//! One process of a session: who it is, what it holds of the budget, whose stores it still reads, what it counted.

use core::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering::SeqCst};

use crate::{Copies, Counters, Ledger, Seat};

/// Leases a process can hold: one for each fork between it and the oldest ancestor whose store it reads.
pub const LEASES: usize = 255;

/// A process as the kernel knows it. Process numbers are used again; with the start time they are not. They mean something
/// in their namespace only: the first process of each has the number 1.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Identity {
    /// Process number, as the process itself sees it.
    pub pid: u32,
    /// Start time in clock ticks since boot (field 22 of /proc/PID/stat).
    pub start: u64,
    /// The namespace of its number, at most [`Identity::SPACES`]; 0 where that is not known.
    pub space: u32,
}

impl Identity {
    /// A state word has room for that much of a namespace's number beside a process's.
    pub const SPACES: u32 = u32::MAX >> STAGE_BITS;
}

/// Bits of a state word that say the stage.
const STAGE_BITS: u32 = 3;

/// Where an entry of the table is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Lifecycle {
    /// Nobody's.
    Free = 0,
    /// Being filled in by the owner.
    Claiming = 1,
    /// The owner, a parent, is about to fork; the child will take it over.
    Expected = 2,
    /// The owner's own.
    Live = 3,
    /// Being cleared by the owner.
    Clearing = 4,
}

impl Lifecycle {
    pub(crate) const fn from_u64(word: u64) -> Lifecycle {
        match word as u32 & ((1 << STAGE_BITS) - 1) {
            1 => Lifecycle::Claiming,
            2 => Lifecycle::Expected,
            3 => Lifecycle::Live,
            4 => Lifecycle::Clearing,
            _ => Lifecycle::Free,
        }
    }
    /// The state word of a live process. The entry's generation is part of it: whoever looked at a process that has executed
    /// another program since, and has got the same entry again, does not take the one for the other.
    pub(crate) const fn live(pid: u32, generation: u64) -> u64 {
        Lifecycle::Live as u64 | (pid as u64) << 32 | (generation << STAGE_BITS) as u32 as u64
    }
    /// The state word of this stage, which is not Live, under the ownership of a process.
    pub(crate) const fn owned_by(self, owner: Identity) -> u64 {
        self as u64 | (owner.pid as u64) << 32 | (owner.space << STAGE_BITS) as u64
    }
    /// Whose such a state word is, without the start time.
    pub(crate) const fn owner(word: u64) -> Identity {
        Identity { pid: (word >> 32) as u32, start: 0, space: word as u32 >> STAGE_BITS }
    }
}

/// An entry of the session's table.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Process {
    /// [`Lifecycle`] in the lower half, with the lowest bits of the generation of a live one above it, else the namespace of the
    /// owner; process number of the owner in the upper half.
    pub(crate) state: AtomicU64,
    pub(crate) start: AtomicU64,
    pub(crate) generation: AtomicU64,
    pub(crate) parent_generation: AtomicU64,
    pub(crate) parent: AtomicU32,
    /// 1 while `held` and the ledger are being changed together.
    pub(crate) moving: AtomicU32,
    pub(crate) held: AtomicU64,
    pub(crate) pinned: AtomicU64,
    pub(crate) managed: AtomicI64,
    /// Bytes taken for compressed pages.
    pub(crate) zipped: AtomicU64,
    /// Bytes that its store holds.
    pub(crate) stored: AtomicU64,
    /// Bytes that its store's file takes on disk.
    pub(crate) filed: AtomicU64,
    /// The same of files whose processes have ended, and which it reads.
    pub(crate) outlived: AtomicU64,
    /// The fork as of which its own store is leased.
    leased_as: AtomicU64,
    /// Bit 0: counted as starving; bit 1: counted as engaged; bit 2: about to end; bit 3: misses pages.
    pub(crate) flags: AtomicU32,
    /// Namespace of a live one's process number.
    pub(crate) space: AtomicU32,
    /// See [`Process::set_program`].
    pub(crate) program: AtomicU64,
    /// Milliseconds on the monotonic clock at which the entry was claimed or expected.
    pub(crate) since_ms: AtomicU64,
    /// First 16 bytes of the program's name, in memory order.
    pub(crate) name: [AtomicU64; 2],
    /// What the process did.
    pub counters: Counters,
    copies: Copies,
    seat: Seat,
    lease_count: AtomicU32,
    lease_spare: AtomicU32,
    leases: [AtomicU64; LEASES],
}

/// Counts bytes on disk with a process that still reads what they hold, if there is one.
fn pass_on<'a>(bytes: u64, ledger: &Ledger, reader: impl Fn() -> Option<&'a Process>) {
    while let Some(reader) = if bytes > 0 { reader() } else { None } {
        reader.outlived.fetch_add(bytes, SeqCst);
        if !matches!(reader.lifecycle().0, Lifecycle::Free | Lifecycle::Clearing) {
            return;
        }
        // It has ended meanwhile. Where the bytes are not there any more, they were given back with its own.
        if reader.outlived.fetch_update(SeqCst, SeqCst, |all| all.checked_sub(bytes)).is_err() {
            return;
        }
    }
    ledger.put_store(bytes);
}

const STARVING: u32 = 1;
const ENGAGED: u32 = 2;
const LEAVING: u32 = 4;
const HUNGRY: u32 = 8;

impl Process {
    /// Stage and owner's process number (0 when free).
    pub fn lifecycle(&self) -> (Lifecycle, u32) {
        let word = self.state.load(SeqCst);
        (Lifecycle::from_u64(word), (word >> 32) as u32)
    }
    /// Who it is, when it is live.
    pub fn identity(&self) -> Option<Identity> {
        let (stage, pid) = self.lifecycle();
        (stage == Lifecycle::Live).then(|| self.known_as(pid))
    }
    /// A live process of this entry, by its number.
    pub(crate) fn known_as(&self, pid: u32) -> Identity {
        Identity { pid, start: self.start.load(SeqCst), space: self.space.load(SeqCst) }
    }
    /// Tells by what to know the program that runs: where its stack begins (field 28 of /proc/PID/stat), which a fork leaves
    /// and another program changes. 0 where that cannot be told.
    pub fn set_program(&self, stack: u64) {
        self.program.store(stack, SeqCst);
    }
    /// A number that no other process of the session has or will have.
    pub fn generation(&self) -> u64 {
        self.generation.load(SeqCst)
    }
    /// Entry and generation of the process that forked this one; `None` for the first one of a tree.
    pub fn parent(&self) -> Option<(usize, u64)> {
        let generation = self.parent_generation.load(SeqCst);
        (generation != 0).then(|| (self.parent.load(SeqCst) as usize, generation))
    }
    /// Which copies of its pages there are at memory servers.
    pub fn copies(&self) -> &Copies {
        &self.copies
    }
    /// Pages of the budget that it holds.
    pub fn held_pages(&self) -> u64 {
        self.held.load(SeqCst)
    }
    /// Pages that it took out of the budget for memory that is never paged.
    pub fn pinned_pages(&self) -> u64 {
        self.pinned.load(SeqCst)
    }
    /// Pages it manages, in RAM or not.
    pub fn managed_pages(&self) -> u64 {
        self.managed.load(SeqCst).max(0) as u64
    }
    /// The program's name, at most 15 bytes; unused bytes are zero.
    pub fn name(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        for (place, word) in bytes.chunks_exact_mut(8).zip(&self.name) {
            place.copy_from_slice(&word.load(SeqCst).to_ne_bytes());
        }
        bytes
    }
    /// Sets the program's name; what does not fit is cut.
    pub fn set_name(&self, name: &[u8]) {
        let mut bytes = [0; 16];
        for (place, byte) in bytes.iter_mut().take(15).zip(name) {
            *place = *byte;
        }
        for (piece, word) in bytes.chunks_exact(8).zip(&self.name) {
            let mut number = [0; 8];
            number.copy_from_slice(piece);
            word.store(u64::from_ne_bytes(number), SeqCst);
        }
    }

    /// Does what changes the entry and the ledger together: an audit that comes between does not trust what it sees.
    fn together<T>(&self, ledger: &Ledger, work: impl FnOnce() -> T) -> T {
        self.moving.fetch_add(1, SeqCst);
        ledger.changes.fetch_add(1, SeqCst);
        let result = work();
        self.moving.fetch_sub(1, SeqCst);
        result
    }
    /// Takes up to `pages` from the ledger and returns how many it got. Only the process itself calls this.
    pub fn acquire(&self, ledger: &Ledger, pages: u64) -> u64 {
        self.together(ledger, || {
            let granted = ledger.take(pages);
            self.held.fetch_add(granted, SeqCst);
            granted
        })
    }
    /// Takes all of `pages` from the ledger, below zero if need be: for memory that is in RAM already.
    pub fn overdraw(&self, ledger: &Ledger, pages: u64) {
        self.together(ledger, || {
            ledger.take_all(pages);
            self.held.fetch_add(pages, SeqCst);
        });
    }
    /// Gives `pages` back to the ledger, at most what it holds; returns how many that were.
    pub fn give_back(&self, ledger: &Ledger, pages: u64) -> u64 {
        self.together(ledger, || {
            let returned = self.let_go(pages);
            ledger.put(returned);
            returned
        })
    }
    /// Takes pages out of the budget for memory that is never paged: all of them, or none (false). Only the process
    /// itself calls this.
    pub fn pin(&self, ledger: &Ledger, pages: u64) -> bool {
        self.together(ledger, || self.pinned_more(pages, ledger.pin(pages)))
    }
    /// Takes pages out of the budget that are held still, also by this process: they are given up as pagers find time.
    /// All of them, or none (false).
    pub fn pin_ahead(&self, ledger: &Ledger, pages: u64) -> bool {
        self.together(ledger, || self.pinned_more(pages, ledger.pin_ahead(pages)))
    }
    fn pinned_more(&self, pages: u64, taken: bool) -> bool {
        if taken {
            self.pinned.fetch_add(pages, SeqCst);
        }
        taken
    }
    /// Changes the session's budget, in pages; false when too little would be left beside what is pinned.
    pub fn set_budget(&self, ledger: &Ledger, pages: u64) -> bool {
        self.together(ledger, || ledger.set_budget(pages))
    }
    /// Puts pages back that [`Process::pin`] took out.
    pub fn unpin(&self, ledger: &Ledger, pages: u64) {
        self.together(ledger, || {
            let less = |pinned: u64| Some(pinned.saturating_sub(pages));
            let before = self.pinned.fetch_update(SeqCst, SeqCst, less).unwrap_or(0);
            ledger.unpin(before.min(pages));
        });
    }
    /// Hands `pages`, at most what it holds, to another entry, past the ledger, where others might take them.
    pub fn hand_over(&self, ledger: &Ledger, other: &Process, pages: u64) {
        self.together(ledger, || other.held.fetch_add(self.let_go(pages), SeqCst));
    }
    /// Takes bytes for compressed pages: all of them, or none (false).
    pub fn acquire_zip(&self, ledger: &Ledger, bytes: u64) -> bool {
        self.together(ledger, || {
            let taken = ledger.take_zip(bytes);
            if taken {
                self.zipped.fetch_add(bytes, SeqCst);
            }
            taken
        })
    }
    /// Gives bytes back that were taken so.
    pub fn give_back_zip(&self, ledger: &Ledger, bytes: u64) {
        self.together(ledger, || {
            self.zipped.fetch_sub(bytes, SeqCst);
            ledger.put_zip(bytes);
        });
    }
    /// Bytes that it has taken for compressed pages.
    pub fn zip_bytes(&self) -> u64 {
        self.zipped.load(SeqCst)
    }
    /// Takes bytes on disk for its store's file: all of them, or none (false).
    pub fn acquire_store(&self, ledger: &Ledger, bytes: u64) -> bool {
        self.together(ledger, || {
            let taken = ledger.take_store(bytes);
            if taken {
                self.filed.fetch_add(bytes, SeqCst);
            }
            taken
        })
    }
    /// Gives bytes back that were taken so.
    pub fn give_back_store(&self, ledger: &Ledger, bytes: u64) {
        self.together(ledger, || {
            let less = |filed: u64| Some(filed.saturating_sub(bytes));
            let before = self.filed.fetch_update(SeqCst, SeqCst, less).unwrap_or(0);
            ledger.put_store(before.min(bytes));
        });
    }
    /// Bytes on disk that are counted with it: those of its own file, and of files that it reads whose processes have ended.
    pub fn store_bytes(&self) -> u64 {
        self.filed.load(SeqCst) + self.outlived.load(SeqCst)
    }
    /// Says how many bytes its store holds.
    pub fn set_stored(&self, ledger: &Ledger, bytes: u64) {
        if self.stored.load(SeqCst) != bytes {
            self.together(ledger, || ledger.change_stored(bytes as i64 - self.stored.swap(bytes, SeqCst) as i64));
        }
        self.counters.store_bytes.raise(bytes);
    }
    /// Says as of which fork others lease its store; 0: nobody does.
    pub fn set_leased_as(&self, fork: u64) {
        self.leased_as.store(fork, SeqCst);
    }
    /// The space of its store's file is given back; of a file that another process still reads, which `reader` tells by the
    /// fork as of which that leases it, it is counted with that one. The caller owns the entry in stage Clearing.
    pub(crate) fn leave_store<'a>(&self, ledger: &Ledger, reader: impl Fn(u64) -> Option<&'a Process>) {
        self.together(ledger, || {
            let own = self.leased_as.swap(0, SeqCst);
            pass_on(self.filed.swap(0, SeqCst), ledger, || reader(own));
            // Files of several ancestors are counted together: with whoever reads one of them.
            pass_on(self.outlived.swap(0, SeqCst), ledger, || self.each_lease().find_map(&reader));
            ledger.change_stored(-(self.stored.swap(0, SeqCst) as i64));
        });
    }
    /// Counts off `pages`, at most what it holds; returns how many that were.
    fn let_go(&self, pages: u64) -> u64 {
        let mut held = self.held.load(SeqCst);
        loop {
            let gone = pages.min(held);
            match self.held.compare_exchange_weak(held, held - gone, SeqCst, SeqCst) {
                Ok(_) => return gone,
                Err(now) => held = now,
            }
        }
    }
    /// Counts pages that came under management (positive) or left it.
    pub fn change_managed(&self, ledger: &Ledger, by: i64) {
        let now = self.together(ledger, || {
            ledger.change_managed(by);
            self.managed.fetch_add(by, SeqCst) + by
        });
        if by > 0 {
            self.counters.peak_managed.raise(now as u64);
        }
    }
    /// Says whether it waits for pages.
    pub fn set_starving(&self, ledger: &Ledger, yes: bool) {
        self.count_flag(ledger, STARVING, yes, Ledger::change_starving);
    }
    /// Says whether its memory is being paged.
    pub fn set_engaged(&self, ledger: &Ledger, yes: bool) {
        self.count_flag(ledger, ENGAGED, yes, Ledger::change_engaged);
    }
    /// Where it is as a rank of an MPI job.
    pub fn seat(&self) -> &Seat {
        &self.seat
    }
    /// Whether its memory is being paged.
    pub fn engaged(&self) -> bool {
        self.flags.load(SeqCst) & ENGAGED != 0
    }
    /// Whether it waits for pages.
    pub fn starving(&self) -> bool {
        self.flags.load(SeqCst) & STARVING != 0
    }
    /// Whether it is paged and misses pages, though it may have its part of the budget.
    pub fn hungry(&self) -> bool {
        self.flags.load(SeqCst) & (HUNGRY | ENGAGED) == HUNGRY | ENGAGED
    }
    /// Says whether it misses pages.
    pub fn set_hungry(&self, yes: bool) {
        if (self.flags.load(SeqCst) & HUNGRY != 0) != yes {
            self.set_flag(HUNGRY, yes);
        }
    }
    /// Whether it has said that it is about to end.
    pub fn leaving(&self) -> bool {
        self.flags.load(SeqCst) & LEAVING != 0
    }
    pub(crate) fn set_leaving(&self, yes: bool) {
        self.set_flag(LEAVING, yes);
    }
    /// Sets or clears a flag that the ledger counts.
    fn count_flag(&self, ledger: &Ledger, flag: u32, yes: bool, change: impl FnOnce(&Ledger, bool)) {
        if (self.flags.load(SeqCst) & flag != 0) != yes {
            self.together(ledger, || {
                if self.set_flag(flag, yes) {
                    change(ledger, yes);
                }
            });
        }
    }
    /// Sets or clears a flag; true when that changed it.
    fn set_flag(&self, flag: u32, yes: bool) -> bool {
        let before = if yes { self.flags.fetch_or(flag, SeqCst) } else { self.flags.fetch_and(!flag, SeqCst) };
        (before & flag != 0) != yes
    }

    #[cfg(test)]
    pub(crate) fn set_flags(&self, flags: u32) {
        self.flags.store(flags, SeqCst);
    }

    /// Adds a lease: the process reads slots that were alive at the fork with this number. False when the list is
    /// full. Only the owner changes the list.
    pub fn lease(&self, fork: u64) -> bool {
        let count = self.lease_count.load(SeqCst);
        let Some(place) = self.leases.get(count as usize) else { return false };
        place.store(fork, SeqCst);
        self.lease_count.store(count + 1, SeqCst);
        true
    }
    /// Takes a lease away: nothing of that fork is read any more.
    pub fn end_lease(&self, fork: u64) {
        for place in &self.leases {
            // The count stays: zero is no fork's number, and later leases keep their places.
            let _ = place.compare_exchange(fork, 0, SeqCst, SeqCst);
        }
    }
    /// Whether it holds a lease.
    pub fn leases(&self, fork: u64) -> bool {
        self.each_lease().any(|lease| lease == fork)
    }
    /// The forks whose slots it reads.
    pub fn each_lease(&self) -> impl Iterator<Item = u64> + '_ {
        let count = self.lease_count.load(SeqCst) as usize;
        self.leases.iter().take(count).map(|lease| lease.load(SeqCst)).filter(|lease| *lease != 0)
    }

    /// Returns everything it held to the ledger, adds its counters to `total` and ends its leases. The caller owns
    /// the entry in stage Clearing. Returns the pages it held.
    pub(crate) fn clear(&self, ledger: &Ledger, total: &Counters) -> u64 {
        self.seat.clear();
        self.copies.set(0, 0, 0, 0, &[0; crate::SERVERS + 1]);
        self.moving.store(1, SeqCst);
        ledger.changes.fetch_add(1, SeqCst);
        let held = self.held.swap(0, SeqCst);
        ledger.put(held);
        ledger.unpin(self.pinned.swap(0, SeqCst));
        ledger.put_zip(self.zipped.swap(0, SeqCst));
        ledger.change_managed(-self.managed.swap(0, SeqCst));
        self.set_starving(ledger, false);
        self.set_engaged(ledger, false);
        self.moving.store(0, SeqCst);
        self.set_leaving(false);
        self.set_hungry(false);
        self.counters.fold_into(total);
        self.lease_count.store(0, SeqCst);
        self.start.store(0, SeqCst);
        self.space.store(0, SeqCst);
        self.program.store(0, SeqCst);
        self.parent_generation.store(0, SeqCst);
        held
    }
}
