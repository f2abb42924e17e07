//! The newest results of a directory, whose files are named by their dates, as Markdown: in short for the README, and as tables.

use super::overview::questions;
use super::result::{Kind, Results, Row};
use super::table::{facts, left_out, number, worth};
use crate::statistics::median;
use std::path::Path;

const NOTHING: &str = "No release has been measured yet; `make bench-all` measures, and writes a page with pictures.\n";

/// What is published of one run, and the name of its files.
struct Part {
    results: Results,
    name: String,
}

/// The newest run, and then what it lacks: of each older one the chapters that no newer one has measured.
fn newest(directory: &Path) -> Result<Vec<Part>, String> {
    let entries = std::fs::read_dir(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let files =
        entries.flatten().map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|is| is == "json"));
    let mut files: Vec<_> = files.collect();
    files.sort_unstable_by(|a, b| b.cmp(a));
    let mut parts: Vec<Part> = Vec::new();
    for file in files {
        let mut results = Results::load(&file)?;
        let measured = |parts: &[Part], row: &Row| {
            parts.iter().flat_map(|part| &part.results.rows).any(|had| had.chapter == row.chapter && !had.is_left_out())
        };
        results.rows.retain(|row| !measured(&parts, row));
        if parts.is_empty() || results.rows.iter().any(|row| !row.is_left_out()) {
            // What had no time there has been measured here.
            let has = |row: &Row| results.rows.iter().any(|has| has.chapter == row.chapter);
            parts.iter_mut().for_each(|part| part.results.rows.retain(|row| !has(row)));
            let name = file.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            parts.push(Part { results, name });
        }
    }
    Ok(parts)
}

/// The chapters of a part, in words.
fn chapters(part: &Part) -> String {
    let mut names: Vec<&str> = part.results.rows.iter().map(|row| row.chapter.as_str()).collect();
    names.dedup();
    names.join(", ")
}

/// Questions and answers.
fn answers(parts: &[Part]) -> String {
    let rows = parts.iter().flat_map(|part| part.results.rows.clone()).collect();
    let results = &Results { rows, ..parts[0].results.clone() };
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
    let parts = newest(directory)?;
    let [newest, older @ ..] = parts.as_slice() else { return Ok(NOTHING.into()) };
    let mut text = format!("{}\n", answers(&parts));
    text += &format!("{}; [all of it]({link}/{}.txt).\n", occasion(&newest.results), newest.name);
    for part in older {
        text += &format!("Older: {}, from [{}]({link}/{1}.txt).\n", chapters(part), part.name);
    }
    Ok(text + &parts.iter().map(|part| warnings(&part.results)).collect::<String>())
}

/// The newest results of a directory as a page of tables.
///
/// # Errors
/// The results cannot be read.
pub fn tables(directory: &Path, link: &str) -> Result<String, String> {
    let mut text = "# The newest results\n\nWritten by `cargo xtask figures --bless` from the newest file in `docs/results`, never by \
                    hand.\n\n"
        .to_owned();
    let parts = newest(directory)?;
    let Some(Part { results: newest, .. }) = parts.first() else { return Ok(text + NOTHING) };
    for Part { results, name } in &parts {
        text += &format!("{}; {:.0} minutes. ", occasion(results), (results.seconds / 60.0).max(1.0));
        text += &format!("All rounds: [{name}.json]({link}/{name}.json).\n{}", warnings(results));
        if !results.finished {
            text += "Not finished: some rows are missing.\n";
        }
        text += "\n";
    }
    text += &answers(&parts);
    let mut chapter = "";
    for (part, row) in parts.iter().flat_map(|part| part.results.rows.iter().map(move |row| (part, row))) {
        if row.chapter != chapter {
            chapter = &row.chapter;
            text += &format!("\n## {chapter}\n\n");
            if parts.len() > 1 {
                text += &format!("From [{}.json]({link}/{0}.json).\n\n", part.name);
            }
            text += "| row | Ream | Ream is | held against | |\n|---|---|---|---|---|\n";
        }
        text += &lines(row);
    }
    text += "\nOf each row: Ream's median; how many times as fast that is as what stands beside it, by the median of the rounds' \
             ratios, with its 95 % interval (of fewer than six rounds the smallest and the largest); and what that came to itself.\n\n## Conditions\n\n| what | |\n|---|---|\n";
    // Where the store was on that machine is nobody's business.
    for (name, value) in facts(&newest.machine).into_iter().filter(|(name, _)| name != "store") {
        text += &format!("| {} | {} |\n", cell(&name), cell(&value));
    }
    let left: Vec<_> = parts.iter().flat_map(|part| left_out(&part.results)).collect();
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
        assert!(!long.contains("2000-01-01.json"), "{long}");
    }

    #[test]
    fn chapters_that_the_newest_lacks_are_older_ones() {
        let directory = std::env::temp_dir().join(format!("ream-bench-markdown-older-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let of = |chapter: &str, unavailable: Option<&str>| {
            let mut row = example().rows[0].clone();
            (row.chapter, row.unavailable) = (chapter.into(), unavailable.map(Into::into));
            row
        };
        let over = Some(super::super::timetable::OVER);
        let all = [
            ("2003-01-01", vec![of("paging", None), of("noise", over)]),
            ("2002-01-01", vec![of("paging", None)]),
            ("2001-01-01", vec![of("paging", None), of("noise", None), of("tables", over)]),
        ];
        for (name, rows) in all {
            let results = Results { rows, ..example() };
            std::fs::write(directory.join(name).with_extension("json"), results.json().to_string()).unwrap();
        }
        let parts = newest(&directory).unwrap();
        let (short, long) = (figures(&directory, "r").unwrap(), tables(&directory, "r").unwrap());
        std::fs::remove_dir_all(&directory).unwrap();
        let had: Vec<_> = parts.iter().map(|part| (part.name.as_str(), chapters(part))).collect();
        assert_eq!(had, [("2003-01-01", "paging".into()), ("2001-01-01", "noise, tables".into())]);
        assert!(short.contains("Older: noise, tables, from [2001-01-01](r/2001-01-01.txt).\n"), "{short}");
        assert_eq!(long.matches("## noise").count(), 1, "{long}");
        assert!(long.contains("## noise\n\nFrom [2001-01-01.json](r/2001-01-01.json).\n"), "{long}");
    }
}
