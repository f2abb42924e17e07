//! `ream serve` and `ream keys` as such: what they do where nobody reads, or nothing can be written.

use ream_tests::{MemoryServer, Run, Scratch, is_root, ream_binary, skip, tool};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::{AsRawFd as _, FromRawFd as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
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

fn shell(script: &str, arguments: &[&Path]) -> Output {
    Command::new("sh").args(["-c", script, "sh"]).arg(ream_binary()).args(arguments).output().expect("a shell")
}

/// It has failed with one line that says this.
fn refused(output: &Output, words: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(125) && said.lines().count() == 1, "{:?}: {said}", output.status);
    assert!(said.contains(words), "{said}");
}

#[test]
fn keys_that_cannot_be_written_leave_nothing() {
    let scratch = Scratch::new("keys");
    let key = scratch.file("key");
    let here = |words: &str, output: &Output| {
        refused(output, words);
        assert_eq!(std::fs::read_dir(scratch.path()).expect("the directory").count(), 0, "{words}");
    };
    here("File too large", &shell("ulimit -f 0; \"$1\" keys \"$2\"", &[&key]));
    // A soft limit does not matter.
    let output = shell("ulimit -S -f 0; exec \"$1\" keys \"$2\"", &[&key]);
    assert!(output.status.success() && output.stdout.len() == 65, "{output:?}");
    let again = shell("\"$1\" keys \"$2\"", &[&key]);
    assert_eq!((again.status.code(), again.stdout), (Some(0), output.stdout));
    assert_eq!(std::fs::read_dir(scratch.path()).expect("the directory").count(), 1);
}

#[test]
fn a_full_disk_leaves_no_key() {
    if !is_root() {
        return skip("keys on a full disk", "needs root");
    }
    let scratch = Scratch::new("full");
    let script = "mount -t tmpfs -o size=16k none \"$2\" || exit 99; dd if=/dev/zero of=\"$2/x\" bs=4k 2>/dev/null
        \"$1\" keys \"$2/key\"; r=$?; ls -A \"$2\"; rm \"$2/x\"; \"$1\" keys \"$2/key\" >&2 || r=98; exit $r";
    let mut command = Command::new("unshare");
    let output = command.args(["-m", "sh", "-c", script, "sh"]).arg(ream_binary()).arg(scratch.path()).output();
    let output = output.expect("unshare");
    if output.status.code() == Some(99) {
        return skip("keys on a full disk", "nothing can be mounted");
    }
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "x\n", "{said}");
    assert!(output.status.code() == Some(125) && said.contains("No space left on device"), "{said}");
}

#[test]
fn what_is_no_file_is_no_key_and_not_waited_for() {
    let scratch = Scratch::new("keys");
    let fifo = scratch.file("fifo");
    assert!(shell("mkfifo -m 600 \"$2\"", &[&fifo]).status.success());
    let server = MemoryServer::start("16M", &[]);
    for path in [fifo.as_path(), scratch.path(), Path::new("/dev/null")] {
        refused(&shell("timeout 20 \"$1\" keys \"$2\"", &[path]), "not a regular file");
        let status = "timeout 20 \"$1\" status --server tcp://\"$3\" --servers \"$4\" --key \"$2\"";
        refused(&shell(status, &[path, Path::new(&server.address), &server.file("servers")]), "not a regular file");
    }
}

#[test]
fn a_server_that_has_as_many_files_open_as_it_may_waits_for_fewer() {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 24 && exec \"$0\" \"$@\""]).arg(ream_binary());
    let server = MemoryServer::start_in(command, "127.0.0.1:0", "64M", &["--insecure"]);
    let silent: Vec<TcpStream> = (0..60).map(|_| TcpStream::connect(&server.address).expect("a connection")).collect();
    server.until_written("event=accept");
    let begun = Instant::now();
    std::thread::sleep(Duration::from_secs(3));
    let log = server.log();
    // Ten lines a second are the most that strangers may cause: this is not busy with them.
    let most = 6 + 3 * begun.elapsed().as_secs() as usize;
    let said = log.matches("event=accept").count();
    assert!(said <= most && log.contains("Too_many_open_files"), "{said} of {most}: {log}");
    drop(silent);
    // Those who come later are served.
    server.until("strangers_total", |count| count >= 60);
}
