//! The rows of `ream bench pages`: computations of our own, R's as the Institute of Statistical Mathematics measured them,
//! and the start of an interpreter.

use crate::others::CORRUPT;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What a row runs.
#[derive(Clone, PartialEq, Debug)]
pub enum Work {
    /// The worker: computation, kind of memory.
    Kernel(&'static str, &'static str),
    /// R: what is prepared, what is timed, and its checksum; by the last is known how to check it.
    R(&'static str, &'static str, &'static str),
    /// Python imports a package; timed is the whole run, or only the import.
    Python {
        /// The whole run.
        whole: bool,
    },
}

/// A row.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// What it runs.
    pub work: Work,
    /// MiB of its data.
    pub mebibytes: u64,
    /// So large and so randomly used that Ream must be as fast as large pages asked for by hand.
    pub random: bool,
}

/// A program that is ready to be run, and its arguments.
pub type Program = (PathBuf, Vec<String>);

/// Computation, kind of memory, MiB, randomly used.
const KERNELS: &[(&str, &str, u64, bool)] = &[
    ("chase", "heap", 64, true),
    ("chase", "heap", 512, true),
    ("chase", "heap", 2048, true),
    ("chase", "heap", LARGEST, true),
    ("chase", "bss", 256, true),
    ("chase", "stack", 256, true),
    ("gather", "heap", 64, true),
    ("gather", "heap", 512, true),
    ("gather", "heap", 2048, true),
    ("gather", "heap", LARGEST, true),
    ("gather", "bss", 256, true),
    ("gather", "stack", 256, true),
    ("update", "heap", 512, true),
    ("copy", "heap", 512, false),
    ("scale", "heap", 512, false),
    ("add", "heap", 512, false),
    ("triad", "heap", 512, false),
    ("sparse", "heap", 512, false),
    ("smooth", "heap", 512, false),
    ("transform", "heap", 512, false),
    ("sort", "heap", 512, false),
    ("transpose", "heap", 512, false),
];

/// The largest data, where the machine has memory for it.
const LARGEST: u64 = 8192;

/// From so many MiB on, what is randomly used must be as fast as by hand.
const AS_BY_HAND: u64 = 512;

const HILBERT: &str = "hilbert <- function(N) 1/(matrix(1:N,N,N,byrow=T)+0:(N-1))";

/// Name, what is prepared, what is timed, checksum, MiB; the last four of the same again with little data.
type InR = (&'static str, &'static str, &'static str, &'static str, u64);

const IN_R: &[[InR; 2]] = &[
    [
        ("R qr(hilbert(1000))", "h <- hilbert(1000)", "qr(h)", QR, 192),
        ("R qr(hilbert(100))", "h <- hilbert(100)", "qr(h)", QR, 64),
    ],
    [
        ("R qr(hilbert(1024))", "h <- hilbert(1024)", "qr(h)", QR, 192),
        ("R qr(hilbert(128))", "h <- hilbert(128)", "qr(h)", QR, 64),
    ],
    [
        ("R lm 5000x10000", "y <- matrix(runif(5e7),5000); x <- matrix(runif(5e5),5000)", "lm(y~x)", LM, 3072),
        ("R lm 500x100", "y <- matrix(runif(5e4),500); x <- matrix(runif(5e3),500)", "lm(y~x)", LM, 64),
    ],
    [
        ("R fft 1e7", "x <- complex(real=runif(1e7),imaginary=runif(1e7))", FFT, SUM, 1024),
        ("R fft 1e5", "x <- complex(real=runif(1e5),imaginary=runif(1e5))", FFT, SUM, 64),
    ],
    [
        ("R fft 2^24", "x <- complex(real=runif(2^24),imaginary=runif(2^24))", FFT, SUM, 1536),
        ("R fft 2^16", "x <- complex(real=runif(2^16),imaginary=runif(2^16))", FFT, SUM, 64),
    ],
    [
        ("R sort 1e8", "x <- sample.int(1e8)", "sort(x)", SORT, 2560),
        ("R sort 1e6", "x <- sample.int(1e6)", "sort(x)", SORT, 64),
    ],
];
const QR: &str = "c(r$rank,sum(abs(r$qr)))";
const LM: &str = "sum(r$coefficients)";
const FFT: &str = "fft(fft(x),inverse=TRUE)";
const SUM: &str = "c(Re(sum(r)),Im(sum(r)))";
const SORT: &str = "c(r[1],r[length(r)],sum(as.numeric(r[seq.int(1,length(r),97)])))";

/// Whether a result in R is right, by another way, and how it is spoilt to see that this is found; by its checksum.
const CHECKS: &[(&str, &str, &str)] = &[
    (QR, "max(abs(qr.X(r)-h))<1e-8", "r$qr[1]<-r$qr[1]+1"),
    (LM, "max(abs(crossprod(cbind(1,x),r$residuals)))<1e-5", "r$residuals[1]<-r$residuals[1]+1"),
    (SUM, "max(Mod(r/length(x)-x))<1e-8", "r[1]<-r[1]+1e6"),
    (SORT, "!is.unsorted(r)&&sum(as.numeric(r))==sum(as.numeric(x))", "r[1]<-r[1]+1L"),
];

/// All rows. `available` are the bytes of RAM that may be taken: the largest data are half of that at most.
pub fn all(available: u64, quick: bool) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    let half = (available >> 21).max(1);
    for (kernel, place, mebibytes, random) in KERNELS {
        let mebibytes = match (*mebibytes, quick) {
            (_, true) => 64,
            (LARGEST, _) => LARGEST.min(1 << half.ilog2()),
            (other, _) => other,
        };
        let name = format!("{kernel} {place} {mebibytes}M");
        if rows.iter().all(|row| row.name != name) {
            let random = *random && mebibytes >= AS_BY_HAND;
            rows.push(Row { name, work: Work::Kernel(kernel, place), mebibytes, random });
        }
    }
    for both in IN_R {
        let (name, before, timed, sum, mebibytes) = both[usize::from(quick)];
        rows.push(Row { name: name.into(), work: Work::R(before, timed, sum), mebibytes, random: false });
    }
    for (name, whole) in [("python import", false), ("python start and import", true)] {
        rows.push(Row { name: name.into(), work: Work::Python { whole }, mebibytes: 192, random: false });
    }
    rows
}

/// Whether a name holds a pattern, whose stars stand for anything.
pub fn matches(name: &str, pattern: &str) -> bool {
    let mut rest = name;
    pattern.split('*').all(|part| match rest.find(part) {
        Some(place) => {
            rest = &rest[place + part.len()..];
            true
        }
        None => false,
    })
}

/// A program by its name, where the shell would find it.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(|path| path.is_file())
}

/// The system's Python before any other: others are often a script that looks for one.
pub(crate) fn python() -> Option<PathBuf> {
    let system = PathBuf::from("/usr/bin/python3");
    if system.is_file() { Some(system) } else { find("python3") }
}

/// The largest package that is there.
fn package(python: &Path) -> Option<String> {
    const LOOK: &str = "import importlib.util as u
print(next((n for n in ('pandas','scipy','sympy','numpy') if u.find_spec(n)), ''))";
    let output = Command::new(python).args(["-c", LOOK]).stdin(Stdio::null()).output().ok()?;
    let name = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    (!name.is_empty()).then_some(name)
}

impl Row {
    /// What the row runs, as `how` (of the worker: plain, hand or pool) asks for them.
    ///
    /// # Errors
    /// What is not there.
    pub fn program(&self, worker: &Path, how: &str) -> Result<Program, String> {
        match self.work {
            Work::Kernel(kernel, place) => {
                let arguments = [kernel, place, &self.mebibytes.to_string(), how].map(str::to_owned);
                Ok((worker.to_owned(), arguments.to_vec()))
            }
            Work::R(before, timed, sum) => {
                let rscript = find("Rscript").ok_or("there is no Rscript in PATH")?;
                let (_, check, spoil) =
                    CHECKS.iter().find(|(of, ..)| *of == sum).ok_or("nobody knows how to check it")?;
                let code = format!(
                    "{HILBERT}; set.seed(1); {before}; t <- Sys.time(); r <- {timed}; \
                     s <- as.numeric(Sys.time()-t,units='secs'); if (nzchar(Sys.getenv('{CORRUPT}'))) {spoil}; \
                     if (!isTRUE({check})) {{ message('WRONG RESULT'); quit(status=1) }}; \
                     cat(sprintf('%.6f',s), paste(sprintf('%.10g',{sum}),collapse='/'), '\\n')"
                );
                Ok((rscript, vec!["--vanilla".into(), "-e".into(), code]))
            }
            Work::Python { .. } => {
                let python = python().ok_or("there is no python3")?;
                let package = package(&python).ok_or("python3 has none of pandas, scipy, sympy, numpy")?;
                let code = format!(
                    "import time; t = time.perf_counter()
import {package}
s = time.perf_counter() - t
import sys
print(s, '{package}/%s/%d' % ({package}.__version__, len(sys.modules)))"
                );
                Ok((python, vec!["-c".into(), code]))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(available: u64, quick: bool) -> Vec<String> {
        all(available, quick).into_iter().map(|row| row.name).collect()
    }

    #[test]
    fn the_largest_data_are_half_of_what_is_available() {
        assert!(names(24 << 30, false).contains(&"chase heap 8192M".to_owned()));
        let little = names(15 << 30, false);
        assert!(little.contains(&"gather heap 4096M".to_owned()) && !little.contains(&"chase heap 8192M".to_owned()));
        // What is there already does not come twice.
        let least = names(5 << 30, false);
        assert_eq!(least.iter().filter(|name| *name == "chase heap 2048M").count(), 1);
        assert_eq!(names(0, false).len(), least.len() + 2);
    }

    #[test]
    fn names_are_unlike_and_patterns_find_them() {
        for quick in [false, true] {
            let mut names = names(24 << 30, quick);
            let count = names.len();
            names.sort();
            names.dedup();
            assert_eq!(names.len(), count);
        }
        assert!(matches("chase heap 64M", "chase*64") && matches("R qr(hilbert(1000))", "qr"));
        assert!(
            !matches("transform heap 64M", "R ")
                && !matches("chase heap 64M", "64*chase")
                && matches("x", "")
                && matches("x", "*")
        );
    }

    #[test]
    fn what_is_large_and_random_must_be_as_fast_as_by_hand() {
        let rows = all(24 << 30, false);
        let random: Vec<&str> = rows.iter().filter(|row| row.random).map(|row| row.name.as_str()).collect();
        assert_eq!(random.len(), 7, "{random:?}");
    }
}
