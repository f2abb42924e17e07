//! Results as one page that needs nothing else: for a phone, a screen, or paper; no script, no font, nothing from elsewhere.

use super::charts;
use super::overview::{Question, questions};
use super::result::{Results, Row};
use super::table::{facts, left_out, number, worth};
use crate::statistics::median;

/// Text that is safe between tags and in attributes.
pub fn escape(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '&' => "&amp;".to_owned(),
            '<' => "&lt;".to_owned(),
            '>' => "&gt;".to_owned(),
            '"' => "&quot;".to_owned(),
            c => c.to_string(),
        })
        .collect()
}

const STYLE: &str = include_str!("page.css");

/// The page.
pub fn page(results: &Results) -> String {
    let mut body = format!(
        "<header><h1>Ream, measured</h1><p>Ream {}, {}, {} minutes of measuring on {} processors ({}), {} MiB of RAM, Linux {}.</p>",
        escape(&results.version),
        escape(&results.begun.replace('T', " ").replace('Z', " UTC")),
        number((results.seconds / 60.0).max(0.1)),
        field(results, "processors"),
        field(results, "processor"),
        field(results, "RAM MiB"),
        field(results, "kernel"),
    );
    if !results.finished {
        body += "<p class=\"warning\"><strong>Not finished:</strong> some rows are missing.</p>";
    }
    for warning in &results.warnings {
        body += &format!("<p class=\"warning\"><strong>Measured all the same:</strong> {}</p>", escape(warning));
    }
    body += "</header><main><section id=\"overview\" class=\"overview\"><h2>In short</h2><div class=\"grid\">";
    body += &pictures(results);
    body += "</div><p class=\"small\">Points are medians of rounds in turns, lines their 95 % intervals (bootstrap of the \
             ratios of each round). Right of 1 is faster.</p></section>";
    body += &contents(results);
    let mut chapter = "";
    for (number, row) in results.rows.iter().enumerate() {
        if row.chapter != chapter {
            chapter = &row.chapter;
            body += &format!("<h2 id=\"chapter-{number}\">{}</h2>", escape(chapter));
        }
        body += &section(results, number, row);
    }
    body += &conditions(results);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">\
         <link rel=\"icon\" href=\"data:,\"><title>Ream, measured: {}</title>\
         <style>{STYLE}</style></head><body>{body}</main></body></html>\n",
        escape(&results.begun)
    )
}

fn field(results: &Results, name: &str) -> String {
    let found = facts(&results.machine).into_iter().find(|(own, _)| own == name);
    escape(&found.map_or("?".to_owned(), |(_, value)| value))
}

/// The pictures of the overview: one for each question.
fn pictures(results: &Results) -> String {
    let picture = |question: &Question| match question.sum() {
        None => format!("<figure><h3>{}</h3><p>Nothing was measured here that tells.</p></figure>", question.title),
        Some(sum) => {
            let picture = charts::speeds(question.title, question.reference, &question.rows);
            let sweeps = question.sweeps.iter().filter_map(|name| Some((name, sweep(results, name)?.1)));
            let titled =
                |(name, picture): (&String, String)| format!("<figure><p>{}</p>{picture}</figure>", escape(name));
            let sweeps: String = sweeps.map(titled).collect();
            format!("<figure><h3>{}</h3><p>{}</p>{picture}</figure>{sweeps}", question.title, escape(&sum))
        }
    };
    questions(results).iter().map(picture).collect()
}

/// The first of the rows that differ in one number, and their picture.
fn sweep<'a>(results: &'a Results, name: &str) -> Option<(&'a Row, String)> {
    let of = |row: &&Row| row.sweep.as_ref().is_some_and(|(own, _)| own == name);
    let group: Vec<&Row> = results.rows.iter().filter(of).collect();
    Some((*group.first()?, charts::sweep(name, &group)?))
}

fn contents(results: &Results) -> String {
    let mut text = "<nav><h2>Rows</h2>".to_owned();
    let mut chapter = "";
    for (number, row) in results.rows.iter().enumerate() {
        if row.chapter != chapter {
            if !chapter.is_empty() {
                text += "</p>";
            }
            chapter = &row.chapter;
            text += &format!("<p><strong>{}:</strong> ", escape(chapter));
        }
        text += &format!("<a href=\"#row-{number}\">{}</a> ", escape(&row.name));
    }
    if !chapter.is_empty() {
        text += "</p>";
    }
    text + "</nav>"
}

/// A row: what it is, its picture, its table, and how to have it again.
fn section(results: &Results, number: usize, row: &Row) -> String {
    let mut text = format!("<section class=\"row\" id=\"row-{number}\"><h3>{}</h3>", escape(&row.name));
    if !row.what.is_empty() {
        let data = if row.data > 0 { format!(" {} MiB of data.", row.data) } else { String::new() };
        text += &format!("<p>{}.{data}</p>", escape(&sentence(&row.what)));
    }
    if let Some(why) = &row.failed {
        text += &format!("<p class=\"warning\"><strong>Failed:</strong> {}</p>", escape(why));
    }
    if let Some(why) = &row.unavailable {
        text += &format!("<p class=\"skipped\"><strong>Not available here:</strong> {}</p>", escape(why));
    }
    text += "<div class=\"grid\">";
    if let Some((name, _)) = &row.sweep {
        // With the first of them.
        if let Some((_, picture)) = sweep(results, name).filter(|(first, _)| first.key() == row.key()) {
            text += &format!("<figure>{picture}</figure>");
        }
    }
    if let Some(picture) = charts::rounds(row) {
        text += &format!("<figure>{picture}</figure>");
    }
    text += "</div>";
    text += &series_table(row);
    if !row.notes.is_empty() {
        let notes: Vec<String> = row.notes.iter().map(|note| escape(note)).collect();
        text += &format!("<p class=\"small\">{}</p>", notes.join("; "));
    }
    text += &format!("<p class=\"small\">Again: <code>{}</code></p></section>", escape(&row.repeat));
    text
}

fn sentence(words: &str) -> String {
    let mut letters = words.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

fn series_table(row: &Row) -> String {
    if row.series.is_empty() {
        return String::new();
    }
    let mut text = format!(
        "<table><caption>{}</caption><thead><tr><th scope=\"col\">Under</th><th scope=\"col\">{}</th>\
         <th scope=\"col\">CPU s</th><th scope=\"col\">MiB</th><th scope=\"col\">Ream is</th></tr></thead><tbody>",
        escape(&format!(
            "{}: medians, with the 95 % interval (of fewer than six rounds the smallest and the largest)",
            row.name
        )),
        escape(&row.unit)
    );
    for series in &row.series {
        let name = format!("{}<br><span class=\"small\">{}</span>", escape(&series.name), escape(&series.setting));
        if let Some(why) = &series.absent {
            text += &format!(
                "<tr><th scope=\"row\">{name}</th><td colspan=\"4\" class=\"skipped\">left out: {}</td></tr>",
                escape(why)
            );
            continue;
        }
        let unit = series.unit.as_ref().map(|unit| format!(" {}", escape(unit))).unwrap_or_default();
        let spent = |values: &[f64]| if values.is_empty() { "–".to_owned() } else { number(median(values)) };
        let speed = row.speeds.iter().find(|speed| speed.of == "Ream" && speed.over == series.name);
        let speed = speed.map_or("–".to_owned(), |speed| {
            let (middle, worth) = (number(median(&speed.ratios)), worth(&speed.ratios));
            format!("{middle} ×<br><span class=\"small\">{worth}</span>")
        });
        text += &format!(
            "<tr><th scope=\"row\">{name}</th><td>{}{unit}<br><span class=\"small\">{}</span></td>\
             <td>{}</td><td>{}</td><td>{speed}</td></tr>",
            number(median(&series.values)),
            worth(&series.values),
            spent(&series.cpu),
            spent(&series.peak)
        );
    }
    text + "</tbody></table>"
}

/// The machine, the settings, and what was left out.
fn conditions(results: &Results) -> String {
    let mut text =
        "<section id=\"conditions\"><h2>Conditions</h2><table><caption>Machine and settings</caption><tbody>"
            .to_owned();
    for (name, value) in facts(&results.machine).into_iter().chain(facts(&results.settings)) {
        text += &format!("<tr><th scope=\"row\">{}</th><td>{}</td></tr>", escape(&name), escape(&value));
    }
    text += &format!(
        "<tr><th scope=\"row\">digest of the programs</th><td>{}</td></tr></tbody></table>",
        escape(&results.digest)
    );
    let left = left_out(results);
    if !left.is_empty() {
        text += "<table><caption>Left out</caption><thead><tr><th scope=\"col\">What</th><th scope=\"col\">Why</th>\
                 <th scope=\"col\">Rows</th></tr></thead><tbody>";
        for (name, why, rows) in left {
            text +=
                &format!("<tr><th scope=\"row\">{}</th><td>{}</td><td>{rows}</td></tr>", escape(&name), escape(&why));
        }
        text += "</tbody></table>";
    }
    text + "<p class=\"small\">All figures of all rounds are in ream-bench.json beside this page; the same report as text is \
            report.txt. Two such files are compared by <code>ream bench compare OLD.json NEW.json</code>.</p></section>"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::all::result::tests::example;

    #[test]
    fn the_page_is_whole_and_needs_nothing_else() {
        let page = page(&example());
        for words in [
            "How much faster than swap?",
            "How close to the device?",
            "What do large pages bring?",
            "Remote against disk?",
            "What do turns of MPI ranks bring?",
            "What does it cost when it fits?",
            "And faster than what else helps?",
        ] {
            assert!(page.contains(words), "{words}");
        }
        for outside in ["<script", "src=", "url(", "@import", "https:"] {
            assert!(!page.contains(outside), "{outside}");
        }
        // The name of the format of pictures is no address that is asked for.
        assert_eq!(page.matches("http:").count(), page.matches("http://www.w3.org/2000/svg").count());
        for tag in ["section", "figure", "table", "svg", "div", "p", "tr", "td", "th", "span"] {
            let (open, close) = (
                page.matches(&format!("<{tag}>")).count() + page.matches(&format!("<{tag} ")).count(),
                page.matches(&format!("</{tag}>")).count(),
            );
            assert_eq!(open, close, "{tag}");
        }
        assert!(
            !page.contains("<&>") && page.contains("not there &lt;&amp;&gt;") && page.contains("an &lt;example&gt;")
        );
        assert!(page.contains("Failed:</strong> another result") && page.contains("Not available here:"));
        assert_eq!(page.matches("<svg").count(), page.matches("<desc>").count());
    }

    #[test]
    fn what_was_not_measured_has_no_picture() {
        let mut results = example();
        results.rows.retain(|row| row.chapter == "malloc");
        results.finished = false;
        let page = page(&results);
        assert_eq!(page.matches("Nothing was measured here that tells.").count(), 6);
        assert!(page.contains("Not finished:"));
        results.rows.clear();
        assert!(super::page(&results).contains("In short"));
    }
}
