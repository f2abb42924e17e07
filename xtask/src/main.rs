//! `cargo xtask check | layers | patterns | goldens [--bless] | symbols [--bless] | figures [--bless]`: what compilers and linters do not
//! check about the project itself; `cargo xtask blackbox [NAME...]`: the black-box tests.
#![forbid(unsafe_code)]

mod blackbox;
mod figures;
mod goldens;
mod layers;
mod patterns;
mod symbols;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// The findings of a check, one line each; none when all is well.
type Findings = Vec<String>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let root = root();
    let findings = match words.as_slice() {
        ["check"] => {
            let mut all = layers::check(&root);
            all.extend(patterns::check(&root));
            all.extend(goldens::check(&root, false));
            all.extend(symbols::check(&root, false));
            all.extend(figures::check(&root, false));
            all
        }
        ["layers"] => layers::check(&root),
        ["patterns"] => patterns::check(&root),
        ["goldens"] => goldens::check(&root, false),
        ["goldens", "--bless"] => goldens::check(&root, true),
        ["symbols"] => symbols::check(&root, false),
        ["figures"] => figures::check(&root, false),
        ["figures", "--bless"] => figures::check(&root, true),
        ["symbols", "--bless"] => symbols::check(&root, true),
        ["blackbox", names @ ..] => return blackbox::run(&root, names),
        _ => {
            eprintln!(
                "usage: cargo xtask check | layers | patterns | goldens [--bless] | symbols [--bless] | figures [--bless] \
                 | blackbox [NAME...]"
            );
            return ExitCode::from(2);
        }
    };
    for finding in &findings {
        eprintln!("{finding}");
    }
    match findings.len() {
        0 => {
            println!("xtask {}: all is well", arguments.join(" "));
            ExitCode::SUCCESS
        }
        number => {
            eprintln!("xtask {}: {number} findings", arguments.join(" "));
            ExitCode::FAILURE
        }
    }
}

/// The root of the project.
fn root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().unwrap_or(own).to_owned()
}

/// A cargo that reads this workspace.
fn cargo(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // What cargo tells us about ourselves would be news to build scripts, which would run again, and rebuild all.
    let ours = |name: &str| ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|begin| name.starts_with(begin));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(ours)) {
        command.env_remove(name);
    }
    command.current_dir(root);
    command
}

/// What a command prints, or what went wrong.
fn output(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    match output.status.success() {
        true => String::from_utf8(output.stdout).map_err(|error| format!("{command:?}: {error}")),
        false => Err(format!("{command:?}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr))),
    }
}
