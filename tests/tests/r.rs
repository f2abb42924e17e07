//! The R package `ream`, from an installation in a scratch prefix: RISM's functions and what goes beyond them, in an R that
//! was started by `ream run` and in an ordinary one; and R's own check of the package.

use ream_tests::{Outcome, Run, Scratch, program, ream_binary, skip, tool};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Ream and the package, installed in the build directory.
struct Installation {
    /// What the package was told to be Ream's prefix.
    home: PathBuf,
    /// R's library with the package in it.
    library: PathBuf,
    /// The package's source, a copy: R builds in it.
    source: PathBuf,
}

impl Installation {
    /// The one that all tests share; `None`, loudly, without R.
    fn shared() -> Option<&'static Installation> {
        static SHARED: OnceLock<Option<Installation>> = OnceLock::new();
        SHARED.get_or_init(Installation::make).as_ref()
    }

    fn make() -> Option<Installation> {
        let Some(r) = tool("R") else {
            skip("the R package", "no R");
            return None;
        };
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the project");
        let release = ream_binary();
        let target = release.ancestors().nth(2).expect("the build directory");
        let place = target.join("ream-tests/r");
        let _ = std::fs::remove_dir_all(&place);
        // As packagers do it: built for one prefix, found in another.
        let mut make = Command::new("make");
        make.current_dir(root).args(["--silent", "install", "PREFIX=/opt/ream"]);
        ran(make.arg(format!("DESTDIR={}", place.display())).env("CARGO_TARGET_DIR", target));
        let (home, library, source) = (place.join("opt/ream"), place.join("library"), place.join("ream"));
        std::fs::create_dir(&library).expect("a library");
        let archive = home.join(format!("share/ream/ream_{}.tar.gz", env!("CARGO_PKG_VERSION")));
        ran(Command::new("tar").arg("-xzf").arg(&archive).arg("-C").arg(&place));
        let mut install = Command::new(&r);
        install.args(["CMD", "INSTALL", "-l"]).arg(&library).arg(&archive);
        let text = ran(plain(&mut install).env("PKG_CONFIG_PATH", home.join("lib/pkgconfig")));
        assert!(!text.contains("warning:"), "the glue was compiled with warnings\n{text}");
        Some(Installation { home, library, source })
    }

    /// Whether the library is there that an ordinary R loads.
    fn has_inside(&self) -> bool {
        self.home.join("lib/ream/libream_inside.so").is_file()
    }

    /// A script of the tests, in a session of `memory` MiB, or without one when that is 0.
    fn script(&self, name: &str, memory: u64) -> Outcome {
        self.script_on("auto", name, memory)
    }

    /// The same, on an engine.
    fn script_on(&self, engine: &str, name: &str, memory: u64) -> Outcome {
        let scratch = Scratch::new("r");
        let kind = if memory == 0 { "alone" } else { "session" };
        let run =
            Run::of(tool("Rscript").expect("it comes with R")).arg("--vanilla").arg(program(&format!("r/{name}.R")));
        let run = run.arg(kind).arg(scratch.path()).within(scratch.path()).unmeasured().deadline(400);
        let run = run
            .env("R_LIBS", &self.library)
            .env("REAM_TEST_SCRIPTS", program("r"))
            .env("REAM_HOME", "")
            .env("REAM_ENGINE", engine);
        if memory == 0 { run.finish() } else { run.ream(&self.home.join("bin/ream")).memory(memory).finish() }
    }
}

/// Without what the environment of the tests may say about R and Ream.
fn plain(command: &mut Command) -> &mut Command {
    command.env_remove("REAM_HOME").env_remove("R_LIBS").env_remove("DESTDIR")
}

/// What a command prints that must succeed.
fn ran(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}\n{text}");
    text
}

/// A script of the tests, in a session of so many MiB.
fn in_session(name: &str, memory: u64) -> Option<Outcome> {
    let outcome = Installation::shared()?.script(name, memory);
    outcome.exited(0);
    Some(outcome)
}

/// A script of the tests, in an ordinary R.
fn alone(name: &str) -> Option<Outcome> {
    let installation = Installation::shared()?;
    if !installation.has_inside() {
        skip(&format!("r/{name}.R in an ordinary R"), "this build has no libream_inside.so");
        return None;
    }
    let outcome = installation.script(name, 0);
    outcome.exited(0);
    Some(outcome)
}

#[test]
fn the_switch_and_the_list_mean_what_they_meant() {
    in_session("ism", 256);
    alone("ism");
}

#[test]
fn the_assignment_restores_the_switch() {
    in_session("assign", 256);
    alone("assign");
}

#[test]
fn the_assignments_of_other_packages_go_on() {
    for outcome in [in_session("others", 256), alone("others")].into_iter().flatten() {
        if let Some(missing) = outcome.out().lines().find_map(|line| line.strip_prefix("missing: ")) {
            skip("`:=` beside other packages", &format!("no R package {missing}"));
        }
    }
}

#[test]
fn everything_that_r_does_goes_on() {
    in_session("everything", 768);
    alone("everything");
}

#[test]
fn a_thousand_toggles_leave_nothing() {
    in_session("toggles", 768);
    alone("toggles");
}

#[test]
fn variables_are_found_and_nothing_is_evaluated() {
    in_session("owners", 512);
    alone("owners");
}

#[test]
fn the_glue_is_clean_under_valgrind() {
    let Some(installation) = Installation::shared() else { return };
    if tool("valgrind").is_none() || !installation.has_inside() {
        return skip("the R package's glue under valgrind", "no valgrind, or no libream_inside.so in this build");
    }
    let scratch = Scratch::new("valgrind");
    let log = scratch.file("log");
    let checker = format!("valgrind -q --leak-check=full --show-leak-kinds=definite --log-file={}", log.display());
    let run = Run::of(tool("R").expect("it is there")).arg("-d").arg(checker).args(["--vanilla", "--no-echo", "-f"]);
    let run = run.arg(program("r/clean.R")).args(["--args", "alone"]).arg(scratch.path()).deadline(300);
    let run = run.env("R_LIBS", &installation.library).env("REAM_TEST_SCRIPTS", program("r")).env("REAM_HOME", "");
    run.unmeasured().finish().exited(0);
    let said = std::fs::read_to_string(&log).expect("valgrind's log");
    // R has complaints of its own in some versions.
    let ours = |line: &&str| ["ream.c:", "reach.c:", "owners.c:", "libream"].iter().any(|name| line.contains(name));
    assert!(said.lines().find(ours).is_none(), "{said}");
}

#[test]
fn without_the_library_it_says_so() {
    let Some(installation) = Installation::shared() else { return };
    let run = Run::of(tool("Rscript").expect("it comes with R")).arg("--vanilla").arg(program("r/absent.R"));
    let run = run.env("R_LIBS", &installation.library).env("REAM_HOME", "/nowhere").unmeasured();
    run.finish().exited(0);
}

#[test]
fn configure_finds_it_or_says_how_to_install_it() {
    let Some(installation) = Installation::shared() else { return };
    let scratch = Scratch::new("configure");
    let source = scratch.file("ream");
    ran(Command::new("cp").arg("-r").arg(&installation.source).arg(&source));
    let configure = |variable: &str, value: &OsStr| {
        let _ = std::fs::remove_file(source.join("src/Makevars"));
        let mut command = Command::new("./configure");
        plain(command.current_dir(&source)).env_remove("PKG_CONFIG_PATH").env(variable, value);
        let output = command.output().expect("the script runs");
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let found = configure("REAM_HOME", installation.home.as_os_str());
    assert!(found.0, "by REAM_HOME: {}", found.1);
    let makevars = std::fs::read_to_string(source.join("src/Makevars")).expect("it was made");
    assert!(makevars.contains(&format!("{}/lib/ream\\\"", installation.home.display())), "{makevars}");
    if tool("pkg-config").is_some() {
        let found = configure("PKG_CONFIG_PATH", installation.home.join("lib/pkgconfig").as_os_str());
        assert!(found.0, "by pkg-config: {}", found.1);
    }
    let (found, said) = configure("REAM_HOME", OsStr::new("/nowhere"));
    assert!(!found && said.lines().count() == 1 && said.contains("make install"), "{said}");
    assert!(!source.join("src/Makevars").exists(), "a makefile is left of a failed configure");
}

#[test]
fn r_checks_it_without_complaint() {
    let Some(installation) = Installation::shared() else { return };
    let scratch = Scratch::new("r-check");
    // The vignette and the examples need Ream, by whichever way there is.
    let r = |arguments: &[&str]| {
        let run = Run::of(tool("R").expect("it is there")).arg("CMD").args(arguments).within(scratch.path());
        let run = run.env("REAM_HOME", &installation.home).env("_R_CHECK_FORCE_SUGGESTS_", "false").unmeasured();
        let run = run.env("_R_CHECK_CRAN_INCOMING_", "false").deadline(500);
        let run =
            if installation.has_inside() { run } else { run.ream(&installation.home.join("bin/ream")).memory(1024) };
        let outcome = run.finish();
        outcome.exited(0);
        outcome.out()
    };
    r(&["build", installation.source.to_str().expect("a path")]);
    let said = r(&["check", "--no-manual", "ream_0.1.0.tar.gz"]);
    let bad = |line: &&str| ["ERROR", "WARNING", "NOTE"].iter().any(|word| line.ends_with(word));
    let found: Vec<&str> = said.lines().filter(bad).collect();
    assert!(found.is_empty() && said.contains("Status: OK"), "{found:?}\n{said}");
}

#[test]
fn an_ordinary_r_outgrows_its_budget() {
    let Some(installation) = Installation::shared() else { return };
    if !installation.has_inside() {
        return skip("r/outgrow.R", "this build has no libream_inside.so");
    }
    installation.script("outgrow", 0).exited(0);
    // As for those who have no whole userfaultfd.
    installation.script_on("usermode", "outgrow", 0).exited(0);
}
