//! What `ream doctor PROGRAM` says beforehand is what `ream status` shows of the running program, region by region.

use ream_tests::{Run, compiled, large_pages, ream_binary};
use serde_json::Value;
use std::process::Command;

fn ream(arguments: &[&str]) -> Value {
    let output = Command::new(ream_binary()).args(arguments).output().expect("running ream");
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn rows(of: &Value) -> Vec<Value> {
    of["regions"].as_array().expect("rows").clone()
}

/// How the program is linked, and what it is run with.
const RUNS: [(&[&str], &[&str]); 3] = [
    (&["-pie", "-fPIE"], &["auto", "heap=small", "stack=small"]),
    (&["-no-pie", "-fno-pie"], &["auto", "bss=small"]),
    (&["-static"], &["auto", "heap=small", "bss=small", "stack=small", "small"]),
];

#[test]
fn doctor_foresees_what_status_shows() {
    if !large_pages(&["madvise"]) {
        return;
    }
    for (flags, all) in RUNS {
        let Some(program) = compiled("c/resident.c", flags) else { return };
        let name = program.to_str().expect("a path");
        for pages in all {
            let promised = rows(&ream(&["doctor", "--json", "--pages", pages, "--", name]));
            let running = Run::of(&program).under_ream().option(format!("--pages={pages}")).start();
            running.until_paused();
            let shown = rows(&ream(&["status", "--json", &running.pid.to_string()]));
            running.signal(libc::SIGTERM);
            running.finish().signalled(libc::SIGTERM);
            for region in ["heap", "static data", "main stack"] {
                let row = promised.iter().find(|row| row["region"] == region).expect("a row");
                let of = |row: &&Value| row["kind"] == region && (region != "static data" || row["name"] == name);
                let large = shown.iter().filter(of).map(|row| row["on_2m"].as_u64().expect("bytes")).sum::<u64>() >> 21;
                let what = format!("{flags:?} --pages={pages} {region}: {row} {large} {shown:#?}");
                // Where the stack or the program begins in a block is not known; one may be more or less.
                match (row["page"].as_u64(), row["blocks"].as_u64()) {
                    (Some(4096), _) => assert_eq!(large, 0, "{what}"),
                    (_, None) => assert!(large > 0, "{what}"),
                    (_, Some(blocks)) if region == "main stack" => assert!((1..=blocks + 1).contains(&large), "{what}"),
                    (_, Some(blocks)) => assert!((blocks..=blocks + 2).contains(&large), "{what}"),
                }
            }
        }
    }
}
