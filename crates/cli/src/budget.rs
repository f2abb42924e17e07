//! The budget of a session: what was asked for, what the machine and its cgroup leave, and what is said when they do not agree.

use crate::failure::Failure;
use crate::machine::{CGROUP_MARGIN, Machine};
use crate::settings::Settings;
use ream_options::{Memory, show_size};

/// The smallest budget that paging can work with, in bytes.
pub const LEAST: u64 = 8 << 20;

/// The budget in bytes.
///
/// # Errors
/// What was asked for cannot be. A budget that Ream chooses itself never keeps a program from running.
pub fn of(settings: &Settings, machine: &Machine, warn: &mut dyn FnMut(String)) -> Result<u64, Failure> {
    let chosen = settings.memory == Memory::Auto;
    let asked = match settings.memory {
        Memory::Auto => machine.automatic().saturating_sub(settings.zip).max(LEAST),
        memory => memory.of(machine.most()).unwrap_or(0),
    };
    if settings.zip > 0 {
        // Compressed pages are beside the budget.
        let most = machine.cap().map_or(machine.total, |cap| cap.min(machine.total));
        if settings.zip.saturating_add(asked) > most {
            let (zip, asked) = (show_size(settings.zip), show_size(asked));
            return Err(Failure::new(format!(
                "--store zip: {zip} beside a budget of {asked} is more than the {} that there is here; give less for one of them",
                show_size(most)
            )));
        }
    }
    let refuse = |why: String| {
        let given = settings.memory_given.as_ref();
        let option = given.map_or_else(|| "--memory".into(), |given| given.to_string());
        let text = given.and_then(|given| given.text.as_ref()).map(|text| text.to_string_lossy().into_owned());
        Err(Failure::new(format!("{option}: \"{}\": {why}", text.unwrap_or_else(|| "auto".into()))))
    };
    if let (Memory::Bytes(bytes), true) = (settings.memory, asked > machine.total) {
        let (bytes, total) = (show_size(bytes), show_size(machine.total));
        return refuse(format!("{bytes} is more than this machine's {total} of RAM; give less, or a percentage"));
    }
    if chosen {
        let free = machine.automatic();
        if free >= LEAST && free.saturating_sub(settings.zip) < LEAST {
            return Err(Failure::new(format!(
                "--store zip: {} leaves too little of the {} that there are for it and the budget; give less",
                show_size(settings.zip),
                show_size(free)
            )));
        }
        if free < LEAST {
            warn(format!("--memory auto: {}; using the least, {}", scarce(machine), show_size(LEAST)));
        }
        return Ok(asked);
    }
    let cap = machine.cap().unwrap_or(u64::MAX);
    let budget = asked.min(cap);
    if budget < LEAST {
        let why = format!("{} is too little to work with; at least {} are needed", show_size(budget), show_size(LEAST));
        return refuse(match &machine.cgroup {
            Some(limit) if cap <= asked => format!(
                "the cgroup allows {} ({}), less {} for all else: {why}",
                show_size(limit.bytes),
                limit.file.display(),
                show_size(CGROUP_MARGIN)
            ),
            _ => why,
        });
    }
    match (&machine.cgroup, &machine.left) {
        (Some(limit), _) if matches!(settings.memory, Memory::Bytes(_)) && budget < asked => warn(format!(
            "--memory: {} is more than the cgroup allows ({} in {}, less {} for all else); using {}",
            show_size(asked),
            show_size(limit.bytes),
            limit.file.display(),
            show_size(CGROUP_MARGIN),
            show_size(budget)
        )),
        (_, Some(left)) if budget > left.bytes => warn(format!(
            "--memory: {} is more than others leave of the cgroup now ({}, {}); the kernel ends programs where its limit is reached",
            show_size(budget),
            show_size(left.bytes),
            left.file.display()
        )),
        _ => {}
    }
    Ok(budget)
}

/// Why there is so little, in words.
fn scarce(machine: &Machine) -> String {
    match &machine.left {
        Some(left) if left.bytes.saturating_sub(CGROUP_MARGIN) < LEAST => {
            let (bytes, margin) = (show_size(left.bytes), show_size(CGROUP_MARGIN));
            format!("the cgroup leaves {bytes} ({}), less {margin} for all else", left.file.display())
        }
        _ => format!("{} of RAM are available", show_size(machine.available)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::CgroupLimit;
    use crate::settings::{Given, Source};
    use ream_options::find;

    /// The machine has 16 GiB, 10 of them available; `cgroup` is the limit and what of it is left.
    fn outcome_and_warnings(
        memory: Option<&str>,
        available: u64,
        cgroup: Option<(u64, u64)>,
    ) -> (Result<u64, String>, Vec<String>) {
        let given = |text: &str| {
            vec![Given { spec: find("run", "memory").unwrap(), source: Source::Flag, text: Some(text.into()) }]
        };
        let flags = memory.map(given).unwrap_or_default();
        let settings = Settings::settle("run", flags, &|_| None, Vec::new()).unwrap();
        let limit = |bytes| CgroupLimit { bytes, file: "/g".into() };
        let (cgroup, left) = (cgroup.map(|(all, _)| limit(all)), cgroup.map(|(_, left)| limit(left)));
        let machine = Machine { total: 16 << 30, available, swap_total: 0, cgroup, left };
        let mut warnings = Vec::new();
        let outcome = of(&settings, &machine, &mut |line| warnings.push(line)).map_err(|failure| failure.text);
        (outcome, warnings)
    }

    fn outcome(memory: Option<&str>, cgroup: Option<u64>) -> Result<u64, String> {
        outcome_and_warnings(memory, 10 << 30, cgroup.map(|bytes| (bytes, bytes))).0
    }

    #[test]
    fn budgets() {
        assert_eq!(outcome(None, None), Ok(9 << 30));
        assert_eq!(outcome(None, Some(2 << 30)), Ok((2u64 << 30) * 9 / 10));
        assert_eq!(outcome(Some("1G"), None), Ok(1 << 30));
        assert_eq!(outcome(Some("50%"), None), Ok(8 << 30));
        assert_eq!(outcome(Some("50%"), Some(2 << 30)), Ok(1 << 30));
        // The margin counts, whatever was asked for.
        assert_eq!(outcome(Some("100%"), Some(2 << 30)), Ok((2 << 30) - (64 << 20)));
        assert_eq!(outcome(Some("4G"), Some(2 << 30)), Ok((2 << 30) - (64 << 20)));
        assert_eq!(outcome(None, Some(512 << 20)), Ok((512 << 20) - (64 << 20)));
    }

    #[test]
    fn impossible_budgets() {
        let text = outcome(Some("17G"), None).unwrap_err();
        assert_eq!(
            text,
            "--memory: \"17G\": 17 GiB is more than this machine's 16 GiB of RAM; give less, or a percentage"
        );
        let text = outcome(Some("1M"), None).unwrap_err();
        assert_eq!(text, "--memory: \"1M\": 1 MiB is too little to work with; at least 8 MiB are needed");
        let text = outcome(Some("1G"), Some(65 << 20)).unwrap_err();
        assert!(
            text.starts_with("--memory: \"1G\": the cgroup allows 65 MiB (/g), less 64 MiB for all else"),
            "{text}"
        );
    }

    #[test]
    fn a_budget_of_our_own_choice_is_what_others_leave_and_never_refused() {
        for memory in [None, Some("auto")] {
            let auto = |available, cgroup| outcome_and_warnings(memory, available, cgroup);
            // Of 4 GiB others have 3.
            assert_eq!(auto(10 << 30, Some((4 << 30, 1 << 30))), (Ok((1u64 << 30) * 9 / 10), vec![]));
            assert_eq!(auto(10 << 30, Some((4 << 30, 100 << 20))), (Ok(36 << 20), vec![]));
            for left in [0, 1 << 20, 64 << 20, 71 << 20] {
                let (outcome, warnings) = auto(10 << 30, Some((4 << 30, left)));
                let bytes = show_size(left);
                let line = format!(
                    "--memory auto: the cgroup leaves {bytes} (/g), less 64 MiB for all else; using the least, 8 MiB"
                );
                assert_eq!((outcome, warnings), (Ok(LEAST), vec![line]));
            }
            // So with a small cgroup, and on a machine that is full.
            assert_eq!(auto(10 << 30, Some((65 << 20, 65 << 20))).0, Ok(LEAST));
            let (outcome, warnings) = auto(2 << 20, None);
            assert_eq!(outcome, Ok(LEAST));
            assert_eq!(warnings, ["--memory auto: 2 MiB of RAM are available; using the least, 8 MiB"]);
        }
    }

    #[test]
    fn what_does_not_fit_the_cgroup_is_said_in_one_line() {
        let said = |memory, cgroup| {
            let (outcome, warnings) = outcome_and_warnings(Some(memory), 10 << 30, cgroup);
            (outcome.unwrap(), warnings)
        };
        assert_eq!(said("4G", Some((5 << 30, 4 << 30))), (4 << 30, vec![]));
        let (budget, lines) = said("4G", Some((2 << 30, 1 << 20)));
        assert_eq!(budget, (2 << 30) - (64 << 20));
        assert!(
            lines.len() == 1 && lines[0].starts_with("--memory: 4 GiB is more than the cgroup allows (2 GiB in /g")
        );
        // What was asked for and is allowed holds, whatever others have just now.
        for memory in ["1G", "50%"] {
            let (budget, lines) = said(memory, Some((2 << 30, 512 << 20)));
            assert_eq!(budget, 1 << 30);
            let line = "--memory: 1 GiB is more than others leave of the cgroup now (512 MiB, /g)";
            assert!(lines.len() == 1 && lines[0].starts_with(line), "{lines:?}");
        }
    }
}
