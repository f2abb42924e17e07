//! What the tests of the command share: a directory of their own, and a run of `ream` that nothing outside changes.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory of a test's own on a real disk, removed when dropped.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new() -> Scratch {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("ream-cli-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let path = Path::new("/var/tmp").join(name);
        std::fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>, mode: u32) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, bytes).unwrap();
        ream_tests::make_runnable(&path, mode);
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A library that may be preloaded anywhere and does nothing: the C library, which is there already, under the names of
/// both of ours.
fn harmless_library() -> PathBuf {
    static PLACE: OnceLock<PathBuf> = OnceLock::new();
    let place = PLACE.get_or_init(|| {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let library = maps.split_whitespace().find(|word| word.contains("/libc.so")).expect("a C library");
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("harmless");
        std::fs::create_dir_all(&directory).unwrap();
        for name in ["libream.so", "libream_calls.so"] {
            let made = std::os::unix::fs::symlink(library, directory.join(name));
            assert!(made.is_ok() || directory.join(name).is_file(), "{made:?}");
        }
        directory
    });
    place.join("libream.so")
}

/// `ream` with these arguments, and none of the user's settings.
pub fn ream(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ream"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("REAM_")) {
        command.env_remove(name);
    }
    command.args(arguments).env("REAM_LIBRARY", harmless_library()).env("REAM_CONFIG", "");
    command.env("REAM_STORE", "/var/tmp").env("REAM_STORE_LIMIT", "64M").stdin(Stdio::null());
    command
}

/// Status, standard output, standard error. A signal counts as 1000 and its number.
pub fn ended(output: &Output) -> (i32, String, String) {
    use std::os::unix::process::ExitStatusExt;
    let status = output.status.code().unwrap_or_else(|| 1000 + output.status.signal().unwrap_or(0));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (status, text(&output.stdout), text(&output.stderr))
}

/// Runs `ream` with these arguments.
pub fn run(arguments: &[&str]) -> (i32, String, String) {
    ended(&ream(arguments).output().unwrap())
}

/// Fails unless `ream` ends with this status and says this one line.
#[track_caller]
pub fn refuses(arguments: &[&str], status: i32, line: &str) {
    let (code, out, err) = run(arguments);
    assert_eq!((code, out.as_str(), err.as_str()), (status, "", format!("{line}\n").as_str()), "{arguments:?}");
}
