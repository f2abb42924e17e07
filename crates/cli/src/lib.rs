//! The `ream` command as a library, so that the texts made from the table of options can be checked and installed.
#![deny(unsafe_code)]

mod add_store;
mod agent;
mod arguments;
mod budget;
mod child;
mod code;
mod compare;
mod doctor;
pub mod document;
mod elf;
mod failure;
mod inject;
mod job;
mod keeper;
mod library;
mod machine;
mod mark;
mod mpi;
mod os;
mod outside;
mod pages;
mod place;
mod program;
mod programs;
mod remote;
mod run;
mod secure;
mod serve;
mod session;
mod settings;
mod setup;
mod shared;
mod started;
mod status;
mod tree;

use failure::{Failure, OWN, nearest};
use settings::file::Configuration;
use settings::{Given, Settings};
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

/// Name of the variable that names the configuration file.
pub const FILE_VARIABLE: &str = "REAM_CONFIG";

/// Does what the command line says; returns the exit status.
pub fn main() -> i32 {
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_default();
    if name == agent::NAME {
        return agent::main(arguments.next().as_deref());
    }
    if name == compare::SWEEPER {
        return compare::sweep(arguments);
    }
    os::occupy_standard_descriptors();
    let outcome = match std::path::Path::new(&name).file_name() {
        // The kernel starts it so, with the program's path and then the program's own arguments.
        Some(name) if name == mark::binfmt::HANDLER => {
            let path = PathBuf::from(arguments.next().unwrap_or_default());
            let program = path.clone().into_os_string();
            run::run_marked(&|mark| settle_for(Some(&program), Vec::new(), mark), &path, arguments.collect())
        }
        Some(name) if name == session::NAME => session::main(arguments),
        Some(name) if name == started::NAME => started::main(arguments),
        _ => command(arguments),
    };
    match outcome {
        Ok(status) => status,
        Err(failure) => {
            os::say(&failure.to_string());
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
        "run" => {
            let program = arguments.rest.first();
            run::run(&|mark| settle_for(program, arguments.flags.clone(), mark), arguments.rest.clone())
        }
        "compare" => compare::compare(&arguments),
        "mark" => mark::mark(arguments.flags, &arguments.rest).and_then(|(text, status)| print(&text).map(|_| status)),
        "unmark" => mark::unmark(&arguments.rest).and_then(|(text, status)| print(&text).map(|_| status)),
        "bench" => bench(arguments.rest),
        "noise" => bench(std::iter::once("noise".into()).chain(arguments.rest).collect()),
        "doctor" => {
            let json = arguments.has("json")?;
            let settings = settle("doctor", arguments.flags)?;
            let (text, status) = match arguments.rest.as_slice() {
                [] => doctor::report(&settings, json)?,
                program => doctor::report_program(&settings, program, json)?,
            };
            print(&text).map(|_| status)
        }
        "setup" => no_more(&arguments.rest).and_then(|()| setup::main(&arguments)),
        "serve" => no_more(&arguments.rest).and_then(|()| serve::serve(arguments.flags)),
        "keys" => serve::keys(&arguments.rest).and_then(|text| print(&text)),
        "status" if arguments.flags.iter().any(|given| given.spec.name == "server") => {
            no_more(&arguments.rest)?;
            let json = arguments.has("json")?;
            print(&remote::status(arguments.flags, json)?)
        }
        "status" => {
            let (text, status) = status::report(&arguments.rest, arguments.has("all")?, arguments.has("json")?)?;
            print(&text).map(|_| status)
        }
        "add-store" => add_store::add(&arguments.rest).and_then(|text| print(&text)),
        "help" => help(&arguments.rest),
        "man" => no_more(&arguments.rest).and_then(|()| print(&document::man::page())),
        "completions" => completions(&arguments.rest),
        // The table has no other.
        other => Err(Failure::new(format!("{other}: no such command; see ream --help"))),
    }
}

fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

/// Settles the options of a command from the command line, the environment and the configuration file.
fn settle(command: &str, flags: Vec<Given>) -> Result<Settings, Failure> {
    Settings::settle(command, flags, &variable, vec![configuration()?.general])
}

/// Settles those of a run of this program: its own settings count before those for every program, and of its own those
/// that the user wrote before those that were saved, and both before those of its mark.
fn settle_for(program: Option<&OsString>, flags: Vec<Given>, mark: Vec<Given>) -> Result<Settings, Failure> {
    settle_at(programs_file(), program, flags, mark)
}

/// The same with the settings of programs in this file; with `None` no program has settings of its own.
fn settle_at(
    place: Option<PathBuf>,
    program: Option<&OsString>,
    flags: Vec<Given>,
    mark: Vec<Given>,
) -> Result<Settings, Failure> {
    let configuration = configuration()?;
    let mut files = Vec::new();
    if let Some(place) = place {
        let names = programs::names(program, variable("PATH").as_deref());
        files.extend([configuration.of(&names), programs::read(&place)?.of(&names)]);
    }
    files.extend([mark, configuration.general]);
    Settings::settle("run", flags, &variable, files)
}

/// Where settings of programs lie; `None` when they are not to count.
fn programs_file() -> Option<PathBuf> {
    programs::place(variable(programs::VARIABLE), configuration_file().as_deref())
}

/// Where the configuration file would be: the one that `$REAM_CONFIG` names, or `ream/config.toml` where the user's
/// configuration is.
fn configuration_file() -> Option<PathBuf> {
    if let Some(path) = variable(FILE_VARIABLE) {
        return Some(PathBuf::from(path)).filter(|path| !path.as_os_str().is_empty());
    }
    own_directory().map(|directory| directory.join("config.toml"))
}

/// Where the user's own files for Ream are.
fn own_directory() -> Option<PathBuf> {
    let home = || Some(PathBuf::from(variable("HOME").filter(|home| !home.is_empty())?).join(".config"));
    let base = variable("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute()).or_else(home);
    base.map(|base| base.join("ream"))
}

/// Reads the configuration file, if there is one.
fn configuration() -> Result<Configuration, Failure> {
    let Some(path) = configuration_file() else { return Ok(Configuration::default()) };
    match std::fs::read_to_string(&path) {
        Ok(text) => settings::file::read(&path, &text),
        // Not every directory may be looked into, and what cannot be seen is not there, unless it was named.
        Err(_) if variable(FILE_VARIABLE).is_none() && !path.exists() => Ok(Configuration::default()),
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
    let words = rest.into_iter().map(text).collect::<Result<_, _>>()?;
    Ok(ream_bench::main(words, status::tlb::entries()))
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
    written(out.write_all(text.as_bytes()).and_then(|()| out.flush())).map(|()| 0)
}

/// What became of a write to standard output.
fn written(outcome: std::io::Result<()>) -> Result<(), Failure> {
    match outcome {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::new(format!("standard output: {}", failure::reason(&error))).with_status(OWN))
        }
        _ => Ok(()),
    }
}
