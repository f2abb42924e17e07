//! Setup on made-up machines: what it changes, that a second call finds nothing to do, and that undo restores every
//! byte, wherever setup was interrupted.

use super::*;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory that looks like a machine, removed when dropped.
struct Machine {
    root: PathBuf,
    tree: Tree,
}

const THP: &str = "sys/kernel/mm/transparent_hugepage/enabled";
const SHARED: &str = "sys/kernel/mm/transparent_hugepage/shmem_enabled";
const LARGE: &str = "sys/kernel/mm/transparent_hugepage/hugepages-2048kB/enabled";
const POOL: &str = "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
const GIANT: &str = "sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages";
const NODE_1: &str = "sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages";
const RULE: &str = "etc/udev/rules.d/60-userfaultfd.rules";
const TMPFILES: &str = "etc/tmpfiles.d/60-ream.conf";
const LIMITS: &str = "etc/security/limits.d/60-ream.conf";
const SYSCTL: &str = "etc/sysctl.d/60-ream.conf";
const BINFMT: &str = "proc/sys/fs/binfmt_misc";
const ENTRY: &str = "proc/sys/fs/binfmt_misc/ream";

/// The kernel's side: pools that give no more than the file `most` beside them says, and binfmt_misc.
fn kernel(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let text = String::from_utf8_lossy(bytes).trim().to_owned();
    if path.ends_with("register") {
        let fields: Vec<_> = text.split(':').collect();
        let hex = |text: &str| text.replace("\\x", "");
        let [_, name, "M", offset, magic, mask, interpreter, flags] = fields[..] else {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        };
        let shown = format!(
            "enabled\ninterpreter {interpreter}\nflags: {flags}\noffset {offset}\nmagic {}\nmask {}\n",
            hex(magic),
            hex(mask)
        );
        return fs::write(path.with_file_name(name), shown);
    }
    if path.parent().is_some_and(|parent| parent.ends_with("binfmt_misc")) && text == "-1" {
        return fs::remove_file(path);
    }
    match fs::read_to_string(path.with_file_name("most")) {
        Ok(most) if path.ends_with("nr_hugepages") => {
            let most = most.trim().parse::<u64>().unwrap().min(text.parse().unwrap());
            fs::write(path, format!("{most}\n"))
        }
        _ => fs::write(path, bytes),
    }
}

impl Machine {
    fn new() -> Machine {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("ream-setup-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let root = std::env::temp_dir().join(name);
        let mut tree = Tree::new(&root);
        tree.kernel = kernel;
        let machine = Machine { root, tree };
        for (path, text) in [
            (THP, "always madvise [never]\n"),
            (LARGE, "always inherit madvise [never]\n"),
            (SHARED, "always within_size advise [never] deny force\n"),
            (POOL, "0\n"),
            (GIANT, "0\n"),
            ("sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages", "0\n"),
            (NODE_1, "2\n"),
            ("proc/sys/vm/unprivileged_userfaultfd", "0\n"),
            ("proc/sys/vm/max_map_count", "1000\n"),
            ("proc/sys/vm/hugetlb_shm_group", "0\n"),
            ("proc/sys/kernel/shmmax", "18446744073692774399\n"),
            ("proc/sys/kernel/shmall", "18446744073692774399\n"),
            ("proc/meminfo", "MemTotal: 8388608 kB\nMemAvailable: 4194304 kB\n"),
            ("proc/sys/fs/binfmt_misc/register", ""),
            ("dev/userfaultfd", ""),
            ("etc/group", "root:x:0:\nream:x:77:\n"),
            ("etc/sysctl.d/60-ream.conf", "# the administrator's\nvm.swappiness = 5\n"),
            ("usr/bin/systemd-tmpfiles", ""),
            ("var/lib/other", ""),
            ("opt/handler", ""),
        ] {
            machine.write(path, text);
        }
        let mode = |path, mode| fs::set_permissions(machine.at(path), fs::Permissions::from_mode(mode)).unwrap();
        mode("dev/userfaultfd", 0o600);
        mode("opt/handler", 0o755);
        mode(SYSCTL, 0o640);
        machine
    }
    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }
    fn write(&self, path: &str, text: &str) {
        let path = self.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.at(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }
    fn wishes(&self, options: &str) -> Wishes {
        let root = format!("--root={} --handler={}", self.root.display(), self.at("opt/handler").display());
        let root = if options.contains("--undo") { root.split(' ').next().unwrap() } else { root.as_str() };
        let words = format!("setup {root} {options}");
        let words = words.split_whitespace().map(std::ffi::OsString::from);
        Wishes::read(&crate::arguments::parse(words).unwrap()).unwrap()
    }
    fn try_setup(&self, options: &str) -> Result<(i32, String), String> {
        let mut out = Vec::new();
        let status = run(&self.tree, &self.wishes(options), &mut out).map_err(|failure| failure.text)?;
        Ok((status, String::from_utf8(out).unwrap()))
    }
    /// A child that another test's thread has just made has a copy of the journal's descriptor, and with it the lock, until it
    /// executes its program.
    fn setup(&self, options: &str) -> (i32, String) {
        let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
        loop {
            match self.try_setup(options) {
                Err(text) if text.contains("another ream setup is at work") && std::time::Instant::now() < end => {
                    std::thread::sleep(std::time::Duration::from_millis(5));
                }
                outcome => return outcome.unwrap(),
            }
        }
    }
    /// Everything below the root: mode, and contents or a link's target. Settings of the kernel that show all their
    /// words are reduced to the chosen one.
    fn snapshot(&self) -> BTreeMap<PathBuf, (u32, String)> {
        let mut found = BTreeMap::new();
        let mut directories = vec![self.root.clone()];
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                let what = path.symlink_metadata().unwrap();
                let text = match what.file_type() {
                    kind if kind.is_dir() => {
                        directories.push(path.clone());
                        String::new()
                    }
                    kind if kind.is_symlink() => format!("{:?}", fs::read_link(&path).unwrap()),
                    _ => fs::read_to_string(&path).unwrap(),
                };
                let text = match path.to_string_lossy().ends_with("enabled") {
                    true => crate::tree::chosen(text.trim()).to_owned(),
                    false => text,
                };
                found.insert(path, (what.mode(), text));
            }
        }
        found
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

const ALL: &str = "--hugetlb 16M --hugetlb-1g 1G --memlock unlimited --group ream";

#[test]
fn without_options_no_memory_is_reserved() {
    let machine = Machine::new();
    let before = machine.snapshot();
    let (status, text) = machine.setup("");
    assert_eq!(status, 0, "{text}");
    assert_eq!(machine.read(POOL), "0\n");
    assert_eq!((machine.read(THP).as_str(), machine.read(LARGE).as_str()), ("madvise\n", "inherit\n"));
    assert_eq!(machine.read(SHARED), "advise\n");
    assert_eq!(machine.read(RULE), "KERNEL==\"userfaultfd\", MODE=\"0666\"\n");
    assert_eq!(machine.at("dev/userfaultfd").metadata().unwrap().mode() & 0o777, 0o666);
    assert_eq!(machine.read("proc/sys/vm/max_map_count"), "65530\n");
    assert_eq!(machine.read(SYSCTL), "# the administrator's\nvm.swappiness = 5\nvm.max_map_count = 65530\n");
    assert!(machine.read(TMPFILES).contains(&format!("w! /{THP} - - - - madvise\n")));
    assert!(machine.read(ENTRY).contains("magic 5245414d\n"));
    assert!(machine.read("etc/binfmt.d/60-ream.conf").starts_with(":ream:M:48:"));
    assert!(!machine.at(LIMITS).exists());
    assert!(text.contains(&format!("/{THP}: never -> madvise\n")), "{text}");
    let after = machine.snapshot();
    assert_eq!(machine.setup(""), (0, "nothing to do\n".to_owned()));
    assert_eq!(machine.snapshot(), after);
    let (status, text) = machine.setup("--undo");
    assert_eq!(status, 0, "{text}");
    assert_eq!(machine.snapshot(), before);
    assert_eq!(machine.setup("--undo"), (0, "nothing to undo\n".to_owned()));
}

#[test]
fn everything_that_can_be_asked_for() {
    let machine = Machine::new();
    let before = machine.snapshot();
    let (status, text) = machine.setup(ALL);
    assert_eq!(status, 0, "{text}");
    assert_eq!((machine.read(POOL).as_str(), machine.read(GIANT).as_str()), ("8\n", "1\n"));
    assert!(text.contains("hugepagesz=1G hugepages=1"), "{text}");
    assert_eq!(machine.read(RULE), "KERNEL==\"userfaultfd\", GROUP=\"ream\", MODE=\"0660\"\n");
    assert_eq!(machine.read("proc/sys/vm/hugetlb_shm_group"), "77\n");
    assert!(machine.read(LIMITS).ends_with("\n@ream - memlock unlimited\n"));
    assert!(machine.read(TMPFILES).contains(&format!("w! /{POOL} - - - - 8\n")));
    let (_, text) = machine.setup(ALL);
    assert!(text.ends_with("nothing to do\n"), "{text}");
    let (status, text) = machine.setup("--undo");
    assert_eq!((status, machine.snapshot()), (0, before), "{text}");
}

#[test]
fn a_dry_run_shows_and_changes_nothing() {
    let machine = Machine::new();
    let before = machine.snapshot();
    let (status, text) = machine.setup(&format!("{ALL} --dry-run"));
    assert_eq!((status, machine.snapshot()), (0, before), "{text}");
    assert!(text.contains(&format!("/{POOL}: 0 pages -> 8 pages\n")), "{text}");
    let (_, made) = machine.setup(ALL);
    let changes = |text: &str| text.lines().filter(|line| line.contains(" -> ")).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(changes(&text), changes(&made));
    let after = machine.snapshot();
    let (_, text) = machine.setup("--undo --dry-run");
    assert!(text.contains(&format!("/{POOL}: 8 pages -> 0 pages\n")), "{text}");
    assert_eq!(machine.snapshot(), after);
}

#[test]
fn later_options_add_to_earlier_ones() {
    let machine = Machine::new();
    let before = machine.snapshot();
    machine.setup("--hugetlb 1=8M");
    assert_eq!(machine.read(NODE_1), "4\n");
    machine.setup("--hugetlb 0=4M");
    machine.setup("--hugetlb 1=16M --memlock 4G");
    assert_eq!(machine.read(NODE_1), "8\n");
    let boot = machine.read(TMPFILES);
    assert!(boot.contains("node0/") && boot.contains(&format!("w! /{NODE_1} - - - - 8\n")), "{boot}");
    assert!(boot.contains("madvise") && !boot.contains("- 4\n"), "{boot}");
    assert!(machine.read(LIMITS).ends_with("* - memlock 4194304\nroot - memlock 4194304\n"));
    let (status, text) = machine.setup("--undo");
    assert_eq!((status, machine.snapshot()), (0, before), "{text}");
}

/// Killed after any number of changes, and between the journal and the change that it announces.
#[test]
fn undo_restores_wherever_setup_was_interrupted() {
    let count = plan::plan(&Machine::new().tree, &Machine::new().wishes(ALL)).map(|plan| plan.changes.len()).unwrap();
    assert!(count > 12, "{count}");
    for interrupted in 0..=2 * count {
        let machine = Machine::new();
        let before = machine.snapshot();
        let plan = plan::plan(&machine.tree, &machine.wishes(ALL)).unwrap();
        let mut journal = Journal::open(&machine.tree, true).unwrap().unwrap();
        for change in &plan.changes[..interrupted / 2] {
            assert!(make(&machine.tree, &mut journal, change).unwrap().is_none(), "{change:?}");
        }
        if interrupted % 2 == 1 {
            let change = &plan.changes[interrupted / 2];
            journal.begin(change).unwrap();
            if change.kind == Kind::File {
                let place = machine.tree.at(&change.path);
                let name = format!(".{}.ream", place.file_name().unwrap().to_str().unwrap());
                fs::write(place.with_file_name(name), "half").unwrap();
            }
        }
        drop(journal);
        let (status, text) = machine.setup("--undo");
        assert_eq!((status, machine.snapshot()), (0, before), "{interrupted}: {text}");
    }
}

/// An undo that was killed is taken up by the next one, also where it was killed between a change and its striking out.
#[test]
fn undo_can_be_interrupted_too() {
    let mut interrupted = 0;
    loop {
        let machine = Machine::new();
        let before = machine.snapshot();
        for options in ["--hugetlb 8M", "--hugetlb 16M", ALL] {
            machine.setup(options);
        }
        let mut journal = Journal::open(&machine.tree, false).unwrap().unwrap();
        let changes = journal.live();
        if interrupted > changes.len() {
            return;
        }
        for (number, (at, change)) in changes.iter().rev().take(interrupted).enumerate() {
            change::set(&machine.tree, change.kind, &change.path, &change.old).unwrap();
            if number + 1 < interrupted {
                journal.strike(*at).unwrap();
            }
        }
        drop(journal);
        let (status, text) = machine.setup("--undo");
        assert_eq!((status, machine.snapshot()), (0, before), "{interrupted}: {text}");
        interrupted += 1;
    }
}

#[test]
fn what_others_changed_since_is_left() {
    let machine = Machine::new();
    machine.setup(ALL);
    machine.write(POOL, "100\n");
    machine.write(RULE, "# changed\n");
    machine.write("etc/binfmt.d/other.conf", "x\n");
    let (status, text) = machine.setup("--undo");
    assert_eq!(status, 1, "{text}");
    assert!(text.contains(&format!("/{POOL}: 100 pages: changed by others since")), "{text}");
    assert!(text.contains("before ream setup: no file"), "{text}");
    assert_eq!((machine.read(POOL).as_str(), machine.read(RULE).as_str()), ("100\n", "# changed\n"));
    assert_eq!(machine.read("etc/binfmt.d/other.conf"), "x\n");
    assert_eq!(machine.read(GIANT), "0\n");
    assert!(!machine.at(TMPFILES).exists() && !machine.at("var/lib/ream").exists());
}

#[test]
fn a_short_pool_is_told_and_given_back() {
    let machine = Machine::new();
    machine.write("sys/kernel/mm/hugepages/hugepages-2048kB/most", "3\n");
    let before = machine.snapshot();
    let (status, text) = machine.setup("--hugetlb 16M");
    assert_eq!(status, 1, "{text}");
    assert!(text.contains("the kernel gave 3 of 8 pages") && text.contains("hugepagesz=2M hugepages=8"), "{text}");
    assert!(machine.read(TMPFILES).contains("- 8\n"));
    let (status, text) = machine.setup("--undo");
    assert_eq!((status, machine.snapshot()), (0, before), "{text}");
}

#[test]
fn what_is_there_already_is_saved_or_left() {
    let machine = Machine::new();
    machine.write(RULE, "mine\n");
    machine.write(ENTRY, "disabled\ninterpreter /x\nflags: \noffset 48\nmagic 41\n");
    std::os::unix::fs::symlink("/dev/null", {
        fs::create_dir_all(machine.at("etc/tmpfiles.d")).unwrap();
        machine.at(TMPFILES)
    })
    .unwrap();
    machine.write(NODE_1, "50\n");
    let before = machine.snapshot();
    let (status, text) = machine.setup("--hugetlb 1=8M");
    assert_eq!(status, 0, "{text}");
    assert!(text.contains("holds 50 pages of 2 MiB, more than the 4 asked for"), "{text}");
    assert!(machine.read(TMPFILES).contains("madvise") && machine.read(RULE).contains("0666"));
    machine.setup("--undo");
    let mut after = machine.snapshot();
    // The made-up kernel writes masks and states of its own.
    after.insert(machine.at(ENTRY), before[&machine.at(ENTRY)].clone());
    assert_eq!(after, before);
}

#[test]
fn impossible_wishes_change_nothing() {
    let machine = Machine::new();
    let before = machine.snapshot();
    for (options, text) in [
        ("--hugetlb 4G", "4 GiB more are asked for, and 4 GiB of RAM are available"),
        ("--hugetlb 7=4M", "node 7: no such node; there are 0, 1"),
        ("--hugetlb-1g 0=1G", "no pages of 1 GiB"),
        ("--group none", "no such group; make it first: groupadd --system none"),
    ] {
        let failure = machine.try_setup(options).unwrap_err();
        assert!(failure.contains(text), "{failure}");
        assert_eq!(machine.snapshot(), before);
    }
    fs::remove_file(machine.at("opt/handler")).unwrap();
    assert!(machine.try_setup("").unwrap_err().contains("--no-binfmt leaves them out"));
}

#[test]
fn older_and_smaller_machines() {
    let machine = Machine::new();
    fs::remove_file(machine.at("dev/userfaultfd")).unwrap();
    fs::remove_file(machine.at("usr/bin/systemd-tmpfiles")).unwrap();
    fs::remove_dir_all(machine.at(BINFMT)).unwrap();
    let before = machine.snapshot();
    let (status, text) = machine.setup("");
    assert_eq!(status, 0, "{text}");
    assert_eq!(machine.read("proc/sys/vm/unprivileged_userfaultfd"), "1\n");
    assert!(machine.read(SYSCTL).contains("vm.unprivileged_userfaultfd = 1\n"));
    let sysfs = machine.read("etc/sysfs.d/60-ream.conf");
    assert!(sysfs.contains("\nkernel/mm/transparent_hugepage/enabled = madvise\n"), "{sysfs}");
    assert!(text.contains("sysfsutils") && !machine.at(ENTRY).exists(), "{text}");
    machine.setup("--undo");
    assert_eq!(machine.snapshot(), before);
}

#[test]
fn two_at_a_time_are_refused() {
    let machine = Machine::new();
    let _held = Journal::open(&machine.tree, true).unwrap();
    assert!(machine.try_setup("").unwrap_err().contains("another ream setup is at work"));
    assert!(machine.try_setup("--undo").unwrap_err().contains("another ream setup is at work"));
}
