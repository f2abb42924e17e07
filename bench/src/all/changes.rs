//! `ream bench compare`: what changed from one run of `ream bench all` to another beyond noise.

use super::result::{Results, Row, Speed};
use super::table::number;
use crate::content::Random;
use crate::statistics::{Spread, median, quantile};
use std::path::Path;

/// How a speed changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Change {
    Better,
    Worse,
    Noise,
}

/// The new median over the old, with its interval: both samples drawn anew, as runs of different times have no pairs. 99 %,
/// since there are many rows.
fn ratio(old: &[f64], new: &[f64]) -> Spread {
    const DRAWS: usize = 4000;
    let mut random = Random(17);
    let drawn = |random: &mut Random, values: &[f64]| {
        let sample: Vec<f64> = values.iter().map(|_| values[random.below(values.len() as u64) as usize]).collect();
        median(&sample)
    };
    let ratios: Vec<f64> = (0..DRAWS).map(|_| drawn(&mut random, new) / drawn(&mut random, old)).collect();
    Spread { low: quantile(&ratios, 0.005), middle: median(new) / median(old), high: quantile(&ratios, 0.995) }
}

/// A change is one when the interval leaves 1 out, and the change is larger than what is taken for noise anyway.
fn judge(ratio: Spread, noise: f64) -> Change {
    if ratio.low > 1.0 && ratio.middle > 1.0 + noise {
        Change::Better
    } else if ratio.high < 1.0 && ratio.middle < 1.0 - noise {
        Change::Worse
    } else {
        Change::Noise
    }
}

/// Rounds below which nothing is said of a row: medians of so few differ by chance.
const LEAST: usize = 3;

/// Ream's speeds over others that both have: within a run, what the machine did meanwhile met both alike.
fn shared<'a>(old: &'a Row, new: &'a Row) -> impl Iterator<Item = (&'a Speed, &'a Speed)> {
    let ours = new.speeds.iter().filter(|speed| speed.of == "Ream");
    ours.filter_map(|speed| Some((old.speeds.iter().find(|old| old.of == "Ream" && old.over == speed.over)?, speed)))
}

/// What changed, in words; and whether anything got worse, failed or is missing.
///
/// # Errors
/// A file cannot be read, or they have nothing in common.
pub fn compare_files(old: &Path, new: &Path, noise: f64) -> Result<(String, bool), String> {
    compare(&Results::load(old)?, &Results::load(new)?, noise)
}

fn compare(old: &Results, new: &Results, noise: f64) -> Result<(String, bool), String> {
    let (mut text, mut worse, mut better, mut same, mut few) = (String::new(), 0, 0, 0, 0);
    for (what, before, now) in [
        ("machine", &old.machine["processor"], &new.machine["processor"]),
        ("kernel", &old.machine["kernel"], &new.machine["kernel"]),
        ("scale", &old.settings["scale"], &new.settings["scale"]),
    ] {
        if before != now {
            text += &format!("note: another {what}: {before}, now {now}\n");
        }
    }
    for (name, warnings) in [("the old", &old.warnings), ("the new", &new.warnings)] {
        text.extend(warnings.iter().map(|warning| format!("note: {name} run: {warning}\n")));
    }
    for before in &old.rows {
        let Some(now) = new.rows.iter().find(|now| now.key() == before.key()) else {
            // A part of the rows was asked for, or it is not known yet.
            if new.finished && new.settings["only"] == old.settings["only"] {
                text += &format!("worse  {}: is missing\n", before.key());
                worse += 1;
            }
            continue;
        };
        if let (None, Some(why)) = (&before.failed, &now.failed) {
            text += &format!("worse  {}: failed: {why}\n", now.key());
            worse += 1;
        }
        for (before, speed) in shared(before, now) {
            if before.ratios.len().min(speed.ratios.len()) < LEAST {
                few += 1;
                continue;
            }
            let found = ratio(&before.ratios, &speed.ratios);
            let (word, count) = match judge(found, noise) {
                Change::Noise => {
                    same += 1;
                    continue;
                }
                Change::Better => ("better", &mut better),
                Change::Worse => ("worse ", &mut worse),
            };
            *count += 1;
            let (from, to) = (number(median(&before.ratios)), number(median(&speed.ratios)));
            let percent = (found.middle - 1.0) * 100.0;
            let (low, high) = ((found.low - 1.0) * 100.0, (found.high - 1.0) * 100.0);
            text += &format!(
                "{word} {}: {from} × {}, now {to} × ({percent:+.1} %, {low:+.1} to {high:+.1})\n",
                now.key(),
                speed.over
            );
        }
    }
    if worse + better + same + few == 0 {
        return Err("the two have no figures in common".into());
    }
    text += &format!("{worse} worse, {better} better, {same} within noise\n");
    if few > 0 {
        text += &format!("{few} not judged: fewer than {LEAST} rounds in one of the two\n");
    }
    Ok((text, worse > 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::all::result::tests::example;

    /// All of Ream's figures in a chapter, slower by a factor.
    fn slower(chapter: &str, factor: f64) -> Results {
        let mut results = example();
        for row in results.rows.iter_mut().filter(|row| row.chapter == chapter) {
            for speed in row.speeds.iter_mut().filter(|speed| speed.of == "Ream") {
                speed.ratios.iter_mut().for_each(|ratio| *ratio /= factor);
            }
        }
        results
    }

    #[test]
    fn the_same_figures_are_no_change() {
        let (text, worse) = compare(&example(), &example(), 0.05).unwrap();
        assert!(!worse && text.contains("0 worse, 0 better"), "{text}");
    }

    #[test]
    fn what_got_slower_or_faster_is_named() {
        let (text, worse) = compare(&example(), &slower("malloc", 1.3), 0.05).unwrap();
        assert!(worse && text.contains("worse  malloc: waves: ") && text.contains("1 worse, 0 better"), "{text}");
        let (text, worse) = compare(&slower("malloc", 1.3), &example(), 0.05).unwrap();
        assert!(!worse && text.contains("better malloc: waves: "), "{text}");
        // Small changes are noise, however sure.
        assert!(!compare(&example(), &slower("malloc", 1.04), 0.05).unwrap().1);
        // And so are unsure ones, however large: of paging's three rounds each is another.
        assert!(!compare(&example(), &slower("paging", 1.08), 0.05).unwrap().1);
        // Two rounds say nothing.
        let mut brief = slower("malloc", 3.0);
        for speed in brief.rows.iter_mut().flat_map(|row| &mut row.speeds) {
            speed.ratios.truncate(2);
        }
        let (text, worse) = compare(&example(), &brief, 0.05).unwrap();
        assert!(!worse && text.contains("not judged"), "{text}");
    }

    #[test]
    fn what_fails_or_is_missing_is_worse() {
        let mut new = example();
        new.rows.remove(0);
        assert!(compare(&example(), &new, 0.05).unwrap().0.contains("is missing"));
        let mut new = example();
        new.rows[1].failed = Some("killed".into());
        assert!(compare(&example(), &new, 0.05).unwrap().1);
        new.rows.clear();
        new.finished = false;
        assert!(compare(&example(), &new, 0.05).is_err());
    }
}
