//! `ream bench mpi`: programs of MPI whose ranks need more memory than there is, in turns of Ream's, paged without turns, on
//! swap, and with enough memory; and what a switch costs, in the twelve cells of the ancestors' table.

mod contest;
mod cost;
mod job;

use crate::arguments::Ranks;
use crate::pages::order;
use crate::raw::{Best, Raw};
use crate::statistics::{Spread, median};
use crate::swap::{self, Swap};
use crate::{driver::Commands, interrupt, report};
pub(crate) use contest::{Came, Contest, Size};
use cost::Cost;
pub(crate) use job::Job;
use job::{Took, same};
use serde_json::{Value, json};
use std::time::Duration;

/// Ranks of the programs.
pub(crate) const RANKS: u64 = 12;
/// What a program's data are of the budget, in tenths.
const TENTHS: u64 = 34;
/// Name, MiB of a rank, and rounds: of a quick run, and of a long one.
type Program = (&'static str, [u64; 2], [u64; 2]);
const PROGRAMS: &[Program] = &[
    ("pagerank", [24, 128], [3, 5]),
    ("kmeans", [48, 192], [3, 5]),
    ("sgd", [24, 96], [1, 1]),
    ("mttkrp", [24, 96], [2, 3]),
    ("contract", [24, 96], [1, 2]),
];
/// What also runs under MPICH, small and without swap, where all else runs under Open MPI.
pub(crate) const UNDER_MPICH: [&str; 2] = ["pagerank", "kmeans"];
/// Ways of giving room up, and of coming back.
const WAYS: [&str; 3] = ["aggressive", "lazy", "auto"];
const GOOD: f64 = 1.3;
const NOT_SLOWER: f64 = 1.03;

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
    let limit = Duration::from_secs(if options.quick { 60 } else { 900 });
    let job = Job::find(options.implementation.as_deref(), &commands, limit)?;
    let wanted =
        |name: &str| options.only.is_empty() || options.only.iter().any(|only| name.starts_with(only.as_str()));
    let mut names = ["cells", "fits", "pair"].into_iter().chain(PROGRAMS.iter().map(|program| program.0));
    if !names.any(wanted) && !UNDER_MPICH.iter().any(|name| wanted(&mpich(name))) {
        return Err("no row is called so; there are pagerank, kmeans, sgd, mttkrp, contract, fits, pair, cells, \
                    mpich-pagerank and mpich-kmeans"
            .into());
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
        job.launcher(),
        TENTHS as f64 / 10.0,
        rate / 1e6
    );
    for program in PROGRAMS.iter().filter(|program| wanted(program.0)) {
        let (row, met, gain) = measure(options, &job, &commands, (program.0, program), rate)?;
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
    for program in PROGRAMS.iter().filter(|program| UNDER_MPICH.contains(&program.0) && wanted(&mpich(program.0))) {
        let name = mpich(program.0);
        let found = match options.implementation {
            Some(_) => Err("one implementation was asked for".into()),
            None => Job::under_mpich(&commands, limit),
        };
        match found {
            Ok(job) => {
                let small = Ranks { quick: true, swap: false, ..options.clone() };
                let (row, met, _) = measure(&small, &job, &commands, (&name, program), rate)?;
                good &= met;
                rows.push(row);
            }
            Err(why) => {
                println!("{name:<9} skipped: {why}");
                rows.push(json!({"name": name, "skipped": why}));
            }
        }
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

/// The row of a program under MPICH beside the usual one.
pub(crate) fn mpich(program: &str) -> String {
    format!("mpich-{program}")
}

fn verdict(met: bool) -> &'static str {
    if met { "pass" } else { "SHORT" }
}

fn words(program: &str, mebibytes: u64, rounds: u64) -> Vec<String> {
    vec![program.into(), mebibytes.to_string(), rounds.to_string()]
}

/// One program, its row called so; the row, whether it met what it must, and how much faster turns are than none.
fn measure(
    options: &Ranks,
    job: &Job,
    commands: &Commands,
    (called, program): (&str, &Program),
    rate: f64,
) -> Result<(Value, bool, f64), String> {
    let (name, sizes, rounds) = *program;
    let long = usize::from(!options.quick);
    let size = Size { name, mebibytes: sizes[long], rounds: rounds[long] };
    let (data, memory) = (size.data(), size.memory());
    let swap = match options.swap {
        true => Some(Swap::new(&options.store, data * 2, data * 2, &commands.worker)?),
        false => None,
    };
    let limit = swap.as_ref().map(|swap| size.limit(job, swap)).transpose()?;
    let contest = Contest {
        job,
        size,
        rounds: options.rounds,
        turns: ream(options, memory, &[]),
        none: ream(options, memory, &["--ranks-at-once=all"]),
        group: swap.as_ref().map(Swap::entrance),
        patience: job.limit,
        warm: 3,
    };
    let Came { seconds, late, peak, no_swap, cpu, mebibytes } = contest.measure(&mut |_, _| (), &|_| true)?;
    let [plain, with, without, swapped] = &seconds;
    let over =
        |top: &[f64], bottom: &[f64]| Spread::of(&top.iter().zip(bottom).map(|(a, b)| a / b).collect::<Vec<_>>());
    let gain = over(without, with);
    let least_time = (data - memory) as f64 * size.rounds as f64 / rate;
    let bound: Vec<f64> = plain.iter().map(|plain| plain.max(least_time)).collect();
    let ideal = over(with, &bound);
    let cost = Cost::of(swapped, with, plain, late[3]);
    let met = [
        gain.middle >= 1.0 / NOT_SLOWER,
        ideal.middle <= 1.5,
        peak <= 1.02,
        cost.is_none_or(|cost| cost.is_at_least(4.0)),
    ];
    let least = |place: usize| if late[place] { "≥ " } else { "" };
    println!(
        "{called:<9} plain {:.2}  turns {:.2}  no turns {}{:.2}{}\n          turns over none {:.2} ({:.2} to {:.2}) {}; of the ideal {:.2} ≤ 1.5: {}; peak {:.3} of the budget ≤ 1.02: {}{}",
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
        cost.map_or(String::new(), |cost| format!("; {cost} ≥ 4: {}", verdict(met[3]))),
    );
    if let Some(why) = &no_swap {
        println!("          swap {why}");
    }
    let row = json!({
        "name": called, "launcher": job.launcher(), "ranks": RANKS, "data": data, "memory": memory, "plain": plain, "turns": with, "no_turns": without,
        "swap": swapped, "cpu_seconds": ways(cpu), "peak_mib": ways(mebibytes), "swap_limit": limit, "no_turns_ended": late[2], "swap_ended": late[3], "peak": peak, "gain": gain.middle,
        "of_ideal": ideal.middle, "swap_cost": cost.and_then(Cost::times),
        "swap_cost_is_least": matches!(cost, Some(Cost::Over(_))), "met": met,
    });
    Ok((row, met.iter().all(|met| *met), gain.middle))
}

/// By the names of the ways.
fn ways([plain, turns, no_turns, swap]: [Vec<f64>; 4]) -> Value {
    json!({"plain": plain, "turns": turns, "no_turns": no_turns, "swap": swap})
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
