//! `ream bench paging`: rows of workloads, each in slices that alternate between the device, Ream, swap and RAM.

use crate::arguments::Paging;
use crate::driver::{Commands, Under, Worker};
use crate::raw::{Best, Pattern, Raw};
use crate::report::{self, Figures};
use crate::rows::{Against, Measure, PHASE_ORDERED, PHASE_RANDOM, ROWS, Row};
use crate::statistics::median;
use crate::swap::{self, Swap};
use crate::work::{Done, Slice, Walk};
use crate::{content::PAGE, interrupt, lru};
use serde_json::json;
use std::ffi::OsString;
use std::time::Instant;

/// Page-clusters of swap: the kernel's default, more, none.
pub(crate) const CLUSTERS: [u32; 3] = [3, 6, 0];

/// Everything that is running while rows are measured.
pub(crate) struct Bench {
    options: Paging,
    commands: Commands,
    under_ream: Vec<OsString>,
    pages: u64,
    raw: Raw,
    best: Best,
    swap: Option<Swap>,
    workers: Option<Workers>,
    /// Says nothing on standard output.
    pub(crate) quiet: bool,
    /// When workers are no longer waited for.
    end: Option<Instant>,
}

struct Workers {
    ream: Worker,
    plain: Worker,
    swap: Option<Worker>,
}

/// Measures all rows that were asked for; returns whether all requirements were met.
///
/// # Errors
/// What kept it from measuring.
pub fn run(options: &Paging) -> Result<bool, String> {
    let wanted =
        |row: &&Row| options.only.is_empty() || options.only.iter().any(|name| row.name.starts_with(name.as_str()));
    let rows: Vec<&Row> = ROWS.iter().filter(wanted).collect();
    if rows.is_empty() {
        let names: Vec<&str> = ROWS.iter().map(|row| row.name).collect();
        return Err(format!("no row is called so; there are {}", names.join(", ")));
    }
    let mut bench = Bench::new(options.clone())?;
    println!("{}", bench.conditions());
    println!("{}", report::heading());
    let mut all = Vec::new();
    let mut good = true;
    for row in rows {
        let figures = bench.measure(row, &mut |_, _| ())?;
        println!("{}", report::line(row, &figures));
        good &= figures.verdicts(row).iter().all(|verdict| verdict.met != Some(false));
        all.push(figures.json(row));
    }
    if let Some(path) = &options.json {
        let value = json!({
            "benchmark": "paging", "data": options.data, "memory": options.memory, "seconds": options.seconds,
            "rounds": options.rounds, "raw_reads": format!("{:?}", bench.best.reads),
            "raw_mixed": format!("{:?}", bench.best.mixed), "raw_kept": format!("{:?}", bench.best.kept),
            "rows": all,
        });
        report::save(path, &value)?;
    }
    Ok(good)
}

/// The options of `ream run` for a budget, a store and what else was asked for.
pub fn ream_options(memory: u64, store: &std::path::Path, with: &[String]) -> Vec<OsString> {
    let mut options: Vec<OsString> = vec!["--memory".into(), memory.to_string().into(), "--store".into(), store.into()];
    options.extend(with.iter().map(OsString::from));
    options
}

impl Bench {
    /// Makes the device's file, and swap if it is asked for.
    ///
    /// # Errors
    /// What is not to be had.
    pub(crate) fn new(options: Paging) -> Result<Bench, String> {
        let commands = Commands::find()?;
        swap::clean(&options.store);
        let device = |error: std::io::Error| format!("direct I/O in {}: {error}", options.store.display());
        let mut raw = Raw::new(&options.store, options.data).map_err(device)?;
        raw.keep(options.memory).map_err(device)?;
        let best = Best::find(&mut raw, options.seconds.min(0.2)).map_err(device)?;
        let swap = if options.swap {
            let bytes = options.data + options.data / 8;
            Some(Swap::new(&options.store, bytes, options.memory, &commands.worker)?)
        } else {
            None
        };
        let under_ream = ream_options(options.memory, &options.store, &options.with);
        let pages = options.data / PAGE as u64;
        Ok(Bench { options, commands, under_ream, pages, raw, best, swap, workers: None, quiet: false, end: None })
    }

    /// So many rounds from now on, and workers until then.
    pub(crate) fn allow(&mut self, rounds: usize, end: Option<Instant>) {
        self.options.rounds = rounds;
        self.end = end;
    }

    /// Sizes, and what the device is measured with.
    pub(crate) fn conditions(&self) -> String {
        format!(
            "data {} MiB, memory {} MiB, store {}; raw reads {:?}, into as much memory as the budget {:?}, raw mixed {:?}",
            self.options.data >> 20,
            self.options.memory >> 20,
            self.options.store.display(),
            self.best.reads,
            self.best.kept,
            self.best.mixed
        )
    }

    /// Measures a row; tells before each round how many of how many are done.
    ///
    /// # Errors
    /// What kept it from measuring.
    pub(crate) fn measure(&mut self, row: &Row, progress: &mut dyn FnMut(usize, usize)) -> Result<Figures, String> {
        drop_caches();
        if row.against == Against::Lru {
            return self.measure_zipf();
        }
        let mut workers = match self.workers.take() {
            Some(workers) => workers,
            None => self.start_workers()?,
        };
        let Workers { ream, plain, swap } = &mut workers;
        for worker in [ream, plain].into_iter().chain(swap) {
            worker.until(self.end);
        }
        // Workers that failed once are not asked again.
        let figures = self.measure_with(row, &mut workers, progress)?;
        self.workers = Some(workers);
        Ok(figures)
    }

    fn start_workers(&self) -> Result<Workers, String> {
        let (plain, in_ram) = Worker::start(&self.commands, &Under::Nothing, self.pages)?;
        let (ream, filled) = Worker::start(&self.commands, &Under::Ream(&self.under_ream), self.pages)?;
        let speed = |done: &Done| self.options.data as f64 / done.seconds / 1e6;
        let mut said = format!("first ordered fill: RAM {:.0} MB/s, Ream {:.0} MB/s", speed(&in_ram), speed(&filled));
        let swap = match &self.swap {
            None => None,
            Some(swap) => {
                swap.cluster(CLUSTERS[0]);
                let (worker, filled) = Worker::start(&self.commands, &Under::Group(&swap.entrance()), self.pages)?;
                said += &format!(", swap {:.0} MB/s", speed(&filled));
                Some(worker)
            }
        };
        if !self.quiet {
            println!("{said}");
        }
        Ok(Workers { ream, plain, swap })
    }

    fn measure_with(
        &mut self,
        row: &Row,
        workers: &mut Workers,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Figures, String> {
        let hot = self.options.memory / 2 / PAGE as u64;
        // A quarter more than the budget holds.
        let round = (self.options.memory + self.options.memory / 4) / PAGE as u64;
        let walk = match row.walk {
            Walk::Hot(_) => Walk::Hot(hot),
            Walk::Rounds(_) => Walk::Rounds(round),
            walk => walk,
        };
        let slice = Slice { walk, threads: row.threads, seconds: self.options.seconds, accesses: 0 };
        // A first slice that does not count brings memory into the state that the walk leaves it in.
        let warm = match walk {
            Walk::Hot(hot) => Slice { threads: 4, seconds: 0.0, accesses: 8 * hot, ..slice },
            Walk::Rounds(round) => Slice { seconds: 0.0, accesses: 4 * round, ..slice },
            _ => slice,
        };
        workers.ream.slice(&warm)?;
        workers.plain.slice(&slice)?;
        if let Some(swap) = &mut workers.swap {
            swap.slice(&warm)?;
        }
        let mut figures = Figures::default();
        for round in 0..self.options.rounds {
            interrupt::check()?;
            progress(round, self.options.rounds);
            let raw = self.raw_slice(row)?;
            let ream = workers.ream.slice(&slice)?;
            // RAM does not change while one looks at the others: two looks are enough.
            if round < 2 {
                let plain = workers.plain.slice(&slice)?;
                figures.ram.push(plain.accesses as f64 / plain.seconds);
                figures.peak[2].push(plain.peak_kib as f64 / 1024.0);
            }
            figures.add(row, raw, &ream);
            if row.against == Against::Reads {
                let (pattern, depth) = self.best.kept;
                let kept = self.raw.slice_kept(pattern, depth, slice.seconds);
                figures.kept.push(kept.map_err(|error| format!("direct I/O: {error}"))?.bytes_per_second() / 1e6);
            }
            if let (Some(swap), Some(worker)) = (&self.swap, &mut workers.swap) {
                for (place, cluster) in CLUSTERS.into_iter().enumerate() {
                    swap.cluster(cluster);
                    let done = worker.slice(&slice)?;
                    figures.swap_accesses[place].push(done.accesses as f64 / done.seconds);
                    figures.swap_cpu[place].push(done.cpu_seconds);
                    figures.peak[1].push(done.peak_kib as f64 / 1024.0);
                }
            }
        }
        if walk.writes() {
            for worker in [&mut workers.ream, &mut workers.plain].into_iter().chain(&mut workers.swap) {
                worker.verify(self.pages)?;
            }
        }
        if row.against != Against::Nothing && figures.read_per_access.iter().all(|read| *read == 0.0) {
            return Err(format!("{}: nothing was read from the store; is this run paged by Ream?", row.name));
        }
        if row.measure == Measure::Bytes {
            figures.ram.iter_mut().for_each(|value| *value *= PAGE as f64 / 1e6);
        }
        Ok(figures)
    }

    /// One slice of the device, in the row's measure.
    fn raw_slice(&mut self, row: &Row) -> Result<f64, String> {
        let seconds = self.options.seconds;
        let (reads, mixed) = (self.best.reads, self.best.mixed);
        let mut slice = |(pattern, depth): (Pattern, usize), bytes: u64| {
            let rate = self.raw.slice(pattern, depth, if bytes > 0 { 0.0 } else { seconds }, bytes);
            rate.map_err(|error| format!("direct I/O: {error}"))
        };
        let rate = match row.against {
            Against::Reads => slice(reads, 0)?,
            Against::Mixed => slice(mixed, 0)?,
            Against::Pattern(pattern, depth) => slice((pattern, depth), 0)?,
            Against::Phases => {
                // A share of the pages asked for at random is in memory; the device need not read those.
                let stored = 1.0 - self.options.memory as f64 / self.options.data as f64;
                let random = (PHASE_RANDOM as f64 * stored) as u64 * PAGE as u64;
                let (mut time, mut turns) = (0.0, 0.0);
                while time < seconds {
                    time += slice(reads, PHASE_ORDERED * PAGE as u64)?.seconds;
                    time += slice((Pattern::Random, 1), random)?.seconds;
                    turns += 1.0;
                }
                return Ok(turns * ((PHASE_ORDERED + PHASE_RANDOM) * PAGE as u64) as f64 / time / 1e6);
            }
            Against::Nothing | Against::Lru => return Ok(0.0),
        };
        Ok(match row.measure {
            Measure::Bytes => rate.bytes_per_second() / 1e6,
            Measure::MissTime => 1e6 / rate.reads_per_second(),
            Measure::Misses | Measure::Accesses | Measure::Count => rate.reads_per_second(),
        })
    }

    /// A skewed walk in a worker of its own, whose misses are held against exact LRU on the same trace.
    fn measure_zipf(&mut self) -> Result<Figures, String> {
        let (warm, measured) = (self.pages * 3, self.pages * 3 / 2);
        let (mut worker, _) = Worker::start(&self.commands, &Under::Ream(&self.under_ream), self.pages)?;
        worker.until(self.end);
        let slice = |accesses| Slice { walk: Walk::Zipf, threads: 1, seconds: 0.0, accesses };
        worker.slice(&slice(warm))?;
        let done = worker.slice(&slice(measured))?;
        drop(worker);
        let exact = lru::zipf_misses(self.pages, self.options.memory / PAGE as u64, warm, measured) as f64;
        let misses = done.ream.refaults as f64;
        Ok(Figures {
            ream: vec![misses],
            raw: vec![exact],
            ream_accesses: vec![done.accesses as f64 / done.seconds],
            cpu: vec![done.cpu_seconds],
            peak: [vec![done.peak_kib as f64 / 1024.0], vec![], vec![]],
            cpu_per_miss: vec![done.cpu_seconds * 1e6 / misses.max(1.0)],
            lru_bytes: done.ream.bytes_in as f64 / (exact * PAGE as f64),
            ..Figures::default()
        })
    }
}

impl Figures {
    /// Adds a round.
    fn add(&mut self, row: &Row, raw: f64, ream: &Done) {
        let accesses = ream.accesses as f64;
        let misses = ream.ream.refaults as f64;
        self.raw.push(raw);
        self.cpu.push(ream.cpu_seconds);
        self.peak[0].push(ream.peak_kib as f64 / 1024.0);
        self.ream_accesses.push(accesses / ream.seconds);
        let pages_in = ream.ream.bytes_in as f64 / PAGE as f64;
        self.cpu_per_miss.push(ream.cpu_seconds * 1e6 / pages_in.max(1.0));
        self.read_per_access.push(pages_in / accesses.max(1.0));
        self.ream.push(match row.measure {
            // A thread that gets more of the processor than others may go through its part again, which then is in RAM.
            Measure::Bytes if row.walk == Walk::Parts => accesses.min(pages_in) * PAGE as f64 / ream.seconds / 1e6,
            Measure::Bytes => accesses * PAGE as f64 / ream.seconds / 1e6,
            Measure::Accesses => accesses / ream.seconds,
            Measure::Misses => misses / ream.seconds,
            Measure::MissTime => {
                // What the hits took, by the speed of plain RAM, is not the misses' time.
                let in_ram = median(&self.ram).max(1.0);
                (ream.seconds - (accesses - misses) / in_ram) * 1e6 / misses.max(1.0)
            }
            Measure::Count => misses,
        });
    }
}

/// Clean file pages go; only root may ask for it, and direct I/O does not need it.
fn drop_caches() {
    let _ = std::fs::write("/proc/sys/vm/drop_caches", "1");
}
