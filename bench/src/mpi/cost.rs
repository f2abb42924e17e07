//! What paging costs on swap, as a multiple of what it costs in turns: what either takes beyond a run with enough memory.

use crate::statistics::Spread;
use std::fmt;

/// What two runs of the same differ by without a reason, as a share: no difference below it is divided by.
const NOISE: f64 = 0.02;

/// The multiple, by rounds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Cost {
    /// Neither costs enough to be told from noise.
    NotMeasurable,
    /// So many times as much.
    Times(f64),
    /// More than that: turns cost too little to be told from noise, or swap was ended.
    Over(f64),
}

impl Cost {
    /// From the seconds of each round; `late` says that swap was ended in one. `None` when there are none.
    pub(crate) fn of(swap: &[f64], turns: &[f64], plain: &[f64], late: bool) -> Option<Cost> {
        let rounds = swap.iter().zip(turns).zip(plain);
        let beyond = rounds.map(|((swap, turns), plain)| (swap - plain, turns - plain, plain * NOISE));
        let mut costs: Vec<(f64, bool)> = Vec::new();
        let mut any = false;
        for (swap, turns, noise) in beyond {
            any = true;
            if swap > noise || turns > noise {
                costs.push((swap / turns.max(noise), turns < noise));
            }
        }
        if costs.is_empty() {
            return any.then_some(Cost::NotMeasurable);
        }
        let middle = Spread::of(&costs.iter().map(|(times, _)| *times).collect::<Vec<_>>()).middle;
        // One that is above the middle already stays there, however much more it is.
        let over = late || costs.iter().any(|(times, over)| *over && *times <= middle);
        Some(if over { Cost::Over(middle) } else { Cost::Times(middle) })
    }

    /// The multiple, or what it is at least.
    pub(crate) fn times(self) -> Option<f64> {
        match self {
            Cost::NotMeasurable => None,
            Cost::Times(times) | Cost::Over(times) => Some(times),
        }
    }

    /// Whether it is as much as it must be; what cannot be measured falls short of nothing.
    pub(crate) fn is_at_least(self, times: f64) -> bool {
        self.times().is_none_or(|own| own >= times)
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cost::NotMeasurable => f.write_str("paging costs nothing measurable in turns or on swap"),
            Cost::Times(times) => write!(f, "paging costs swap {times:.1} times as much"),
            Cost::Over(times) => write!(f, "paging costs swap over {times:.1} times as much"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_divided_by_noise() {
        let of = |swap: &[f64], turns: &[f64]| Cost::of(swap, turns, &vec![10.0; swap.len()], false);
        assert_eq!(of(&[30.0, 50.0, 30.0], &[15.0; 3]), Some(Cost::Times(4.0)));
        // Turns are no slower than plain: 20 s beyond it, over the 0.2 s that one could see.
        assert_eq!(of(&[30.0; 3], &[9.9, 10.0, 10.1]), Some(Cost::Over(100.0)));
        assert_eq!(of(&[30.0; 3], &[15.0, 14.0, 10.0]), Some(Cost::Times(5.0)));
        assert_eq!(of(&[30.0; 3], &[15.0, 10.0, 10.0]), Some(Cost::Over(100.0)));
        assert_eq!(of(&[10.1, 9.0], &[10.1, 9.0]), Some(Cost::NotMeasurable));
        assert_eq!(of(&[], &[10.0]), None);
        // Swap is no slower, and turns are.
        let cost = of(&[10.0], &[15.0]).unwrap();
        assert!(!cost.is_at_least(4.0) && cost == Cost::Times(0.0));
        assert!(Cost::NotMeasurable.is_at_least(4.0));
    }

    #[test]
    fn what_was_ended_took_longer() {
        let cost = Cost::of(&[30.0], &[15.0], &[10.0], true).unwrap();
        assert_eq!(cost.to_string(), "paging costs swap over 4.0 times as much");
    }
}
