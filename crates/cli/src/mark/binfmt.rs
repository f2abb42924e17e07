//! Whether this machine hands marked programs to Ream: its entry of binfmt_misc, which `ream setup` makes.

use crate::setup::binfmt::{DIRECTORY, NAME};
use std::path::Path;

pub use crate::setup::binfmt::HANDLER;

/// What to do where the machine does not hand marked programs to Ream yet; `None` where it does.
pub fn hint() -> Option<String> {
    let there = Path::new(DIRECTORY).join(NAME).exists();
    (!there).then(|| {
        "marked programs run as before until this machine has Ream's entry in binfmt_misc; as root: ream setup\n".into()
    })
}
