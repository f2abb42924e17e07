//! `ream run`: settles everything, starts the session and its agent, and becomes the program.

use crate::failure::{Failure, NOT_FOUND, reason};
use crate::inject::{self, Plan};
use crate::machine::{CGROUP_MARGIN, Machine};
use crate::mark::{self, start};
use crate::pages::Offer;
use crate::place::Place;
use crate::program::Reach;
use crate::secure::{self, Circumstances};
use crate::settings::{Given, Settings, Source, Summary};
use crate::{agent, code, doctor, job, library, mpi, os, outside, place, program, remote};
use ream_options::pages::{HUGETLB, SHM, SMALL, STACK, TEXT};
use ream_options::{ENGINES, IO, Memory, PageChoice, show_size};
use ream_stats::{Config, Identity, Lock, Session, Text};
use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The smallest budget that paging can work with, in bytes.
const LEAST_BUDGET: u64 = 8 << 20;
/// The engine for ordinary users.
const USER_MODE: &str = "usermode";

/// How options are settled for a program with this mark.
type Settle<'a> = &'a dyn Fn(Vec<Given>) -> Result<Settings, Failure>;

/// Runs the program that `rest` begins with. Returns only when that is not possible.
pub fn run(settle: Settle, rest: Vec<OsString>) -> Result<i32, Failure> {
    let settings = settle(Vec::new())?;
    let Some(name) = rest.first() else {
        return Err(Failure::new("run: no program given; write ream run -- PROGRAM ARGUMENT..."));
    };
    let log = Log::open(&settings)?;
    let file = program::find(name, std::env::var_os("PATH").as_deref())?;
    match mark::given(&file) {
        Some(mark) => run_program(&settle(mark)?, &log, &file, &rest, Some(start::stand_in(&file)?)),
        None => run_program(&settings, &log, &file, &rest, None),
    }
}

/// Runs a marked program that the kernel gave us; `rest` begins with the name it was called by. Returns only when that is
/// not possible.
pub fn run_marked(settle: Settle, file: &Path, rest: Vec<OsString>) -> Result<i32, Failure> {
    if rest.is_empty() {
        return Err(Failure::new(format!("{}: for the kernel's use; see ream help mark", mark::binfmt::HANDLER)));
    }
    // A file that may be executed and not read has a mark all the same.
    let settings = settle(mark::given(file).unwrap_or_default())?;
    let log = Log::open(&settings)?;
    run_program(&settings, &log, file, &rest, Some(start::stand_in(file)?))
}

/// Runs the program at `file`, or what stands for it.
fn run_program(
    settings: &Settings,
    log: &Log,
    file: &Path,
    rest: &[OsString],
    stand: Option<start::Stand>,
) -> Result<i32, Failure> {
    for given in &settings.from_files {
        let text = given.text.as_ref().map(|text| text.to_string_lossy());
        log.info(&format!("{given}: {}", text.unwrap_or_default()));
    }
    let name = rest.first().map(|name| name.to_string_lossy()).unwrap_or_default();
    let (file, shown) = match &stand {
        Some(stand) => (stand.path.as_path(), Some(stand.name.clone())),
        None => (file, None),
    };
    if let Some(why) = stand.as_ref().and_then(|stand| stand.copied.as_ref()) {
        log.warn(&format!("{name}: {why}"));
    }
    let (user, group) = os::user_and_group();
    let path = std::env::var_os("PATH");
    let reach = program::reach(file, path.as_deref(), program::Caller { user, group });
    let (asked, io) = (word(ENGINES, settings.engine), word(IO, settings.io));
    // Asked for is meant; by default a program is not kept from running.
    let strict = settings.memory_given.is_some()
        || asked != "auto"
        || io != "auto"
        || settings.lock == Lock::Require as u32
        || settings.prefault.iter().any(|choice| choice.required);
    // A marked program that a program under Ream starts belongs to that one's session.
    let joins = stand.is_some() && std::env::var_os("REAM_SESSION").is_some();
    let mut pages = Config::new();
    Offer::of(Path::new("/")).settle(&settings.pages, &mut pages, &mut |line| log.warn(&line))?;
    let ready = with_code_ready(file, path.as_deref(), settings, log)?;
    let engine = match reach {
        Reach::Outside { why, program, inherits } => {
            // A copy takes the place of a program only, never of a script's interpreter.
            let program = if ready == *file { program } else { ready.clone() };
            let target = outside::Target { file: &ready, arguments: rest, why, program, inherits, shown };
            return Err(run_outside(settings, &pages, &target, joins, log));
        }
        Reach::Not(why) => Err(format!("{name}: {why}")),
        Reach::Inside if joins => Ok(asked),
        Reach::Inside => doctor::engine::choose(asked, io).map_err(|why| format!("cannot page here: {why}")),
    };
    let ours = match engine {
        Ok(_) if joins => Vec::new(),
        Ok(engine) => enter_session(settings, &pages, engine, &ready, log)?,
        Err(why) if strict => return Err(Failure::new(why)),
        Err(why) => {
            log.warn(&format!("{why}; running it without Ream"));
            Vec::new()
        }
    };
    if shown.is_some() {
        let plan = Plan { program: ready.clone(), name: shown, ..Plan::default() };
        if let Err(error) = inject::arrange(&plan) {
            log.info(&format!("{name}: ps shows another name for it: {}", reason(&error)));
        }
    }
    Err(become_program(&ready, rest, environment(ours)))
}

/// Makes the program's code ready for large pages; returns the file to execute.
fn with_code_ready(file: &Path, path: Option<&OsStr>, settings: &Settings, log: &Log) -> Result<PathBuf, Failure> {
    let wish = code::Wish::of(settings.pages[TEXT]);
    let outcome = code::prepare(file, path, wish)?;
    outcome.lines().for_each(|line| log.info(&line));
    if let Some(line) = outcome.short(wish) {
        log.warn(&line);
    }
    Ok(outcome.file)
}

/// Runs a program that no library can enter: large pages from outside, and a session for the programs that it starts.
fn run_outside(settings: &Settings, pages: &Config, target: &outside::Target, joins: bool, log: &Log) -> Failure {
    let name = target.arguments.first().map(|name| name.to_string_lossy()).unwrap_or_default();
    let (asked, io) = (word(ENGINES, settings.engine), word(IO, settings.io));
    match &settings.memory_given {
        Some(given) if !matches!(given.source, Source::File(_) | Source::Program(..)) => {
            return Failure::new(format!("{name}: {}, so {given} cannot hold for it; run it without", target.why));
        }
        Some(given) => log.warn(&format!("{name}: {}, so this does not hold for it: {given}", target.why)),
        None if asked != "auto" || io != "auto" => {
            return Failure::new(format!("{name}: {}, so it cannot be paged; leave --engine and --io out", target.why));
        }
        None if !target.inherits => log.warn(&format!("{name}: {}; it gets large pages, and no more", target.why)),
        None => {}
    }
    let mut ours = Vec::new();
    if target.inherits && settings.exec_inherit && !joins {
        let session = doctor::engine::choose(asked, io)
            .map_err(|why| Failure::new(format!("cannot page here: {why}")))
            .and_then(|engine| enter_session(settings, pages, engine, target.file, log));
        match session {
            Ok(session) => ours = session,
            Err(failure) => log.warn(&format!("{}; programs that {name} starts run without Ream", failure.text)),
        }
    }
    let own = &settings.pages[..=STACK];
    let required = own.iter().any(|choice| choice.required);
    if own.iter().any(|choice: &PageChoice| choice.size >= HUGETLB) {
        let why = format!("{name}: {}, so it cannot have pages of a pool", target.why);
        if required {
            return Failure::new(format!("{why}; ask for --pages=huge"));
        }
        log.warn(&format!("{why}; it gets transparent large pages"));
    }
    for (asked, strict, option) in [
        (settings.lock != 0, settings.lock == Lock::Require as u32, "--lock"),
        (
            settings.prefault.iter().any(|choice| choice.wanted),
            settings.prefault.iter().any(|choice| choice.required),
            "--prefault",
        ),
    ] {
        let why = format!("{name}: {}, so {option} does not hold for it", target.why);
        if strict {
            return Failure::new(format!("{why}; run it without"));
        }
        if asked {
            log.warn(&why);
        }
    }
    let shared = settings.pages[SHM];
    if shared.size != SMALL && !target.inherits {
        let why = format!("{name}: {}, so its shared memory keeps small pages", target.why);
        if shared.required {
            return Failure::new(why);
        }
        log.warn(&why);
    }
    let (tunables, obstacle) = outside::large_pages(target, pages);
    ours.extend(tunables);
    if let Some(why) = obstacle {
        let line = format!("{name}: {}, and {why}", target.why);
        if required {
            return Failure::new(line);
        }
        log.warn(&line);
    }
    become_program(target.file, target.arguments, environment(ours))
}

/// This process's environment with some variables set.
pub fn environment(ours: Vec<(OsString, OsString)>) -> Vec<(OsString, OsString)> {
    let mut all: Vec<_> = std::env::vars_os().filter(|(name, _)| ours.iter().all(|(own, _)| own != name)).collect();
    all.extend(ours);
    all
}

/// Starts a session for the program `file`, or joins that of the job whose rank this is. Returns the variables by which
/// programs enter it.
fn enter_session(
    settings: &Settings,
    pages: &Config,
    engine: &str,
    file: &Path,
    log: &Log,
) -> Result<Vec<(OsString, OsString)>, Failure> {
    let variable = |name: &str| std::env::var_os(name);
    let own = std::env::current_exe()
        .map_err(|error| Failure::new(format!("/proc/self/exe: {}; is /proc mounted?", reason(&error))))?;
    let library = library::find(variable(library::VARIABLE), &own)?;
    let mut libraries = vec![library.clone()];
    if engine == USER_MODE {
        libraries.push(library::calls(&library)?);
    }
    let mut ours = Vec::new();
    let job = job::key(&variable);
    match mpi::of(file, variable("PATH").as_deref(), &variable) {
        Some(mpi) => match mpi.library(&library) {
            Some(shim) => {
                libraries.push(shim);
                ours = mpi.variables(engine == USER_MODE, &variable);
            }
            None => {
                let why = format!("{} is not beside libream.so, so ranks of {} take", mpi.library_name(), mpi.name());
                let why = format!("{why} no turns; build Ream where mpicc is");
                match &settings.ranks_given {
                    Some(given) if job.is_some() => return Err(Failure::new(format!("{given}: {why}"))),
                    _ => log.warn(&why),
                }
            }
        },
        None if settings.ranks_given.as_ref().is_some_and(|given| given.source == Source::Flag) => {
            log.warn("--ranks-at-once: this is no program of MPI that is known; programs that it starts take no turns");
        }
        None => {}
    }
    for library in &libraries {
        log.info(&format!("library {}", library.display()));
    }
    let session = match job {
        None => session_for(std::process::id(), settings, pages, engine, None, log)?,
        Some(key) => session_of_job(&key, settings, pages, engine, log)?,
    };
    let libraries: Vec<&Path> = libraries.iter().map(PathBuf::as_path).collect();
    let preload = library::preload(&libraries, variable("LD_PRELOAD").as_deref());
    ours.extend([("LD_PRELOAD".into(), preload), ("REAM_SESSION".into(), session.into())]);
    Ok(ours)
}

/// The session of the job with this name: begun, or joined.
fn session_of_job(key: &str, settings: &Settings, pages: &Config, engine: &str, log: &Log) -> Result<String, Failure> {
    let digest = job::digest_of(settings);
    match job::enter(key, digest)? {
        job::Entrance::First(listener) => {
            log.info("first rank of its job on this node");
            let job = agent::Job { listener, digest };
            session_for(std::process::id(), settings, pages, engine, Some(&job), log)
        }
        job::Entrance::Joined { session, same } => {
            log.info("joined the session of its job on this node");
            if !same {
                log.warn("another rank of this job was given other options; those of the first rank hold for all here");
            }
            Ok(session)
        }
    }
}

/// Starts a session for a process. Returns its address.
fn session_for(
    process: u32,
    settings: &Settings,
    pages: &Config,
    engine: &str,
    job: Option<&agent::Job>,
    log: &Log,
) -> Result<String, Failure> {
    let variable = |name: &str| std::env::var_os(name);
    let machine = Machine::look().map_err(Failure::new)?;
    let budget = budget(settings, &machine, log)?;
    let leased = if settings.memory_servers.is_empty() { None } else { Some(remote::lease(settings)?) };
    let spill = settings.spill.as_ref().map(|directory| {
        let refuse = |why| Failure::new(format!("--spill: {}: {why}", directory.display()));
        place::examine(directory, settings.store_limit).map_err(refuse)
    });
    let spill = spill.transpose()?;
    let place = match &leased {
        Some(leased) => leased.place(settings, spill.as_ref()),
        None if settings.zip_alone => place::compressed(settings),
        None => place::choose(settings, &variable, &mut |line| log.warn(&line))?,
    };
    let mut config = configuration(settings, budget, &place)?;
    if let Some(leased) = &leased {
        leased.settle(settings, spill.as_ref(), &mut config)?;
        leased.absent().for_each(|line| log.warn(&line));
        if settings.insecure {
            log.write(0, &remote::unsafe_words(&place));
        }
    }
    (config.pages, config.pages_required, config.populate) = (pages.pages, pages.pages_required, pages.populate);
    secure::settle(settings, &Circumstances::look(), &mut config, &mut |line| log.warn(&line))?;
    config.shared_next = pages.shared_next;
    if engine == USER_MODE {
        config.engine = ream_stats::Engine::UserMode as u32;
    }
    log.info(&format!(
        "budget {}, store {} up to {}, engine {}, io {}",
        show_size(budget),
        place.directory.display(),
        show_size(place.limit),
        word(ENGINES, settings.engine),
        word(IO, settings.io),
    ));
    let free: Vec<u64> = leased.iter().flat_map(remote::Leased::free).collect();
    let session = start_session(process, &config, &free, job).map_err(|(what, error)| {
        Failure::new(format!("session: {what}: {}; ream doctor shows the limits", reason(&error)))
    })?;
    // The agent holds the lease now; this connection is closed when we become the program, or end.
    std::mem::forget(leased);
    Ok(session)
}

/// The engine for a process that runs already. `led` says that its calls into the kernel can be prepared.
pub fn engine_within(settings: &Settings, led: bool) -> Result<&'static str, Failure> {
    let (asked, io) = (word(ENGINES, settings.engine), word(IO, settings.io));
    let engine = doctor::engine::choose(asked, io).map_err(|why| Failure::new(format!("cannot page here: {why}")))?;
    if engine == USER_MODE && !led {
        let why = "a program that begins a session itself needs a whole userfaultfd, or to be linked with libream_calls.so \
                   behind libream.so; see ream setup, or use ream run";
        return Err(Failure::new(why));
    }
    Ok(engine)
}

/// Starts a session for a process that runs already and asked for one, and prints its address.
pub fn begin_session(process: u32, settings: &Settings, engine: &str) -> Result<String, Failure> {
    let log = Log::open(settings)?;
    let mut pages = Config::new();
    Offer::of(Path::new("/")).settle(&settings.pages, &mut pages, &mut |line| log.warn(&line))?;
    session_for(process, settings, &pages, engine, None, &log)
}

/// The word at a place of a list.
fn word(words: &[&'static str], place: u32) -> &'static str {
    words.get(place as usize).copied().unwrap_or("auto")
}

/// Becomes the program, or says why not.
pub fn become_program(file: &Path, arguments: &[OsString], environment: Vec<(OsString, OsString)>) -> Failure {
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
        Memory::Auto => machine.automatic().saturating_sub(settings.zip),
        memory => memory.of(machine.most()).unwrap_or(0),
    };
    if settings.zip > 0 {
        // Compressed pages are beside the budget.
        let most = machine.cap().map_or(machine.total, |cap| cap.min(machine.total));
        if settings.zip.saturating_add(asked) > most {
            let (zip, asked) = (show_size(settings.zip), show_size(asked));
            return Err(Failure::new(format!(
                "--store zip: {zip} beside a budget of {asked} is more than the {} that there is here; give less for one of them",
                show_size(most)
            )));
        }
    }
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
    config.encrypt = settings.encrypt.into();
    config.zip_bytes = settings.zip;
    config.zip_alone = settings.zip_alone.into();
    config.engine = settings.engine;
    config.io = settings.io;
    config.fetch = settings.fetch;
    config.swap_protocol = settings.swap_protocol;
    config.exec_inherit = settings.exec_inherit.into();
    config.log_level = settings.log_level;
    config.ranks_at_once = settings.ranks_at_once;
    config.next = settings.next;
    config.on_block = settings.on_block;
    config.on_run = settings.on_run;
    config.drop_received = settings.drop_received;
    config.patience_ms = settings.turn_patience_ms;
    config.bloat_percent = settings.bloat_percent;
    config.bloat_age_ms = settings.bloat_age_ms;
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
fn start_session(
    process: u32,
    config: &Config,
    free: &[u64],
    job: Option<&agent::Job>,
) -> Result<String, (&'static str, std::io::Error)> {
    let memory = os::shared_memory(c"ream-session", Session::BYTES).map_err(|error| ("shared memory", error))?;
    let mapping = os::map_shared(&memory, Session::BYTES).map_err(|error| ("shared memory", error))?;
    let nonce = os::random().map_err(|error| ("random numbers", error))?;
    let door = os::random().map_err(|error| ("random numbers", error))?;
    let session = agent::create(mapping, nonce, door, config);
    for (index, bytes) in free.iter().enumerate() {
        if let Some(server) = session.servers().get(index) {
            server.set_free(*bytes);
            server.set_away(config.remotes.get(index).is_some_and(|remote| remote.lease == 0));
        }
    }
    session.set_root(Identity { pid: process, start: agent::start_of(process).unwrap_or(0) });
    let agent = agent::start(&memory, job).map_err(|error| ("agent", error))?;
    Ok(agent::address(agent, nonce, door))
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
