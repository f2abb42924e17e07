//! Figures of the README, and the tables of docs/results.md: never written by hand, but what the newest results in docs/results
//! say.

use crate::Findings;
use crate::goldens::compare;
use std::path::Path;

const BEGIN: &str = "<!-- figures of the newest results: cargo xtask figures --bless -->\n";
const END: &str = "<!-- end of figures -->";

/// Compares the marked block of the README, and the tables, with what they must hold, or writes them.
pub fn check(root: &Path, bless: bool) -> Findings {
    let figures = match ream_bench::figures(&root.join("docs/results"), "docs/results") {
        Ok(figures) => figures,
        Err(why) => return vec![why],
    };
    let file = root.join("README.md");
    let text = match std::fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) => return vec![format!("README.md: {error}")],
    };
    let mut found: Findings = match with(&text, &figures) {
        Some(text) => compare(&file, "README.md", &text, bless).into_iter().collect(),
        None => vec![format!("README.md: no block that begins with {BEGIN}")],
    };
    match ream_bench::tables(&root.join("docs/results"), "results") {
        Ok(tables) => {
            found.extend(compare(&root.join("docs/results.md"), "docs/results.md", &tables, bless));
        }
        Err(why) => found.push(why),
    }
    found
}

/// The text with these figures in its block; `None` when it has none.
fn with(text: &str, figures: &str) -> Option<String> {
    let (before, rest) = text.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}{figures}{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_block_is_written() {
        let text = format!("a\n{BEGIN}old\n{END}\nb\n");
        assert_eq!(with(&text, "new\n"), Some(format!("a\n{BEGIN}new\n{END}\nb\n")));
        assert_eq!(with("a\n", "new\n"), None);
    }
}
