//! Models of real programs, and real programs that allocate much, as steps of `ream bench all`: with all memory that they want,
//! and with a part of it, where everything else that helps then is tried, too.

use super::arguments::Scale;
use super::contest::{Contender, Read, Task};
use super::ground::{Means, Start};
use super::plan::{Add, PLAIN, Worker, other, others, ream};
use super::result::Kind;
use crate::others::CORRUPT;
use crate::pages::rows::{find, python};
use std::path::Path;

const CHAPTER: &str = "models";
const SMALL: &str = "models within a budget";
const TABLE: &str = "table";
/// Whole programs.
pub(super) const PROGRAMS: &str = "programs";

/// Model, size, MiB of data, seconds of a run.
type Model = (&'static str, &'static str, u64, f64);

fn what(model: &str) -> &'static str {
    match model {
        "adi" => "ADI in a cube, SP's and BT's pattern, checked against the analytic solution",
        "ocean" => {
            "an ocean model's barotropic step: conjugate gradients on a grid with land, checked against a known height"
        }
        "stream" => "packets of eight stations by UDP into a ring, the sum of them transposed and sent on, at 100 MB/s",
        "table-read" => "reads a table of pages, twice",
        "table-write" => "writes a table of pages, twice",
        _ => "reads and changes a table of pages, twice",
    }
}

fn task(chapter: &'static str, name: &str, model: &Model, worker: Worker<'_>) -> Task {
    let (model, size, data, _) = *model;
    Task {
        chapter,
        name: name.into(),
        what: what(model).into(),
        data,
        program: worker("ream-bench-models"),
        arguments: vec![model.into(), size.into()],
        read: if model == "stream" { Read::Load } else { Read::Timed },
        contenders: vec![PLAIN, ream(&[])],
        rounds: 3,
        twice: false,
        sweep: None,
    }
}

/// All that helps a program whose data do not fit: Ream, swap as it is and set otherwise, and what else there is.
fn everything(model: &Model, budget: u64, quick: bool, store: &Path) -> Vec<Contender> {
    let limit = budget << 20;
    let swap = |name, means| Contender { name, kind: Kind::Swap, start: Start::Swap(limit, means), arguments: None };
    let other = |name, means| other(name, Start::Swap(limit, means));
    let in_a_file = vec![model.0.into(), model.1.into(), "--file".into(), store.display().to_string()];
    let mut all = vec![
        PLAIN,
        ream(&["--memory".into(), format!("{budget}M")]),
        swap("swap", Means::Usual),
        swap("swap, page-cluster 6", Means::Cluster(6)),
        swap("swap, page-cluster 0", Means::Cluster(0)),
        other("zram", Means::Zram),
        other("zswap", Means::Zswap),
        Contender { arguments: Some(in_a_file), ..other("file mapping", Means::Usual) },
        other("memkind tiers", Means::Tiers),
    ];
    // The slowest for what goes in order.
    all.retain(|contender| !quick || contender.name != "swap, page-cluster 0");
    all
}

/// The steps.
pub fn add(scale: Scale, store: &Path, worker: Worker<'_>, add: Add<'_>) {
    const QUICK: &[Model] = &[("adi", "160", 32, 0.35), ("ocean", "512", 14, 0.5), ("stream", "64", 64, 2.0)];
    const FULL: &[Model] = &[("adi", "320", 250, 3.0), ("ocean", "1024", 49, 2.6), ("stream", "256", 256, 3.0)];
    // Within a budget; the one whose accesses are the harder ones.
    const ADI: &[Model] = &[("adi", "192", 56, 1.0)];
    let quick = scale == Scale::Quick;
    let models = if quick { QUICK } else { FULL };
    for model in models {
        let mut task = task(CHAPTER, &format!("{} {}", model.0, model.1), model, worker);
        if model.0 != "stream" {
            task.contenders.extend(others(false));
        }
        task.rounds = if quick { 3 } else { 5 };
        add(model.3, task);
    }
    for model in if quick { ADI } else { &FULL[..2] } {
        for share in if quick { &[75][..] } else { &[75, 50] } {
            let budget = (model.2 * share / 100).max(8);
            let mut task = task(SMALL, &format!("{} {}, {share} %", model.0, model.1), model, worker);
            task.what += &format!(", with {budget} MiB of RAM for {} MiB of data", model.2);
            task.contenders = everything(model, budget, quick, store);
            task.rounds = if quick { 1 } else { 2 };
            task.sweep = Some((format!("{} {} within a budget", model.0, model.1), *share as f64));
            add(model.3 * 2.5, task);
        }
    }
    tables(quick, store, worker, add);
    allocating(quick, worker, add);
}

/// SBMA's synthetic table: in memory, and where a quarter of it fits; reads by little and by much.
fn tables(quick: bool, store: &Path, worker: Worker<'_>, add: Add<'_>) {
    let (size, data) = if quick { ("64", 64) } else { ("512", 512) };
    let budget = data / 4;
    let fetch = |name, how: &str, budget: u64| Contender {
        name,
        kind: Kind::Other,
        start: Start::Ream(vec!["--memory".into(), format!("{budget}M"), "--fetch".into(), how.into()]),
        arguments: None,
    };
    for model in ["table-read", "table-write", "table-change"] {
        let model = &(model, size, data, 0.0);
        let name = model.0.trim_start_matches("table-");
        let mut fits = task(TABLE, &format!("{name} in memory"), model, worker);
        fits.contenders = vec![PLAIN, ream(&["--memory".into(), format!("{}M", data * 2)])];
        fits.rounds = 5;
        add(data as f64 / 500.0, fits);
        let mut paged = task(TABLE, &format!("{name} on disk"), model, worker);
        paged.what += &format!(", with {budget} MiB of RAM for {data} MiB of data");
        paged.contenders = everything(model, budget, quick, store);
        paged.contenders.insert(2, fetch("Ream, lazy", "lazy", budget));
        paged.contenders.insert(3, fetch("Ream, aggressive", "aggressive", budget));
        paged.rounds = 2;
        add(data as f64 / 130.0, paged);
    }
}

/// Programs that allocate much, under other allocators, too.
fn allocating(quick: bool, worker: Worker<'_>, add: Add<'_>) {
    let mut program = |name: &str, what: &str, data, needs: &str, arguments: [&str; 2], seconds| {
        let found = find(needs).ok_or_else(|| format!("there is no {needs} in PATH"));
        let mut contenders = vec![PLAIN, ream(&[])];
        contenders.extend(others(true));
        let arguments = arguments.map(str::to_owned).to_vec();
        let (chapter, name, what) = (PROGRAMS, name.into(), what.into());
        let program = found.and_then(|_| worker("ream-bench-worker"));
        let rounds = if quick { 2 } else { 3 };
        let (read, twice, sweep) = (Read::Timed, false, None);
        add(seconds, Task { chapter, name, what, data, program, arguments, read, contenders, rounds, twice, sweep });
    };
    let (functions, entries) = if quick { ("8", "60000") } else { ("30", "500000") };
    let seconds = if quick { 1.0 } else { 3.5 };
    program("C++ compiler", "compiles a program full of templates", 200, "c++", ["compile", functions], seconds);
    let what = "fills Redis, writes half over, deletes a quarter, and reads the rest, by pipelined commands";
    let (data, seconds) = if quick { (32, 0.6) } else { (128, 4.0) };
    program("Redis", what, data, "redis-server", ["redis", entries], seconds);
    let count: u64 = if quick { 1_000_000 } else { 10_000_000 };
    let code = format!(
        "import os, time
t = time.perf_counter()
d = {{i * 7: i for i in range({count})}}
s = sum(d[i * 7] for i in range(0, {count}, 3))
n = len(d)
t = time.perf_counter() - t
if os.environ.get('{CORRUPT}'): s += 1
assert n == {count} and s == sum(range(0, {count}, 3)), 'WRONG RESULT'
print(t, n)"
    );
    let mut contenders = vec![PLAIN, ream(&[])];
    contenders.extend(others(true));
    let task = Task {
        chapter: PROGRAMS,
        name: "Python dict".into(),
        what: format!("makes a dict of {count} entries and looks a third of them up"),
        data: count / 7000,
        program: python().ok_or_else(|| "there is no python3".to_owned()),
        arguments: vec!["-c".into(), code],
        read: Read::Timed,
        contenders,
        rounds: if quick { 2 } else { 3 },
        twice: false,
        sweep: None,
    };
    add(if quick { 0.4 } else { 5.0 }, task);
}
