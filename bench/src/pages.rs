//! `ream bench pages`: what large pages are worth. The same computations plain, under Ream, and with large pages asked for
//! by the program itself, in turns.

use crate::arguments::Pairs;
use crate::driver::{Commands, Under};
use crate::fits::{MOST, once};
use crate::paging::ream_options;
use crate::report;
use crate::statistics::{Spread, interval, median};
use serde_json::json;

/// Computation, kind of memory, MiB; and whether the data are so large and so randomly used that Ream must be as fast as
/// large pages asked for by hand.
const ROWS: &[(&str, &str, u64, bool)] = &[
    ("chase", "heap", 64, false),
    ("chase", "heap", 512, true),
    ("chase", "heap", 2048, true),
    ("chase", "bss", 256, false),
    ("chase", "stack", 256, false),
    ("update", "heap", 512, true),
    ("triad", "heap", 512, false),
    ("sparse", "heap", 512, false),
    ("smooth", "heap", 512, false),
    ("transform", "heap", 512, false),
    ("sort", "heap", 512, false),
    ("transpose", "heap", 512, false),
];

/// Measures; returns whether it was good enough.
///
/// # Errors
/// What kept it from measuring.
pub fn run(options: &Pairs) -> Result<bool, String> {
    let commands = Commands::find()?.with_kernels()?;
    let under_ream = ream_options(options.memory, &options.store, &options.with);
    println!("seconds by the median of {} rounds; ratios with their 95 % interval", options.pairs);
    println!("{:<20} {:>8} {:>8} {:>8}   {:<34} Ream over by hand", "", "plain", "Ream", "by hand", "Ream over plain");
    let (mut good, mut values) = (true, Vec::new());
    for (kernel, place, mebibytes, random) in ROWS {
        let name = format!("{kernel} {place} {mebibytes}M");
        if !options.only.is_empty() && !options.only.iter().any(|only| name.starts_with(only.as_str())) {
            continue;
        }
        let arguments = |how: &str| [*kernel, *place, &mebibytes.to_string(), how].map(str::to_owned);
        let one = |variant: usize| match variant {
            0 => once(&commands, &Under::Nothing, &arguments("plain")),
            1 => once(&commands, &Under::Ream(&under_ream), &arguments("plain")),
            _ => once(&commands, &Under::Nothing, &arguments("hand")),
        };
        let mut seconds: [Vec<f64>; 3] = Default::default();
        let mut sum = None;
        for round in 0..options.pairs {
            for turn in 0..3 {
                let variant = (round + turn) % 3;
                let numbers = one(variant)?;
                let [time, checksum, ..] = numbers.as_slice() else {
                    return Err(format!("{name}: the worker said too little"));
                };
                if *sum.get_or_insert(*checksum) != *checksum {
                    return Err(format!("{name}: another result in round {round}"));
                }
                seconds[variant].push(*time);
            }
        }
        let over = |other: usize| -> Vec<f64> {
            seconds[1].iter().zip(&seconds[other]).map(|(ream, other)| ream / other).collect()
        };
        let (plain, hand) = (interval(&over(0)), interval(&over(2)));
        // As fast as by hand: within 2 %, which the interval must not exclude.
        let met = plain.high <= MOST && (!random || hand.low <= MOST);
        good &= met;
        let shown = |s: Spread| format!("{:.3} ({:.3} to {:.3})", s.middle, s.low, s.high);
        let middles: Vec<f64> = seconds.iter().map(|all| median(all)).collect();
        println!(
            "{name:<20} {:>8.3} {:>8.3} {:>8.3}   {:<26} {:<7} {}",
            middles[0],
            middles[1],
            middles[2],
            shown(plain),
            if met { "pass" } else { "SHORT" },
            shown(hand)
        );
        values.push(json!({"name": name, "plain": seconds[0], "ream": seconds[1], "hand": seconds[2], "met": met}));
    }
    if let Some(path) = &options.json {
        report::save(path, &json!({"benchmark": "pages", "memory": options.memory, "rows": values}))?;
    }
    Ok(good)
}
