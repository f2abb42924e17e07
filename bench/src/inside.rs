//! `ream bench inside`: Ream switched on in an ordinary interpreter costs what allocates below the threshold nothing: pairs of
//! runs of R's and Python's own kind of loops, with Ream switched on from inside and without.

use crate::arguments::Pairs;
use crate::driver::Commands;
use crate::report;
use crate::statistics::{Spread, interval};
use serde_json::{Value, json};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The ratio that a language's loops may reach together.
pub const MOST: f64 = 1.01;

const LIBRARY: &str = "libream_inside.so";

/// An interpreter: its name, its script, and what makes a run of it.
struct Language {
    name: &'static str,
    script: &'static str,
    command: fn(Option<&Path>) -> Command,
}

const LANGUAGES: [Language; 2] = [
    Language {
        name: "Python",
        script: include_str!("../inside/loops.py"),
        command: |library| {
            let mut command = Command::new("python3");
            command.args(["-I", "-"]).args(library);
            command
        },
    },
    Language {
        name: "R",
        script: include_str!("../inside/loops.R"),
        command: |library| {
            let mut command = Command::new("R");
            command.args(["--no-echo", "--no-restore", "--no-save", "--args"]).args(library.map(|_| "on"));
            command
        },
    },
];

/// What an interval says of the requirement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    /// It lies below.
    Pass,
    /// There is a cost, and it is most likely above.
    Short,
    /// It is too wide to say either.
    Undecided,
}

impl Verdict {
    fn of(low: f64, middle: f64, high: f64) -> Verdict {
        match high <= MOST {
            true => Verdict::Pass,
            false if low > 1.0 && middle > MOST => Verdict::Short,
            false => Verdict::Undecided,
        }
    }

    fn words(self) -> &'static str {
        match self {
            Verdict::Pass => "pass",
            Verdict::Short => "SHORT",
            Verdict::Undecided => "undecided",
        }
    }
}

/// What one run has said: names of loops, and seconds.
type Times = Vec<(String, f64)>;

fn once(language: &Language, library: Option<&Path>) -> Result<Times, String> {
    let mut command = (language.command)(library);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).env_remove("LD_PRELOAD");
    let mut child = command.spawn().map_err(|error| format!("{command:?}: {error}"))?;
    let given = child.stdin.take().map_or(Ok(()), |mut input| input.write_all(language.script.as_bytes()));
    let output = child.wait_with_output().map_err(|error| format!("{command:?}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if given.is_err() || !output.status.success() {
        return Err(format!("{}, {}", output.status, said.trim().lines().last().unwrap_or("without a word")));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let line = |line: &str| {
        let (name, seconds) = line.trim().split_once(' ')?;
        Some((name.to_owned(), seconds.parse().ok().filter(|seconds| *seconds > 0.0)?))
    };
    let times: Option<Times> = text.lines().map(line).collect();
    times.filter(|times| !times.is_empty()).ok_or_else(|| format!("said '{}'", text.trim()))
}

/// The library that a process loads which runs already: beside the command, or where an installation has it.
fn library() -> Result<PathBuf, String> {
    let ream = Commands::find()?.ream;
    let directory = ream.parent().unwrap_or(Path::new("."));
    let places = [directory.join(LIBRARY), directory.join("../lib/ream").join(LIBRARY)];
    let found = places.iter().find_map(|place| place.canonicalize().ok());
    found.ok_or_else(|| format!("{}: not there; make library builds it", places[0].display()))
}

/// Ratios of a language's loops, each by pairs, and of all of them together, which come last.
fn ratios(language: &Language, library: &Path, pairs: usize) -> Result<Vec<(String, Vec<f64>)>, String> {
    let mut rows: Vec<(String, Vec<f64>)> = Vec::new();
    for pair in 0..pairs {
        let run = |with: bool| once(language, with.then_some(library));
        let (on, off) = if pair % 2 == 0 {
            let first = run(true)?;
            (first, run(false)?)
        } else {
            let first = run(false)?;
            (run(true)?, first)
        };
        let mut together = 0.0;
        for (index, ((name, on), (_, off))) in on.iter().zip(&off).enumerate() {
            if rows.len() <= index {
                rows.push((name.clone(), Vec::new()));
            }
            rows[index].1.push(on / off);
            together += (on / off).ln();
        }
        let all = (together / on.len() as f64).exp();
        match rows.get_mut(on.len()) {
            Some(row) => row.1.push(all),
            None => rows.push(("all of them".into(), vec![all])),
        }
    }
    Ok(rows)
}

/// Measures; returns whether it was good enough.
///
/// # Errors
/// What kept it from measuring: of both languages, or of one that is there and failed.
pub fn run(options: &Pairs) -> Result<bool, String> {
    let library = library()?;
    println!("time with Ream switched on for blocks of 1 MiB and more over time without, where none is allocated,");
    println!("{} pairs (95 % interval of the median; together: of the loops' geometric mean)", options.pairs);
    let (mut good, mut measured, mut told, mut figures) = (true, false, true, Vec::new());
    for language in LANGUAGES {
        // Files come into the page cache; and whether it can be measured at all.
        if let Err(why) = once(&language, None).and_then(|_| once(&language, Some(&library))) {
            println!("{:<24} left out: {why}", language.name);
            figures.push(json!({"language": language.name, "left_out": why}));
            continue;
        }
        measured = true;
        let rows = ratios(&language, &library, options.pairs).map_err(|why| format!("{}: {why}", language.name))?;
        let last = rows.len() - 1;
        let mut values: Vec<Value> = Vec::new();
        for (index, (name, ratios)) in rows.iter().enumerate() {
            let Spread { low, middle, high } = interval(ratios);
            let what = format!("{} {name}", language.name);
            print!("{what:<24} {middle:.4} ({low:.4} to {high:.4})");
            if index == last {
                let verdict = Verdict::of(low, middle, high);
                good &= verdict != Verdict::Short;
                told &= verdict != Verdict::Undecided;
                print!("   upper end ≤ {MOST}: {}", verdict.words());
            }
            println!();
            values.push(json!({"name": name, "ratio": middle, "low": low, "high": high, "pairs": ratios}));
        }
        figures.push(json!({"language": language.name, "rows": values}));
    }
    if let Some(path) = &options.json {
        report::save(path, &json!({"benchmark": "inside", "languages": figures}))?;
    }
    match (measured, told || !good) {
        (true, true) => Ok(good),
        (true, false) => Err("the machine is too busy to tell 1 %: more --pairs, or a quieter time".into()),
        (false, _) => Err("neither language could be measured".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_intervals_decide_nothing() {
        assert_eq!(Verdict::of(0.98, 1.0, 1.009), Verdict::Pass);
        assert_eq!(Verdict::of(1.005, 1.02, 1.03), Verdict::Short);
        assert_eq!(Verdict::of(0.9, 1.02, 1.2), Verdict::Undecided);
        assert_eq!(Verdict::of(1.001, 1.005, 1.02), Verdict::Undecided);
    }
}
