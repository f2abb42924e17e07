//! Programs that page to a memory server: the same results, and a defined end when the server is lost.

use ream_tests::{Build, Case, MIB, MemoryServer, Run, build, compiled, skip, tool};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

fn checksum(arguments: [&str; 4]) -> Option<Run> {
    Some(Run::of(compiled("c/checksum.c", &[])?).args(arguments))
}

/// Nothing is left at the server: no lease, no byte.
fn left_nothing(server: &MemoryServer) {
    server.until("leases", |leases| leases == 0);
    assert_eq!(server.figure("used_bytes"), 0);
}

#[test]
fn threads_and_forks_find_what_they_wrote() {
    let server = MemoryServer::start("1G", &[]);
    for options in [&["--io=auto"][..], &["--io=threads"], &["--fetch=aggressive"]] {
        let (Some(plain), Some(paged)) = (checksum(["64", "2", "2", "2"]), checksum(["64", "2", "2", "2"])) else {
            return;
        };
        let plain = plain.finish();
        let paged = options.iter().fold(server.store(paged.memory(16)), |run, option| run.option(option)).finish();
        paged.same_as(plain.exited(0)).paged_within(16 * MIB, 64 * MIB);
        left_nothing(&server);
    }
}

#[test]
fn real_programs_give_the_same_results() {
    let server = MemoryServer::start("1G", &["--pages", "huge"]);
    for (source, arguments, memory) in
        [("c/realloc_grow.c", &["128"][..], 32), ("c/madvise_storm.c", &["96"], 32), ("c/syscalls.c", &["96"], 32)]
    {
        Case::new(source, arguments, memory).compare_with(|run, _| server.store(run));
    }
    if let Some(sort) = tool("sort") {
        let scratch = ream_tests::Scratch::new("sort");
        let mut text = String::new();
        let mut state = 1u64;
        for _ in 0..400_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            text.push_str(&format!("{:020} and some more\n", state >> 3));
        }
        std::fs::write(scratch.file("lines"), text).expect("lines to sort");
        let run = || Run::of(&sort).args(["--parallel=2", "-S", "200M"]).arg(scratch.file("lines")).env("LC_ALL", "C");
        let plain = run().finish();
        server.store(run().memory(16)).unmeasured().finish().same_as(&plain);
    } else {
        skip("sort", "it is not installed");
    }
    left_nothing(&server);
}

#[test]
fn families_read_what_their_ancestors_stored() {
    let server = MemoryServer::start("1G", &["--pages", "huge"]);
    for (source, arguments, memory) in [
        ("c/fork_deep.c", &["96"][..], 24),
        ("c/fork_storm.c", &["96"], 24),
        ("c/fork_exec_mix.c", &["96"], 32),
        ("c/fork_killed.c", &["96"], 32),
    ] {
        Case::new(source, arguments, memory).compare_with(|run, _| server.store(run));
        left_nothing(&server);
    }
}

#[test]
fn a_daemon_closes_everything_and_goes_on() {
    let server = MemoryServer::start("1G", &[]);
    let Some(program) = compiled("c/daemon_close.c", &[]) else { return };
    let scratch = ream_tests::Scratch::new("daemon");
    let result = |name: &str, run: Run| {
        run.args(["96".as_ref(), scratch.file(name).as_os_str()]).finish().exited(0);
        std::fs::read_to_string(scratch.file(name)).expect("what the daemon wrote")
    };
    // finish() waits for the daemon, too.
    let plain = result("plain", Run::of(&program));
    assert_eq!(result("paged", server.store(Run::of(&program).memory(24))), plain);
    left_nothing(&server);
}

#[test]
fn root_becomes_an_ordinary_user_and_its_children_page_on() {
    if !ream_tests::is_root() {
        return skip("giving up root's rights", "needs root");
    }
    let server = MemoryServer::start("1G", &[]);
    Case::new("c/rights.c", &["96", "3", "users"], 32).compare_with(|run, _| server.store(run));
    left_nothing(&server);
}

/// A run that pages for a long time, when it has stored something.
fn busy(server: &MemoryServer, options: &[&str]) -> Option<ream_tests::Running> {
    let run = server.store(checksum(["64", "100000", "2", "0"])?.memory(16));
    let running = options.iter().fold(run, |run, option| run.option(option)).start();
    server.until("pages_received_total", |pages| pages > 4096);
    Some(running)
}

/// It ended with one line, which says this and names the server.
fn one_line(outcome: &ream_tests::Outcome, address: &str, words: &str) {
    outcome.exited(125).says(words).says(&format!("tcp://{address}"));
    let told: Vec<String> =
        outcome.err().lines().filter(|line| line.contains("the program is stopped")).map(str::to_owned).collect();
    assert_eq!(told.len(), 1, "{}", outcome.describe());
    assert!(outcome.stdout.is_empty(), "{}", outcome.describe());
}

#[test]
fn a_killed_server_ends_the_program_with_a_line() {
    let server = MemoryServer::start("1G", &[]);
    let Some(running) = busy(&server, &[]) else { return };
    server.signal(libc::SIGKILL);
    one_line(&running.finish(), &server.address, "memory server");
}

/// What becomes of a program that needs so many MiB of 16, and pages nothing yet when this befalls its server.
fn befallen_before(mebibytes: &str, forks: &str, what: i32) -> Option<(ream_tests::Outcome, MemoryServer)> {
    let server = MemoryServer::start("1G", &[]);
    let (program, scratch) = (compiled("c/checksum.c", &[])?, ream_tests::Scratch::new("before"));
    let shell = Run::of("sh").args(["-c", ": >\"$0.there\"; while [ ! -e \"$0\" ]; do sleep 0.02; done; exec \"$@\""]);
    let shell = shell.arg(scratch.file("go")).arg(program).args([mebibytes, "2", "2", forks]);
    let running = server.store(shell.memory(16)).option("--store-deadline=2").start();
    let begun = std::time::Instant::now();
    while !scratch.file("go.there").exists() && begun.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(5));
    }
    server.signal(what);
    std::fs::write(scratch.file("go"), "").expect("a file");
    let outcome = running.finish();
    server.signal(libc::SIGCONT);
    Some((outcome, server))
}

#[test]
fn a_server_that_is_gone_before_anything_is_paged_ends_who_needs_it() {
    for what in [libc::SIGKILL, libc::SIGSTOP] {
        let Some((outcome, server)) = befallen_before("128", "0", what) else { return };
        one_line(&outcome, &server.address, "cannot be reached (errno ");
    }
    // A child is told of nothing, and begins to page on its own.
    let Some((outcome, _server)) = befallen_before("12", "1", libc::SIGKILL) else { return };
    outcome.says("the program is stopped");
}

#[test]
fn who_needs_no_server_does_not_miss_it() {
    let Some(plain) = checksum(["10", "2", "2", "0"]) else { return };
    let Some((outcome, _server)) = befallen_before("10", "0", libc::SIGKILL) else { return };
    outcome.same_as(&plain.finish());
    assert!(outcome.err().is_empty(), "{}", outcome.describe());
}

#[test]
fn a_server_that_stops_answering_is_waited_for_until_the_deadline() {
    let server = MemoryServer::start("1G", &[]);
    let Some(running) = busy(&server, &["--store-deadline=2"]) else { return };
    server.signal(libc::SIGSTOP);
    let outcome = running.finish();
    server.signal(libc::SIGCONT);
    one_line(&outcome, &server.address, "has not answered for 2 s");
    left_nothing(&server);
}

#[test]
fn a_pause_within_the_deadline_costs_nothing() {
    let server = MemoryServer::start("1G", &[]);
    let (Some(plain), Some(paged)) = (checksum(["64", "4", "2", "0"]), checksum(["64", "4", "2", "0"])) else { return };
    let running = server.store(paged.memory(16)).start();
    server.until("pages_received_total", |pages| pages > 1000);
    server.signal(libc::SIGSTOP);
    std::thread::sleep(Duration::from_millis(700));
    server.signal(libc::SIGCONT);
    running.finish().same_as(&plain.finish());
}

/// The server has room: it is not what is named.
#[test]
fn a_full_local_copy_ends_the_program_with_a_line() {
    let server = MemoryServer::start("1G", &[]);
    let Some(run) = checksum(["64", "1", "2", "0"]) else { return };
    let scratch = ream_tests::Scratch::new("copy");
    let run = server.store(run.memory(16)).option("--spill").option(scratch.path()).option("--store-limit=20M");
    let outcome = run.finish();
    one_line(&outcome, &server.address, "the local copy (--spill) beside tcp://");
    outcome.says("raise --store-limit or name another directory");
}

#[test]
fn a_full_server_and_a_used_up_quota_end_the_program_with_a_line() {
    for (memory, options) in [("16M", &[][..]), ("1G", &["--quota", "16M"])] {
        let server = MemoryServer::start(memory, options);
        let Some(run) = checksum(["64", "1", "2", "0"]) else { return };
        one_line(&server.store(run.memory(16)).finish(), &server.address, "has no room left for this program");
        left_nothing(&server);
    }
}

#[test]
fn a_server_that_others_have_filled_refuses_and_loses_nothing() {
    let server = MemoryServer::start("100M", &["--quota", "90M"]);
    let Some(first) = busy(&server, &[]) else { return };
    // It has stored everything several times, so it asks for no more room: who asks next is the other one.
    server.until("pages_received_total", |pages| pages > 16 * 4096);
    let Some(second) = checksum(["96", "1", "2", "0"]) else { return };
    one_line(&server.store(second.memory(16)).finish(), &server.address, "has no room left");
    assert!(server.figure("full_total") + server.figure("quota_total") > 0);
    first.signal(libc::SIGKILL);
    first.finish().signalled(libc::SIGKILL);
    left_nothing(&server);
    let (Some(plain), Some(third)) = (checksum(["64", "1", "2", "0"]), checksum(["64", "1", "2", "0"])) else { return };
    server.store(third.memory(16)).finish().same_as(&plain.finish());
}

#[test]
fn a_session_killed_whole_gives_its_memory_back() {
    let server = MemoryServer::start("1G", &[]);
    let Some(running) = busy(&server, &[]) else { return };
    assert!(server.figure("used_bytes") > 0);
    for pid in running.processes().into_iter().chain([running.agent()]) {
        // SAFETY: kill only sends a signal; the processes carry this run's mark, and the agent is that of its session.
        unsafe { libc::kill(pid, libc::SIGKILL) };
    }
    running.finish().signalled(libc::SIGKILL);
    left_nothing(&server);
}

#[test]
fn programs_go_on_and_fork_when_the_agent_is_killed() {
    let server = MemoryServer::start("1G", &[]);
    let (Some(plain), Some(paged)) = (checksum(["64", "3", "2", "1"]), checksum(["64", "3", "2", "1"])) else { return };
    let running = server.store(paged.memory(16)).start();
    server.until("pages_received_total", |pages| pages > 100);
    running.kill_agent();
    let outcome = running.finish();
    assert_eq!(outcome.stdout, plain.finish().stdout, "{}", outcome.describe());
    left_nothing(&server);
}

#[test]
fn sigterm_tells_clients_and_ends_after_them() {
    let mut server = MemoryServer::start("1G", &["--drain", "2"]);
    let Some(running) = busy(&server, &[]) else { return };
    server.signal(libc::SIGTERM);
    let outcome = running.finish();
    outcome.says("is about to end");
    one_line(&outcome, &server.address, "memory server");
    assert_eq!(server.wait(), Some(0), "{}", server.log());
    assert!(server.log().contains("event=ending") && server.log().contains("event=ended"));
    // With nobody there it ends at once.
    let mut server = MemoryServer::start("1G", &[]);
    server.signal(libc::SIGTERM);
    assert_eq!(server.wait(), Some(0), "{}", server.log());
}

/// It is asked how things stand, and has new connections of its sessions, to the end; new sessions it has not.
#[test]
fn a_server_that_is_about_to_end_serves_its_sessions() {
    let mut server = MemoryServer::start("1G", &["--drain", "600"]);
    let arguments = ["64", "8", "2", "1"];
    let (Some(plain), Some(paged)) = (checksum(arguments), checksum(arguments)) else { return };
    let running = server.store(paged.memory(16)).deadline(120).start();
    server.until("pages_received_total", |pages| pages > 1000);
    server.signal(libc::SIGTERM);
    server.until("ending", |ending| ending == 1);
    let name = format!("tcp://{}", server.address);
    let mut status = Command::new(ream_tests::ream_binary());
    status.args(["status", "--server", &name, "--key"]).arg(server.file("client.key"));
    let status = status.arg("--servers").arg(server.file("servers")).output().expect("ream status");
    assert!(String::from_utf8_lossy(&status.stdout).starts_with(&format!("{name} (about to end)\n")), "{status:?}");
    let Some(late) = checksum(["1", "1", "1", "0"]) else { return };
    server.store(late.memory(16)).unmeasured().finish().exited(125).says("it is about to end");
    let outcome = running.finish();
    assert_eq!(outcome.stdout, plain.finish().stdout, "{}", outcome.describe());
    outcome.exited(0).says("is about to end");
    assert_eq!(server.wait(), Some(0), "{}", server.log());
}

#[test]
fn a_store_limit_ends_the_program_with_a_line_that_names_it() {
    let server = MemoryServer::start("1G", &[]);
    let Some(run) = checksum(["64", "1", "2", "0"]) else { return };
    let outcome = server.store(run.memory(16)).option("--store-limit=20M").finish();
    one_line(&outcome, &server.address, "the session may store no more (--store-limit)");
    assert!(!outcome.err().contains("add-store"), "{}", outcome.describe());
}

/// Whoever has it may use the session's memory at the server.
#[test]
fn a_lease_is_in_no_core_dump() {
    let server = MemoryServer::start("1G", &[]);
    let Some(running) = busy(&server, &[]) else { return };
    let maps = std::fs::read_to_string(format!("/proc/{}/smaps", running.pid)).expect("its mappings");
    let of_session = maps.split("VmFlags:").zip(maps.split("VmFlags:").skip(1));
    let flags: Vec<&str> = of_session
        .filter(|(before, _)| before.contains("/memfd:ream-session"))
        .filter_map(|(_, after)| after.lines().next())
        .collect();
    assert!(!flags.is_empty(), "{maps}");
    assert!(flags.iter().all(|flags| flags.split_whitespace().any(|flag| flag == "dd")), "{flags:?}");
    running.signal(libc::SIGKILL);
    running.finish();
}

#[test]
fn without_security_both_sides_say_so() {
    let server = MemoryServer::start("1G", &["--insecure"]);
    assert!(server.log().contains("INSECURE"));
    let (Some(plain), Some(paged)) = (checksum(["64", "2", "2", "1"]), checksum(["64", "2", "2", "1"])) else { return };
    let outcome = server.store(paged.memory(16)).finish();
    outcome.same_as(&plain.finish()).says("--insecure: pages go to");
    left_nothing(&server);
}

#[test]
fn figures_are_shown_to_prometheus() {
    let server = MemoryServer::start("64M", &["--metrics", "127.0.0.1:0"]);
    let log = server.log();
    let address = log.split("http://").nth(1).and_then(|rest| rest.split('/').next()).expect("the address of figures");
    let ask = |line: &str| {
        let mut stream = TcpStream::connect(address).expect("a connection");
        stream.write_all(format!("{line}\r\nHost: x\r\n\r\n").as_bytes()).expect("a request");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("an answer");
        text
    };
    let text = ask("GET /metrics HTTP/1.1");
    assert!(text.starts_with("HTTP/1.1 200 OK") && text.contains("\nream_server_memory_bytes 67108864\n"), "{text}");
    assert!(ask("GET / HTTP/1.1").starts_with("HTTP/1.1 404"));
}

#[test]
fn an_idle_server_sleeps() {
    let server = MemoryServer::start("64M", &[]);
    let idle: Vec<TcpStream> = (0..64).map(|_| TcpStream::connect(&server.address).expect("a connection")).collect();
    let switches = || {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", server.pid())).expect("its threads");
        let count = |task: std::fs::DirEntry| {
            let status = std::fs::read_to_string(task.path().join("status")).unwrap_or_default();
            let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).map(str::trim);
            line.and_then(|number| number.parse::<u64>().ok()).unwrap_or(0)
        };
        tasks.flatten().map(count).sum::<u64>()
    };
    // Those who say nothing are strangers, and gone after some seconds; then there is nothing to do at all.
    server.until("strangers_total", |count| count >= 64);
    drop(idle);
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    loop {
        let before = switches();
        std::thread::sleep(Duration::from_millis(500));
        if switches() == before {
            return;
        }
        assert!(std::time::Instant::now() < deadline, "it does not sleep");
    }
}

/// A namespace of the network, with one end of a cable in it; both gone when dropped.
struct Namespace {
    name: String,
}

fn ip(arguments: &str) -> bool {
    let status = Command::new(tool("ip").unwrap_or_default()).args(arguments.split(' ')).output();
    status.is_ok_and(|output| output.status.success())
}

impl Drop for Namespace {
    fn drop(&mut self) {
        ip(&format!("netns delete {}", self.name));
    }
}

#[test]
fn a_cut_cable_ends_the_program_within_the_deadline() {
    let what = "a network of the test's own";
    if !ream_tests::is_root() || tool("ip").is_none() {
        return skip(what, "needs root and ip (iproute2)");
    }
    let id = std::process::id();
    let names = [format!("ream-c{id}"), format!("ream-s{id}")];
    let mut spaces = Vec::new();
    for name in &names {
        if !ip(&format!("netns add {name}")) {
            return skip(what, "network namespaces cannot be made");
        }
        spaces.push(Namespace { name: name.clone() });
    }
    let [client, server_space] = names;
    if !ip(&format!("link add rc{id} netns {client} type veth peer name rs{id} netns {server_space}")) {
        return skip(what, "no veth");
    }
    for (space, link, address) in
        [(&client, format!("rc{id}"), "10.77.9.1"), (&server_space, format!("rs{id}"), "10.77.9.2")]
    {
        assert!(ip(&format!("-n {space} addr add {address}/24 dev {link}")));
        assert!(ip(&format!("-n {space} link set {link} up")) && ip(&format!("-n {space} link set lo up")));
    }
    let ip_tool = tool("ip").expect("ip");
    let mut command = Command::new(&ip_tool);
    command.args(["netns", "exec", &server_space]).arg(ream_tests::ream_binary());
    let server = MemoryServer::start_in(command, "10.77.9.2:7400", "1G", &[]);
    let Build::Ready(program) = build("c/checksum.c", &[]) else { return };
    // The command that the harness starts is ip, and its program is ream.
    let run = |rounds: &str| {
        let run = Run::of(&ip_tool).args(["netns", "exec", &client]).arg(ream_tests::ream_binary());
        run.args(["run", "--memory", "16M", "--store-deadline=3", "--store", "tcp://10.77.9.2:7400", "--key"])
            .arg(server.file("client.key"))
            .arg("--servers")
            .arg(server.file("servers"))
            .arg("--")
            .arg(&program)
            .args(["64", rounds, "2", "0"])
    };
    let plain = Run::of(&program).args(["64", "2", "2", "0"]).finish();
    run("2").finish().same_as(&plain);
    let running = run("100000").start();
    // The server's own figures are not to be had from here, those of the program are.
    let stored = || {
        let status =
            Command::new(ream_tests::ream_binary()).args(["status", "--json", &running.pid.to_string()]).output();
        let all: serde_json::Value = serde_json::from_slice(&status.ok()?.stdout).ok()?;
        all["store"]["pages"].as_u64().filter(|pages| *pages > 1000)
    };
    ream_tests::mpi::until("pages at the server", stored);
    assert!(ip(&format!("-n {client} link set rc{id} down")));
    one_line(&running.finish(), &server.address, "memory server");
}

#[test]
fn what_is_no_server_is_named() {
    for (arguments, word) in [
        (["status", "--server", "nodeb:7400"], "nodeb:7400"),
        (["status", "--server", "tcp://nodeb"], "tcp://nodeb"),
        (["run", "--store=tcp://a:1,b:2", "true"], "tcp://a:1,b:2"),
    ] {
        let output = Command::new(ream_tests::ream_binary()).args(arguments).output().expect("ream");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{arguments:?}: {errors}");
        assert!(errors.contains(word) && errors.lines().count() == 1, "{arguments:?}: {errors}");
    }
}

#[test]
fn doctor_names_each_server() {
    let server = MemoryServer::start("64M", &[]);
    let nobody = "127.0.0.1:1";
    let servers = format!("{} {public}\n{nobody} {public}\n", server.address, public = server.public);
    std::fs::write(server.file("servers"), servers).expect("the list of servers");
    let store = format!("tcp://{},tcp://{nobody}", server.address);
    let mut command = Command::new(ream_tests::ream_binary());
    command.args(["doctor", "--store", &store, "--key"]).arg(server.file("client.key"));
    let output = command.arg("--servers").arg(server.file("servers")).output().expect("ream");
    let text = String::from_utf8_lossy(&output.stdout);
    let line = |name: &str| text.lines().find(|line| line.contains(name)).unwrap_or_else(|| panic!("{name}: {text}"));
    assert!(line(&format!("store tcp://{}", server.address)).contains("64 MiB left for us, answers in "), "{text}");
    assert!(line(&format!("store tcp://{nobody}")).contains("refused"), "{text}");
    assert!(line("memory servers").contains("1 of 2 can be had, each page at two"), "{text}");
}
