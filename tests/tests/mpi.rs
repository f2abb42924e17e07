//! Ranks of MPI jobs that take turns, under both implementations: whatever ranks do to each other none waits for ever, and
//! every rule and every way of switching comes to the result of a plain run.

use ream_tests::mpi::{Case, Mpi, Turns, dealt, each, lines};
use ream_tests::{NOBODY, Reachable, Run, Scratch, ran, ream_binary, skip};
use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

/// Each way of giving room up and of coming back; `auto` is that of all other tests.
#[test]
fn at_the_switch() {
    each(|mpi| {
        let program = mpi.program("kmeans.c");
        let arguments = ["100000", "3"];
        let plain = mpi.job(6, None, &program, &arguments).finish();
        plain.exited(0);
        let ways = [("lazy", "lazy"), ("lazy", "aggressive"), ("aggressive", "aggressive"), ("aggressive", "lazy")];
        for (on_block, on_run) in dealt(&ways, 0, mpi) {
            let turns = Turns::new("16M", "2");
            let turns = turns.with(&format!("--on-block={on_block}")).with(&format!("--on-run={on_run}"));
            let outcome = turns.job(mpi, 6, &program, &arguments).finish();
            outcome.exited(0);
            assert_eq!(lines(&outcome), lines(&plain), "{on_block} {on_run}");
            let summary = turns.summary();
            assert!(summary.number("turns") > 6 && summary.number("bytes_in") > 0, "{on_block} {on_run}: no turns");
        }
    });
}

/// Ranks whose data outgrow the budget when all of them have places take turns from then on; not for ever those that compute so
/// briefly that turns take longer.
#[test]
fn places_follow_what_ranks_do() {
    let mut right = None;
    each(|mpi| {
        let program = mpi.program("grown.c");
        let plain = |arguments: &[&str]| {
            let outcome = mpi.job(4, None, &program, arguments).finish();
            outcome.exited(0);
            lines(&outcome)
        };
        let turns_of = |arguments: &[&str], right: &[String]| {
            let turns = Turns::new("16M", "auto");
            let outcome = turns.job(mpi, 4, &program, arguments).finish();
            outcome.exited(0);
            assert_eq!(lines(&outcome), right);
            turns.summary().number("turns")
        };
        // Who keeps its place has had one turn.
        let arguments = ["12", "6", "30"];
        let long = turns_of(&arguments, &plain(&arguments));
        assert!(long >= 12, "4 ranks had {long} turns in 6 rounds");
        // Measured to be faster without, which takes a second. The result is of the first implementation: ranks of MPICH that
        // wait for each other have used up their slices of time before the others' turn comes, 20000 times.
        let arguments = ["12", "20000", "0"];
        let right = right.get_or_insert_with(|| plain(&arguments));
        let brief = turns_of(&arguments, right);
        // A round is a turn of each for as long as turns are taken; on a busy machine the wrong way may win once, and is kept for up to
        // 26 s then.
        assert!(brief < 60_000, "4 ranks had {brief} turns in 20000 rounds");
    });
}

/// What a rank does in MPI with its memory gets a turn, too, and has the same result; what ranks have given up to those that
/// work is not their children's.
#[test]
fn work_inside_a_call() {
    each(|mpi| {
        let program = mpi.program("inside.c");
        let arguments = ["32", "3"];
        let plain = mpi.job(4, None, &program, &arguments).finish();
        plain.exited(0);
        assert!(lines(&plain)[0].ends_with(" 0 wrong"), "{}", plain.describe());
        let turns = Turns::new("48M", "1").with("--turn-patience=3600000");
        let outcome = turns.job(mpi, 4, &program, &arguments).finish();
        outcome.exited(0);
        assert_eq!(lines(&outcome), lines(&plain));
        let summary = turns.summary();
        let peak = summary.number("peak_resident");
        // Mostly it is the budget exactly; on a busy machine threads that wait for the copy may get a MiB now and then, and a
        // child has that, too.
        assert!(peak <= 51 << 20, "{peak} bytes with {} forks", summary.number("forks"));
        assert!(summary.number("turns_in_calls") > 0, "no turn in a call: {} turns", summary.number("turns"));
        assert_eq!(summary.number("ranks_let_in"), 0);
    });
}

/// Every rule comes to the end, and to the same result.
#[test]
fn every_rule() {
    each(|mpi| {
        for rule in dealt(&["--next=vrss", "--next=fifo", "--next=lifo", "--next=pending"], 0, mpi) {
            let arguments = &["6", "12", "FILE"];
            let case = Case { name: rule, ranks: 4, arguments, memory: "24M", options: &[rule] };
            case.same(mpi, &mpi.program("torture.c"), &["2"]);
        }
    });
}

/// Every family of calls does in turns what it does without.
#[test]
fn families_of_calls() {
    each(|mpi| {
        let arguments = &["5", "FILE"];
        let case = Case { name: "families.c", ranks: 4, arguments, memory: "12M", options: &["--next=pending"] };
        let plain = case.same(mpi, &mpi.program("families.c"), &dealt(&["1", "2"], 0, mpi));
        assert!(lines(&plain).iter().all(|line| line.ends_with(" 0 wrong")), "{}", plain.describe());
    });
}

/// Whoever keeps asking, or even waits without a call of MPI, makes room for the one that it waits for.
#[test]
fn nobody_waits_for_ever() {
    for (number, what) in ["test", "iprobe", "passive", "memory", "threads"].into_iter().enumerate() {
        each(|mpi| {
            let program = mpi.program("tempt.c");
            let plain = mpi.job(3, None, &program, &[what]).finish();
            plain.exited(0);
            for at_once in dealt(&["1", "2"], number, mpi) {
                let turns = Turns::new("64M", at_once).with("--turn-patience=200");
                let outcome = turns.job(mpi, 3, &program, &[what]).finish();
                outcome.exited(0);
                assert_eq!(lines(&outcome), lines(&plain), "{what} {at_once}");
            }
        });
    }
}

/// Who asks with pauses gives its place up long before patience ends; who works between its questions keeps it.
#[test]
fn whoever_only_asks_holds_no_place() {
    each(|mpi| {
        let program = mpi.program("tempt.c");
        let run = |what: &str| {
            let plain = mpi.job(3, None, &program, &[what]).finish();
            plain.exited(0);
            let turns = Turns::new("64M", "1").with("--turn-patience=3600000");
            let outcome = turns.job(mpi, 3, &program, &[what]).finish();
            outcome.exited(0);
            assert_eq!(lines(&outcome), lines(&plain), "{what}");
            turns.summary()
        };
        for what in ["pauses", "yields"] {
            assert_eq!(run(what).number("ranks_let_in"), 0, "{what}");
        }
        // 400 questions; each of the others computes once, and all of them meet a few times.
        let turns = run("overlap").number("turns");
        assert!(turns < 60, "{turns} turns");
    });
}

/// A thread that begins to compute when its rank has given its place up gets one, though it calls nothing of MPI.
#[test]
fn a_thread_computes_while_another_waits() {
    each(|mpi| {
        let outcome = Turns::new("32M", "1").job(mpi, 2, &mpi.program("late.c"), &["24"]).finish();
        outcome.exited(0);
        if outcome.out().contains("no threads") {
            return;
        }
        // With the little that a rank aside has it is a hundredth.
        let seconds = |name: &str| {
            let text = outcome.out();
            text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok()).expect("seconds")
        };
        let (alone, beside) = (seconds("alone"), seconds("beside"));
        assert!(beside < 10.0 * alone.max(0.2), "{beside} s for what takes {alone} s alone");
    });
}

/// A job that is launched inside a session takes turns in it, and ranks that were given other options are told so.
#[test]
fn launched_from_inside_and_unlike_ranks() {
    each(|mpi| {
        let launcher = if mpi == Mpi::Open { "mpirun.openmpi" } else { "mpiexec.mpich" };
        let count = if mpi == Mpi::Open { "-np" } else { "-n" };
        let program = mpi.program("kmeans.c");
        let turns = Turns::new("32M", "1");
        let mut run = Run::of(ream_binary()).arg("run").args(&turns.options).arg("--").arg(launcher);
        run = if mpi == Mpi::Open { run.arg("--oversubscribe") } else { run };
        let outcome = turns.settle(mpi.settle(run.args([count, "3"]).arg(&program).args(["200000", "2"]))).finish();
        outcome.exited(0);
        let plain = mpi.job(3, None, &program, &["200000", "2"]).finish();
        assert_eq!(lines(&outcome), lines(&plain));

        let script = format!(
            "exec {} run --memory ${{PMI_RANK:-$OMPI_COMM_WORLD_RANK}}28M --store {} -- {} 1000 1",
            ream_binary().display(),
            turns.scratch.directory("other").display(),
            program.display()
        );
        let outcome = mpi.job(2, None, Path::new("/bin/sh"), &["-c", &script]).finish();
        outcome.exited(0).says("another rank of this job was given other options");
    });
}

/// Large messages of ordinary users, whose ranks cannot read each other's memory, come to the end again and again: in
/// MPI_Finalize every third job hung under MPICH. Each rank is told that all are on this node; a launcher inside is not.
#[test]
fn large_messages_of_ordinary_users() {
    let Some(reachable) = Reachable::new() else { return };
    each(|mpi| {
        let program = reachable.copy(&mpi.program("large.c"));
        reachable.copy(&mpi.library());
        let rounds = if mpi == Mpi::Mpich { 6 } else { 1 };
        for round in 0..rounds {
            for inside in [false, true] {
                let launcher: &[&str] = if mpi == Mpi::Open {
                    &["mpirun.openmpi", "--oversubscribe", "-np", "3"]
                } else {
                    &["mpiexec.mpich", "-n", "3"]
                };
                let launcher = launcher.iter().map(OsStr::new);
                let ream = [reachable.ream().as_os_str()];
                let ream = ream.into_iter().chain(["run", "--memory", "64M", "--"].map(OsStr::new));
                let words: Vec<&OsStr> =
                    if inside { ream.chain(launcher).collect() } else { launcher.chain(ream).collect() };
                let run = Run::of(words[0]).args(&words[1..]).arg(&program).arg("20");
                let outcome = mpi.settle(run).user(NOBODY).within(reachable.directory()).deadline(40).finish();
                outcome.exited(0);
                assert_eq!(lines(&outcome), ["0 wrong"; 3], "{mpi:?}, round {round}, launcher inside: {inside}");
            }
        }
    });
}

/// The programs of `ream bench mpi`: one spoilt value is found.
#[test]
fn benchmarks_find_a_spoilt_value() {
    const PROGRAMS: [&str; 11] = [
        "pagerank",
        "kmeans",
        "sgd",
        "mttkrp",
        "sort",
        "contract",
        "graph",
        "pair",
        "cells-read",
        "cells-write",
        "cells-both",
    ];
    let scratch = Scratch::new("mpi-graph");
    let graph = scratch.file("edges");
    std::fs::write(&graph, "1 2\n2 3\n3 1\n3 2\n").expect("writing");
    let graph = graph.to_str().expect("a path");
    each(|mpi| {
        let program = ream_binary().with_file_name(format!("ream-bench-mpi-{}", mpi.suffix()));
        for name in PROGRAMS {
            let plain = mpi.job(3, None, &program, &[name, "1", "1", graph]).finish();
            plain.exited(0);
            assert!(plain.out().split_whitespace().count() == 2, "{}", plain.describe());
            let spoilt = mpi.job(3, None, &program, &[name, "1", "1", graph, "--corrupt"]).finish();
            // MPICH's launcher may lose what a rank says before it ends all of them; the status it passes on.
            spoilt.exited(3);
            assert!(mpi == Mpi::Mpich || spoilt.err().contains("WRONG RESULT"), "{name}: {}", spoilt.describe());
            assert!(spoilt.out().trim().is_empty(), "{name}: {}", spoilt.describe());
        }
        let program = ream_binary().with_file_name(format!("ream-bench-mpi-fortran-{}", mpi.suffix()));
        if !program.is_file() {
            return skip(&format!("the stencil in Fortran under {mpi:?}"), "not built");
        }
        let stencil = |more: &[&str]| mpi.job(3, None, &program, &[&["stencil", "1", "2"], more].concat()).finish();
        assert!(stencil(&[]).exited(0).out().split_whitespace().count() == 2);
        stencil(&["--corrupt"]).exited(3).says("WRONG RESULT");
    });
}

/// Each call that sends counts for the rank that gets the message, once for each time that it sends; no other call does.
#[test]
fn messages_are_counted() {
    each(|mpi| {
        let run = mpi.job(2, None, &mpi.program("counted.c"), &[]).env("LD_PRELOAD", mpi.library());
        let outcome = run.finish();
        outcome.exited(0);
        let lines = lines(&outcome);
        assert!(lines.len() == 1 && lines[0].ends_with(" ways, 0 wrong"), "{mpi:?}: {}", outcome.describe());
    });
}

/// No function of an implementation's header is forgotten, and those that send are known to.
#[test]
fn every_function_is_listed() {
    each(|mpi| {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../mpi/generate.sh");
        ran(Command::new(script).arg(mpi.compiler(false)).arg("--check"));
    });
}
