//! `ream bench malloc`: small allocations, Ream's malloc against the C library's, by pairs of runs.

use crate::arguments::Pairs;
use crate::fits::{pairs, show};
use crate::report;
use serde_json::json;

/// What the worker measures, in its order.
pub const PATTERNS: [&str; 4] = ["same size", "mixed sizes", "waves", "medium sizes"];
const ROUNDS: u64 = 2_000_000;

/// Measures; returns whether it was good enough.
///
/// # Errors
/// What kept it from measuring.
pub fn run(options: &Pairs) -> Result<bool, String> {
    println!(
        "time with Ream's malloc over time with the C library's, {} pairs (95 % interval of the median)",
        options.pairs
    );
    let (mut good, mut rows) = (true, Vec::new());
    for threads in [1, 2] {
        println!("{threads} thread(s):");
        let ratios = pairs(options, &["malloc".into(), threads.to_string(), ROUNDS.to_string()])?;
        let (all, values) = show(&PATTERNS, &ratios);
        good &= all;
        rows.push(json!({"threads": threads, "rows": values}));
    }
    if let Some(path) = &options.json {
        report::save(path, &json!({"benchmark": "malloc", "threads": rows}))?;
    }
    Ok(good)
}
