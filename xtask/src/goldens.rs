//! Golden files: texts made from the table of options, kept so that every change of them is seen and reviewed.

use crate::Findings;
use ream_cli::document::{completions, help, man};
use ream_options::{COMMANDS, OPTIONS};
use std::path::Path;

/// Every golden file and what it must hold.
fn all() -> Vec<(&'static str, String)> {
    let mut texts = String::new();
    for name in std::iter::once("").chain(COMMANDS.iter().map(|command| command.name)) {
        texts += &format!("$ ream {}\n{}\n", format!("{name} --help").trim_start(), help::short(name));
        if !name.is_empty() {
            texts += &format!("$ ream help {name}\n{}\n", help::long(name));
        }
    }
    let completions = |shell| completions::for_shell(shell).unwrap_or_default();
    vec![
        ("crates/cli/golden/help.txt", texts),
        ("crates/cli/golden/ream.1", man::page()),
        ("crates/cli/golden/ream.bash", completions("bash")),
        ("crates/cli/golden/_ream", completions("zsh")),
        ("crates/cli/golden/ream.fish", completions("fish")),
        ("crates/options/options.golden", table()),
    ]
}

/// The table of options, one line each: what must not change without a thought for those who use it.
fn table() -> String {
    let mut text = String::from("# name, letter, kind, default, variable, in the file, commands, hidden\n");
    for spec in OPTIONS {
        text += &format!(
            "{} {} {:?} {:?} {} {} {} {}\n",
            spec.name,
            spec.short.unwrap_or('-'),
            spec.kind,
            spec.default,
            if spec.variable.is_empty() { "-" } else { spec.variable },
            spec.in_file,
            spec.commands.iter().map(|name| if name.is_empty() { "ream" } else { name }).collect::<Vec<_>>().join(","),
            spec.hidden
        );
    }
    text
}

/// Compares the golden files with what they must hold, or writes them.
pub fn check(root: &Path, bless: bool) -> Findings {
    all().iter().filter_map(|(path, text)| compare(&root.join(path), path, text, bless)).collect()
}

/// Compares one golden file, or writes it; tells of the first difference.
pub fn compare(file: &Path, shown: &str, text: &str, bless: bool) -> Option<String> {
    if bless {
        let directory = file.parent().unwrap_or(file);
        let done = std::fs::create_dir_all(directory).and_then(|()| std::fs::write(file, text));
        return done.err().map(|error| format!("{shown}: {error}"));
    }
    let kept = match std::fs::read_to_string(file) {
        Ok(kept) => kept,
        Err(error) => return Some(format!("{shown}: {error}; cargo xtask goldens --bless writes it")),
    };
    if kept == text {
        return None;
    }
    let (mut old, mut new) = (kept.lines(), text.lines());
    let mut number = 0;
    loop {
        number += 1;
        match (old.next(), new.next()) {
            (Some(old), Some(new)) if old == new => {}
            (old, new) => {
                let line = |line: Option<&str>| line.unwrap_or("(end)").to_owned();
                return Some(format!(
                    "{shown}:{number}: differs\n  kept: {}\n  now:  {}\n  if that is meant, bless it: cargo xtask goldens \
                     --bless, cargo xtask symbols --bless, cargo xtask figures --bless",
                    line(old),
                    line(new)
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_shown() {
        let file = std::env::temp_dir().join(format!("ream-golden-{}", std::process::id()));
        assert!(compare(&file, "g", "a\nb\n", false).unwrap().contains("--bless"));
        assert_eq!(compare(&file, "g", "a\nb\n", true), None);
        assert_eq!(compare(&file, "g", "a\nb\n", false), None);
        assert!(compare(&file, "g", "a\nc\n", false).unwrap().starts_with("g:2: differs"));
        assert!(compare(&file, "g", "a\nb\nc\n", false).unwrap().starts_with("g:3: differs"));
        std::fs::remove_file(&file).unwrap();
    }
}
