//! Somebody changes pages in a memory server's memory: each counts as lost there, is had from the other server, and is counted.

use ream_tests::{Build, Fleet, Scratch, build};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

const PAGE: usize = 4096;

/// Whether a page is sealed: it looks like random bytes, of which few are zeros.
fn is_sealed(page: &[u8]) -> bool {
    page.iter().filter(|byte| **byte == 0).count() < 64
}

/// Changes a bit in each page that a server keeps. How many that were.
fn change(server: u32) -> usize {
    let maps = fs::read_to_string(format!("/proc/{server}/maps")).expect("its mappings");
    let memory = File::options().read(true).write(true).open(format!("/proc/{server}/mem")).expect("its memory");
    let mut changed = 0;
    for line in maps.lines().filter(|line| line.contains(" rw-p ") && line.split_whitespace().count() == 5) {
        let ends = line.split(' ').next().and_then(|range| range.split_once('-')).expect("a range");
        let number = |text| u64::from_str_radix(text, 16).expect("an address");
        let (mut at, end) = (number(ends.0), number(ends.1));
        // What is kept lies in pieces of 2 MiB.
        if end - at < 2 << 20 {
            continue;
        }
        let mut page = [0; PAGE];
        while at < end && memory.read_exact_at(&mut page, at).is_ok() {
            if is_sealed(&page) {
                memory.write_all_at(&[page[1234] ^ 4], at + 1234).expect("to be written");
                changed += 1;
            }
            at += PAGE as u64;
        }
    }
    changed
}

#[test]
fn pages_that_a_server_changes_are_had_from_the_other_and_counted() {
    let Some((_alone, fleet)) = Fleet::alone(2, "128M") else { return };
    let Build::Ready(heirs) = build("c/heirs.c", &[]) else { return };
    let scratch = Scratch::new("forged");
    let (go, end) = (scratch.file("go"), scratch.file("end"));
    let store = fleet.store(&[0, 1]);
    let mut program = fleet.begin(&["--memory", "8M", "--store", &store], |command| {
        command.arg(heirs).args(["24", "1", "1"]).args([&go, &end]);
    });
    program.until("both page", |now| now.pages > 2 * 4000 && now.is_whole());
    // It is read from the first, which is nearer.
    fleet.members[1].gate.slow(3);
    let changed = change(fleet.pid(0).expect("a server"));
    assert!(changed > 4000, "{changed} pages were changed");
    fs::write(&go, "").expect("a file");
    program.until("pages are found out", |now| now.forged[0] > 100);
    fleet.members[1].gate.open();
    program.until("they have two copies again", |now| now.missing == 0);
    let found = program.condition().map_or(0, |now| now.forged[0]);
    fs::write(&end, "").expect("a file");
    // Parent and child both find what they wrote.
    assert!(program.end().success(), "{}", program.told());
    let told = program.told();
    assert!(told.contains("returned a page that is not what was sealed for that place"), "{told}");
    let summary = told
        .lines()
        .find_map(|line| line.strip_suffix(" pages that came back were not genuine (changed, exchanged or outdated)"));
    let summary: u64 =
        summary.and_then(|line| line.strip_prefix("ream: ")?.parse().ok()).unwrap_or_else(|| panic!("{told}"));
    assert!(summary >= found && found > 100, "{summary} and {found}: {told}");
}
