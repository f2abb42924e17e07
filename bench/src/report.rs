//! The figures of a row, whether they are good enough, and how they are shown.

use crate::rows::{Against, Measure, Must, Row};
use crate::statistics::{Spread, median};
use serde_json::{Value, json};

/// Everything measured for one row; one value per round, in the row's own measure unless said.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Under Ream.
    pub ream: Vec<f64>,
    /// The device, or exact LRU.
    pub raw: Vec<f64>,
    /// The device, read into as much memory as the budget; where that differs from `raw`.
    pub kept: Vec<f64>,
    /// Plain RAM.
    pub ram: Vec<f64>,
    /// Accesses per second under Ream.
    pub ream_accesses: Vec<f64>,
    /// Accesses per second in swap: at the default page-cluster (3), at 6, at 0.
    pub swap_accesses: [Vec<f64>; 3],
    /// Seconds of processor time of a slice under Ream.
    pub cpu: Vec<f64>,
    /// The same in swap, at each page-cluster.
    pub swap_cpu: [Vec<f64>; 3],
    /// MiB in RAM at most: of the worker under Ream, of the one in swap, of the plain one.
    pub peak: [Vec<f64>; 3],
    /// Microseconds of processor time per page that came from the store, pager included.
    pub cpu_per_miss: Vec<f64>,
    /// Bytes read from the store per byte accessed.
    pub read_per_access: Vec<f64>,
    /// Bytes read from the store against exact LRU (zipf).
    pub lru_bytes: f64,
}

/// A requirement and whether it was met.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// What was required, in words.
    pub required: String,
    /// What was reached.
    pub reached: f64,
    /// Whether that is enough; `None` when it could not be measured.
    pub met: Option<bool>,
}

pub(crate) fn ratios(ours: &[f64], theirs: &[f64]) -> Vec<f64> {
    ours.iter().zip(theirs).filter(|(_, theirs)| **theirs > 0.0).map(|(ours, theirs)| ours / theirs).collect()
}

impl Figures {
    /// The ratio to the device per round; for times, the device's over ours, so that more is better throughout.
    pub fn ratio(&self, row: &Row) -> Spread {
        let against = if row.against == Against::Nothing { &self.ram } else { &self.raw };
        match row.measure {
            Measure::MissTime => Spread::of(&ratios(against, &self.ream)),
            _ => Spread::of(&ratios(&self.ream, against)),
        }
    }

    /// In words, how fast it is against a device whose data are kept in as much memory.
    pub fn of_kept(&self) -> Option<String> {
        let of = (!self.kept.is_empty()).then(|| median(&ratios(&self.ream, &self.kept)))?;
        Some(format!("{of:.2} of raw into as much memory as the budget"))
    }

    /// How often faster than swap: at its default, and at the better of the others.
    pub fn over_swap(&self) -> (Option<f64>, Option<f64>) {
        let over = |swap: &[f64]| (!swap.is_empty()).then(|| median(&ratios(&self.ream_accesses, swap)));
        let [default, six, none] = &self.swap_accesses;
        let best = if median(six) > median(none) { six } else { none };
        (over(default), over(best))
    }

    /// Holds the figures against what the row requires.
    pub fn verdicts(&self, row: &Row) -> Vec<Verdict> {
        let (over_swap, over_best) = self.over_swap();
        let at_least = |what: &str, least: f64, reached: Option<f64>| Verdict {
            required: format!("≥ {least} {what}"),
            reached: reached.unwrap_or(0.0),
            met: reached.map(|reached| reached >= least),
        };
        let at_most =
            |required: String, reached: f64, most: f64| Verdict { required, reached, met: Some(reached <= most) };
        let judge = |must: &Must| match *must {
            Must::OfRaw(least) => at_least("of raw", least, Some(self.ratio(row).middle)),
            Must::OfSwap(least) => at_least("× swap", least, over_swap),
            Must::OfBestSwap(least) => at_least("× best swap", least, over_best),
            Must::RawPlus(more) => at_most(format!("≤ raw + {more} µs"), median(&self.ream) - median(&self.raw), more),
            Must::OfLruMisses(most) => at_most(format!("≤ {most} × LRU's misses"), self.ratio(row).middle, most),
            Must::OfLruBytes(most) => at_most(format!("≤ {most} × LRU's bytes"), self.lru_bytes, most),
        };
        row.musts.iter().map(judge).collect()
    }

    /// As JSON.
    pub fn json(&self, row: &Row) -> Value {
        let spread = |values: &[f64]| {
            let spread = Spread::of(values);
            json!({"p10": spread.low, "median": spread.middle, "p90": spread.high, "rounds": values})
        };
        let ratio = self.ratio(row);
        let verdicts = self
            .verdicts(row)
            .into_iter()
            .map(|verdict| json!({"required": verdict.required, "reached": verdict.reached, "met": verdict.met}));
        json!({
            "row": row.name,
            "unit": unit(row.measure),
            "threads": row.threads,
            "ream": spread(&self.ream),
            "raw": spread(&self.raw),
            "raw_kept": spread(&self.kept),
            "ram": spread(&self.ram),
            "ratio": {"p10": ratio.low, "median": ratio.middle, "p90": ratio.high},
            "ream_accesses_per_second": spread(&self.ream_accesses),
            "swap_accesses_per_second": {
                "page_cluster_3": spread(&self.swap_accesses[0]),
                "page_cluster_6": spread(&self.swap_accesses[1]),
                "page_cluster_0": spread(&self.swap_accesses[2]),
            },
            "cpu_us_per_miss": spread(&self.cpu_per_miss),
            "bytes_read_per_byte_accessed": spread(&self.read_per_access),
            "verdicts": verdicts.collect::<Vec<_>>(),
        })
    }
}

/// The unit of a measure.
pub fn unit(measure: Measure) -> &'static str {
    match measure {
        Measure::Bytes => "MB/s",
        Measure::Misses => "misses/s",
        Measure::MissTime => "µs/miss",
        Measure::Accesses => "accesses/s",
        Measure::Count => "misses",
    }
}

/// The heading of the table.
pub fn heading() -> String {
    format!(
        "{:<22} {:>10} {:>10} {:>10} {:>20} {:>6} {:>6} {:>7}  {}",
        "row", "unit", "ream", "raw", "ratio (10 %, 90 %)", "×swap", "×best", "CPU µs", "required"
    )
}

/// A row of the table.
pub fn line(row: &Row, figures: &Figures) -> String {
    let ratio = figures.ratio(row);
    let raw = if row.against == Against::Nothing { median(&figures.ram) } else { median(&figures.raw) };
    let (over_swap, over_best) = figures.over_swap();
    let times = |over: Option<f64>| over.map_or("-".into(), |over| format!("{over:.2}"));
    let verdicts: Vec<String> = figures.verdicts(row).iter().map(words).chain(figures.of_kept()).collect();
    format!(
        "{:<22} {:>10} {:>10} {:>10} {:>20} {:>6} {:>6} {:>7.2}  {}",
        row.name,
        unit(row.measure),
        number(median(&figures.ream)),
        number(raw),
        format!("{:.3} ({:.2}, {:.2})", ratio.middle, ratio.low, ratio.high),
        times(over_swap),
        times(over_best),
        median(&figures.cpu_per_miss),
        verdicts.join("; ")
    )
}

/// A requirement, and whether it was met.
pub(crate) fn words(verdict: &Verdict) -> String {
    match verdict.met {
        Some(true) => format!("{}: pass", verdict.required),
        Some(false) => format!("{}: SHORT ({:.2})", verdict.required, verdict.reached),
        None => format!("{}: not measured", verdict.required),
    }
}

fn number(value: f64) -> String {
    if value >= 1000.0 { format!("{value:.0}") } else { format!("{value:.1}") }
}

/// Writes the figures of a benchmark to a file.
///
/// # Errors
/// The file cannot be written.
pub fn save(path: &std::path::Path, value: &Value) -> Result<(), String> {
    let text = serde_json::to_string_pretty(value).map_err(|error| error.to_string())?;
    std::fs::write(path, text + "\n").map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::ROWS;

    #[test]
    fn a_requirement_is_met_or_not() {
        let row = ROWS.iter().find(|row| row.name == "sequential-read").expect("the row");
        let figures = Figures {
            ream: vec![95.0, 92.0, 99.0],
            raw: vec![100.0, 100.0, 100.0],
            ream_accesses: vec![50.0, 50.0, 50.0],
            swap_accesses: [vec![10.0, 10.0, 10.0], vec![40.0, 40.0, 40.0], vec![1.0, 1.0, 1.0]],
            ..Figures::default()
        };
        let met: Vec<_> = figures.verdicts(row).iter().map(|verdict| verdict.met).collect();
        assert_eq!(met, [Some(true), Some(true), Some(false)]);
        assert!(!line(row, &figures).contains("as much memory"));
        let figures = Figures { kept: vec![110.0, 100.0, 100.0], ..figures };
        assert!(line(row, &figures).ends_with("; 0.92 of raw into as much memory as the budget"));
        assert_eq!(Figures { swap_accesses: Default::default(), ..figures }.verdicts(row)[1].met, None);
    }

    #[test]
    fn less_time_is_a_better_ratio() {
        let row = ROWS.iter().find(|row| row.name == "random-read-1").expect("the row");
        let figures = Figures { ream: vec![80.0], raw: vec![66.0], ..Figures::default() };
        assert!((figures.ratio(row).middle - 66.0 / 80.0).abs() < 1e-9);
        assert_eq!(figures.verdicts(row)[0].met, Some(false));
    }
}
