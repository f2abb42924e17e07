//! Whether this machine gives shared memory transparent large pages: the kernel's general word, which System V segments,
//! memfd files and anonymous mappings go by, that by size, and the options with which /dev/shm is mounted.

use crate::machine;
use crate::setup::SETUP;
use crate::tree::{Tree, chosen};
use std::path::Path;

const THP: &str = "/sys/kernel/mm/transparent_hugepage";

/// What keeps shared memory on small pages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Obstacle {
    /// What is so, to follow "shared memory".
    pub text: String,
    /// The command that mends it; empty where none does.
    pub mend: String,
}

impl Obstacle {
    fn new(text: impl Into<String>, mend: impl Into<String>) -> Obstacle {
        Obstacle { text: text.into(), mend: mend.into() }
    }
}

impl core::fmt::Display for Obstacle {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}", self.text)?;
        match self.mend.as_str() {
            "" => Ok(()),
            mend => write!(f, "; as root: {}", mend.trim_start_matches("sudo ")),
        }
    }
}

/// The file with the general word.
pub const GENERAL: &str = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";

fn word(tree: &Tree, file: &str) -> Option<String> {
    tree.setting(file).map(|text| chosen(&text).to_owned())
}

/// Why segments, memfd files and anonymous mappings get no large pages when a program asks; `None` where they do.
pub fn obstacle(tree: &Tree) -> Option<Obstacle> {
    match word(tree, GENERAL).as_deref() {
        None => return Some(Obstacle::new("this kernel has no large pages for shared memory", "")),
        Some("never") => {
            return Some(Obstacle::new("large pages are off for shared memory (shmem_enabled never)", SETUP));
        }
        Some("deny") => {
            let text = "large pages are forbidden for shared memory (shmem_enabled deny)";
            return Some(Obstacle::new(text, format!("echo advise > {GENERAL}")));
        }
        Some(_) => {}
    }
    let file = format!("{THP}/hugepages-2048kB/shmem_enabled");
    (word(tree, &file).as_deref() == Some("never")).then(|| {
        let text = "large pages are off for anonymous shared mappings (hugepages-2048kB/shmem_enabled never)";
        Obstacle::new(text, format!("echo inherit > {file}"))
    })
}

/// The same for files in /dev/shm, where [`obstacle`] finds nothing.
pub fn files_obstacle(tree: &Tree) -> Option<Obstacle> {
    const PLACE: &str = "/dev/shm";
    let options = machine::mount_options(tree.root(), Path::new(PLACE))?;
    let huge = options.split(',').find_map(|option| option.strip_prefix("huge=")).unwrap_or("never");
    (huge == "never" && word(tree, GENERAL).as_deref() != Some("force")).then(|| {
        let text = "files in /dev/shm get no large pages (it is mounted without huge=advise)";
        Obstacle::new(text, "mount -o remount,huge=advise /dev/shm")
    })
}
