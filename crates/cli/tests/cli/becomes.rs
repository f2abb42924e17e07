//! `ream run` becomes the program: what the program finds is what it would have found without ream, plus its session.

use crate::common::{Scratch, ended, ream, run};
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Runs a shell script under `ream run`.
fn script(text: &str) -> (i32, String, String) {
    run(&["run", "--memory", "256M", "--", "sh", "-c", text])
}

/// Waits until something holds, for at most a minute: builds and disks make a machine stand still for many seconds.
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether a process lives; one that only waits to be reaped does not.
fn lives(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(['Z', 'X']))
}

#[test]
fn the_process_number_stays() {
    let mut child = ream(&["run", "sh", "-c", "echo $$"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut out = String::new();
    child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    let pid = child.id().to_string();
    child.wait().unwrap();
    assert_eq!(out.trim(), pid);
}

#[test]
fn the_session_is_reachable_and_the_agent_leaves_with_it() {
    let (status, out, err) = script(
        "path=${REAM_SESSION%:*}; readlink $path; head -c 8 $path; echo; echo ${REAM_SESSION#*:}; path=${path#/proc/}; \
         echo ${path%%/*}; cat /proc/${path%%/*}/comm; echo ${LD_PRELOAD%%:*}",
    );
    assert_eq!(status, 0, "{err}");
    let lines: Vec<_> = out.lines().collect();
    let [memory, magic, nonce, agent, name, preload] = lines[..] else { panic!("{out}") };
    assert_eq!((memory, magic, name), ("/memfd:ream-session (deleted)", "REAMsess", "ream-agent"));
    let (nonce, door) = nonce.split_once('-').expect("two numbers");
    assert!([nonce, door].iter().all(|n| n.len() == 16 && n.bytes().all(|b| b.is_ascii_hexdigit())), "{out}");
    assert_ne!(nonce, door);
    assert!(preload.ends_with("/libream.so"), "{preload}");
    eventually("the agent ends", || !lives(agent));
}

/// A program that never comes to life leaves no agent, and neither does one that is killed at once.
#[test]
fn no_agent_is_left_behind() {
    let name = format!("ream-test-{}", std::process::id());
    let agents = || {
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let pid = entry.file_name().to_string_lossy().into_owned();
            let standard_error = std::fs::read_link(entry.path().join("fd/2")).unwrap_or_default();
            if standard_error.to_string_lossy().contains(&name) && lives(&pid) {
                found.push(pid);
            }
        }
        found
    };
    let scratch = Scratch::new();
    let errors = || std::fs::File::create(scratch.path(&name)).unwrap();
    let broken = scratch.write("broken", "#!/no/interpreter\n", 0o755);
    let output = ream(&["run", "--summary", broken.to_str().unwrap()]).stderr(errors()).output().unwrap();
    assert_eq!(output.status.code(), Some(127));
    eventually("the agent ends when exec fails", || agents().is_empty());
    let mut child = ream(&["run", "--summary", "sleep", "1000"]).stderr(errors()).spawn().unwrap();
    eventually("the agent begins", || agents().len() == 2);
    child.kill().unwrap();
    child.wait().unwrap();
    eventually("the agent ends when the program is killed", || agents().is_empty());
}

#[test]
fn nothing_is_left_open() {
    let (_, plain, _) =
        ended(&Command::new("sh").args(["-c", "ls /proc/$$/fd"]).stdin(Stdio::null()).output().unwrap());
    let (_, ours, _) = script("ls /proc/$$/fd");
    assert_eq!(ours, plain);
}

/// Closed descriptors stay closed: what ream opens in between does not end up under their numbers.
#[test]
fn closed_descriptors_stay_closed() {
    let check = "sh -c 'for n in 0 1 2; do ! [ -e /proc/$$/fd/$n ] || exit 9; done' <&- >&- 2>&-";
    let status = |command: String| {
        let mut shell = Command::new("sh");
        shell.args(["-c", &command]).stdin(Stdio::null());
        for (name, value) in ream(&[]).get_envs() {
            match value {
                Some(value) => shell.env(name, value),
                None => shell.env_remove(name),
            };
        }
        shell.status().unwrap().code()
    };
    assert_eq!(status(check.to_owned()), Some(0));
    assert_eq!(status(format!("{} run {check}", env!("CARGO_BIN_EXE_ream"))), Some(0));
}

/// Signal masks and dispositions, for all combinations that ream could change.
#[test]
fn signals_are_as_the_caller_left_them() {
    let of = |mut command: Command, prepare: fn()| {
        // SAFETY: `prepare` only changes signal settings of the child.
        unsafe {
            command.pre_exec(move || {
                prepare();
                Ok(())
            })
        };
        let (status, out, err) = ended(&command.stdin(Stdio::null()).output().unwrap());
        assert_eq!((status, err.as_str()), (0, ""));
        out
    };
    let plain = || {
        let mut command = Command::new("grep");
        command.args(["-E", "^(Sig(Blk|Ign|Cgt)|SigPnd|ShdPnd)", "/proc/self/status"]);
        command
    };
    let ours = || ream(&["run", "grep", "-E", "^(Sig(Blk|Ign|Cgt)|SigPnd|ShdPnd)", "/proc/self/status"]);
    let ignoring = || {
        // SAFETY: ignoring signals runs no code.
        unsafe {
            libc::signal(libc::SIGPIPE, libc::SIG_IGN);
            libc::signal(libc::SIGCHLD, libc::SIG_IGN);
            libc::signal(libc::SIGHUP, libc::SIG_IGN);
        }
    };
    let blocking = || {
        // SAFETY: the set is filled before use.
        unsafe {
            libc::signal(libc::SIGPIPE, libc::SIG_DFL);
            let mut set = std::mem::zeroed();
            libc::sigfillset(&mut set);
            libc::sigprocmask(libc::SIG_SETMASK, &set, std::ptr::null_mut());
        }
    };
    assert_eq!(of(ours(), || {}), of(plain(), || {}));
    assert_eq!(of(ours(), ignoring), of(plain(), ignoring));
    assert_eq!(of(ours(), blocking), of(plain(), blocking));
}

#[test]
fn the_environment_and_directory_stay() {
    let text = "env | grep -v -E '^(REAM_SESSION|LD_PRELOAD|_)=' | sort; pwd; umask; ulimit -a";
    let environment = ream(&[]);
    let mut plain = Command::new("sh");
    plain.args(["-c", text]).stdin(Stdio::null());
    let mut ours = ream(&["run", "sh", "-c", text]);
    for command in [&mut plain, &mut ours] {
        command.current_dir("/usr").env("ODD", "a=b\nc");
    }
    for (name, value) in environment.get_envs() {
        match value {
            Some(value) => plain.env(name, value),
            None => plain.env_remove(name),
        };
    }
    assert_eq!(ended(&ours.output().unwrap()), ended(&plain.output().unwrap()));
}

#[test]
fn others_in_ld_preload_come_after() {
    let libm = "libm.so.6";
    let output = ream(&["run", "sh", "-c", "echo $LD_PRELOAD"]).env("LD_PRELOAD", libm).output().unwrap();
    let (_, out, _) = ended(&output);
    assert!(out.trim().ends_with(&format!(":{libm}")) && out.contains("/libream.so:"), "{out}");
}

/// The agent writes the summary when no process of the session has, and whoever waits for the end of standard error
/// is not kept waiting.
#[test]
fn the_agent_writes_the_summary_of_a_killed_program() {
    let (status, _, err) = run(&["run", "--memory", "256M", "--summary", "--", "sh", "-c", "kill -9 $$"]);
    assert_eq!(status, 1009);
    assert!(err.contains("budget 256 MiB"), "{err}");
    let scratch = Scratch::new();
    let file = scratch.path("summary.json");
    let option = format!("--summary={}", file.display());
    let (status, _, err) = run(&["run", "--memory", "256M", &option, "--", "sh", "-c", "kill -9 $$"]);
    assert_eq!((status, err.as_str()), (1009, ""));
    eventually("a summary", || {
        std::fs::read_to_string(&file)
            .is_ok_and(|text| text.contains("\"budget\": 268435456,") && text.ends_with("}\n"))
    });
}

/// Whoever may write to the file of the summary finds it untouched until there is one.
#[test]
fn the_file_of_the_summary_is_only_tried() {
    let scratch = Scratch::new();
    let file = scratch.write("summary.json", "old", 0o644);
    let fresh = scratch.path("fresh.json");
    for path in [&file, &fresh] {
        let option = format!("--summary={}", path.display());
        let (_, out, _) = run(&["run", &option, "--", "sh", "-c", &format!("cat {}; echo", path.display())]);
        assert_eq!(out, if path == &file { "old\n" } else { "\n" });
        // Nothing of the session was in the program, so the agent writes it; it must have before the directory goes.
        eventually("a summary", || std::fs::read_to_string(path).is_ok_and(|text| text.ends_with("}\n")));
    }
}

/// A link whose file is not there yet leads to the summary.
#[test]
fn the_link_to_the_file_of_the_summary_stays() {
    let scratch = Scratch::new();
    scratch.write("near", "", 0o644);
    let (link, file) = (scratch.path("link"), scratch.path("file"));
    std::os::unix::fs::symlink("file", &link).unwrap();
    let option = format!("--summary={}", link.display());
    let (_, out, err) = run(&["run", &option, "--", "sh", "-c", &format!("test -e {} || echo none", file.display())]);
    assert_eq!((out.as_str(), err.as_str()), ("none\n", ""));
    eventually("a summary", || std::fs::read_to_string(&file).is_ok_and(|text| text.ends_with("}\n")));
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
}
