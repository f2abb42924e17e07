//! Lines and summaries that nobody reads, or that cannot be written: the program ends as it would have, and one line says
//! so where that is still possible.

use ream_tests::{Run, Scratch, ream_binary};
use std::fs::{self, OpenOptions};
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// What writes to it gets EPIPE, and SIGPIPE.
fn unread() -> Stdio {
    let (reader, writer) = UnixStream::pair().expect("sockets");
    drop(reader);
    Stdio::from(std::os::fd::OwnedFd::from(writer))
}

fn fifo(scratch: &Scratch, name: &str) -> PathBuf {
    let path = scratch.file(name);
    let text = std::ffi::CString::new(path.as_os_str().as_bytes()).expect("a path");
    // SAFETY: a zero-terminated path.
    assert_eq!(unsafe { libc::mkfifo(text.as_ptr(), 0o600) }, 0);
    path
}

/// `ream run` of a script, with a deadline: one that waits for a reader would do so for good.
fn run(options: &[&str], script: &str) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", "60"]).arg(ream_binary()).args(["run", "--memory=64M"]).args(options);
    command.args(["--", "/bin/sh", "-c", script]).stdin(Stdio::null());
    command
}

fn ended(mut command: Command) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = command.output().expect("running ream");
    (status.code(), String::from_utf8_lossy(&stderr).into_owned())
}

/// A summary for this path; what was read there, when the reader had come before.
fn read_from(path: &Path, options: &[&str], script: &str) -> (Option<i32>, String, String) {
    // The other end is there at once, and what comes stays in the pipe.
    let mut reader = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path).expect("the FIFO");
    let (status, said) = ended(run(options, script));
    let mut text = String::new();
    reader.read_to_string(&mut text).expect("what was written");
    (status, said, text)
}

#[test]
fn a_line_that_nobody_reads_does_not_end_the_program() {
    for option in ["--summary", "--log=info", "--pages=64k"] {
        let scratch = Scratch::new("unread");
        let file = scratch.file("ran");
        let mut command = run(&[option], &format!("touch {}; exit 3", file.display()));
        let status = command.stderr(unread()).status().expect("running ream");
        assert_eq!((status.code(), file.exists()), (Some(3), true), "{option}");
    }
    let mut program =
        run(&["--summary=/dev/stdout"], "sleep 0.5; exit 3").stdout(Stdio::piped()).spawn().expect("ream");
    drop(program.stdout.take());
    assert_eq!(program.wait().expect("its end").code(), Some(3));
    let mut wrong = run(&["--engine=steam"], "exit 3");
    assert_eq!(wrong.stderr(unread()).status().expect("running ream").code(), Some(125));
}

#[test]
fn a_server_goes_on_when_nobody_reads_its_lines() {
    let mut command = Command::new(ream_binary());
    command.args(["serve", "--insecure", "--listen=127.0.0.1:0", "--memory=4M", "--drain=0"]);
    let mut server = command.stdin(Stdio::null()).stderr(unread()).spawn().expect("ream serve");
    // Blocked are the signals that it waits for, just before its first line.
    let status = format!("/proc/{}/status", server.id());
    let waits = || fs::read_to_string(&status).is_ok_and(|text| text.contains("SigBlk:\t0000000000004002\n"));
    ream_tests::mpi::until("a server", || waits().then_some(()));
    std::thread::sleep(std::time::Duration::from_millis(200));
    // SAFETY: kill only sends a signal, to a process of our own.
    unsafe { libc::kill(server.id() as i32, libc::SIGTERM) };
    assert_eq!(server.wait().expect("its end").code(), Some(0));
}

#[test]
fn a_fifo_gets_the_summary() {
    let scratch = Scratch::new("fifo");
    let path = fifo(&scratch, "f");
    let option = format!("--summary={}", path.display());
    // By the program, by its last child, and by the agent.
    for (script, code) in [("exit 3", 3), ("sleep 0.1 & exit 3", 3), ("kill -9 $$", 137)] {
        let mut reader = Command::new("timeout");
        let reader = reader.args(["60", "cat"]).arg(&path).stdout(Stdio::piped()).spawn().expect("cat");
        let (status, said) = ended(run(&[&option], script));
        assert_eq!((status.unwrap_or(137), said.as_str()), (code, ""), "{script}");
        let text = reader.wait_with_output().expect("cat").stdout;
        let text = String::from_utf8_lossy(&text);
        assert!(text.starts_with('{') && text.ends_with("}\n"), "{script}: {text}");
    }
}

#[test]
fn a_fifo_that_nobody_reads_is_not_waited_for() {
    let scratch = Scratch::new("fifo-unread");
    let path = fifo(&scratch, "f");
    let option = format!("--summary={}", path.display());
    let line = format!("ream: --summary: {}: nobody reads it; the summary is left out\n", path.display());
    // By a program that has closed its standard error, as many do before they end, and by the agent.
    for script in ["exit 3", "exec 2>&-; exit 3", "kill -9 $$"] {
        let code = if script.starts_with("kill") { 137 } else { 3 };
        let (status, said) = ended(run(&[&option], script));
        assert_eq!((status.unwrap_or(137), said.as_str()), (code, line.as_str()), "{script}");
    }
}

/// Whoever reads standard error of a program to its end does not wait for a daemon that it leaves.
#[test]
fn standard_error_is_let_go_of_with_the_program() {
    let scratch = Scratch::new("daemon");
    let option = format!("--summary={}", scratch.file("summary.json").display());
    let (end, late) = (scratch.file("end"), scratch.file("late"));
    let script = format!(
        "(for i in $(seq 300); do [ -e {0} ] && exit; sleep 0.1; done; touch {1}) </dev/null >/dev/null 2>&1 & exit 3",
        end.display(),
        late.display()
    );
    let (status, said) = ended(run(&[&option], &script));
    fs::write(end, "").expect("a file");
    assert_eq!((status, said.as_str(), late.exists()), (Some(3), "", false));
    ream_tests::mpi::until("the summary", || scratch.file("summary.json").exists().then_some(()));
}

#[test]
fn a_summary_that_cannot_be_written_is_said() {
    for script in ["exit 3", "exec 2>&-; exit 3"] {
        let (status, said) = ended(run(&["--summary=/dev/full"], script));
        let line = "ream: --summary: /dev/full: errno 28; the summary is left out\n";
        assert_eq!((status, said.as_str()), (Some(3), line), "{script}");
    }
    let outcome = Run::of("/bin/sh").args(["-c", "kill -9 $$"]).memory(64).option("--summary=/dev/full").finish();
    outcome.signalled(libc::SIGKILL).says("--summary: /dev/full: No space left on device; the summary is left out");
}

#[test]
fn messages_go_to_a_fifo_where_it_is_read() {
    let scratch = Scratch::new("fifo-log");
    let path = fifo(&scratch, "f");
    let option = format!("--log=info:{}", path.display());
    let (status, said, text) = read_from(&path, &[&option], "exit 3");
    assert_eq!((status, said.as_str()), (Some(3), ""));
    assert!(text.contains("ream: budget 64 MiB") && text.lines().count() > 1, "{text}");
    let (status, said) = ended(run(&[&option], "exit 3"));
    assert!(status == Some(3) && said.contains("ream: budget 64 MiB"), "{said}");
}
