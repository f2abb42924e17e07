//! Large pages for programs that a library cannot enter, static ones above all: a process of our own traces the program
//! through its exec, has it make a few system calls before its first instruction, and lets go of it.

pub mod hook;
mod layout;

use crate::failure;
use crate::os;
use crate::os::trace::{self, Registers, Stop, Traced};
use hook::Sites;
use layout::{BLOCK, Layout};
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

/// What is to be done in the program.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Plan {
    /// The file that is executed in the end, where a script begins with it.
    pub program: PathBuf,
    /// Whether its static data are put on large pages.
    pub data: Wish,
    /// Whether its main stack is.
    pub stack: Wish,
    /// Whether its stack is from its first whole block on.
    pub whole_stack: bool,
    /// What its libc's mprotect and mmap are to ask for, by `os::hook::wish`; nothing that it depends on.
    pub hook: u8,
    /// The name that ps is to show, where it is not that of the file.
    pub name: Option<Vec<u8>>,
    /// How a line about the program begins.
    pub title: String,
}

/// What is to be done with a part of the program's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Wish {
    /// Nothing.
    #[default]
    Leave,
    /// It is put on large pages.
    Large {
        /// The program must not run where that fails.
        required: bool,
    },
}

impl Plan {
    /// Whether the program must not run where a part of this cannot be done.
    fn required(&self) -> bool {
        [self.data, self.stack].contains(&Wish::Large { required: true })
    }

    /// Why the program does not run where it cannot have what is wished for a part of it.
    fn refusal(&self, part: &str) -> String {
        let title = self.title.get(..256).unwrap_or(&self.title);
        format!("ream: {title}, and its {part} cannot be put on large pages; --pages says that it must have them\n")
    }
}

/// Programs that may come before the one meant: a script's `env`.
const MOST_EXECS: u32 = 4;

/// Starts a process that carries out the plan at this process's next exec. What it did not come to do is not done:
/// from here on it can only make the program's start later, not fail.
///
/// # Errors
/// Why this process cannot be traced.
pub fn arrange(plan: &Plan) -> io::Result<()> {
    // What is orphaned in a process namespace becomes a child of its first process: the program would find it.
    if std::process::id() == 1 {
        return Err(io::Error::other("it would be process 1, which is given every orphan"));
    }
    let program = std::fs::metadata(&plan.program)?;
    let code = kernel_code().ok_or_else(|| io::Error::other("this machine has no vDSO"))?;
    let own = std::process::id();
    let (mut here, there) = UnixStream::pair()?;
    if trace::split_off()? {
        drop(here);
        let _ = follow(plan, &program, code, own, there);
        trace::end_at_once();
    }
    drop(there);
    let gone = |_| io::Error::other("the process that was to trace it ended");
    let mut number = [0; 4];
    here.read_exact(&mut number).map_err(gone)?;
    trace::allow_tracer(u32::from_ne_bytes(number));
    let answer = trace::tell(&here, &[0]).and_then(|()| here.read_exact(&mut number));
    trace::allow_tracer(0);
    answer.map_err(gone)?;
    match i32::from_ne_bytes(number) {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Where the kernel's code has a system call, from its start.
fn kernel_code() -> Option<usize> {
    let own = Layout::of(&std::fs::read_to_string("/proc/self/maps").ok()?).kernel_code?;
    trace::system_call_in_kernel_code(own.len())
}

/// The tracer's life.
fn follow(plan: &Plan, program: &Metadata, code: usize, pid: u32, mut peer: UnixStream) -> io::Result<()> {
    os::set_name(c"ream-inject");
    os::ignore_signals_of_groups();
    trace::tell(&peer, &std::process::id().to_ne_bytes())?;
    peer.read_exact(&mut [0])?;
    let attached = Traced::attach(pid);
    let error = attached.as_ref().err().map_or(0, |error| error.raw_os_error().unwrap_or(libc::EPERM));
    // Whoever reads to the end of what the program writes must not have to wait for us, nor keep a file system busy.
    let told = trace::tell(&peer, &error.to_ne_bytes());
    std::mem::forget(peer);
    trace::close_everything();
    let _ = std::env::set_current_dir("/");
    told?;
    let traced = attached?;
    let mut execs = 0;
    loop {
        match traced.wait()? {
            Stop::Ended => return Ok(()),
            Stop::Exec => {
                execs += 1;
                let meant = std::fs::metadata(format!("/proc/{pid}/exe"))
                    .is_ok_and(|now| (now.dev(), now.ino()) == (program.dev(), program.ino()));
                if meant {
                    break;
                }
                if execs == MOST_EXECS {
                    return leave(plan, traced);
                }
                traced.go_on(0)?;
            }
            Stop::Stopped => traced.stay_stopped()?,
            Stop::Interrupted | Stop::SystemCall => traced.go_on(0)?,
            Stop::Signal(signal) => traced.go_on(signal)?,
        }
    }
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).map(|text| Layout::of(&text));
    let layout = match maps {
        Ok(layout) => layout,
        // Nothing is changed yet.
        Err(_) => return leave(plan, traced),
    };
    let Some(kernel_code) = layout.kernel_code.as_ref() else { return leave(plan, traced) };
    let instruction = kernel_code.start + code;
    let mut found = [0; trace::SYSTEM_CALL_BYTES];
    if traced.read(instruction, &mut found).is_err() || !trace::is_system_call(&found) {
        return leave(plan, traced);
    }
    let sites = match plan.hook {
        0 => Sites::default(),
        _ => File::open(format!("/proc/{pid}/exe")).map_or_else(|_| Sites::default(), |file| Sites::find(&file)),
    };
    Injection::begin(traced, instruction)?.run(plan, &layout, &sites)
}

/// Lets a program go in which nothing can be done; one that must not run so dies with us.
fn leave(plan: &Plan, traced: Traced) -> io::Result<()> {
    if plan.required() { traced.guard() } else { traced.detach() }
}

/// A program stopped before its first instruction, which makes system calls for us.
struct Injection {
    traced: Traced,
    instruction: usize,
    registers: Registers,
    blocked: u64,
    /// It was to be stopped meanwhile.
    stopped: bool,
}

impl Injection {
    fn begin(traced: Traced, instruction: usize) -> io::Result<Injection> {
        traced.guard()?;
        // The stop at exec is inside the call, whose result is still to be put into a register.
        traced.interrupt()?;
        traced.go_on(0)?;
        loop {
            match traced.wait()? {
                Stop::Interrupted => break,
                Stop::Ended => return Err(io::Error::from_raw_os_error(libc::ESRCH)),
                Stop::Stopped => traced.stay_stopped()?,
                Stop::Signal(signal) => traced.go_on(signal)?,
                Stop::Exec | Stop::SystemCall => traced.go_on(0)?,
            }
        }
        let registers = traced.registers()?;
        let blocked = traced.block_signals(u64::MAX)?;
        Ok(Injection { traced, instruction, registers, blocked, stopped: false })
    }

    /// Does what is planned and lets the program begin. An error leaves the program to die with us: it is not whole.
    fn run(mut self, plan: &Plan, layout: &Layout, sites: &Sites) -> io::Result<()> {
        if let Some(name) = &plan.name {
            self.name(name)?;
        }
        if let Wish::Large { required } = plan.data {
            let mut placed = true;
            for data in &layout.data {
                placed &= self.data(data)?;
            }
            for zeros in &layout.zeros {
                placed &= self.advise(zeros.start, zeros.len(), libc::MADV_HUGEPAGE)?.is_ok();
            }
            if required && !placed {
                return self.refuse(&plan.refusal("static data"));
            }
        }
        if let (Wish::Large { required }, Some(stack)) = (plan.stack, &layout.stack) {
            if !self.stack(stack.end, plan.whole_stack)? && required {
                return self.refuse(&plan.refusal("main stack"));
            }
        }
        self.hook(plan.hook, layout, sites)?;
        self.traced.set_registers(&self.registers)?;
        self.traced.block_signals(self.blocked)?;
        if self.stopped {
            self.traced.stop_again();
        }
        self.traced.detach()
    }

    /// Ends the program before it has begun, with a line that it writes itself.
    fn refuse(mut self, line: &str) -> io::Result<()> {
        const STANDARD_ERROR: usize = 2;
        let place = (trace::stack_pointer(&self.registers) - 1024) & !15;
        if self.traced.write(place, line.as_bytes()).is_ok() {
            let _ = self.call(libc::SYS_write, [STANDARD_ERROR, place, line.len(), 0, 0, 0])?;
        }
        let status = usize::try_from(failure::OWN).unwrap_or(1);
        self.call(libc::SYS_exit_group, [status, 0, 0, 0, 0, 0]).map(drop)
    }

    /// Has the program make a system call. The outer error means that it is lost, the inner one is the call's.
    fn call(&mut self, number: libc::c_long, arguments: [usize; 6]) -> io::Result<io::Result<usize>> {
        let registers = trace::calling(&self.registers, self.instruction, number, arguments);
        self.traced.set_registers(&registers)?;
        let mut halves = 0;
        while halves < 2 {
            self.traced.to_system_call()?;
            match self.traced.wait()? {
                Stop::SystemCall => halves += 1,
                Stop::Ended => return Err(io::Error::from_raw_os_error(libc::ESRCH)),
                // The one that cannot be blocked. It is sent again at the end.
                Stop::Signal(libc::SIGSTOP) => self.stopped = true,
                Stop::Signal(_) | Stop::Stopped | Stop::Interrupted | Stop::Exec => {}
            }
        }
        Ok(trace::returned(&self.traced.registers()?))
    }

    fn advise(&mut self, start: usize, bytes: usize, advice: libc::c_int) -> io::Result<io::Result<usize>> {
        self.call(libc::SYS_madvise, [start, bytes, advice as usize, 0, 0, 0])
    }

    /// Puts whole blocks of data that are mapped from the file on large pages, which only anonymous memory can have; false
    /// where that fails.
    fn data(&mut self, blocks: &std::ops::Range<usize>) -> io::Result<bool> {
        const ACCESS: i32 = libc::PROT_READ | libc::PROT_WRITE;
        const KIND: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        let mut bytes = vec![0; BLOCK];
        let mut advised = true;
        for block in blocks.clone().step_by(BLOCK) {
            // A file that is shorter than its headers say.
            if self.traced.read(block, &mut bytes).is_err() {
                return Ok(false);
            }
            let mapped = self.call(libc::SYS_mmap, [block, BLOCK, ACCESS as usize, KIND as usize, usize::MAX, 0])?;
            if mapped.is_err() {
                return Ok(false);
            }
            advised &= self.advise(block, BLOCK, libc::MADV_HUGEPAGE)?.is_ok();
            self.traced.write(block, &bytes)?;
        }
        // Where the kernel had no large page at hand, it now makes room for one.
        let _ = self.advise(blocks.start, blocks.len(), libc::MADV_COLLAPSE)?;
        Ok(advised)
    }

    /// Maps the main stack down to its limit and advises it: a large page needs its whole block inside the mapping. The
    /// page that does it is written by the kernel, which answers with an error where the stack cannot be mapped so far. False
    /// where it has room for a large page by its limit and cannot have one.
    fn stack(&mut self, top: usize, whole: bool) -> io::Result<bool> {
        let limit = os::limit(libc::RLIMIT_STACK).map_or(usize::MAX, |bytes| bytes as usize);
        let pointer = trace::stack_pointer(&self.registers);
        let Some(place) = layout::stack(top, limit, pointer) else { return Ok(true) };
        let monotonic = libc::CLOCK_MONOTONIC as usize;
        if self.call(libc::SYS_clock_gettime, [monotonic, place.low, 0, 0, 0, 0])?.is_err() {
            return Ok(false);
        }
        if place.shallow && !whole {
            let _ = self.call(libc::SYS_clock_gettime, [monotonic, place.block - 16, 0, 0, 0, 0])?;
        }
        let advised = self.advise(place.low, top - place.low, libc::MADV_HUGEPAGE)?.is_ok();
        if whole && place.block + BLOCK <= top {
            let _ = self.advise(place.block, BLOCK, libc::MADV_COLLAPSE)?;
        }
        Ok(advised)
    }

    /// Has its libc's mprotect and mmap ask for large pages. What cannot be done is left out; an error is a program half changed.
    fn hook(&mut self, wishes: u8, layout: &Layout, sites: &Sites) -> io::Result<()> {
        let sites = sites.0.map(|site| layout.address_of(site?));
        let Some(program) = layout.code.iter().map(|(range, _)| range.start).min() else { return Ok(()) };
        if wishes == 0 || sites == [None; 2] {
            return Ok(());
        }
        // The code's page lies below all that is mapped of the file without a gap.
        let below = |start: usize| layout.mapped.iter().find(|range| range.end == start).map(|range| range.start);
        let lowest = std::iter::successors(Some(program), |start| below(*start)).last().unwrap_or(program);
        for place in hook::places(&layout.mapped, lowest).take(2) {
            let Some((page, changes)) = hook::page(sites, place, wishes) else { return Ok(()) };
            let same = |change: &hook::Change| {
                let mut now = [0; 8];
                self.traced.read(change.address, &mut now).is_ok() && now == change.before
            };
            if !changes.iter().all(same) {
                return Ok(());
            }
            if self.map_code(place, &page)? {
                for change in &changes {
                    // Not written: the call stays as it was.
                    if self.traced.write_code(change.address, change.after).is_err() {
                        let mut now = [0; 8];
                        self.traced.read(change.address, &mut now)?;
                        if now != change.before && now != change.after {
                            return Err(io::Error::from_raw_os_error(libc::EIO));
                        }
                    }
                }
                return Ok(());
            }
        }
        Ok(())
    }

    /// Maps a page of code there; false where that is not possible, and then nothing is mapped.
    fn map_code(&mut self, place: usize, code: &[u8]) -> io::Result<bool> {
        const KIND: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        const ACCESS: i32 = libc::PROT_READ | libc::PROT_WRITE;
        let mapped = self.call(libc::SYS_mmap, [place, hook::PAGE, ACCESS as usize, KIND as usize, usize::MAX, 0])?;
        let Ok(mapped) = mapped else { return Ok(false) };
        let mut there = vec![0; code.len()];
        let access = (libc::PROT_READ | libc::PROT_EXEC) as usize;
        // Kernels before 4.17 take the place for a wish.
        let done = mapped == place
            && self.traced.write(place, code).is_ok()
            && self.call(libc::SYS_mprotect, [place, hook::PAGE, access, 0, 0, 0])?.is_ok()
            && self.traced.read(place, &mut there).is_ok()
            && there == code;
        if !done {
            let _ = self.call(libc::SYS_munmap, [mapped, hook::PAGE, 0, 0, 0, 0])?;
        }
        Ok(done)
    }

    /// Names the program, by a text that lies below its stack for that moment.
    fn name(&mut self, name: &[u8]) -> io::Result<()> {
        let mut text = [0; 16];
        let length = name.len().min(15);
        text[..length].copy_from_slice(&name[..length]);
        let place = (trace::stack_pointer(&self.registers) - 512) & !15;
        let mut before = [0; 16];
        if self.traced.read(place, &mut before).and_then(|()| self.traced.write(place, &text)).is_ok() {
            let _ = self.call(libc::SYS_prctl, [libc::PR_SET_NAME as usize, place, 0, 0, 0, 0])?;
            self.traced.write(place, &before)?;
        }
        Ok(())
    }
}
