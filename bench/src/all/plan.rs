//! What `ream bench all` measures, in order: steps of one or several rows, with a guess of how long each takes.

use super::arguments::{Options, Scale};
use super::contest::{Contender, Read, Task};
use super::distant;
use super::ground::{Means, Start};
use super::result::Kind;
use super::{models, ranks, slices};
use crate::arguments::Paging;
use crate::malloc::PATTERNS;
use crate::others::OTHERS;
use crate::pages::rows::{self as computations, Work};
use crate::remote::Part;
use crate::rows::{self, ROWS};
use crate::{content::PAGE, machine, noise};
use std::path::{Path, PathBuf};

/// How a step is done.
pub enum Job {
    /// A row of `ream bench paging`.
    Slices(&'static rows::Row),
    /// A program under several settings.
    Contest(Box<Task>),
    /// A part of `ream bench remote`.
    Remote(Part),
    /// A program of MPI.
    Ranks(ranks::Program),
}

/// A step.
pub struct Step {
    /// Chapter and name.
    pub name: String,
    /// Seconds that it will take about.
    pub estimate: f64,
    /// What is done.
    pub job: Job,
}

/// The sizes of the chapter that pages.
pub fn paging(options: &Options) -> Paging {
    let quick = options.scale == Scale::Quick;
    // Beside each other are the data in RAM, the budget, and swap's cgroup.
    let data: u64 = if quick { 512 << 20 } else { (4 << 30).min((machine::available() << 20) / 5 * 2) };
    Paging {
        data,
        memory: data / 4,
        store: options.store.clone(),
        only: Vec::new(),
        seconds: if quick { 0.3 } else { 1.5 },
        rounds: options.rounds.unwrap_or(if quick { 3 } else { 5 }),
        quick,
        json: None,
        swap: false,
        with: options.with.clone(),
    }
}

/// The sizes of the chapter that pages to a memory server; its programs are small in a full run, too.
pub fn remote(options: &Options) -> Paging {
    let quick = options.scale == Scale::Quick;
    Paging {
        data: 512 << 20,
        memory: 128 << 20,
        seconds: if quick { 0.3 } else { 1.0 },
        rounds: options.rounds.unwrap_or(if quick { 3 } else { 7 }),
        quick: true,
        ..paging(options)
    }
}

/// MiB of disk that the store, the device's file and swap take at most.
pub fn disk(options: &Options) -> u64 {
    (paging(options).data >> 20) * 4 + 256
}

/// The program as it is.
pub(super) const PLAIN: Contender =
    Contender { name: "plain", kind: Kind::Plain, start: Start::Plain, arguments: None };

/// Under Ream with these options.
pub(super) fn ream(options: &[String]) -> Contender {
    Contender { name: "Ream", kind: Kind::Ream, start: Start::Ream(options.to_vec()), arguments: None }
}

/// Something else.
pub(super) fn other(name: &'static str, start: Start) -> Contender {
    Contender { name, kind: Kind::Other, start, arguments: None }
}

/// What promises large pages beside Ream: the usual two, or all.
pub(super) fn others(all: bool) -> Vec<Contender> {
    let always = other("THP always", Start::Always);
    let wanted = OTHERS.iter().filter(|setting| all || setting.name == "glibc hugetlb=1");
    std::iter::once(always).chain(wanted.map(|setting| other(setting.name, Start::Setting(setting.name)))).collect()
}

/// Everything, in order.
pub fn steps(options: &Options, workers: &Path) -> Vec<Step> {
    let quick = options.scale == Scale::Quick;
    let mut steps = Vec::new();
    let sizes = paging(options);
    for row in ROWS {
        // Raw, Ream, three page-clusters, and what goes before; the walk that is skewed goes over the data some times.
        let slices = sizes.seconds * (sizes.rounds as f64 * slices::EACH + slices::BEFORE);
        let estimate = if row.name == "zipf" { (sizes.data >> 20) as f64 / 12.0 } else { slices };
        steps.push(Step { name: format!("{}: {}", slices::CHAPTER, row.name), estimate, job: Job::Slices(row) });
    }
    let worker = |name: &str| {
        let file = workers.with_file_name(name);
        if file.is_file() { Ok(file) } else { Err(format!("{}: not there; make builds it", file.display())) }
    };
    let mut add = |seconds: f64, mut task: Task| {
        if let Some(rounds) = options.rounds {
            task.rounds = rounds;
        }
        // Of everything that promises large pages, few are installed.
        let contenders = task.contenders.len().min(9);
        let contenders = if contenders > 5 && task.chapter == models::PROGRAMS { 5 } else { contenders };
        let runs = ((task.rounds + 1) * contenders * if task.twice { 2 } else { 1 }) as f64;
        let name = format!("{}: {}", task.chapter, task.name);
        steps.push(Step { name, estimate: runs * (seconds + 0.02), job: Job::Contest(Box::new(task)) });
    };
    large_pages(quick, &worker, &mut add);
    kernels(quick, &worker, &mut add);
    within_a_budget(quick, &worker, &mut add);
    fits(quick, &worker, &mut add);
    models::add(options.scale, &options.store, &worker, &mut add);
    noise(quick, &worker, &mut add);
    if let Some(directory) = &options.suite {
        suite(directory, quick, &mut add);
    }
    let sizes = remote(options);
    for part in Part::all() {
        let estimate = match part {
            // Of the path as it is there are some more.
            Part::Rows(capped) => (sizes.rounds + 1) as f64 * if capped { 12.0 } else { 14.0 } * (sizes.seconds + 0.4),
            // A quick look at the network has two of them.
            Part::Program(..) if quick && !part.is_one_of(&["stream", "blocked"], 2) => continue,
            Part::Program(..) => 16.0,
        };
        steps.push(Step { name: format!("{}: {}", distant::CHAPTER, part.name()), estimate, job: Job::Remote(part) });
    }
    for (program, seconds) in ranks::programs(options.scale) {
        let name = format!("{}: {}", ranks::CHAPTER, program.name());
        let estimate = seconds * ranks::rounds(options) as f64;
        steps.push(Step { name, estimate, job: Job::Ranks(program) });
    }
    steps
}

/// What a computation of `ream bench pages` does.
fn computation(name: &str) -> &'static str {
    match name {
        "chase" => "loads cache lines in random order, each of which says where the next one is",
        "gather" => "loads cache lines in random order, none of which waits for another",
        "update" => "changes words in random order",
        "copy" | "scale" | "add" | "triad" => "goes over arrays in order, as STREAM does",
        "sparse" => "multiplies a sparse matrix with a vector",
        "smooth" => "adds each point's seven neighbours in a cube",
        "transform" => "does Fourier butterflies along the slowest dimension of a cube",
        "sort" => "does one pass of a radix sort",
        "transpose" => "transposes a matrix",
        _ => "computes",
    }
}

/// Finds a program of the benchmark's own.
pub(super) type Worker<'a> = &'a dyn Fn(&str) -> Result<PathBuf, String>;
/// Takes a step: seconds of one run, and what is done.
pub(super) type Add<'a> = &'a mut dyn FnMut(f64, Task);

/// Rows of `ream bench pages` that a quick run has.
const FEW: &[&str] = &["chase heap 64M", "chase heap 512M", "gather heap 512M", "triad heap 512M", "sparse heap 512M"];

fn large_pages(quick: bool, worker: Worker<'_>, add: Add<'_>) {
    let all = computations::all(machine::available() << 20, false);
    // R's with little data.
    let little = computations::all(machine::available() << 20, true)
        .into_iter()
        .filter(|row| quick && row.name.starts_with("R "));
    for row in all.into_iter().filter(|row| !quick || FEW.contains(&row.name.as_str())).chain(little) {
        let mut contenders = vec![PLAIN, ream(&[])];
        let kernels = worker("ream-bench-kernels");
        let of = |how: &str| row.program(kernels.as_deref().unwrap_or(Path::new("")), how);
        let (what, read, seconds, rounds) = match &row.work {
            Work::Kernel(name, place) => {
                if let Ok((_, arguments)) = of("hand") {
                    let start = Start::Plain;
                    let arguments = Some(arguments);
                    contenders.push(Contender { name: "by hand", kind: Kind::Hand, start, arguments });
                }
                let place = match *place {
                    "bss" => "static data",
                    "stack" => "a thread's stack",
                    _ => "the heap",
                };
                let seconds = 0.5 + row.mebibytes as f64 / 1500.0;
                (format!("{}, in {place}", computation(name)), Read::Timed, seconds, if quick { 4 } else { 6 })
            }
            Work::R(before, timed, _) => {
                // R itself takes some tenths.
                let seconds = if quick { 0.4 } else { row.mebibytes as f64 / 100.0 };
                (format!("R: {timed}, after {before}; timed within R"), Read::Timed, seconds, 2)
            }
            Work::Python { whole } => {
                let read = if *whole { Read::Whole } else { Read::Timed };
                ("Python imports the largest of pandas, scipy, sympy and numpy".into(), read, 0.8, 7)
            }
        };
        // Everything that promises large pages where it matters most, the usual two elsewhere; R's rows take long.
        let few = FEW.contains(&row.name.as_str());
        let mut against = others(!quick && few);
        if matches!(row.work, Work::R(..)) {
            against.retain(|contender| contender.start != Start::Always);
        }
        contenders.extend(against);
        let sweep = row.name.strip_prefix("chase heap ").or(row.name.strip_prefix("gather heap "));
        let sweep =
            sweep.map(|_| (row.name.rsplit_once(' ').map_or("", |(name, _)| name).to_owned(), row.mebibytes as f64));
        let (program, arguments) = match of("plain").and_then(|found| kernels.clone().map(|_| found)) {
            Ok((program, arguments)) => (Ok(program), arguments),
            Err(why) => (Err(why), Vec::new()),
        };
        let (name, data) = (row.name.clone(), row.mebibytes);
        let chapter = "large pages";
        let task =
            Task { chapter, name, what, data, program, arguments, read, contenders, rounds, twice: false, sweep };
        add(seconds, task);
    }
}

/// Kernel, class, MiB of data, seconds on two processors.
type Kernel = (&'static str, &'static str, u64, f64);

fn nas(kernel: &str) -> &'static str {
    match kernel {
        "ep" => "pairs of Gaussian deviates: arithmetic alone",
        "cg" => "conjugate gradients on a sparse matrix",
        "mg" => "V-cycles of multigrid on a cube",
        "ft" => "Fourier transforms in three dimensions",
        _ => "ranks of integer keys by counting",
    }
}

fn kernel_task(chapter: &'static str, name: String, kernel: &Kernel, worker: Worker<'_>) -> Task {
    let (kernel, class, data, _) = *kernel;
    Task {
        chapter,
        name,
        what: format!("NAS {} of class {class}, verified: {}", kernel.to_uppercase(), nas(kernel)),
        data,
        program: worker("ream-bench-nas"),
        arguments: vec![kernel.into(), class.into()],
        read: Read::Timed,
        contenders: vec![PLAIN, ream(&[])],
        rounds: 5,
        twice: false,
        sweep: None,
    }
}

fn kernels(quick: bool, worker: Worker<'_>, add: Add<'_>) {
    const QUICK: &[Kernel] = &[
        ("ep", "S", 1, 0.15),
        ("cg", "W", 20, 0.2),
        ("mg", "A", 430, 1.0),
        ("ft", "A", 258, 1.0),
        ("is", "A", 70, 0.3),
    ];
    const FULL: &[Kernel] = &[
        ("ep", "A", 1, 3.0),
        ("cg", "A", 56, 3.2),
        ("mg", "B", 430, 4.0),
        ("ft", "A", 258, 1.2),
        ("is", "B", 290, 1.4),
    ];
    for kernel in if quick { QUICK } else { FULL } {
        let name = format!("{} {}", kernel.0.to_uppercase(), kernel.1);
        let mut task = kernel_task("NAS", name, kernel, worker);
        task.contenders.extend(others(false));
        task.rounds = if quick { 5 } else { 9 };
        add(kernel.3, task);
    }
    if !quick {
        for kernel in [("cg", "B", 400, 60.0), ("ft", "B", 1028, 20.0)] {
            let name = format!("{} {}", kernel.0.to_uppercase(), kernel.1);
            let mut task = kernel_task("NAS", name, &kernel, worker);
            task.rounds = 2;
            add(kernel.3, task);
        }
    }
}

fn within_a_budget(quick: bool, worker: Worker<'_>, add: Add<'_>) {
    const QUICK: &[Kernel] = &[("mg", "W", 56, 1.4)];
    const FULL: &[Kernel] = &[("mg", "A", 430, 16.0), ("ft", "A", 258, 14.0)];
    for kernel in if quick { QUICK } else { FULL } {
        for share in [75, 50, 25] {
            let title = format!("{} {}", kernel.0.to_uppercase(), kernel.1);
            let mut task = kernel_task("NAS within a budget", format!("{title}, {share} %"), kernel, worker);
            let budget = (kernel.2 * share / 100).max(8);
            task.what += &format!(", with {budget} MiB of RAM for {} MiB of data", kernel.2);
            let swap = Start::Swap(budget << 20, Means::Usual);
            task.contenders = vec![
                PLAIN,
                ream(&["--memory".into(), format!("{budget}M")]),
                Contender { name: "swap", kind: Kind::Swap, start: swap, arguments: None },
            ];
            task.rounds = if quick { 3 } else { 2 };
            task.sweep = Some((format!("{title} within a budget"), share as f64));
            add(kernel.3, task);
        }
    }
}

fn fits(quick: bool, worker: Worker<'_>, add: Add<'_>) {
    let (data, budget) = if quick { (128, "512M") } else { (1024, "4G") };
    let rounds = if quick { 5 } else { 15 };
    let task = |chapter, name: String, what: &str, data, arguments, read| Task {
        chapter,
        name,
        what: what.into(),
        data,
        program: worker("ream-bench-worker"),
        arguments,
        read,
        contenders: vec![PLAIN, ream(&["--memory".into(), budget.into()])],
        rounds,
        twice: true,
        sweep: None,
    };
    let pages = (data << 20) / PAGE as u64;
    let passes = Read::Numbers(&["first touch", "after first touch"]);
    let arguments = vec!["fits".into(), pages.to_string(), "3".into()];
    let what = "touches all data, then goes over them in order, changing them, and at random, three times";
    add(data as f64 / 400.0, task("fits", format!("{data} MiB in {budget}B"), what, data, arguments, passes));
    for threads in ["1", "2"] {
        let arguments = vec!["malloc".into(), threads.into(), "2000000".into()];
        let name = format!("{threads} thread{}", if threads == "1" { "" } else { "s" });
        let what = "allocates and frees small blocks";
        add(0.25, task("malloc", name, what, 32, arguments, Read::Numbers(&PATTERNS)));
    }
}

/// What `ream noise` shows, in short.
fn noise(quick: bool, worker: Worker<'_>, add: Add<'_>) {
    let seconds = if quick { 0.5 } else { 2.0 };
    let task = Task {
        chapter: "noise",
        name: "idle pager".into(),
        what: format!(
            "what the machine takes from a program that asks it for nothing, on all processors at once; under Ream after {} \
             MiB were paged within {}",
            noise::DATA,
            noise::BUDGET
        ),
        data: noise::DATA,
        program: worker(noise::PROGRAM),
        arguments: vec![noise::DATA.to_string(), seconds.to_string()],
        read: Read::Noise,
        contenders: vec![PLAIN, ream(&["--memory".into(), format!("{}M", noise::BUDGET)])],
        rounds: if quick { 5 } else { 9 },
        twice: false,
        sweep: None,
    };
    add(seconds + 1.4, task);
}

/// Programs of the original suite: `cg.A.x` and so on, in the directory or in `bin` below it.
fn suite(directory: &Path, quick: bool, add: Add<'_>) {
    let mut programs: Vec<PathBuf> = [directory.join("bin"), directory.to_owned()]
        .iter()
        .filter_map(|place| std::fs::read_dir(place).ok())
        .flat_map(|entries| entries.flatten().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "x") && path.is_file())
        .collect();
    programs.sort();
    for program in programs {
        let name = program.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let mut contenders = vec![PLAIN, ream(&[])];
        contenders.extend(others(!quick));
        let task = Task {
            chapter: "NPB",
            what: format!("{name} of the original NAS suite, verified by itself"),
            name,
            data: 0,
            program: Ok(program),
            arguments: Vec::new(),
            read: Read::Suite,
            contenders,
            rounds: if quick { 3 } else { 5 },
            twice: false,
            sweep: None,
        };
        add(10.0, task);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(scale: Scale) -> Vec<String> {
        let options = Options { scale, ..Options::default() };
        steps(&options, Path::new("/nowhere/ream-bench-worker")).into_iter().map(|step| step.name).collect()
    }

    #[test]
    fn names_are_unlike_and_a_quick_run_is_short() {
        for scale in [Scale::Quick, Scale::Full] {
            let mut names = names(scale);
            let count = names.len();
            names.sort();
            names.dedup();
            assert_eq!(names.len(), count);
        }
        let options = Options::default();
        let all = steps(&options, Path::new("/nowhere/ream-bench-worker"));
        // What is more than its time is cut down, but not to nothing.
        assert!(all.iter().map(|step| step.estimate).sum::<f64>() < 900.0);
        let options = Options { scale: Scale::Full, ..options };
        let all = steps(&options, Path::new("/nowhere/ream-bench-worker"));
        let minutes = all.iter().map(|step| step.estimate).sum::<f64>() / 60.0;
        assert!(minutes < 132.0, "{minutes}");
    }

    #[test]
    fn what_is_not_built_is_said() {
        let options = Options::default();
        let all = steps(&options, Path::new("/nowhere/ream-bench-worker"));
        let tasks = all.iter().filter_map(|step| match &step.job {
            // Whole programs are the machine's own.
            Job::Contest(task) if task.chapter != models::PROGRAMS => Some(task),
            _ => None,
        });
        assert!(tasks.clone().count() > 10);
        assert!(tasks.into_iter().all(|task| task.program.as_ref().is_err_and(|why| why.contains("make builds it"))));
    }
}
