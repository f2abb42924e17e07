//! The command line of `ream bench all` and of what works on its files.

use std::path::PathBuf;

/// How much is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Scale {
    /// Some minutes.
    #[default]
    Quick,
    /// An hour and more.
    Full,
}

impl Scale {
    /// As the option says it.
    pub fn name(self) -> &'static str {
        match self {
            Scale::Quick => "quick",
            Scale::Full => "full",
        }
    }
}

/// What `ream bench all` was told.
#[derive(Clone, PartialEq, Debug)]
pub struct Options {
    /// How much.
    pub scale: Scale,
    /// Where results go; `None`: a new directory below this one.
    pub out: Option<PathBuf>,
    /// The directory of stores.
    pub store: PathBuf,
    /// Parts of names of steps; empty: all.
    pub only: Vec<String>,
    /// Only say what would be measured.
    pub list: bool,
    /// Go on with what is in `out`.
    pub resume: bool,
    /// Also on a machine that is too small or busy.
    pub anyway: bool,
    /// Minutes that all of it may take.
    pub minutes: Option<f64>,
    /// Rounds of each row.
    pub rounds: Option<usize>,
    /// Further options of `ream run`.
    pub with: Vec<String>,
    /// The original NAS suite.
    pub suite: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            scale: Scale::Quick,
            out: None,
            store: "/var/tmp".into(),
            only: Vec::new(),
            list: false,
            resume: false,
            anyway: false,
            minutes: None,
            rounds: None,
            with: Vec::new(),
            suite: None,
        }
    }
}

impl Options {
    /// Minutes that all of it may take; none where rounds were asked for and no time.
    pub fn limit(&self) -> Option<f64> {
        let usual = match self.scale {
            Scale::Quick => 10.0,
            Scale::Full => 90.0,
        };
        self.minutes.or_else(|| self.rounds.is_none().then_some(usual))
    }
}

/// The words after a command, taken one by one; a value may follow its option after a space or an equals sign.
struct Words<'a> {
    rest: std::slice::Iter<'a, String>,
    inline: Option<String>,
}

impl Words<'_> {
    fn option(&mut self) -> Option<String> {
        let word = self.rest.next()?;
        let (name, value) = match word.split_once('=') {
            Some((name, value)) if name.starts_with("--") => (name, Some(value.to_owned())),
            _ => (word.as_str(), None),
        };
        self.inline = value;
        Some(name.to_owned())
    }

    fn value(&mut self, name: &str) -> Result<String, String> {
        self.inline.take().or_else(|| self.rest.next().cloned()).ok_or_else(|| format!("{name} needs a value"))
    }
}

/// Reads the arguments after `ream bench all`; `None` asks for help.
///
/// # Errors
/// One line that says what is wrong.
pub fn parse(arguments: &[String]) -> Result<Option<Options>, String> {
    let mut options = Options::default();
    let mut words = Words { rest: arguments.iter(), inline: None };
    while let Some(name) = words.option() {
        match name.as_str() {
            "--help" | "-h" => return Ok(None),
            "--quick" => options.scale = Scale::Quick,
            "--full" => options.scale = Scale::Full,
            "--out" => options.out = Some(words.value(&name)?.into()),
            "--store" => options.store = words.value(&name)?.into(),
            "--only" => options.only.push(words.value(&name)?),
            "--list" => options.list = true,
            "--resume" => options.resume = true,
            "--anyway" => options.anyway = true,
            "--with" => options.with.push(words.value(&name)?),
            "--npb" => options.suite = Some(words.value(&name)?.into()),
            "--minutes" => {
                let text = words.value(&name)?;
                let minutes = text.parse().ok().filter(|minutes| (0.1..=10_000.0).contains(minutes));
                options.minutes = Some(minutes.ok_or_else(|| format!("'{text}' is no number of minutes"))?);
            }
            "--rounds" => {
                let text = words.value(&name)?;
                let count = text.parse().ok().filter(|count| (1..=1000).contains(count));
                options.rounds = Some(count.ok_or_else(|| format!("'{text}' is no number of rounds"))?);
            }
            _ => return Err(format!("unknown option {name}; see ream bench --help")),
        }
        if words.inline.is_some() {
            return Err(format!("{name} takes no value"));
        }
    }
    match options.resume && options.out.is_none() {
        true => Err("--resume needs --out: the directory of what was interrupted".into()),
        false => Ok(Some(options)),
    }
}

/// What `ream bench compare` was told.
#[derive(Clone, PartialEq, Debug)]
pub struct Compared {
    /// The results before.
    pub old: PathBuf,
    /// The results now.
    pub new: PathBuf,
    /// Changes up to this share are noise, whatever their interval says.
    pub noise: f64,
}

/// Reads the arguments after `ream bench compare`; `None` asks for help.
///
/// # Errors
/// One line that says what is wrong.
pub fn parse_compared(arguments: &[String]) -> Result<Option<Compared>, String> {
    let (mut files, mut noise) = (Vec::new(), 0.05);
    let mut words = Words { rest: arguments.iter(), inline: None };
    while let Some(name) = words.option() {
        match name.as_str() {
            "--help" | "-h" => return Ok(None),
            "--noise" => {
                let text = words.value(&name)?;
                let percent =
                    text.trim_end_matches('%').parse::<f64>().ok().filter(|noise| (0.0..100.0).contains(noise));
                noise = percent.ok_or_else(|| format!("'{text}' is no percentage"))? / 100.0;
            }
            _ if name.starts_with("--") => return Err(format!("unknown option {name}; see ream bench --help")),
            _ => files.push(PathBuf::from(name)),
        }
    }
    match <[PathBuf; 2]>::try_from(files) {
        Ok([old, new]) => Ok(Some(Compared { old, new, noise })),
        Err(_) => Err("compare takes two files: ream bench compare OLD.json NEW.json".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &[&str]) -> Result<Option<Options>, String> {
        parse(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn options_are_read_in_both_forms() {
        let options = of(&["--full", "--out=x", "--only", "NAS", "--only=a=b", "--resume", "--rounds", "4"]).unwrap();
        let options = options.unwrap();
        assert_eq!((options.scale, options.out, options.rounds), (Scale::Full, Some("x".into()), Some(4)));
        assert_eq!(options.only, ["NAS", "a=b"]);
        assert_eq!(of(&["--full", "-h"]), Ok(None));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        assert_eq!(of(&["--rounds=3"]).unwrap().unwrap().limit(), None);
        assert_eq!(of(&["--rounds=3", "--minutes", "2.5"]).unwrap().unwrap().limit(), Some(2.5));
        assert_eq!(of(&["--full"]).unwrap().unwrap().limit(), Some(90.0));
        for words in [
            &["--minutes", "0"][..],
            &["--minutes=x"],
            &["--resume"],
            &["--rounds", "0"],
            &["--out"],
            &["--list=yes"],
            &["--onyl", "x"],
            &["x"],
        ] {
            assert!(of(words).is_err(), "{words:?}");
        }
    }

    #[test]
    fn two_files_are_compared() {
        let of = |words: &[&str]| parse_compared(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        let compared = of(&["a.json", "--noise", "2%", "b.json"]).unwrap().unwrap();
        assert_eq!((compared.old, compared.new, compared.noise), ("a.json".into(), "b.json".into(), 0.02));
        for words in [&["a"][..], &["a", "b", "c"], &["a", "b", "--noise=x"], &["a", "b", "--loud"]] {
            assert!(of(words).is_err(), "{words:?}");
        }
    }
}
