//! What a comparison came to, as a table or as JSON.

use super::Comparison;
use super::verdict::{Variant, Verdict, spread};
use crate::doctor::quoted;
use ream_bench::statistics::{Spread, median};
use ream_options::show_size;
use std::ffi::OsString;
use std::path::PathBuf;

/// Where settings were saved, and for which program.
type Saved = (PathBuf, PathBuf);

/// Letters that the settings' column takes at least and at most.
const COLUMN: (usize, usize) = (16, 44);

/// The table, and in words what to make of it.
pub fn as_text(comparison: &Comparison, best: Option<usize>, saved: Option<&Saved>, save: bool) -> String {
    let Comparison { variants, rounds, wanted, .. } = comparison;
    let program = shell(&comparison.program);
    let rounds_in_words = match rounds == wanted {
        true => format!("{rounds} rounds"),
        false => format!("{rounds} of {wanted} rounds"),
    };
    let interrupted = if comparison.interrupted.is_some() { ", interrupted" } else { "" };
    let mut text = format!(
        "{program}\n{rounds_in_words} in turns after one that does not count, {}{interrupted}; medians\n\n",
        time(comparison.seconds)
    );
    let longest = variants.iter().map(|variant| variant.label.chars().count()).max().unwrap_or(0);
    let width = longest.clamp(COLUMN.0, COLUMN.1);
    text += &format!("{:width$} {:>9} {:>9} {:>9}  WALL TO PLAIN (95 %)\n", "", "WALL", "CPU", "MEMORY");
    for (place, variant) in variants.iter().enumerate() {
        if variant.label.chars().count() > width {
            text += &format!("{}\n{:width$}", variant.label, "");
        } else {
            text += &format!("{:width$}", variant.label);
        }
        text += &row(variant, &variants[0], place == 0);
    }
    text += "\n";
    for variant in variants {
        if let Some(failed) = &variant.failed {
            let when = if failed.round == 0 {
                "before the first round".to_owned()
            } else {
                format!("in round {}", failed.round)
            };
            text += &format!("{}: {when}: {}.\n", variant.label, failed.why);
            for line in failed.last_words.lines().rev().take(3).collect::<Vec<_>>().into_iter().rev() {
                text += &format!("    {line}\n");
            }
        }
    }
    if let Some(status) = variants[0].status.filter(|status| !status.success()) {
        text += &format!("Plain runs end with {}.\n", super::in_words(status));
    }
    if comparison.outputs_differ {
        text += "Plain runs differ in what they print, so outputs were not compared.\n";
    }
    text += match comparison.grouped {
        true => "Memory: peak of all processes of a run together, with the files they read or wrote (cgroup).\n",
        false => "Memory: peak of the largest process of a run (wait4; there is no cgroup to count in).\n",
    };
    text += &advice(comparison, best);
    if let Some((file, program)) = saved {
        text += &format!("Saved: ream run takes these for {} from {}.\n", program.display(), file.display());
    } else if save {
        text += "Nothing was saved; what was saved before, if anything, stays.\n";
    }
    text
}

fn row(variant: &Variant, plain: &Variant, is_plain: bool) -> String {
    if variant.failed.is_some() {
        return format!(" {:>9} {:>9} {:>9}  {:<24} failed\n", "-", "-", "-", "");
    }
    let mut text = format!(
        " {:>9} {:>9} {:>9}",
        time(median(&variant.wall)),
        time(median(&variant.processor)),
        show_size(rounded(median(&variant.peak))).to_string()
    );
    if !is_plain {
        let (middle, interval) = spread(&variant.wall, &plain.wall);
        let shown = match interval {
            Some(Spread { low, high, .. }) => format!("{middle:.3} ({low:.3} to {high:.3})"),
            None => format!("{middle:.3}"),
        };
        text += &format!("  {shown:<24} {}", variant.verdict(plain).words());
    }
    text + "\n"
}

fn advice(comparison: &Comparison, best: Option<usize>) -> String {
    let Comparison { variants, program, .. } = comparison;
    let plain = &variants[0];
    let program = shell(program);
    if let Some(best) = best {
        let variant = &variants[best];
        let (middle, _) = spread(&variant.wall, &plain.wall);
        let label = &variant.label;
        return format!("Use: ream run {label} -- {program}   ({:.0} % less time)\n", (1.0 - middle) * 100.0);
    }
    let verdicts: Vec<Verdict> = variants.iter().skip(1).map(|variant| variant.verdict(plain)).collect();
    let all = |one: Verdict| verdicts.iter().all(|verdict| *verdict == one || *verdict == Verdict::Failed);
    match () {
        () if all(Verdict::Failed) => "All settings failed: run it without Ream.\n".to_owned(),
        () if verdicts.contains(&Verdict::TooFewRounds) => {
            "No recommendation: an interval needs six rounds at least.\n".to_owned()
        }
        () if all(Verdict::Slower) => "All settings are slower: run it without Ream.\n".to_owned(),
        () => "No settings are faster beyond doubt; more --runs make intervals narrower.\n".to_owned(),
    }
}

/// The same for machines.
pub fn as_json(comparison: &Comparison, best: Option<usize>, saved: Option<&Saved>) -> String {
    let Comparison { variants, .. } = comparison;
    let strings =
        |words: &[OsString]| words.iter().map(|word| quoted(&word.to_string_lossy())).collect::<Vec<_>>().join(", ");
    let list: Vec<String> = variants.iter().map(|variant| variant_as_json(variant, &variants[0])).collect();
    let or_null = |text: Option<String>| text.unwrap_or_else(|| "null".to_owned());
    let path = |path: &PathBuf| quoted(&path.to_string_lossy());
    format!(
        "{{\n  \"program\": [{}],\n  \"rounds\": {},\n  \"wanted\": {},\n  \"seconds\": {:.3},\n  \"interrupted\": {},\n  \
         \"outputs_differ\": {},\n  \"memory\": {},\n  \"variants\": [\n{}\n  ],\n  \"use\": {},\n  \"saved\": {}\n}}\n",
        strings(&comparison.program),
        comparison.rounds,
        comparison.wanted,
        comparison.seconds,
        or_null(comparison.interrupted.map(|signal| signal.to_string())),
        comparison.outputs_differ,
        quoted(if comparison.grouped { "run" } else { "largest process" }),
        list.join(",\n"),
        or_null(best.map(|best| quoted(&variants[best].label))),
        or_null(saved.map(|(file, program)| format!("{{\"file\": {}, \"program\": {}}}", path(file), path(program))))
    )
}

fn variant_as_json(variant: &Variant, plain: &Variant) -> String {
    let values = |values: &[f64]| values.iter().map(|value| format!("{value}")).collect::<Vec<_>>().join(", ");
    let ratio = |ours: &[f64], theirs: &[f64]| match spread(ours, theirs) {
        (middle, Some(Spread { low, high, .. })) => {
            format!("{{\"median\": {middle:.6}, \"low\": {low:.6}, \"high\": {high:.6}}}")
        }
        (middle, None) => format!("{{\"median\": {middle:.6}, \"low\": null, \"high\": null}}"),
    };
    let mut text = format!(
        "    {{\"settings\": {}, \"wall\": [{}], \"cpu\": [{}], \"memory\": [{}]",
        quoted(&variant.label),
        values(&variant.wall),
        values(&variant.processor),
        values(&variant.peak)
    );
    if !std::ptr::eq(variant, plain) {
        text += &format!(
            ",\n     \"ratio\": {{\"wall\": {}, \"cpu\": {}, \"memory\": {}}}, \"verdict\": {}",
            ratio(&variant.wall, &plain.wall),
            ratio(&variant.processor, &plain.processor),
            ratio(&variant.peak, &plain.peak),
            quoted(variant.verdict(plain).words())
        );
    }
    if let Some(failed) = &variant.failed {
        let (why, words) = (quoted(&failed.why), quoted(&failed.last_words));
        text +=
            &format!(",\n     \"failed\": {{\"round\": {}, \"why\": {why}, \"last_words\": {words}}}", failed.round);
    }
    text + "}"
}

/// Seconds in three figures or so.
fn time(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 0.1 => format!("{:.1} ms", seconds * 1e3),
        seconds if seconds < 10.0 => format!("{seconds:.2} s"),
        seconds if seconds < 600.0 => format!("{seconds:.1} s"),
        seconds => format!("{:.1} min", seconds / 60.0),
    }
}

/// Bytes in three figures or so.
fn rounded(bytes: f64) -> u64 {
    let unit = if bytes >= 100.0 * 1048576.0 { 1048576.0 } else { 65536.0 };
    ((bytes / unit).round() * unit) as u64
}

/// A command line as a shell would take it.
fn shell(words: &[OsString]) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_=+./:,@%".contains(letter);
    let word = |word: &OsString| {
        let word = word.to_string_lossy();
        match !word.is_empty() && word.chars().all(plain) {
            true => word.into_owned(),
            false => format!("'{}'", word.replace('\'', "'\\''")),
        }
    };
    words.iter().map(word).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comparison() -> Comparison {
        let variant = |label: &str, factor: f64| {
            let mut variant = Variant::new(label.to_owned());
            variant.wall = (0..9).map(|round| factor * (2.0 + f64::from(round) / 10.0)).collect();
            variant.processor = variant.wall.clone();
            variant.peak = vec![factor * 1e8; 9];
            variant
        };
        let mut bad = variant("--memory 8M", 1.0);
        bad.fail(2, "killed by signal 9 (SIGKILL) instead of exit status 0".into(), "oh\nno".into());
        Comparison {
            program: vec!["./a b".into(), "-x".into()],
            variants: vec![variant("plain", 1.0), variant("--pages=auto", 0.75), variant("--pages=small", 1.0), bad],
            rounds: 9,
            wanted: 9,
            interrupted: None,
            outputs_differ: false,
            grouped: true,
            seconds: 75.0,
        }
    }

    #[test]
    fn the_table_says_all_on_one_screen() {
        let mut comparison = comparison();
        let text = as_text(&comparison, Some(1), None, false);
        for words in [
            "'./a b' -x\n9 rounds in turns after one that does not count, 75.0 s; medians\n",
            "plain               2.40 s    2.40 s",
            "--pages=auto        1.80 s    1.80 s  71.5 MiB  0.750 (0.750 to 0.750)   faster\n",
            "1.000 (1.000 to 1.000)   no difference found\n",
            "--memory 8M: in round 2: killed by signal 9 (SIGKILL) instead of exit status 0.\n    oh\n    no\n",
            "(cgroup)",
            "Use: ream run --pages=auto -- './a b' -x   (25 % less time)\n",
        ] {
            assert!(text.contains(words), "{words}\n{text}");
        }
        assert!(text.lines().count() <= 24 && text.lines().all(|line| line.chars().count() <= 100), "{text}");
        let saved = ("/c/programs.toml".into(), "/bin/a".into());
        let text = as_text(&comparison, Some(1), Some(&saved), true);
        assert!(text.ends_with("Saved: ream run takes these for /bin/a from /c/programs.toml.\n"), "{text}");
        comparison.rounds = 3;
        comparison.variants[0].status = Some(std::os::unix::process::ExitStatusExt::from_raw(2 << 8));
        comparison.interrupted = Some(2);
        comparison.variants.iter_mut().for_each(|variant| variant.wall.truncate(3));
        let text = as_text(&comparison, None, None, true);
        assert!(text.contains("3 of 9 rounds") && text.contains(", interrupted") && text.contains("Nothing was saved"));
        assert!(text.contains("\nPlain runs end with exit status 2.\n"), "{text}");
        assert!(text.contains("too few rounds to tell") && text.contains("needs six rounds"), "{text}");
    }

    #[test]
    fn json_is_json() {
        let comparison = comparison();
        let value: serde_json::Value = serde_json::from_str(&as_json(&comparison, Some(1), None)).unwrap();
        assert_eq!(value["variants"][1]["verdict"], "faster");
        assert_eq!(value["variants"][1]["ratio"]["wall"]["high"], 0.75);
        assert_eq!(value["variants"][3]["failed"]["last_words"], "oh\nno");
        assert_eq!((&value["use"], &value["saved"]), (&"--pages=auto".into(), &serde_json::Value::Null));
        assert_eq!(value["variants"][0]["wall"].as_array().map(Vec::len), Some(9));
    }
}
