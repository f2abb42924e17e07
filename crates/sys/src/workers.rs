//! Reads and writes where io_uring is not allowed: a few raw threads that do them one by one, and a poll that waits
//! for them and for everything else. It offers what [`Ring`](crate::ring::Ring) offers.

use crate::file::{self, Fd, Part};
use crate::follow;
use crate::futex::{self, Mutex, Scope};
use crate::memory::{MapSlice, Zeroable};
use crate::queue::Queue;
use crate::ring::Completion;
use crate::thread::{self, Files, Thread};
use crate::{Errno, Wait, process, tcp};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Most threads. Each lane of each memory server may keep two asleep; a device takes 16 requests at once.
const THREADS: usize = 64;
/// Descriptors watched: userfaultfd, helper, our own bell.
const WATCHED: usize = 4;
const STACK_BYTES: usize = 32 << 10;

const READ: u32 = 1;
const WRITE: u32 = 2;
const PUNCH: u32 = 3;
const SEND: u32 = 4;
const RECEIVE: u32 = 5;

#[derive(Clone, Copy)]
struct Job {
    kind: u32,
    fd: Fd,
    /// Memory of a read, list of parts of a write.
    address: usize,
    /// Bytes of a read or punch, parts of a write.
    count: u64,
    offset: u64,
    data: u64,
}

// SAFETY: integers.
unsafe impl Zeroable for Job {}

struct Lists {
    waiting: Queue<Job>,
    done: Queue<(u64, i64)>,
}

/// What the threads share with their maker. It stays where it is until all of them have ended.
struct Shared {
    lists: Mutex<Lists>,
    /// Counts jobs handed out; sleepers wait for it to change.
    call: AtomicU32,
    quit: AtomicBool,
    bell: Fd,
}

/// The threads and their work.
pub(crate) struct Workers {
    shared: &'static Shared,
    memory: MapSlice<u64>,
    threads: [Option<Thread>; THREADS],
    watched: [(Fd, u64); WATCHED],
    /// News of watched descriptors not yet taken, by position.
    news: [bool; WATCHED],
    /// Jobs handed out and not yet seen done.
    open: u32,
    /// Whether some may be done that the bell has told of already.
    told: bool,
}

impl Workers {
    pub(crate) fn new(limit: u32) -> Result<Workers, Errno> {
        let lists = Lists { waiting: Queue::new(limit as usize)?, done: Queue::new(limit as usize)? };
        let memory = MapSlice::<u64>::new(size_of::<Shared>().div_ceil(8))?;
        let bell = file::event_counter()?;
        let place: *mut Shared = memory.as_ptr().cast();
        // SAFETY: page-aligned memory of sufficient size that lives until `drop` has joined the threads.
        let shared = unsafe {
            place.write(Shared {
                lists: Mutex::new(lists),
                call: AtomicU32::new(0),
                quit: AtomicBool::new(false),
                bell,
            });
            &*place
        };
        let watched = [(bell, 0), (Fd::NONE, 0), (Fd::NONE, 0), (Fd::NONE, 0)];
        Ok(Workers {
            shared,
            memory,
            threads: [const { None }; THREADS],
            watched,
            news: [false; WATCHED],
            open: 0,
            told: false,
        })
    }

    pub(crate) fn descriptor(&self) -> Fd {
        self.shared.bell
    }

    fn hand_out(&mut self, job: Job) -> Result<(), Errno> {
        if !self.shared.lists.lock().waiting.push(job) {
            return Err(Errno::AGAIN);
        }
        self.open += 1;
        self.shared.call.fetch_add(1, Ordering::Release);
        let running = self.threads.iter().flatten().count();
        if running < THREADS && running < self.open as usize {
            self.start_thread(running);
        }
        futex::wake(&self.shared.call, 1, Scope::Private);
        Ok(())
    }

    fn start_thread(&mut self, running: usize) {
        let argument = core::ptr::from_ref(self.shared).cast_mut().cast();
        // SAFETY: `work` uses no thread-local data and little stack; `shared` outlives the thread. It shares our
        // descriptors, where the stores are open.
        let thread = unsafe { thread::spawn(work, argument, STACK_BYTES, Files::Shared) };
        match (thread, self.threads.iter_mut().find(|thread| thread.is_none())) {
            (Ok(thread), Some(place)) => *place = Some(thread),
            // No thread at all can be had: better slow than never.
            _ if running == 0 => _ = run_one(self.shared),
            _ => {}
        }
    }

    /// # Safety
    /// As [`Ring::read`](crate::ring::Ring::read).
    pub(crate) unsafe fn read(
        &mut self,
        fd: Fd,
        address: usize,
        bytes: u32,
        offset: u64,
        data: u64,
    ) -> Result<(), Errno> {
        self.hand_out(Job { kind: READ, fd, address, count: bytes as u64, offset, data })
    }

    /// # Safety
    /// As [`Ring::write`](crate::ring::Ring::write), and the list stays as it is until the completion.
    pub(crate) unsafe fn write(&mut self, fd: Fd, parts: &[Part], offset: u64, data: u64) -> Result<(), Errno> {
        let address = parts.as_ptr().expose_provenance();
        self.hand_out(Job { kind: WRITE, fd, address, count: parts.len() as u64, offset, data })
    }

    /// # Safety
    /// As [`Ring::message`](crate::ring::Ring::message).
    pub(crate) unsafe fn message(&mut self, fd: Fd, header: usize, sends: bool, data: u64) -> Result<(), Errno> {
        let kind = if sends { SEND } else { RECEIVE };
        self.hand_out(Job { kind, fd, address: header, count: 0, offset: 0, data })
    }

    pub(crate) fn punch(&mut self, fd: Fd, offset: u64, bytes: u64, data: u64) -> Result<(), Errno> {
        self.hand_out(Job { kind: PUNCH, fd, address: 0, count: bytes, offset, data })
    }

    pub(crate) fn watch(&mut self, fd: Fd, data: u64) -> Result<(), Errno> {
        let place = self.watched.iter_mut().find(|(watched, _)| *watched == Fd::NONE);
        *place.ok_or(Errno::AGAIN)? = (fd, data);
        Ok(())
    }

    /// Ends all threads when they have done what they were given; others are started as needed.
    pub(crate) fn rest(&mut self) {
        self.shared.quit.store(true, Ordering::Release);
        self.shared.call.fetch_add(1, Ordering::Release);
        futex::wake(&self.shared.call, u32::MAX >> 1, Scope::Private);
        for thread in &mut self.threads {
            if let Some(thread) = thread.take() {
                thread.join();
            }
        }
        self.shared.quit.store(false, Ordering::Release);
    }

    /// Waits as told for a completion or news of a watched descriptor.
    pub(crate) fn enter(&mut self, wait: Wait) -> Result<(), Errno> {
        let limit = match wait {
            _ if self.news.contains(&true) => return Ok(()),
            _ if self.told => Some(0),
            Wait::No => Some(0),
            Wait::Micros(us) => Some(us),
            Wait::Forever => None,
        };
        let fds = self.watched.map(|(fd, _)| fd);
        match process::poll_readable(&fds, &mut self.news, limit) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
        if self.news.first() == Some(&true) {
            let mut count = [0u8; 8];
            let _ = file::read(self.shared.bell, &mut count);
            self.told = true;
        }
        Ok(())
    }

    pub(crate) fn take(&mut self) -> Option<Completion> {
        for (told, (_, data)) in self.news.iter_mut().zip(&self.watched).skip(1) {
            if core::mem::take(told) {
                return Some(Completion::with(*data, 1, true));
            }
        }
        if let Some(bell) = self.news.first_mut() {
            *bell = false;
        }
        let done = self.shared.lists.lock().done.pop();
        self.told = done.is_some();
        let (data, result) = done?;
        self.open -= 1;
        Some(Completion::with(data, result as i32, false))
    }
}

/// Does one job, if there is one.
fn run_one(shared: &Shared) -> bool {
    let Some(job) = shared.lists.lock().waiting.pop() else { return false };
    // SAFETY: whoever handed the job out promised that its memory is good until it is seen done.
    let result = unsafe {
        match job.kind {
            READ => {
                let part = Part { address: job.address, bytes: job.count as usize };
                file::read_parts(job.fd, &[part], job.offset)
            }
            WRITE => {
                let parts: *const Part = core::ptr::with_exposed_provenance(job.address);
                file::write_parts(job.fd, core::slice::from_raw_parts(parts, job.count as usize), job.offset)
            }
            SEND => tcp::transfer(job.fd, job.address, tcp::MSG_NOSIGNAL, true),
            RECEIVE => tcp::transfer(job.fd, job.address, tcp::MSG_WAITALL, false),
            _ => file::punch(job.fd, job.offset, job.count).map(|_| 0),
        }
    };
    let result = result.map_or_else(|error| error.negative() as i64, |bytes| bytes as i64);
    shared.lists.lock().done.push((job.data, result));
    let _ = file::write(shared.bell, &1u64.to_ne_bytes());
    true
}

fn work(argument: *mut ()) -> ! {
    // SAFETY: it outlives this thread (`Workers::drop` joins first).
    let shared = unsafe { &*argument.cast::<Shared>() };
    follow::run_anywhere();
    loop {
        let seen = shared.call.load(Ordering::Acquire);
        if run_one(shared) {
            continue;
        }
        if shared.quit.load(Ordering::Acquire) {
            thread::exit();
        }
        futex::wait(&shared.call, seen, None, Scope::Private);
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.rest();
        file::close(self.shared.bell);
        // SAFETY: no thread uses it any more, and `shared` is not used below.
        unsafe { self.memory.as_ptr().cast::<Shared>().drop_in_place() };
    }
}
