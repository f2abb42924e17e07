//! What the runs of each setting came to, whether they differ from the plain ones, and which settings to use.

use super::measure::{Digest, Ran};
use ream_bench::statistics::{Spread, exact_interval, median};
use std::process::ExitStatus;

/// One way of running the program.
#[derive(Clone, Debug)]
pub struct Variant {
    /// The settings in words, or "plain".
    pub label: String,
    /// Seconds on the wall's clock, a value for each round that counts.
    pub wall: Vec<f64>,
    /// Seconds of processor time.
    pub processor: Vec<f64>,
    /// Peak memory in bytes.
    pub peak: Vec<f64>,
    /// What each run printed, the one that does not count included.
    pub outputs: Vec<Digest>,
    /// How plain runs end.
    pub status: Option<ExitStatus>,
    /// Why it is out of the comparison.
    pub failed: Option<Failed>,
}

/// Why settings are out of the comparison.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failed {
    /// In which round; 0 for the one that does not count.
    pub round: usize,
    /// What was different.
    pub why: String,
    /// What the run said last on standard error.
    pub last_words: String,
}

/// How settings compare with plain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The interval lies below 1.
    Faster,
    /// It lies above 1.
    Slower,
    /// It holds 1.
    NoDifference,
    /// There is none.
    TooFewRounds,
    /// Other status or output.
    Failed,
}

impl Verdict {
    /// In a table.
    pub fn words(self) -> &'static str {
        match self {
            Verdict::Faster => "faster",
            Verdict::Slower => "slower",
            Verdict::NoDifference => "no difference found",
            Verdict::TooFewRounds => "too few rounds to tell",
            Verdict::Failed => "failed",
        }
    }
}

impl Variant {
    /// Without runs yet.
    pub fn new(label: String) -> Variant {
        let (wall, processor, peak, outputs) = Default::default();
        Variant { label, wall, processor, peak, outputs, status: None, failed: None }
    }

    /// Takes in a run that counts.
    pub fn take(&mut self, ran: &Ran) {
        self.wall.push(ran.wall);
        self.processor.push(ran.processor);
        self.peak.push(ran.peak as f64);
    }

    /// Takes it out of the comparison.
    pub fn fail(&mut self, round: usize, why: String, last_words: String) {
        self.failed = Some(Failed { round, why, last_words });
    }

    /// How it compares with `plain`.
    pub fn verdict(&self, plain: &Variant) -> Verdict {
        match exact_interval(&ratios(&self.wall, &plain.wall)) {
            _ if self.failed.is_some() => Verdict::Failed,
            None => Verdict::TooFewRounds,
            Some(Spread { high, .. }) if high < 1.0 => Verdict::Faster,
            Some(Spread { low, .. }) if low > 1.0 => Verdict::Slower,
            Some(_) => Verdict::NoDifference,
        }
    }
}

/// Ratios of values of the same rounds.
pub fn ratios(ours: &[f64], theirs: &[f64]) -> Vec<f64> {
    ours.iter().zip(theirs).filter(|(_, theirs)| **theirs > 0.0).map(|(ours, theirs)| ours / theirs).collect()
}

/// A ratio with its interval, or, of too few rounds, without.
pub fn spread(ours: &[f64], theirs: &[f64]) -> (f64, Option<Spread>) {
    let ratios = ratios(ours, theirs);
    (median(&ratios), exact_interval(&ratios))
}

/// Compares what was printed up to this round, once plain runs can be compared with each other. Returns whether these
/// differ among themselves.
pub fn judge_outputs(variants: &mut [Variant], round: usize) -> bool {
    let Some((plain, others)) = variants.split_first_mut() else { return false };
    let Some(first) = plain.outputs.first().copied() else { return false };
    let alike = |outputs: &[Digest]| outputs.iter().all(|output| output.is_some() && *output == first);
    if !alike(&plain.outputs) {
        // What failed for its output only is as good as any other from here on; its values of that round are lost.
        return true;
    }
    if plain.outputs.len() > 1 {
        for variant in others.iter_mut().filter(|variant| variant.failed.is_none() && !alike(&variant.outputs)) {
            variant.fail(round, "another output than plain".to_owned(), String::new());
        }
    }
    false
}

/// The settings to use, by their place; `None` when none are faster than plain. Of settings between which there is no
/// difference to be found, the first.
pub fn best(variants: &[Variant]) -> Option<usize> {
    let plain = variants.first()?;
    let mut best: Option<usize> = None;
    for (place, variant) in variants.iter().enumerate().skip(1) {
        if variant.verdict(plain) != Verdict::Faster {
            continue;
        }
        let faster = |than: usize| {
            let spread = exact_interval(&ratios(&variant.wall, &variants[than].wall));
            spread.is_some_and(|spread| spread.high < 1.0)
        };
        if best.is_none_or(faster) {
            best = Some(place);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variant(label: &str, wall: &[f64]) -> Variant {
        let mut variant = Variant::new(label.to_owned());
        variant.wall = wall.to_vec();
        variant.outputs = vec![Some((1, 1)); wall.len() + 1];
        variant
    }

    /// Nine rounds on a machine that becomes slower, with this factor and some noise.
    fn rounds(factor: f64, noise: f64) -> Vec<f64> {
        (0..9)
            .map(|round| factor * (1.0 + f64::from(round) * 0.2) * (1.0 + noise * f64::from(round * 5 % 9 - 4) / 4.0))
            .collect()
    }

    #[test]
    fn a_difference_is_real_when_the_interval_excludes_one() {
        let plain = variant("plain", &rounds(1.0, 0.0));
        for (factor, noise, verdict) in [
            (0.9, 0.05, Verdict::Faster),
            (0.99, 0.05, Verdict::NoDifference),
            (1.0, 0.0, Verdict::NoDifference),
            (1.2, 0.05, Verdict::Slower),
            (0.9, 0.3, Verdict::NoDifference),
        ] {
            assert_eq!(variant("x", &rounds(factor, noise)).verdict(&plain), verdict, "{factor} {noise}");
        }
        assert_eq!(variant("x", &[0.1; 5]).verdict(&plain), Verdict::TooFewRounds);
    }

    #[test]
    fn of_settings_as_good_as_each_other_the_first_is_used() {
        let plain = variant("plain", &rounds(1.0, 0.0));
        let faster = variant("a", &rounds(0.8, 0.02));
        let same = variant("b", &rounds(0.799, 0.03));
        let much = variant("c", &rounds(0.5, 0.02));
        let slower = variant("d", &rounds(1.5, 0.02));
        let of = |all: &[&Variant]| best(&all.iter().map(|one| (*one).clone()).collect::<Vec<_>>());
        assert_eq!(of(&[&plain, &slower, &faster, &same]), Some(2));
        assert_eq!(of(&[&plain, &faster, &much, &same]), Some(2));
        assert_eq!(of(&[&plain, &slower]), None);
        let mut failed = much;
        failed.fail(3, "killed".to_owned(), String::new());
        assert_eq!(of(&[&plain, &failed, &faster]), Some(2));
        assert_eq!(failed.verdict(&plain), Verdict::Failed);
    }

    #[test]
    fn outputs_are_compared_where_plain_ones_agree() {
        let mut variants = vec![variant("plain", &[1.0]), variant("same", &[1.0]), variant("other", &[1.0])];
        variants[2].outputs[1] = Some((1, 2));
        assert!(!judge_outputs(&mut variants, 1));
        assert_eq!(variants[2].failed.as_ref().map(|failed| failed.round), Some(1));
        assert!(variants[1].failed.is_none());
        // With one plain run nobody knows yet.
        let mut variants = vec![variant("plain", &[]), variant("other", &[])];
        variants[1].outputs[0] = Some((9, 9));
        assert!(!judge_outputs(&mut variants, 0) && variants[1].failed.is_none());
        // Plain runs that differ, or whose output did not end, judge nobody.
        for odd in [Some((2, 2)), None] {
            let mut variants = vec![variant("plain", &[1.0]), variant("other", &[1.0])];
            variants[0].outputs[1] = odd;
            variants[1].outputs[1] = Some((7, 7));
            assert!(judge_outputs(&mut variants, 1) && variants[1].failed.is_none());
        }
    }
}
