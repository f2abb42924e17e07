//! The functions whose memory is lent whole, and the macro that wraps them.

use crate::loan::{IOV_MAX, PAGE};

/// Wraps functions, several of a shape at a time. `plain [NAME ...](ARGUMENT, ...) [bytes(ADDRESS, LENGTH) page(ADDRESS)
/// text(ADDRESS) ...]` lends what the list says for the time of the call, `kept` keeps it for good, and
/// `raw [NAME ...](ARGUMENT, ...) { |next| RESULT }` does something of its own with the next library's function.
macro_rules! wrapped {
    ($($kind:ident [$($name:ident)+] $arguments:tt $rest:tt;)*) => {
        $($(wrapped!(@one $kind $name $arguments $rest);)+)*
    };
    (@one plain $name:ident($($argument:ident),*) [$($what:ident($($value:expr),+))*]) => {
        wrapped!(@function $name($($argument),*) next, {
            #[allow(unused_mut, unused_unsafe)]
            // SAFETY: the program passes what the manual asks for.
            let _loan = unsafe { $crate::loan::Loan::new()$(.$what($($value),+))* };
            crate::input::call!(next $(, $argument)*)
        });
    };
    (@one kept $name:ident($($argument:ident),*) [$($what:ident($($value:expr),+))*]) => {
        wrapped!(@function $name($($argument),*) next, {
            $(crate::loan::$what($($value),+);)*
            crate::input::call!(next $(, $argument)*)
        });
    };
    (@one raw $name:ident($($argument:ident),*) { |$next:ident| $body:expr }) => {
        wrapped!(@function $name($($argument),*) $next, $body);
    };
    (@function $name:ident($($argument:ident),*) $next:ident, $body:expr) => {
        #[doc = concat!(stringify!($name), ", as the manual describes it.")]
        ///
        /// # Safety
        /// As the manual says.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name($($argument: usize),*) -> isize {
            crate::next::found_at_start!(FUNCTION, $name);
            let $next = &FUNCTION;
            $body
        }
    };
}
pub(crate) use wrapped;

/// The low half of a register: an int.
pub fn int(register: usize) -> usize {
    register & 0xffff_ffff
}

/// An int that counts something: none when it is negative, which is the kernel's to refuse.
pub fn count(register: usize) -> usize {
    (register as i32).max(0) as usize
}

/// Bytes of a set of so many descriptors.
fn set(descriptors: usize) -> usize {
    count(descriptors).div_ceil(64) * 8
}

/// Bytes of so many `struct pollfd`, no more than a process has descriptors.
pub fn polled(number: usize) -> usize {
    number.min(1 << 24) * 8
}

/// Bytes of so many `struct epoll_event`.
pub fn events(number: usize) -> usize {
    count(number) * 16
}

/// A path has no more, whatever the buffer.
fn path(bytes: usize) -> usize {
    bytes.min(PAGE)
}

/// Nor has the value of an attribute, or the list of their names.
fn attribute(bytes: usize) -> usize {
    bytes.min(1 << 16)
}

/// Bytes of so many groups.
fn groups(number: usize) -> usize {
    count(number).min(1 << 18) * 4
}

/// Bytes behind semctl's last argument: for all of a set, as many as that has at most.
pub fn semaphores(command: usize) -> usize {
    const GET_ALL: usize = 13;
    const SET_ALL: usize = 17;
    if [GET_ALL, SET_ALL].contains(&(int(command) & 0xff)) { 2 << 16 } else { PAGE }
}

wrapped! {
    plain [stat stat64 lstat lstat64 statfs statfs64 __statfs utime utimes lutimes](a, b) [text(a) page(b)];
    plain [
        fstat fstat64 fstatfs fstatfs64 futimens futimes eventfd_read eventfd_write clock_gettime
        clock_getres clock_settime getrusage getitimer timer_gettime timerfd_gettime getrlimit getrlimit64
        setrlimit setrlimit64 sched_setparam sched_getparam sched_rr_get_interval mq_getattr mq_notify
        tcgetattr clock_adjtime arch_prctl __sched_getparam
    ](a, b) [page(b)];
    plain [fstatat fstatat64 utimensat](a, b, c, d) [text(b) page(c)];
    plain [futimesat](a, b, c) [text(b) page(c)];
    plain [statx](a, b, c, d, e) [text(b) page(e)];
    plain [__xstat __xstat64 __lxstat __lxstat64](a, b, c) [text(b) page(c)];
    plain [
        __fxstat __fxstat64 fcntl __fcntl fcntl64 sched_setscheduler __sched_setscheduler pthread_setschedparam
        msgctl shmctl tcsetattr
    ](a, b, c) [page(c)];
    plain [__fxstatat __fxstatat64](a, b, c, d, e) [text(c) page(d)];
    plain [
        statvfs statvfs64 __open_2 __open64_2 creat creat64 access eaccess euidaccess chmod mkdir mkfifo
        truncate truncate64 mkostemp mkostemp64 mkstemps mkstemps64 memfd_create umount2 lchmod pathconf ftok catopen
        setmntent __setmntent __mq_open_2
    ](a, b) [text(a)];
    plain [open open64 __open __open64 mknod chown lchown mkostemps mkostemps64 shm_open](a, b, c) [text(a)];
    plain [scandir scandir64](a, b, c, d) [text(a)];
    plain [scandirat scandirat64 __xmknod](a, b, c, d, e) [text(b)];
    plain [__xmknodat](a, b, c, d, e) [text(c)];
    plain [realpath](a, b) [text(a) page(b)];
    plain [__realpath_chk](a, b, c) [text(a) page(b)];
    plain [openat openat64 faccessat fchmodat mknodat](a, b, c, d) [text(b)];
    plain [__openat_2 __openat64_2 mkdirat mkfifoat unlinkat inotify_add_watch](a, b, c) [text(b)];
    plain [
        chdir chroot rmdir unlink remove opendir shm_unlink sem_unlink mq_unlink acct swapoff umount mkstemp
        mkstemp64 mkdtemp mktemp canonicalize_file_name
    ](a) [text(a)];
    plain [fchownat](a, b, c, d, e) [text(b)];
    plain [link rename symlink removexattr lremovexattr](a, b) [text(a) text(b)];
    plain [linkat renameat2](a, b, c, d, e) [text(b) text(d)];
    plain [renameat](a, b, c, d) [text(b) text(d)];
    plain [symlinkat](a, b, c) [text(a) text(c)];
    plain [readlink](a, b, c) [text(a) bytes(b, path(c))];
    plain [listxattr llistxattr](a, b, c) [text(a) bytes(b, attribute(c))];
    plain [__readlink_chk](a, b, c, d) [text(a) bytes(b, path(c))];
    plain [readlinkat](a, b, c, d) [text(b) bytes(c, path(d))];
    plain [__readlinkat_chk](a, b, c, d, e) [text(b) bytes(c, path(d))];
    plain [fgetxattr](a, b, c, d) [text(b) bytes(c, attribute(d))];
    plain [fsetxattr](a, b, c, d, e) [text(b) bytes(c, attribute(d))];
    plain [getcwd gethostname getdomainname sethostname setdomainname getentropy](a, b) [bytes(a, path(b))];
    plain [__getcwd_chk __gethostname_chk __getdomainname_chk](a, b, c) [bytes(a, path(b))];
    plain [
        getwd pipe __pipe wait __wait sigpending sigsuspend __sigsuspend times adjtimex __adjtimex ntp_adjtime uname sysinfo
    ](a) [page(a)];
    plain [__getwd_chk timespec_get timespec_getres](a, b) [page(a)];
    plain [sem_open](a, b, c, d) [text(a)];
    plain [mq_open](a, b, c, d) [text(a) page(d)];
    plain [setxattr lsetxattr](a, b, c, d, e) [text(a) text(b) bytes(c, attribute(d))];
    plain [getxattr lgetxattr](a, b, c, d) [text(a) text(b) bytes(c, attribute(d))];
    plain [flistxattr](a, b, c) [bytes(b, attribute(c))];
    plain [pthread_getname_np ttyname_r ptsname_r](a, b, c) [bytes(b, path(c))];
    plain [__ttyname_r_chk __ptsname_r_chk](a, b, c, d) [bytes(b, path(c))];
    plain [getdents64](a, b, c) [bytes(b, c)];
    plain [getdirentries getdirentries64](a, b, c, d) [bytes(b, c)];
    plain [fremovexattr pthread_setname_np](a, b) [text(b)];
    plain [name_to_handle_at](a, b, c, d, e) [text(b) page(c) page(d)];
    plain [open_by_handle_at waitpid __waitpid signalfd](a, b, c) [page(b)];
    plain [ptrace](a, b, c, d) [page(c) page(d)];
    plain [pidfd_send_signal](a, b, c, d) [page(c)];
    plain [quotactl](a, b, c, d) [text(b) page(d)];
    plain [openpty](a, b, c, d, e) [page(e)];
    plain [process_madvise](a, b, c, d, e) [bytes(b, c.min(IOV_MAX) * 16)];
    plain [fanotify_mark](a, b, c, d, e) [text(e)];
    plain [mount](a, b, c, d, e) [text(a) text(b) text(c) page(e)];
    plain [mq_send](a, b, c, d) [bytes(b, c)];
    plain [pipe2](a, b) [page(a)];
    plain [sendfile sendfile64 waitid](a, b, c, d) [page(c)];
    plain [splice copy_file_range](a, b, c, d, e, f) [page(b) page(d)];
    plain [klogctl](a, b, c) [bytes(b, count(c))];
    plain [epoll_ctl](a, b, c, d) [page(d)];
    plain [semctl](a, b, c, d) [bytes(d, semaphores(c))];
    plain [poll __poll](a, b, c) [bytes(a, polled(b))];
    plain [__poll_chk](a, b, c, d) [bytes(a, polled(b))];
    plain [ppoll](a, b, c, d) [bytes(a, polled(b)) page(c) page(d)];
    plain [__ppoll_chk](a, b, c, d, e) [bytes(a, polled(b)) page(c) page(d)];
    plain [select __select](a, b, c, d, e) [bytes(b, set(a)) bytes(c, set(a)) bytes(d, set(a)) page(e)];
    plain [pselect](a, b, c, d, e, f) [bytes(b, set(a)) bytes(c, set(a)) bytes(d, set(a)) page(e) page(f)];
    plain [epoll_wait](a, b, c, d) [bytes(b, events(c))];
    plain [epoll_pwait](a, b, c, d, e) [bytes(b, events(c)) page(e)];
    plain [epoll_pwait2](a, b, c, d, e) [bytes(b, events(c)) page(d) page(e)];
    plain [wait3](a, b, c) [page(a) page(c)];
    plain [wait4](a, b, c, d) [page(b) page(d)];
    plain [
        sigprocmask pthread_sigmask sigaction __sigaction setitimer timer_create mq_setattr
    ](a, b, c) [page(b) page(c)];
    plain [
        sigwait sigwaitinfo nanosleep __nanosleep thrd_sleep gettimeofday __gettimeofday settimeofday getcpu capget capset
    ](a, b) [page(a) page(b)];
    plain [sigtimedwait getresuid getresgid](a, b, c) [page(a) page(b) page(c)];
    plain [clock_nanosleep timer_settime timerfd_settime prlimit prlimit64](a, b, c, d) [page(c) page(d)];
    plain [getgroups setgroups](a, b) [bytes(b, groups(a))];
    plain [__getgroups_chk](a, b, c) [bytes(b, groups(a))];
    plain [sched_setaffinity sched_getaffinity pthread_setaffinity_np pthread_getaffinity_np](a, b, c) [bytes(c, b)];
    plain [mincore](a, b, c) [bytes(c, b.div_ceil(4096))];
    plain [semop](a, b, c) [bytes(b, c.saturating_mul(6))];
    plain [semtimedop](a, b, c, d) [bytes(b, c.saturating_mul(6)) page(d)];
    plain [msgsnd](a, b, c, d) [bytes(b, c.saturating_add(8))];
    plain [msgrcv](a, b, c, d, e) [bytes(b, c.saturating_add(8))];
    plain [mq_timedsend](a, b, c, d, e) [bytes(b, c) page(e)];
    plain [mq_receive](a, b, c, d) [bytes(b, c) page(d)];
    plain [mq_timedreceive](a, b, c, d, e) [bytes(b, c) page(d) page(e)];
    plain [process_vm_readv process_vm_writev](a, b, c, d, e, f) [parts(b, c) theirs(a, d, e)];
    plain [res_query res_search](a, b, c, d, e) [bytes(d, count(e))];
    plain [res_nquery res_nsearch](a, b, c, d, e, f) [bytes(e, count(f))];
    plain [res_send](a, b, c, d) [bytes(a, count(b)) bytes(c, count(d))];
    plain [res_nsend](a, b, c, d, e) [bytes(b, count(c)) bytes(d, count(e))];
    kept [pthread_mutex_init pthread_cond_init pthread_rwlock_init](a, b) [keep(a, 64)];
    kept [
        pthread_mutex_lock pthread_mutex_trylock pthread_mutex_unlock pthread_cond_signal
        pthread_cond_broadcast pthread_rwlock_rdlock pthread_rwlock_wrlock pthread_rwlock_tryrdlock
        pthread_rwlock_trywrlock pthread_rwlock_unlock pthread_barrier_wait sem_wait sem_trywait sem_post
        mtx_lock mtx_unlock mtx_trylock cnd_signal cnd_broadcast
    ](a) [keep(a, 64)];
    kept [
        pthread_mutex_timedlock pthread_rwlock_timedrdlock pthread_rwlock_timedwrlock sem_timedwait
        mtx_timedlock
    ](a, b) [keep(a, 64) keep(b, 16)];
    kept [
        pthread_mutex_clocklock pthread_rwlock_clockrdlock pthread_rwlock_clockwrlock sem_clockwait
    ](a, b, c) [keep(a, 64) keep(c, 16)];
    kept [pthread_timedjoin_np](a, b, c) [keep(c, 16)];
    kept [pthread_clockjoin_np](a, b, c, d) [keep(d, 16)];
    kept [pthread_cond_wait cnd_wait](a, b) [keep(a, 64) keep(b, 64)];
    kept [pthread_cond_timedwait cnd_timedwait](a, b, c) [keep(a, 64) keep(b, 64) keep(c, 16)];
    kept [pthread_cond_clockwait](a, b, c, d) [keep(a, 64) keep(b, 64) keep(d, 16)];
    kept [pthread_barrier_init sem_init](a, b, c) [keep(a, 64)];
    kept [pthread_once call_once](a, b) [keep(a, 4)];
    kept [pthread_attr_setstack setbuffer](a, b, c) [keep(b, c)];
    kept [setvbuf](a, b, c, d) [keep(b, d)];
    kept [setbuf](a, b) [keep(b, 8192)];
}
