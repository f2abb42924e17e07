//! Pictures of results, as SVG within the page: each fits a phone's width, says in text what it shows, and tells its series
//! apart by form as well as by colour.

mod axis;

use super::html::escape;
use super::result::{Kind, Row, Series};
use super::table::number;
use crate::statistics::{Spread, median};
use axis::Axis;
use std::fmt::Write as _;

/// Width of all pictures, in their own units: about the pixels of a phone.
const WIDTH: f64 = 360.0;
/// Where the plane of the data begins and ends.
const LEFT: f64 = 8.0;
const RIGHT: f64 = WIDTH - 12.0;
/// Height of a row, and of the line with its name.
const ROW: f64 = 36.0;
const NAME: f64 = 12.0;

/// Colours that are told apart by people who see few of them (Okabe and Ito's), and forms for those who see none.
fn colour(kind: Kind) -> &'static str {
    match kind {
        Kind::Ream => "#0072b2",
        Kind::Swap => "#d55e00",
        Kind::Hand => "#007a5a",
        Kind::Other => "#a6447f",
        Kind::Plain => "#555555",
        Kind::Device => "#111111",
    }
}

/// A mark of this kind; hollow for the second of its kind.
fn mark(kind: Kind, hollow: bool, x: f64, y: f64, size: f64) -> String {
    let colour = colour(kind);
    let fill = if hollow { "#ffffff" } else { colour };
    let style = format!("fill=\"{fill}\" stroke=\"{colour}\" stroke-width=\"1.5\"");
    match kind {
        Kind::Ream => format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{size:.1}\" {style}/>"),
        Kind::Swap => {
            format!(
                "<path d=\"M{x:.1} {:.1}l{size:.1} {size:.1}l-{size:.1} {size:.1}l-{size:.1} -{size:.1}z\" {style}/>",
                y - size
            )
        }
        Kind::Hand => {
            let wide = size * 2.0;
            format!("<path d=\"M{:.1} {:.1}h{wide:.1}l-{size:.1} -{wide:.1}z\" {style}/>", x - size, y + size)
        }
        Kind::Device => {
            let (left, top, wide) = (x - size, y - size, size * 2.0);
            format!("<path d=\"M{left:.1} {top:.1}l{wide:.1} {wide:.1}m0 -{wide:.1}l-{wide:.1} {wide:.1}\" {style}/>")
        }
        Kind::Plain | Kind::Other => {
            let side = size * 1.8;
            format!(
                "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{side:.1}\" height=\"{side:.1}\" {style}/>",
                x - side / 2.0,
                y - side / 2.0
            )
        }
    }
}

/// A picture of this height, named and described.
fn picture(title: &str, description: &str, height: f64, content: &str) -> String {
    format!(
        "<svg viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" aria-label=\"{}\" xmlns=\"http://www.w3.org/2000/svg\">\
         <title>{}</title><desc>{}</desc>{content}</svg>",
        escape(&format!("{title}. {description}")),
        escape(title),
        escape(description)
    )
}

fn text(x: f64, y: f64, anchor: &str, class: &str, words: &str) -> String {
    format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" class=\"{class}\">{}</text>", escape(words))
}

/// The name of a place on an axis, within the picture.
fn tick(at: f64, y: f64, label: &str) -> String {
    let half = 3.6 * label.chars().count() as f64;
    text(at.clamp(half, WIDTH - half), y, "middle", "tick", label)
}

/// As many letters as fit a share of the width.
fn short(words: &str, letters: usize) -> String {
    match words.chars().count() > letters {
        true => words.chars().take(letters - 1).collect::<String>() + "…",
        false => words.to_owned(),
    }
}

/// A point of a row in a picture of speeds.
#[derive(Clone, Debug)]
pub struct Point {
    /// What it stands for.
    pub kind: Kind,
    /// The second of its kind.
    pub hollow: bool,
    /// As the legend calls it.
    pub label: String,
    /// Times as fast.
    pub spread: Spread,
}

/// A picture of how many times as fast things are: a row each, on a scale where twice and half are equally far from equal.
pub fn speeds(title: &str, reference: &str, rows: &[(String, Vec<Point>)]) -> String {
    let all = || rows.iter().flat_map(|(_, points)| points);
    let values = all().flat_map(|point| [point.spread.low, point.spread.middle, point.spread.high]);
    let axis = Axis::of_ratios(values, LEFT + 6.0, RIGHT - 6.0);
    let mut legend: Vec<&Point> = Vec::new();
    for point in all() {
        if legend.iter().all(|known| known.label != point.label) {
            legend.push(point);
        }
    }
    let mut content = String::new();
    let mut y =
        legends(&mut content, legend.iter().map(|point| (point.kind, point.hollow, point.label.as_str())), 12.0);
    let top = y;
    let bottom = top + ROW * rows.len() as f64 + 2.0;
    for (at, label) in axis.ticks() {
        let equal = label == "1";
        let class = if equal { "equal" } else { "grid" };
        let _ = write!(content, "<path class=\"{class}\" d=\"M{at:.1} {top:.1}V{bottom:.1}\"/>");
        content += &tick(at, bottom + 12.0, &label);
    }
    content += &text(axis.at(1.0).clamp(60.0, WIDTH - 60.0), bottom + 25.0, "middle", "tick", reference);
    for (name, points) in rows {
        content += &text(LEFT, y + 9.0, "start", "name", &short(name, 42));
        if let Some(first) = points.first() {
            content += &text(RIGHT, y + 9.0, "end", "value", &format!("{} ×", number(first.spread.middle)));
        }
        let middle = y + NAME + 8.0;
        for point in points.iter().rev() {
            let colour = colour(point.kind);
            let (low, high) = (axis.at(point.spread.low), axis.at(point.spread.high));
            let _ =
                write!(content, "<path d=\"M{low:.1} {middle:.1}H{high:.1}\" stroke=\"{colour}\" stroke-width=\"2\"/>");
            content += &mark(point.kind, point.hollow, axis.at(point.spread.middle), middle, 4.0);
        }
        y += ROW;
    }
    let described = rows.iter().map(|(name, points)| {
        let points = points.iter().map(|point| format!("{} {} times", point.label, number(point.spread.middle)));
        format!("{name}: {}", points.collect::<Vec<_>>().join(", "))
    });
    picture(title, &described.collect::<Vec<_>>().join("; "), bottom + 32.0, &content)
}

/// Marks with their names, in lines; returns where the rest begins.
fn legends<'a>(content: &mut String, all: impl Iterator<Item = (Kind, bool, &'a str)>, mut y: f64) -> f64 {
    let mut x = LEFT + 5.0;
    for (kind, hollow, label) in all {
        let label = short(label, 34);
        let wide = 24.0 + 6.2 * label.chars().count() as f64;
        if x + wide > RIGHT && x > LEFT + 5.0 {
            (x, y) = (LEFT + 5.0, y + 16.0);
        }
        *content += &mark(kind, hollow, x, y - 4.0, 4.0);
        *content += &text(x + 9.0, y, "start", "tick", &label);
        x += wide;
    }
    y + 10.0
}

/// A picture of all rounds of a row, setting by setting, with their medians.
pub fn rounds(row: &Row) -> Option<String> {
    let shown: Vec<&Series> =
        row.series.iter().filter(|series| series.unit.is_none() && !series.values.is_empty()).collect();
    if shown.is_empty() {
        return None;
    }
    let most = shown.iter().flat_map(|series| &series.values).fold(0.0, |most: f64, value| most.max(*value));
    let axis = Axis::from_zero(most, LEFT + 6.0, RIGHT - 6.0);
    let bottom = 4.0 + ROW * shown.len() as f64;
    let mut content = String::new();
    for (at, label) in axis.ticks() {
        let _ = write!(content, "<path class=\"grid\" d=\"M{at:.1} 4V{bottom:.1}\"/>");
        content += &tick(at, bottom + 12.0, &label);
    }
    let better = if row.more_is_better { "more is better" } else { "less is better" };
    content += &text(RIGHT, bottom + 25.0, "end", "tick", &format!("{}; {better}", row.unit));
    let mut y = 4.0;
    for series in &shown {
        let middle = median(&series.values);
        content += &text(LEFT, y + 10.0, "start", "name", &short(&series.name, 34));
        content += &text(RIGHT, y + 10.0, "end", "value", &number(middle));
        let line = y + NAME + 9.0;
        let (x, colour) = (axis.at(middle), colour(series.kind));
        for value in &series.values {
            content += &mark(series.kind, true, axis.at(*value), line, 3.0);
        }
        let _ = write!(content, "<path d=\"M{x:.1} {:.1}v14\" stroke=\"{colour}\" stroke-width=\"3\"/>", line - 7.0);
        y += ROW;
    }
    let described = shown.iter().map(|series| {
        let (low, high) =
            series.values.iter().fold((f64::MAX, 0f64), |(low, high), value| (low.min(*value), high.max(*value)));
        format!("{}: median {}, from {} to {}", series.name, number(median(&series.values)), number(low), number(high))
    });
    let title = format!("{}: all rounds, in {}", row.name, row.unit);
    Some(picture(&title, &described.collect::<Vec<_>>().join("; "), bottom + 32.0, &content))
}

/// A picture of rows that differ in one number: a line for each setting that all have.
pub fn sweep(name: &str, rows: &[&Row]) -> Option<String> {
    const HEIGHT: f64 = 190.0;
    let mut rows = rows.to_vec();
    let place = |row: &Row| row.sweep.as_ref().map_or(0.0, |(_, at)| *at);
    rows.sort_by(|one, other| place(one).total_cmp(&place(other)));
    let first = *rows.first()?;
    let share = rows.iter().all(|row| place(row) <= 100.0);
    let names: Vec<(String, Kind)> = first
        .series
        .iter()
        .filter(|series| series.unit.is_none() && rows.iter().all(|row| row.series(&series.name).is_some()))
        .map(|series| (series.name.clone(), series.kind))
        .collect();
    if rows.len() < 2 || names.is_empty() {
        return None;
    }
    let value = |row: &Row, name: &str| row.series(name).map_or(0.0, |series| median(&series.values));
    let most = rows.iter().flat_map(|row| names.iter().map(|(name, _)| value(row, name))).fold(0.0, f64::max);
    let mut content = String::new();
    let legend = names
        .iter()
        .enumerate()
        .map(|(index, (name, kind))| (*kind, names.iter().take(index).any(|(_, other)| other == kind), name.as_str()));
    let legend: Vec<(Kind, bool, &str)> = legend.collect();
    let top = legends(&mut content, legend.iter().copied(), 12.0) + 8.0;
    let bottom = top + HEIGHT;
    let upright = Axis::from_zero(most, bottom, top);
    for (at, label) in upright.ticks() {
        let _ = write!(content, "<path class=\"grid\" d=\"M44 {at:.1}H{RIGHT:.1}\"/>");
        content += &text(40.0, at + 3.5, "end", "tick", &label);
    }
    // Places side by side: what matters is their order, and each is named.
    let x = |index: usize| 62.0 + (RIGHT - 90.0) * index as f64 / (rows.len() - 1) as f64;
    for (index, row) in rows.iter().enumerate() {
        let words = if share { format!("{} %", place(row)) } else { format!("{} MiB", place(row)) };
        content += &text(x(index), bottom + 14.0, "middle", "tick", &words);
    }
    for ((name, kind), (_, hollow, _)) in names.iter().zip(&legend) {
        let points: Vec<(f64, f64)> =
            rows.iter().enumerate().map(|(index, row)| (x(index), upright.at(value(row, name)))).collect();
        let path: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
        let dash = if *hollow { " stroke-dasharray=\"5 3\"" } else { "" };
        let colour = colour(*kind);
        let _ = write!(
            content,
            "<path d=\"M{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"{dash}/>",
            path.join("L")
        );
        for (x, y) in points {
            content += &mark(*kind, *hollow, x, y, 4.0);
        }
    }
    let what = if share { "share of the data that fits in RAM" } else { "size of the data" };
    content += &text(RIGHT, bottom + 29.0, "end", "tick", &format!("{what}; {} by the median", first.unit));
    let described = names.iter().map(|(name, _)| {
        let values = rows.iter().map(|row| format!("{} at {}", number(value(row, name)), place(row)));
        format!("{name}: {}", values.collect::<Vec<_>>().join(", "))
    });
    let title = format!("{name}: {} by {what}", first.unit);
    Some(picture(&title, &described.collect::<Vec<_>>().join("; "), bottom + 36.0, &content))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::all::result::tests::example;

    #[test]
    fn every_picture_says_what_it_shows() {
        let rows = example().rows;
        let strip = rounds(&rows[0]).unwrap();
        assert!(strip.contains("role=\"img\"") && strip.contains("Ream: median 1000, from 900 to 1100"), "{strip}");
        let budget: Vec<&Row> = rows.iter().filter(|row| row.chapter == "NAS within a budget").collect();
        let line = sweep("MG W", &budget).unwrap();
        assert!(line.contains("swap: 9.00 at 25, 6.00 at 50, 1.00 at 100"), "{line}");
        assert!(!line.contains("zswap"), "what is absent has no line");
        assert!(sweep("MG W", &budget[..1]).is_none() && rounds(rows.last().unwrap()).is_none());
    }

    #[test]
    fn nothing_lies_outside_the_picture() {
        let spread = |middle: f64| Spread { low: middle / 2.0, middle, high: middle * 2.0 };
        let point =
            |kind, middle| Point { kind, hollow: false, label: format!("{kind:?} <x>"), spread: spread(middle) };
        let kinds = [Kind::Ream, Kind::Swap, Kind::Hand, Kind::Device, Kind::Plain, Kind::Other];
        let rows: Vec<(String, Vec<Point>)> = (0..3)
            .map(|row| {
                let points = kinds.iter().map(|kind| point(*kind, 0.01 * 10f64.powi(row * 2)));
                ("a name that is far too long for a row of the picture".repeat(2), points.collect())
            })
            .collect();
        let picture = speeds("t", "as fast", &rows);
        assert!(!picture.contains("NaN") && !picture.contains("inf") && !picture.contains("<x>"), "{picture}");
        for part in picture.split(" x=\"").skip(1) {
            let x: f64 = part.split('"').next().unwrap().parse().unwrap();
            assert!((0.0..=WIDTH).contains(&x), "{x}");
        }
    }
}
