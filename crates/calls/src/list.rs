//! The functions whose memory is lent whole, and the macro that wraps them.

use crate::loan::value_at;

/// Wraps functions. `plain NAME(ARGUMENT, ...) [bytes(ADDRESS, LENGTH) page(ADDRESS) text(ADDRESS) ...]` lends what
/// the list says for the time of the call; `keep` entries keep it for good. `raw NAME(ARGUMENT, ...) |next| RESULT`
/// does something of its own with the next library's function.
macro_rules! wrapped {
    ($($kind:ident $name:ident($($argument:ident),*) $([$($what:ident($($value:expr),+))*])? $(|$next:ident| $body:expr)?;)*) => {
        $(wrapped!(@one $kind $name($($argument),*) $([$($what($($value),+))*])? $(|$next| $body)?);)*
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
            $(crate::loan::keep($($value),+);)*
            crate::input::call!(next $(, $argument)*)
        });
    };
    (@one raw $name:ident($($argument:ident),*) |$next:ident| $body:expr) => {
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
fn int(register: usize) -> usize {
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
    plain stat(a, b) [text(a) page(b)];
    plain stat64(a, b) [text(a) page(b)];
    plain lstat(a, b) [text(a) page(b)];
    plain lstat64(a, b) [text(a) page(b)];
    plain statfs(a, b) [text(a) page(b)];
    plain statfs64(a, b) [text(a) page(b)];
    plain fstat(a, b) [page(b)];
    plain fstat64(a, b) [page(b)];
    plain fstatfs(a, b) [page(b)];
    plain fstatfs64(a, b) [page(b)];
    plain fstatat(a, b, c, d) [text(b) page(c)];
    plain fstatat64(a, b, c, d) [text(b) page(c)];
    plain statx(a, b, c, d, e) [text(b) page(e)];
    plain __xstat(a, b, c) [text(b) page(c)];
    plain __xstat64(a, b, c) [text(b) page(c)];
    plain __lxstat(a, b, c) [text(b) page(c)];
    plain __lxstat64(a, b, c) [text(b) page(c)];
    plain __fxstat(a, b, c) [page(c)];
    plain __fxstat64(a, b, c) [page(c)];
    plain __fxstatat(a, b, c, d, e) [text(c) page(d)];
    plain __fxstatat64(a, b, c, d, e) [text(c) page(d)];
    plain statvfs(a, b) [text(a)];
    plain statvfs64(a, b) [text(a)];
    plain open(a, b, c) [text(a)];
    plain open64(a, b, c) [text(a)];
    plain __open_2(a, b) [text(a)];
    plain __open64_2(a, b) [text(a)];
    plain creat(a, b) [text(a)];
    plain creat64(a, b) [text(a)];
    plain access(a, b) [text(a)];
    plain eaccess(a, b) [text(a)];
    plain euidaccess(a, b) [text(a)];
    plain chmod(a, b) [text(a)];
    plain mkdir(a, b) [text(a)];
    plain mkfifo(a, b) [text(a)];
    plain truncate(a, b) [text(a)];
    plain truncate64(a, b) [text(a)];
    plain openat(a, b, c, d) [text(b)];
    plain openat64(a, b, c, d) [text(b)];
    plain __openat_2(a, b, c) [text(b)];
    plain __openat64_2(a, b, c) [text(b)];
    plain faccessat(a, b, c, d) [text(b)];
    plain fchmodat(a, b, c, d) [text(b)];
    plain mkdirat(a, b, c) [text(b)];
    plain mkfifoat(a, b, c) [text(b)];
    plain unlinkat(a, b, c) [text(b)];
    plain mknod(a, b, c) [text(a)];
    plain mknodat(a, b, c, d) [text(b)];
    plain chdir(a) [text(a)];
    plain chroot(a) [text(a)];
    plain rmdir(a) [text(a)];
    plain unlink(a) [text(a)];
    plain remove(a) [text(a)];
    plain opendir(a) [text(a)];
    plain shm_unlink(a) [text(a)];
    plain sem_unlink(a) [text(a)];
    plain mq_unlink(a) [text(a)];
    plain acct(a) [text(a)];
    plain swapoff(a) [text(a)];
    plain umount(a) [text(a)];
    plain chown(a, b, c) [text(a)];
    plain lchown(a, b, c) [text(a)];
    plain fchownat(a, b, c, d, e) [text(b)];
    plain link(a, b) [text(a) text(b)];
    plain rename(a, b) [text(a) text(b)];
    plain symlink(a, b) [text(a) text(b)];
    plain linkat(a, b, c, d, e) [text(b) text(d)];
    plain renameat(a, b, c, d) [text(b) text(d)];
    plain renameat2(a, b, c, d, e) [text(b) text(d)];
    plain symlinkat(a, b, c) [text(a) text(c)];
    plain readlink(a, b, c) [text(a) bytes(b, c)];
    plain __readlink_chk(a, b, c, d) [text(a) bytes(b, c)];
    plain readlinkat(a, b, c, d) [text(b) bytes(c, d)];
    plain __readlinkat_chk(a, b, c, d, e) [text(b) bytes(c, d)];
    plain utime(a, b) [text(a) page(b)];
    plain utimes(a, b) [text(a) page(b)];
    plain lutimes(a, b) [text(a) page(b)];
    plain utimensat(a, b, c, d) [text(b) page(c)];
    plain futimens(a, b) [page(b)];
    plain futimes(a, b) [page(b)];
    plain getcwd(a, b) [bytes(a, b)];
    plain __getcwd_chk(a, b, c) [bytes(a, b)];
    plain getwd(a) [page(a)];
    plain mkstemp(a) [text(a)];
    plain mkstemp64(a) [text(a)];
    plain mkdtemp(a) [text(a)];
    plain mkostemp(a, b) [text(a)];
    plain mkostemp64(a, b) [text(a)];
    plain mkstemps(a, b) [text(a)];
    plain mkstemps64(a, b) [text(a)];
    plain mkostemps(a, b, c) [text(a)];
    plain mkostemps64(a, b, c) [text(a)];
    plain shm_open(a, b, c) [text(a)];
    plain sem_open(a, b, c, d) [text(a)];
    plain mq_open(a, b, c, d) [text(a)];
    plain setxattr(a, b, c, d, e) [text(a) text(b) bytes(c, d)];
    plain lsetxattr(a, b, c, d, e) [text(a) text(b) bytes(c, d)];
    plain fsetxattr(a, b, c, d, e) [text(b) bytes(c, d)];
    plain getxattr(a, b, c, d) [text(a) text(b) bytes(c, d)];
    plain lgetxattr(a, b, c, d) [text(a) text(b) bytes(c, d)];
    plain fgetxattr(a, b, c, d) [text(b) bytes(c, d)];
    plain listxattr(a, b, c) [text(a) bytes(b, c)];
    plain llistxattr(a, b, c) [text(a) bytes(b, c)];
    plain flistxattr(a, b, c) [bytes(b, c)];
    plain removexattr(a, b) [text(a) text(b)];
    plain lremovexattr(a, b) [text(a) text(b)];
    plain fremovexattr(a, b) [text(b)];
    plain inotify_add_watch(a, b, c) [text(b)];
    plain name_to_handle_at(a, b, c, d, e) [text(b) page(c) page(d)];
    plain open_by_handle_at(a, b, c) [page(b)];
    plain fanotify_mark(a, b, c, d, e) [text(e)];
    plain memfd_create(a, b) [text(a)];
    plain mount(a, b, c, d, e) [text(a) text(b) text(c) page(e)];
    plain umount2(a, b) [text(a)];
    plain getdents64(a, b, c) [bytes(b, c)];
    plain __read_chk(a, b, c, d) [bytes(b, c)];
    plain __pread_chk(a, b, c, d, e) [bytes(b, c)];
    plain __pread64_chk(a, b, c, d, e) [bytes(b, c)];
    plain fcntl(a, b, c) [page(c)];
    plain fcntl64(a, b, c) [page(c)];
    plain ioctl(a, b, c) [page(c)];
    plain pipe(a) [page(a)];
    plain pipe2(a, b) [page(a)];
    plain sendfile(a, b, c, d) [page(c)];
    plain sendfile64(a, b, c, d) [page(c)];
    plain splice(a, b, c, d, e, f) [page(b) page(d)];
    plain copy_file_range(a, b, c, d, e, f) [page(b) page(d)];
    plain eventfd_read(a, b) [page(b)];
    plain eventfd_write(a, b) [page(b)];
    plain recv(a, b, c, d) [bytes(b, c)];
    plain __recv_chk(a, b, c, d, e) [bytes(b, c)];
    plain recvfrom(a, b, c, d, e, f) [bytes(b, c) page(f) bytes(e, length_at(f))];
    plain __recvfrom_chk(a, b, c, d, e, f, g) [bytes(b, c) page(g) bytes(f, length_at(g))];
    plain sendto(a, b, c, d, e, f) [bytes(b, c) bytes(e, int(f))];
    plain sendmsg(a, b, c) [message(b)];
    plain recvmsg(a, b, c) [message(b)];
    plain bind(a, b, c) [bytes(b, int(c))];
    plain connect(a, b, c) [bytes(b, int(c))];
    plain accept(a, b, c) [page(c) bytes(b, length_at(c))];
    plain getsockname(a, b, c) [page(c) bytes(b, length_at(c))];
    plain getpeername(a, b, c) [page(c) bytes(b, length_at(c))];
    plain accept4(a, b, c, d) [page(c) bytes(b, length_at(c))];
    plain getsockopt(a, b, c, d, e) [page(e) bytes(d, length_at(e))];
    plain socketpair(a, b, c, d) [page(d)];
    plain poll(a, b, c) [bytes(a, b.saturating_mul(8))];
    plain __poll_chk(a, b, c, d) [bytes(a, b.saturating_mul(8))];
    plain ppoll(a, b, c, d) [bytes(a, b.saturating_mul(8)) page(c) page(d)];
    plain __ppoll_chk(a, b, c, d, e) [bytes(a, b.saturating_mul(8)) page(c) page(d)];
    plain select(a, b, c, d, e) [page(b) page(c) page(d) page(e)];
    plain pselect(a, b, c, d, e, f) [page(b) page(c) page(d) page(e) page(f)];
    plain epoll_ctl(a, b, c, d) [page(d)];
    plain epoll_wait(a, b, c, d) [bytes(b, int(c).saturating_mul(16))];
    plain epoll_pwait(a, b, c, d, e) [bytes(b, int(c).saturating_mul(16)) page(e)];
    plain epoll_pwait2(a, b, c, d, e) [bytes(b, int(c).saturating_mul(16)) page(d) page(e)];
    plain wait(a) [page(a)];
    plain waitpid(a, b, c) [page(b)];
    plain wait3(a, b, c) [page(a) page(c)];
    plain wait4(a, b, c, d) [page(b) page(d)];
    plain waitid(a, b, c, d) [page(c)];
    plain sigprocmask(a, b, c) [page(b) page(c)];
    plain pthread_sigmask(a, b, c) [page(b) page(c)];
    plain sigaction(a, b, c) [page(b) page(c)];
    plain sigpending(a) [page(a)];
    plain sigsuspend(a) [page(a)];
    plain sigwait(a, b) [page(a) page(b)];
    plain sigwaitinfo(a, b) [page(a) page(b)];
    plain sigtimedwait(a, b, c) [page(a) page(b) page(c)];
    plain signalfd(a, b, c) [page(b)];
    plain nanosleep(a, b) [page(a) page(b)];
    plain clock_nanosleep(a, b, c, d) [page(c) page(d)];
    plain clock_gettime(a, b) [page(b)];
    plain clock_getres(a, b) [page(b)];
    plain clock_settime(a, b) [page(b)];
    plain gettimeofday(a, b) [page(a) page(b)];
    plain settimeofday(a, b) [page(a) page(b)];
    plain times(a) [page(a)];
    plain adjtimex(a) [page(a)];
    plain ntp_adjtime(a) [page(a)];
    plain getrusage(a, b) [page(b)];
    plain getitimer(a, b) [page(b)];
    plain setitimer(a, b, c) [page(b) page(c)];
    plain timer_create(a, b, c) [page(b) page(c)];
    plain timer_settime(a, b, c, d) [page(c) page(d)];
    plain timerfd_settime(a, b, c, d) [page(c) page(d)];
    plain timer_gettime(a, b) [page(b)];
    plain timerfd_gettime(a, b) [page(b)];
    plain getresuid(a, b, c) [page(a) page(b) page(c)];
    plain getresgid(a, b, c) [page(a) page(b) page(c)];
    plain getgroups(a, b) [bytes(b, int(a).saturating_mul(4).min(1 << 20))];
    plain setgroups(a, b) [bytes(b, int(a).saturating_mul(4).min(1 << 20))];
    plain uname(a) [page(a)];
    plain sysinfo(a) [page(a)];
    plain getrlimit(a, b) [page(b)];
    plain getrlimit64(a, b) [page(b)];
    plain setrlimit(a, b) [page(b)];
    plain setrlimit64(a, b) [page(b)];
    plain prlimit(a, b, c, d) [page(c) page(d)];
    plain prlimit64(a, b, c, d) [page(c) page(d)];
    plain sched_setaffinity(a, b, c) [bytes(c, b)];
    plain sched_getaffinity(a, b, c) [bytes(c, b)];
    plain pthread_setaffinity_np(a, b, c) [bytes(c, b)];
    plain pthread_getaffinity_np(a, b, c) [bytes(c, b)];
    plain sched_setscheduler(a, b, c) [page(c)];
    plain sched_setparam(a, b) [page(b)];
    plain sched_getparam(a, b) [page(b)];
    plain sched_rr_get_interval(a, b) [page(b)];
    plain prctl(a, b, c, d, e) [page(b) page(c) page(d)];
    plain gethostname(a, b) [bytes(a, b)];
    plain getdomainname(a, b) [bytes(a, b)];
    plain sethostname(a, b) [bytes(a, b)];
    plain setdomainname(a, b) [bytes(a, b)];
    plain getrandom(a, b, c) [bytes(a, b)];
    plain getentropy(a, b) [bytes(a, b)];
    plain pthread_setname_np(a, b) [text(b)];
    plain pthread_getname_np(a, b, c) [bytes(b, c)];
    plain mincore(a, b, c) [bytes(c, b.div_ceil(4096))];
    plain klogctl(a, b, c) [bytes(b, int(c))];
    plain semop(a, b, c) [bytes(b, c.saturating_mul(6))];
    plain semtimedop(a, b, c, d) [bytes(b, c.saturating_mul(6)) page(d)];
    plain semctl(a, b, c, d) [page(d)];
    plain msgsnd(a, b, c, d) [bytes(b, c.saturating_add(8))];
    plain msgrcv(a, b, c, d, e) [bytes(b, c.saturating_add(8))];
    plain msgctl(a, b, c) [page(c)];
    plain shmctl(a, b, c) [page(c)];
    plain mq_send(a, b, c, d) [bytes(b, c)];
    plain mq_timedsend(a, b, c, d, e) [bytes(b, c) page(e)];
    plain mq_receive(a, b, c, d) [bytes(b, c) page(d)];
    plain mq_timedreceive(a, b, c, d, e) [bytes(b, c) page(d) page(e)];
    plain mq_getattr(a, b) [page(b)];
    plain mq_notify(a, b) [page(b)];
    plain mq_setattr(a, b, c) [page(b) page(c)];
    plain process_vm_readv(a, b, c, d, e, f) [parts(b, c) parts(d, e)];
    plain process_vm_writev(a, b, c, d, e, f) [parts(b, c) parts(d, e)];
    plain io_getevents(a, b, c, d, e) [bytes(d, c.saturating_mul(32)) page(e)];
    plain tcgetattr(a, b) [page(b)];
    plain tcsetattr(a, b, c) [page(c)];
    plain ttyname_r(a, b, c) [bytes(b, c)];
    plain ptsname_r(a, b, c) [bytes(b, c)];
    kept pthread_mutex_init(a, b) [with(a, 64)];
    kept pthread_cond_init(a, b) [with(a, 64)];
    kept pthread_rwlock_init(a, b) [with(a, 64)];
    kept pthread_mutex_lock(a) [with(a, 64)];
    kept pthread_mutex_trylock(a) [with(a, 64)];
    kept pthread_mutex_unlock(a) [with(a, 64)];
    kept pthread_cond_signal(a) [with(a, 64)];
    kept pthread_cond_broadcast(a) [with(a, 64)];
    kept pthread_rwlock_rdlock(a) [with(a, 64)];
    kept pthread_rwlock_wrlock(a) [with(a, 64)];
    kept pthread_rwlock_tryrdlock(a) [with(a, 64)];
    kept pthread_rwlock_trywrlock(a) [with(a, 64)];
    kept pthread_rwlock_unlock(a) [with(a, 64)];
    kept pthread_barrier_wait(a) [with(a, 64)];
    kept sem_wait(a) [with(a, 64)];
    kept sem_trywait(a) [with(a, 64)];
    kept sem_post(a) [with(a, 64)];
    kept mtx_lock(a) [with(a, 64)];
    kept mtx_unlock(a) [with(a, 64)];
    kept mtx_trylock(a) [with(a, 64)];
    kept cnd_signal(a) [with(a, 64)];
    kept cnd_broadcast(a) [with(a, 64)];
    kept pthread_mutex_timedlock(a, b) [with(a, 64) with(b, 16)];
    kept pthread_rwlock_timedrdlock(a, b) [with(a, 64) with(b, 16)];
    kept pthread_rwlock_timedwrlock(a, b) [with(a, 64) with(b, 16)];
    kept sem_timedwait(a, b) [with(a, 64) with(b, 16)];
    kept mtx_timedlock(a, b) [with(a, 64) with(b, 16)];
    kept pthread_mutex_clocklock(a, b, c) [with(a, 64) with(c, 16)];
    kept pthread_rwlock_clockrdlock(a, b, c) [with(a, 64) with(c, 16)];
    kept pthread_rwlock_clockwrlock(a, b, c) [with(a, 64) with(c, 16)];
    kept sem_clockwait(a, b, c) [with(a, 64) with(c, 16)];
    kept pthread_cond_wait(a, b) [with(a, 64) with(b, 64)];
    kept cnd_wait(a, b) [with(a, 64) with(b, 64)];
    kept pthread_cond_timedwait(a, b, c) [with(a, 64) with(b, 64) with(c, 16)];
    kept cnd_timedwait(a, b, c) [with(a, 64) with(b, 64) with(c, 16)];
    kept pthread_cond_clockwait(a, b, c, d) [with(a, 64) with(b, 64) with(d, 16)];
    kept pthread_barrier_init(a, b, c) [with(a, 64)];
    kept sem_init(a, b, c) [with(a, 64)];
    kept pthread_once(a, b) [with(a, 4)];
    kept call_once(a, b) [with(a, 4)];
    kept pthread_attr_setstack(a, b, c) [with(b, c)];
    kept setvbuf(a, b, c, d) [with(b, d)];
    kept setbuf(a, b) [with(b, 8192)];
    kept setbuffer(a, b, c) [with(b, c)];
}
