//! `ream bench mpi`: programs of MPI whose ranks need more memory than there is, in turns of Ream's, paged without turns, on
//! swap, and with enough memory; and what a switch costs, in the twelve cells of the ancestors' table.

use crate::arguments::Ranks;
use crate::measured::{Ran, run as once};
use crate::pages::order;
use crate::raw::{Best, Raw};
use crate::statistics::{Spread, median};
use crate::swap::{self, Swap};
use crate::{driver::Commands, interrupt, others, report};
use serde_json::{Value, json};
use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Ranks of the programs.
const RANKS: u64 = 12;
/// What a program's data are of the budget, in tenths.
const TENTHS: u64 = 34;
/// Name, MiB of a rank, and rounds: of a quick run, and of a long one.
type Program = (&'static str, [u64; 2], [u64; 2]);
const PROGRAMS: &[Program] = &[
    ("pagerank", [24, 128], [3, 5]),
    ("kmeans", [48, 192], [3, 5]),
    ("sgd", [24, 96], [1, 1]),
    ("mttkrp", [24, 96], [2, 3]),
];
/// Ways of giving room up, and of coming back.
const WAYS: [&str; 3] = ["aggressive", "lazy", "auto"];
const GOOD: f64 = 1.3;
const NOT_SLOWER: f64 = 1.03;

/// An implementation of MPI, and where its program lies.
struct Job {
    ream: PathBuf,
    program: PathBuf,
    launcher: &'static [&'static str],
    summary: PathBuf,
    limit: Duration,
}

/// What a run came to.
struct Took {
    seconds: f64,
    digest: String,
    summary: Value,
}

impl Job {
    fn find(options: &Ranks, commands: &Commands) -> Result<Job, String> {
        let known: [(&str, &[&str]); 2] =
            [("openmpi", &["mpirun.openmpi", "--oversubscribe", "-np"]), ("mpich", &["mpiexec.mpich", "-n"])];
        let found = known.into_iter().filter(|(name, _)| options.implementation.as_ref().is_none_or(|one| one == name));
        for (name, launcher) in found {
            let program = commands.worker.with_file_name(format!("ream-bench-mpi-{name}"));
            if program.is_file() {
                let summary = std::env::temp_dir().join(format!("ream-bench-mpi-{}.json", std::process::id()));
                let limit = Duration::from_secs(if options.quick { 60 } else { 900 });
                return Ok(Job { ream: commands.ream.clone(), program, launcher, summary, limit });
            }
        }
        Err("no ream-bench-mpi-openmpi or ream-bench-mpi-mpich; make builds them where mpicc is".into())
    }

    /// Runs a program; `under`: options of `ream run`, or the entrance of a cgroup.
    fn run(
        &self,
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
        command.env("REAM_CONFIG", "").env("REAM_PROGRAMS", "").env("UCX_MEM_EVENTS", "n");
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        // As Ream has it: otherwise ranks that wait keep processors from those that compute.
        command.env("OMPI_MCA_mpi_yield_when_idle", "1").env("REAM_SUMMARY", &self.summary);
        if let Some(entrance) = group {
            let file = std::fs::OpenOptions::new().write(true).open(entrance);
            let file = file.map_err(|error| format!("{}: {error}", entrance.display()))?;
            // SAFETY: only write(), which is async-signal-safe, on a descriptor that the closure owns.
            unsafe {
                command.pre_exec(move || match libc::write(file.as_raw_fd(), b"0".as_ptr().cast(), 1) {
                    1 => Ok(()),
                    _ => Err(std::io::Error::last_os_error()),
                })
            };
        }
        let _ = std::fs::remove_file(&self.summary);
        let ran = once(&mut command, self.limit)?;
        let (seconds, digest) = figures(&ran)?;
        let text = std::fs::read_to_string(&self.summary).unwrap_or_default();
        let _ = std::fs::remove_file(&self.summary);
        Ok(Took { seconds, digest, summary: serde_json::from_str(&text).unwrap_or(Value::Null) })
    }
}

fn figures(ran: &Ran) -> Result<(f64, String), String> {
    let words: Vec<&str> = ran.out.split_whitespace().collect();
    match *words.as_slice() {
        [seconds, digest] if ran.status.success() => {
            let seconds = seconds.parse().map_err(|_| format!("said '{}'", ran.out.trim()))?;
            Ok((seconds, digest.to_owned()))
        }
        _ => Err(format!("{}, said '{}', {}", ran.status, ran.out.trim(), ran.errors.trim())),
    }
}

fn ream(options: &Ranks, memory: u64, more: &[&str]) -> Vec<String> {
    let mut all = vec![format!("--memory={memory}"), format!("--store={}", options.store.display())];
    all.extend(more.iter().map(|word| (*word).to_owned()).chain(options.with.iter().cloned()));
    all
}

/// Measures; returns whether every requirement was met.
///
/// # Errors
/// What kept it from measuring, or another result than that of the plain run.
pub fn run(options: &Ranks) -> Result<bool, String> {
    interrupt::heed();
    let commands = Commands::find()?;
    swap::clean(&options.store);
    let job = Job::find(options, &commands)?;
    let wanted =
        |name: &str| options.only.is_empty() || options.only.iter().any(|only| name.starts_with(only.as_str()));
    let names = ["cells", "fits", "pair"].into_iter().chain(PROGRAMS.iter().map(|program| program.0));
    if !names.into_iter().any(wanted) {
        return Err("no row is called so; there are pagerank, kmeans, sgd, mttkrp, fits, pair and cells".into());
    }
    let (mut rows, mut good, mut gains) = (Vec::new(), true, Vec::new());
    let device = |error: std::io::Error| format!("direct I/O in {}: {error}", options.store.display());
    let rate = {
        let mut raw = Raw::new(&options.store, 512 << 20).map_err(device)?;
        let (pattern, depth) = Best::find(&mut raw, 0.1).map_err(device)?.reads;
        raw.slice(pattern, depth, 0.5, 0).map_err(device)?.bytes_per_second()
    };
    println!(
        "{}, {RANKS} ranks, data {:.1} times the budget, raw reads {:.0} MB/s; seconds, and medians of ratios",
        job.launcher[0],
        TENTHS as f64 / 10.0,
        rate / 1e6
    );
    for program in PROGRAMS.iter().filter(|program| wanted(program.0)) {
        let (row, met, gain) = measure(options, &job, &commands, program, rate)?;
        gains.push(gain);
        good &= met;
        rows.push(row);
    }
    if !gains.is_empty() {
        let mean = (gains.iter().map(|gain| gain.ln()).sum::<f64>() / gains.len() as f64).exp();
        let met = mean >= GOOD;
        good &= met;
        println!("turns over no turns, geometric mean: {mean:.2}   ≥ {GOOD}: {}", verdict(met));
        rows.push(json!({"name": "turns over no turns", "mean": mean, "met": met}));
    }
    if wanted("fits") {
        good &= fits(options, &job, &mut rows)?;
    }
    if wanted("pair") {
        good &= pair(options, &job, &mut rows)?;
    }
    if wanted("cells") {
        cells(options, &job, &mut rows)?;
    }
    if let Some(path) = &options.json {
        report::save(path, &json!({"benchmark": "mpi", "rounds": options.rounds, "raw": rate, "rows": rows}))?;
    }
    Ok(good)
}

fn verdict(met: bool) -> &'static str {
    if met { "pass" } else { "SHORT" }
}

fn words(program: &str, mebibytes: u64, rounds: u64) -> Vec<String> {
    vec![program.into(), mebibytes.to_string(), rounds.to_string()]
}

fn same(name: &str, first: &Took, other: &Took) -> Result<(), String> {
    match first.digest == other.digest {
        true => Ok(()),
        false => Err(format!("{name}: another result, {} for {}", other.digest, first.digest)),
    }
}

/// One program; its row, whether it met what it must, and how much faster turns are than none.
fn measure(
    options: &Ranks,
    job: &Job,
    commands: &Commands,
    program: &Program,
    rate: f64,
) -> Result<(Value, bool, f64), String> {
    let (name, sizes, rounds) = *program;
    let long = usize::from(!options.quick);
    let (each, count) = (sizes[long], rounds[long]);
    let data = (each * RANKS) << 20;
    let memory = data * 10 / TENTHS;
    let words = words(name, each, count);
    let swap = match options.swap {
        true => Some(Swap::new(&options.store, data * 2, memory + ((RANKS * 12) << 20), &commands.worker)?),
        false => None,
    };
    let group = swap.as_ref().map(Swap::entrance);
    let (turns, none) = (ream(options, memory, &[]), ream(options, memory, &["--ranks-at-once=all"]));
    let mut seconds: [Vec<f64>; 4] = Default::default();
    let (mut peak, mut late) = (0f64, [false; 4]);
    let ways: &[usize] = if group.is_some() { &[0, 1, 2, 3] } else { &[0, 1, 2] };
    let mut first: Option<Took> = None;
    // The first round warms up and is not counted; swap needs no warmth.
    for round in 0..=options.rounds {
        for place in order(round, ways.len()).into_iter().filter_map(|place| ways.get(place).copied()) {
            let warms = round == 0;
            let took = match place {
                0 => job.run(RANKS, &words, None, None),
                1 => job.run(RANKS, &words, Some(&turns), None),
                2 => job.run(RANKS, &words, Some(&none), None),
                _ if warms => continue,
                _ => job.run(RANKS, &words, None, group.as_deref()),
            };
            match took {
                Ok(took) => {
                    if let Some(first) = &first {
                        same(name, first, &took)?;
                    }
                    if !warms {
                        seconds[place].push(took.seconds);
                    }
                    if place == 1 {
                        let number = |key: &str| took.summary[key].as_f64().unwrap_or(f64::NAN);
                        peak = peak.max(number("peak_resident") / number("budget"));
                    }
                    first.get_or_insert(took);
                }
                // It takes at least as long.
                Err(why) if place > 1 && why.starts_with("took longer") => {
                    late[place] = true;
                    if !warms {
                        seconds[place].push(job.limit.as_secs_f64());
                    }
                }
                Err(why) => return Err(format!("{name}: {why}")),
            }
        }
    }
    let [plain, with, without, swapped] = &seconds;
    let over =
        |top: &[f64], bottom: &[f64]| Spread::of(&top.iter().zip(bottom).map(|(a, b)| a / b).collect::<Vec<_>>());
    let gain = over(without, with);
    let bound: Vec<f64> = plain.iter().map(|plain| plain.max((data - memory) as f64 * count as f64 / rate)).collect();
    let ideal = over(with, &bound);
    let costs: Vec<f64> = swapped
        .iter()
        .zip(with)
        .zip(plain)
        .map(|((swap, ream), plain)| (swap - plain) / (ream - plain).max(1e-3))
        .collect();
    let cost = (!costs.is_empty()).then(|| Spread::of(&costs));
    let met = [
        gain.middle >= 1.0 / NOT_SLOWER,
        ideal.middle <= 1.5,
        peak <= 1.02,
        cost.is_none_or(|cost| cost.middle >= 4.0),
    ];
    let least = |place: usize| if late[place] { "≥ " } else { "" };
    println!(
        "{name:<9} plain {:.2}  turns {:.2}  no turns {}{:.2}{}\n          turns over none {:.2} ({:.2} to {:.2}) {}; of the ideal {:.2} ≤ 1.5: {}; peak {:.3} of the budget ≤ 1.02: {}{}",
        median(plain),
        median(with),
        least(2),
        median(without),
        cost.map_or(String::new(), |_| format!("  swap {}{:.2}", least(3), median(swapped))),
        gain.middle,
        gain.low,
        gain.high,
        verdict(met[0]),
        ideal.middle,
        verdict(met[1]),
        peak,
        verdict(met[2]),
        cost.map_or(String::new(), |cost| format!(
            "; paging costs swap {:.1} times as much ≥ 4: {}",
            cost.middle,
            verdict(met[3])
        )),
    );
    let row = json!({
        "name": name, "ranks": RANKS, "data": data, "memory": memory, "plain": plain, "turns": with, "no_turns": without,
        "swap": swapped, "no_turns_ended": late[2], "swap_ended": late[3], "peak": peak, "gain": gain.middle,
        "of_ideal": ideal.middle, "swap_cost": cost.map(|cost| cost.middle), "met": met,
    });
    Ok((row, met.iter().all(|met| *met), gain.middle))
}

/// A plain run and one under Ream; which is first changes from round to round. Round 0 warms up.
fn both(job: &Job, ranks: u64, words: &[String], under: &[String], round: usize) -> Result<(Took, Took), String> {
    if round % 2 == 0 {
        let plain = job.run(ranks, words, None, None)?;
        Ok((plain, job.run(ranks, words, Some(under), None)?))
    } else {
        let with = job.run(ranks, words, Some(under), None)?;
        Ok((job.run(ranks, words, None, None)?, with))
    }
}

/// Everything fits: turns cost nothing.
fn fits(options: &Ranks, job: &Job, rows: &mut Vec<Value>) -> Result<bool, String> {
    let mut good = true;
    for (name, sizes, rounds) in PROGRAMS {
        let words = words(name, sizes[0], rounds[0] * 2);
        let under = ream(options, (sizes[0] * RANKS * 2) << 20, &[]);
        let mut ratios = Vec::new();
        for round in 0..=options.rounds * 3 {
            let (plain, with) = both(job, RANKS, &words, &under, round)?;
            same(name, &plain, &with)?;
            if round > 0 {
                ratios.push(with.seconds / plain.seconds);
            }
        }
        let ratio = Spread::of(&ratios);
        let met = ratio.middle <= 1.02;
        good &= met;
        println!(
            "fits, {name:<9} {:.3} ({:.3} to {:.3}) of plain ≤ 1.02: {}",
            ratio.middle,
            ratio.low,
            ratio.high,
            verdict(met)
        );
        rows.push(json!({"name": format!("fits {name}"), "ratios": ratios, "met": met}));
    }
    Ok(good)
}

/// A small message to and fro.
fn pair(options: &Ranks, job: &Job, rows: &mut Vec<Value>) -> Result<bool, String> {
    const THOUSANDS: u64 = 200;
    let under = ream(options, 1 << 30, &[]);
    let mut more = Vec::new();
    for round in 0..=options.rounds * 3 {
        let (plain, with) = both(job, 2, &words("pair", 1, THOUSANDS), &under, round)?;
        same("pair", &plain, &with)?;
        if round > 0 {
            more.push((with.seconds - plain.seconds) * 1e6 / (THOUSANDS as f64 * 1000.0));
        }
    }
    let spread = Spread::of(&more);
    let met = spread.middle <= 1.0;
    println!(
        "pair      {:+.2} µs ({:+.2} to {:+.2}) a pair of messages ≤ 1: {}",
        spread.middle,
        spread.low,
        spread.high,
        verdict(met)
    );
    rows.push(json!({"name": "pair", "microseconds": more, "met": met}));
    Ok(met)
}

/// The ancestors' cells: two ranks in turns over their data, which fit, or of which one rank's fit.
fn cells(options: &Ranks, job: &Job, rows: &mut Vec<Value>) -> Result<(), String> {
    let each = options.data >> 21;
    println!("cells: two ranks of {each} MiB, MB/s: plain; {}", WAYS.join(", "));
    for what in ["read", "write", "both"] {
        let words = words(&format!("cells-{what}"), each, 3);
        let speed = |took: &Took| (each * 6) as f64 * 1.048_576 / took.seconds;
        for (place, memory) in [("in memory", options.data * 2), ("on disk", options.data * 3 / 4)] {
            let mut speeds: Vec<Vec<f64>> = vec![Vec::new(); 1 + WAYS.len()];
            // Warms up, and says what the result is.
            let first = job.run(2, &words, None, None)?;
            for round in 0..options.rounds {
                for number in order(round, speeds.len()) {
                    let under = number.checked_sub(1).and_then(|number| WAYS.get(number)).map(|way| {
                        let ways = [format!("--on-block={way}"), format!("--on-run={way}")];
                        ream(options, memory, &["--ranks-at-once=1", &ways[0], &ways[1]])
                    });
                    let took = job.run(2, &words, under.as_deref(), None)?;
                    same(what, &first, &took)?;
                    speeds[number].push(speed(&took));
                }
            }
            let middle: Vec<String> = speeds.iter().map(|speeds| format!("{:>6.0}", median(speeds))).collect();
            println!("{place:<9} {what:<5} {}", middle.join("  "));
            rows.push(json!({"name": format!("cell {place} {what}"), "ways": WAYS, "mb_per_s": speeds}));
        }
    }
    Ok(())
}
