//! The command line as typed: command, options by the table, and what follows.

use crate::failure::{Failure, nearest};
use crate::settings::{Given, Source};
use lexopt::Arg;
use ream_options::{COMMANDS, Kind, Spec, find, options_of, takes_program};
use std::ffi::OsString;

/// A command line taken apart.
#[derive(Debug)]
pub struct Arguments {
    /// The command; empty when there is none.
    pub command: String,
    /// Options in the order given.
    pub flags: Vec<Given>,
    /// What follows the options: the program and its arguments, or a command's own arguments.
    pub rest: Vec<OsString>,
}

impl Arguments {
    /// Whether a switch was given.
    pub fn has(&self, name: &str) -> Result<bool, Failure> {
        self.flags.iter().rfind(|given| given.spec.name == name).map_or(Ok(false), Given::switch)
    }
}

/// Takes a command line, without the name of the command itself, apart.
///
/// # Errors
/// The first argument that the table does not know.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Arguments, Failure> {
    let mut parser = lexopt::Parser::from_args(arguments);
    let mut command = String::new();
    let mut flags = Vec::new();
    let mut rest = Vec::new();
    loop {
        let spec = match parser.next().map_err(|error| Failure::new(error.to_string()))? {
            None => break,
            Some(Arg::Long(name)) => {
                find(&command, name).ok_or_else(|| unknown(&command, &format!("--{name}"), name))?
            }
            Some(Arg::Short(letter)) => options_of(&command)
                .find(|spec| spec.short == Some(letter))
                .ok_or_else(|| unknown(&command, &format!("-{letter}"), ""))?,
            Some(Arg::Value(word)) if command.is_empty() => {
                command = known_command(word)?;
                // What the benchmark takes is its own business.
                if matches!(command.as_str(), "bench" | "noise") {
                    rest.extend(parser.raw_args().map_err(|error| Failure::new(error.to_string()))?);
                    break;
                }
                continue;
            }
            // Nobody else's options follow.
            Some(Arg::Value(word)) if !takes_program(&command) => {
                rest.push(word);
                continue;
            }
            Some(Arg::Value(word)) => {
                rest.push(word);
                rest.extend(parser.raw_args().map_err(|error| Failure::new(error.to_string()))?);
                break;
            }
        };
        let text = match spec.kind {
            Kind::Switch | Kind::OptionalFile | Kind::OptionalText(_) => parser.optional_value(),
            _ => Some(parser.value().map_err(|_| missing(spec))?),
        };
        flags.push(Given { spec, source: Source::Flag, text });
    }
    Ok(Arguments { command, flags, rest })
}

fn missing(spec: &Spec) -> Failure {
    Failure::new(format!("--{0}: no value given; write --{0} {1}", spec.name, spec.value))
}

fn unknown(command: &str, shown: &str, name: &str) -> Failure {
    let meant = match nearest(name, options_of(command).filter(|spec| !spec.hidden).map(|spec| spec.name)) {
        Some(meant) => format!("did you mean --{meant}?"),
        None if command.is_empty() => "see ream --help".to_owned(),
        None => format!("see ream {command} --help"),
    };
    Failure::new(format!("{shown}: no such option; {meant}"))
}

fn known_command(word: OsString) -> Result<String, Failure> {
    let text = word.to_string_lossy().into_owned();
    if COMMANDS.iter().any(|command| command.name == text) {
        return Ok(text);
    }
    let meant = match nearest(&text, COMMANDS.iter().map(|command| command.name)) {
        Some(meant) => format!("did you mean {meant}?"),
        None => format!("to run a program, write ream run -- {text}"),
    };
    Err(Failure::new(format!("{text}: no such command; {meant}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(line: &str) -> Result<Arguments, String> {
        parse(line.split_whitespace().map(OsString::from)).map_err(|failure| failure.text)
    }

    #[test]
    fn options_end_where_the_program_begins() {
        let arguments = taken("run --memory 1G --summary -s /a --store=/b sort --memory 2G -- x").unwrap();
        assert_eq!(arguments.command, "run");
        let given: Vec<_> = arguments.flags.iter().map(|given| given.spec.name).collect();
        assert_eq!(given, ["memory", "summary", "store", "store"]);
        assert_eq!(arguments.rest, ["sort", "--memory", "2G", "--", "x"]);
    }

    #[test]
    fn two_dashes_end_the_options() {
        let arguments = taken("run -m1G -- --odd -- x").unwrap();
        assert_eq!(arguments.rest, ["--odd", "--", "x"]);
        assert_eq!(arguments.flags[0].text.as_deref(), Some("1G".as_ref()));
    }

    #[test]
    fn an_optional_value_needs_its_equals_sign() {
        let arguments = taken("run --summary prog").unwrap();
        assert_eq!(arguments.flags[0].text, None);
        assert_eq!(arguments.rest, ["prog"]);
        let arguments = taken("run --summary=out.json prog").unwrap();
        assert_eq!(arguments.flags[0].text.as_deref(), Some("out.json".as_ref()));
    }

    #[test]
    fn options_of_other_commands_may_follow_their_arguments() {
        let arguments = taken("status 77 --json").unwrap();
        assert_eq!(arguments.rest, ["77"]);
        assert!(arguments.has("json").unwrap());
    }

    #[test]
    fn mistakes_are_named() {
        for (line, text) in [
            ("run --memroy 1G x", "--memroy: no such option; did you mean --memory?"),
            ("run --verbose x", "--verbose: no such option; see ream run --help"),
            ("run -x y", "-x: no such option; see ream run --help"),
            ("doctor --memory 1G", "--memory: no such option; see ream doctor --help"),
            ("--frob", "--frob: no such option; see ream --help"),
            ("run --memory", "--memory: no value given; write --memory SIZE|PERCENT%|auto"),
            ("rnu x", "rnu: no such command; did you mean run?"),
            ("sort x", "sort: no such command; to run a program, write ream run -- sort"),
            // Hidden options are understood but not suggested.
            ("run --shard 3 x", "--shard: no such option; see ream run --help"),
        ] {
            assert_eq!(taken(line).unwrap_err(), text, "{line}");
        }
    }

    #[test]
    fn the_benchmark_gets_its_arguments_untouched() {
        let arguments = taken("bench paging --help -x").unwrap();
        assert_eq!(arguments.rest, ["paging", "--help", "-x"]);
    }
}
