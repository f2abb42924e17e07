//! The table is whole, and says nothing twice.

extern crate std;
use super::*;
use crate::{COMMANDS, LEVELS, Processors, command, parse_memory, parse_pages, parse_size};
use std::collections::BTreeSet;

#[test]
fn names_letters_and_variables_are_unique() {
    let mut variables = BTreeSet::new();
    let mut keys = BTreeSet::new();
    for spec in OPTIONS {
        assert!(spec.variable.is_empty() || variables.insert(spec.variable), "{}", spec.variable);
        assert!(!spec.in_file || keys.insert(spec.name), "{}", spec.name);
    }
    for command in COMMANDS.iter().map(|command| command.name).chain([""]) {
        let mut names = BTreeSet::new();
        let mut letters = BTreeSet::new();
        for spec in options_of(command) {
            assert!(names.insert(spec.name), "{command}: {}", spec.name);
            assert!(spec.short.is_none_or(|letter| letters.insert(letter)), "{command}: {}", spec.name);
        }
    }
}

#[test]
fn every_command_has_help() {
    for command in COMMANDS {
        assert!(find(command.name, "help").is_some_and(|spec| spec.short == Some('h')), "{}", command.name);
    }
}

/// A variable's name is the flag's, so that who knows one knows the other.
#[test]
fn variables_are_named_after_flags() {
    for spec in OPTIONS.iter().filter(|spec| !spec.variable.is_empty()) {
        let expected = std::format!("REAM_{}", spec.name.to_uppercase().replace('-', "_"));
        assert_eq!(spec.variable, expected);
    }
}

#[test]
fn texts_are_whole() {
    for spec in OPTIONS {
        assert!(!spec.help.is_empty() && !spec.help.ends_with('.'), "{}", spec.name);
        assert!(spec.help.len() <= 64, "{}: {}", spec.name, spec.help.len());
        assert!(spec.long.ends_with('.') && !spec.long.contains("  "), "{}", spec.name);
        assert_eq!(spec.kind == Kind::Switch, spec.value.is_empty(), "{}", spec.name);
        assert!(spec.commands.iter().all(|name| name.is_empty() || command(name).is_some()), "{}", spec.name);
    }
    for command in COMMANDS {
        assert!(!command.help.ends_with('.') && command.long.ends_with('.'), "{}", command.name);
        assert!(!command.long.contains("  "), "{}", command.name);
    }
}

#[test]
fn defaults_are_values_of_their_kind() {
    for spec in OPTIONS.iter().filter(|spec| !spec.default.is_empty()) {
        match spec.kind {
            Kind::Memory => assert!(parse_memory(spec.default).is_ok()),
            Kind::Size => assert!(parse_size(spec.default).is_ok()),
            Kind::Choice(words) => assert!(words.contains(&spec.default)),
            Kind::Log => assert!(LEVELS.contains(&spec.default)),
            Kind::Pages => assert!(parse_pages(spec.default).is_ok()),
            Kind::Processors => assert!(Processors::parse(spec.default).is_ok()),
            Kind::Count(least, most) => assert!(spec.default.parse().is_ok_and(|n: u32| least <= n && n <= most)),
            other => panic!("{}: a default for {other:?}", spec.name),
        }
    }
}
