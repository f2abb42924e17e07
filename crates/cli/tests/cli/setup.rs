//! `ream setup` as users see it: what an ordinary user gets to see, and undo after a setup that was killed.

use crate::common::{Scratch, ended, ream};
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A directory that looks like a machine.
fn machine() -> Scratch {
    let scratch = Scratch::new();
    for (path, text) in [
        ("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n"),
        ("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "0\n"),
        ("sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages", "0\n"),
        ("proc/sys/vm/unprivileged_userfaultfd", "0\n"),
        ("proc/sys/vm/max_map_count", "1000\n"),
        ("dev/userfaultfd", ""),
        ("usr/bin/systemd-tmpfiles", ""),
        ("var/lib/other", ""),
        ("handler", ""),
    ] {
        let place = scratch.path(path);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::write(place, text).unwrap();
    }
    fs::set_permissions(scratch.path("dev/userfaultfd"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::set_permissions(scratch.path("handler"), fs::Permissions::from_mode(0o755)).unwrap();
    scratch
}

fn setup(machine: &Scratch, options: &[&str]) -> Command {
    let root = machine.path("");
    let mut command = ream(&["setup", "--root", root.to_str().unwrap()]);
    if !options.contains(&"--undo") {
        command.arg("--handler").arg(machine.path("handler"));
    }
    command.args(options);
    command
}

/// Everything below a directory: mode and contents. Of a setting that shows all its words, the chosen one.
fn snapshot(machine: &Scratch) -> BTreeMap<PathBuf, (u32, String)> {
    fn walk(directory: &Path, found: &mut BTreeMap<PathBuf, (u32, String)>) {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let text = if path.is_dir() {
                walk(&path, found);
                String::new()
            } else {
                let text = fs::read_to_string(&path).unwrap();
                text.split_once('[')
                    .and_then(|(_, rest)| rest.split_once(']'))
                    .map_or(text.as_str(), |(word, _)| word)
                    .trim()
                    .to_owned()
            };
            found.insert(path.clone(), (path.metadata().unwrap().mode(), text));
        }
    }
    let mut found = BTreeMap::new();
    walk(&machine.path(""), &mut found);
    found
}

const ALL: &[&str] = &["--hugetlb", "16M", "--hugetlb-1g", "1G", "--memlock", "unlimited"];

#[test]
fn a_setup_that_is_killed_can_be_taken_back() {
    let lines = {
        let machine = machine();
        let (status, out, err) = ended(&setup(&machine, ALL).output().unwrap());
        assert_eq!((status, err.as_str()), (0, ""), "{out}");
        assert!(out.ends_with("ream setup --undo takes back\n"), "{out}");
        let (status, out, _) = ended(&setup(&machine, ALL).output().unwrap());
        assert!(status == 0 && out.ends_with("nothing to do\n"), "{out}");
        out.lines().count().max(20)
    };
    let mut cut = 0;
    for line in 0..lines {
        let machine = machine();
        let before = snapshot(&machine);
        let mut child = setup(&machine, ALL).stdout(Stdio::piped()).spawn().unwrap();
        let mut reader = BufReader::new(child.stdout.take().unwrap());
        for _ in 0..=line {
            reader.read_line(&mut String::new()).unwrap();
        }
        child.kill().unwrap();
        cut += u32::from(!child.wait().unwrap().success());
        let (status, out, err) = ended(&setup(&machine, &["--undo"]).output().unwrap());
        assert_eq!((status, err.as_str()), (0, ""), "{out}");
        assert_eq!(snapshot(&machine), before, "{line}: {out}");
    }
    assert!(cut > 0, "setup was never killed in the middle");
}

#[test]
fn ordinary_users_may_look() {
    let scratch = Scratch::new();
    let command = scratch.write("ream", fs::read(env!("CARGO_BIN_EXE_ream")).unwrap(), 0o755);
    // SAFETY: asks only.
    let root = unsafe { libc::geteuid() } == 0;
    let ordinary = |arguments: &[&str]| {
        let mut ordinary = Command::new(&command);
        ordinary.args(arguments).current_dir("/").stdin(Stdio::null());
        if root {
            ordinary.uid(65534).gid(65534);
        }
        ended(&ordinary.output().unwrap())
    };
    let (status, out, err) = ordinary(&["setup", "--dry-run", "--no-binfmt"]);
    assert_eq!((status, err.as_str()), (0, ""), "{out}");
    assert!(out.ends_with("nothing was changed\n") || out.ends_with("nothing to do\n"), "{out}");
    let (status, out, err) = ordinary(&["setup"]);
    assert_eq!((status, out.as_str()), (125, ""));
    assert_eq!(
        err,
        "ream: setup: only root can change the machine: sudo ream setup; --dry-run shows what it would do\n"
    );
}

#[test]
fn a_reader_that_goes_away_stops_nothing() {
    let machine = machine();
    let mut child = setup(&machine, ALL).stdout(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
    let (_, out, _) = ended(&setup(&machine, ALL).output().unwrap());
    assert!(out.ends_with("nothing to do\n"), "{out}");
}

/// A change that cannot be shown is not made.
#[test]
fn output_that_cannot_be_written_stops_it() {
    let machine = machine();
    let before = snapshot(&machine);
    let full = || fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    for options in [&["--dry-run"][..], &[]] {
        let (status, _, err) = ended(&setup(&machine, options).args(ALL).stdout(full()).output().unwrap());
        let line = "ream: standard output: No space left on device\n";
        assert_eq!((status, err.as_str()), (125, line), "{options:?}");
        let mut after = snapshot(&machine);
        // Where the journal is, or was.
        after.retain(|path, _| !path.starts_with(machine.path("var/lib/ream")));
        assert_eq!(after, before, "{options:?}");
    }
    assert_eq!(ended(&setup(&machine, ALL).output().unwrap()).0, 0);
    let made = snapshot(&machine);
    assert_eq!(ended(&setup(&machine, &["--undo"]).stdout(full()).output().unwrap()).0, 125);
    assert_eq!(snapshot(&machine), made);
}
