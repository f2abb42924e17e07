//! The command line of `ream noise`.

use crate::words::Words;
use std::path::PathBuf;

/// What `ream noise` was told.
#[derive(Clone, PartialEq, Debug)]
pub struct Options {
    /// Seconds of a run.
    pub seconds: f64,
    /// Rounds of one run each.
    pub rounds: usize,
    /// The directory of the store.
    pub store: PathBuf,
    /// Further options of `ream run`.
    pub with: Vec<String>,
    /// Where the figures go; `-` for standard output, in place of the text.
    pub json: Option<PathBuf>,
}

/// The help text.
pub const HELP: &str = "\
usage: ream noise [OPTION]...

Looks on all processors at once for what the machine takes from a program that asks it for nothing: pieces of fixed work
and how long each takes, gaps in looking at the clock without pause (Selfish detours), and the cost of system calls;
plain and under Ream, whose pager has been at work before and is idle, in turns.

  --seconds N       of a run (2)
  --rounds N        runs of each kind; one more of each does not count (9)
  --store DIR       directory of the store (/var/tmp)
  --with OPTION     a further option of ream run; may be repeated
  --json FILE       write all figures there; - for standard output, in place of the text

The exit status is 0 when the idle pager cannot be told from none, 1 when it can (SHORT), and 125 when it could not be
measured.
";

/// Reads the arguments after `ream noise`; `None` asks for help.
///
/// # Errors
/// One line that says what is wrong.
pub fn parse(arguments: &[String]) -> Result<Option<Options>, String> {
    let mut options = Options { seconds: 2.0, rounds: 9, store: "/var/tmp".into(), with: Vec::new(), json: None };
    let mut words = Words::of(arguments);
    while let Some(name) = words.option()? {
        match name.as_str() {
            "--help" | "-h" => return Ok(None),
            "--seconds" => {
                let fits = |seconds: &f64| (0.01..=600.0).contains(seconds);
                options.seconds = words.parsed("time of 0.01 to 600 seconds", fits)?;
            }
            "--rounds" => options.rounds = words.parsed("number of rounds", |n| (1..=1000).contains(n))?,
            "--store" => options.store = words.value()?.into(),
            "--with" => options.with.push(words.value()?),
            "--json" => options.json = Some(words.value()?.into()),
            _ => return Err(format!("unknown option {name}; see ream noise --help")),
        }
    }
    Ok(Some(options))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_or_refused() {
        let of = |words: &[&str]| parse(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        let options =
            of(&["--seconds=0.5", "--rounds", "3", "--with", "--pages=small", "--json", "-"]).unwrap().unwrap();
        assert_eq!((options.seconds, options.rounds, options.json), (0.5, 3, Some("-".into())));
        assert_eq!((options.with, of(&["-h"])), (vec!["--pages=small".to_owned()], Ok(None)));
        for words in [&["--seconds", "0"][..], &["--rounds=0"], &["--json"], &["x"], &["--seconds=nan"]] {
            assert!(of(words).is_err(), "{words:?}");
        }
    }
}
