//! What each tier of a store did: how many reads it answered, and how fast.

use core::fmt::{self, Write};

use ream_options::show_size;

use crate::{Config, Counter, Counters};

const PAGE: u64 = 4096;

/// The tiers of a session that has several, or whose only one is compressed memory.
#[derive(Debug)]
pub struct Tiers<'a> {
    counters: &'a Counters,
    /// Those that there are, with the reads that each answered, those that were waited for, and for how long.
    each: [Option<(&'static str, [&'a Counter; 3])>; 3],
}

impl Tiers<'_> {
    /// Those that a session was given, if there are several or the only one is compressed memory.
    pub fn of<'a>(config: &Config, counters: &'a Counters) -> Option<Tiers<'a>> {
        let it = counters;
        let below_zip = [&it.below_reads, &it.below_waited, &it.below_waited_us];
        let zip = (config.zip_bytes > 0).then_some(("zip", [&it.zip_reads, &it.zip_waited, &it.zip_waited_us]));
        let (servers, disk) = match (config.is_remote(), config.below != 0) {
            (true, true) => (
                Some(("memory servers", [&it.servers_reads, &it.servers_waited, &it.servers_waited_us])),
                Some(("file", [&it.disk_reads, &it.disk_waited, &it.disk_waited_us])),
            ),
            (true, false) => (Some(("memory servers", below_zip)), None),
            (false, _) => (None, Some(("file", below_zip)).filter(|_| config.zip_alone == 0)),
        };
        (config.zip_bytes > 0 || config.below != 0).then_some(Tiers { counters, each: [zip, servers, disk] })
    }

    /// Name, reads answered, thousandths of all reads, and microseconds of one that a thread waits for.
    fn each(&self) -> impl Iterator<Item = (&'static str, u64, u64, u64)> + '_ {
        let all: u64 = self.each.iter().flatten().map(|(_, [reads, ..])| reads.get()).sum();
        self.each.iter().flatten().map(move |(name, [reads, waited, us])| {
            let part = (reads.get() * 1000).checked_div(all).unwrap_or(0);
            (*name, reads.get(), part, us.get().checked_div(waited.get()).unwrap_or(0))
        })
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
            if name == "memory servers" && self.each.iter().flatten().any(|(name, _)| *name == "file") {
                let (passed, sunk) = (counters.servers_passed.get() * PAGE, counters.servers_sunk.get() * PAGE);
                write!(out, "; {} passed by, {} sank, ", show_size(passed), show_size(sunk))?;
                write!(out, "{} rose", show_size(counters.servers_risen.get() * PAGE))?;
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
        let mut remotes = config.remotes;
        remotes[0].name = crate::Text::new(b"a:1").unwrap();
        remotes[0].port = 1;
        let names = |config: &Config| {
            let tiers = Tiers::of(config, &counters);
            tiers.map(|tiers| tiers.each().map(|(name, reads, ..)| (name, reads)).collect::<std::vec::Vec<_>>())
        };
        let servers = Config { remotes, ..config };
        assert_eq!(names(&servers).unwrap(), [("zip", 3), ("memory servers", 1)]);
        assert_eq!(names(&Config { zip_bytes: 0, ..servers }), None);
        let three = Config { below: 1, ..servers };
        counters.servers_reads.add(5);
        counters.servers_sunk.add(256);
        counters.disk_reads.add(2);
        assert_eq!(names(&three).unwrap(), [("zip", 3), ("memory servers", 5), ("file", 2)]);
        assert_eq!(names(&Config { zip_bytes: 0, ..three }).unwrap(), [("memory servers", 5), ("file", 2)]);
        text.clear();
        Tiers::of(&three, &counters).unwrap().write_text("", &mut text).unwrap();
        assert!(text.contains("memory servers: answered 50 % of reads (5), 0 us each that is waited for; 0 B passed by, 1 MiB sank, 0 B rose\n"), "{text}");
        assert_eq!(Tiers::of(&alone, &counters).unwrap().each().count(), 1);
    }
}
