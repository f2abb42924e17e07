//! The programs by which DLM was measured, with a share of their data local and the rest at the memory server.

use super::Bench;
use super::path::End;
use super::rows::{Figure, Spent};
use super::server::Server;
use crate::measured::{self, Ran};
use crate::others::{PLAIN, corrupts, under, under_ream};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Shares of the data that the budget holds, in per cent; 12 stands for an eighth. 100 is a little more, for what programs have beside their data.
pub const SHARES: [u64; 4] = [100, 50, 25, 12];
/// Budgets are at least 8 MiB.
const LEAST: u64 = 8 << 20;
const LIMIT: Duration = Duration::from_secs(300);

/// A program, its size, and how many bytes of data it has then.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Its name.
    pub name: &'static str,
    /// What it does.
    pub what: &'static str,
    side: u64,
    rounds: u64,
    bytes: u64,
}

const fn program(name: &'static str, what: &'static str, side: u64, rounds: u64, bytes: u64) -> Program {
    Program { name, what, side, rounds, bytes }
}

/// All programs, in small or full size.
pub fn all(quick: bool) -> [Program; 7] {
    const fn cube(side: u64) -> u64 {
        2 * 8 * (side + 2) * (side + 2) * (side + 2)
    }
    let of = |small, full| if quick { small } else { full };
    let (mib, numbers, rows) = (of(72, 512), of(3 << 20, 16 << 20), of(1728, 2048));
    let (points, blocked, side) = (of(166, 256), of(166, 256), of(168, 256));
    [
        program("micro", "one number of each page, in order", mib, of(3, 4), mib << 20),
        program("stream", "STREAM's four loops", numbers, of(2, 3), 3 * 8 * numbers),
        program("matmul", "matrix multiplication in tiles", rows, 1, 3 * 8 * rows * rows),
        program("blas", "matrix multiplication by OpenBLAS", rows, of(4, 8), 3 * 8 * rows * rows),
        program("stencil", "7-point stencil", points, of(8, 16), cube(points)),
        program("blocked", "7-point stencil with temporal blocking", blocked, of(16, 32), cube(blocked)),
        program("fft", "3-D FFT with FFTW", side, 1, 16 * side * side * side),
    ]
}

impl Program {
    /// With so many rounds.
    pub fn rounds(self, rounds: u64) -> Program {
        Program { rounds, ..self }
    }

    /// Bytes that hold a share of its data.
    fn budget(&self, share: u64) -> u64 {
        match share {
            100 => self.bytes / 10 * 11 + LEAST,
            12 => self.bytes / 8,
            _ => self.bytes / 100 * share,
        }
    }

    /// Its row.
    pub fn row(&self, threads: u64, share: u64) -> String {
        format!("{}-t{threads}-{share}%", self.name)
    }
}

/// What one run came to.
pub struct Run {
    /// Seconds of its timed part.
    pub seconds: f64,
    /// Seconds of all of it.
    pub whole: f64,
    /// Bytes that came from the server, and that went there.
    pub bytes: (u64, u64),
    /// What it took besides.
    pub spent: Spent,
}

impl Bench {
    fn kernels(&self) -> Result<PathBuf, String> {
        let file = self.commands.worker.with_file_name("ream-bench-dlm");
        if file.is_file() { Ok(file) } else { Err(format!("{}: not there; make builds it", file.display())) }
    }

    /// Runs a program: with a share of its data local and these further options, or plain. `sum` is what others have computed.
    pub(super) fn program(
        &mut self,
        program: &Program,
        threads: u64,
        share: Option<u64>,
        with: &[&str],
        sum: &mut Option<String>,
    ) -> Result<Run, String> {
        let mut options = if share.is_some() { self.server(true)?.options.clone() } else { Vec::new() };
        options.extend(with.iter().map(OsString::from));
        self.program_at(program, threads, share, &options, &[], sum)
    }

    /// The same with options that say where its pages go, `others` being servers that are not the benchmark's usual one.
    pub(super) fn program_at(
        &self,
        program: &Program,
        threads: u64,
        share: Option<u64>,
        with: &[OsString],
        others: &[Server],
        sum: &mut Option<String>,
    ) -> Result<Run, String> {
        let kernels = self.kernels()?;
        let summary = self.scratch.file("summary.json");
        let mut command = match share {
            None => under(&PLAIN, &kernels),
            Some(share) => {
                let mut options: Vec<OsString> = vec!["--memory".into(), program.budget(share).to_string().into()];
                options.push(format!("--summary={}", summary.display()).into());
                options.extend(with.iter().cloned());
                options.extend(self.options.with.iter().map(OsString::from));
                under_ream(&self.commands.ream, &options, &kernels)
            }
        };
        command.args([program.name, &program.side.to_string(), &program.rounds.to_string(), &threads.to_string()]);
        if corrupts() {
            command.arg("--corrupt");
        }
        command.env("OMP_NUM_THREADS", threads.to_string());
        self.path.at(End::Client, &mut command);
        let before = self.server_cpu() + others.iter().map(Server::cpu).sum::<f64>();
        let ran = measured::run(&mut command, LIMIT)?;
        let server = self.server_cpu() + others.iter().map(Server::cpu).sum::<f64>() - before;
        let (seconds, said) = outcome(program.name, &ran)?;
        let first = sum.get_or_insert_with(|| said.clone());
        if *first != said {
            return Err(format!("{}: another result, {said} for {first}", program.name));
        }
        let mut bytes = (0, 0);
        if share.is_some() {
            let text = std::fs::read_to_string(&summary).map_err(|error| format!("{}: {error}", summary.display()))?;
            let _ = std::fs::remove_file(&summary);
            let value: serde_json::Value = serde_json::from_str(&text).map_err(|error| format!("summary: {error}"))?;
            let number = |name: &str| value[name].as_u64().ok_or_else(|| format!("summary: no {name} in {text}"));
            bytes = (number("bytes_in")?, number("bytes_out")?);
        }
        let spent = Spent { client: ran.cpu, server, peak: ran.peak as f64 / 1024.0 };
        Ok(Run { seconds, whole: ran.seconds, bytes, spent })
    }

    /// How a program fares with less and less of its data local: a row a share, plain time over time; with `file`, also with a
    /// file as the store.
    pub(super) fn shares(
        &mut self,
        program: &Program,
        threads: u64,
        rounds: usize,
        file: bool,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Vec<Figure>, String> {
        let names = (threads, if threads == 1 { "thread" } else { "threads" });
        let together = format!("{}, {} {}, paged to a memory server", program.name, names.0, names.1);
        let mut figures: Vec<Figure> = SHARES
            .iter()
            .map(|share| Figure {
                name: program.row(threads, *share),
                what: format!("{}, {threads} threads, {share} % local, sealed", program.what),
                unit: "s",
                other: "all local, without Ream".into(),
                sweep: Some((together.clone(), if *share == 12 { 12.5 } else { *share as f64 })),
                ..Figure::default()
            })
            .collect();
        let mut sum = None;
        let on_disk: [OsString; 2] = ["--store".into(), self.options.store.as_os_str().to_owned()];
        for round in 0..rounds {
            let plain = self.program(program, threads, None, &[], &mut sum)?;
            for (place, (figure, share)) in figures.iter_mut().zip(SHARES).enumerate() {
                progress(round * SHARES.len() + place, rounds * SHARES.len());
                // Which goes first changes from row to row and from round to round.
                for turn in 0..2 {
                    if (turn + place + round) % 2 == 0 {
                        let run = self.program(program, threads, Some(share), &[], &mut sum)?;
                        figure.ream.push(run.seconds);
                        figure.spent.push(run.spent);
                    } else if file {
                        let run = self.program_at(program, threads, Some(share), &on_disk, &[], &mut sum)?;
                        figure.file.push(run.seconds);
                        figure.file_spent.push(run.spent);
                    }
                }
                figure.against.push(plain.seconds);
                figure.against_spent.push(plain.spent);
            }
        }
        Ok(figures)
    }
}

/// Seconds and checksum, or why there are none.
fn outcome(name: &str, ran: &Ran) -> Result<(f64, String), String> {
    let said = ran.out.trim().split_once(' ').and_then(|(seconds, sum)| Some((seconds.parse().ok()?, sum.to_owned())));
    match said {
        Some(said) if ran.status.success() => Ok(said),
        _ => {
            let last = ran.errors.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("said nothing");
            Err(format!("{name}: {}: {last}", ran.status))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_go_with_their_data() {
        for program in all(true).iter().chain(&all(false)) {
            assert!(program.budget(12) >= LEAST && program.rounds > 0, "{program:?}");
        }
        assert_eq!(all(true)[1].row(2, 25), "stream-t2-25%");
    }
}
