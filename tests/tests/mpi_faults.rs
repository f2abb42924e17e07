//! Jobs of MPI that end before their time: a rank, the session's agent, the launcher. Nobody waits for who has gone, nothing
//! is left, and the job's exit status says what it would without Ream.

use ream_tests::Run;
use ream_tests::mpi::{Mpi, Turns, between, dealt, each, until, until_gone};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A place for Open MPI's shared segments, in which nothing may be left.
struct Segments(PathBuf);

impl Segments {
    fn new() -> Segments {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = PathBuf::from(format!("/dev/shm/ream-tests-mpi-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).expect("a directory in shared memory");
        Segments(path)
    }

    fn settle(&self, run: Run) -> Run {
        run.env("OMPI_MCA_btl_vader_backing_directory", &self.0)
    }

    fn left(&self) -> Vec<String> {
        let files = fs::read_dir(&self.0).expect("a directory in shared memory").flatten();
        files.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }
}

impl Drop for Segments {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What a rank ends with, or hands to MPI_Abort, is the job's exit status, and nothing of the session stays.
#[test]
fn exit_status() {
    each(|mpi| {
        for (how, status) in [("status", 3), ("abort", 7)] {
            let (turns, segments) = (Turns::new("64M", "1"), Segments::new());
            let job = turns.job(mpi, 3, &mpi.program("ends.c"), &[how, turns.directory()]);
            let running = segments.settle(job).start();
            let (agent, ranks) = turns.processes(3);
            running.finish().exited(status);
            until_gone(&ranks);
            until_gone(&[agent]);
            assert_eq!(segments.left(), [""; 0], "{how}");
        }
    });
}

/// A rank that is killed, whatever it and the others are at, takes the job with it; its launcher says what it says without
/// Ream, and nothing of the session stays.
#[test]
fn a_rank_is_killed() {
    each(|mpi| {
        for how in dealt(&["init", "computing", "blocked", "finalize"], 0, mpi) {
            let program = mpi.program("ends.c");
            let plain = {
                let (turns, segments) = (Turns::new("64M", "1"), Segments::new());
                segments.settle(mpi.job(4, None, &program, &[how, turns.directory()])).finish()
            };
            let (turns, segments) = (Turns::new("16M", "1"), Segments::new());
            let job = turns.job(mpi, 4, &program, &[how, turns.directory(), "12"]);
            let running = segments.settle(job).start();
            let (agent, ranks) = turns.processes(4);
            let outcome = running.finish();
            // Hydra names the signal, or that it lost a rank, whichever it hears of first: a plain job has either.
            let told = |code| if mpi == Mpi::Mpich && code == Some(255) { Some(libc::SIGKILL) } else { code };
            let (this, plain) = (told(outcome.status.code()), told(plain.status.code()));
            assert_eq!(this, plain, "{how}, this and plain: {}", outcome.describe());
            assert!(!outcome.status.success(), "{how}: {}", outcome.describe());
            until_gone(&ranks);
            until_gone(&[agent]);
            assert_eq!(segments.left(), [""; 0], "{how}");
        }
    });
}

/// Ranks that outgrow a full store end with a line that says so, and the job with their exit status.
#[test]
fn a_full_store() {
    each(|mpi| {
        let (turns, segments) = (Turns::new("16M", "1").with("--store-limit=12M"), Segments::new());
        let job = turns.job(mpi, 3, &mpi.program("ends.c"), &["calm", turns.directory(), "32"]);
        let running = segments.settle(job).start();
        let (agent, ranks) = turns.processes(3);
        let outcome = running.finish();
        outcome.says("is full");
        // Hydra names the signal by which it ended the others, where that came first.
        let status = outcome.status.code();
        assert!(status == Some(125) || (mpi == Mpi::Mpich && status == Some(9)), "{}", outcome.describe());
        until_gone(&ranks);
        until_gone(&[agent]);
        assert_eq!(segments.left(), [""; 0]);
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

/// Without an agent ranks go on, and page; they find out by themselves who has gone.
#[test]
fn the_agent_is_killed() {
    each(|mpi| {
        let turns = Turns::new("16M", "1");
        let program = mpi.program("ends.c");
        let running = turns.job(mpi, 4, &program, &["calm", turns.directory(), "12"]).start();
        let (agent, ranks) = turns.processes(4);
        // SAFETY: only sends a signal, to the agent of this test's own session.
        unsafe { libc::kill(agent, libc::SIGKILL) };
        running.finish().exited(0);
        assert!((0..4).all(|rank| turns.of_rank(rank).is_some_and(|text| text.ends_with("done\n"))));
        until_gone(&ranks);
    });
}

/// The launcher is ended in the middle of turns, by a signal it handles and by one that it cannot.
#[test]
fn the_launcher_is_ended() {
    for signal in [libc::SIGTERM, libc::SIGKILL] {
        each(|mpi| {
            let (turns, segments) = (Turns::new("64M", "1"), Segments::new());
            let job = turns.job(mpi, 4, &mpi.program("ends.c"), &["for-ever", turns.directory()]);
            let running = segments.settle(job).start();
            let (agent, ranks) = turns.processes(4);
            running.signal(signal);
            // Hydra says at times that all is well when it was told to end.
            let outcome = running.finish();
            assert!(mpi == Mpi::Mpich || !outcome.status.success(), "{}", outcome.describe());
            until_gone(&ranks);
            until_gone(&[agent]);
            // Open MPI's own stay behind when its launcher is killed, without Ream as well.
            let left = segments.left();
            let own = |name: &String| signal == libc::SIGKILL && name.starts_with("vader_segment.");
            assert!(left.iter().all(own), "{left:?}");
        });
    }
}
