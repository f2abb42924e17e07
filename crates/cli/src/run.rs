//! `ream run`: settles everything, starts the session and its agent, and becomes the program.

use crate::failure::{Failure, NOT_FOUND, reason};
use crate::machine::{CGROUP_MARGIN, Machine};
use crate::place::Place;
use crate::settings::{Settings, Summary};
use crate::{agent, doctor, library, os, place, program};
use ream_options::{ENGINES, IO, Memory, show_size};
use ream_stats::{Config, Identity, Session, Text};
use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The smallest budget that paging can work with, in bytes.
const LEAST_BUDGET: u64 = 8 << 20;
/// The engine for ordinary users.
const USER_MODE: &str = "usermode";

/// Runs the program that `rest` begins with. Returns only when that is not possible.
pub fn run(settings: Settings, rest: Vec<OsString>) -> Result<i32, Failure> {
    let Some(name) = rest.first() else {
        return Err(Failure::new("run: no program given; write ream run -- PROGRAM ARGUMENT..."));
    };
    let variable = |name: &str| std::env::var_os(name);
    let log = Log::open(&settings)?;
    let path = variable("PATH");
    let file = program::find(name, path.as_deref())?;
    let (user, group) = os::user_and_group();
    let obstacle = program::obstacle(&file, path.as_deref(), program::Caller { user, group });
    let (asked, io) = (word(ENGINES, settings.engine), word(IO, settings.io));
    let engine = match obstacle {
        Some(why) => Err(format!("{}: {why}", name.to_string_lossy())),
        None => doctor::engine::choose(asked, io).map_err(|why| format!("cannot page here: {why}")),
    };
    let engine = match engine {
        Ok(engine) => engine,
        // Asked for is meant; by default a program is not kept from running.
        Err(why) if settings.memory_given.is_some() || asked != "auto" || io != "auto" => {
            return Err(Failure::new(why));
        }
        Err(why) => {
            log.warn(&format!("{why}; running it without Ream"));
            return Err(become_program(&file, &rest, std::env::vars_os().collect()));
        }
    };
    let own = std::env::current_exe()
        .map_err(|error| Failure::new(format!("/proc/self/exe: {}; is /proc mounted?", reason(&error))))?;
    let library = library::find(variable(library::VARIABLE), &own)?;
    let machine = Machine::look().map_err(Failure::new)?;
    let budget = budget(&settings, &machine, &log)?;
    let place = place::choose(&settings, &variable, &mut |line| log.warn(&line))?;
    let mut config = configuration(&settings, budget, &place)?;
    let mut libraries = vec![library.clone()];
    if engine == USER_MODE {
        config.engine = ream_stats::Engine::UserMode as u32;
        libraries.push(library::calls(&library)?);
    }
    log.info(&format!(
        "budget {}, store {} up to {}, engine {asked}, io {io}, library {}",
        show_size(budget),
        place.directory.display(),
        show_size(place.limit),
        library.display(),
    ));
    let session = start_session(&config).map_err(|(what, error)| {
        Failure::new(format!("session: {what}: {}; ream doctor shows the limits", reason(&error)))
    })?;

    let libraries: Vec<&Path> = libraries.iter().map(PathBuf::as_path).collect();
    let preload = library::preload(&libraries, variable("LD_PRELOAD").as_deref());
    let ours = [(OsString::from("LD_PRELOAD"), preload), (OsString::from("REAM_SESSION"), session.into())];
    let mut environment: Vec<_> =
        std::env::vars_os().filter(|(name, _)| ours.iter().all(|(own, _)| own != name)).collect();
    environment.extend(ours);
    Err(become_program(&file, &rest, environment))
}

/// The word at a place of a list.
fn word(words: &[&'static str], place: u32) -> &'static str {
    words.get(place as usize).copied().unwrap_or("auto")
}

/// Becomes the program, or says why not.
fn become_program(file: &Path, arguments: &[OsString], environment: Vec<(OsString, OsString)>) -> Failure {
    let error = os::execute(file, arguments, &environment);
    let name = arguments.first().map_or(OsStr::new(""), OsString::as_os_str);
    match error.kind() {
        // The file is there, so what is missing is what should run it.
        std::io::ErrorKind::NotFound if file.exists() => Failure::new(format!(
            "{}: cannot be executed: its interpreter or dynamic linker does not exist; see its first line, or file(1)",
            name.to_string_lossy()
        ))
        .with_status(NOT_FOUND),
        _ => program::refusal(name, &error),
    }
}

/// The budget in bytes.
fn budget(settings: &Settings, machine: &Machine, log: &Log) -> Result<u64, Failure> {
    let asked = match settings.memory {
        Memory::Auto => machine.automatic(),
        memory => memory.of(machine.most()).unwrap_or(0),
    };
    let refuse = |why: String| {
        let given = settings.memory_given.as_ref();
        let option = given.map_or_else(|| "--memory".into(), |given| given.to_string());
        let text = given.and_then(|given| given.text.as_ref()).map(|text| text.to_string_lossy().into_owned());
        Err(Failure::new(format!("{option}: \"{}\": {why}", text.unwrap_or_else(|| "auto".into()))))
    };
    if let (Memory::Bytes(bytes), true) = (settings.memory, asked > machine.total) {
        let (bytes, total) = (show_size(bytes), show_size(machine.total));
        return refuse(format!("{bytes} is more than this machine's {total} of RAM; give less, or a percentage"));
    }
    let cap = machine.cap().unwrap_or(u64::MAX);
    let budget = asked.min(cap);
    if budget < LEAST_BUDGET {
        let why = format!(
            "{} is too little to work with; at least {} are needed",
            show_size(budget),
            show_size(LEAST_BUDGET)
        );
        return refuse(match &machine.cgroup {
            Some(limit) if cap <= asked => format!(
                "the cgroup allows {} ({}), less {} for all else: {why}",
                show_size(limit.bytes),
                limit.file.display(),
                show_size(CGROUP_MARGIN)
            ),
            _ => why,
        });
    }
    if let (Some(limit), Memory::Bytes(_), true) = (&machine.cgroup, settings.memory, budget < asked) {
        log.warn(&format!(
            "--memory: {} is more than the cgroup allows ({} in {}, less {} for all else); using {}",
            show_size(asked),
            show_size(limit.bytes),
            limit.file.display(),
            show_size(CGROUP_MARGIN),
            show_size(budget)
        ));
    }
    Ok(budget)
}

/// The settings as the session keeps them.
fn configuration(settings: &Settings, budget: u64, place: &Place) -> Result<Config, Failure> {
    let text = |option: &str, path: &Path| {
        Text::new(path.as_os_str().as_bytes()).ok_or_else(|| {
            Failure::new(format!("{option}: {}: longer than 1023 bytes; name a shorter path", path.display()))
        })
    };
    let mut config = Config::new();
    config.budget_bytes = budget;
    config.threshold_bytes = settings.threshold;
    config.store_limit_bytes = place.limit;
    config.store_directory = text("--store", &place.directory)?;
    config.engine = settings.engine;
    config.io = settings.io;
    config.fetch = settings.fetch;
    config.pages = settings.pages;
    config.exec_inherit = settings.exec_inherit.into();
    config.log_level = settings.log_level;
    config.shards = settings.shards;
    if let Some(path) = &settings.log_file {
        config.log_path = text("--log", path)?;
    }
    match &settings.summary {
        Summary::Off => config.summary = ream_stats::Summary::Off as u32,
        Summary::Print => config.summary = ream_stats::Summary::Text as u32,
        Summary::File(path) => {
            let new = !path.exists();
            drop(appendable("--summary", path)?);
            if new {
                // Only tried: until there is a summary nobody should find an empty one.
                let _ = std::fs::remove_file(path);
            }
            config.summary = ream_stats::Summary::Json as u32;
            config.summary_path = text("--summary", path)?;
        }
    }
    if let Some(processors) = &settings.pager_cpus {
        config.pager_cpus.copy_from_slice(processors.words());
    }
    Ok(config)
}

/// Opens a file that will be written to later, so that a mistake shows before the program has run for days.
fn appendable(option: &str, path: &Path) -> Result<std::fs::File, Failure> {
    OpenOptions::new().append(true).create(true).open(path).map_err(|error| {
        Failure::new(format!("{option}: {}: {}; name a file that can be written", path.display(), reason(&error)))
    })
}

/// Makes the shared memory of a session and starts its agent. Returns the value of `REAM_SESSION`.
fn start_session(config: &Config) -> Result<String, (&'static str, std::io::Error)> {
    let memory = os::shared_memory(c"ream-session", Session::BYTES).map_err(|error| ("shared memory", error))?;
    let mapping = os::map_shared(&memory, Session::BYTES).map_err(|error| ("shared memory", error))?;
    let nonce = os::random().map_err(|error| ("random numbers", error))?;
    let session = agent::create(mapping, nonce, config);
    let pid = std::process::id();
    session.set_root(Identity { pid, start: agent::start_of(pid).unwrap_or(0) });
    let agent = agent::start(&memory, nonce).map_err(|error| ("agent", error))?;
    Ok(format!("/proc/{agent}/fd/{}:{nonce:016x}", agent::MEMORY))
}

/// Where ream itself says what it chose, before it becomes the program.
struct Log {
    level: u32,
    file: Option<(PathBuf, std::fs::File)>,
}

impl Log {
    fn open(settings: &Settings) -> Result<Log, Failure> {
        let file = match &settings.log_file {
            Some(path) => Some((path.clone(), appendable("--log", path)?)),
            None => None,
        };
        Ok(Log { level: settings.log_level, file })
    }
    fn write(&self, level: u32, text: &str) {
        if level > self.level {
            return;
        }
        let line = format!("ream: {text}\n");
        // A message that cannot be written must not keep the program from running.
        let _ = match &self.file {
            Some((_, file)) => (&*file).write_all(line.as_bytes()),
            None => std::io::stderr().write_all(line.as_bytes()),
        };
    }
    fn warn(&self, text: &str) {
        self.write(1, text);
    }
    fn info(&self, text: &str) {
        self.write(2, text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::CgroupLimit;
    use crate::settings::{Given, Source};
    use ream_options::find;

    fn outcome(memory: Option<&str>, cgroup: Option<u64>) -> Result<u64, String> {
        let given = |text: &str| {
            vec![Given { spec: find("run", "memory").unwrap(), source: Source::Flag, text: Some(text.into()) }]
        };
        let flags = memory.map(given).unwrap_or_default();
        let settings = Settings::settle("run", flags, &|_| None, Vec::new()).unwrap();
        let cgroup = cgroup.map(|bytes| CgroupLimit { bytes, file: "/g".into() });
        let machine = Machine { total: 16 << 30, available: 10 << 30, swap_total: 0, cgroup };
        budget(&settings, &machine, &Log { level: 0, file: None }).map_err(|failure| failure.text)
    }

    #[test]
    fn budgets() {
        assert_eq!(outcome(None, None), Ok(9 << 30));
        assert_eq!(outcome(None, Some(2 << 30)), Ok((2u64 << 30) * 9 / 10));
        assert_eq!(outcome(Some("1G"), None), Ok(1 << 30));
        assert_eq!(outcome(Some("50%"), None), Ok(8 << 30));
        assert_eq!(outcome(Some("50%"), Some(2 << 30)), Ok(1 << 30));
        // The margin counts, whatever was asked for.
        assert_eq!(outcome(Some("100%"), Some(2 << 30)), Ok((2 << 30) - (64 << 20)));
        assert_eq!(outcome(Some("4G"), Some(2 << 30)), Ok((2 << 30) - (64 << 20)));
        assert_eq!(outcome(None, Some(512 << 20)), Ok((512 << 20) - (64 << 20)));
    }

    #[test]
    fn impossible_budgets() {
        let text = outcome(Some("17G"), None).unwrap_err();
        assert_eq!(
            text,
            "--memory: \"17G\": 17 GiB is more than this machine's 16 GiB of RAM; give less, or a percentage"
        );
        let text = outcome(Some("1M"), None).unwrap_err();
        assert_eq!(text, "--memory: \"1M\": 1 MiB is too little to work with; at least 8 MiB are needed");
        let text = outcome(None, Some(65 << 20)).unwrap_err();
        assert!(
            text.starts_with("--memory: \"auto\": the cgroup allows 65 MiB (/g), less 64 MiB for all else"),
            "{text}"
        );
    }
}
