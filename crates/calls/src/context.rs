//! Contexts and jumps: libc has the kernel read and write the mask of signals that lies in them. These functions return to
//! where they were called from, more than once or elsewhere, so they are left by a jump, and what they name is kept for good.

use crate::loan::keep;
use core::arch::global_asm;

/// Bytes of a `ucontext_t` as far as its mask of signals.
const CONTEXT: usize = 304;
/// Bytes of a `sigjmp_buf` as far as its mask of signals.
#[cfg(target_arch = "x86_64")]
const JUMP: usize = 80;
#[cfg(target_arch = "aarch64")]
const JUMP: usize = 192;

/// Wraps functions: what is done with their first two arguments before libc's goes on.
///
/// The linker's list of what we export has only functions of Rust's. Those are nothing but a jump, without arguments that the
/// compiler might put somewhere: what the stub does is all on the stack that it finds, and gone from there when it jumps on.
macro_rules! left_by_a_jump {
    ($($name:ident $stub:ident |$first:pat_param, $second:pat_param| $body:expr;)*) => {
        $(
            mod $name {
                use super::*;
                crate::next::found_at_start!(FUNCTION, $name);

                extern "C" fn before($first: usize, $second: usize) -> usize {
                    $body;
                    FUNCTION.address()
                }

                #[cfg(target_arch = "x86_64")]
                global_asm!(
                    ".p2align 4",
                    concat!(".type ", stringify!($stub), ", @function"),
                    concat!(".hidden ", stringify!($stub)),
                    concat!(".globl ", stringify!($stub)),
                    concat!(stringify!($stub), ":"),
                    "push rdi",
                    "push rsi",
                    "sub rsp, 8",
                    "call {before}",
                    "add rsp, 8",
                    "pop rsi",
                    "pop rdi",
                    "jmp rax",
                    concat!(".size ", stringify!($stub), ", . - ", stringify!($stub)),
                    before = sym before,
                );

                #[cfg(target_arch = "aarch64")]
                global_asm!(
                    ".p2align 4",
                    concat!(".type ", stringify!($stub), ", %function"),
                    concat!(".hidden ", stringify!($stub)),
                    concat!(".globl ", stringify!($stub)),
                    concat!(stringify!($stub), ":"),
                    "stp x29, x30, [sp, #-32]!",
                    "stp x0, x1, [sp, #16]",
                    "bl {before}",
                    "mov x16, x0",
                    "ldp x0, x1, [sp, #16]",
                    "ldp x29, x30, [sp], #32",
                    "br x16",
                    concat!(".size ", stringify!($stub), ", . - ", stringify!($stub)),
                    before = sym before,
                );

                unsafe extern "C" {
                    fn $stub();
                }

                #[doc = concat!(stringify!($name), ", as the manual describes it.")]
                ///
                /// # Safety
                /// As the manual says.
                #[inline(never)]
                #[unsafe(no_mangle)]
                pub unsafe extern "C" fn $name() {
                    // SAFETY: the arguments are where they came, and nothing is on the stack.
                    unsafe {
                        #[cfg(target_arch = "x86_64")]
                        core::arch::asm!("jmp {}", sym $stub, options(noreturn, nostack));
                        #[cfg(target_arch = "aarch64")]
                        core::arch::asm!("b {}", sym $stub, options(noreturn, nostack));
                    }
                }
            }
        )*
    };
}

left_by_a_jump! {
    getcontext ream_calls_getcontext |context, _| keep(context, CONTEXT);
    setcontext ream_calls_setcontext |context, _| keep(context, CONTEXT);
    swapcontext ream_calls_swapcontext |from, to| {
        keep(from, CONTEXT);
        keep(to, CONTEXT)
    };
    __sigsetjmp ream_calls_sigsetjmp |place, saves| {
        if saves & 0xffff_ffff != 0 {
            keep(place, JUMP);
        }
    };
    siglongjmp ream_calls_siglongjmp |place, _| keep(place, JUMP);
    __longjmp_chk ream_calls_longjmp_chk |place, _| keep(place, JUMP);
}
