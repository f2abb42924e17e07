//! The worker of `ream bench pages`: an ordinary program that does one computation over memory of one kind, and prints
//! how many seconds that took after all of it had been touched, and a checksum. With `hand`, or `pool` where that is the heap,
//! it asks for large pages itself, as a programmer would who knows of them. Ends with 1 when the result is wrong.

mod compute;
mod place;

use compute::KERNELS;
use place::{How, Place};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let ([kernel, place, mebibytes, how] | [kernel, place, mebibytes, how, "--corrupt"]) = words.as_slice() else {
        usage()
    };
    let kernel = KERNELS.iter().find(|(name, _)| name == kernel).map(|(_, kernel)| *kernel);
    let (Some(kernel), Some(place), Ok(mebibytes), Some(how)) =
        (kernel, Place::named(place), mebibytes.parse::<usize>(), How::named(how))
    else {
        usage()
    };
    if how == How::Pool && place != Place::Heap {
        usage();
    }
    let outcome = place::with(place, mebibytes << 20, how, kernel, words.len() == 5);
    if !outcome.right {
        eprintln!("ream-bench-kernels: {}: WRONG RESULT", words[0]);
        std::process::exit(1);
    }
    println!("{} {}", outcome.seconds, outcome.sum & 0xffff_ffff);
}

fn usage() -> ! {
    let names: Vec<_> = KERNELS.iter().map(|(name, _)| *name).collect();
    eprintln!("usage: ream-bench-kernels {} heap|bss|stack MIB plain|hand|pool [--corrupt]", names.join("|"));
    eprintln!("(it is started by ream bench)");
    std::process::exit(125)
}
