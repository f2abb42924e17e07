//! The C interface, `ream.h`, as an installation brings it: programs that are compiled by pkg-config and by CMake against a
//! scratch prefix, with a session and without, call all of it, rightly and wrongly.

use ream_tests::{Installation, Run, Scratch, program, ran, ream_binary, skip, tool};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};

/// The installation that all tests share.
fn installed() -> &'static Installation {
    static SHARED: OnceLock<Installation> = OnceLock::new();
    SHARED.get_or_init(|| Installation::new("abi"))
}

/// What pkg-config says a program needs.
fn flags() -> Option<Vec<String>> {
    installed().flags("ream", &["--cflags", "--libs"])
}

/// A program of the tests or an example, compiled.
fn compiled(source: &Path, language: &[&str]) -> Option<PathBuf> {
    let flags = flags()?;
    let name = source.file_stem().expect("a source").to_str().expect("its name");
    let (binary, warnings) = (installed().place(name), ["-Wall", "-Wextra", "-Werror"]);
    // Several tests run some of them.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock();
    if binary.is_file() {
        return Some(binary);
    }
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-g", "-pthread"]).args(language).args(warnings).arg("-I").arg(program("c"));
    ran(compiler.arg("-o").arg(&binary).arg(source).args(flags));
    Some(binary)
}

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the project").join("examples/c").join(name)
}

/// A program of the tests: plain when `memory` is 0, else in a session with so many MiB.
fn run(name: &str, arguments: &[&str], memory: u64) {
    let binary = compiled(&program(&format!("c/{name}.c")), &["-std=gnu11"]);
    let Some(binary) = binary else { return };
    let run = Run::of(&binary).args(arguments).unmeasured();
    let outcome = if memory == 0 { run.finish() } else { run.memory(memory).finish() };
    outcome.exited(0);
}

#[test]
fn every_function_in_a_session() {
    run("abi_calls", &["session"], 64);
}

#[test]
fn every_function_without_a_session() {
    run("abi_calls", &["alone"], 0);
}

/// Directories as many as can be had beside the session's, one that is too many, and one that is not asked for.
#[test]
fn blocks_have_a_store_of_their_own() {
    let scratch = Scratch::new("stores");
    let names: Vec<String> = ["a", "b", "c", "d", "e"]
        .map(|name| scratch.directory(name).canonicalize().expect("a directory").display().to_string())
        .into();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    run("abi_store", &names, 32);
    assert!(names.iter().all(|name| std::fs::read_dir(name).expect("a directory").next().is_none()));
}

#[test]
fn an_allocator_with_a_context() {
    run("abi_allocator", &[], 64);
    run("abi_allocator", &[], 0);
}

#[test]
fn pins_hold_advice_moves_and_budgets_change() {
    run("abi_advice", &[], 64);
}

#[test]
fn a_smaller_budget_begins_paging() {
    run("abi_budget", &["100", "64", "0"], 256);
    run("abi_budget", &["100", "64", "1"], 256);
}

#[test]
fn a_child_gives_back_nothing_of_its_parents() {
    run("abi_inherited", &[], 256);
}

#[test]
fn random_arguments_are_survived() {
    for seed in ["1", "2", "3"] {
        run("abi_fuzz", &[seed, "1500"], 64);
        run("abi_fuzz", &[seed, "1500"], 0);
    }
}

#[test]
fn threads_call_everything_at_once() {
    run("abi_threads", &["6", "60"], 64);
    run("abi_threads", &["6", "60"], 0);
}

#[test]
fn the_header_is_c99_and_cpp() {
    let Some(flags) = flags() else { return };
    let scratch = Scratch::new("header");
    for (compiler, name, standard) in [("cc", "a.c", "-std=c99"), ("c++", "a.cpp", "-std=c++11")] {
        let source = scratch.file(name);
        let text = "#include <ream.h>\n\
                    int main(void) { struct ream_status s; s.size = sizeof s;\n\
                    return ream_status ? ream_status(&s) : 7; }\n";
        std::fs::write(&source, text).expect("a source");
        for (linked, expected) in [(true, 0), (false, 7)] {
            // Weak: without the library the functions are not there.
            let flags = flags.iter().filter(|flag| linked || flag.starts_with("-I"));
            let weak = if linked { "-UREAM_WEAK" } else { "-DREAM_WEAK" };
            let binary = scratch.file(&format!("{name}.{linked}"));
            let mut command = Command::new(compiler);
            command.args([
                standard,
                "-Wall",
                "-Wextra",
                "-Wpedantic",
                "-Werror",
                "-Wno-address",
                "-fPIE",
                "-pie",
                weak,
            ]);
            ran(command.arg("-o").arg(&binary).arg(&source).args(flags));
            Run::of(&binary).unmeasured().finish().exited(expected);
            // And with it preloaded, they are.
            Run::of(&binary).unmeasured().memory(64).finish().exited(0);
        }
    }
}

#[test]
fn cmake_finds_it() {
    let Some(cmake) = tool("cmake") else { return skip("cmake", "not installed") };
    let scratch = Scratch::new("cmake");
    let list = "cmake_minimum_required(VERSION 3.10)\nproject(user C)\nfind_package(ream 0.1 REQUIRED)\n\
                add_executable(user user.c)\ntarget_link_libraries(user PRIVATE ream::ream)\n";
    std::fs::write(scratch.file("CMakeLists.txt"), list).expect("a project");
    let text = "#include <ream.h>\nint main(void) { return ream_phase(\"work\"); }\n";
    std::fs::write(scratch.file("user.c"), text).expect("a source");
    let build = scratch.directory("build");
    let prefix = installed().prefix();
    let mut configure = Command::new(&cmake);
    configure.arg("-S").arg(scratch.path()).arg("-B").arg(&build);
    ran(configure.arg(format!("-DCMAKE_PREFIX_PATH={}", prefix.display())));
    ran(Command::new(&cmake).arg("--build").arg(&build));
    Run::of(build.join("user")).unmeasured().finish().exited(0);
}

#[test]
fn the_examples_do_what_they_say() {
    let Some(regions) = compiled(&example("regions.c"), &["-std=gnu11"]) else { return };
    let outcome = Run::of(regions).memory(64).unmeasured().finish();
    outcome.exited(0);
    let text = outcome.out();
    assert!(text.contains("budget 64 MiB") && text.matches("ream_alloc").count() == 2, "{text}");

    // Four times the budget.
    let matrix = compiled(&example("matrix.c"), &["-std=gnu11"]).expect("as before");
    let plain = Run::of(&matrix).arg("256").unmeasured().finish();
    plain.exited(0);
    let paged = Run::of(&matrix).arg("256").memory(64).unmeasured().finish();
    paged.same_as(&plain);
    assert!(paged.summary().number("bytes_in") > 100 << 20, "{}", paged.summary().0);

    let phases = compiled(&example("phases.c"), &["-std=gnu11"]).expect("as before");
    let plain = Run::of(&phases).unmeasured().finish();
    let paged = Run::of(&phases).memory(64).unmeasured().finish();
    paged.same_as(&plain);
    let list = paged.summary().0["phases"].as_array().expect("phases").clone();
    let of = |index: usize, field: &str| list[index][field].as_u64().expect("a number");
    assert_eq!((list.len(), &list[0]["name"], &list[1]["name"]), (2, &"load".into(), &"step".into()), "{list:?}");
    assert_eq!((of(0, "times"), of(1, "times")), (1, 3));
    // Loading only writes, stepping reads it all three times.
    assert!(of(0, "bytes_in") < 32 << 20 && of(1, "bytes_in") > 150 << 20, "{list:?}");
    let text =
        Run::of(ream_binary()).args(["run", "--memory=64M", "--summary", "--"]).arg(&phases).unmeasured().finish();
    assert!(text.err().contains("ream: phase step: 3 times, "), "{}", text.describe());
}

#[test]
fn nothing_is_said_without_a_phase() {
    let Some(regions) = compiled(&example("regions.c"), &["-std=gnu11"]) else { return };
    let outcome = Run::of(regions).memory(256).unmeasured().finish();
    assert!(outcome.summary().0.get("phases").is_none(), "{}", outcome.summary().0);
}

#[test]
fn the_unit_of_the_memory_server_starts_what_is_installed() {
    let prefix = installed().prefix();
    let unit = std::fs::read_to_string(prefix.join("lib/systemd/system/ream-serve.service")).expect("the unit");
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).expect("what it starts");
    let program = start.split(' ').next().expect("a program");
    assert_eq!(Path::new(program), prefix.join("bin/ream"));
    assert!(Path::new(program).exists());
}
