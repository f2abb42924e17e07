//! Large pages for a program that no library can enter: what is asked of the tracer, and of the program's own C library.

use crate::failure::{Failure, reason};
use crate::inject::{self, Plan, Wish};
use crate::os::hook::wish;
use crate::run::{self, Log, enter_session, word};
use crate::settings::{Settings, Source};
use crate::{doctor, os, pages};
use ream_options::pages::{HUGETLB, SHM, SMALL, STACK};
use ream_options::{ENGINES, IO, PageChoice};
use ream_stats::tunables::{self, Decided};
use ream_stats::{Config, Lock, Pages, Region};
use ream_sys::process;
use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The program to run.
pub struct Target<'a> {
    /// What is to be executed.
    pub file: &'a Path,
    /// Its name and arguments.
    pub arguments: &'a [OsString],
    /// Why no library can enter it, in words that follow its name.
    pub why: String,
    /// The file that the kernel executes in the end: the interpreter of a script.
    pub program: PathBuf,
    /// Whether programs that it starts can be entered.
    pub inherits: bool,
    /// The name that ps is to show, where it is not that of the file.
    pub shown: Option<Vec<u8>>,
}

impl Target<'_> {
    fn name(&self) -> Cow<'_, str> {
        self.arguments.first().map(|name| name.to_string_lossy()).unwrap_or_default()
    }
}

/// The variable by which `ream status` knows such a program: its number. What that starts has another.
pub const PLACED: &str = "REAM_PLACED";

/// That variable for the program that this process becomes.
pub fn mark() -> (OsString, OsString) {
    (PLACED.into(), std::process::id().to_string().into())
}

/// Why such a program is not started.
pub const PROMISED: &str = "--pages says that it must have them";

const SHARED_STAYS: &str = "its shared memory keeps small pages";

/// Runs a program that no library can enter: large pages from outside, and a session for the programs that it starts.
pub fn run(settings: &Settings, pages: &Config, target: &Target, joins: bool, log: &Log) -> Failure {
    let name = target.name();
    let (asked, io) = (word(ENGINES, settings.engine), word(IO, settings.io));
    match &settings.memory_given {
        Some(given) if !matches!(given.source, Source::File(_) | Source::Program(..)) => {
            return Failure::new(format!("{name}: {}, so {given} cannot hold for it; run it without", target.why));
        }
        Some(given) => log.warn(&format!("{name}: {}, so this does not hold for it: {given}", target.why)),
        None if asked != "auto" || io != "auto" => {
            return Failure::new(format!("{name}: {}, so it cannot be paged; leave --engine and --io out", target.why));
        }
        None if !target.inherits && impossible(&target.program, target.inherits, pages).is_none() => {
            log.warn(&format!("{name}: {}; it gets large pages, and no more", target.why))
        }
        None => {}
    }
    let mut ours = Vec::new();
    if target.inherits && settings.exec_inherit && !joins {
        let session = doctor::engine::choose(asked, io)
            .map_err(|why| Failure::new(format!("cannot page here: {why}")))
            .and_then(|engine| enter_session(settings, pages, engine, target.file, log));
        match session {
            Ok(session) => ours = session,
            Err(failure) if pages.promises_pages() => return failure,
            Err(failure) => log.warn(&format!("{}; programs that {name} starts run without Ream", failure.text)),
        }
    }
    if settings.pages[..=STACK].iter().any(|choice: &PageChoice| choice.size >= HUGETLB && !choice.required) {
        let why = format!("{name}: {}, so it cannot have pages of a pool", target.why);
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
    if shared.size != SMALL && !shared.required {
        log.warn(&format!("{name}: {}, so {SHARED_STAYS}", target.why));
    }
    match large_pages(target, pages) {
        Ok((variable, obstacle)) => {
            ours.extend(variable.into_iter().chain([mark()]));
            obstacle.iter().for_each(|line| log.warn(line));
        }
        Err(failure) => return failure,
    }
    run::become_program(target.file, target.arguments, run::environment(ours))
}

/// A variable for the program, and the line that says what it does without.
pub type Made = (Option<(OsString, OsString)>, Option<String>);

/// Makes this process ready to become the program with pages of the size wanted. Returns a variable for it, and the line
/// that says what it has to run without, if so.
///
/// # Errors
/// It must not run without that.
pub fn large_pages(target: &Target, pages: &Config) -> Result<Made, Failure> {
    let title = format!("{}: {}", target.name(), target.why);
    let [heap, data, stack] = [Region::Heap, Region::Static, Region::Stack].map(|region| pages.pages(region));
    if let Some(why) = impossible(&target.program, target.inherits, pages) {
        return Err(Failure::new(format!("{title}, so {why}; {PROMISED}")));
    }
    if [heap, data, stack] == [Pages::Small; 3] {
        return match os::trace::refuse_large_pages() {
            Ok(()) => Ok((None, None)),
            Err(error) => unplaced(pages, &[Region::Heap, Region::Static, Region::Stack], || {
                format!("{title}, and large pages stay allowed: {}", reason(&error))
            }),
        };
    }
    let wish = |pages_: Pages, region| match (pages_.large(), pages.pages_required(region)) {
        (false, _) => Wish::Leave,
        (true, required) => Wish::Large { required },
    };
    let plan = Plan {
        program: target.program.clone(),
        data: wish(data, Region::Static),
        stack: wish(stack, Region::Stack),
        whole_stack: stack == Pages::Huge,
        hook: if target.inherits { hooked(heap, stack) } else { 0 },
        name: target.shown.clone(),
        title: title.clone(),
    };
    let variable = if target.inherits && heap.large() {
        told_malloc(heap == Pages::Huge && !process::untouched_memory_counts())
    } else {
        None
    };
    let concerned: Vec<_> = [(Region::Static, plan.data, "static data"), (Region::Stack, plan.stack, "stack")]
        .into_iter()
        .filter(|(_, wish, _)| *wish != Wish::Leave)
        .collect();
    if concerned.is_empty() && plan.name.is_none() && plan.hook == 0 {
        return Ok((variable, None));
    }
    let Err(error) = inject::arrange(&plan) else { return Ok((variable, None)) };
    if concerned.is_empty() {
        return Ok((variable, None));
    }
    let regions: Vec<_> = concerned.iter().map(|(region, ..)| *region).collect();
    let words: Vec<_> = concerned.iter().map(|(.., word)| *word).collect();
    let keep = if words == ["stack"] { "keeps" } else { "keep" };
    let hint = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => "; does a debugger run it, or kernel.yama.ptrace_scope forbid it?",
        _ => "",
    };
    let without = unplaced(pages, &regions, || {
        let why = reason(&error);
        let what = words.join(" and ");
        format!("{title}, and cannot be traced for a moment ({why}), so its {what} {keep} small pages{hint}")
    })?;
    Ok((variable, without.1))
}

/// What malloc is told by the environment, and what the user has decided by that.
fn decided() -> (OsString, Decided) {
    let before = std::env::var_os(tunables::VARIABLE).unwrap_or_default();
    let decided = tunables::decided(before.as_bytes(), |variable| std::env::var_os(variable).is_some());
    (before, decided)
}

/// What the program's own mprotect and mmap ask for, where it has glibc's and the kernel gives large pages to who asks.
fn hooked(heap: Pages, stack: Pages) -> u8 {
    if !pages::are_on() || os::large_pages_are_off() {
        return 0;
    }
    // Whoever has decided on large pages of the heap, or on what malloc maps piece by piece, has what he wants.
    let heap = match decided().1 {
        _ if !heap.large() => 0,
        Decided::All => 0,
        Decided::Sizes => wish::HEAP,
        Decided::Nothing => wish::HEAP | wish::PIECES,
    };
    let stack = match stack {
        Pages::Huge => wish::STACK | wish::WHOLE_STACK,
        stack if stack.large() => wish::STACK,
        _ => 0,
    };
    heap | stack
}

/// Nothing for the program, and the line that says what it does without: a failure where one of the regions must have it.
fn unplaced(pages: &Config, regions: &[Region], line: impl FnOnce() -> String) -> Result<Made, Failure> {
    match regions.iter().any(|region| pages.pages_required(*region)) {
        true => Err(Failure::new(line())),
        false => Ok((None, Some(line()))),
    }
}

/// What the program must have and cannot, from outside. `program` is the file that the kernel executes in the end, `inherits`
/// as with `heap_obstacle`.
pub fn impossible(program: &Path, inherits: bool, pages: &Config) -> Option<String> {
    let must = |region, of: fn(Pages) -> bool| pages.pages_required(region) && of(pages.pages(region));
    if [Region::Heap, Region::Static].into_iter().any(|region| must(region, Pages::pooled)) {
        return Some("it cannot have pages of a pool".to_owned());
    }
    if must(Region::Shared, Pages::large) {
        return Some(SHARED_STAYS.to_owned());
    }
    let any = [Region::Heap, Region::Static, Region::Stack].into_iter().any(|region| must(region, Pages::large));
    if any && os::large_pages_are_off() {
        return Some(format!("it keeps small pages: {}", pages::OFF));
    }
    let why = must(Region::Heap, Pages::large).then(|| heap_obstacle(program, inherits)).flatten()?;
    Some(format!("its heap keeps small pages: {why}"))
}

/// Why a program's own malloc does not get large pages; `inherits` where its C library is the one that Ream is made for.
pub fn heap_obstacle(program: &Path, inherits: bool) -> Option<&'static str> {
    let (before, decided) = decided();
    match () {
        () if !inherits => Some("nothing tells that library to use them"),
        () if decided == Decided::All && !decided_for_large(&before) => Some("GLIBC_TUNABLES says so"),
        () if holds(program, tunables::LARGE.as_bytes()).unwrap_or(false) => None,
        _ => Some("its malloc is not that of glibc 2.35 or later"),
    }
}

fn decided_for_large(before: &OsStr) -> bool {
    let text = [tunables::LARGE.as_bytes(), b"=1"].concat();
    before.as_bytes().split(|byte| *byte == b':').any(|one| one == text)
}

/// Whether a file holds these bytes.
fn holds(file: &Path, bytes: &[u8]) -> io::Result<bool> {
    const PIECE: usize = 1 << 20;
    let mut file = File::open(file)?;
    let mut text = Vec::with_capacity(PIECE + bytes.len());
    loop {
        // What may be the beginning of them stays.
        text.drain(..text.len().saturating_sub(bytes.len()));
        let read = file.by_ref().take(PIECE as u64).read_to_end(&mut text)?;
        if read == 0 || text.windows(bytes.len()).any(|part| part == bytes) {
            return Ok(read > 0);
        }
    }
}

/// The variable that has glibc advise its heap, which grows behind what is there when the program begins, and put more into
/// it; `None` where the user has decided on it.
fn told_malloc(whole: bool) -> Option<(OsString, OsString)> {
    let (before, decided) = decided();
    let added = tunables::added(decided, whole);
    let parts: Vec<_> = Some(before.as_bytes())
        .into_iter()
        .filter(|value| !value.is_empty())
        .chain(added.iter().map(|one| one.as_bytes()))
        .collect();
    (!added.is_empty()).then(|| (tunables::VARIABLE.into(), OsString::from_vec(parts.join(&b':'))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_malloc_is_told_by_the_names_of_its_tunables() {
        let path = std::env::temp_dir().join(format!("ream-outside-{}", std::process::id()));
        let name = tunables::LARGE.as_bytes();
        // At the end, across two pieces, and nowhere.
        for (before, found) in [(0, true), ((1 << 20) - 5, true), (3 << 20, true)] {
            std::fs::write(&path, [vec![0; before].as_slice(), name].concat()).unwrap();
            assert_eq!(holds(&path, name).unwrap(), found);
            assert!(!holds(&path, b"glibc.malloc.hugetlb2").unwrap());
        }
        std::fs::remove_file(&path).unwrap();
        assert!(holds(&path, name).is_err());
        assert!(decided_for_large(OsStr::new("a=1:glibc.malloc.hugetlb=1")));
        assert!(!decided_for_large(OsStr::new("glibc.malloc.hugetlb=0")) && !decided_for_large(OsStr::new("")));
    }
}
