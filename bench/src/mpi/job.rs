//! A run of a program of MPI: plain, under Ream, or in a cgroup.

use crate::driver::Commands;
use crate::measured::{Ran, run as once};
use crate::others;
use crate::pages::rows::find;
use crate::swap;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// An implementation of MPI, and where its program lies.
pub(crate) struct Job {
    ream: PathBuf,
    program: PathBuf,
    launcher: &'static [&'static str],
    summary: PathBuf,
    /// The longest that a run may take.
    pub(crate) limit: Duration,
}

/// What a run came to.
pub(crate) struct Took {
    /// Of the timed part.
    pub(crate) seconds: f64,
    digest: String,
    /// Processor seconds of the whole job.
    pub(crate) cpu: f64,
    /// MiB: what Ream's pages held together at most, or else what each rank had at most, added up.
    pub(crate) peak: f64,
    /// Ream's, where it ran under that.
    pub(crate) summary: Value,
}

impl Job {
    /// Finds it; `wanted` names one.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn find(wanted: Option<&str>, commands: &Commands, limit: Duration) -> Result<Job, String> {
        let known: [(&str, &[&str]); 2] =
            [("openmpi", &["mpirun.openmpi", "--oversubscribe", "-np"]), ("mpich", &["mpiexec.mpich", "-n"])];
        let found = known.into_iter().filter(|(name, _)| wanted.is_none_or(|one| one == *name));
        for (name, launcher) in found {
            let program = commands.worker.with_file_name(format!("ream-bench-mpi-{name}"));
            if program.is_file() && find(launcher[0]).is_some() {
                let summary = std::env::temp_dir().join(format!("ream-bench-mpi-{}.json", std::process::id()));
                return Ok(Job { ream: commands.ream.clone(), program, launcher, summary, limit });
            }
        }
        let names = wanted.map_or("openmpi or ream-bench-mpi-mpich".to_owned(), str::to_owned);
        Err(format!("no ream-bench-mpi-{names} with its launcher; make builds them where mpicc is"))
    }

    /// The same under MPICH, for rows beside those of Open MPI.
    ///
    /// # Errors
    /// It is not there, or is what the usual rows are measured under.
    pub(crate) fn under_mpich(commands: &Commands, limit: Duration) -> Result<Job, String> {
        let mpich = Job::find(Some("mpich"), commands, limit)?;
        match Job::find(None, commands, limit)?.launcher() == mpich.launcher() {
            true => Err("there is no Open MPI, so the other rows are MPICH's".into()),
            false => Ok(mpich),
        }
    }

    /// What starts its ranks.
    pub(crate) fn launcher(&self) -> &'static str {
        self.launcher[0]
    }

    /// Runs a program; `under`: options of `ream run`, or the entrance of a cgroup.
    ///
    /// # Errors
    /// It did not end well, or not in time, which begins with "took longer".
    pub(crate) fn run(
        &self,
        ranks: u64,
        words: &[String],
        under: Option<&[String]>,
        group: Option<&Path>,
    ) -> Result<Took, String> {
        self.run_within(self.limit, ranks, words, under, group)
    }

    /// The same with a limit of its own.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn run_within(
        &self,
        limit: Duration,
        ranks: u64,
        words: &[String],
        under: Option<&[String]>,
        group: Option<&Path>,
    ) -> Result<Took, String> {
        let mut command = Command::new(self.launcher[0]);
        others::clean(&mut command);
        command.args(&self.launcher[1..]).arg(ranks.to_string());
        if let Some(options) = under {
            command.arg(&self.ream).arg("run").args(options).arg("--");
        }
        command.arg(&self.program).args(words);
        if others::corrupts() {
            command.arg("--corrupt");
        }
        command.env("BENCH_MEMORY", "1").env("REAM_CONFIG", "").env("REAM_PROGRAMS", "").env("UCX_MEM_EVENTS", "n");
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        // As Ream has it: otherwise ranks that wait keep processors from those that compute.
        command.env("OMPI_MCA_mpi_yield_when_idle", "1").env("REAM_SUMMARY", &self.summary);
        if let Some(entrance) = group {
            swap::join(&mut command, entrance)?;
        }
        let _ = std::fs::remove_file(&self.summary);
        let ran = once(&mut command, limit)?;
        let (seconds, digest, kib) = figures(&ran)?;
        let text = std::fs::read_to_string(&self.summary).unwrap_or_default();
        let _ = std::fs::remove_file(&self.summary);
        let summary: Value = serde_json::from_str(&text).unwrap_or(Value::Null);
        let peak = summary["peak_resident"].as_f64().map_or(kib / 1024.0, |bytes| bytes / 1_048_576.0);
        Ok(Took { seconds, digest, cpu: ran.cpu, peak, summary })
    }
}

/// Seconds, digest, and KiB.
fn figures(ran: &Ran) -> Result<(f64, String, f64), String> {
    let words: Vec<&str> = ran.out.split_whitespace().collect();
    match *words.as_slice() {
        [seconds, digest, kib] if ran.status.success() => {
            let number = |word: &str| word.parse().map_err(|_| format!("said '{}'", ran.out.trim()));
            Ok((number(seconds)?, digest.to_owned(), number(kib)?))
        }
        _ => Err(format!("{}, said '{}', {}", ran.status, ran.out.trim(), ran.errors.trim())),
    }
}

/// An error if a run has another result than the first.
///
/// # Errors
/// That it has.
pub(crate) fn same(name: &str, first: &Took, other: &Took) -> Result<(), String> {
    match first.digest == other.digest {
        true => Ok(()),
        false => Err(format!("{name}: another result, {} for {}", other.digest, first.digest)),
    }
}
