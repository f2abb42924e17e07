//! Real programs give the right result over memory servers of which any one is lost, in any way, at any moment: what they print is
//! what they print without Ream, however often that happens, and they end. The copies that are left are always there: the
//! next server is harmed when `ream status` says that all copies are whole again.
//!
//! How many faults there are can be set (`tests/src/harm.rs`), and with `REAM_FAULTS_PROGRAM` one program, by its name in
//! `tests/src/real.rs`.

use ream_tests::real::Real;
use ream_tests::{Condition, Fleet, Harm, Paged, Scratch};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Longest that a program may run on when all is well again: in a budget that is a quarter of its data, on a busy machine.
const UNDISTURBED: Duration = Duration::from_secs(240);

/// Runs that may end without a fault: by then a server that was put right should have been seen.
const UNHARMED: u64 = 8;

/// Waits for the program's end, which is to be as without Ream.
fn is_right(name: &str, program: &mut Paged, right: &[u8], faults: &str) {
    let status = program.end_within(UNDISTURBED);
    let (got, told) = (program.output(), program.told());
    assert!(status.success(), "{name}, {faults}: {status}\n{told}");
    let same = got.iter().zip(right).take_while(|(one, other)| one == other).count();
    let lengths = (got.len(), right.len());
    assert!(got == right, "{name}, {faults}: wrong from byte {same} on, {lengths:?} bytes\n{told}");
}

/// Programs one after the other, beginning with this one of them, until all faults are dealt.
fn real_programs_survive(first: usize, count: usize, memory: &'static str, options: &[&str], faults: u64) {
    let Some((_alone, mut fleet)) = Fleet::alone(count, memory) else { return };
    let scratch = Scratch::new("real");
    let mut programs = Real::all(&scratch);
    if let Ok(only) = std::env::var("REAM_FAULTS_PROGRAM") {
        programs.retain(|real| real.name == only);
    }
    let mut harm = Harm::new(faults);
    let all: Vec<usize> = (0..count).collect();
    let store = fleet.store(&all);
    let faults = harm.name();
    eprintln!("{faults}, with {options:?}");
    let begun = Instant::now();
    let mut plain: BTreeMap<&str, Vec<u8>> = BTreeMap::new();
    let mut runs: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    let mut unharmed = 0;
    for real in programs.iter().cycle().skip(first) {
        let left = harm.left();
        if left == 0 {
            break;
        }
        let right = plain.entry(real.name).or_insert_with(|| real.plain());
        let options = [&["--memory", real.memory, "--store", &store], options].concat();
        let mut program = fleet.begin(&options, |command| real.add_to(command));
        let harmed = |now: &Condition| now.is_whole() && now.held[..count].iter().sum::<u64>() > 1000;
        while harm.left() > 0 {
            harm.pause(400);
            if !program.comes("all copies are whole, and it pages", harmed) {
                break;
            }
            harm.deal(&mut fleet, &mut program);
        }
        is_right(real.name, &mut program, right, &faults);
        let dealt = left - harm.left();
        eprintln!("{}: right, after {dealt} faults", real.name);
        let entry = runs.entry(real.name).or_default();
        *entry = (entry.0 + 1, entry.1 + dealt);
        unharmed = if dealt == 0 { unharmed + 1 } else { 0 };
        assert!(unharmed < UNHARMED, "{faults}: no program pages to servers that are all used\n{}", program.told());
    }
    eprintln!("{faults}, in {} s", begun.elapsed().as_secs());
    for (name, (times, faults)) in runs {
        eprintln!("{name}: {times} times, {faults} faults");
    }
}

#[test]
fn with_replicas_programs_give_the_right_result() {
    real_programs_survive(0, 3, "256M", &[], 4);
}

#[test]
fn with_a_local_copy_programs_give_the_right_result() {
    real_programs_survive(1, 2, "384M", &["--spill", "/var/tmp"], 4);
}

#[test]
fn with_a_disk_below_programs_give_the_right_result() {
    real_programs_survive(2, 3, "40M", &["--store", "/var/tmp"], 4);
}

/// With room for what children copy again of their parent's, which is two copies each.
#[test]
fn with_parity_programs_give_the_right_result() {
    real_programs_survive(4, 4, "512M", &["--parity"], 4);
}
