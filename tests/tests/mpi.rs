//! Ranks of MPI jobs that take turns, under both implementations: results are those of a plain run, whatever ranks do to
//! each other none waits for ever, and nothing is left of jobs that end in any way.

use ream_tests::{Outcome, Run, Scratch, Summary, ran, ream_binary, skip, tool};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// One job at a time: each has as many ranks as there are processors, and more.
static ALONE: Mutex<()> = Mutex::new(());

/// What four ranks may take beyond the budget when one has nothing to give up and the machine is busy: 1 MiB each.
const OVERDRAFT: u64 = 4 << 20;

/// An implementation of MPI.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mpi {
    Open,
    Mpich,
}

impl Mpi {
    fn suffix(self) -> &'static str {
        match self {
            Mpi::Open => "openmpi",
            Mpi::Mpich => "mpich",
        }
    }

    fn library(self) -> PathBuf {
        ream_binary().with_file_name(format!("libream-mpi-{}.so", self.suffix()))
    }

    fn compiler(self, fortran: bool) -> PathBuf {
        let name = if fortran { "mpifort" } else { "mpicc" };
        tool(&format!("{name}.{}", self.suffix())).expect("looked for by `each`")
    }

    /// Compiles a program of `programs/mpi`.
    fn program(self, source: &str) -> PathBuf {
        let directory = ream_binary().with_file_name("..").join("ream-tests").join("mpi");
        fs::create_dir_all(&directory).expect("a directory for programs");
        let result = directory.join(format!("{source}.{}", self.suffix()));
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/mpi").join(source);
        let changed = |path: &Path| fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
        if changed(&result) <= changed(&path) {
            let fresh = directory.join(format!("{source}.{}.{}", self.suffix(), std::process::id()));
            let fortran = source.ends_with(".f90");
            let mut command = Command::new(self.compiler(fortran));
            command.args(["-O2", "-g", "-pthread"]).arg(&path).arg("-o").arg(&fresh).current_dir(&directory);
            if !fortran {
                // MPICH's header has the compiler take MPI_STATUSES_IGNORE for an array that is too short.
                command.args(["-Wall", "-Wextra", "-Werror", "-Wno-stringop-overflow"]);
            }
            ran(&mut command);
            fs::rename(&fresh, &result).expect("naming the program");
        }
        result
    }

    /// A job of so many ranks; options of `ream run`, unless it is plain, then program and arguments.
    fn job(self, ranks: u32, ream: Option<&[&str]>, program: &Path, arguments: &[&str]) -> Run {
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

    fn settle(self, run: Run) -> Run {
        // Without the last, shared windows of two ranks of a plain run lie in one place (MPICH 4.0.2 over UCX 1.13).
        run.env("OMPI_ALLOW_RUN_AS_ROOT", "1")
            .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
            .env("UCX_MEM_EVENTS", "n")
            .unmeasured()
            .deadline(120)
    }
}

/// Runs a test under each implementation that is there.
fn each(mut test: impl FnMut(Mpi)) {
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
struct Turns {
    scratch: Scratch,
    options: Vec<String>,
}

impl Turns {
    fn new(memory: &str, at_once: &str) -> Turns {
        let scratch = Scratch::new("mpi");
        let store = scratch.directory("store");
        let options = vec![
            format!("--memory={memory}"),
            format!("--ranks-at-once={at_once}"),
            format!("--store={}", store.display()),
        ];
        Turns { scratch, options }
    }

    fn with(mut self, option: &str) -> Turns {
        self.options.push(option.to_owned());
        self
    }

    fn job(&self, mpi: Mpi, ranks: u32, program: &Path, arguments: &[&str]) -> Run {
        let options: Vec<&str> = self.options.iter().map(String::as_str).collect();
        self.settle(mpi.job(ranks, Some(&options), program, arguments))
    }

    /// By the environment: `Run` waits for a summary of its own where it sees the flag.
    fn settle(&self, run: Run) -> Run {
        run.env("REAM_SUMMARY", self.scratch.file("summary.json"))
    }

    /// The summary, once somebody has written it.
    fn summary(&self) -> Summary {
        let path = self.scratch.file("summary.json");
        let text = until("a summary", || fs::read_to_string(&path).ok().filter(|text| text.ends_with("}\n")));
        Summary(serde_json::from_str(&text).expect("a summary"))
    }

    /// What a rank of `ends.c` has written.
    fn of_rank(&self, rank: u32) -> Option<String> {
        fs::read_to_string(self.scratch.file(&rank.to_string())).ok().filter(|text| text.contains('\n'))
    }

    fn directory(&self) -> &str {
        self.scratch.path().to_str().expect("a path in UTF-8")
    }

    /// Process number of the session's agent, and those of the ranks, once all have begun.
    fn processes(&self, ranks: u32) -> (i32, Vec<i32>) {
        let texts: Vec<String> = (0..ranks).map(|rank| until("a rank", || self.of_rank(rank))).collect();
        let agents: Vec<i32> = texts.iter().map(|text| between(text, "/proc/", "/")).collect();
        assert!(agents.iter().all(|agent| *agent == agents[0]), "not one session: {texts:?}");
        (agents[0], texts.iter().map(|text| between(text, "", " ")).collect())
    }
}

fn between(text: &str, before: &str, after: &str) -> i32 {
    let rest = text.split_once(before).map_or("", |(_, rest)| rest);
    let number = if before.is_empty() { text } else { rest }.split(after).next().unwrap_or_default();
    number.parse().unwrap_or_else(|_| panic!("no number in {text}"))
}

fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
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
fn lives(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.trim_start().is_empty() && !rest.trim_start().starts_with('Z'))
}

fn until_gone(pids: &[i32]) {
    for pid in pids {
        until("the end of a process", || (!lives(*pid)).then_some(()));
    }
}

/// What programs print, sorted: ranks may be merged in any order.
fn lines(outcome: &Outcome) -> Vec<String> {
    let mut lines: Vec<String> = outcome.out().lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// Four ranks that need three to four times their budget together, and page.
fn same_as_plain(source: &str, arguments: &[&str], memory: &str) {
    same_as_plain_with(source, arguments, memory, &["1", "2", "all"], &[]);
}

/// The same with these numbers of ranks at once, and, where there are more options, with each of those as well.
fn same_as_plain_with(source: &str, arguments: &[&str], memory: &str, at_once: &[&str], options: &[&str]) {
    each(|mpi| {
        let program = mpi.program(source);
        let scratch = Scratch::new("mpi");
        let file = scratch.file("shared").display().to_string();
        let arguments: Vec<&str> = arguments.iter().map(|word| if *word == "FILE" { &file } else { *word }).collect();
        let plain = mpi.job(4, None, &program, &arguments).finish();
        plain.exited(0);
        assert!(!plain.out().is_empty());
        let settings = at_once.iter().map(|number| (*number, None));
        for (at_once, option) in settings.chain(options.iter().map(|option| (at_once[0], Some(*option)))) {
            let mut turns = Turns::new(memory, at_once);
            if let Some(option) = option {
                turns = turns.with(option);
            }
            let outcome = turns.job(mpi, 4, &program, &arguments).finish();
            outcome.exited(0);
            assert_eq!(lines(&outcome), lines(&plain), "{source} {at_once}");
            let summary = turns.summary();
            assert_eq!(summary.number("processes"), 4, "{source}: one session");
            assert!(summary.number("bytes_out") > 0, "{source}: nothing was paged");
            // The first places, and one for whoever was blocked while others waited.
            assert!(at_once == "all" || summary.number("turns") > 4, "{source}: no turns");
            assert_eq!(summary.number("ranks_let_in"), 0, "{source}");
            let (peak, budget) = (summary.number("peak_resident"), summary.number("budget"));
            assert!(peak <= budget + budget / 50 + OVERDRAFT, "{source}: {peak} of {budget}");
        }
    });
}

#[test]
fn pagerank() {
    same_as_plain("pagerank.c", &["100000", "2000000", "3"], "32M");
}

#[test]
fn kmeans() {
    same_as_plain("kmeans.c", &["300000", "3"], "36M");
}

#[test]
fn torture() {
    same_as_plain("torture.c", &["8", "20", "FILE"], "40M");
}

/// What calls overwrite is dropped, and nothing else.
#[test]
fn overwritten_buffers() {
    same_as_plain_with("dropped.c", &["400"], "8M", &["1"], &["--on-run=aggressive", "--drop-received=no"]);
}

/// Copies straight out of another rank's memory pin no more of it than a rank that waits has.
#[test]
fn copies_between_ranks() {
    each(|mpi| {
        let program = mpi.program("copies.c");
        let plain = mpi.job(4, None, &program, &["6000"]).finish();
        plain.exited(0);
        for at_once in ["1", "all"] {
            let turns = Turns::new("16M", at_once);
            let outcome = turns.job(mpi, 4, &program, &["6000"]).finish();
            outcome.exited(0);
            assert_eq!(lines(&outcome), lines(&plain), "{at_once}");
            assert!(turns.summary().number("bytes_out") > 0, "nothing was paged");
            assert!(!outcome.err().contains("in use by devices"), "{}", outcome.describe());
        }
    });
}

/// Each way of giving room up and of coming back; `auto` is that of all other tests.
#[test]
fn at_the_switch() {
    each(|mpi| {
        let program = mpi.program("kmeans.c");
        let arguments = ["100000", "3"];
        let plain = mpi.job(6, None, &program, &arguments).finish();
        plain.exited(0);
        for on_block in ["lazy", "aggressive"] {
            for on_run in ["lazy", "aggressive"] {
                let turns = Turns::new("16M", "2");
                let turns = turns.with(&format!("--on-block={on_block}")).with(&format!("--on-run={on_run}"));
                let outcome = turns.job(mpi, 6, &program, &arguments).finish();
                outcome.exited(0);
                assert_eq!(lines(&outcome), lines(&plain), "{on_block} {on_run}");
                let summary = turns.summary();
                assert!(summary.number("turns") > 6 && summary.number("bytes_in") > 0, "{on_block} {on_run}: no turns");
            }
        }
    });
}

#[test]
fn fortran() {
    if tool("gfortran").is_none() {
        return skip("mpi_f08 and mpif.h", "no gfortran");
    }
    same_as_plain("ring.f90", &["3"], "24M");
    same_as_plain("ring_old.f90", &["3"], "24M");
}

/// Each of two ranks is four times the budget.
#[test]
fn one_rank_larger_than_the_budget() {
    each(|mpi| {
        let program = mpi.program("kmeans.c");
        let arguments = ["2000000", "2"];
        let plain = mpi.job(2, None, &program, &arguments).finish();
        plain.exited(0);
        let turns = Turns::new("32M", "1");
        let outcome = turns.job(mpi, 2, &program, &arguments).finish();
        outcome.exited(0);
        assert_eq!(lines(&outcome), lines(&plain));
        assert!(turns.summary().number("bytes_in") > 200 << 20);
    });
}

/// Every rule comes to the end, and to the same result.
#[test]
fn every_rule() {
    each(|mpi| {
        let program = mpi.program("torture.c");
        let mut results = Vec::new();
        for rule in ["vrss", "fifo", "lifo", "pending"] {
            let turns = Turns::new("32M", "2").with(&format!("--next={rule}"));
            let file = turns.scratch.file("shared").display().to_string();
            let outcome = turns.job(mpi, 4, &program, &["6", "16", &file]).finish();
            outcome.exited(0);
            results.push(lines(&outcome));
        }
        assert!(results.iter().all(|result| *result == results[0]), "{results:?}");
    });
}

/// Whoever keeps asking, or even waits without a call of MPI, makes room for the one that it waits for.
#[test]
fn nobody_waits_for_ever() {
    for what in ["test", "iprobe", "passive", "memory", "threads"] {
        each(|mpi| {
            let program = mpi.program("tempt.c");
            let plain = mpi.job(3, None, &program, &[what]).finish();
            plain.exited(0);
            for at_once in ["1", "2"] {
                let turns = Turns::new("64M", at_once).with("--turn-patience=200");
                let outcome = turns.job(mpi, 3, &program, &[what]).finish();
                outcome.exited(0);
                assert_eq!(lines(&outcome), lines(&plain), "{what} {at_once}");
            }
        });
    }
}

/// A rank's exit status is the job's, and nothing of the session stays.
#[test]
fn exit_status() {
    each(|mpi| {
        let turns = Turns::new("64M", "1");
        let running = turns.job(mpi, 3, &mpi.program("ends.c"), &["status", turns.directory()]).start();
        let (agent, _) = turns.processes(3);
        running.finish().exited(3);
        until_gone(&[agent]);
    });
}

/// A rank that is killed takes the job with it, and nothing of the session stays.
#[test]
fn a_rank_is_killed() {
    each(|mpi| {
        for how in ["computing", "blocked"] {
            let turns = Turns::new("64M", "1");
            let running = turns.job(mpi, 4, &mpi.program("ends.c"), &[how, turns.directory()]).start();
            let (agent, ranks) = turns.processes(4);
            // Hydra says at times that all is well when it was told to end.
            let outcome = running.finish();
            assert!(mpi == Mpi::Mpich || !outcome.status.success(), "{}", outcome.describe());
            until_gone(&ranks);
            until_gone(&[agent]);
        }
    });
}

/// Of three that compute one at a time one is killed that waits for its place and one that has it: the third one gets it,
/// by the agent, or without. Launchers end a job of which a rank is killed, so these are three jobs of one session.
#[test]
fn killed_ranks_give_their_places_back() {
    for with_agent in [true, false] {
        each(|mpi| {
            let program = mpi.program("places.c");
            let turns = Turns::new("64M", "1").with("--turn-patience=3600000");
            let script = format!(
                "for name in a b c; do env -i PATH=\"$PATH\" LD_PRELOAD=\"$LD_PRELOAD\" REAM_SESSION=\"$REAM_SESSION\" \
                 REAM_TEST_RUN=\"$REAM_TEST_RUN\" {} {} $name & done; wait",
                program.display(),
                turns.directory()
            );
            let running = turns.job(mpi, 1, Path::new("/bin/sh"), &["-c", &script]).start();
            let read = |name: &str, end: &str| fs::read_to_string(turns.scratch.file(&format!("{name}.{end}"))).ok();
            let ready = |name: &&str, end: &str| read(name, end).is_some_and(|text| text.ends_with('\n'));
            let names = ["a", "b", "c"];
            until("three processes", || names.iter().all(|name| ready(name, "pid")).then_some(()));
            let first = until("a rank with a place", || names.into_iter().find(|name| ready(name, "in")));
            let others: Vec<&str> = names.into_iter().filter(|name| *name != first).collect();
            let pid = |name: &str| between(&read(name, "pid").unwrap_or_default(), "", " ");
            // SAFETY: only sends a signal, to processes of this test's own job.
            let kill = |pid: i32| unsafe { libc::kill(pid, libc::SIGKILL) };
            if !with_agent {
                kill(between(&read(first, "pid").unwrap_or_default(), "/proc/", "/"));
            }
            kill(pid(others[0]));
            until_gone(&[pid(others[0])]);
            assert!(!ready(&others[1], "in"), "two have a place");
            kill(pid(first));
            until("a place given back", || ready(&others[1], "in").then_some(()));
            fs::write(turns.scratch.file(&format!("{}.go", others[1])), "").expect("a file");
            running.finish().exited(0);
            assert!(ready(&others[1], "done"));
        });
    }
}

/// Without an agent ranks go on, and find out by themselves who has gone.
#[test]
fn the_agent_is_killed() {
    each(|mpi| {
        let turns = Turns::new("64M", "1");
        let program = mpi.program("ends.c");
        let running = turns.job(mpi, 4, &program, &["calm", turns.directory()]).start();
        let (agent, ranks) = turns.processes(4);
        // SAFETY: only sends a signal, to the agent of this test's own session.
        unsafe { libc::kill(agent, libc::SIGKILL) };
        running.finish().exited(0);
        assert!((0..4).all(|rank| turns.of_rank(rank).is_some_and(|text| text.ends_with("done\n"))));
        until_gone(&ranks);
    });
}

/// Segments of Open MPI's, which stay behind when its launcher is killed, without Ream as well.
fn segments() -> Vec<PathBuf> {
    let files = fs::read_dir("/dev/shm").into_iter().flatten().flatten().map(|entry| entry.path());
    files.filter(|path| path.to_string_lossy().contains("/vader_segment.")).collect()
}

/// The launcher is ended in the middle of turns, by a signal it handles and by one that it cannot.
#[test]
fn the_launcher_is_ended() {
    for signal in [libc::SIGTERM, libc::SIGKILL] {
        each(|mpi| {
            let before = segments();
            let turns = Turns::new("64M", "1");
            let running = turns.job(mpi, 4, &mpi.program("ends.c"), &["for-ever", turns.directory()]).start();
            let (agent, ranks) = turns.processes(4);
            running.signal(signal);
            // Hydra says at times that all is well when it was told to end.
            let outcome = running.finish();
            assert!(mpi == Mpi::Mpich || !outcome.status.success(), "{}", outcome.describe());
            until_gone(&ranks);
            until_gone(&[agent]);
            for left in segments().iter().filter(|path| !before.contains(path)) {
                let _ = fs::remove_file(left);
            }
        });
    }
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

/// No function of an implementation's header is forgotten.
/// The programs of `ream bench mpi`: right plain and in turns, and one spoilt value is found.
#[test]
fn benchmarks_find_a_spoilt_value() {
    const PROGRAMS: [&str; 9] =
        ["pagerank", "kmeans", "sgd", "mttkrp", "contract", "pair", "cells-read", "cells-write", "cells-both"];
    each(|mpi| {
        let program = ream_binary().with_file_name(format!("ream-bench-mpi-{}", mpi.suffix()));
        for name in PROGRAMS {
            let plain = mpi.job(3, None, &program, &[name, "1", "1"]).finish();
            plain.exited(0);
            assert!(plain.out().split_whitespace().count() == 2, "{}", plain.describe());
            let spoilt = mpi.job(3, None, &program, &[name, "1", "1", "--corrupt"]).finish();
            let found = spoilt.err().contains("WRONG RESULT") && spoilt.out().trim().is_empty();
            assert!(found, "{name}: {}", spoilt.describe());
        }
        // With about a third of the data in RAM.
        let turns = Turns::new("8M", "1");
        let words = ["contract", "8", "1"];
        let plain = mpi.job(3, None, &program, &words).finish();
        let paged = turns.job(mpi, 3, &program, &words).finish();
        plain.exited(0);
        paged.exited(0);
        let sum = |outcome: &Outcome| outcome.out().split_whitespace().nth(1).map(str::to_owned);
        assert_eq!(sum(&plain), sum(&paged), "{}", paged.describe());
        assert!(turns.summary().number("bytes_in") > 0, "{}", paged.describe());
    });
}

#[test]
fn every_function_is_listed() {
    each(|mpi| {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../mpi/generate.sh");
        ran(Command::new(script).arg(mpi.compiler(false)).arg("--check"));
    });
}
