//! Jobs of MPI, plain and under Ream, for the tests of both implementations.

use crate::installation::ran;
use crate::outcome::{Outcome, Summary};
use crate::place::{Scratch, ream_binary, tool};
use crate::run::Run;
use crate::skip::skip;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// One job at a time: each has as many ranks as there are processors, and more.
static ALONE: Mutex<()> = Mutex::new(());

/// What four ranks may take beyond the budget when one has nothing to give up and the machine is busy: 1 MiB each.
pub const OVERDRAFT: u64 = 4 << 20;

/// An implementation of MPI.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mpi {
    /// Open MPI.
    Open,
    /// MPICH.
    Mpich,
}

impl Mpi {
    /// What the names of its commands end with.
    pub fn suffix(self) -> &'static str {
        match self {
            Mpi::Open => "openmpi",
            Mpi::Mpich => "mpich",
        }
    }

    /// The library that `ream run` preloads.
    pub fn library(self) -> PathBuf {
        ream_binary().with_file_name(format!("libream-mpi-{}.so", self.suffix()))
    }

    /// Its compiler.
    ///
    /// # Panics
    /// When it is not there.
    pub fn compiler(self, fortran: bool) -> PathBuf {
        let name = if fortran { "mpifort" } else { "mpicc" };
        tool(&format!("{name}.{}", self.suffix())).expect("looked for by `each`")
    }

    /// Compiles a program of `programs/mpi`.
    ///
    /// # Panics
    /// When that fails.
    pub fn program(self, source: &str) -> PathBuf {
        self.compiled(source, source, &[])
    }

    /// Compiles a tool of `programs/mpi` that is to be preloaded, with these options; it gets this name.
    ///
    /// # Panics
    /// When that fails.
    pub fn tool(self, source: &str, name: &str, options: &[&str]) -> PathBuf {
        self.compiled(source, name, &[&["-shared", "-fPIC"], options].concat())
    }

    fn compiled(self, source: &str, name: &str, options: &[&str]) -> PathBuf {
        let directory = ream_binary().with_file_name("..").join("ream-tests").join("mpi");
        fs::create_dir_all(&directory).expect("a directory for programs");
        let result = directory.join(format!("{name}.{}", self.suffix()));
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/mpi").join(source);
        let changed = |path: &Path| fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
        if changed(&result) <= changed(&path) {
            let fresh = directory.join(format!("{name}.{}.{}", self.suffix(), std::process::id()));
            let fortran = source.ends_with(".f90");
            let mut command = Command::new(self.compiler(fortran));
            command
                .args(["-O2", "-g", "-pthread"])
                .args(options)
                .arg(&path)
                .arg("-o")
                .arg(&fresh)
                .current_dir(&directory);
            if !fortran {
                // MPICH's header has the compiler take MPI_STATUSES_IGNORE for an array that is too short.
                command.args(["-Wall", "-Wextra", "-Werror", "-Wno-stringop-overflow"]);
                // `counted.c` stands for libream.so.
                command.arg("-Wl,--export-dynamic-symbol=ream_rank_*");
            }
            ran(&mut command);
            fs::rename(&fresh, &result).expect("naming the program");
        }
        result
    }

    /// A program of `bench/mpi`, as make builds it; `kind` is empty, or `fortran-`.
    ///
    /// # Panics
    /// When it is not built.
    pub fn built(self, kind: &str) -> PathBuf {
        let path = ream_binary().with_file_name(format!("ream-bench-mpi-{kind}{}", self.suffix()));
        assert!(path.is_file(), "{}: not built: make mpi", path.display());
        path
    }

    /// A job of so many ranks; options of `ream run`, unless it is plain, then program and arguments.
    ///
    /// # Panics
    /// When its launcher is not there.
    pub fn job(self, ranks: u32, ream: Option<&[&str]>, program: &Path, arguments: &[&str]) -> Run {
        let mut run = match self {
            Mpi::Open => Run::of(tool("mpirun.openmpi").expect("Open MPI's launcher")).args([
                "--oversubscribe",
                "-np",
                &ranks.to_string(),
            ]),
            Mpi::Mpich => Run::of(tool("mpiexec.mpich").expect("MPICH's launcher")).args(["-n", &ranks.to_string()]),
        };
        if let Some(options) = ream {
            run = run.arg(ream_binary()).arg("run").args(options).arg("--");
        }
        self.settle(run.arg(program).args(arguments))
    }

    /// What every job needs in its environment.
    pub fn settle(self, run: Run) -> Run {
        // Without the last, shared windows of two ranks of a plain run lie in one place (MPICH 4.0.2 over UCX 1.13).
        run.env("OMPI_ALLOW_RUN_AS_ROOT", "1")
            .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
            .env("UCX_MEM_EVENTS", "n")
            .unmeasured()
            .deadline(120)
    }
}

/// Runs a test under each implementation that is there.
///
/// # Panics
/// When Ream's library for one that is there is not built.
pub fn each(mut test: impl FnMut(Mpi)) {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    for mpi in [Mpi::Open, Mpi::Mpich] {
        let launcher = if mpi == Mpi::Open { "mpirun" } else { "mpiexec" };
        let tools = [format!("mpicc.{}", mpi.suffix()), format!("{launcher}.{}", mpi.suffix())];
        match tools.iter().find(|name| tool(name).is_none()) {
            Some(missing) => skip(mpi.suffix(), &format!("no {missing}")),
            None => {
                assert!(mpi.library().is_file(), "{}: not built: make mpi", mpi.library().display());
                test(mpi);
            }
        }
    }
}

/// A job under Ream, its session's summary and its store in a directory of their own.
pub struct Turns {
    /// The job's directory.
    pub scratch: Scratch,
    /// Options of `ream run`.
    pub options: Vec<String>,
}

impl Turns {
    /// So much memory for all, so many ranks at once.
    pub fn new(memory: &str, at_once: &str) -> Turns {
        let scratch = Scratch::new("mpi");
        let store = scratch.directory("store");
        let options = vec![
            format!("--memory={memory}"),
            format!("--ranks-at-once={at_once}"),
            format!("--store={}", store.display()),
        ];
        Turns { scratch, options }
    }

    /// One option more.
    pub fn with(mut self, option: &str) -> Turns {
        self.options.push(option.to_owned());
        self
    }

    /// A job under Ream.
    pub fn job(&self, mpi: Mpi, ranks: u32, program: &Path, arguments: &[&str]) -> Run {
        let options: Vec<&str> = self.options.iter().map(String::as_str).collect();
        self.settle(mpi.job(ranks, Some(&options), program, arguments))
    }

    /// Asks for the summary, by the environment: `Run` waits for one of its own where it sees the flag.
    pub fn settle(&self, run: Run) -> Run {
        run.env("REAM_SUMMARY", self.scratch.file("summary.json"))
    }

    /// The summary, once somebody has written it.
    ///
    /// # Panics
    /// When nobody does, or it is none.
    pub fn summary(&self) -> Summary {
        self.summary_in("summary.json")
    }

    /// A summary in this file of the job's directory, which is removed.
    ///
    /// # Panics
    /// When nobody writes it, or it is none.
    pub fn summary_in(&self, name: &str) -> Summary {
        let path = self.scratch.file(name);
        let text = until("a summary", || fs::read_to_string(&path).ok().filter(|text| text.ends_with("}\n")));
        let _ = fs::remove_file(&path);
        Summary(serde_json::from_str(&text).expect("a summary"))
    }

    /// What a rank of `ends.c` has written.
    pub fn of_rank(&self, rank: u32) -> Option<String> {
        fs::read_to_string(self.scratch.file(&rank.to_string())).ok().filter(|text| text.contains('\n'))
    }

    /// The job's directory.
    ///
    /// # Panics
    /// When its path is no text.
    pub fn directory(&self) -> &str {
        self.scratch.path().to_str().expect("a path in UTF-8")
    }

    /// Process number of the session's agent, and those of the ranks, once all have begun.
    ///
    /// # Panics
    /// When they are of several sessions, or do not begin.
    pub fn processes(&self, ranks: u32) -> (i32, Vec<i32>) {
        let texts: Vec<String> = (0..ranks).map(|rank| until("a rank", || self.of_rank(rank))).collect();
        let agents: Vec<i32> = texts.iter().map(|text| between(text, "/proc/", "/")).collect();
        assert!(agents.iter().all(|agent| *agent == agents[0]), "not one session: {texts:?}");
        (agents[0], texts.iter().map(|text| between(text, "", " ")).collect())
    }
}

/// The number between two words of a text.
///
/// # Panics
/// When there is none.
pub fn between(text: &str, before: &str, after: &str) -> i32 {
    let rest = text.split_once(before).map_or("", |(_, rest)| rest);
    let number = if before.is_empty() { text } else { rest }.split(after).next().unwrap_or_default();
    number.parse().unwrap_or_else(|_| panic!("no number in {text}"))
}

/// Looks until something is there.
///
/// # Panics
/// When it is not within a minute.
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "{what}: not within a minute");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a process is there and has not ended.
pub fn lives(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.trim_start().is_empty() && !rest.trim_start().starts_with('Z'))
}

/// Waits for the end of processes.
pub fn until_gone(pids: &[i32]) {
    for pid in pids {
        until("the end of a process", || (!lives(*pid)).then_some(()));
    }
}

/// What programs print, sorted: ranks may be merged in any order.
pub fn lines(outcome: &Outcome) -> Vec<String> {
    let mut lines: Vec<String> = outcome.out().lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// Whether every test runs under both implementations with every setting (`REAM_TEST_MPI=all`). Otherwise settings are dealt
/// out, so that each comes up under each implementation, though not with every program.
pub fn full() -> bool {
    std::env::var_os("REAM_TEST_MPI").is_some_and(|value| value == "all")
}

/// The settings with which the `number`th test of its kind runs under one implementation: every second one, the others under
/// the other implementation, and the other way round in the next test; or all.
pub fn dealt<T: Copy>(settings: &[T], number: usize, mpi: Mpi) -> Vec<T> {
    let turn = number + usize::from(mpi == Mpi::Mpich);
    let mine = settings.iter().enumerate().filter(|(place, _)| full() || (place + turn) % 2 == 0);
    mine.map(|(_, setting)| *setting).collect()
}

/// A program of MPI that is run plain and in turns.
pub struct Case<'a> {
    /// What it is called when it fails.
    pub name: &'a str,
    /// Ranks.
    pub ranks: u32,
    /// Its arguments; `FILE` stands for a file of the job's own.
    pub arguments: &'a [&'a str],
    /// Memory for all ranks.
    pub memory: &'a str,
    /// Further options of `ream run`.
    pub options: &'a [&'a str],
}

impl Case<'_> {
    /// Runs it plain, then with each of these numbers of ranks at once: results are the same, pages move, and turns change.
    /// Returns what the plain run said.
    ///
    /// # Panics
    /// When that is not so.
    pub fn same(&self, mpi: Mpi, program: &Path, at_once: &[&str]) -> Outcome {
        let scratch = Scratch::new("mpi");
        let file = scratch.file("shared").display().to_string();
        let arguments: Vec<&str> =
            self.arguments.iter().map(|word| if *word == "FILE" { &file } else { *word }).collect();
        let plain = mpi.job(self.ranks, None, program, &arguments).finish();
        plain.exited(0);
        assert!(!plain.out().is_empty());
        for at_once in at_once {
            self.again(mpi, program, &arguments, at_once, &plain);
        }
        plain
    }

    fn again(&self, mpi: Mpi, program: &Path, arguments: &[&str], at_once: &str, plain: &Outcome) {
        // Nobody is let in because the machine stands still for a while; who waits for ever is found by the run's deadline.
        let mut turns = Turns::new(self.memory, at_once).with("--turn-patience=3600000");
        for option in self.options {
            turns = turns.with(option);
        }
        let outcome = turns.job(mpi, self.ranks, program, arguments).finish();
        outcome.exited(0);
        let what = format!("{}, {mpi:?}, {at_once} at once, {:?}", self.name, self.options);
        assert_eq!(results(&outcome), results(plain), "{what}");
        let summary = turns.summary();
        assert_eq!(summary.number("processes"), u64::from(self.ranks), "{what}: one session");
        assert!(summary.number("bytes_out") > 0, "{what}: nothing was paged");
        // The first places, and one for whoever was blocked while others waited.
        let enough = at_once.parse().unwrap_or(self.ranks) >= self.ranks;
        assert!(enough || summary.number("turns") > u64::from(self.ranks), "{what}: no turns");
        assert_eq!(summary.number("ranks_let_in"), 0, "{what}");
        let (peak, budget) = (summary.number("peak_resident"), summary.number("budget"));
        assert!(peak <= budget + budget / 50 + OVERDRAFT, "{what}: {peak} of {budget}");
    }
}

/// The lines that a program prints, without the seconds that those of `bench/mpi` begin with.
pub fn results(outcome: &Outcome) -> Vec<String> {
    let without = |line: String| match line.split_once(' ') {
        Some((seconds, result)) if seconds.parse::<f64>().is_ok() => result.to_owned(),
        _ => line,
    };
    lines(outcome).into_iter().map(without).collect()
}
