//! `--lock`: what lies on large pages stays in RAM, is no part of what is paged, and says so where it cannot be.

use ream_tests::{Build, Case, NOBODY, Outcome, Pool, Reachable, Run, build, skip};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

fn program() -> Option<PathBuf> {
    Case::new("c/pinned.c", &[], 512).build()
}

/// KiB that a line of the program tells.
fn told(outcome: &Outcome, word: &str) -> Vec<u64> {
    let number = |line: &str| line.strip_prefix(word)?.strip_prefix(' ')?.parse().ok();
    let found: Vec<u64> = outcome.err().lines().filter_map(number).collect();
    assert!(!found.is_empty(), "{word}: {}", outcome.describe());
    found
}

fn large_pages() -> bool {
    let setting = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    let there = !setting.contains("[never]") && !setting.is_empty();
    if !there {
        skip("locked large pages", "this machine has no transparent large pages");
    }
    there
}

/// Whether this process may lock as much as a test needs.
fn may_lock() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let word = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap_or("0").trim();
    let may = u64::from_str_radix(word, 16).is_ok_and(|bits| bits >> 14 & 1 != 0);
    if !may {
        skip("locked large pages", "CAP_IPC_LOCK is missing, and the limit on locked memory is small");
    }
    may && large_pages()
}

#[test]
fn heap_static_data_and_stacks_are_locked_through_every_change() {
    let Some(program) = program().filter(|_| may_lock()) else { return };
    for mode in ["--lock", "--lock=require"] {
        let outcome = Run::of(&program).args(["16", "0"]).memory(256).option(mode).finish();
        outcome.exited(0);
        assert_eq!(outcome.out(), "right\n");
        let one = |word: &str| told(&outcome, word)[0] >> 10;
        // 16 MiB of a block and 8 of .bss; with a thread's stack, and what was added, taken away, mapped and moved.
        let (begin, thread) = (one("begin"), one("thread"));
        assert!((24..24 + 24).contains(&begin), "{}", outcome.describe());
        assert!(thread >= begin + 5, "{}", outcome.describe());
        assert_eq!([one("grown"), one("shrunk"), one("mapped")], [thread + 8, thread, thread + 4]);
        assert_eq!([one("moved"), one("unlocked"), one("forked")], [thread + 6, thread + 6, thread + 14]);
        // Nothing of it goes on to children, neither what they inherit nor what they map.
        assert_eq!(told(&outcome, "child"), [0; 6], "{}", outcome.describe());
        assert!(one("end") <= thread, "{}", outcome.describe());
    }
}

/// What is locked stays while the rest is paged; what does not fit beside the rest's part of the budget is paged, too.
#[test]
fn what_is_locked_is_never_paged() {
    let Some(program) = program().filter(|_| may_lock()) else { return };
    let outcome = Run::of(&program).args(["24", "80"]).memory(96).option("--lock").finish();
    outcome.exited(0);
    assert_eq!(outcome.out(), "right\n");
    assert!(outcome.err().contains("--lock: 81920 KiB more than --memory lets be locked"), "{}", outcome.describe());
    let line = outcome.err();
    let line = line.lines().find(|line| line.starts_with("absent ")).expect("a line of the program").to_owned();
    let numbers: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
    assert!(numbers[0] == 0 && numbers[1] > 0, "{}", outcome.describe());
    assert!(outcome.summary().number("bytes_out") > 0, "{}", outcome.describe());
    assert!(outcome.summary().number("peak_resident") <= (96 << 20) * 102 / 100, "{}", outcome.describe());
    // Required, it is stopped, with one line more than it has said itself.
    let strict = Run::of(&program).args(["24", "80"]).memory(96).option("--lock=require").finish();
    strict.exited(125);
    assert!(
        strict.err().contains("--lock=require: 81920 KiB more than --memory lets be locked"),
        "{}",
        strict.describe()
    );
    assert_eq!((strict.out().as_str(), strict.err().matches("ream: ").count()), ("", 1), "{}", strict.describe());
}

#[test]
fn nothing_is_locked_that_nobody_asked_to_be() {
    let Some(program) = program() else { return };
    for option in ["--lock=no", "--pages=auto"] {
        let outcome = Run::of(&program).args(["16", "0"]).memory(256).option(option).finish();
        outcome.exited(0);
        for word in ["begin", "thread", "grown", "mapped", "end"] {
            assert_eq!(told(&outcome, word), [0], "{}", outcome.describe());
        }
    }
    // Nothing lies on large pages.
    let small = Run::of(&program).args(["16", "0"]).memory(256).option("--pages=small").option("--lock").finish();
    small.exited(0);
    assert!(small.err().starts_with("ream: --lock: nothing lies on large pages (--pages); nothing is locked\n"));
    assert_eq!(told(&small, "begin"), [0]);
}

/// An ordinary user's limit on locked memory is too small: said in one line, or the end, which names limit and command.
#[test]
fn a_small_limit_is_said_or_stops() {
    let Some(reachable) = Reachable::new() else { return };
    let Some(program) = reachable.program("c/pinned.c").filter(|_| large_pages()) else { return };
    let run = |mode: &str, limit: u64| {
        let mut command = Command::new(reachable.ream());
        command.args(["run", "--memory", "128M", "--store", "/var/tmp", mode, "--"]).arg(&program).args(["16", "0"]);
        // SAFETY: between fork and exec only calls of the kernel are made; the limit first, as root.
        unsafe {
            command.pre_exec(move || {
                let limits = libc::rlimit { rlim_cur: limit, rlim_max: limit };
                let done = libc::setrlimit(libc::RLIMIT_MEMLOCK, &limits) == 0
                    && libc::setgroups(0, std::ptr::null()) == 0
                    && libc::setgid(NOBODY) == 0
                    && libc::setuid(NOBODY) == 0;
                if done { Ok(()) } else { Err(std::io::Error::last_os_error()) }
            })
        };
        let output = command.output().expect("running ream");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let line = "RLIMIT_MEMLOCK is 64 KiB, less than the 96 MiB that the budget of 128 MiB lets it lock; raise it (ulimit -l; \
                as root: ream setup --memlock unlimited), or give a smaller --memory";
    let (status, out, err) = run("--lock", 64 << 10);
    assert_eq!((status, out.as_str()), (Some(0), "right\n"), "{err}");
    assert_eq!(err.lines().filter(|said| said.starts_with("ream: --lock")).count(), 1, "{err}");
    assert!(err.contains(&format!("ream: --lock: {line}; nothing is locked\n")) && err.contains("begin 0\n"), "{err}");
    let (status, out, err) = run("--lock=require", 64 << 10);
    assert_eq!((status, out.as_str(), err), (Some(125), "", format!("ream: --lock=require: {line}\n")));
    // With a limit that suffices the same user gets all of it.
    let mut own = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: room for both limits.
    if unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut own) } != 0 || own.rlim_max < 128 << 20 {
        return skip("a limit on locked memory that suffices", "the tests' own is smaller, and cannot be raised");
    }
    let (status, out, err) = run("--lock=require", 128 << 20);
    assert_eq!((status, out.as_str()), (Some(0), "right\n"), "{err}");
    let begin = err.lines().find_map(|line| line.strip_prefix("begin ")?.parse::<u64>().ok());
    assert!(begin.is_some_and(|kib| kib >= 16 << 10), "{err}");
}

/// Pages of a pool cannot be paged in any case; the kernel does not count them as locked.
#[test]
fn with_a_pool_the_rest_is_locked() {
    let Some(program) = program().filter(|_| may_lock()) else { return };
    let Some(pool) = Pool::with_free(110) else { return };
    let outcome =
        Run::of(&program).args(["16", "0"]).memory(512).option("--pages=hugetlb").option("--lock=require").finish();
    outcome.exited(0);
    assert_eq!(outcome.out(), "right\n");
    let one = |word: &str| told(&outcome, word)[0] >> 10;
    assert_eq!([one("mapped"), one("moved")], [one("shrunk") + 4, one("shrunk") + 6], "{}", outcome.describe());
    assert_eq!(pool.until_free(110), 110);
}

#[test]
fn a_static_program_cannot_be_locked() {
    let Build::Ready(program) = build("c/pinned.c", &["-static"]) else {
        return skip("static programs", "no static libc");
    };
    let outcome = Run::of(&program).args(["16", "0"]).under_ream().option("--lock").finish();
    outcome.exited(0);
    assert!(outcome.err().contains("so --lock does not hold for it"), "{}", outcome.describe());
    let strict = Run::of(&program).args(["16", "0"]).under_ream().option("--lock=require").finish();
    strict.exited(125);
    assert!(strict.err().contains("so --lock does not hold for it; run it without"), "{}", strict.describe());
}

/// What `ream status` says of it.
#[test]
fn status_shows_what_is_locked() {
    let Some(program) = Case::new("c/ready.c", &[], 512).build().filter(|_| may_lock()) else { return };
    for lock in [true, false] {
        let run = Run::of(&program).args(["32", "wait"]).memory(512);
        let running = if lock { run.option("--lock") } else { run }.start();
        running.until_paused();
        let output = Command::new(ream_tests::ream_binary()).args(["status", &running.pid.to_string()]).output();
        let text = String::from_utf8_lossy(&output.expect("running ream status").stdout).into_owned();
        running.signal(libc::SIGUSR1);
        running.finish().exited(0);
        assert_eq!(text.lines().any(|line| line.ends_with("locked")), lock, "{text}");
    }
}
