//! `ream bench all`: everything, in turns with what a user would otherwise do, on the machine at hand; one report. And what
//! works on its results: `ream bench compare`, `ream bench report`.

mod arguments;
mod changes;
mod charts;
mod contest;
mod distant;
pub(crate) mod ground;
mod html;
pub mod markdown;
mod models;
mod overview;
mod plan;
mod progress;
mod ranks;
mod result;
mod slices;
mod table;
mod timetable;

use crate::driver::Commands;
use crate::interrupt::{self, INTERRUPTED};
use crate::machine::{self, Tlb};
use crate::pages::rows::matches;
use arguments::Options;
use changes::compare_files;
use ground::Ground;
use plan::{Job, Step};
use progress::Progress;
use result::{Results, Row};
use serde_json::json;
use slices::Slices;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};
use timetable::{Allotted, Timetable};

/// The file of all figures in the directory of results.
pub const FILE: &str = "ream-bench.json";
/// The files that are made of it.
const PAGE: &str = "report.html";
const TABLE: &str = "report.txt";

/// Runs `ream bench all` with these arguments; returns the exit status, or `None` when help is asked for.
///
/// # Errors
/// What kept it from measuring.
pub fn main(arguments: &[String], tlb: Tlb) -> Result<Option<i32>, String> {
    let Some(options) = arguments::parse(arguments)? else { return Ok(None) };
    let commands = Commands::find()?;
    let steps: Vec<Step> =
        plan::steps(&options, &commands.worker).into_iter().filter(|step| wanted(&options, step)).collect();
    if steps.is_empty() {
        return Err("no row is called so; ream bench all --list names them".into());
    }
    if options.list {
        for step in &steps {
            println!("{:<58} about {:>4.0} s", step.name, step.estimate.max(1.0));
        }
        let minutes = steps.iter().map(|step| step.estimate).sum::<f64>() / 60.0;
        println!("{} steps, about {:.0} minutes", steps.len(), minutes.max(1.0));
        return Ok(Some(0));
    }
    measure(&options, commands, &steps, tlb).map(Some)
}

/// Runs `ream bench compare`; returns the exit status, or `None` when help is asked for.
///
/// # Errors
/// A file cannot be read.
pub fn compare(arguments: &[String]) -> Result<Option<i32>, String> {
    let Some(asked) = arguments::parse_compared(arguments)? else { return Ok(None) };
    let (text, worse) = compare_files(&asked.old, &asked.new, asked.noise)?;
    print!("{text}");
    Ok(Some(i32::from(worse)))
}

/// Runs `ream bench report FILE.json DIRECTORY`: writes the report of results anew.
///
/// # Errors
/// A file cannot be read or written.
pub fn report(arguments: &[String]) -> Result<Option<i32>, String> {
    match arguments {
        [word] if word == "--help" || word == "-h" => Ok(None),
        [file, directory] => {
            let results = Results::load(Path::new(file))?;
            write_reports(Path::new(directory), &results)?;
            Ok(Some(0))
        }
        _ => Err("report takes a file and a directory: ream bench report FILE.json DIRECTORY".into()),
    }
}

/// Whether a step was asked for.
fn wanted(options: &Options, step: &Step) -> bool {
    options.only.is_empty() || options.only.iter().any(|only| matches(&step.name, only))
}

fn measure(options: &Options, commands: Commands, steps: &[Step], tlb: Tlb) -> Result<i32, String> {
    if std::env::var_os("REAM_SESSION").is_some() {
        return Err("runs under Ream itself, so no run could be plain; start it outside".into());
    }
    let out = directory(options)?;
    let file = out.join(FILE);
    let mut results = begin(options, &commands, &file)?;
    let busy = machine::busy();
    let unfit = machine::unfit(&options.store, plan::disk(options), busy);
    if !unfit.is_empty() && !options.anyway {
        return Err(format!("not on this machine now: {}; --anyway measures all the same", unfit.join("; ")));
    }
    for why in unfit {
        if !results.warnings.contains(&why) {
            results.warnings.push(why);
        }
    }
    let reports = commands.clone();
    interrupt::heed();
    let mut ground = Ground::new(commands, &options.store, &options.with)?;
    std::fs::create_dir_all(&out).map_err(|error| format!("{}: {error}", out.display()))?;
    if results.rows.is_empty() {
        results.machine = machine::describe(tlb, &options.store, busy);
    }
    save(&file, &results)?;
    let ended = all_steps(&mut ground, options, steps, &file, &mut results);
    drop(ground);
    if ended.as_ref().is_err_and(|why| why != INTERRUPTED) {
        save(&file, &results)?;
        return ended.map(|()| 125);
    }
    write_reports(&out, &results)?;
    let words =
        [options.minutes, None].map(|minutes| format!("{} {}", reports.ream.display(), again(options, minutes)));
    Ok(closing(&out, &results, steps.len(), words))
}

/// What is said at the end; the exit status. `again` asks for the same, within the same time or any.
fn closing(out: &Path, results: &Results, steps: usize, [again, again_longer]: [String; 2]) -> i32 {
    println!("\n{}\n{}", out.join(PAGE).display(), out.join(FILE).display());
    if let Some(signal) = interrupt::signal().filter(|_| !results.finished) {
        let done = results.done.len();
        eprintln!(
            "ream: bench: interrupted: {done} of {steps} steps are done; {again} --resume --out '{}' goes on",
            out.display()
        );
        return 128 + signal;
    }
    let left = results.rows.iter().filter(|row| row.is_left_out()).count();
    if left > 0 {
        eprintln!(
            "ream: bench: there was no time for {left} rows; {again_longer} --resume --minutes N --out '{}' measures them, with a \
             larger N",
            out.display()
        );
    }
    let failed: Vec<&Row> = results.rows.iter().filter(|row| row.failed.is_some()).collect();
    for row in &failed {
        eprintln!("ream: bench: {}: {}", row.key(), row.failed.as_deref().unwrap_or_default());
    }
    if failed.is_empty() { 0 } else { 125 }
}

/// The directory of results.
fn directory(options: &Options) -> Result<PathBuf, String> {
    match &options.out {
        Some(out) => Ok(out.clone()),
        None => {
            let name = format!("ream-bench-{}", moment(SystemTime::now()).replace([':', 'Z'], ""));
            Ok(std::env::current_dir().map_err(|error| format!("this directory: {error}"))?.join(name))
        }
    }
}

/// The name of the one setting that may differ when a run is resumed.
const LIMIT: &str = "minutes at most";

/// All programs and libraries of ours that figures depend on, as far as they are there; an installation has the libraries in a
/// directory of their own.
fn measured(commands: &Commands) -> Vec<PathBuf> {
    const LIBRARIES: [&str; 5] = ["", "_calls", "_inside", "-mpi-openmpi", "-mpi-mpich"];
    const WORKERS: [&str; 7] = ["worker", "kernels", "nas", "dlm", "models", "coverage", "noise"];
    const RANKS: [&str; 4] = ["openmpi", "mpich", "fortran-openmpi", "fortran-mpich"];
    let beside =
        |name: String| [commands.ream.with_file_name(&name), commands.ream.with_file_name("../lib/ream").join(name)];
    let libraries = LIBRARIES.into_iter().flat_map(|name| beside(format!("libream{name}.so")));
    let workers = WORKERS.map(str::to_owned).into_iter().chain(RANKS.map(|name| format!("mpi-{name}")));
    let workers = workers.map(|name| commands.worker.with_file_name(format!("ream-bench-{name}")));
    [commands.ream.clone()].into_iter().chain(libraries).chain(workers).filter(|path| path.is_file()).collect()
}

/// What results begin with: nothing, or what an interrupted run has.
fn begin(options: &Options, commands: &Commands, file: &Path) -> Result<Results, String> {
    let programs = measured(commands);
    let there: Vec<&Path> = programs.iter().map(PathBuf::as_path).collect();
    let digest = machine::digest(&there)?;
    let settings = json!({
        "scale": options.scale.name(), LIMIT: options.limit().map_or("none".to_owned(), |minutes| minutes.to_string()), "only": options.only, "store": options.store, "with": options.with,
        "rounds": options.rounds.map_or("as usual".to_owned(), |rounds| rounds.to_string()),
        "npb": options.suite.as_ref().map_or("none".to_owned(), |suite| suite.display().to_string()),
    });
    let fresh = Results {
        version: env!("CARGO_PKG_VERSION").into(),
        digest,
        settings,
        machine: json!({}),
        begun: moment(SystemTime::now()),
        seconds: 0.0,
        finished: false,
        warnings: Vec::new(),
        done: Vec::new(),
        rows: Vec::new(),
    };
    if !file.exists() {
        return if options.resume { Err(format!("{}: nothing to resume", file.display())) } else { Ok(fresh) };
    }
    let old = Results::load(file)?;
    if !options.resume {
        let whole = old.finished && !old.rows.iter().any(Row::is_left_out);
        let how = if whole { "name another directory" } else { "--resume goes on with it" };
        return Err(format!("{}: is there already; {how}", file.display()));
    }
    let mut settings = old.settings.clone();
    settings[LIMIT] = fresh.settings[LIMIT].clone();
    let same = [
        ("settings", settings == fresh.settings),
        ("version", old.version == fresh.version),
        ("programs", old.digest == fresh.digest),
    ];
    match same.iter().find(|(_, same)| !same) {
        Some((what, _)) => {
            Err(format!("{}: measured with other {what}; begin anew in another directory", file.display()))
        }
        None => Ok(Results { settings, ..old }),
    }
}

fn all_steps(
    ground: &mut Ground,
    options: &Options,
    steps: &[Step],
    file: &Path,
    results: &mut Results,
) -> Result<(), String> {
    let estimates = steps.iter().map(|step| if results.done.contains(&step.name) { 0.0 } else { step.estimate });
    let estimates: Vec<f64> = estimates.collect();
    let timetable = Timetable::new(options.limit(), estimates.clone());
    let (mut progress, before, start) = (Progress::new(estimates), results.seconds, Instant::now());
    let mut slices = Some(Slices::new(plan::paging(options)));
    for (number, step) in steps.iter().enumerate() {
        if results.done.contains(&step.name) {
            continue;
        }
        interrupt::check()?;
        let begun = Instant::now();
        let mut round = |done: usize, of: usize| progress.show(number, &step.name, done, of);
        let time = timetable.allot(number, before + start.elapsed().as_secs_f64());
        ground.end = time.end;
        let rows = match &step.job {
            _ if time.over() => Ok(left_out(step)),
            Job::Slices(row) => {
                let slices = slices.get_or_insert_with(|| Slices::new(plan::paging(options)));
                ended(slices.measure(ground, row, &time, &mut round).map(|row| vec![row]), step, &time)
            }
            Job::Remote(part) => {
                slices = None;
                let sizes = plan::remote(options);
                let figures = part.measure(&sizes, &mut round);
                let rows = figures.map(|all| all.iter().map(|figure| distant::convert(figure, &sizes)).collect());
                ended(rows, step, &time)
            }
            Job::Ranks(program) => {
                slices = None;
                let row = ranks::measure(ground, *program, options, &time, &mut round);
                ended(row.map(|row| vec![row]), step, &time)
            }
            Job::Contest(task) => {
                // The other chapters have the machine to themselves.
                slices = None;
                contest::measure(ground, task, &time, &mut round)
            }
        };
        progress.clear();
        let mut rows = rows?;
        for row in &mut rows {
            row.repeat = repeat(options, &step.name);
            println!("{}", table::line(row));
        }
        results.add(&step.name, &bare(step), rows);
        results.seconds += begun.elapsed().as_secs_f64();
        results.finished = number + 1 == steps.len();
        progress.done(number);
        save(file, results)?;
    }
    results.finished = true;
    save(file, results)
}

/// What a step came to: its rows, or one that says why there are none.
fn ended(rows: Result<Vec<Row>, String>, step: &Step, time: &Allotted) -> Result<Vec<Row>, String> {
    match rows {
        // What got the signal, too, is no failure.
        Err(_) if interrupt::signal().is_some() => Err(INTERRUPTED.to_owned()),
        Err(_) if time.over() => Ok(left_out(step)),
        Err(why) => {
            let mut failed = bare(step);
            failed.iter_mut().for_each(|row| row.failed = Some(why.clone()));
            Ok(failed)
        }
        rows => rows,
    }
}

/// The rows of a step, without figures.
fn bare(step: &Step) -> Vec<Row> {
    match &step.job {
        Job::Slices(row) => vec![Row::new(slices::CHAPTER, row.name, "")],
        Job::Remote(part) => vec![Row::new(distant::CHAPTER, &part.name(), "")],
        Job::Ranks(program) => vec![ranks::row(*program)],
        Job::Contest(task) => contest::rows(task),
    }
}

/// The rows of a step that there is no time for.
fn left_out(step: &Step) -> Vec<Row> {
    let mut rows = bare(step);
    rows.iter_mut().for_each(|row| row.unavailable = Some(timetable::OVER.into()));
    rows
}

/// The command that measures a step again.
fn repeat(options: &Options, step: &str) -> String {
    let options = Options { only: vec![step.to_owned()], anyway: false, ..options.clone() };
    format!("ream {}", again(&options, None))
}

/// The words that ask for the same, within this time if it is given.
fn again(options: &Options, minutes: Option<f64>) -> String {
    let mut words = vec![format!("bench all --{}", options.scale.name())];
    words.extend(options.only.iter().map(|only| format!("--only '{only}'")));
    if options.store != Options::default().store {
        words.push(format!("--store '{}'", options.store.display()));
    }
    words.extend(options.rounds.map(|rounds| format!("--rounds {rounds}")));
    words.extend(minutes.map(|minutes| format!("--minutes {minutes}")));
    words.extend(options.with.iter().map(|with| format!("--with '{with}'")));
    words.extend(options.suite.as_ref().map(|suite| format!("--npb '{}'", suite.display())));
    words.extend(options.anyway.then(|| "--anyway".to_owned()));
    words.join(" ")
}

/// Replaces a file in one step, so that a kill leaves the old one or the new one.
fn replace(file: &Path, text: &str) -> Result<(), String> {
    let fresh = file.with_extension("new");
    std::fs::write(&fresh, text)
        .and_then(|()| std::fs::rename(&fresh, file))
        .map_err(|error| format!("{}: {error}", file.display()))
}

fn save(file: &Path, results: &Results) -> Result<(), String> {
    let text = serde_json::to_string_pretty(&results.json()).map_err(|error| error.to_string())?;
    replace(file, &(text + "\n"))
}

fn write_reports(out: &Path, results: &Results) -> Result<(), String> {
    std::fs::create_dir_all(out).map_err(|error| format!("{}: {error}", out.display()))?;
    replace(&out.join(TABLE), &table::of(results))?;
    replace(&out.join(PAGE), &html::page(results))
}

/// A moment in UTC, as ISO 8601 writes it.
fn moment(time: SystemTime) -> String {
    let seconds = time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (days, rest) = (seconds / 86400, seconds % 86400);
    // Years that begin in March: a leap day is the last of its year. 719468 days lie between March 1st of year 0 and 1970.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let date = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{date:02}T{:02}:{:02}:{:02}Z", rest / 3600, rest / 60 % 60, rest % 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn moments_are_written_as_the_calendar_has_them() {
        let at = |seconds| moment(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(at(4_107_542_400), "2100-03-01T00:00:00Z");
        assert_eq!(at(1_735_689_599), "2024-12-31T23:59:59Z");
    }

    #[test]
    fn the_newest_results_are_what_the_readme_says() {
        let directory = std::env::temp_dir().join(format!("ream-figures-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        assert!(markdown::figures(&directory, "x").unwrap().starts_with("No release"));
        let mut results = result::tests::example();
        save(&directory.join("2001-01-01.json"), &results).unwrap();
        results.settings = json!({"scale": "full"});
        save(&directory.join("2002-01-01.json"), &results).unwrap();
        let text = markdown::figures(&directory, "docs/results").unwrap();
        assert!(text.contains("--full") && text.contains("(docs/results/2002-01-01.txt)"), "{text}");
        assert!(text.contains("| How close to the device? | Share"), "{text}");
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_step_is_repeated_with_its_settings() {
        let options = Options { rounds: Some(3), with: vec!["--pages=small".into()], ..Options::default() };
        let command = repeat(&options, "NAS: CG W");
        assert_eq!(command, "ream bench all --quick --only 'NAS: CG W' --rounds 3 --with '--pages=small'");
    }
}
