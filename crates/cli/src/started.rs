//! `ream-start PAGES FILE NAME ARGUMENT...`: the command under the name by which libream.so starts a static program that a program
//! of a session executes, and, where pages were promised, every one that it may be unable to enter. It has the program's number
//! already, and becomes it, with large pages from outside.

use crate::failure::Failure;
use crate::program::{self, Reach};
use crate::{os, outside, run};
use ream_stats::{Config, Region};
use std::ffi::OsString;
use std::path::PathBuf;

/// The name under which the command starts a static program.
pub const NAME: &str = "ream-start";

/// Becomes the program. Returns only when that is not possible. PAGES are the sizes for heap, static data, stacks and shared
/// memory, and which regions must have them, as a session keeps them.
pub fn main(mut arguments: impl Iterator<Item = OsString>) -> Result<i32, Failure> {
    let refuse = || Failure::new(format!("{NAME}: for the library's use; see ream help run"));
    let mut pages = Config::new();
    let sizes = arguments.next().ok_or_else(refuse)?;
    let mut sizes = sizes.to_str().unwrap_or_default().split(',').map(str::parse::<u32>);
    for region in [Region::Heap, Region::Static, Region::Stack, Region::Shared] {
        pages.pages[region as usize] = sizes.next().and_then(Result::ok).ok_or_else(refuse)?;
    }
    pages.pages_required = sizes.next().and_then(Result::ok).ok_or_else(refuse)?;
    let file = PathBuf::from(arguments.next().ok_or_else(refuse)?);
    let rest: Vec<OsString> = arguments.collect();
    let name = rest.first().map(|name| name.to_string_lossy()).unwrap_or_default();
    let (user, group) = os::user_and_group();
    let path = std::env::var_os("PATH");
    let (why, program, inherits) = match program::reach(&file, path.as_deref(), program::Caller { user, group }) {
        Reach::Outside { why, program, inherits } => (why, program, inherits),
        Reach::Not(why) if pages.promises_pages() => {
            return Err(Failure::new(format!("{name}: {why}; --pages says which pages it must have")));
        }
        // Nothing is to be done here for those that the library enters, or nothing can be.
        Reach::Inside | Reach::Not(_) => return Err(run::become_program(&file, &rest, run::environment(Vec::new()))),
    };
    let target = outside::Target { file: &file, arguments: &rest, why, program, inherits, shown: None };
    let (variable, obstacle) = outside::large_pages(&target, &pages)?;
    if let Some(line) = obstacle {
        os::say(&Failure::new(line).to_string());
    }
    Err(run::become_program(&file, &rest, run::environment(variable.into_iter().chain([outside::mark()]).collect())))
}
