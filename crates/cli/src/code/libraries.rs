//! The libraries that a program will load, found as the dynamic linker finds them. That serves to make their code ready;
//! one that is not found here (in a directory for a certain processor, say) is loaded none the worse.

use crate::elf::Layout;
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Libraries that are followed at most.
const MOST: usize = 128;
const CACHE: &str = "/etc/ld.so.cache";
#[cfg(target_arch = "x86_64")]
const DIRECTORIES: &str = "/lib/x86_64-linux-gnu:/usr/lib/x86_64-linux-gnu:/lib64:/usr/lib64:/lib:/usr/lib";
#[cfg(target_arch = "aarch64")]
const DIRECTORIES: &str = "/lib/aarch64-linux-gnu:/usr/lib/aarch64-linux-gnu:/lib64:/usr/lib64:/lib:/usr/lib";

/// A library.
#[derive(Debug)]
pub struct Library {
    /// Its path.
    pub path: PathBuf,
    /// The same, opened.
    pub file: File,
    /// How it is laid out.
    pub layout: Layout,
}

/// All libraries that the program at `path` needs, directly or through others. `elsewhere` is where it is thought to lie
/// instead, for `$ORIGIN`; `searched` is the environment's list of directories.
pub fn closure(path: &Path, layout: &Layout, elsewhere: Option<&Path>, searched: Option<&OsStr>) -> Vec<Library> {
    let cache = std::fs::read(CACHE).unwrap_or_default();
    let origin = |path: &Path| path.parent().map(Path::to_owned).unwrap_or_default();
    let own = elsewhere.map_or_else(|| origin(&std::fs::canonicalize(path).unwrap_or(path.into())), Path::to_owned);
    let mut known: HashSet<OsString> = HashSet::new();
    let mut libraries: Vec<Library> = Vec::new();
    let mut next = 0;
    let mut wanted: Vec<(OsString, Search)> = Vec::new();
    let root = Search::of(layout, own, None);
    wanted.extend(layout.needed.iter().map(|name| (name.clone(), root.clone())));
    while let Some((name, search)) = wanted.get(next).cloned() {
        next += 1;
        if libraries.len() >= MOST || !known.insert(name.clone()) {
            continue;
        }
        let Some((path, file, layout)) = search.find(&name, searched, &cache) else { continue };
        let inner = Search::of(&layout, origin(&std::fs::canonicalize(&path).unwrap_or(path.clone())), Some(&search));
        wanted.extend(layout.needed.iter().map(|name| (name.clone(), inner.clone())));
        libraries.push(Library { path, file, layout });
    }
    libraries
}

/// Where an object has its libraries looked for.
#[derive(Clone, Default, Debug)]
struct Search {
    /// DT_RPATH of it and of those that load it.
    before: Vec<PathBuf>,
    /// DT_RUNPATH.
    after: Vec<PathBuf>,
}

impl Search {
    fn of(layout: &Layout, origin: PathBuf, loader: Option<&Search>) -> Search {
        let list = |path: &Option<OsString>| -> Vec<PathBuf> {
            path.as_ref().map(|path| directories(path, &origin)).unwrap_or_default()
        };
        let mut before = match layout.runpath {
            Some(_) => Vec::new(),
            None => list(&layout.rpath),
        };
        before.extend(loader.into_iter().flat_map(|loader| loader.before.iter().cloned()));
        Search { before, after: list(&layout.runpath) }
    }

    fn find(&self, name: &OsStr, searched: Option<&OsStr>, cache: &[u8]) -> Option<(PathBuf, File, Layout)> {
        let open = |path: PathBuf| -> Option<(PathBuf, File, Layout)> {
            let file = File::open(&path).ok()?;
            let layout = Layout::read(&file)?;
            Some((path, file, layout))
        };
        if name.as_bytes().contains(&b'/') {
            return open(name.into());
        }
        let within = |directory: &PathBuf| open(directory.join(name));
        let listed = |list: &OsStr| directories(list, Path::new("")).iter().find_map(within);
        (self.before.iter().find_map(within))
            .or_else(|| searched.and_then(listed))
            .or_else(|| self.after.iter().find_map(within))
            .or_else(|| cached(cache, name).and_then(open))
            .or_else(|| listed(OsStr::new(DIRECTORIES)))
    }
}

/// The directories of a list, with `$ORIGIN` replaced. Those with other variables are left out.
fn directories(list: &OsStr, origin: &Path) -> Vec<PathBuf> {
    let origin = origin.as_os_str().as_bytes();
    let one = |text: &[u8]| -> Option<PathBuf> {
        let mut path = Vec::new();
        let mut rest = text;
        while let Some((&first, behind)) = rest.split_first() {
            rest = match [&b"$ORIGIN"[..], b"${ORIGIN}"].iter().find_map(|word| rest.strip_prefix(*word)) {
                Some(behind) => {
                    path.extend_from_slice(origin);
                    behind
                }
                None if first == b'$' => return None,
                None => {
                    path.push(first);
                    behind
                }
            };
        }
        (!path.is_empty()).then(|| OsString::from_vec(path).into())
    };
    list.as_bytes().split(|byte| *byte == b':' || *byte == b';').filter_map(one).collect()
}

/// The path of a library in the dynamic linker's cache, whose format ldconfig(8) of glibc 2.2 and later writes.
fn cached(cache: &[u8], name: &OsStr) -> Option<PathBuf> {
    const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
    const HEADER: usize = 48;
    const ENTRY: usize = 24;
    // Libraries of glibc for this processor, with 64 bits.
    const FLAGS: u32 = if cfg!(target_arch = "x86_64") { 0x303 } else { 0xa03 };
    let start = cache.windows(MAGIC.len()).position(|window| window == MAGIC)?;
    let cache = &cache[start..];
    let number = |at: usize| Some(u32::from_ne_bytes(cache.get(at..at + 4)?.try_into().ok()?));
    let text = |at: u32| cache.get(at as usize..)?.split(|byte| *byte == 0).next();
    for entry in 0..number(MAGIC.len())? as usize {
        let at = HEADER + entry * ENTRY;
        // Those for certain processors only have more than zero in the last eight bytes.
        let plain = number(at + 16)? == 0 && number(at + 20)? == 0;
        if plain && number(at)? == FLAGS && text(number(at + 4)?)? == name.as_bytes() {
            return Some(OsStr::from_bytes(text(number(at + 8)?)?).into());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_replaced() {
        let list = |text: &str| directories(text.as_ref(), Path::new("/o"));
        assert_eq!(list("$ORIGIN/../lib:/x:${ORIGIN}"), ["/o/../lib", "/x", "/o"].map(PathBuf::from));
        assert_eq!(list("$LIB/x::/y"), ["/y"].map(PathBuf::from));
    }

    #[test]
    fn the_cache_is_read() {
        let mut cache = b"ld.so-1.7.0 something older\0\0".to_vec();
        let start = cache.len();
        cache.extend(b"glibc-ld.so.cache1.1");
        cache.extend(2u32.to_ne_bytes());
        cache.resize(start + 48, 0);
        let strings = 48 + 2 * 24;
        let flags = if cfg!(target_arch = "x86_64") { 0x303u32 } else { 0xa03 };
        for (processor, value) in [(1u32, 5u32), (0, 12)] {
            for number in [flags, strings, strings + value, 0, 0, processor] {
                cache.extend(number.to_ne_bytes());
            }
        }
        cache.extend(b"la.so\0/fast\0/plain\0");
        // "la.so" is 5 bytes and its end; the special one's path begins before its end, which nobody reads.
        assert_eq!(cached(&cache, "la.so".as_ref()), Some("/plain".into()));
        assert_eq!(cached(&cache, "lb.so".as_ref()), None);
        for cut in 0..cache.len() {
            cached(&cache[..cut], "la.so".as_ref());
        }
    }

    #[test]
    fn this_program_needs_its_c_library() {
        let path = std::env::current_exe().unwrap();
        let layout = Layout::read(&File::open(&path).unwrap()).unwrap();
        let found = closure(&path, &layout, None, None);
        assert!(found.iter().any(|library| library.path.to_string_lossy().contains("libc.so")), "{found:?}");
    }
}
