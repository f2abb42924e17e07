//! DLM's swap protocols and Ream's own, side by side, by the programs with which DLM was measured: a quarter of their data is
//! local. Nothing is read ahead with DLM's, as it did not; and what two copies of each page cost.

use super::programs::{self, Program};
use super::rows::{Figure, Must, Spent};
use super::{Bench, server::Server};
use crate::interrupt;
use std::ffi::OsString;

/// Threads of the programs.
pub const THREADS: [u64; 4] = [1, 2, 4, 8];
/// Per cent of the data that are local.
const SHARE: u64 = 25;
/// What r77 took in DLM's publications, of r3's time: where several threads fault it is to be reached.
const MARGINS: [(&str, f64); 5] =
    [("micro", 0.75), ("stream", 0.62), ("matmul", 0.88), ("blocked", 0.81), ("fft", 0.88)];
/// What it costs that servers may be lost.
pub struct Copies {
    /// Name of the row.
    pub name: &'static str,
    servers: [&'static str; 3],
    with: &'static str,
    what: &'static str,
    without: &'static str,
    other: &'static str,
    must: Option<Must>,
}

/// Each way of that.
pub const COPIES: [Copies; 2] = [
    Copies {
        name: "replicas-2",
        servers: ["first", "second", ""],
        with: "--replicas=2",
        what: "each page at two servers",
        without: "--replicas=1",
        other: "one copy",
        must: Some(Must::Most(1.25)),
    },
    Copies {
        name: "parity",
        servers: ["first", "second", "third"],
        with: "--parity",
        what: "sums of pages at three servers",
        without: "--replicas=2",
        other: "two copies",
        must: None,
    },
];

fn margin(program: &Program) -> Option<f64> {
    MARGINS.iter().find(|(name, _)| *name == program.name).map(|(_, margin)| *margin)
}

fn name(protocol: &str, program: &Program, threads: u64) -> String {
    format!("{protocol}-{}-t{threads}", program.name)
}

/// The programs and numbers of threads of which a row is wanted.
pub fn wanted(quick: bool, only: &[String], wanted: &dyn Fn(&str) -> bool) -> Vec<(Program, u64)> {
    let mut all = Vec::new();
    for program in programs::all(quick).into_iter().filter(|program| margin(program).is_some()) {
        for threads in THREADS {
            let small = !quick || !only.is_empty() || program.name == "micro" && threads == 4;
            if small && ["r58", "r77", "ream"].iter().any(|protocol| wanted(&name(protocol, &program, threads))) {
                all.push((program, threads));
            }
        }
    }
    all
}

impl Bench {
    /// A program with each of the protocols: rows of two of DLM's against its first, and of Ream's against the best.
    pub(super) fn protocols(&mut self, program: &Program, threads: u64, rounds: usize) -> Result<Vec<Figure>, String> {
        let mut runs: [Vec<(f64, Spent)>; 4] = Default::default();
        let mut sum = None;
        let dlm = |protocol: &'static str| [protocol, "--fetch=lazy"];
        let all = [
            dlm("--swap-protocol=r3"),
            dlm("--swap-protocol=r58"),
            dlm("--swap-protocol=r77"),
            ["--swap-protocol=ream", "--fetch=auto"],
        ];
        for round in 0..rounds {
            for place in crate::pages::order(round, all.len()) {
                interrupt::check()?;
                let run = self.program(program, threads, Some(SHARE), &all[place], &mut sum);
                match run {
                    // FFTW is no part of every machine.
                    Err(why) if why.contains("built without") => {
                        let (name, skipped) = (name("r77", program, threads), Some(why));
                        return Ok(vec![Figure { name, skipped, ..Figure::default() }]);
                    }
                    run => runs[place].push(run.map(|run| (run.seconds, run.spent))?),
                }
            }
        }
        let [r3, r58, r77, ream] = runs;
        // A single thread has nobody to be held up by.
        let margin = if threads == 1 { 1.0 } else { margin(program).unwrap_or(1.0) };
        let best: Vec<(f64, Spent)> =
            r3.iter().zip(&r77).map(|(r3, r77)| if r3.0 < r77.0 { *r3 } else { *r77 }).collect();
        let figure = |protocol: &str, ours: &[(f64, Spent)], theirs: &[(f64, Spent)], other: &str, must| Figure {
            name: name(protocol, program, threads),
            what: format!("{}, {threads} threads, {SHARE} % local, sealed, protocol {protocol}", program.what),
            other: other.into(),
            must,
            ..Figure::of_runs(ours, theirs)
        };
        Ok(vec![
            figure("r58", &r58, &r3, "r3", None),
            figure("r77", &r77, &r3, "r3", Some(Must::Most(margin))),
            figure("ream", &ream, &best, "the better of r3 and r77", Some(Must::Most(1.0))),
        ])
    }

    /// What it costs to keep pages so, against otherwise at the same servers.
    pub(super) fn copies(&mut self, copies: &Copies, rounds: usize) -> Result<Figure, String> {
        let all = programs::all(self.options.quick);
        let program = *all.iter().find(|program| program.name == "blocked").ok_or("no such program")?;
        let memory = (self.options.data * 4).max(1 << 30);
        let start = |name| Server::start(&self.commands, &self.path, &self.scratch, name, true, memory);
        let names = copies.servers.iter().filter(|name| !name.is_empty());
        let servers = names.map(|name| start(name)).collect::<Result<Vec<Server>, String>>()?;
        let options = Server::together(&servers, &self.scratch)?;
        let (mut sum, mut ours, mut theirs) = (None, Vec::new(), Vec::new());
        for round in 0..rounds {
            for place in crate::pages::order(round, 2) {
                interrupt::check()?;
                let mut with: Vec<OsString> = options.clone();
                with.push(if place == 0 { copies.with } else { copies.without }.into());
                let run = self.program_at(&program, 2, Some(SHARE), &with, &servers, &mut sum)?;
                if place == 0 { &mut ours } else { &mut theirs }.push((run.seconds, run.spent));
            }
        }
        Ok(Figure {
            name: copies.name.into(),
            what: format!("{}, 2 threads, {SHARE} % local, sealed, {}", program.what, copies.what),
            other: copies.other.into(),
            must: copies.must,
            ..Figure::of_runs(&ours, &theirs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_programs_with_up_to_eight_threads_are_compared() {
        assert_eq!(wanted(false, &[], &|_| true).len(), 20);
        assert_eq!(wanted(true, &[], &|_| true).len(), 1);
        let only = ["r77-fft-t8".to_owned()];
        assert_eq!(wanted(true, &only, &|name| name == "r77-fft-t8").len(), 1);
    }
}
