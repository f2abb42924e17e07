//! Programs with much code, made by the machine's compiler, and what becomes of them.

use super::*;
use ream_tests::{make_runnable, wait_until_written};
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

const REQUIRED: Wish = Wish::Huge { required: true };
const PREFERRED: Wish = Wish::Huge { required: false };

/// A directory on the disk that holds this program, removed when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let own = std::env::current_exe().unwrap();
        let path = own.with_file_name(format!("code-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o700)).unwrap();
        Scratch(path)
    }

    /// A program with 8 MiB of code, on the disk and in the cache on small pages: linkers write in such pieces that it
    /// may be there on large ones from the first.
    fn program(&self, name: &str, flags: &[&str]) -> Option<PathBuf> {
        let path = self.0.join(name);
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/programs/c/text.c");
        let built = Command::new("cc").args(["-O2", "-pthread", "-o"]).arg(&path).arg(source).args(flags).output();
        let Ok(built) = built else {
            skip("no compiler");
            return None;
        };
        assert!(built.status.success(), "{built:?}");
        rewrite(&path, |file| file.sync_all().unwrap());
        Some(path)
    }

    /// What the program's environment would be, with the cache in here.
    fn variable(&self) -> impl Fn(&str) -> Option<OsString> + use<> {
        let cache = self.0.join("cache");
        move |name| (name == "XDG_CACHE_HOME").then(|| cache.clone().into())
    }

    fn copies(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.0.join("cache/ream")).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Writes a file anew, page by page, with the same content.
fn rewrite(path: &Path, last: impl FnOnce(&File)) {
    let bytes = fs::read(path).unwrap();
    fs::remove_file(path).unwrap();
    let mut file = File::create(path).unwrap();
    bytes.chunks(4096).for_each(|page| file.write_all(page).unwrap());
    last(&file);
    drop(file);
    make_runnable(path, 0o700);
}

fn skip(why: &str) {
    eprintln!("SKIPPED: code on large pages: {why}");
}

/// What came of a program; `None`, loudly, where the machine cannot.
fn outcome(scratch: &Scratch, file: &Path, wish: Wish) -> Option<Outcome> {
    let outcome = prepared(file, None, wish, &scratch.variable());
    let coverage = outcome.program.as_ref().unwrap();
    if matches!(coverage.why, Some(Why::NotHeld | Why::Off)) {
        skip(&coverage.line());
        return None;
    }
    Some(outcome)
}

/// Runs a program; the lines that it prints.
fn run(file: &Path, argument: &str) -> Vec<String> {
    wait_until_written(file);
    let output = Command::new(file).arg(argument).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// Whole blocks of its code, and those on large pages, as the program itself sees them.
fn seen(file: &Path) -> (u64, u64) {
    let lines = run(file, "pages");
    let (blocks, kib) = lines[1].split_once(' ').unwrap();
    (blocks.parse().unwrap(), kib.parse::<u64>().unwrap() / 2048)
}

/// Runs a program whose blocks all lie on large pages; it has to see so itself. The cache is the kernel's, which may take
/// a block apart, or out of it, between the look and the start, if rarely (seen twice, both times beside a whole build):
/// then it is as for any next run. Says so loudly, with what the kernel did meanwhile.
fn sees_large_pages(scratch: &Scratch, file: &Path, wish: Wish) {
    let mut found = (0, 0);
    for _ in 0..3 {
        let before = cache_events();
        found = seen(file);
        let (blocks, large) = found;
        assert!(blocks >= 3, "{found:?}");
        if large == blocks {
            return;
        }
        eprintln!(
            "{large} of {blocks} blocks are on large pages; kernel, before and after:\n{before}\n{}",
            cache_events()
        );
        let coverage = outcome(scratch, file, wish).unwrap().program.unwrap();
        assert!(coverage.large == coverage.blocks && coverage.why.is_none(), "{coverage:?}");
    }
    panic!("{found:?}");
}

/// What the kernel counts of events that take large pages out of the cache, or apart.
fn cache_events() -> String {
    const NAMES: [&str; 6] = [
        "drop_pagecache ",
        "pgsteal_file ",
        "thp_split_page ",
        "thp_split_pmd ",
        "pgmigrate_success ",
        "compact_isolated ",
    ];
    let text = fs::read_to_string("/proc/vmstat").unwrap();
    let lines = text.lines().filter(|line| NAMES.iter().any(|name| line.starts_with(name)));
    lines.collect::<Vec<_>>().join(", ")
}

fn bytes_read() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/io").unwrap();
    text.lines().find_map(|line| line.strip_prefix("read_bytes: ")).unwrap().parse().unwrap()
}

#[test]
fn a_program_at_a_fixed_place_has_its_code_on_large_pages() {
    let scratch = Scratch::new("fixed");
    let Some(program) = scratch.program("program", &["-no-pie", "-fno-pie"]) else { return };
    let plain = run(&program, "");
    assert_eq!(seen(&program).1, 0, "it was not to be on large pages yet");
    let Some(first) = outcome(&scratch, &program, Wish::Auto) else { return };
    assert_eq!(first.file, program);
    let coverage = first.program.unwrap();
    assert!(coverage.blocks >= 3 && coverage.large == coverage.blocks && coverage.why.is_none(), "{coverage:?}");
    sees_large_pages(&scratch, &program, Wish::Auto);
    assert_eq!(run(&program, ""), plain);
    // The second start finds it so and reads nothing.
    let before = bytes_read();
    let again = outcome(&scratch, &program, Wish::Auto).unwrap();
    assert_eq!(again.program.unwrap().large, coverage.large);
    assert_eq!(bytes_read(), before);
    assert!(scratch.copies().is_empty());
}

#[test]
fn small_pages_are_left_alone() {
    let scratch = Scratch::new("never");
    let Some(program) = scratch.program("program", &["-no-pie", "-fno-pie"]) else { return };
    run(&program, "");
    let outcome = prepared(&program, None, Wish::Never, &scratch.variable());
    assert!(outcome.program.is_none() && outcome.file == program);
    assert_eq!(seen(&program).1, 0);
}

#[test]
fn a_program_that_runs_on_small_pages_is_left_alone() {
    let scratch = Scratch::new("used");
    let Some(program) = scratch.program("program", &["-no-pie", "-fno-pie"]) else { return };
    let mut running = Command::new(&program).arg("60").stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(running.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let found = outcome(&scratch, &program, PREFERRED);
    running.kill().unwrap();
    running.wait().unwrap();
    let Some(found) = found else { return };
    let coverage = found.program.as_ref().unwrap();
    assert_eq!(coverage.why, Some(Why::InUse));
    assert!(coverage.large < coverage.blocks);
    assert!(found.short(PREFERRED).unwrap().contains("another process"));
    // When it has ended, it goes.
    let coverage = outcome(&scratch, &program, Wish::Auto).unwrap().program.unwrap();
    assert!(coverage.large == coverage.blocks && coverage.why.is_none(), "{coverage:?}");
}

/// What has just been written waits for the disk, unless somebody insists.
#[test]
fn a_program_that_was_written_just_now() {
    let scratch = Scratch::new("written");
    let Some(program) = scratch.program("program", &["-no-pie", "-fno-pie"]) else { return };
    let plain = run(&program, "");
    rewrite(&program, |_| ());
    let Some(first) = outcome(&scratch, &program, Wish::Auto) else { return };
    let coverage = first.program.unwrap();
    if coverage.large < coverage.blocks {
        assert_eq!(coverage.why, Some(Why::Unwritten));
    }
    let coverage = outcome(&scratch, &program, REQUIRED).unwrap().program.unwrap();
    assert!(coverage.large == coverage.blocks && coverage.why.is_none(), "{coverage:?}");
    assert_eq!(run(&program, ""), plain);
}

#[test]
fn a_movable_program_runs_as_an_aligned_copy_when_asked_for() {
    let scratch = Scratch::new("movable");
    let Some(program) = scratch.program("program", &["-pie", "-fPIE"]) else { return };
    let plain = run(&program, "");
    let auto = prepared(&program, None, Wish::Auto, &scratch.variable());
    assert_eq!((auto.file, auto.program.unwrap().why), (program.clone(), Some(Why::AnyPage)));
    assert!(scratch.copies().is_empty());
    let Some(first) = outcome(&scratch, &program, REQUIRED) else { return };
    let coverage = first.program.as_ref().unwrap();
    assert!(first.short(REQUIRED).is_none() && coverage.large == coverage.blocks, "{coverage:?}");
    assert_eq!(first.file.file_name(), program.file_name());
    sees_large_pages(&scratch, &first.file, REQUIRED);
    assert_eq!(run(&first.file, ""), plain);
    assert_eq!(run(&first.file, "self")[1], first.file.to_string_lossy());
    // The copy is used again as it is.
    let inode = |file: &Path| fs::metadata(file).unwrap().ino();
    let before = inode(&first.file);
    let second = outcome(&scratch, &program, REQUIRED).unwrap();
    assert_eq!((second.file.as_path(), inode(&second.file)), (first.file.as_path(), before));
    // Another original of that name does not meet it, and the old copy goes.
    let other = fs::read(&program).unwrap();
    fs::write(&program, other).unwrap();
    let third = outcome(&scratch, &program, REQUIRED).unwrap();
    assert_ne!(third.file, first.file);
    assert_eq!(scratch.copies(), [third.file.parent().unwrap()]);
    // One that somebody tampered with is made anew.
    fs::write(&third.file, b"#!/bin/false\n").unwrap();
    let fourth = outcome(&scratch, &program, REQUIRED).unwrap();
    assert_eq!(run(&fourth.file, ""), plain);
}

#[test]
fn no_copy_where_it_would_be_wrong() {
    let scratch = Scratch::new("refused");
    let Some(program) = scratch.program("program", &["-pie", "-fPIE"]) else { return };
    let why = |file: &Path, wish: Wish, variable: &dyn Fn(&str) -> Option<OsString>| {
        let outcome = prepared(file, None, wish, variable);
        assert_eq!(outcome.file, file);
        outcome.short(wish).unwrap_or_else(|| panic!("{outcome:?}"))
    };
    let variable = scratch.variable();
    let script = scratch.0.join("script");
    fs::write(&script, format!("#!{}\n", program.display())).unwrap();
    assert!(why(&script, PREFERRED, &variable).contains("script's interpreter"));
    let privileged = scratch.0.join("privileged");
    fs::copy(&program, &privileged).unwrap();
    fs::set_permissions(&privileged, Permissions::from_mode(0o4755)).unwrap();
    assert!(why(&privileged, REQUIRED, &variable).contains("rights of their own"));
    // Not where others could have put it, or where nothing can be put.
    let open = scratch.0.join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, Permissions::from_mode(0o777)).unwrap();
    let in_open = |name: &str| (name == "XDG_CACHE_HOME").then(|| open.clone().into());
    assert!(why(&program, PREFERRED, &in_open).contains("can be changed by others"));
    let in_file = |name: &str| (name == "XDG_CACHE_HOME").then(|| program.clone().into());
    assert!(why(&program, PREFERRED, &in_file).contains("cannot be kept in"));
    assert!(why(&program, PREFERRED, &|_| None).contains("XDG_CACHE_HOME"));
    assert!(scratch.copies().is_empty());
    let failure = prepare(Path::new("/bin/sh"), None, REQUIRED).unwrap_err();
    assert!(failure.status == crate::failure::OWN && failure.text.contains("fill no aligned 2 MiB"), "{failure}");
}

/// Libraries beside the program: not found from a copy, unless they are elsewhere, too.
#[test]
fn programs_that_look_beside_themselves() {
    let scratch = Scratch::new("origin");
    let library = scratch.0.join("libbeside.so");
    let source = scratch.0.join("beside.c");
    fs::write(&source, "int beside(void) { return 7; }\n").unwrap();
    let made = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
    if !made.is_ok_and(|status| status.success()) {
        return skip("no compiler");
    }
    let link = format!("-L{}", scratch.0.display());
    let flags = ["-pie", "-fPIE", &link, "-Wl,--no-as-needed", "-lbeside", "-Wl,-rpath,$ORIGIN"];
    let Some(program) = scratch.program("program", &flags) else { return };
    for wish in [PREFERRED, REQUIRED] {
        let outcome = prepared(&program, None, wish, &scratch.variable());
        assert_eq!(outcome.file, program);
        assert!(outcome.short(wish).unwrap().contains("$ORIGIN"));
    }
    let elsewhere = scratch.0.clone();
    let own = scratch.variable();
    let variable = move |name: &str| if name == "LD_LIBRARY_PATH" { Some(elsewhere.clone().into()) } else { own(name) };
    assert_eq!(prepared(&program, None, PREFERRED, &variable).file, program);
    assert_ne!(prepared(&program, None, REQUIRED, &variable).file, program);
}
