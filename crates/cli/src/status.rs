//! `ream status`: region by region, on which pages a running program's memory really lies. Only reads /proc.

mod regions;
mod servers;
mod tiers;
pub mod tlb;

use crate::doctor::quoted;
use crate::failure::{Failure, reason, shown, shown_bytes};
use crate::outside;
use ream_options::show_size;
use regions::{Amounts, Kind, Region, regions};
use std::ffi::{OsStr, OsString};
use std::fs;

/// Regions with less in RAM than this are summed up by kind.
const SHOWN: u64 = 2 << 20;

/// Which processes are meant.
enum Which {
    One(u32),
    /// Those that run under Ream.
    Ours,
    All,
}

/// A process as it was found.
struct Process {
    id: u32,
    /// Whatever the process calls itself.
    name: Vec<u8>,
    regions: Vec<Region>,
    threads: Vec<u32>,
    /// Whether Ream's library is loaded, or it was given its pages from outside.
    ours: bool,
    /// Memory servers of its session.
    servers: Option<servers::Servers>,
    /// The tiers of its store, as text and as JSON.
    tiers: Option<(String, String)>,
}

impl Process {
    fn total(&self, kind: impl Fn(Kind) -> bool) -> Amounts {
        let mut total = Amounts::default();
        self.regions.iter().filter(|region| kind(region.kind)).for_each(|region| total.add(&region.amounts));
        total
    }
}

/// Looks at one process, at those that run under Ream, or at all. Returns text and exit status: 1 where none was found.
pub fn report(rest: &[OsString], all: bool, json: bool) -> Result<(String, i32), Failure> {
    let which = match rest {
        [] if all => Which::All,
        [] => Which::Ours,
        [_] if all => return Err(Failure::new("status: a process and --all; give one of them")),
        [word] => Which::One(process_id(word)?),
        [_, more, ..] => return Err(Failure::new(format!("{}: one argument too many", more.to_string_lossy()))),
    };
    let (processes, one) = match which {
        Which::One(id) => (vec![look(id).map_err(|error| cannot(id, &error))?], true),
        Which::Ours => (every(|process| process.ours), false),
        Which::All => (every(|process| !process.regions.is_empty()), false),
    };
    let status = i32::from(processes.is_empty());
    let text = match (json, one) {
        (true, _) => as_json(&processes, one),
        (false, true) => processes.iter().map(as_text).collect(),
        (false, false) => as_list(&processes, all),
    };
    Ok((text, status))
}

/// The number of a process.
pub fn process_id(word: &OsStr) -> Result<u32, Failure> {
    let text = word.to_string_lossy();
    text.parse().ok().filter(|id| *id > 0).ok_or_else(|| Failure::new(format!("{text}: not the number of a process")))
}

/// Why a process cannot be looked at.
pub fn cannot(id: u32, error: &std::io::Error) -> Failure {
    let text = match error.kind() {
        std::io::ErrorKind::NotFound => "no such process".to_owned(),
        std::io::ErrorKind::PermissionDenied => "another user's process; ask as that user, or as root".to_owned(),
        _ if error.raw_os_error() == Some(libc::ESRCH) => "the process has just ended".to_owned(),
        _ => reason(error),
    };
    Failure::new(format!("{id}: {text}"))
}

/// Every process that can be looked at and passes, the largest first.
fn every(pass: impl Fn(&Process) -> bool) -> Vec<Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    // Others' processes, and those that have just ended, are left out.
    let mut found: Vec<_> = ids.filter_map(|id| look(id).ok()).filter(pass).collect();
    found.sort_by_key(|process| core::cmp::Reverse((process.total(|_| true).resident, process.id)));
    found
}

fn look(id: u32) -> std::io::Result<Process> {
    let smaps = fs::read(format!("/proc/{id}/smaps"))?;
    let smaps = String::from_utf8_lossy(&smaps);
    let name = fs::read(format!("/proc/{id}/comm"))?;
    let name = name.strip_suffix(b"\n").unwrap_or(&name).to_owned();
    let tasks = fs::read_dir(format!("/proc/{id}/task"))?.flatten();
    let threads: Vec<u32> = tasks.filter_map(|task| task.file_name().to_str()?.parse().ok()).collect();
    let pointers: Vec<u64> = threads.iter().filter_map(|thread| stack_pointer(id, *thread)).collect();
    let entered = smaps.contains("/libream.so");
    let ours = entered || is_placed(id);
    let span = |file: &str| crate::elf::span(&fs::File::open(format!("/proc/{id}/root{file}")).ok()?);
    let servers = if entered { servers::of(id) } else { None };
    let tiers = if entered { tiers::of(id) } else { None };
    // Nothing is left of one that has ended but what its parent has not yet asked for.
    if smaps.is_empty() && has_state(id, 'Z') {
        return Err(std::io::Error::other("has ended; its parent has yet to take notice of it"));
    }
    Ok(Process { id, name, regions: regions(&smaps, &pointers, span), threads, ours, servers, tiers })
}

/// Whether a process is in this state.
fn has_state(id: u32, state: char) -> bool {
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let found = status.lines().find_map(|line| line.strip_prefix("State:"));
    found.is_some_and(|found| found.trim_start().starts_with(state))
}

/// Whether a process became a program that Ream put on large pages from outside: its number was told to that, and not to the
/// programs that it has started since.
fn is_placed(id: u32) -> bool {
    let placed = |variables: Vec<u8>| {
        let value =
            variables.split(|byte| *byte == 0).find_map(|text| text.strip_prefix(outside::PLACED.as_bytes()))?;
        std::str::from_utf8(value.strip_prefix(b"=")?).ok()?.parse::<u32>().ok()
    };
    let Some(told) = fs::read(format!("/proc/{id}/environ")).ok().and_then(placed) else { return false };
    // As it is numbered in its own namespace: the last one.
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let own = status.lines().find_map(|line| line.strip_prefix("NSpid:")?.split_whitespace().next_back()?.parse().ok());
    told == own.unwrap_or(id)
}

/// Where a thread's stack ends, while it sleeps in a system call.
fn stack_pointer(id: u32, thread: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{id}/task/{thread}/syscall")).ok()?;
    let mut words = text.split_whitespace().rev();
    words.next();
    u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()
}

fn percent(amounts: &Amounts) -> String {
    amounts.share().map_or_else(|| "-".to_owned(), |share| format!("{share} %"))
}

fn size(bytes: u64) -> String {
    if bytes == 0 { "-".to_owned() } else { show_size(bytes).to_string() }
}

fn headline(process: &Process) -> String {
    let total = process.total(|_| true);
    format!(
        "{} {}: {} resident, {} on large pages\n",
        process.id,
        shown_bytes(&process.name),
        show_size(total.resident),
        percent(&total)
    )
}

/// What is to be said of a region beside its size.
fn note(region: &Region) -> String {
    let locked = if region.locked { "locked " } else { "" };
    let paged = if region.paged { "paged " } else { "" };
    format!("{locked}{paged}{}", shown(&region.name))
}

fn as_text(process: &Process) -> String {
    let mut rows = vec![["", "SIZE", "RESIDENT", "2 MiB", "1 GiB", "SHARE", ""].map(str::to_owned)];
    let mut row = |title: String, amounts: &Amounts, note: String| {
        let [size_, resident, huge, giant] = [amounts.size, amounts.resident, amounts.huge, amounts.giant].map(size);
        rows.push([title, size_, resident, huge, giant, percent(amounts), note]);
    };
    for kind in Kind::ALL {
        let regions: Vec<_> = process.regions.iter().filter(|region| region.kind == kind).collect();
        if regions.is_empty() {
            continue;
        }
        let all_locked = regions.iter().all(|region| region.locked);
        let locked = if all_locked { "locked".to_owned() } else { String::new() };
        row(kind.word().to_owned(), &process.total(|other| other == kind), locked);
        if regions.len() == 1 {
            continue;
        }
        let mut rest = (0, Amounts::default());
        for region in regions {
            if region.amounts.resident >= SHOWN {
                row(format!("  {:x}", region.start), &region.amounts, note(region));
            } else {
                rest.0 += 1;
                rest.1.add(&region.amounts);
            }
        }
        if rest.0 > 0 {
            row(format!("  {} smaller", rest.0), &rest.1, String::new());
        }
    }
    let servers = process.servers.as_ref().map(servers::Servers::text).unwrap_or_default();
    let tiers = process.tiers.as_ref().map(|(text, _)| text.as_str()).unwrap_or_default();
    headline(process) + &table(&rows) + &servers + tiers + &tlb_text(process)
}

/// Rows with the first and last column to the left, the others to the right.
fn table(rows: &[[String; 7]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..7).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = format!("{:1$}", row[0], widths[0]);
        for column in 1..6 {
            line += &format!("  {:>1$}", row[column], widths[column]);
        }
        line += &format!("  {}", row[6]);
        text += line.trim_end();
        text += "\n";
    }
    text
}

fn tlb_text(process: &Process) -> String {
    let total = process.total(|_| true);
    let mut text = format!(
        "TLB: {} entries reach all that is resident, {} would with small pages only",
        total.entries(),
        total.resident / 4096
    );
    text += &match tlb::entries() {
        Some((small, large)) => {
            format!("; the processor's second level has {small} for 4 KiB and {large} for 2 MiB\n")
        }
        None => "; how many the processor has is not available here\n".to_owned(),
    };
    text + &match tlb::misses(&process.threads) {
        Ok((data, code)) => format!("TLB misses a second: {data} of data, {code} of code\n"),
        Err(why) => format!("TLB misses: {why}\n"),
    }
}

fn as_list(processes: &[Process], all: bool) -> String {
    if processes.is_empty() {
        return match all {
            true => "no process can be looked at\n".to_owned(),
            false => "no program runs under Ream; ream status PID or --all looks at others\n".to_owned(),
        };
    }
    let mut rows = vec![["PROCESS", "SIZE", "RESIDENT", "2 MiB", "1 GiB", "SHARE", "PROGRAM"].map(str::to_owned)];
    for process in processes {
        let total = process.total(|_| true);
        let [size_, resident, huge, giant] = [total.size, total.resident, total.huge, total.giant].map(size);
        rows.push([process.id.to_string(), size_, resident, huge, giant, percent(&total), shown_bytes(&process.name)]);
    }
    table(&rows)
}

fn as_json(processes: &[Process], one: bool) -> String {
    let texts: Vec<_> = processes.iter().map(|process| process_json(process, one)).collect();
    match (one, texts.as_slice()) {
        (true, [text]) => format!("{text}\n"),
        (_, []) => "[]\n".to_owned(),
        _ => format!("[\n{}\n]\n", texts.join(",\n")),
    }
}

fn process_json(process: &Process, whole: bool) -> String {
    let mut text = format!(
        "{{\n  \"pid\": {}, \"name\": {}, \"ream\": {},\n  \"total\": {{{}}}",
        process.id,
        quoted(&String::from_utf8_lossy(&process.name)),
        process.ours,
        amounts_json(&process.total(|_| true))
    );
    if whole {
        let number = |value: Option<u64>| value.map_or_else(|| "null".to_owned(), |value| value.to_string());
        let entries = tlb::entries();
        let misses = tlb::misses(&process.threads).ok();
        text += &format!(
            ",\n  \"tlb\": {{\"needed\": {}, \"entries_4k\": {}, \"entries_2m\": {}, \"data_misses_per_second\": {}, \
             \"code_misses_per_second\": {}}}",
            process.total(|_| true).entries(),
            number(entries.map(|entries| entries.0)),
            number(entries.map(|entries| entries.1)),
            number(misses.map(|misses| misses.0)),
            number(misses.map(|misses| misses.1)),
        );
    }
    if let Some((_, json)) = &process.tiers {
        text += &format!(",\n  \"tiers\": {json}");
    }
    if let Some(servers) = &process.servers {
        text += &format!(",\n  {}", servers.json());
    }
    let lines: Vec<_> = process
        .regions
        .iter()
        .map(|region| {
            format!(
                "    {{\"kind\": {}, \"start\": \"{:#x}\", {}, \"paged\": {}, \"locked\": {}, \"name\": {}}}",
                quoted(region.kind.word()),
                region.start,
                amounts_json(&region.amounts),
                region.paged,
                region.locked,
                quoted(&region.name)
            )
        })
        .collect();
    text + &format!(",\n  \"regions\": [\n{}\n  ]\n}}", lines.join(",\n"))
}

fn amounts_json(amounts: &Amounts) -> String {
    let share = amounts.share().map_or_else(|| "null".to_owned(), |share| share.to_string());
    format!(
        "\"size\": {}, \"resident\": {}, \"on_2m\": {}, \"on_1g\": {}, \"percent\": {share}",
        amounts.size, amounts.resident, amounts.huge, amounts.giant
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(words: &[&str], all: bool) -> String {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        report(&words, all, false).unwrap_err().text
    }

    #[test]
    fn mistakes_are_named() {
        assert_eq!(failure(&["x1"], false), "x1: not the number of a process");
        assert_eq!(failure(&["0"], false), "0: not the number of a process");
        assert_eq!(failure(&["4194304"], false), "4194304: no such process");
        assert_eq!(failure(&["1", "2"], false), "2: one argument too many");
        assert_eq!(failure(&["1"], true), "status: a process and --all; give one of them");
    }

    #[test]
    fn this_process_as_text_and_as_json() {
        let me = [OsString::from(std::process::id().to_string())];
        let (text, status) = report(&me, false, false).unwrap();
        assert_eq!(status, 0);
        for words in ["resident", "RESIDENT", "heap", "code", "main stack", "TLB: "] {
            assert!(text.contains(words), "{words}: {text}");
        }
        let (text, _) = report(&me, false, true).unwrap();
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        let sum: u64 =
            json["regions"].as_array().unwrap().iter().map(|region| region["resident"].as_u64().unwrap()).sum();
        assert_eq!(json["total"]["resident"].as_u64().unwrap(), sum);
        assert!(json["tlb"]["needed"].as_u64().unwrap() > 0);
    }

    #[test]
    fn names_of_others_are_shown_and_not_obeyed() {
        let mut process = look(std::process::id()).unwrap();
        process.name = b"we\"ird\n\x1b[31m\xff".to_vec();
        let list = as_list(&[process], true);
        assert!(list.lines().count() == 2 && list.ends_with("  we\"ird\\n\\x1b[31m\\xff\n"), "{list}");
        let mut process = look(std::process::id()).unwrap();
        process.name = b"\x1b".to_vec();
        process.regions.iter_mut().for_each(|region| region.name = "\u{1b}]0;x".to_owned());
        assert!(!as_text(&process).contains('\u{1b}'));
        let json: serde_json::Value = serde_json::from_str(&as_json(&[process], true)).unwrap();
        assert_eq!(json["name"], "\u{1b}");
    }

    #[test]
    fn a_process_that_has_ended_is_not_shown() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        for _ in 0..2000 {
            if has_state(child.id(), 'Z') {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let said = failure(&[&child.id().to_string()], false);
        assert_eq!(said, format!("{}: has ended; its parent has yet to take notice of it", child.id()));
        child.wait().unwrap();
    }

    #[test]
    fn all_processes_as_a_list() {
        let (text, status) = report(&[], true, false).unwrap();
        assert!(status == 0 && text.lines().any(|line| line.starts_with(&std::process::id().to_string())), "{text}");
        let (text, _) = report(&[], true, true).unwrap();
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert!(!json.as_array().unwrap().is_empty());
    }
}
