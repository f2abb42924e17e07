//! Memory on pages of the kernel's pool: where it lies, what happens when the pool or the budget is short, and forks.

use ream_tests::{Case, Outcome, Pool, Run, Scratch, make_runnable, ream_binary, skip};
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

fn program() -> Option<PathBuf> {
    Case::new("c/pool.c", &[], 512).build()
}

/// KiB on pages of the pool: with all filled, and after blocks have grown, shrunk and gone.
fn pooled(outcome: &Outcome) -> [u64; 2] {
    ["pooled ", "afterwards "].map(|word| {
        let err = outcome.err();
        let line = err.lines().find_map(|line| line.strip_prefix(word)).expect("a line of the program");
        line.trim_end_matches(" KiB").parse().expect("a number")
    })
}

fn run(pages: &str, children: u32, mebibytes: u64) -> Option<Outcome> {
    Some(Run::of(program()?).arg(children.to_string()).memory(mebibytes).option(format!("--pages={pages}")).finish())
}

#[test]
fn heap_and_static_data_lie_on_pages_of_the_pool() {
    let Some(pool) = Pool::with_free(120) else { return };
    let Some(outcome) = run("hugetlb:require", 0, 512) else { return };
    outcome.exited(0);
    assert_eq!(outcome.out(), "right\n");
    // 10 of 12 MiB of .bss and 2 of 4 of .data are whole blocks at least; 20 are one large block, 6 small ones.
    assert!(pooled(&outcome).iter().all(|kib| *kib >= (10 + 2 + 20 + 6) << 10), "{}", outcome.describe());
    assert_eq!(pool.until_free(120), 120, "pages of the pool are missing");
    // By region.
    let only_data = run("bss=hugetlb:require", 0, 512).expect("built above");
    only_data.exited(0);
    assert!((12 << 10..=16 << 10).contains(&pooled(&only_data)[0]), "{}", only_data.describe());
}

#[test]
fn a_pool_that_is_short_is_made_up_for() {
    let Some(pool) = Pool::with_free(3) else { return };
    let Some(outcome) = run("hugetlb", 1, 512) else { return };
    outcome.exited(0);
    assert_eq!(outcome.out(), "right\n");
    assert!(
        outcome.err().contains("do not come to lie on pages of a pool: the pool has too few left"),
        "{}",
        outcome.describe()
    );
    assert!(pooled(&outcome)[0] <= 6 << 10);
    let strict = run("hugetlb:require", 1, 512).expect("built above");
    strict.exited(125);
    assert_eq!(strict.out(), "");
    assert!(strict.err().contains("the program is not started"), "{}", strict.describe());
    assert!(pool.leave_free(0));
    let empty = run("heap=hugetlb:require", 1, 512).expect("built above");
    empty.exited(125);
    assert!(empty.err().contains("the pool of 2 MiB pages is empty; as root: ream setup"), "{}", empty.describe());
    run("hugetlb", 1, 512).expect("built above").exited(0);
}

/// The pool had pages when the session began; others have taken them before the program that needs them begins.
#[test]
fn a_pool_that_others_have_emptied_meanwhile() {
    let Some(program) = program() else { return };
    let script = ": > \"$2\"; while [ ! -e \"$1\" ]; do sleep 0.05; done; exec \"$0\" 1";
    for (pages, status) in [("hugetlb", 0), ("hugetlb:require", 125)] {
        // The shell takes none of them: what it gave back at exec would be there again.
        let Some(pool) = Pool::with_free(20) else { return };
        let scratch = Scratch::new("stolen");
        let (go, begun) = (scratch.file("go"), scratch.file("begun"));
        let running = Run::of("/bin/sh")
            .args(["-c", script])
            .arg(&program)
            .arg(&go)
            .arg(&begun)
            .memory(512)
            .option(format!("--pages=bss={pages}"))
            .start();
        let deadline = Instant::now() + Duration::from_secs(60);
        while !begun.exists() {
            assert!(Instant::now() < deadline, "it does not begin");
            std::thread::sleep(Duration::from_millis(10));
        }
        while !pool.leave_free(0) {
            assert!(Instant::now() < deadline, "the pool cannot be emptied");
            std::thread::sleep(Duration::from_millis(10));
        }
        fs::write(&go, "").expect("a file");
        let outcome = running.finish();
        outcome.exited(status);
        let told = "the pool has too few left";
        if status == 0 {
            assert_eq!(outcome.out(), "right\n");
            assert!(outcome.err().contains(told), "{}", outcome.describe());
        } else {
            assert_eq!(outcome.out(), "");
            assert!(outcome.err().contains("the program is not started"), "{}", outcome.describe());
        }
    }
}

/// The child has no claim on any page of the pool, and here there is none to spare: the kernel would kill it, or take a page
/// from it for its parent's next write.
#[test]
fn parents_and_children_write_when_the_pool_has_nothing_left() {
    let Some(pool) = Pool::with_free(49) else { return };
    for round in 0..5 {
        let Some(outcome) = run("hugetlb", 4, 512) else { return };
        outcome.exited(0);
        assert_eq!(outcome.out(), "right\n", "round {round}");
        assert!(pooled(&outcome)[0] >= 30 << 10, "{}", outcome.describe());
        assert_eq!(pool.until_free(49), 49);
    }
}

/// What lies on pages of the pool is a part of the budget that cannot be paged; the rest is.
#[test]
fn within_a_budget_only_a_part_is_pooled() {
    let Some(pool) = Pool::with_free(120) else { return };
    let Some(outcome) = run("hugetlb", 2, 32) else { return };
    outcome.exited(0);
    assert_eq!(outcome.out(), "right\n");
    assert!(outcome.err().contains("they do not fit the budget"), "{}", outcome.describe());
    assert!((2 << 10..=16 << 10).contains(&pooled(&outcome)[0]), "{}", outcome.describe());
    assert!(outcome.summary().number("bytes_out") > 0, "{}", outcome.describe());
    assert!(outcome.summary().number("peak_resident") <= (32 << 20) * 102 / 100, "{}", outcome.describe());
    assert_eq!(pool.until_free(120), 120);
}

fn forks(word: &str, rounds: u32) -> Option<Outcome> {
    let program = Case::new("c/pool_forks.c", &[], 512).build()?;
    let run = Run::of(program).arg(word).arg(rounds.to_string()).memory(512).option("--pages=heap=hugetlb:require");
    Some(run.deadline(60).finish())
}

/// The parent, which waits until its child has a copy, goes on when that has ended instead.
#[test]
fn a_child_killed_while_its_parent_waits() {
    // All of the pool is the program's: 32 pages for small blocks, and 24.
    let Some(pool) = Pool::with_free(56) else { return };
    let Some(outcome) = forks("killed", 20) else { return };
    outcome.exited(0);
    assert_eq!(outcome.out(), "right\n");
    let killed = outcome.err().lines().find_map(|line| line.strip_prefix("killed ")?.parse::<u32>().ok());
    assert!(killed.is_some_and(|children| children >= 5), "{}", outcome.describe());
    assert_eq!(pool.until_free(56), 56);
}

/// No pipe between the two can be made, by which the parent would see its child's end.
#[test]
fn a_fork_without_a_descriptor_left() {
    let Some(pool) = Pool::with_free(56) else { return };
    let Some(outcome) = forks("descriptors", 4) else { return };
    outcome.exited(0);
    assert_eq!(outcome.out(), "right\n");
    assert_eq!(pool.until_free(56), 56);
}

/// Another thread of the parent does not wait: it takes pages from the child when the pool has no others. The child is
/// stopped then, with a line that says why; where there are enough it has all that it should.
#[test]
fn a_thread_writes_while_a_child_takes_its_copy() {
    let Some(pool) = Pool::with_free(56) else { return };
    let Some(outcome) = forks("writer", 10) else { return };
    outcome.exited(0);
    let stopped =
        |outcome: &Outcome| outcome.out().trim().strip_prefix("stopped ").and_then(|count| count.parse().ok());
    let lines = outcome.err().matches("other threads of its parent wrote to them").count();
    assert_eq!(stopped(&outcome), Some(lines), "{}", outcome.describe());
    if pool.leave_free(56 + 32) {
        let Some(outcome) = forks("writer", 10) else { return };
        outcome.exited(0);
        assert_eq!(stopped(&outcome), Some(0), "{}", outcome.describe());
        assert_eq!(pool.until_free(56 + 32), 56 + 32);
    }
}

/// A cgroup that limits pages of a pool, in the unified hierarchy; taken away, with the controller if that was off.
struct Limit {
    root: PathBuf,
    group: PathBuf,
    switched: bool,
}

impl Limit {
    fn of(bytes: u64) -> Option<Limit> {
        let roots = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"].map(PathBuf::from);
        let has = |root: &PathBuf, file: &str| {
            fs::read_to_string(root.join(file)).is_ok_and(|text| text.split_whitespace().any(|word| word == "hugetlb"))
        };
        let root = roots.into_iter().find(|root| has(root, "cgroup.controllers"))?;
        let switched = !has(&root, "cgroup.subtree_control");
        if switched {
            fs::write(root.join("cgroup.subtree_control"), "+hugetlb").ok()?;
        }
        let group = root.join(format!("ream-tests-pool-{}", std::process::id()));
        let limit = Limit { root, group, switched };
        fs::create_dir(&limit.group).ok()?;
        fs::write(limit.group.join("hugetlb.2MB.max"), bytes.to_string()).ok()?;
        Some(limit)
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while fs::remove_dir(&self.group).is_err() && self.group.exists() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        if self.switched {
            let _ = fs::write(self.root.join("cgroup.subtree_control"), "-hugetlb");
        }
    }
}

/// The kernel promises the pages, and would answer the touch of one beyond the limit with SIGBUS.
#[test]
fn a_limit_of_the_cgroup_is_made_up_for() {
    let Some(pool) = Pool::with_free(120) else { return };
    let Some(limit) = Limit::of(84 << 20) else {
        return skip("a limit on pages of a pool", "the hugetlb controller is not to be had in the unified hierarchy");
    };
    let Some(program) = program() else { return };
    let scratch = Scratch::new("limited");
    let enter = scratch.file("ream");
    let (group, ream) = (limit.group.display(), ream_binary());
    let script = format!("#!/bin/sh\necho 0 > {group}/cgroup.procs\nexec {} \"$@\"\n", ream.display());
    fs::write(&enter, script).expect("a script");
    make_runnable(&enter, 0o755);
    let run = || Run::of(&program).ream(&enter).memory(512).option("--pages=hugetlb");
    // 64 MiB for small blocks and 12 of .bss fit; the large block and .data do not.
    for children in [0, 2] {
        let outcome = run().arg(children.to_string()).finish();
        outcome.exited(0);
        assert_eq!(outcome.out(), "right\n");
        assert!(outcome.err().contains("do not come to lie on pages of a pool"), "{}", outcome.describe());
        assert!((2 << 10..=84 << 10).contains(&pooled(&outcome)[0]), "{}", outcome.describe());
    }
    assert_eq!(pool.until_free(120), 120);
}

/// A pool of one page of 1 GiB, put back as it was.
struct Gigantic(String);

impl Gigantic {
    const PATH: &'static str = "/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages";
    const FREE: &'static str = "/sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages";

    fn one() -> Option<Gigantic> {
        let before = fs::read_to_string(Gigantic::PATH).ok()?;
        let pool = Gigantic(before);
        fs::write(Gigantic::PATH, format!("{}", pool.0.trim().parse::<u64>().ok()? + 1)).ok()?;
        (fs::read_to_string(Gigantic::FREE).ok()?.trim() == "1").then_some(pool)
    }

    /// How many are free, as soon as it is one: the kernel takes it back when it comes to that.
    fn until_one_is_free() -> String {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let free = fs::read_to_string(Gigantic::FREE).expect("the pool");
            if free.trim() == "1" || Instant::now() > deadline {
                return free;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Gigantic {
    fn drop(&mut self) {
        let _ = fs::write(Gigantic::PATH, &self.0);
    }
}

/// Blocks of both sizes share the one page; static data, which are less, and what comes after it lie on pages of 2 MiB.
/// Several children: the kernel loses such a page in one of ten.
#[test]
fn a_page_of_1_gib_holds_the_heap() {
    let Some(pool) = Pool::with_free(40) else { return };
    let Some(_one) = Gigantic::one() else {
        return skip("a page of 1 GiB", "the machine has none in one piece to reserve, or the tests are not root's");
    };
    for children in [0, 2, 8, 8] {
        let outcome = run("1g:prefer", children, 2048).expect("built above");
        outcome.exited(0);
        assert_eq!(outcome.out(), "right\n");
        assert!(pooled(&outcome)[0] >= (1 << 20) + (10 << 10), "{}", outcome.describe());
        let pages = pool.until_free(40);
        assert_eq!((Gigantic::until_one_is_free().trim(), pages), ("1", 40), "{}", outcome.describe());
    }
}

/// Compares a program that does not know that its memory lies on pages of 2 MiB.
fn compare_pooled(source: &str) {
    let Some(pool) = Pool::with_free(60) else { return };
    let Some(program) = Case::new(source, &[], 512).build() else { return };
    let outcome = Run::of(&program).memory(512).option("--pages=heap=hugetlb:require,bss=hugetlb:require").finish();
    outcome.same_as(&Run::of(&program).finish());
    assert_eq!(outcome.err(), "", "{}", outcome.describe());
    assert_eq!(pool.until_free(60), 60, "pages of the pool are missing");
}

#[test]
fn parts_of_its_pages_are_discarded() {
    compare_pooled("c/pool_parts.c");
}

#[test]
fn children_have_protected_memory_as_it_was() {
    compare_pooled("c/pool_protected.c");
}

/// What the kernel does not do with a part of such a page is refused, and said once.
#[test]
fn a_part_that_cannot_be_changed_is_named() {
    let Some(_pool) = Pool::with_free(60) else { return };
    let Some(program) = Case::new("c/pool_pieces.c", &[], 512).build() else { return };
    let outcome = Run::of(&program).memory(512).option("--pages=bss=hugetlb:require").finish();
    outcome.exited(0).says("cannot be protected, unmapped or replaced in pieces").says("--pages=huge");
    assert_eq!(outcome.err().trim_end().lines().count(), 1, "{}", outcome.describe());
}
