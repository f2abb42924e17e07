//! `ream serve` as such: what it does where nobody reads.

use ream_tests::{Run, ream_binary, tool};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Longest that anything may take which is a matter of moments.
const PATIENCE: Duration = Duration::from_secs(60);

/// A pipe's ends.
fn pipe() -> (File, File) {
    let mut ends = [0; 2];
    // SAFETY: the kernel writes two descriptors, which nobody else has.
    unsafe {
        assert_eq!(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC), 0);
        (File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1]))
    }
}

/// What is in a pipe now.
fn taken(from: &File) -> String {
    let mut now = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(by_number(from)).expect("the pipe");
    let mut text = Vec::new();
    let error = now.read_to_end(&mut text).expect_err("its end");
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    String::from_utf8_lossy(&text).into_owned()
}

/// By which it is opened anew, with flags of its own.
fn by_number(file: &File) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

#[test]
fn a_log_that_nobody_reads_is_not_waited_for() {
    let (reads, writes) = pipe();
    let mut full =
        OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(by_number(&writes)).expect("the pipe");
    let mut command = Command::new(ream_binary());
    command.args(["serve", "--listen", "127.0.0.1:0", "--memory", "64M", "--insecure", "--drain", "600"]);
    let mut server = command.stdin(Stdio::null()).stderr(writes).spawn().expect("starting ream serve");
    drop(command);
    let mut said = String::new();
    let begun = Instant::now();
    while !said.contains("event=listening") {
        assert!(begun.elapsed() < PATIENCE, "it does not begin: {said}");
        std::thread::sleep(Duration::from_millis(10));
        said += &taken(&reads);
    }
    let address = said.split("tcp://").nth(1).and_then(|rest| rest.split([',', ';']).next()).expect("its address");
    while full.write(&[b'x'; 4096]).is_ok() {}
    while full.write(b"x").is_ok() {}
    let program = tool("true").expect("true");
    let session = || {
        let run = Run::of(&program).memory(64).store(Path::new(&format!("tcp://{address}"))).option("--insecure");
        run.finish().exited(0);
    };
    // Each begins and ends a lease.
    session();
    session();
    assert!(taken(&reads).bytes().all(|byte| byte == b'x'));
    session();
    let begun = Instant::now();
    let mut later = String::new();
    while !later.contains("event=lease ") {
        assert!(begun.elapsed() < PATIENCE, "it says nothing any more: {later}");
        std::thread::sleep(Duration::from_millis(10));
        later += &taken(&reads);
    }
    let lost = later.split("event=lines-lost count=").nth(1).and_then(|rest| rest.split_whitespace().next());
    assert!(lost.and_then(|count| count.parse().ok()).is_some_and(|count: u64| count >= 2), "{later}");
    while full.write(&[b'x'; 4096]).is_ok() {}
    while full.write(b"x").is_ok() {}
    // SAFETY: kill only sends a signal, to a child that has not been waited for.
    unsafe { libc::kill(server.id() as i32, libc::SIGTERM) };
    let begun = Instant::now();
    while server.try_wait().expect("waiting for the server").is_none() {
        if begun.elapsed() > PATIENCE {
            server.kill().expect("killing the server");
            panic!("it does not end");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
