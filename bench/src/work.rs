//! The words that the runner and its worker exchange: one line a command, one line a reply.

use std::fmt;
use std::str::FromStr;

/// How a slice of work goes over the data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Walk {
    /// In order, reading.
    Sequential,
    /// In order, overwriting.
    Overwrite,
    /// In order, reading and changing.
    Change,
    /// From the end to the beginning, reading.
    Reverse,
    /// `pages` pages in a row, then on to the next multiple of `step` pages; each round one place further.
    Strided {
        /// Pages read in a row.
        pages: u64,
        /// Pages from one start to the next.
        step: u64,
    },
    /// Four readers in order, a quarter of the data apart, a page each in turn.
    Streams,
    /// As many threads as the slice has, each in order over a part of its own, reading.
    Parts,
    /// The first so many pages in order, again and again, reading.
    Rounds(u64),
    /// Pages at random, reading.
    Random,
    /// Pages at random, changing.
    RandomChange,
    /// Pages at random, some far more often than others.
    Zipf,
    /// Pages at random out of the first so many only.
    Hot(u64),
    /// 64 MiB in order, then 500 pages at random, and so on.
    Phases,
    /// In order, reading a word of every cache line.
    Lines,
    /// In order, overwriting what was discarded just before, 2 MiB at a time: nothing has to be read.
    Renew,
}

impl Walk {
    /// It writes, so that somebody must look afterwards.
    pub fn writes(self) -> bool {
        matches!(self, Walk::Overwrite | Walk::Change | Walk::RandomChange | Walk::Renew)
    }
}

/// One slice of work.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Slice {
    /// How.
    pub walk: Walk,
    /// By how many threads.
    pub threads: u64,
    /// For how long; 0: as long as `accesses` take.
    pub seconds: f64,
    /// How many pages all threads together; 0: as many as time allows.
    pub accesses: u64,
}

impl fmt::Display for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, a, b) = match self.walk {
            Walk::Sequential => ("sequential", 0, 0),
            Walk::Overwrite => ("overwrite", 0, 0),
            Walk::Change => ("change", 0, 0),
            Walk::Reverse => ("reverse", 0, 0),
            Walk::Strided { pages, step } => ("strided", pages, step),
            Walk::Streams => ("streams", 0, 0),
            Walk::Parts => ("parts", 0, 0),
            Walk::Rounds(pages) => ("rounds", pages, 0),
            Walk::Random => ("random", 0, 0),
            Walk::RandomChange => ("random-change", 0, 0),
            Walk::Zipf => ("zipf", 0, 0),
            Walk::Hot(pages) => ("hot", pages, 0),
            Walk::Phases => ("phases", 0, 0),
            Walk::Lines => ("lines", 0, 0),
            Walk::Renew => ("renew", 0, 0),
        };
        write!(f, "slice {name} {a} {b} {} {} {}", self.threads, self.seconds, self.accesses)
    }
}

impl FromStr for Slice {
    type Err = String;

    fn from_str(line: &str) -> Result<Slice, String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let bad = || format!("not a slice: {line}");
        let &["slice", name, a, b, threads, seconds, accesses] = words.as_slice() else { return Err(bad()) };
        let number = |word: &str| word.parse::<u64>().map_err(|_| bad());
        let walk = match name {
            "sequential" => Walk::Sequential,
            "overwrite" => Walk::Overwrite,
            "change" => Walk::Change,
            "reverse" => Walk::Reverse,
            "strided" => Walk::Strided { pages: number(a)?, step: number(b)? },
            "streams" => Walk::Streams,
            "parts" => Walk::Parts,
            "rounds" => Walk::Rounds(number(a)?),
            "random" => Walk::Random,
            "random-change" => Walk::RandomChange,
            "zipf" => Walk::Zipf,
            "hot" => Walk::Hot(number(a)?),
            "phases" => Walk::Phases,
            "lines" => Walk::Lines,
            "renew" => Walk::Renew,
            _ => return Err(bad()),
        };
        let seconds = seconds.parse().map_err(|_| bad())?;
        Ok(Slice { walk, threads: number(threads)?, seconds, accesses: number(accesses)? })
    }
}

/// What a slice came to.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Done {
    /// Pages accessed.
    pub accesses: u64,
    /// Wall time.
    pub seconds: f64,
    /// Processor time of the whole process, its pager included.
    pub cpu_seconds: f64,
    /// Major faults, which count what kernel swap had to read.
    pub major_faults: u64,
    /// KiB that the process had in RAM at most, from its start on.
    pub peak_kib: u64,
    /// Ream's own counters over the slice; zero without Ream.
    pub ream: ReamCounts,
}

/// Differences of Ream's counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReamCounts {
    /// Faults on pages that had to be read from the store.
    pub refaults: u64,
    /// Faults on evicted pages that were still in staging.
    pub rescues: u64,
    /// Faults on pages that had been read ahead.
    pub ahead_hits: u64,
    /// Reads from the store.
    pub reads: u64,
    /// Bytes read.
    pub bytes_in: u64,
    /// Bytes written.
    pub bytes_out: u64,
}

impl fmt::Display for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let r = &self.ream;
        write!(f, "done {} {} {} {}", self.accesses, self.seconds, self.cpu_seconds, self.major_faults)?;
        write!(f, " {}", self.peak_kib)?;
        write!(f, " {} {} {} {} {} {}", r.refaults, r.rescues, r.ahead_hits, r.reads, r.bytes_in, r.bytes_out)
    }
}

impl FromStr for Done {
    type Err = String;

    fn from_str(line: &str) -> Result<Done, String> {
        let numbers: Option<Vec<f64>> =
            line.strip_prefix("done ").and_then(|rest| rest.split(' ').map(|word| word.trim().parse().ok()).collect());
        let Some(
            &[accesses, seconds, cpu_seconds, major, peak, refaults, rescues, ahead_hits, reads, bytes_in, bytes_out],
        ) = numbers.as_deref()
        else {
            return Err(format!("the worker said: {line}"));
        };
        let [refaults, rescues, ahead_hits, reads, bytes_in, bytes_out] =
            [refaults, rescues, ahead_hits, reads, bytes_in, bytes_out].map(|number| number as u64);
        let ream = ReamCounts { refaults, rescues, ahead_hits, reads, bytes_in, bytes_out };
        let (accesses, major_faults, peak_kib) = (accesses as u64, major as u64, peak as u64);
        Ok(Done { accesses, seconds, cpu_seconds, major_faults, peak_kib, ream })
    }
}

/// How long single faults took, in microseconds.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Times {
    /// Half of them took no longer.
    pub p50: f64,
    /// Nine of ten.
    pub p90: f64,
    /// 99 of a hundred.
    pub p99: f64,
    /// How many were timed.
    pub count: u64,
    /// Seconds of processor time of the process meanwhile.
    pub cpu_seconds: f64,
    /// KiB that it had in RAM at most, from its start on.
    pub peak_kib: u64,
}

impl Times {
    /// Of these times in microseconds.
    pub fn of(times: &[f64]) -> Times {
        let at = |share| crate::statistics::quantile(times, share);
        Times { p50: at(0.5), p90: at(0.9), p99: at(0.99), count: times.len() as u64, ..Times::default() }
    }
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "times {} {} {} {}", self.p50, self.p90, self.p99, self.count)?;
        write!(f, " {} {}", self.cpu_seconds, self.peak_kib)
    }
}

impl FromStr for Times {
    type Err = String;

    fn from_str(line: &str) -> Result<Times, String> {
        let numbers: Option<Vec<f64>> =
            line.strip_prefix("times ").and_then(|rest| rest.split(' ').map(|word| word.trim().parse().ok()).collect());
        match numbers.as_deref() {
            Some(&[p50, p90, p99, count, cpu_seconds, peak]) => {
                Ok(Times { p50, p90, p99, count: count as u64, cpu_seconds, peak_kib: peak as u64 })
            }
            _ => Err(format!("the worker said: {line}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_and_replies_survive_the_line() {
        let walk = Walk::Strided { pages: 4, step: 64 };
        let slice = Slice { walk, threads: 16, seconds: 0.25, accesses: 0 };
        assert_eq!(slice.to_string().parse(), Ok(slice));
        let ream = ReamCounts { refaults: 9, bytes_in: 1 << 40, ..ReamCounts::default() };
        let done = Done { accesses: 5, seconds: 1.5, cpu_seconds: 0.5, major_faults: 7, peak_kib: 3, ream };
        assert_eq!(done.to_string().parse(), Ok(done));
        let times = Times::of(&[3.0, 1.0, 2.0]);
        assert_eq!((times.to_string().parse(), times.p50, times.count), (Ok(times), 2.0, 3));
        assert!("done 1 2".parse::<Done>().is_err());
        assert!("slice hop 0 0 1 1 1".parse::<Slice>().is_err());
    }
}
