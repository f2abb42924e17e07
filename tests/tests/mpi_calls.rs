//! Calls of MPI on their way from the program to MPI: tools that are preloaded see them as in a plain run, whichever way they pass
//! them on, and mistakes are those of the calls that the program made.

use ream_tests::mpi::{Turns, each, lines};
use ream_tests::{Outcome, Run, ream_binary};

/// Tools that find the next function themselves, past Ream: ranks take turns, and nobody who waits keeps the only place for
/// longer than ranks do that call MPI directly.
#[test]
fn tools_that_pass_calls_on_themselves() {
    each(|mpi| {
        let program = mpi.program("chain.c");
        let arguments = ["12", "3"];
        for (name, options) in [("between.c", &[][..]), ("between-receives", &["-DONLY_RECEIVES"])] {
            let tool = mpi.tool("between.c", name, options);
            let plain = mpi.job(4, None, &program, &arguments).env("LD_PRELOAD", &tool).finish();
            plain.exited(0);
            assert_eq!(lines(&plain).iter().filter(|line| line.ends_with(" received")).count(), 4);
            let turns = Turns::new("16M", "1").with("--turn-patience=3600000");
            let outcome = turns.job(mpi, 4, &program, &arguments).env("LD_PRELOAD", &tool).finish();
            outcome.exited(0);
            assert_eq!(lines(&outcome), lines(&plain), "{mpi:?} {name}");
            let summary = turns.summary();
            assert!(summary.number("bytes_out") > 0, "{mpi:?} {name}: nothing was paged");
            // Each has one for each of its rounds.
            assert!(summary.number("turns") >= 12, "{mpi:?} {name}: {} turns", summary.number("turns"));
            assert_eq!(summary.number("ranks_let_in"), 0, "{mpi:?} {name}");
        }
    });
}

/// What MPI says of a mistake that ends the program, without what differs from run to run.
fn complaints(outcome: &Outcome) -> Vec<String> {
    // Open MPI's, and MPICH's.
    let parts = ["*** An error occurred in", "*** MPI_ERR_", "Fatal error in"];
    let of_line = |line: &str| parts.iter().find_map(|part| line.find(part)).map(|start| line[start..].to_owned());
    outcome.err().lines().filter_map(of_line).collect()
}

/// Handles that are none, and ranks that a communicator does not have: errors are those of the call that was made, and reach the
/// program's error handler once.
#[test]
fn mistakes() {
    each(|mpi| {
        let program = mpi.program("wrong.c");
        let turns = || Turns::new("16M", "1").with("--next=pending").with("--turn-patience=3600000");
        let plain = mpi.job(2, None, &program, &["told", "24"]).finish();
        plain.exited(0);
        let outcome = turns().job(mpi, 2, &program, &["told", "24"]).finish();
        outcome.exited(0);
        assert_eq!(lines(&outcome), lines(&plain), "{mpi:?}");
        assert_eq!(lines(&plain).len(), 6);
        // One rank without a launcher, and without Open MPI's daemon: they lose at times what ranks say before they end.
        let alone = |run: Run, mistake: &str| {
            mpi.settle(run.arg(&program).args([mistake, "24"])).env("OMPI_MCA_ess_singleton_isolated", "1")
        };
        for mistake in ["1", "3", "6", "7"] {
            let plain = alone(Run::of("env"), mistake).finish();
            let turns = turns();
            let run = Run::of(ream_binary()).arg("run").args(&turns.options).arg("--");
            let outcome = turns.settle(alone(run, mistake)).finish();
            assert!(!complaints(&plain).is_empty(), "{mpi:?}: mistake {mistake}: {}", plain.describe());
            assert_eq!(complaints(&outcome), complaints(&plain), "{mpi:?}: mistake {mistake}");
        }
    });
}
