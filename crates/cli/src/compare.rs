//! `ream compare`: runs a program plain and under several settings, in turns, and says which settings to use.

mod group;
mod measure;
mod report;
mod verdict;

pub use group::{SWEEPER, sweep};

use crate::arguments::{self, Arguments};
use crate::child::{self, Signals};
use crate::failure::{Failure, OWN, nearest, reason};
use crate::machine::Machine;
use crate::pages::Offer;
use crate::settings::{Given, Settings};
use crate::{budget, mark, os, program, programs};
use measure::{Bench, Outcome, Ran, in_words};
use ream_bench::content::Random;
use ream_stats::Config;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use verdict::{Variant, judge_outputs};

/// What is tried when nothing is said.
const USUAL: &[&str] = &["--pages=auto", "--pages=small", "--pages=huge"];
/// Rounds when nothing is said.
const ROUNDS: u32 = 9;

/// What a comparison came to.
pub struct Comparison {
    /// The program's name and arguments.
    pub program: Vec<OsString>,
    /// Plain first.
    pub variants: Vec<Variant>,
    /// Rounds that are whole.
    pub rounds: usize,
    /// Rounds that were wanted.
    pub wanted: usize,
    /// The signal that ended it before its time.
    pub interrupted: Option<i32>,
    /// Whether plain runs differ in what they print.
    pub outputs_differ: bool,
    /// Whether memory was counted for whole runs.
    pub grouped: bool,
    /// Seconds that it took.
    pub seconds: f64,
}

/// Settings to try, in words and as options.
#[derive(Clone, Debug)]
struct Candidate {
    label: String,
    words: Vec<OsString>,
    given: Vec<Given>,
}

/// Does what the command line says.
pub fn compare(arguments: &Arguments) -> Result<i32, Failure> {
    let Some(name) = arguments.rest.first() else {
        return Err(Failure::new("compare: no program given; write ream compare -- PROGRAM ARGUMENT..."));
    };
    let count = |name: &str| {
        let given = arguments.flags.iter().rfind(|given| given.spec.name == name);
        given.map(Given::count).transpose()
    };
    let (json, save) = (arguments.has("json")?, arguments.has("save")?);
    let rounds = count("runs")?.unwrap_or(ROUNDS) as usize;
    let limit = count("seconds")?.map(|seconds| Duration::from_secs(seconds.into()));
    let candidates = candidates(&arguments.flags)?;
    if save {
        savable(&candidates)?;
    }
    if std::env::var_os("REAM_SESSION").is_some() {
        return Err(Failure::new("compare: runs under Ream itself, so no run could be plain; start it outside"));
    }
    let file = program::find(name, std::env::var_os("PATH").as_deref())?;
    let mark = mark::given(&file);
    candidates.iter().try_for_each(|candidate| candidate.look(name, mark.as_deref().unwrap_or_default()))?;
    // Looked at before the first round: what was measured is not to be lost in the end.
    let place = if save { Some(place_to_save(&file)?) } else { None };
    let stdin = arguments.flags.iter().rfind(|given| given.spec.name == "stdin");
    let stdin = stdin.map(|given| given.path(given.text.as_deref().unwrap_or_default())).transpose()?;
    if let Some(file) = &stdin {
        measure::opened(file)?;
    }
    let ream = std::env::current_exe()
        .map_err(|error| Failure::new(format!("/proc/self/exe: {}; is /proc mounted?", reason(&error))))?;
    // Before the first thread.
    let groups = group::Groups::find();
    let signals = Signals::take().map_err(|error| Failure::new(format!("compare: signals: {}", reason(&error))))?;
    let grouped = groups.is_some();
    let program = arguments.rest.clone();
    // A marked program would run under Ream by itself.
    let plain = mark.map(|_| mark::start::stand_in(&file)).transpose()?;
    let bare = plain.as_ref().map_or_else(|| file, |stand| stand.path.clone());
    let mut bench = Bench { file: bare, program: program.clone(), input: stdin, ream, groups, signals };

    let begun = Instant::now();
    let mut variants = vec![Variant::new("plain".to_owned())];
    variants.extend(candidates.iter().map(|candidate| Variant::new(candidate.label.clone())));
    let mut comparison = Comparison {
        program,
        variants,
        rounds: 0,
        wanted: rounds,
        interrupted: None,
        outputs_differ: false,
        grouped,
        seconds: 0.0,
    };
    comparison.interrupted = comparison.measure(&mut bench, &candidates, limit)?;
    // Takes the cgroups away.
    drop(bench);
    comparison.seconds = begun.elapsed().as_secs_f64();
    if comparison.rounds == 0 && comparison.interrupted.is_some() {
        let signal = comparison.interrupted.unwrap_or(0);
        return Err(Failure::new("compare: interrupted before anything was measured").with_status(128 + signal));
    }

    if let Some(failure) = comparison.refused() {
        return Err(failure);
    }

    let best = verdict::best(&comparison.variants);
    let (mut saved, mut unsaved) = (None, None);
    if let (Some((place, key)), Some(best), None) = (place, best, comparison.interrupted) {
        match programs::save(&place, &key, &candidates[best - 1].given) {
            Ok(()) => saved = Some((place, key)),
            Err(failure) => unsaved = Some(failure),
        }
    }
    let text = match json {
        true => report::as_json(&comparison, best, saved.as_ref()),
        false => report::as_text(&comparison, best, saved.as_ref(), save),
    };
    crate::print(&text)?;
    if let Some(failure) = unsaved {
        return Err(failure);
    }
    Ok(match comparison.interrupted {
        Some(signal) => 128 + signal,
        None => i32::from(comparison.variants.iter().any(|variant| variant.failed.is_some())),
    })
}

impl Comparison {
    /// Runs everything in turns. Returns the signal that ended it early, if one did.
    fn measure(
        &mut self,
        bench: &mut Bench,
        candidates: &[Candidate],
        limit: Option<Duration>,
    ) -> Result<Option<i32>, Failure> {
        let begun = Instant::now();
        let settings = |variant: usize| variant.checked_sub(1).map(|candidate| candidates[candidate].words.as_slice());
        let mut order: Vec<usize> = (0..self.variants.len()).collect();
        let mut random = Random(os::random().unwrap_or(1));
        let mut longest = Duration::ZERO;
        let told = Progress::new();
        // The first round does not count: files come into the page cache.
        for round in 0..=self.wanted {
            if round > 0 {
                let none_left = self.variants.iter().skip(1).all(|variant| variant.failed.is_some());
                if none_left || limit.is_some_and(|limit| begun.elapsed() + longest > limit) {
                    break;
                }
                for place in (1..order.len()).rev() {
                    order.swap(place, random.below(place as u64 + 1) as usize);
                }
            }
            let round_begun = Instant::now();
            let mut runs: Vec<Option<Ran>> = vec![None; self.variants.len()];
            for &variant in order.iter().filter(|variant| self.variants[**variant].failed.is_none()) {
                told.say(round, self.wanted, &self.variants[variant].label, longest);
                match bench.run(settings(variant))? {
                    Outcome::Interrupted(signal) => {
                        told.end();
                        return Ok(Some(signal));
                    }
                    Outcome::Ended(ran) if variant == 0 => {
                        self.check_plain(&ran).inspect_err(|_| told.end())?;
                        runs[0] = Some(ran);
                    }
                    Outcome::Ended(ran) => runs[variant] = Some(ran),
                }
            }
            longest = longest.max(round_begun.elapsed());
            self.take_in(round, runs);
        }
        told.end();
        if self.rounds == 0 && self.variants.iter().skip(1).any(|variant| variant.failed.is_none()) {
            let seconds = longest.as_secs_f64();
            return Err(Failure::new(format!("--seconds: too few for one round, which takes {seconds:.1} s")));
        }
        Ok(None)
    }

    /// A plain run is what others are compared with: it has to end by itself, and always alike.
    fn check_plain(&self, ran: &Ran) -> Result<(), Failure> {
        let shown = self.program[0].to_string_lossy();
        let words = match ran.last_words.as_str() {
            "" => String::new(),
            words => format!("; its last words: {}", words.lines().last().unwrap_or_default()),
        };
        if ran.status.signal().is_some() {
            return Err(Failure::new(format!("{shown}: {} without Ream{words}", in_words(ran.status))));
        }
        match self.variants[0].status {
            Some(before) if before != ran.status => {
                let (before, now) = (in_words(before), in_words(ran.status));
                Err(Failure::new(format!("{shown}: ends differently without Ream: {before}, then {now}{words}")))
            }
            _ => Ok(()),
        }
    }

    /// Where Ream itself refused all settings, so that nothing was compared: its first words about it.
    fn refused(&self) -> Option<Failure> {
        let line = |variant: &Variant| {
            let failed = variant.failed.as_ref().filter(|failed| failed.round == 0)?;
            let own = failed.why.starts_with(&format!("exit status {OWN} "));
            let line = failed.last_words.lines().last()?.strip_prefix("ream: ").filter(|_| own)?;
            Some(format!("{}: {line}", variant.label))
        };
        let lines: Option<Vec<String>> = self.variants.iter().skip(1).map(line).collect();
        lines?.first().map(|line| Failure::new(format!("compare: nothing could be compared: {line}")))
    }

    /// Takes in the runs of a round.
    fn take_in(&mut self, round: usize, runs: Vec<Option<Ran>>) {
        let Some(plain) = runs[0].as_ref() else { return };
        self.variants[0].status = Some(plain.status);
        let status = plain.status;
        for (variant, ran) in self.variants.iter_mut().zip(runs) {
            let Some(ran) = ran else { continue };
            variant.outputs.push(ran.output);
            if ran.status != status {
                variant.fail(
                    round,
                    format!("{} instead of {}", in_words(ran.status), in_words(status)),
                    ran.last_words,
                );
            } else if round > 0 {
                variant.take(&ran);
            }
        }
        self.rounds = round;
        self.outputs_differ = judge_outputs(&mut self.variants, round);
    }
}

/// The settings to try.
fn candidates(flags: &[Given]) -> Result<Vec<Candidate>, Failure> {
    let given: Vec<&Given> = flags.iter().filter(|given| given.spec.name == "with").collect();
    if given.is_empty() {
        return USUAL.iter().map(|words| candidate("--with", OsStr::new(words))).collect();
    }
    given.iter().map(|given| candidate("--with", given.text.as_deref().unwrap_or_default())).collect()
}

fn candidate(option: &str, text: &OsStr) -> Result<Candidate, Failure> {
    let refuse = |why: String| Failure::new(format!("{option}: \"{}\": {why}", text.to_string_lossy()));
    let words = text.to_str().and_then(split).ok_or_else(|| refuse("a quote is not closed".to_owned()))?;
    if words.is_empty() {
        return Err(refuse("no settings given; write for example --with=\"--pages=huge\"".to_owned()));
    }
    let line = ["run".into()].into_iter().chain(words.iter().map(OsString::from)).chain(["--".into(), "x".into()]);
    let parsed = arguments::parse(line).map_err(|failure| refuse(failure.text))?;
    if parsed.rest != ["x"] || parsed.flags.is_empty() {
        let word = parsed.rest.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
        let meant = nearest(&word, ream_options::options_of("run").map(|spec| spec.name));
        let meant = meant.map_or_else(String::new, |meant| format!("; did you mean --{meant}?"));
        return Err(refuse(format!("{word}: not an option of ream run{meant}")));
    }
    if let Some(given) = parsed.flags.iter().find(|given| given.spec.name == "help") {
        return Err(refuse(format!("{given}: no setting")));
    }
    Settings::settle("run", parsed.flags.clone(), &|_| None, Vec::new()).map_err(|failure| refuse(failure.text))?;
    Ok(Candidate { label: words.join(" "), words: words.into_iter().map(Into::into).collect(), given: parsed.flags })
}

impl Candidate {
    /// Looks whether `ream run` would take these settings for a program of this name and mark.
    ///
    /// # Errors
    /// What it would say.
    fn look(&self, name: &OsString, mark: &[Given]) -> Result<(), Failure> {
        let taken = |flags: Vec<Given>| {
            // What was saved before does not count while settings are compared.
            let settings = crate::settle_at(None, Some(name), flags, mark.to_vec())?;
            let machine = Machine::look().map_err(Failure::new)?;
            budget::of(&settings, &machine, &mut |_| ())?;
            Offer::here().settle(&settings.pages, &mut Config::new(), &mut |_| ())
        };
        taken(self.given.clone()).map_err(|failure| match taken(Vec::new()) {
            // A mistake in the environment or in a file, whatever is tried.
            Err(general) if general.text == failure.text => failure,
            _ => Failure::new(format!("--with: \"{}\": {}", self.label, failure.text)),
        })
    }
}

/// The file that settings of a program are saved in, and the name that they are saved under.
fn place_to_save(file: &Path) -> Result<(PathBuf, PathBuf), Failure> {
    let place = crate::programs_file().ok_or_else(|| {
        let variable = programs::VARIABLE;
        Failure::new(format!("--save: no configuration directory; set HOME, or {variable} to the file to write"))
    })?;
    let key = file.canonicalize().unwrap_or_else(|_| file.to_owned());
    let refuse = |failure: Failure| Failure::new(format!("--save: {}", failure.text));
    programs::savable(&place, &key).map_err(refuse)?;
    Ok((place, key))
}

/// What is to be saved must be allowed in a file.
fn savable(candidates: &[Candidate]) -> Result<(), Failure> {
    let all = candidates.iter().flat_map(|candidate| &candidate.given);
    match all.into_iter().find(|given| !given.spec.in_file) {
        Some(given) => Err(Failure::new(format!("--save: {given}: cannot be saved"))),
        None => Ok(()),
    }
}

/// Words apart by blanks, with the quotes of a shell around those that hold blanks; `None` where a quote is not closed.
fn split(text: &str) -> Option<Vec<String>> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for letter in text.chars() {
        match (letter, quote) {
            (letter, Some(open)) if letter == open => quote = None,
            ('"' | '\'', None) => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (letter, None) if letter.is_whitespace() => words.extend(word.take()),
            (letter, _) => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    quote.is_none().then_some(words)
}

/// Tells a terminal how far it is.
struct Progress(bool);

impl Progress {
    fn new() -> Progress {
        Progress(child::at_terminal())
    }
    fn say(&self, round: usize, rounds: usize, label: &str, longest: Duration) {
        if self.0 {
            let left = longest.as_secs_f64() * (rounds + 1 - round.max(1)) as f64;
            let left = if round > 0 { format!(", {left:.0} s left at most") } else { String::new() };
            let label: String = label.chars().take(40).collect();
            // Progress that nobody can see is none.
            let _ = write!(std::io::stderr(), "\r\x1b[Kround {round} of {rounds}: {label}{left}");
        }
    }
    fn end(&self) {
        if self.0 {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_split_as_a_shell_would() {
        let words = |text: &str| split(text).unwrap();
        assert_eq!(words(" --pages=huge  --memory 2G "), ["--pages=huge", "--memory", "2G"]);
        assert_eq!(words("--store '/a b' --log=\"info:/c d\""), ["--store", "/a b", "--log=info:/c d"]);
        assert_eq!(words("''"), [""]);
        assert_eq!(split("--store '/a"), None);
    }

    #[test]
    fn settings_that_make_no_sense_are_named() {
        for (text, why) in [
            ("", "no settings given; write for example --with=\"--pages=huge\""),
            (
                "--pages=hueg",
                "--pages: \"hueg\": hueg is no size of pages; sizes are auto, small, 64k, huge, hugetlb, 1g; did you mean huge?",
            ),
            ("--paegs=huge", "--paegs: no such option; did you mean --pages?"),
            ("pages", "pages: not an option of ream run; did you mean --pages?"),
            ("--pages=huge sort", "sort: not an option of ream run; did you mean --store?"),
            ("--pages=huge --", "--: not an option of ream run"),
            ("--help", "--help: no setting"),
            ("'", "a quote is not closed"),
        ] {
            let said = candidate("--with", OsStr::new(text)).unwrap_err().text;
            assert_eq!(said, format!("--with: \"{text}\": {why}"));
        }
        let candidate = candidate("--with", OsStr::new("--pages huge -m 2G --summary")).unwrap();
        let names: Vec<_> = candidate.given.iter().map(|given| given.spec.name).collect();
        assert_eq!(
            (candidate.label.as_str(), names),
            ("--pages huge -m 2G --summary", vec!["pages", "memory", "summary"])
        );
        assert!(savable(&[candidate]).is_ok());
        let hidden = super::candidate("--with", OsStr::new("--bloat-age 20")).unwrap();
        assert_eq!(savable(&[hidden]).unwrap_err().text, "--save: --bloat-age: cannot be saved");
    }

    #[test]
    fn the_usual_settings_make_sense() {
        let usual = candidates(&[]).unwrap();
        assert_eq!(usual.len(), USUAL.len());
        assert!(savable(&usual).is_ok());
    }
}
