//! Raw system calls by inline assembly: no libc, no `errno` variable, no cancellation points.
//! Everything else in this crate stands on the seven functions here.

use crate::Errno;
use core::arch::asm;

/// System call numbers of this architecture.
pub use linux_raw_sys::general as number;

/// A system call with six arguments.
///
/// # Safety
/// The call must be sound with these arguments: pointers valid for what the kernel does with them, and no mapping
/// changed that safe code relies on.
#[inline(always)]
pub unsafe fn call6(number: u32, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> Result<usize, Errno> {
    let result: isize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the kernel's calling convention: rcx and r11 are overwritten, the user stack is not touched; the caller
    // vouches for the arguments.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack, preserves_flags)
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the kernel's calling convention: only x0 is overwritten; the caller vouches for the arguments.
    unsafe {
        asm!(
            "svc 0",
            in("x8") number as usize,
            inlateout("x0") a as isize => result,
            in("x1") b, in("x2") c, in("x3") d, in("x4") e, in("x5") f,
            options(nostack, preserves_flags)
        );
    }
    if (-4095..0).contains(&result) { Err(Errno(-result as u16)) } else { Ok(result as usize) }
}

macro_rules! shorter {
    ($($name:ident($($argument:ident),*) $($zero:literal)*;)*) => {
        $(
            /// A system call with fewer arguments.
            ///
            /// # Safety
            /// As for [`call6`].
            #[inline(always)]
            pub unsafe fn $name(number: u32, $($argument: usize),*) -> Result<usize, Errno> {
                // SAFETY: the caller's promise; the kernel ignores arguments that a call does not have.
                unsafe { call6(number, $($argument,)* $($zero),*) }
            }
        )*
    };
}

shorter! {
    call0() 0 0 0 0 0 0;
    call1(a) 0 0 0 0 0;
    call2(a, b) 0 0 0 0;
    call3(a, b, c) 0 0 0;
    call4(a, b, c, d) 0 0;
    call5(a, b, c, d, e) 0;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_and_results_are_told_apart() {
        // SAFETY: closing no descriptor, and asking for the process id, touch no memory.
        unsafe {
            assert_eq!(call1(number::__NR_close, usize::MAX), Err(Errno::BADF));
            assert!(call0(number::__NR_getpid).is_ok_and(|pid| pid > 0));
        }
    }
}
