//! The check that most tests make: the same program, plain and under Ream within a budget that it outgrows, gives the
//! same output and status, and paging really happened.

use crate::{MIB, Outcome, Run, compiled, skip, tool};
use std::path::Path;

/// What the kernel may count beside the budget: code, stacks, page tables, files that were read, libraries' own data.
pub const UNMANAGED: u64 = 48 * MIB;

/// A program in `programs/` and how to run it.
pub struct Case<'a> {
    /// Its source, for example `c/large_threads.c`.
    pub source: &'a str,
    /// Additional flags of the compiler.
    pub flags: &'a [&'a str],
    /// Its arguments.
    pub arguments: &'a [&'a str],
    /// The budget in MiB.
    pub memory: u64,
    /// The exit status that it has.
    pub status: i32,
}

impl<'a> Case<'a> {
    /// A program that takes the MiB of its data as its argument and exits with 0.
    pub fn new(source: &'a str, arguments: &'a [&'a str], memory: u64) -> Case<'a> {
        Case { source, flags: &[], arguments, memory, status: 0 }
    }

    /// Compiles it; `None`, loudly, where that is not possible.
    pub fn build(&self) -> Option<std::path::PathBuf> {
        compiled(self.source, self.flags)
    }

    /// Runs it plain and under Ream, compares, and checks that memory was paged within the budget. `change` may add
    /// to both runs. Returns Ream's outcome.
    #[track_caller]
    pub fn compare_with(&self, change: impl Fn(Run, &Path) -> Run) -> Option<Outcome> {
        let program = self.build()?;
        let run = || change(Run::of(&program).args(self.arguments), &program);
        Some(compare(self.memory, self.status, run))
    }

    /// [`Case::compare_with`] without changes.
    #[track_caller]
    pub fn compare(&self) -> Option<Outcome> {
        self.compare_with(|run, _| run)
    }
}

/// Runs a program plain and then under Ream within `memory` MiB: the same output, `status` both times, and memory was
/// paged within the budget. Returns Ream's outcome.
#[track_caller]
pub fn compare(memory: u64, status: i32, run: impl Fn() -> Run) -> Outcome {
    let plain = run().finish();
    plain.exited(status);
    let paged = run().memory(memory).finish();
    paged.same_as(&plain).paged_within(memory * MIB, UNMANAGED);
    paged
}

/// The path of a program that a test is about; `None`, loudly, where it is not installed.
pub fn installed(name: &str) -> Option<std::path::PathBuf> {
    let found = tool(name);
    if found.is_none() {
        skip(name, "not installed");
    }
    found
}
