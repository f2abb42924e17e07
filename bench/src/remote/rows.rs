//! The rows of `ream bench remote`: what is measured, what it is held against, and what it has to reach.

use super::line::Way;
use crate::statistics::{Spread, median};
use serde_json::{Value, json};

/// How pages travel, and where.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Over {
    /// Sealed, by the path capped at 8 Gbit/s.
    Capped,
    /// Sealed, by the path as it is.
    Sealed,
    /// In clear, by the path as it is.
    Clear,
}

/// One measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Probe {
    /// iperf3, or what stands for it.
    Line(Way),
    /// Bare request and reply of 4 KiB.
    Ping,
    /// In order, reading a word of every cache line.
    PageIn(Over),
    /// In order, writing what needs not be read.
    PageOut(Over),
    /// In order, changing every word.
    Change(Over),
    /// In order, verifying every word.
    Sequential(Over),
    /// The 7-point stencil with a quarter of its data local.
    Stencil,
    /// STREAM with a quarter of its data local.
    Stream,
    /// In order by the first protocol of DLM, in clear.
    Serial,
    /// A bare request and reply after the other, of as many bytes, with the same suspension of threads.
    Swap,
    /// Touches at random that wait for the server, one at a time.
    Fault(Over),
    /// Pages read at random by so many threads.
    Random(u64),
    /// The same from the file store.
    File(u64),
    /// In order from the file store, verifying every word.
    FileOrdered,
    /// In order, verifying every word, from a server that holds half, and a file below.
    Tiers,
    /// Pages read at random from there.
    TiersRandom,
}

/// What must be reached, of ours over the other's.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Must {
    /// At least.
    Least(f64),
    /// At most.
    Most(f64),
}

/// One row.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Its name, for `--only`.
    pub name: &'static str,
    /// What is done, in words.
    pub what: &'static str,
    /// In what it is measured.
    pub unit: &'static str,
    /// Whether the path is capped.
    pub capped: bool,
    /// What is measured.
    pub of: Probe,
    /// What it is held against, and how that is called.
    pub against: (Probe, &'static str),
    /// What is to be reached.
    pub must: Option<Must>,
}

const fn row(
    name: &'static str,
    what: &'static str,
    unit: &'static str,
    of: Probe,
    against: (Probe, &'static str),
    must: Option<Must>,
) -> Row {
    Row { name, what, unit, capped: is_capped(of), of, against, must }
}

const fn is_capped(probe: Probe) -> bool {
    use Probe::{Change, PageIn, PageOut, Sequential, Stencil, Stream};
    let (PageIn(over) | PageOut(over) | Change(over) | Sequential(over)) = probe else {
        return matches!(probe, Stencil | Stream);
    };
    matches!(over, Over::Capped)
}

const IN: (Probe, &str) = (Probe::Line(Way::In), "line");
const OUT: (Probe, &str) = (Probe::Line(Way::Out), "line");
const BOTH: (Probe, &str) = (Probe::Line(Way::Both), "line");
const BULK: (Probe, &str) = (Probe::PageIn(Over::Capped), "page-in");
const PING: (Probe, &str) = (Probe::Ping, "bare TCP");
/// What the store of this machine is called.
pub const FILE: &str = "file store";
const MBS: &str = "MB/s";
const US: &str = "µs, p50";
const MISSES: &str = "misses/s";

const BULK_CAPPED: Option<Must> = Some(Must::Least(0.85));
const BULK_FREE: Option<Must> = Some(Must::Least(0.7));
const PROGRAM: Option<Must> = Some(Must::Least(0.8));

/// All rows but those of the ancestors' programs, those of the capped path first.
pub const ROWS: &[Row] = &[
    row("page-in-8g", "reads in order, sealed, path capped", MBS, Probe::PageIn(Over::Capped), IN, BULK_CAPPED),
    row("page-out-8g", "writes in order, sealed, path capped", MBS, Probe::PageOut(Over::Capped), OUT, BULK_CAPPED),
    row("change-8g", "changes in order, both ways at once", MBS, Probe::Change(Over::Capped), BOTH, None),
    row("sequential-8g", "verifies in order, sealed", MBS, Probe::Sequential(Over::Capped), BULK, PROGRAM),
    row("stencil-8g", "7-point stencil, a quarter local", MBS, Probe::Stencil, BULK, PROGRAM),
    row("stream-8g", "STREAM, a quarter local", MBS, Probe::Stream, BULK, PROGRAM),
    row("page-in-clear", "reads in order, --insecure", MBS, Probe::PageIn(Over::Clear), IN, BULK_FREE),
    row("page-out-clear", "writes in order, --insecure", MBS, Probe::PageOut(Over::Clear), OUT, BULK_FREE),
    row("r3-bare", "reads in order by r3, --insecure", MBS, Probe::Serial, (Probe::Swap, "bare loop"), PROGRAM),
    row("page-in-sealed", "reads in order, sealed", MBS, Probe::PageIn(Over::Sealed), IN, None),
    row("page-out-sealed", "writes in order, sealed", MBS, Probe::PageOut(Over::Sealed), OUT, None),
    row("fault-sealed", "single faults of 4 KiB, sealed", US, Probe::Fault(Over::Sealed), PING, Some(Must::Most(1.7))),
    row("fault-clear", "single faults of 4 KiB, --insecure", US, Probe::Fault(Over::Clear), PING, None),
    row(
        "random-1",
        "pages at random, sealed",
        MISSES,
        Probe::Random(1),
        (Probe::File(1), FILE),
        Some(Must::Least(2.0)),
    ),
    row("random-4", "the same, 4 threads", MISSES, Probe::Random(4), (Probe::File(4), FILE), None),
    row("random-16", "the same, 16 threads", MISSES, Probe::Random(16), (Probe::File(16), FILE), None),
    row(
        "tiers-ordered",
        "verifies in order, zip:, a server that holds half, a file below",
        MBS,
        Probe::Tiers,
        (Probe::FileOrdered, FILE),
        None,
    ),
    row(
        "tiers-random",
        "pages at random, zip:, a server that holds half, a file below",
        MISSES,
        Probe::TiersRandom,
        (Probe::File(1), FILE),
        None,
    ),
];

/// What a measurement took besides time.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Spent {
    /// Seconds of processor time of the program with its pager.
    pub client: f64,
    /// Those of the servers.
    pub server: f64,
    /// MiB that the program had in RAM at most.
    pub peak: f64,
}

impl Spent {
    /// All processor time of each.
    pub fn cpu(all: &[Spent]) -> Vec<f64> {
        all.iter().map(|spent| spent.client + spent.server).collect()
    }

    /// The memory of each.
    pub fn peak(all: &[Spent]) -> Vec<f64> {
        all.iter().map(|spent| spent.peak).collect()
    }

    fn json(all: &[Spent]) -> Value {
        let of = |what: fn(&Spent) -> f64| all.iter().map(what).collect::<Vec<_>>();
        json!({"client": of(|spent| spent.client), "server": of(|spent| spent.server), "peak_mib": of(|spent| spent.peak)})
    }
}

/// What a row came to: one value a round.
#[derive(Clone, Debug, Default)]
pub struct Figure {
    /// Its name.
    pub name: String,
    /// What was done.
    pub what: String,
    /// The unit of both.
    pub unit: &'static str,
    /// Ours.
    pub ream: Vec<f64>,
    /// The other's.
    pub against: Vec<f64>,
    /// Who the other is.
    pub other: String,
    /// The same as ours, with a file as the store; empty where nobody asked.
    pub file: Vec<f64>,
    /// Of figures that differ in one number: what they have in common, and this one's number.
    pub sweep: Option<(String, f64)>,
    /// What is to be reached.
    pub must: Option<Must>,
    /// What ours took, one a round; empty where not known.
    pub spent: Vec<Spent>,
    /// What the other took.
    pub against_spent: Vec<Spent>,
    /// What ours took with a file as the store.
    pub file_spent: Vec<Spent>,
    /// Seconds of processor time per GB that travelled: of the program with its pager, and of the server.
    pub cpu: Vec<(f64, f64)>,
    /// Why there are no figures.
    pub skipped: Option<String>,
}

impl Figure {
    /// Of seconds of our runs and of the other's, and what they took.
    pub fn of_runs(ours: &[(f64, Spent)], theirs: &[(f64, Spent)]) -> Figure {
        let (ream, spent) = ours.iter().copied().unzip();
        let (against, against_spent) = theirs.iter().copied().unzip();
        Figure { unit: "s", ream, spent, against, against_spent, ..Figure::default() }
    }

    /// Ours over the other's, by round.
    pub fn ratios(&self) -> Vec<f64> {
        crate::report::ratios(&self.ream, &self.against)
    }

    /// Whether that is enough; `None` where nothing is required or measured.
    pub fn met(&self) -> Option<bool> {
        let ratios = self.ratios();
        if ratios.is_empty() {
            return None;
        }
        let middle = median(&ratios);
        self.must.map(|must| match must {
            Must::Least(least) => middle >= least,
            Must::Most(most) => middle <= most,
        })
    }

    /// What is required, and whether it was met.
    pub fn verdict(&self) -> String {
        let (sign, value) = match self.must {
            None => return String::new(),
            Some(Must::Least(least)) => ('≥', least),
            Some(Must::Most(most)) => ('≤', most),
        };
        let word = match self.met() {
            Some(true) => "pass",
            Some(false) => "SHORT",
            None => "not measured",
        };
        format!("{sign} {value} × {}: {word}", self.other)
    }

    /// A line of the table.
    pub fn line(&self) -> String {
        let name = format!("{:<22}", self.name);
        if let Some(why) = &self.skipped {
            return format!("{name} skipped: {why}");
        }
        let spread = Spread::of(&self.ratios());
        let ratio = format!("{:.3} ({:.2}, {:.2})", spread.middle, spread.low, spread.high);
        let figures =
            format!("{:>9} {:>10.1} {:>10.1} {ratio:>20}", self.unit, median(&self.ream), median(&self.against));
        let part = |of: fn(&(f64, f64)) -> f64| median(&self.cpu.iter().map(of).collect::<Vec<f64>>());
        let cpu = match self.cpu.is_empty() {
            true => "-".into(),
            false => format!("{:.2} + {:.2}", part(|cpu| cpu.0), part(|cpu| cpu.1)),
        };
        format!("{name}{figures} {cpu:>12}  {}", self.verdict())
    }

    /// As JSON.
    pub fn json(&self) -> Value {
        let ratio = Spread::of(&self.ratios());
        json!({
            "row": self.name, "what": self.what, "unit": self.unit, "ream": self.ream, "against": self.against,
            "other": self.other, "required": self.verdict(), "met": self.met(), "skipped": self.skipped,
            "ratio": {"p10": ratio.low, "median": ratio.middle, "p90": ratio.high},
            "spent": Spent::json(&self.spent), "against_spent": Spent::json(&self.against_spent),
            "cpu_seconds_per_gb": {
                "client": self.cpu.iter().map(|cpu| cpu.0).collect::<Vec<_>>(),
                "server": self.cpu.iter().map(|cpu| cpu.1).collect::<Vec<_>>(),
            },
        })
    }
}

/// The heading of the table.
pub fn heading() -> String {
    format!(
        "{:<22}{:>9} {:>10} {:>10} {:>20} {:>12}  {}",
        "row", "unit", "ream", "other", "ratio (10 %, 90 %)", "CPU s/GB", "required"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requirements_are_met_or_not() {
        let figure = Figure {
            ream: vec![90.0, 80.0, 84.0],
            against: vec![100.0; 3],
            must: BULK_CAPPED,
            other: "line".into(),
            ..Figure::default()
        };
        assert_eq!(figure.met(), Some(false));
        assert!(figure.line().contains("≥ 0.85 × line: SHORT"), "{}", figure.line());
        assert_eq!(Figure { must: Some(Must::Most(1.7)), ..figure.clone() }.met(), Some(true));
        assert_eq!(Figure { ream: vec![], ..figure.clone() }.met(), None);
        let skipped = Figure { skipped: Some("needs root".into()), ..Figure::default() };
        assert!(skipped.line().contains("skipped: needs root"));
    }

    #[test]
    fn rows_have_names_of_their_own_and_the_capped_ones_come_first() {
        let first_free = ROWS.iter().position(|row| !row.capped).unwrap();
        assert!(ROWS[first_free..].iter().all(|row| !row.capped));
        for (index, row) in ROWS.iter().enumerate() {
            assert!(ROWS[..index].iter().all(|other| other.name != row.name));
        }
    }
}
