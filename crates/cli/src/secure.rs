//! `--prefault` and `--lock`: what this machine, this user and the budget allow of them, found out before the program
//! runs. What is not to be had is said, or, where it was required, keeps the program from being started.

use crate::failure::Failure;
use crate::os;
use crate::settings::Settings;
use crate::tree::Tree;
use ream_options::pages::{BSS, HEAP, SHM};
use ream_options::{Processors, REGIONS, show_size};
use ream_stats::{Config, Lock, Pages, pinnable};
use std::path::Path;

const PAGE_BYTES: u64 = 4096;

/// Who is to run the program, and where.
pub struct Circumstances {
    /// Most bytes that a process may lock; `None`: no limit.
    pub lockable: Option<u64>,
    /// The nodes of memory that a page may lie on, by who touches it first.
    pub nodes: usize,
}

impl Circumstances {
    /// Those of this process.
    pub fn look() -> Circumstances {
        let tree = Tree::new(Path::new("/"));
        let status = tree.setting("/proc/self/status").unwrap_or_default();
        let nodes = if os::placement_is_fixed() { 1 } else { nodes(&tree, &status) };
        Circumstances { lockable: if may_lock(&status) { None } else { os::limit(libc::RLIMIT_MEMLOCK) }, nodes }
    }
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

/// Whether limits on locked memory do not hold: CAP_IPC_LOCK.
fn may_lock(status: &str) -> bool {
    const CAP_IPC_LOCK: u32 = 14;
    let effective = field(status, "CapEff").and_then(|text| u64::from_str_radix(text, 16).ok());
    effective.is_some_and(|bits| bits >> CAP_IPC_LOCK & 1 != 0)
}

/// Nodes with memory that this process may use.
fn nodes(tree: &Tree, status: &str) -> usize {
    let list = |text: &str| Processors::parse(text.trim()).ok();
    let have = tree.setting("/sys/devices/system/node/has_memory").and_then(|text| list(&text));
    let allowed = field(status, "Mems_allowed_list").and_then(list);
    match (have, allowed) {
        (Some(have), Some(allowed)) => {
            have.words().iter().zip(allowed.words()).map(|(a, b)| (a & b).count_ones() as usize).sum()
        }
        _ => 1,
    }
}

/// Puts what is granted of both options into the session's configuration, whose pages and budget are settled. `warn` is
/// told what is not to be had.
///
/// # Errors
/// What was required is not to be had, or what was asked for by size does not fit the budget.
pub fn settle(
    settings: &Settings,
    here: &Circumstances,
    config: &mut Config,
    warn: &mut dyn FnMut(String),
) -> Result<(), Failure> {
    prefault(settings, here, config, warn)?;
    lock(settings, here, config, warn)
}

fn prefault(
    settings: &Settings,
    here: &Circumstances,
    config: &mut Config,
    warn: &mut dyn FnMut(String),
) -> Result<(), Failure> {
    let mut left: Vec<&str> = Vec::new();
    for (index, choice) in settings.prefault.iter().enumerate().filter(|(_, choice)| choice.wanted) {
        let (name, bit) = (REGIONS[index], 1 << index);
        let pooled = Pages::from_u32(config.pages[index]).pooled();
        config.prefault |= bit;
        config.prefault_bytes[index] = choice.bytes.unwrap_or(0);
        if choice.required {
            config.prefault_required |= bit;
        }
        if let (HEAP, Some(bytes)) = (index, choice.bytes) {
            let whole = if pooled || settings.lock != 0 { pinnable_bytes(config) } else { config.budget_bytes };
            if bytes > whole {
                return Err(Failure::new(format!(
                    "--prefault: heap={}: the budget of {} (--memory) has room for {} of it; give less, or a larger budget",
                    show_size(bytes),
                    show_size(config.budget_bytes),
                    show_size(whole),
                )));
            }
        }
        // Whoever populates memory that others will use takes it to its own node.
        if here.nodes > 1 && matches!(index, HEAP | BSS | SHM) {
            if !pooled && choice.required {
                return Err(Failure::new(format!("--prefault: {name}: {}", several(here.nodes))));
            }
            if !pooled {
                left.push(name);
            }
        } else {
            config.prefault_populate |= bit;
        }
    }
    if !left.is_empty() {
        warn(format!("--prefault: {}: {}; it comes at its first touch", left.join(", "), several(here.nodes)));
    }
    Ok(())
}

fn several(nodes: usize) -> String {
    format!(
        "memory has {nodes} NUMA nodes, and would all come to lie on one; use a pool (--pages=hugetlb), or say where \
         (numactl --interleave=all)"
    )
}

/// What may be pinned of the budget.
fn pinnable_bytes(config: &Config) -> u64 {
    pinnable(config.budget_bytes / PAGE_BYTES) * PAGE_BYTES
}

fn lock(
    settings: &Settings,
    here: &Circumstances,
    config: &mut Config,
    warn: &mut dyn FnMut(String),
) -> Result<(), Failure> {
    let lock = Lock::from_u32(settings.lock);
    if lock == Lock::Off {
        return Ok(());
    }
    let strict = lock == Lock::Require;
    let obstacle = match here.lockable {
        Some(limit) if limit < pinnable_bytes(config) => Some(format!(
            "RLIMIT_MEMLOCK is {}, less than the {} that the budget of {} lets it lock; raise it (ulimit -l; as root: \
             ream setup --memlock unlimited), or give a smaller --memory",
            show_size(limit),
            show_size(pinnable_bytes(config)),
            show_size(config.budget_bytes),
        )),
        _ if pinnable_bytes(config) == 0 => Some(format!(
            "the budget of {} leaves nothing to be locked; give a larger --memory",
            show_size(config.budget_bytes)
        )),
        _ if !config.pages[..SHM - 1].iter().any(|pages| Pages::from_u32(*pages).large()) => {
            Some("nothing lies on large pages (--pages)".to_owned())
        }
        _ => None,
    };
    match obstacle {
        Some(why) if strict => return Err(Failure::new(format!("--lock=require: {why}"))),
        Some(why) => warn(format!("--lock: {why}; nothing is locked")),
        None => config.lock = lock as u32,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Given, Source};
    use ream_options::find;

    const ONE: Circumstances = Circumstances { lockable: None, nodes: 1 };

    fn settled(
        options: &[(&str, &str)],
        pages: u32,
        budget: u64,
        here: &Circumstances,
    ) -> Result<(Config, Vec<String>), String> {
        let given = |(name, text): &(&str, &str)| Given {
            spec: find("run", name).unwrap(),
            source: Source::Flag,
            text: Some((*text).into()).filter(|text: &std::ffi::OsString| !text.is_empty()),
        };
        let flags = options.iter().map(given).collect();
        let settings = Settings::settle("run", flags, &|_| None, Vec::new()).map_err(|failure| failure.text)?;
        let (mut config, mut said) = (Config::new(), Vec::new());
        config.budget_bytes = budget;
        config.pages = [pages, pages, 3, 0, 1];
        let outcome = settle(&settings, here, &mut config, &mut |line| said.push(line));
        outcome.map(|()| (config, said)).map_err(|failure| failure.text)
    }

    #[test]
    fn what_does_not_fit_the_budget_is_refused() {
        let (config, said) = settled(&[("prefault", "heap=64M:require,bss")], 0, 64 << 20, &ONE).unwrap();
        assert_eq!((config.prefault, config.prefault_populate, config.prefault_required), (3, 3, 1));
        assert_eq!((config.prefault_bytes[0], said.len()), (64 << 20, 0));
        let text = settled(&[("prefault", "heap=65M")], 0, 64 << 20, &ONE).unwrap_err();
        assert_eq!(
            text,
            "--prefault: heap=65 MiB: the budget of 64 MiB (--memory) has room for 64 MiB of it; give less, or a larger \
             budget"
        );
        // Of a budget only a part can be pinned.
        let text = settled(&[("prefault", "heap=64M")], 4, 64 << 20, &ONE).unwrap_err();
        assert!(text.contains("room for 48 MiB of it"), "{text}");
        assert!(settled(&[("prefault", "heap=48M")], 4, 64 << 20, &ONE).is_ok());
        assert_eq!(settled(&[("prefault", "")], 0, 64 << 20, &ONE).unwrap().0.prefault, 3);
        assert_eq!(settled(&[("prefault", "no")], 0, 64 << 20, &ONE).unwrap().0.prefault, 0);
    }

    #[test]
    fn on_several_nodes_the_first_touch_decides() {
        let two = Circumstances { lockable: None, nodes: 2 };
        let (config, said) = settled(&[("prefault", "heap,bss,stack,text")], 0, 1 << 30, &two).unwrap();
        assert_eq!((config.prefault, config.prefault_populate), (0b1111, 0b1100));
        assert!(said[0].starts_with("--prefault: heap, bss: memory has 2 NUMA nodes"), "{said:?}");
        // Pages of a pool are reserved, not placed.
        let (config, said) = settled(&[("prefault", "heap=64M:require")], 4, 1 << 30, &two).unwrap();
        assert_eq!((config.prefault, config.prefault_populate, said.len()), (1, 0, 0));
        assert!(settled(&[("prefault", "bss:require")], 0, 1 << 30, &two).is_err());
    }

    #[test]
    fn locks_need_a_limit_that_allows_them() {
        let (config, said) = settled(&[("lock", "")], 0, 128 << 20, &ONE).unwrap();
        assert_eq!((config.lock(), said.len()), (Lock::Prefer, 0));
        let limited = Circumstances { lockable: Some(8 << 20), nodes: 1 };
        let (config, said) = settled(&[("lock", "prefer")], 0, 128 << 20, &limited).unwrap();
        assert_eq!(config.lock(), Lock::Off);
        assert_eq!(
            said,
            [
                "--lock: RLIMIT_MEMLOCK is 8 MiB, less than the 96 MiB that the budget of 128 MiB lets it lock; raise it \
              (ulimit -l; as root: ream setup --memlock unlimited), or give a smaller --memory; nothing is locked"
            ]
        );
        let text = settled(&[("lock", "require")], 0, 128 << 20, &limited).unwrap_err();
        assert!(text.starts_with("--lock=require: RLIMIT_MEMLOCK is 8 MiB"), "{text}");
        assert_eq!(settled(&[("lock", "require")], 0, 128 << 20, &ONE).unwrap().0.lock(), Lock::Require);
        assert!(settled(&[("lock", "")], 0, 16 << 20, &ONE).unwrap().1[0].contains("leaves nothing to be locked"));
        let text = settled(&[("lock", "reqire")], 0, 1 << 30, &ONE).unwrap_err();
        assert_eq!(text, "--lock: \"reqire\": not one of prefer, require; did you mean require?");
        let text = settled(&[("prefault", "haep=1M")], 0, 1 << 30, &ONE).unwrap_err();
        assert!(text.ends_with("did you mean heap?"), "{text}");
    }

    #[test]
    fn limits_do_not_hold_for_whoever_may_lock() {
        assert!(may_lock("Name:\tx\nCapEff:\t000001ffffffffff\n"));
        assert!(!may_lock("CapEff:\t0000000000000000\n") && !may_lock(""));
        let root = std::env::temp_dir().join(format!("ream-nodes-{}", std::process::id()));
        let directory = root.join("sys/devices/system/node");
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("has_memory"), "0-3\n").unwrap();
        let tree = Tree::new(&root);
        let found =
            [nodes(&tree, "Mems_allowed_list:\t0-1\n"), nodes(&tree, "Mems_allowed_list:\t2\n"), nodes(&tree, "")];
        std::fs::remove_dir_all(&root).unwrap();
        assert_eq!(found, [2, 1, 1]);
    }
}
