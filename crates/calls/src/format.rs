//! printf and its kin: text is made in memory first, and then written like any other. (libc writes long strings to a
//! file directly from where they are.)
//!
//! Functions of any number of arguments cannot be written in Rust. In the calling convention of x86-64 one with six words,
//! eight numbers and a structure too large for registers finds all that it was given: in registers, and where the
//! structure would be, on the stack. Only what the format names is looked at there.

use crate::next::Next;
use crate::stdio::fwrite;
use core::ffi::c_void;

/// The arguments that did not fit in registers, seen as a structure passed by value.
#[repr(C)]
pub struct Stacked([usize; 64]);

/// A list of arguments as functions with a v in their names take it, in this calling convention.
#[repr(C)]
struct List {
    words_used: u32,
    numbers_used: u32,
    stacked: *const usize,
    registers: *const Registers,
}

#[repr(C, align(16))]
struct Registers {
    words: [usize; 6],
    numbers: [[f64; 2]; 8],
}

unsafe extern "C" {
    fn free(block: *mut c_void);
    static stdout: usize;
}

const EOF: isize = -1;

/// Makes the text and hands it on. `list` is a `va_list`.
///
/// # Safety
/// As for vasprintf.
unsafe fn format(format: usize, list: usize, write: impl FnOnce(usize, usize) -> isize) -> isize {
    static VASPRINTF: Next = Next::new(c"vasprintf");
    let mut text = core::ptr::null_mut::<c_void>();
    // SAFETY: libc's function, with the program's format and arguments.
    let bytes = unsafe {
        VASPRINTF.get::<unsafe extern "C" fn(*mut *mut c_void, usize, usize) -> i32>()(&raw mut text, format, list)
    };
    if bytes < 0 {
        return EOF;
    }
    let result = write(text.expose_provenance(), bytes as usize);
    // SAFETY: made by vasprintf.
    unsafe { free(text) };
    result
}

/// vfprintf, as the manual describes it.
///
/// # Safety
/// As the manual says.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn vfprintf(stream: usize, text: usize, list: usize) -> isize {
    // SAFETY: the program's arguments; a stream of its own, and our own text.
    unsafe {
        format(text, list, |start, bytes| {
            let done = fwrite(start, 1, bytes, stream);
            if done == bytes as isize { done } else { EOF }
        })
    }
}

/// vdprintf, as the manual describes it.
///
/// # Safety
/// As the manual says.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn vdprintf(fd: usize, text: usize, list: usize) -> isize {
    // SAFETY: the program's arguments, and our own text.
    unsafe {
        format(text, list, |start, bytes| {
            let mut done = 0;
            while done < bytes {
                match crate::input::write(fd, start + done, bytes - done) {
                    did if did > 0 => done += did as usize,
                    _ => return EOF,
                }
            }
            done as isize
        })
    }
}

/// vprintf, as the manual describes it.
///
/// # Safety
/// As the manual says.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn vprintf(text: usize, list: usize) -> isize {
    // SAFETY: the program's arguments.
    unsafe { vfprintf(stdout, text, list) }
}

/// The checked variants have a flag before the format, which does not matter here.
macro_rules! checked {
    ($($name:ident($($first:ident)?) $plain:ident;)*) => {
        $(
            #[doc = concat!(stringify!($name), ", as compilers call it for ", stringify!($plain), ".")]
            ///
            /// # Safety
            /// As the manual says.
            #[cfg_attr(not(test), unsafe(no_mangle))]
            pub unsafe extern "C" fn $name($($first: usize,)? _flag: usize, text: usize, list: usize) -> isize {
                // SAFETY: the program's arguments.
                unsafe { $plain($($first,)? text, list) }
            }
        )*
    };
}
checked! {
    __vfprintf_chk(first) vfprintf;
    __vdprintf_chk(first) vdprintf;
    __vprintf_chk() vprintf;
}

/// Functions of any number of arguments: how many they have before those that the format names.
macro_rules! variadic {
    ($($name:ident $named:literal |$words:ident, $list:ident| $body:expr;)*) => {
        $(
            #[doc = concat!(stringify!($name), ", as the manual describes it.")]
            ///
            /// # Safety
            /// As the manual says.
            #[cfg_attr(not(test), unsafe(no_mangle))]
            #[allow(clippy::too_many_arguments)]
            pub unsafe extern "C" fn $name(
                a: usize, b: usize, c: usize, d: usize, e: usize, f: usize,
                g: f64, h: f64, i: f64, j: f64, k: f64, l: f64, m: f64, n: f64,
                stacked: Stacked,
            ) -> isize {
                let $words = [a, b, c, d, e, f];
                let numbers = [g, h, i, j, k, l, m, n].map(|number| [number, 0.0]);
                let registers = Registers { words: $words, numbers };
                const WORDS: u32 = 6 * 8;
                let mut list = List {
                    words_used: $named * 8,
                    numbers_used: WORDS,
                    stacked: (&raw const stacked).cast(),
                    registers: &raw const registers,
                };
                let $list = (&raw mut list).expose_provenance();
                // SAFETY: the program's arguments.
                unsafe { $body }
            }
        )*
    };
}
variadic! {
    printf 1 |words, list| vprintf(words[0], list);
    fprintf 2 |words, list| vfprintf(words[0], words[1], list);
    dprintf 2 |words, list| vdprintf(words[0], words[1], list);
    __printf_chk 2 |words, list| vprintf(words[1], list);
    __fprintf_chk 3 |words, list| vfprintf(words[0], words[2], list);
    __dprintf_chk 3 |words, list| vdprintf(words[0], words[2], list);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_of_all_kinds_arrive() {
        type Printf = unsafe extern "C" fn(i32, *const i8, ...) -> isize;
        // SAFETY: the same calling convention, seen from a caller's side.
        let print = unsafe { core::mem::transmute::<*const (), Printf>(dprintf as *const ()) };
        let (reader, writer) = std::io::pipe().unwrap();
        use std::io::Read as _;
        use std::os::fd::AsRawFd as _;
        let format = c"%d %s %f %ld %g %c %d %d %s|%.1f %.1f %.1f %.1f %.1f %.1f %.1f %.1f %.1f";
        // SAFETY: arguments as the format names them.
        let bytes = unsafe {
            print(
                writer.as_raw_fd(),
                format.as_ptr(),
                -7i32,
                c"text".as_ptr(),
                1.5f64,
                1i64 << 40,
                2.25f64,
                'x' as i32,
                8i32,
                9i32,
                c"last".as_ptr(),
                1.0f64,
                2.0f64,
                3.0f64,
                4.0f64,
                5.0f64,
                6.0f64,
                7.0f64,
                8.0f64,
                9.0f64,
            )
        };
        drop(writer);
        let mut text = String::new();
        { reader }.read_to_string(&mut text).unwrap();
        assert_eq!(text, "-7 text 1.500000 1099511627776 2.25 x 8 9 last|1.0 2.0 3.0 4.0 5.0 6.0 7.0 8.0 9.0");
        assert_eq!(bytes, text.len() as isize);
    }
}
