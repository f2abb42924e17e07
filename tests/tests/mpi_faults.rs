//! Jobs of MPI that end before their time: a rank, the session's agent, the launcher. Nobody waits for who has gone, nothing
//! is left, and the job's exit status says what it would without Ream.

use ream_tests::mpi::{Mpi, Turns, between, each, until, until_gone};
use std::fs;
use std::path::{Path, PathBuf};

/// A rank's exit status is the job's, and nothing of the session stays.
#[test]
fn exit_status() {
    each(|mpi| {
        let turns = Turns::new("64M", "1");
        let running = turns.job(mpi, 3, &mpi.program("ends.c"), &["status", turns.directory()]).start();
        let (agent, _) = turns.processes(3);
        running.finish().exited(3);
        until_gone(&[agent]);
    });
}

/// A rank that is killed takes the job with it, and nothing of the session stays.
#[test]
fn a_rank_is_killed() {
    each(|mpi| {
        for how in ["computing", "blocked"] {
            let turns = Turns::new("64M", "1");
            let running = turns.job(mpi, 4, &mpi.program("ends.c"), &[how, turns.directory()]).start();
            let (agent, ranks) = turns.processes(4);
            // Hydra says at times that all is well when it was told to end.
            let outcome = running.finish();
            assert!(mpi == Mpi::Mpich || !outcome.status.success(), "{}", outcome.describe());
            until_gone(&ranks);
            until_gone(&[agent]);
        }
    });
}

/// Of three that compute one at a time one is killed that waits for its place and one that has it: the third one gets it,
/// by the agent, or without. Launchers end a job of which a rank is killed, so these are three jobs of one session.
#[test]
fn killed_ranks_give_their_places_back() {
    for with_agent in [true, false] {
        each(|mpi| {
            let program = mpi.program("places.c");
            let turns = Turns::new("64M", "1").with("--turn-patience=3600000");
            let script = format!(
                "for name in a b c; do env -i PATH=\"$PATH\" LD_PRELOAD=\"$LD_PRELOAD\" REAM_SESSION=\"$REAM_SESSION\" \
                 REAM_TEST_RUN=\"$REAM_TEST_RUN\" {} {} $name & done; wait",
                program.display(),
                turns.directory()
            );
            let running = turns.job(mpi, 1, Path::new("/bin/sh"), &["-c", &script]).start();
            let read = |name: &str, end: &str| fs::read_to_string(turns.scratch.file(&format!("{name}.{end}"))).ok();
            let ready = |name: &&str, end: &str| read(name, end).is_some_and(|text| text.ends_with('\n'));
            let names = ["a", "b", "c"];
            until("three processes", || names.iter().all(|name| ready(name, "pid")).then_some(()));
            let first = until("a rank with a place", || names.into_iter().find(|name| ready(name, "in")));
            let others: Vec<&str> = names.into_iter().filter(|name| *name != first).collect();
            let pid = |name: &str| between(&read(name, "pid").unwrap_or_default(), "", " ");
            // SAFETY: only sends a signal, to processes of this test's own job.
            let kill = |pid: i32| unsafe { libc::kill(pid, libc::SIGKILL) };
            if !with_agent {
                kill(between(&read(first, "pid").unwrap_or_default(), "/proc/", "/"));
            }
            kill(pid(others[0]));
            until_gone(&[pid(others[0])]);
            assert!(!ready(&others[1], "in"), "two have a place");
            kill(pid(first));
            until("a place given back", || ready(&others[1], "in").then_some(()));
            fs::write(turns.scratch.file(&format!("{}.go", others[1])), "").expect("a file");
            running.finish().exited(0);
            assert!(ready(&others[1], "done"));
        });
    }
}

/// Without an agent ranks go on, and find out by themselves who has gone.
#[test]
fn the_agent_is_killed() {
    each(|mpi| {
        let turns = Turns::new("64M", "1");
        let program = mpi.program("ends.c");
        let running = turns.job(mpi, 4, &program, &["calm", turns.directory()]).start();
        let (agent, ranks) = turns.processes(4);
        // SAFETY: only sends a signal, to the agent of this test's own session.
        unsafe { libc::kill(agent, libc::SIGKILL) };
        running.finish().exited(0);
        assert!((0..4).all(|rank| turns.of_rank(rank).is_some_and(|text| text.ends_with("done\n"))));
        until_gone(&ranks);
    });
}

/// Segments of Open MPI's, which stay behind when its launcher is killed, without Ream as well.
fn segments() -> Vec<PathBuf> {
    let files = fs::read_dir("/dev/shm").into_iter().flatten().flatten().map(|entry| entry.path());
    files.filter(|path| path.to_string_lossy().contains("/vader_segment.")).collect()
}

/// The launcher is ended in the middle of turns, by a signal it handles and by one that it cannot.
#[test]
fn the_launcher_is_ended() {
    for signal in [libc::SIGTERM, libc::SIGKILL] {
        each(|mpi| {
            let before = segments();
            let turns = Turns::new("64M", "1");
            let running = turns.job(mpi, 4, &mpi.program("ends.c"), &["for-ever", turns.directory()]).start();
            let (agent, ranks) = turns.processes(4);
            running.signal(signal);
            // Hydra says at times that all is well when it was told to end.
            let outcome = running.finish();
            assert!(mpi == Mpi::Mpich || !outcome.status.success(), "{}", outcome.describe());
            until_gone(&ranks);
            until_gone(&[agent]);
            for left in segments().iter().filter(|path| !before.contains(path)) {
                let _ = fs::remove_file(left);
            }
        });
    }
}
