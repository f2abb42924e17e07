//! DLM's interface, as an installation brings it: `dlmc` compiles programs with dlm arrays, which are paged under `ream
//! run` and where DLM_MEMORY asks for it, and refuses what it cannot translate; `dlm.h` does what it says.

use ream_tests::{Installation, MIB, Run, Scratch, make_runnable, program, ran, skip, tool};
use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

const WARNINGS: [&str; 4] = ["-O2", "-Wall", "-Wextra", "-Werror"];

fn installed() -> &'static Installation {
    static SHARED: OnceLock<Installation> = OnceLock::new();
    SHARED.get_or_init(|| Installation::new("dlm"))
}

fn dlmc() -> Command {
    Command::new(installed().prefix().join("bin/dlmc"))
}

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the project").join("examples/dlm").join(name)
}

/// A program of the tests, compiled by dlmc with these flags.
fn compiled(scratch: &Scratch, name: &str, flags: &[&str]) -> PathBuf {
    let binary = scratch.file(name);
    ran(dlmc().args(WARNINGS).args(flags).arg(program(&format!("c/{name}.c"))).arg("-o").arg(&binary).arg("-lm"));
    binary
}

/// Whether this installation has the library that begins sessions in running processes.
fn inside() -> bool {
    let there = installed().prefix().join("lib/ream/libream_inside.so").is_file();
    if !there {
        skip("DLM_MEMORY", "no libream_inside.so in this installation");
    }
    there
}

#[test]
fn the_ancestors_example_runs_at_four_times_the_budget() {
    let scratch = Scratch::new("dlm-example");
    let binary = scratch.file("matrix");
    ran(dlmc().args(WARNINGS).arg("-fopenmp").arg(example("dlm_matrix.c")).arg("-o").arg(&binary));
    let outcome = Run::of(&binary).memory(64).finish();
    outcome.exited(0).paged_within(64 * MIB, 16 * MIB);
    assert_eq!(outcome.out(), "256 MiB, sum 33822863117\n");
    assert!(outcome.summary().number("bytes_in") > 100 * MIB, "{}", outcome.describe());
    // Without Ream it is an ordinary program.
    Run::of(&binary).finish().same_as(&outcome);
}

#[test]
fn the_functions_example_runs_at_four_times_the_budget() {
    let Some(flags) = installed().flags("dlm", &["--cflags", "--libs"]) else { return };
    let scratch = Scratch::new("dlm-functions");
    let binary = scratch.file("alloc");
    ran(Command::new("cc").args(WARNINGS).arg(example("dlm_alloc.c")).arg("-o").arg(&binary).args(flags));
    let outcome = Run::of(&binary).memory(64).finish();
    outcome.exited(0).paged_within(64 * MIB, 16 * MIB);
    assert_eq!(outcome.out(), "256 MiB, sum 33822863117\n");
}

#[test]
fn a_file_of_cpp_is_refused() {
    let scratch = Scratch::new("dlm-cpp");
    fs::write(scratch.file("a.cpp"), "dlm int a[4];\nint main() { return a[0]; }\n").expect("a file");
    let output = dlmc().arg(scratch.file("a.cpp")).arg("-o").arg(scratch.file("a")).output().expect("running dlmc");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.lines().count() == 1, "{said}");
    assert!(said.contains("a.cpp: this is C++, and only C has dlm arrays") && !scratch.file("a").exists(), "{said}");
}

/// Another compiler behind it.
#[test]
fn with_clang() {
    let Some(clang) = tool("clang") else { return skip("dlmc with clang", "no clang") };
    let scratch = Scratch::new("dlm-clang");
    let binary = scratch.file("matrix");
    let mut command = dlmc();
    command.args(["-O2", "-Wall", "-Wno-unknown-pragmas"]).arg(example("dlm_matrix.c")).arg("-o").arg(&binary);
    ran(command.env("DLMC_CC", &clang));
    let outcome = Run::of(&binary).memory(64).finish();
    outcome.exited(0).paged_within(64 * MIB, 16 * MIB);
    assert_eq!(outcome.out(), "256 MiB, sum 33822863117\n");
    // What arrays mean, with this compiler's idea of a program.
    let source = program("c/dlm_torture.c");
    let (plain, managed) = (scratch.file("plain"), scratch.file("managed"));
    let options = ["-O2", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas"];
    ran(Command::new(&clang).arg("-Ddlm=").args(options).arg(&source).arg("-o").arg(&plain).arg("-lm"));
    ran(dlmc().args(options).arg(&source).arg("-o").arg(&managed).arg("-lm").env("DLMC_CC", &clang));
    let expected = Run::of(&plain).unmeasured().finish();
    expected.exited(0);
    Run::of(&managed).unmeasured().memory(64).finish().same_as(&expected);
}

#[test]
fn arrays_mean_what_plain_arrays_mean() {
    let scratch = Scratch::new("dlm-torture");
    let source = program("c/dlm_torture.c");
    for flags in
        [["-std=gnu11", "-O2"], ["-std=c99", "-D_GNU_SOURCE"], ["-flto", "-O3"], ["-fcommon", "-O0"], ["-fPIE", "-g3"]]
    {
        let (plain, managed) = (scratch.file("plain"), scratch.file("managed"));
        let options = ["-Wall", "-Wextra", "-Werror", "-fopenmp"];
        ran(Command::new("cc").arg("-Ddlm=").args(options).args(flags).arg(&source).arg("-o").arg(&plain).arg("-lm"));
        ran(dlmc().args(options).args(flags).arg(&source).arg("-o").arg(&managed).arg("-lm"));
        let expected = Run::of(&plain).unmeasured().finish();
        expected.exited(0);
        Run::of(&managed).unmeasured().finish().same_as(&expected);
        Run::of(&managed).memory(64).unmeasured().finish().same_as(&expected);
    }
}

#[test]
fn arrays_larger_than_ram_and_swap() {
    let scratch = Scratch::new("dlm-huge");
    let outcome = Run::of(compiled(&scratch, "dlm_huge", &[])).memory(64).finish();
    outcome.exited(0);
    let sum: u64 = (0..1024).map(|i| i % 100).sum();
    assert_eq!(outcome.out(), format!("{} {} {sum} 1.5 0\n", 1u64 << 36, 1u64 << 35));
}

#[test]
fn several_files_share_arrays() {
    let scratch = Scratch::new("dlm-files");
    let sources = ["c/dlm_files_a.c", "c/dlm_files_b.c"].map(program);
    let expected = format!("{} 42 1 480000\n", (0..300).sum::<u64>() * (0..200).sum::<u64>());
    // In one call, the first by its language; one by one; and as a library.
    let binary = scratch.file("once");
    ran(dlmc()
        .args(WARNINGS)
        .args(["-x", "c"])
        .arg(&sources[0])
        .args(["-x", "none"])
        .arg(&sources[1])
        .arg("-o")
        .arg(&binary));
    assert_eq!(Run::of(&binary).memory(64).finish().out(), expected);
    ran(dlmc().current_dir(scratch.path()).args(WARNINGS).arg("-c").args(&sources));
    let binary = scratch.file("parts");
    ran(dlmc().current_dir(scratch.path()).args(["dlm_files_a.o", "dlm_files_b.o", "-o"]).arg(&binary));
    assert_eq!(Run::of(&binary).memory(64).finish().out(), expected);
    ran(dlmc()
        .current_dir(scratch.path())
        .args(WARNINGS)
        .args(["-shared", "-fPIC"])
        .arg(&sources[1])
        .args(["-o", "libparts.so"]));
    ran(dlmc().current_dir(scratch.path()).args(WARNINGS).arg(&sources[0]).args([
        "-L.",
        "-Wl,-rpath,$ORIGIN",
        "-lparts",
        "-o",
        "shared",
    ]));
    assert_eq!(Run::of(scratch.file("shared")).memory(64).finish().out(), expected);
}

/// Compiles a text, in a directory of its own.
fn attempt(scratch: &Scratch, text: &str, arguments: &[&str]) -> Output {
    fs::write(scratch.file("x.c"), text).expect("writing a source");
    dlmc()
        .current_dir(scratch.path())
        .env("TMPDIR", scratch.directory("tmp"))
        .args(arguments)
        .output()
        .expect("running dlmc")
}

#[test]
fn errors_have_the_files_lines_and_nothing_is_left() {
    let scratch = Scratch::new("dlm-errors");
    let cases = [
        ("int x;\ndlm int *p;\n", "x.c:2: error: dlmc: p is a pointer"),
        (
            "#include <stdio.h>\n\nvoid f(void)\n{\n\tdlm int a[3];\n}\n",
            "x.c:5: error: dlmc: dlm declares arrays at file scope",
        ),
        ("#define D dlm int\nD a[2];\nint *p = a;\n", "x.c:3: error: dlmc: a is a dlm array, whose address"),
        (
            "#include <omp.h>\ndlm int a[3];\nvoid f(void) {\n#pragma omp parallel firstprivate(a)\n;\n}\n",
            "x.c:4: error: dlmc: a is a dlm array, which firstprivate",
        ),
        // What the compiler finds, it finds in the same lines.
        ("dlm int a[3];\nint f(void)\n{\n\treturn a.b;\n}\n", "x.c:4:"),
        ("int n;\ndlm int a[n];\n", "x.c:2:"),
        ("#include \"nothing.h\"\ndlm int a[3];\n", "x.c:1:"),
    ];
    for (text, words) in cases {
        let output = attempt(&scratch, text, &["-c", "-fopenmp", "x.c"]);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && errors.contains(words), "{text}\n{errors}");
        assert!(!scratch.file("x.o").exists(), "{text}");
    }
    let left: Vec<_> = fs::read_dir(scratch.file("tmp")).into_iter().flatten().collect();
    assert!(left.is_empty(), "{left:?}");
    let refused = attempt(&scratch, "dlm int a[3];", &["-static", "x.c"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("linked dynamically") && !refused.status.success());
}

#[test]
fn an_array_that_another_file_declares_plain_is_not_linked() {
    let scratch = Scratch::new("dlm-mixed");
    fs::write(scratch.file("y.c"), "extern int a[4]; int main(void) { return a[0]; }\n").expect("writing a source");
    let output = attempt(&scratch, "dlm int a[4];\n", &["x.c", "y.c"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && errors.contains("undefined reference"), "{errors}");
}

#[test]
fn it_stands_in_for_the_compiler() {
    let scratch = Scratch::new("dlm-compiler");
    fs::write(scratch.file("given.h"), "#define SIZE 5\n").expect("writing a header");
    let text =
        "#include <stdio.h>\n#include <dlm.h>\ndlm int a[SIZE];\nint main(void) { printf(\"%zu\\n\", sizeof a); }\n";
    let output = attempt(&scratch, text, &["-MMD", "-MP", "-include", "given.h", "x.c", "-o", "x"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(Run::of(scratch.file("x")).finish().out(), "20\n");
    let list = fs::read_to_string(scratch.file("x-x.d")).expect("a list of what was included");
    assert!(list.starts_with("x.o:") && list.contains("given.h"), "{list}");
    let shown = attempt(&scratch, text, &["--dlm-show", "-DSIZE=5", "x.c"]);
    assert!(String::from_utf8_lossy(&shown.stdout).contains("int (*a)[5] __asm__(\"dlm.a\");"));
    let assembly = attempt(&scratch, text, &["-S", "-DSIZE=5", "x.c"]);
    assert!(
        assembly.status.success() && fs::read_to_string(scratch.file("x.s")).is_ok_and(|text| text.contains("dlm.a"))
    );
    for argument in ["--version", "-dumpversion"] {
        let (own, real) = (ran(dlmc().arg(argument)), ran(Command::new("cc").arg(argument)));
        assert_eq!(own, real);
    }
    assert!(ran(dlmc().arg("--help")).contains("dlmc -O2 -fopenmp prog.c -o prog"));
    let preprocessed = attempt(&scratch, "dlm int a[3];", &["-E", "x.c"]);
    assert!(String::from_utf8_lossy(&preprocessed.stdout).contains("dlm int a[3];"));
    let none = dlmc().env("DLMC_CC", "no-such-compiler").args(["-c", "x.c"]).output().expect("running dlmc");
    assert!(String::from_utf8_lossy(&none.stderr).starts_with("dlmc: no-such-compiler: "), "{none:?}");
}

#[test]
fn functions_with_a_session_and_without() {
    let scratch = Scratch::new("dlm-calls");
    let binary = compiled(&scratch, "dlm_calls", &["-pthread", "-I", &program("c").to_string_lossy()]);
    Run::of(&binary).arg("session").memory(64).unmeasured().finish().exited(0);
    Run::of(&binary).arg("alone").unmeasured().finish().exited(0);
    // In a session the variable is nothing to anybody.
    Run::of(&binary).arg("session").env("DLM_MEMORY", "nonsense").memory(64).unmeasured().finish().exited(0);
    for size in ["4 ", "4X", "G", "-4M", "4Gi B", "99999999999T", "0"] {
        let outcome = Run::of(&binary).arg("refused").env("DLM_MEMORY", size).unmeasured().finish();
        outcome.exited(0).says(&format!("dlm: DLM_MEMORY={size} is no size"));
        assert_eq!(outcome.err().lines().count(), 1, "{}", outcome.describe());
    }
    let nowhere = scratch.path().to_string_lossy().into_owned();
    let outcome =
        Run::of(&binary).arg("refused").env("DLM_MEMORY", "64M").env("REAM_HOME", nowhere).unmeasured().finish();
    outcome.exited(0).says("dlm: DLM_MEMORY is set, and libream_inside.so is not found");
}

#[test]
fn without_memory_a_program_does_not_begin() {
    let scratch = Scratch::new("dlm-none");
    let text = "dlm char a[1UL << 50];\nint main(void) { return a[5]; }\n";
    let output = attempt(&scratch, text, &["x.c", "-o", "x"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Run::of(scratch.file("x")).finish().exited(125).says("dlm: no memory for a, 1125899906842624 bytes: ");
    let refused = Run::of(scratch.file("x")).env("DLM_MEMORY", "some").finish();
    refused.exited(125).says("dlm: DLM_MEMORY=some is no size");
}

#[test]
fn a_program_begins_a_session_itself() {
    if !inside() {
        return;
    }
    let scratch = Scratch::new("dlm-inside");
    let binary = scratch.file("matrix");
    ran(dlmc().args(WARNINGS).arg("-fopenmp").arg(example("dlm_matrix.c")).arg("-o").arg(&binary));
    let store = scratch.directory("store");
    let outcome = Run::of(&binary).env("DLM_MEMORY", "64M").env("TMPDIR", &store).env("REAM_SUMMARY", "yes").finish();
    outcome.exited(0);
    assert_eq!(outcome.out(), "256 MiB, sum 33822863117\n");
    assert!(outcome.peak_rss < 250 * MIB, "{}", outcome.describe());
    let binary = compiled(&scratch, "dlm_calls", &["-pthread", "-I", &program("c").to_string_lossy()]);
    Run::of(&binary).arg("session").env("DLM_MEMORY", "64M").finish().exited(0);
    Run::of(&binary).arg("refused").env("DLM_MEMORY", "1M").finish().exited(0).says("dlm: DLM_MEMORY=1M: ");
}

#[test]
fn files_with_and_without_arrays_in_one_call() {
    let scratch = Scratch::new("dlm-mixture");
    fs::write(scratch.file("given.h"), "static int given(void) { return 4; }\n").expect("writing a header");
    fs::write(scratch.file("y.c"), "int other(void) { return given(); }\n").expect("writing a source");
    let text = "dlm int a[3];\nint other(void);\nint main(void) { a[1] = given(); return a[1] + other(); }\n";
    let output = attempt(&scratch, text, &["-Wall", "-include", "given.h", "x.c", "y.c", "-o", "x"]);
    assert!(output.status.success() && output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    Run::of(scratch.file("x")).finish().exited(8);
    // What is linked again gets the libraries then.
    let again = attempt(&scratch, text, &["-include", "given.h", "-r", "x.c", "y.c", "-o", "both.o"]);
    assert!(again.status.success(), "{}", String::from_utf8_lossy(&again.stderr));
    assert!(attempt(&scratch, text, &["both.o", "-o", "again"]).status.success());
    Run::of(scratch.file("again")).memory(64).finish().exited(8);
}

#[test]
fn what_is_compiled_pleases_the_strictest_compiler() {
    let scratch = Scratch::new("dlm-strict");
    let flags = [
        "-std=c11",
        "-fopenmp",
        "-pedantic-errors",
        "-Wconversion",
        "-Wshadow",
        "-Wmissing-prototypes",
        "-Wstrict-prototypes",
    ];
    ran(dlmc().args(WARNINGS).args(flags).arg("-c").arg(example("dlm_matrix.c")).arg("-o").arg(scratch.file("x.o")));
}

#[test]
fn a_signal_ends_it_without_a_trace() {
    let scratch = Scratch::new("dlm-signal");
    let (slow, begun) = (scratch.file("slow"), scratch.file("begun"));
    // A compiler that has begun, and never ends.
    let script = format!("#!/bin/sh\ntouch {}\nexec sleep 100\n", begun.display());
    fs::write(&slow, script).expect("writing a script");
    make_runnable(&slow, 0o755);
    let temporary = scratch.directory("tmp");
    let mut child =
        dlmc().env("DLMC_CC", &slow).env("TMPDIR", &temporary).args(["-c", "x.c"]).spawn().expect("starting dlmc");
    let late = Instant::now() + Duration::from_secs(60);
    while !begun.exists() && Instant::now() < late {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(fs::read_dir(&temporary).expect("a directory").count(), 1);
    // SAFETY: a signal to a child that has not been waited for.
    unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
    let status = child.wait().expect("waiting for dlmc");
    assert_eq!(status.signal(), Some(libc::SIGTERM), "{status:?}");
    assert_eq!(fs::read_dir(&temporary).expect("a directory").count(), 0);
}
