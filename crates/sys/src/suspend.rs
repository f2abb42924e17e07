//! Stops all threads of the program for a moment, as DLM's protocols do while a page is put where threads can see it.
//!
//! Threads that run get SIGURG and wait in its handler until they may go on; those that sleep in the kernel, be it in a
//! fault or in a call, are not woken for it. SIGURG is what a thread may get at any time and what an exec'd program
//! ignores where nobody took it before; a handler of the program's own is still called for its own. Nothing depends on
//! a thread's standing still: pages are installed atomically. So whoever does not answer (it blocks the signal, or
//! gets no processor) is waited for briefly, and never for ever.

use crate::file::{self, Fd};
use crate::futex::{self, Scope, Woken};
use crate::memory::{MapSlice, Zeroable};
use crate::syscall::{call4, call5, number};
use crate::{Errno, process, procfs};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::SeqCst};

const SIGURG: u32 = 23;
/// si_code of a signal that was queued with a value.
const QUEUED: i32 = -1;
/// Threads that are known; others are not stopped.
const TASKS: usize = 1024;
/// How long answers are awaited before it is asked what the threads do, and altogether, in microseconds.
const ROUND: u64 = 1000;
const PATIENCE: u64 = 20_000;
/// How often threads are looked for although their number is the same, in microseconds.
const OFTEN: u64 = 50_000;

/// Odd while threads are to stand still.
static GENERATION: AtomicU32 = AtomicU32::new(0);
/// Threads that stand still, and how many are to before the pager is woken.
static ARRIVED: AtomicU32 = AtomicU32::new(0);
static WANTED: AtomicU32 = AtomicU32::new(u32::MAX);
/// The program's own handler; 0 and 1 are no handlers.
static PREVIOUS: AtomicUsize = AtomicUsize::new(0);

/// The kernel's struct sigaction.
#[repr(C)]
#[derive(Clone, Copy)]
struct Action {
    handler: usize,
    flags: usize,
    restorer: usize,
    mask: u64,
}

/// The kernel's siginfo_t of a queued signal.
#[repr(C)]
struct Info {
    signal: i32,
    errno: i32,
    code: i32,
    pad: i32,
    process: i32,
    user: u32,
    value: usize,
    rest: [u64; 12],
}

const SA_SIGINFO: usize = 4;
const SA_RESTORER: usize = 0x0400_0000;
const SA_ONSTACK: usize = 0x0800_0000;
const SA_RESTART: usize = 0x1000_0000;

#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".hidden ream_suspend_return",
    ".globl ream_suspend_return",
    ".type ream_suspend_return, @function",
    "ream_suspend_return:",
    "mov eax, 15",
    "syscall",
);

#[cfg(target_arch = "x86_64")]
unsafe extern "C" {
    /// Ends a handler; the kernel's frame of the signal is on the stack.
    fn ream_suspend_return();
}

/// Where a handler returns to, and the flag that says so. Elsewhere the kernel has a place of its own for that.
fn restorer() -> (usize, usize) {
    #[cfg(target_arch = "x86_64")]
    return (ream_suspend_return as *const () as usize, SA_RESTORER);
    #[cfg(not(target_arch = "x86_64"))]
    return (0, 0);
}

fn mark() -> usize {
    GENERATION.as_ptr().expose_provenance()
}

/// Stands still as long as it is told to. Nothing here needs more than the stack and the kernel.
extern "C" fn stand(signal: i32, info: *const Info, context: *const ()) {
    let generation = GENERATION.load(SeqCst);
    if generation % 2 == 1 {
        if ARRIVED.fetch_add(1, SeqCst) + 1 >= WANTED.load(SeqCst) {
            futex::wake(&ARRIVED, 1, Scope::Private);
        }
        while GENERATION.load(SeqCst) == generation {
            futex::wait(&GENERATION, generation, None, Scope::Private);
        }
    }
    // SAFETY: the kernel gives a handler with SA_SIGINFO what the signal came with.
    let ours = unsafe { (*info).code == QUEUED && (*info).value == mark() };
    let previous = PREVIOUS.load(SeqCst);
    if !ours && previous > 1 {
        // SAFETY: what the program gave the kernel as its handler; one that takes the number alone ignores the rest.
        unsafe {
            let handler: extern "C" fn(i32, *const Info, *const ()) =
                core::mem::transmute(core::ptr::with_exposed_provenance::<()>(previous));
            handler(signal, info, context);
        }
    }
}

/// Reads the action for SIGURG, and sets one, if any.
fn action(new: Option<&Action>) -> Result<Action, Errno> {
    let mut old = Action { handler: 0, flags: 0, restorer: 0, mask: 0 };
    let new = new.map_or(0, |new| core::ptr::from_ref(new).expose_provenance());
    // SAFETY: both have the kernel's form, and the set of signals 8 bytes.
    unsafe { call4(number::__NR_rt_sigaction, SIGURG as usize, new, (&raw mut old).expose_provenance(), 8) }?;
    Ok(old)
}

/// A thread of the program.
#[derive(Clone, Copy)]
struct Task {
    id: u32,
    /// Its line of /proc.
    status: Fd,
    /// It was told to stand still, and has not been seen to.
    called: bool,
}

// SAFETY: integers and a boolean, all zero bytes of which are valid.
unsafe impl Zeroable for Task {}

/// Stops threads, and lets them go on. One at a time of a process.
pub struct Suspender {
    folder: Fd,
    tasks: MapSlice<Task>,
    count: usize,
    /// Threads that there were when they were looked for, when that was, and when it is done again at the latest.
    links: u32,
    again_at: u64,
    process: u32,
    held: bool,
}

impl Suspender {
    /// Takes SIGURG over.
    ///
    /// # Errors
    /// No memory, no /proc.
    pub fn new() -> Result<Suspender, Errno> {
        let folder = file::open(c"/proc/self/task", file::flags::READ, 0)?;
        let suspender = Suspender {
            folder,
            tasks: MapSlice::new(TASKS)?,
            count: 0,
            links: 0,
            again_at: 0,
            process: process::process_id(),
            held: false,
        };
        // A child of fork begins with what its parent had.
        if GENERATION.load(SeqCst) % 2 == 1 {
            GENERATION.fetch_add(1, SeqCst);
        }
        take_over()?;
        Ok(suspender)
    }

    /// Has all threads of the program stand still, the calling one excepted. Returns how many did not within 20 ms.
    pub fn suspend(&mut self) -> u32 {
        if core::mem::replace(&mut self.held, true) || take_over().is_err() {
            return 0;
        }
        self.look();
        WANTED.store(u32::MAX, SeqCst);
        ARRIVED.store(0, SeqCst);
        GENERATION.fetch_add(1, SeqCst);
        let mut called = 0;
        for task in self.tasks.as_mut_slice().iter_mut().take(self.count) {
            task.called = procfs::is_running(task.status);
            if task.called {
                match send(self.process, task.id) {
                    Ok(()) => called += 1,
                    Err(_) => {
                        // It has ended.
                        task.called = false;
                        self.again_at = 0;
                    }
                }
            }
        }
        WANTED.store(called, SeqCst);
        let began = process::now_us();
        loop {
            let arrived = ARRIVED.load(SeqCst);
            if arrived >= called {
                return 0;
            }
            if futex::wait(&ARRIVED, arrived, Some(ROUND), Scope::Private) == Woken::TimeUp {
                let missing = self.missing();
                if missing == 0 || process::now_us() - began > PATIENCE {
                    return missing;
                }
            }
        }
    }

    /// Lets them go on.
    pub fn resume(&mut self) {
        if core::mem::take(&mut self.held) && GENERATION.load(SeqCst) % 2 == 1 {
            GENERATION.fetch_add(1, SeqCst);
            futex::wake(&GENERATION, u32::MAX >> 1, Scope::Private);
        }
    }

    /// Threads that were told to stand still and run. Those that block the signal by now are looked for again.
    fn missing(&mut self) -> u32 {
        let mut missing = 0;
        for task in self.tasks.as_mut_slice().iter_mut().take(self.count).filter(|task| task.called) {
            task.called = procfs::is_running(task.status);
            if task.called && procfs::blocks(task.id, SIGURG) {
                task.called = false;
                self.again_at = 0;
            }
            missing += u32::from(task.called);
        }
        missing
    }

    /// Looks for the threads that can be stopped, if there may be others than before: all but our own, which block
    /// every signal, and those of the program that block this one.
    fn look(&mut self) {
        let (now, links) = (process::now_us(), links(self.folder));
        if links == self.links && now < self.again_at {
            return;
        }
        self.forget();
        let own = process::thread_id();
        let (tasks, count) = (&mut self.tasks, &mut self.count);
        procfs::each_number(self.folder, &mut |id| {
            if id == own || procfs::blocks(id, SIGURG) {
                return;
            }
            if let (Some(place), Some(status)) = (tasks.get_mut(*count), procfs::open_status(b"/proc/self/task/", id)) {
                *place = Task { id, status, called: false };
                *count += 1;
            }
        });
        self.links = links;
        // No more than a hundredth of the time goes to this.
        let took = process::now_us() - now;
        self.again_at = now + OFTEN.max(took * 100);
    }

    fn forget(&mut self) {
        for task in self.tasks.as_slice().iter().take(self.count) {
            file::close(task.status);
        }
        self.count = 0;
    }
}

impl Drop for Suspender {
    fn drop(&mut self) {
        self.resume();
        self.forget();
        file::close(self.folder);
    }
}

/// Makes our handler the one for SIGURG, whoever has set another since.
fn take_over() -> Result<(), Errno> {
    let own = stand as *const () as usize;
    let old = action(None)?;
    if old.handler != own {
        PREVIOUS.store(old.handler, SeqCst);
        let (restorer, flag) = restorer();
        // Who stands still does nothing else, handlers included.
        let mask = process::SignalSet::ALL.0;
        action(Some(&Action { handler: own, flags: SA_SIGINFO | SA_ONSTACK | SA_RESTART | flag, restorer, mask }))?;
    }
    Ok(())
}

fn send(process: u32, thread: u32) -> Result<(), Errno> {
    let info = Info {
        signal: SIGURG as i32,
        errno: 0,
        code: QUEUED,
        pad: 0,
        process: process as i32,
        user: 0,
        value: mark(),
        rest: [0; 12],
    };
    let info = (&raw const info).expose_provenance();
    // SAFETY: the kernel reads the 128 bytes of the information.
    unsafe { call4(number::__NR_rt_tgsigqueueinfo, process as usize, thread as usize, SIGURG as usize, info) }
        .map(|_| ())
}

/// Links of the folder of threads: as many as there are, and two. 0 when that cannot be told.
fn links(folder: Fd) -> u32 {
    const EMPTY_PATH: usize = 0x1000;
    const NLINK: usize = 4;
    let mut answer = [0u32; 64];
    let (path, place) = (c"".as_ptr().expose_provenance(), answer.as_mut_ptr().expose_provenance());
    // SAFETY: the kernel writes the 256 bytes of a struct statx.
    let told = unsafe { call5(number::__NR_statx, folder.0 as usize, path, EMPTY_PATH, NLINK, place) };
    // stx_nlink follows two words and the attributes' two.
    told.map_or(0, |_| answer[4])
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use core::sync::atomic::{AtomicBool, AtomicU64};
    use std::vec::Vec;

    static OWN: AtomicU32 = AtomicU32::new(0);
    static COUNTS: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];
    static END: AtomicBool = AtomicBool::new(false);

    extern "C" fn own(_: i32) {
        OWN.fetch_add(1, SeqCst);
    }

    fn counts() -> Vec<u64> {
        COUNTS.iter().map(|count| count.load(SeqCst)).collect()
    }

    fn until(condition: impl Fn() -> bool) {
        let began = std::time::Instant::now();
        while !condition() {
            assert!(began.elapsed().as_secs() < 120);
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    /// In a process of its own, since all its threads are stopped, and calls that other tests make would end early.
    #[test]
    fn threads_stand_still_and_go_on() {
        const ALONE: &str = "REAM_TEST_SUSPEND";
        if std::env::var_os(ALONE).is_some() {
            return stop_and_go();
        }
        let name = "suspend::tests::threads_stand_still_and_go_on";
        let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
        let outcome = alone.args(["--exact", name, "--nocapture"]).env(ALONE, "1").output().unwrap();
        let said = std::string::String::from_utf8_lossy(&outcome.stdout);
        assert!(
            outcome.status.success() && said.contains("1 passed"),
            "{said}{}",
            std::string::String::from_utf8_lossy(&outcome.stderr)
        );
    }

    /// All in one: there is one handler for the whole process.
    fn stop_and_go() {
        let (restorer, flag) = restorer();
        let handler = own as *const () as usize;
        action(Some(&Action { handler, flags: flag, restorer, mask: 0 })).unwrap();
        let mut suspender = Suspender::new().unwrap();
        std::thread::scope(|scope| {
            for (index, count) in COUNTS.iter().enumerate() {
                scope.spawn(move || {
                    if index == 3 {
                        // It cannot be stopped this way, and must not stop anybody.
                        process::set_signal_mask(process::SignalSet(1 << (SIGURG - 1)));
                    }
                    while !END.load(SeqCst) {
                        count.fetch_add(1, SeqCst);
                    }
                });
            }
            until(|| counts().iter().all(|count| *count > 0));
            let mut still = 0;
            for _ in 0..300 {
                let missing = suspender.suspend();
                let before = counts();
                process::sleep_us(200);
                if missing == 0 {
                    assert_eq!(counts()[..3], before[..3]);
                    still += 1;
                }
                suspender.resume();
                // The next one finds them running.
                until(|| counts()[..3].iter().zip(&before).all(|(now, before)| now > before));
            }
            // On a machine with too much to do some do not answer in time.
            assert!(still > 200, "{still} of 300");
            // The program's own signals are still its own, and what it sets later is taken over.
            // SAFETY: raises a signal that is handled.
            let raise = || unsafe {
                let (group, thread) = (process::process_id() as usize, process::thread_id() as usize);
                crate::syscall::call3(number::__NR_tgkill, group, thread, SIGURG as usize).unwrap();
            };
            raise();
            until(|| OWN.load(SeqCst) == 1);
            let action_of_program = Action { handler, flags: flag, restorer, mask: 0 };
            action(Some(&action_of_program)).unwrap();
            suspender.suspend();
            suspender.resume();
            raise();
            until(|| OWN.load(SeqCst) == 2);
            END.store(true, SeqCst);
        });
    }
}
