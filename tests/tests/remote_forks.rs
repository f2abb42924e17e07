//! How much of the servers' memory forked children take when servers are lost: what they copy again of their parent's pages they
//! share, and second copies make room for what they write themselves.

use ream_tests::{Build, Condition, Fleet, Paged, Scratch, build};

/// What a server has given out, in MiB.
fn used(fleet: &Fleet, number: usize) -> u64 {
    let mut command = fleet.ream("client.key");
    let output = command.args(["status", "--json", "--server", &fleet.store(&[number])]).output().expect("ream");
    let all: serde_json::Value = serde_json::from_slice(&output.stdout).expect("figures");
    let used = all.get("ream_server_used_bytes").and_then(serde_json::Value::as_u64);
    used.unwrap_or_else(|| panic!("no figure in {all}")) >> 20
}

/// A server is killed and started again. All copies are whole then.
fn lose(fleet: &mut Fleet, program: &mut Paged, server: usize) {
    let before = program.condition().map_or(0, |now| now.servers[server].1);
    fleet.signal(server, libc::SIGKILL);
    program.until("the loss is noticed", |now| now.servers[server].1 > before);
    fleet.gone(server);
    fleet.start(server);
    program.until("all servers are used, and copies whole", Condition::is_whole);
}

/// Measured with three children of a parent that has stored 32 MiB twice: 194 MiB after two losses when each had copies of its own.
#[test]
fn children_share_what_they_copy_again() {
    const STORED: u64 = 32;
    let Some((_alone, mut fleet)) = Fleet::alone(3, "256M") else { return };
    let Build::Ready(heirs) = build("c/heirs.c", &[]) else { return };
    let scratch = Scratch::new("heirs");
    let go = scratch.file("go");
    let store = fleet.store(&[0, 1, 2]);
    let mut program = fleet.begin(&["--memory", "16M", "--store", &store], |command| {
        command.arg(heirs).arg(STORED.to_string()).args(["3", "4"]).arg(&go);
    });
    // The parent's pages, and the same again as each child counts them.
    program.until("all page", |now| now.pages > 4 * 6000 && now.servers.iter().all(|server| server.0));
    for server in [0, 1] {
        lose(&mut fleet, &mut program, server);
    }
    let given = [0, 1, 2].map(|number| used(&fleet, number));
    eprintln!("{given:?} MiB are given out");
    // Two copies of the parent's, two more of those that were lost, and some segments that are not full.
    assert!(given.iter().sum::<u64>() <= 4 * STORED + 12, "{given:?}");
    std::fs::write(&go, "").expect("a file");
    assert!(program.end().success(), "{}", program.told());
}

/// One of three servers is away, and what is written has room at the others once, not twice: it goes on with one copy of some
/// pages, and has two again when the server is back.
#[test]
fn second_copies_make_room_for_first_ones() {
    let Some((_alone, mut fleet)) = Fleet::alone(3, "64M") else { return };
    let Build::Ready(heirs) = build("c/heirs.c", &[]) else { return };
    let scratch = Scratch::new("room");
    let (go, end) = (scratch.file("go"), scratch.file("end"));
    let store = fleet.store(&[0, 1, 2]);
    let mut program = fleet.begin(&["--memory", "8M", "--store", &store], |command| {
        command.arg(heirs).args(["10", "1", "64"]).args([&go, &end]);
    });
    program.until("both page", |now| now.pages > 2 * 1000 && now.is_whole());
    fleet.signal(0, libc::SIGKILL);
    program.until("the loss is noticed", |now| !now.servers[0].0);
    fleet.gone(0);
    std::fs::write(&go, "").expect("a file");
    // Nothing is refused: of 128 MiB some 27 are for its parent's pages, and up to 64 for its own.
    program.until("all is stored, some of it once", |now| now.pages > 16_000 && now.missing > 1000);
    assert!(program.told().contains("have no room for all copies of pages"), "{}", program.told());
    fleet.start(0);
    program.until("all servers are used, and copies whole", Condition::is_whole);
    std::fs::write(&end, "").expect("a file");
    assert!(program.end().success(), "{}", program.told());
}
