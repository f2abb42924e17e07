//! Connecting to a server again while the pager goes on: a thread that sleeps in the calls, one server at a time.

use super::LANES;
use super::lane::{Lane, Way};
use crate::file;
use crate::memory::MapSlice;
use crate::thread::{self, Files, Thread};
use crate::{Errno, follow, process};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, Ordering};
use ream_wire::hello::{NEW_STORE, Purpose};
use ream_wire::message::{HEADER, between};
use ream_wire::{PAGE, SEAL};

const STACK_BYTES: usize = 128 << 10;

/// Lanes to a server, and the number of the store there.
pub(super) type Dialled = Result<([Lane; LANES], u32), Errno>;

/// Opens the lanes to a server: a store of its own.
pub(super) fn dial(way: &Way, deadline_us: u64) -> Dialled {
    let deadline = process::now_us() + deadline_us;
    let requests = super::UNANSWERED as usize * (HEADER + SEAL);
    let pages = HEADER + between(super::CHUNK as u16) + super::CHUNK as usize * PAGE;
    let (write, store) = Lane::open(way, Purpose::Write, NEW_STORE, pages, deadline)?;
    let demand = Lane::open(way, Purpose::Demand, store, requests, deadline).inspect_err(|_| file::close(write.fd))?;
    let demand = demand.0;
    let ahead = Lane::open(way, Purpose::Ahead, store, requests, deadline);
    let (ahead, _) = ahead.inspect_err(|_| [write.fd, demand.fd].into_iter().for_each(file::close))?;
    // By their places: DEMAND, AHEAD, WRITE.
    Ok(([demand, ahead, write], store))
}

struct Desk {
    way: Way,
    deadline_us: u64,
    dialled: UnsafeCell<Option<Dialled>>,
    done: AtomicBool,
}

/// A call under way.
pub(super) struct Dialler {
    /// Whom.
    pub(super) peer: usize,
    desk: *mut Desk,
    memory: MapSlice<u64>,
    thread: Thread,
}

// SAFETY: the pointer is to `memory`, which moves along without moving.
unsafe impl Send for Dialler {}

impl Dialler {
    pub(super) fn start(peer: usize, way: &Way, deadline_us: u64) -> Result<Dialler, Errno> {
        let memory = MapSlice::<u64>::new(size_of::<Desk>().div_ceil(8))?;
        let desk: *mut Desk = memory.as_ptr().cast();
        // SAFETY: what is left out of a core dump is no other.
        let _ = unsafe { crate::memory::advise(desk.expose_provenance(), 4096, crate::memory::Advice::DontDump) };
        // SAFETY: fresh memory, aligned and large enough.
        unsafe {
            desk.write(Desk { way: *way, deadline_us, dialled: UnsafeCell::new(None), done: AtomicBool::new(false) });
        }
        // SAFETY: `work` uses no thread-local data and little stack; the desk is there until the thread was joined. It
        // shares our descriptors, where the connections are to be.
        let thread = unsafe { thread::spawn(work, desk.cast(), STACK_BYTES, Files::Shared) }?;
        Ok(Dialler { peer, desk, memory, thread })
    }

    /// Whether it has ended.
    pub(super) fn is_done(&self) -> bool {
        // SAFETY: the desk lives as long as self, and this is an atomic.
        unsafe { &*self.desk }.done.load(Ordering::Acquire)
    }

    /// What came of it; it has ended, or is waited for.
    pub(super) fn take(self) -> Dialled {
        self.thread.join();
        // SAFETY: the thread has ended: nobody else uses the desk.
        let dialled = unsafe { (*(*self.desk).dialled.get()).take() };
        drop(self.memory);
        dialled.unwrap_or(Err(Errno::IO))
    }
}

fn work(argument: *mut ()) -> ! {
    // SAFETY: the desk outlives this thread, which alone uses its cell until `done`.
    let desk = unsafe { &*argument.cast::<Desk>() };
    follow::run_anywhere();
    let dialled = dial(&desk.way, desk.deadline_us);
    // SAFETY: as above.
    unsafe { *desk.dialled.get() = Some(dialled) };
    desk.done.store(true, Ordering::Release);
    thread::exit()
}
