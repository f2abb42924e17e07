//! The program's dealings with the kernel while its memory is paged: system calls into absent pages, direct I/O of its
//! own, signals, threads that come and go, daemons, and exit.

use ream_tests::{Case, MIB, Run, Running, Scratch, UNMANAGED, compiled, skip};
use std::fs;
use std::time::{Duration, Instant};

fn with_directory(source: &str, memory: u64) {
    let scratch = Scratch::new("files");
    Case::new(source, &["256"], memory).compare_with(|run, _| run.arg(scratch.path()).unmeasured());
}

#[test]
fn system_calls_into_absent_pages() {
    with_directory("c/syscalls.c", 64);
}

#[test]
fn pages_that_pipes_and_sockets_refer_to() {
    let scratch = Scratch::new("files");
    let case = Case::new("c/syscalls.c", &["256"], 64);
    case.compare_with(|run, _| run.arg(scratch.path()).arg("references").unmeasured());
}

#[test]
fn the_programs_own_ring_and_pinned_pages() {
    with_directory("c/uring.c", 64);
}

/// Whether io_uring is allowed: the call then has something to say about its arguments.
fn ring_is_allowed() -> bool {
    // SAFETY: without a place for its answer the call does nothing.
    unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, 0) };
    !matches!(std::io::Error::last_os_error().raw_os_error(), Some(libc::ENOSYS | libc::EPERM))
}

/// Where pages are copied, what a device writes would be lost: 6 of 6 such runs read zeros before nothing left RAM meanwhile.
#[test]
fn nothing_is_copied_out_that_a_device_may_write() {
    const SAID: &str = "cannot tell which pages a device writes: nothing leaves RAM meanwhile";
    let scratch = Scratch::new("devices");
    let Some(program) = Case::new("c/uring.c", &[], 64).build() else { return };
    for _ in 0..3 {
        let outcome = Run::of(&program).args(["256"]).arg(scratch.path()).memory(64).option("--engine=copy").finish();
        outcome.exited(0);
        assert_eq!(outcome.out(), "transfers agree\n", "{}", outcome.describe());
        match ring_is_allowed() {
            true => assert!(outcome.err().contains(SAID), "{}", outcome.describe()),
            false => skip("rings of the program's own", "io_uring is not allowed here"),
        }
    }
    let Some(program) = Case::new("c/direct.c", &[], 64).build() else { return };
    let outcome =
        Run::of(&program).args(["256", "73728"]).arg(scratch.path()).memory(64).option("--engine=copy").finish();
    outcome.exited(0);
    match outcome.out().trim() {
        "not here" => skip("files past the page cache", "this file system has none"),
        said => assert_eq!(said, "all in RAM, fits", "{}", outcome.describe()),
    }
}

#[test]
fn signals_at_1_khz_whose_handler_pages() {
    Case::new("c/signals.c", &["256"], 64).compare();
}

#[test]
fn threads_that_exit_and_main_among_them() {
    Case::new("c/threads_exit.c", &["256"], 64).compare();
}

#[test]
fn output_at_exit_arrives_and_the_status_is_kept() {
    Case { status: 7, ..Case::new("c/stdout_exit.c", &["256"], 64) }.compare();
}

#[test]
fn static_objects_are_destroyed_in_paged_memory() {
    Case { status: 3, ..Case::new("cpp/static_exit.cpp", &[], 48) }.compare();
}

#[test]
fn a_daemon_closes_everything_and_goes_on() {
    let case = Case::new("c/daemon_close.c", &["256"], 64);
    let Some(program) = case.build() else { return };
    let scratch = Scratch::new("daemon");
    let result = |name: &str, run: Run| {
        let file = scratch.file(name);
        let running = run.arg(&file).start();
        let deadline = Instant::now() + Duration::from_secs(120);
        while !file.exists() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        let outcome = running.finish();
        outcome.exited(0);
        (fs::read_to_string(&file).unwrap_or_else(|error| panic!("{error}\n{}", outcome.describe())), outcome)
    };
    let (plain, _) = result("plain", Run::of(&program).arg("256"));
    let (paged, outcome) = result("paged", Run::of(&program).arg("256").memory(64));
    assert_eq!(plain, paged);
    assert_eq!(outcome.out(), "daemon started\n");
    outcome.paged_within(64 * MIB, UNMANAGED);
}

/// On which processors a thread may run, as the kernel writes it.
fn processors_of(status: &str) -> Option<String> {
    let status = fs::read_to_string(status).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).map(|list| list.trim().to_owned())
}

/// Where the threads of a run's processes may run: each process's own one thread, and the others, which are Ream's.
fn own_and_others(running: &Running) -> Vec<(String, Vec<String>)> {
    let of = |pid: i32| {
        let tasks: Vec<i32> = fs::read_dir(format!("/proc/{pid}/task"))
            .ok()?
            .filter_map(|task| task.ok()?.file_name().to_str()?.parse().ok())
            .collect();
        let list = |task: i32| processors_of(&format!("/proc/{pid}/task/{task}/status"));
        Some((list(pid)?, tasks.into_iter().filter(|task| *task != pid).filter_map(list).collect()))
    };
    running.processes().into_iter().filter_map(of).collect()
}

/// Also those of a child. A thread that has just begun has still those of whoever started it: asked until they stay.
#[test]
fn the_pagers_threads_keep_to_their_processors() {
    let Some(program) = compiled("c/endless.c", &[]) else { return };
    let all = processors_of("/proc/self/status").expect("a list of processors");
    let Some((_, last)) = all.rsplit_once([',', '-']) else {
        return skip("--pager-cpus", "there is one processor only");
    };
    let running = Run::of(program).args(["64", "2"]).memory(24).option("--pager-cpus").option(last).start();
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut stayed = 0;
    while stayed < 20 {
        let seen = own_and_others(&running);
        assert!(seen.iter().all(|(own, _)| *own == all), "the program's own are left alone: {seen:?}");
        let placed = seen.iter().filter(|(_, others)| !others.is_empty() && others.iter().all(|other| other == last));
        stayed = if seen.len() == 2 && placed.count() == 2 { stayed + 1 } else { 0 };
        assert!(Instant::now() < deadline, "not all are on {last}: {seen:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
    running.signal(libc::SIGKILL);
    for child in running.processes() {
        // SAFETY: kill only sends a signal; the process carries this run's mark.
        unsafe { libc::kill(child, libc::SIGKILL) };
    }
    running.finish().signalled(libc::SIGKILL);
}

/// By the first of all threads that it concerns.
#[test]
fn processors_that_are_not_there_are_said_once() {
    let Some(program) = compiled("c/fork_many.c", &[]) else { return };
    let outcome = Run::of(&program).args(["64", "3"]).memory(24).option("--pager-cpus").option("1000-1023").finish();
    let said = "ream: --pager-cpus names no processor that this process may use; the pager runs on any\n";
    assert_eq!((&*outcome.exited(0).out(), &*outcome.err()), ("3 children\n", said), "{}", outcome.describe());
}
