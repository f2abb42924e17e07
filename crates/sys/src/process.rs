//! Small services of the kernel: clock, random bytes, process and thread ids, processors, signals, ending.
//! All of them are one system call, without libc.

use crate::Errno;
use crate::clock;
use crate::file::{self, Fd};
use crate::futex::TimeSpec;
use crate::procfs;
use crate::space;
use crate::syscall::{call0, call1, call2, call3, call4, call5, number};

const CLOCK_MONOTONIC: usize = 1;

/// Microseconds on a clock that does not go backwards and is the same in all processes. Cheap once
/// [`clock::find`](crate::clock::find) has been called.
pub fn now_us() -> u64 {
    now_ns() / 1000
}

/// Nanoseconds on the same clock as [`now_us`].
pub fn now_ns() -> u64 {
    let mut time = TimeSpec { seconds: 0, nanoseconds: 0 };
    if !clock::read(CLOCK_MONOTONIC, &mut time) {
        // SAFETY: the kernel fills in the time.
        let _ = unsafe { call2(number::__NR_clock_gettime, CLOCK_MONOTONIC, (&raw mut time).expose_provenance()) };
    }
    time.seconds as u64 * 1_000_000_000 + time.nanoseconds as u64
}

/// Sleeps for so many microseconds, or until a signal.
pub fn sleep_us(us: u64) {
    let time = TimeSpec::micros(us);
    // SAFETY: the kernel reads the time.
    let _ = unsafe { call2(number::__NR_nanosleep, (&raw const time).expose_provenance(), 0) };
}

/// Lets other threads of this processor run.
pub fn yield_now() {
    // SAFETY: no memory is touched.
    let _ = unsafe { call0(number::__NR_sched_yield) };
}

/// Fills a buffer with random bytes from the kernel.
pub fn random(buffer: &mut [u8]) -> Result<(), Errno> {
    let mut rest = buffer;
    while !rest.is_empty() {
        // SAFETY: the kernel writes at most the buffer's length.
        match unsafe { call3(number::__NR_getrandom, rest.as_mut_ptr().expose_provenance(), rest.len(), 0) } {
            Ok(got) => rest = rest.get_mut(got..).unwrap_or(&mut []),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Process id.
pub fn process_id() -> u32 {
    // SAFETY: no memory is touched.
    unsafe { call0(number::__NR_getpid) }.unwrap_or(0) as u32
}

/// Process id of the parent.
pub fn parent_id() -> u32 {
    // SAFETY: no memory is touched.
    unsafe { call0(number::__NR_getppid) }.unwrap_or(0) as u32
}

/// Thread id.
pub fn thread_id() -> u32 {
    // SAFETY: no memory is touched.
    unsafe { call0(number::__NR_gettid) }.unwrap_or(0) as u32
}

/// Whether this process still has a thread of this id, be it only for a moment after its last instruction.
pub fn has_thread(id: u32) -> bool {
    // SAFETY: signal 0 asks only whether there is anybody.
    unsafe { call3(number::__NR_tgkill, process_id() as usize, id as usize, 0) }.is_ok()
}

/// Sends a signal to a process; 0 only asks whether it is there.
pub fn kill(process: u32, signal: u32) -> Result<(), Errno> {
    // SAFETY: no memory is touched.
    unsafe { call2(number::__NR_kill, process as usize, signal as usize) }.map(|_| ())
}

/// A descriptor that becomes readable when the process ends.
pub fn watch_process(process: u32) -> Result<Fd, Errno> {
    // SAFETY: no memory is touched.
    unsafe { call2(number::__NR_pidfd_open, process as usize, 0) }.map(|fd| Fd(fd as i32))
}

/// A descriptor for what is open in a watched process, sharing its position.
pub fn copy_descriptor(process: Fd, fd: Fd) -> Result<Fd, Errno> {
    // SAFETY: no memory is touched.
    unsafe { call3(number::__NR_pidfd_getfd, process.0 as usize, fd.0 as usize, 0) }.map(|fd| Fd(fd as i32))
}

/// A descriptor for what a thread of this process has open in a table of its own (Linux 6.9).
pub fn copy_descriptor_of_thread(thread: u32, fd: Fd) -> Result<Fd, Errno> {
    const PIDFD_THREAD: usize = linux_raw_sys::general::O_EXCL as usize;
    // SAFETY: no memory is touched.
    let whole = unsafe { call2(number::__NR_pidfd_open, thread as usize, PIDFD_THREAD) }.map(|fd| Fd(fd as i32))?;
    let copy = copy_descriptor(whole, fd);
    file::close(whole);
    copy
}

/// Ends the whole process at once.
pub fn end_process(status: i32) -> ! {
    loop {
        // SAFETY: nothing runs afterwards.
        let _ = unsafe { call1(number::__NR_exit_group, status as usize) };
    }
}

/// Waits until one of at most 64 descriptors can be read or has ended, at most `timeout_us` microseconds. Returns how
/// many have news; `news` tells which.
pub fn poll_readable(fds: &[Fd], news: &mut [bool], timeout_us: Option<u64>) -> Result<u32, Errno> {
    const MOST: usize = 64;
    let mut list = [[0u32; 2]; MOST];
    let count = fds.len().min(MOST);
    for (place, fd) in list.iter_mut().zip(fds) {
        // struct pollfd: descriptor, then 16 bits of wish (POLLIN = 1) and 16 of answer.
        let [low, high] = 1u16.to_ne_bytes();
        *place = [fd.0 as u32, u32::from_ne_bytes([low, high, 0, 0])];
    }
    let limit = timeout_us.map(TimeSpec::micros);
    let pointer = limit.as_ref().map_or(0, |limit| core::ptr::from_ref(limit).expose_provenance());
    // SAFETY: the kernel changes the list, of which it is told the length.
    let ready = unsafe { call4(number::__NR_ppoll, list.as_mut_ptr().expose_provenance(), count, pointer, 0) }?;
    for (told, [_, both]) in news.iter_mut().zip(list) {
        let [_, _, low, high] = both.to_ne_bytes();
        *told = low != 0 || high != 0;
    }
    Ok(ready as u32)
}

/// A limit of this process, the maximum for none: getrlimit.
///
/// # Errors
/// There is no such limit.
pub fn limit(which: usize) -> Result<usize, Errno> {
    let mut limits = [0usize; 2];
    // SAFETY: room for both limits.
    unsafe { call4(number::__NR_prlimit64, 0, which, 0, (&raw mut limits).expose_provenance()) }?;
    Ok(limits[0])
}

/// Whether something counts memory that this process may write and has not touched: a limit on address space or data, or a
/// kernel that promises no more than it has.
pub fn untouched_memory_counts() -> bool {
    const RLIMIT_DATA: usize = 2;
    const RLIMIT_AS: usize = 9;
    let mut mode = [0; 1];
    if let Ok(fd) = file::open(c"/proc/sys/vm/overcommit_memory", file::flags::READ, 0) {
        let _ = file::read_at(fd, &mut mode, 0);
        file::close(fd);
    }
    mode == *b"2" || [RLIMIT_DATA, RLIMIT_AS].into_iter().any(|which| limit(which) != Ok(usize::MAX))
}

/// A set of signals, as the kernel counts them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub struct SignalSet(pub u64);

impl SignalSet {
    /// All that can be blocked: all but SIGKILL and SIGSTOP, which the kernel takes out of every mask.
    pub const ALL: SignalSet = SignalSet(!(1 << 8 | 1 << 18));
}

/// Sets the calling thread's signal mask; returns the one before.
pub fn set_signal_mask(mask: SignalSet) -> SignalSet {
    const SIG_SETMASK: usize = 2;
    let mut before = SignalSet(0);
    let (new, old) = ((&raw const mask).expose_provenance(), (&raw mut before).expose_provenance());
    // SAFETY: both masks have 8 bytes.
    let _ = unsafe { call4(number::__NR_rt_sigprocmask, SIG_SETMASK, new, old, 8) };
    before
}

/// The calling thread's signal mask.
pub fn signal_mask() -> SignalSet {
    let mut now = SignalSet(0);
    // SAFETY: the kernel writes 8 bytes.
    let _ = unsafe { call4(number::__NR_rt_sigprocmask, 0, 0, (&raw mut now).expose_provenance(), 8) };
    now
}

/// A set of processors, up to 1024.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Processors([u64; 16]);

impl Processors {
    /// No processor.
    pub const NONE: Processors = Processors([0; 16]);

    /// Only this processor.
    pub fn only(processor: u32) -> Processors {
        let mut set = Processors::NONE;
        set.add(processor);
        set
    }
    /// Adds a processor; numbers from 1024 on are ignored.
    pub fn add(&mut self, processor: u32) {
        if let Some(word) = self.0.get_mut(processor as usize / 64) {
            *word |= 1 << (processor % 64);
        }
    }
    /// Whether it holds the processor.
    pub fn contains(&self, processor: u32) -> bool {
        self.0.get(processor as usize / 64).is_some_and(|word| word & 1 << (processor % 64) != 0)
    }
    /// Processors 64 * `index` and on, one a bit.
    pub(crate) fn word(&self, index: usize) -> u64 {
        self.0.get(index).copied().unwrap_or(0)
    }
    /// Sets what [`Processors::word`] tells.
    pub(crate) fn set_word(&mut self, index: usize, word: u64) {
        if let Some(place) = self.0.get_mut(index) {
            *place = word;
        }
    }
    /// How many it holds.
    pub fn count(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }
}

/// Where the calling thread may run.
pub fn processors() -> Result<Processors, Errno> {
    let mut set = Processors::NONE;
    let bytes = size_of::<Processors>();
    // SAFETY: the kernel writes at most so many bytes.
    unsafe { call3(number::__NR_sched_getaffinity, 0, bytes, set.0.as_mut_ptr().expose_provenance()) }?;
    Ok(set)
}

/// Says where the calling thread may run.
pub fn set_processors(set: &Processors) -> Result<(), Errno> {
    set_processors_of(0, set)
}

/// The same for another thread.
pub fn set_processors_of(thread: u32, set: &Processors) -> Result<(), Errno> {
    let bytes = size_of::<Processors>();
    // SAFETY: the kernel reads so many bytes.
    unsafe { call3(number::__NR_sched_setaffinity, thread as usize, bytes, set.0.as_ptr().expose_provenance()) }
        .map(|_| ())
}

/// Nanoseconds of processor time that the calling thread has used.
pub fn thread_time_ns() -> u64 {
    const CLOCK_THREAD_CPUTIME: usize = 3;
    time_ns(CLOCK_THREAD_CPUTIME)
}

/// How often another thread has taken the processor from the calling one.
pub fn interruptions() -> u64 {
    const RUSAGE_THREAD: usize = 1;
    const INVOLUNTARY: usize = 17;
    let mut usage = [0u64; 18];
    // SAFETY: the kernel fills in the structure: two times of two words, and 14 words.
    let _ = unsafe { call2(number::__NR_getrusage, RUSAGE_THREAD, usage.as_mut_ptr().expose_provenance()) };
    usage.get(INVOLUNTARY).copied().unwrap_or(0)
}

/// Nanoseconds of processor time that the calling thread has used outside the kernel, as far as that tells: most kernels look
/// at their ticks which it was, a few milliseconds apart.
pub fn thread_user_time_ns() -> u64 {
    const RUSAGE_THREAD: usize = 1;
    // Of struct rusage: the time outside the kernel, in seconds and microseconds, and fourteen more numbers.
    let mut usage = [0u64; 18];
    // SAFETY: the kernel fills in the usage.
    let _ = unsafe { call2(number::__NR_getrusage, RUSAGE_THREAD, usage.as_mut_ptr().expose_provenance()) };
    let [seconds, microseconds, ..] = usage;
    seconds * 1_000_000_000 + microseconds * 1000
}

/// Processor time that all threads of the process have used, in nanoseconds.
pub fn process_time_ns() -> u64 {
    const CLOCK_PROCESS_CPUTIME: usize = 2;
    time_ns(CLOCK_PROCESS_CPUTIME)
}

fn time_ns(clock: usize) -> u64 {
    let mut time = TimeSpec { seconds: 0, nanoseconds: 0 };
    // SAFETY: the kernel fills in the time.
    let _ = unsafe { call2(number::__NR_clock_gettime, clock, (&raw mut time).expose_provenance()) };
    time.seconds as u64 * 1_000_000_000 + time.nanoseconds as u64
}

/// Whether the calling process has no child, not even one that has ended and waits for it.
pub fn childless() -> bool {
    const ALL: usize = 0;
    /// WNOHANG, WEXITED, WNOWAIT and __WALL: asks and changes nothing.
    const ASK: usize = 1 | 4 | 0x0100_0000 | 0x4000_0000;
    const CHILD: Errno = Errno(10);
    // SAFETY: no memory is touched.
    unsafe { call5(number::__NR_waitid, ALL, 0, 0, ASK, 0) }.err() == Some(CHILD)
}

/// What /proc says of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Life {
    /// It lives, and started at this time in clock ticks since boot. With the number that names it for good.
    Since(u64),
    /// It has ended, and waits only for its parent to hear of it.
    Ended,
    /// There is no such process, or it cannot be seen.
    Unknown,
}

/// Whether the process `pid` lives, and since when (fields 3, 20 and 22 of /proc/PID/stat).
pub fn life(pid: u32) -> Life {
    life_and_program(pid).0
}

/// The same, and where the stack of the program begins that it runs (field 28), which a fork leaves and another program
/// changes: 0 where the kernel does not say, which others need the right for to look into the process.
pub fn life_and_program(pid: u32) -> (Life, u64) {
    told(procfs::open_status(b"/proc/", pid))
}

/// The same of this process, whatever number /proc has for it.
pub fn own_life_and_program() -> (Life, u64) {
    told(space::open_own_status())
}

fn told(status: Option<file::Fd>) -> (Life, u64) {
    let Some(status) = status else { return (Life::Unknown, 0) };
    let mut text = [0u8; 1024];
    let bytes = file::read_at(status, &mut text, 0).unwrap_or(0);
    file::close(status);
    let text = text.get(..bytes).unwrap_or(&[]);
    match procfs::field(text, 22) {
        Some(_) if procfs::ended(text) => (Life::Ended, 0),
        Some(ticks) => (Life::Since(ticks), procfs::field(text, 28).unwrap_or(0)),
        None => (Life::Unknown, 0),
    }
}

/// How many threads this process has (field 20 of /proc/PID/stat); more than one when that cannot be told.
pub fn thread_count() -> u64 {
    let Some(status) = space::open_own_status() else { return 2 };
    let count = procfs::read_field(status, 20).unwrap_or(2);
    file::close(status);
    count
}

/// Whether no other thread of this process runs the program's code: all others block even those signals that libc keeps
/// for itself, as Ream's own do. Not when that cannot be told.
pub fn alone() -> bool {
    /// By which libc has all threads change their rights; it lets nobody block it.
    const OF_LIBC: u32 = 33;
    let Ok(folder) = file::open(c"/proc/self/task", file::flags::READ, 0) else { return false };
    let own = thread_id();
    let (mut alone, mut met) = (true, false);
    procfs::each_number(folder, &mut |id| {
        met |= id == own;
        alone &= id == own || procfs::blocks(id, OF_LIBC);
    });
    file::close(folder);
    alone && met
}

/// Whether a range lies in one private mapping that can be read and written.
pub fn is_private_and_writable(start: usize, bytes: usize) -> bool {
    procfs::is_one_mapping(start, bytes, b"rw-p", false)
}

/// Whether a range of this process's addresses is one private, writable mapping of no file; not when that cannot be told.
pub fn is_anonymous_and_writable(start: usize, bytes: usize) -> bool {
    procfs::is_one_mapping(start, bytes, b"rw-p", true)
}

/// A mapping of this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mapping {
    /// Where it begins.
    pub start: usize,
    /// Where it ends.
    pub end: usize,
    /// What may be done with it: the bits of mprotect.
    pub protection: usize,
}

/// The mapping that an address lies in; `None` also where that cannot be told.
pub fn mapping_at(address: usize) -> Option<Mapping> {
    let (start, end, access, _) = procfs::mapping_at(address)?;
    let bit = |place: usize, letter: u8| usize::from(access.get(place) == Some(&letter)) << place;
    Some(Mapping { start, end, protection: bit(0, b'r') | bit(1, b'w') | bit(2, b'x') })
}

/// When this process started.
pub fn own_start_time() -> Option<u64> {
    match own_life_and_program().0 {
        Life::Since(ticks) => Some(ticks),
        Life::Ended | Life::Unknown => None,
    }
}

/// When the process `pid` started, if it lives.
pub fn start_time(pid: u32) -> Option<u64> {
    match life(pid) {
        Life::Since(ticks) => Some(ticks),
        Life::Ended | Life::Unknown => None,
    }
}

/// Puts the calling thread ahead of others, as far as the user may: real time where that is allowed, else short slices
/// (Linux 6.12), and timers without slack. Or makes it an ordinary one again. Best effort.
pub fn hurry(on: bool) {
    const TIMER_SLACK: usize = 29;
    const FIFO: u32 = 1;
    // SAFETY: no memory is touched.
    let _ = unsafe { call2(number::__NR_prctl, TIMER_SLACK, if on { 1 } else { 0 }) };
    let _ = match on {
        true => set_policy(0, FIFO, 1, 0).or_else(|_| set_policy(0, OTHER, 0, 100_000)),
        false => set_policy(0, OTHER, 0, 0),
    };
}

/// The ordinary scheduling policy.
const OTHER: u32 = 0;

/// The calling thread's nice value, -20 to 19.
pub fn nice() -> i32 {
    // SAFETY: no memory is touched. The kernel answers with 20 less the value, so that it is never negative.
    20 - unsafe { call2(number::__NR_getpriority, 0, 0) }.unwrap_or(20) as i32
}

/// Makes a thread (0: the calling one) give way to every ordinary one, or makes it an ordinary one of this nice value
/// again, which only the superuser may (`CAP_SYS_NICE`), or whom `RLIMIT_NICE` allows it.
pub fn give_way(thread: u32, on: bool, nice: i32) -> Result<(), Errno> {
    const IDLE: u32 = 5;
    set_scheduling(thread, if on { IDLE } else { OTHER }, nice, 0, 0)
}

fn set_policy(thread: u32, policy: u32, priority: u32, runtime: u64) -> Result<(), Errno> {
    set_scheduling(thread, policy, nice(), priority, runtime)
}

fn set_scheduling(thread: u32, policy: u32, nice: i32, priority: u32, runtime: u64) -> Result<(), Errno> {
    /// The kernel's struct sched_attr, first version.
    #[repr(C)]
    struct Attributes {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        runtime: u64,
        deadline: u64,
        period: u64,
    }
    let attributes = Attributes { size: 48, policy, flags: 0, nice, priority, runtime, deadline: 0, period: 0 };
    let place = (&raw const attributes).expose_provenance();
    // SAFETY: the kernel reads the structure, whose size is given in it.
    unsafe { call3(number::__NR_sched_setattr, thread as usize, place, 0) }.map(|_| ())
}
#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    #[test]
    fn time_outside_the_kernel_is_a_part_of_all_time() {
        let (began, before) = (thread_time_ns(), thread_user_time_ns());
        let mut sum = 1u64;
        while thread_time_ns() - began < 200_000_000 {
            (0..100_000).for_each(|i| sum = core::hint::black_box(sum.wrapping_mul(31) + i));
        }
        let outside = thread_user_time_ns() - before;
        assert!((50_000_000..300_000_000).contains(&outside), "{outside} ns outside");
    }

    #[test]
    fn who_has_a_child_is_not_childless() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        assert!(!childless());
        child.kill().unwrap();
        assert!(!childless());
        child.wait().unwrap();
    }

    #[test]
    fn the_clock_runs_forwards() {
        let before = now_ns();
        sleep_us(500);
        assert!(now_ns() - before >= 500_000);
    }

    #[test]
    fn a_process_is_named_by_number_and_start() {
        let started = start_time(process_id()).unwrap();
        assert!(started > 0 && start_time(process_id()) == Some(started));
        assert_eq!(own_start_time(), Some(started));
        assert_eq!(start_time(u32::MAX), None);
    }

    #[test]
    fn a_process_that_waits_for_its_parent_has_ended() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        while life(pid) != Life::Ended {
            assert!(matches!(life(pid), Life::Since(_) | Life::Ended));
            sleep_us(1000);
        }
        assert_eq!(start_time(pid), None);
        child.wait().unwrap();
        assert_eq!(life(pid), Life::Unknown);
    }

    #[test]
    fn threads_are_counted() {
        let one = thread_count();
        assert!(one >= 1);
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| assert!(thread_count() >= 2 && !alone()));
            thread.join().expect("a thread");
        });
    }

    #[test]
    fn nice_is_what_proc_says() {
        let status = procfs::open_status(b"/proc/self/task/", thread_id()).unwrap();
        let expected = procfs::read_field(status, 19).map_or(-1, |nice| nice as i32);
        file::close(status);
        // A negative value is not read as a number.
        assert!(nice() == expected || expected == -1 && nice() < 0);
    }

    #[test]
    fn masks_come_back() {
        let before = set_signal_mask(SignalSet::ALL);
        assert_eq!(signal_mask(), SignalSet::ALL);
        set_signal_mask(before);
        assert_eq!(signal_mask(), before);
    }

    #[test]
    fn processors_can_be_narrowed_and_restored() {
        let all = processors().unwrap();
        assert!(all.count() >= 1);
        let one = (0..1024).find(|number| all.contains(*number)).unwrap();
        set_processors(&Processors::only(one)).unwrap();
        assert_eq!(processors().unwrap(), Processors::only(one));
        set_processors(&all).unwrap();
    }

    #[test]
    fn random_bytes_differ() {
        let (mut a, mut b) = ([0u8; 32], [0u8; 32]);
        random(&mut a).unwrap();
        random(&mut b).unwrap();
        assert_ne!(a, b);
    }

    #[test]
    fn poll_tells_which_descriptor_has_news() {
        let (a, b) = (crate::file::event_counter().unwrap(), crate::file::event_counter().unwrap());
        crate::file::write(b, &1u64.to_ne_bytes()).unwrap();
        let mut news = [false; 2];
        assert_eq!(poll_readable(&[a, b], &mut news, Some(1_000_000)), Ok(1));
        assert_eq!(news, [false, true]);
        crate::file::close(a);
        crate::file::close(b);
    }
}
