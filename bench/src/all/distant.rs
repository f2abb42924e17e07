//! The rows of `ream bench remote` as rows of `ream bench all`.

use super::result::{Kind, Row, Series};
use super::table::number;
use crate::arguments::Paging;
use crate::remote::rows::{Figure, Spent};
use crate::statistics::median;

/// The chapter's name.
pub const CHAPTER: &str = "memory server";
/// What pages to the store of this machine are called.
pub const FILE: &str = crate::remote::rows::FILE;

/// The row that figures make.
pub fn convert(figure: &Figure, options: &Paging) -> Row {
    let mut row = Row::new(CHAPTER, &figure.name, &figure.what);
    row.data = options.data >> 20;
    row.unit = figure.unit.into();
    row.more_is_better = !matches!(figure.unit, "s" | "µs, p50");
    if let Some(why) = &figure.skipped {
        row.unavailable = Some(why.clone());
        return row;
    }
    let kind = match figure.other.as_str() {
        "line" | "bare TCP" => Kind::Device,
        other if other.starts_with("all local") => Kind::Plain,
        _ => Kind::Other,
    };
    let series = |name: &str, kind, setting: &str, values: &[f64], spent: &[Spent]| Series {
        values: values.to_vec(),
        cpu: Spent::cpu(spent),
        peak: Spent::peak(spent),
        ..Series::new(name, kind, setting)
    };
    let ours = series("Ream", Kind::Ream, "ream run --store tcp://HOST:PORT", &figure.ream, &figure.spent);
    row.series = vec![ours, series(&figure.other, kind, &figure.other, &figure.against, &figure.against_spent)];
    if !figure.file.is_empty() {
        row.series.push(series(FILE, Kind::Other, "ream run --store DIRECTORY", &figure.file, &figure.file_spent));
    }
    row.sweep.clone_from(&figure.sweep);
    row.compare("Ream", &figure.other);
    if !figure.file.is_empty() {
        row.compare("Ream", FILE);
    }
    row.notes.extend(Some(figure.verdict()).filter(|verdict| !verdict.is_empty()));
    if !figure.spent.is_empty() {
        let middle = |of: fn(&Spent) -> f64| number(median(&figure.spent.iter().map(of).collect::<Vec<_>>()));
        let (client, server) = (middle(|spent| spent.client), middle(|spent| spent.server));
        row.notes.push(format!(
            "processor time of Ream: {client} s of the program with its pager, {server} s of the server"
        ));
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::all::plan;

    #[test]
    fn less_time_is_faster_and_more_bytes_are() {
        let options = plan::remote(&Default::default());
        let of = |unit, other: &str| {
            let figure = Figure { unit, ream: vec![2.0], against: vec![1.0], other: other.into(), ..Figure::default() };
            convert(&figure, &options).speeds[0].clone()
        };
        assert_eq!((of("MB/s", "line").ratios, of("MB/s", "line").kind), (vec![2.0], Kind::Device));
        assert_eq!((of("s", "all local").ratios, of("µs, p50", "bare TCP").ratios), (vec![0.5], vec![0.5]));
        let figure = Figure { skipped: Some("needs root".into()), ..Figure::default() };
        assert_eq!(convert(&figure, &options).unavailable.as_deref(), Some("needs root"));
    }
}
