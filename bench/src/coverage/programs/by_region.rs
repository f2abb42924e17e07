//! One table for a language: a line for each region, a column for each setting, and in each cell the four ways to link.

use super::{KINDS, Region, percent};
use std::fmt::Write as _;

/// How a program was linked, under what it ran, and what it said.
pub type Look = (&'static str, &'static str, Vec<Region>);

/// The table as text. A cell has one number where all ways to link agree, else one for each, in their order; a dash where it was
/// not to be had.
pub fn table(language: &str, looks: &[Look]) -> String {
    let mut settings: Vec<&str> = Vec::new();
    let mut regions: Vec<&str> = Vec::new();
    for (_, under, found) in looks {
        if !settings.contains(under) {
            settings.push(under);
        }
        found.iter().for_each(|(name, ..)| {
            if !regions.contains(&name.as_str()) {
                regions.push(name);
            }
        });
    }
    let mut text = format!("| {language} | {} |\n|---|{}\n", settings.join(" | "), "---|".repeat(settings.len()));
    for region in regions {
        let _ = write!(text, "| {region} |");
        for setting in &settings {
            let share = |kind: &str| {
                let look = looks.iter().find(|look| look.0 == kind && look.1 == *setting);
                let found = look.and_then(|look| look.2.iter().find(|(name, ..)| name == region));
                found.map_or_else(|| "-".to_owned(), percent)
            };
            let mut cells: Vec<String> = KINDS.iter().map(|(kind, ..)| share(kind)).collect();
            if cells.iter().all(|cell| *cell == cells[0]) {
                cells.truncate(1);
            }
            let _ = write!(text, " {} |", cells.join(" / "));
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_to_link_that_agree_are_one_number() {
        let said = |large| vec![("bss".to_owned(), 100, large), ("heap".to_owned(), 100, 7)];
        let mut looks: Vec<Look> = KINDS.iter().map(|(kind, ..)| (*kind, "plain", said(0))).collect();
        looks[2].2 = said(50);
        looks.push(("PIE", "x", said(99)));
        let wanted = "| C | plain | x |\n|---|---|---|\n| bss | 0 / 0 / 50 / 0 | 99 / - / - / - |\n| heap | 7 | 7 / - / - / - |\n";
        assert_eq!(table("C", &looks), wanted);
    }
}
