//! Programs of MPI whose ranks need three to four times their budget together: in turns, each gives exactly the result of its
//! plain run.

use ream_tests::mpi::{Case, Mpi, Turns, dealt, each, lines};
use ream_tests::{Scratch, skip, tool};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

const AT_ONCE: [&str; 3] = ["1", "2", "all"];

/// Four ranks. The number says which settings go to which implementation.
fn case<'a>(name: &'a str, arguments: &'a [&'a str], memory: &'a str) -> Case<'a> {
    Case { name, ranks: 4, arguments, memory, options: &[] }
}

/// A program of `programs/mpi`.
fn own(number: usize, source: &str, arguments: &[&str], memory: &str) {
    each(|mpi| {
        case(source, arguments, memory).same(mpi, &mpi.program(source), &dealt(&AT_ONCE, number, mpi));
    });
}

/// A program of `bench/mpi`; returns what plain runs said on standard error.
fn built(number: usize, arguments: &[&str], memory: &str) -> String {
    let mut said = String::new();
    each(|mpi| {
        let case = case(arguments[0], arguments, memory);
        said += &case.same(mpi, &mpi.built(""), &dealt(&AT_ONCE, number, mpi)).err();
    });
    said
}

#[test]
fn pagerank() {
    own(0, "pagerank.c", &["60000", "1200000", "2"], "20M");
}

#[test]
fn kmeans() {
    own(1, "kmeans.c", &["200000", "3"], "24M");
}

/// Ring and all-to-all.
#[test]
fn torture() {
    own(0, "torture.c", &["8", "16", "FILE"], "24M");
}

#[test]
fn factorisation() {
    built(1, &["sgd", "10", "1"], "16M");
}

#[test]
fn tensor() {
    built(0, &["mttkrp", "12", "1"], "16M");
}

#[test]
fn sample_sort() {
    built(1, &["sort", "8", "1"], "12M");
}

/// Memory that grows and shrinks; the program compares itself to METIS.
#[test]
fn contraction() {
    let said = built(0, &["contract", "8", "1"], "12M");
    if said.contains("without METIS") {
        skip("contraction against METIS", "no libmetis-dev when ream-bench-mpi was built");
    }
}

/// Packages and what they depend on, as edges between numbers. `None` where Debian's list is not there.
fn packages(to: &Path) -> Option<usize> {
    let status = fs::read_to_string("/var/lib/dpkg/status").ok()?;
    let mut numbers = HashMap::new();
    let mut edges = String::new();
    let (mut package, mut count) = (0, 0);
    for line in status.lines() {
        let Some((field, text)) = line.split_once(": ") else { continue };
        let names: Vec<&str> = match field {
            "Package" | "Depends" | "Pre-Depends" | "Recommends" | "Suggests" => text
                .split([',', '|'])
                .filter_map(|part| part.trim().split([' ', ':', '(']).next())
                .filter(|name| !name.is_empty())
                .collect(),
            _ => continue,
        };
        for name in names {
            let next = numbers.len();
            let number = *numbers.entry(name.to_owned()).or_insert(next);
            if field == "Package" {
                package = number;
            } else {
                writeln!(edges, "{package} {number}").expect("text");
                count += 1;
            }
        }
    }
    fs::write(to, edges).expect("a file of edges");
    Some(count)
}

/// PageRank of the packages that this machine has.
#[test]
fn pagerank_of_a_real_graph() {
    let scratch = Scratch::new("mpi");
    let file = scratch.file("packages");
    match packages(&file) {
        Some(count) if count > 100 => {
            let path = file.display().to_string();
            built(1, &["graph", "12", "3", &path], "16M");
        }
        _ => skip("PageRank of a real graph", "no packages in /var/lib/dpkg/status"),
    }
}

fn fortran_of(mpi: Mpi) -> bool {
    let there = tool("gfortran").is_some() && tool(&format!("mpifort.{}", mpi.suffix())).is_some();
    if !there {
        skip(&format!("Fortran under {mpi:?}"), "no gfortran or no mpifort");
    }
    there
}

/// A stencil with threads, which exchanges its edges; mpi_f08.
#[test]
fn stencil() {
    each(|mpi| {
        if fortran_of(mpi) {
            let case = case("stencil", &["stencil", "12", "3"], "16M");
            case.same(mpi, &mpi.built("fortran-"), &dealt(&AT_ONCE, 0, mpi));
        }
    });
}

/// mpi_f08 and mpif.h.
#[test]
fn rings_in_fortran() {
    for (number, source) in ["ring.f90", "ring_old.f90"].into_iter().enumerate() {
        each(|mpi| {
            if fortran_of(mpi) {
                let case = case(source, &["2"], "24M");
                case.same(mpi, &mpi.program(source), &dealt(&AT_ONCE, number, mpi));
            }
        });
    }
}

/// Each of two ranks is four times the budget.
#[test]
fn one_rank_larger_than_the_budget() {
    each(|mpi| {
        let case = Case { ranks: 2, ..case("large", &["1000000", "2"], "16M") };
        case.same(mpi, &mpi.program("kmeans.c"), &dealt(&AT_ONCE, 1, mpi));
    });
}

/// What calls overwrite is dropped, and nothing else.
#[test]
fn overwritten_buffers() {
    each(|mpi| {
        for option in dealt(&["--on-run=auto", "--on-run=aggressive", "--drop-received=no"], 0, mpi) {
            let case = Case { options: &[option], ..case("dropped.c", &["400"], "8M") };
            case.same(mpi, &mpi.program("dropped.c"), &["1"]);
        }
    });
}

/// Copies straight out of another rank's memory pin no more of it than a rank that waits has.
#[test]
fn copies_between_ranks() {
    each(|mpi| {
        let program = mpi.program("copies.c");
        let plain = mpi.job(4, None, &program, &["6000"]).finish();
        plain.exited(0);
        for at_once in dealt(&["1", "all"], 0, mpi) {
            let turns = Turns::new("16M", at_once);
            let outcome = turns.job(mpi, 4, &program, &["6000"]).finish();
            outcome.exited(0);
            assert_eq!(lines(&outcome), lines(&plain), "{at_once}");
            assert!(turns.summary().number("bytes_out") > 0, "nothing was paged");
            assert!(!outcome.err().contains("in use by devices"), "{}", outcome.describe());
        }
    });
}
