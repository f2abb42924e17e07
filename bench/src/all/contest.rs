//! A row in which one program runs under several settings, in turns: A B C, then B C A, and so on, after a run of each that
//! does not count.

use super::ground::{Ground, Start, in_words};
use super::result::{Kind, Row, Series};
use super::timetable::{Allotted, OVER};
use crate::interrupt::INTERRUPTED;
use crate::machine;
use crate::measured::Ran;
use crate::noise::understand;
use crate::others::corrupts;
use crate::pages::order;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Where a program's figures are.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Read {
    /// It prints the seconds that it took and a checksum.
    Timed,
    /// The same, but for the seconds: it prints a load of processors in percent.
    Load,
    /// It prints seconds, one for each of these names; a row each, and one for the whole run.
    Numbers(&'static [&'static str]),
    /// The whole run; it prints a checksum after the seconds that it took.
    Whole,
    /// It is what `ream noise` looks with; rows as [`NOISE`] has them.
    Noise,
    /// It prints a report of the NAS suite: "Time in seconds", and whether it was verified.
    Suite,
}

/// One setting.
#[derive(Clone, Debug)]
pub struct Contender {
    /// Its name.
    pub name: &'static str,
    /// What it stands for.
    pub kind: Kind,
    /// How the program is started.
    pub start: Start,
    /// Arguments in place of the task's.
    pub arguments: Option<Vec<String>>,
}

/// A program, and the settings under which it is to run.
#[derive(Clone, Debug)]
pub struct Task {
    /// The chapter.
    pub chapter: &'static str,
    /// The row's name; that of several rows is followed by their own.
    pub name: String,
    /// What it does.
    pub what: String,
    /// MiB of data.
    pub data: u64,
    /// The program, or why it is not there.
    pub program: Result<PathBuf, String>,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Its figures.
    pub read: Read,
    /// The settings.
    pub contenders: Vec<Contender>,
    /// Rounds that count.
    pub rounds: usize,
    /// Each run follows one of the same kind that does not count: memory that the host of a virtual machine has taken back
    /// meanwhile costs whoever touches it first.
    pub twice: bool,
    /// See [`Row::sweep`].
    pub sweep: Option<(String, f64)>,
}

/// The figures of one run, and its checksum.
fn figures(read: Read, ran: &Ran) -> Result<(Vec<f64>, String), String> {
    let text = ran.out.trim();
    let said = || format!("said '{}'", text.chars().take(80).collect::<String>());
    match read {
        Read::Timed | Read::Whole | Read::Load => {
            let (seconds, sum) = text.split_once(' ').ok_or_else(said)?;
            let inside: f64 = seconds.parse().map_err(|_| said())?;
            Ok((vec![if read == Read::Whole { ran.seconds } else { inside }], sum.trim().to_owned()))
        }
        Read::Numbers(names) => {
            let numbers: Option<Vec<f64>> = text.split_whitespace().map(|word| word.parse().ok()).collect();
            let mut numbers = numbers.filter(|numbers| numbers.len() == names.len()).ok_or_else(said)?;
            numbers.push(ran.seconds);
            Ok((numbers, String::new()))
        }
        Read::Noise => {
            let said = understand(text)?;
            let calls = ["getppid", "read", "mmap+munmap"].map(|name| said.call(name));
            let others = [said.work() / 1e6, said.lost() * 100.0, said.others * 100.0];
            Ok(([others, calls].concat(), "verified".into()))
        }
        Read::Suite => {
            let value = |name: &str| {
                let line = text.lines().map(str::trim).find(|line| line.starts_with(name))?;
                Some(line.split_once('=')?.1.trim().to_owned())
            };
            let verified = value("Verification").unwrap_or_default();
            if !verified.eq_ignore_ascii_case("successful") {
                return Err(format!("verification: '{verified}'"));
            }
            let seconds = value("Time in seconds").and_then(|text| text.parse().ok());
            Ok((vec![seconds.ok_or("no time in seconds")?], verified))
        }
    }
}

const OTHERS: &str = "taken by the pager";

/// The rows of what looks for noise, and their units.
const NOISE: [(&str, &str); 6] = [
    ("fixed work", "ms"),
    ("time lost to detours", "%"),
    (OTHERS, "% of a processor"),
    ("getppid", "ns"),
    ("read", "ns"),
    ("mmap and munmap", "ns"),
];

/// What has a program of the benchmark's own spoil a value, where that is asked for.
fn spoil(program: &Path, read: Read) -> &'static [&'static str] {
    let own = program.file_name().is_some_and(|name| name.to_string_lossy().starts_with("ream-bench-"));
    match read {
        _ if !own || !corrupts() => &[],
        Read::Noise => &["--corrupt", "work"],
        _ => &["--corrupt"],
    }
}

/// Names of the rows of a task.
fn names(task: &Task) -> Vec<String> {
    match task.read {
        Read::Noise => NOISE.iter().map(|(name, _)| (*name).to_owned()).collect(),
        Read::Numbers(names) => {
            names.iter().chain(&["whole run"]).map(|name| format!("{}, {name}", task.name)).collect()
        }
        _ => vec![task.name.clone()],
    }
}

/// The rows of a task, without figures.
pub fn rows(task: &Task) -> Vec<Row> {
    let mut rows: Vec<Row> = names(task).iter().map(|name| Row::new(task.chapter, name, &task.what)).collect();
    match task.read {
        Read::Noise => rows.iter_mut().zip(NOISE).for_each(|(row, (_, unit))| row.unit = unit.into()),
        Read::Load => rows.iter_mut().for_each(|row| row.unit = "% of a processor".into()),
        _ => {}
    }
    for row in &mut rows {
        (row.data, row.sweep) = (task.data, task.sweep.clone());
    }
    rows
}

/// Measures a task; tells after each round how many of how many runs are done. Rows say themselves what failed.
///
/// # Errors
/// The benchmark was interrupted.
pub fn measure(
    ground: &mut Ground,
    task: &Task,
    time: &Allotted,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Vec<Row>, String> {
    let mut rows = rows(task);
    let all = |mut rows: Vec<Row>, change: &dyn Fn(&mut Row)| {
        rows.iter_mut().for_each(change);
        Ok(rows)
    };
    let program = match &task.program {
        Ok(program) => program,
        Err(why) => return all(rows, &|row| row.unavailable = Some(why.clone())),
    };
    // A quarter more than the data, for what is beside them.
    let (needed, free) = (task.data + task.data / 4 + 64, machine::available());
    if needed > free {
        let why = format!("it needs {needed} MiB of RAM; {free} MiB are available");
        return all(rows, &|row| row.unavailable = Some(why.clone()));
    }
    if !task.contenders.iter().any(|contender| matches!(contender.start, Start::Swap(..))) {
        ground.no_swap();
    }
    let mut absent: Vec<Option<String>> =
        task.contenders.iter().map(|contender| ground.absent(&contender.start, task.data << 20)).collect();
    let mut values: Vec<Vec<Series>> = Vec::new();
    for contender in &task.contenders {
        let series = Series::new(contender.name, contender.kind, &setting(task, contender));
        values.push(vec![series; rows.len()]);
    }
    let mut sum: Option<String> = None;
    // One that is far slower than all others is not to take the time of what follows.
    let patience = time.seconds().map(|seconds| Duration::from_secs_f64((seconds / 6.0).max(5.0)));
    let total = (task.rounds + 1) * task.contenders.len();
    let (mut took, mut done) = (Duration::ZERO, 0);
    'rounds: for round in 0..=task.rounds {
        if round > 1 && !time.fits(took) {
            break;
        }
        let begun = Instant::now();
        for (turn, place) in order(round, task.contenders.len()).into_iter().enumerate() {
            progress(round * task.contenders.len() + turn, total);
            if absent[place].is_some() {
                continue;
            }
            let contender = &task.contenders[place];
            let mut arguments = contender.arguments.as_ref().unwrap_or(&task.arguments).clone();
            arguments.extend(spoil(program, task.read).iter().map(|word| (*word).to_owned()));
            ground.end = match patience {
                Some(patience) if !matches!(contender.kind, Kind::Plain | Kind::Ream) => {
                    let own = Instant::now() + patience;
                    Some(time.end.map_or(own, |end| end.min(own)))
                }
                _ => time.end,
            };
            let mut once = || ground.run(&contender.start, program, &arguments);
            let ran = if task.twice && round > 0 { once().and_then(|_| once()) } else { once() };
            let read = ran.and_then(|ran| Ok((figures(task.read, &ran)?, ran)));
            let ((numbers, checksum), ran) = match read {
                Ok(read) => read,
                Err(why) if why == INTERRUPTED => return Err(why),
                Err(_) if time.over() && done > 0 => break 'rounds,
                Err(_) if time.over() => return all(rows, &|row| row.unavailable = Some(OVER.into())),
                // What is measured must work; of what it is held against it is said.
                Err(why) if matches!(contender.kind, Kind::Plain | Kind::Ream) => {
                    return all(rows, &|row| row.failed = Some(format!("{}: {why}", contender.name)));
                }
                Err(why) => {
                    let killed = matches!(contender.start, Start::Swap(..)) && why.starts_with("signal: 9");
                    let memory = "the kernel ended it for want of memory in its cgroup, swap or not";
                    absent[place] = Some(if killed { memory.to_owned() } else { why });
                    continue;
                }
            };
            let first = sum.get_or_insert_with(|| checksum.clone());
            if *first != checksum {
                let why = format!("{}: another result, {checksum} for {first}", contender.name);
                return all(rows, &|row| row.failed = Some(why.clone()));
            }
            if round > 0 {
                for (series, number) in values[place].iter_mut().zip(numbers) {
                    series.values.push(number);
                    series.cpu.push(ran.cpu);
                    series.peak.push(ran.peak as f64 / 1024.0);
                }
            }
        }
        (took, done) = (begun.elapsed(), round);
    }
    if done < task.rounds {
        let note = format!("{done} of {} rounds, for the time limit", task.rounds);
        rows.iter_mut().for_each(|row| row.notes.push(note.clone()));
    }
    // What a round was ended in has does not count.
    for series in values.iter_mut().flatten() {
        series.values.truncate(done);
        series.cpu.truncate(done);
        series.peak.truncate(done);
    }
    for (series, why) in values.iter_mut().zip(absent) {
        for series in series {
            if let Some(why) = &why {
                *series = Series::absent(&series.name, series.kind, &series.setting, why);
            }
        }
    }
    for (place, row) in rows.iter_mut().enumerate() {
        row.series = values.iter().map(|series| series[place].clone()).collect();
        compare(row);
    }
    Ok(rows)
}

/// Ream over each of the others, and those over the program as it is.
fn compare(row: &mut Row) {
    // What nobody takes without Ream has no ratio.
    if row.name == OTHERS {
        return;
    }
    let others: Vec<(String, Kind)> = row.series.iter().map(|series| (series.name.clone(), series.kind)).collect();
    for (name, _) in others.iter().filter(|(_, kind)| *kind != Kind::Ream) {
        row.compare("Ream", name);
    }
    for (name, _) in others.iter().filter(|(_, kind)| matches!(kind, Kind::Hand | Kind::Other)) {
        row.compare(name, "plain");
    }
}

fn setting(task: &Task, contender: &Contender) -> String {
    match (&contender.start, &task.program, &contender.arguments) {
        (Start::Plain, Ok(program), Some(arguments)) => {
            let name = program.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            format!("{name} {}", arguments.join(" "))
        }
        _ => in_words(&contender.start),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt as _;

    fn said(out: &str) -> Ran {
        let status = std::process::ExitStatus::from_raw(0);
        Ran { status, out: out.into(), errors: String::new(), seconds: 9.0, cpu: 1.0, peak: 2048 }
    }

    #[test]
    fn figures_are_read_or_refused() {
        assert_eq!(figures(Read::Timed, &said("0.5 abc\n")), Ok((vec![0.5], "abc".into())));
        assert_eq!(figures(Read::Whole, &said("0.5 abc\n")), Ok((vec![9.0], "abc".into())));
        assert_eq!(figures(Read::Numbers(&["a", "b"]), &said("1 2\n")).unwrap().0, [1.0, 2.0, 9.0]);
        assert!(figures(Read::Numbers(&["a", "b"]), &said("1\n")).is_err());
        assert!(figures(Read::Timed, &said("")).unwrap_err().contains("said ''"));
        let good = " CG Benchmark Completed.\n Time in seconds =  1.25\n Verification    =   SUCCESSFUL\n";
        assert_eq!(figures(Read::Suite, &said(good)).unwrap().0, [1.25]);
        assert!(figures(Read::Suite, &said(&good.replace("SUCCESSFUL", "UNSUCCESSFUL"))).is_err());
    }
}
