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

/// The median of a few paired ratios, and an interval that holds the true one with a probability of 95 % at least, whatever
/// the ratios' distribution: from the k-th smallest to the k-th largest of them, k as large as the throws of as many coins
/// allow. (Resampling, as [`interval`] does, is too sure of itself below some fifteen.) `None` for fewer than six.
pub fn exact_interval(ratios: &[f64]) -> Option<Spread> {
    let count = ratios.len();
    // The probability that all of these throws are heads, that one is not, that two are not.
    let mut exactly = 0.5f64.powi(i32::try_from(count).ok()?);
    let (mut at_most, mut excluded) = (0.0, 0);
    while excluded < count {
        at_most += exactly;
        if at_most > 0.025 {
            break;
        }
        exactly *= (count - excluded) as f64 / (excluded + 1) as f64;
        excluded += 1;
    }
    let place = excluded.checked_sub(1)?;
    let mut sorted = ratios.to_vec();
    sorted.sort_by(f64::total_cmp);
    Some(Spread { low: *sorted.get(place)?, middle: median(ratios), high: *sorted.get(count - 1 - place)? })
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

    /// Which order statistics bound the median: the tables of the sign test.
    #[test]
    fn exact_intervals_of_a_few() {
        for (count, places) in [(5, None), (6, Some((1, 6))), (8, Some((1, 8))), (9, Some((2, 8))), (20, Some((6, 15)))]
        {
            let mut ratios: Vec<f64> = (1..=count).map(f64::from).collect();
            ratios.rotate_left(2);
            let found = exact_interval(&ratios).map(|found| (found.low as i32, found.high as i32));
            assert_eq!(found, places, "{count}");
        }
        // One that is far off moves nothing.
        let spread = exact_interval(&[0.8, 0.81, 0.79, 0.8, 9.0, 0.82, 0.8, 0.79, 0.8]).unwrap();
        assert!(spread.high < 0.83 && spread.low == 0.79 && spread.middle == 0.8);
        assert_eq!(exact_interval(&[]), None);
        assert!(exact_interval(&vec![1.0; 1000]).is_some());
    }

    /// Of many samples without a difference few are to show one.
    #[test]
    fn exact_intervals_are_seldom_wrong() {
        let mut random = Random(5);
        let mut wrong = 0;
        for _ in 0..2000 {
            // The median of the product of one number and another's root is 1 - √0.5. They are skewed, as times are.
            let ratios: Vec<f64> = (0..9).map(|_| random.unit() * random.unit().sqrt()).collect();
            let true_median = 1.0 - 0.5f64.sqrt();
            let spread = exact_interval(&ratios).unwrap();
            wrong += usize::from(spread.low > true_median || spread.high < true_median);
        }
        // 78 on average; three standard deviations more are allowed for.
        assert!(wrong <= 105, "{wrong} of 2000");
    }
}
