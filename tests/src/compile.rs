//! Compiles the programs in `programs/`, once, with the machine's own compilers.

use crate::place::{build_root, program, tool};
use crate::skip;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// What a test needs of a compiler.
pub enum Build {
    /// The program's path.
    Ready(PathBuf),
    /// Why it cannot be had here.
    Missing(String),
}

fn newest(paths: &[PathBuf]) -> Option<std::time::SystemTime> {
    paths.iter().filter_map(|path| fs::metadata(path).ok()?.modified().ok()).max()
}

/// Compiles `source` (relative to `programs/`, for example `c/bss_big.c`) with additional `flags`.
///
/// # Panics
/// When the compiler is there and refuses the program.
pub fn build(source: &str, flags: &[&str]) -> Build {
    let path = program(source);
    let (compilers, own): (&[&str], &[&str]) = match path.extension().and_then(|extension| extension.to_str()) {
        Some("c") => (&["cc", "gcc", "clang"], &["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-pthread"]),
        Some("cpp") => (&["c++", "g++", "clang++"], &["-std=c++17", "-Wall", "-Wextra", "-Werror", "-pthread"]),
        Some("f90") => (&["gfortran"], &["-Wall", "-Werror", "-fopenmp"]),
        other => panic!("no compiler is known for {other:?}"),
    };
    let Some(compiler) = compilers.iter().find_map(|name| tool(name)) else {
        return Build::Missing(format!("no compiler ({})", compilers.join(", ")));
    };
    let directory = build_root().join("ream-tests").join("programs");
    fs::create_dir_all(&directory).expect("a directory for compiled programs");
    let name: String =
        [source, &flags.join("")].concat().chars().map(|c| if c.is_alphanumeric() { c } else { '_' }).collect();
    let result = directory.join(&name);
    let shared = ["c/common.h", "c/area.h", "c/look.h", "c/abi.h", "c/look_fortran.c", "../../include/ream.h"];
    let sources: Vec<PathBuf> = shared.map(program).into_iter().chain([path.clone()]).collect();
    if newest(std::slice::from_ref(&result)) > newest(&sources) {
        return Build::Ready(result);
    }
    // Tests run in parallel, in several processes: each compiles to a name of its own and renames.
    let fresh = directory.join(format!("{name}.{}.{:?}", std::process::id(), std::thread::current().id()));
    let mut command = Command::new(compiler);
    command.args(["-O2", "-g"]).args(own).args(flags).arg("-o").arg(&fresh).arg(&path);
    if source.starts_with("f90/") {
        command.arg("-J").arg(&directory);
    }
    if source.starts_with("c/") || source.starts_with("cpp/") {
        command.arg("-I").arg(program("c"));
    }
    let output = command.output().expect("starting the compiler");
    assert!(output.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&output.stderr));
    fs::rename(&fresh, &result).expect("naming the compiled program");
    Build::Ready(result)
}

/// The same; `None`, loudly, where it cannot be had.
pub fn compiled(source: &str, flags: &[&str]) -> Option<PathBuf> {
    match build(source, flags) {
        Build::Ready(path) => Some(path),
        Build::Missing(reason) => {
            skip(source, &reason);
            None
        }
    }
}
