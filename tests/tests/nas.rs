//! The NAS kernels of `ream bench`: their published results, plain and paged, and that a single wrong value is found.

use ream_tests::{Run, ream_binary};
use std::path::PathBuf;
use std::process::{Command, Output};

const KERNELS: [&str; 5] = ["ep", "cg", "mg", "ft", "is"];

fn program() -> PathBuf {
    let program = ream_binary().with_file_name("ream-bench-nas");
    assert!(program.is_file(), "{}: not there; build it first (make)", program.display());
    program
}

fn ran(words: &[&str]) -> Output {
    Command::new(program()).args(words).env("OMP_NUM_THREADS", "2").output().expect("running it")
}

#[test]
fn results_are_the_published_ones() {
    for kernel in KERNELS {
        for class in ["S", "W"] {
            let output = ran(&[kernel, class]);
            assert!(output.status.success(), "{kernel} {class}: {output:?}");
            let text = String::from_utf8_lossy(&output.stdout);
            let (seconds, result) = text.trim().split_once(' ').expect("two words");
            assert!(seconds.parse::<f64>().is_ok() && result.starts_with("verified:"), "{kernel} {class}: {text}");
        }
    }
}

#[test]
fn one_spoilt_value_is_found() {
    for kernel in KERNELS {
        let output = ran(&[kernel, "S", "--corrupt"]);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{kernel}: {output:?}");
        assert!(errors.contains("WRONG RESULT") && output.stdout.is_empty(), "{kernel}: {output:?}");
    }
}

#[test]
fn other_words_are_refused() {
    for words in [&[][..], &["cg"], &["cg", "C"], &["cg", "SW"], &["lu", "S"], &["cg", "S", "--spoil"]] {
        assert_eq!(ran(words).status.code(), Some(125), "{words:?}");
    }
}

/// 55 and 16 MiB of data in about half of that.
#[test]
fn results_are_the_published_ones_when_paged() {
    for (kernel, budget) in [("mg", 24), ("ft", 10)] {
        let ran = Run::of(program()).args([kernel, "W"]).memory(budget).finish();
        let ran = ran.exited(0);
        assert!(ran.out().contains("verified:"), "{}", ran.describe());
        assert!(ran.summary().number("bytes_in") > 0, "{}", ran.describe());
    }
}
