//! Where values lie on a line, and which of them are named: from zero in equal steps, or by ratios around 1.

use crate::all::table::number;

/// A scale along a line.
pub struct Axis {
    start: f64,
    end: f64,
    low: f64,
    high: f64,
    ratios: bool,
    ticks: Vec<f64>,
}

/// Least distance of two names.
const APART: f64 = 34.0;

impl Axis {
    /// From zero to a little beyond the largest value, along a line from `start` to `end`.
    pub fn from_zero(most: f64, start: f64, end: f64) -> Axis {
        let most = if most > 0.0 && most.is_finite() { most } else { 1.0 };
        let rough = most / 5.0;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|times| times * power).find(|step| *step >= rough * 0.999);
        let step = step.unwrap_or(rough);
        let count = (most / step).ceil().max(1.0);
        let ticks = (0..=count as u32).map(|index| f64::from(index) * step).collect();
        Axis { start, end, low: 0.0, high: count * step, ratios: false, ticks }
    }

    /// Of ratios, so that twice and half are equally far from 1, which is always on it.
    pub fn of_ratios(values: impl Iterator<Item = f64>, start: f64, end: f64) -> Axis {
        let good = values.filter(|value| value.is_finite() && *value > 0.0);
        let (low, high) = good.fold((0.97f64, 1.03f64), |(low, high), value| (low.min(value), high.max(value)));
        let (low, high) = (low / 1.02, high * 1.02);
        let mut axis = Axis { start, end, low, high, ratios: true, ticks: vec![1.0] };
        let steps = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0].map(|step| {
            let first = (low / step).ceil() as u64;
            (first.max(1)..).map(|index| index as f64 * step).take_while(|tick| *tick <= high).take(40).collect()
        });
        let powers = |mantissas: &[f64]| -> Vec<f64> {
            let all = (-6..7).flat_map(|power| mantissas.iter().map(move |mantissa| mantissa * 10f64.powi(power)));
            all.filter(|tick| (low..=high).contains(tick)).collect()
        };
        let coarse: [Vec<f64>; 3] = [powers(&[1.0, 2.0, 5.0]), powers(&[1.0, 3.0]), powers(&[1.0])];
        let fits = |ticks: &Vec<f64>| {
            let apart = |pair: &[f64]| (axis.at(pair[1]) - axis.at(pair[0])).abs() >= APART;
            ticks.len() >= 2
                && ticks.len() <= 9
                && ticks.iter().any(|tick| (tick - 1.0).abs() < 1e-9)
                && ticks.windows(2).all(apart)
        };
        if let Some(ticks) = steps.into_iter().chain(coarse).find(fits) {
            axis.ticks = ticks;
        }
        axis
    }

    /// Where a value lies; beyond the ends, at them.
    pub fn at(&self, value: f64) -> f64 {
        let share = match self.ratios {
            true => (value.max(1e-9) / self.low).ln() / (self.high / self.low).ln(),
            false => (value - self.low) / (self.high - self.low),
        };
        self.start + (self.end - self.start) * share.clamp(0.0, 1.0)
    }

    /// Places that are named, and their names.
    pub fn ticks(&self) -> Vec<(f64, String)> {
        self.ticks.iter().map(|tick| (self.at(*tick), name(*tick))).collect()
    }
}

/// Without zeros behind.
fn name(value: f64) -> String {
    if value >= 1000.0 {
        return number(value);
    }
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(axis: &Axis) -> Vec<String> {
        axis.ticks().into_iter().map(|(_, name)| name).collect()
    }

    #[test]
    fn an_axis_begins_at_zero_and_ends_above_the_largest() {
        let axis = Axis::from_zero(0.83, 0.0, 100.0);
        assert_eq!(names(&axis), ["0", "0.2", "0.4", "0.6", "0.8", "1"]);
        assert!((axis.at(0.5) - 50.0).abs() < 1e-9 && axis.at(9.0) == 100.0);
        assert_eq!(names(&Axis::from_zero(1800.0, 0.0, 1.0)).last().unwrap(), "2000");
        assert_eq!(names(&Axis::from_zero(0.0, 0.0, 1.0)).len(), 6);
    }

    #[test]
    fn ratios_are_named_as_finely_as_fits_and_hold_one() {
        for (low, high) in [(0.99, 1.01), (0.8, 1.3), (0.3, 4.0), (0.01, 300.0), (1.0, 1.0)] {
            let axis = Axis::of_ratios([low, high].into_iter(), 0.0, 336.0);
            let names = names(&axis);
            assert!(names.contains(&"1".to_owned()) && names.len() >= 2 && names.len() <= 9, "{low} {high}: {names:?}");
        }
        let axis = Axis::of_ratios([0.25, 4.0].into_iter(), 0.0, 100.0);
        assert!((axis.at(1.0) - 50.0).abs() < 1e-6 && (axis.at(2.0) - 50.0 - (50.0 - axis.at(0.5))).abs() < 1e-6);
    }
}
