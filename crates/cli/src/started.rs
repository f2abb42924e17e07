//! `ream-start PAGES FILE NAME ARGUMENT...`: the command under the name by which libream.so starts a static program that a program
//! of a session executes. It has the program's number already, and becomes it, with large pages from outside.

use crate::failure::Failure;
use crate::{outside, run};
use ream_stats::{Config, Region};
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

/// The name under which the command starts a static program.
pub const NAME: &str = "ream-start";

/// Becomes the program. Returns only when that is not possible.
pub fn main(mut arguments: impl Iterator<Item = OsString>) -> Result<i32, Failure> {
    let refuse = || Failure::new(format!("{NAME}: for the library's use; see ream help run"));
    let mut pages = Config::new();
    let sizes = arguments.next().ok_or_else(refuse)?;
    let mut sizes = sizes.to_str().unwrap_or_default().split(',').map(str::parse::<u32>);
    for region in [Region::Heap, Region::Static, Region::Stack] {
        pages.pages[region as usize] = sizes.next().and_then(Result::ok).ok_or_else(refuse)?;
    }
    let file = PathBuf::from(arguments.next().ok_or_else(refuse)?);
    let rest: Vec<OsString> = arguments.collect();
    let name = rest.first().map(|name| name.to_string_lossy()).unwrap_or_default();
    let why = "statically linked".to_owned();
    let target =
        outside::Target { file: &file, arguments: &rest, why, program: file.clone(), inherits: true, shown: None };
    let (tunables, obstacle) = outside::large_pages(&target, &pages);
    if let Some(why) = obstacle {
        // Where standard error is closed there is nobody to tell.
        let _ = writeln!(std::io::stderr(), "ream: {name}: {}, and {why}", target.why);
    }
    Err(run::become_program(&file, &rest, run::environment(tunables.into_iter().collect())))
}
