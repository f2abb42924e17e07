//! A disk below memory servers: what these have no room for is there, cold pages sink to it and hot ones rise from it, and
//! the results are the same.

use ream_tests::{Case, MIB, MemoryServer, Outcome, Run, Scratch, compiled, skip};
use std::path::Path;

/// A program with pages of all kinds, which change.
fn changing(memory: u64, arguments: [&str; 4]) -> Option<Run> {
    Some(Run::of(compiled("c/compressible.c", &[])?).args(arguments).memory(memory))
}

/// A run that pages to a server, and below that to a directory.
fn above(server: &MemoryServer, run: Run, directory: &Path) -> Run {
    server.store(run).option("--store").option(directory)
}

fn with(run: Run, options: &[&str]) -> Run {
    options.iter().fold(run, |run, option| run.option(option))
}

/// The names of its tiers in the summary.
fn tiers(outcome: &Outcome) -> Vec<String> {
    let summary = outcome.summary();
    let tiers = summary.0["tiers"].as_array().expect("tiers");
    tiers.iter().map(|tier| tier["name"].as_str().expect("a name").to_owned()).collect()
}

#[test]
fn pages_come_back_from_servers_and_from_the_disk_below() {
    for (secure, options) in [
        (true, &[][..]),
        (true, &["--encrypt", "--io=threads"]),
        (false, &["--insecure"]),
        (false, &["--insecure", "--encrypt"]),
    ] {
        let server = MemoryServer::start("32M", if secure { &[] } else { &["--insecure"] });
        let scratch = Scratch::new("below");
        let Some(run) = changing(16, ["96", "8", "0", "100"]) else { return };
        // A server without keys has the option added with it.
        let options: Vec<&str> = options.iter().copied().filter(|option| *option != "--insecure").collect();
        let outcome = with(above(&server, run, scratch.path()), &options).finish();
        outcome.exited(0).paged_within(16 * MIB, 64 * MIB);
        assert_eq!(outcome.out(), "right\n", "{options:?}");
        assert_eq!(tiers(&outcome), ["memory servers", "file"]);
        let summary = outcome.summary();
        for name in ["servers_reads", "servers_passed", "servers_sunk", "disk_reads"] {
            assert!(summary.number(name) > 0, "{options:?}: {name}");
        }
        assert!(server.figure("pages_received_total") > 0);
    }
}

#[test]
fn three_tiers_are_one_store() {
    for options in [&[][..], &["--encrypt"]] {
        let server = MemoryServer::start("24M", &[]);
        let scratch = Scratch::new("below");
        let Some(run) = changing(16, ["96", "8", "1", "50"]) else { return };
        let outcome = with(above(&server, run.zip(16), scratch.path()), options).finish();
        outcome.exited(0);
        assert_eq!(outcome.out(), "right\n");
        assert_eq!(tiers(&outcome), ["zip", "memory servers", "file"]);
        let summary = outcome.summary();
        for name in ["zip_reads", "servers_reads", "disk_reads"] {
            assert!(summary.number(name) > 0, "{options:?}: {name}");
        }
    }
}

#[test]
fn what_is_read_again_and_again_rises_to_a_server() {
    for options in [&[][..], &["--encrypt"]] {
        let server = MemoryServer::start("40M", &[]);
        let scratch = Scratch::new("below");
        let Some(program) = compiled("c/hot_part.c", &[]) else { return };
        // The part is written first, so it has sunk, or passed by, when it is read.
        let run = Run::of(program).args(["128", "0", "16", "16"]).memory(8);
        let outcome = with(above(&server, run, scratch.path()), options).finish();
        outcome.exited(0);
        assert_eq!(outcome.out(), "right\n");
        let (risen, answered) = (outcome.summary().number("servers_risen"), outcome.summary().number("servers_reads"));
        assert!(risen >= 1024 && answered > 10_000, "{options:?}: {risen} pages rose, {answered} reads answered above");
    }
}

#[test]
fn families_share_servers_and_disk() {
    let server = MemoryServer::start("32M", &[]);
    let scratch = Scratch::new("below");
    let Some(run) = changing(24, ["64", "4", "2", "50"]) else { return };
    let outcome = above(&server, run, scratch.path()).finish();
    outcome.exited(0);
    assert_eq!(outcome.out(), "right\n");
    for (source, arguments, memory) in
        [("c/fork_deep.c", &["64"][..], 24), ("c/fork_storm.c", &["64"], 24), ("c/fork_killed.c", &["64"], 32)]
    {
        Case::new(source, arguments, memory).compare_with(|run, _| above(&server, run, scratch.path()));
    }
    // Nothing is left at the server when they have ended.
    server.until("used_bytes", |used| used == 0);
}

/// The file is made by the agent then, in the directory where the user that the program has become may not write.
#[test]
fn root_becomes_an_ordinary_user_whose_children_have_files_here() {
    if !ream_tests::is_root() {
        return skip("giving up root's rights", "needs root");
    }
    let server = MemoryServer::start("256M", &[]);
    for option in ["--store", "--spill"] {
        let scratch = Scratch::new("below");
        Case::new("c/rights.c", &["96", "3", "users"], 32)
            .compare_with(|run, _| server.store(run).option(option).option(scratch.path()));
    }
}

#[test]
fn a_server_that_holds_the_only_copy_ends_the_program() {
    let mut server = MemoryServer::start("256M", &[]);
    let scratch = Scratch::new("below");
    let Some(run) = changing(16, ["96", "1000", "0", "100"]) else { return };
    let running = above(&server, run, scratch.path()).start();
    server.until("pages_received_total", |pages| pages > 10_000);
    server.signal(libc::SIGKILL);
    server.wait();
    running.finish().exited(125).says("the program is stopped, since its memory there cannot be had back");
}

#[test]
fn a_disk_below_that_is_full_stops_the_program() {
    let server = MemoryServer::start("32M", &[]);
    let scratch = Scratch::new("below");
    let Some(run) = changing(16, ["96", "8", "0", "100"]) else { return };
    let outcome = above(&server, run, scratch.path()).option("--store-limit=48M").finish();
    outcome.exited(125).says("the disk below the memory servers").says("has no room left");
}

#[test]
fn tiers_in_another_order_are_refused() {
    let Some(program) = compiled("c/checksum.c", &[]) else { return };
    let run = || {
        Run::of(&program)
            .args(["8", "1", "1"])
            .memory(64)
            .store("tcp://a:1".as_ref())
            .option("--store")
            .option("/var/tmp")
    };
    for (options, why) in [
        (&["--spill=/var/tmp"][..], "give one of the two"),
        (&["--store", "tcp://b:1"], "given after it"),
        (&["--store", "zip:64M"], "the first tier only"),
    ] {
        with(run(), options).finish().exited(125).says(why);
    }
    let summed = Run::of(&program).memory(64).store("tcp://a:1,tcp://b:1,tcp://c:1".as_ref()).option("--parity");
    summed.option("--store").option("/var/tmp").finish().exited(125).says("nothing is below");
}
