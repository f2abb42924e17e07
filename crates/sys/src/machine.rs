//! The seam: what the pager asks of the kernel, and what the kernel reports back.
//!
//! One `Machine` belongs to one shard and is used by that shard's pager thread alone. No call may sleep on managed
//! memory; only [`Machine::poll`] may sleep at all.

use crate::pagemap::Mapped;
use ream_page::{Block, Frame, Page, Pages, Run, Slot, StoreId};

/// A positive Linux error number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Errno(pub u16);

/// Why a move ended early.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// EBUSY that did not pass within the retries: the page is pinned, shared with a forked child, or under write-back.
    Busy,
    /// Nothing is mapped at the source (ENOENT at a page inside a mapping).
    Absent,
    /// Something is mapped at the destination already (EEXIST), and the source page is still there.
    Exists,
    /// The mapping does not allow it: not one mapping, not writable, locked, shared, or gone (EINVAL, ENOENT of the
    /// mapping, EFAULT). The pages stay where they are.
    Mapping,
}

/// Outcome of a move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moved {
    /// Pages moved, counted from the first.
    pub pages: u32,
    /// What stopped it; `None` when all were moved.
    pub stop: Option<Stop>,
}

/// Outcome of a copy or of filling with zeros.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Copied {
    /// Installed.
    Done,
    /// A page is mapped there already (EEXIST).
    Exists,
    /// The range is no longer registered or mapped (ENOENT, EINVAL).
    Gone,
    /// No memory (ENOMEM) or another passing failure; try again later.
    Failed,
}

/// What the content of a page hashes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Digest {
    /// Keyed universal hash of the 4096 bytes; see `digest.rs` for the collision bound.
    pub hash: u64,
    /// Whether all bytes are zero (exact, not by the hash).
    pub zero: bool,
}

/// What [`Machine::poll`] reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A thread sleeps on an absent page.
    Fault {
        /// The page.
        page: Page,
        /// Whether it wanted to write.
        write: bool,
        /// Thread id, 0 when unknown.
        thread: u32,
    },
    /// A read or write ended: `result` is its byte count, or a negative errno.
    Io {
        /// The tag it was started with.
        tag: u32,
        /// Bytes transferred or negative errno.
        result: i32,
    },
    /// A thread sleeps that wants to write to a guarded page.
    Guarded {
        /// The page.
        page: Page,
    },
    /// The program unmapped the pages (already done; any new mapping there is not registered).
    Unmapped {
        /// The pages.
        run: Run,
    },
    /// The program moved a mapping; registration moved with it.
    Remapped {
        /// Old first page.
        from: Page,
        /// New first page.
        to: Page,
        /// Number of pages moved.
        pages: u64,
    },
}

/// How long [`Machine::poll`] may sleep when there is nothing to report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// Not at all.
    No,
    /// At most so many microseconds.
    Micros(u64),
    /// Until something happens.
    Forever,
}

/// A batch of events, filled by [`Machine::poll`].
pub struct Events {
    list: [Event; Events::CAPACITY],
    len: usize,
}

impl Events {
    /// Most events of one batch.
    pub const CAPACITY: usize = 128;

    /// An empty batch.
    pub const fn new() -> Events {
        Events { list: [Event::Io { tag: 0, result: 0 }; Events::CAPACITY], len: 0 }
    }
    /// Empties the batch.
    pub fn clear(&mut self) {
        self.len = 0;
    }
    /// Adds an event; returns false, and does nothing, when the batch is full.
    pub fn push(&mut self, event: Event) -> bool {
        match self.list.get_mut(self.len) {
            Some(place) => {
                *place = event;
                self.len += 1;
                true
            }
            None => false,
        }
    }
    /// Puts those that fulfil this before all others; both keep their order.
    pub fn put_first(&mut self, first: impl Fn(&Event) -> bool) {
        let Some(list) = self.list.get_mut(..self.len) else { return };
        let mut sorted = 0;
        for place in 0..list.len() {
            if list.get(place).is_some_and(&first) {
                if let Some(part) = list.get_mut(sorted..=place) {
                    part.rotate_right(1);
                }
                sorted += 1;
            }
        }
    }
    /// Free places left.
    pub fn room(&self) -> usize {
        Events::CAPACITY - self.len
    }
    /// The events, oldest first.
    pub fn as_slice(&self) -> &[Event] {
        self.list.get(..self.len).unwrap_or(&[])
    }
}

impl Default for Events {
    fn default() -> Self {
        Events::new()
    }
}

/// Most NUMA nodes that are told apart; the memory of a machine with more is taken for that of one.
pub const NODES: usize = 8;

/// Everything a shard needs from outside.
///
/// The staging area is a range of frames `0 .. frames()`, cut in two mappings: small frames `0 .. huge_start()`, never
/// backed by large pages, and huge frames from `huge_start()` (a multiple of 512) to the end, each 512 places long and
/// eligible for a large page. A place is empty (a hole) until memory is moved, read or zeroed into it.
pub trait Machine {
    /// Number of places in the staging area.
    fn frames(&self) -> u32;
    /// First place of the huge area, a multiple of 512.
    fn huge_start(&self) -> u32;
    /// Whether a block may be given a large page.
    fn may_be_large(&self, _block: Block) -> bool {
        true
    }

    /// Moves populated frames to absent pages, and wakes the threads that sleep on those moved. The destination becomes a large page when 512 aligned
    /// huge frames that are one large page go to one whole block without a page table.
    fn move_in(&mut self, frame: Frame, page: Page, pages: u32) -> Moved;
    /// Moves mapped pages to empty frames, atomically page by page: nothing can be written to them unseen. Passing
    /// EBUSY is retried inside.
    fn move_out(&mut self, page: Page, frame: Frame, pages: u32) -> Moved;
    /// Copies one populated frame to an absent page, and wakes the threads that sleep on it; the frame stays.
    fn copy_in(&mut self, frame: Frame, page: Page) -> Copied;
    /// The same for a run of pages, as far as it goes. With `guard` they appear write-protected: whoever wants to write to
    /// one sleeps, and is reported ([`Event::Guarded`]).
    fn copy_run_in(&mut self, frame: Frame, page: Page, pages: u32, guard: bool) -> Moved;
    /// Whether pages can be guarded now.
    fn guards(&self) -> bool {
        false
    }
    /// Ends the guard on pages that have one, and wakes whoever sleeps on them. `Gone` when the run is not one registered mapping,
    /// `Failed` when mappings have changed in a way that the pager has not heard of.
    fn unguard(&mut self, run: Run) -> Copied;
    /// Drops what is still guarded of these runs, and tells what that was: those pages are absent then. Nothing when mappings
    /// have changed, or may be changing, in a way that the pager has not heard of.
    fn drop_guarded(&mut self, runs: &[Run], dropped: &mut dyn FnMut(Run));
    /// Has all threads of the program stand still, as far as they do within some milliseconds. Nothing depends on it:
    /// pages are installed atomically.
    fn suspend(&mut self) {}
    /// Lets them go on.
    fn resume(&mut self) {}
    /// Maps zeros at an absent page; `Exists` proves that something is mapped there. Wakes nobody.
    fn zero_in(&mut self, page: Page) -> Copied;
    /// Wakes the threads that sleep on pages of the run.
    fn wake(&mut self, run: Run);
    /// Reports the mapped pages of a run in ascending order, as runs, with how each is mapped. Pages that map the shared
    /// page of zeros count as mapped. Ends early when told so by `false`.
    fn present(&mut self, run: Run, found: &mut dyn FnMut(Run, Mapped) -> bool);
    /// Registers a range of the program's memory, so that touches of absent pages are reported.
    fn register(&mut self, run: Run) -> Result<(), Errno>;
    /// Ends registration; sleepers are woken and fault again.
    fn unregister(&mut self, run: Run) -> Result<(), Errno>;
    /// Frees the page table of a block none of whose pages is mapped, so that a huge move into it does not split.
    fn drop_table(&mut self, block: Block);
    /// A helper thread makes those of the pages that are mapped, and that a forked child shares with us, ours alone
    /// (MADV_POPULATE_WRITE); returns at once, and false when none are mapped or the helper is busy. [`Event::Io`] with `tag`
    /// tells the end; a negative result, that some cannot be written.
    fn unshare(&mut self, tag: u32, pages: &Pages) -> bool;

    /// Makes frames hold zeros, populating empty ones. Returns false when there is no memory.
    fn zero_frames(&mut self, frame: Frame, pages: u32) -> bool;
    /// Gives the memory of runs of frames back to the kernel; they become empty.
    fn empty_frames(&mut self, runs: &[(Frame, u32)]);
    /// Hashes a populated frame; `next`, if there is one, will be the next.
    fn digest_then(&mut self, frame: Frame, next: Option<Frame>) -> Digest;
    /// Hashes a populated frame.
    fn digest(&mut self, frame: Frame) -> Digest {
        self.digest_then(frame, None)
    }

    /// Starts a read of consecutive slots into consecutive frames (populated or empty). `tag` is free again when its
    /// event has been reported. At most [`Machine::io_limit`] operations may be in flight.
    fn read(&mut self, tag: u32, store: StoreId, slot: Slot, frame: Frame, pages: u32);
    /// Whether a thread waits for what is read from now on; a store may have a faster way for that.
    fn waited_for(&mut self, _on: bool) {}
    /// Starts a write of runs of frames, one after the other, to consecutive slots of the process's own store. At most
    /// [`Machine::PARTS`] runs. The frames must not change until the event is reported.
    fn write(&mut self, tag: u32, slot: Slot, parts: &[(Frame, u32)]);
    /// Ensures that the process's own store has space for slots `0 .. slots` (fallocate); ENOSPC and the like are
    /// returned. May take milliseconds.
    fn reserve(&mut self, volume: u8, slots: u32) -> Result<(), Errno>;
    /// Slots by which a volume may become longer, as things are, where others share its limit.
    fn room(&self, _volume: u8) -> u32 {
        u32::MAX
    }
    /// Whether others have left some of a limit that is shared, since it last kept a reservation from being had. Told once.
    fn has_room_again(&mut self) -> bool {
        false
    }
    /// Ensures that slots of one segment, reserved once, have space although it may have been given back: false when a limit
    /// does not allow that now.
    fn reserve_again(&mut self, _slot: Slot, _pages: u32) -> bool {
        true
    }
    /// Nobody needs what a slot of the own store holds any more; it may be written anew. Only a hint.
    fn freed(&mut self, _slot: Slot) {}
    /// Gives the space of slots back to the file system (best effort, asynchronous where possible).
    fn punch(&mut self, slot: Slot, pages: u32);
    /// Most reads and writes in flight; tags are below this number.
    fn io_limit(&self) -> u32;
    /// Most runs of frames in one write.
    const PARTS: usize = 128;

    /// Submits what was started, without waiting for anything or telling what has happened. What is left to a poll does
    /// no harm.
    fn submit(&mut self) {}
    /// Submits what was started, reports what happened, and sleeps as told if there is nothing. Events are appended.
    fn poll(&mut self, wait: Wait, events: &mut Events);
    /// Reports what threads ask for, and changes of mappings, as far as `events` has room; nothing else that has happened.
    fn ask(&mut self, events: &mut Events) {
        let _ = events;
    }
    /// Microseconds on a clock that does not go backwards.
    fn now_us(&mut self) -> u64;
    /// NUMA nodes that memory may come from, 1 to [`NODES`], numbered from 0. With one, none of the three below is called.
    fn nodes(&self) -> u8 {
        1
    }
    /// Reports on which nodes mapped pages of a run lie, in ascending order, as runs.
    fn nodes_of(&mut self, _run: Run, _found: &mut dyn FnMut(Run, u8)) {}
    /// The node of the processor on which a thread ran last.
    fn node_of_thread(&mut self, _thread: u32) -> Option<u8> {
        None
    }
    /// Frames that are populated from now on, also by reads that are started, and pages that are copied in, come from
    /// this node, as long as it has memory.
    fn prefer(&mut self, _node: u8) {}
    /// Moves the pager's thread to the processor on which `thread` last ran, or lets it run anywhere (`None`).
    fn follow(&mut self, thread: Option<u32>);
    /// Whether it is kept on a thread's processor, so that what it wakes there runs before it goes on itself.
    fn follows(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_events_are_put_first_in_their_order() {
        let mut events = Events::new();
        for tag in 0..10 {
            events.push(Event::Io { tag, result: 0 });
        }
        events.put_first(|event| matches!(event, Event::Io { tag, .. } if tag % 3 == 2));
        let tags = events.as_slice().iter().map(|event| if let Event::Io { tag, .. } = event { *tag } else { 99 });
        assert!(tags.eq([2, 5, 8, 0, 1, 3, 4, 6, 7, 9]));
    }
}
