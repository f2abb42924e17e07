//! syscall(2): calls by their numbers. Those that have functions here which know more are led there; of all others, each
//! argument is taken for an address, and the next for its length.

use crate::input::call;
use crate::list::{count, events, int, polled, semaphores, wrapped};
use crate::loan::{IOV_MAX, Loan, PAGE, keep, value_at};
use crate::{aio, exec, input, sockets, system};

/// Numbers of system calls on this machine. Of calls that it does not have they are numbers of nothing.
macro_rules! numbers {
    ($($name:ident $x86:literal $arm:expr;)*) => {
        $(
            #[cfg(target_arch = "x86_64")]
            const $name: usize = $x86;
            #[cfg(target_arch = "aarch64")]
            const $name: usize = $arm;
        )*
        /// Names, to see that no two have one number.
        #[cfg(test)]
        const NUMBERS: &[usize] = &[$($name),*];
    };
}
numbers! {
    READ 0 63;
    WRITE 1 64;
    POLL 7 usize::MAX;
    IOCTL 16 29;
    PREAD 17 67;
    PWRITE 18 68;
    READV 19 65;
    WRITEV 20 66;
    MINCORE 27 232;
    SENDTO 44 206;
    RECVFROM 45 207;
    SENDMSG 46 211;
    RECVMSG 47 212;
    EXECVE 59 221;
    SEMCTL 66 191;
    SIGALTSTACK 131 132;
    PRCTL 157 167;
    IO_GETEVENTS 208 4;
    IO_SUBMIT 209 2;
    SET_TID_ADDRESS 218 96;
    EPOLL_WAIT 232 usize::MAX - 1;
    MBIND 237 235;
    PSELECT 270 72;
    PPOLL 271 73;
    SET_ROBUST_LIST 273 99;
    VMSPLICE 278 75;
    MOVE_PAGES 279 239;
    EPOLL_PWAIT 281 22;
    PREADV 295 69;
    PWRITEV 296 70;
    RECVMMSG 299 243;
    SENDMMSG 307 269;
    PROCESS_VM_READV 310 270;
    PROCESS_VM_WRITEV 311 271;
    SECCOMP 317 277;
    GETRANDOM 318 278;
    EXECVEAT 322 281;
    PREADV2 327 286;
    PWRITEV2 328 287;
    IO_PGETEVENTS 333 292;
    RSEQ 334 293;
    PROCESS_MADVISE 440 440;
    EPOLL_PWAIT2 441 441;
    FUTEX_WAITV 449 449;
}

/// Calls that treat memory as such, which must not be brought in for them, or do not return: mmap, mprotect, munmap, brk,
/// mremap, msync, madvise, clone, fork, vfork, exit, mlock, munlock, remap_file_pages, exit_group, mlock2, pkey_mprotect,
/// clone3, set_mempolicy_home_node, mseal.
#[cfg(target_arch = "x86_64")]
const ALONE: &[usize] = &[9, 10, 11, 12, 25, 26, 28, 56, 57, 58, 60, 149, 150, 216, 231, 325, 329, 435, 450, 462];
#[cfg(target_arch = "aarch64")]
const ALONE: &[usize] = &[222, 226, 215, 214, 216, 227, 233, 220, 93, 228, 229, 234, 94, 284, 288, 435, 450, 462];

/// Most bytes that an argument of an unknown call is taken to name.
const GUESS: usize = 16 << 20;

wrapped! {
    raw [syscall](what, a, b, c, d, e, f) { |next| {
        // SAFETY: our own, for the same calls, and what the program passes for them.
        unsafe {
            match what {
                READ => input::read(a, b, c),
                WRITE => input::write(a, b, c),
                PREAD => input::pread64(a, b, c, d),
                PWRITE => input::pwrite64(a, b, c, d),
                READV => input::readv(a, b, c),
                WRITEV => input::writev(a, b, c),
                PREADV => input::preadv64(a, b, c, d),
                PWRITEV => input::pwritev64(a, b, c, d),
                PREADV2 => input::preadv64v2(a, b, c, d, f),
                PWRITEV2 => input::pwritev64v2(a, b, c, d, f),
                SENDTO => sockets::sendto(a, b, c, d, e, f),
                RECVFROM => sockets::recvfrom(a, b, c, d, e, f),
                SENDMSG => sockets::sendmsg(a, b, c),
                RECVMSG => sockets::recvmsg(a, b, c),
                GETRANDOM => input::getrandom(a, b, c),
                IOCTL => system::ioctl(a, b, c),
                PRCTL => system::prctl(a, b, c, d, e),
                SIGALTSTACK => system::sigaltstack(a, b),
                EXECVE => exec::copied([a, b, c], |a, b, c| call!(next, what, a, b, c, d, e, f)),
                EXECVEAT => exec::copied([b, c, d], |b, c, d| call!(next, what, a, b, c, d, e, f)),
                number if ALONE.contains(&number) => call!(next, what, a, b, c, d, e, f),
                _ => {
                    let _loan = named(what, [a, b, c, d, e, f]);
                    call!(next, what, a, b, c, d, e, f)
                }
            }
        }
    } };
}

/// Lends what a call names.
///
/// # Safety
/// The arguments of a system call.
unsafe fn named(what: usize, [a, b, c, d, e, f]: [usize; 6]) -> Loan {
    let loan = Loan::new();
    // SAFETY: the caller's promise.
    unsafe {
        match what {
            SENDMMSG => loan.messages(b, count(c)),
            RECVMMSG => loan.messages(b, count(c)).page(e),
            VMSPLICE => loan.parts(b, c),
            PROCESS_VM_READV | PROCESS_VM_WRITEV => loan.parts(b, c).theirs(a, d, e),
            // Of the memory that it is about nothing is wanted.
            PROCESS_MADVISE => loan.bytes(b, c.min(IOV_MAX) * 16),
            MINCORE => loan.bytes(c, b.div_ceil(PAGE)),
            MBIND => loan.page(d),
            MOVE_PAGES => {
                let of = |bytes: usize| b.min(GUESS) * bytes;
                loan.bytes(c, of(8)).bytes(d, of(4)).bytes(e, of(4))
            }
            POLL => loan.bytes(a, polled(b)),
            PPOLL => loan.bytes(a, polled(b)).page(c).page(d),
            EPOLL_WAIT => loan.bytes(b, events(c)),
            EPOLL_PWAIT | EPOLL_PWAIT2 => loan.bytes(b, events(c)).page(d).page(e),
            PSELECT => masked(loan.page(b).page(c).page(d).page(e), f),
            SEMCTL => loan.bytes(d, semaphores(c)),
            IO_SUBMIT => aio::submitted(b, c),
            IO_GETEVENTS => loan.bytes(d, aio::events(c)).page(e),
            IO_PGETEVENTS => masked(loan.bytes(d, aio::events(c)).page(e), f),
            SECCOMP => system::filter(loan.page(c), if int(a) == 1 { c } else { 0 }),
            FUTEX_WAITV => {
                const BYTES: usize = 24;
                const MOST: usize = 128;
                let number = count(b).min(MOST);
                let mut loan = loan.bytes(a, number * BYTES).page(d);
                for index in 0..number {
                    loan = loan.bytes(value_at(a + index * BYTES + 8), 8);
                }
                loan
            }
            // Used at any time from now on.
            SET_TID_ADDRESS | SET_ROBUST_LIST | RSEQ => {
                keep(a, 32);
                loan
            }
            _ => [[a, b], [b, c], [c, d], [d, e], [e, f], [f, 0]].into_iter().fold(loan, |loan, [address, bytes]| {
                // Some lengths leave a head of a few bytes out.
                const HEAD: usize = 64;
                if bytes > PAGE - HEAD && bytes <= GUESS {
                    loan.bytes(address, bytes + HEAD)
                } else {
                    loan.page(address)
                }
            }),
        }
    }
}

/// And a mask of signals with its length, as some calls take it in one argument.
///
/// # Safety
/// The address of the two, or null.
unsafe fn masked(loan: Loan, pair: usize) -> Loan {
    if pair == 0 {
        return loan;
    }
    // SAFETY: the caller's promise.
    loan.bytes(pair, 16).page(unsafe { value_at(pair) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loan::lent_so_far;

    #[test]
    fn no_two_calls_have_one_number() {
        let all: std::collections::BTreeSet<usize> = NUMBERS.iter().chain(ALONE).copied().collect();
        assert_eq!(all.len(), NUMBERS.len() + ALONE.len());
    }

    #[test]
    fn what_calls_name_is_lent() {
        let waits = [[1usize, 0x91000, 2], [1, 0x92000, 2]];
        let waits = waits.as_ptr().expose_provenance();
        let mask = [0x93000usize, 8];
        let mask = mask.as_ptr().expose_provenance();
        let loan = |what: usize, arguments: [usize; 6]| {
            // SAFETY: as the manuals describe them.
            drop(unsafe { named(what, arguments) });
        };
        loan(FUTEX_WAITV, [waits, 2, 0, 0, 0, 0]);
        loan(PSELECT, [0, 0, 0, 0, 0, mask]);
        loan(MOVE_PAGES, [0, 5000, 0x94000, 0, 0x95000, 0]);
        loan(EPOLL_PWAIT2, [3, 0x96000, 1000, 0, 0, 0]);
        loan(MINCORE, [0x97000, 10 * PAGE + 1, 0x98000, 0, 0, 0]);
        loan(SET_ROBUST_LIST, [0x99000, 24, 0, 0, 0, 0]);
        // One that nothing is known of.
        loan(100_000, [5, 0x9a000, 70_000, 0x9b000, 8, 0]);
        let lent = lent_so_far();
        let wanted = [
            (0x91000, 8),
            (0x92000, 8),
            (0x93000, PAGE),
            (0x94000, 40_000),
            (0x95000, 20_000),
            (0x96000, 16_000),
            (0x98000, 11),
            (0x99000, 32),
            (0x9a000, 70_064),
            (0x9b000, PAGE),
        ];
        for wanted in wanted {
            assert!(lent.contains(&wanted), "{wanted:x?} of {lent:x?}");
        }
        assert!(!lent.iter().any(|(address, _)| *address == 0x97000), "only asked about");
    }
}
