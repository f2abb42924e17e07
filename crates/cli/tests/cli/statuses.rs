//! Exit statuses and the lines that go with them, as `env` and `timeout` do it.

use crate::common::{Scratch, ended, ream, refuses, run};

#[test]
fn mistakes_on_the_command_line_end_with_125() {
    refuses(&[], 125, "ream: no command given; see ream --help");
    refuses(&["rnu", "x"], 125, "ream: rnu: no such command; did you mean run?");
    refuses(&["run"], 125, "ream: run: no program given; write ream run -- PROGRAM ARGUMENT...");
    refuses(&["run", "--memroy", "1G", "true"], 125, "ream: --memroy: no such option; did you mean --memory?");
    refuses(
        &["run", "--engine", "mvoe", "true"],
        125,
        "ream: --engine: \"mvoe\": not one of auto, move, copy, usermode, copy-always; did you mean move?",
    );
    refuses(&["help", "rnu"], 125, "ream: help: rnu: no such command; did you mean run?");
    refuses(&["completions", "tcsh"], 125, "ream: completions: tcsh: not bash, zsh or fish");
    refuses(&["man", "x"], 125, "ream: x: one argument too many");
}

#[test]
fn impossible_sizes_end_with_125() {
    refuses(
        &["run", "--memory", "1Q", "true"],
        125,
        "ream: --memory: \"1Q\": unknown unit; use K, M, G, T or P (powers of 1024), or kB, MB, GB, TB or PB (of 1000)",
    );
    refuses(
        &["run", "--memory", "99999999P", "true"],
        125,
        "ream: --memory: \"99999999P\": more than 64 bits hold; use a smaller size",
    );
    refuses(
        &["run", "--memory", "1k", "true"],
        125,
        "ream: --memory: \"1k\": 1 KiB is too little to work with; at least 8 MiB are needed",
    );
    let (status, _, err) = run(&["run", "--memory", "1000T", "true"]);
    assert_eq!(status, 125);
    assert!(err.starts_with("ream: --memory: \"1000T\": 1000 TiB is more than this machine's "), "{err}");
    let (status, _, err) = run(&["serve", "--listen=127.0.0.1:0", "--insecure", "--memory=999T"]);
    assert_eq!(status, 125);
    assert!(err.starts_with("ream: --memory: \"999T\": 999 TiB is more than ") && err.lines().count() == 1, "{err}");
    for size in ["0", "1M"] {
        let line = "less than one segment of the store; give at least 2M";
        refuses(&["run", "--store-limit", size, "true"], 125, &format!("ream: --store-limit: \"{size}\": {line}"));
        let output = ream(&["run", "true"]).env("REAM_STORE_LIMIT", size).output().unwrap();
        assert_eq!(ended(&output), (125, String::new(), format!("ream: REAM_STORE_LIMIT: \"{size}\": {line}\n")));
    }
}

#[test]
fn stores_that_cannot_be_used_end_with_125() {
    let scratch = Scratch::new();
    let file = scratch.write("file", "", 0o644);
    let file = file.to_str().unwrap();
    refuses(
        &["run", "--store", file, "true"],
        125,
        &format!("ream: store: {file}: not a directory; name a directory on a local disk"),
    );
    refuses(
        &["run", "--store", "/dev/shm", "true"],
        125,
        "ream: store: /dev/shm: lies in RAM (tmpfs), where nothing is gained; name a directory on a local disk",
    );
    refuses(
        &["run", "--store", "/no/such", "true"],
        125,
        "ream: store: /no/such: No such file or directory; name a directory on a local disk",
    );
    let (status, _, err) = run(&["run", "--store", "/proc", "true"]);
    assert_eq!(status, 125);
    assert!(err.starts_with("ream: store: /proc: not writable ("), "{err}");
}

#[test]
fn files_that_cannot_be_written_end_with_125() {
    refuses(
        &["run", "--summary=/no/such/file", "true"],
        125,
        "ream: --summary: /no/such/file: No such file or directory; name a file that can be written",
    );
    refuses(
        &["run", "--log", "info:/no/such/file", "true"],
        125,
        "ream: --log: /no/such/file: No such file or directory; name a file that can be written",
    );
}

#[test]
fn programs_that_cannot_be_executed_end_with_126() {
    let scratch = Scratch::new();
    let file = scratch.write("file", "#!/bin/sh\n", 0o644);
    let file = file.to_str().unwrap();
    refuses(
        &["run", file],
        126,
        &format!("ream: {file}: cannot be executed: Permission denied; chmod +x makes it executable"),
    );
    refuses(&["run", "/usr"], 126, "ream: /usr: cannot be executed: Is a directory; name a program in it");
    let text = scratch.write("text", "echo\n", 0o755);
    let text = text.to_str().unwrap();
    refuses(
        &["run", text],
        126,
        &format!(
            "ream: {text}: cannot be executed: Exec format error; give a script its first line, such as #!/bin/sh"
        ),
    );
}

/// What the user gave is shown on one line, and does nothing to a terminal.
#[test]
fn control_characters_are_written_out() {
    let (_, _, err) = run(&["run", "--memory", "a\nb\u{1b}[31m", "true"]);
    assert!(err.starts_with("ream: --memory: \"a\\nb\\x1b[31m\": ") && err.lines().count() == 1, "{err:?}");
    let line = "ream: nosuch\\x1b[31m: not found in PATH; give its path, or install it";
    refuses(&["run", "nosuch\u{1b}[31m"], 127, line);
}

#[test]
fn what_is_missing_is_named_with_what_to_do() {
    refuses(&["run", "--store=tcp://a:1", "--key=", "true"], 125, "ream: --key: no path given; name one");
    let line = "ream: keys: no file given; name one, or leave it out for the usual place";
    refuses(&["keys", ""], 125, line);
    let why = "No such file or directory; make its directory first, or name a file elsewhere";
    refuses(&["keys", "/no/such/key"], 125, &format!("ream: keys: /no/such/key: {why}"));
}

/// It is the directory that an ordinary user may not search.
#[test]
fn a_directory_that_cannot_be_searched_is_named() {
    use std::os::unix::process::CommandExt;
    // SAFETY: asks only.
    let root = unsafe { libc::geteuid() } == 0;
    let scratch = Scratch::new();
    let command = scratch.write("ream", std::fs::read(env!("CARGO_BIN_EXE_ream")).unwrap(), 0o755);
    std::fs::create_dir(scratch.path("closed")).unwrap();
    let program = scratch.write("closed/program", "#!/bin/sh\n", 0o755);
    let closed = scratch.path("closed");
    let mode = |mode| std::fs::set_permissions(&closed, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    mode(0o000);
    let mut ordinary = std::process::Command::new(&command);
    ordinary.arg("run").arg(&program).current_dir("/").env("REAM_CONFIG", "");
    if root {
        ordinary.uid(65534).gid(65534);
    }
    let (status, _, err) = ended(&ordinary.output().unwrap());
    mode(0o755);
    let why = format!("this user may not search {}; name a program elsewhere", closed.display());
    assert!(status == 126 && err.contains(&why) && !err.contains("chmod"), "{status} {err}");
}

#[test]
fn programs_that_are_not_there_end_with_127() {
    refuses(&["run", "no-such-program"], 127, "ream: no-such-program: not found in PATH; give its path, or install it");
    refuses(
        &["run", "--", "/no/such"],
        127,
        "ream: /no/such: cannot be executed: No such file or directory; check its path",
    );
    let scratch = Scratch::new();
    let script = scratch.write("script", "#!/no/interpreter\n", 0o755);
    let script = script.to_str().unwrap();
    refuses(
        &["run", script],
        127,
        &format!(
            "ream: {script}: cannot be executed: its interpreter or dynamic linker does not exist; see its first line, \
             or file(1)"
        ),
    );
}

#[test]
fn otherwise_the_status_is_the_programs() {
    assert_eq!(run(&["run", "true"]), (0, String::new(), String::new()));
    assert_eq!(
        run(&["run", "--", "sh", "-c", "echo out; echo err >&2; exit 42"]),
        (42, "out\n".into(), "err\n".into())
    );
    assert_eq!(run(&["run", "--", "sh", "-c", "kill -9 $$"]).0, 1009);
    assert_eq!(run(&["run", "--", "sh", "-c", "kill -TERM $$"]).0, 1015);
}

/// A program without a dynamic linker, made of a dynamic one by blanking that entry.
fn static_program(scratch: &Scratch) -> String {
    let mut bytes = std::fs::read("/proc/self/exe").unwrap();
    let long = |bytes: &[u8], at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
    let headers = long(&bytes, 32) as usize;
    let count = usize::from(u16::from_ne_bytes([bytes[56], bytes[57]]));
    for at in (0..count).map(|number| headers + number * 56) {
        if bytes[at..at + 4] == 3u32.to_ne_bytes() {
            bytes[at..at + 4].fill(0);
        }
    }
    scratch.write("static", bytes, 0o755).to_str().unwrap().to_owned()
}

#[test]
fn programs_that_ream_cannot_enter_are_named() {
    let scratch = Scratch::new();
    let program = static_program(&scratch);
    let why = "statically linked, so --memory cannot hold for it; run it without";
    refuses(&["run", "--memory", "1G", &program], 125, &format!("ream: {program}: {why}"));
    let why_not = "statically linked, so it cannot be paged; leave --engine and --io out";
    refuses(&["run", "--io", "threads", &program], 125, &format!("ream: {program}: {why_not}"));
    // Without a budget it is run, and nothing is said.
    let (_, _, err) = run(&["run", &program]);
    assert_eq!(err, "");
    // What the configuration file says holds for the other programs.
    let settings = scratch.write("settings.toml", "memory = \"50%\"\n", 0o644);
    let (_, _, err) = ended(&ream(&["run", &program]).env("REAM_CONFIG", &settings).output().unwrap());
    assert!(err.starts_with(&format!("ream: {program}: statically linked, so this does not hold for it: ")), "{err}");
    let script = scratch.write("script", format!("#!{program}\n"), 0o755);
    let (status, _, err) = run(&["run", "-m1G", script.to_str().unwrap()]);
    assert_eq!(status, 125);
    assert!(err.contains(&format!("its interpreter {program} is {why}")), "{err}");
}
