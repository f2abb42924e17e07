//! The command line of `ream noise`.

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
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let (name, mut inline) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (word.as_str(), None),
        };
        let mut value =
            || inline.take().or_else(|| words.next().cloned()).ok_or_else(|| format!("{name} needs a value"));
        match name {
            "--help" | "-h" => return Ok(None),
            "--seconds" => {
                let text = value()?;
                let seconds = text.parse().ok().filter(|seconds| (0.01..=600.0).contains(seconds));
                options.seconds = seconds.ok_or_else(|| format!("'{text}' is no time of 0.01 to 600 seconds"))?;
            }
            "--rounds" => {
                let text = value()?;
                let rounds = text.parse().ok().filter(|rounds| (1..=1000).contains(rounds));
                options.rounds = rounds.ok_or_else(|| format!("'{text}' is no number of rounds"))?;
            }
            "--store" => options.store = value()?.into(),
            "--with" => options.with.push(value()?),
            "--json" => options.json = Some(value()?.into()),
            _ => return Err(format!("unknown option {name}; see ream noise --help")),
        }
        if inline.is_some() {
            return Err(format!("{name} takes no value"));
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
