//! Marked programs: the file, the tools that go on working with it, and the kernel that hands it to Ream, in a user
//! namespace with a binfmt_misc of its own.

use ream_tests::{Build, Scratch, build, make_runnable, ream_binary, skip, tool};
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// `ream` with these arguments: status, standard output, standard error.
fn ream(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(ream_binary()).args(arguments).output().expect("running ream");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[track_caller]
fn done(arguments: &[&str], words: &str) {
    let (status, out, err) = ream(arguments);
    assert!(status == Some(0) && err.is_empty() && out.contains(words), "{arguments:?}: {status:?} {out}{err}");
}

#[track_caller]
fn refused(arguments: &[&str], words: &str) {
    let (status, out, err) = ream(arguments);
    let one_line = err.lines().count() == 1 && err.contains(words);
    assert!(status == Some(125) && out.is_empty() && one_line, "{arguments:?}: {status:?} {out}{err}");
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in ASCII")
}

/// A copy of a system's program in a directory of the test's own, with a time of its own.
fn copy(scratch: &Scratch, of: &str, name: &str) -> PathBuf {
    let path = scratch.file(name);
    fs::copy(of, &path).expect("a copy");
    make_runnable(&path, 0o755);
    path
}

fn names(scratch: &Scratch) -> Vec<String> {
    let entries = fs::read_dir(scratch.path()).expect("the directory").flatten();
    let mut names: Vec<_> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// What can be said of each is said, whatever stands between them.
#[test]
fn all_that_is_asked_for_is_shown() {
    let scratch = Scratch::new("mark-show");
    let (one, two) = (copy(&scratch, "/bin/cat", "one"), copy(&scratch, "/bin/cat", "two"));
    let script = scratch.file("script");
    fs::write(&script, "#!/bin/sh\n").expect("a script");
    make_runnable(&script, 0o755);
    done(&["mark", text(&one)], "marked\n");
    done(&["mark", text(&two)], "marked\n");
    done(&["mark", "--show", text(&one), text(&two)], ": marked\n");
    let (status, out, err) = ream(&["mark", "--show", text(&one), text(&script), "/no/such", text(&two)]);
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!((status, err.as_str(), lines.len()), (Some(1), "", 4), "{out}");
    assert!(lines[0].ends_with("one: marked") && lines[3].ends_with("two: marked"), "{out}");
    assert!(lines[1].contains("script: not an executable ELF program") && lines[2].starts_with("/no/such: "), "{out}");
}

#[test]
fn shared_libraries_are_no_programs() {
    let scratch = Scratch::new("mark-library");
    let maps = fs::read_to_string("/proc/self/maps").expect("maps");
    for name in ["/libc.so.6", "/ld-linux"] {
        let mut paths = maps.lines().filter_map(|line| line.split_whitespace().last());
        let library = copy(&scratch, paths.find(|path| path.contains(name)).expect("a library"), "lib.so");
        refused(&["mark", text(&library)], "lib.so: a shared library and no program; mark the programs that use it");
        refused(&["mark", "--memory=1G", text(&library)], "a shared library and no program");
    }
    assert_eq!(names(&scratch), ["lib.so"]);
}

#[test]
fn marking_and_unmarking_gives_the_same_file() {
    let scratch = Scratch::new("mark");
    let program = copy(&scratch, "/bin/cat", "cat");
    let (bytes, before) = (fs::read(&program).expect("bytes"), fs::metadata(&program).expect("metadata"));
    let link = scratch.file("link");
    symlink("cat", &link).expect("a link");
    done(&["mark", "--memory=1G", text(&link)], "marked\n");
    done(&["mark", "--show", text(&program)], ": marked --memory=1G\n");
    assert_eq!(names(&scratch), [".cat.unmarked", "cat", "link"]);
    let marked = fs::metadata(&program).expect("metadata");
    assert_eq!(
        (marked.mode(), marked.mtime_nsec(), marked.len()),
        (before.mode(), before.mtime_nsec(), before.len() + 512)
    );
    // Where the kernel has no entry it runs as it always did.
    assert!(Command::new(&program).arg("/dev/null").status().expect("running it").success());
    done(&["mark", "--memory=1G", text(&program)], "already marked\n");
    done(&["mark", "--pages=huge", text(&program)], "marked\n");
    done(&["mark", "--show", text(&program)], ": marked --pages=huge\n");
    done(&["unmark", text(&program)], "unmarked\n");
    done(&["unmark", text(&program)], "not marked\n");
    assert_eq!(ream(&["mark", "--show", text(&program)]).0, Some(1));
    let after = fs::metadata(&program).expect("metadata");
    // The file itself came back, not only its content.
    assert_eq!((after.ino(), after.mtime_nsec()), (before.ino(), before.mtime_nsec()));
    assert_eq!(names(&scratch), ["cat", "link"]);
    // Also where the original is gone.
    done(&["mark", text(&program)], "marked\n");
    fs::remove_file(scratch.file(".cat.unmarked")).expect("removing it");
    done(&["unmark", text(&program)], "unmarked\n");
    assert!(fs::read(&program).expect("bytes") == bytes);
    assert_eq!(names(&scratch), ["cat", "link"]);
}

#[test]
fn other_tools_take_it_for_a_program() {
    let scratch = Scratch::new("mark-tools");
    let program = copy(&scratch, "/bin/cat", "cat");
    done(&["mark", "--pages=huge", text(&program)], "marked\n");
    for words in [&["readelf", "-a", "-W"][..], &["gdb", "-batch", "-nx", "-ex", "info files"]] {
        let Some(tool) = tool(words[0]) else {
            skip(words[0], "not installed");
            continue;
        };
        let output = Command::new(tool).args(&words[1..]).arg(&program).output().expect("running it");
        assert!(output.status.success(), "{output:?}");
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(!err.contains("rror") && !err.contains("not in executable format"), "{words:?}: {err}");
    }
    let Some(strip) = tool("strip") else { return skip("strip", "not installed") };
    assert!(Command::new(strip).arg(&program).status().expect("running strip").success());
    assert!(Command::new(&program).arg("/dev/null").status().expect("running it").success());
    // The mark stays, the options go; what stands beside it is another program now.
    done(&["mark", "--show", text(&program)], ": marked; changed since");
    done(&["unmark", text(&program)], "unmarked\n");
    assert!(Command::new(&program).arg("/dev/null").status().expect("running it").success());
    assert_eq!(names(&scratch), ["cat"]);
}

#[test]
fn what_cannot_be_marked_is_refused_by_one_line() {
    let scratch = Scratch::new("mark-refused");
    refused(&["mark"], "not one program given");
    refused(&["mark", text(&scratch.file("none"))], "No such file or directory");
    refused(&["mark", text(scratch.path())], "not a file");
    let script = copy(&scratch, "/bin/cat", "script");
    fs::write(&script, "#!/bin/sh\n").expect("a script");
    refused(&["mark", text(&script)], "not an executable ELF program");
    let program = copy(&scratch, "/bin/cat", "cat");
    refused(&["mark", "--memory=odd", text(&program)], "--memory: \"odd\"");
    fs::set_permissions(&program, Permissions::from_mode(0o4755)).expect("permissions");
    refused(&["mark", text(&program)], "set-user-id");
    fs::set_permissions(&program, Permissions::from_mode(0o755)).expect("permissions");
    let mut bytes = fs::read(&program).expect("bytes");
    bytes[48] = 5;
    fs::write(&program, &bytes).expect("the program");
    refused(&["mark", text(&program)], "e_flags are in use (0x5)");
    bytes[48] = 0;
    fs::write(&program, &bytes).expect("the program");
    if let Build::Ready(fixed) = build("c/stdout_exit.c", &["-static"]) {
        let fixed = copy(&scratch, text(&fixed), "fixed");
        refused(&["mark", "--memory=1G", text(&fixed)], "statically linked, so --memory cannot hold");
    }
    // The kernel would hand it to itself.
    let own = copy(&scratch, text(&ream_binary()), "ream");
    let output = Command::new(&own).args(["mark", text(&own)]).output().expect("running a copy of ream");
    assert!(output.status.code() == Some(125) && String::from_utf8_lossy(&output.stderr).contains("Ream itself"));
    let names_before = names(&scratch);
    let script = format!(
        "mount --bind '{0}' '{0}' && mount -o remount,ro,bind '{0}' || exit 9; exec '{1}' mark '{2}'",
        text(scratch.path()),
        text(&ream_binary()),
        text(&program)
    );
    let output = Command::new("unshare").args(["-Urm", "sh", "-c", &script]).output().expect("running unshare");
    let err = String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        Some(125) => assert!(err.lines().count() == 1 && err.contains("Read-only file system"), "{err}"),
        _ => skip("a directory that cannot be written", &err),
    }
    assert_eq!(names(&scratch), names_before);
}

/// Runs a script where the kernel hands marked programs to Ream; `None`, loudly, where there is no such place.
fn with_entry(scratch: &Scratch, script: &str) -> Option<String> {
    let handler = scratch.file("ream-handler");
    if !handler.exists() {
        symlink(ream_binary(), &handler).expect("the handler");
    }
    let script = format!(
        "mount -t binfmt_misc none /proc/sys/fs/binfmt_misc || exit 9\n\
         printf '%s' ':ream:M:48:REAM:\\xff\\xff\\xff\\xff:{}:P' > /proc/sys/fs/binfmt_misc/register || exit 9\n\
         cd '{}'\n{script}",
        text(&handler),
        text(scratch.path())
    );
    let output = Command::new("timeout")
        .args(["100", "unshare", "-Urm", "sh", "-c", &script])
        .env("REAM_CONFIG", "")
        .env_remove("REAM_SESSION")
        .output()
        .expect("running unshare");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.code() == Some(9) {
        skip("marked programs", &format!("no binfmt_misc in a user namespace: {err}"));
        return None;
    }
    assert!(output.status.success(), "{:?}\n{out}{err}", output.status);
    Some(format!("{out}{err}"))
}

#[test]
fn marked_programs_run_under_ream() {
    let scratch = Scratch::new("mark-run");
    let program = copy(&scratch, "/bin/bash", "shell");
    done(&["mark", "--memory=512M", text(&program)], "marked\n");
    let say =
        r#"echo "$0 $* $BASH_ARGV0"; cat /proc/$$/comm; readlink /proc/$$/exe; grep -c -m1 libream.so /proc/$$/maps"#;
    let Some(out) = with_entry(&scratch, &format!("./shell -c '{say}' name a b\n./shell -c 'exit 7'; echo $?")) else {
        return;
    };
    let beside = fs::canonicalize(scratch.path()).expect("a path").join(".shell.unmarked");
    assert_eq!(out, format!("name a b name\nshell\n{}\n1\n7\n", beside.display()));
    // The mark's options hold, and those of the command line more than they.
    let ream = ream_binary();
    let lines = "REAM_SUMMARY=yes ./shell -c : 2>&1 | grep -o 'budget [^,;]*'\n\
         REAM_MEMORY=256M REAM_SUMMARY=yes ./shell -c : 2>&1 | grep -o 'budget [^,;]*'\n";
    let lines =
        format!("{lines}{} run --memory 128M --summary ./shell -c : 2>&1 | grep -o 'budget [^,;]*'", ream.display());
    let out = with_entry(&scratch, &lines).expect("it went before");
    let budgets: Vec<_> = out.lines().map(|line| line.trim()).collect();
    assert_eq!(budgets, ["budget 512 MiB", "budget 256 MiB", "budget 128 MiB"]);
    // A marked program that a marked one starts belongs to the same session.
    let out = with_entry(&scratch, r#"./shell -c 'echo $REAM_SESSION; ./shell -c "echo \$REAM_SESSION"; :'"#);
    let out = out.expect("it went before");
    let sessions: Vec<_> = out.lines().collect();
    assert!(sessions.len() == 2 && sessions[0] == sessions[1] && sessions[0].starts_with("/proc/"), "{out}");
    // Copied without what stands beside it, it runs from memory, and says so.
    let out =
        with_entry(&scratch, "mkdir d && cp shell d && d/shell -c 'echo $0; exit 0'; rm -r d").expect("as before");
    assert!(out.starts_with("d/shell\n") && out.contains("copied to memory"), "{out}");
    done(&["unmark", text(&program)], "unmarked\n");
}

#[test]
fn marked_static_programs_get_large_pages() {
    let scratch = Scratch::new("mark-static");
    let Build::Ready(built) = build("c/coverage.c", &["-static"]) else { return skip("coverage", "no compiler") };
    let program = copy(&scratch, text(&built), "coverage");
    done(&["mark", text(&program)], "marked\n");
    let Some(out) = with_entry(&scratch, "./coverage") else { return };
    let row = out.lines().find(|line| line.starts_with("bss_64m ")).expect("a row");
    let numbers: Vec<u64> = row.split(' ').skip(1).map(|word| word.parse().expect("a number")).collect();
    assert!(numbers[1] * 100 >= numbers[0] * 95, "{out}");
    done(&["unmark", text(&program)], "unmarked\n");
    assert!(fs::read(&program).expect("bytes") == fs::read(&built).expect("bytes"));
}
