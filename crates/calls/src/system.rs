//! Functions that hand over memory in ways of their own.

use crate::input::call;
use crate::list::{int, wrapped};
use crate::loan::{Loan, PAGE, keep, value_at};
use crate::next::SYSCALL;

/// Numbers of calls that older versions of libc have no function for.
#[cfg(target_arch = "x86_64")]
mod number {
    pub const SCHED_SETATTR: usize = 314;
    pub const SCHED_GETATTR: usize = 315;
}
#[cfg(target_arch = "aarch64")]
mod number {
    pub const SCHED_SETATTR: usize = 274;
    pub const SCHED_GETATTR: usize = 275;
}

wrapped! {
    raw [sigaltstack](new, old) { |next| {
        if new != 0 {
            // SAFETY: the program's stack_t: address, flags, bytes.
            let [address, _, bytes] = unsafe { value_at::<[usize; 3]>(new) };
            keep(address, bytes);
        }
        let _loan = Loan::new().page(new).page(old);
        call!(next, new, old)
    } };
    raw [makecontext](context, start, count, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p) { |next| {
        // Signals may be delivered on that stack.
        // SAFETY: the program's ucontext_t: flags, link, and a stack_t.
        let [_, _, address, _, bytes] = unsafe { value_at::<[usize; 5]>(context) };
        keep(address, bytes);
        call!(next, context, start, count, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p)
    } };
    raw [ioctl](fd, request, argument) { |next| {
        // SAFETY: the program passes what the request asks for.
        let _loan = unsafe { requested(request, argument) };
        call!(next, fd, request, argument)
    } };
    raw [prctl](what, a, b, c, d) { |next| {
        const SECCOMP: usize = 22;
        const FILTER: usize = 2;
        let filters = int(what) == SECCOMP && a == FILTER;
        // SAFETY: the program's filter.
        let _loan = unsafe { filter(Loan::new().page(a).page(b).page(c), if filters { b } else { 0 }) };
        call!(next, what, a, b, c, d)
    } };
    raw [sched_setattr](process, attributes, flags) { |next| {
        let _loan = Loan::new().page(attributes);
        if next.is_missing() {
            call!(SYSCALL, number::SCHED_SETATTR, process, attributes, flags)
        } else {
            call!(next, process, attributes, flags)
        }
    } };
    raw [sched_getattr](process, attributes, bytes, flags) { |next| {
        let _loan = Loan::new().page(attributes);
        if next.is_missing() {
            call!(SYSCALL, number::SCHED_GETATTR, process, attributes, bytes, flags)
        } else {
            call!(next, process, attributes, bytes, flags)
        }
    } };
}

/// Lends what an ioctl names: as much as the request's number says, and what follows it, or is named in it, in those that
/// files and interfaces of the network have.
///
/// # Safety
/// A structure of the request's kind, or whatever its argument is.
unsafe fn requested(request: usize, argument: usize) -> Loan {
    const SIZE: usize = 0x3fff;
    const EXTENTS: usize = 0xc020_660b;
    const INTERFACES: usize = 0x8912;
    let mut loan = Loan::new().bytes(argument, (request >> 16 & SIZE).max(PAGE));
    // SAFETY: the caller's promise: a head with the number of extents at 24; a number of bytes, and where they are.
    unsafe {
        match int(request) {
            EXTENTS if argument != 0 => {
                loan = loan.bytes(argument, 32 + value_at::<u32>(argument + 24) as usize * 56);
            }
            INTERFACES if argument != 0 => {
                let bytes = value_at::<i32>(argument).max(0) as usize;
                loan = loan.bytes(value_at(argument + 8), bytes);
            }
            _ => {}
        }
    }
    loan
}

/// And a filter of system calls, as prctl and seccomp take it.
///
/// # Safety
/// The address of one, or null.
pub unsafe fn filter(loan: Loan, address: usize) -> Loan {
    if address == 0 {
        return loan;
    }
    // SAFETY: the caller's promise: a number of instructions, and where they are.
    let (count, start) = unsafe { (value_at::<u16>(address), value_at::<usize>(address + 8)) };
    loan.bytes(start, usize::from(count) * 8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loan::lent_so_far;

    #[test]
    fn what_requests_name_is_lent() {
        let (extents, interfaces) = ([0u32, 0, 0, 0, 0, 0, 100, 0], [64usize, 0x81000]);
        let (extents, interfaces) = (extents.as_ptr().expose_provenance(), interfaces.as_ptr().expose_provenance());
        let program = [3usize, 0x82000];
        let program = program.as_ptr().expose_provenance();
        // SAFETY: structures as the manuals describe them.
        unsafe {
            drop(requested(0xc020_660b, extents));
            drop(requested(0x8912, interfaces));
            drop(requested(0xffff_ffff_2000_4500, 0x83000));
            drop(filter(Loan::new(), program));
        }
        let lent = lent_so_far();
        for wanted in [(extents, 5632), (0x81000, 64), (0x83000, 0x2000), (0x82000, 24)] {
            assert!(lent.contains(&wanted), "{wanted:x?} of {lent:x?}");
        }
    }
}
