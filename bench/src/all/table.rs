//! Results as text: a line a row, and everything that the report has, but for its pictures.

use super::result::{Results, Row};
use crate::statistics::{interval, median, quantile};
use serde_json::Value;

/// A number with as many digits as matter.
pub fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 10_000.0 => group(value.round() as i64),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        0.0 => "0".into(),
        size if size >= 0.1 => format!("{value:.3}"),
        _ => format!("{value:.2e}"),
    }
}

/// With thin gaps between thousands.
fn group(value: i64) -> String {
    let digits = value.unsigned_abs().to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place) % 3 == 0 {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    if value < 0 { format!("−{text}") } else { text }
}

/// What a median of these is worth: its 95 % interval; of fewer than six, which have none, the smallest and the largest.
pub fn worth(values: &[f64]) -> String {
    let between = |low, high| format!("{} to {}", number(low), number(high));
    match values.len() {
        0 | 1 => "one round".to_owned(),
        rounds @ 2..=5 => format!("{} in {rounds} rounds", between(quantile(values, 0.0), quantile(values, 1.0))),
        _ => {
            let spread = interval(values);
            between(spread.low, spread.high)
        }
    }
}

/// A row in a line: what Ream comes to, and how that compares.
pub fn line(row: &Row) -> String {
    let name = format!("{:<46}", row.key());
    if let Some(why) = &row.failed {
        return format!("{name} FAILED: {why}");
    }
    if let Some(why) = &row.unavailable {
        return format!("{name} not available here: {why}");
    }
    let ours = row.series.iter().find(|series| series.name == "Ream").map_or(0.0, |series| median(&series.values));
    let speeds = row
        .speeds
        .iter()
        .filter(|speed| speed.of == "Ream")
        .map(|speed| format!("{} × {} ({})", number(median(&speed.ratios)), speed.over, worth(&speed.ratios)));
    format!("{name} {:>9} {:<10} {}", number(ours), row.unit, speeds.collect::<Vec<_>>().join(", "))
}

/// The machine and the settings, name and value.
pub fn facts(value: &Value) -> Vec<(String, String)> {
    let Some(fields) = value.as_object() else { return Vec::new() };
    let shown = fields.iter().map(|(name, value)| {
        let text = match value {
            Value::Null => "not known".to_owned(),
            Value::Bool(yes) => if *yes { "yes" } else { "no" }.to_owned(),
            Value::String(text) => text.clone(),
            Value::Array(all) if all.is_empty() => "none".to_owned(),
            other => other.to_string(),
        };
        (name.clone(), text)
    });
    shown.collect()
}

/// Settings that were left out everywhere or in some rows, with the reason and how many rows.
pub fn left_out(results: &Results) -> Vec<(String, String, usize)> {
    let mut all: Vec<(String, String, usize)> = Vec::new();
    for series in results.rows.iter().flat_map(|row| &row.series) {
        let Some(why) = &series.absent else { continue };
        match all.iter_mut().find(|(name, reason, _)| *name == series.name && reason == why) {
            Some((_, _, count)) => *count += 1,
            None => all.push((series.name.clone(), why.clone(), 1)),
        }
    }
    all
}

/// The whole report as text.
pub fn of(results: &Results) -> String {
    let mut text = format!("Ream {}: ream bench all\n{}, {:.0} s\n", results.version, results.begun, results.seconds);
    if !results.finished {
        text += "NOT FINISHED: some rows are missing\n";
    }
    for warning in &results.warnings {
        text += &format!("WARNING: {warning}\n");
    }
    text += "\n";
    for (name, value) in facts(&results.machine).into_iter().chain(facts(&results.settings)) {
        text += &format!("{name:<36} {value}\n");
    }
    let mut chapter = "";
    for row in &results.rows {
        if row.chapter != chapter {
            chapter = &row.chapter;
            text += &format!("\n== {chapter} ==\n");
        }
        text += &format!("\n{}: {}; {} MiB of data\n", row.name, row.what, row.data);
        for why in [&row.failed, &row.unavailable].into_iter().flatten() {
            text += &format!("  no figures: {why}\n");
        }
        for series in &row.series {
            if let Some(why) = &series.absent {
                text += &format!("  {:<22} left out: {why}\n", series.name);
                continue;
            }
            let unit = series.unit.as_deref().unwrap_or(&row.unit);
            let spent = |values: &[f64], unit: &str| match values.is_empty() {
                true => String::new(),
                false => format!(", {} {unit}", number(median(values))),
            };
            text += &format!(
                "  {:<22} {:>10} {unit} ({}){}{}\n",
                series.name,
                number(median(&series.values)),
                worth(&series.values),
                spent(&series.cpu, "s of processors"),
                spent(&series.peak, "MiB at most"),
            );
        }
        for speed in &row.speeds {
            let (middle, worth) = (number(median(&speed.ratios)), worth(&speed.ratios));
            text += &format!("  {} is {middle} times as fast as {} ({worth})\n", speed.of, speed.over);
        }
        for note in &row.notes {
            text += &format!("  {note}\n");
        }
        text += &format!("  again: {}\n", row.repeat);
    }
    let left = left_out(results);
    if !left.is_empty() {
        text += "\n== left out ==\n\n";
    }
    for (name, why, rows) in left {
        text += &format!("{name}: {why} ({rows} rows)\n");
    }
    text + "\nMedians of rounds in turns; in brackets the 95 % interval of the median by bootstrap, of fewer than six rounds the smallest and the largest.\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_rounds_have_no_interval() {
        assert_eq!(worth(&[2.0]), "one round");
        assert_eq!(worth(&[2.0, 1.0, 4.0]), "1.00 to 4.00 in 3 rounds");
        assert_eq!(worth(&[2.0; 6]), "2.00 to 2.00");
    }
    use crate::all::result::tests::example;

    #[test]
    fn numbers_have_the_digits_that_matter() {
        let shown: Vec<String> =
            [0.0, 0.001_234, 0.123_45, 1.234, 12.34, 123.4, 1234.5, 1_234_567.0].map(number).into();
        assert_eq!(shown, ["0", "1.23e-3", "0.123", "1.23", "12.3", "123", "1234", "1\u{202f}234\u{202f}567"]);
        assert_eq!(number(-20_000.0), "−20\u{202f}000");
    }

    #[test]
    fn everything_is_in_the_text() {
        let text = of(&example());
        for words in
            ["sequential-read", "WARNING: the machine was busy", "zswap", "no figures: another result", "again: "]
        {
            assert!(text.contains(words), "{words} in\n{text}");
        }
        let rows = example().rows;
        assert!(line(&rows[0]).contains("× swap"), "{}", line(&rows[0]));
        assert!(rows.iter().any(|row| line(row).contains("FAILED")));
    }
}
