//! `ream mark` and `ream unmark`: programs that run under Ream whoever starts them. A mark is four bytes in a field of the
//! ELF header that nobody uses, and the options that go with it a block behind the end of the file.

pub mod binfmt;
mod files;
pub mod start;

use crate::elf::{Image, Layout, inspect};
use crate::failure::{Failure, reason, shown};
use crate::settings::{Given, Settings, Source};
use files::Place;
use std::ffi::OsString;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Where the mark lies: the header's `e_flags`, which neither the kernel nor ld.so reads on x86-64 and arm64.
pub const MARK_OFFSET: u64 = 48;
/// The mark.
pub const MARK: [u8; 4] = *b"REAM";
const UNUSED: [u8; 4] = [0; 4];

/// The block of options: this, `name=value` lines, zeros, and the end.
const TRAILER: usize = 512;
const TRAILER_START: &[u8] = b"\nream mark 1\n";
const TRAILER_END: &[u8] = b"REAMmark";
/// Options that a mark may hold: none that lets a program write where its user does not expect it.
const KEPT: [&str; 4] = ["memory", "pages", "prefault", "lock"];

/// What a file says of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Mark {
    /// Nothing.
    None,
    /// It is marked, with these options; `None` where a tool such as strip has dropped the block that held them.
    Marked(Option<Vec<(&'static str, String)>>),
    /// Something else uses the field.
    Other(u32),
}

/// Reads the mark of an ELF file of 64 bits.
pub fn read(file: &File) -> io::Result<Mark> {
    let mut header = [0; 64];
    file.read_exact_at(&mut header, 0)?;
    let flags = [header[48], header[49], header[50], header[51]];
    if !header.starts_with(b"\x7fELF") || header[4] != 2 {
        return Ok(Mark::None);
    }
    match flags {
        UNUSED => Ok(Mark::None),
        MARK => Ok(Mark::Marked(options(file)?)),
        other => Ok(Mark::Other(u32::from_ne_bytes(other))),
    }
}

fn options(file: &File) -> io::Result<Option<Vec<(&'static str, String)>>> {
    let Some(at) = file.metadata()?.len().checked_sub(TRAILER as u64) else { return Ok(None) };
    let mut block = [0; TRAILER];
    file.read_exact_at(&mut block, at)?;
    let Some(text) = block.strip_prefix(TRAILER_START).and_then(|rest| rest.strip_suffix(TRAILER_END)) else {
        return Ok(None);
    };
    let text = String::from_utf8_lossy(text);
    let pairs = text.trim_end_matches('\0').lines().filter_map(|line| line.split_once('='));
    let known =
        |(name, value): (&str, &str)| KEPT.iter().find(|kept| **kept == name).map(|kept| (*kept, value.to_owned()));
    Ok(Some(pairs.filter_map(known).collect()))
}

/// The block for these options; `None` where they do not fit.
fn trailer(options: &[(&'static str, String)]) -> Option<[u8; TRAILER]> {
    let lines: String = options.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
    let text = [TRAILER_START, lines.as_bytes()].concat();
    let mut block = [0; TRAILER];
    block[TRAILER - TRAILER_END.len()..].copy_from_slice(TRAILER_END);
    let room = &mut block[..TRAILER - TRAILER_END.len()];
    room.get_mut(..text.len())?.copy_from_slice(&text);
    Some(block)
}

/// The options of a marked file as `ream run` takes them; `None` when it is not marked, or may not be read.
pub fn given(path: &Path) -> Option<Vec<Given>> {
    let Ok(Mark::Marked(options)) = read(&File::open(path).ok()?) else { return None };
    let given = |(name, value): (&'static str, String)| {
        let spec = ream_options::find("run", name)?;
        Some(Given { spec, source: Source::Mark(path.to_owned()), text: Some(value.into()) })
    };
    Some(options.unwrap_or_default().into_iter().filter_map(given).collect())
}

/// A program to be marked or unmarked: symbolic links are followed.
struct Program {
    name: String,
    place: Place,
    file: File,
    metadata: Metadata,
    mark: Mark,
}

impl Program {
    fn open(name: &OsString) -> Result<Program, Failure> {
        let shown = shown(&name.to_string_lossy()).into_owned();
        let fail = |error: io::Error| Failure::new(format!("{shown}: {}; name a program's file", reason(&error)));
        let path = std::fs::canonicalize(name).map_err(fail)?;
        let refuse = |why: &str| Err(Failure::new(format!("{shown}: {why}")));
        let Some(place) = Place::held(&path).map_err(fail)? else {
            return refuse("its name cannot be extended; give it a shorter one");
        };
        let open = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(&place.path);
        let file = open.map_err(fail)?;
        let metadata = file.metadata().map_err(fail)?;
        if !metadata.is_file() {
            return refuse("not a file; name a program's file");
        }
        let mut kind = [0; 2];
        let image = inspect(&file).map_err(fail)?;
        if let Image::Dynamic { .. } | Image::Static { .. } = image {
            file.read_exact_at(&mut kind, 16).map_err(fail)?;
        }
        // Programs at a fixed place, and movable ones.
        if !matches!(u16::from_ne_bytes(kind), 2 | 3) || metadata.permissions().mode() & 0o111 == 0 {
            return refuse("not an executable ELF program of this machine; mark the program that runs it");
        }
        let mark = read(&file).map_err(fail)?;
        Ok(Program { name: shown, place, file, metadata, mark })
    }

    fn fail(&self, what: &str, error: &io::Error) -> Failure {
        let hint = match error.raw_os_error() {
            Some(libc::EACCES | libc::EROFS | libc::EPERM) => "; a copy is written beside it: that needs its directory",
            _ => "",
        };
        Failure::new(format!("{}: {what}: {}{hint}", self.name, reason(error)))
    }

    /// What keeps it from being marked.
    fn obstacle(&self, settings: &Settings) -> Option<String> {
        if Layout::read(&self.file).is_some_and(|layout| layout.is_library()) {
            return Some("a shared library and no program; mark the programs that use it".into());
        }
        let mode = self.metadata.permissions().mode();
        if mode & (libc::S_ISUID | libc::S_ISGID) != 0 {
            return Some("set-user-id or set-group-id, which keeps Ream out; not marked".into());
        }
        if crate::os::has_capabilities(&self.place.path) {
            return Some("given capabilities, which keeps Ream out; not marked".into());
        }
        // The kernel would hand the handler to the handler.
        if std::fs::metadata("/proc/self/exe")
            .is_ok_and(|own| (own.dev(), own.ino()) == (self.metadata.dev(), self.metadata.ino()))
        {
            return Some("it is Ream itself; not marked".into());
        }
        if let Mark::Other(flags) = self.mark {
            return Some(format!("its header's e_flags are in use ({flags:#x}); not marked"));
        }
        let fixed = matches!(inspect(&self.file), Ok(Image::Static { .. }));
        (fixed && settings.memory_given.is_some())
            .then(|| "statically linked, so --memory cannot hold for it; mark it without".into())
    }
}

/// `ream mark`.
///
/// # Errors
/// Why the program stays as it is.
pub fn mark(flags: Vec<Given>, rest: &[OsString]) -> Result<(String, i32), Failure> {
    if flags.iter().any(|given| given.spec.name == "show") {
        return show(rest);
    }
    let [name] = rest else {
        return Err(Failure::new("mark: not one program given; write ream mark [OPTION]... PROGRAM"));
    };
    let settings = Settings::settle("mark", flags.clone(), &|_| None, Vec::new())?;
    let mut options: Vec<(&'static str, String)> = Vec::new();
    for kept in KEPT {
        if let Some(given) = flags.iter().rfind(|given| given.spec.name == kept) {
            let text = given.text.clone().unwrap_or_else(|| "yes".into());
            options.push((kept, text.to_string_lossy().into_owned()));
        }
    }
    let mut program = Program::open(name)?;
    if let Some(why) = program.obstacle(&settings) {
        return Err(Failure::new(format!("{}: {why}", program.name)));
    }
    if let Mark::Marked(before) = &program.mark {
        if before.as_ref() == Some(&options) && program.place.unmarked(&program.metadata, Some(&program.file)) {
            return Ok((format!("{}: already marked\n", program.name), 0));
        }
        take_away(&program)?;
        program = Program::open(name)?;
    }
    let Some(block) = trailer(&options) else { return Err(Failure::new("mark: options too long to be kept")) };
    let outcome = program.place.exchange_for_copy(&program.file, &program.metadata, &|copy| {
        copy.write_all_at(&block, program.metadata.len())?;
        copy.write_all_at(&MARK, MARK_OFFSET)
    });
    outcome.map_err(|error| program.fail("not marked", &error))?;
    let links = match program.metadata.nlink() {
        1 => "",
        _ => "; its other hard links are not",
    };
    let mut text = format!("{}: marked{links}\n", program.name);
    if let Some(hint) = binfmt::hint() {
        text += &hint;
    }
    Ok((text, 0))
}

/// `ream unmark`.
///
/// # Errors
/// Why the program stays as it is.
pub fn unmark(rest: &[OsString]) -> Result<(String, i32), Failure> {
    let [name] = rest else { return Err(Failure::new("unmark: not one program given; write ream unmark PROGRAM")) };
    let program = Program::open(name)?;
    match program.mark {
        Mark::Marked(_) => take_away(&program).map(|()| (format!("{}: unmarked\n", program.name), 0)),
        _ => Ok((format!("{}: not marked\n", program.name), 0)),
    }
}

fn take_away(program: &Program) -> Result<(), Failure> {
    let place = &program.place;
    let outcome = if place.unmarked(&program.metadata, Some(&program.file)) {
        place.put_back()
    } else {
        let bytes = match program.mark {
            Mark::Marked(Some(_)) => program.metadata.len() - TRAILER as u64,
            _ => program.metadata.len(),
        };
        place.replace_by_copy(&program.file, &program.metadata, &|copy| {
            copy.set_len(bytes)?;
            copy.write_all_at(&UNUSED, MARK_OFFSET)
        })
    };
    outcome.map_err(|error| program.fail("not unmarked", &error))
}

/// `ream mark --show`.
fn show(rest: &[OsString]) -> Result<(String, i32), Failure> {
    if rest.is_empty() {
        return Err(Failure::new("mark: no program given; write ream mark --show PROGRAM..."));
    }
    let (mut text, mut status) = (String::new(), 0);
    for name in rest {
        let program = match Program::open(name) {
            Ok(program) => program,
            // The others are to be seen all the same.
            Err(failure) => {
                status = 1;
                text += &format!("{}\n", shown(&failure.text));
                continue;
            }
        };
        let words = match &program.mark {
            Mark::Marked(options) => {
                let options: String =
                    options.iter().flatten().map(|(name, value)| format!(" --{name}={value}")).collect();
                let copy = match program.place.unmarked(&program.metadata, Some(&program.file)) {
                    true => "",
                    false => "; changed since, so it is copied to memory at each start (ream mark it again)",
                };
                format!("marked{options}{copy}")
            }
            _ => {
                status = 1;
                "not marked".to_owned()
            }
        };
        text += &format!("{}: {words}\n", program.name);
    }
    Ok((text, status))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_come_back() {
        let path = std::env::temp_dir().join(format!("ream-mark-{}", std::process::id()));
        let kept = vec![("memory", "4G".to_owned()), ("pages", "huge".to_owned())];
        let block = trailer(&kept).unwrap();
        let mut bytes = std::fs::read("/proc/self/exe").unwrap();
        let look = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            read(&File::open(&path).unwrap()).unwrap()
        };
        assert_eq!(look(&bytes), Mark::None);
        bytes[48..52].copy_from_slice(&MARK);
        assert_eq!(look(&bytes), Mark::Marked(None));
        bytes.extend(block);
        assert_eq!(look(&bytes), Mark::Marked(Some(kept)));
        bytes[48] = 1;
        assert!(matches!(look(&bytes), Mark::Other(_)));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(trailer(&[("memory", "1".repeat(500))]), None);
    }
}
