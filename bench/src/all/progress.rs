//! The line that tells what is being measured, and how long it will still take.

use std::io::{IsTerminal as _, Write as _};
use std::time::Instant;

/// Steps with a guess of their seconds, corrected by how long those took that are done.
pub struct Progress {
    estimates: Vec<f64>,
    /// Guessed and real seconds of what is done.
    done: (f64, f64),
    begun: Instant,
    terminal: bool,
}

/// Guesses count as much as so many seconds of measured time.
const TRUST: f64 = 20.0;

impl Progress {
    /// Of steps with these guesses; 0 for those that are done already.
    pub fn new(estimates: Vec<f64>) -> Progress {
        Progress { estimates, done: (0.0, 0.0), begun: Instant::now(), terminal: std::io::stderr().is_terminal() }
    }

    /// Shows where the benchmark is: the step's number, name, and how much of it is done.
    pub fn show(&self, number: usize, name: &str, done: usize, of: usize) {
        if self.terminal {
            let share = done as f64 / of.max(1) as f64;
            let left = self.left(number, share);
            let count = self.estimates.len();
            let text = format!("[{}/{count}] {name}, {:.0} %; {}", number + 1, share * 100.0, in_words(left));
            let _ = write!(std::io::stderr(), "\r\x1b[K{text}");
            let _ = std::io::stderr().flush();
        }
    }

    /// Seconds that are left when this share of a step is done.
    fn left(&self, number: usize, share: f64) -> f64 {
        let rest: f64 = self.estimates.iter().skip(number + 1).sum();
        let own = self.estimates.get(number).map_or(0.0, |estimate| estimate * (1.0 - share));
        let (guessed, real) = self.done;
        (rest + own) * (real + TRUST) / (guessed + TRUST)
    }

    /// Takes the line away.
    pub fn clear(&self) {
        if self.terminal {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }

    /// A step is done.
    pub fn done(&mut self, number: usize) {
        let guessed = self.estimates.get(number).copied().unwrap_or(0.0);
        self.done = (self.done.0 + guessed, self.begun.elapsed().as_secs_f64());
    }
}

fn in_words(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 90.0 => format!("about {:.0} s left", (seconds / 10.0).ceil() * 10.0),
        seconds => format!("about {:.0} min left", (seconds / 60.0).ceil()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guesses_are_corrected_by_what_was_seen() {
        let mut progress = Progress::new(vec![10.0, 10.0, 20.0]);
        assert_eq!(progress.left(0, 0.5), 35.0);
        progress.done = (20.0, 60.0);
        assert_eq!(progress.left(2, 0.0), 40.0);
        assert_eq!(in_words(35.0), "about 40 s left");
        assert_eq!(in_words(150.0), "about 3 min left");
    }
}
