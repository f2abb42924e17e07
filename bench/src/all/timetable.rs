//! The time that a benchmark may take, and how it is given to its steps: each gets the share of what is left that its estimate is
//! of all that are left, and does as many rounds as fit. What takes longer than was estimated takes from those that follow, all
//! alike; when nothing is left, what is running is ended and the rest left out.

use std::time::{Duration, Instant};

/// What is said of rows that there was no time for.
pub const OVER: &str = "the time limit came first; --minutes gives more";
/// The share of the limit that is kept for taking things down and writing reports.
const KEPT: f64 = 0.03;

/// When a step is to end.
#[derive(Clone, Copy, Debug, Default)]
pub struct Allotted {
    /// By then no further round is begun that would not end before; at least one round is done.
    pub until: Option<Instant>,
    /// By then whatever runs is ended.
    pub end: Option<Instant>,
}

impl Allotted {
    /// Whether the benchmark's time is over.
    pub fn over(&self) -> bool {
        self.end.is_some_and(|end| Instant::now() >= end)
    }

    /// Whether another round that takes as long as this one still ends in time.
    pub fn fits(&self, round: Duration) -> bool {
        self.until.is_none_or(|until| Instant::now() + round <= until)
    }

    /// Seconds that the step has; none when there is no limit.
    pub fn seconds(&self) -> Option<f64> {
        self.until.map(|until| until.saturating_duration_since(Instant::now()).as_secs_f64())
    }
}

/// Seconds of everything, and estimates of steps.
pub struct Timetable {
    limit: Option<f64>,
    estimates: Vec<f64>,
}

impl Timetable {
    /// For a limit in minutes, if there is one, and steps of so many seconds; 0 for those that are done.
    pub fn new(minutes: Option<f64>, estimates: Vec<f64>) -> Timetable {
        Timetable { limit: minutes.map(|minutes| minutes * 60.0 * (1.0 - KEPT)), estimates }
    }

    /// Seconds that are left after so many; none when there is no limit.
    fn left(&self, spent: f64) -> Option<f64> {
        self.limit.map(|limit| (limit - spent).max(0.0))
    }

    /// Seconds for a step, when so many were spent before it.
    fn share(&self, step: usize, spent: f64) -> Option<f64> {
        let rest: f64 = self.estimates.iter().skip(step).sum();
        let own = self.estimates.get(step).copied().unwrap_or(0.0);
        self.left(spent).map(|left| if rest > 0.0 { left * own / rest } else { left })
    }

    /// When a step that begins now, after so many seconds, is to end.
    pub fn allot(&self, step: usize, spent: f64) -> Allotted {
        let from_now = |seconds: Option<f64>| Some(Instant::now() + Duration::from_secs_f64(seconds?));
        Allotted { until: from_now(self.share(step, spent)), end: from_now(self.left(spent)) }
    }
}

/// Rounds of fixed length, of so many planned, that fit so many seconds after what goes before them; at least one.
pub fn rounds(planned: usize, before: f64, each: f64, seconds: Option<f64>) -> usize {
    match seconds {
        Some(seconds) if each > 0.0 => ((((seconds - before) / each).max(1.0)) as usize).min(planned),
        _ => planned,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::Random;

    /// Does steps by the table as the runner does, with a clock of their own; real times are estimates times a factor. Returns the
    /// seconds that it took, rounds of each step, and the longest round.
    fn simulate(minutes: f64, steps: &[(f64, usize)], factor: &mut dyn FnMut() -> f64) -> (f64, Vec<usize>, f64) {
        let table = Timetable::new(Some(minutes), steps.iter().map(|(seconds, _)| *seconds).collect());
        let (mut clock, mut done, mut longest) = (0.0, Vec::new(), 0.0f64);
        for (number, (estimate, planned)) in steps.iter().enumerate() {
            let (until, end) = (clock + table.share(number, clock).unwrap(), clock + table.left(clock).unwrap());
            let round = estimate / (*planned + 1) as f64 * factor();
            longest = longest.max(round);
            let mut rounds = 0;
            // The first does not count, and neither does one that is ended.
            for number in 0..=*planned {
                if (number > 1 && clock + round > until) || clock >= end {
                    break;
                }
                clock = f64::min(clock + round, end);
                rounds += usize::from(number > 0 && clock < end);
            }
            done.push(rounds);
        }
        (clock, done, longest)
    }

    #[test]
    fn what_is_as_estimated_is_done_whole() {
        let steps = vec![(10.0, 5); 50];
        let (seconds, rounds, _) = simulate(10.0, &steps, &mut || 1.0);
        assert!((seconds - 500.0).abs() < 1e-6 && rounds.iter().all(|rounds| *rounds == 5), "{seconds} {rounds:?}");
    }

    #[test]
    fn a_slow_machine_does_fewer_rounds_of_everything() {
        let (seconds, rounds, _) = simulate(10.0, &vec![(10.0, 5); 50], &mut || 2.5);
        assert!(seconds <= 600.0 && rounds.iter().all(|rounds| (1..5).contains(rounds)), "{seconds} {rounds:?}");
    }

    /// Whatever steps take, the limit is kept; as long as two rounds of each fit, none is left out.
    #[test]
    fn the_limit_is_kept_whatever_happens() {
        let mut random = Random(7);
        for _ in 0..2000 {
            let steps: Vec<(f64, usize)> = (0..1 + random.below(80))
                .map(|_| (0.1 + random.unit() * 300.0, 1 + random.below(9) as usize))
                .collect();
            let slow = random.unit() * 20.0;
            let mut factors = Random(random.below(1 << 40));
            let (seconds, rounds, _) = simulate(90.0, &steps, &mut || slow * (0.2 + factors.unit()));
            assert!(seconds <= 90.0 * 60.0 * (1.0 - KEPT) + 1e-6, "{seconds}");
            assert_eq!(rounds.len(), steps.len());
        }
        // Even: two rounds of each are 60 of 75 minutes, when rounds take three times as long as was thought.
        let steps = vec![(60.0, 5); 60];
        let (seconds, rounds, longest) = simulate(90.0, &steps, &mut || 3.0);
        assert!(seconds <= 5400.0 - longest && rounds.iter().all(|rounds| *rounds >= 1), "{seconds} {rounds:?}");
    }

    #[test]
    fn time_that_was_saved_goes_to_what_follows() {
        let mut factors = [0.1, 0.1, 4.0, 1.0].into_iter();
        let steps = vec![(100.0, 9); 4];
        let (seconds, rounds, _) = simulate(400.0 / 60.0 / (1.0 - KEPT), &steps, &mut || factors.next().unwrap());
        assert!(seconds <= 400.0 + 1e-9 && rounds[..2] == [9, 9] && rounds[2] >= 3 && rounds[3] == 9, "{rounds:?}");
    }

    #[test]
    fn rounds_of_fixed_length_fit() {
        assert_eq!(rounds(5, 1.0, 2.0, None), 5);
        assert_eq!(rounds(5, 1.0, 2.0, Some(100.0)), 5);
        assert_eq!(rounds(5, 1.0, 2.0, Some(7.5)), 3);
        assert_eq!(rounds(5, 1.0, 2.0, Some(0.0)), 1);
    }

    #[test]
    fn without_a_limit_everything_fits() {
        let allotted = Timetable::new(None, vec![1.0]).allot(0, 1e9);
        assert!(!allotted.over() && allotted.fits(Duration::from_secs(1 << 40)) && allotted.seconds().is_none());
        let allotted = Timetable::new(Some(1.0), vec![1.0]).allot(0, 60.0);
        assert!(allotted.over() && !allotted.fits(Duration::from_millis(1)));
    }
}
