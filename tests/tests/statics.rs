//! Programs that no library can enter: large pages from outside, and nothing else that they could notice.

use ream_tests::{Outcome, Run, compiled, is_root, large_pages, skip};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

const KINDS: [&[&str]; 2] = [&["-static"], &["-static-pie"]];

/// Name, whole blocks, those on large pages, KiB in RAM, those on large pages.
fn coverage(flags: &[&str], pages: &str) -> Option<Vec<(String, [u64; 4])>> {
    let program = compiled("c/coverage.c", flags)?;
    let outcome = Run::of(program).under_ream().option(format!("--pages={pages}")).finish();
    if outcome.status.code() == Some(77) {
        skip("coverage", &outcome.err());
        return None;
    }
    outcome.exited(0);
    assert_eq!(outcome.err(), "", "{}", outcome.describe());
    Some(rows(&outcome))
}

/// A program linked in all these ways, where there are large pages to be had.
fn programs(source: &'static str) -> impl Iterator<Item = (&'static [&'static str], PathBuf)> {
    let ways = large_pages(&["madvise"]).then_some(KINDS);
    ways.into_iter().flatten().map_while(move |flags| Some((flags, compiled(source, flags)?)))
}

fn rows(outcome: &Outcome) -> Vec<(String, [u64; 4])> {
    let row = |line: &str| {
        let mut words = line.split(' ');
        let name = words.next().expect("a name").to_owned();
        (name, core::array::from_fn(|_| words.next().expect("four numbers").parse().expect("a number")))
    };
    outcome.out().lines().map(row).collect()
}

#[test]
fn static_data_stack_and_heap_lie_on_large_pages() {
    for flags in KINDS {
        for pages in ["auto", "huge"] {
            let Some(rows) = large_pages(&["madvise"]).then(|| coverage(flags, pages)).flatten() else { return };
            let heap = ["heap_main_small", "heap_main_128k", "heap_main_1m"];
            // What its libc's mprotect and mmap ask for.
            let hooked = ["heap_worker_small", "heap_worker_128k", "heap_worker_1m", "heap_mapped_pieces"];
            let stacks = ["stack_worker", "stack_large_worker"];
            let (hooked, stacks) = match cfg!(target_arch = "x86_64") {
                true => (&hooked[..], &stacks[..]),
                false if pages == "huge" => (&hooked[..3], &[][..]),
                false => (&[][..], &[][..]),
            };
            let heap = [&heap[..], hooked].concat();
            let others = ["bss_4m", "bss_64m", "data_16m", "stack_main", "heap_main_large"];
            let large = [&heap[..], stacks, &others].concat();
            let rows: Vec<_> = rows.iter().filter(|(name, _)| large.contains(&name.as_str())).collect();
            assert_eq!(rows.len(), large.len());
            for (name, [blocks, large, resident, on_large]) in rows {
                let what = format!("{name}, {flags:?}, --pages={pages}: {large} of {blocks}, {on_large} of {resident}");
                // Under auto a stack's uppermost block may keep small pages.
                let spared = u64::from(pages == "auto" && name.starts_with("stack_"));
                assert!((large + spared) * 100 >= blocks * 95, "{what}");
                // The heap of 48 MiB begins anywhere in a block, and so does what follows it.
                let least = if ["heap_main_small", "heap_main_128k"].contains(&name.as_str()) { 90 } else { 95 };
                if name == "bss_64m" || heap.contains(&name.as_str()) {
                    assert!(on_large * 100 >= resident * least, "{what}");
                }
            }
        }
    }
}

/// Blocks that could each be a mapping share large pages, in programs that one of the session starts, too. When all of them are
/// freed, their memory is given back; and what the user told malloc himself stays.
#[test]
fn the_heap_is_large_and_given_back() {
    let Some(starter) = compiled("c/starter.c", &[]) else { return };
    for (flags, program) in programs("c/heap_shared.c") {
        let (direct, within) = (|| Run::of(&program), || Run::of(&starter).arg("execve").arg(&program));
        for run in [&direct as &dyn Fn() -> Run, &within] {
            let look = |run: Run| -> Option<[[u64; 4]; 2]> {
                let outcome = run.under_ream().finish();
                if outcome.status.code() == Some(77) {
                    skip("heap_shared", &outcome.err());
                    return None;
                }
                outcome.exited(0);
                let rows = rows(&outcome);
                Some([rows[0].1, rows[1].1])
            };
            let Some([[_, _, resident, large], [_, _, left, _]]) = look(run()) else { return };
            assert!(large * 100 >= resident * 95, "{flags:?}: {large} of {resident}");
            assert!(left < 8 << 10, "{flags:?}: {left} KiB are left");
            for (variable, value) in [
                ("GLIBC_TUNABLES", "glibc.malloc.mmap_threshold=131072"),
                ("GLIBC_TUNABLES", "glibc.malloc.top_pad=131072"),
                ("GLIBC_TUNABLES", "glibc.malloc.hugetlb=0"),
                ("MALLOC_TRIM_THRESHOLD_", "131072"),
            ] {
                let Some([[.., large], _]) = look(run().env(variable, value)) else { return };
                // A heap that happens to begin a page below a large one's place, one of 512, is grown by one, and has room for ten.
                assert!(large <= 2 << 10, "{flags:?} {variable}={value}: {large} KiB");
            }
        }
    }
}

/// mprotect and mmap return what they do without Ream, and leave the same behind.
#[test]
fn calls_through_its_libc_are_the_kernels() {
    for (flags, program) in programs("c/static_calls.c") {
        let plain = Run::of(&program).finish();
        plain.exited(0);
        for pages in ["auto", "huge"] {
            Run::of(&program).under_ream().option(format!("--pages={pages}")).finish().same_as(&plain);
        }
        assert!(!plain.out().is_empty(), "{flags:?}");
    }
}

/// Heaps of other threads are opened as a whole only where large pages are insisted on, and nothing counts what is not touched.
#[test]
fn heaps_are_opened_as_a_whole_where_there_is_room() {
    let (Some(starter), Some(program)) = (compiled("c/starter.c", &[]), compiled("c/heap_shared.c", KINDS[0])) else {
        return;
    };
    let told = |limit: &str, pages: &str, before: &[&std::ffi::OsStr]| {
        let line = format!("{limit}; exec \"$@\"");
        let mut run =
            Run::of("/bin/sh").args(["-c", &line, "sh"]).arg(ream_tests::ream_binary()).args(["run", pages, "--"]);
        for word in before {
            run = run.arg(word);
        }
        let outcome = run.arg(&program).arg("told").finish();
        outcome.exited(0);
        assert!(outcome.out().contains("glibc.malloc.hugetlb=1"), "{}", outcome.describe());
        outcome.out().contains("glibc.malloc.top_pad=")
    };
    for before in [&[][..], &[starter.as_os_str(), "execve".as_ref()]] {
        assert!(told("true", "--pages=huge", before));
        assert!(told("true", "--pages=heap=huge", before));
        assert!(!told("true", "--pages=auto", before));
        assert!(!told("ulimit -v 33554432", "--pages=huge", before));
        assert!(!told("ulimit -d 33554432", "--pages=huge", before));
    }
}

#[test]
fn no_large_page_where_small_ones_are_asked_for() {
    for flags in KINDS {
        let Some(rows) = coverage(flags, "small") else { return };
        assert!(rows.iter().all(|(_, [.., on_large])| *on_large == 0), "{rows:?}");
    }
}

/// Children, signals, files, name and tracer are what they are without Ream, and its data what they were in the file.
#[test]
fn the_program_begins_as_without_ream() {
    for flags in KINDS {
        let Some(program) = compiled("c/static_start.c", flags) else { return };
        let plain = Run::of(&program).finish();
        plain.exited(42);
        Run::of(&program).under_ream().finish().same_as(&plain);
        assert!(plain.out().contains("TracerPid:\t0\n"), "{}", plain.out());
    }
}

/// Not even a program that adopts what is orphaned below it, as supervisors do, has a child that it does not know.
#[test]
fn nor_has_a_program_that_adopts_orphans_other_children() {
    let (Some(program), Some(launcher)) = (compiled("c/static_start.c", KINDS[0]), compiled("c/launcher.c", &[]))
    else {
        return;
    };
    let ream = ream_tests::ream_binary();
    let words =
        |first: &str, program: &PathBuf| [first.into(), ream.clone(), "run".into(), "--".into(), program.clone()];
    Run::of(&launcher).args(words("adopting", &program)).finish().exited(42);
    if !is_root() {
        return skip("process 1", "not root");
    }
    // As the first process of a container it would be given ours, so there is none, and a word about that.
    let Some(program) = compiled("c/stdout_exit.c", KINDS[0]) else { return };
    let outcome = Run::of(&launcher).args(words("first", &program)).finish();
    assert_eq!(outcome.out(), Run::of(&program).finish().out());
    assert!(outcome.err().contains("process 1"), "{}", outcome.describe());
}

#[test]
fn a_program_without_any_library() {
    let flags =
        ["-static", "-nostdlib", "-nostartfiles", "-ffreestanding", "-fno-pie", "-no-pie", "-fno-stack-protector"];
    let Some(program) = large_pages(&["madvise"]).then(|| compiled("c/bare.c", &flags)).flatten() else { return };
    let running = Run::of(program).under_ream().start();
    running.until_paused();
    let large = || -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/smaps", running.pid)).unwrap_or_default();
        let lines = text.lines().filter_map(|line| line.strip_prefix("AnonHugePages:"));
        lines.filter_map(|line| line.trim().split(' ').next()?.parse::<u64>().ok()).sum()
    };
    let found = large();
    running.signal(libc::SIGTERM);
    running.finish().signalled(libc::SIGTERM);
    assert!(found >= 60 << 10, "{found} KiB");
}

/// What is traced already, by a debugger for one, runs all the same.
#[test]
fn a_program_under_a_debugger() {
    let (Some(program), Some(launcher)) = (compiled("c/coverage.c", KINDS[0]), compiled("c/launcher.c", &[])) else {
        return;
    };
    let outcome =
        Run::of(launcher).arg("traced").arg(ream_tests::ream_binary()).args(["run", "--"]).arg(program).finish();
    outcome.exited(0);
    let err = outcome.err();
    assert!(err.lines().count() == 1 && err.contains("cannot be traced for a moment"), "{}", outcome.describe());
}

/// Programs that a static one starts belong to its session, unless that is not wanted.
#[test]
fn programs_that_it_starts_run_under_ream() {
    let Some(program) = compiled("c/static_start.c", KINDS[0]) else { return };
    let shell = |run: Run| -> Outcome { run.arg("grep -c libream.so /proc/self/maps").under_ream().finish() };
    shell(Run::of(&program)).exited(42);
    let outcome = shell(Run::of(&program).option("--no-exec-inherit").option("--summary=no"));
    outcome.exited(1);
    assert!(outcome.out().ends_with("0\n"), "{}", outcome.describe());
}

/// Killed at any moment, the program leaves nothing behind.
#[test]
fn a_program_killed_while_it_starts() {
    let Some(program) = compiled("c/static_start.c", KINDS[0]) else { return };
    for step in 0..30u64 {
        // The file of the summary is tried by making it, which may just be happening.
        let running = Run::of(&program).under_ream().option("--summary=no").start();
        std::thread::sleep(Duration::from_micros(step * 1500));
        running.signal(libc::SIGKILL);
        // It may have ended before.
        let status = running.finish().status;
        assert!(status.code() == Some(42) || status.code().is_none(), "{status:?}");
    }
}

/// When our own process is killed the program goes on, or ends with it: it never runs half prepared.
#[test]
fn the_tracer_killed_at_work() {
    let Some(program) = compiled("c/static_start.c", KINDS[0]) else { return };
    let mut met = 0;
    for step in 0..24u64 {
        let running = Run::of(&program).under_ream().start();
        let deadline = Instant::now() + Duration::from_millis(200);
        let tracer = || {
            let name = |pid: &i32| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            running.processes().into_iter().find(|pid| name(pid) == "ream-inject\n")
        };
        while Instant::now() < deadline {
            if let Some(pid) = tracer() {
                std::thread::sleep(Duration::from_micros(step * 400));
                met += 1;
                // SAFETY: sends a signal to a process of this test, which carries its mark.
                unsafe { libc::kill(pid, libc::SIGKILL) };
                break;
            }
        }
        let outcome = running.finish();
        let status = outcome.status;
        assert!(status.code() == Some(42) || status.to_string().contains("SIGKILL"), "{}", outcome.describe());
    }
    if met == 0 {
        skip("the tracer killed at work", "it was never met");
    }
}

/// Ways in which the program `starter` executes another.
const WAYS: [&str; 6] = ["execve", "execv", "execvp", "vfork", "spawn", "spawnp"];

/// A static program that a program of the session starts has what one that the session begins with has: large pages under
/// its static data, and nothing else that it could notice, nor its parent.
#[test]
fn those_that_a_program_of_the_session_starts() {
    let Some(starter) = compiled("c/starter.c", &[]) else { return };
    for flags in KINDS {
        let Some(program) = compiled("c/static_start.c", flags) else { return };
        for way in WAYS {
            let plain = Run::of(&starter).arg(way).arg(&program).finish();
            plain.exited(42);
            Run::of(&starter).arg(way).arg(&program).under_ream().finish().same_as(&plain);
        }
        // By a name that is looked up, and by a shell.
        let path = format!("{}:/usr/bin:/bin", program.parent().expect("a directory").display());
        let name = program.file_name().expect("a name");
        for way in ["execvp", "spawnp"] {
            let run = || Run::of(&starter).arg(way).arg(name).env("PATH", &path);
            let plain = run().finish();
            plain.exited(42);
            run().under_ream().finish().same_as(&plain);
        }
        let shell = || Run::of("/bin/sh").args(["-c", "\"$0\"; exit $?"]).arg(&program);
        shell().under_ream().finish().same_as(&shell().finish());
    }
}

#[test]
fn they_lie_on_large_pages_too() {
    let Some(starter) = compiled("c/starter.c", &[]) else { return };
    for (flags, program) in programs("c/coverage.c") {
        for way in ["execve", "spawn"] {
            let outcome = Run::of(&starter).arg(way).arg(&program).under_ream().finish();
            outcome.exited(0);
            assert_eq!(outcome.err(), "", "{}", outcome.describe());
            for region in ["bss_4m", "bss_64m", "data_16m", "heap_main_large"] {
                let line = outcome.out();
                let line = line.lines().find(|line| line.starts_with(region)).expect("a line").to_owned();
                let numbers: Vec<u64> = line.split(' ').skip(1).map(|word| word.parse().expect("a number")).collect();
                assert!(numbers[1] * 100 >= numbers[0] * 95, "{flags:?} {way}: {line}");
            }
        }
        // Its parent has taken the session out of its environment, or wants small pages.
        for run in [Run::of(&starter).arg("bare").under_ream(), Run::of(&starter).arg("execv").option("--pages=small")]
        {
            let outcome = run.arg(&program).finish();
            outcome.exited(0);
            assert!(outcome.out().lines().all(|line| line.ends_with(" 0")), "{}", outcome.describe());
        }
    }
}

/// What cannot be executed is refused with the kernel's own error.
#[test]
fn errors_of_exec_are_the_kernels() {
    let Some(starter) = compiled("c/starter.c", &[]) else { return };
    let Some(program) = compiled("c/static_start.c", KINDS[0]) else { return };
    let scratch = ream_tests::Scratch::new("starter");
    let copy = scratch.file("copy");
    std::fs::write(&copy, std::fs::read(&program).expect("the program")).expect("a copy");
    for way in WAYS {
        for path in [PathBuf::from("/no/such/program"), copy.clone(), scratch.path().to_owned()] {
            let run = || Run::of(&starter).arg(way).arg(&path);
            let plain = run().finish();
            assert!(!plain.status.success(), "{}", plain.describe());
            run().under_ream().finish().same_as(&plain);
        }
    }
}

/// A region of small pages keeps them, and the others get theirs.
#[test]
fn regions_are_told_apart() {
    const STATIC: [&str; 3] = ["bss_4m", "bss_64m", "data_16m"];
    const STACK: [&str; 3] = ["stack_main", "stack_worker", "stack_large_worker"];
    const HEAP: [&str; 7] = [
        "heap_main_large",
        "heap_main_small",
        "heap_main_1m",
        "heap_mapped_pieces",
        "heap_worker_small",
        "heap_worker_128k",
        "heap_worker_1m",
    ];
    for (pages, large, small) in [
        ("bss=small", &["stack_main", "heap_main_large"][..], &STATIC[..]),
        ("stack=small", &["bss_64m", "data_16m", "heap_main_large"], &STACK),
        ("heap=small", &["bss_64m", "data_16m", "stack_main"], &HEAP),
        ("heap=huge,small", &["heap_main_large"], &[STATIC, STACK].concat()),
    ] {
        let Some(rows) = large_pages(&["madvise"]).then(|| coverage(KINDS[0], pages)).flatten() else { return };
        let of = |name: &&str| rows.iter().find(|(row, _)| row == name).expect("a row").1;
        assert!(large.iter().map(of).all(|[_, blocks, ..]| blocks > 0), "{pages}: {rows:?}");
        assert!(small.iter().map(of).all(|[.., on_large]| on_large == 0), "{pages}: {rows:?}");
    }
}

/// `ream status` lists such a program, and not those that it starts without Ream, and shows its regions.
#[test]
fn status_shows_them() {
    let flags =
        ["-static", "-nostdlib", "-nostartfiles", "-ffreestanding", "-fno-pie", "-no-pie", "-fno-stack-protector"];
    let (Some(program), Some(starter)) = (compiled("c/bare.c", &flags), compiled("c/starter.c", &[])) else { return };
    let status = |arguments: &[&str]| {
        let output =
            Command::new(ream_tests::ream_binary()).arg("status").args(arguments).output().expect("ream status");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let listed = |pid: i32| status(&[]).lines().any(|line| line.starts_with(&format!("{pid} ")));
    let within = || Run::of(&starter).arg("execv").arg(&program);
    for (run, ours) in [
        (Run::of(&program).under_ream(), true),
        (within().under_ream(), true),
        (Run::of(&program), false),
        (Run::of(&program).env("REAM_PLACED", "1"), false),
    ] {
        let running = run.start();
        running.until_paused();
        let found = listed(running.pid);
        let pid = running.pid.to_string();
        let (text, json) = (status(&[&pid]), status(&[&pid, "--json"]));
        running.signal(libc::SIGTERM);
        running.finish().signalled(libc::SIGTERM);
        assert_eq!((found, json.contains("\"ream\": true")), (ours, ours), "{json}");
        let row = |word: &str| text.lines().find(|line| line.starts_with(word)).unwrap_or_default().to_owned();
        assert!(row("static data").contains("64 MiB") && text.contains("main stack"), "{text}");
    }
}
