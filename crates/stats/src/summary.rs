//! What a session did, for people (a few lines) and for programs (JSON). Written by the session's last process, or by
//! the agent when that one was killed.

use core::fmt::{self, Write};

use ream_options::{ENGINES, show_size};

use crate::{Config, Counters, Phases, Session, Tiers, Turns};

const PAGE: u64 = 4096;

/// The figures of a session at one moment. Large: keep it off small stacks.
#[derive(Debug)]
pub struct Report<'a> {
    counters: Counters,
    phases: Option<&'a Phases>,
    turns: Option<&'a Turns>,
    budget: u64,
    peak_resident: u64,
    peak_managed: u64,
    copies_missing: Option<u64>,
    config: Option<&'a Config>,
    elapsed_ms: u64,
    engine: &'static str,
}

impl Report<'_> {
    /// Takes the figures. `now_ms` is the monotonic clock.
    pub fn of(session: &Session, now_ms: u64) -> Report<'_> {
        let counters = Counters::default();
        session.add_to(&counters);
        Report {
            counters,
            phases: Some(session.phases()),
            turns: Some(session.turns()),
            budget: session.ledger().budget_pages() * PAGE,
            peak_resident: session.ledger().peak_held() * PAGE,
            peak_managed: session.ledger().peak_managed() * PAGE,
            copies_missing: (session.config().copies() > 1).then(|| session.copies_missing()),
            config: Some(session.config()),
            elapsed_ms: now_ms.saturating_sub(session.began_ms()),
            engine: ENGINES.get(session.engine() as usize).copied().unwrap_or("auto"),
        }
    }

    fn tiers(&self) -> Option<Tiers<'_>> {
        Tiers::of(self.config?, &self.counters)
    }

    /// The budget in bytes with which half of the reads would not have been needed; `None` when there were none.
    pub fn budget_to_halve(&self) -> Option<u64> {
        Some(self.budget.saturating_add(self.counters.pages_to_halve_refaults()?.saturating_mul(PAGE)))
    }

    /// Writes a few lines for people, each beginning with "ream: ".
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_text(&self, out: &mut dyn Write) -> fmt::Result {
        let counters = &self.counters;
        let processes = counters.processes.get();
        let plural = if processes == 1 { "process" } else { "processes" };
        write!(out, "ream: {processes} {plural}, {}; budget {}", Seconds(self.elapsed_ms), show_size(self.budget))?;
        writeln!(out, ", peak managed {}", show_size(self.peak_managed))?;
        if let failed @ 1.. = counters.engagements_failed.get() {
            let (plural, whose) = if failed == 1 { ("process", "its") } else { ("processes", "their") };
            write!(
                out,
                "ream: paging could not begin in {failed} {plural}: all of {whose} data stayed in RAM, whatever the budget; "
            )?;
            writeln!(out, "see 'ream doctor'")?;
        }
        if counters.engagements.get() == 0 {
            if counters.engagements_failed.get() == 0 {
                writeln!(out, "ream: the data fitted, so nothing was paged")?;
            }
            return self.write_phases(out);
        }
        write!(out, "ream: peak resident {}, ", show_size(self.peak_resident))?;
        write!(out, "large pages {}, ", Share(counters.sampled_huge.get(), counters.sampled_resident.get()))?;
        writeln!(out, "store {}, engine {}", show_size(counters.store_bytes.get()), self.engine)?;
        write!(
            out,
            "ream: read {}, wrote {}; ",
            show_size(counters.bytes_in.get()),
            show_size(counters.bytes_out.get())
        )?;
        write!(out, "{} faults, {} on evicted pages, ", counters.faults.get(), counters.refaults.get())?;
        let (hits, misses) = (counters.ahead_hits.get(), counters.ahead_misses.get());
        writeln!(out, "{} rescued; read-ahead used {}", counters.rescues.get(), Share(hits, hits + misses))?;
        write!(out, "ream: waited {} for pages (added over threads)", Seconds(counters.waited_ns.get() / 1_000_000))?;
        match self.budget_to_halve() {
            Some(bytes) => writeln!(out, "; {} would have halved the reads", show_size(bytes)),
            None => writeln!(out),
        }?;
        if let Some(tiers) = self.tiers() {
            tiers.write_text("ream: tier ", out)?;
        }
        if let (Some(missing), losses @ 1..) = (self.copies_missing, counters.server_losses.get()) {
            write!(out, "ream: connections to memory servers lost {losses} times, ")?;
            write!(out, "{} copied again; ", show_size(counters.pages_copied_again.get() * PAGE))?;
            writeln!(out, "{} lack a copy", show_size(missing * PAGE))?;
        }
        if let bad @ 1.. = counters.pages_not_genuine.get() {
            writeln!(out, "ream: {bad} pages that came back were not genuine (changed, exchanged or outdated)")?;
        }
        self.write_phases(out)
    }

    /// A line for each phase that the program marked.
    fn write_phases(&self, out: &mut dyn Write) -> fmt::Result {
        for phase in self.phases.iter().flat_map(|phases| phases.used()) {
            let (times, name) = (phase.times.get(), phase.name());
            write!(out, "ream: phase {}: ", text(&name))?;
            if times > 1 {
                write!(out, "{times} times, ")?;
            }
            write!(out, "{}; ", Seconds(phase.spent_us.get() / 1000))?;
            write!(out, "read {}, wrote {}, ", show_size(phase.bytes_in.get()), show_size(phase.bytes_out.get()))?;
            let waited = Seconds(phase.waited_ns.get() / 1_000_000);
            writeln!(out, "{} faults, waited {waited}", phase.faults.get())?;
        }
        Ok(())
    }

    /// Writes one JSON object: bytes, milliseconds, counts; shares are between 0 and 1.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_json(&self, out: &mut dyn Write) -> fmt::Result {
        let counters = &self.counters;
        writeln!(out, "{{")?;
        let mut number = |name: &str, value: u64| writeln!(out, "  \"{name}\": {value},");
        number("budget", self.budget)?;
        number("peak_resident", self.peak_resident)?;
        number("peak_managed", self.peak_managed)?;
        number("elapsed_ms", self.elapsed_ms)?;
        number("waited_ms", counters.waited_ns.get() / 1_000_000)?;
        number("pager_ms", counters.pager_ns.get() / 1_000_000)?;
        number("engaged_ms", counters.engaged_ns.get() / 1_000_000)?;
        let mut outcome = Ok(());
        counters.each(|name, value| {
            // Told above in other units, or below as a share.
            let told = name.ends_with("_ns") || name.starts_with("sampled_") || name.starts_with("peak_");
            if !told && outcome.is_ok() {
                outcome = number(name, value);
            }
        });
        outcome?;
        if let Some(missing) = self.copies_missing {
            number("copies_missing", missing)?;
        }
        // Of ranks of an MPI job, where there are any.
        if let Some(turns) = self.turns.filter(|turns| turns.given.get() > 0) {
            number("turns", turns.given.get())?;
            number("turns_in_calls", turns.inside.get())?;
            number("turns_taken_away", turns.taken.get())?;
            number("ranks_let_in", turns.let_in.get())?;
        }
        if let Some(bytes) = self.budget_to_halve() {
            number("budget_to_halve_reads", bytes)?;
        }
        let (huge, resident) = (counters.sampled_huge.get(), counters.sampled_resident.get());
        let thousandths = (huge * 1000).checked_div(resident).unwrap_or(0).min(1000);
        writeln!(out, "  \"large_page_share\": {}.{:03},", thousandths / 1000, thousandths % 1000)?;
        let mut before = "  \"phases\": [";
        for phase in self.phases.iter().flat_map(|phases| phases.used()) {
            write!(out, "{before}\n    {{\"name\": \"{}\", \"times\": {}", text(&phase.name()), phase.times.get())?;
            write!(out, ", \"elapsed_ms\": {}", phase.spent_us.get() / 1000)?;
            write!(out, ", \"bytes_in\": {}, \"bytes_out\": {}", phase.bytes_in.get(), phase.bytes_out.get())?;
            write!(out, ", \"faults\": {}", phase.faults.get())?;
            write!(out, ", \"waited_ms\": {}}}", phase.waited_ns.get() / 1_000_000)?;
            before = ",";
        }
        if before == "," {
            writeln!(out, "\n  ],")?;
        }
        if let Some(tiers) = self.tiers() {
            write!(out, "  \"tiers\": ")?;
            tiers.write_json(out)?;
            writeln!(out, ",")?;
        }
        writeln!(out, "  \"engine\": \"{}\"", self.engine)?;
        writeln!(out, "}}")
    }
}

/// The text before the first zero byte.
fn text(bytes: &[u8]) -> &str {
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or(&[]);
    core::str::from_utf8(text).unwrap_or("?")
}

/// Milliseconds, shown as seconds with one decimal.
struct Seconds(u64);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{} s", self.0 / 1000, self.0 % 1000 / 100)
    }
}

/// A part of a whole, shown in percent.
struct Share(u64, u64);

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (u128::from(self.0) * 100).checked_div(u128::from(self.1)) {
            Some(percent) => write!(f, "{percent} %"),
            None => f.write_str("-"),
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::string::String;

    fn report(engaged: bool) -> Report<'static> {
        let counters = Counters::default();
        counters.processes.add(1);
        if engaged {
            counters.engagements.add(1);
            counters.faults.add(1000);
            counters.refaults.add(900);
            counters.rescues.add(10);
            counters.ahead_hits.add(3);
            counters.ahead_misses.add(1);
            counters.bytes_in.add(3 << 30);
            counters.bytes_out.add(1 << 30);
            counters.store_bytes.raise(2 << 30);
            counters.waited_ns.add(1_250_000_000);
            counters.sampled_resident.add(512);
            counters.sampled_huge.add(256);
            counters.came_back_after(1);
        }
        Report {
            counters,
            phases: None,
            turns: None,
            budget: 1 << 30,
            peak_resident: 1 << 30,
            peak_managed: 4 << 30,
            copies_missing: None,
            config: None,
            elapsed_ms: 12_345,
            engine: "move",
        }
    }

    #[test]
    fn text() {
        let mut text = String::new();
        report(true).write_text(&mut text).unwrap();
        assert_eq!(
            text,
            "ream: 1 process, 12.3 s; budget 1 GiB, peak managed 4 GiB\n\
             ream: peak resident 1 GiB, large pages 50 %, store 2 GiB, engine move\n\
             ream: read 3 GiB, wrote 1 GiB; 1000 faults, 900 on evicted pages, 10 rescued; read-ahead used 75 %\n\
             ream: waited 1.2 s for pages (added over threads); 1 GiB would have halved the reads\n"
        );
        let mut text = String::new();
        report(false).write_text(&mut text).unwrap();
        assert!(text.ends_with("nothing was paged\n") && text.lines().count() == 2, "{text}");
    }

    #[test]
    fn data_that_could_not_be_paged_did_not_fit() {
        for (engaged, processes) in [(false, "1 process: all of its"), (true, "2 processes: all of their")] {
            let report = report(engaged);
            report.counters.engagements_failed.add(1 + u64::from(engaged));
            let mut text = String::new();
            report.write_text(&mut text).unwrap();
            let line = text.lines().nth(1).unwrap();
            assert!(line.starts_with(&std::format!("ream: paging could not begin in {processes} data")), "{text}");
            assert!(!text.contains("fitted") && text.contains("ream: read ") == engaged, "{text}");
        }
    }

    #[test]
    fn phases_come_after_the_rest_and_as_a_list() {
        let phases = Phases::none();
        for (name, times) in [(&b"load"[..], 1), (b"solve", 3), (b"never left", 0)] {
            let (_, phase) = phases.find(name).unwrap();
            phase.times.add(times);
            phase.bytes_in.add(times << 30);
            phase.spent_us.add(times * 1_500_000);
        }
        let report = Report { phases: Some(&phases), ..report(false) };
        let (mut text, mut json) = (String::new(), String::new());
        report.write_text(&mut text).unwrap();
        report.write_json(&mut json).unwrap();
        assert!(
            text.ends_with(
                "ream: phase load: 1.5 s; read 1 GiB, wrote 0 B, 0 faults, waited 0.0 s\n\
                 ream: phase solve: 3 times, 4.5 s; read 3 GiB, wrote 0 B, 0 faults, waited 0.0 s\n"
            ),
            "{text}"
        );
        let entry = "{\"name\": \"solve\", \"times\": 3, \"elapsed_ms\": 4500, \"bytes_in\": 3221225472, ";
        assert!(json.contains(entry) && json.contains("}\n  ],\n  \"engine\"") && !json.contains("never"), "{json}");
    }

    #[test]
    fn json() {
        let mut text = String::new();
        report(true).write_json(&mut text).unwrap();
        for part in [
            "  \"budget\": 1073741824,\n",
            "  \"peak_resident\": 1073741824,\n",
            "  \"bytes_in\": 3221225472,\n",
            "  \"waited_ms\": 1250,\n",
            "  \"large_page_share\": 0.500,\n",
            "  \"engine\": \"move\"\n}\n",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        // Every name once.
        let mut names: std::vec::Vec<_> = text.lines().filter_map(|line| line.split('"').nth(1)).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(all, names.len());
        assert_eq!(text.matches('{').count(), 1);
        let mut short = String::new();
        report(false).write_json(&mut short).unwrap();
        assert!(!short.contains("budget_to_halve_reads") && short.contains("\"large_page_share\": 0.000"));
    }
}
