//! libream_calls.so: loaded after libream.so where an ordinary user's userfaultfd serves no accesses by the kernel.
//!
//! It wraps every function of libc that hands a caller's memory to the kernel. Before the call, what is managed of that
//! memory is brought in, and it is kept from being paged out until the call returns; never is a call repeated that
//! failed, because some have consumed something by then. Memory that the kernel may use later, at any time (locks,
//! stacks of signals, buffers of streams), is kept resident for good. Calls with much memory are done in parts where nobody can
//! tell (`way`); all others need it all at once, and exceed the budget until they return when it does not fit.
//!
//! All arguments are passed on as whole registers, so that one signature serves integers and pointers of all sizes; none
//! of the functions has floating-point arguments. Where the size of a structure is not known, a page is lent: lending
//! too much is harmless.
#![cfg_attr(not(test), no_std)]

pub mod aio;
#[cfg(not(test))]
mod context;
pub mod direct;
pub mod exec;
#[cfg(target_arch = "x86_64")]
pub mod format;
pub mod input;
pub mod list;
mod loan;
mod next;
pub mod sockets;
pub mod stdio;
pub mod system;
mod way;

#[cfg(not(test))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    unsafe extern "C" {
        fn abort() -> !;
    }
    // SAFETY: ends the process.
    unsafe { abort() }
}
