//! Real programs with 256 MiB and more: at least 90 % of their anonymous memory lies on large pages, and they print what
//! they print without Ream. Large pages are waited for: full blocks are made large some seconds after they were filled.

use ream_tests::{MIB, Redis, Run, Running, Scratch, compiled, installed, large_pages, report, skip, tool};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Anonymous memory of a process, and how much of it lies on large pages; code in RAM, and on large pages. In KiB.
#[derive(Default, Debug)]
struct Placed {
    anonymous: u64,
    large: u64,
    code: u64,
    large_code: u64,
    /// The mappings with the most on small pages.
    worst: Vec<(u64, String)>,
}

impl Placed {
    fn of(pid: i32) -> Placed {
        let text = fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap_or_default();
        let mut placed = Placed::default();
        let mut head = "";
        let mut anonymous = 0;
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let Some((name, "")) = words.next().and_then(|word| word.split_once(':')) else {
                head = line;
                continue;
            };
            let number = words.next().and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
            let code = head.split_whitespace().nth(1).is_some_and(|access| access.starts_with("r-x"));
            match name {
                "Rss" if code => placed.code += number,
                "FilePmdMapped" if code => placed.large_code += number,
                "Anonymous" => anonymous = number,
                "AnonHugePages" => {
                    placed.large += number;
                    placed.anonymous += anonymous;
                    placed.worst.push((anonymous - number.min(anonymous), head.to_owned()));
                }
                _ => {}
            }
        }
        placed.worst.sort_by(|one, other| other.cmp(one));
        placed.worst.truncate(12);
        placed
    }
}

/// Transparent large pages can be had here.
/// Waits until the largest process of a run has 256 MiB of anonymous memory, 90 % of it on large pages.
fn until_large(name: &str, running: &Running) {
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        // Its own besides: servers write over the environment by which processes are recognised.
        let all = running.processes().into_iter().chain([running.pid]).map(|pid| (Placed::of(pid), pid));
        let (placed, pid) = all.max_by_key(|(placed, _)| placed.anonymous).expect("a process");
        let percent = placed.large * 100 / placed.anonymous.max(1);
        if placed.anonymous >= 256 * 1024 && percent >= 90 {
            let Placed { anonymous, code, large_code, .. } = placed;
            eprintln!("{name}: {percent} % of {} MiB; code {code} KiB, {large_code} on large pages", anonymous / 1024);
            return;
        }
        assert!(Instant::now() < deadline, "{name}: {percent} %: {placed:#?}\n{}", report(pid));
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Runs a program plain and under Ream. Both times it fills its memory and then waits for the file `go`, which is there
/// from the beginning when it runs plain. `run` makes the run from that file's path.
fn large_and_the_same(name: &str, run: impl Fn(&Path) -> Run) {
    if !large_pages(&["always", "madvise"]) {
        return;
    }
    let scratch = Scratch::new("coverage");
    let go = scratch.file("go");
    fs::write(&go, "").expect("a file");
    let plain = run(&go).unmeasured().finish();
    plain.exited(0);
    fs::remove_file(&go).expect("removing it");
    let running = run(&go).unmeasured().under_ream().start();
    until_large(name, &running);
    fs::write(&go, "").expect("a file");
    running.finish().same_as(&plain);
}

/// A python3 that can import `module`.
fn python_with(module: &str) -> Option<PathBuf> {
    let can = |path: &PathBuf| {
        let asked = std::process::Command::new(path).args(["-c", &format!("import {module}")]).output();
        asked.is_ok_and(|output| output.status.success())
    };
    let found = [PathBuf::from("/usr/bin/python3")].into_iter().chain(tool("python3")).find(can);
    if found.is_none() {
        skip("python3", &format!("no python3 that can import {module}"));
    }
    found
}

#[test]
fn heaps_that_programs_map_themselves() {
    let Some(program) = compiled("c/own_heap.c", &[]) else { return };
    for kind in ["small", "wished", "grown", "over", "break"] {
        large_and_the_same(kind, |go| Run::of(&program).arg(kind).arg(go));
    }
}

#[test]
fn r_with_vectors_and_lists() {
    let Some(rscript) = installed("Rscript") else { return };
    let script = "\
        set.seed(3); x <- rnorm(1.5e7); l <- lapply(1:400000, function(i) c(i, i + 1, i + 2))\n\
        m <- matrix(runif(4e6), 2000); s <- sprintf('name%d', 1:500000); gc() -> ignored\n\
        cat(sum(x), sum(sapply(l, sum)), sum(m), length(unique(s)), '\\n')\n\
        while (!file.exists(commandArgs(TRUE)[1])) Sys.sleep(0.05)\n\
        cat(sum(x[seq(1, 1.5e7, 999)]), l[[77]], s[99], '\\n')";
    let scratch = Scratch::new("coverage-r");
    fs::write(scratch.file("large.R"), script).expect("the script");
    large_and_the_same("R", |go| Run::of(&rscript).arg("--vanilla").arg(scratch.file("large.R")).arg(go));
}

#[test]
fn python_with_arrays_and_objects() {
    let Some(python) = python_with("numpy") else { return };
    let script = "\
import numpy, os, sys, time\n\
a = numpy.arange(25_000_000, dtype=float)\n\
b = [numpy.full((300, 300), float(i)) for i in range(100)]\n\
d = {i: str(i) * 2 for i in range(1_000_000)}\n\
print(a.sum(), sum(x.sum() for x in b), len(d), flush=True)\n\
while not os.path.exists(sys.argv[1]):\n    time.sleep(0.05)\n\
print(a[::999].sum(), d[77], sum(map(len, d.values())))";
    large_and_the_same("python3", |go| Run::of(&python).args(["-c", script]).arg(go));
}

#[test]
fn node_with_objects_arrays_and_buffers() {
    let Some(node) = installed("node") else { return };
    let script = "\
        const fs = require('fs'); const all = []; let x = 1;\n\
        for (let i = 0; i < 1000000; i++) { x = (x * 48271) % 2147483647; all.push({ key: x, text: 'n' + x, at: i }); }\n\
        const big = []; for (let i = 0; i < 10; i++) big.push(new Float64Array(1 << 20).fill(i));\n\
        const lists = []; for (let i = 0; i < 40; i++) { const l = new Array(1 << 20); for (let k = 0; k < l.length; k++) l[k] = k; lists.push(l); }\n\
        let sum = 0; for (const o of all) sum = (sum + o.key) % 1000003; for (const l of lists) sum += l[77]; console.log(sum);\n\
        const pause = new Int32Array(new SharedArrayBuffer(4));\n\
        while (!fs.existsSync(process.argv[1])) Atomics.wait(pause, 0, 0, 50);\n\
        console.log(all[777], big[3][9], lists[5][4711], all.length);";
    large_and_the_same("node", |go| Run::of(&node).args(["--max-old-space-size=2048", "-e", script]).arg(go));
}

#[test]
fn fortran_with_a_common_block_and_threads() {
    let Some(program) = compiled("f90/common_waits.f90", &[]) else { return };
    large_and_the_same("Fortran", |go| Run::of(&program).arg(go));
}

#[test]
fn sqlite_with_a_database_in_memory() {
    let Some(sqlite) = installed("sqlite3") else { return };
    large_and_the_same("sqlite", |go| {
        let script = format!(
            "create table t (id integer primary key, name text, note text);\n\
             with recursive n(i) as (select 0 union all select i + 1 from n where i < 899999)\n\
             insert into t select i, printf('%08x', (i * 2654435761) % 4294967296), printf('%0250d', i * 7919) from n;\n\
             create index by_name on t (name);\n\
             select count(*), min(name), max(name) from t;\n\
             .shell while [ ! -e '{}' ]; do sleep 0.05; done\n\
             select count(*), sum(length(note)), sum(id) from t;\n\
             pragma integrity_check;\n",
            go.display()
        );
        let file = go.with_file_name("script.sql");
        fs::write(&file, script).expect("the script");
        Run::of(&sqlite).arg(":memory:").input(&file)
    });
}

/// Java's heap is reserved, and opened in steps.
#[test]
fn java_with_two_collectors() {
    let (Some(java), Some(_)) = (installed("java"), installed("javac")) else { return };
    let scratch = Scratch::new("coverage-java");
    let source = "\
        import java.util.*; import java.io.File;\n\
        public class Held { public static void main(String[] a) throws Exception {\n\
          Random r = new Random(5); List<long[]> held = new ArrayList<>(); Map<Integer, String> map = new HashMap<>();\n\
          for (int i = 0; i < 20000; i++) { long[] x = new long[2048]; for (int k = 0; k < x.length; k++) x[k] = r.nextInt(); held.add(x); }\n\
          for (int i = 0; i < 500000; i++) map.put(i, \"v\" + i);\n\
          while (!new File(a[0]).exists()) Thread.sleep(50);\n\
          long sum = 0; for (long[] x : held) sum = sum * 31 + x[0] + x[2047];\n\
          System.out.println(sum + \" \" + map.size()); } }";
    fs::write(scratch.file("Held.java"), source).expect("the source");
    let compiled = std::process::Command::new("javac").arg("Held.java").current_dir(scratch.path()).status();
    assert!(compiled.expect("javac").success());
    for collector in ["-XX:+UseSerialGC", "-XX:+UseG1GC"] {
        large_and_the_same(collector, |go| {
            Run::of(&java).args(["-Xmx900m", collector, "Held"]).arg(go).within(scratch.path())
        });
    }
}

/// It brings an allocator of its own along (jemalloc, as Debian builds it).
#[test]
fn redis_with_many_values() {
    if !large_pages(&["always", "madvise"]) {
        return;
    }
    let Some(program) = installed("redis-server") else { return };
    let scratch = Scratch::new("coverage-redis");
    let socket = scratch.file("socket");
    let running = Run::of(&program)
        .args(["--port", "0", "--save", "", "--appendonly", "no", "--loglevel", "warning", "--unixsocket"])
        .arg(&socket)
        .arg("--dir")
        .arg(scratch.path())
        .under_ream()
        .unmeasured()
        .start();
    let mut redis = Redis::connect(&socket);
    let value = |key: u64| vec![b'a' + (key % 23) as u8; 700 + (key % 1100) as usize];
    let keys = 300 * MIB / 1250;
    for first in (0..keys).step_by(64) {
        for key in first..first + 64 {
            redis.send(&[b"SET", format!("key:{key}").as_bytes(), &value(key)]).expect("SET");
        }
        for _ in 0..64 {
            redis.receive().expect("reply to SET");
        }
    }
    until_large("redis", &running);
    for key in (0..keys).step_by(997) {
        let reply = redis.ask(&[b"GET", format!("key:{key}").as_bytes()]).expect("GET");
        assert!(matches!(reply, ream_tests::Reply::Bytes(bytes) if bytes == value(key)), "key {key}");
    }
    redis.send(&[b"SHUTDOWN", b"NOSAVE"]).expect("SHUTDOWN");
    running.finish().exited(0);
}
