//! ptrace(2) as far as one injection needs it: attaching, stops, registers, system calls made in another process, and its
//! memory. And the split from the process that is to be traced.

use super::{checked, child_signal_pending, forget_child_signal};
use std::io;
use std::os::fd::AsRawFd;

#[cfg(target_arch = "x86_64")]
const SYSCALL_INSTRUCTION: &[u8] = &[0x0f, 0x05];
#[cfg(target_arch = "aarch64")]
const SYSCALL_INSTRUCTION: &[u8] = &[0x01, 0x00, 0x00, 0xd4];

const NT_PRSTATUS: libc::c_long = 1;
const GET_SIGNAL_MASK: libc::c_uint = 0x420a;
const SET_SIGNAL_MASK: libc::c_uint = 0x420b;

/// General registers of a stopped process.
pub type Registers = libc::user_regs_struct;

/// Why a traced process has stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// It is no more.
    Ended,
    /// It has a new program, of which nothing has run yet.
    Exec,
    /// It was interrupted by us, or goes on after a stop.
    Interrupted,
    /// It stops because of this signal, and is to stay so until it is continued by another.
    Stopped,
    /// It is about to get this signal.
    Signal(i32),
    /// It enters or leaves a system call.
    SystemCall,
}

/// Splits a detached process off this one: a grandchild in a session of its own, whose end nobody here is told of.
/// `Ok(true)` in it, `Ok(false)` here.
pub fn split_off() -> io::Result<bool> {
    let had_signal = child_signal_pending();
    let adopts = Adoption::suspend();
    // SAFETY: this process has one thread, so the child may go on as usual.
    let child = checked(libc::c_long::from(unsafe { libc::fork() }))? as libc::pid_t;
    if child == 0 {
        // SAFETY: plain system calls; the first child only makes the second and ends.
        unsafe {
            libc::setsid();
            if libc::fork() != 0 {
                libc::_exit(0);
            }
        }
        return Ok(true);
    }
    // SAFETY: waits for our own child; a caller that ignores SIGCHLD makes this fail with ECHILD once it has ended.
    while unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) } < 0 {
        if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            break;
        }
    }
    drop(adopts);
    if !had_signal {
        forget_child_signal();
    }
    Ok(false)
}

/// A process that adopts orphans below it, as supervisors do, lets one generation pass: it would find a child that it
/// does not know.
struct Adoption(bool);

impl Adoption {
    fn suspend() -> Adoption {
        let mut adopts: libc::c_int = 0;
        // SAFETY: the first writes a number to where it may, the second passes one.
        unsafe {
            libc::prctl(libc::PR_GET_CHILD_SUBREAPER, &raw mut adopts);
            if adopts != 0 {
                libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 0);
            }
        }
        Adoption(adopts != 0)
    }
}

impl Drop for Adoption {
    fn drop(&mut self) {
        if self.0 {
            // SAFETY: passes a number.
            unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
        }
    }
}

/// Lets this process, and after 0 none, trace us where only parents may (Yama). Elsewhere it does nothing.
pub fn allow_tracer(pid: u32) {
    // SAFETY: passes a number.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::c_ulong::from(pid)) };
}

/// Sends a few bytes to the other end of a pair of sockets, which may have gone: no signal is sent then.
pub fn tell(peer: &std::os::unix::net::UnixStream, bytes: &[u8]) -> io::Result<()> {
    // SAFETY: readable bytes, and a descriptor that lives.
    let sent = unsafe { libc::send(peer.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL) };
    whole(sent, bytes.len())
}

/// Keeps large pages from this process and the programs that it becomes.
pub fn refuse_large_pages() -> io::Result<()> {
    // SAFETY: passes numbers.
    checked(libc::c_long::from(unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) })).map(|_| ())
}

/// Closes every descriptor, so that nobody waits for us to.
pub fn close_everything() {
    // SAFETY: the caller ends soon and uses none of them.
    unsafe { libc::syscall(libc::SYS_close_range, 0 as libc::c_uint, libc::c_uint::MAX, 0 as libc::c_uint) };
}

/// Ends at once, without what a program does at its end.
pub fn end_at_once() -> ! {
    // SAFETY: ends the process.
    unsafe { libc::_exit(0) }
}

/// Distance from the start of the kernel's own code in every process (the vDSO) to an instruction in it that makes a
/// system call. The code is the same in all processes of a machine.
pub fn system_call_in_kernel_code(bytes: usize) -> Option<usize> {
    // SAFETY: asks for a number.
    let start = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) } as usize;
    if start == 0 {
        return None;
    }
    // SAFETY: the kernel maps so many bytes there, readable, for the life of the process; the caller looked.
    let code = unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance::<u8>(start), bytes) };
    let step = if cfg!(target_arch = "aarch64") { 4 } else { 1 };
    (0..code.len()).step_by(step).find(|at| code[*at..].starts_with(SYSCALL_INSTRUCTION))
}

/// Whether these bytes begin with an instruction that makes a system call.
pub fn is_system_call(code: &[u8]) -> bool {
    code.starts_with(SYSCALL_INSTRUCTION)
}

/// Bytes of such an instruction.
pub const SYSTEM_CALL_BYTES: usize = SYSCALL_INSTRUCTION.len();

/// A process that we trace. It goes on by itself when we end, or when this is let go of; after [`Traced::guard`] it is
/// killed instead when we end.
pub struct Traced {
    pid: libc::pid_t,
}

impl Traced {
    /// Attaches to a process without stopping it.
    pub fn attach(pid: u32) -> io::Result<Traced> {
        let traced = Traced { pid: pid as libc::pid_t };
        traced.request(libc::PTRACE_SEIZE, 0, libc::PTRACE_O_TRACEEXEC as libc::c_long)?;
        Ok(traced)
    }

    fn request(&self, what: libc::c_uint, address: libc::c_long, data: libc::c_long) -> io::Result<()> {
        // SAFETY: requests with numbers only; those with memory have functions of their own.
        checked(unsafe { libc::ptrace(what, self.pid, address, data) }).map(|_| ())
    }

    /// From now on the process dies with us: between the first changed register and the last one restored it must not
    /// go on by itself.
    pub fn guard(&self) -> io::Result<()> {
        let options = libc::PTRACE_O_TRACEEXEC | libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_EXITKILL;
        self.request(libc::PTRACE_SETOPTIONS, 0, options as libc::c_long)
    }

    /// Waits for the next stop.
    pub fn wait(&self) -> io::Result<Stop> {
        let mut status = 0;
        loop {
            // SAFETY: `status` is writable.
            let done = unsafe { libc::waitpid(self.pid, &mut status, libc::__WALL) };
            if done == self.pid {
                break;
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
        if !libc::WIFSTOPPED(status) {
            return Ok(Stop::Ended);
        }
        let signal = libc::WSTOPSIG(status);
        Ok(match status >> 16 {
            libc::PTRACE_EVENT_EXEC => Stop::Exec,
            libc::PTRACE_EVENT_STOP if signal == libc::SIGTRAP => Stop::Interrupted,
            libc::PTRACE_EVENT_STOP => Stop::Stopped,
            0 if signal == libc::SIGTRAP | 0x80 => Stop::SystemCall,
            _ => Stop::Signal(signal),
        })
    }

    /// Lets it run on, with a signal or 0.
    pub fn go_on(&self, signal: i32) -> io::Result<()> {
        self.request(libc::PTRACE_CONT, 0, signal.into())
    }
    /// Lets it run to the next beginning or end of a system call.
    pub fn to_system_call(&self) -> io::Result<()> {
        self.request(libc::PTRACE_SYSCALL, 0, 0)
    }
    /// Leaves it stopped by a signal, until another continues it.
    pub fn stay_stopped(&self) -> io::Result<()> {
        self.request(libc::PTRACE_LISTEN, 0, 0)
    }
    /// Has it stop before it runs anything of its own program.
    pub fn interrupt(&self) -> io::Result<()> {
        self.request(libc::PTRACE_INTERRUPT, 0, 0)
    }
    /// Lets go of it.
    pub fn detach(self) -> io::Result<()> {
        self.request(libc::PTRACE_DETACH, 0, 0)
    }
    /// Stops it as the signal does that we kept from it.
    pub fn stop_again(&self) {
        // SAFETY: sends a signal to a process that cannot have been reaped, since we trace it.
        unsafe { libc::kill(self.pid, libc::SIGSTOP) };
    }

    /// Its registers.
    pub fn registers(&self) -> io::Result<Registers> {
        // SAFETY: plain numbers, for which all zeros are valid.
        let mut registers: Registers = unsafe { std::mem::zeroed() };
        let mut space = libc::iovec { iov_base: (&raw mut registers).cast(), iov_len: size_of::<Registers>() };
        // SAFETY: room for the registers, and the kernel is told how much.
        checked(unsafe { libc::ptrace(libc::PTRACE_GETREGSET, self.pid, NT_PRSTATUS, &raw mut space) })?;
        Ok(registers)
    }

    /// Sets its registers.
    pub fn set_registers(&self, registers: &Registers) -> io::Result<()> {
        let mut registers = *registers;
        let mut space = libc::iovec { iov_base: (&raw mut registers).cast(), iov_len: size_of::<Registers>() };
        // SAFETY: whole registers, which the kernel only reads.
        checked(unsafe { libc::ptrace(libc::PTRACE_SETREGSET, self.pid, NT_PRSTATUS, &raw mut space) }).map(|_| ())
    }

    /// Exchanges the set of signals that it blocks.
    pub fn block_signals(&self, mut set: u64) -> io::Result<u64> {
        let mut before = 0u64;
        let bytes = size_of::<u64>() as libc::c_long;
        // SAFETY: the kernel's signal sets have eight bytes here.
        checked(unsafe { libc::ptrace(GET_SIGNAL_MASK, self.pid, bytes, &raw mut before) })?;
        // SAFETY: as before.
        checked(unsafe { libc::ptrace(SET_SIGNAL_MASK, self.pid, bytes, &raw mut set) })?;
        Ok(before)
    }

    /// Reads its memory until `bytes` is full.
    pub fn read(&self, address: usize, bytes: &mut [u8]) -> io::Result<()> {
        let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        let remote = libc::iovec { iov_base: std::ptr::without_provenance_mut(address), iov_len: bytes.len() };
        // SAFETY: our side is writable for its length, the other is not ours.
        whole(unsafe { libc::process_vm_readv(self.pid, &local, 1, &remote, 1, 0) }, bytes.len())
    }

    /// Writes all of `bytes` to its memory.
    pub fn write(&self, address: usize, bytes: &[u8]) -> io::Result<()> {
        let local = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        let remote = libc::iovec { iov_base: std::ptr::without_provenance_mut(address), iov_len: bytes.len() };
        // SAFETY: our side is readable for its length, the other is not ours.
        whole(unsafe { libc::process_vm_writev(self.pid, &local, 1, &remote, 1, 0) }, bytes.len())
    }

    /// Writes a word to its memory, its code too, of which it then has a copy of its own.
    pub fn write_code(&self, address: usize, word: [u8; 8]) -> io::Result<()> {
        self.request(libc::PTRACE_POKETEXT, address as libc::c_long, libc::c_long::from_ne_bytes(word))
    }
}

fn whole(done: isize, wanted: usize) -> io::Result<()> {
    match checked(done as libc::c_long)? as usize == wanted {
        true => Ok(()),
        false => Err(io::Error::from_raw_os_error(libc::EFAULT)),
    }
}

/// Registers with which a system call is made, at an instruction that makes one.
#[cfg(target_arch = "x86_64")]
pub fn calling(before: &Registers, instruction: usize, number: libc::c_long, arguments: [usize; 6]) -> Registers {
    let [rdi, rsi, rdx, r10, r8, r9] = arguments.map(|argument| argument as u64);
    Registers {
        rip: instruction as u64,
        rax: number as u64,
        // Not inside a system call, so nothing is begun anew.
        orig_rax: u64::MAX,
        rdi,
        rsi,
        rdx,
        r10,
        r8,
        r9,
        ..*before
    }
}

/// Registers with which a system call is made, at an instruction that makes one.
#[cfg(target_arch = "aarch64")]
pub fn calling(before: &Registers, instruction: usize, number: libc::c_long, arguments: [usize; 6]) -> Registers {
    let mut registers = *before;
    for (register, argument) in registers.regs.iter_mut().zip(arguments) {
        *register = argument as u64;
    }
    registers.regs[8] = number as u64;
    registers.pc = instruction as u64;
    registers
}

/// What a system call returned.
pub fn returned(registers: &Registers) -> io::Result<usize> {
    #[cfg(target_arch = "x86_64")]
    let value = registers.rax as i64;
    #[cfg(target_arch = "aarch64")]
    let value = registers.regs[0] as i64;
    match value {
        -4095..=-1 => Err(io::Error::from_raw_os_error(-value as i32)),
        value => Ok(value as usize),
    }
}

/// The stack pointer.
pub fn stack_pointer(registers: &Registers) -> usize {
    #[cfg(target_arch = "x86_64")]
    let value = registers.rsp;
    #[cfg(target_arch = "aarch64")]
    let value = registers.sp;
    value as usize
}
