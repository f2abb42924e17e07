//! What results say in short: a few questions, and the rows that answer each.

use super::charts::Point;
use super::result::{Kind, Results, Row, Speed};
use super::table::number;
use super::{distant, ranks};
use crate::statistics::{Spread, median};

/// A question, and what answers it.
pub struct Question {
    /// The question.
    pub title: &'static str,
    /// What the numbers are.
    pub about: &'static str,
    /// What 1 stands for.
    pub reference: &'static str,
    /// Rows with their points, the one that counts first.
    pub rows: Vec<(String, Vec<Point>)>,
    /// Rows that differ in one number: what they have in common.
    pub sweeps: Vec<String>,
}

impl Question {
    /// The rows that count: their median, the least and the greatest.
    pub fn spread(&self) -> Option<Spread> {
        let firsts: Vec<f64> = self.rows.iter().filter_map(|(_, points)| Some(points.first()?.spread.middle)).collect();
        let (low, high) =
            firsts.iter().fold((f64::MAX, 0f64), |(low, high), value| (low.min(*value), high.max(*value)));
        (!firsts.is_empty()).then(|| Spread { low, middle: median(&firsts), high })
    }

    /// The same in a sentence.
    pub fn sum(&self) -> Option<String> {
        let Spread { low, middle, high } = self.spread()?;
        let (low, middle, high, count) = (number(low), number(middle), number(high), self.rows.len());
        Some(format!("{}: {middle} × by the median of {count} rows, {low} to {high}.", self.about))
    }
}

fn point(kind: Kind, hollow: bool, label: &str, spread: Spread) -> Point {
    Point { kind, hollow, label: label.to_owned(), spread }
}

/// Ream's speeds over some others.
fn ours(row: &Row, wanted: &dyn Fn(&Speed) -> bool) -> Vec<Spread> {
    row.speeds.iter().filter(|speed| speed.of == "Ream" && wanted(speed)).map(Speed::spread).collect()
}

fn least(spreads: Vec<Spread>) -> Option<Spread> {
    spreads.into_iter().reduce(|one, other| if other.middle < one.middle { other } else { one })
}

fn greatest(spreads: Vec<Spread>) -> Option<Spread> {
    spreads.into_iter().reduce(|one, other| if other.middle > one.middle { other } else { one })
}

/// A row's name where its chapter is not seen.
fn title(row: &Row) -> String {
    match row.chapter.as_str() {
        "paging" | "large pages" => row.name.clone(),
        "NAS within a budget" => format!("NAS {}", row.name),
        chapter => format!("{chapter} {}", row.name),
    }
}

fn swap(row: &Row) -> Option<Vec<Point>> {
    let usual = ours(row, &|speed| speed.over == "swap").into_iter().next()?;
    let mut points = vec![point(Kind::Swap, false, "over swap as it is set", usual)];
    // The better swap is, the less Ream is faster.
    let best = least(ours(row, &|speed| speed.kind == Kind::Swap && speed.over != "swap"));
    points.extend(best.map(|best| point(Kind::Swap, true, "over swap's best page-cluster", best)));
    Some(points)
}

fn device(row: &Row) -> Option<Vec<Point>> {
    let spread = ours(row, &|speed| speed.kind == Kind::Device).into_iter().next()?;
    Some(vec![point(Kind::Ream, false, "Ream, of the raw device", spread)])
}

fn large(row: &Row) -> Option<Vec<Point>> {
    matches!(row.chapter.as_str(), "large pages" | "NAS" | "NPB" | "models" | "programs").then_some(())?;
    let spread = ours(row, &|speed| speed.over == "plain").into_iter().next()?;
    let over_plain = |kind: Kind| {
        let wanted =
            |speed: &&Speed| speed.over == "plain" && row.series(&speed.of).is_some_and(|series| series.kind == kind);
        greatest(row.speeds.iter().filter(wanted).map(Speed::spread).collect())
    };
    let mut points = vec![point(Kind::Ream, false, "Ream", spread)];
    points.extend(over_plain(Kind::Hand).map(|spread| point(Kind::Hand, false, "set by hand", spread)));
    points.extend(over_plain(Kind::Other).map(|spread| point(Kind::Other, true, "the best other", spread)));
    Some(points)
}

fn fits(row: &Row) -> Option<Vec<Point>> {
    let fits = match row.chapter.as_str() {
        "fits" | "malloc" => true,
        // Detours are too few to be compared.
        "noise" => !row.name.contains("detours"),
        "table" => row.name.ends_with("in memory"),
        _ => row.name == "working-set-fits",
    };
    fits.then_some(())?;
    let spread = ours(row, &|speed| speed.kind == Kind::Plain).into_iter().next()?;
    Some(vec![point(Kind::Ream, false, "Ream, of the plain program", spread)])
}

/// What else there is for programs whose data do not fit.
const ELSE: &[&str] = &["zram", "zswap", "file mapping", "memkind tiers"];

fn otherwise(row: &Row) -> Option<Vec<Point>> {
    let wanted = |name: &str| ELSE.contains(&name);
    let best = least(ours(row, &|speed| wanted(&speed.over)))?;
    let disk = least(ours(row, &|speed| wanted(&speed.over) && speed.over != "zram"));
    let mut points = vec![point(Kind::Other, false, "over the best of them", best)];
    points.extend(disk.map(|disk| point(Kind::Other, true, "without zram, whose memory does not count", disk)));
    Some(points)
}

/// A server's RAM against the store's disk, by programs with a quarter of their data local and by single pages.
fn remote(row: &Row) -> Option<Vec<Point>> {
    (row.chapter == distant::CHAPTER && row.sweep.as_ref().is_none_or(|(_, share)| *share == 25.0)).then_some(())?;
    let spread = ours(row, &|speed| speed.over == distant::FILE).into_iter().next()?;
    let mut points = vec![point(Kind::Ream, false, "a server, over a file", spread)];
    let local = ours(row, &|speed| speed.kind == Kind::Plain).into_iter().next();
    points.extend(local.map(|local| point(Kind::Plain, true, "a server, over all data local", local)));
    Some(points)
}

fn turns(row: &Row) -> Option<Vec<Point>> {
    (row.chapter == ranks::CHAPTER).then_some(())?;
    let spread = ours(row, &|speed| speed.kind == Kind::Other).into_iter().next()?;
    let mut points = vec![point(Kind::Other, false, "turns, over none", spread)];
    let plain = ours(row, &|speed| speed.kind == Kind::Plain).into_iter().next();
    points.extend(plain.map(|plain| point(Kind::Plain, true, "turns, over enough memory", plain)));
    Some(points)
}

/// All questions; those without rows were not measured.
pub fn questions(results: &Results) -> Vec<Question> {
    let rows = |points: fn(&Row) -> Option<Vec<Point>>| {
        let good = results.rows.iter().filter(|row| row.failed.is_none());
        good.filter_map(|row| Some((title(row), points(row)?))).collect()
    };
    let of =
        |title, about, reference, points| Question { title, about, reference, rows: rows(points), sweeps: Vec::new() };
    vec![
        of("How much faster than swap?", "Times as fast as kernel swap as it is set", "as fast as swap", swap),
        of("How close to the device?", "Share of what direct I/O gets", "the device", device),
        of("What do large pages bring?", "Ream, times as fast as the plain program", "as fast as plain", large),
        Question {
            sweeps: shares(results),
            ..of("Remote against disk?", "A memory server, times as fast as a file on disk", "as fast as disk", remote)
        },
        of("What do turns of MPI ranks bring?", "In turns, times as fast as without", "as fast without turns", turns),
        of("What does it cost when it fits?", "Ream, times as fast as the plain program", "no cost", fits),
        of(
            "And faster than what else helps?",
            "Times as fast as the best of zram, zswap, file mappings and memkind",
            "as fast as the best",
            otherwise,
        ),
    ]
}

/// Programs that page to a server, by the share of their data that is local.
fn shares(results: &Results) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let rows = results.rows.iter().filter(|row| row.chapter == distant::CHAPTER && row.failed.is_none());
    for (name, _) in rows.filter_map(|row| row.sweep.as_ref()) {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::all::result::tests::example;

    #[test]
    fn questions_are_answered_by_the_rows_that_tell() {
        let questions = questions(&example());
        let counts: Vec<usize> = questions.iter().map(|question| question.rows.len()).collect();
        assert_eq!(counts, [4, 1, 1, 1, 1, 2, 3]);
        assert_eq!(questions[3].sweeps.len(), 1);
        assert!(questions[4].sum().unwrap().contains("4.50 ×"));
        let sum = questions[1].sum().unwrap();
        assert!(sum.starts_with("Share of what direct I/O gets: 0.917 × by the median of 1 rows"), "{sum}");
        let large = &questions[2].rows[0].1;
        assert_eq!(large.len(), 2, "Ream and by hand");
    }
}
