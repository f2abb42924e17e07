//! The Python package as its wheel brings it: every function, arrays, contexts, processes, a job of four times the budget;
//! in Debian's Python, and in the oldest and newest others that there are. With a session and in an ordinary Python.

use ream_tests::{NOBODY, Outcome, Run, Scratch, compiled, is_root, program, ran, ream_binary, skip, tool};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The package, installed in the build directory, and the Python that has numpy.
struct Package {
    python: PathBuf,
    site: PathBuf,
    /// An installation of Ream, which is not the wheel's.
    prefix: PathBuf,
}

impl Package {
    /// The one that all tests share; `None`, loudly, where it cannot be built.
    fn shared() -> Option<&'static Package> {
        static SHARED: OnceLock<Option<Package>> = OnceLock::new();
        SHARED.get_or_init(Package::install).as_ref()
    }

    fn install() -> Option<Package> {
        let debian = PathBuf::from("/usr/bin/python3");
        let python = Some(debian).filter(|path| path.is_file()).or_else(|| tool("python3"));
        let Some(python) = python else {
            skip("python", "no python3");
            return None;
        };
        let has = |module: &str| succeeds(Command::new(&python).args(["-c", &format!("import {module}")]));
        if let Some(module) = ["pip", "setuptools", "wheel", "numpy"].into_iter().find(|module| !has(module)) {
            skip("python", &format!("{} has no {module}", python.display()));
            return None;
        }
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the project");
        let release = ream_binary();
        let release = release.parent().expect("where the command lies");
        let target = release.parent().expect("the build directory");
        let directory = target.join("ream-tests/python");
        let _ = std::fs::remove_dir_all(&directory);
        let (wheels, site, prefix) = (directory.join("wheel"), directory.join("site"), directory.join("prefix"));
        let mut build = Command::new(root.join("python/build.sh"));
        ran(build.arg(&wheels).env("REAM_RELEASE", release).env("PYTHON", &python));
        let wheel = std::fs::read_dir(&wheels).expect("wheels").next().expect("a wheel").expect("a wheel").path();
        let mut install = Command::new(&python);
        install.args(["-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-index", "--no-deps"]);
        ran(install.arg("--no-cache-dir").arg("--target").arg(&site).arg(wheel));
        let mut make = Command::new("make");
        make.current_dir(root).args(["--silent", "install"]).arg(format!("PREFIX={}", prefix.display()));
        ran(make.env("CARGO_TARGET_DIR", target).env_remove("DESTDIR"));
        Some(Package { python, site, prefix })
    }

    /// A script of the tests, in this Python.
    fn run(&self, python: &Path, script: &str, arguments: &[&str]) -> Run {
        let script = program(&format!("python/{script}.py"));
        self.python(python).arg(script).args(arguments)
    }

    fn python(&self, python: &Path) -> Run {
        let run = Run::of(python).env("PYTHONPATH", &self.site).env("PYTHONDONTWRITEBYTECODE", "1");
        run.env("REAM_HOME", "").env("PYTHONUTF8", "1").unmeasured()
    }
}

fn succeeds(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

/// Fails unless a script came to its end and complained of nothing.
fn is_well(outcome: &Outcome) {
    outcome.exited(0);
    assert!(outcome.out().ends_with("all is well\n") && outcome.err().is_empty(), "{}", outcome.describe());
}

/// A script in a session of so many MiB, and in an ordinary Python.
fn both(script: &str, memory: u64) {
    let Some(package) = Package::shared() else { return };
    is_well(&package.run(&package.python, script, &["session"]).memory(memory).finish());
    is_well(&package.run(&package.python, script, &["alone"]).finish());
}

#[test]
fn every_function() {
    both("api", 64);
}

#[test]
fn arrays_live_as_long_as_they_are_used() {
    both("arrays", 128);
}

#[test]
fn contexts_restore_what_was() {
    both("contexts", 128);
}

#[test]
fn multiprocessing_in_three_ways() {
    both("processes", 128);
}

#[test]
fn four_times_the_budget_in_an_ordinary_python() {
    let Some(package) = Package::shared() else { return };
    let scratch = Scratch::new("python");
    let store = scratch.directory("store");
    let store = store.to_str().expect("a path in UTF-8");
    is_well(&package.run(&package.python, "budget", &["128", store]).finish());
    // As for those who have no whole userfaultfd.
    let run = package.run(&package.python, "budget", &["64", store]);
    is_well(&run.env("REAM_ENGINE", "usermode").finish());
}

/// As for those who have no whole userfaultfd, with a library that ends its threads before each fork: what has been registered
/// with libc before ours comes after it, when no pager runs.
#[test]
fn forks_with_a_library_that_ends_its_threads() {
    let Some(package) = Package::shared() else { return };
    let Some(library) = compiled("c/stops_threads.c", &["-shared", "-fPIC", "-pthread"]) else { return };
    let scratch = Scratch::new("python");
    let run = package.run(&package.python, "forks", &[library.to_str().expect("a path in UTF-8")]);
    is_well(&run.env("REAM_ENGINE", "usermode").within(&scratch.directory("work")).finish());
}

/// An ordinary user, who reads files into arrays that are paged out, and writes them.
#[test]
fn an_ordinary_user_has_a_budget() {
    let Some(package) = Package::shared() else { return };
    if !is_root() {
        return skip("an ordinary user's budget", "the tests do not run as root, so every test is one of these");
    }
    let place = Scratch::for_everybody("python");
    ran(Command::new("cp").arg("-R").arg(&package.site).arg(place.path()));
    ran(Command::new("chmod").args(["-R", "a+rX"]).arg(place.path()));
    let code = "import sys, numpy as np, ream\n\
                with ream.budget('64M', store='.'):\n\
                \x20   pieces = [np.arange(4 << 20, dtype='i8') + k for k in range(8)]\n\
                \x20   assert ream.status().paging and ream.status().engine == 'usermode', ream.status()\n\
                \x20   for k, piece in enumerate(pieces): piece.tofile(f'{k}.bin')\n\
                \x20   for k, piece in enumerate(pieces):\n\
                \x20       with open(f'{k}.bin', 'rb') as file: assert file.readinto(memoryview(piece).cast('B')) == 32 << 20\n\
                \x20   assert all((piece == np.arange(4 << 20) + k).all() for k, piece in enumerate(pieces))\n\
                print('all is well')\n";
    let run = package.python(&package.python).args(["-c", code]).user(NOBODY).within(&place.directory("files"));
    let run = run.env("PYTHONPATH", place.path().join("site")).env("REAM_ENGINE", "usermode");
    std::os::unix::fs::chown(place.path().join("files"), Some(NOBODY), Some(NOBODY))
        .expect("giving a directory to nobody");
    is_well(&run.finish());
}

#[test]
fn a_budget_that_cannot_be_had_changes_nothing() {
    let Some(package) = Package::shared() else { return };
    let code = "import errno, ream\n\
                with ream.large_pages(min='5M'):\n\
                \x20   try:\n\
                \x20       with ream.budget('64M', store='/proc/nothing'): raise AssertionError('entered')\n\
                \x20   except ream.Error as error: assert error.errno == errno.EINVAL, error\n\
                \x20   now = ream.status()\n\
                \x20   assert now.enabled and now.min == 5 << 20 and not now.session, now\n\
                assert not ream.status().enabled\n";
    let outcome = package.python(&package.python).args(["-c", code]).finish();
    let said = outcome.exited(0).err();
    assert!(said.starts_with("ream: ") && said.lines().count() == 1, "{}", outcome.describe());
}

#[test]
fn what_is_built_on_numpy() {
    let Some(package) = Package::shared() else { return };
    for memory in [256, 0] {
        let run = package.run(&package.python, "libraries", &[]);
        let outcome = if memory == 0 { run.finish() } else { run.memory(memory).finish() };
        outcome.exited(0);
        let out = outcome.out();
        for absent in out.lines().filter_map(|line| line.strip_prefix("absent ")) {
            skip(absent, "not installed for python3");
        }
    }
}

/// Pythons from 3.7 on, by version: those in PATH, and pyenv's.
fn pythons() -> BTreeMap<(u32, u32), PathBuf> {
    let mut found = BTreeMap::new();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".pyenv/versions"));
    let installed = home.and_then(|versions| std::fs::read_dir(versions).ok()).into_iter().flatten().flatten();
    places.extend(installed.map(|version| version.path().join("bin")));
    let minors = (7..30).map(|minor| format!("python3.{minor}"));
    let names: Vec<String> = std::iter::once("python3".to_owned()).chain(minors).collect();
    let candidates = places.iter().flat_map(|place| names.iter().map(move |name| place.join(name)));
    for python in candidates.filter(|path| path.is_file()) {
        let what = "import sys; print(sys.version_info[0], sys.version_info[1])";
        let Ok(output) = Command::new(&python).args(["-c", what]).output() else { continue };
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut numbers = text.split_whitespace().map(str::parse);
        if let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) {
            if (major, minor) >= (3, 7) {
                found.entry((major, minor)).or_insert(python);
            }
        }
    }
    found
}

#[test]
fn the_oldest_and_the_newest_python() {
    let Some(package) = Package::shared() else { return };
    let pythons = pythons();
    let ends = [pythons.first_key_value(), pythons.last_key_value()];
    for (_, python) in ends.into_iter().flatten() {
        is_well(&package.run(python, "api", &["session"]).memory(64).finish());
        is_well(&package.run(python, "api", &["alone"]).finish());
    }
}

#[test]
fn the_command_by_the_module() {
    let Some(package) = Package::shared() else { return };
    let module = |arguments: &[&str]| package.python(&package.python).args(["-m", "ream"]).args(arguments);
    let version = module(&["--version"]).finish();
    let ream = ran(Command::new(ream_binary()).arg("--version"));
    assert_eq!(version.out(), ream, "{}", version.describe());
    let said = package.python(&package.python).args(["-c", "import ream; print('ream', ream.__version__)"]).finish();
    assert_eq!(said.out(), ream, "{}", said.describe());
    let python = package.python.to_str().expect("a path in UTF-8");
    let code = "import ream, sys; sys.exit(7 if ream.status().session and ream.status().budget == 64 << 20 else 8)";
    module(&["run", "--memory", "64M", "--", python, "-c", code]).finish().exited(7);
    // The library and the command of an installation.
    let prefix = package.prefix.to_str().expect("a path in UTF-8");
    let code = "import ream, sys; sys.exit(0 if ream.status().min >= 0 and not ream.status().session else 8)";
    package.python(&package.python).env("REAM_HOME", prefix).args(["-c", code]).finish().exited(0);
    module(&["--version"]).env("REAM_HOME", prefix).finish().exited(0);
}

#[test]
fn without_ream_it_says_so() {
    let Some(package) = Package::shared() else { return };
    let nowhere =
        |arguments: &[&str]| package.python(&package.python).env("REAM_HOME", "/nowhere").args(arguments).finish();
    let outcome = nowhere(&["-m", "ream", "run", "true"]);
    let line = "ream: /nowhere/bin/ream: not there; REAM_HOME is to name the prefix of an installation\n";
    assert_eq!(outcome.exited(127).err(), line);
    let code = "import ream, errno\n\
                assert not ream.available()\n\
                for call in (ream.status, ream.regions, ream.enable, ream.report, ream.budget('1G').__enter__):\n\
                \x20   try: call()\n\
                \x20   except ream.Error as error: assert error.errno == errno.ENOENT, error\n\
                \x20   else: raise AssertionError(call)\n";
    nowhere(&["-c", code]).exited(0);
}

/// Memory is given back whatever the order of the end.
#[test]
fn arrays_outlive_the_interpreter() {
    let Some(package) = Package::shared() else { return };
    let code = "import sys, numpy, ream, atexit, builtins\n\
                with ream.arrays(), ream.large_pages():\n\
                \x20   builtins.kept = [numpy.ones(4 << 20, 'u1'), ream.full(1 << 20, 1, 'u1')]\n\
                builtins.kept.append(builtins.kept)\n\
                atexit.register(lambda: print(sum(int(array.sum()) for array in builtins.kept[:2]) >> 20))\n";
    for memory in [64, 0] {
        let run = package.python(&package.python).args(["-c", code]);
        let outcome = if memory == 0 { run.finish() } else { run.memory(memory).finish() };
        assert!(outcome.exited(0).out() == "5\n" && outcome.err().is_empty(), "{}", outcome.describe());
    }
    assert!(package.site.join("ream/py.typed").is_file());
}
