//! `ream setup`: prepares a machine for Ream, and takes back what it changed.

pub mod binfmt;
mod change;
mod journal;
mod lines;
pub mod plan;
#[cfg(test)]
mod tests;
mod wishes;

use crate::arguments::Arguments;
use crate::failure::{Failure, reason};
use crate::os;
use crate::tree::Tree;
use change::{ABSENT, Change, Kind};
use journal::Journal;
use std::io::Write;
use wishes::{Pool, Wishes};

/// What mends what setup can mend, for messages.
pub const SETUP: &str = "sudo ream setup";

/// The rule by which udev lets everybody, or the members of a group, use /dev/userfaultfd.
pub fn userfaultfd_rule(group: Option<&str>) -> String {
    match group {
        Some(group) => format!("KERNEL==\"userfaultfd\", GROUP=\"{group}\", MODE=\"0660\""),
        None => "KERNEL==\"userfaultfd\", MODE=\"0666\"".to_owned(),
    }
}

/// Does what the options say; returns the exit status: 0, or 1 when something could not be done.
///
/// # Errors
/// What is asked for is not possible, or not allowed; nothing was changed then.
pub fn main(arguments: &Arguments) -> Result<i32, Failure> {
    let wishes = Wishes::read(arguments)?;
    let tree = Tree::new(&wishes.root);
    os::ignore_broken_pipes();
    let mut out = std::io::stdout().lock();
    run(&tree, &wishes, &mut out)
}

fn run(tree: &Tree, wishes: &Wishes, out: &mut dyn Write) -> Result<i32, Failure> {
    if tree.is_machine() && !wishes.dry_run && os::user_and_group().0 != 0 {
        return Err(Failure::new(
            "setup: only root can change the machine: sudo ream setup; --dry-run shows what it would do",
        ));
    }
    if wishes.undo { undo(tree, wishes.dry_run, out) } else { apply(tree, wishes, out) }
}

/// Says something. A reader that went away keeps nothing from being done; what cannot be written does, since each change is to
/// be seen before it is made.
macro_rules! say {
    ($out:expr, $($text:tt)*) => {
        crate::written(write!($out, $($text)*).and_then(|()| $out.flush()))?
    };
}

fn apply(tree: &Tree, wishes: &Wishes, out: &mut dyn Write) -> Result<i32, Failure> {
    // Taken before the machine is looked at, so that two setups do not both find the same to do.
    let mut journal = if wishes.dry_run { None } else { Journal::open(tree, true)? };
    let plan = match plan::plan(tree, wishes) {
        Ok(plan) => plan,
        Err(failure) => {
            if let Some(journal) = journal {
                journal.close();
            }
            return Err(failure);
        }
    };
    let outcome = make_all(tree, wishes, &plan, journal.as_mut(), out);
    if let Some(journal) = journal {
        journal.close();
    }
    outcome
}

/// Shows all changes of a plan, and makes each where there is a journal.
fn make_all(
    tree: &Tree,
    wishes: &Wishes,
    plan: &plan::Plan,
    mut journal: Option<&mut Journal>,
    out: &mut dyn Write,
) -> Result<i32, Failure> {
    let mut failed = false;
    let mut done = 0;
    for change in &plan.changes {
        say!(out, "{}", change::line(change.kind, &change.path, &change.old, &change.new));
        let Some(journal) = &mut journal else { continue };
        match make(tree, journal, change) {
            Ok(None) => done += 1,
            Ok(Some(short)) => {
                failed = true;
                done += usize::from(short.got != change.old);
                say!(out, "  {}\n", short.words(change, &wishes.pools));
            }
            Err(why) => {
                failed = true;
                say!(out, "  not done: {why}\n");
            }
        }
    }
    for note in &plan.notes {
        say!(out, "note: {note}\n");
    }
    match (plan.changes.len(), wishes.dry_run) {
        (0, _) => say!(out, "nothing to do\n"),
        (count, true) => say!(out, "{}; nothing was changed\n", number(count, "change to make", "changes to make")),
        (_, false) => say!(out, "{}; ream setup --undo takes back\n", number(done, "change made", "changes made")),
    }
    Ok(i32::from(failed))
}

fn number(count: usize, one: &str, more: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {more}") }
}

/// The kernel gave another number of pages than it was asked for.
struct Short {
    got: Vec<u8>,
}

impl Short {
    fn words(&self, change: &Change, pools: &[Pool]) -> String {
        let text = |state: &[u8]| String::from_utf8_lossy(state).into_owned();
        let pool = pools.iter().find(|pool| change.path.contains(&format!("hugepages-{}kB", pool.page)));
        let words = pool.map_or_else(String::new, |pool| format!(" ({})", plan::kernel_words(pool)));
        format!(
            "the kernel gave {} of {} pages: memory is in use or in pieces; restart the machine, which reserves them \
             while it is empty, or let the kernel do it first of all by its command line{words}",
            text(&self.got),
            text(&change.new)
        )
    }
}

/// Writes a change down and makes it.
fn make(tree: &Tree, journal: &mut Journal, change: &Change) -> Result<Option<Short>, String> {
    let at = journal.begin(change).map_err(|error| format!("{}: {}", journal::PATH, reason(&error)))?;
    let made = change::set(tree, change.kind, &change.path, &change.new);
    let now = change::look(tree, change.kind, &change.path).map_err(|error| reason(&error))?;
    if now == change.new {
        return Ok(None);
    }
    // An interrupted reservation has given something, too.
    if change.kind != Kind::Pool && now != change.old {
        let _ = change::set(tree, change.kind, &change.path, &change.old);
    }
    let now = change::look(tree, change.kind, &change.path).map_err(|error| reason(&error))?;
    if now == change.old {
        let _ = journal.strike(at);
    }
    match made {
        Ok(()) if change.kind == Kind::Pool => Ok(Some(Short { got: now })),
        Ok(()) => Err("the kernel did not take it".to_owned()),
        Err(error) => Err(explained(change.kind, &error)),
    }
}

fn explained(kind: Kind, error: &std::io::Error) -> String {
    let why = reason(error);
    match (kind, error.raw_os_error()) {
        (Kind::Mount, Some(libc::ENODEV)) => format!("{why}: this kernel has no binfmt_misc (modprobe binfmt_misc)"),
        (Kind::Knob | Kind::Pool | Kind::Device, Some(libc::EROFS | libc::EACCES | libc::EPERM)) => {
            format!("{why}; in a container only the host can change it")
        }
        _ => why,
    }
}

/// Whether a thing is as a change has made it, or as it is left in the middle of one.
fn ours(change: &Change, now: &[u8]) -> bool {
    let count = |state: &[u8]| std::str::from_utf8(state).ok().and_then(|text| text.parse::<u64>().ok());
    match change.kind {
        _ if now == change.new => true,
        // The kernel may have given less than asked for, or later, at boot.
        Kind::Pool => match (count(&change.old), count(now), count(&change.new)) {
            (Some(old), Some(now), Some(new)) => old < now && now < new,
            _ => false,
        },
        // Taken away to be replaced; or switched off by somebody, which makes it nobody else's.
        Kind::Entry => {
            (now == ABSENT && change.old != ABSENT) || now.strip_suffix(binfmt::OFF) == Some(change.new.as_slice())
        }
        Kind::Device => match (change::parts(&change.old), change::parts(now), change::parts(&change.new)) {
            (Some(old), Some(now), Some(new)) => {
                now != old
                    && [old.0, old.0 & new.0, new.0].contains(&now.0)
                    && [old.1, new.1, (new.1.0, old.1.1)].contains(&now.1)
            }
            _ => false,
        },
        _ => false,
    }
}

fn undo(tree: &Tree, dry_run: bool, out: &mut dyn Write) -> Result<i32, Failure> {
    let Some(mut journal) = Journal::open(tree, false)? else {
        say!(out, "nothing to undo\n");
        return Ok(0);
    };
    let outcome = take_back(tree, &mut journal, dry_run, out);
    if !dry_run {
        journal.close();
    }
    outcome
}

fn take_back(tree: &Tree, journal: &mut Journal, dry_run: bool, out: &mut dyn Write) -> Result<i32, Failure> {
    let (mut done, mut left) = (0, false);
    // What a change will find when those after it have been taken back, where nothing is really changed.
    let mut imagined: Vec<(String, Vec<u8>)> = Vec::new();
    for (at, change) in journal.live().into_iter().rev() {
        let (kind, path) = (change.kind, change.path.as_str());
        if !dry_run {
            change::clear(tree, kind, path);
        }
        let now = match imagined.iter().rfind(|(other, _)| other == path) {
            Some((_, state)) => Ok(state.clone()),
            None => change::look(tree, kind, path),
        };
        match now {
            Ok(now) if now == change.old => {}
            Ok(now) if ours(&change, &now) => {
                say!(out, "{}", change::line(kind, path, &now, &change.old));
                done += 1;
                if dry_run {
                    imagined.push((path.to_owned(), change.old.clone()));
                    continue;
                }
                match change::set(tree, kind, path, &change.old) {
                    Ok(()) => {}
                    // Others have put something there, which is a reason to leave it and no failure.
                    Err(error) if in_use(kind, &error) => say!(out, "  in use by others, left\n"),
                    Err(error) => {
                        say!(out, "  not done: {}\n", explained(kind, &error));
                        (done, left) = (done - 1, true);
                        continue;
                    }
                }
            }
            Ok(now) => {
                left = true;
                let was = change::shown(kind, &change.old);
                say!(
                    out,
                    "{path}: {}: changed by others since; left as it is (before ream setup: {was})\n",
                    change::shown(kind, &now)
                );
            }
            // With a device or setting that has gone, what was set has gone as well.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => {
                say!(out, "{path}: not done: {}\n", explained(kind, &error));
                left = true;
                continue;
            }
        }
        if !dry_run {
            journal.strike(at).map_err(|error| Failure::new(format!("{}: {}", journal::PATH, reason(&error))))?;
        }
    }
    match dry_run {
        true => say!(out, "{}; nothing was changed\n", number(done, "change to take back", "changes to take back")),
        false => say!(out, "{}\n", number(done, "change taken back", "changes taken back")),
    }
    Ok(i32::from(left))
}

fn in_use(kind: Kind, error: &std::io::Error) -> bool {
    let codes: &[i32] = match kind {
        Kind::Directory => &[libc::ENOTEMPTY, libc::EEXIST, libc::EBUSY],
        Kind::Mount => &[libc::EBUSY],
        _ => &[],
    };
    error.raw_os_error().is_some_and(|code| codes.contains(&code))
}
