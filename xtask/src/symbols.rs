//! The symbols of libream.so and libream_calls.so: what they take over in a program, and what they need of libc.

use crate::goldens::compare;
use crate::{Findings, cargo, output};
use object::{Object, ObjectSymbol};
use std::path::{Path, PathBuf};

/// Packages, what they make, and the list of its symbols.
const LIBRARIES: [(&str, &str, &str); 3] = [
    ("ream-runtime", "libream.so", "crates/runtime/symbols.golden"),
    ("ream-calls", "libream_calls.so", "crates/calls/symbols.golden"),
    ("ream-inside", "libream_inside.so", "crates/inside/symbols.golden"),
];

/// Builds the libraries and compares their dynamic symbols with the golden files, or writes those.
pub fn check(root: &Path, bless: bool) -> Findings {
    let mut findings = Vec::new();
    for (package, file, golden) in LIBRARIES {
        match build(root, package, file).and_then(|library| list(&library)) {
            Ok(text) => findings.extend(compare(&root.join(golden), golden, &text, bless)),
            Err(why) => findings.push(why),
        }
    }
    findings
}

/// Builds a library as it is installed, and finds it.
fn build(root: &Path, package: &str, file: &str) -> Result<PathBuf, String> {
    output(cargo(root).args(["build", "--quiet", "--release", "--package", package]))?;
    let metadata = output(cargo(root).args(["metadata", "--format-version", "1", "--no-deps"]))?;
    let metadata: serde_json::Value = serde_json::from_str(&metadata).map_err(|error| error.to_string())?;
    let target = metadata["target_directory"].as_str().ok_or("cargo metadata: no target directory")?;
    Ok(Path::new(target).join("release").join(file))
}

/// The dynamic symbols, sorted: "exported NAME" and "needed NAME".
fn list(library: &Path) -> Result<String, String> {
    let explain = |error: &dyn std::fmt::Display| format!("{}: {error}", library.display());
    let bytes = std::fs::read(library).map_err(|error| explain(&error))?;
    let file = object::File::parse(&*bytes).map_err(|error| explain(&error))?;
    let mut lines = Vec::new();
    for symbol in file.dynamic_symbols() {
        let name = symbol.name().map_err(|error| explain(&error))?;
        if name.is_empty() {
            continue;
        }
        let weak = if symbol.is_weak() { " weak" } else { "" };
        lines.push(match symbol.is_undefined() {
            true => format!("needed {name}{weak}\n"),
            false => format!("exported {name}{weak}\n"),
        });
    }
    lines.sort();
    lines.dedup();
    Ok(lines.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_the_symbols_of_a_real_library() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let path = maps.split_whitespace().find(|word| word.contains("/libc.so")).unwrap();
        let text = list(Path::new(path)).unwrap();
        assert!(text.contains("exported malloc\n") && text.contains("needed "), "{text}");
        assert!(list(Path::new("/dev/null")).is_err());
    }
}
