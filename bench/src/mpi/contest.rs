//! One program of MPI in turns of Ream's, without turns, with enough memory and on swap, round by round.

use super::job::{Job, Took, same};
use super::{RANKS, TENTHS, words};
use crate::interrupt::INTERRUPTED;
use crate::pages::order;
use crate::swap::Swap;
use std::path::PathBuf;
use std::time::Duration;

/// The place of swap among the ways.
const SWAP: usize = 3;

/// A program, MiB of a rank, and rounds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    /// Its name.
    pub(crate) name: &'static str,
    /// MiB of each rank.
    pub(crate) mebibytes: u64,
    /// Its own rounds.
    pub(crate) rounds: u64,
}

impl Size {
    /// Bytes of all ranks.
    pub(crate) fn data(self) -> u64 {
        (self.mebibytes * RANKS) << 20
    }

    /// The budget that goes with them.
    pub(crate) fn memory(self) -> u64 {
        self.data() * 10 / TENTHS
    }

    /// What a cgroup holds that has the budget and beside it what the launcher, the ranks and MPI take by themselves: as
    /// much as a job with next to no data held at most, measured in the cgroup. Ream's budget is for the ranks' managed
    /// memory alone. Where the kernel keeps no maximum it is 12 MiB a rank.
    ///
    /// # Errors
    /// That job did not end well, or the cgroup cannot be limited.
    pub(crate) fn limit(self, job: &Job, swap: &Swap) -> Result<u64, String> {
        let words = words(self.name, 1, 1);
        // Files that nobody has read yet would count, too.
        job.run(RANKS, &words, None, None)?;
        job.run(RANKS, &words, None, Some(&swap.entrance()))?;
        let limit = self.memory() + beside(swap.most_used());
        swap.limit(limit)?;
        Ok(limit)
    }
}

/// What MPI takes beside the budget, by what a job without data held at most, if that is known.
fn beside(most_used: Option<u64>) -> u64 {
    most_used.unwrap_or((RANKS * 12) << 20)
}

/// What is to be run.
pub(crate) struct Contest<'a> {
    /// Where.
    pub(crate) job: &'a Job,
    /// What.
    pub(crate) size: Size,
    /// Rounds that count.
    pub(crate) rounds: usize,
    /// Options of turns.
    pub(crate) turns: Vec<String>,
    /// Options without turns.
    pub(crate) none: Vec<String>,
    /// The entrance of a cgroup, for swap, limited by [`Size::limit`].
    pub(crate) group: Option<PathBuf>,
    /// How long a run without turns, and one on swap, may take; it then counts as that long.
    pub(crate) patience: Duration,
    /// So many of the ways (plain, turns, no turns) are run once before, which does not count.
    pub(crate) warm: usize,
}

/// What it came to: plain, turns, no turns, swap.
#[derive(Default)]
pub(crate) struct Came {
    /// Seconds, one a round.
    pub(crate) seconds: [Vec<f64>; 4],
    /// Processor seconds of the whole job, one a round that was not ended.
    pub(crate) cpu: [Vec<f64>; 4],
    /// MiB in RAM at most, as [`Took`] has them.
    pub(crate) mebibytes: [Vec<f64>; 4],
    /// Whether one was ended.
    pub(crate) late: [bool; 4],
    /// Pages in RAM at most in turns, as a share of the budget.
    pub(crate) peak: f64,
    /// Why there are no figures of swap, or no more.
    pub(crate) no_swap: Option<String>,
}

impl Contest<'_> {
    /// Runs everything in turns. `progress` hears how many of how many runs are done, `more` is asked before each round
    /// but the first.
    ///
    /// # Errors
    /// Plain or turns did not end well, or another result came.
    pub(crate) fn measure(
        &self,
        progress: &mut dyn FnMut(usize, usize),
        more: &dyn Fn(usize) -> bool,
    ) -> Result<Came, String> {
        let name = self.size.name;
        let words = words(name, self.size.mebibytes, self.size.rounds);
        let mut came = Came::default();
        let ways: &[usize] = if self.group.is_some() { &[0, 1, 2, 3] } else { &[0, 1, 2] };
        let mut first: Option<Took> = None;
        for round in 0..=self.rounds {
            if round > 1 && !more(round) {
                break;
            }
            let order = order(round, ways.len()).into_iter().filter_map(|place| ways.get(place).copied());
            for (turn, place) in order.enumerate() {
                progress(round * ways.len() + turn, (self.rounds + 1) * ways.len());
                let warms = round == 0;
                if warms && place >= self.warm || place == SWAP && came.no_swap.is_some() {
                    continue;
                }
                let run = |limit, under: Option<&Vec<String>>, group| {
                    self.job.run_within(limit, RANKS, &words, under.map(Vec::as_slice), group)
                };
                let took = match place {
                    0 => run(self.job.limit, None, None),
                    1 => run(self.job.limit, Some(&self.turns), None),
                    2 => run(self.patience, Some(&self.none), None),
                    _ => run(self.patience, None, self.group.as_deref()),
                };
                match took {
                    Ok(took) => {
                        if let Some(first) = &first {
                            same(name, first, &took)?;
                        }
                        if !warms {
                            came.seconds[place].push(took.seconds);
                            came.cpu[place].push(took.cpu);
                            came.mebibytes[place].push(took.peak);
                        }
                        if place == 1 {
                            let number = |key: &str| took.summary[key].as_f64().unwrap_or(f64::NAN);
                            came.peak = came.peak.max(number("peak_resident") / number("budget"));
                        }
                        first.get_or_insert(took);
                    }
                    // It takes at least as long.
                    Err(why) if place > 1 && why.starts_with("took longer") => {
                        came.late[place] = true;
                        if !warms {
                            came.seconds[place].push(self.patience.as_secs_f64());
                        }
                    }
                    // The kernel ends a rank when it finds no memory fast enough, swap or not; the launcher says so in many ways.
                    Err(why) if place == SWAP && why != INTERRUPTED => {
                        let why = why.split(", said").next().unwrap_or_default().to_owned();
                        came.no_swap =
                            Some(format!("did not end well ({why}): for want of memory in its cgroup, likely"));
                        for values in [&mut came.seconds, &mut came.cpu, &mut came.mebibytes] {
                            values[SWAP].clear();
                        }
                    }
                    Err(why) => return Err(format!("{name}: {why}")),
                }
            }
        }
        Ok(came)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swap_has_what_mpi_takes() {
        assert_eq!((beside(Some(60 << 20)), beside(None)), (60 << 20, 144 << 20));
    }
}
