//! `ream setup` on the real kernel: a pool of large pages, and the entry for marked binaries. Files of settings and the
//! journal lie in mounts of the test's own, so that those of the machine are neither read nor touched.

use ream_tests::{Case, Run, Scratch, is_root, make_runnable, ream_binary, skip};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const POOL: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
/// Hides /etc and /var/lib, where setup writes.
const HIDE: &str = "set -eu; mount -t tmpfs none /etc; mount -t tmpfs none /var/lib; ";

fn pages() -> u64 {
    fs::read_to_string(POOL).unwrap().trim().parse().unwrap()
}

/// Gives the pool back, also when the test fails: to what it was, and only when it is what the test made it.
struct Restore {
    before: u64,
    made: u64,
}

impl Drop for Restore {
    fn drop(&mut self) {
        if pages() == self.made && self.made != self.before {
            let _ = fs::write(POOL, self.before.to_string());
        }
    }
}

const LARGE: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

/// Large pages as they were.
struct RestoreLarge(String);

impl Drop for RestoreLarge {
    fn drop(&mut self) {
        let _ = fs::write(LARGE, &self.0);
    }
}

/// Runs a script in namespaces of its own, with the command as `$1` and what follows behind it.
fn apart(namespaces: &[&str], script: &str, arguments: &[&Path]) -> Output {
    let mut command = Command::new("timeout");
    command.args(["60", "unshare"]).args(namespaces).args(["sh", "-c", &format!("{HIDE}{script}"), "sh"]);
    command.arg(ream_binary()).args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn a_pool_is_reserved_and_given_back() {
    if !is_root() || !Path::new(POOL).exists() {
        return skip("a_pool_is_reserved_and_given_back", "needs root and a pool of pages of 2 MiB");
    }
    let before = pages();
    let made = before + 4;
    let _restore = Restore { before, made };
    let size = format!("{}M", made * 2);
    let script = "options='--no-binfmt --no-thp --no-userfaultfd --no-sysctl'; pool=$3; \
                  \"$1\" setup $options --hugetlb \"$2\" --dry-run; cat $pool; \
                  \"$1\" setup $options --hugetlb \"$2\"; cat $pool; cat /etc/*/60-ream.conf; \
                  \"$1\" setup $options --hugetlb \"$2\"; \
                  \"$1\" setup --undo; cat $pool; find /etc /var/lib -type f";
    let output = apart(&["--mount"], script, &[Path::new(&size), Path::new(POOL)]);
    let said = text(&output);
    if said.contains("the kernel gave") {
        return skip("a_pool_is_reserved_and_given_back", "this kernel has no four free pages of 2 MiB now");
    }
    assert!(output.status.success(), "{said}");
    let numbers: Vec<u64> = said.lines().filter_map(|line| line.parse().ok()).collect();
    assert_eq!(numbers, [before, made, before], "{said}");
    assert!(said.contains(&format!("{POOL}: {before} pages -> {made} pages\n")), "{said}");
    assert!(
        said.contains(&format!(" - - - - {made}\n")) || said.contains(&format!("nr_hugepages = {made}\n")),
        "{said}"
    );
    assert_eq!(said.matches("nothing to do\n").count(), 1, "{said}");
    assert_eq!(said.lines().last(), Some(before.to_string().as_str()), "no file is left: {said}");
    assert_eq!(pages(), before);
}

/// A program with the mark in its header, which the kernel and the linker ignore.
fn marked(scratch: &Scratch) -> PathBuf {
    let mut bytes = fs::read("/bin/true").unwrap();
    bytes[48..52].copy_from_slice(b"REAM");
    let file = scratch.file("marked");
    fs::write(&file, bytes).unwrap();
    make_runnable(&file, 0o755);
    file
}

/// In a user namespace, which has a binfmt_misc of its own.
#[test]
fn marked_binaries_are_handed_to_the_handler() {
    const NAME: &str = "marked_binaries_are_handed_to_the_handler";
    let namespaces = ["--user", "--map-root-user", "--mount"];
    let own = "mount -t binfmt_misc none /proc/sys/fs/binfmt_misc";
    if !is_root() || !apart(&namespaces, own, &[]).status.success() {
        return skip(NAME, "needs root, and a kernel with a binfmt_misc by user namespace (6.7)");
    }
    let echo = fs::canonicalize("/bin/echo").unwrap();
    let scratch = Scratch::new("marked");
    let program = marked(&scratch);
    let script = "options='--no-thp --no-userfaultfd --no-sysctl'; entry=/proc/sys/fs/binfmt_misc/ream; \
                  mount -t binfmt_misc none /proc/sys/fs/binfmt_misc; \
                  \"$1\" setup $options --handler \"$2\"; cat $entry /etc/binfmt.d/60-ream.conf; \"$3\" handled; \
                  \"$1\" setup $options --handler \"$2\"; \
                  echo 0 > $entry; \"$1\" setup $options --handler \"$2\"; \"$3\" again; \
                  \"$1\" setup --undo --dry-run; echo 0 > $entry; echo 1 > $entry; \
                  \"$1\" setup --undo; test ! -e $entry; \"$3\" plain; find /etc /var/lib -type f";
    let output = apart(&namespaces, script, &[&echo, &program]);
    let said = text(&output);
    assert!(output.status.success(), "{said}");
    for part in ["magic 5245414d\n", "flags: P\n", ":ream:M:48:\\x52\\x45\\x41\\x4d:", "nothing to do\n"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let shown = program.display();
    assert!(said.contains(&format!("{shown} {shown} handled\n")), "{said}");
    assert!(said.contains(&format!("{shown} {shown} again\n")), "{said}");
    assert!(!said.contains("plain") && said.ends_with("taken back\n"), "{said}");
}

/// Where nothing has mounted binfmt_misc yet, setup does, and takes that back too.
#[test]
fn binfmt_misc_is_mounted_where_it_is_not() {
    const NAME: &str = "binfmt_misc_is_mounted_where_it_is_not";
    let namespaces = ["--user", "--map-root-user", "--mount"];
    let own = "test ! -e /proc/sys/fs/binfmt_misc/register; mount -t binfmt_misc none /proc/sys/fs/binfmt_misc";
    if !is_root() || !apart(&namespaces, own, &[]).status.success() {
        return skip(NAME, "needs root, a binfmt_misc by user namespace (6.7), and none mounted here");
    }
    let echo = fs::canonicalize("/bin/echo").unwrap();
    let script = "\"$1\" setup --no-thp --no-userfaultfd --no-sysctl --handler \"$2\"; \
                  test -e /proc/sys/fs/binfmt_misc/ream; \"$1\" setup --undo; \
                  test ! -e /proc/sys/fs/binfmt_misc/register";
    let output = apart(&namespaces, script, &[&echo]);
    assert!(output.status.success(), "{}", text(&output));
}

/// Ream's own tables, most of which are nearly empty, took 4 to 5 MiB of each process beside the budget where all memory gets large pages.
#[test]
fn where_large_pages_are_on_for_all_our_own_memory_is_small() {
    let setting = fs::read_to_string(LARGE).unwrap_or_default();
    let Some(before) = setting.split(['[', ']']).nth(1).filter(|_| is_root()) else {
        return skip("large pages for all", "needs root and transparent large pages");
    };
    let Some(program) = Case::new("c/fork_rewrite.c", &[], 128).build() else { return };
    let _restore = RestoreLarge(before.to_owned());
    fs::write(LARGE, "always").unwrap();
    // Parent and child, 2 MiB each beside what is managed.
    let outcome = Run::of(&program).args(["100", "135168"]).memory(128).finish();
    outcome.exited(0);
    assert_eq!(outcome.out(), "both\n", "{}", outcome.describe());
}
