//! Calls of MPI on their way from the program to MPI: mistakes are those of the calls that the program made.

use ream_tests::mpi::{Turns, each, lines};
use ream_tests::{Outcome, Run, ream_binary};

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
        // One rank without a launcher, which at times loses what its ranks say before they end.
        for mistake in ["1", "3", "6", "7"] {
            let plain = mpi.settle(Run::of(&program).args([mistake, "24"])).finish();
            let turns = turns();
            let run = Run::of(ream_binary()).arg("run").args(&turns.options).arg("--").arg(&program);
            let outcome = turns.settle(mpi.settle(run.args([mistake, "24"]))).finish();
            assert!(!complaints(&plain).is_empty(), "{mpi:?}: mistake {mistake}: {}", plain.describe());
            assert_eq!(complaints(&outcome), complaints(&plain), "{mpi:?}: mistake {mistake}");
        }
    });
}
