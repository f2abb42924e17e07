//! `ream bench fits`: data that fit the budget must cost nothing: pairs of whole runs, with Ream and without.

use crate::arguments::Pairs;
use crate::content::PAGE;
use crate::driver::{Commands, Under, command};
use crate::paging::ream_options;
use crate::report;
use crate::statistics::{Spread, interval};
use serde_json::json;
use std::process::Stdio;
use std::time::Instant;

/// The ratio that the upper end of an interval may reach.
pub const MOST: f64 = 1.02;

/// Runs the worker once and returns the numbers that it printed, and the seconds of the whole run.
///
/// # Errors
/// It could not be run, or failed.
pub fn once(commands: &Commands, under: &Under<'_>, arguments: &[String]) -> Result<Vec<f64>, String> {
    let mut command = command(commands, under, arguments)?;
    let begun = Instant::now();
    let output = command.stderr(Stdio::inherit()).output().map_err(|error| format!("{command:?}: {error}"))?;
    let seconds = begun.elapsed().as_secs_f64();
    let text = String::from_utf8_lossy(&output.stdout);
    let numbers: Option<Vec<f64>> = text.split_whitespace().map(|word| word.parse().ok()).collect();
    match numbers {
        Some(mut numbers) if output.status.success() && !numbers.is_empty() => {
            numbers.push(seconds);
            Ok(numbers)
        }
        _ => Err(format!("{command:?}: {}, said '{}'", output.status, text.trim())),
    }
}

/// Runs pairs, each with Ream first in every other one, and before each run one of the same kind that does not count. Returns
/// the ratios, Ream over plain, of every number.
///
/// The host of a virtual machine takes back memory that was free for some seconds, and whoever touches it first again pays
/// for that, up to ten times the time of a first touch. Runs of one kind get the same memory again, small pages or large
/// ones; without the run before, the first of each pair was the slow one, whichever that was.
///
/// # Errors
/// A run failed.
pub fn pairs(options: &Pairs, arguments: &[String]) -> Result<Vec<Vec<f64>>, String> {
    let commands = Commands::find()?;
    let under_ream = ream_options(options.memory, &options.store, &options.with);
    let after_another = |under: &Under<'_>| {
        once(&commands, under, arguments)?;
        once(&commands, under, arguments)
    };
    let ream = || after_another(&Under::Ream(&under_ream));
    let plain = || after_another(&Under::Nothing);
    // One of each that does not count: files come into the page cache.
    ream()?;
    plain()?;
    let mut ratios: Vec<Vec<f64>> = Vec::new();
    for pair in 0..options.pairs {
        let (ream, plain) = if pair % 2 == 0 {
            let first = ream()?;
            (first, plain()?)
        } else {
            let first = plain()?;
            (ream()?, first)
        };
        ratios.resize(ream.len(), Vec::new());
        for ((all, ream), plain) in ratios.iter_mut().zip(ream).zip(plain) {
            all.push(ream / plain);
        }
    }
    Ok(ratios)
}

/// Prints a line for each interval and returns whether all upper ends are low enough, and the figures.
pub fn show(names: &[&str], ratios: &[Vec<f64>]) -> (bool, Vec<serde_json::Value>) {
    let mut good = true;
    let mut values = Vec::new();
    for (name, ratios) in names.iter().zip(ratios) {
        let Spread { low, middle, high } = interval(ratios);
        let verdict = if high <= MOST { "pass" } else { "SHORT" };
        good &= high <= MOST;
        println!("{name:<24} {middle:.4} ({low:.4} to {high:.4})   upper end ≤ {MOST}: {verdict}");
        values.push(
            json!({"name": name, "ratio": middle, "low": low, "high": high, "met": high <= MOST, "pairs": ratios}),
        );
    }
    (good, values)
}

/// Measures; returns whether it was good enough.
///
/// # Errors
/// What kept it from measuring.
pub fn run(options: &Pairs) -> Result<bool, String> {
    let arguments = ["fits".into(), (options.data / PAGE as u64).to_string(), "3".into()];
    let pairs = pairs(options, &arguments)?;
    println!(
        "time with Ream over time without, {} pairs, data {} MiB, memory {} MiB (95 % interval of the median)",
        options.pairs,
        options.data >> 20,
        options.memory >> 20
    );
    let (good, values) = show(&["first touch", "after first touch", "whole run"], &pairs);
    if let Some(path) = &options.json {
        report::save(
            path,
            &json!({"benchmark": "fits", "data": options.data, "memory": options.memory, "rows": values}),
        )?;
    }
    Ok(good)
}
