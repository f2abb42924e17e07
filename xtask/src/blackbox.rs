//! Runs the black-box tests, two of their programs at a time: one of those that change the machine's settings or keep all its
//! processors busy, which therefore go one after another, beside one of the others, most of which wait for most of their time.

use crate::{cargo, output};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::time::Instant;

const PACKAGE: &str = "ream-tests";

/// Those that must not meet each other: benchmarks, jobs of MPI, servers that are lost, the pool of large pages and what
/// the kernel is set to (a benchmark sets transparent large pages to always for a while, and a static libc asks at its start).
const ALONE: [&str; 22] = [
    "bench_all",
    "bench_page",
    "bench_remote",
    "benchmarks",
    "code",
    "coverage",
    "foreseen",
    "languages",
    "lock",
    "machine",
    "mpi",
    "mpi_faults",
    "mpi_nodes",
    "mpi_programs",
    "noise",
    "pages",
    "pool",
    "prefault",
    "remote_faults",
    "remote_faults_programs",
    "shm",
    "statics",
];

/// Tests at once in a program of those, and of the others; more than there are processors, as they wait a lot.
const AT_ONCE: [&str; 2] = ["2", "3"];

/// Runs the programs of these names, or all, each with what it prints once it has ended. Fails when any test does.
pub fn run(root: &Path, names: &[&str]) -> ExitCode {
    let programs = match build(root) {
        Ok(programs) => programs,
        Err(why) => return refuse(&why),
    };
    if let Some(unknown) = ALONE.iter().chain(names).find(|name| !programs.contains_key(**name)) {
        return refuse(&format!("there is no test program {unknown:?}"));
    }
    let wanted = programs.iter().filter(|(name, _)| names.is_empty() || names.contains(&name.as_str()));
    let (alone, others): (Vec<_>, Vec<_>) = wanted.partition(|(name, _)| ALONE.contains(&name.as_str()));
    let bad = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for (lane, at_once) in [alone, others].into_iter().zip(AT_ONCE) {
            let bad = &bad;
            scope.spawn(move || {
                for (name, program) in lane {
                    let begun = Instant::now();
                    let printed = program.with_extension("txt");
                    let ended = test(root, program, &printed, at_once);
                    // One at a time: what a program prints stays together.
                    let mut bad = bad.lock().expect("nothing panics here");
                    let text = std::fs::read(&printed).unwrap_or_default();
                    println!("\nblackbox {name}: {} s\n{}", begun.elapsed().as_secs(), String::from_utf8_lossy(&text));
                    if let Err(why) = ended {
                        bad.push(format!("{name} ({why})"));
                    }
                }
            });
        }
    });
    let bad = bad.into_inner().expect("nothing panics here");
    if bad.is_empty() {
        println!("\nblackbox: all is well");
        return ExitCode::SUCCESS;
    }
    eprintln!("\nblackbox: not well: {}", bad.join(", "));
    ExitCode::FAILURE
}

fn refuse(why: &str) -> ExitCode {
    eprintln!("blackbox: {why}");
    ExitCode::from(2)
}

/// Builds the test programs and finds them.
fn build(root: &Path) -> Result<BTreeMap<String, PathBuf>, String> {
    let mut command = cargo(root);
    command.args(["test", "--package", PACKAGE, "--no-run", "--message-format", "json-render-diagnostics"]);
    let messages = output(command.stderr(Stdio::inherit()))?;
    let programs: BTreeMap<String, PathBuf> = messages.lines().filter_map(program).collect();
    match programs.is_empty() {
        true => Err("cargo names no test program".to_owned()),
        false => Ok(programs),
    }
}

/// The name and the path of the test program that a message of cargo's is about.
fn program(message: &str) -> Option<(String, PathBuf)> {
    let message: serde_json::Value = serde_json::from_str(message).ok()?;
    let tests = message["reason"] == "compiler-artifact" && message["profile"]["test"] == true;
    let path = message["executable"].as_str().filter(|_| tests)?;
    Some((message["target"]["name"].as_str()?.to_owned(), path.into()))
}

/// Runs a program as cargo does, in the package's directory. What it prints goes to a file: whoever held a pipe longer than
/// the program lives would be waited for.
fn test(root: &Path, program: &Path, printed: &Path, at_once: &str) -> Result<(), String> {
    let mut command = Command::new(program);
    command.current_dir(root.join("tests")).stdin(Stdio::null());
    if std::env::var_os("RUST_TEST_THREADS").is_none() {
        command.env("RUST_TEST_THREADS", at_once);
    }
    let text = |error: std::io::Error| format!("{}: {error}", printed.display());
    let file = std::fs::File::create(printed).map_err(text)?;
    command.stderr(file.try_clone().map_err(text)?).stdout(file);
    let status = command.status().map_err(|error| error.to_string())?;
    if status.success() { Ok(()) } else { Err(status.to_string()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_tests_are_found_among_cargos_messages() {
        let message = |reason: &str, test: bool, executable: &str| {
            format!(
                "{{\"reason\":\"{reason}\",\"target\":{{\"name\":\"abi\"}},\"profile\":{{\"test\":{test}}},\
                 \"executable\":{executable}}}"
            )
        };
        let found = program(&message("compiler-artifact", true, "\"/target/abi-1\""));
        assert_eq!(found, Some(("abi".to_owned(), PathBuf::from("/target/abi-1"))));
        assert_eq!(program(&message("compiler-artifact", false, "\"/target/abi-1\"")), None, "an ordinary program");
        assert_eq!(program(&message("compiler-artifact", true, "null")), None, "a library");
        assert_eq!(program(&message("build-script-executed", true, "\"/target/abi-1\"")), None);
        assert_eq!(program("no JSON"), None);
    }
}
