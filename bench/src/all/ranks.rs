//! Programs of MPI whose ranks need more memory than there is, as rows of `ream bench all`: in turns of Ream's, without turns,
//! with enough memory, and on swap.

use super::arguments::{Options, Scale};
use super::ground::Ground;
use super::result::{Kind, Row, Series};
use super::timetable::Allotted;
use crate::mpi::{Came, Contest, Job, RANKS, Size, UNDER_MPICH, mpich};
use std::time::{Duration, Instant};

/// The chapter's name.
pub const CHAPTER: &str = "MPI ranks";
/// Turns are the point: what is compared is called so.
const NO_TURNS: &str = "no turns";

const MEMORY: &str = "memory of the plain run is what its ranks had at most, added up, of Ream what their pages had together, of \
                      swap what the cgroup had";

/// What a row measures.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    size: Size,
    /// Under MPICH, beside Open MPI's row.
    mpich: bool,
}

impl Program {
    /// The row's name.
    pub fn name(self) -> String {
        if self.mpich { mpich(self.size.name) } else { self.size.name.to_owned() }
    }
}

/// The programs; seconds of a row with one round. Those under MPICH are as small as a quick run's, and without swap.
pub fn programs(scale: Scale) -> Vec<(Program, f64)> {
    let of =
        |name, mebibytes, rounds, seconds| (Program { size: Size { name, mebibytes, rounds }, mpich: false }, seconds);
    let small = vec![of("pagerank", 12, 2, 16.0), of("kmeans", 16, 2, 16.0)];
    let beside = small.iter().filter(|(program, _)| UNDER_MPICH.contains(&program.size.name));
    let beside: Vec<_> = beside.map(|(program, _)| (Program { mpich: true, ..*program }, 10.0)).collect();
    let usual = match scale {
        Scale::Quick => small,
        Scale::Full => vec![
            of("pagerank", 32, 3, 55.0),
            of("kmeans", 64, 3, 45.0),
            of("sgd", 32, 1, 55.0),
            of("mttkrp", 32, 2, 45.0),
            of("contract", 32, 1, 55.0),
        ],
    };
    usual.into_iter().chain(beside).collect()
}

/// Rounds that count.
pub fn rounds(options: &Options) -> usize {
    options.rounds.unwrap_or(if options.scale == Scale::Quick { 1 } else { 2 })
}

fn what(name: &str) -> &'static str {
    match name {
        "pagerank" => "PageRank on a graph like that of the web",
        "kmeans" => "k-means: points gone through in order",
        "sgd" => "matrix factorisation by stochastic gradient descent",
        "mttkrp" => "a sparse tensor times matrices, in each of its modes",
        _ => "a graph contracted level by level, and sides brought back: memory grows and shrinks",
    }
}

/// The row, without figures.
pub fn row(program: Program) -> Row {
    let size = program.size;
    let about = format!(
        "{}; {RANKS} ranks{}, {} MiB of RAM for {} MiB of data",
        what(size.name),
        if program.mpich { " under MPICH" } else { "" },
        size.memory() >> 20,
        size.data() >> 20
    );
    Row { data: size.data() >> 20, ..Row::new(CHAPTER, &program.name(), &about) }
}

/// Measures a program; its row says itself what is not there.
///
/// # Errors
/// Plain or turns failed, another result came, or the benchmark was interrupted.
pub fn measure(
    ground: &mut Ground,
    program: Program,
    options: &Options,
    time: &Allotted,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Row, String> {
    let (mut row, size) = (row(program), program.size);
    let left = time.end.map_or(Duration::from_secs(900), |end| end.saturating_duration_since(Instant::now()));
    let found = match program.mpich {
        true => Job::under_mpich(&ground.commands, left),
        false => Job::find(None, &ground.commands, left),
    };
    let job = match found {
        Ok(job) => job,
        Err(why) => return Ok(Row { unavailable: Some(why), ..row }),
    };
    // A cgroup of this size is nobody else's.
    ground.no_swap();
    let made = match program.mpich {
        true => Err("measured under Open MPI only".to_owned()),
        false => ground.swap(size.data() * 2, size.data() * 2),
    };
    let swap = match made {
        Ok(swap) => Ok((swap.entrance(), size.limit(&job, swap)?)),
        Err(why) => Err(why),
    };
    let quick = options.scale == Scale::Quick;
    let most = if quick { 10.0 } else { 15.0f64 };
    let patience = Duration::from_secs_f64(time.seconds().map_or(most, |seconds| most.min((seconds / 4.0).max(5.0))));
    let common = [format!("--memory={}", size.memory()), format!("--store={}", ground.store.display())];
    let turns: Vec<String> = common.into_iter().chain(options.with.iter().cloned()).collect();
    let none: Vec<String> = turns.iter().cloned().chain(["--ranks-at-once=all".into()]).collect();
    let (rounds, group, warm) = (rounds(options), swap.as_ref().ok().map(|(entrance, _)| entrance.clone()), 2);
    let contest = Contest { job: &job, size, rounds, turns, none, group, patience, warm };
    let begun = Instant::now();
    let came = contest.measure(progress, &|done| time.fits(begun.elapsed() / u32::try_from(done).unwrap_or(1)));
    let most_used = match &swap {
        Ok(_) => ground.swap(size.data() * 2, size.data() * 2)?.most_used(),
        Err(_) => None,
    };
    ground.no_swap();
    let came = came?;
    let (limit, no_swap) = match swap {
        Ok((_, limit)) => (limit, came.no_swap.clone()),
        Err(why) => (0, Some(why)),
    };
    fill(&mut row, size, &came, (limit, most_used, no_swap.as_deref()), patience);
    row.notes.push(format!("ranks started by {}", job.launcher()));
    let done = row.series[0].values.len();
    if done < rounds {
        row.notes.push(format!("{done} of {rounds} rounds, for the time limit"));
    }
    Ok(row)
}

/// Series, speeds and notes.
fn fill(
    row: &mut Row,
    size: Size,
    came: &Came,
    (limit, most_used, no_swap): (u64, Option<u64>, Option<&str>),
    patience: Duration,
) {
    let memory = size.memory() >> 20;
    let ways = [
        ("plain", Kind::Plain, "as it is, with all memory that it wants".to_owned()),
        ("Ream", Kind::Ream, format!("ream run --memory {memory}M")),
        (NO_TURNS, Kind::Other, format!("ream run --memory {memory}M --ranks-at-once all")),
        (
            "swap",
            Kind::Swap,
            format!(
                "swap file; memory cgroup of {} MiB: the same {memory} and {} for MPI itself, as much as it takes without data",
                limit >> 20,
                limit.saturating_sub(size.memory()) >> 20
            ),
        ),
    ];
    for (place, (name, kind, setting)) in ways.into_iter().enumerate() {
        let absent = no_swap.filter(|_| kind == Kind::Swap).map(str::to_owned);
        let (values, cpu) = (came.seconds[place].clone(), came.cpu[place].clone());
        // A cgroup's ranks have not their most at the same time.
        let peak = match (kind, most_used) {
            (Kind::Swap, Some(most)) => vec![most as f64 / 1_048_576.0],
            (Kind::Swap, None) => Vec::new(),
            _ => came.mebibytes[place].clone(),
        };
        row.series.push(Series { values, cpu, peak, absent, ..Series::new(name, kind, &setting) });
        if came.late[place] {
            let seconds = patience.as_secs_f64();
            row.notes.push(format!("{name} was ended after {seconds:.0} s and counts as that long: it takes longer"));
        }
    }
    for over in [NO_TURNS, "swap", "plain"] {
        row.compare("Ream", over);
    }
    row.notes.push(format!("at most {:.3} of the budget in RAM", came.peak));
    row.notes.push(MEMORY.into());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_held_against_everything_else() {
        let (program, _) = programs(Scale::Quick)[0];
        let (mut row, size) = (row(program), program.size);
        let seconds = [vec![1.0], vec![2.0], vec![10.0], vec![]];
        let came = Came { seconds, late: [false, false, true, false], peak: 1.0, ..Came::default() };
        fill(&mut row, size, &came, (0, None, Some("needs root")), Duration::from_secs(10));
        let ratios: Vec<(&str, f64)> = row.speeds.iter().map(|speed| (speed.over.as_str(), speed.ratios[0])).collect();
        assert_eq!(ratios, [("no turns", 5.0), ("plain", 0.5)]);
        assert_eq!(row.series[3].absent.as_deref(), Some("needs root"));
        assert!(row.notes[0].contains("ended after 10 s"), "{:?}", row.notes);
    }
}
