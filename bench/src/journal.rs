//! What a benchmark changes of the machine, noted down before it is changed, so that it is put right again however the
//! benchmark ends: by itself; by a keeper, which waits for the benchmark's end; or, if both are killed, at the next start.
//! Only root changes anything, so only root has a journal.

use crate::{swap, zram};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Where root's journal is; gone after a boot, as what it speaks of is.
const PLACE: &str = "/run/ream-bench";

/// A change.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Change {
    /// A setting of the kernel: its file, what it was, what it is now.
    Setting(PathBuf, String, String),
    /// Swap was set up beside stores in this directory, which holds a note of its own.
    Swap(PathBuf),
    /// A device of compressed memory with this number.
    Zram(u32),
}

impl Change {
    fn line(&self) -> String {
        match self {
            Change::Setting(file, before, now) => format!("setting\t{}\t{before}\t{now}\n", file.display()),
            Change::Swap(directory) => format!("swap\t{}\n", directory.display()),
            Change::Zram(number) => format!("zram\t{number}\n"),
        }
    }

    fn read(line: &str) -> Option<Change> {
        match *line.split('\t').collect::<Vec<_>>().as_slice() {
            ["setting", file, before, now] => Some(Change::Setting(file.into(), before.into(), now.into())),
            ["zram", number] => number.parse().ok().map(Change::Zram),
            ["swap", directory] => Some(Change::Swap(directory.into())),
            _ => None,
        }
    }

    /// Puts it right. What somebody else has changed since stays.
    fn undo(&self) {
        match self {
            Change::Setting(file, before, now) if setting(file).as_ref() == Ok(now) => {
                if let Err(error) = fs::write(file, before) {
                    eprintln!("ream: bench: {}: {error}; write {before} there", file.display());
                }
            }
            Change::Setting(..) => {}
            Change::Swap(directory) => swap::clean(directory),
            Change::Zram(number) => zram::remove(*number),
        }
    }
}

/// What a setting is: all of its file, or the word in brackets where it lists what it could be.
fn setting(file: &Path) -> Result<String, String> {
    let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let chosen = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    Ok(chosen.map_or(text.trim(), |(chosen, _)| chosen).to_owned())
}

/// The journal of a benchmark that runs. Everything is put right when it is dropped.
pub struct Journal {
    place: PathBuf,
    changes: Vec<Change>,
    _lock: File,
    keeper: Option<Child>,
}

impl Journal {
    /// Root's, after what a killed benchmark has left was put right. `keeper` is the program that puts things right when
    /// this process is killed.
    ///
    /// # Errors
    /// Another benchmark is running, or there is no place for it.
    pub fn open(keeper: &Path) -> Result<Journal, String> {
        let mut journal = Journal::at(Path::new(PLACE))?;
        let mut command = Command::new(keeper);
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        command.arg("keep-journal").stdin(Stdio::piped()).stdout(Stdio::null());
        journal.keeper = Some(command.spawn().map_err(|error| format!("{}: {error}", keeper.display()))?);
        Ok(journal)
    }

    fn at(place: &Path) -> Result<Journal, String> {
        let lock = lock(place, false).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => "another ream bench is running; wait for its end".to_owned(),
            _ => format!("{}: {error}", place.display()),
        })?;
        undo_all(place);
        Ok(Journal { place: place.to_owned(), changes: Vec::new(), _lock: lock, keeper: None })
    }

    /// Changes a setting of the kernel until [`Journal::restore`].
    ///
    /// # Errors
    /// It cannot be read or written.
    pub fn change(&mut self, file: &Path, value: &str) -> Result<(), String> {
        let before = setting(file)?;
        if before == value {
            return Ok(());
        }
        self.note(Change::Setting(file.to_owned(), before, value.to_owned()))?;
        fs::write(file, value).map_err(|error| format!("{}: {error}", file.display()))
    }

    /// Notes that swap is about to be set up beside stores in this directory.
    ///
    /// # Errors
    /// The journal cannot be written.
    pub fn swap(&mut self, directory: &Path) -> Result<(), String> {
        self.note(Change::Swap(directory.to_owned()))
    }

    /// Makes a device of compressed memory the first swap, until [`Journal::no_zram`].
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn zram(&mut self, bytes: u64) -> Result<(), String> {
        let number = zram::add()?;
        self.note(Change::Zram(number))?;
        zram::on(number, bytes).inspect_err(|_| self.no_zram())
    }

    /// Takes such devices down.
    pub fn no_zram(&mut self) {
        while let Some(place) = self.changes.iter().rposition(|change| matches!(change, Change::Zram(_))) {
            self.changes[place].undo();
            self.changes.remove(place);
        }
        let _ = self.save();
    }

    /// Puts a setting back.
    pub fn restore(&mut self, file: &Path) {
        let is = |change: &Change| matches!(change, Change::Setting(path, ..) if path == file);
        while let Some(place) = self.changes.iter().rposition(is) {
            self.changes[place].undo();
            self.changes.remove(place);
        }
        let _ = self.save();
    }

    fn note(&mut self, change: Change) -> Result<(), String> {
        if !self.changes.contains(&change) {
            self.changes.push(change);
        }
        self.save().map_err(|error| format!("{}: {error}", self.place.display()))
    }

    fn save(&self) -> io::Result<()> {
        let (file, fresh) = (self.place.join("journal"), self.place.join("journal.new"));
        fs::write(&fresh, self.changes.iter().map(Change::line).collect::<String>())?;
        fs::rename(fresh, file)
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        undo_all(&self.place);
        if let Some(mut keeper) = self.keeper.take() {
            // It waits for the lock, finds nothing, and ends when this process has: nobody waits for it.
            drop(keeper.stdin.take());
        }
    }
}

/// Keeps others away that change the machine, after what a killed one has left was put right; nothing where we are not root.
///
/// # Errors
/// Another benchmark is running, or there is no place for the lock.
pub(crate) fn alone() -> Result<Option<Journal>, String> {
    crate::all::ground::is_root().then(|| Journal::at(Path::new(PLACE))).transpose()
}

/// Holds the lock of a place, which is made if need be.
fn lock(place: &Path, patient: bool) -> io::Result<File> {
    match fs::create_dir(place) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let file = File::options().create(true).truncate(false).write(true).open(place.join("lock"))?;
    // A keeper may hold it for the moment that it takes to put things right.
    for attempt in 0.. {
        let how = libc::LOCK_EX | if patient { 0 } else { libc::LOCK_NB };
        // SAFETY: a call on a descriptor of ours.
        if unsafe { libc::flock(file.as_raw_fd(), how) } == 0 {
            break;
        }
        let error = io::Error::last_os_error();
        match error.kind() {
            io::ErrorKind::Interrupted => {}
            io::ErrorKind::WouldBlock if attempt < 20 => std::thread::sleep(Duration::from_millis(100)),
            _ => return Err(error),
        }
    }
    Ok(file)
}

/// Puts everything right that a journal tells of; the caller holds its lock.
fn undo_all(place: &Path) {
    let file = place.join("journal");
    let text = fs::read_to_string(&file).unwrap_or_default();
    for change in text.lines().rev().filter_map(Change::read) {
        change.undo();
    }
    let _ = fs::remove_file(file);
}

/// The keeper: waits for the end of standard input, then puts everything right.
pub fn keep() {
    let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
    let place = Path::new(PLACE);
    if let Ok(_lock) = lock(place, true) {
        undo_all(place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(name: &str) -> PathBuf {
        let place = std::env::temp_dir().join(format!("ream-journal-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&place);
        fs::create_dir_all(&place).unwrap();
        place
    }

    #[test]
    fn settings_come_back_at_the_end_and_at_the_next_start() {
        let place = place("back");
        let file = place.join("enabled");
        fs::write(&file, "madvise\n").unwrap();
        let mut journal = Journal::at(&place).unwrap();
        journal.change(&file, "always").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "always");
        journal.restore(&file);
        assert_eq!(fs::read_to_string(&file).unwrap(), "madvise");
        journal.change(&file, "always").unwrap();
        drop(journal);
        assert_eq!(fs::read_to_string(&file).unwrap(), "madvise");
        // Killed: nothing is dropped.
        let mut journal = Journal::at(&place).unwrap();
        journal.change(&file, "never").unwrap();
        assert!(Journal::at(&place).is_err_and(|error| error.contains("another")), "the lock is held");
        let text = fs::read_to_string(place.join("journal")).unwrap();
        drop(journal);
        fs::write(place.join("journal"), text).unwrap();
        fs::write(&file, "never").unwrap();
        drop(Journal::at(&place).unwrap());
        assert_eq!(fs::read_to_string(&file).unwrap(), "madvise");
        fs::remove_dir_all(place).unwrap();
    }

    #[test]
    fn what_others_have_changed_since_stays() {
        let place = place("others");
        let file = place.join("enabled");
        fs::write(&file, "always [madvise] never\n").unwrap();
        assert_eq!(setting(&file), Ok("madvise".to_owned()));
        let mut journal = Journal::at(&place).unwrap();
        journal.change(&file, "always").unwrap();
        fs::write(&file, "never").unwrap();
        drop(journal);
        assert_eq!(fs::read_to_string(&file).unwrap(), "never");
        fs::remove_dir_all(place).unwrap();
    }

    #[test]
    fn lines_are_read_as_they_were_written() {
        for change in
            [Change::Setting("/a b".into(), "x".into(), "y".into()), Change::Swap("/var".into()), Change::Zram(7)]
        {
            assert_eq!(Change::read(change.line().trim_end_matches('\n')), Some(change));
        }
        assert_eq!(Change::read("format\tdisk"), None);
    }
}
