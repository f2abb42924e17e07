//! Ordinary users: copies of the command and of programs in a place that they can reach.

use crate::{Build, Outcome, Run, Scratch, build, is_root, make_runnable, ream_binary, ream_calls, ream_library, skip};
use std::fs;
use std::path::{Path, PathBuf};

/// An ordinary user's number, and his group's.
pub const NOBODY: u32 = 65534;

/// Copies of the command, its library and a program, where nobody can reach them.
pub struct Reachable {
    scratch: Scratch,
    ream: PathBuf,
}

impl Reachable {
    /// Makes them; `None`, loudly, where the tests do not run as root.
    ///
    /// # Panics
    /// When they cannot be made.
    pub fn new() -> Option<Reachable> {
        if !is_root() {
            // Then all other tests have run as an ordinary user already.
            skip("ordinary users", "the tests do not run as root, so every test is one of these");
            return None;
        }
        let scratch = Scratch::for_everybody("users");
        let ream = scratch.file("ream");
        fs::copy(ream_binary(), &ream).expect("copying ream");
        let library = scratch.file("libream.so");
        fs::copy(ream_library(), &library).expect("copying libream.so");
        let calls = scratch.file("libream_calls.so");
        fs::copy(ream_calls(), &calls).expect("copying libream_calls.so");
        let inside = scratch.file("libream_inside.so");
        fs::copy(ream_binary().with_file_name("libream_inside.so"), &inside).expect("copying libream_inside.so");
        [&ream, &library, &calls, &inside].into_iter().for_each(|path| make_runnable(path, 0o755));
        Some(Reachable { scratch, ream })
    }

    /// The copy of the command.
    pub fn ream(&self) -> &Path {
        &self.ream
    }

    /// A copy of this file beside the command, under its own name.
    ///
    /// # Panics
    /// When it cannot be copied.
    pub fn copy(&self, file: &Path) -> PathBuf {
        let copy = self.scratch.file(&file.file_name().expect("a file's name").to_string_lossy());
        fs::copy(file, &copy).expect("copying a file");
        make_runnable(&copy, 0o755);
        copy
    }

    /// The directory of all that.
    pub fn directory(&self) -> &Path {
        self.scratch.path()
    }

    /// A copy of a compiled program; `None`, loudly, where it cannot be compiled.
    ///
    /// # Panics
    /// When it cannot be copied.
    pub fn program(&self, source: &str) -> Option<PathBuf> {
        let built = match build(source, &[]) {
            Build::Ready(path) => path,
            Build::Missing(reason) => {
                skip(source, &reason);
                return None;
            }
        };
        let program = self.scratch.file("program");
        fs::copy(built, &program).expect("copying the program");
        make_runnable(&program, 0o755);
        Some(program)
    }

    /// Runs of a program as nobody, in a directory that nobody can reach.
    pub fn run(&self, source: &str) -> Option<impl Fn() -> Run + use<>> {
        let program = self.program(source)?;
        let (ream, directory) = (self.ream.clone(), self.scratch.path().to_owned());
        Some(move || Run::of(&program).ream(&ream).user(NOBODY).within(&directory))
    }

    /// Compares a program's runs, plain and under Ream. `None`, loudly, where it cannot be compiled.
    ///
    /// # Panics
    /// When they differ.
    pub fn compare(&self, source: &str, arguments: &[&str]) -> Option<Outcome> {
        let run = self.run(source)?;
        let plain = run().args(arguments).finish();
        plain.exited(0);
        let paged = run().args(arguments).memory(64).finish();
        paged.same_as(&plain);
        let summary = paged.summary();
        assert!(summary.number("bytes_in") > 0, "{}\n{}", summary.0, paged.describe());
        Some(paged)
    }
}
