//! What a program may run under: nothing, Ream, and everything else that promises large pages; how each is started, and
//! how one knows that a run really was under it.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

/// How a run is recognised to be under what it should be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Proof {
    /// Nothing was loaded and nothing advised.
    Nothing,
    /// A library of this name is mapped.
    Library(&'static str),
    /// Mappings were advised for transparent large pages.
    Advised,
    /// Memory of the pool is mapped.
    Pool,
}

/// What a program runs under, beside Ream.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// As it is called in tables.
    pub name: &'static str,
    /// The same, as the heading of a narrow column.
    pub short: &'static str,
    /// What it sets.
    pub environment: &'static [(&'static str, &'static str)],
    /// How it shows.
    pub proof: Proof,
    /// It takes pages from the kernel's pool.
    pub pool: bool,
}

/// The program as it is.
pub const PLAIN: Setting =
    Setting { name: "plain", short: "plain", environment: &[], proof: Proof::Nothing, pool: false };

/// Everything else that promises large pages to unmodified programs, those that need a pool last.
pub const OTHERS: &[Setting] = &[
    Setting {
        name: "glibc hugetlb=1",
        short: "glibc=1",
        environment: &[("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1")],
        proof: Proof::Advised,
        ..PLAIN
    },
    Setting {
        name: "jemalloc thp:always",
        short: "jemalloc",
        environment: &[("LD_PRELOAD", "libjemalloc.so.2"), ("MALLOC_CONF", "thp:always")],
        proof: Proof::Library("libjemalloc.so"),
        ..PLAIN
    },
    Setting {
        name: "libhugetlbfs thp",
        short: "hugfs thp",
        environment: &[("LD_PRELOAD", "libhugetlbfs.so.0"), ("HUGETLB_MORECORE", "thp")],
        proof: Proof::Library("libhugetlbfs"),
        ..PLAIN
    },
    Setting {
        name: "libhugetlbfs",
        short: "hugetlbfs",
        environment: &[("LD_PRELOAD", "libhugetlbfs.so.0"), ("HUGETLB_MORECORE", "yes")],
        proof: Proof::Library("libhugetlbfs"),
        pool: true,
    },
    Setting {
        name: "glibc hugetlb=2",
        short: "glibc=2",
        environment: &[("GLIBC_TUNABLES", "glibc.malloc.hugetlb=2")],
        proof: Proof::Pool,
        pool: true,
    },
    Setting {
        name: "mimalloc large",
        short: "mimalloc",
        // Its name until version 2.0, and since.
        environment: &[
            ("LD_PRELOAD", "libmimalloc.so.2"),
            ("MIMALLOC_LARGE_OS_PAGES", "1"),
            ("MIMALLOC_ALLOW_LARGE_OS_PAGES", "1"),
        ],
        proof: Proof::Library("libmimalloc"),
        pool: true,
    },
    Setting {
        name: "gperftools memfs",
        short: "gperftools",
        environment: &[("LD_PRELOAD", "libtcmalloc_minimal.so.4"), ("TCMALLOC_MEMFS_MALLOC_PATH", "/mnt/tcmalloc")],
        proof: Proof::Library("libtcmalloc"),
        pool: true,
    },
];

/// A preloaded library that keeps every other allocation in a file; for what does not fit.
pub const TIERS: Setting = Setting {
    name: "memkind tiers",
    short: "memkind",
    environment: &[
        ("LD_PRELOAD", "libmemtier.so.0"),
        (TIERS_PLACE, "KIND:DRAM,RATIO:1;KIND:FS_DAX,PATH:/var/tmp,PMEM_SIZE_LIMIT:8G,RATIO:1;POLICY:STATIC_RATIO"),
    ],
    proof: Proof::Library("libmemtier"),
    ..PLAIN
};

/// The variable that says where that file is.
pub const TIERS_PLACE: &str = "MEMKIND_MEM_TIERS";

/// Its value for a file in this directory.
pub fn tiers_in(directory: &Path) -> String {
    let place = directory.display();
    format!("KIND:DRAM,RATIO:1;KIND:FS_DAX,PATH:{place},PMEM_SIZE_LIMIT:8G,RATIO:1;POLICY:STATIC_RATIO")
}

/// The program under this setting; its pool, if it has one, mounted.
pub fn under(setting: &Setting, program: &Path) -> Command {
    let mut command = Command::new(program);
    clean(&mut command);
    command.envs(setting.environment.iter().copied());
    if setting.pool {
        // SAFETY: between fork and exec: system calls on constants.
        unsafe { command.pre_exec(mount_pool) };
    }
    command
}

/// Names a variable that, when set, has the benchmark's own programs spoil a value, and the computations of R and Python
/// their result, to see that this is found.
pub const CORRUPT: &str = "BENCH_CORRUPT";

/// Whether it is set.
pub(crate) fn corrupts() -> bool {
    std::env::var_os(CORRUPT).is_some_and(|value| !value.is_empty())
}

/// The program under `ream run` with these options.
pub fn under_ream(ream: &Path, options: &[OsString], program: &Path) -> Command {
    let mut command = Command::new(ream);
    clean(&mut command);
    command.arg("run").args(options).arg("--").arg(program);
    command.env("REAM_CONFIG", "").env("REAM_PROGRAMS", "");
    command
}

/// Nothing that the user has set decides on what is measured.
pub(crate) fn clean(command: &mut Command) {
    for name in ["LD_PRELOAD", "GLIBC_TUNABLES", "MALLOC_CONF", "HUGETLB_MORECORE"] {
        command.env_remove(name);
    }
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("REAM_")) {
        if !matches!(name.to_str(), Some("REAM_LIBRARY" | "REAM_STORE" | "REAM_STORE_LIMIT")) {
            command.env_remove(name);
        }
    }
}

/// Mounts the pool on /mnt, where only this process and its children see it; where it may not, what is mounted already must do.
fn mount_pool() -> std::io::Result<()> {
    let root = c"/";
    let none = std::ptr::null::<libc::c_char>();
    // SAFETY: constant strings with their zeros.
    unsafe {
        if libc::unshare(libc::CLONE_NEWNS) == 0
            && libc::mount(none, root.as_ptr(), none, libc::MS_REC | libc::MS_PRIVATE, none.cast()) == 0
        {
            libc::mount(c"none".as_ptr(), c"/mnt".as_ptr(), c"hugetlbfs".as_ptr(), 0, none.cast());
        }
    }
    Ok(())
}

/// What a program that ran under a setting saw of it.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Signs {
    /// KiB of the pool that were mapped.
    pub pool: u64,
    /// Mappings that were advised.
    pub advised: u64,
    /// Its libraries.
    pub libraries: Vec<String>,
}

/// Why a run was not under what it should have been.
pub fn doubt(proof: Proof, signs: &Signs) -> Option<&'static str> {
    const ALLOCATORS: &[&str] =
        &["libream.so", "libjemalloc", "libmimalloc", "libtcmalloc", "libhugetlbfs", "libmemtier"];
    let loaded = |name: &str| signs.libraries.iter().any(|library| library.contains(name));
    match proof {
        Proof::Nothing if ALLOCATORS.iter().any(|name| loaded(name)) => Some("another allocator is preloaded"),
        Proof::Library(name) if !loaded(name) => Some("not installed"),
        Proof::Advised if signs.advised == 0 => {
            Some("nothing was advised: glibc 2.35 does it, and only where transparent_hugepage/enabled is madvise")
        }
        Proof::Pool if signs.pool == 0 => Some("nothing came from the pool (glibc 2.35 knows the setting)"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_did_not_run_under_its_allocator_is_doubted() {
        let of = |library: &str| Signs { advised: 3, libraries: vec![library.to_owned()], ..Signs::default() };
        let signs = of("/usr/lib/libjemalloc.so.2");
        assert_eq!(doubt(Proof::Library("libjemalloc.so"), &signs), None);
        assert_eq!(doubt(Proof::Library("libmimalloc"), &signs), Some("not installed"));
        assert!(doubt(Proof::Nothing, &signs).is_some() && doubt(Proof::Pool, &signs).is_some());
        assert_eq!(doubt(Proof::Advised, &signs), None);
        assert_eq!(doubt(Proof::Nothing, &of("/usr/lib/libm.so.6")), None);
    }

    #[test]
    fn no_two_settings_are_called_alike() {
        for (index, setting) in OTHERS.iter().enumerate() {
            assert!(OTHERS[..index].iter().all(|other| other.name != setting.name && other.short != setting.short));
        }
    }
}
