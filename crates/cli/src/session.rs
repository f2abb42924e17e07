//! `ream-session PROCESS [OPTION...]`: the command under the name by which libream starts it for a program that begins a
//! session itself. Prints the session's address.

use crate::failure::Failure;
use crate::{arguments, print, run, settle_for};
use std::ffi::OsString;

/// The name under which the command begins a session.
pub const NAME: &str = "ream-session";

/// Begins a session for the process that the first argument names; the others are options of `ream run`.
pub fn main(mut arguments: impl Iterator<Item = OsString>) -> Result<i32, Failure> {
    let process = arguments.next().and_then(|word| word.to_str()?.parse().ok());
    let process = process.filter(|process| *process == std::os::unix::process::parent_id());
    let process = process.ok_or_else(|| Failure::new(format!("{NAME}: for the library's use; see ream help run")))?;
    let flags = arguments::parse(std::iter::once("run".into()).chain(arguments))?.flags;
    let session = run::begin_session(process, &settle_for(None, flags, Vec::new())?)?;
    print(&format!("REAM_SESSION={session}\n"))
}
