//! The layer rule: a crate may use only crates above it in the list, and the crates that work inside the user's
//! process only a few others.

use crate::{Findings, cargo, output};
use serde_json::Value;
use std::path::Path;

/// The layers, from the top; each may use those before it.
pub const LAYERS: &[&str] = &[
    "page", "policy", "wire", "options", "stats", "sys", "store", "pager", "large", "heap", "runtime", "inside",
    "calls", "server", "cli", "dlmc",
];

/// The layers that work inside the user's process: no standard library, no allocation, no panics.
pub const IN_PROCESS: &[&str] = &[
    "page", "policy", "wire", "options", "stats", "sys", "store", "pager", "large", "heap", "runtime", "inside",
    "calls",
];

/// The layers that forbid `unsafe`.
pub const SAFE: &[&str] = &["page", "policy", "wire", "options", "store"];

/// What the layers inside the user's process may use from outside the workspace.
const ALLOWED_INSIDE: &[&str] = &["linux-raw-sys", "rustix", "tikv-jemalloc-sys", "lz4_flex", "ring"];

/// What only builds or tests them may use besides.
const ALLOWED_BUILDING: &[&str] = &["cc", "loom", "proptest", "libc"];

/// Crates beside the layers that a layer may use: the command hands `ream bench` over, and
/// judges by its statistics; its tests run what they have written.
const BESIDE: &[(&str, &str)] = &[("cli", "ream-bench"), ("cli", "ream-tests")];

/// Packages of the workspace that are no layers; they may use any layer.
const OUTSIDE: &[&str] = &["xtask", "ream-tests", "ream-bench"];

/// Reads the dependency graph from cargo and checks every edge.
pub fn check(root: &Path) -> Findings {
    let text = match output(cargo(root).args(["metadata", "--format-version", "1", "--no-deps"])) {
        Ok(text) => text,
        Err(why) => return vec![why],
    };
    match serde_json::from_str(&text) {
        Ok(metadata) => edges(&metadata),
        Err(error) => vec![format!("cargo metadata: {error}")],
    }
}

fn edges(metadata: &Value) -> Findings {
    let mut findings = Vec::new();
    let list = |value: &Value, name: &str| value[name].as_array().cloned().unwrap_or_default();
    let packages = list(metadata, "packages");
    if packages.is_empty() {
        findings.push("cargo metadata: no packages".to_owned());
    }
    for package in &packages {
        let name = package["name"].as_str().unwrap_or_default();
        if OUTSIDE.contains(&name) {
            continue;
        }
        let Some(place) = layer(name) else {
            findings.push(format!("{name}: neither a layer nor known as standing beside them (xtask/src/layers.rs)"));
            continue;
        };
        let own = LAYERS[place];
        for dependency in list(package, "dependencies") {
            let used = dependency["name"].as_str().unwrap_or_default();
            let kind = dependency["kind"].as_str().unwrap_or("normal");
            let inside = dependency["path"].is_string();
            let fine = match layer(used) {
                Some(above) => above < place,
                None if inside => BESIDE.contains(&(own, used)),
                None if !IN_PROCESS.contains(&own) => true,
                None => ALLOWED_INSIDE.contains(&used) || kind != "normal" && ALLOWED_BUILDING.contains(&used),
            };
            if !fine {
                findings.push(format!("{name}: must not use {used} ({kind}): see the layers in ARCHITECTURE.md"));
            }
        }
    }
    findings
}

/// The place of a package in the list of layers.
fn layer(package: &str) -> Option<usize> {
    let name = package.strip_prefix("ream-")?;
    LAYERS.iter().position(|layer| *layer == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(name: &str, used: &str, kind: Option<&str>, path: Option<&str>) -> Findings {
        edges(&serde_json::json!({"packages": [
            {"name": name, "dependencies": [{"name": used, "kind": kind, "path": path}]}
        ]}))
    }

    #[test]
    fn only_layers_above() {
        assert!(graph("ream-pager", "ream-page", None, Some("x")).is_empty());
        assert_eq!(graph("ream-page", "ream-pager", None, Some("x")).len(), 1);
        assert_eq!(graph("ream-page", "ream-pager", Some("dev"), Some("x")).len(), 1);
        assert_eq!(graph("ream-sys", "ream-sys", None, Some("x")).len(), 1);
        assert!(graph("ream-cli", "ream-bench", None, Some("x")).is_empty());
        assert_eq!(graph("ream-heap", "ream-bench", None, Some("x")).len(), 1);
        assert!(graph("ream-tests", "ream-cli", None, Some("x")).is_empty());
        assert_eq!(graph("other", "serde", None, None).len(), 1);
    }

    #[test]
    fn little_from_outside_in_the_users_process() {
        assert!(graph("ream-sys", "linux-raw-sys", None, None).is_empty());
        assert_eq!(graph("ream-sys", "libc", None, None).len(), 1);
        assert!(graph("ream-sys", "libc", Some("dev"), None).is_empty());
        assert!(graph("ream-cli", "toml", None, None).is_empty());
    }

    #[test]
    fn an_empty_graph_is_a_finding() {
        assert_eq!(edges(&serde_json::json!({"packages": []})).len(), 1);
    }
}
