//! `ream bench remote`: paging to a memory server against what the network gives without Ream, and the programs by which DLM
//! was measured. Everything of a row is measured in turns, round by round, and compared within rounds.

mod line;
mod path;
mod programs;
mod protocols;
pub(crate) mod rows;
mod server;
mod tiers;

use crate::arguments::Paging;
use crate::driver::{Commands, Worker};
use crate::others::under_ream;
use crate::work::{Done, Slice, Walk};
use crate::{interrupt, report};
use line::Line;
use path::{End, Path};
use programs::Program;
use protocols::Copies;
use rows::{Figure, Over, Probe, ROWS, Row, Spent};
use serde_json::json;
use server::{Scratch, Server};
use std::ffi::OsString;

/// Touches of one measurement of single faults.
const TOUCHES: u64 = 2000;

/// Everything that is running while rows are measured.
pub(crate) struct Bench {
    options: Paging,
    commands: Commands,
    pages: u64,
    // Dropped in this order: programs, servers, their networks, their keys.
    /// Bytes of a request by protocol r3, once it was measured.
    request: u64,
    workers: Vec<(Place, Worker)>,
    servers: Vec<(bool, Server)>,
    /// Those with a disk below.
    tiers: Vec<Server>,
    line: Line,
    path: Path,
    scratch: Scratch,
}

/// A worker, by where its pages go. Those that go over their data in order do nothing else: single pages at random leave
/// memory in another state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Sealed,
    Clear,
    SealedRandom,
    ClearRandom,
    /// In clear, by the first protocol of DLM.
    Serial,
    File,
    FileOrdered,
    /// To a server, and to a file what that has no room for.
    Tiers,
    TiersRandom,
}

/// Measures all rows that were asked for; returns whether all requirements were met.
///
/// # Errors
/// What kept it from measuring.
pub fn run(options: &Paging) -> Result<bool, String> {
    let wanted =
        |name: &str| options.only.is_empty() || options.only.iter().any(|only| name.starts_with(only.as_str()));
    let rows: Vec<&Row> = ROWS.iter().filter(|row| wanted(row.name)).collect();
    let mut contests: Vec<(Program, u64)> = Vec::new();
    for program in programs::all(options.quick) {
        let is_wanted = |threads: u64| programs::SHARES.iter().any(|share| wanted(&program.row(threads, *share)));
        contests.extend([1, 2].into_iter().filter(|threads| is_wanted(*threads)).map(|threads| (program, threads)));
    }
    let exchanges = protocols::wanted(options.quick, &options.only, &wanted);
    let copies: Vec<Copies> = protocols::COPIES.into_iter().filter(|copies| wanted(copies.name)).collect();
    if rows.is_empty() && contests.is_empty() && exchanges.is_empty() && copies.is_empty() {
        let names: Vec<&str> = ROWS.iter().map(|row| row.name).collect();
        return Err(format!("no row is called so; there are {}, micro-t1 and other programs", names.join(", ")));
    }
    interrupt::heed();
    let ended = measure(options, &rows, &contests, &exchanges, &copies);
    // Whatever failed after a signal failed for that.
    if interrupt::signal().is_some() { Err(interrupt::INTERRUPTED.to_owned()) } else { ended }
}

fn measure(
    options: &Paging,
    rows: &[&Row],
    contests: &[(Program, u64)],
    exchanges: &[(Program, u64)],
    copies: &[Copies],
) -> Result<bool, String> {
    let (mut bench, without) = Bench::new(options)?;
    println!("{}", bench.conditions());
    println!("{}", rows::heading());
    let (mut good, mut all) = (true, Vec::new());
    let mut tell = |figures: Vec<Figure>| {
        for figure in figures {
            println!("{}", figure.line());
            good &= figure.met() != Some(false);
            all.push(figure.json());
        }
    };
    for capped in [true, false] {
        let group: Vec<&Row> = rows.iter().filter(|row| row.capped == capped).copied().collect();
        tell(bench.rows(&group, capped, without.as_deref(), &mut |_, _| ())?);
    }
    for (program, threads) in contests {
        tell(bench.contest(program, *threads, false, &mut |_, _| ())?);
    }
    let few = bench.few_rounds();
    for (program, threads) in exchanges {
        tell(bench.protocols(program, *threads, few)?);
    }
    for copies in copies {
        tell(vec![bench.copies(copies, few)?]);
    }
    if let Some(path) = &options.json {
        let value = json!({
            "benchmark": "remote", "data": options.data, "memory": options.memory, "seconds": options.seconds,
            "rounds": options.rounds, "path": bench.path.words(), "line": bench.line.tool(),
            "connections": line::CONNECTIONS, "rows": all,
        });
        report::save(path, &value)?;
    }
    Ok(good)
}

/// A part of the chapter, for those that measure it among others.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Part {
    /// The rows of the path capped, or as it is.
    Rows(bool),
    /// One of the programs, by its place, with so many threads.
    Program(usize, u64),
}

impl Part {
    /// All of them.
    pub(crate) fn all() -> Vec<Part> {
        let programs =
            (0..programs::all(true).len()).flat_map(|place| [1, 2].map(|threads| Part::Program(place, threads)));
        [Part::Rows(true), Part::Rows(false)].into_iter().chain(programs).collect()
    }

    /// What it is called.
    pub(crate) fn name(self) -> String {
        match self {
            Part::Rows(true) => "path capped at 8 Gbit/s".into(),
            Part::Rows(false) => "path as it is".into(),
            Part::Program(place, threads) => {
                let all = programs::all(true);
                format!("{}, {threads} threads", all.get(place).map_or("", |program| program.name))
            }
        }
    }

    /// Whether it is one of these programs with so many threads.
    pub(crate) fn is_one_of(self, names: &[&str], threads: u64) -> bool {
        let Part::Program(place, own) = self else { return false };
        own == threads && programs::all(true).get(place).is_some_and(|program| names.contains(&program.name))
    }

    /// Measures it; tells before each round how many of how many are done.
    ///
    /// # Errors
    /// What kept it from measuring.
    pub(crate) fn measure(
        self,
        options: &Paging,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Vec<Figure>, String> {
        let (mut bench, without) = Bench::new(options)?;
        match self {
            Part::Rows(capped) => {
                let rows: Vec<&Row> = ROWS.iter().filter(|row| row.capped == capped).collect();
                bench.rows(&rows, capped, without.as_deref(), progress)
            }
            Part::Program(place, threads) => {
                let all = programs::all(options.quick);
                bench.contest(all.get(place).ok_or("no such program")?, threads, true, progress)
            }
        }
    }
}

fn figure(row: &Row) -> Figure {
    Figure {
        name: row.name.into(),
        what: row.what.into(),
        unit: row.unit,
        other: row.against.1.into(),
        must: row.must,
        ..Figure::default()
    }
}

impl Bench {
    /// Makes the path; also why it cannot be capped, if it cannot.
    fn new(options: &Paging) -> Result<(Bench, Option<String>), String> {
        let commands = Commands::find()?;
        let scratch = Scratch::new()?;
        let (path, without) = match Path::cable(&commands.worker) {
            Ok(path) => (path, None),
            Err(why) => (Path::loopback(), Some(why)),
        };
        let line = Line::new(&commands, &path)?;
        // Whole blocks: the walk that renews discards one at a time.
        let pages = (options.data >> 21) << 9;
        let options = options.clone();
        let (workers, servers, tiers) = (Vec::new(), Vec::new(), Vec::new());
        Ok((Bench { options, commands, pages, request: 0, workers, servers, tiers, line, path, scratch }, without))
    }

    fn conditions(&self) -> String {
        format!(
            "data {} MiB, memory {} MiB, path {}; line: {} with {} connections; cap {}",
            self.options.data >> 20,
            self.options.memory >> 20,
            self.path.words(),
            self.line.tool(),
            line::CONNECTIONS,
            path::CAP
        )
    }

    /// The server, started when it is first needed.
    fn server(&mut self, sealed: bool) -> Result<&Server, String> {
        if !self.servers.iter().any(|(own, _)| *own == sealed) {
            // For two workers and a program, and what a server needs beside their pages.
            let memory = (self.options.data * 4).max(1 << 30);
            let server = Server::start(&self.commands, &self.path, &self.scratch, "server", sealed, memory)?;
            self.servers.push((sealed, server));
        }
        let found = self.servers.iter().find(|(own, _)| *own == sealed).map(|(_, server)| server);
        found.ok_or_else(|| "no server".into())
    }

    fn server_cpu(&self) -> f64 {
        self.servers.iter().map(|(_, server)| server).chain(&self.tiers).map(Server::cpu).sum()
    }

    /// The worker whose pages go there, started when it is first needed.
    fn worker(&mut self, place: Place) -> Result<&mut Worker, String> {
        if !self.workers.iter().any(|(own, _)| *own == place) {
            let mut options: Vec<OsString> = vec!["--memory".into(), self.options.memory.to_string().into()];
            match place {
                Place::Sealed | Place::SealedRandom => options.extend(self.server(true)?.options.iter().cloned()),
                Place::Clear | Place::ClearRandom => options.extend(self.server(false)?.options.iter().cloned()),
                Place::Serial => {
                    options.extend(self.server(false)?.options.iter().cloned());
                    options.push("--swap-protocol=r3".into());
                }
                Place::Tiers | Place::TiersRandom => options.extend(self.tiers(place)?),
                Place::File | Place::FileOrdered => {
                    options.extend(["--store".into(), self.options.store.as_os_str().to_owned()])
                }
            }
            options.extend(self.options.with.iter().map(OsString::from));
            let mut command = under_ream(&self.commands.ream, &options, &self.commands.worker);
            command.args(["data", &self.pages.to_string()]);
            self.path.at(End::Client, &mut command);
            let what = match place {
                Place::Sealed | Place::SealedRandom => "the worker that pages to a server",
                Place::Clear | Place::ClearRandom => "the worker that pages to a server in clear",
                Place::Serial => "the worker that pages by protocol r3",
                Place::Tiers | Place::TiersRandom => "the worker that pages to a server and a file below",
                Place::File | Place::FileOrdered => "the worker that pages to a file",
            };
            let (worker, _) = Worker::begin(command, what)?;
            self.workers.push((place, worker));
        }
        let found = self.workers.iter_mut().find(|(own, _)| *own == place).map(|(_, worker)| worker);
        found.ok_or_else(|| "no worker".into())
    }

    /// Measures rows of the path as it is or capped, or says why not.
    fn rows(
        &mut self,
        rows: &[&Row],
        capped: bool,
        without: Option<&str>,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Vec<Figure>, String> {
        match (capped, without) {
            _ if rows.is_empty() => Ok(Vec::new()),
            (true, Some(why)) => {
                let skipped = Some(why.to_owned());
                Ok(rows.iter().map(|row| Figure { skipped: skipped.clone(), ..figure(row) }).collect())
            }
            _ => self.group(rows, capped, progress),
        }
    }

    /// Rounds of whole programs.
    fn few_rounds(&self) -> usize {
        if self.options.quick { 1 } else { self.options.rounds.min(3) }
    }

    /// A program with each share of its data local; with `file` also with a file as the store.
    fn contest(
        &mut self,
        program: &Program,
        threads: u64,
        file: bool,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Vec<Figure>, String> {
        match self.shares(program, threads, self.few_rounds(), file, progress) {
            // FFTW is no part of every machine.
            Err(why) if why.contains("built without") || why.contains("no OpenBLAS") => {
                let (name, skipped) = (program.row(threads, 100), Some(why));
                Ok(vec![Figure { name, skipped, ..Figure::default() }])
            }
            other => other,
        }
    }

    fn group(
        &mut self,
        rows: &[&Row],
        capped: bool,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Vec<Figure>, String> {
        let mut probes: Vec<Probe> = Vec::new();
        for probe in rows.iter().flat_map(|row| [row.against.0, row.of]) {
            if !probes.contains(&probe) {
                probes.push(probe);
            }
        }
        if capped {
            self.path.cap(true)?;
        }
        let mut values: Vec<Vec<Value>> = vec![Vec::new(); probes.len()];
        // A first round does not count: it brings memory into the state that each walk leaves it in.
        for round in 0..=self.options.rounds {
            progress(round, self.options.rounds + 1);
            for place in crate::pages::order(round, probes.len()) {
                interrupt::check()?;
                let value = self.probe(probes[place], round)?;
                if round > 0 {
                    values[place].push(value);
                }
            }
        }
        for probe in probes.iter() {
            if let Probe::PageOut(over) | Probe::Change(over) = probe {
                let pages = self.pages;
                self.worker(over.place())?.verify(pages)?;
            }
        }
        self.workers.clear();
        if capped {
            self.path.cap(false)?;
        }
        let of = |probe: Probe| probes.iter().position(|own| *own == probe).map_or(&[][..], |place| &values[place]);
        let mut made: Vec<Figure> = rows
            .iter()
            .map(|row| Figure {
                ream: of(row.of).iter().map(|value| value.rate).collect(),
                against: of(row.against.0).iter().map(|value| value.rate).collect(),
                spent: of(row.of).iter().filter_map(|value| value.spent).collect(),
                against_spent: of(row.against.0).iter().filter_map(|value| value.spent).collect(),
                cpu: of(row.of).iter().filter_map(|value| value.cpu).collect(),
                ..figure(row)
            })
            .collect();
        for (figure, row) in made.iter_mut().zip(rows) {
            let place = match row.of {
                Probe::Tiers => Place::Tiers,
                Probe::TiersRandom => Place::TiersRandom,
                _ => continue,
            };
            figure.what += &format!("; the server answered {:.0} % of the reads from stores", self.answered(place)?);
        }
        self.tiers.clear();
        Ok(made)
    }

    /// One measurement.
    fn probe(&mut self, probe: Probe, round: usize) -> Result<Value, String> {
        // In the round that does not count a short look is enough.
        let seconds = if round == 0 { self.options.seconds.min(0.3) } else { self.options.seconds };
        match probe {
            Probe::Line(_) if round == 0 => Ok(Value::default()),
            Probe::Line(way) => {
                Ok(Value { rate: self.line.rate(&self.commands, &self.path, way, seconds)?, ..Value::default() })
            }
            Probe::Ping => Ok(Value { rate: self.line.ping(&self.commands, &self.path)?.p50, ..Value::default() }),
            Probe::PageIn(over) => self.slice(over.place(), Walk::Lines, 1, seconds, |done| done.ream.bytes_in),
            Probe::PageOut(over) => self.slice(over.place(), Walk::Renew, 1, seconds, |done| done.ream.bytes_out),
            Probe::Change(over) => {
                let both = |done: &Done| done.ream.bytes_in + done.ream.bytes_out;
                self.slice(over.place(), Walk::Change, 1, seconds, both)
            }
            Probe::Sequential(over) => {
                self.slice(over.place(), Walk::Sequential, 1, seconds, |done| done.ream.bytes_in)
            }
            Probe::Serial => {
                let mut request = 0;
                let value = self.slice(Place::Serial, Walk::Lines, 1, seconds, |done| done.ream.bytes_in)?;
                let done = self.worker(Place::Serial)?.slice(&Slice {
                    walk: Walk::Lines,
                    threads: 1,
                    seconds: 0.0,
                    accesses: 4096,
                })?;
                if let Some(bytes) = done.ream.bytes_in.checked_div(done.ream.reads) {
                    request = bytes;
                }
                self.request = request;
                Ok(value)
            }
            // As much at a time as the other asked for.
            Probe::Swap if self.request == 0 => Ok(Value::default()),
            Probe::Swap => {
                let rate = self.line.swap(&self.commands, &self.path, self.request, seconds)?;
                Ok(Value { rate, ..Value::default() })
            }
            Probe::Random(threads) => self.misses(Place::SealedRandom, threads, seconds),
            Probe::File(threads) => self.misses(Place::File, threads, seconds),
            Probe::TiersRandom => self.misses(Place::TiersRandom, 1, seconds),
            // A whole pass: where the parts lie that a tier holds is not known.
            Probe::Tiers => self.slice(Place::Tiers, Walk::Sequential, 1, 0.0, |done| done.ream.bytes_in),
            Probe::FileOrdered => self.slice(Place::FileOrdered, Walk::Sequential, 1, 0.0, |done| done.ream.bytes_in),
            Probe::Fault(over) => {
                self.worker(over.at_random())?;
                let before = self.server_cpu();
                let times = self.worker(over.at_random())?.touches(TOUCHES)?;
                let spent = self.spent(before, times.cpu_seconds, times.peak_kib);
                match times.count {
                    0 => Err("no fault waited for the server; is this run paged by Ream?".into()),
                    _ => Ok(Value { rate: times.p50, spent, cpu: None }),
                }
            }
            Probe::Stencil => self.program_rate("stencil", if self.options.quick { 12 } else { 16 }),
            Probe::Stream => self.program_rate("stream", if self.options.quick { 5 } else { 3 }),
        }
    }

    /// A slice by a worker, of so many seconds or, with 0, over all the data once: MB/s of what travelled, and processor time.
    fn slice(
        &mut self,
        place: Place,
        walk: Walk,
        threads: u64,
        seconds: f64,
        travelled: fn(&Done) -> u64,
    ) -> Result<Value, String> {
        // What the walk before has left in memory is not measured.
        let lead = Slice { walk, threads, seconds: 0.0, accesses: (self.pages / 2).next_multiple_of(512) };
        self.worker(place)?.slice(&lead)?;
        let before = self.server_cpu();
        let accesses = if seconds > 0.0 { 0 } else { self.pages };
        let done = self.worker(place)?.slice(&Slice { walk, threads, seconds, accesses })?;
        let spent = self.spent(before, done.cpu_seconds, done.peak_kib);
        if done.ream.bytes_in + done.ream.bytes_out == 0 {
            return Err("nothing travelled; is this run paged by Ream?".into());
        }
        let gigabytes = (done.ream.bytes_in + done.ream.bytes_out) as f64 / 1e9;
        let rate = travelled(&done) as f64 / done.seconds / 1e6;
        let cpu = spent.map(|spent| (spent.client / gigabytes, spent.server / gigabytes));
        Ok(Value { rate, spent, cpu })
    }

    /// What was spent since the servers had used so much processor time.
    fn spent(&self, before: f64, client: f64, peak_kib: u64) -> Option<Spent> {
        Some(Spent { client, server: self.server_cpu() - before, peak: peak_kib as f64 / 1024.0 })
    }

    /// Pages a second that had to be read.
    fn misses(&mut self, place: Place, threads: u64, seconds: f64) -> Result<Value, String> {
        let slice = Slice { walk: Walk::Random, threads, seconds, accesses: 0 };
        self.worker(place)?;
        let before = self.server_cpu();
        let done = self.worker(place)?.slice(&slice)?;
        let spent = self.spent(before, done.cpu_seconds, done.peak_kib);
        Ok(Value { rate: done.ream.refaults as f64 / done.seconds, spent, cpu: None })
    }

    /// What a program reads from the server a second, over the whole of its run, with a quarter of its data local.
    fn program_rate(&mut self, name: &str, rounds: u64) -> Result<Value, String> {
        let all = programs::all(self.options.quick);
        let program = all.iter().find(|program| program.name == name).ok_or("no such program")?.rounds(rounds);
        let run = self.program(&program, 2, Some(25), &[], &mut None)?;
        let rate = run.bytes.0.max(run.bytes.1) as f64 / run.whole / 1e6;
        Ok(Value { rate, spent: Some(run.spent), cpu: None })
    }
}

impl Over {
    fn place(self) -> Place {
        match self {
            Over::Capped | Over::Sealed => Place::Sealed,
            Over::Clear => Place::Clear,
        }
    }

    fn at_random(self) -> Place {
        match self {
            Over::Capped | Over::Sealed => Place::SealedRandom,
            Over::Clear => Place::ClearRandom,
        }
    }
}

/// What a measurement came to, what it took, and the processor time a GB of program and server.
#[derive(Clone, Copy, Debug, Default)]
struct Value {
    rate: f64,
    spent: Option<Spent>,
    cpu: Option<(f64, f64)>,
}
