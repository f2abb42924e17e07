//! The command line of `ream bench`.

use crate::words::Words;
use std::path::PathBuf;

/// What `ream bench paging` and `remote` were told.
#[derive(Clone, PartialEq, Debug)]
pub struct Paging {
    /// Bytes of data.
    pub data: u64,
    /// The budget in bytes.
    pub memory: u64,
    /// The store's directory.
    pub store: PathBuf,
    /// Names (or beginnings of names) of rows; empty: all.
    pub only: Vec<String>,
    /// Seconds of a slice.
    pub seconds: f64,
    /// Slices of each kind.
    pub rounds: usize,
    /// Programs of small size (remote).
    pub quick: bool,
    /// File for the figures.
    pub json: Option<PathBuf>,
    /// Compare with kernel swap.
    pub swap: bool,
    /// Further options of `ream run`.
    pub with: Vec<String>,
}

/// What `ream bench pages` was told.
#[derive(Clone, PartialEq, Debug)]
pub struct Pages {
    /// Rounds, of one run under each setting.
    pub rounds: usize,
    /// Parts of names of rows; empty: all.
    pub rows: Vec<String>,
    /// Parts of names of what Ream is held against besides plain pages and large pages set by hand; empty: everything.
    pub against: Vec<String>,
    /// The kernel's pool may be made larger for those that need one.
    pub pool: bool,
    /// Small data.
    pub quick: bool,
    /// The budget in bytes; `None`: none is set.
    pub memory: Option<u64>,
    /// The store's directory.
    pub store: PathBuf,
    /// File for the figures.
    pub json: Option<PathBuf>,
    /// Further options of `ream run`.
    pub with: Vec<String>,
}

/// What `ream bench fits`, `malloc`, `inside` and `coverage` were told.
#[derive(Clone, PartialEq, Debug)]
pub struct Pairs {
    /// Bytes of data (fits).
    pub data: u64,
    /// The budget in bytes.
    pub memory: u64,
    /// The store's directory.
    pub store: PathBuf,
    /// Pairs of runs.
    pub pairs: usize,
    /// Beginnings of names of rows (coverage); empty: all.
    pub only: Vec<String>,
    /// Programs in C, C++ and Fortran, too (coverage).
    pub programs: bool,
    /// File for the figures.
    pub json: Option<PathBuf>,
    /// Further options of `ream run`.
    pub with: Vec<String>,
}

/// What `ream bench mpi` was told.
#[derive(Clone, PartialEq, Debug)]
pub struct Ranks {
    /// Bytes of data of the cells.
    pub data: u64,
    /// The store's directory.
    pub store: PathBuf,
    /// Beginnings of names of rows; empty: all.
    pub only: Vec<String>,
    /// Runs of each kind.
    pub rounds: usize,
    /// Small data.
    pub quick: bool,
    /// Compare with kernel swap.
    pub swap: bool,
    /// `openmpi` or `mpich`; `None`: the first that is there.
    pub implementation: Option<String>,
    /// File for the figures.
    pub json: Option<PathBuf>,
    /// Further options of `ream run`.
    pub with: Vec<String>,
}

/// What is to be done.
#[derive(Clone, PartialEq, Debug)]
pub enum Command {
    /// Print the help.
    Help,
    /// `paging`.
    Paging(Paging),
    /// `remote`.
    Remote(Paging),
    /// `fits`.
    Fits(Pairs),
    /// `malloc`.
    Malloc(Pairs),
    /// `inside`.
    Inside(Pairs),
    /// `pages`.
    Pages(Pages),
    /// `coverage`.
    Coverage(Pairs),
    /// `mpi`.
    Ranks(Ranks),
}

/// The help text.
pub const HELP: &str = "\
usage: ream bench all [--quick|--full] [OPTION]...  everything below and the NAS kernels, in one report
       ream bench compare OLD.json NEW.json [--noise PERCENT]  what changed beyond noise; 1 when anything got worse
       ream bench report FILE.json DIR  the report of results anew
       ream bench paging [OPTION]...   paging against the raw device, kernel swap and plain RAM
       ream bench remote [OPTION]...   paging to a memory server against the bare network (root: all of it)
       ream bench fits [OPTION]...     data that fit the budget, with and without Ream
       ream bench malloc [OPTION]...   small malloc and free, with and without Ream
       ream bench inside [OPTION]...   loops of R and Python that allocate little, with Ream switched on inside and without
       ream bench pages [OPTION]...    computations plain, under Ream, on large pages set by hand, and
                                       under whatever else promises them
       ream bench mpi [OPTION]...      ranks of MPI in turns, without turns, on swap (--swap, root), with enough memory
       ream bench coverage [OPTION]... memory on large pages under Ream and under other allocators (root: all of them)

Of ream bench all:
  --quick, --full   10 minutes at most (the usual), or 90
  --out DIR         where report.html, report.txt and ream-bench.json go (a new directory here)
  --resume          go on with what was interrupted, or (with more --minutes) had no time for all, in the directory of --out
  --only PATTERN    only steps whose names hold this, * for anything; may be repeated
  --list            name the steps, with how long they take
  --minutes N       all of it takes no longer (--quick: 10, --full: 90): fewer rounds, at last fewer rows
  --rounds N        rounds of each row, however long they take
  --npb DIR         programs of the original NAS suite as well (cg.A.x and so on), there or in bin below it
  --anyway          also on a machine that is too small or busy; the report says so
  --store, --with   as of the chapters

Of the chapters:
  --data SIZE       data of the worker (paging: 4G; fits, remote: 1G), or of the two ranks of the cells (mpi: 4G)
  --memory SIZE     budget (paging: 1G; remote: 256M; fits, malloc: 4G; pages: none)
  --store DIR       directory of the store, of the raw file and of the swap file (/var/tmp)
  --only ROW        only rows whose names begin so; may be repeated (paging, remote, coverage, mpi)
  --rows PATTERN    only rows whose names hold this, * for anything; may be repeated (pages)
  --against PATTERN hold Ream only against these of the other allocators, 'none' for none; may be repeated (pages)
  --pool            make the kernel's pool of large pages larger for those that need one, and give it back (pages; root)
  --programs        programs in C, C++ and Fortran as well, linked in four ways (coverage; needs compilers)
  --seconds N       length of a slice (paging: 2; remote: 1)
  --rounds N        slices of each kind, or runs under each setting, in turns (paging: 5; remote: 7; pages: 15)
  --swap            compare with kernel swap in a memory cgroup as well (paging, mpi; needs root)
  --implementation  openmpi or mpich (mpi)
  --pairs N         pairs of runs (fits, malloc, inside: 15)
  --quick           small data and few rounds: to see that it works, not to measure
  --with OPTION     a further option of ream run; may be repeated
  --json FILE       write all figures there

The exit status is 0 when every requirement that could be measured was met, 1 when one fell short (SHORT), and 125 when
something could not be measured that should have been.
";

fn size(text: &str) -> Result<u64, String> {
    let bad = || format!("'{text}' is no size; write it like 512M or 1.5G");
    let lower = text.to_ascii_lowercase();
    let digits = lower.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match lower.strip_prefix(digits).unwrap_or("") {
        "" | "b" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        "t" | "tib" => 40,
        _ => return Err(bad()),
    };
    let number: f64 = digits.parse().map_err(|_| bad())?;
    let bytes = number * (1u64 << shift) as f64;
    if (1.0..1e18).contains(&bytes) { Ok(bytes as u64) } else { Err(bad()) }
}

/// Reads the arguments after `ream bench`.
///
/// # Errors
/// One line that says what is wrong.
pub fn parse(arguments: &[String]) -> Result<Command, String> {
    let Some((what, rest)) = arguments.split_first() else { return Ok(Command::Help) };
    let (is_remote, is_pages, is_mpi) = (what == "remote", what == "pages", what == "mpi");
    let is_paging = what == "paging" || is_remote;
    if matches!(what.as_str(), "--help" | "-h" | "help") {
        return Ok(Command::Help);
    }
    if !matches!(what.as_str(), "paging" | "remote" | "fits" | "malloc" | "inside" | "pages" | "coverage" | "mpi") {
        return Err(format!("there is no benchmark '{what}'; see ream bench --help"));
    }
    let (mut data, mut memory) = match what.as_str() {
        "paging" => (4 << 30, 1 << 30),
        "remote" => (1 << 30, 256 << 20),
        "mpi" => (4 << 30, 4 << 30),
        _ => (1 << 30, 4 << 30),
    };
    let (mut seconds, mut rounds, mut pairs) = match what.as_str() {
        "remote" => (1.0, 7, 15),
        "pages" => (2.0, 15, 15),
        _ => (2.0, 5, 15),
    };
    let mut implementation = None;
    let (mut rows, mut against, mut pool, mut quick, mut budget) = (Vec::new(), Vec::new(), false, false, None);
    let (mut only, mut with, mut json, mut swap) = (Vec::new(), Vec::new(), None, false);
    let (mut store, mut programs) = (PathBuf::from("/var/tmp"), false);
    let positive = |n: &usize| *n > 0;
    let mut words = Words::of(rest);
    while let Some(name) = words.option()? {
        match name.as_str() {
            "--help" | "-h" => return Ok(Command::Help),
            "--json" => json = Some(words.value()?.into()),
            "--only" if is_paging || is_mpi || what == "coverage" => only.push(words.value()?),
            "--programs" if what == "coverage" => programs = true,
            "--pairs" if what == "inside" => pairs = words.parsed("positive number", positive)?,
            "--quick" if what == "inside" => pairs = 3,
            _ if what == "coverage" || what == "inside" => {
                return Err(format!("unknown option {name}; see ream bench --help"));
            }
            "--data" if !is_pages => data = size(&words.value()?)?,
            "--implementation" if is_mpi => implementation = Some(words.value()?),
            "--memory" if !is_mpi => {
                memory = size(&words.value()?)?;
                budget = Some(memory);
            }
            "--rows" | "--only" if is_pages => rows.push(words.value()?),
            "--against" if is_pages => against.push(words.value()?),
            "--pool" if is_pages => pool = true,
            "--store" => store = words.value()?.into(),
            "--with" => with.push(words.value()?),
            "--rounds" | "--pairs" if is_pages => rounds = words.parsed("positive number", positive)?,
            "--pairs" if !is_paging && !is_mpi => pairs = words.parsed("positive number", positive)?,
            "--rounds" if is_paging || is_mpi => rounds = words.parsed("positive number", positive)?,
            "--swap" if is_paging && !is_remote || is_mpi => swap = true,
            "--seconds" if is_paging => seconds = words.parsed("time", |s| *s > 0.0 && *s < 1e4)?,
            "--quick" => {
                (seconds, rounds, pairs, quick) = (0.3, if is_pages { 5 } else { 3 }, 5, true);
                (data, memory) = if is_paging { (512 << 20, 128 << 20) } else { (128 << 20, 512 << 20) };
                if is_remote {
                    (seconds, rounds) = (0.4, 5);
                }
                if is_mpi {
                    (data, rounds) = (512 << 20, 1);
                }
            }
            _ => return Err(format!("unknown option {name}; see ream bench --help")),
        }
    }
    if is_paging {
        if data < 2 * memory {
            return Err("--data must be at least twice --memory, or nothing is paged".into());
        }
        let paging = Paging { data, memory, store, only, seconds, rounds, quick, json, swap, with };
        return Ok(if is_remote { Command::Remote(paging) } else { Command::Paging(paging) });
    }
    if is_mpi {
        return Ok(Command::Ranks(Ranks { data, store, only, rounds, quick, swap, implementation, json, with }));
    }
    if is_pages {
        return Ok(Command::Pages(Pages { rounds, rows, against, pool, quick, memory: budget, store, json, with }));
    }
    let pairs = Pairs { data, memory, store, pairs, only, programs, json, with };
    Ok(match what.as_str() {
        "fits" => Command::Fits(pairs),
        "coverage" => Command::Coverage(pairs),
        "inside" => Command::Inside(pairs),
        _ => Command::Malloc(pairs),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &[&str]) -> Result<Command, String> {
        parse(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn reads_options_in_both_forms() {
        let Ok(Command::Paging(paging)) =
            of(&["paging", "--data=2G", "--memory", "512M", "--only", "random", "--swap"])
        else {
            panic!("not understood");
        };
        assert_eq!((paging.data, paging.memory, paging.swap), (2 << 30, 512 << 20, true));
        assert_eq!(paging.only, ["random"]);
    }

    #[test]
    fn reads_what_pages_are_to_be_compared() {
        let Ok(Command::Pages(pages)) =
            of(&["pages", "--rows", "chase*heap", "--rows=R", "--against", "none", "--pool", "--rounds", "20"])
        else {
            panic!("not understood");
        };
        assert_eq!((pages.rounds, pages.pool, pages.memory), (20, true, None));
        assert_eq!((pages.rows.len(), pages.against), (2, vec!["none".to_owned()]));
        assert!(matches!(of(&["pages"]), Ok(Command::Pages(Pages { rounds: 15, quick: false, .. }))));
    }

    #[test]
    fn refuses_what_makes_no_sense() {
        for words in [
            &["pagnig"][..],
            &["paging", "--data", "1X"],
            &["paging", "--data", "1G", "--memory", "1G"],
            &["fits", "--swap"],
            &["paging", "--rounds", "0"],
            &["paging", "--json"],
            &["coverage", "--pairs", "3"],
            &["pages", "--data", "1G"],
            &["pages", "--rounds", "none"],
            &["fits", "--pool"],
            &["paging", "--quick=1"],
            &["inside", "--data", "1G"],
        ] {
            assert!(of(words).is_err(), "{words:?}");
        }
        assert_eq!(of(&[]), Ok(Command::Help));
    }
}
