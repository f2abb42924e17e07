//! Settings of single programs: by which names a program goes, and the file, programs.toml beside the configuration file,
//! in which `ream compare --save` keeps what it found. The user's own configuration file is never written.

use crate::failure::{Failure, reason};
use crate::settings::Given;
use crate::settings::file::{self, Configuration};
use crate::{os, program};
use ream_options::Kind;
use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Name of the variable that names the file.
pub const VARIABLE: &str = "REAM_PROGRAMS";
/// Its name where no variable names it.
pub const NAME: &str = "programs.toml";

const HEADER: &str = "# Written by ream compare --save. Values may be changed here; comments are not kept.\n";

/// The names by which settings of a program are looked for: its path as found, its file with links resolved, then the
/// same of its interpreters, if it is a script.
pub fn names(name: Option<&OsString>, path: Option<&OsStr>) -> Vec<PathBuf> {
    let Some(found) = name.and_then(|name| program::find(name, path).ok()) else { return Vec::new() };
    let interpreters = program::interpreters(&found, path);
    let both = |file: &PathBuf| [std::path::absolute(file), file.canonicalize()];
    let mut names: Vec<PathBuf> = Vec::new();
    for name in std::iter::once(&found).chain(&interpreters).flat_map(both).flatten() {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Where settings of programs lie, if anywhere: the file that the variable names, or the one beside the configuration
/// file.
pub fn place(variable: Option<OsString>, configuration: Option<&Path>) -> Option<PathBuf> {
    match variable {
        Some(path) => Some(PathBuf::from(path)).filter(|path| !path.as_os_str().is_empty()),
        None => configuration.map(|file| file.with_file_name(NAME)),
    }
}

/// Reads the file; nothing is in one that is not there.
///
/// # Errors
/// It is there and cannot be read, or says what it may not.
pub fn read(path: &Path) -> Result<Configuration, Failure> {
    match std::fs::read_to_string(path) {
        Ok(text) => understand(path, &text),
        Err(_) if !path.exists() => Ok(Configuration::default()),
        Err(error) => Err(Failure::new(format!("{}: {}; mend it, or set {VARIABLE}=", path.display(), reason(&error)))),
    }
}

fn understand(path: &Path, text: &str) -> Result<Configuration, Failure> {
    let found = file::read(path, text)?;
    match found.general.first() {
        None => Ok(found),
        Some(given) => Err(Failure::new(format!(
            "{given}: belongs to no program; write it below [program.\"/usr/bin/NAME\"], or in config.toml"
        ))),
    }
}

/// Whether settings of a program could be saved in the file, as far as that shows before it is done. Nothing stays changed.
///
/// # Errors
/// Why not.
pub fn savable(path: &Path, program: &Path) -> Result<(), Failure> {
    name_of(program)?;
    read(path)?;
    let path = std::path::absolute(path).map_err(|error| refuse(path, &error))?;
    let directory = match path.canonicalize() {
        Ok(file) => {
            OpenOptions::new().read(true).write(true).open(&file).map_err(|error| refuse(&file, &error))?;
            file.parent().map(Path::to_owned)
        }
        // Directories that are not there are made in the next one that is.
        Err(_) => path.ancestors().skip(1).find(|directory| directory.exists()).map(Path::to_owned),
    };
    let directory = directory.unwrap_or_else(|| "/".into());
    // Only a file that is made tells for certain: root may write everywhere, and not on what is read-only.
    let tried = directory.join(format!(".{NAME}.{}", std::process::id()));
    match os::nameless_file(&directory, &tried) {
        Ok((_, named)) => {
            if named {
                let _ = std::fs::remove_file(&tried);
            }
            Ok(())
        }
        Err(error) => Err(refuse(&directory, &error)),
    }
}

fn refuse(what: &Path, error: &io::Error) -> Failure {
    Failure::new(format!("{}: {}; nothing was saved", what.display(), reason(error)))
}

/// A program as the file names it.
fn name_of(program: &Path) -> Result<&str, Failure> {
    let refuse = || Failure::new(format!("{}: not valid UTF-8; nothing was saved", program.display()));
    program.to_str().ok_or_else(refuse)
}

/// Writes settings of a program into the file in place of its earlier ones. The file is replaced whole and at once;
/// others that save at the same time wait for each other, so that nobody's settings are lost.
///
/// # Errors
/// What could not be written, or what the file holds already that cannot be understood.
pub fn save(path: &Path, program: &Path, settings: &[Given]) -> Result<(), Failure> {
    let program = name_of(program)?;
    if let Some(directory) = path.parent() {
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
        made.map_err(|error| refuse(directory, &error))?;
    }
    let mut file = locked(path).map_err(|error| refuse(path, &error))?;
    // What is replaced is the file itself, not a link to it.
    let path = path.canonicalize().map_err(|error| refuse(path, &error))?;
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(|error| refuse(&path, &error))?;
    let mut programs = understand(&path, &text)?.programs;
    programs.retain(|(name, _)| name != program);
    programs.push((program.to_owned(), settings.to_vec()));
    programs.sort_by(|one, other| one.0.cmp(&other.0));
    replace(&path, as_toml(&programs)?.as_bytes()).map_err(|error| refuse(&path, &error))
}

/// Opens the file, makes it if need be, and waits for its lock. Whoever had the lock may have put another file in its
/// place: then that one's lock is waited for.
fn locked(path: &Path) -> io::Result<File> {
    loop {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        os::wait_for_lock(&file)?;
        let (ours, named) = (file.metadata()?, std::fs::metadata(path));
        if named.is_ok_and(|named| (named.dev(), named.ino()) == (ours.dev(), ours.ino())) {
            return Ok(file);
        }
    }
}

/// Replaces a file, whose lock is held: whoever reads it sees the old text or the new one.
fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    // One name for all, since only one writes at a time: what was left of one that was killed is written over.
    let mut fresh = path.as_os_str().to_owned();
    fresh.push(".new");
    let fresh = PathBuf::from(fresh);
    let _ = std::fs::remove_file(&fresh);
    let written = (|| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh)?;
        file.write_all(text)?;
        file.sync_all()?;
        std::fs::rename(&fresh, path)
    })();
    if written.is_err() {
        let _ = std::fs::remove_file(&fresh);
    }
    written?;
    // From here on the new text is there; whether it outlasts a loss of power is up to the directory.
    let directory = path.parent().map(File::open);
    directory.map_or(Ok(()), |directory| directory?.sync_all())
}

fn as_toml(programs: &[(String, Vec<Given>)]) -> Result<String, Failure> {
    let mut text = HEADER.to_owned();
    for (program, settings) in programs {
        text += &format!("\n[program.{}]\n", quoted(program));
        let mut written = Vec::new();
        for Given { spec, .. } in settings {
            if written.contains(&spec.name) {
                continue;
            }
            written.push(spec.name);
            let same = || settings.iter().filter(|given| given.spec.name == spec.name);
            let values: Vec<String> = same().map(value).collect::<Result<_, _>>()?;
            text += &match (spec.kind, values.last()) {
                (Kind::Directories, _) => format!("{} = [{}]\n", spec.name, values.join(", ")),
                (_, Some(last)) => format!("{} = {last}\n", spec.name),
                (_, None) => String::new(),
            };
        }
    }
    Ok(text)
}

/// A value as the file holds it; paths are absolute there, since a program may be started anywhere.
fn value(given: &Given) -> Result<String, Failure> {
    let Some(text) = &given.text else { return Ok("true".to_owned()) };
    let text = match given.spec.kind {
        Kind::Directories => given.directory(text)?.into_os_string(),
        Kind::OptionalFile
            if !matches!(text.to_str(), Some("yes" | "no" | "true" | "false" | "on" | "off" | "1" | "0")) =>
        {
            given.path(text)?.into_os_string()
        }
        Kind::Log => match text.to_string_lossy().split_once(':') {
            Some((level, file)) => {
                let mut whole = OsString::from(format!("{level}:"));
                whole.push(given.path(OsStr::new(file))?);
                whole
            }
            None => text.clone(),
        },
        _ => text.clone(),
    };
    match text.to_str() {
        Some(text) => Ok(quoted(text)),
        None => Err(Failure::new(format!("{given}: not valid UTF-8; nothing was saved"))),
    }
}

/// A string of TOML.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => out.extend(['\\', letter]),
            letter if letter.is_control() => out += &format!("\\u{:04X}", letter as u32),
            letter => out.push(letter),
        }
    }
    out + "\""
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Settings, Source};
    use ream_options::find;
    use ream_options::pages::{HUGE, SMALL};
    use std::os::unix::fs::PermissionsExt;
    use std::sync::atomic::{AtomicU32, Ordering};

    struct Directory(PathBuf);

    impl Directory {
        fn new() -> Directory {
            static NUMBER: AtomicU32 = AtomicU32::new(0);
            let name = format!("ream-programs-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
            Directory(std::env::temp_dir().join(name))
        }
        fn names(&self) -> Vec<String> {
            let entries = std::fs::read_dir(&self.0).unwrap();
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn given(pairs: &[(&str, Option<&str>)]) -> Vec<Given> {
        let one = |(name, text): &(&str, Option<&str>)| Given {
            spec: find("run", name).unwrap(),
            source: Source::Flag,
            text: text.map(OsString::from),
        };
        pairs.iter().map(one).collect()
    }

    fn settled(path: &Path, program: &str) -> Settings {
        let files = vec![read(path).unwrap().of(&[program.into()])];
        Settings::settle("run", Vec::new(), &|_| None, files).unwrap()
    }

    #[test]
    fn what_is_saved_is_read_again() {
        let directory = Directory::new();
        let path = directory.0.join("deep/programs.toml");
        let first =
            [("pages", Some("huge")), ("memory", Some("25%")), ("store", Some("/a b")), ("store", Some("/\"c\\"))];
        save(&path, Path::new("/opt/o\"dd\\\u{7}é"), &given(&first)).unwrap();
        save(&path, Path::new("/bin/b"), &given(&[("no-exec-inherit", None), ("log", Some("info:x"))])).unwrap();
        save(&path, Path::new("/bin/b"), &given(&[("no-exec-inherit", None), ("summary", Some("y.json"))])).unwrap();
        let settings = settled(&path, "/opt/o\"dd\\\u{7}é");
        assert_eq!((settings.pages[0].size, settings.stores), (HUGE, vec!["/a b".into(), "/\"c\\".into()]));
        assert_eq!(settings.memory, ream_options::Memory::Percent(25_000));
        let settings = settled(&path, "/bin/b");
        assert!(!settings.exec_inherit && settings.log_file.is_none());
        let here = std::env::current_dir().unwrap().join("y.json");
        assert_eq!(settings.summary, crate::settings::Summary::File(here));
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn those_who_save_at_once_lose_nothing() {
        let directory = Directory::new();
        let path = directory.0.join("programs.toml");
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let path = &path;
                scope.spawn(move || {
                    for number in 0..10 {
                        let program = format!("/bin/p{thread}-{number}");
                        save(path, Path::new(&program), &given(&[("pages", Some("huge"))])).unwrap();
                    }
                });
            }
        });
        assert_eq!(read(&path).unwrap().programs.len(), 80);
        assert_eq!(directory.names(), ["programs.toml"]);
    }

    #[test]
    fn a_file_that_is_not_understood_is_left_as_it_is() {
        let directory = Directory::new();
        std::fs::create_dir(&directory.0).unwrap();
        let path = directory.0.join("programs.toml");
        for (text, message) in [
            ("[program.\"/a\"]\nmemroy = 1\n", "line 2: memroy: no such key; did you mean memory?"),
            ("pages = \"huge\"", "pages: belongs to no program; write it below [program."),
        ] {
            std::fs::write(&path, text).unwrap();
            for said in [read(&path).unwrap_err(), save(&path, Path::new("/b"), &[]).unwrap_err()] {
                assert!(said.text.starts_with(&format!("{}: {message}", path.display())), "{said}");
            }
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
    }

    #[test]
    fn whether_it_can_be_saved_is_known_beforehand() {
        let directory = Directory::new();
        let path = directory.0.join("deep/programs.toml");
        savable(&path, Path::new("/b")).unwrap();
        // Nothing was made to find that out.
        assert!(!directory.0.exists());
        std::fs::create_dir(&directory.0).unwrap();
        let refused = |path: &Path| savable(path, Path::new("/b")).unwrap_err().text;
        std::fs::write(directory.0.join("deep"), "garbage").unwrap();
        assert!(refused(&path).ends_with("deep: Not a directory; nothing was saved"), "{}", refused(&path));
        assert!(refused(&directory.0.join("deep")).contains("deep: line 1: "));
        // Where even root may write nothing.
        assert!(refused(Path::new("/proc/1/programs.toml")).ends_with("; nothing was saved"));
    }

    #[test]
    fn a_link_to_the_file_stays_one() {
        let directory = Directory::new();
        std::fs::create_dir(&directory.0).unwrap();
        let (path, real) = (directory.0.join("programs.toml"), directory.0.join("real.toml"));
        std::fs::write(&real, "").unwrap();
        std::os::unix::fs::symlink("real.toml", &path).unwrap();
        save(&path, Path::new("/b"), &given(&[("pages", Some("small"))])).unwrap();
        assert!(path.symlink_metadata().unwrap().is_symlink());
        assert_eq!(settled(&real, "/b").pages[0].size, SMALL);
    }

    #[test]
    fn scripts_go_by_their_own_name_first() {
        let directory = Directory::new();
        std::fs::create_dir(&directory.0).unwrap();
        let script = directory.0.join("script");
        std::fs::write(&script, "#!/usr/bin/env sh\n").unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        let link = directory.0.join("link");
        std::os::unix::fs::symlink("script", &link).unwrap();
        let names = names(Some(&link.clone().into()), Some(OsStr::new("/usr/bin:/bin")));
        assert_eq!(names[0], link);
        assert_eq!(names[1], script.canonicalize().unwrap());
        assert!(
            names[2].ends_with("sh") && names.last() == Path::new("/bin/sh").canonicalize().ok().as_ref(),
            "{names:?}"
        );
        let place = |variable: Option<&str>| place(variable.map(OsString::from), Some(Path::new("/x/config.toml")));
        assert_eq!(place(None), Some("/x/programs.toml".into()));
        assert_eq!((place(Some("")), place(Some("/y"))), (None, Some("/y".into())));
    }
}
