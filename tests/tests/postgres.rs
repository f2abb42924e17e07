//! A PostgreSQL server, which refuses to run as root: started by root as another user, its sorts and hash joins take
//! several times the budget.

use ream_tests::{MIB, NOBODY, Reachable, Run, Scratch, UNMANAGED, is_root, ream_binary, skip, tool};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// The directory of the server's programs, the newest that Debian has installed.
fn programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let found = versions.map(|entry| entry.path().join("bin")).filter(|path| path.join("initdb").is_file()).max();
    if found.is_none() {
        skip("postgresql", "not installed");
    }
    found
}

/// A command and its arguments that start a program as the user who is to be the server's.
fn as_user(program: &Path) -> Option<Vec<PathBuf>> {
    if !is_root() {
        return Some(vec![program.to_owned()]);
    }
    let Some(setpriv) = tool("setpriv") else {
        skip("postgresql", "setpriv is not installed");
        return None;
    };
    let user = [format!("--reuid={NOBODY}"), format!("--regid={NOBODY}"), "--clear-groups".into()];
    Some([setpriv].into_iter().chain(user.map(PathBuf::from)).chain([program.to_owned()]).collect())
}

/// Runs one of the programs to its end, which comes within two minutes.
#[track_caller]
fn must(words: &[PathBuf], arguments: &[&str]) -> Output {
    let mut command = Command::new("timeout");
    command.arg("120").args(words).args(arguments).current_dir("/");
    let output = command.output().expect("starting a program of PostgreSQL's");
    assert!(output.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&output.stderr));
    output
}

/// Data that look random, computed by the server. What is sorted lies near its place already, so that the order in which
/// pages are touched is not that of dice.
const QUERIES: &str = "\
    set work_mem = '900MB'; set max_parallel_workers_per_gather = 0; set jit = off; set enable_mergejoin = off;
    create temp table a as select i, md5(i::text) as k, repeat(md5((i * 7)::text), 4) as v from generate_series(1, 150000) i;
    analyze a;
    select count(*), sum(r * (i % 1009)), min(v), max(v) from
        (select i, v, row_number() over (order by i / 2000, k) as r from a) s;
    select count(*), sum(length(x.v || y.v)), sum((x.i * 31 + y.i) % 10007) from
        (select * from a where i <= 40000) x join a y on x.i = y.i + 1;
    select k, i from (select * from a order by i / 5000 desc, v offset 1000) o limit 5;";

/// Starts a server, asks it, stops it; what it answered.
fn answers(programs: &Path, data: &str, server: Run, words: [&[PathBuf]; 2], memory: bool) -> String {
    let [ctl, psql] = words;
    let running = server.start();
    let deadline = Instant::now() + Duration::from_secs(60);
    let ready = programs.join("pg_isready");
    while !Command::new(&ready).args(["-q", "-h", data]).status().is_ok_and(|status| status.success()) {
        assert!(Instant::now() < deadline, "the server does not answer");
        std::thread::sleep(Duration::from_millis(50));
    }
    let output =
        must(psql, &["-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-h", data, "-d", "postgres", "-c", QUERIES]);
    must(ctl, &["stop", "-s", "-w", "-m", "fast", "-D", data]);
    let outcome = running.finish();
    outcome.exited(0);
    if memory {
        outcome.paged_within(40 * MIB, UNMANAGED + 64 * MIB);
    }
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_server_sorts_and_joins_more_than_its_budget() {
    let Some(programs) = programs() else { return };
    let scratch = Scratch::for_everybody("postgres");
    let data = scratch.directory("data");
    let reachable = if is_root() { Reachable::new() } else { None };
    let ream = reachable.as_ref().map_or_else(ream_binary, |reachable| reachable.ream().to_owned());
    if is_root() {
        std::os::unix::fs::chown(&data, Some(NOBODY), Some(NOBODY)).expect("giving a directory to nobody");
    }
    let words = |name: &str| as_user(&programs.join(name));
    let (Some(initdb), Some(ctl), Some(psql), Some(postgres)) =
        (words("initdb"), words("pg_ctl"), words("psql"), words("postgres"))
    else {
        return;
    };
    let directory = data.to_str().expect("a path of ours");
    must(&initdb, &["-N", "-A", "trust", "-E", "UTF8", "--locale=C", "-D", directory]);
    let server = || {
        let run = Run::of(&postgres[0]).args(&postgres[1..]).args(["-D", directory, "-k", directory]);
        let run = run.args(["-c", "listen_addresses=", "-c", "fsync=off", "-c", "shared_buffers=16MB"]);
        run.args(["-c", "temp_buffers=8MB", "-c", "autovacuum=off"]).ream(&ream).within(Path::new("/")).unmeasured()
    };
    let plain = answers(&programs, directory, server(), [&ctl, &psql], false);
    let paged = answers(&programs, directory, server().memory(40), [&ctl, &psql], true);
    assert_eq!(paged, plain);
    assert!(plain.lines().count() == 7 && plain.starts_with("150000|"), "{plain}");
}
