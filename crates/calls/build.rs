//! Arguments for the linker.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // libc by name: loaded by dlopen, it finds the functions that it wraps only in what it needs.
    let arguments = [
        "-Wl,-z,nodelete",
        "-Wl,-z,now",
        "-Wl,-soname,libream_calls.so",
        "-Wl,--no-as-needed",
        "-lc",
        "-Wl,--as-needed",
    ];
    for argument in arguments {
        println!("cargo:rustc-cdylib-link-arg={argument}");
    }
}
