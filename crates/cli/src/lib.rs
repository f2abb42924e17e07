//! The `ream` command as a library, so that the texts made from the table of options can be checked and installed.
#![deny(unsafe_code)]

mod agent;
mod arguments;
mod doctor;
pub mod document;
mod elf;
mod failure;
mod library;
mod machine;
mod os;
mod place;
mod program;
mod run;
mod settings;
mod status;

use failure::{Failure, OWN, nearest};
use settings::{Given, Settings};
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

/// Name of the variable that names the configuration file.
pub const FILE_VARIABLE: &str = "REAM_CONFIG";

/// Does what the command line says; returns the exit status.
pub fn main() -> i32 {
    let mut arguments = std::env::args_os();
    if arguments.next().is_some_and(|name| name == agent::NAME) {
        return agent::main(arguments);
    }
    os::occupy_standard_descriptors();
    match command(arguments) {
        Ok(status) => status,
        Err(failure) => {
            // Where standard error is closed there is nobody to tell.
            let _ = writeln!(std::io::stderr(), "{failure}");
            failure.status
        }
    }
}

fn command(arguments: impl IntoIterator<Item = OsString>) -> Result<i32, Failure> {
    let arguments = arguments::parse(arguments)?;
    if arguments.has("version")? {
        return print(&format!("ream {}\n", env!("CARGO_PKG_VERSION")));
    }
    let name = arguments.command.as_str();
    if arguments.has("help")? {
        return print(&document::help::short(name));
    }
    match name {
        "" => Err(Failure::new("no command given; see ream --help")),
        "run" => run::run(settle("run", arguments.flags)?, arguments.rest),
        "bench" => bench(arguments.rest),
        "doctor" => {
            no_more(&arguments.rest)?;
            let json = arguments.has("json")?;
            let (text, status) = doctor::report(&settle("doctor", arguments.flags)?, json)?;
            print(&text).map(|_| status)
        }
        "status" => {
            let (text, status) = status::report(&arguments.rest, arguments.has("all")?, arguments.has("json")?)?;
            print(&text).map(|_| status)
        }
        "help" => help(&arguments.rest),
        "man" => no_more(&arguments.rest).and_then(|()| print(&document::man::page())),
        "completions" => completions(&arguments.rest),
        // The table has no other.
        other => Err(Failure::new(format!("{other}: no such command; see ream --help"))),
    }
}

/// Settles the options of a command from the command line, the environment and the configuration file.
fn settle(command: &str, flags: Vec<Given>) -> Result<Settings, Failure> {
    let variable = |name: &str| std::env::var_os(name);
    Settings::settle(command, flags, &variable, configuration(&variable)?)
}

/// Reads the configuration file: the one that `$REAM_CONFIG` names, or `ream/config.toml` where the user's
/// configuration is, if there is one.
fn configuration(variable: &dyn Fn(&str) -> Option<OsString>) -> Result<Vec<Given>, Failure> {
    let named = variable(FILE_VARIABLE);
    let path = match &named {
        Some(path) if path.is_empty() => return Ok(Vec::new()),
        Some(path) => PathBuf::from(path),
        None => {
            let home = || Some(PathBuf::from(variable("HOME").filter(|home| !home.is_empty())?).join(".config"));
            let base = variable("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute()).or_else(home);
            match base {
                Some(base) => base.join("ream/config.toml"),
                None => return Ok(Vec::new()),
            }
        }
    };
    match std::fs::read_to_string(&path) {
        Ok(text) => settings::read_file(&path, &text),
        // Not every directory may be looked into, and what cannot be seen is not there, unless it was named.
        Err(_) if named.is_none() && !path.exists() => Ok(Vec::new()),
        Err(error) => Err(Failure::new(format!(
            "{}: {}; mend it, or set {FILE_VARIABLE}=",
            path.display(),
            failure::reason(&error)
        ))),
    }
}

/// Hands over to the benchmark, which has arguments of its own.
fn bench(rest: Vec<OsString>) -> Result<i32, Failure> {
    let text = |word: OsString| {
        word.into_string().map_err(|word| Failure::new(format!("bench: {}: not valid UTF-8", word.to_string_lossy())))
    };
    Ok(ream_bench::main(rest.into_iter().map(text).collect::<Result<_, _>>()?))
}

fn help(rest: &[OsString]) -> Result<i32, Failure> {
    let Some(word) = rest.first() else { return print(&document::help::short("")) };
    no_more(&rest[1..])?;
    let name = word.to_string_lossy();
    if ream_options::command(&name).is_none() {
        let names = || ream_options::COMMANDS.iter().map(|command| command.name);
        let meant = match nearest(&name, names()) {
            Some(meant) => format!("did you mean {meant}?"),
            None => format!("there are {}", names().collect::<Vec<_>>().join(", ")),
        };
        return Err(Failure::new(format!("help: {name}: no such command; {meant}")));
    }
    print(&document::help::long(&name))
}

fn completions(rest: &[OsString]) -> Result<i32, Failure> {
    let Some(shell) = rest.first() else {
        return Err(Failure::new("completions: no shell given; write bash, zsh or fish"));
    };
    no_more(&rest[1..])?;
    match document::completions::for_shell(&shell.to_string_lossy()) {
        Some(text) => print(&text),
        None => Err(Failure::new(format!("completions: {}: not bash, zsh or fish", shell.to_string_lossy()))),
    }
}

fn no_more(rest: &[OsString]) -> Result<(), Failure> {
    match rest.first() {
        None => Ok(()),
        Some(word) => Err(Failure::new(format!("{}: one argument too many", word.to_string_lossy()))),
    }
}

/// Prints to standard output. A reader that went away has read enough.
fn print(text: &str) -> Result<i32, Failure> {
    os::ignore_broken_pipes();
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(0),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(0),
        Err(error) => Err(Failure::new(format!("standard output: {}", failure::reason(&error))).with_status(OWN)),
    }
}
