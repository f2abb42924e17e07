//! What this machine can give of the pages that were asked for, found out before the program runs: what is missing is
//! said, or, where it was required, keeps the program from being started.

use crate::failure::Failure;
use crate::tree::{Tree, chosen};
use crate::{machine, os, shared};
use ream_options::pages::{AUTO, HUGE, HUGETLB, MIDDLE, SHM, SMALL, STACK, TEXT};
use ream_options::{PAGES, PageChoice, PageChoices, REGIONS};
use ream_stats::{Config, Pages};
use std::path::Path;

/// Where the kernel tells of large pages.
const TRANSPARENT: &str = "/sys/kernel/mm/transparent_hugepage";
/// Where the kernel tells of its pools.
const POOLS: &str = "/sys/kernel/mm/hugepages";

/// What is said where large pages are switched off.
pub const OFF: &str = "large pages are switched off for this process (PR_SET_THP_DISABLE)";
/// Limit of a main stack from which it has a whole block of large pages for certain, in bytes.
const LEAST_STACK: u64 = (6 << 20) + (128 << 10);

/// What the machine offers.
pub struct Offer {
    tree: Tree,
    /// Large pages are switched off for this process.
    off: bool,
    /// How large main stacks may become, in bytes; `None` is unlimited.
    stack: Option<u64>,
}

impl Offer {
    /// Of this machine to this process and the program that it becomes.
    pub fn here() -> Offer {
        let (off, stack) = (os::large_pages_are_off(), os::limit(libc::RLIMIT_STACK));
        Offer { tree: Tree::new(Path::new("/")), off, stack }
    }

    /// The mode of transparent pages of one size.
    fn transparent(&self, size: &str) -> String {
        let mode = |path: String| self.tree.setting(&path).map(|text| chosen(&text).to_owned());
        let general = || mode(format!("{TRANSPARENT}/enabled")).unwrap_or_else(|| "absent".into());
        match mode(format!("{TRANSPARENT}/hugepages-{size}/enabled")) {
            Some(mode) if mode == "inherit" => general(),
            Some(mode) => mode,
            // Kernels before 6.8 have one size.
            None if size == "2048kB" => general(),
            None => "absent".into(),
        }
    }

    /// Pages of a pool that are free, or that the kernel may add when they are needed.
    fn pool(&self, size: &str) -> u64 {
        let count = |name: &str| self.tree.count(&format!("{POOLS}/hugepages-{size}/{name}")).unwrap_or(0);
        let free = count("free_hugepages").saturating_sub(count("resv_hugepages"));
        free + count("nr_overcommit_hugepages").saturating_sub(count("surplus_hugepages"))
    }

    /// Whether a touch may fail though the pool has promised a page: a limit of the cgroup, or of the nodes that this
    /// process may use, strikes only then.
    fn may_be_refused(&self) -> bool {
        let limits = |name: &str| ["2MB", "1GB"].map(|size| format!("hugetlb.{size}.{name}"));
        if machine::cgroup_limit(self.tree.root(), "hugetlb", &limits("max"), &limits("limit_in_bytes")).is_some() {
            return true;
        }
        let status = self.tree.setting("/proc/self/status").unwrap_or_default();
        let allowed = status.lines().find_map(|line| line.strip_prefix("Mems_allowed_list:")).map(str::trim);
        let nodes = self.tree.setting("/sys/devices/system/node/has_memory");
        matches!((allowed, nodes), (Some(allowed), Some(nodes)) if allowed != nodes)
    }

    /// What the region gets of what was asked for, and why not that; the reason is `None` where it does.
    fn grant(&self, choice: PageChoice) -> (Pages, Option<String>) {
        let large = |otherwise: Pages| match self.transparent("2048kB").as_str() {
            _ if self.off => (Pages::Small, Some(OFF.to_owned())),
            "always" | "madvise" => (otherwise, None),
            "absent" => (Pages::Small, Some("this kernel has no transparent large pages".to_owned())),
            mode => (Pages::Small, Some(format!("transparent large pages are off ({mode}); as root: ream setup"))),
        };
        let pool = |kind: &str, size: &str, option: &str, wanted: Pages, otherwise: (Pages, Option<String>)| match self
            .pool(size)
        {
            0 => (otherwise.0, Some(format!("the pool of {kind} pages is empty; as root: ream setup {option} SIZE"))),
            _ => (wanted, None),
        };
        match choice.size {
            SMALL => (Pages::Small, None),
            AUTO => large(Pages::Auto),
            HUGE => large(Pages::Huge),
            MIDDLE if self.off => (Pages::Small, Some(OFF.to_owned())),
            MIDDLE => match (self.transparent("64kB").as_str(), self.transparent("2048kB").as_str()) {
                // Not asked for, so that no larger one is given either.
                ("always", below) if below != "always" => (Pages::Plain, None),
                ("madvise", below) if below != "always" && below != "madvise" => (Pages::Huge, None),
                ("absent", _) => (Pages::Small, Some("this kernel has no pages of 64 KiB".to_owned())),
                (mode, _) => (
                    Pages::Small,
                    Some(format!(
                        "pages of 64 KiB are not to be had by themselves ({mode}); echo always > {TRANSPARENT}/hugepages-64kB/enabled"
                    )),
                ),
            },
            HUGETLB => pool("2 MiB", "2048kB", "--hugetlb", Pages::Hugetlb, large(Pages::Huge)),
            _ => {
                let next = pool("2 MiB", "2048kB", "--hugetlb", Pages::Hugetlb, large(Pages::Huge));
                pool("1 GiB", "1048576kB", "--hugetlb-1g", Pages::Gigantic, next)
            }
        }
    }

    /// What shared memory gets of what was asked for, what its files and whatever the pool cannot hold get, and what is
    /// missing.
    fn grant_shared(&self, choice: PageChoice) -> (Pages, Pages, Option<String>) {
        if choice.size == SMALL {
            return (Pages::Small, Pages::Small, None);
        }
        let all = shared::obstacle(&self.tree);
        let next = if all.is_none() && !self.off { Pages::Huge } else { Pages::Small };
        let huge = all.or_else(|| shared::files_obstacle(&self.tree)).map(|obstacle| obstacle.to_string());
        let huge = if self.off { Some(OFF.to_owned()) } else { huge };
        if choice.size == HUGE {
            return (next, next, huge);
        }
        match self.grant(choice) {
            // What comes then is said when the pool has run out.
            (Pages::Hugetlb, _) => (Pages::Hugetlb, next, None),
            (_, pool) => (next, next, pool.map(|pool| huge.map_or(pool.clone(), |huge| format!("{pool}, and {huge}")))),
        }
    }

    /// The same for the region at this place; what comes next is for shared memory alone.
    pub fn region(&self, index: usize, choice: PageChoice) -> (Pages, Pages, Option<String>) {
        if index == SHM {
            return self.grant_shared(choice);
        }
        let (granted, missing) = self.grant(choice);
        (granted, Pages::Small, missing)
    }

    /// Why a region that must have its pages would not have them, though the machine has such ones.
    fn unkept(&self, choices: &PageChoices, index: usize) -> Option<String> {
        let choice = choices.get(index).filter(|choice| choice.required)?;
        let others_large = || choices.iter().take(TEXT).any(|other| other.size != SMALL);
        match (index, choice.size) {
            // A whole block, wherever it begins, and what is left of the limit.
            (STACK, HUGE) if choice.named && self.stack.is_some_and(|limit| limit < LEAST_STACK) => {
                Some("the main stack is too small for one; see ulimit -s".to_owned())
            }
            // Where all is small, large ones are switched off for the process.
            (..TEXT, SMALL) if others_large() && self.transparent("2048kB") == "always" => {
                Some("the kernel makes large ones wherever it can (always); as root: ream setup".to_owned())
            }
            _ => None,
        }
    }

    /// Puts what the regions get into the session's configuration. `warn` is told what is not to be had.
    ///
    /// # Errors
    /// What was required is not to be had.
    pub fn settle(
        &self,
        choices: &PageChoices,
        config: &mut Config,
        warn: &mut dyn FnMut(String),
    ) -> Result<(), Failure> {
        let mut said: Vec<String> = Vec::new();
        for (index, choice) in choices.iter().enumerate() {
            let (granted, next, missing) = self.region(index, *choice);
            if index == SHM {
                config.shared_next = next as u32;
            }
            config.pages[index] = granted as u32;
            config.pages_required |= u32::from(choice.required) << index;
            let missing = missing.or_else(|| self.unkept(choices, index));
            let Some(why) = missing.filter(|_| choice.size != AUTO) else { continue };
            let region = if index == SHM { "shm=" } else { "" };
            let line = format!("--pages={region}{}: {why}", PAGES[choice.size as usize]);
            if choice.required {
                return Err(Failure::new(format!("{line}; {} must have them", REGIONS[index])));
            }
            if !said.contains(&line) {
                // Of shared memory, files alone may be what gets none.
                let partly = index == SHM && choice.size == HUGE && granted == Pages::Huge;
                warn(format!("{line}; {}", if partly { "the rest gets them" } else { "taking the next smaller" }));
                said.push(line);
            }
        }
        let pooled = |pages: &u32| Pages::from_u32(*pages).pooled();
        config.populate = (config.pages.iter().any(pooled) && self.may_be_refused()).into();
        Ok(())
    }
}

/// Whether the kernel gives large pages to what asks for them.
pub fn are_on() -> bool {
    let mode = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    mode.contains("[always]") || mode.contains("[madvise]")
}

#[cfg(test)]
mod tests {
    use super::*;
    use ream_options::parse_pages;
    use std::fs;

    /// A made-up machine.
    struct Made(std::path::PathBuf);

    impl Made {
        fn new(name: &str, files: &[(&str, &str)]) -> Made {
            let root = std::env::temp_dir().join(format!("ream-pages-{name}-{}", std::process::id()));
            for (path, text) in files {
                let path = root.join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            Made(root)
        }
        fn settle(&self, pages: &str) -> Result<([u32; 5], Vec<String>, bool), String> {
            self.settle_with(pages, false, Some(8 << 20))
        }
        fn settle_with(
            &self,
            pages: &str,
            off: bool,
            stack: Option<u64>,
        ) -> Result<([u32; 5], Vec<String>, bool), String> {
            let (mut config, mut said) = (Config::new(), Vec::new());
            let choices = parse_pages(pages).unwrap();
            let settled = Offer { tree: Tree::new(&self.0), off, stack }
                .settle(&choices, &mut config, &mut |line| said.push(line));
            settled.map(|()| (config.pages, said, config.populate == 1)).map_err(|failure| failure.text)
        }
    }

    impl Drop for Made {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const ON: (&str, &str) = ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
    const POOL: (&str, &str) = ("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "8\n");

    #[test]
    fn what_is_there_is_granted() {
        let tree = Made::new("there", &[ON, POOL]);
        assert_eq!(tree.settle("auto"), Ok(([0, 0, 0, 0, 1], vec![], false)));
        let (pages, said, _) = tree.settle("heap=hugetlb:require,huge").unwrap();
        assert_eq!((pages, said), ([4, 3, 3, 0, 1], vec![]));
    }

    #[test]
    fn what_is_not_there_is_said_once_and_the_next_smaller_taken() {
        let tree = Made::new("missing", &[ON, POOL]);
        let (pages, said, _) = tree.settle("1g").unwrap();
        assert_eq!(pages, [4, 4, 3, 0, 1]);
        assert_eq!(said.len(), 1);
        assert!(
            said[0].starts_with("--pages=1g: the pool of 1 GiB pages is empty; as root: ream setup"),
            "{}",
            said[0]
        );
        let refused = tree.settle("heap=1g:require").unwrap_err();
        assert!(refused.ends_with("; heap must have them"), "{refused}");
        let off = Made::new("off", &[(ON.0, "always madvise [never]\n")]);
        assert_eq!(off.settle("auto"), Ok(([1, 1, 1, 1, 1], vec![], false)));
        assert!(off.settle("huge:require").unwrap_err().contains("transparent large pages are off (never)"));
        assert_eq!(off.settle("hugetlb").unwrap().0, [1, 1, 1, 1, 1]);
    }

    /// What a process cannot have, though the machine has it.
    #[test]
    fn promises_that_could_not_be_kept() {
        let tree = Made::new("off-here", &[ON, POOL, ("sys/kernel/mm/transparent_hugepage/shmem_enabled", "[advise]")]);
        assert!(tree.settle("huge:require").is_ok());
        for pages in ["huge:require", "bss=huge:require", "shm=huge:require,small"] {
            assert!(tree.settle_with(pages, true, None).unwrap_err().contains("PR_SET_THP_DISABLE"), "{pages}");
        }
        let (granted, said, _) = tree.settle_with("huge", true, None).unwrap();
        assert!(granted[..3] == [1; 3] && said.len() == 1 && said[0].contains("PR_SET_THP_DISABLE"), "{said:?}");
        assert_eq!(tree.settle_with("auto", true, None), Ok(([1; 5], vec![], false)));
        // The pool's pages are others.
        assert!(tree.settle_with("heap=hugetlb:require", true, None).is_ok());
        let low = Some(2 << 20);
        assert!(tree.settle_with("stack=huge:require", false, low).unwrap_err().contains("too small for one"));
        assert!(tree.settle_with("stack=huge,heap=huge:require", false, low).is_ok());
        assert!(tree.settle_with("huge:require", false, low).is_ok());
        let always = Made::new("always", &[(ON.0, "[always] madvise never\n")]);
        assert!(always.settle("bss=small:require").unwrap_err().contains("(always)"));
        assert!(always.settle("small:require").is_ok() && always.settle("bss=small").is_ok());
        assert!(tree.settle("bss=small:require").is_ok());
    }

    #[test]
    fn shared_memory_goes_by_words_of_its_own() {
        let (general, by_size) = (
            "sys/kernel/mm/transparent_hugepage/shmem_enabled",
            "sys/kernel/mm/transparent_hugepage/hugepages-2048kB/shmem_enabled",
        );
        let mounts = |options: &'static str| ("proc/self/mountinfo", options);
        let plain = mounts("40 24 0:27 / /dev/shm rw - tmpfs tmpfs rw,size=8k\n");
        let advised = mounts("40 24 0:27 / /dev/shm rw - tmpfs tmpfs rw,huge=advise\n");
        let with = |name, word, mount| Made::new(name, &[ON, (general, word), mount]);
        let all = with("shm-all", "always within_size [advise] never deny force", advised);
        assert_eq!(all.settle("shm=huge:require"), Ok(([0, 0, 0, 0, 3], vec![], false)));
        let files = with("shm-files", "always within_size [advise] never deny force", plain);
        let (pages, said, _) = files.settle("shm=huge").unwrap();
        assert!(pages[4] == 3 && said.len() == 1, "{said:?}");
        assert!(said[0].ends_with("as root: mount -o remount,huge=advise /dev/shm; the rest gets them"), "{said:?}");
        assert!(files.settle("shm=huge:require").unwrap_err().ends_with("; shm must have them"));
        let forced = with("shm-force", "always within_size advise never deny [force]", plain);
        assert_eq!(forced.settle("shm=huge").unwrap().1, Vec::<String>::new());
        for (name, word, mend) in [
            ("shm-never", "always within_size advise [never] deny force", "as root: ream setup"),
            ("shm-deny", "always within_size advise never [deny] force", "as root: echo advise > /sys/"),
        ] {
            let off = with(name, word, advised);
            let (pages, said, _) = off.settle("shm=huge").unwrap();
            assert!(pages[4] == 1 && said.len() == 1 && said[0].contains(mend), "{said:?}");
            assert!(off.settle("shm=huge:require").unwrap_err().contains(mend));
            let (pages, said, _) = off.settle("shm=hugetlb").unwrap();
            assert!(pages[4] == 1 && said[0].contains("pool of 2 MiB pages is empty") && said[0].contains(mend));
        }
        let sized = Made::new("shm-size", &[ON, (general, "[advise] never"), (by_size, "inherit [never]"), advised]);
        assert!(sized.settle("shm=huge").unwrap().1[0].contains("anonymous shared mappings"));
        let pooled = Made::new("shm-pool", &[ON, POOL, (general, "advise [never]"), plain]);
        assert_eq!(pooled.settle("shm=hugetlb:require"), Ok(([0, 0, 0, 0, 4], vec![], false)));
    }

    #[test]
    fn middle_sizes_are_what_the_administrator_made_of_them() {
        const MIDDLE: &str = "sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled";
        let always = Made::new("middle", &[ON, (MIDDLE, "[always] inherit madvise never\n")]);
        assert_eq!(always.settle("64k"), Ok(([2, 2, 2, 0, 1], vec![], false)));
        let advised = Made::new("advised", &[ON, (MIDDLE, "always inherit [madvise] never\n")]);
        let (pages, said, _) = advised.settle("64k").unwrap();
        assert_eq!((pages, said.len()), ([1, 1, 1, 0, 1], 1));
        assert!(Made::new("none", &[ON]).settle("64k:require").is_err());
    }

    #[test]
    fn limits_that_strike_at_a_touch_are_seen() {
        let group = ("proc/self/cgroup", "0::/a/b\n5:hugetlb:/old\n");
        let mounts = (
            "proc/self/mountinfo",
            "30 24 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n\
             31 24 0:27 / /sys/fs/cgroup/hugetlb rw - cgroup cgroup rw,hugetlb\n",
        );
        let with = |name, file, text| Made::new(name, &[ON, POOL, group, mounts, (file, text)]);
        let limited = with("limited", "sys/fs/cgroup/unified/a/hugetlb.2MB.max", "4194304\n");
        assert!(limited.settle("hugetlb").unwrap().2);
        assert!(!limited.settle("huge").unwrap().2);
        let old = with("old", "sys/fs/cgroup/hugetlb/old/hugetlb.2MB.limit_in_bytes", "4194304\n");
        assert!(old.settle("hugetlb").unwrap().2);
        let free = with("free", "sys/fs/cgroup/unified/a/hugetlb.2MB.max", "max\n");
        assert!(!free.settle("hugetlb").unwrap().2);
        let nodes = [("proc/self/status", "Mems_allowed_list:\t0\n"), ("sys/devices/system/node/has_memory", "0-1\n")];
        assert!(Made::new("nodes", &[ON, POOL, nodes[0], nodes[1]]).settle("hugetlb").unwrap().2);
    }
}
