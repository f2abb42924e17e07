//! The functions whose memory is lent whole, and the macro that wraps them.

use crate::loan::value_at;

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
            const NAME: &core::ffi::CStr = match core::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => c"",
            };
            static FUNCTION: crate::next::Next = crate::next::Next::new(NAME);
            #[used]
            #[cfg_attr(not(test), unsafe(link_section = ".init_array"))]
            static FIND: extern "C" fn() = {
                // Looked up at the start: a handler of signals may be the first to call it.
                extern "C" fn find() {
                    FUNCTION.find();
                }
                find
            };
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

/// Bytes of a socket address, whose length lies at an address.
///
/// # Safety
/// Null, or the address of a length.
unsafe fn length_at(address: usize) -> usize {
    if address == 0 {
        return 0;
    }
    // SAFETY: the caller's promise.
    unsafe { value_at::<u32>(address) as usize }
}

wrapped! {
    plain [stat stat64 lstat lstat64 statfs statfs64 utime utimes lutimes](a, b) [text(a) page(b)];
    plain [
        fstat fstat64 fstatfs fstatfs64 futimens futimes eventfd_read eventfd_write clock_gettime
        clock_getres clock_settime getrusage getitimer timer_gettime timerfd_gettime getrlimit getrlimit64
        setrlimit setrlimit64 sched_setparam sched_getparam sched_rr_get_interval mq_getattr mq_notify
        tcgetattr
    ](a, b) [page(b)];
    plain [fstatat fstatat64 utimensat](a, b, c, d) [text(b) page(c)];
    plain [statx](a, b, c, d, e) [text(b) page(e)];
    plain [__xstat __xstat64 __lxstat __lxstat64](a, b, c) [text(b) page(c)];
    plain [__fxstat __fxstat64 fcntl fcntl64 ioctl sched_setscheduler msgctl shmctl tcsetattr](a, b, c) [page(c)];
    plain [__fxstatat __fxstatat64](a, b, c, d, e) [text(c) page(d)];
    plain [
        statvfs statvfs64 __open_2 __open64_2 creat creat64 access eaccess euidaccess chmod mkdir mkfifo
        truncate truncate64 mkostemp mkostemp64 mkstemps mkstemps64 memfd_create umount2
    ](a, b) [text(a)];
    plain [open open64 mknod chown lchown mkostemps mkostemps64 shm_open](a, b, c) [text(a)];
    plain [openat openat64 faccessat fchmodat mknodat](a, b, c, d) [text(b)];
    plain [__openat_2 __openat64_2 mkdirat mkfifoat unlinkat inotify_add_watch](a, b, c) [text(b)];
    plain [
        chdir chroot rmdir unlink remove opendir shm_unlink sem_unlink mq_unlink acct swapoff umount mkstemp
        mkstemp64 mkdtemp
    ](a) [text(a)];
    plain [fchownat](a, b, c, d, e) [text(b)];
    plain [link rename symlink removexattr lremovexattr](a, b) [text(a) text(b)];
    plain [linkat renameat2](a, b, c, d, e) [text(b) text(d)];
    plain [renameat](a, b, c, d) [text(b) text(d)];
    plain [symlinkat](a, b, c) [text(a) text(c)];
    plain [readlink listxattr llistxattr](a, b, c) [text(a) bytes(b, c)];
    plain [__readlink_chk](a, b, c, d) [text(a) bytes(b, c)];
    plain [readlinkat fgetxattr](a, b, c, d) [text(b) bytes(c, d)];
    plain [__readlinkat_chk fsetxattr](a, b, c, d, e) [text(b) bytes(c, d)];
    plain [getcwd gethostname getdomainname sethostname setdomainname getentropy](a, b) [bytes(a, b)];
    plain [__getcwd_chk getrandom](a, b, c) [bytes(a, b)];
    plain [getwd pipe wait sigpending sigsuspend times adjtimex ntp_adjtime uname sysinfo](a) [page(a)];
    plain [sem_open mq_open](a, b, c, d) [text(a)];
    plain [setxattr lsetxattr](a, b, c, d, e) [text(a) text(b) bytes(c, d)];
    plain [getxattr lgetxattr](a, b, c, d) [text(a) text(b) bytes(c, d)];
    plain [flistxattr getdents64 pthread_getname_np ttyname_r ptsname_r](a, b, c) [bytes(b, c)];
    plain [fremovexattr pthread_setname_np](a, b) [text(b)];
    plain [name_to_handle_at](a, b, c, d, e) [text(b) page(c) page(d)];
    plain [open_by_handle_at waitpid signalfd](a, b, c) [page(b)];
    plain [fanotify_mark](a, b, c, d, e) [text(e)];
    plain [mount](a, b, c, d, e) [text(a) text(b) text(c) page(e)];
    plain [__read_chk recv mq_send](a, b, c, d) [bytes(b, c)];
    plain [__pread_chk __pread64_chk __recv_chk](a, b, c, d, e) [bytes(b, c)];
    plain [pipe2](a, b) [page(a)];
    plain [sendfile sendfile64 waitid](a, b, c, d) [page(c)];
    plain [splice copy_file_range](a, b, c, d, e, f) [page(b) page(d)];
    plain [recvfrom](a, b, c, d, e, f) [bytes(b, c) page(f) bytes(e, length_at(f))];
    plain [__recvfrom_chk](a, b, c, d, e, f, g) [bytes(b, c) page(g) bytes(f, length_at(g))];
    plain [sendto](a, b, c, d, e, f) [bytes(b, c) bytes(e, int(f))];
    plain [sendmsg recvmsg](a, b, c) [message(b)];
    plain [bind connect klogctl](a, b, c) [bytes(b, int(c))];
    plain [accept getsockname getpeername](a, b, c) [page(c) bytes(b, length_at(c))];
    plain [accept4](a, b, c, d) [page(c) bytes(b, length_at(c))];
    plain [getsockopt](a, b, c, d, e) [page(e) bytes(d, length_at(e))];
    plain [socketpair epoll_ctl semctl](a, b, c, d) [page(d)];
    plain [poll](a, b, c) [bytes(a, b.saturating_mul(8))];
    plain [__poll_chk](a, b, c, d) [bytes(a, b.saturating_mul(8))];
    plain [ppoll](a, b, c, d) [bytes(a, b.saturating_mul(8)) page(c) page(d)];
    plain [__ppoll_chk](a, b, c, d, e) [bytes(a, b.saturating_mul(8)) page(c) page(d)];
    plain [select](a, b, c, d, e) [page(b) page(c) page(d) page(e)];
    plain [pselect](a, b, c, d, e, f) [page(b) page(c) page(d) page(e) page(f)];
    plain [epoll_wait](a, b, c, d) [bytes(b, int(c).saturating_mul(16))];
    plain [epoll_pwait](a, b, c, d, e) [bytes(b, int(c).saturating_mul(16)) page(e)];
    plain [epoll_pwait2](a, b, c, d, e) [bytes(b, int(c).saturating_mul(16)) page(d) page(e)];
    plain [wait3](a, b, c) [page(a) page(c)];
    plain [wait4](a, b, c, d) [page(b) page(d)];
    plain [sigprocmask pthread_sigmask sigaction setitimer timer_create mq_setattr](a, b, c) [page(b) page(c)];
    plain [sigwait sigwaitinfo nanosleep gettimeofday settimeofday](a, b) [page(a) page(b)];
    plain [sigtimedwait getresuid getresgid](a, b, c) [page(a) page(b) page(c)];
    plain [clock_nanosleep timer_settime timerfd_settime prlimit prlimit64](a, b, c, d) [page(c) page(d)];
    plain [getgroups setgroups](a, b) [bytes(b, int(a).saturating_mul(4).min(1 << 20))];
    plain [sched_setaffinity sched_getaffinity pthread_setaffinity_np pthread_getaffinity_np](a, b, c) [bytes(c, b)];
    plain [prctl](a, b, c, d, e) [page(b) page(c) page(d)];
    plain [mincore](a, b, c) [bytes(c, b.div_ceil(4096))];
    plain [semop](a, b, c) [bytes(b, c.saturating_mul(6))];
    plain [semtimedop](a, b, c, d) [bytes(b, c.saturating_mul(6)) page(d)];
    plain [msgsnd](a, b, c, d) [bytes(b, c.saturating_add(8))];
    plain [msgrcv](a, b, c, d, e) [bytes(b, c.saturating_add(8))];
    plain [mq_timedsend](a, b, c, d, e) [bytes(b, c) page(e)];
    plain [mq_receive](a, b, c, d) [bytes(b, c) page(d)];
    plain [mq_timedreceive](a, b, c, d, e) [bytes(b, c) page(d) page(e)];
    plain [process_vm_readv process_vm_writev](a, b, c, d, e, f) [parts(b, c) parts(d, e)];
    plain [io_getevents](a, b, c, d, e) [bytes(d, c.saturating_mul(32)) page(e)];
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
    kept [pthread_cond_wait cnd_wait](a, b) [keep(a, 64) keep(b, 64)];
    kept [pthread_cond_timedwait cnd_timedwait](a, b, c) [keep(a, 64) keep(b, 64) keep(c, 16)];
    kept [pthread_cond_clockwait](a, b, c, d) [keep(a, 64) keep(b, 64) keep(d, 16)];
    kept [pthread_barrier_init sem_init](a, b, c) [keep(a, 64)];
    kept [pthread_once call_once](a, b) [keep(a, 4)];
    kept [pthread_attr_setstack setbuffer](a, b, c) [keep(b, c)];
    kept [setvbuf](a, b, c, d) [keep(b, d)];
    kept [setbuf](a, b) [keep(b, 8192)];
}
