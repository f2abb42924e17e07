//! `ream run`: settles everything, starts the session and its agent, and becomes the program.

use crate::failure::{Failure, NOT_FOUND, reason, shown};
use crate::inject::{self, Plan};
use crate::machine::Machine;
use crate::mark::{self, start};
use crate::pages::Offer;
use crate::place::Place;
use crate::program::Reach;
use crate::secure::{self, Circumstances};
use crate::settings::{Given, Settings, Source, Summary};
use crate::{agent, budget, code, doctor, job, library, mpi, os, outside, place, program, remote};
use ream_options::pages::TEXT;
use ream_options::{ENGINES, IO, show_size};
use ream_stats::{Config, Identity, Lock, Session, Text};
use std::cell::OnceCell;
use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

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
    let promised = settings.promises_pages();
    // Asked for is meant; by default a program is not kept from running.
    let strict = settings.memory_given.is_some()
        || asked != "auto"
        || io != "auto"
        || settings.lock == Lock::Require as u32
        || promised
        || settings.prefault.iter().any(|choice| choice.required);
    // A marked program that a program under Ream starts belongs to that one's session.
    let joins = stand.is_some() && std::env::var_os("REAM_SESSION").is_some();
    if promised && joins && !std::env::var_os("REAM_SESSION").is_some_and(|address| address.as_bytes().ends_with(b"!"))
    {
        let why = "it belongs to the session that it is started in, which promises no pages";
        return Err(Failure::new(format!("{name}: --pages with :require: {why}; say so there, or start it outside")));
    }
    let mut pages = Config::new();
    Offer::here().settle(&settings.pages, &mut pages, &mut |line| log.warn(&line))?;
    let ready = with_code_ready(file, path.as_deref(), settings, log)?;
    if promised && reach == Reach::Inside && !program::is_understood(file, path.as_deref()) {
        let why = "not a program that can be read, so nobody knows which pages it would get";
        return Err(Failure::new(format!("{name}: {why}; --pages says that it must have them")));
    }
    let engine = match reach {
        Reach::Outside { why, program, inherits } => {
            // A copy takes the place of a program only, never of a script's interpreter.
            let program = if ready == *file { program } else { ready.clone() };
            let target = outside::Target { file: &ready, arguments: rest, why, program, inherits, shown };
            return Err(outside::run(settings, &pages, &target, joins, log));
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

/// This process's environment with some variables set.
pub fn environment(ours: Vec<(OsString, OsString)>) -> Vec<(OsString, OsString)> {
    let mut all: Vec<_> = std::env::vars_os().filter(|(name, _)| ours.iter().all(|(own, _)| own != name)).collect();
    all.extend(ours);
    all
}

/// Starts a session for the program `file`, or joins that of the job whose rank this is. Returns the variables by which
/// programs enter it.
pub fn enter_session(
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
            if !same && settings.promises_pages() {
                let why = "another rank of this job was given other options, which hold for all here";
                return Err(Failure::new(format!("--pages with :require: {why}; give all the same")));
            }
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
    let budget = budget::of(settings, &machine, &mut |line| log.warn(&line))?;
    let leased = if settings.memory_servers.is_empty() { None } else { Some(remote::lease(settings)?) };
    let spill = settings.spill.as_ref().map(|directory| {
        let refuse = |why| Failure::new(format!("--spill: {}: {why}", directory.display()));
        place::examine(directory, settings.store_limit).map_err(refuse)
    });
    let below = settings.has_disk_below().then(|| place::choose(settings, &variable, &mut |line| log.warn(&line)));
    let local = spill.or(below).transpose()?;
    let place = match &leased {
        Some(leased) => leased.place(settings, local.as_ref()),
        None if settings.zip_alone => place::compressed(settings),
        None => place::choose(settings, &variable, &mut |line| log.warn(&line))?,
    };
    let mut config = configuration(settings, budget, &place)?;
    if let Some(leased) = &leased {
        leased.settle(settings, local.as_ref(), &mut config)?;
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
        if os::is_too_large(&error) {
            let mebibytes = Session::BYTES.div_ceil(1 << 20);
            return Failure::new(format!(
                "session: {what}: the hard limit on the size of files (ulimit -H -f) is below its {mebibytes} MiB; raise it"
            ));
        }
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
    Offer::here().settle(&settings.pages, &mut pages, &mut |line| log.warn(&line))?;
    session_for(process, settings, &pages, engine, None, &log)
}

/// The word at a place of a list.
pub fn word(words: &[&'static str], place: u32) -> &'static str {
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
                // Only tried: until there is a summary nobody should find an empty one. A link to it stays.
                let _ = std::fs::canonicalize(path).and_then(std::fs::remove_file);
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

/// Opens a file that will be written to later, so that a mistake shows before the program has run for days. Not a FIFO: that
/// would wait for its reader, who would find the end of what there is to read when it is closed again.
fn appendable(option: &str, path: &Path) -> Result<Option<File>, Failure> {
    let refuse = |error| {
        Failure::new(format!("{option}: {}: {}; name a file that can be written", path.display(), reason(&error)))
    };
    if std::fs::metadata(path).is_ok_and(|file| file.file_type().is_fifo()) {
        return if os::may_write(path) { Ok(None) } else { Err(refuse(std::io::ErrorKind::PermissionDenied.into())) };
    }
    OpenOptions::new().append(true).create(true).open(path).map(Some).map_err(refuse)
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
    let unknown = Identity { pid: process, start: 0, space: 0 };
    session.set_root(agent::find::here(process).unwrap_or(unknown));
    let agent = agent::start(&memory, job).map_err(|error| ("agent", error))?;
    Ok(agent::address(agent, nonce, door, config))
}

/// Where ream itself says what it chose, before it becomes the program.
pub struct Log {
    level: u32,
    file: Option<PathBuf>,
    /// Open since the beginning, or, where that would have had to wait, since the first line.
    open: OnceCell<File>,
}

impl Log {
    fn open(settings: &Settings) -> Result<Log, Failure> {
        let file = settings.log_file.clone();
        let open = file.as_ref().map(|path| appendable("--log", path)).transpose()?.flatten();
        let open = open.map_or_else(OnceCell::new, OnceCell::from);
        Ok(Log { level: settings.log_level, file, open })
    }
    fn write(&self, level: u32, text: &str) {
        if level > self.level {
            return;
        }
        let line = format!("ream: {}", shown(text));
        // A message that cannot be written must not keep the program from running.
        if !self.file.as_ref().is_some_and(|path| self.append(path, &line)) {
            os::say(&line);
        }
    }
    /// Writes to the file; false where that is not possible, as with a FIFO that nobody reads.
    fn append(&self, path: &Path, line: &str) -> bool {
        if self.open.get().is_none() {
            let opened = OpenOptions::new().append(true).custom_flags(libc::O_NONBLOCK).open(path);
            let _ = opened.map(|file| self.open.set(file));
        }
        self.open.get().is_some_and(|file| os::write_line(file, line))
    }
    /// Says what the user should know.
    pub fn warn(&self, text: &str) {
        self.write(1, text);
    }
    fn info(&self, text: &str) {
        self.write(2, text);
    }
}
