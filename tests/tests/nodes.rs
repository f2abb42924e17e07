//! Machines of several NUMA nodes: what threads fill stays on their nodes, through page-out and page-in.

use ream_tests::{Build, Run, build, skip};
use std::fs;

/// Two nodes with memory and a processor each: the processors, then the nodes.
fn two_nodes() -> Option<[String; 4]> {
    let list = |path: String| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let first = |list: &str| list.split([',', '-']).next().unwrap_or_default().to_owned();
    let folder = "/sys/devices/system/node";
    let nodes: Vec<(String, String)> = (0..64)
        .map(|node| (first(&list(format!("{folder}/node{node}/cpulist"))), node.to_string()))
        .filter(|(processor, _)| !processor.is_empty())
        .collect();
    match &nodes[..] {
        [(a, first), (b, second), ..] => Some([a.clone(), b.clone(), first.clone(), second.clone()]),
        _ => None,
    }
}

#[test]
fn pages_come_back_to_the_node_that_they_left() {
    let Build::Ready(program) = build("c/nodes.c", &["-pthread"]) else { return };
    let Some(where_to) = two_nodes() else {
        return skip("pages_come_back_to_the_node_that_they_left", "the machine has one NUMA node");
    };
    let mut args = vec!["64".to_owned()];
    args.extend(where_to);
    for engine in ["auto", "copy"] {
        let outcome = Run::of(&program).args(&args).memory(48).option(format!("--engine={engine}")).finish();
        outcome.exited(0);
        let shares: Vec<u32> = outcome.out().lines().map(|line| line.parse().expect("a number")).collect();
        // The kernel moves some by itself, and takes from elsewhere what a node does not have.
        assert!(shares.len() == 2 && shares.iter().all(|share| *share >= 950), "{}", outcome.describe());
    }
}
