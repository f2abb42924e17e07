//! A test that cannot run here says so where it is seen, is counted, and fails where everything must run.

use std::io::Write as _;

/// Prints `SKIPPED: what: reason` on the real standard error (the test runner does not swallow it), and appends it to
/// the file that `REAM_TESTS_SKIPPED` names, so that skips can be counted.
///
/// # Panics
/// When `REAM_TESTS_STRICT` is set: there, everything must run.
pub fn skip(what: &str, reason: &str) {
    let line = format!("SKIPPED: {what}: {reason}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
    if let Some(path) = std::env::var_os("REAM_TESTS_SKIPPED") {
        if let Ok(mut file) = std::fs::OpenOptions::new().append(true).create(true).open(path) {
            let _ = file.write_all(line.as_bytes());
        }
    }
    assert!(std::env::var_os("REAM_TESTS_STRICT").is_none(), "{line}and REAM_TESTS_STRICT is set");
}

/// Whether the kernel's mode of transparent large pages is one of these; says so where it is not.
pub fn large_pages(modes: &[&str]) -> bool {
    let setting = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    let allowed = modes.iter().any(|mode| setting.contains(&format!("[{mode}]")));
    if !allowed {
        skip("large pages", &format!("transparent_hugepage/enabled is not {}", modes.join(" or ")));
    }
    allowed
}
