//! What happens by chance on the fake machine, and what it counts.
//! Odds are "one in so many" chances; 0 is never.

/// How rough the machine is.
#[derive(Clone, Copy, Debug)]
pub struct Script {
    /// Shortest time of a read or write, microseconds.
    pub io_min_us: u64,
    /// Longest time of a read or write, microseconds.
    pub io_max_us: u64,
    /// A read fails with EIO.
    pub read_error: u32,
    /// A write fails with EIO.
    pub write_error: u32,
    /// A write fails with ENOSPC.
    pub write_full: u32,
    /// A reservation fails with ENOSPC although there is space.
    pub reserve_full: u32,
    /// A read or write ends early, at a multiple of 512 bytes.
    pub short: u32,
    /// A read or write ends with EINTR or EAGAIN.
    pub interrupted: u32,
    /// A page that could move answers Busy, this time.
    pub busy: u32,
    /// No memory for zeroed frames, or for a copy.
    pub no_memory: u32,
    /// A fault is reported although its page has been served.
    pub stale_fault: u32,
    /// At a moment: a sleeping thread gets a signal and tries again by itself.
    pub signal: u32,
    /// At a moment: a running thread writes to a mapped page.
    pub write: u32,
    /// At a moment: a running thread reads a mapped page.
    pub read: u32,
    /// At a moment: a thread of the crowd touches any page, absent ones too.
    pub crowd: u32,
    /// Threads of the crowd.
    pub crowd_threads: u32,
    /// At a moment: the program discards a mapped page without a word to the pager.
    pub discard: u32,
    /// A poll reports only one event of many.
    pub trickle: u32,
    /// Pages can be guarded.
    pub guards: bool,
    /// The helper that makes pages ours alone is busy.
    pub helper_busy: u32,
    /// A thread asleep for so many calls of the pager has been forgotten.
    pub patience_calls: u64,
}

impl Script {
    /// Nothing by chance except the order and duration of I/O.
    pub const fn calm() -> Script {
        Script {
            io_min_us: 20,
            io_max_us: 400,
            read_error: 0,
            write_error: 0,
            write_full: 0,
            reserve_full: 0,
            short: 0,
            interrupted: 0,
            busy: 0,
            no_memory: 0,
            stale_fault: 0,
            signal: 0,
            write: 0,
            read: 0,
            crowd: 0,
            crowd_threads: 0,
            discard: 0,
            trickle: 0,
            guards: true,
            helper_busy: 0,
            patience_calls: 1_000_000,
        }
    }

    /// Running threads, signals and passing failures, but nothing that may end the program.
    pub const fn rough() -> Script {
        Script {
            short: 12,
            interrupted: 12,
            busy: 40,
            no_memory: 60,
            stale_fault: 20,
            signal: 40,
            write: 2,
            read: 4,
            crowd: 30,
            crowd_threads: 4,
            trickle: 4,
            helper_busy: 3,
            ..Script::calm()
        }
    }
}

/// What was done on a machine.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Calls of the seam.
    pub calls: u64,
    /// Faults reported.
    pub faults: u64,
    /// Reads started.
    pub reads: u64,
    /// Pages asked for by reads.
    pub pages_read: u64,
    /// Writes started.
    pub writes: u64,
    /// Pages handed to writes.
    pub pages_written: u64,
    /// Reads and writes that did not transfer everything.
    pub failed_io: u64,
    /// Pages moved to the program.
    pub moved_in: u64,
    /// Pages moved from the program.
    pub moved_out: u64,
    /// Moves from the program while a thread of it was awake that had waited for a page.
    pub interrupting: u64,
    /// Large pages that arrived whole.
    pub huge_in: u64,
    /// Large pages that left whole.
    pub huge_out: u64,
    /// Large pages split.
    pub splits: u64,
    /// Pages copied to the program.
    pub copies: u64,
    /// Of these, guarded ones.
    pub guarded: u64,
    /// Guarded pages dropped.
    pub dropped: u64,
    /// Zero-page mappings made.
    pub zero_ins: u64,
    /// Pages looked at to find those that are mapped.
    pub looked: u64,
    /// Frames hashed.
    pub digests: u64,
    /// Frames filled with zeros.
    pub zeroed: u64,
    /// Wake calls.
    pub wakes: u64,
    /// Polls.
    pub polls: u64,
    /// Reservations asked for.
    pub reserves: u64,
    /// Slots punched.
    pub punched: u64,
    /// Errands of the helper.
    pub errands: u64,
}
