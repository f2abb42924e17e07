//! The processor's TLB: how many entries it has, and how often a process misses it.

use crate::os;

/// Entries of the second-level data TLB for pages of 4 KiB and of 2 MiB; `None` where the processor does not say.
pub fn entries() -> Option<(u64, u64)> {
    let [highest, ebx, ecx, edx] = os::cpuid(0, 0)?;
    let vendor: Vec<u8> = [ebx, edx, ecx].iter().flat_map(|word| word.to_le_bytes()).collect();
    match vendor.as_slice() {
        b"GenuineIntel" if highest >= 0x18 => intel(),
        b"AuthenticAMD" | b"HygonGenuine" => amd(),
        _ => None,
    }
}

/// Leaf 18h, "Deterministic Address Translation Parameters" (Intel SDM, volume 2, CPUID).
fn intel() -> Option<(u64, u64)> {
    let [last, ..] = os::cpuid(0x18, 0)?;
    let (mut small, mut large) = (0, 0);
    for index in 0..=last.min(32) {
        let [_, ebx, ecx, edx] = os::cpuid(0x18, index)?;
        let (kind, level) = (edx & 31, edx >> 5 & 7);
        // 1: data, 3: both; 4 and 5 are for loads and for stores only.
        if level < 2 || !matches!(kind, 1 | 3 | 4) {
            continue;
        }
        let entries = u64::from(ebx >> 16) * u64::from(ecx);
        if ebx & 1 != 0 {
            small = small.max(entries);
        }
        if ebx & 2 != 0 {
            large = large.max(entries);
        }
    }
    (small > 0).then_some((small, large))
}

/// Leaf 8000_0006h, "L2 TLB identifiers" (AMD64 Architecture Programmer's Manual, volume 3, appendix E).
fn amd() -> Option<(u64, u64)> {
    let [eax, ebx, ..] = os::cpuid(0x8000_0006, 0)?;
    let (small, large) = (u64::from(ebx >> 16 & 0xfff), u64::from(eax >> 16 & 0xfff));
    (small > 0).then_some((small, large))
}

/// Misses a second, of data and of code, or why they cannot be told.
pub fn misses(threads: &[u32]) -> Result<(u64, u64), String> {
    // PERF_TYPE_HW_CACHE; the cache, PERF_COUNT_HW_CACHE_OP_READ, PERF_COUNT_HW_CACHE_RESULT_MISS.
    const TYPE: u32 = 3;
    const MISS: u64 = 1 << 16;
    let count = |cache: u64| rate(threads, TYPE, cache | MISS);
    Ok((count(3)?, count(4)?))
}

fn rate(threads: &[u32], kind: u32, config: u64) -> Result<u64, String> {
    const MILLISECONDS: u64 = 100;
    let mut counters = Vec::new();
    for thread in threads {
        match os::count_events(*thread, kind, config) {
            Ok(counter) => counters.push(counter),
            Err(error) => match error.raw_os_error() {
                // It has ended.
                Some(libc::ESRCH) => {}
                Some(libc::EACCES | libc::EPERM) => {
                    return Err("not permitted; as root: sysctl kernel.perf_event_paranoid=1".to_owned());
                }
                _ => return Err("not available here".to_owned()),
            },
        }
    }
    std::thread::sleep(std::time::Duration::from_millis(MILLISECONDS));
    let counted: u64 = counters.iter().filter_map(|counter| os::read_count(counter).ok()).sum();
    Ok(counted * 1000 / MILLISECONDS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_plausible() {
        if let Some((small, large)) = entries() {
            assert!((64..65_536).contains(&small) && large <= 65_536, "{small} {large}");
        }
    }

    #[test]
    fn events_of_a_busy_thread_are_counted() {
        // PERF_TYPE_SOFTWARE, PERF_COUNT_SW_TASK_CLOCK: every machine has it.
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            std::thread::sleep(std::time::Duration::from_millis(20));
            let threads: Vec<u32> = std::fs::read_dir("/proc/self/task")
                .unwrap()
                .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok())
                .collect();
            let rate = rate(&threads, 1, 1);
            done.store(true, std::sync::atomic::Ordering::Relaxed);
            match rate {
                Ok(rate) => assert!(rate > 0),
                Err(reason) => eprintln!("SKIPPED: performance events: {reason}"),
            }
        });
    }
}
