//! The rows of `ream bench paging` as rows of `ream bench all`.

use super::ground::{Ground, is_root};
use super::result::{Kind, Row, Series, Speed};
use super::timetable::{self, Allotted};
use crate::arguments::Paging;
use crate::content::PAGE;
use crate::paging::{Bench, CLUSTERS};
use crate::report::{Figures, ratios, words};
use crate::rows::{self, Against, Measure};
use crate::work::Walk;

/// Slices that go before the rounds of a row, and those of a round: the device, Ream, and swap at three page-clusters.
pub const BEFORE: f64 = 4.0;
pub const EACH: f64 = 6.0;

/// The chapter's name.
pub const CHAPTER: &str = "paging";

/// What a walk does, in words.
fn what(row: &rows::Row) -> String {
    let walk = match row.walk {
        Walk::Sequential => "reads all data in order".into(),
        Walk::Reverse => "reads all data from the end to the beginning".into(),
        Walk::Change => "reads and changes all data in order".into(),
        Walk::Overwrite => "overwrites all data in order".into(),
        Walk::Strided { pages, step } => format!("reads {} KiB of every {} KiB", pages * 4, step * 4),
        Walk::Streams => "reads in order at four places at once, a page each in turn".into(),
        Walk::Parts => "reads in order, each thread a part of its own".into(),
        Walk::Rounds(_) => "reads in order, again and again, a quarter more than the budget holds".into(),
        Walk::Phases => "reads 64 MiB in order, then 500 pages at random, and so on".into(),
        Walk::Lines => "reads a word of every cache line in order".into(),
        Walk::Renew => "overwrites in order what was discarded just before".into(),
        Walk::Random => "reads pages at random".into(),
        Walk::RandomChange => "reads and changes pages at random".into(),
        Walk::Zipf => "reads pages at random, some far more often than others".into(),
        Walk::Hot(_) => "reads pages at random of half of what the budget holds".into(),
    };
    if row.threads > 1 { format!("{walk}, {} threads", row.threads) } else { walk }
}

/// The workers of the chapter, started at its first row.
pub struct Slices {
    options: Paging,
    bench: Option<Bench>,
    /// Why there is no swap.
    no_swap: Option<String>,
}

impl Slices {
    /// With these sizes; swap if it may be had.
    pub fn new(options: Paging) -> Slices {
        Slices { options, bench: None, no_swap: None }
    }

    /// Measures a row.
    ///
    /// # Errors
    /// What kept it from measuring; the workers are gone then.
    pub fn measure(
        &mut self,
        ground: &mut Ground,
        row: &rows::Row,
        time: &Allotted,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Row, String> {
        let mut bench = match self.bench.take() {
            Some(bench) => bench,
            None => self.begin(ground)?,
        };
        let (planned, slice) = (self.options.rounds, self.options.seconds);
        let rounds = timetable::rounds(planned, BEFORE * slice, EACH * slice, time.seconds());
        bench.allow(rounds, time.end);
        let figures = bench.measure(row, progress)?;
        self.bench = Some(bench);
        let mut made = convert(row, &figures, &self.options, self.no_swap.as_deref());
        if rounds < planned && row.against != Against::Lru {
            made.notes.push(format!("{rounds} of {planned} rounds, for the time limit"));
        }
        Ok(made)
    }

    fn begin(&mut self, ground: &mut Ground) -> Result<Bench, String> {
        self.options.swap = is_root();
        if self.options.swap {
            ground.announce_swap()?;
        } else {
            self.no_swap = Some("needs root: a swap file and a memory cgroup".into());
        }
        let mut bench = match Bench::new(self.options.clone()) {
            Err(why) if self.options.swap => {
                // Without swap, then.
                self.no_swap = Some(why);
                self.options.swap = false;
                Bench::new(self.options.clone())?
            }
            bench => bench?,
        };
        bench.quiet = true;
        Ok(bench)
    }
}

/// The row that figures make.
pub fn convert(row: &rows::Row, figures: &Figures, options: &Paging, no_swap: Option<&str>) -> Row {
    let mut made = Row::new(CHAPTER, row.name, &what(row));
    made.data = options.data >> 20;
    made.more_is_better = row.measure != Measure::Count;
    let bytes = row.measure == Measure::Bytes;
    made.unit = match row.measure {
        Measure::Bytes => "MB/s",
        Measure::Count => "misses",
        _ => "accesses/s",
    }
    .into();
    let own_unit = crate::report::unit(row.measure);
    let with = |name: &str, kind, setting: &str, values: &[f64], unit: Option<&str>| Series {
        values: values.to_vec(),
        unit: unit.map(str::to_owned),
        ..Series::new(name, kind, setting)
    };
    let budget = format!("ream run --memory {}M", options.memory >> 20);
    let accesses = if bytes || row.measure == Measure::Count { &figures.ream } else { &figures.ream_accesses };
    let mut ream = with("Ream", Kind::Ream, &budget, accesses, None);
    ream.cpu.clone_from(&figures.cpu);
    ream.peak.clone_from(&figures.peak[0]);
    made.series.push(ream);
    // What the device is held against is another figure where some accesses find their page in RAM.
    let unit = (!bytes && row.measure != Measure::Count).then_some(own_unit);
    if unit.is_some() && row.against != Against::Nothing {
        made.series.push(with("Ream, misses alone", Kind::Ream, &budget, &figures.ream, unit));
    }
    match row.against {
        Against::Nothing => {}
        Against::Lru => {
            let computed = "computed from the same accesses";
            made.series.push(with("exact LRU", Kind::Other, computed, &figures.raw, None));
        }
        _ => {
            let direct = "direct I/O by io_uring on the store's device";
            made.series.push(with("device", Kind::Device, direct, &figures.raw, unit));
            if !figures.kept.is_empty() {
                let into = "the same, into as much memory as the budget";
                made.series.push(with("device, data kept", Kind::Device, into, &figures.kept, unit));
            }
        }
    }
    let mut ram = with("RAM", Kind::Plain, "as it is", &figures.ram, None);
    ram.peak.clone_from(&figures.peak[2]);
    made.series.push(ram);
    for (place, cluster) in CLUSTERS.into_iter().enumerate() {
        let name = if place == 0 { "swap".to_owned() } else { format!("swap, page-cluster {cluster}") };
        let setting = format!("memory cgroup of {} MiB, page-cluster {cluster}", options.memory >> 20);
        let accesses = &figures.swap_accesses[place];
        let mut series = if accesses.is_empty() {
            Series::absent(&name, Kind::Swap, &setting, no_swap.unwrap_or("not asked for in this row"))
        } else {
            let scale = if bytes { PAGE as f64 / 1e6 } else { 1.0 };
            let values: Vec<f64> = accesses.iter().map(|accesses| accesses * scale).collect();
            Series { peak: figures.peak[1].clone(), ..with(&name, Kind::Swap, &setting, &values, None) }
        };
        series.cpu.clone_from(&figures.swap_cpu[place]);
        made.series.push(series);
    }
    let mut speed = |over: &str, kind, ratios: Vec<f64>| {
        if !ratios.is_empty() {
            made.speeds.push(Speed { of: "Ream".into(), over: over.into(), kind, ratios });
        }
    };
    match (row.against, row.measure) {
        (Against::Nothing, _) => speed("RAM", Kind::Plain, ratios(&figures.ream, &figures.ram)),
        (Against::Lru, _) => speed("exact LRU", Kind::Other, ratios(&figures.raw, &figures.ream)),
        (_, Measure::MissTime) => speed("device", Kind::Device, ratios(&figures.raw, &figures.ream)),
        _ => speed("device", Kind::Device, ratios(&figures.ream, &figures.raw)),
    }
    // What fits says nothing of swap.
    for (place, cluster) in CLUSTERS.into_iter().enumerate().filter(|_| row.against != Against::Nothing) {
        let name = if place == 0 { "swap".to_owned() } else { format!("swap, page-cluster {cluster}") };
        speed(&name, Kind::Swap, ratios(&figures.ream_accesses, &figures.swap_accesses[place]));
    }
    made.series.retain(|series| !series.values.is_empty() || (series.absent.is_some() && row.against != Against::Lru));
    made.notes.extend(figures.verdicts(row).iter().map(words).chain(figures.of_kept()));
    let cpu = crate::statistics::median(&figures.cpu_per_miss);
    if cpu > 0.0 && row.against != Against::Nothing {
        made.notes.push(format!("{cpu:.1} µs of processor time per page that came from the store"));
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::ROWS;

    fn made(name: &str, figures: &Figures) -> Row {
        let options = Paging {
            data: 512 << 20,
            memory: 128 << 20,
            store: "/".into(),
            only: vec![],
            seconds: 0.3,
            rounds: 3,
            quick: true,
            json: None,
            swap: true,
            with: vec![],
        };
        let row = ROWS.iter().find(|row| row.name == name).unwrap();
        convert(row, figures, &options, Some("needs root"))
    }

    #[test]
    fn every_row_says_what_it_does() {
        assert!(ROWS.iter().all(|row| what(row).contains("read") || what(row).contains("overwrites")));
    }

    #[test]
    fn bytes_are_held_against_the_device_and_swap() {
        let swap_accesses = [vec![1e6 / 4096.0 * 50.0], vec![1e6 / 4096.0 * 90.0], vec![1.0]];
        let ream_accesses = vec![1e6 / 4096.0 * 100.0];
        let figures =
            Figures { ream: vec![100.0], raw: vec![125.0], ream_accesses, swap_accesses, ..Figures::default() };
        let row = made("sequential-read", &figures);
        let speed = |over: &str| row.speeds.iter().find(|speed| speed.over == over).unwrap().ratios[0];
        assert!((speed("device") - 0.8).abs() < 1e-9 && (speed("swap") - 2.0).abs() < 1e-9);
        assert!((row.series("swap").unwrap().values[0] - 50.0).abs() < 1e-9);
    }

    #[test]
    fn misses_are_held_against_the_device_alone() {
        let figures = Figures { ream: vec![80.0], raw: vec![66.0], ream_accesses: vec![9e3], ..Figures::default() };
        let row = made("random-read-1", &figures);
        assert!((row.speeds[0].ratios[0] - 66.0 / 80.0).abs() < 1e-9);
        assert_eq!(row.series("device").unwrap().unit.as_deref(), Some("µs/miss"));
        assert_eq!(row.series.iter().filter(|series| series.absent.is_some()).count(), 3);
    }
}
