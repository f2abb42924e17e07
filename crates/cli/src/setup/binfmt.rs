//! The entry of binfmt_misc through which marked binaries are started by Ream: its text, what the kernel shows of it,
//! and the program that it names.

use crate::mark::{MARK, MARK_OFFSET};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The entry's name: a file of this name appears in binfmt_misc.
pub const NAME: &str = "ream";
/// Where the kernel's entries are.
pub const DIRECTORY: &str = "/proc/sys/fs/binfmt_misc";
/// The file that systemd-binfmt and binfmt-support's users read at boot.
pub const BOOT_FILE: &str = "/etc/binfmt.d/60-ream.conf";
/// The program that the kernel starts for a marked binary.
pub const HANDLER: &str = "ream-handler";

/// `P`: the handler is told the program's own name, too. Not `F`, with which the kernel would keep an old handler after
/// Ream was replaced, beside a new library.
const FLAGS: &str = "P";
/// What follows the line of an entry that is switched off.
pub const OFF: &[u8] = b"\ndisabled";
/// Longest path of a handler that the kernel takes, in bytes.
const LONGEST: usize = 126;

/// The line that registers the handler, as the kernel and binfmt.d take it.
///
/// # Errors
/// Why the handler's path cannot be in such a line.
pub fn entry(handler: &Path) -> Result<String, String> {
    let refuse = |why: &str| Err(format!("{}: {why}", handler.display()));
    let Some(path) = handler.to_str() else { return refuse("not valid UTF-8, so no entry can name it") };
    if !handler.is_absolute() || path.contains([':', '\\', '\n']) {
        return refuse("no entry of binfmt_misc can name such a path");
    }
    if path.len() > LONGEST {
        return refuse("longer than the 126 characters that binfmt_misc takes");
    }
    Ok(format!(":{NAME}:M:{MARK_OFFSET}:{}:{}:{path}:{FLAGS}", bytes(&MARK), bytes(&[0xff; 4])))
}

fn bytes(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("\\x{byte:02x}")).collect()
}

/// Hexadecimal digits as bytes are written in an entry.
fn escaped(hex: &str) -> String {
    hex.as_bytes().chunks(2).map(|two| format!("\\x{}", String::from_utf8_lossy(two))).collect()
}

/// The line that registers what the kernel shows of an entry, so that it can be compared and restored; one that is
/// switched off has a second line that says so. `None` when the text is not understood.
pub fn of_kernel(name: &str, text: &str) -> Option<String> {
    let mut lines = text.lines();
    let enabled = lines.next()?;
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let interpreter = field("interpreter ")?;
    let flags = field("flags: ").unwrap_or("");
    let line = match field("extension .") {
        Some(extension) => format!(":{name}:E::{extension}::{interpreter}:{flags}"),
        None => {
            let offset = field("offset ")?;
            let magic = escaped(field("magic ")?);
            let mask = field("mask ").map(escaped).unwrap_or_default();
            format!(":{name}:M:{offset}:{magic}:{mask}:{interpreter}:{flags}")
        }
    };
    Some(if enabled == "enabled" { line } else { line + "\ndisabled" })
}

/// The handler that is installed with this command: beside it, or in ../lib/ream.
pub fn installed(command: &Path) -> Option<PathBuf> {
    let directory = command.parent()?;
    let places = [directory.parent()?.join("lib/ream").join(HANDLER), directory.join(HANDLER)];
    places.into_iter().find(|path| path.is_file())
}

/// Why this file must not be what the kernel starts for everybody: somebody else than root can change it.
pub fn untrusted(handler: &Path) -> Option<String> {
    const STICKY: u32 = 0o1000;
    // It may be a link to the command, and then both ways lead to what is started.
    let Ok(real) = handler.canonicalize() else { return Some(format!("{}: not found", handler.display())) };
    for path in handler.ancestors().chain(real.ancestors()) {
        let Ok(found) = path.metadata() else { return Some(format!("{}: not found", path.display())) };
        // In a sticky directory nobody can replace what belongs to root.
        let safe = found.mode() & 0o022 == 0 || (found.is_dir() && found.mode() & STICKY != 0);
        if found.uid() != 0 || !safe {
            return Some(format!("{}: can be changed by others than root", path.display()));
        }
    }
    None
}

/// Whether a file could be executed by the kernel for everybody.
pub fn executable(handler: &Path) -> bool {
    !handler.as_os_str().as_bytes().is_empty() && handler.metadata().is_ok_and(|found| found.mode() & 0o111 == 0o111)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_entry_and_what_the_kernel_makes_of_it() {
        let line = entry(Path::new("/usr/lib/ream/handler")).unwrap();
        assert_eq!(line, ":ream:M:48:\\x52\\x45\\x41\\x4d:\\xff\\xff\\xff\\xff:/usr/lib/ream/handler:P");
        let shown = "enabled\ninterpreter /usr/lib/ream/handler\nflags: P\noffset 48\nmagic 5245414d\nmask ffffffff\n";
        assert_eq!(of_kernel(NAME, shown).as_deref(), Some(line.as_str()));
        let off = of_kernel(NAME, &shown.replace("enabled", "disabled")).unwrap();
        assert_eq!(off, line + "\ndisabled");
    }

    #[test]
    fn other_entries_can_be_restored() {
        let java = "enabled\ninterpreter /usr/bin/java\nflags: \nextension .jar\n";
        assert_eq!(of_kernel("x", java).as_deref(), Some(":x:E::jar::/usr/bin/java:"));
        let plain = "enabled\ninterpreter /a\nflags: OC\noffset 0\nmagic 7f45\n";
        assert_eq!(of_kernel("y", plain).as_deref(), Some(":y:M:0:\\x7f\\x45::/a:OC"));
        assert_eq!(of_kernel("z", "odd"), None);
    }

    #[test]
    fn paths_that_no_entry_can_name() {
        assert!(entry(Path::new("/a:b")).is_err());
        assert!(entry(Path::new("relative")).is_err());
        assert!(entry(Path::new(&format!("/{}", "x".repeat(127)))).is_err());
    }

    #[test]
    fn only_what_root_alone_can_change_is_trusted() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let directory = std::env::temp_dir().join(format!("ream-binfmt-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let (file, link) = (directory.join("handler"), directory.join("link"));
        std::fs::write(&file, "").unwrap();
        symlink(&file, &link).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o777)).unwrap();
        let found = (untrusted(&file), untrusted(&link), untrusted(&directory.join("none")), executable(&file));
        std::fs::remove_dir_all(&directory).unwrap();
        assert!(found.0.is_some_and(|why| why.contains("others than root")));
        assert!(found.1.is_some() && found.2.is_some_and(|why| why.contains("not found")) && found.3);
        assert_eq!(untrusted(Path::new("/bin/sh")), None);
    }
}
