//! A program's code on large pages, without a copy of it in each process and with its symbols intact: before ream becomes
//! the program, the file's whole blocks are brought into the page cache as large pages, which the kernel then maps into
//! this and every later process. So are those of the libraries that it will load.

mod blocks;
mod copy;
pub mod libraries;
mod warm;
mod why;

use crate::elf::{Image, Layout};
use crate::failure::Failure;
use crate::machine::Machine;
use crate::os::{self, BLOCK};
use crate::program;
pub use blocks::{Base, Blocks, code_bytes};
pub use libraries::{Library, closure};
use ream_options::PageChoice;
use ream_options::pages::{HUGE, SMALL};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
pub use warm::{Effort, Warmth, warm};
pub use why::Why;

/// What is wished for the code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wish {
    /// Small pages.
    Never,
    /// Large pages where they cost nothing worth speaking of.
    Auto,
    /// Large pages, by an aligned copy of the program too; where they are not to be had that is said, or the program is
    /// not started.
    Huge {
        /// Not started.
        required: bool,
    },
}

impl Wish {
    /// What `--pages` says of the code.
    pub fn of(choice: PageChoice) -> Wish {
        match choice.size {
            SMALL => Wish::Never,
            HUGE => Wish::Huge { required: choice.required },
            _ => Wish::Auto,
        }
    }
    /// How much may be done for it.
    fn effort(self) -> Effort {
        let (blocks, milliseconds, insist) = match self {
            Wish::Never => (0, 0, false),
            Wish::Auto => (128, 500, false),
            Wish::Huge { .. } => (1024, 20_000, true),
        };
        // Not more than an eighth of what is free: the cache shall not push out what is in use.
        let free = Machine::look().map_or(0, |machine| machine.automatic());
        Effort {
            blocks: blocks.min((free / 8) as usize / BLOCK),
            deadline: Instant::now() + Duration::from_millis(milliseconds),
            insist,
            trial: false,
        }
    }
}

/// How much of a file's code and read-only data lies on large pages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Coverage {
    /// The file.
    pub path: PathBuf,
    /// Its whole blocks of 2 MiB.
    pub blocks: usize,
    /// Of those, on large pages.
    pub large: usize,
    /// Why the others are not, or why there are none.
    pub why: Option<Why>,
}

impl Coverage {
    /// One line about it.
    pub fn line(&self) -> String {
        let why = self.why.as_ref().map_or_else(String::new, |why| format!(": {why}"));
        match (self.blocks, self.large) {
            (_, 0) => format!("code: {}: on small pages{why}", self.path.display()),
            (blocks, large) => {
                format!("code: {}: {large} of {blocks} blocks of 2 MiB on large pages{why}", self.path.display())
            }
        }
    }
}

/// What was done.
#[derive(Debug)]
pub struct Outcome {
    /// The file to execute: the program, or its aligned copy.
    pub file: PathBuf,
    /// The program's, or the interpreter's of a script; `None` where nothing was wished, or it is no program of this
    /// machine.
    pub program: Option<Coverage>,
    /// Those of its libraries that hold whole blocks.
    pub libraries: Vec<Coverage>,
}

impl Outcome {
    /// Why the wish was not granted, in one line; `None` where it was, or where nobody insisted.
    pub fn short(&self, wish: Wish) -> Option<String> {
        let program = self.program.as_ref()?;
        (matches!(wish, Wish::Huge { .. }) && (program.blocks == 0 || program.large < program.blocks))
            .then(|| program.line())
    }

    /// Lines on what lies where.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        self.program.iter().chain(&self.libraries).map(Coverage::line)
    }
}

/// Makes the code of the program `file` ready, as far as it is wished; `path` is where names are looked up.
///
/// # Errors
/// Large pages were required and are not to be had.
pub fn prepare(file: &Path, path: Option<&OsStr>, wish: Wish) -> Result<Outcome, Failure> {
    let variable = |name: &str| std::env::var_os(name);
    let outcome = prepared(file, path, wish, &variable);
    match (wish, outcome.short(wish)) {
        (Wish::Huge { required: true }, Some(line)) => Err(Failure::new(line)),
        _ => Ok(outcome),
    }
}

fn prepared(file: &Path, path: Option<&OsStr>, wish: Wish, variable: &dyn Fn(&str) -> Option<OsString>) -> Outcome {
    let mut outcome = Outcome { file: file.to_owned(), program: None, libraries: Vec::new() };
    if wish == Wish::Never {
        return outcome;
    }
    let links = program::chain(file, path);
    let Some(link) = links.last().filter(|link| matches!(link.image, Image::Dynamic { .. } | Image::Static { .. }))
    else {
        return outcome;
    };
    let Some(layout) = Layout::read(&link.opened) else { return outcome };
    let libraries = candidates(closure(&link.file, &layout, None, variable("LD_LIBRARY_PATH").as_deref()));
    let (offsets, mut why) = expected(&layout);
    let needs_copy = why == Some(Why::AnyPage);
    if libraries.is_empty() && (offsets.is_empty() || (needs_copy && wish == Wish::Auto)) {
        outcome.program = Some(Coverage { path: link.file.clone(), blocks: offsets.len(), large: 0, why });
        return outcome;
    }
    let mut effort = wish.effort();
    let mut target = link.opened.try_clone().map_err(|error| Why::Failed(error.to_string()));
    if let (true, Wish::Huge { required }) = (needs_copy, wish) {
        let made = copy_of(&links, &layout, required, variable);
        target = made.map(|copy| {
            outcome.file = copy.path;
            copy.file
        });
        why = None;
    }
    let large = match target {
        Ok(target) if why.is_none() => {
            let warmth = warm(&target, &offsets, &mut effort);
            why = warmth.why;
            warmth.large
        }
        Ok(_) => 0,
        Err(reason) => {
            why = Some(reason);
            0
        }
    };
    outcome.program = Some(Coverage { path: link.file.clone(), blocks: offsets.len(), large, why });
    for (library, offsets) in libraries {
        let Warmth { large, why } = warm(&library.file, &offsets, &mut effort);
        outcome.libraries.push(Coverage { path: library.path, blocks: offsets.len(), large, why });
    }
    outcome
}

/// The blocks that a program's file holds, and why they cannot lie on large pages as it is.
pub fn expected(layout: &Layout) -> (Vec<u64>, Option<Why>) {
    let blocks = Blocks::of(layout);
    let why = match (blocks.code.is_empty(), blocks.displaced, Base::of_program(layout)) {
        (true, true, _) => Some(Why::Displaced),
        (true, false, _) => Some(Why::NoBlock(code_bytes(layout))),
        (false, _, Base::AnyPage) => Some(Why::AnyPage),
        (false, _, Base::Blocks) => None,
    };
    match why {
        // Read-only data alone are worth it, too.
        Some(Why::Displaced | Why::NoBlock(_)) if Base::of_program(layout) == Base::Blocks => {
            let offsets = blocks.all();
            let why = why.filter(|_| offsets.is_empty());
            (offsets, why)
        }
        Some(Why::Displaced | Why::NoBlock(_)) => (Vec::new(), why),
        _ => (blocks.all(), why),
    }
}

/// Those libraries that are loaded at a block and hold whole ones, and these.
pub fn candidates(libraries: Vec<Library>) -> Vec<(Library, Vec<u64>)> {
    let with_blocks = libraries.into_iter().filter_map(|library| {
        let offsets = Blocks::of(&library.layout).all();
        let aligned = || library.layout.align() >= BLOCK as u64;
        // Where the dynamic linker leaves its place to the kernel, some file systems choose a block.
        let placed = || os::begins_at_a_block(&library.file, library.layout.span());
        (!offsets.is_empty() && (aligned() || placed())).then_some((library, offsets))
    });
    with_blocks.collect()
}

/// An aligned copy of a program, if it may be run in its stead.
fn copy_of(
    links: &[program::Link],
    layout: &Layout,
    required: bool,
    variable: &dyn Fn(&str) -> Option<OsString>,
) -> Result<copy::Copy, Why> {
    let link = copied(links, layout, required, variable)?;
    copy::directory(variable)
        .and_then(|cache| copy::aligned(&link.file, &link.opened, layout, &cache))
        .map_err(|why| no_copy(&why))
}

fn no_copy(why: &str) -> Why {
    Why::NoCopy(format!("it is loaded at any page (PIE), and {why}"))
}

/// What a copy would be made of, if one may be run in its stead.
fn copied<'a>(
    links: &'a [program::Link],
    layout: &Layout,
    required: bool,
    variable: &dyn Fn(&str) -> Option<OsString>,
) -> Result<&'a program::Link, Why> {
    let [link] = links else { return Err(no_copy("no copy can take the place of a script's interpreter")) };
    if !may_be_copied(link) {
        return Err(no_copy("programs with rights of their own are not copied"));
    }
    if layout.searches_beside_itself() && !(required && finds_all_elsewhere(&link.file, layout, variable)) {
        return Err(no_copy("a copy would not find the libraries that it looks for beside itself ($ORIGIN)"));
    }
    Ok(link)
}

/// The aligned copy that a run would use, before there is a run: where it lies, or would lie, and the copy where there is one
/// already. Nothing is made.
///
/// # Errors
/// Why there will be none.
pub fn copy_foreseen(
    links: &[program::Link],
    layout: &Layout,
    required: bool,
    variable: &dyn Fn(&str) -> Option<OsString>,
) -> Result<(PathBuf, Option<copy::Copy>), Why> {
    let link = copied(links, layout, required, variable)?;
    let cache = copy::directory(variable).map_err(|why| no_copy(&why))?;
    let copy = copy::existing(&link.file, &link.opened, layout, &cache).map_err(|why| no_copy(&why))?;
    Ok((cache, copy))
}

/// Whether a file has no rights that a copy would lack, or have wrongly.
fn may_be_copied(link: &program::Link) -> bool {
    const SET_ID: u32 = 0o6000;
    let mode = link.opened.metadata().map_or(SET_ID, |metadata| metadata.mode());
    mode & SET_ID == 0 && !os::has_capabilities(&link.file)
}

/// Whether a program finds the same libraries when it lies in a place where there are none.
fn finds_all_elsewhere(path: &Path, layout: &Layout, variable: &dyn Fn(&str) -> Option<OsString>) -> bool {
    let searched = variable("LD_LIBRARY_PATH");
    let found = |elsewhere: Option<&Path>| -> Vec<Option<PathBuf>> {
        let libraries = closure(path, layout, elsewhere, searched.as_deref());
        libraries.iter().map(|library| std::fs::canonicalize(&library.path).ok()).collect()
    };
    found(None) == found(Some(Path::new("/proc/self/fdinfo")))
}

/// What would come of a file's blocks, found out by one of them.
pub fn trial(file: &File, offsets: &[u64]) -> Warmth {
    let mut effort = Effort { trial: true, ..Wish::Auto.effort() };
    warm(file, offsets, &mut effort)
}

#[cfg(test)]
mod tests;
