//! What each tier of a store did: how many reads it answered, and how fast.

use core::fmt::{self, Write};

use ream_options::show_size;

use crate::{Config, Counters};

const PAGE: u64 = 4096;

/// The tiers of a session whose first is compressed memory.
#[derive(Debug)]
pub struct Tiers<'a> {
    counters: &'a Counters,
    below: Option<&'static str>,
}

impl Tiers<'_> {
    /// Those that a session was given, if there are several or the only one is compressed memory.
    pub fn of<'a>(config: &Config, counters: &'a Counters) -> Option<Tiers<'a>> {
        let below = match (config.zip_alone, config.is_remote()) {
            (1, _) => None,
            (_, true) => Some("memory servers"),
            _ => Some("file"),
        };
        (config.zip_bytes > 0).then_some(Tiers { counters, below })
    }

    /// Name, reads answered, thousandths of all reads, and microseconds of one that a thread waits for.
    fn each(&self) -> impl Iterator<Item = (&'static str, u64, u64, u64)> + '_ {
        let (zip, below) = (self.counters.zip_reads.get(), self.counters.below_reads.get());
        let part = move |reads: u64| (reads * 1000).checked_div(zip + below).unwrap_or(0);
        let mean = |us: u64, reads: u64| us.checked_div(reads).unwrap_or(0);
        let counters = self.counters;
        let first = ("zip", zip, part(zip), mean(counters.zip_waited_us.get(), counters.zip_waited.get()));
        let us = mean(counters.below_waited_us.get(), counters.below_waited.get());
        let second = self.below.map(|name| (name, below, part(below), us));
        core::iter::once(first).chain(second)
    }

    /// A line for each tier, with `before` in front.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_text(&self, before: &str, out: &mut dyn Write) -> fmt::Result {
        let counters = self.counters;
        for (name, reads, part, us) in self.each() {
            write!(
                out,
                "{before}{name}: answered {} % of reads ({reads}), {us} us each that is waited for",
                part / 10
            )?;
            if name == "zip" {
                let (kept, bytes) = (counters.zip_kept.get() * PAGE, counters.zip_kept_bytes.get());
                write!(out, "; {} became {}", show_size(kept), show_size(bytes))?;
                let (passed, sunk) = (counters.zip_passed.get() * PAGE, counters.zip_sunk.get() * PAGE);
                write!(out, ", {} passed by, {} sank, ", show_size(passed), show_size(sunk))?;
                write!(out, "{} rose", show_size(counters.zip_risen.get() * PAGE))?;
            }
            writeln!(out)?;
        }
        Ok(())
    }

    /// A list for JSON.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_json(&self, out: &mut dyn Write) -> fmt::Result {
        let mut before = "[";
        for (name, reads, part, us) in self.each() {
            write!(out, "{before}{{\"name\": \"{name}\", \"reads\": {reads}, ")?;
            write!(out, "\"hit_rate\": {}.{:03}, \"latency_us\": {us}}}", part / 1000, part % 1000)?;
            before = ", ";
        }
        write!(out, "]")
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::string::String;

    #[test]
    fn shares_and_means() {
        let counters = Counters::default();
        counters.zip_reads.add(3);
        counters.zip_waited.add(2);
        counters.zip_waited_us.add(20);
        counters.below_reads.add(1);
        counters.below_waited.add(1);
        counters.below_waited_us.add(200);
        counters.zip_kept.add(1024);
        counters.zip_kept_bytes.add(1 << 20);
        assert!(Tiers::of(&Config::new(), &counters).is_none());
        let config = Config { zip_bytes: 1 << 30, ..Config::new() };
        let tiers = Tiers::of(&config, &counters).unwrap();
        let (mut text, mut json) = (String::new(), String::new());
        tiers.write_text("ream: tier ", &mut text).unwrap();
        tiers.write_json(&mut json).unwrap();
        assert_eq!(
            text,
            "ream: tier zip: answered 75 % of reads (3), 10 us each that is waited for; 4 MiB became 1 MiB, 0 B passed by, 0 B sank, 0 B rose\n\
             ream: tier file: answered 25 % of reads (1), 200 us each that is waited for\n"
        );
        assert_eq!(
            json,
            "[{\"name\": \"zip\", \"reads\": 3, \"hit_rate\": 0.750, \"latency_us\": 10}, \
             {\"name\": \"file\", \"reads\": 1, \"hit_rate\": 0.250, \"latency_us\": 200}]"
        );
        let alone = Config { zip_alone: 1, ..config };
        assert_eq!(Tiers::of(&alone, &counters).unwrap().each().count(), 1);
    }
}
