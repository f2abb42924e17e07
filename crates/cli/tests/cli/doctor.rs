//! `ream doctor`: as this user, as an ordinary one, and where a filter of system calls refuses what Ream needs.

use crate::common::{Scratch, ended, ream};
use serde_json::Value;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// What doctor says as JSON, and its exit status.
fn findings(command: &mut Command) -> (i32, Value) {
    let (status, out, err) = ended(&command.output().unwrap());
    assert_eq!(err, "");
    (status, serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}\n{out}")))
}

fn finding(value: &Value, name: &str) -> Value {
    let all = value["findings"].as_array().unwrap();
    all.iter().find(|finding| finding["name"] == name).unwrap_or_else(|| panic!("{name}: {value}")).clone()
}

#[test]
fn everything_has_a_verdict_and_what_is_not_well_a_mend() {
    let (_, value) = findings(&mut ream(&["doctor", "--json"]));
    for name in [
        "kernel",
        "userfaultfd",
        "io_uring",
        "large pages",
        "hugetlb pool",
        "hugetlb cgroup",
        "program files",
        "memory",
        "cgroup",
        "swap",
        "a run",
    ] {
        finding(&value, name);
    }
    for finding in value["findings"].as_array().unwrap() {
        let verdict = finding["verdict"].as_str().unwrap();
        assert!(["ok", "warn", "bad"].contains(&verdict), "{finding}");
        assert!(!finding["text"].as_str().unwrap().is_empty(), "{finding}");
    }
}

#[test]
fn text_and_json_agree() {
    let (status, out, _) = ended(&ream(&["doctor"]).output().unwrap());
    let (same, value) = findings(&mut ream(&["doctor", "--json"]));
    assert_eq!(status, same);
    assert!(out.lines().count() >= value["findings"].as_array().unwrap().len());
    assert!(out.lines().any(|line| line.contains("a run")), "{out}");
}

#[test]
fn a_named_store_is_what_is_measured() {
    let scratch = Scratch::new();
    let path = scratch.path("");
    let (_, value) = findings(&mut ream(&["doctor", "--json", "--store", path.to_str().unwrap()]));
    let finding = finding(&value, &format!("store {}", path.display()));
    assert!(finding["text"].as_str().unwrap().contains("MB/s"), "{finding}");
    let (status, value) = findings(&mut ream(&["doctor", "--json", "--store", "/dev/shm"]));
    assert_eq!(status, 1, "{value}");
    let (_, out, _) = ended(&ream(&["doctor", "--store", "/dev/shm"]).output().unwrap());
    assert!(out.contains("cannot page: there is no place for a store"), "{out}");
}

/// Whether a program is started with the pages that it must have is what `ream run` does.
#[test]
fn what_a_run_would_refuse_is_foreseen() {
    for pages in ["auto", "1g:require", "hugetlb:require", "64k:require", "shm=huge:require", "huge:require"] {
        let option = format!("--pages={pages}");
        let (ran, _, said) = ended(&ream(&["run", &option, "true"]).output().unwrap());
        let (status, out, err) = ended(&ream(&["doctor", &option, "true"]).output().unwrap());
        assert_eq!((status, err.as_str()), (i32::from(ran != 0), ""), "{pages}: {said}{out}");
        if ran != 0 {
            let why = said.trim().trim_start_matches("ream: ");
            assert!(out.contains("ream run does not start it") && out.contains(why), "{pages}: {said}{out}");
        }
    }
    // Without :require it takes the next smaller, and says so in the same words.
    let (_, _, said) = ended(&ream(&["run", "--pages=64k", "true"]).output().unwrap());
    let (_, out, _) = ended(&ream(&["doctor", "--pages=64k", "true"]).output().unwrap());
    let heap = out.lines().find(|line| line.starts_with("heap ")).unwrap();
    match said
        .trim()
        .strip_prefix("ream: --pages=64k: ")
        .and_then(|line| line.strip_suffix("; taking the next smaller"))
    {
        Some(why) => assert!(heap.contains("4 KiB") && heap.contains(why), "{said}{out}"),
        None => assert!(heap.contains("64 KiB"), "{said}{out}"),
    }
}

#[test]
fn an_ordinary_user_is_told_of_the_better_engine() {
    // SAFETY: asks only.
    if unsafe { libc::geteuid() } != 0 {
        return;
    }
    let scratch = Scratch::new();
    let command = scratch.write("ream", std::fs::read(env!("CARGO_BIN_EXE_ream")).unwrap(), 0o755);
    let mut ordinary = Command::new(&command);
    for (name, value) in ream(&[]).get_envs() {
        match value {
            Some(value) => ordinary.env(name, value),
            None => ordinary.env_remove(name),
        };
    }
    ordinary.args(["doctor", "--json"]).current_dir("/").uid(65534).gid(65534);
    let (_, value) = findings(&mut ordinary);
    let found = finding(&value, "userfaultfd");
    let allowed = found["text"].as_str().unwrap().starts_with("whole");
    assert!(allowed || found["mend"].as_str().unwrap().contains("sudo"), "{found}");
    let engine = value["engine"].as_str().unwrap();
    assert!(if allowed { engine != "usermode" } else { ["usermode", "none"].contains(&engine) }, "{value}");
}

/// Lets the kernel refuse these calls with EPERM from here on, as a container's profile does.
fn refuse(calls: &[libc::c_long]) -> std::io::Result<()> {
    let step = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let give = libc::BPF_RET | libc::BPF_K;
    let mut program = vec![step(load, 0, 0, 0)];
    for call in calls {
        program.push(step(equal, 0, 1, *call as u32));
        program.push(step(give, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32));
    }
    program.push(step(give, 0, 0, libc::SECCOMP_RET_ALLOW));
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the filter lives until the call has copied it.
    let failed = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
            || libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) != 0
    };
    if failed { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}

/// Where nothing can be paged, a budget that was asked for is refused, and a program without one is run as it is.
#[test]
fn a_run_that_cannot_page_says_so() {
    let outcome = |arguments: &[&str], calls: &'static [libc::c_long]| {
        let mut command = ream(arguments);
        // SAFETY: as below.
        unsafe { command.pre_exec(move || refuse(calls)) };
        ended(&command.output().unwrap())
    };
    // Without this call root has /dev/userfaultfd; without ioctl nobody has anything, and little else needs it.
    let calls = &[libc::SYS_userfaultfd, libc::SYS_ioctl];
    let (status, _, err) = outcome(&["run", "-m", "64M", "true"], calls);
    assert!(status == 125 && err.starts_with("ream: cannot page here: userfaultfd: refused by"), "{status} {err}");
    let (status, _, err) = outcome(&["run", "true"], calls);
    assert!(status == 0 && err.ends_with("; running it without Ream\n"), "{status} {err}");
    let (status, _, err) = outcome(&["run", "--io", "uring", "true"], &[libc::SYS_io_uring_setup]);
    assert!(status == 125 && err.starts_with("ream: cannot page here: io_uring: refused by"), "{status} {err}");
    let (status, _, err) = outcome(&["run", "true"], &[libc::SYS_io_uring_setup]);
    assert_eq!((status, err.as_str()), (0, ""));
}

#[test]
fn a_filter_of_system_calls_is_named() {
    let mut filtered = ream(&["doctor", "--json"]);
    // SAFETY: makes two system calls; the vector that it allocates in the child of a test that may have threads is
    // small, and the C library's allocator is made to survive fork.
    unsafe { filtered.pre_exec(|| refuse(&[libc::SYS_userfaultfd, libc::SYS_io_uring_setup])) };
    let (_, value) = findings(&mut filtered);
    let ring = finding(&value, "io_uring");
    assert_eq!((ring["verdict"].as_str(), value["io"].as_str()), (Some("warn"), Some("threads")), "{value}");
    assert!(ring["text"].as_str().unwrap().contains("refused by"), "{ring}");
    let found = finding(&value, "userfaultfd");
    // Root still has the device.
    if value["engine"] == "none" {
        assert!(found["text"].as_str().unwrap().contains("refused by"), "{found}");
        assert!(found["mend"].as_str().unwrap().contains("seccomp"), "{found}");
    } else {
        assert!(found["text"].as_str().unwrap().contains("/dev/userfaultfd"), "{found}");
    }
}
