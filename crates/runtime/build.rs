//! Arguments for the linker: the library is initialised before all others, and jemalloc's seams are joined.

// The list is the heap's; a build script cannot use a library that is not built for it.
const WRAPPED: [&str; 6] = ["_rjem_je_arena_new", "pthread_atfork", "mmap", "munmap", "mprotect", "madvise"];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    for argument in ["-Wl,-z,initfirst", "-Wl,-z,nodelete", "-Wl,-z,now", "-Wl,-soname,libream.so"] {
        println!("cargo:rustc-cdylib-link-arg={argument}");
    }
    for name in WRAPPED {
        println!("cargo:rustc-cdylib-link-arg=-Wl,--wrap={name}");
    }
}
