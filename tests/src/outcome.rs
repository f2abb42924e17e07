//! What a run came to: status, output, summary and peak memory, with the checks that most tests make.

use serde_json::Value;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::time::Duration;

/// How far a program may be over its budget in a test: it fills memory faster than a thread of its own process gets a
/// processor to notice, and what it has protected stays. 12 MiB were seen with four other processes on two processors.
const OVERRUN: u64 = 32 << 20;

/// The summary that `ream run --summary=FILE` wrote.
pub struct Summary(pub Value);

impl Summary {
    /// A number by its name; `a.b` looks into the object `a`.
    ///
    /// # Panics
    /// When it is not there.
    pub fn number(&self, name: &str) -> u64 {
        let pointer = format!("/{}", name.replace('.', "/"));
        let value = self.0.pointer(&pointer).unwrap_or_else(|| panic!("the summary has no {name}: {}", self.0));
        value.as_u64().or_else(|| value.as_f64().map(|float| float as u64)).unwrap_or_else(|| {
            panic!("{name} of the summary is no number: {value}");
        })
    }
}

/// How a run ended.
pub struct Outcome {
    /// The exit status or signal.
    pub status: ExitStatus,
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: Vec<u8>,
    /// From start to end.
    pub elapsed: Duration,
    /// Most memory that one process of the run had mapped at a time, in bytes.
    pub peak_rss: u64,
    /// Most memory that all its processes held together, as the kernel's cgroup counts it; `None` where not measured.
    pub peak_cgroup: Option<u64>,
    /// The summary, when one was asked for and written.
    pub summary: Option<Summary>,
    /// The command, for messages.
    pub command: String,
}

impl Outcome {
    /// Standard output as text.
    pub fn out(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Standard error as text, without the line that Ream says of every program where the device is slow for a minute.
    pub fn err(&self) -> String {
        const SLOW: &str = "ream: over half of the last minute was spent waiting for pages; ";
        let text = String::from_utf8_lossy(&self.stderr);
        text.split_inclusive('\n').filter(|line| !line.starts_with(SLOW)).collect()
    }

    fn tail(bytes: &[u8]) -> String {
        let text = String::from_utf8_lossy(bytes);
        let start = text.len().saturating_sub(4000);
        text.get(start..).unwrap_or(&text).to_owned()
    }

    /// Everything one wants to see when a check fails.
    pub fn describe(&self) -> String {
        format!(
            "{}\nended with {:?} after {:.1?}; peak RSS {} MiB, cgroup {:?} MiB\n--- stdout\n{}\n--- stderr\n{}",
            self.command,
            self.status,
            self.elapsed,
            self.peak_rss >> 20,
            self.peak_cgroup.map(|bytes| bytes >> 20),
            Outcome::tail(&self.stdout),
            Outcome::tail(&self.stderr)
        )
    }

    /// Fails unless it exited with `code`.
    #[track_caller]
    pub fn exited(&self, code: i32) -> &Outcome {
        assert!(self.status.code() == Some(code), "should have exited with {code}\n{}", self.describe());
        self
    }

    /// Fails unless a signal ended it.
    #[track_caller]
    pub fn signalled(&self, signal: i32) -> &Outcome {
        assert!(self.status.signal() == Some(signal), "should have died of signal {signal}\n{}", self.describe());
        self
    }

    /// Fails unless status and standard output are those of `plain`.
    #[track_caller]
    pub fn same_as(&self, plain: &Outcome) -> &Outcome {
        assert!(
            self.status == plain.status && self.stdout == plain.stdout,
            "under Ream:\n{}\n\nplain:\n{}",
            self.describe(),
            plain.describe()
        );
        self
    }

    /// Fails unless standard error holds `words`.
    #[track_caller]
    pub fn says(&self, words: &str) -> &Outcome {
        assert!(self.err().contains(words), "should say '{words}'\n{}", self.describe());
        self
    }

    /// Fails unless there is a summary.
    #[track_caller]
    pub fn summary(&self) -> &Summary {
        self.summary.as_ref().unwrap_or_else(|| panic!("no summary was written\n{}", self.describe()))
    }

    /// Fails unless memory was paged in from the store and no more than `budget` bytes (2 % and [`OVERRUN`] more) were ever resident:
    /// by the summary's word, and by the kernel's, which gets `unmanaged` bytes for what the budget does not hold.
    #[track_caller]
    pub fn paged_within(&self, budget: u64, unmanaged: u64) -> &Outcome {
        let summary = self.summary();
        let most = budget + budget / 50 + OVERRUN;
        assert!(summary.number("bytes_in") > 0, "nothing was paged in\n{}\n{}", summary.0, self.describe());
        let resident = summary.number("peak_resident");
        assert!(resident <= most, "peak resident {resident} of {budget}\n{}\n{}", summary.0, self.describe());
        assert!(self.peak_rss <= most + unmanaged, "one process had too much\n{}\n{}", summary.0, self.describe());
        if let Some(peak) = self.peak_cgroup {
            assert!(peak <= most + unmanaged, "together they had too much\n{}\n{}", summary.0, self.describe());
        }
        self
    }
}
