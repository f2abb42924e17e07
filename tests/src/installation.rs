//! What is tested as it is installed: a scratch prefix in the build directory.

use crate::place::{ream_binary, tool};
use crate::skip;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A prefix that `make install` has filled.
pub struct Installation {
    prefix: PathBuf,
}

impl Installation {
    /// A new one; each test binary has its own, by its name.
    ///
    /// # Panics
    /// When `make install` fails.
    pub fn new(name: &str) -> Installation {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the project");
        let release = ream_binary();
        let target = release.ancestors().nth(2).expect("the build directory");
        let prefix = target.join("ream-tests").join(format!("prefix-{name}"));
        let _ = fs::remove_dir_all(&prefix);
        let mut make = Command::new("make");
        make.current_dir(root).arg("--silent").arg("install").arg(format!("PREFIX={}", prefix.display()));
        ran(make.env("CARGO_TARGET_DIR", target).env_remove("DESTDIR"));
        fs::create_dir(prefix.join("tests")).expect("a place for programs");
        Installation { prefix }
    }

    /// The prefix.
    pub fn prefix(&self) -> &Path {
        &self.prefix
    }

    /// Where a program of this name is compiled to.
    pub fn place(&self, name: &str) -> PathBuf {
        self.prefix.join("tests").join(name)
    }

    /// What pkg-config says of one of the packages; `None`, after saying so, where there is no pkg-config.
    pub fn flags(&self, package: &str, which: &[&str]) -> Option<Vec<String>> {
        let Some(pkg_config) = tool("pkg-config") else {
            skip(package, "no pkg-config");
            return None;
        };
        let mut command = Command::new(pkg_config);
        command.args(which).arg(package).env("PKG_CONFIG_PATH", self.prefix.join("lib/pkgconfig"));
        Some(ran(&mut command).split_whitespace().map(str::to_owned).collect())
    }
}

/// What a command prints that must succeed.
///
/// # Panics
/// When it does not.
pub fn ran(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}\n{errors}{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stdout).expect("text")
}
