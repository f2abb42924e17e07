//! What a row of `ream bench all` came to, and how it is kept as JSON: what the report, the table and comparisons are made of.

use crate::statistics::{Spread, interval, median};
use serde_json::{Value, json};

/// What a series stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The program as it is.
    Plain,
    /// Under Ream.
    Ream,
    /// The device itself.
    Device,
    /// Kernel swap in a cgroup.
    Swap,
    /// Large pages that the program asks for itself.
    Hand,
    /// Whatever else promises large pages.
    Other,
}

const KINDS: [(Kind, &str); 6] = [
    (Kind::Plain, "plain"),
    (Kind::Ream, "ream"),
    (Kind::Device, "device"),
    (Kind::Swap, "swap"),
    (Kind::Hand, "hand"),
    (Kind::Other, "other"),
];

impl Kind {
    fn name(self) -> &'static str {
        KINDS.iter().find(|(kind, _)| *kind == self).map_or("other", |(_, name)| name)
    }
    fn named(name: &str) -> Option<Kind> {
        KINDS.iter().find(|(_, own)| *own == name).map(|(kind, _)| *kind)
    }
}

/// What one setting came to in a row, or why it was left out.
#[derive(Clone, PartialEq, Debug)]
pub struct Series {
    /// What it is called.
    pub name: String,
    /// What it stands for.
    pub kind: Kind,
    /// How it is set, in words; version included.
    pub setting: String,
    /// One a round, in the row's unit unless `unit` says another.
    pub values: Vec<f64>,
    /// Of the values, where it is not the row's.
    pub unit: Option<String>,
    /// Processor seconds, one a round; empty where not known.
    pub cpu: Vec<f64>,
    /// MiB in RAM at most, one a round; empty where not known.
    pub peak: Vec<f64>,
    /// Why it was left out.
    pub absent: Option<String>,
}

impl Series {
    /// A series without values yet.
    pub fn new(name: &str, kind: Kind, setting: &str) -> Series {
        let (name, setting) = (name.to_owned(), setting.to_owned());
        Series { name, kind, setting, values: vec![], unit: None, cpu: vec![], peak: vec![], absent: None }
    }

    /// A series that was left out.
    pub fn absent(name: &str, kind: Kind, setting: &str, why: &str) -> Series {
        Series { absent: Some(why.to_owned()), ..Series::new(name, kind, setting) }
    }
}

/// How many times as fast one series is as another: above 1 it is faster.
#[derive(Clone, PartialEq, Debug)]
pub struct Speed {
    /// The one.
    pub of: String,
    /// The other.
    pub over: String,
    /// What the other stands for.
    pub kind: Kind,
    /// One a round.
    pub ratios: Vec<f64>,
}

impl Speed {
    /// The median, and its 95 % interval by bootstrap.
    pub fn spread(&self) -> Spread {
        interval(&self.ratios)
    }
}

/// A row.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// Its chapter.
    pub chapter: String,
    /// Its name within it.
    pub name: String,
    /// What is done, in a sentence.
    pub what: String,
    /// Of the values.
    pub unit: String,
    /// More is better; less otherwise.
    pub more_is_better: bool,
    /// MiB of data.
    pub data: u64,
    /// One command that measures it again.
    pub repeat: String,
    /// Of rows that differ in one number only: what they have in common, and this row's number.
    pub sweep: Option<(String, f64)>,
    /// By setting.
    pub series: Vec<Series>,
    /// How series compare.
    pub speeds: Vec<Speed>,
    /// What was required, and whether it was met.
    pub notes: Vec<String>,
    /// Why there are no figures: what it needs is not there.
    pub unavailable: Option<String>,
    /// Why there are no figures: something went wrong.
    pub failed: Option<String>,
}

impl Row {
    /// A row without figures yet.
    pub fn new(chapter: &str, name: &str, what: &str) -> Row {
        Row {
            chapter: chapter.to_owned(),
            name: name.to_owned(),
            what: what.to_owned(),
            unit: "s".to_owned(),
            more_is_better: false,
            data: 0,
            repeat: String::new(),
            sweep: None,
            series: Vec::new(),
            speeds: Vec::new(),
            notes: Vec::new(),
            unavailable: None,
            failed: None,
        }
    }

    /// Chapter and name: what tells it from all others.
    pub fn key(&self) -> String {
        format!("{}: {}", self.chapter, self.name)
    }

    /// Whether there was no time for it.
    pub fn is_left_out(&self) -> bool {
        self.unavailable.as_deref() == Some(super::timetable::OVER)
    }

    /// A series by its name.
    pub fn series(&self, name: &str) -> Option<&Series> {
        self.series.iter().find(|series| series.name == name && series.absent.is_none())
    }

    /// Compares a series with another of the same rounds, if both have values.
    pub fn compare(&mut self, of: &str, over: &str) {
        let (Some(ours), Some(theirs)) = (self.series(of), self.series(over)) else { return };
        let pairs = ours.values.iter().zip(&theirs.values).filter(|(ours, theirs)| **ours > 0.0 && **theirs > 0.0);
        let ratio = |(ours, theirs): (&f64, &f64)| if self.more_is_better { ours / theirs } else { theirs / ours };
        let ratios: Vec<f64> = pairs.map(ratio).collect();
        if !ratios.is_empty() {
            let speed = Speed { of: of.to_owned(), over: over.to_owned(), kind: theirs.kind, ratios };
            self.speeds.push(speed);
        }
    }

    /// As JSON.
    pub fn json(&self) -> Value {
        let series = self.series.iter().map(|series| {
            json!({
                "name": series.name, "kind": series.kind.name(), "setting": series.setting,
                "median": (!series.values.is_empty()).then(|| median(&series.values)),
                "values": series.values, "unit": series.unit, "cpu_seconds": series.cpu, "peak_mib": series.peak,
                "absent": series.absent,
            })
        });
        let speeds = self.speeds.iter().map(|speed| {
            let Spread { low, middle, high } = speed.spread();
            json!({
                "of": speed.of, "over": speed.over, "kind": speed.kind.name(),
                "median": middle, "low": low, "high": high, "ratios": speed.ratios,
            })
        });
        json!({
            "chapter": self.chapter, "name": self.name, "what": self.what, "unit": self.unit,
            "more_is_better": self.more_is_better, "data_mib": self.data, "repeat": self.repeat,
            "sweep": self.sweep.as_ref().map(|(name, at)| json!({"name": name, "at": at})),
            "series": series.collect::<Vec<_>>(), "speeds": speeds.collect::<Vec<_>>(),
            "notes": self.notes, "unavailable": self.unavailable, "failed": self.failed,
        })
    }

    /// From JSON.
    pub fn read(value: &Value) -> Option<Row> {
        let series = value["series"].as_array()?.iter().map(|series| {
            Some(Series {
                name: text(&series["name"])?,
                kind: Kind::named(series["kind"].as_str()?)?,
                setting: text(&series["setting"])?,
                values: numbers(&series["values"])?,
                unit: text(&series["unit"]),
                cpu: numbers(&series["cpu_seconds"])?,
                peak: numbers(&series["peak_mib"])?,
                absent: text(&series["absent"]),
            })
        });
        let speeds = value["speeds"].as_array()?.iter().map(|speed| {
            Some(Speed {
                of: text(&speed["of"])?,
                over: text(&speed["over"])?,
                kind: Kind::named(speed["kind"].as_str()?)?,
                ratios: numbers(&speed["ratios"])?,
            })
        });
        let sweep = &value["sweep"];
        Some(Row {
            chapter: text(&value["chapter"])?,
            name: text(&value["name"])?,
            what: text(&value["what"])?,
            unit: text(&value["unit"])?,
            more_is_better: value["more_is_better"].as_bool()?,
            data: value["data_mib"].as_u64()?,
            repeat: text(&value["repeat"])?,
            sweep: text(&sweep["name"]).zip(sweep["at"].as_f64()),
            series: series.collect::<Option<_>>()?,
            speeds: speeds.collect::<Option<_>>()?,
            notes: value["notes"].as_array()?.iter().filter_map(text).collect(),
            unavailable: text(&value["unavailable"]),
            failed: text(&value["failed"]),
        })
    }
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn numbers(value: &Value) -> Option<Vec<f64>> {
    value.as_array()?.iter().map(Value::as_f64).collect()
}

/// The form of the file; another number is not read.
const FORMAT: u64 = 1;

/// All that was measured, and under which conditions.
#[derive(Clone, PartialEq, Debug)]
pub struct Results {
    /// Ream's version.
    pub version: String,
    /// Changes with the programs that were measured.
    pub digest: String,
    /// What was asked for.
    pub settings: Value,
    /// The machine.
    pub machine: Value,
    /// When it began, in UTC.
    pub begun: String,
    /// Seconds that it took, all parts of it.
    pub seconds: f64,
    /// Nothing is missing.
    pub finished: bool,
    /// What is to be known before anything is believed: a busy machine, for one.
    pub warnings: Vec<String>,
    /// Names of the steps that are done; one step may have several rows.
    pub done: Vec<String>,
    /// The rows.
    pub rows: Vec<Row>,
}

impl Results {
    /// Adds the rows of a step. Those of an earlier run that had no time for all of it, which are `bare`, are replaced; a step
    /// that this one had no time for is not done, so that a later one measures it.
    pub fn add(&mut self, step: &str, bare: &[Row], rows: Vec<Row>) {
        let old = |row: &Row| bare.iter().any(|bare| bare.key() == row.key());
        let place = self.rows.iter().position(old).unwrap_or(self.rows.len());
        self.rows.retain(|row| !old(row));
        if !rows.iter().any(Row::is_left_out) {
            self.done.push(step.to_owned());
        }
        self.rows.splice(place..place, rows);
    }

    /// As JSON.
    pub fn json(&self) -> Value {
        json!({
            "benchmark": "all", "format": FORMAT, "ream": self.version, "digest": self.digest,
            "settings": self.settings, "machine": self.machine, "begun": self.begun, "seconds": self.seconds,
            "finished": self.finished, "warnings": self.warnings, "done": self.done,
            "rows": self.rows.iter().map(Row::json).collect::<Vec<_>>(),
        })
    }

    /// From a file.
    ///
    /// # Errors
    /// It cannot be read, or holds something else.
    pub fn load(path: &std::path::Path) -> Result<Results, String> {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let value = serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        Results::read(&value).ok_or_else(|| {
            format!("{}: not what this version of ream bench all writes (format {FORMAT})", path.display())
        })
    }

    fn read(value: &Value) -> Option<Results> {
        (value["benchmark"] == "all" && value["format"] == FORMAT).then_some(())?;
        let texts = |value: &Value| Some(value.as_array()?.iter().filter_map(text).collect());
        Some(Results {
            version: text(&value["ream"])?,
            digest: text(&value["digest"])?,
            settings: value["settings"].clone(),
            machine: value["machine"].clone(),
            begun: text(&value["begun"])?,
            seconds: value["seconds"].as_f64()?,
            finished: value["finished"].as_bool()?,
            warnings: texts(&value["warnings"])?,
            done: texts(&value["done"])?,
            rows: value["rows"].as_array()?.iter().map(Row::read).collect::<Option<_>>()?,
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Rows of every kind, with figures that are nobody's.
    pub fn example() -> Results {
        let mut paging = Row::new("paging", "sequential-read", "reads all data in order");
        (paging.unit, paging.more_is_better, paging.data) = ("MB/s".into(), true, 512);
        paging.repeat = "ream bench all --only 'paging: sequential-read'".into();
        let series = |name: &str, kind, values: &[f64]| Series {
            values: values.to_vec(),
            ..Series::new(name, kind, "as it is")
        };
        paging.series = vec![
            series("Ream", Kind::Ream, &[900.0, 1000.0, 1100.0]),
            series("device", Kind::Device, &[1000.0, 1000.0, 1200.0]),
            series("swap", Kind::Swap, &[200.0, 210.0, 190.0]),
        ];
        paging.compare("Ream", "device");
        paging.compare("Ream", "swap");
        let mut rows = vec![paging];
        for (share, ream, swap) in [(25.0, 4.0, 9.0), (50.0, 2.0, 6.0), (100.0, 1.0, 1.0)] {
            let mut row = Row::new("NAS within a budget", &format!("MG W {share}%"), "multigrid");
            row.sweep = Some(("MG W".into(), share));
            row.series = vec![
                series("Ream", Kind::Ream, &[ream, ream * 1.1, ream * 0.9]),
                series("swap", Kind::Swap, &[swap, swap * 1.2, swap * 0.9]),
                series("zram", Kind::Other, &[swap / 2.0, swap / 1.8, swap / 1.9]),
                Series::absent("zswap", Kind::Other, "", "not there <&>"),
            ];
            row.series[0].cpu = vec![1.5; 3];
            row.series[0].peak = vec![32.0; 3];
            row.compare("Ream", "swap");
            row.compare("Ream", "zram");
            rows.push(row);
        }
        for (chapter, name) in [("large pages", "chase heap 512M"), ("fits", "whole run"), ("malloc", "waves")] {
            let mut row = Row::new(chapter, name, "does this & that");
            row.series = vec![
                series("plain", Kind::Plain, &[1.0, 1.05, 0.99]),
                series("Ream", Kind::Ream, &[0.8, 0.82, 0.79]),
                series("by hand", Kind::Hand, &[0.8, 0.81, 0.8]),
            ];
            row.compare("Ream", "plain");
            row.compare("by hand", "plain");
            rows.push(row);
        }
        for (share, ream, file) in [(25.0, 4.0, 6.0), (50.0, 2.0, 2.4), (100.0, 1.0, 1.0)] {
            let mut row = Row::new("memory server", &format!("blocked-t2-{share}%"), "a stencil");
            row.sweep = Some(("blocked, 2 threads, paged to a memory server".into(), share));
            row.series = vec![
                series("Ream", Kind::Ream, &[ream, ream * 1.1]),
                series("all local, without Ream", Kind::Plain, &[1.0, 1.1]),
                series("file store", Kind::Other, &[file, file * 1.2]),
            ];
            row.compare("Ream", "all local, without Ream");
            row.compare("Ream", "file store");
            rows.push(row);
        }
        let mut turns = Row::new("MPI ranks", "pagerank", "ranks");
        turns.series = vec![
            series("plain", Kind::Plain, &[1.0]),
            series("Ream", Kind::Ream, &[2.0]),
            series("no turns", Kind::Other, &[9.0]),
        ];
        turns.compare("Ream", "no turns");
        turns.compare("Ream", "plain");
        rows.push(turns);
        let mut failed = Row::new("large pages", "R sort", "sorts");
        failed.unavailable = Some("there is no Rscript in PATH".into());
        rows.push(failed);
        let mut failed = Row::new("NAS", "FT S", "transforms");
        failed.failed = Some("another result".into());
        rows.push(failed);
        Results {
            version: "0.0.0".into(),
            digest: "00".into(),
            settings: json!({"scale": "quick"}),
            machine: json!({"processor": "an <example>", "RAM MiB": 8192, "TLB entries 4 KiB": null}),
            begun: "2000-01-01T00:00:00Z".into(),
            seconds: 61.0,
            finished: true,
            warnings: vec!["the machine was busy".into()],
            done: vec!["paging: sequential-read".into()],
            rows,
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let results = example();
        let text = serde_json::to_string(&results.json()).unwrap();
        assert_eq!(Results::read(&serde_json::from_str(&text).unwrap()), Some(results));
        assert_eq!(Results::read(&json!({"benchmark": "all", "format": 2})), None);
        assert_eq!(Results::read(&json!({"benchmark": "paging"})), None);
    }

    #[test]
    fn faster_is_above_one_whatever_the_unit() {
        let results = example();
        let speed = |row: usize, over: &str| {
            results.rows[row].speeds.iter().find(|speed| speed.over == over).unwrap().spread().middle
        };
        assert!((speed(0, "swap") - 1000.0 / 210.0).abs() < 1e-9 && (speed(0, "device") - 0.917).abs() < 1e-3);
        assert!(speed(1, "swap") > 2.0, "less time is faster");
    }

    #[test]
    fn what_there_was_no_time_for_is_measured_later() {
        let mut results = Results { rows: Vec::new(), done: Vec::new(), ..example() };
        let row = |name: &str, time: bool| {
            let unavailable = (!time).then(|| super::super::timetable::OVER.to_owned());
            Row { unavailable, ..Row::new("chapter", name, "") }
        };
        results.add("first", &[row("a", true)], vec![row("a", true)]);
        results.add("second", &[row("b", true), row("c", true)], vec![row("b", false), row("c", false)]);
        results.add("third", &[row("d", true)], vec![row("d", true)]);
        assert_eq!(results.done, ["first", "third"]);
        results.add("second", &[row("b", true), row("c", true)], vec![row("b", true), row("c", false)]);
        assert_eq!(results.done, ["first", "third"]);
        results.add("second", &[row("b", true), row("c", true)], vec![row("b", true), row("c", true)]);
        let names: Vec<_> = results.rows.iter().map(|row| (row.name.as_str(), row.is_left_out())).collect();
        assert_eq!(names, [("a", false), ("b", false), ("c", false), ("d", false)]);
        assert_eq!(results.done, ["first", "third", "second"]);
    }
}
