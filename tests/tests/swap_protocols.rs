//! The swap protocols: whichever is chosen, a program computes the same, whatever it does with threads and signals.

use ream_tests::{MIB, MemoryServer, Run, compiled, ream_binary};
use std::process::Command;

const PROTOCOLS: [&str; 4] = ["r3", "r58", "r77", "ream"];

#[test]
fn every_protocol_gives_the_same_results() {
    let server = MemoryServer::start("1G", &[]);
    for threads in ["1", "2", "4"] {
        let Some(program) = compiled("c/standstill.c", &["-pthread"]) else { return };
        let run = || Run::of(&program).args(["14", threads]);
        let plain = run().finish();
        for protocol in PROTOCOLS {
            let paged = server.store(run().memory(8)).option(format!("--swap-protocol={protocol}")).finish();
            paged.same_as(plain.exited(0)).paged_within(8 * MIB, 14 * MIB);
        }
    }
    server.until("leases", |leases| leases == 0);
}

/// Bits of the program's memory with a protocol that stops threads; also where nothing is moved, or no ring is used.
#[test]
fn protocols_go_with_other_choices() {
    let server = MemoryServer::start("1G", &[]);
    let Some(program) = compiled("c/checksum.c", &[]) else { return };
    let run = || Run::of(&program).args(["64", "2", "2", "2"]);
    let plain = run().finish();
    for options in [
        ["--swap-protocol=r3", "--io=threads"],
        ["--swap-protocol=r77", "--io=uring"],
        ["--swap-protocol=r58", "--fetch=lazy"],
        ["--swap-protocol=r3", "--engine=copy"],
    ] {
        let paged = options.iter().fold(server.store(run().memory(16)), |run, option| run.option(option)).finish();
        paged.same_as(plain.exited(0)).paged_within(16 * MIB, 64 * MIB);
    }
}

#[test]
fn protocols_are_for_memory_servers() {
    for (arguments, word) in [
        (["run", "--swap-protocol=r3", "true"], "only for memory servers"),
        (["run", "--swap-protocol=r4", "true"], "r4"),
    ] {
        let output = Command::new(ream_binary()).args(arguments).output().expect("ream");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{arguments:?}: {errors}");
        assert!(errors.contains(word) && errors.lines().count() == 1, "{arguments:?}: {errors}");
    }
}
