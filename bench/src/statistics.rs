//! Medians, spreads, and intervals by resampling.

use crate::content::Random;

/// The value below which this share of the values lies (0.5: the median), between neighbours by proportion; 0 for none.
pub fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let place = share * sorted.len().saturating_sub(1) as f64;
    let low = sorted.get(place as usize).copied().unwrap_or(0.0);
    let high = sorted.get(place as usize + 1).copied().unwrap_or(low);
    low + (high - low) * place.fract()
}

/// The median.
pub fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// A value with its spread over rounds.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Spread {
    /// The 10 % quantile.
    pub low: f64,
    /// The median.
    pub middle: f64,
    /// The 90 % quantile.
    pub high: f64,
}

impl Spread {
    /// Of these values.
    pub fn of(values: &[f64]) -> Spread {
        Spread { low: quantile(values, 0.1), middle: median(values), high: quantile(values, 0.9) }
    }
}

/// The median of paired ratios and its 95 % interval, by 10 000 resamplings of the pairs.
pub fn interval(ratios: &[f64]) -> Spread {
    if ratios.is_empty() {
        return Spread::default();
    }
    let mut random = Random(11);
    let mut medians = Vec::with_capacity(10_000);
    let mut sample = vec![0.0; ratios.len()];
    for _ in 0..10_000 {
        sample.fill_with(|| ratios[random.below(ratios.len() as u64) as usize]);
        medians.push(median(&sample));
    }
    Spread { low: quantile(&medians, 0.025), middle: median(ratios), high: quantile(&medians, 0.975) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_a_known_list() {
        let values = [5.0, 1.0, 3.0, 2.0, 4.0];
        assert_eq!(median(&values), 3.0);
        assert_eq!(quantile(&values, 0.0), 1.0);
        assert_eq!(quantile(&values, 1.0), 5.0);
        assert_eq!(quantile(&values, 0.125), 1.5);
        assert_eq!(median(&[]), 0.0);
    }

    #[test]
    fn the_interval_holds_the_median_and_shrinks_with_the_noise() {
        let noisy: Vec<f64> = (0..21).map(|i| 1.0 + f64::from(i % 7) * 0.1).collect();
        let calm: Vec<f64> = (0..21).map(|i| 1.3 + f64::from(i % 7) * 0.001).collect();
        let (noisy, calm) = (interval(&noisy), interval(&calm));
        assert!(noisy.low <= noisy.middle && noisy.middle <= noisy.high);
        assert!(calm.high - calm.low < noisy.high - noisy.low);
    }
}
