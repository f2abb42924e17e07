//! The newest results of a directory, whose files are named by their dates, as Markdown: in short for the README, and as tables.

use super::overview::questions;
use super::result::{Kind, Results, Row};
use super::table::{facts, left_out, number, worth};
use crate::statistics::median;
use std::path::Path;

const NOTHING: &str = "No release has been measured yet; `make bench-all` measures, and writes a page with pictures.\n";

/// The newest results, and the name of their files.
fn newest(directory: &Path) -> Result<Option<(Results, String)>, String> {
    let entries = std::fs::read_dir(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let files =
        entries.flatten().map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|is| is == "json"));
    let Some(newest) = files.max() else { return Ok(None) };
    let name = newest.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    Ok(Some((Results::load(&newest)?, name)))
}

/// Questions and answers.
fn answers(results: &Results) -> String {
    let mut text = "| question | answer |\n|---|---|\n".to_owned();
    for question in questions(results) {
        let answer = question.sum().unwrap_or_else(|| "not measured".into());
        text += &format!("| {} | {answer} |\n", question.title);
    }
    text
}

/// How, when and where it was measured.
fn occasion(results: &Results) -> String {
    let fact = |name: &str| results.machine[name].to_string().trim_matches('"').to_owned();
    format!(
        "`ream bench all --{}`, {}: {}, {} processors, Linux {}",
        results.settings["scale"].as_str().unwrap_or("quick"),
        results.begun.split('T').next().unwrap_or_default(),
        fact("processor"),
        fact("processors"),
        fact("kernel"),
    )
}

fn warnings(results: &Results) -> String {
    results.warnings.iter().map(|warning| format!("Measured although {warning}.\n")).collect()
}

/// What the newest results in a directory say in short, as Markdown for the README. `link` is where the directory is, seen from
/// there.
///
/// # Errors
/// The results cannot be read.
pub fn figures(directory: &Path, link: &str) -> Result<String, String> {
    let Some((results, name)) = newest(directory)? else { return Ok(NOTHING.into()) };
    let (answers, occasion, warnings) = (answers(&results), occasion(&results), warnings(&results));
    Ok(format!("{answers}\n{occasion}; [all of it]({link}/{name}.txt).\n{warnings}"))
}

/// The newest results of a directory as a page of tables.
///
/// # Errors
/// The results cannot be read.
pub fn tables(directory: &Path, link: &str) -> Result<String, String> {
    let mut text = "# The newest results\n\nWritten by `cargo xtask figures --bless` from the newest file in `docs/results`, never by \
                    hand.\n\n"
        .to_owned();
    let Some((results, name)) = newest(directory)? else { return Ok(text + NOTHING) };
    text += &format!("{}; {:.0} minutes. ", occasion(&results), (results.seconds / 60.0).max(1.0));
    text += &format!("All rounds: [{name}.json]({link}/{name}.json).\n{}", warnings(&results));
    if !results.finished {
        text += "\nNot finished: some rows are missing.\n";
    }
    text += &format!("\n{}", answers(&results));
    let mut chapter = "";
    for row in &results.rows {
        if row.chapter != chapter {
            chapter = &row.chapter;
            text += &format!("\n## {chapter}\n\n| row | Ream | Ream is | held against | |\n|---|---|---|---|---|\n");
        }
        text += &lines(row);
    }
    text += "\nOf each row: Ream's median; how many times as fast that is as what stands beside it, by the median of the rounds' \
             ratios, with its 95 % interval (of fewer than six rounds the smallest and the largest); and what that came to itself.\n\n## Conditions\n\n| what | |\n|---|---|\n";
    // Where the store was on that machine is nobody's business.
    for (name, value) in facts(&results.machine).into_iter().filter(|(name, _)| name != "store") {
        text += &format!("| {} | {} |\n", cell(&name), cell(&value));
    }
    let left = left_out(&results);
    if !left.is_empty() {
        text += "\n## Left out\n\n| what | why | rows |\n|---|---|---|\n";
    }
    for (name, why, rows) in left {
        text += &format!("| {} | {} | {rows} |\n", cell(&name), cell(&why));
    }
    Ok(text)
}

/// Text that does not end a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

/// A line for each that the row is held against.
fn lines(row: &Row) -> String {
    let name = cell(&row.name);
    if let Some(why) = row.failed.as_ref().or(row.unavailable.as_ref()) {
        return format!("| {name} | | | {} | |\n", cell(why));
    }
    let middle = |of: &str| {
        let series = row.series(of)?;
        let unit = series.unit.as_ref().unwrap_or(&row.unit);
        Some(format!("{} {}", number(median(&series.values)), cell(unit)))
    };
    let own = row.series.iter().find(|series| series.kind == Kind::Ream && series.absent.is_none());
    let own = own.and_then(|series| middle(&series.name)).unwrap_or_default();
    let speeds: Vec<String> = row
        .speeds
        .iter()
        .filter(|speed| speed.of == "Ream")
        .map(|speed| {
            let (at, worth) = (number(median(&speed.ratios)), worth(&speed.ratios));
            let theirs = middle(&speed.over).unwrap_or_default();
            format!("{at} × ({worth}) | {} | {theirs} |", cell(&speed.over))
        })
        .collect();
    if speeds.is_empty() {
        return format!("| {name} | {own} | | | |\n");
    }
    let begin = |place| if place == 0 { format!("| {name} | {own} |") } else { "| | |".to_owned() };
    speeds.iter().enumerate().map(|(place, speed)| format!("{} {speed}\n", begin(place))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::all::result::tests::example;

    #[test]
    fn the_newest_results_are_made_into_tables() {
        let directory = std::env::temp_dir().join(format!("ream-bench-markdown-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let both = |directory: &Path| (figures(directory, "results").unwrap(), tables(directory, "results").unwrap());
        assert!(both(&directory).1.contains("No release has been measured yet"));
        let write = |name: &str, results: &Results| {
            std::fs::write(directory.join(name), results.json().to_string()).unwrap();
        };
        write("2001-01-01.json", &example());
        write("2000-01-01.json", &Results { rows: Vec::new(), ..example() });
        let (short, long) = both(&directory);
        std::fs::remove_dir_all(&directory).unwrap();
        assert!(short.contains("How much faster than swap?") && short.contains("results/2001-01-01.txt"), "{short}");
        assert!(long.contains("| sequential-read | 1000 MB/s | 0.917 × ("), "{long}");
        assert!(long.contains("| an <example>") || long.contains("| processor | an <example> |"), "{long}");
        let columns = |line: &&str| line.starts_with('|') && !line.starts_with("|---");
        assert!(long.lines().filter(columns).all(|line| line.ends_with('|')), "{long}");
    }
}
