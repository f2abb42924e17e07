//! The kernel's pool of large pages, for those allocators that need one: taken by root only, and given back when the
//! benchmark ends, however it ends.

use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};

const COUNT: &str = "/proc/sys/vm/nr_hugepages";

/// A pool that was made larger; as it was before when dropped.
pub struct Pool {
    before: u64,
    /// Gives it back if this process cannot; knows of its end by its standard input.
    keeper: Option<Child>,
}

fn count() -> Result<u64, String> {
    let text = std::fs::read_to_string(COUNT).map_err(|error| format!("{COUNT}: {error}"))?;
    text.trim().parse().map_err(|_| format!("{COUNT}: {text}: no number"))
}

/// Pages of the pool that nobody has, or has been promised.
fn free() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        line.trim().parse::<u64>().unwrap_or(0)
    };
    field("HugePages_Free:").saturating_sub(field("HugePages_Rsvd:"))
}

impl Pool {
    /// The pool as it is, if so many pages are free.
    ///
    /// # Errors
    /// They are not.
    pub fn as_it_is(pages: u64) -> Result<Pool, String> {
        match free() {
            free if free < pages => Err(format!(
                "needs {pages} free pages in the kernel's pool, {free} are there; as root, --pool makes it larger"
            )),
            _ => Ok(Pool { before: count()?, keeper: None }),
        }
    }

    /// Sees to it that so many pages are free. `keeper` is the program that gives them back.
    ///
    /// # Errors
    /// Why they are not to be had.
    pub fn take(pages: u64, keeper: &Path) -> Result<Pool, String> {
        let before = count()?;
        let mut pool = Pool { before, keeper: None };
        let lacking = pages.saturating_sub(free());
        if lacking == 0 {
            return Ok(pool);
        }
        // SAFETY: takes nothing and cannot fail.
        if unsafe { libc::geteuid() } != 0 {
            return Err(format!("needs root, or {pages} free pages in the pool (vm.nr_hugepages)"));
        }
        let mut command = Command::new(keeper);
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        command.args(["return-pool", &before.to_string()]).stdin(Stdio::piped()).stdout(Stdio::null());
        pool.keeper = Some(command.spawn().map_err(|error| format!("{}: {error}", keeper.display()))?);
        std::fs::write(COUNT, (before + lacking).to_string()).map_err(|error| format!("{COUNT}: {error}"))?;
        match free() {
            free if free < pages => Err(format!("{pages} large pages needed, {free} to be had")),
            _ => Ok(pool),
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if let Some(mut keeper) = self.keeper.take() {
            drop(keeper.stdin.take());
            let _ = keeper.wait();
            if count() != Ok(self.before) {
                eprintln!("ream bench: {COUNT} is not {} again; write it there", self.before);
            }
        }
    }
}

/// The keeper: waits until standard input ends, then makes the pool as large as it was.
pub fn give_back_when_orphaned(pages: &str) {
    let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
    if let Err(error) = std::fs::write(COUNT, pages) {
        eprintln!("ream bench: {COUNT}: {error}; write {pages} there");
    }
}
