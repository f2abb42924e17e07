//! A program's code on large pages: what the program itself sees of it, what it computes with it, and what `ream doctor
//! PROGRAM` promises against what `ream status` then shows.

use ream_tests::{Build, Outcome, Run, Scratch, build, is_root, ream_binary, skip, tool, wait_until_written};
use serde_json::Value;
use std::fs::{self, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

const FIXED: &[&str] = &["-no-pie", "-fno-pie"];
const MOVABLE: &[&str] = &["-pie", "-fPIE"];

/// The program with 8 MiB of code, in a directory of its own; `None`, loudly, where there is no compiler.
fn program(scratch: &Scratch, flags: &[&str]) -> Option<PathBuf> {
    match build("c/text.c", flags) {
        Build::Ready(built) => {
            let path = scratch.file("text");
            write_small(&path, &fs::read(built).expect("the program"));
            Some(path)
        }
        Build::Missing(reason) => {
            skip("c/text.c", &reason);
            None
        }
    }
}

/// Writes a program page by page, so that the page cache holds it in small pages, and to the disk.
fn write_small(path: &Path, bytes: &[u8]) {
    let mut file = fs::File::create(path).expect("a program");
    write_pages(&mut file, bytes);
}

fn write_pages(file: &mut fs::File, bytes: &[u8]) {
    bytes.chunks(4096).for_each(|page| file.write_all(page).expect("writing the program"));
    file.set_permissions(Permissions::from_mode(0o755)).expect("setting permissions");
    file.sync_all().expect("syncing the program");
}

fn run(program: &Path, argument: &str) -> Run {
    wait_until_written(program);
    Run::of(program).arg(argument)
}

fn under_ream(program: &Path, argument: &str) -> Run {
    run(program, argument).memory(256).option("--log=info")
}

/// Whole blocks of its code, and those on large pages, of a program that was run with `pages`.
fn blocks(outcome: &Outcome) -> (u64, u64) {
    outcome.exited(0);
    let out = outcome.out();
    let (blocks, kib) = out.lines().nth(1).and_then(|line| line.split_once(' ')).expect("blocks and KiB");
    (blocks.parse().expect("blocks"), kib.parse::<u64>().expect("KiB") / 2048)
}

/// Whether the kernel kept a file's code on small pages, as ream tells; then there is nothing to test here.
fn unable(outcome: &Outcome) -> bool {
    let line = outcome.err().lines().find(|line| line.contains("did not read it as large pages")).map(str::to_owned);
    if let Some(line) = &line {
        skip("code on large pages", line);
    }
    line.is_some()
}

#[test]
fn code_lies_on_large_pages() {
    let scratch = Scratch::new("code");
    let Some(program) = program(&scratch, FIXED) else { return };
    let plain = run(&program, "").finish();
    plain.exited(0);
    assert_eq!(blocks(&run(&program, "pages").finish()).1, 0);
    assert_eq!(blocks(&under_ream(&program, "pages").option("--pages=small").finish()).1, 0);
    let outcome = under_ream(&program, "pages").finish();
    if unable(&outcome) {
        return;
    }
    let (whole, large) = blocks(&outcome);
    assert!(whole >= 3 && large == whole, "{}", outcome.describe());
    under_ream(&program, "").finish().same_as(&plain);
}

/// No library enters these: the file is all that can be made ready.
#[test]
fn also_that_of_static_programs() {
    for (flags, pages) in [("-static", "auto"), ("-static-pie", "text=huge")] {
        let scratch = Scratch::new("code");
        let Some(program) = program(&scratch, &[flags]) else { return };
        let cache = scratch.directory("cache");
        fs::set_permissions(&cache, Permissions::from_mode(0o700)).expect("setting permissions");
        let asked = |argument: &str, pages: &str| {
            let run = run(&program, argument).under_ream().option("--log=info").option(format!("--pages={pages}"));
            run.env("XDG_CACHE_HOME", &cache).finish()
        };
        let plain = run(&program, "").finish();
        plain.exited(0);
        assert_eq!(blocks(&asked("pages", "small")).1, 0);
        let outcome = asked("pages", pages);
        if unable(&outcome) {
            return;
        }
        let (whole, large) = blocks(&outcome);
        assert!(whole >= 3 && large == whole, "{flags}: {}", outcome.describe());
        asked("", pages).same_as(&plain);
    }
}

/// Whoever asked for small pages has them even where the cache holds large ones.
#[test]
fn small_pages_are_small() {
    let scratch = Scratch::new("code");
    let Some(program) = program(&scratch, FIXED) else { return };
    if unable(&under_ream(&program, "pages").finish()) {
        return;
    }
    assert!(blocks(&run(&program, "pages").finish()).1 > 0, "the cache holds large pages");
    assert_eq!(blocks(&under_ream(&program, "pages").option("--pages=small").finish()).1, 0);
}

#[test]
fn a_program_that_changes_while_it_is_cached() {
    let scratch = Scratch::new("code");
    let Some(program) = program(&scratch, FIXED) else { return };
    let Build::Ready(other) = build("c/text.c", &[FIXED, &["-DSALT=7"]].concat()) else { return };
    let other = fs::read(other).expect("the other program");
    if unable(&under_ream(&program, "pages").finish()) {
        return;
    }
    let before = under_ream(&program, "").finish();
    // In place: the cache's large pages are written to.
    let mut file = fs::OpenOptions::new().write(true).truncate(true).open(&program).expect("the program");
    write_pages(&mut file, &other);
    drop(file);
    let plain = run(&program, "").finish();
    assert_ne!(plain.out(), before.out());
    under_ream(&program, "").finish().same_as(&plain);
    let (whole, large) = blocks(&under_ream(&program, "pages").finish());
    assert_eq!(large, whole);
}

#[test]
fn a_program_that_others_run_on_small_pages() {
    let scratch = Scratch::new("code");
    let Some(program) = program(&scratch, FIXED) else { return };
    let running = run(&program, "100").start();
    running.until_resident(64);
    let outcome = under_ream(&program, "").finish();
    running.signal(libc::SIGKILL);
    running.finish();
    if unable(&outcome) {
        return;
    }
    outcome.exited(0);
    assert!(outcome.err().contains("another process has it mapped on small pages"), "{}", outcome.describe());
}

/// Several starts of a program at once: one reads, the others wait for it and have large pages, too.
#[test]
fn starts_at_the_same_time() {
    let scratch = Scratch::new("code");
    let Some(program) = program(&scratch, FIXED) else { return };
    let running: Vec<_> = (0..4).map(|_| under_ream(&program, "pages").start()).collect();
    let outcomes: Vec<_> = running.into_iter().map(ream_tests::Running::finish).collect();
    for outcome in &outcomes {
        if unable(outcome) {
            return;
        }
        outcome.exited(0);
    }
    let (whole, large) = blocks(&outcomes[0]);
    assert_eq!(large, whole, "{}", outcomes[0].describe());
}

/// A file system that holds files in small pages only (journalled data): one block shows it, and nothing else happens. It is
/// mounted in a namespace that ends with the script.
#[test]
fn where_the_file_system_cannot() {
    const SCRIPT: &str = "set -e; mkdir $1/mnt; truncate -s 64M $1/image; mkfs.ext4 -q $1/image; \
        mount -o loop,data=journal $1/image $1/mnt; dd if=$2 of=$1/mnt/p bs=4096 conv=fsync status=none; \
        chmod 755 $1/mnt/p; $1/mnt/p; $3 run --store $1 --log=info -- $1/mnt/p; $3 run --store $1 -- $1/mnt/p pages";
    let scratch = Scratch::new("code");
    let Some(program) = program(&scratch, FIXED) else { return };
    let (Some(unshare), true, Some(_)) = (tool("unshare"), is_root(), tool("mkfs.ext4")) else {
        return skip("journalled data", "not root, or no unshare or mkfs.ext4");
    };
    let script = Command::new(unshare)
        .args(["--mount", "sh", "-c", SCRIPT, "sh"])
        .args([scratch.path(), &program, &ream_binary()])
        .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
        .output()
        .expect("running unshare");
    let (out, err) = (String::from_utf8_lossy(&script.stdout), String::from_utf8_lossy(&script.stderr));
    if !script.status.success() && err.contains("mount") {
        return skip("journalled data", &err);
    }
    let lines: Vec<_> = out.lines().collect();
    let [plain, ream, again, pages] = lines.as_slice() else { panic!("{out}{err}") };
    assert!(plain == ream && plain == again && pages.ends_with(" 0"), "{out}");
    assert!(err.contains("did not read it as large pages"), "{err}");
}

/// A program that is loaded anywhere, as an aligned copy.
#[test]
fn a_movable_program_when_its_code_is_asked_for() {
    let scratch = Scratch::new("code");
    let Some(program) = program(&scratch, MOVABLE) else { return };
    let cache = scratch.directory("cache");
    fs::set_permissions(&cache, Permissions::from_mode(0o700)).expect("setting permissions");
    let asked = |argument: &str| {
        under_ream(&program, argument).option("--pages=text=huge:require").env("XDG_CACHE_HOME", &cache)
    };
    let plain = run(&program, "").finish();
    let outcome = asked("pages").finish();
    if unable(&outcome) {
        return;
    }
    let (whole, large) = blocks(&outcome);
    assert!(whole >= 3 && large == whole, "{}", outcome.describe());
    asked("").finish().same_as(&plain);
    let path = asked("self").finish().out().lines().nth(1).map(PathBuf::from).expect("a path");
    assert!(path.starts_with(&cache) && path.file_name() == program.file_name(), "{}", path.display());
}

/// Doctor says so beforehand, and once there is the copy, of that.
#[test]
fn doctor_foresees_the_aligned_copy() {
    let scratch = Scratch::new("code");
    let Some(program) = program(&scratch, MOVABLE) else { return };
    let cache = scratch.directory("cache");
    fs::set_permissions(&cache, Permissions::from_mode(0o700)).expect("setting permissions");
    let code = |pages: &str| {
        let mut command = Command::new(ream_binary());
        command.args(["doctor", "--json", pages, "--"]).arg(&program).env("XDG_CACHE_HOME", &cache);
        let output = command.output().expect("running ream");
        let shown: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let rows = shown["regions"].as_array().expect("rows").clone();
        let row = rows.iter().find(|row| row["region"] == "code").expect("code").clone();
        (row["blocks"].as_u64().expect("blocks"), row["why"].as_str().expect("why").to_owned())
    };
    assert_eq!(code("--pages=auto").0, 0);
    assert_eq!(code("--pages=text=small"), (0, "--pages=small".to_owned()));
    let (promised, why) = code("--pages=text=huge");
    assert!(promised >= 3 && why.contains("writes an aligned copy"), "{promised}: {why}");
    assert_eq!(fs::read_dir(&cache).expect("the cache").count(), 0, "doctor changes nothing");
    let run = under_ream(&program, "pages").option("--pages=text=huge").env("XDG_CACHE_HOME", &cache).finish();
    if unable(&run) {
        return;
    }
    assert_eq!(blocks(&run).1, promised, "{}", run.describe());
    let (again, why) = code("--pages=text=huge");
    assert!(again == promised && why.contains("as an aligned copy, "), "{again}: {why}");
    fs::set_permissions(&cache, Permissions::from_mode(0o777)).expect("setting permissions");
    let (none, why) = code("--pages=text=huge:require");
    assert!(none == 0 && why.contains("changed by others") && why.contains("does not start it so"), "{none}: {why}");
}

fn ream(arguments: &[&str]) -> Value {
    let output = Command::new(ream_binary()).args(arguments).output().expect("running ream");
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// What doctor says beforehand is what status shows then.
#[test]
fn doctor_keeps_its_promises() {
    let allowed = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    if !allowed.contains("[always]") && !allowed.contains("[madvise]") {
        return skip("large pages", "transparent_hugepage/enabled is neither always nor madvise");
    }
    for (flags, pages) in [(FIXED, "auto"), (FIXED, "small"), (MOVABLE, "auto")] {
        let scratch = Scratch::new("code");
        let Some(program) = program(&scratch, flags) else { return };
        let name = program.to_str().expect("a path");
        let promised = ream(&["doctor", "--json", "--pages", pages, "--", name]);
        let promised = |region: &str| {
            let rows = promised["regions"].as_array().expect("rows").iter();
            let of = |row: &&Value| row["region"] == region && row["file"].is_null();
            rows.filter(of).map(|row| row["blocks"].as_u64().expect("blocks") << 21).sum::<u64>()
        };
        let running = under_ream(&program, "100").option(format!("--pages={pages}")).start();
        running.until_resident(64);
        // The first line is written when all has been run once.
        let shown = loop {
            let shown = ream(&["status", "--json", &running.pid.to_string()]);
            let regions = shown["regions"].as_array().expect("regions").clone();
            let done = regions.iter().any(|of| of["kind"] == "code" && of["resident"].as_u64() >= Some(8 << 20));
            if done {
                break regions;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        };
        running.signal(libc::SIGKILL);
        running.finish();
        let large = |kind: &str| {
            let of = |row: &&Value| row["kind"] == kind && row["name"] == name;
            shown.iter().filter(of).map(|row| row["on_2m"].as_u64().expect("bytes")).sum::<u64>()
        };
        let text = format!("{flags:?} {pages}: {shown:#?}");
        assert_eq!(large("code"), promised("code"), "{text}");
        let (shown, promised) = (large("static data"), promised("static data"));
        // Where the program may lie anywhere, one more may be whole.
        let more = if flags == FIXED { 0 } else { 2 << 20 };
        assert!((promised..=promised + more).contains(&shown), "{promised} {text}");
        assert_eq!(shown > 0, pages != "small");
    }
}
