//! The options of one call, from flags, environment, settings of the program, configuration file and defaults, in this
//! order of precedence.

pub mod file;
mod stores;

use crate::failure::{Failure, nearest};
use ream_options::pages::{DEFAULT_PAGES, PAGES, PagesError, REGIONS, TEXT};
use ream_options::prefault::{DEFAULT_PREFAULT, GENERAL_PREFAULT, PrefaultError};
use ream_options::{
    DROP, ENGINES, FETCHES, IO, Kind, LEVELS, LOCKS, Memory, NEXT, PageChoices, PrefaultChoices, Processors,
    SWAP_PROTOCOLS, SWITCH, Spec, find, options_of, parse_memory, parse_pages, parse_prefault, parse_ranks, parse_size,
};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Where a value was given.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Source {
    /// On the command line.
    Flag,
    /// In the environment.
    Environment,
    /// In the mark of this program.
    Mark(PathBuf),
    /// In this configuration file.
    File(PathBuf),
    /// In this file, for this program.
    Program(PathBuf, String),
}

/// A value as it was given.
#[derive(Clone, Debug)]
pub struct Given {
    /// Which option.
    pub spec: &'static Spec,
    /// Where.
    pub source: Source,
    /// The text; `None` for an option without a value.
    pub text: Option<OsString>,
}

impl fmt::Display for Given {
    /// How the user wrote the option, for messages.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Source::Flag => write!(f, "--{}", self.spec.name),
            Source::Environment => f.write_str(self.spec.variable),
            Source::Mark(path) => write!(f, "{}: its mark: {}", path.display(), self.spec.name),
            Source::File(path) => write!(f, "{}: {}", path.display(), self.spec.name),
            Source::Program(path, program) => write!(f, "{}: {program}: {}", path.display(), self.spec.name),
        }
    }
}

/// What becomes of the closing summary.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Summary {
    /// None is written.
    Off,
    /// Text on standard error.
    Print,
    /// JSON in this file.
    File(PathBuf),
}

/// Everything that options decide, before the machine has been looked at.
#[derive(Clone, Debug)]
pub struct Settings {
    /// RAM for the data.
    pub memory: Memory,
    /// How `memory` was given; `None` when it is the default.
    pub memory_given: Option<Given>,
    /// Directories for the store, in order of preference.
    pub stores: Vec<PathBuf>,
    /// The memory servers that are the store, as `HOST:PORT`.
    pub memory_servers: Vec<String>,
    /// Memory servers that each page is written to.
    pub replicas: u32,
    /// Directory of a local copy of what is at memory servers.
    pub spill: Option<PathBuf>,
    /// Whether pages at memory servers have a sum instead of copies.
    pub parity: bool,
    /// Bytes of compressed pages in RAM above the store; 0: none.
    pub zip: u64,
    /// Whether there is nothing below them.
    pub zip_alone: bool,
    /// Whether pages in the store's file are encrypted.
    pub encrypt: bool,
    /// Seconds that it may take to answer.
    pub store_deadline: u32,
    /// File of the own key, where it is not in its usual place.
    pub key: Option<PathBuf>,
    /// File of the servers' keys, likewise.
    pub servers: Option<PathBuf>,
    /// Whether there are no keys.
    pub insecure: bool,
    /// How `stores` were given; `None` when they were not.
    pub stores_given: Option<Given>,
    /// Most bytes in the store.
    pub store_limit: Option<u64>,
    /// Smallest block paged in user mode, in bytes.
    pub threshold: u64,
    /// What becomes of the summary.
    pub summary: Summary,
    /// Place in [`LEVELS`].
    pub log_level: u32,
    /// File for messages.
    pub log_file: Option<PathBuf>,
    /// Place in [`ENGINES`].
    pub engine: u32,
    /// Place in [`IO`].
    pub io: u32,
    /// Place in [`FETCHES`].
    pub fetch: u32,
    /// Place in [`SWAP_PROTOCOLS`].
    pub swap_protocol: u32,
    /// Sizes of pages, by region.
    pub pages: PageChoices,
    /// What is to be there before it is used, by region.
    pub prefault: PrefaultChoices,
    /// Whether what lies on large pages is locked: 0 no, else one more than the place in [`LOCKS`].
    pub lock: u32,
    /// Percent that large pages may waste.
    pub bloat_percent: u32,
    /// Milliseconds before a large page is judged.
    pub bloat_age_ms: u32,
    /// Whether programs executed by the program run under Ream too.
    pub exec_inherit: bool,
    /// Processors for pager threads.
    pub pager_cpus: Option<Processors>,
    /// Ranks of an MPI job that compute at once; 0: as many as fit.
    pub ranks_at_once: u32,
    /// How that was given; `None` when it is the default.
    pub ranks_given: Option<Given>,
    /// Place in [`NEXT`].
    pub next: u32,
    /// Place in [`SWITCH`]: what happens with a rank's memory when its turn ends.
    pub on_block: u32,
    /// The same, when its turn begins.
    pub on_run: u32,
    /// 1: what MPI is going to overwrite is not saved.
    pub drop_received: u32,
    /// Milliseconds without a change before a rank more may compute.
    pub turn_patience_ms: u32,
    /// The values that count and come from files.
    pub from_files: Vec<Given>,
}

/// Smallest threshold, in bytes.
const THRESHOLD_LEAST: u64 = 64 << 10;
/// Least that a store may be limited to, in bytes: a segment. (0 is how a session says that there is no limit.)
const STORE_LEAST: u64 = 2 << 20;
/// Least of compressed memory, in bytes: eight segments.
const ZIP_LEAST: u64 = 16 << 20;

impl Settings {
    /// Whether a program must not run where it cannot be given the pages of its memory; code is made ready beforehand.
    pub fn promises_pages(&self) -> bool {
        self.pages.iter().enumerate().any(|(region, choice)| region != TEXT && choice.required)
    }

    /// Settles the options of `command`: `flags` as given, then the variables, then what files give, the first of them
    /// before the others, then defaults.
    ///
    /// # Errors
    /// The first value that cannot be understood.
    pub fn settle(
        command: &str,
        flags: Vec<Given>,
        variable: &dyn Fn(&str) -> Option<OsString>,
        files: Vec<Vec<Given>>,
    ) -> Result<Settings, Failure> {
        let layers = Layers { command, flags, variable, files };
        let mut settings = Settings {
            memory: Memory::Auto,
            memory_given: None,
            stores: Vec::new(),
            memory_servers: Vec::new(),
            replicas: 1,
            spill: None,
            parity: false,
            zip: 0,
            zip_alone: false,
            encrypt: false,
            store_deadline: 30,
            key: None,
            servers: None,
            insecure: false,
            stores_given: None,
            store_limit: None,
            threshold: 1 << 20,
            summary: Summary::Off,
            log_level: 1,
            log_file: None,
            engine: 0,
            io: 0,
            fetch: 0,
            swap_protocol: 0,
            pages: DEFAULT_PAGES,
            prefault: DEFAULT_PREFAULT,
            lock: 0,
            bloat_percent: 10,
            bloat_age_ms: 700,
            exec_inherit: true,
            pager_cpus: None,
            ranks_at_once: 0,
            ranks_given: None,
            next: 0,
            on_block: 0,
            on_run: 0,
            drop_received: 1,
            turn_patience_ms: 10_000,
            from_files: Vec::new(),
        };
        if let Some(given) = layers.last("memory") {
            settings.memory = parse_memory(given.word()?).map_err(|error| given.refuse(error))?;
            settings.memory_given = Some(given);
        }
        settings.settle_stores(layers.all("store"))?;
        settings.settle_copies(layers.last("replicas"), layers.last("spill"), layers.last("parity"))?;
        settings.settle_encryption(layers.last("encrypt"))?;
        for (name, place) in [("key", &mut settings.key), ("servers", &mut settings.servers)] {
            if let Some(given) = layers.last(name) {
                *place = Some(given.path(given.text.as_deref().unwrap_or_default())?);
            }
        }
        if let Some(given) = layers.last("insecure") {
            settings.insecure = given.switch()?;
        }
        if let Some(given) = layers.last("store-limit") {
            let limit = given.size()?;
            if limit < STORE_LEAST {
                return Err(given.refuse("less than one segment of the store; give at least 2M"));
            }
            settings.store_limit = Some(limit);
        }
        if let Some(given) = layers.last("threshold") {
            settings.threshold = given.size()?;
            if settings.threshold < THRESHOLD_LEAST {
                return Err(given.refuse("smaller than can be paged; give at least 64K"));
            }
        }
        if let Some(given) = layers.last("summary") {
            settings.summary = match &given.text {
                None => Summary::Print,
                Some(text) => match given.yes_or_no() {
                    Some(true) => Summary::Print,
                    Some(false) => Summary::Off,
                    None if text.is_empty() => return Err(given.refuse("no file given; write --summary=FILE")),
                    None => Summary::File(given.path(text)?),
                },
            };
        }
        if let Some(given) = layers.last("log") {
            let text = given.text.clone().unwrap_or_default();
            let (level, file) = match text.as_bytes().iter().position(|b| *b == b':') {
                Some(at) => (&text.as_bytes()[..at], Some(OsStr::from_bytes(&text.as_bytes()[at + 1..]))),
                None => (text.as_bytes(), None),
            };
            settings.log_level = given.place_of(&String::from_utf8_lossy(level), LEVELS)?;
            settings.log_file = match file {
                Some(file) if file.is_empty() => return Err(given.refuse("no file after the colon")),
                Some(file) => Some(given.path(file)?),
                None => None,
            };
        }
        for (name, words, place) in [
            ("engine", ENGINES, &mut settings.engine),
            ("io", IO, &mut settings.io),
            ("fetch", FETCHES, &mut settings.fetch),
            ("swap-protocol", SWAP_PROTOCOLS, &mut settings.swap_protocol),
            ("next", NEXT, &mut settings.next),
            ("on-block", SWITCH, &mut settings.on_block),
            ("on-run", SWITCH, &mut settings.on_run),
            ("drop-received", DROP, &mut settings.drop_received),
        ] {
            if let Some(given) = layers.last(name) {
                *place = given.place_of(given.word()?, words)?;
            }
        }
        if let Some(given) = layers.last("swap-protocol").filter(|given| given.source == Source::Flag) {
            if settings.memory_servers.is_empty() && settings.swap_protocol != 0 {
                return Err(given.refuse("only for memory servers; name some by --store tcp://HOST:PORT,..."));
            }
        }
        if let Some(given) = layers.last("pages") {
            settings.pages = parse_pages(given.word()?).map_err(|error| given.refuse_part(&error, error))?;
        }
        if let Some(given) = layers.last("prefault") {
            settings.prefault = match given.yes_or_no() {
                None if given.text.is_some() => parse_prefault(given.word()?).map_err(|error| match error {
                    PrefaultError::Part(part) => given.refuse_part(&error, part),
                    _ => given.refuse(error),
                })?,
                Some(false) => DEFAULT_PREFAULT,
                _ => GENERAL_PREFAULT,
            };
        }
        if let Some(given) = layers.last("lock") {
            settings.lock = match given.yes_or_no() {
                None if given.text.is_some() => given.place_of(given.word()?, LOCKS)? + 1,
                Some(false) => 0,
                _ => 1,
            };
        }
        if let Some(given) = layers.last("ranks-at-once") {
            settings.ranks_at_once = parse_ranks(given.word()?).map_err(|error| given.refuse(error))?;
            settings.ranks_given = Some(given);
        }
        if let Some(given) = layers.last("no-exec-inherit") {
            settings.exec_inherit = !given.switch()?;
        }
        if let Some(given) = layers.last("pager-cpus") {
            settings.pager_cpus = Some(Processors::parse(given.word()?).map_err(|error| given.refuse(error))?);
        }
        for (name, place) in [
            ("store-deadline", &mut settings.store_deadline),
            ("bloat", &mut settings.bloat_percent),
            ("bloat-age", &mut settings.bloat_age_ms),
            ("turn-patience", &mut settings.turn_patience_ms),
        ] {
            if let Some(given) = layers.last(name) {
                *place = given.count()?;
            }
        }
        let from_file = |given: &Given| matches!(given.source, Source::File(_) | Source::Program(..));
        settings.from_files = options_of(command).flat_map(|spec| layers.all(spec.name)).filter(from_file).collect();
        Ok(settings)
    }
}

/// The values of one call, by where they come from.
pub struct Layers<'a> {
    /// The command, which decides what variables and files may give.
    pub command: &'a str,
    /// From the command line.
    pub flags: Vec<Given>,
    /// The environment.
    pub variable: &'a dyn Fn(&str) -> Option<OsString>,
    /// What files give, the first of them before the others.
    pub files: Vec<Vec<Given>>,
}

impl Layers<'_> {
    /// Every value of an option in the layer that decides.
    fn all(&self, name: &str) -> Vec<Given> {
        let of = |layer: &[Given]| layer.iter().filter(|given| given.spec.name == name).cloned().collect::<Vec<_>>();
        let flags = of(&self.flags);
        if !flags.is_empty() {
            return flags;
        }
        let Some(spec) = find(self.command, name) else { return Vec::new() };
        // An empty variable is as good as none, so that one can be switched off for one call.
        let variable = Some(spec.variable).filter(|name| !name.is_empty()).and_then(|name| (self.variable)(name));
        match variable.filter(|text| !text.is_empty()) {
            Some(text) => vec![Given { spec, source: Source::Environment, text: Some(text) }],
            None if !spec.in_file => Vec::new(),
            None => self.files.iter().map(|file| of(file)).find(|found| !found.is_empty()).unwrap_or_default(),
        }
    }
    /// The value that counts: the last one given.
    pub fn last(&self, name: &str) -> Option<Given> {
        self.all(name).pop()
    }
}

impl Given {
    /// A failure that names the option, the value and the reason.
    pub fn refuse(&self, reason: impl fmt::Display) -> Failure {
        match &self.text {
            Some(text) if !text.is_empty() => Failure::new(format!("{self}: \"{}\": {reason}", text.to_string_lossy())),
            _ => Failure::new(format!("{self}: {reason}")),
        }
    }
    /// A failure about a part of a list of regions, with the word that may have been meant.
    fn refuse_part(&self, error: &dyn fmt::Display, part: PagesError<'_>) -> Failure {
        let meant = match part {
            PagesError::Size(word) => nearest(word, PAGES.iter().copied()),
            PagesError::Region(word) => nearest(word, REGIONS.iter().copied()),
            _ => None,
        };
        self.refuse(format!("{error}{}", meant.map_or_else(String::new, |word| format!("; did you mean {word}?"))))
    }
    /// The value as text.
    pub fn word(&self) -> Result<&str, Failure> {
        self.text.as_deref().unwrap_or_default().to_str().ok_or_else(|| self.refuse("not valid UTF-8"))
    }
    /// The value as a number of bytes.
    pub fn size(&self) -> Result<u64, Failure> {
        parse_size(self.word()?).map_err(|error| self.refuse(error))
    }
    /// A whole number.
    pub fn count(&self) -> Result<u32, Failure> {
        let Kind::Count(least, most) = self.spec.kind else { return Err(self.refuse("not a number")) };
        match self.word()?.parse() {
            Ok(number) if (least..=most).contains(&number) => Ok(number),
            _ => Err(self.refuse(format!("not a whole number from {least} to {most}"))),
        }
    }
    /// Yes or no in the words that variables and files use; `None` for anything else.
    fn yes_or_no(&self) -> Option<bool> {
        match self.text.as_deref()?.to_str()? {
            "1" | "yes" | "true" | "on" => Some(true),
            "0" | "no" | "false" | "off" => Some(false),
            _ => None,
        }
    }
    /// Whether a switch is on.
    pub fn switch(&self) -> Result<bool, Failure> {
        match self.text {
            None => Ok(true),
            Some(_) => self.yes_or_no().ok_or_else(|| self.refuse("not yes or no")),
        }
    }
    /// What follows `zip:`, if it begins like that.
    fn zip(&self) -> Option<&str> {
        self.text.as_ref()?.to_str()?.strip_prefix("zip:")
    }
    /// The size of compressed memory.
    fn zip_size(&self) -> Result<u64, Failure> {
        let bytes = ream_options::parse_size(self.zip().unwrap_or_default()).map_err(|error| self.refuse(error))?;
        if bytes < ZIP_LEAST {
            return Err(self.refuse("too little to work with; give at least 16M"));
        }
        Ok(bytes)
    }
    fn place_of(&self, word: &str, words: &[&str]) -> Result<u32, Failure> {
        match words.iter().position(|one| *one == word) {
            Some(place) => Ok(place as u32),
            None => {
                let meant = match nearest(word, words.iter().copied()) {
                    Some(meant) => format!("; did you mean {meant}?"),
                    None => String::new(),
                };
                Err(self.refuse(format!("not one of {}{meant}", words.join(", "))))
            }
        }
    }
    /// A path made absolute, since the program may change its directory.
    pub fn path(&self, text: &OsStr) -> Result<PathBuf, Failure> {
        if text.is_empty() {
            return Err(self.refuse("no path given; name one"));
        }
        std::path::absolute(text).map_err(|error| self.refuse(crate::failure::reason(&error)))
    }
    /// The memory servers, if that is a list of some.
    fn servers(&self, text: &OsStr) -> Result<Vec<String>, Failure> {
        if !text.as_bytes().starts_with(b"tcp://") {
            return Ok(Vec::new());
        }
        let mut servers: Vec<String> = Vec::new();
        for part in text.as_bytes().split(|byte| *byte == b',') {
            let server = self.server(OsStr::from_bytes(part))?;
            let server = server.ok_or_else(|| self.refuse("not tcp://HOST:PORT,tcp://HOST:PORT,..."))?;
            if servers.contains(&server) {
                return Err(self.refuse(format!("tcp://{server} twice; copies must be at different servers")));
            }
            servers.push(server);
        }
        if servers.len() > ream_stats::SERVERS {
            return Err(self.refuse(format!("more than {} memory servers", ream_stats::SERVERS)));
        }
        Ok(servers)
    }
    /// The `HOST:PORT` of a memory server, if that is one.
    pub(crate) fn server(&self, text: &OsStr) -> Result<Option<String>, Failure> {
        let Some(address) = text.as_bytes().strip_prefix(b"tcp://") else { return Ok(None) };
        std::str::from_utf8(address).map_err(|_| self.refuse("not valid UTF-8"))?;
        server_of(text).map(Some).ok_or_else(|| self.refuse("not tcp://HOST:PORT"))
    }
    pub(crate) fn directory(&self, text: &OsStr) -> Result<PathBuf, Failure> {
        if text.is_empty() {
            return Err(self.refuse("no directory given"));
        }
        let bytes = text.as_bytes();
        if let Some(path) = bytes.strip_prefix(b"file:") {
            return self.path(OsStr::from_bytes(path));
        }
        let scheme = bytes.windows(3).position(|three| three == b"://");
        match scheme.filter(|end| bytes[..*end].iter().all(u8::is_ascii_alphanumeric)) {
            Some(_) => Err(self.refuse("neither a directory on a local disk nor tcp://HOST:PORT")),
            None => self.path(text),
        }
    }
}

/// The `HOST:PORT` of `tcp://HOST:PORT`.
pub(crate) fn server_of(text: &OsStr) -> Option<String> {
    let address = text.to_str()?.strip_prefix("tcp://").filter(|address| !address.contains(','))?;
    let (_, port) = address.rsplit_once(':').filter(|(host, _)| !host.is_empty())?;
    let there = matches!(port.parse::<u16>(), Ok(1..)) && address.len() <= 255;
    there.then(|| address.to_owned())
}

#[cfg(test)]
mod tests;
