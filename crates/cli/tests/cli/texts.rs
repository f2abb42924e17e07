//! What the command prints about itself.

use crate::common::{ream, run};
use std::io::Read;
use std::process::Stdio;

#[test]
fn help_and_version_go_to_standard_output() {
    for arguments in [
        &["--help"][..],
        &["-h"],
        &["help"],
        &["run", "--help"],
        &["help", "run"],
        &["doctor", "-h"],
        &["add-store", "-h"],
    ] {
        let (status, out, err) = run(arguments);
        assert_eq!((status, err.as_str()), (0, ""), "{arguments:?}");
        assert!(out.starts_with("usage: ream "), "{arguments:?}: {out}");
    }
    let (status, out, _) = run(&["--version"]);
    assert_eq!((status, out), (0, format!("ream {}\n", env!("CARGO_PKG_VERSION"))));
}

#[test]
fn the_man_page_and_completions_are_printed() {
    let (status, out, _) = run(&["man"]);
    assert!(status == 0 && out.contains(".TH REAM 1"), "{out}");
    for (shell, word) in [("bash", "complete -F _ream ream"), ("zsh", "#compdef ream"), ("fish", "complete -c ream")] {
        let (status, out, _) = run(&["completions", shell]);
        assert!(status == 0 && out.contains(word), "{out}");
    }
}

/// A reader that has seen enough is no failure, and nothing is said of it.
#[test]
fn a_broken_pipe_is_quiet() {
    let mut child = ream(&["help", "run"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let mut err = String::new();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(err, "");
}

#[test]
fn a_full_disk_is_a_failure() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = ream(&["help"]).stdout(full).output().unwrap();
    let (status, _, err) = crate::common::ended(&output);
    assert_eq!((status, err.as_str()), (125, "ream: standard output: No space left on device\n"));
}

/// The completions for bash, asked as bash asks them.
#[test]
fn bash_completes() {
    let complete = |line: &str| {
        let script = format!(
            "eval \"$({} completions bash)\"; COMP_WORDS=({line}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _ream; \
             printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            env!("CARGO_BIN_EXE_ream")
        );
        let output = std::process::Command::new("bash").args(["-c", &script]).output().unwrap();
        let (status, out, err) = crate::common::ended(&output);
        assert_eq!((status, err.as_str()), (0, ""), "{line}");
        out
    };
    assert_eq!(complete("ream do"), "doctor\n");
    assert_eq!(complete("ream run --mem"), "--memory\n");
    assert_eq!(complete("ream run --engine us"), "usermode\n");
    assert_eq!(complete("ream run --engine = us"), "usermode\n");
    assert_eq!(complete("ream run -m 1G --io thr"), "threads\n");
    assert_eq!(complete("ream completions z"), "zsh\n");
    // Hidden options stay hidden, and a program's options are its own.
    assert_eq!(complete("ream run --shar"), "\n");
    assert_eq!(complete("ream run ls --mem"), "\n");
}
