//! `--help`, one line an option, and `ream help COMMAND`, in whole sentences.

use super::{flag, shown};
use ream_options::{COMMANDS, command};

const WIDTH: usize = 80;
const COLUMN: usize = 32;

/// What `ream COMMAND --help` prints; without a command, the list of commands.
pub fn short(name: &str) -> String {
    let mut text = String::new();
    match command(name) {
        Some(command) => {
            text += format!("usage: ream {} {}", command.name, command.usage).trim_end();
            text += &format!("\n{}{}.\n", command.help[..1].to_uppercase(), &command.help[1..]);
        }
        None => {
            text += "usage: ream COMMAND [OPTION]... [ARGUMENT]...\n\
                     Runs unmodified programs on more memory than there is RAM.\n\nCommands:\n";
            for command in COMMANDS {
                text += &entry(command.name, command.help);
            }
        }
    }
    text += "\nOptions:\n";
    for spec in shown(name) {
        let default = match spec.default {
            "" => String::new(),
            default => format!(" [{default}]"),
        };
        text += &entry(&flag(spec), &format!("{}{default}", spec.help));
    }
    match name {
        "" => text += "\nream help COMMAND explains a command and its options at length.\n",
        "run" => {
            text += "\nSizes: 4k, 512M, 1.5G, 1GiB (powers of 1024); 1GB (powers of 1000).\n\
                     ream help run says more, and which variables and file give the same options.\n";
        }
        name => text += &format!("\nream help {name} says more.\n"),
    }
    text
}

fn entry(name: &str, help: &str) -> String {
    // A name that leaves no gap gets a line of its own.
    if name.chars().count() + 4 > COLUMN {
        format!("  {name}\n{:COLUMN$}{help}\n", "")
    } else {
        format!("  {name:<width$}{help}\n", width = COLUMN - 2)
    }
}

/// What `ream help COMMAND` prints.
pub fn long(name: &str) -> String {
    let Some(command) = command(name) else { return short("") };
    let mut text = format!("usage: ream {} {}", command.name, command.usage).trim_end().to_owned();
    text += "\n";
    for paragraph in command.long.split("\n\n") {
        text += "\n";
        text += &fill(paragraph, 0);
    }
    text += "\nOptions:\n";
    for spec in shown(name) {
        text += &format!("\n  {}\n", flag(spec));
        text += &fill(spec.long, 6);
        let also = also(spec);
        if !also.is_empty() {
            text += &fill(&also, 6);
        }
    }
    if name == "run" {
        for (title, items) in [("Variables", super::VARIABLES), ("Exit status", super::STATUSES)] {
            text += &format!("\n{title}:\n");
            for item in items {
                text += &format!("\n  {}\n{}", item.name, fill(item.text, 6));
            }
        }
    }
    text
}

/// Default, variable and key of an option, in a sentence.
pub(crate) fn also(spec: &ream_options::Spec) -> String {
    let mut parts = Vec::new();
    if !spec.default.is_empty() {
        parts.push(format!("Default: {}.", spec.default));
    }
    if !spec.variable.is_empty() {
        parts.push(format!("Variable: {}.", spec.variable));
    }
    if spec.in_file {
        parts.push(format!("Key: {}.", spec.name));
    }
    parts.join(" ")
}

/// Breaks a text into lines.
fn fill(text: &str, indent: usize) -> String {
    let mut out = String::new();
    let mut length = 0;
    for word in text.split_whitespace() {
        let letters = word.chars().count();
        if length == 0 {
            out += &" ".repeat(indent);
            length = indent;
        } else if length + 1 + letters > WIDTH {
            out += "\n";
            out += &" ".repeat(indent);
            length = indent;
        } else {
            out += " ";
            length += 1;
        }
        out += word;
        length += letters;
    }
    out + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_fit_a_terminal() {
        for name in COMMANDS.iter().map(|command| command.name).chain([""]) {
            for line in short(name).lines().chain(long(name).lines()) {
                assert!(line.chars().count() <= 100, "{name}: {line}");
            }
        }
        assert_eq!(fill("one two", 2), "  one two\n");
    }

    #[test]
    fn hidden_options_are_not_shown() {
        assert!(!short("run").contains("--bloat-age") && !long("run").contains("--bloat-age"));
        assert!(short("run").contains("--pager-cpus LIST"));
    }
}
