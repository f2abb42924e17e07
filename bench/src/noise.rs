//! `ream noise`: what the machine takes from a program that asks it for nothing, plain and under Ream whose pager has been at
//! work and is idle: pieces of fixed work, gaps in looking at the clock (Selfish detours), and the cost of system calls.

mod arguments;
mod said;

use crate::driver::Commands;
use crate::interrupt;
use crate::machine::{self, Tlb};
use crate::measured;
use crate::others::{PLAIN, under, under_ream};
use crate::pages::order;
use crate::report;
use crate::statistics::{Spread, exact_interval, interval, median, quantile};
pub use arguments::HELP;
pub use said::{Said, understand};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The program that looks.
pub const PROGRAM: &str = "ream-bench-noise";
/// MiB that it fills before it looks, and the budget: so there is something to page, once.
pub const DATA: u64 = 128;
/// See [`DATA`].
pub const BUDGET: u64 = 64;
/// What an idle pager may take of a processor.
const IDLE: f64 = 0.001;
/// A ratio whose interval begins below this one is no loss that could be measured: work, and calls, which are over sooner than
/// what alignment of code makes of them.
const SAME: f64 = 1.002;
const SAME_CALL: f64 = 1.02;
/// Calls that Ream must not make dearer. It has work to do at the others.
const FREE: &[&str] = &["getppid", "clock_gettime", "read", "write"];

/// Runs `ream noise` with these arguments; returns the exit status, or `None` when help is asked for.
///
/// # Errors
/// What kept it from measuring.
pub fn main(arguments: &[String], tlb: Tlb) -> Result<Option<i32>, String> {
    let Some(options) = arguments::parse(arguments)? else { return Ok(None) };
    if std::env::var_os("REAM_SESSION").is_some() {
        return Err("runs under Ream itself, so no run could be plain; start it outside".into());
    }
    let commands = Commands::find()?;
    let program = commands.worker.with_file_name(PROGRAM);
    if !program.is_file() {
        return Err(format!("{}: not there; make builds it", program.display()));
    }
    interrupt::heed();
    let busy = machine::busy();
    let mut runs = Runs { ream: commands.ream, program, seconds: options.seconds, store: options.store.clone() };
    let (mut plain, mut ream): (Vec<Said>, Vec<Said>) = (Vec::new(), Vec::new());
    for round in 0..=options.rounds {
        for place in order(round, 2) {
            let said = if place == 0 { runs.plain() } else { runs.under_ream(&options.with) };
            let said = said.map_err(|why| format!("{}: {why}", if place == 0 { "plain" } else { "under Ream" }))?;
            // The first of each does not count.
            if round > 0 {
                if place == 0 { plain.push(said) } else { ream.push(said) }
            }
        }
    }
    let verdicts = verdicts(&plain, &ream);
    let good = verdicts.iter().all(|verdict| verdict.met);
    let value = json!({
        "benchmark": "noise", "ream": env!("CARGO_PKG_VERSION"), "seconds": options.seconds, "rounds": options.rounds,
        "machine": machine::describe(tlb, &options.store, busy),
        "plain": plain.iter().map(Said::json).collect::<Vec<_>>(),
        "under_ream": ream.iter().map(Said::json).collect::<Vec<_>>(),
        "verdicts": verdicts.iter().map(Verdict::json).collect::<Vec<_>>(),
    });
    match &options.json {
        Some(path) if path == Path::new("-") => {
            let text = serde_json::to_string_pretty(&value).map_err(|error| error.to_string())?;
            println!("{text}");
        }
        json => {
            let text = text(&plain, &ream, &verdicts, busy);
            // A reader that went away has read enough.
            let _ = std::io::stdout().write_all(text.as_bytes());
            json.iter().try_for_each(|path| report::save(path, &value))?;
        }
    }
    Ok(Some(i32::from(!good)))
}

/// How runs are started.
struct Runs {
    ream: PathBuf,
    program: PathBuf,
    seconds: f64,
    store: PathBuf,
}

impl Runs {
    /// What a run said, and what was said of it on standard error.
    fn once(&self, command: &mut Command) -> Result<(Said, String), String> {
        command.args([DATA.to_string(), self.seconds.to_string()]);
        let limit = Duration::from_secs_f64(60.0 + 20.0 * self.seconds);
        let ran = measured::run(command, limit)?;
        let last = ran.errors.lines().last().unwrap_or("said nothing");
        if !ran.status.success() {
            return Err(format!("{}: {last}", ran.status));
        }
        Ok((understand(&ran.out)?, ran.errors))
    }

    fn plain(&mut self) -> Result<Said, String> {
        self.once(&mut under(&PLAIN, &self.program)).map(|(said, _)| said)
    }

    fn under_ream(&mut self, with: &[String]) -> Result<Said, String> {
        let memory = format!("--memory={BUDGET}M").into();
        let own = [memory, "--summary=/dev/stderr".into(), "--store".into(), self.store.clone().into()];
        let options: Vec<OsString> = own.into_iter().chain(with.iter().map(OsString::from)).collect();
        let (said, errors) = self.once(&mut under_ream(&self.ream, &options, &self.program))?;
        let summary = errors.find('{').and_then(|start| serde_json::from_str::<Value>(&errors[start..]).ok());
        // Only a pager that has been at work can be idle.
        match summary.and_then(|summary| summary["bytes_out"].as_u64()) {
            Some(written) if written > 0 => Ok(said),
            _ => Err(format!("nothing was paged, so no pager was idle; see ream doctor; {}", errors.trim())),
        }
    }
}

/// Whether something that was required was reached.
struct Verdict {
    /// In words.
    what: String,
    low: f64,
    middle: f64,
    high: f64,
    met: bool,
}

impl Verdict {
    fn json(&self) -> Value {
        json!({"what": self.what, "low": self.low, "median": self.middle, "high": self.high, "met": self.met})
    }
}

/// What the idle pager costs, and whether that is nothing.
fn verdicts(plain: &[Said], ream: &[Said]) -> Vec<Verdict> {
    let ratio = |figure: &dyn Fn(&Said) -> f64| {
        let ratios: Vec<f64> = ream.iter().zip(plain).map(|(ream, plain)| figure(ream) / figure(plain)).collect();
        // Exact where there are enough of them.
        exact_interval(&ratios).unwrap_or_else(|| interval(&ratios))
    };
    let judged = |what: String, Spread { low, middle, high }: Spread, most: f64| {
        let met = low <= most || middle <= 1.0;
        Verdict { what, low, middle, high, met }
    };
    let mut all = vec![judged("fixed work takes as long under Ream".into(), ratio(&Said::work), SAME)];
    for name in FREE {
        all.push(judged(format!("{name} takes as long under Ream"), ratio(&|said| said.call(name)), SAME_CALL));
    }
    let shares: Vec<f64> = ream.iter().map(|said| said.others).collect();
    let Spread { low, middle, high } = Spread::of(&shares);
    let what = format!("the idle pager takes at most {} % of a processor", IDLE * 100.0);
    all.push(Verdict { what, low, middle, high, met: middle <= IDLE });
    all
}

/// The median over runs.
fn middle(runs: &[Said], figure: &dyn Fn(&Said) -> f64) -> f64 {
    median(&runs.iter().map(figure).collect::<Vec<_>>())
}

fn text(plain: &[Said], ream: &[Said], verdicts: &[Verdict], busy: f64) -> String {
    let mut text = format!(
        "{} rounds in turns on {} processors, {:.0} % of them in use before; Ream pages {DATA} MiB within {BUDGET}, then idles\n\n",
        plain.len(),
        plain.first().map_or(0, |said| said.processors),
        busy * 100.0
    );
    text += &format!("{:<40} {:>12} {:>12}\n", "", "plain", "under Ream");
    let mut line = |name: &str, figure: &dyn Fn(&Said) -> f64| {
        text += &format!("{name:<40} {:>12.3} {:>12.3}\n", middle(plain, figure), middle(ream, figure));
    };
    let quanta = |share: f64| move |said: &Said| quantile(&said.quanta, share) / 1e6;
    line("fixed work, ms on average", &|said| said.work() / 1e6);
    line("  the shortest", &quanta(0.0));
    line("  99 % are below", &quanta(0.99));
    line("  the longest", &quanta(1.0));
    line("lost to detours, % of the time", &|said| said.lost() * 100.0);
    line("  detours in a second, per processor", &Said::rate);
    line("  the longest, µs", &|said| said.longest / 1e3);
    line("other threads, % of a processor", &|said| said.others * 100.0);
    let names: Vec<String> =
        plain.first().map(|said| said.calls.iter().map(|(name, _)| name.clone()).collect()).unwrap_or_default();
    for name in &names {
        line(&format!("{name}, ns"), &|said| said.call(name));
    }
    text += "\nfixed work longer than the shortest by    plain, % of pieces      under Ream\n";
    text += &bars(&said::excess(plain), &said::excess(ream));
    text += "\ndetours, by their length         plain, in a second per processor      under Ream\n";
    text += &bars(&said::lengths(plain), &said::lengths(ream));
    text += "\n";
    for verdict in verdicts {
        let share = verdict.what.contains("processor");
        let (scale, unit) = if share { (100.0, " %") } else { (1.0, "") };
        text += &format!(
            "{}: {:.3}{unit} ({:.3} to {:.3}): {}\n",
            verdict.what,
            verdict.middle * scale,
            verdict.low * scale,
            verdict.high * scale,
            if verdict.met { "pass" } else { "SHORT" }
        );
    }
    text
}

/// Two histograms beside each other; bars as long as the root of their values, so that rare things are seen.
fn bars(plain: &[(String, f64)], ream: &[(String, f64)]) -> String {
    const LONGEST: f64 = 24.0;
    let most = plain.iter().chain(ream).map(|(_, value)| *value).fold(f64::MIN_POSITIVE, f64::max);
    let bar = |value: f64| "#".repeat(((value / most).sqrt() * LONGEST).ceil() as usize);
    let mut text = String::new();
    for ((name, ours), (_, theirs)) in plain.iter().zip(ream) {
        if *ours > 0.0 || *theirs > 0.0 {
            text += &format!("{name:>14} {ours:>10.3} {:<25} {theirs:>10.3} {}\n", bar(*ours), bar(*theirs));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(work: f64, call: f64, others: f64) -> Said {
        let quanta = vec![work, work * 1.01, work * 1.02];
        let calls = ["getppid", "clock_gettime", "read", "write", "mmap+munmap"];
        Said {
            processors: 2,
            quanta,
            looked: 1e9,
            detours: 3,
            lost_ns: 1e6,
            lengths: vec![300.0, 5000.0, 40_000.0],
            longest: 40_000.0,
            others,
            calls: calls.map(|name| (name.to_owned(), call)).to_vec(),
        }
    }

    fn met(ream: &[Said]) -> Vec<bool> {
        let plain: Vec<Said> = (0..9).map(|round| said(1e6 + f64::from(round), 200.0, 0.0)).collect();
        verdicts(&plain, ream).iter().map(|verdict| verdict.met).collect()
    }

    #[test]
    fn what_is_measurably_slower_is_short() {
        let of = |work: f64, call, others| -> Vec<Said> {
            (0..9).map(|round| said(work + f64::from(round), call, others)).collect()
        };
        assert!(met(&of(1e6, 201.0, 0.0004)).iter().all(|met| *met));
        assert_eq!(met(&of(1.01e6, 200.0, 0.0004)), [false, true, true, true, true, true]);
        assert_eq!(met(&of(1e6, 220.0, 0.0004)), [true, false, false, false, false, true]);
        assert_eq!(met(&of(1e6, 200.0, 0.01)), [true, true, true, true, true, false]);
    }

    #[test]
    fn the_text_shows_both_and_the_verdicts() {
        let runs = [said(1e6, 200.0, 0.0004)];
        let text = text(&runs, &runs, &verdicts(&runs, &runs), 0.0);
        for words in ["fixed work, ms on average", "mmap+munmap, ns", "32 to 64 µs", "pass", "####"] {
            assert!(text.contains(words), "{words}: {text}");
        }
    }
}
