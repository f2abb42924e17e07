//! Limits and settings of memory: what the user may map, how much RAM there is.

use super::{Finding, Verdict, setting};
use crate::agent;
use crate::budget::LEAST;
use crate::machine::Machine;
use crate::os;
use crate::setup::{SETUP, plan::MAPPINGS};
use ream_options::show_size;

/// Looks at all of them.
pub fn look(machine: &Machine) -> Vec<Finding> {
    let count = |path: &str| setting(path).and_then(|text| text.parse::<u64>().ok());
    vec![
        mappings(count("/proc/sys/vm/max_map_count")),
        overcommit(count("/proc/sys/vm/overcommit_memory")),
        address_space(os::limit(libc::RLIMIT_AS)),
        locked(os::limit(libc::RLIMIT_MEMLOCK)),
        descriptors(os::limit(libc::RLIMIT_NOFILE)),
        memory(machine),
        cgroup(machine),
        swap(machine),
    ]
}

fn mappings(count: Option<u64>) -> Finding {
    const NAME: &str = "mappings";
    match count {
        Some(count) if count < MAPPINGS => {
            Finding::new(NAME, Verdict::Warn, format!("at most {count} a process (vm.max_map_count)")).mend(SETUP)
        }
        Some(count) => Finding::ok(NAME, format!("at most {count} a process (vm.max_map_count)")),
        None => Finding::ok(NAME, "no limit known"),
    }
}

fn overcommit(mode: Option<u64>) -> Finding {
    const NAME: &str = "overcommit";
    match mode {
        Some(2) => Finding::new(
            NAME,
            Verdict::Warn,
            "vm.overcommit_memory is 2: programs cannot ask for more memory than RAM and swap together",
        )
        .mend("sudo sysctl -w vm.overcommit_memory=0"),
        Some(mode) => Finding::ok(NAME, format!("allowed (vm.overcommit_memory is {mode})")),
        None => Finding::ok(NAME, "no limit known"),
    }
}

fn limit(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "unlimited".to_owned(), |bytes| show_size(bytes).to_string())
}

fn address_space(bytes: Option<u64>) -> Finding {
    const NAME: &str = "address space";
    match bytes {
        None => Finding::ok(NAME, "unlimited (RLIMIT_AS)"),
        some => Finding::new(NAME, Verdict::Warn, format!("at most {} a process (RLIMIT_AS)", limit(some)))
            .mend("ulimit -v unlimited"),
    }
}

fn locked(bytes: Option<u64>) -> Finding {
    Finding::ok("locked memory", format!("{} (RLIMIT_MEMLOCK); ream setup --memlock raises it", limit(bytes)))
}

fn descriptors(count: Option<u64>) -> Finding {
    const NAME: &str = "descriptors";
    match count {
        Some(count) if count < agent::FILES => {
            Finding::new(NAME, Verdict::Warn, format!("at most {count} a process (RLIMIT_NOFILE)"))
                .mend("ulimit -n 1024")
        }
        Some(count) => Finding::ok(NAME, format!("at most {count} a process (RLIMIT_NOFILE)")),
        None => Finding::ok(NAME, "unlimited (RLIMIT_NOFILE)"),
    }
}

fn memory(machine: &Machine) -> Finding {
    Finding::ok(
        "memory",
        format!(
            "{}, of which {} are available; --memory auto means {}",
            show_size(machine.total),
            show_size(machine.available),
            show_size(machine.automatic().max(LEAST))
        ),
    )
}

fn cgroup(machine: &Machine) -> Finding {
    const NAME: &str = "cgroup";
    match (&machine.cgroup, machine.cap()) {
        (Some(limit), Some(cap)) => {
            let mut text = format!("at most {} ({})", show_size(limit.bytes), limit.file.display());
            if let Some(left) = &machine.left {
                text += &format!(", {} left", show_size(left.bytes));
            }
            text += &format!("; budgets up to {}", show_size(cap));
            match cap < LEAST {
                true => Finding::new(NAME, Verdict::Bad, text).mend("a cgroup with more memory"),
                false => Finding::ok(NAME, text),
            }
        }
        _ => Finding::ok(NAME, "sets no limit"),
    }
}

fn swap(machine: &Machine) -> Finding {
    let text = match machine.swap_total {
        0 => "none; not needed".to_owned(),
        bytes => format!("{}; Ream does not use it", show_size(bytes)),
    };
    Finding::ok("swap", text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::CgroupLimit;

    #[test]
    fn verdicts() {
        assert_eq!(mappings(Some(1000)).verdict, Verdict::Warn);
        assert_eq!(mappings(Some(65_530)).verdict, Verdict::Ok);
        assert_eq!(overcommit(Some(2)).verdict, Verdict::Warn);
        assert_eq!(overcommit(Some(0)).verdict, Verdict::Ok);
        assert_eq!(address_space(Some(1 << 30)).verdict, Verdict::Warn);
        assert_eq!(descriptors(Some(20)).verdict, Verdict::Warn);
        let with = |bytes| {
            let cgroup = Some(CgroupLimit { bytes, file: "/x".into() });
            Machine { total: 8 << 30, available: 8 << 30, swap_total: 0, left: cgroup.clone(), cgroup }
        };
        assert_eq!(cgroup(&with(1 << 30)).verdict, Verdict::Ok);
        assert_eq!(cgroup(&with(65 << 20)).verdict, Verdict::Bad);
    }

    #[test]
    fn what_can_be_mended_says_how() {
        for finding in [mappings(Some(1)), overcommit(Some(2)), address_space(Some(1))] {
            assert!(!finding.mend.is_empty(), "{}", finding.name);
        }
    }
}
