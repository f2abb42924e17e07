//! The program to run: where it is, and whether Ream can work in it.

use crate::elf::{Image, inspect};
use crate::failure::{Failure, NOT_EXECUTABLE, NOT_FOUND, reason};
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Finds a program as a shell would: a name with a slash is a path, any other is looked up in `path`.
///
/// # Errors
/// Status 127 when there is none, 126 when there is one that cannot be executed.
pub fn find(name: &OsStr, path: Option<&OsStr>) -> Result<PathBuf, Failure> {
    if name.as_bytes().contains(&b'/') {
        return usable(Path::new(name)).map(|()| PathBuf::from(name)).map_err(|error| refusal(name, &error));
    }
    let mut denied = None;
    // What the C library searches when nothing is said.
    let path = path.unwrap_or(OsStr::new("/bin:/usr/bin"));
    for directory in path.as_bytes().split(|b| *b == b':') {
        let directory = if directory.is_empty() { Path::new(".") } else { Path::new(OsStr::from_bytes(directory)) };
        let file = directory.join(name);
        match usable(&file) {
            Ok(()) if !name.is_empty() => return Ok(file),
            // A directory that may not be searched offers nothing; a program that may not be executed may be meant.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied && file.exists() => {
                denied.get_or_insert((file, error));
            }
            _ => {}
        }
    }
    Err(match denied {
        Some((file, error)) => refusal(file.as_os_str(), &error),
        None => Failure::new(format!("{}: not found in PATH; give its path, or install it", name.to_string_lossy()))
            .with_status(NOT_FOUND),
    })
}

fn usable(file: &Path) -> io::Result<()> {
    let metadata = std::fs::metadata(file)?;
    if metadata.is_dir() {
        return Err(io::Error::from_raw_os_error(libc::EISDIR));
    }
    match crate::os::may_execute(file) {
        true => Ok(()),
        false => Err(io::Error::from_raw_os_error(libc::EACCES)),
    }
}

/// The first directory on the way to a file that may not be searched, if that is why the file cannot be seen.
fn closed(name: &OsStr) -> Option<PathBuf> {
    let file = Path::new(name);
    let hidden = std::fs::metadata(file).is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied);
    let on_the_way = || file.ancestors().skip(1).filter(|directory| !directory.as_os_str().is_empty());
    let seen = |directory: &&Path| std::fs::metadata(directory).is_ok();
    // What can be seen itself and hides what is in it.
    if hidden { on_the_way().find(seen).map(Path::to_owned) } else { None }
}

/// Why a program cannot be executed, and the status that says so.
pub fn refusal(name: &OsStr, error: &io::Error) -> Failure {
    if let (Some(libc::EACCES), Some(directory)) = (error.raw_os_error(), closed(name)) {
        let (name, directory) = (name.to_string_lossy(), directory.display());
        let why = format!("this user may not search {directory}; name a program elsewhere, or run it as another user");
        return Failure::new(format!("{name}: cannot be executed: {}: {why}", reason(error)))
            .with_status(NOT_EXECUTABLE);
    }
    let (status, mend) = match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENOTDIR) => (NOT_FOUND, "; check its path"),
        Some(libc::EISDIR) => (NOT_EXECUTABLE, "; name a program in it"),
        Some(libc::EACCES) => (NOT_EXECUTABLE, "; chmod +x makes it executable"),
        Some(libc::ENOEXEC) => (NOT_EXECUTABLE, "; give a script its first line, such as #!/bin/sh"),
        Some(libc::E2BIG) => (NOT_EXECUTABLE, "; shorten the arguments or the environment"),
        _ => (NOT_EXECUTABLE, ""),
    };
    Failure::new(format!("{}: cannot be executed: {}{mend}", name.to_string_lossy(), reason(error))).with_status(status)
}

/// How far Ream reaches into a program that can be executed. Reasons are words that follow its name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reach {
    /// Its library can be loaded into it.
    Inside,
    /// Only from outside, before the program's first instruction.
    Outside {
        /// Why no further.
        why: String,
        /// The file that the kernel executes in the end.
        program: PathBuf,
        /// Whether programs that it starts can be entered from its environment.
        inherits: bool,
    },
    /// Not at all, and why.
    Not(String),
}

/// Who runs the program, as far as it matters to the dynamic linker.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    /// Effective user.
    pub user: u32,
    /// Effective group.
    pub group: u32,
}

/// A file that has a part in running a program: the program itself, or the interpreter of a script.
#[derive(Debug)]
pub struct Link {
    /// Its path.
    pub file: PathBuf,
    /// The same, opened.
    pub opened: File,
    /// What it is.
    pub image: Image,
}

/// The program `file` and, as long as that is a script, its interpreter, as the kernel follows them; the last one is what
/// is loaded. `path` is where names are looked up. Ends early where a file cannot be read.
pub fn chain(file: &Path, path: Option<&OsStr>) -> Vec<Link> {
    // The kernel follows as many interpreters.
    const MOST: usize = 5;
    let mut links = Vec::new();
    let mut next = Some(file.to_owned());
    while let (Some(file), true) = (next.take(), links.len() < MOST) {
        // A program that may be executed but not read is left to the kernel.
        let Ok(opened) = File::open(&file) else { break };
        let Ok(image) = inspect(&opened) else { break };
        if let Image::Script { interpreter, argument } = &image {
            next = match interpreter.file_name() == Some(OsStr::new("env")) {
                true => argument.as_ref().and_then(|words| env_program(words)).and_then(|name| find(&name, path).ok()),
                false => Some(interpreter.clone()),
            };
        }
        links.push(Link { file, opened, image });
    }
    links
}

/// How far Ream reaches into the program `file`; `path` is where names are looked up. A script is judged by its
/// interpreter.
pub fn reach(file: &Path, path: Option<&OsStr>, caller: Caller) -> Reach {
    judge(&chain(file, path), caller)
}

/// The same for a program that was followed already.
pub fn judge(links: &[Link], caller: Caller) -> Reach {
    for (number, link) in links.iter().enumerate() {
        let by = if number == 0 { String::new() } else { format!("its interpreter {} is ", link.file.display()) };
        if let Some(why) = link.opened.metadata().ok().and_then(|metadata| privileges(&link.file, &metadata, caller)) {
            return Reach::Not(format!("{by}{why}"));
        }
        let program = || link.file.clone();
        match &link.image {
            Image::Dynamic { linker } => {
                return match foreign_library(linker) {
                    None => Reach::Inside,
                    Some(why) => Reach::Outside { why: format!("{by}{why}"), program: program(), inherits: false },
                };
            }
            Image::Static { .. } => {
                return Reach::Outside { why: format!("{by}statically linked"), program: program(), inherits: true };
            }
            Image::Foreign => return Reach::Not(format!("{by}built for another processor or word size")),
            Image::Damaged | Image::Other => return Reach::Inside,
            Image::Script { .. } => {}
        }
    }
    Reach::Inside
}

/// Whether it is known what is executed in the end: not a file that cannot be read, or that another program is to open.
pub fn is_understood(file: &Path, path: Option<&OsStr>) -> bool {
    chain(file, path).last().is_some_and(|link| matches!(link.image, Image::Dynamic { .. } | Image::Static { .. }))
}

/// The interpreters of a script, in the order in which one runs the other; none for other programs.
pub fn interpreters(file: &Path, path: Option<&OsStr>) -> Vec<PathBuf> {
    chain(file, path).into_iter().skip(1).map(|link| link.file).collect()
}

/// The program that `env` would run, of its arguments in a script's first line.
fn env_program(words: &OsStr) -> Option<OsString> {
    words
        .as_bytes()
        .split(|b| b.is_ascii_whitespace())
        .find(|word| !word.is_empty() && !word.starts_with(b"-") && !word.contains(&b'='))
        .map(|word| OsStr::from_bytes(word).to_owned())
}

/// The dynamic linker ignores preloaded libraries in programs that gain privileges.
fn privileges(file: &Path, metadata: &Metadata, caller: Caller) -> Option<String> {
    let mode = metadata.permissions().mode();
    let changes = |bit, owner, own: u32| mode & bit != 0 && owner != own;
    if changes(libc::S_ISUID, metadata.uid(), caller.user) {
        return Some("set-user-id, which keeps libraries such as Ream's out; run it without Ream".into());
    }
    // Without group execute permission the bit means mandatory locking.
    if mode & libc::S_IXGRP != 0 && changes(libc::S_ISGID, metadata.gid(), caller.group) {
        return Some("set-group-id, which keeps libraries such as Ream's out; run it without Ream".into());
    }
    if caller.user != 0 && crate::os::has_capabilities(file) {
        return Some(format!(
            "given capabilities, which keeps libraries such as Ream's out; setcap -r {} takes them away",
            file.display()
        ));
    }
    None
}

/// Ream's library is made for one C library.
fn foreign_library(linker: &Path) -> Option<String> {
    const OWN: &[&str] = &["ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"];
    let name = linker.file_name().unwrap_or_default().to_string_lossy();
    if OWN.contains(&name.as_ref()) {
        return None;
    }
    let library = if name.starts_with("ld-musl") { "musl" } else { &name };
    Some(format!("built for another C library ({library}); Ream needs one built for glibc"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Scratch {
            let path = std::env::temp_dir().join(format!("ream-program-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Scratch(path)
        }
        fn file(&self, name: &str, bytes: &[u8], mode: u32) -> PathBuf {
            let path = self.0.join(name);
            fs::write(&path, bytes).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            path
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn ordinary() -> Caller {
        Caller { user: 12345, group: 12345 }
    }

    #[test]
    fn looks_along_the_path() {
        let scratch = Scratch::new("path");
        let (one, two) = (scratch.0.join("one"), scratch.0.join("two"));
        fs::create_dir_all(&one).unwrap();
        fs::create_dir_all(&two).unwrap();
        scratch.file("one/tool", b"#!/bin/sh\n", 0o644);
        scratch.file("two/tool", b"#!/bin/sh\n", 0o755);
        scratch.file("one/plain", b"", 0o644);
        let path = OsString::from(format!("{}:{}", one.display(), two.display()));
        assert_eq!(find("tool".as_ref(), Some(&path)).unwrap(), two.join("tool"));
        assert_eq!(find("plain".as_ref(), Some(&path)).unwrap_err().status, NOT_EXECUTABLE);
        assert_eq!(find("absent".as_ref(), Some(&path)).unwrap_err().status, NOT_FOUND);
        assert_eq!(find("".as_ref(), Some(&path)).unwrap_err().status, NOT_FOUND);
        assert_eq!(find("/".as_ref(), None).unwrap_err().status, NOT_EXECUTABLE);
        assert_eq!(find("/bin/sh/x".as_ref(), None).unwrap_err().status, NOT_FOUND);
        assert!(find("sh".as_ref(), None).is_ok());
    }

    /// Why Ream does not reach into a program, however far it does.
    fn obstacle(file: &Path, path: Option<&OsStr>, caller: Caller) -> Option<String> {
        match reach(file, path, caller) {
            Reach::Inside => None,
            Reach::Outside { why, .. } | Reach::Not(why) => Some(why),
        }
    }

    #[test]
    fn obstacles() {
        let scratch = Scratch::new("obstacles");
        let own = fs::read("/proc/self/exe").unwrap();
        let dynamic = scratch.file("dynamic", &own, 0o755);
        assert_eq!(obstacle(&dynamic, None, ordinary()), None);
        let musl = {
            let at = own.windows(9).position(|nine| nine == b"/ld-linux").expect("a glibc program");
            let mut bytes = own.clone();
            bytes[at..at + 9].copy_from_slice(b"/ld-musl-");
            scratch.file("musl", &bytes, 0o755)
        };
        assert!(obstacle(&musl, None, ordinary()).unwrap().contains("(musl)"));
        let owned = scratch.file("setuid", &own, 0o4755);
        assert!(obstacle(&owned, None, ordinary()).unwrap().starts_with("set-user-id"));
        let owner = fs::metadata(&owned).unwrap();
        let same = Caller { user: owner.uid(), group: owner.gid() };
        assert_eq!(obstacle(&owned, None, same), None);
        let grouped = scratch.file("setgid", &own, 0o2755);
        assert!(obstacle(&grouped, None, ordinary()).unwrap().starts_with("set-group-id"));
        let script = scratch.file("script", format!("#!{}\n", musl.display()).as_bytes(), 0o755);
        let why = obstacle(&script, None, ordinary()).unwrap();
        assert!(why.starts_with("its interpreter") && why.contains("(musl)"), "{why}");
        let by_env = scratch.file("by_env", b"#!/usr/bin/env -S A=1 musl -x\n", 0o755);
        let why = obstacle(&by_env, Some(scratch.0.as_os_str()), ordinary()).unwrap();
        assert!(why.contains("(musl)"), "{why}");
        assert_eq!(obstacle(Path::new("/bin/sh"), None, ordinary()), None);
        let odd = scratch.file("odd", b"MZ", 0o755);
        assert!(is_understood(&script, None) && !is_understood(&odd, None) && !is_understood(&scratch.0, None));
        // The program that is executed in the end, and whose libraries its children get.
        let Reach::Outside { program, inherits, .. } = reach(&script, None, ordinary()) else { panic!("{why}") };
        assert!(program == musl && !inherits);
    }

    /// A script that names itself does not keep ream busy.
    #[test]
    fn endless_interpreters() {
        let scratch = Scratch::new("endless");
        let path = scratch.0.join("self");
        let path = scratch.file("self", format!("#!{}\n", path.display()).as_bytes(), 0o755);
        assert_eq!(obstacle(&path, None, ordinary()), None);
    }
}
