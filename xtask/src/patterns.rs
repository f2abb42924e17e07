//! What no file may hold: left-over notes, paths of one machine, panics and the standard library where neither
//! belongs, files without a word on what they are for, files that hold more than one idea.

use crate::layers::{IN_PROCESS, LAYERS, SAFE};
use crate::{Findings, output};
use std::path::Path;
use std::process::Command;

/// More lines than this, and a file holds a second idea.
const MOST_LINES: usize = 600;

/// Words that mean unfinished work. Written apart, so that this file does not hold them.
const UNFINISHED: &[&str] = &[
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("unimple", "mented!"),
    concat!("to", "do!("),
];

/// Directories that exist on one machine only.
const MACHINE: &[&str] = &["work", "root", "home", "tmp"];

/// What may end a process, in code that runs inside other people's.
const PANICS: &[&str] =
    &[".unwrap()", ".expect(\"", "panic!(", "unreachable!(", "assert!(", "assert_eq!(", "assert_ne!("];

/// The standard library, where there is none.
const STANDARD: &[&str] = &["use std::", " std::", "extern crate std", "extern crate alloc", "use alloc::"];

/// Looks through every file that git knows or would add.
pub fn check(root: &Path) -> Findings {
    let list = ["ls-files", "--cached", "--others", "--exclude-standard"];
    let files = match output(Command::new("git").current_dir(root).args(list)) {
        Ok(files) => files,
        Err(why) => return vec![why],
    };
    let mut findings = Vec::new();
    for name in files.lines().filter(|name| !name.ends_with(".lock")) {
        // Deleted, or not text.
        if let Ok(text) = std::fs::read_to_string(root.join(name)) {
            findings.extend(text_of_any_kind(name, &text));
            if name.ends_with(".rs") {
                findings.extend(rust(name, &text));
            }
        }
    }
    for layer in LAYERS {
        let file = format!("crates/{layer}/src/lib.rs");
        if let Ok(text) = std::fs::read_to_string(root.join(&file)) {
            findings.extend(attributes(layer, &file, &text));
        }
    }
    findings
}

fn text_of_any_kind(name: &str, text: &str) -> Findings {
    let mut findings = Vec::new();
    let in_tests = name.starts_with("tests/");
    for (number, line) in (1..).zip(text.lines()) {
        if let Some(word) = UNFINISHED.iter().find(|word| unfinished(line, word)) {
            findings.push(format!("{name}:{number}: {word}: finish it, or describe it as it is"));
        }
        if !in_tests && machine_path(line) {
            findings.push(format!("{name}:{number}: a path of one machine: {}", line.trim()));
        }
    }
    let kinds = [".rs", ".c", ".cpp", ".h", ".sh", ".py", ".R", ".f90"];
    if kinds.iter().any(|kind| name.ends_with(kind)) {
        let comment =
            |line: &str| ["//", "/*", "#", "!", "\"\"\""].iter().any(|start| line.starts_with(start)) && line.len() > 8;
        if !text.lines().take(2).any(|line| comment(line) && !line.starts_with("#!") && !line.starts_with("#include")) {
            findings.push(format!("{name}: its first two lines do not say what it is for"));
        }
        let lines = text.lines().count();
        if lines > MOST_LINES {
            findings.push(format!("{name}: {lines} lines: which second idea is in there?"));
        }
    }
    findings
}

/// Whether a line holds a word of unfinished work; not as a part of a longer one, such as mktemp's row of letters.
fn unfinished(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let letter = |c: char| c.is_alphanumeric() || c == '_';
        !line[..at].ends_with(letter) && !line[at + word.len()..].starts_with(letter)
    })
}

/// Whether a line names a file or directory below one that exists on one machine only.
fn machine_path(line: &str) -> bool {
    MACHINE.iter().any(|directory| {
        let path = format!("/{directory}/");
        line.match_indices(&path).any(|(at, _)| {
            let before = line[..at].chars().next_back();
            let after = line[at + path.len()..].chars().next();
            !before.is_some_and(|c| c.is_ascii_alphanumeric() || "_./-*".contains(c))
                && after.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_')
        })
    })
}

fn rust(name: &str, text: &str) -> Findings {
    let mut findings = Vec::new();
    if !text.starts_with("//!") {
        findings.push(format!("{name}: does not begin with //! and what it is for"));
    }
    let Some(layer) = name.strip_prefix("crates/").and_then(|rest| rest.split_once("/src/")) else { return findings };
    let (layer, file) = layer;
    let for_tests = file.contains("tests") || file == "fake.rs" || file.starts_with("fake/");
    if !IN_PROCESS.contains(&layer) || for_tests {
        return findings;
    }
    let mut condition = false;
    let mut constant = false;
    for (number, line) in (1..).zip(text.lines()) {
        let code = line.split("//").next().unwrap_or_default();
        // Tests come last in a file.
        if code.trim() == "#[cfg(test)]" && text.lines().nth(number).is_some_and(|next| next.starts_with("mod ")) {
            break;
        }
        // Settled when it is compiled.
        if code.starts_with("const _: () =") {
            constant = !code.trim_end().ends_with(';');
            continue;
        }
        if constant {
            constant = !code.starts_with("};");
            continue;
        }
        let was = std::mem::replace(&mut condition, code.trim_start().starts_with("#[cfg("));
        if was {
            continue;
        }
        if let Some(word) = PANICS.iter().find(|word| panics(code, word)) {
            findings.push(format!("{name}:{number}: {word} can end the user's process: answer the case"));
        }
        if let Some(word) = STANDARD.iter().find(|word| code.contains(*word)) {
            findings.push(format!("{name}:{number}: \"{}\" in the user's process", word.trim()));
        }
    }
    findings
}

/// Whether code holds a word that can panic. Debug assertions are gone in what is installed.
fn panics(code: &str, word: &str) -> bool {
    code.match_indices(word)
        .any(|(at, _)| word.starts_with('.') || !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_'))
}

fn attributes(layer: &str, file: &str, text: &str) -> Findings {
    let mut findings = Vec::new();
    let has = |attribute: &str| text.lines().any(|line| line.trim() == attribute || line.contains(attribute));
    if IN_PROCESS.contains(&layer) && !has("no_std") {
        findings.push(format!("{file}: a layer inside the user's process must be #![no_std]"));
    }
    if SAFE.contains(&layer) && !has("#![forbid(unsafe_code)]") {
        findings.push(format!("{file}: must say #![forbid(unsafe_code)]"));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unfinished_work_and_machine_paths() {
        let found = |line: &str| text_of_any_kind("docs/x.md", line).len();
        assert_eq!(found(&format!("// {}: later", UNFINISHED[0])), 1);
        assert_eq!(found(&format!("mktemp x.{}", UNFINISHED[2].repeat(2))), 0);
        assert_eq!(found(concat!("see /ho", "me/somebody/file")), 1);
        assert_eq!(found(concat!("see `/t", "mp/x`")), 1);
        assert_eq!(found("/var/tmp/x, $HOME/tmp/x, /tmp, a/home/b"), 0);
        assert!(text_of_any_kind("tests/x.md", concat!("/t", "mp/x")).is_empty());
    }

    #[test]
    fn panics_and_the_standard_library_in_process() {
        let found = |code: &str| rust("crates/pager/src/x.rs", &format!("//! About x.\n{code}")).len();
        assert_eq!(found("a.unwrap();"), 1);
        assert_eq!(found("    assert!(x);"), 1);
        assert_eq!(found("debug_assert!(x);"), 0);
        assert_eq!(found("const _: () = assert!(1 == 1);"), 0);
        assert_eq!(found("const _: () = {\n    assert!(1 == 1);\n};\nassert!(x);"), 1);
        assert_eq!(found("a.expect(\"x\");"), 1);
        assert_eq!(found("session.expect(parent);"), 0);
        assert_eq!(found("use std::fs;"), 1);
        assert_eq!(found("a.unwrap_or(1); // not .unwrap()"), 0);
        assert_eq!(found("#[cfg(test)]\nmod tests {\n a.unwrap();\n}"), 0);
        assert_eq!(found("#[cfg(feature = \"fake\")]\nextern crate std;"), 0);
        assert!(rust("crates/cli/src/x.rs", "//! X.\na.unwrap();").is_empty());
        assert!(rust("crates/sys/src/fake/x.rs", "//! X.\na.unwrap();").is_empty());
        assert_eq!(rust("crates/cli/src/x.rs", "fn x() {}").len(), 1);
    }

    #[test]
    fn headers_and_lengths() {
        assert_eq!(text_of_any_kind("a.c", "#include <stdio.h>\nint main;\n").len(), 1);
        assert_eq!(text_of_any_kind("a.c", "/* What a is for. */\n").len(), 0);
        assert_eq!(text_of_any_kind("a.py", "\"\"\"What a is for.\"\"\"\n").len(), 0);
        assert_eq!(text_of_any_kind("a.sh", "#!/bin/bash\necho\n").len(), 1);
        assert_eq!(text_of_any_kind("a.sh", "#!/bin/bash\n# What a is for.\n").len(), 0);
        let long = format!("//! A long file.\n{}", "\n".repeat(MOST_LINES));
        assert_eq!(text_of_any_kind("a.rs", &long).len(), 1);
    }

    #[test]
    fn attributes_of_layers() {
        assert_eq!(attributes("policy", "f", "//! x\n").len(), 2);
        assert_eq!(attributes("policy", "f", "#![no_std]\n#![forbid(unsafe_code)]\n").len(), 0);
        assert_eq!(attributes("cli", "f", "").len(), 0);
    }
}
