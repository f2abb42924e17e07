//! The Fortran module ream, as an installation brings it, compiled by gfortran.

use ream_tests::{Installation, MIB, Run, program, ran, skip, tool};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// For the module, which is to compile anywhere; and for programs, which may be old, and compare numbers exactly.
const MODULE: [&str; 5] = ["-O2", "-Wall", "-Wextra", "-Werror", "-std=f2018"];
const PROGRAM: [&str; 7] =
    ["-O2", "-Wall", "-Wextra", "-Werror", "-Wno-compare-reals", "-Wno-function-elimination", "-fopenmp"];

/// The installation and the compiled module in it; none where there is no compiler.
fn installed() -> Option<&'static (Installation, Vec<String>)> {
    static SHARED: OnceLock<Option<(Installation, Vec<String>)>> = OnceLock::new();
    SHARED
        .get_or_init(|| {
            if tool("gfortran").is_none() {
                skip("fortran", "no gfortran");
                return None;
            }
            let installation = Installation::new("fortran");
            let flags = installation.flags("ream", &["--libs"])?;
            let mut compiler = Command::new("gfortran");
            compiler.current_dir(installation.place("")).args(MODULE).arg("-c");
            ran(compiler.arg(installation.prefix().join("share/ream/fortran/ream.f90")));
            Some((installation, flags))
        })
        .as_ref()
}

/// Compiles a program that uses the module.
fn compiled(source: &Path, name: &str) -> Option<PathBuf> {
    let (installation, flags) = installed()?;
    let binary = installation.place(name);
    let mut compiler = Command::new("gfortran");
    compiler
        .current_dir(installation.place(""))
        .args(PROGRAM)
        .arg("-o")
        .arg(&binary)
        .arg(source)
        .arg("ream.o")
        .args(flags);
    ran(&mut compiler);
    Some(binary)
}

#[test]
fn every_procedure_with_a_session_and_without() {
    let Some(binary) = compiled(&program("f90/ream_calls.f90"), "ream_calls") else { return };
    let alone = Run::of(&binary).arg("alone").unmeasured().finish();
    alone.exited(0);
    assert_eq!(alone.out(), "all is well\n");
    let outcome = Run::of(&binary).arg("session").memory(64).unmeasured().finish();
    outcome.exited(0).same_as(&alone);
    let phases = outcome.summary().0["phases"].to_string();
    assert!(phases.contains("first") && phases.contains("second"), "{phases}");
    // Without stat= an error ends the program, with a line of its own.
    Run::of(&binary).arg("stops").unmeasured().finish().exited(1).says("ream_deallocate: ");
}

#[test]
fn the_stencil_runs_at_four_times_the_budget() {
    let source =
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the project").join("examples/fortran/stencil.f90");
    let Some(binary) = compiled(&source, "stencil") else { return };
    let outcome = Run::of(&binary).memory(64).finish();
    outcome.exited(0).paged_within(64 * MIB, 16 * MIB);
    assert_eq!(outcome.out(), "cells 11239424, heat 561973515.460\na budget of 64 MiB\n");
    let plain = Run::of(&binary).finish();
    assert_eq!(plain.exited(0).out(), "cells 11239424, heat 561973515.460\n");
}

/// For each kind and rank an array that is filled, summed, advised, pinned and freed.
#[test]
fn arrays_of_every_kind_and_rank() {
    if installed().is_none() {
        return;
    }
    let kinds = [
        ("integer(int8)", "1_int8"),
        ("integer(int16)", "1_int16"),
        ("integer(int32)", "1_int32"),
        ("integer(int64)", "1_int64"),
        ("real(real32)", "1.0_real32"),
        ("real(real64)", "1.0_real64"),
        ("complex(real32)", "(1.0_real32, 2.0_real32)"),
        ("complex(real64)", "(1.0_real64, 2.0_real64)"),
        ("logical(int32)", ".true."),
    ];
    let mut text = String::from(
        "program kinds\n  use iso_fortran_env\n  use ream\n  implicit none\n  integer :: stat, failed = 0\n",
    );
    let mut calls = String::new();
    for (number, (kind, value)) in kinds.iter().enumerate() {
        for rank in 1..=7 {
            let name = format!("a{number}_{rank}");
            let (colons, shape) = (vec![":"; rank].join(", "), vec!["3"; rank].join(", "));
            let large = vec!["3_int64"; rank].join(", ");
            let same = if kind.starts_with("logical") { ".eqv." } else { "==" };
            writeln!(text, "  {kind}, pointer :: {name}({colons})").expect("text");
            writeln!(
                calls,
                "  call ream_allocate({name}, [{shape}], name='{name}')\n  \
                 if (size({name}) /= 3**{rank}) failed = failed + 1\n  {name} = {value}\n  \
                 if (.not. all({name} {same} {value})) failed = failed + 1\n  \
                 call ream_advise({name}, ream_random)\n  call ream_pin({name})\n  call ream_unpin({name})\n  \
                 call ream_deallocate({name})\n  if (associated({name})) failed = failed + 1\n  \
                 call ream_allocate({name}, [{large}], stat=stat)\n  if (stat /= 0) failed = failed + 1\n  \
                 call ream_deallocate({name}, stat)\n  if (stat /= 0) failed = failed + 1"
            )
            .expect("text");
        }
    }
    text.push_str(&calls);
    text.push_str("  print '(a,i0)', 'failed ', failed\nend program kinds\n");
    let source = installed().expect("a compiler").0.place("kinds.f90");
    fs::write(&source, text).expect("writing a program");
    let Some(binary) = compiled(&source, "kinds") else { return };
    for run in [Run::of(&binary).unmeasured(), Run::of(&binary).memory(64).unmeasured()] {
        let outcome = run.finish();
        assert_eq!(outcome.exited(0).out(), "failed 0\n");
    }
}

#[test]
fn a_program_begins_a_session_itself() {
    let Some(binary) = compiled(&program("f90/ream_begins.f90"), "ream_begins") else { return };
    let outcome = Run::of(&binary).finish();
    let words: u64 = 16 << 20;
    assert_eq!(outcome.exited(0).out(), format!("{}\n", words * (words + 1) / 2));
    assert!(outcome.peak_rss < 230 * MIB, "{}", outcome.describe());
}
