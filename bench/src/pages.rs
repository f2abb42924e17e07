//! `ream bench pages`: what large pages are worth. The same computations plain, under Ream, with large pages asked for by
//! the program itself, and under whatever else promises them, in turns.

mod judge;
pub(crate) mod rows;

use crate::arguments::Pages;
use crate::coverage;
use crate::driver::Commands;
use crate::others::{OTHERS, PLAIN, Proof, Setting, under, under_ream};
use crate::pool::Pool;
use crate::report;
use crate::statistics::median;
use judge::{Figures, Kind, Times};
use rows::{Program, Row, Work};
use serde_json::json;
use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// MiB that stay free beside data and pool.
const SPARE: u64 = 1024;

/// A setting, and why it is in no row.
struct Column {
    kind: Kind,
    setting: Setting,
    /// How the worker is told to ask for its memory.
    how: &'static str,
    absent: Option<String>,
}

fn columns() -> Vec<Column> {
    let column = |kind, name, short, how| Column {
        kind,
        setting: Setting { name, short, pool: how == "pool", ..PLAIN },
        how,
        absent: None,
    };
    let own = [
        column(Kind::Plain, "plain", "plain", "plain"),
        column(Kind::Ream, "Ream", "Ream", "plain"),
        column(Kind::Hand, "by hand", "by hand", "hand"),
        column(Kind::Hand, "by hand from the pool", "hand pool", "pool"),
    ];
    let others =
        OTHERS.iter().map(|setting| Column { kind: Kind::Other, setting: *setting, how: "plain", absent: None });
    own.into_iter().chain(others).collect()
}

/// Which of `count` settings a round runs, in order: each comes first as often as any other, and after each other one as
/// often as after any (twice as many rounds where their number is odd), so that what one leaves behind, free memory in
/// large or small pieces for one, meets all alike.
pub(crate) fn order(round: usize, count: usize) -> Vec<usize> {
    let zigzag = (0..count).map(|place| if place % 2 == 0 { place / 2 } else { count - place.div_ceil(2) });
    let mut order: Vec<usize> = zigzag.map(|place| (place + round) % count).collect();
    if count > 0 && round / count % 2 == 1 {
        order.reverse();
    }
    order
}

/// Everything that rows need.
struct Bench<'a> {
    options: &'a Pages,
    commands: Commands,
    /// Looks at its own pages, and keeps the pool.
    observer: PathBuf,
    under_ream: Vec<OsString>,
    columns: Vec<Column>,
}

/// Measures; returns whether it was good enough.
///
/// # Errors
/// What kept it from measuring.
pub fn run(options: &Pages) -> Result<bool, String> {
    let rows = rows::all(available()? << 20, options.quick);
    let wanted = |row: &&Row| options.rows.is_empty() || options.rows.iter().any(|rows| rows::matches(&row.name, rows));
    let chosen: Vec<&Row> = rows.iter().filter(wanted).collect();
    if chosen.is_empty() {
        let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
        return Err(format!("no row is called so; there are {}", names.join(", ")));
    }
    let bench = Bench::new(options)?;
    bench.heading();
    let (mut good, mut failed, mut values) = (true, Vec::new(), Vec::new());
    let absent = bench.columns.iter().filter_map(|column| Some((column.setting.name, column.absent.as_ref()?)));
    let absent: Vec<_> = absent.map(|(name, why)| json!({"under": name, "why": why})).collect();
    for row in chosen {
        print!("{:<24}", row.name);
        let _ = std::io::stdout().flush();
        let mut value = match bench.measure(row) {
            Ok(figures) => {
                bench.show(&figures);
                good &= figures.verdicts().iter().all(|verdict| verdict.met != Some(false));
                figures.json()
            }
            Err(Failure::Unavailable(why)) => {
                println!(" NOT AVAILABLE HERE: {why}");
                json!({"not_available_here": why})
            }
            Err(Failure::Failed(why)) => {
                println!(" FAILED: {why}");
                failed.push(format!("{}: {why}", row.name));
                json!({"failed": why})
            }
        };
        value["name"] = json!(row.name);
        value["mebibytes"] = json!(row.mebibytes);
        values.push(value);
        if let Some(path) = &options.json {
            // After each row: hours of work are not lost to an interruption.
            let all = json!({
                "benchmark": "pages", "rounds": options.rounds, "memory": options.memory, "with": options.with,
                "absent": absent, "rows": values,
            });
            report::save(path, &all)?;
        }
    }
    println!("\nall requirements that were measured: {}", if good { "pass" } else { "SHORT" });
    if failed.is_empty() { Ok(good) } else { Err(failed.join("; ")) }
}

/// Why a row has no figures.
enum Failure {
    /// What it needs is not there.
    Unavailable(String),
    /// A run failed, or computed something else.
    Failed(String),
}

/// MiB of RAM that may be taken.
fn available() -> Result<u64, String> {
    let text = std::fs::read_to_string("/proc/meminfo").map_err(|error| format!("/proc/meminfo: {error}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.map(|kib| kib >> 10).ok_or_else(|| "/proc/meminfo: no MemAvailable".into())
}

impl<'a> Bench<'a> {
    /// Finds out which settings are in effect when they are asked for.
    fn new(options: &'a Pages) -> Result<Bench<'a>, String> {
        let found = Commands::find()?;
        let observer = coverage::worker(&found)?;
        let commands = found.with_kernels()?;
        let mut under_ream: Vec<OsString> = vec!["--store".into(), options.store.as_os_str().to_owned()];
        if let Some(memory) = options.memory {
            under_ream.extend(["--memory".into(), memory.to_string().into()]);
        }
        under_ream.extend(options.with.iter().map(OsString::from));
        let mut bench = Bench { options, commands, observer, under_ream, columns: columns() };
        let pool = bench.pool(coverage::POOL);
        for index in 0..bench.columns.len() {
            let column = &bench.columns[index];
            let (kind, setting) = (column.kind, column.setting);
            let unwanted = kind == Kind::Other
                && !options.against.is_empty()
                && !options.against.iter().any(|pattern| rows::matches(setting.name, pattern));
            let absent = match &pool {
                _ if unwanted => Some("not asked for".to_owned()),
                Err(why) if setting.pool => Some(why.clone()),
                _ if kind == Kind::Hand => None,
                _ => {
                    let proof = if kind == Kind::Ream { Proof::Library("libream.so") } else { setting.proof };
                    coverage::probe(bench.command(column, &bench.observer), proof).err()
                }
            };
            if let (Some(why), Kind::Plain | Kind::Ream) = (&absent, kind) {
                return Err(format!("{}: {why}", setting.name));
            }
            bench.columns[index].absent = absent;
        }
        Ok(bench)
    }

    /// So many free pages in the kernel's pool.
    fn pool(&self, pages: u64) -> Result<Pool, String> {
        if self.options.pool { Pool::take(pages, &self.observer) } else { Pool::as_it_is(pages) }
    }

    fn command(&self, column: &Column, program: &Path) -> Command {
        match column.kind {
            Kind::Ream => under_ream(&self.commands.ream, &self.under_ream, program),
            _ => under(&column.setting, program),
        }
    }

    fn heading(&self) {
        println!("seconds by the median of {} rounds; ratios with their 95 % interval\n", self.options.rounds);
        for column in &self.columns {
            if let Some(why) = &column.absent {
                println!("left out: {}: {why}", column.setting.name);
            }
        }
        let names = self.columns.iter().filter(|column| column.absent.is_none());
        println!("\n{:<24}{}", "", names.map(|column| format!(" {:>10}", column.setting.short)).collect::<String>());
    }

    /// Runs a row under all settings, in turns.
    fn measure(&self, row: &Row) -> Result<Figures, Failure> {
        let program = |column: &Column| row.program(&self.commands.worker, column.how).map_err(Failure::Unavailable);
        let programs = self.columns.iter().map(program).collect::<Result<Vec<_>, _>>()?;
        let free = available().map_err(Failure::Failed)?;
        // A quarter more for what is not data, and what the computation needs beside them.
        let needed = row.mebibytes + row.mebibytes / 4 + 64;
        if needed > free {
            return Err(Failure::Unavailable(format!("it needs {needed} MiB of RAM; {free} MiB are available")));
        }
        let wants_pool = self.columns.iter().any(|column| column.setting.pool && column.absent.is_none());
        let in_pool = row.mebibytes + row.mebibytes / 8 + 64;
        let pool = match wants_pool {
            true if in_pool + needed + SPARE > free => {
                Err(format!("a pool of {in_pool} MiB leaves too little of {free} MiB of RAM"))
            }
            true => self.pool(in_pool / 2),
            false => Err("no pool".into()),
        };
        let applies = |column: &Column| match (&column.absent, &pool) {
            (Some(why), _) => Err(why.clone()),
            (None, Err(why)) if column.setting.pool => Err(why.clone()),
            _ if column.kind == Kind::Hand && !matches!(row.work, Work::Kernel(..)) => Err("only our own".into()),
            _ if column.how == "pool" && !matches!(row.work, Work::Kernel(_, "heap")) => Err("only the heap".into()),
            _ => Ok(Vec::with_capacity(self.options.rounds)),
        };
        let mut seconds: Vec<Result<Vec<f64>, String>> = self.columns.iter().map(applies).collect();
        let present: Vec<usize> = (0..seconds.len()).filter(|index| seconds[*index].is_ok()).collect();
        let mut checksum: Option<String> = None;
        // A round that does not count where files have to come into the page cache.
        let warm = usize::from(matches!(row.work, Work::Python { .. }));
        for round in 0..self.options.rounds + warm {
            let counts = round >= warm;
            for place in order(round, present.len()) {
                let index = present[place];
                let column = &self.columns[index];
                let Ok(times) = &mut seconds[index] else { continue };
                match self.once(row, column, &programs[index]) {
                    Ok((time, sum)) => {
                        if counts {
                            times.push(time);
                        }
                        if *checksum.get_or_insert_with(|| sum.clone()) != sum {
                            let first = checksum.unwrap_or_default();
                            let name = column.setting.name;
                            return Err(Failure::Failed(format!("{name}: another result, {sum} for {first}")));
                        }
                    }
                    Err(why) if column.kind == Kind::Other => seconds[index] = Err(why),
                    Err(why) => return Err(Failure::Failed(format!("{}: {why}", column.setting.name))),
                }
            }
        }
        let both = self.columns.iter().zip(seconds);
        let times = both.map(|(column, seconds)| Times { kind: column.kind, name: column.setting.name, seconds });
        Ok(Figures { times: times.collect(), random: row.random })
    }

    /// One run: seconds and checksum.
    fn once(&self, row: &Row, column: &Column, program: &Program) -> Result<(f64, String), String> {
        let (program, arguments) = program;
        let mut command = self.command(column, program);
        command.args(arguments).stdin(Stdio::null());
        let begun = Instant::now();
        let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
        let whole = begun.elapsed().as_secs_f64();
        let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let said = text.trim().split_once(' ').and_then(|(seconds, sum)| Some((seconds.parse().ok()?, sum.trim())));
        match said {
            Some((inside, sum)) if output.status.success() => {
                let time = if row.work == (Work::Python { whole: true }) { whole } else { inside };
                Ok((time, sum.to_owned()))
            }
            _ => {
                let last = errors.lines().last().unwrap_or_default();
                Err(format!("{}, said '{}'; {last}", output.status, text.trim()))
            }
        }
    }

    /// The rest of a row's line, and the lines of its requirements.
    fn show(&self, figures: &Figures) {
        for (column, times) in self.columns.iter().zip(&figures.times) {
            match &times.seconds {
                Ok(seconds) => print!(" {:>10.4}", median(seconds)),
                Err(_) if column.absent.is_none() => print!(" {:>10}", "-"),
                Err(_) => {}
            }
        }
        println!();
        let ratios = figures.ratios().into_iter();
        let ratios = ratios.map(|(_, name, s)| format!("{name} {:.3} ({:.3} to {:.3})", s.middle, s.low, s.high));
        println!("    Ream over {}", ratios.collect::<Vec<_>>().join(", "));
        println!("    {}", figures.verdicts().iter().map(judge::line).collect::<Vec<_>>().join("; "));
        for (column, times) in self.columns.iter().zip(&figures.times) {
            if let (None, Err(why), Kind::Other) = (&column.absent, &times.seconds, column.kind) {
                println!("    left out here: {}: {why}", times.name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every setting comes first as often as any other, and after each other one as often as after any.
    #[test]
    fn no_setting_always_follows_the_same_one() {
        for count in [1, 2, 3, 5, 6, 11] {
            let rounds = count * 2;
            let mut follows = vec![vec![0; count]; count];
            let mut first = vec![0; count];
            for round in 0..rounds {
                let order = order(round, count);
                let mut sorted = order.clone();
                sorted.sort_unstable();
                assert!(sorted.into_iter().eq(0..count));
                first[order[0]] += 1;
                order.windows(2).for_each(|pair| follows[pair[0]][pair[1]] += 1);
            }
            assert!(first.iter().all(|times| *times == 2), "{count}: {first:?}");
            for (one, follows) in follows.iter().enumerate() {
                for (other, times) in follows.iter().enumerate() {
                    assert_eq!(*times, if one == other { 0 } else { 2 }, "{other} after {one} of {count}");
                }
            }
        }
    }
}
