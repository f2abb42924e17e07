//! The `ream` command. Begins at C's `main`: Rust's own start would change how SIGPIPE is handled and open closed
//! descriptors, and the program that `ream run` becomes would inherit both.
#![no_main]

/// The entry that the C library calls.
#[unsafe(no_mangle)]
pub extern "C" fn main(_count: core::ffi::c_int, _arguments: *const *const core::ffi::c_char) -> core::ffi::c_int {
    ream_cli::main()
}
