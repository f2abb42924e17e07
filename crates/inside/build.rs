//! Arguments for the linker.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    for argument in ["-Wl,-z,nodelete", "-Wl,-z,now", "-Wl,-soname,libream_inside.so"] {
        println!("cargo:rustc-cdylib-link-arg={argument}");
    }
}
