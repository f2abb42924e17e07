//! Keeping the pager on the processor of the thread that faults: a fault answered on the same processor takes a tenth
//! of one answered across.
//!
//! The scheduler would still wake the thread on another processor that idles, while the pager runs on this one. So for
//! the moment of waking the pager takes the idle policy, with which its processor counts as free: the thread comes back
//! where it was, and goes on at once, and the pager when it sleeps again. Whoever has the idle policy may starve, on a
//! processor that is busy otherwise: a guard thread looks every few milliseconds whether the pager has come out of that
//! moment. If not and something waits for it, it becomes an ordinary thread again that runs anywhere; if nothing does,
//! it becomes one after a while, to be in time for what comes. (Having the idle policy all the time that it follows
//! would save two calls a fault, but the kernel's own I/O threads inherit it, and starve.)

use crate::Errno;
use crate::file::{self, Fd};
use crate::futex::{self, Scope};
use crate::memory::{Atomics, Shared};
use crate::process::{self, Processors};
use crate::procfs;
use crate::thread::{self, Files, Thread};
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

/// Where the pager may run at all, for the threads that it starts while it is kept on one processor.
static ALLOWED: [AtomicU64; 16] = [const { AtomicU64::new(0) }; 16];

fn allowed() -> Processors {
    let mut set = Processors::NONE;
    for (index, word) in ALLOWED.iter().enumerate() {
        set.set_word(index, word.load(Ordering::Relaxed));
    }
    set
}

/// Lets the calling thread, made by a pager, run wherever the pager may.
pub(crate) fn run_anywhere() {
    let set = allowed();
    if set.count() > 0 {
        let _ = process::set_processors(&set);
    }
}

/// How often the guard looks, in microseconds.
const WATCH: u64 = 3000;
/// Looks without anything new, after which it sleeps until it is needed again.
const BORED: u32 = 50;
/// Looks after which the pager becomes an ordinary thread again although nothing waits for it.
const LONG: u32 = 7;
/// How long nobody is followed after the pager starved, in microseconds; twice as long each time that it happens again
/// soon, up to the longest.
const REST: u64 = 20_000;
const LONGEST_REST: u64 = 1_280_000;
/// Turns of the pager in a row that begin with what a thread that was woken asks for.
const TURNS: u32 = 8;
const STACK_BYTES: usize = 64 << 10;

/// What pager and guard share.
struct Post {
    /// Odd while the pager gives way; counts up.
    turns: AtomicU32,
    /// [`ABLE`] or [`UNABLE`] to become an ordinary thread again; 0 while that is not known.
    able: AtomicU32,
    /// Whether the guard sleeps until it is woken.
    asleep: AtomicU32,
    /// Whether the pager starved, so that the guard had to step in.
    stepped_in: AtomicU32,
    /// Descriptors that are readable when something waits for the pager.
    signs: [AtomicI32; 2],
    quit: AtomicU32,
    pager: AtomicU32,
    /// The pager's nice value.
    nice: AtomicI32,
}

// SAFETY: atomics only, valid as zeros, and few.
unsafe impl Atomics for Post {}

const ABLE: u32 = 1;
const UNABLE: u32 = 2;

pub(crate) struct Follower {
    /// Where the pager may run at all.
    allowed: Processors,
    /// Where it is kept now; `None` anywhere allowed.
    now: Option<u32>,
    /// The thread asked about last, and its open status file.
    last: Option<(u32, Fd)>,
    post: Shared<Post>,
    guard: Option<Thread>,
    /// Whether it gives way now.
    giving: bool,
    /// Whether it did since it was asked last, and how often in a row the answer was yes.
    woken: bool,
    turns: u32,
    /// Whether it does so until [`Follower::take_back`], and not for each wake by itself: that costs two calls.
    batches: bool,
    /// Nobody is followed before this time; and how long the last rest was.
    rest_until: u64,
    rest: u64,
}

impl Follower {
    /// For the calling thread. `signs`: descriptors that are readable when something waits for it.
    pub(crate) fn new(signs: [Fd; 2], batches: bool) -> Result<Follower, Errno> {
        let allowed = process::processors()?;
        for (index, word) in ALLOWED.iter().enumerate() {
            word.store(allowed.word(index), Ordering::Relaxed);
        }
        let post = Shared::<Post>::new()?;
        for (place, sign) in post.signs.iter().zip(signs) {
            place.store(sign.0, Ordering::Relaxed);
        }
        Ok(Follower {
            allowed,
            now: None,
            last: None,
            post,
            guard: None,
            giving: false,
            woken: false,
            turns: 0,
            batches,
            rest_until: 0,
            rest: 0,
        })
    }

    pub(crate) fn follow(&mut self, thread: Option<u32>) {
        self.take_back();
        let wanted = thread.filter(|_| process::now_us() >= self.rest_until);
        let wanted = wanted.and_then(|thread| self.processor_of(thread));
        let wanted = wanted.filter(|processor| self.allowed.contains(*processor));
        if wanted == self.now {
            return;
        }
        let set = wanted.map_or(self.allowed, Processors::only);
        if process::set_processors(&set).is_ok() {
            self.now = wanted;
        }
        if self.now.is_some() && self.guard.is_none() {
            let post = &*self.post;
            post.pager.store(process::thread_id(), Ordering::Relaxed);
            post.nice.store(process::nice(), Ordering::Relaxed);
            let argument = core::ptr::from_ref(post).cast_mut().cast();
            // SAFETY: `watch` uses no thread-local data and little stack; the post is unmapped after the thread has
            // been joined.
            self.guard = unsafe { thread::spawn(watch, argument, STACK_BYTES, Files::Shared) }.ok();
        }
    }

    /// Whether it is kept on a thread's processor.
    pub(crate) fn follows(&self) -> bool {
        self.now.is_some()
    }

    /// Carries out what wakes the followed thread, in a way that it goes on where it was.
    pub(crate) fn waking<T>(&mut self, wake: impl FnOnce() -> T) -> T {
        let post = &*self.post;
        if !self.giving && self.now.is_some() && post.able.load(Ordering::Relaxed) == ABLE {
            post.turns.fetch_add(1, Ordering::SeqCst);
            if post.asleep.swap(0, Ordering::SeqCst) != 0 {
                futex::wake(&post.asleep, 1, Scope::Private);
            }
            let _ = process::give_way(0, true, post.nice.load(Ordering::Relaxed));
            self.giving = true;
        }
        let outcome = wake();
        self.woken = self.giving;
        if !self.batches {
            self.take_back();
        }
        outcome
    }

    /// Whether it has given way to somebody since this was asked last. Not always, so that other things are looked at, too.
    pub(crate) fn has_woken(&mut self) -> bool {
        let woken = core::mem::take(&mut self.woken) && self.turns < TURNS;
        self.turns = if woken { self.turns + 1 } else { 0 };
        woken
    }

    /// Gives way no longer: before anything that inherits the policy is begun, as the kernel's threads for I/O do.
    pub(crate) fn take_back(&mut self) {
        if !core::mem::take(&mut self.giving) {
            return;
        }
        let post = &*self.post;
        let _ = process::give_way(0, false, post.nice.load(Ordering::Relaxed));
        post.turns.fetch_add(1, Ordering::SeqCst);
        if post.stepped_in.swap(0, Ordering::SeqCst) != 0 {
            let now = process::now_us();
            let again = self.rest > 0 && now < self.rest_until + LONGEST_REST;
            self.rest = if again { (self.rest * 2).min(LONGEST_REST) } else { REST };
            self.rest_until = now + self.rest;
            self.now = None;
            let _ = process::set_processors(&self.allowed);
        }
    }

    /// Follows nobody from now on and ends the guard; both begin anew with the next thread to be followed.
    pub(crate) fn rest(&mut self) {
        self.take_back();
        if let Some(guard) = self.guard.take() {
            let post = &*self.post;
            post.quit.store(1, Ordering::SeqCst);
            post.asleep.store(0, Ordering::SeqCst);
            futex::wake(&post.asleep, 1, Scope::Private);
            guard.join();
            for word in [&post.quit, &post.able, &post.stepped_in] {
                word.store(0, Ordering::SeqCst);
            }
        }
        if self.now.take().is_some() {
            let _ = process::set_processors(&self.allowed);
        }
    }

    /// The processor on which a thread ran last.
    pub(crate) fn processor_of(&mut self, thread: u32) -> Option<u32> {
        let fd = match self.last {
            Some((last, fd)) if last == thread => fd,
            other => {
                if let Some((_, fd)) = other {
                    file::close(fd);
                }
                self.last = None;
                let fd = procfs::open_status(b"/proc/self/task/", thread)?;
                self.last = Some((thread, fd));
                fd
            }
        };
        // Field 39 is the processor on which it ran last.
        let processor = procfs::read_field(fd, 39);
        if processor.is_none() {
            // It has ended; a new thread may get its number.
            file::close(fd);
            self.last = None;
        }
        u32::try_from(processor?).ok()
    }
}

/// The guard's thread.
fn watch(argument: *mut ()) -> ! {
    // SAFETY: the post outlives this thread (`Follower::drop` joins it first).
    let post = unsafe { &*argument.cast::<Post>() };
    run_anywhere();
    let nice = post.nice.load(Ordering::Relaxed);
    let able = process::give_way(0, true, nice).and_then(|()| process::give_way(0, false, nice)).is_ok();
    post.able.store(if able { ABLE } else { UNABLE }, Ordering::SeqCst);
    let [first, second] = &post.signs;
    let signs = [Fd(first.load(Ordering::Relaxed)), Fd(second.load(Ordering::Relaxed))];
    let (mut seen, mut bored) = (0, 0);
    while able && post.quit.load(Ordering::SeqCst) == 0 {
        process::sleep_us(WATCH);
        let turns = post.turns.load(Ordering::SeqCst);
        if turns != seen {
            (seen, bored) = (turns, 0);
            continue;
        }
        bored += 1;
        if turns % 2 == 1 {
            let pager = post.pager.load(Ordering::Relaxed);
            if process::poll_readable(&signs, &mut [], Some(0)).is_ok_and(|ready| ready > 0) {
                post.stepped_in.store(1, Ordering::SeqCst);
                let _ = process::give_way(pager, false, nice);
                let _ = process::set_processors_of(pager, &allowed());
            } else if bored == LONG {
                let _ = process::give_way(pager, false, nice);
            }
        }
        if bored >= BORED {
            bored = 0;
            post.asleep.store(1, Ordering::SeqCst);
            if post.turns.load(Ordering::SeqCst) == turns && post.quit.load(Ordering::SeqCst) == 0 {
                futex::wait(&post.asleep, 1, None, Scope::Private);
            }
            post.asleep.store(0, Ordering::SeqCst);
        }
    }
    thread::exit()
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.rest();
        if let Some((_, fd)) = self.last {
            file::close(fd);
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    /// The policy of the calling thread: 5 is the idle one.
    fn policy() -> u64 {
        let fd = procfs::open_status(b"/proc/self/task/", process::thread_id()).unwrap();
        let policy = procfs::read_field(fd, 41).unwrap();
        file::close(fd);
        policy
    }

    /// A follower of the calling thread, and whether it can give way; something waits for it if `news`.
    fn ready(news: bool) -> (Follower, bool) {
        let sign = file::event_counter().unwrap();
        if news {
            assert_eq!(file::write(sign, &1u64.to_ne_bytes()), Ok(8));
        }
        let mut follower = Follower::new([sign, Fd::NONE], false).unwrap();
        follower.follow(Some(process::thread_id()));
        let able = loop {
            match follower.post.able.load(Ordering::SeqCst) {
                0 => process::sleep_us(100),
                able => break able == ABLE,
            }
        };
        if !able {
            std::eprintln!("skipped: this user may not leave the idle policy");
        }
        (follower, able)
    }

    /// Whether it has the idle policy while it wakes somebody: not always, since on a busy machine it may starve until
    /// the guard has taken that away again.
    fn gives_way(follower: &mut Follower) -> bool {
        (0..100).any(|_| follower.waking(policy) == 5)
    }

    #[test]
    fn gives_way_only_for_the_moment_of_waking() {
        let (mut follower, able) = ready(false);
        assert_eq!(gives_way(&mut follower), able);
        assert_eq!(policy(), 0);
        assert!(follower.now.is_some());
        follower.follow(None);
        assert_eq!(follower.waking(policy), 0);
    }

    #[test]
    fn the_guard_steps_in_and_then_nobody_is_followed_for_a_while() {
        let before = process::processors().unwrap();
        let (mut follower, able) = ready(true);
        if !able {
            return;
        }
        let after = follower.waking(|| {
            while policy() == 5 {
                process::sleep_us(1000);
            }
            // The mask follows the policy.
            while process::processors().unwrap() != before {
                process::sleep_us(1000);
            }
            policy()
        });
        assert_eq!(after, 0);
        let first = follower.rest;
        follower.follow(Some(process::thread_id()));
        assert_eq!(process::processors().unwrap(), before);
        follower.rest_until = process::now_us();
        follower.follow(Some(process::thread_id()));
        assert_eq!(process::processors().unwrap().count(), 1);
        follower.waking(|| {
            while policy() == 5 || process::processors().unwrap() != before {
                process::sleep_us(1000);
            }
        });
        assert_eq!(follower.rest, first * 2);
    }

    #[test]
    fn whoever_is_not_waited_for_becomes_an_ordinary_thread_and_goes_on_following() {
        let (mut follower, able) = ready(false);
        if !able {
            return;
        }
        follower.waking(|| {
            while policy() == 5 {
                process::sleep_us(1000);
            }
        });
        assert_eq!(policy(), 0);
        assert_eq!(process::processors().unwrap().count(), 1);
        assert!(gives_way(&mut follower));
    }

    #[test]
    fn follows_itself_and_lets_go() {
        let before = process::processors().unwrap();
        let (mut follower, _) = ready(false);
        assert_eq!(process::processors().unwrap().count(), 1);
        follower.follow(Some(0));
        assert_eq!(process::processors().unwrap(), before);
        follower.follow(Some(process::thread_id()));
        // As a thread would that was started now.
        run_anywhere();
        assert_eq!(process::processors().unwrap(), before);
        follower.follow(None);
        assert_eq!(process::processors().unwrap(), before);
    }
}
