//! The figures of a row of `ream bench pages`, and whether they are good enough.

use crate::report::Verdict;
use crate::statistics::{Spread, interval, median};
use serde_json::{Value, json};

/// The ratio that the upper end of an interval may reach.
const MOST: f64 = 1.02;

/// What a column stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The program as it is.
    Plain,
    /// Under Ream.
    Ream,
    /// Large pages that the program asks for itself.
    Hand,
    /// Whatever else promises them.
    Other,
}

/// One setting's times in a row.
#[derive(Clone, Debug)]
pub struct Times {
    /// What it is.
    pub kind: Kind,
    /// Its name.
    pub name: &'static str,
    /// Seconds, one a round; or why there are none.
    pub seconds: Result<Vec<f64>, String>,
}

/// All of a row.
#[derive(Clone, Debug)]
pub struct Figures {
    /// By setting.
    pub times: Vec<Times>,
    /// As fast as large pages asked for by hand is what it must be.
    pub random: bool,
}

impl Figures {
    fn seconds(&self, kind: Kind) -> impl Iterator<Item = (&'static str, &[f64])> {
        let of_kind = self.times.iter().filter(move |times| times.kind == kind);
        of_kind.filter_map(|times| Some((times.name, times.seconds.as_deref().ok()?)))
    }

    /// The fastest of a kind, by its median.
    fn best(&self, kind: Kind) -> Option<(&'static str, &[f64])> {
        self.seconds(kind).min_by(|(_, one), (_, other)| median(one).total_cmp(&median(other)))
    }

    /// Name, and Ream's time over its, of plain, the best of those by hand, the best of the others.
    pub fn ratios(&self) -> Vec<(Kind, &'static str, Spread)> {
        let of = |kind| self.best(kind).and_then(|(name, seconds)| Some((kind, name, self.over(seconds)?)));
        [Kind::Plain, Kind::Hand, Kind::Other].into_iter().filter_map(of).collect()
    }

    /// Ream's time over these, round by round.
    fn over(&self, others: &[f64]) -> Option<Spread> {
        self.seconds(Kind::Ream).next().map(|(_, ream)| ratio(ream, others))
    }

    /// Holds the figures against what is required.
    pub fn verdicts(&self) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        let ratios = self.ratios();
        let of = |kind| ratios.iter().find(|(found, ..)| *found == kind).map(|(_, name, ratio)| (*name, *ratio));
        let mut at_most = |what: String, reached: Option<f64>| {
            let met = reached.map(|reached| reached <= MOST);
            verdicts.push(Verdict { required: format!("≤ {MOST} × {what}"), reached: reached.unwrap_or(0.0), met });
        };
        let plain = of(Kind::Plain);
        at_most("plain".into(), plain.map(|(_, ratio)| ratio.high));
        if self.random {
            let hand = of(Kind::Hand);
            at_most(hand.map_or("by hand", |(name, _)| name).into(), hand.map(|(_, ratio)| ratio.high));
        }
        let other = of(Kind::Other);
        let name = other.map_or("the best other".into(), |(name, _)| format!("{name}, the best other"));
        at_most(name, other.map(|(_, ratio)| ratio.high));
        // Faster wherever large pages placed by hand are, beyond doubt.
        let gain = self.best(Kind::Hand).zip(self.best(Kind::Plain)).map(|((_, hand), (_, plain))| ratio(hand, plain));
        if let (Some(gain), Some((_, plain))) = (gain, plain) {
            if gain.high < 1.0 {
                let required = "faster than plain, as by hand".to_owned();
                verdicts.push(Verdict { required, reached: plain.middle, met: Some(plain.middle < 1.0) });
            }
        }
        verdicts
    }

    /// As JSON.
    pub fn json(&self) -> Value {
        let times = self.times.iter().map(|times| match &times.seconds {
            Ok(seconds) => {
                let over = self.over(seconds).filter(|_| times.kind != Kind::Ream);
                let over = over.map(|s| json!({"median": s.middle, "low": s.low, "high": s.high}));
                json!({"under": times.name, "median": median(seconds), "seconds": seconds, "ream_over": over})
            }
            Err(why) => json!({"under": times.name, "absent": why}),
        });
        let verdicts = self.verdicts().into_iter().map(|verdict| {
            let reached = verdict.met.map(|_| verdict.reached);
            json!({"required": verdict.required, "reached": reached, "met": verdict.met})
        });
        json!({"times": times.collect::<Vec<_>>(), "verdicts": verdicts.collect::<Vec<_>>()})
    }
}

/// A requirement's line.
pub fn line(verdict: &Verdict) -> String {
    match verdict.met {
        Some(true) => format!("{}: pass ({:.3})", verdict.required, verdict.reached),
        Some(false) => format!("{}: SHORT ({:.3})", verdict.required, verdict.reached),
        None => format!("{}: not measured", verdict.required),
    }
}

fn ratio(ours: &[f64], theirs: &[f64]) -> Spread {
    let pairs = ours.iter().zip(theirs).filter(|(_, theirs)| **theirs > 0.0);
    interval(&pairs.map(|(ours, theirs)| ours / theirs).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Times that vary a little, the same for all from round to round.
    fn figures(random: bool, middles: &[(Kind, &'static str, f64)]) -> Figures {
        let seconds = |middle: f64| (0..15).map(|round| middle * (1.0 + f64::from(round % 5) * 0.01)).collect();
        let times = |(kind, name, middle): &(Kind, &'static str, f64)| Times {
            kind: *kind,
            name,
            seconds: Ok(seconds(*middle)),
        };
        Figures { times: middles.iter().map(times).collect(), random }
    }

    fn met(figures: &Figures) -> Vec<(String, Option<bool>)> {
        figures.verdicts().into_iter().map(|verdict| (verdict.required, verdict.met)).collect()
    }

    #[test]
    fn ream_is_held_against_plain_by_hand_and_the_best_other() {
        use Kind::{Hand, Other, Plain, Ream};
        let of = |ream| [(Plain, "plain", 1.0), (Ream, "Ream", ream), (Hand, "by hand", 0.8), (Other, "a", 0.9)];
        let good = met(&figures(true, &of(0.8)));
        assert_eq!(good.len(), 4, "{good:?}");
        assert!(good.iter().all(|(_, met)| *met == Some(true)), "{good:?}");
        let wanting = |ream| -> Vec<String> {
            let all = met(&figures(true, &of(ream)));
            all.into_iter().filter(|(_, met)| *met == Some(false)).map(|(required, _)| required).collect()
        };
        assert_eq!(wanting(0.85), ["≤ 1.02 × by hand"]);
        assert_eq!(wanting(0.95), ["≤ 1.02 × by hand", "≤ 1.02 × a, the best other"]);
        assert_eq!(wanting(1.01).last().map(String::as_str), Some("faster than plain, as by hand"));
        assert_eq!(wanting(1.05).len(), 4);
        // Only what is random is held against what is done by hand.
        assert_eq!(met(&figures(false, &of(0.85))).len(), 3);
    }

    #[test]
    fn the_best_other_is_the_fastest() {
        use Kind::{Other, Plain, Ream};
        let all = [(Plain, "plain", 1.0), (Ream, "Ream", 0.9), (Other, "slow", 1.0), (Other, "fast", 0.8)];
        let mut figures = figures(false, &all);
        assert_eq!(met(&figures)[1], ("≤ 1.02 × fast, the best other".to_owned(), Some(false)));
        figures.times[3].seconds = Err("not installed".into());
        assert_eq!(met(&figures)[1], ("≤ 1.02 × slow, the best other".to_owned(), Some(true)));
        figures.times.truncate(2);
        assert_eq!(met(&figures)[1], ("≤ 1.02 × the best other".to_owned(), None));
    }

    #[test]
    fn one_slow_round_of_many_changes_nothing() {
        let mut figures = figures(false, &[(Kind::Plain, "plain", 1.0), (Kind::Ream, "Ream", 1.0)]);
        if let Ok(seconds) = &mut figures.times[1].seconds {
            seconds[3] = 40.0;
        }
        assert_eq!(met(&figures)[0].1, Some(true));
    }
}
