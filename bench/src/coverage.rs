//! `ream bench coverage`: how much of a program's memory lies on large pages, region by region, under Ream and under what
//! else promises them.

mod programs;

use crate::arguments::Pairs;
use crate::driver::Commands;
use crate::others::{OTHERS, PLAIN, Proof, Setting, Signs, doubt, under, under_ream};
use crate::pool::Pool;
use crate::report;
use serde_json::json;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Pages of 2 MiB that the worker can use.
pub const POOL: u64 = 224;

/// The regions of the worker, and their headings.
const REGIONS: &[(&str, &str)] = &[
    ("main_600", "600 B"),
    ("main_100k", "100 KB"),
    ("main_300k", "300 KB"),
    ("main_3m", "3 MB"),
    ("main_16m", "16 MB"),
    ("thread_600", "thread 600 B"),
    ("thread_100k", "thread 100 KB"),
    ("mapped_1m", "mapped 1 MB"),
    ("bss", "bss"),
    ("data", "data"),
    ("main_stack", "main stack"),
    ("thread_stack", "thread stack"),
];

/// A row: what the worker runs under.
pub(crate) struct Row {
    /// Beside Ream.
    pub setting: Setting,
    /// Options of `ream run`.
    pub ream: &'static [&'static str],
}

/// Plain, Ream, and the others.
pub(crate) fn rows() -> impl Iterator<Item = Row> {
    let ream = |name, ream| Row { setting: Setting { name, proof: Proof::Library("libream.so"), ..PLAIN }, ream };
    let ours = [ream("Ream --pages=auto", &["--pages=auto"]), ream("Ream --pages=huge", &["--pages=huge"])];
    let others = OTHERS.iter().map(|setting| Row { setting: *setting, ream: &[] });
    std::iter::once(Row { setting: PLAIN, ream: &[] }).chain(ours).chain(others)
}

/// What a worker said of itself.
#[derive(Clone, Default, PartialEq, Debug)]
struct Said {
    /// KiB in RAM and on large pages, by region.
    regions: Vec<(String, u64, u64)>,
    /// Of all mappings, by smaps: KiB in RAM, on large pages, of these from the pool; mappings advised.
    all: [u64; 4],
    libraries: Vec<String>,
}

impl Said {
    fn signs(&self) -> Signs {
        Signs { pool: self.all[2], advised: self.all[3], libraries: self.libraries.clone() }
    }
}

fn understand(text: &str) -> Option<Said> {
    let mut said = Said::default();
    for line in text.lines() {
        match *line.split(' ').collect::<Vec<_>>().as_slice() {
            ["region", name, present, large] => {
                said.regions.push((name.to_owned(), present.parse().ok()?, large.parse().ok()?));
            }
            ["all", a, b, c, d] => {
                said.all = [a.parse().ok()?, b.parse().ok()?, c.parse().ok()?, d.parse().ok()?];
            }
            ["library", ..] => said.libraries.push(line["library ".len()..].to_owned()),
            _ => return None,
        }
    }
    (said.regions.len() == REGIONS.len() && said.all[0] > 0).then_some(said)
}

/// Runs the worker in a row's surroundings.
fn once(row: &Row, ream: &Path, worker: &Path) -> Result<Said, String> {
    let mut command = match row.ream {
        [] => under(&row.setting, worker),
        options => under_ream(ream, &options.iter().map(OsString::from).collect::<Vec<_>>(), worker),
    };
    say(&mut command)
}

fn say(command: &mut Command) -> Result<Said, String> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("{command:?}: {error}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    let last = errors.lines().last().unwrap_or_default();
    if !output.status.success() {
        return Err(format!("{}; {last}", output.status));
    }
    understand(&String::from_utf8_lossy(&output.stdout)).ok_or_else(|| format!("said too little; {last}"))
}

/// Runs the worker by this command, and tells why it was not under what it should have been.
///
/// # Errors
/// The reason.
pub fn probe(mut command: Command, proof: Proof) -> Result<(), String> {
    match doubt(proof, &say(&mut command)?.signs()) {
        Some(why) => Err(why.to_owned()),
        None => Ok(()),
    }
}

/// The program that looks at its own pages.
///
/// # Errors
/// It is missing.
pub fn worker(commands: &Commands) -> Result<PathBuf, String> {
    let worker = commands.worker.with_file_name("ream-bench-coverage");
    match worker.is_file() {
        true => Ok(worker),
        false => Err(format!("{}: not there; build it with cargo build --release -p ream-bench", worker.display())),
    }
}

/// Measures; returns whether more lies on large pages under Ream than under everything else.
///
/// # Errors
/// What kept it from measuring.
pub fn run(options: &Pairs) -> Result<bool, String> {
    let commands = Commands::find()?;
    let worker = worker(&commands)?;
    let wanted = |row: &Row| {
        options.only.is_empty() || options.only.iter().any(|only| row.setting.name.starts_with(only.as_str()))
    };
    println!("share of what is in RAM that lies on large pages, in percent\n");
    let headings: Vec<&str> = REGIONS.iter().map(|(_, heading)| *heading).collect();
    println!("| under | {} | all | in RAM |", headings.join(" | "));
    println!("|---|{}", "---:|".repeat(REGIONS.len() + 2));
    let (mut values, mut shares, mut skipped, mut pool) = (Vec::new(), Vec::new(), Vec::new(), None);
    let (pages, mut effective) = (if options.programs { programs::POOL } else { POOL }, Vec::new());
    for row in rows().filter(wanted) {
        let name = row.setting.name;
        if row.setting.pool {
            if let Err(why) = pool.get_or_insert_with(|| Pool::take(pages, &worker)) {
                skipped.push((name, why.clone()));
                continue;
            }
        }
        let said = match once(&row, &commands.ream, &worker) {
            Ok(said) => said,
            Err(why) => {
                skipped.push((name, why));
                continue;
            }
        };
        if let Some(why) = doubt(row.setting.proof, &said.signs()) {
            skipped.push((name, why.to_owned()));
            continue;
        }
        println!("{}", line(name, &said));
        effective.push(name);
        shares.push((!row.ream.is_empty(), said.all[1] as f64 / said.all[0] as f64));
        let regions: Vec<_> = said.regions.iter().map(|(name, present, large)| json!([name, present, large])).collect();
        values.push(json!({"under": name, "regions": regions, "all": said.all, "libraries": said.libraries}));
    }
    let others = options.programs.then(|| programs::run(&commands.ream, &options.store, &effective));
    // The pool is as it was before anything else is said.
    drop(pool);
    let (good, programs) = others.unwrap_or_else(|| Ok((true, Vec::new())))?;
    for (name, why) in &skipped {
        println!("\nleft out: {name}: {why}");
    }
    println!("\nregions by PAGEMAP_SCAN; all, and in RAM (MiB), by smaps, both read by the program itself");
    if let Some(path) = &options.json {
        report::save(path, &json!({"benchmark": "coverage", "unit": "KiB", "rows": values, "programs": programs}))?;
    }
    let good = good && widest(&shares);
    println!("more on large pages under Ream than under all others: {}", if good { "pass" } else { "SHORT" });
    Ok(good)
}

/// Whether the least share of Ream's rows is above the greatest of the others.
pub(crate) fn widest(shares: &[(bool, f64)]) -> bool {
    let of = |ream: bool| shares.iter().filter(move |(is_ream, _)| *is_ream == ream).map(|(_, share)| *share);
    let (least, greatest) = (of(true).reduce(f64::min), of(false).fold(0.0, f64::max));
    least.is_some_and(|least| least > greatest)
}

fn line(name: &str, said: &Said) -> String {
    let share = |present: u64, large: u64| match present {
        0 => "-".to_owned(),
        present => format!("{}", large * 100 / present),
    };
    let of = |name: &str| said.regions.iter().find(|(region, ..)| region == name);
    let cells: Vec<String> = REGIONS
        .iter()
        .map(|(name, _)| of(name).map_or("-".into(), |(_, present, large)| share(*present, *large)))
        .collect();
    let [resident, large, ..] = said.all;
    format!("| {name} | {} | {} | {} |", cells.join(" | "), share(resident, large), resident >> 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(library: &str) -> String {
        let regions: String = REGIONS.iter().map(|(name, _)| format!("region {name} 1000 250\n")).collect();
        regions + "all 20480 10240 0 3\nlibrary /usr/lib/libc.so.6\nlibrary " + library + "\n"
    }

    #[test]
    fn what_the_worker_says_becomes_a_line() {
        let said = understand(&text("/usr/lib/libjemalloc.so.2")).unwrap();
        assert_eq!(line("x", &said), format!("| x |{} 50 | 20 |", " 25 |".repeat(REGIONS.len())));
        assert_eq!(understand("region main_600 1 1\n"), None);
        assert_eq!(understand(&text("x").replace("250", "y")), None);
    }

    #[test]
    fn the_least_of_reams_rows_counts() {
        assert!(widest(&[(false, 0.4), (true, 0.9), (true, 0.5)]));
        assert!(!widest(&[(false, 0.6), (true, 0.9), (true, 0.5)]));
        assert!(!widest(&[(false, 0.4)]) && !widest(&[(true, 0.0), (false, 0.0)]));
    }
}
