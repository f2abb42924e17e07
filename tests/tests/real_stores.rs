//! Real programs whose memory is at a memory server, or compressed: the same results as without Ream, a status that says
//! where pages are, and nothing left behind by a kill.

use ream_tests::{MemoryServer, Run, Scratch, installed, ream_binary, skip};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// The program plain, and within so many MiB, with its pages at a server, compressed, and compressed above a server.
fn everywhere(what: &str, memory: u64, run: impl Fn() -> Run) {
    let plain = run().finish();
    plain.exited(0);
    let server = MemoryServer::start("1G", &[]);
    let paged: [(&str, Run); 3] = [
        ("server", server.store(run())),
        ("zip", run().store("zip:512M".as_ref())),
        ("zip, server", server.store(run().zip(24))),
    ];
    for (name, run) in paged {
        let outcome = run.memory(memory).finish();
        outcome.same_as(&plain);
        let read = outcome.summary().number("reads");
        assert!(read > 100, "{what}, {name}: only {read} reads");
    }
    server.until("leases", |leases| leases == 0);
    assert_eq!(server.figure("used_bytes"), 0, "{what}");
}

/// A Python that has numpy.
fn numpy() -> Option<PathBuf> {
    // Debian's, which has Debian's numpy, before what else is in PATH.
    let debian = PathBuf::from("/usr/bin/python3");
    let python = if debian.is_file() { debian } else { installed("python3")? };
    let has = Command::new(&python).args(["-c", "import numpy"]).output().is_ok_and(|output| output.status.success());
    if !has {
        skip("numpy", &format!("{} has none", python.display()));
    }
    has.then_some(python)
}

const ARRAYS: &str = "
import hashlib, numpy
random = numpy.random.default_rng(7)
a = random.integers(0, 1000, size=(1600, 1600)).astype(float)
b = a.T.copy()
c = (a + b).cumsum(axis=0)
c.ravel()[::7] = numpy.sort(c.ravel()[::7])
d = c[random.permutation(1600)]
for array in (a, b, c, d):
    print(hashlib.sha256(array.data).hexdigest(), array.sum())
";

#[test]
fn arrays_of_numpy() {
    let Some(python) = numpy() else { return };
    everywhere("numpy", 40, || Run::of(&python).args(["-c", ARRAYS]).unmeasured());
}

#[test]
fn lines_that_are_sorted() {
    let Some(sort) = installed("sort") else { return };
    let scratch = Scratch::new("sort");
    let (mut text, mut state) = (String::new(), 1u64);
    for _ in 0..400_000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        text.push_str(&format!("{:020} and some more\n", state >> 3));
    }
    std::fs::write(scratch.file("lines"), text).expect("lines to sort");
    everywhere("sort", 16, || {
        let run = Run::of(&sort).args(["--parallel=2", "-S", "200M"]).arg(scratch.file("lines"));
        run.env("LC_ALL", "C").unmeasured()
    });
}

const VECTORS: &str = "
set.seed(7)
x <- runif(1e6)
y <- sort(x)
m <- matrix(x, 1000)
z <- t(m)[order(m[1, ]), ]
l <- lapply(split(x, rep(1:500, 2000)), sum)
cat(sprintf('%.17g\\n', c(sum(y), y[123456], sum(z[, 5]), z[77, 77], l[[321]])))
";

#[test]
fn vectors_of_r() {
    let Some(r) = installed("Rscript") else { return };
    everywhere("R", 40, || Run::of(&r).args(["--vanilla", "-e", VECTORS]).unmeasured());
}

const FOREVER: &str = "
import numpy, time
a = numpy.random.default_rng(7).integers(0, 9, size=8 << 20)
while True:
    a += 1
";

/// What `ream status` says of a process, once it says all of this.
fn status(pid: i32, words: &[&str]) -> String {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let output = Command::new(ream_binary()).args(["status", &pid.to_string()]).output().expect("ream status");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if words.iter().all(|word| text.contains(word)) {
            return text;
        }
        assert!(Instant::now() < deadline, "ream status {pid} does not show {words:?}:\n{text}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_kill_leaves_nothing_and_status_shows_tiers() {
    let Some(python) = numpy() else { return };
    let server = MemoryServer::start("1G", &[]);
    let run = Run::of(&python).args(["-c", FOREVER]).unmeasured().zip(16).memory(40);
    let running = server.store(run).start();
    let server_name = format!("tcp://{}", server.address);
    status(running.pid, &["tier zip", "tier memory servers", &server_name]);
    running.signal(libc::SIGKILL);
    // Waits for all of the run's processes, and looks what they left.
    running.finish().signalled(libc::SIGKILL);
    server.until("leases", |leases| leases == 0);
    assert_eq!(server.figure("used_bytes"), 0);
}
