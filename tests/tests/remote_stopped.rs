//! Programs that stand still, or end, in the middle of a message to a memory server: neither they nor their children lose
//! what they have stored.

use ream_tests::{Meddle, MemoryServer, Proxy, Run, Running, Scratch, Space, compiled, is_root, ream_binary, skip};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Longer than a server waits before it looks what is the matter.
const LONG: Duration = Duration::from_secs(26);

/// A proxy that passes some 50 MB/s each way: messages are on their way for a while.
fn slow(server: &MemoryServer) -> Proxy {
    let meddle: Arc<Meddle> = Arc::new(|_, _, _, bytes: &mut [u8]| {
        std::thread::sleep(Duration::from_nanos(bytes.len() as u64 * 20));
    });
    Proxy::before(&server.address, meddle)
}

fn until_within(seconds: u64, what: &str, so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !so() {
        assert!(begun.elapsed() < Duration::from_secs(seconds), "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn until(what: &str, so: impl Fn() -> bool) {
    until_within(60, what, so);
}

#[test]
fn stopped_programs_go_on_with_what_they_have_stored() {
    let server = MemoryServer::start("2G", &[]);
    let proxy = slow(&server);
    let Some(program) = compiled("c/checksum.c", &[]) else { return };
    let run = || Run::of(&program).args(["192", "100000", "2", "0"]).memory(64).deadline(120);
    let running: Vec<Running> = (0..3).map(|_| server.store_at(run(), &proxy.address).start()).collect();
    server.until("pages_received_total", |pages| pages > 3 * 16_384);
    for one in &running {
        one.signal(libc::SIGSTOP);
        std::thread::sleep(Duration::from_millis(130));
    }
    std::thread::sleep(LONG);
    let before = server.figure("pages_received_total");
    running.iter().for_each(|one| one.signal(libc::SIGCONT));
    server.until("pages_received_total", |pages| pages > before + 3 * 16_384);
    assert_eq!((server.figure("leases"), server.figure("late_total")), (3, 0), "{}", server.log());
    for one in running {
        one.signal(libc::SIGKILL);
        one.finish().signalled(libc::SIGKILL);
    }
}

/// A parent that has stored most of 192 MiB and writes on, and its child that is to read them; where the child waits.
fn family(server: &MemoryServer, proxy: &Proxy, scratch: &Scratch, before_the_fork: impl FnOnce()) -> Option<Running> {
    let program = compiled("c/orphan.c", &[])?;
    let (go, read) = (scratch.file("go"), scratch.file("read"));
    let run = Run::of(program).args(["192".as_ref(), go.as_os_str(), read.as_os_str()]).memory(128).deadline(120);
    let running = server.store_at(run, &proxy.address).start();
    server.until("pages_received_total", |pages| pages > 10_000);
    before_the_fork();
    std::fs::write(&go, "").expect("a file");
    until("the fork", || scratch.file("go.forked").exists());
    Some(running)
}

/// Has the child read what its parent has stored.
fn reads_it_all(scratch: &Scratch) {
    std::fs::write(scratch.file("read"), "").expect("a file");
    let result = scratch.file("read.read");
    let told = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
    until("the child's result", || told(&result).ends_with("wrong"));
    assert_eq!(told(&result), "0 wrong");
}

#[test]
fn a_child_reads_what_a_parent_had_stored_that_was_killed_in_the_middle_of_a_write() {
    let server = MemoryServer::start("2G", &[]);
    let (proxy, scratch) = (slow(&server), Scratch::new("orphan"));
    let Some(running) = family(&server, &proxy, &scratch, || {}) else { return };
    let before = server.figure("pages_received_total");
    server.until("pages_received_total", |pages| pages > before + 4096);
    running.signal(libc::SIGKILL);
    std::thread::sleep(LONG);
    reads_it_all(&scratch);
    running.finish().signalled(libc::SIGKILL);
    server.until("leases", |leases| leases == 0);
    assert_eq!(server.figure("used_bytes"), 0);
}

#[test]
fn a_child_reads_what_a_parent_had_stored_that_lost_its_connections() {
    let server = MemoryServer::start("2G", &[]);
    let scratch = Scratch::new("orphan");
    // Connections so far, those that are the parent's, and whether bytes of these are changed.
    let (all, parents) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let on = Arc::new(AtomicBool::new(false));
    let (count, most, switch) = (all.clone(), parents.clone(), on.clone());
    let meddle: Arc<Meddle> = Arc::new(move |number, there, before, bytes: &mut [u8]| {
        count.fetch_max(number + 1, Ordering::SeqCst);
        if there && switch.load(Ordering::SeqCst) && number < most.load(Ordering::SeqCst) && before > 4096 {
            bytes.iter_mut().for_each(|byte| *byte ^= 0x55);
        }
    });
    let proxy = Proxy::before(&server.address, meddle);
    let note = || parents.store(all.load(Ordering::SeqCst), Ordering::SeqCst);
    let Some(running) = family(&server, &proxy, &scratch, note) else { return };
    on.store(true, Ordering::SeqCst);
    // The server sees that the parent's messages are not genuine and ends its lanes, and so the parent.
    server.until("forged_total", |count| count > 0);
    until("the parent's end", || {
        std::fs::read_to_string(format!("/proc/{}/stat", running.pid)).is_ok_and(|stat| stat.contains(") Z "))
    });
    std::thread::sleep(Duration::from_millis(500));
    reads_it_all(&scratch);
    running.finish().exited(125);
    server.until("leases", |leases| leases == 0);
}

#[test]
fn a_host_that_vanishes_with_a_stopped_program_is_noticed() {
    let what = "hosts of the test's own";
    if !is_root() {
        return skip(what, "needs root");
    }
    let (Ok(client), Ok(host)) = (Space::new(), Space::new()) else { return skip(what, "cannot be made") };
    client.cable("vs0", "10.77.30.1", &host, "10.77.30.2").expect("a cable");
    let Some(program) = compiled("c/checksum.c", &[]) else { return };
    let mut command = Command::new(ream_binary());
    host.run(&mut command);
    let server = MemoryServer::start_in(command, "10.77.30.2:7400", "1G", &[]);
    let mut command = Command::new(ream_binary());
    command.args(["run", "--memory=16M", "--store=tcp://10.77.30.2:7400", "--key"]).arg(server.file("client.key"));
    command.arg("--servers").arg(server.file("servers")).arg("--").arg(program).args(["64", "100000", "2", "0"]);
    client.run(&mut command);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("ream");
    until("a lease", || server.log().contains("event=lease "));
    std::thread::sleep(Duration::from_secs(2));
    // SAFETY: kill only sends a signal, to a child of ours that has not been waited for.
    unsafe { libc::kill(child.id() as i32, libc::SIGSTOP) };
    std::thread::sleep(Duration::from_secs(5));
    assert!(!server.log().contains("lease-ended"), "{}", server.log());
    client.ip("link set vs0 down").expect("ip");
    // Before Linux 6.15 it may take six minutes.
    until_within(400, "the end of the lease", || server.log().contains("lease-ended"));
    let _ = child.kill();
    let _ = child.wait();
}
