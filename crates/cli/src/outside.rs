//! Large pages for a program that no library can enter: what is asked of the tracer, and of the program's own C library.

use crate::failure::reason;
use crate::inject::{self, Plan};
use crate::os;
use ream_stats::{Config, Pages, Region};
use std::ffi::{OsStr, OsString};
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

const TUNABLES: &str = "GLIBC_TUNABLES";
const HEAP_TUNABLE: &[u8] = b"glibc.malloc.hugetlb";

/// Makes this process ready to become the program with pages of the size wanted. Returns a variable for it, and why it
/// has to run without, if so, in words that follow the reason above.
pub fn large_pages(target: &Target, pages: &Config) -> (Option<(OsString, OsString)>, Option<String>) {
    let [heap, data, stack] = [Region::Heap, Region::Static, Region::Stack].map(|region| pages.pages(region));
    if [heap, data, stack] == [Pages::Small; 3] {
        let refused = os::trace::refuse_large_pages();
        return (None, refused.err().map(|error| format!("large pages stay allowed: {}", reason(&error))));
    }
    let plan = Plan {
        program: target.program.clone(),
        pages: data.large() || stack.large(),
        whole_stack: stack == Pages::Huge,
        name: target.shown.clone(),
    };
    let obstacle = inject::arrange(&plan).err().map(|error| {
        let hint = match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => "; does a debugger run it, or kernel.yama.ptrace_scope forbid it?",
            _ => "",
        };
        let why = reason(&error);
        format!("cannot be traced for a moment ({why}), so its static data and stack keep small pages{hint}")
    });
    let tunables = tunables(std::env::var_os(TUNABLES).as_deref()).filter(|_| target.inherits && heap.large());
    (tunables.map(|value| (TUNABLES.into(), value)), obstacle)
}

/// The variable that has glibc advise its heap, which grows behind what is there when the program begins; `None` where
/// the user has decided on it.
fn tunables(before: Option<&OsStr>) -> Option<OsString> {
    let before = before.unwrap_or_default().as_bytes();
    let decided = |one: &[u8]| one.split(|byte| *byte == b'=').next() == Some(HEAP_TUNABLE);
    if before.split(|byte| *byte == b':').any(decided) {
        return None;
    }
    let mut value = before.to_vec();
    if !value.is_empty() {
        value.push(b':');
    }
    value.extend_from_slice(HEAP_TUNABLE);
    value.extend_from_slice(b"=1");
    Some(OsString::from_vec(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_user_decided_stays() {
        let of = |before: Option<&str>| tunables(before.map(OsStr::new)).map(|value| value.into_string().unwrap());
        assert_eq!(of(None).unwrap(), "glibc.malloc.hugetlb=1");
        assert_eq!(of(Some("")).unwrap(), "glibc.malloc.hugetlb=1");
        assert_eq!(of(Some("glibc.cpu.x=2")).unwrap(), "glibc.cpu.x=2:glibc.malloc.hugetlb=1");
        assert_eq!(of(Some("glibc.cpu.x=2:glibc.malloc.hugetlb=0")), None);
        assert_eq!(of(Some("glibc.malloc.hugetlb=2")), None);
    }
}
