//! libream.so: loaded before the program, it takes over malloc and anonymous memory and joins the session.
//!
//! Everything in it runs in somebody else's process: no standard library, no allocation, no thread-local data of its
//! own, raw system calls. Other threads, signal handlers and constructors may enter at any point of `exports`.
#![cfg_attr(not(test), no_std)]

pub mod abi;
mod advice;
mod agent;
mod blocks;
mod engine;
#[cfg(not(feature = "inside"))]
mod executed;
pub mod exports;
mod fork;
mod heap;
mod holds;
mod identity;
mod init;
#[cfg(feature = "inside")]
mod inside;
mod kernel;
mod lending;
#[cfg(not(feature = "inside"))]
mod loaded;
mod locks;
mod maps;
#[cfg(not(feature = "inside"))]
mod namespaces;
mod next;
#[cfg(not(test))]
mod nothing;
mod objects;
mod pages;
mod pieces;
mod pool;
mod pooled_shared;
mod prefault;
#[cfg(not(feature = "inside"))]
mod program_break;
mod references;
mod regions;
mod reserve;
mod rights;
mod say;
mod scattered;
mod shared;
mod stacks;
mod statics;
#[cfg(not(feature = "inside"))]
pub mod turns;
mod user;

#[cfg(feature = "inside")]
use inside::small;
#[cfg(not(feature = "inside"))]
use ream_heap::small;

/// Called by the dynamic linker; see `init`.
#[used]
#[cfg_attr(not(test), unsafe(link_section = ".init_array"))]
static START: extern "C" fn(core::ffi::c_int, *mut *mut core::ffi::c_char, *mut *mut core::ffi::c_char) = init::start;

/// Called by the dynamic linker; see `init`.
#[used]
#[cfg_attr(not(test), unsafe(link_section = ".fini_array"))]
static END: extern "C" fn() = init::end;

#[cfg(not(test))]
#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    say::tell(format_args!("stopped by an error of its own: {info}"));
    const SIGABRT: u32 = 6;
    let _ = ream_sys::process::kill(ream_sys::process::process_id(), SIGABRT);
    ream_sys::process::end_process(134)
}
