//! On which pages memory lies that programs of other languages than C use: C++'s containers, new and delete, Fortran's
//! COMMON, allocated arrays and OpenMP stacks, and libraries' static data. Linked in all ways.

use ream_tests::{Run, compiled, large_pages, program, skip};
use std::fs;
use std::path::PathBuf;

const DYNAMIC: [&[&str]; 2] = [&["-pie", "-fPIE"], &["-no-pie", "-fno-pie"]];
/// Fortran's library calls this function at its end without asking for it.
const STATIC: [&[&str]; 2] = [&["-static", END], &["-static-pie", END]];
const END: &str = "-Wl,-u,pthread_mutex_destroy";

/// The kernel gives large pages only where it is allowed to.
/// A region.
#[derive(Debug)]
struct Row {
    name: String,
    /// Whole blocks, and those on large pages.
    blocks: [u64; 2],
    /// KiB in RAM, and those on large pages.
    kib: [u64; 2],
}

/// What a program says of its own pages; `None`, loudly, where the kernel does not tell.
fn rows(run: Run, count: usize) -> Option<Vec<Row>> {
    let outcome = run.env("OMP_STACKSIZE", "64M").finish();
    if outcome.status.code() == Some(77) {
        skip("coverage", &outcome.err());
        return None;
    }
    outcome.exited(0);
    let row = |line: &str| {
        let mut words = line.split(' ');
        let name = words.next().expect("a name").to_owned();
        let mut number = || words.next().expect("four numbers").parse().expect("a number");
        Row { name, blocks: [number(), number()], kib: [number(), number()] }
    };
    let rows: Vec<Row> = outcome.out().lines().map(row).collect();
    assert_eq!(rows.len(), count, "{}", outcome.describe());
    Some(rows)
}

impl Row {
    fn begins(&self, with: &[&str]) -> bool {
        with.iter().any(|with| self.name.starts_with(with))
    }

    /// Whole blocks on large pages; of stacks under auto all but the uppermost.
    fn blocks_are_large(&self, what: &str) {
        let spared = u64::from(self.name.starts_with("stack"));
        let [all, large] = self.blocks;
        assert!((large + spared) * 100 >= all * 95, "{what}: {self:?}");
    }

    fn bytes_are_large(&self, percent: u64, what: &str) {
        let [all, large] = self.kib;
        assert!(large * 100 >= all * percent, "{percent} %, {what}: {self:?}");
    }
}

/// All regions, where a library of Ream's is in the program.
fn all_is_large(source: &str, flags: &[&str], count: usize) {
    for kind in DYNAMIC {
        let flags = [kind, flags].concat();
        let Some(program) = compiled(source, &flags) else { return };
        let Some(rows) = rows(Run::of(&program).memory(4096), count) else { return };
        for row in rows {
            let what = format!("{source} {flags:?}");
            row.blocks_are_large(&what);
            // Where Ream chose the address, and where ends do not count.
            if row.begins(&["heap", "bss_64m"]) {
                row.bytes_are_large(95, &what);
            }
            // What is deleted and made anew may have lost some large pages in between.
            if row.begins(&["again"]) {
                row.bytes_are_large(80, &what);
            }
        }
    }
}

/// Static data, main stack and the main thread's heap of small blocks, where none can be.
fn what_one_step_reaches_is_large(source: &str, flags: &[&str], count: usize, heap: &[&str]) {
    for kind in STATIC {
        let flags = [kind, flags].concat();
        let Some(program) = compiled(source, &flags) else { return };
        let Some(rows) = rows(Run::of(&program).under_ream(), count) else { return };
        let what = format!("{source} {flags:?}");
        let reached: Vec<&Row> = rows.iter().filter(|row| row.begins(&["bss", "data", "stack_main"])).collect();
        assert_eq!(reached.len(), 4, "{what}");
        reached.iter().for_each(|row| row.blocks_are_large(&what));
        let heap: Vec<&Row> = rows.iter().filter(|row| heap.contains(&row.name.as_str())).collect();
        assert!(!heap.is_empty());
        for row in heap {
            row.blocks_are_large(&what);
            // It begins anywhere in a block.
            row.bytes_are_large(90, &what);
        }
    }
}

const CPP: &str = "cpp/coverage.cpp";
const CPP_REGIONS: usize = 19;

#[test]
fn containers_and_new_lie_on_large_pages() {
    if large_pages(&["madvise"]) {
        all_is_large(CPP, &[], CPP_REGIONS);
    }
}

#[test]
fn containers_of_static_programs() {
    if large_pages(&["madvise"]) {
        what_one_step_reaches_is_large(CPP, &[], CPP_REGIONS, &["heap_main_list", "heap_main_map"]);
    }
}

/// One test, since the compiler writes the same module files for all.
#[test]
fn fortran_arrays_lie_on_large_pages() {
    const REGIONS: usize = 7;
    if !large_pages(&["madvise"]) {
        return;
    }
    let looking = program("c/look_fortran.c");
    let flags = [looking.to_str().expect("a path in UTF-8")];
    all_is_large("f90/coverage.f90", &flags, REGIONS);
    what_one_step_reaches_is_large("f90/coverage.f90", &flags, REGIONS, &["heap_main_large"]);
}

fn library_and_user(kind: &[&str]) -> Option<(PathBuf, PathBuf)> {
    let library = compiled("c/library.c", &["-shared", "-fPIC"])?;
    let linked = ["-Wl,--no-as-needed", library.to_str().expect("a path in UTF-8"), "-ldl"];
    let user = compiled("c/library_user.c", &[kind, &linked].concat())?;
    Some((library, user))
}

#[test]
fn static_data_of_libraries_lie_on_large_pages() {
    if !large_pages(&["madvise"]) {
        return;
    }
    for kind in DYNAMIC {
        let Some((_, user)) = library_and_user(kind) else { return };
        for pages in ["auto", "huge", "small"] {
            let run = Run::of(&user).memory(4096).option(format!("--pages={pages}"));
            let Some(rows) = rows(run, 2) else { return };
            for row in rows {
                if pages == "small" {
                    assert_eq!(row.kib[1], 0, "{row:?}");
                } else {
                    row.blocks_are_large(&format!("{kind:?} {pages}"));
                }
            }
        }
    }
}

/// With values, which come from the file, and without.
#[test]
fn static_data_of_libraries_loaded_later() {
    if !large_pages(&["madvise"]) {
        return;
    }
    for kind in DYNAMIC {
        let Some((library, user)) = library_and_user(kind) else { return };
        let scratch = ream_tests::Scratch::new("languages");
        let copy = scratch.file("copy.so");
        fs::copy(library, &copy).expect("a copy of the library");
        for pages in ["auto", "huge", "small"] {
            let run = Run::of(&user).arg(&copy).memory(4096).option(format!("--pages={pages}"));
            let Some(rows) = rows(run, 4) else { return };
            let loaded: Vec<&Row> = rows.iter().filter(|row| row.begins(&["loaded"])).collect();
            assert_eq!(loaded.len(), 2);
            for row in loaded {
                if pages == "small" {
                    assert_eq!(row.kib[1], 0, "{row:?}");
                } else {
                    row.blocks_are_large(&format!("loaded later, {kind:?} {pages}"));
                }
            }
        }
    }
}
