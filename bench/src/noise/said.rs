//! What the program that looks for noise says, and what that comes to.

use serde_json::{Value, json};

/// Figures of one run.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Said {
    /// Processors that were looked at, at the same time.
    pub processors: usize,
    /// Nanoseconds of each piece of fixed work.
    pub quanta: Vec<f64>,
    /// Nanoseconds that clocks were looked at, over all processors.
    pub looked: f64,
    /// Gaps that were detours.
    pub detours: u64,
    /// Nanoseconds that were lost in them.
    pub lost_ns: f64,
    /// Nanoseconds of each detour, the first ones of each processor.
    pub lengths: Vec<f64>,
    /// Nanoseconds of the longest.
    pub longest: f64,
    /// Processors that other threads of the process took.
    pub others: f64,
    /// Nanoseconds of system calls.
    pub calls: Vec<(String, f64)>,
}

impl Said {
    /// Nanoseconds of a piece of work on average.
    pub fn work(&self) -> f64 {
        self.quanta.iter().sum::<f64>() / self.quanta.len().max(1) as f64
    }

    /// The share of time lost to detours.
    pub fn lost(&self) -> f64 {
        self.lost_ns / self.looked.max(1.0)
    }

    /// Detours in a second on a processor.
    pub fn rate(&self) -> f64 {
        self.detours as f64 * 1e9 / self.looked.max(1.0)
    }

    /// Nanoseconds of a call; 0 when it was not measured.
    pub fn call(&self, name: &str) -> f64 {
        self.calls.iter().find(|(own, _)| own == name).map_or(0.0, |(_, ns)| *ns)
    }

    /// As JSON.
    pub fn json(&self) -> Value {
        let calls: serde_json::Map<String, Value> =
            self.calls.iter().map(|(name, ns)| (name.clone(), json!(ns))).collect();
        let one = std::slice::from_ref(self);
        let histogram = |of: Vec<(String, f64)>| of.into_iter().map(|(name, value)| json!([name, value]));
        json!({
            "processors": self.processors, "work_ns": self.work(), "quanta_ns": self.quanta,
            "lost_share": self.lost(), "detours_per_second": self.rate(), "longest_detour_ns": self.longest,
            "detour_lengths_ns": self.lengths, "other_threads_processors": self.others, "calls_ns": calls,
            "histogram_work": histogram(excess(one)).collect::<Vec<_>>(),
            "histogram_detours": histogram(lengths(one)).collect::<Vec<_>>(),
        })
    }
}

/// Reads what the program said.
///
/// # Errors
/// It is not all there.
pub fn understand(text: &str) -> Result<Said, String> {
    let mut said = Said::default();
    let mut verified = false;
    for line in text.lines() {
        let bad = || format!("said '{}'", line.chars().take(60).collect::<String>());
        let mut words = line.split_whitespace();
        let kind = words.next().unwrap_or_default();
        if kind == "verified" {
            verified = true;
            continue;
        }
        if kind == "call" {
            let name = words.next().ok_or_else(bad)?;
            let ns = words.next().and_then(|word| word.parse().ok()).ok_or_else(bad)?;
            said.calls.push((name.to_owned(), ns));
            continue;
        }
        let numbers: Vec<f64> = words.map(str::parse).collect::<Result<_, _>>().map_err(|_| bad())?;
        match (kind, numbers.as_slice()) {
            ("quanta", [_processor, quanta @ ..]) => {
                said.processors += 1;
                said.quanta.extend_from_slice(quanta);
            }
            ("detours", [_processor, looked, _shortest, _threshold, count, lost, longest, lengths @ ..]) => {
                said.looked += looked;
                said.detours += *count as u64;
                said.lost_ns += lost;
                said.longest = said.longest.max(*longest);
                said.lengths.extend_from_slice(lengths);
            }
            ("others", [share]) => said.others = *share,
            _ => return Err(bad()),
        }
    }
    match verified && !said.quanta.is_empty() && said.looked > 0.0 && !said.calls.is_empty() {
        true => Ok(said),
        false => Err("said too little".into()),
    }
}

/// Upper ends of the classes of work: shares above the shortest piece.
const ABOVE: [f64; 9] = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, f64::INFINITY];

/// By how much pieces of work took longer than the shortest of all these runs: percent of pieces in each class.
pub fn excess(runs: &[Said]) -> Vec<(String, f64)> {
    let all: Vec<f64> = runs.iter().flat_map(|said| said.quanta.iter().copied()).collect();
    let shortest = all.iter().copied().fold(f64::INFINITY, f64::min);
    let mut from = 0.0;
    let mut classes = Vec::new();
    for to in ABOVE {
        let within = |took: &&f64| (from..to).contains(&(**took / shortest - 1.0));
        let name = if to.is_finite() { format!("{} to {} %", from * 100.0, to * 100.0) } else { "more".into() };
        classes.push((name, all.iter().filter(within).count() as f64 * 100.0 / all.len().max(1) as f64));
        from = to;
    }
    classes
}

/// Classes of lengths double from 250 ns on.
const SHORTEST: f64 = 250.0;
const CLASSES: u32 = 17;

/// How many detours of each length there are in a second on a processor.
pub fn lengths(runs: &[Said]) -> Vec<(String, f64)> {
    let kept: usize = runs.iter().map(|said| said.lengths.len()).sum();
    let (all, looked) = runs.iter().fold((0, 0.0), |(all, looked), said| (all + said.detours, looked + said.looked));
    // Where not all lengths were kept, those that were stand for the others.
    let each = all as f64 / kept.max(1) as f64 * 1e9 / f64::max(looked, 1.0);
    let micro = |ns: f64| if ns < 1000.0 { format!("{}", ns / 1000.0) } else { format!("{:.0}", ns / 1000.0) };
    let class = |index: u32| {
        let (from, to) = (SHORTEST * f64::from(1u32 << index) / 2.0, SHORTEST * f64::from(1u32 << index));
        let (from, to) = (if index == 0 { 0.0 } else { from }, if index + 1 == CLASSES { f64::INFINITY } else { to });
        let within = |length: &&f64| (from..to).contains(*length);
        let count = runs.iter().flat_map(|said| &said.lengths).filter(within).count();
        let name = match (index, to.is_finite()) {
            (0, _) => format!("below {} µs", micro(to)),
            (_, true) => format!("{} to {} µs", micro(from), micro(to)),
            _ => "longer".into(),
        };
        (name, count as f64 * each)
    };
    (0..CLASSES).map(class).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "quanta 0 1000000 1030000\ndetours 0 500000000 20 180 4 9000 8000 300 8000\nquanta 1 1000000 1600000\n\
                        detours 1 500000000 20 180 0 0 0\nothers 0.0005\ncall getppid 170.5\nverified\n";

    #[test]
    fn what_is_said_is_summed_over_processors() {
        let said = understand(GOOD).unwrap();
        assert_eq!((said.processors, said.quanta.len(), said.detours), (2, 4, 4));
        assert!((said.work() - 1_157_500.0).abs() < 1e-6 && (said.rate() - 4.0).abs() < 1e-9);
        assert!((said.lost() - 9e-6).abs() < 1e-12 && said.call("getppid") == 170.5 && said.call("x") == 0.0);
    }

    #[test]
    fn what_is_not_all_there_is_refused() {
        for (old, new) in [("verified\n", ""), ("call getppid 170.5\n", ""), ("0.0005", "x"), ("quanta", "qaunta")] {
            assert!(understand(&GOOD.replace(old, new)).is_err(), "{old}");
        }
        assert!(understand("").is_err());
    }

    #[test]
    fn classes_hold_everything_once() {
        let said = [understand(GOOD).unwrap()];
        let excess = excess(&said);
        assert!((excess.iter().map(|(_, share)| share).sum::<f64>() - 100.0).abs() < 1e-9);
        assert!((excess[0].1 - 50.0).abs() < 1e-9 && excess.last().unwrap().1 == 25.0);
        let lengths = lengths(&said);
        // Two of four were kept, and stand for all.
        assert!((lengths.iter().map(|(_, rate)| rate).sum::<f64>() - 4.0).abs() < 1e-9, "{lengths:?}");
        assert_eq!(lengths[0].0, "below 0.25 µs");
    }
}
