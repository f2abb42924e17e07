//! redis-server with a data set over the budget: BGSAVE, which forks, under writes; restart; compare.

use ream_tests::{MIB, MemoryServer, Redis, Reply, Run, Scratch, installed};
use std::path::Path;
use std::time::{Duration, Instant};

const BYTES: usize = 4096;

/// A value that can be computed again.
fn value(key: u64, version: u64) -> Vec<u8> {
    let mut state = (key << 20) + version + 1;
    let mut bytes = Vec::with_capacity(BYTES);
    while bytes.len() < BYTES {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        bytes.extend_from_slice(&(state ^ state >> 29).to_le_bytes());
    }
    bytes
}

fn set(redis: &mut Redis, keys: impl Iterator<Item = u64>, version: u64) {
    let keys: Vec<u64> = keys.collect();
    for some in keys.chunks(64) {
        for key in some {
            redis.send(&[b"SET", format!("key:{key}").as_bytes(), &value(*key, version)]).expect("SET");
        }
        for _ in some {
            assert_eq!(redis.receive().expect("reply to SET"), Reply::Line("OK".into()));
        }
    }
}

/// Every key must have one of the versions that `may_be` allows.
fn compare(redis: &mut Redis, keys: u64, may_be: impl Fn(u64) -> Vec<u64>) {
    for key in 0..keys {
        let reply = redis.ask(&[b"GET", format!("key:{key}").as_bytes()]).expect("GET");
        let Reply::Bytes(bytes) = reply else { panic!("key {key}: {reply:?}") };
        let found = may_be(key).into_iter().any(|version| bytes == value(key, version));
        assert!(found, "key {key} has none of the versions {:?}", may_be(key));
    }
}

fn server(program: &Path, directory: &Path) -> Run {
    let socket = directory.join("socket");
    Run::of(program)
        .args(["--port", "0", "--save", "", "--appendonly", "no", "--daemonize", "no", "--rdbcompression", "no"])
        .args(["--loglevel", "warning", "--unixsocket"])
        .arg(socket)
        .arg("--dir")
        .arg(directory)
        .unmeasured()
        .deadline(240)
}

/// A session that saves while it is written to: `keys` keys, in a server that is run like that, until a version is saved and
/// another one there; then a restart `again` that has what was saved.
fn saves(keys: u64, run: impl Fn(Run) -> Run, again: impl Fn(Run) -> Run) -> Option<ream_tests::Outcome> {
    let program = installed("redis-server")?;
    let scratch = Scratch::new("redis");
    let socket = scratch.file("socket");
    let running = run(server(&program, scratch.path())).start();
    let mut redis = Redis::connect(&socket);
    set(&mut redis, 0..keys, 0);
    let before = redis.ask(&[b"LASTSAVE"]).expect("LASTSAVE");
    // LASTSAVE counts whole seconds.
    std::thread::sleep(Duration::from_millis(1100));
    redis.ask(&[b"BGSAVE"]).expect("BGSAVE");
    let deadline = Instant::now() + Duration::from_secs(120);
    let mut versions = 0;
    while redis.ask(&[b"LASTSAVE"]).expect("LASTSAVE") == before || versions == 0 {
        assert!(Instant::now() < deadline, "BGSAVE does not end");
        versions += 1;
        set(&mut redis, (1..keys).step_by(2), versions);
    }
    // The server's own data are the last ones written; those that were saved are older: BGSAVE forks before it answers.
    compare(&mut redis, keys, |key| vec![if key % 2 == 1 { versions } else { 0 }]);
    redis.send(&[b"SHUTDOWN", b"NOSAVE"]).expect("SHUTDOWN");
    let outcome = running.finish();
    outcome.exited(0);

    let running = again(server(&program, scratch.path())).start();
    let mut redis = Redis::connect(&socket);
    assert_eq!(redis.ask(&[b"DBSIZE"]).expect("DBSIZE"), Reply::Line(keys.to_string()));
    compare(&mut redis, keys, |_| vec![0]);
    redis.send(&[b"SHUTDOWN", b"NOSAVE"]).expect("SHUTDOWN");
    running.finish().exited(0);
    Some(outcome)
}

#[test]
fn redis_saves_in_the_background_under_writes_and_restarts() {
    let within = |run: Run| run.memory(32);
    let Some(outcome) = saves(24_000, within, within) else { return };
    outcome.paged_within(32 * MIB, 48 * MIB);
}

/// What was saved is read by a server without Ream.
#[test]
fn redis_saves_what_is_at_a_memory_server_or_compressed() {
    let server = MemoryServer::start("1G", &[]);
    let stores: [&dyn Fn(Run) -> Run; 3] =
        [&|run| server.store(run), &|run| run.zip(16), &|run| server.store(run.zip(16))];
    for store in stores {
        let Some(outcome) = saves(9000, |run| store(run).memory(16), |run| run) else { return };
        outcome.paged_within(32 * MIB, 48 * MIB);
    }
    server.until("leases", |leases| leases == 0);
    assert_eq!(server.figure("used_bytes"), 0);
}
