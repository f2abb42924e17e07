//! Arguments for the linker: the library is initialised before all others, and jemalloc's seams are joined.

#[path = "../heap/src/wrapped.rs"]
mod wrapped;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=../heap/src/wrapped.rs");
    for argument in ["-Wl,-z,initfirst", "-Wl,-z,nodelete", "-Wl,-z,now", "-Wl,-soname,libream.so"] {
        println!("cargo:rustc-cdylib-link-arg={argument}");
    }
    for name in wrapped::WRAPPED {
        println!("cargo:rustc-cdylib-link-arg=-Wl,--wrap={name}");
    }
}
