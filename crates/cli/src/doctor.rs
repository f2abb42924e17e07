//! `ream doctor`: what this machine offers to a run, with a verdict on each point and one command that mends it; for a
//! program, what each region of it will get. Changes nothing and needs no privileges.

pub mod engine;
mod large;
mod limits;
mod program;
mod statics;
mod stores;

pub use large::large_size_off;

use crate::failure::Failure;
use crate::settings::Settings;
use crate::tree::Tree;
use crate::{library, machine::Machine};
pub use program::report as report_program;
use std::ffi::OsString;
use std::path::Path;

/// How good a finding is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// Works, but less well than it could.
    Warn,
    /// Keeps runs from paging.
    Bad,
}

impl Verdict {
    fn word(self) -> &'static str {
        match self {
            Verdict::Ok => "ok",
            Verdict::Warn => "warn",
            Verdict::Bad => "bad",
        }
    }
}

/// One point that was looked at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// What was looked at.
    pub name: String,
    /// How good it is.
    pub verdict: Verdict,
    /// What was found, and why it is so.
    pub text: String,
    /// A command that makes it better, or where there is none, what to do; empty when nothing is to be done.
    pub mend: String,
}

impl Finding {
    fn new(name: impl Into<String>, verdict: Verdict, text: impl Into<String>) -> Finding {
        Finding { name: name.into(), verdict, text: text.into(), mend: String::new() }
    }
    fn ok(name: impl Into<String>, text: impl Into<String>) -> Finding {
        Finding::new(name, Verdict::Ok, text)
    }
    fn mend(self, mend: impl Into<String>) -> Finding {
        Finding { mend: mend.into(), ..self }
    }
}

/// Looks at everything and reports. Returns text and exit status.
pub fn report(settings: &Settings, json: bool) -> Result<(String, i32), Failure> {
    let variable = |name: &str| std::env::var_os(name);
    let engine = engine::Findings::look();
    let mut findings = engine.findings.clone();
    let machine = Machine::look().map_err(Failure::new)?;
    findings.extend(large::look(&Tree::new(Path::new("/")), &machine));
    findings.extend(limits::look(&machine));
    findings.push(library(variable(library::VARIABLE)));
    let (stores, usable) = stores::look(settings, &variable);
    findings.extend(stores);
    findings.push(engine.conclusion(usable));
    let able = findings.iter().all(|finding| finding.verdict != Verdict::Bad);
    let text = match json {
        true => as_json(&findings, engine.engine.unwrap_or("none"), engine.io),
        false => as_text(&findings),
    };
    Ok((text, if able { 0 } else { 1 }))
}

fn library(named: Option<OsString>) -> Finding {
    let found = std::env::current_exe().map_err(|error| crate::failure::reason(&error));
    match found.and_then(|command| library::find(named, &command).map_err(|failure| failure.text)) {
        Ok(path) => Finding::ok("library", path.display().to_string()),
        Err(text) => Finding::new("library", Verdict::Bad, text).mend("make install"),
    }
}

fn as_text(findings: &[Finding]) -> String {
    let width = findings.iter().map(|finding| finding.name.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for finding in findings {
        text += &format!("{:4}  {:width$}  {}\n", finding.verdict.word(), finding.name, finding.text);
        if !finding.mend.is_empty() {
            text += &format!("{:4}  {:width$}  to mend: {}\n", "", "", finding.mend);
        }
    }
    text
}

fn as_json(findings: &[Finding], engine: &str, io: &str) -> String {
    let mut text = format!("{{\n  \"version\": {},\n", quoted(env!("CARGO_PKG_VERSION")));
    text += &format!("  \"engine\": {},\n  \"io\": {},\n  \"findings\": [\n", quoted(engine), quoted(io));
    let lines: Vec<_> = findings
        .iter()
        .map(|finding| {
            format!(
                "    {{\"name\": {}, \"verdict\": {}, \"text\": {}, \"mend\": {}}}",
                quoted(&finding.name),
                quoted(finding.verdict.word()),
                quoted(&finding.text),
                quoted(&finding.mend)
            )
        })
        .collect();
    text + &lines.join(",\n") + "\n  ]\n}\n"
}

/// A string of JSON.
pub fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out += "\\\"",
            '\\' => out += "\\\\",
            c if c < ' ' => out += &format!("\\u{:04x}", c as u32),
            c => out.push(c),
        }
    }
    out + "\""
}

/// A file of /proc or /sys without the line's end; `None` where it is not there.
fn setting(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings() -> Vec<Finding> {
        vec![Finding::ok("kernel", "Linux 6.18"), Finding::new("a \"b\"\n\\", Verdict::Bad, "no").mend("sysctl x=1")]
    }

    #[test]
    fn json_reads_back() {
        let value: serde_json::Value = serde_json::from_str(&as_json(&findings(), "move", "uring")).unwrap();
        assert_eq!(value["findings"][1]["name"], "a \"b\"\n\\");
        assert_eq!(value["findings"][1]["verdict"], "bad");
        assert_eq!(value["engine"], "move");
    }

    #[test]
    fn text_is_in_columns() {
        let text = as_text(&findings()[..1]);
        assert_eq!(text, "ok    kernel  Linux 6.18\n");
        assert!(as_text(&findings()).contains("to mend: sysctl x=1\n"));
    }
}
