//! Where things are: the command under test, tools of the machine, and directories of a test's own.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// The build directory's root: the test binary is `<root>/<profile>/deps/<name>`.
pub fn build_root() -> PathBuf {
    let own = std::env::current_exe().expect("the path of the test binary");
    own.ancestors().nth(3).expect("the test binary lies in a build directory").to_path_buf()
}

/// The `ream` command: `REAM_BIN`, or the release build, or the debug build in the same build directory.
///
/// # Panics
/// When there is none.
pub fn ream_binary() -> PathBuf {
    if let Some(path) = std::env::var_os("REAM_BIN") {
        return path.into();
    }
    let root = build_root();
    let found = ["release/ream", "debug/ream"].map(|name| root.join(name)).into_iter().find(|path| path.is_file());
    found.unwrap_or_else(|| panic!("no ream command in {}: build it first (make), or set REAM_BIN", root.display()))
}

/// libream.so, which lies beside the command.
pub fn ream_library() -> PathBuf {
    ream_binary().with_file_name("libream.so")
}

/// libream_calls.so, which lies beside it.
pub fn ream_calls() -> PathBuf {
    ream_binary().with_file_name("libream_calls.so")
}

/// A file in `programs/`, for example `py/arrays.py`.
pub fn program(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs").join(name)
}

/// Whether the tests run as root.
pub fn is_root() -> bool {
    // SAFETY: geteuid has no preconditions; it is libc's only way to tell.
    unsafe { libc::geteuid() == 0 }
}

/// Whether the kernel is of this version or a later one.
pub fn kernel_is_at_least(major: u32, minor: u32) -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("the kernel's release");
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (major, minor)
}

/// The full path of a program, looked up in PATH and in the directories of system tools.
pub fn tool(name: &str) -> Option<PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin:/usr/bin:/bin";
    path.split(':').map(|directory| Path::new(directory).join(name)).find(|path| path.is_file())
}

/// Makes a file or directory readable and executable by everybody.
pub fn openable_by_all(path: &Path) {
    fs::set_permissions(path, Permissions::from_mode(0o755)).expect("setting permissions");
}

/// A directory of a test's own, removed with everything in it when dropped.
pub struct Scratch(PathBuf);

impl Scratch {
    /// Makes one on a real disk: inside `REAM_TEST_DIR`, or else the build directory.
    pub fn new(name: &str) -> Scratch {
        let base = std::env::var_os("REAM_TEST_DIR").map_or_else(|| build_root().join("ream-tests"), PathBuf::from);
        Scratch::within(&base, name)
    }

    /// Makes one that ordinary users reach, in `/var/tmp`.
    pub fn for_everybody(name: &str) -> Scratch {
        let scratch = Scratch::within(Path::new("/var/tmp"), &format!("ream-tests-{name}"));
        openable_by_all(&scratch.0);
        scratch
    }

    fn within(base: &Path, name: &str) -> Scratch {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = base.join(format!("{name}-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Scratch(path)
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The path of a file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Makes a directory in it.
    pub fn directory(&self, name: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::create_dir_all(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
