//! `ream-session PROCESS led|whole [OPTION...]`: the command under the name by which libream starts it for a program that begins a
//! session itself. Prints the session's address, or that the machine lets nobody page so: `whole` says that the library
//! needs a whole userfaultfd, `led` that it does with one for the process's own accesses.

use crate::failure::Failure;
use crate::{arguments, print, run, settle_for};
use std::ffi::OsString;

/// The name under which the command begins a session.
pub const NAME: &str = "ream-session";

/// Not permitted.
const EPERM: i32 = 1;

/// Begins a session for the process that the first argument names; those from the third on are options of `ream run`.
pub fn main(mut arguments: impl Iterator<Item = OsString>) -> Result<i32, Failure> {
    let process = arguments.next().and_then(|word| word.to_str()?.parse().ok());
    let process = process.filter(|process| *process == std::os::unix::process::parent_id());
    let process = process.ok_or_else(|| Failure::new(format!("{NAME}: for the library's use; see ream help run")))?;
    let led = arguments.next().is_some_and(|word| word == "led");
    let flags = arguments::parse(std::iter::once("run".into()).chain(arguments))?.flags;
    let settings = settle_for(None, flags, Vec::new())?;
    let engine = run::engine_within(&settings, led).inspect_err(|_| _ = print(&format!("REAM_REFUSED={EPERM}\n")))?;
    let session = run::begin_session(process, &settings, engine)?;
    print(&format!("REAM_SESSION={session}\n"))
}
