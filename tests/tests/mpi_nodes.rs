//! A job on two nodes, which are namespaces of the network with names of their own: each has a session and a budget, and
//! ranks of one wait for ranks of the other without holding a place that those need.
//!
//! With Open MPI only: MPICH over UCX hangs in MPI_Finalize of plain runs where its messages go by TCP (UCX 1.13).

use ream_tests::mpi::{Mpi, Turns, lines, results};
use ream_tests::{Run, Space, Summary, is_root, make_runnable, ream_binary, skip, tool};
use std::fs;
use std::path::{Path, PathBuf};

const ADDRESSES: [&str; 2] = ["10.77.31.1", "10.77.31.2"];
const NAMES: [&str; 2] = ["ream-node-a", "ream-node-b"];

/// Two nodes, and a shell by which a launcher comes to them.
struct Nodes {
    _spaces: [Space; 2],
    shell: PathBuf,
    turns: Turns,
}

impl Nodes {
    fn new() -> Option<Nodes> {
        let wanted = ["ip", "nsenter", "unshare", "mpirun.openmpi", "mpicc.openmpi"];
        if let Some(missing) = wanted.iter().find(|name| tool(name).is_none()) {
            skip("two nodes", &format!("no {missing}"));
            return None;
        }
        if !is_root() {
            skip("two nodes", "not root");
            return None;
        }
        let spaces = [Space::new().expect("a node"), Space::new().expect("a node")];
        spaces[0].cable("cable", ADDRESSES[0], &spaces[1], ADDRESSES[1]).expect("a cable");
        let turns = Turns::new("10M", "1");
        let shell = turns.scratch.file("shell");
        let at = |node: usize| format!("{}) space={} name={};;", ADDRESSES[node], spaces[node].path(), NAMES[node]);
        // As ssh is called: options, the host, and words for its shell.
        let text = format!(
            "#!/bin/bash\nset -eu\nwhile [[ $1 == -* ]]; do shift; done\nhost=$1; shift\ncase $host in\n{}\n{}\nesac\n\
             exec nsenter --net=$space unshare --uts --mount bash -c \"mount -t sysfs node /sys; hostname $name; exec $*\"\n",
            at(0),
            at(1)
        );
        fs::write(&shell, text).expect("a shell");
        make_runnable(&shell, 0o755);
        Some(Nodes { _spaces: spaces, shell, turns })
    }

    /// A job whose ranks are dealt out to the nodes, so that neighbours are not on one. Ends with the first rank's.
    fn job(&self, under_ream: bool, ranks: u32, program: &Path, arguments: &[&str]) -> Run {
        let net = "10.77.31.0/24";
        let mut words: Vec<String> =
            ["mpirun.openmpi", "--oversubscribe", "--mca", "plm_rsh_agent"].map(String::from).into();
        words.push(self.shell.display().to_string());
        for (parameter, value) in [("oob_tcp_if_include", net), ("btl_tcp_if_include", net), ("btl", "tcp,self,vader")]
        {
            words.extend(["--mca".to_owned(), parameter.to_owned(), value.to_owned()]);
        }
        words.extend(["--map-by", "node", "-H"].map(String::from));
        words.push(ADDRESSES.map(|address| format!("{address}:{ranks}")).join(","));
        words.extend(["-np".to_owned(), ranks.to_string()]);
        if under_ream {
            let directory = self.turns.directory();
            let script = format!(
                "export REAM_SUMMARY={directory}/$(hostname).json; exec {} run {} -- \"$@\"",
                ream_binary().display(),
                self.turns.options.join(" ")
            );
            let file = self.turns.scratch.file("rank");
            fs::write(&file, format!("#!/bin/sh\n{script}\n")).expect("a script");
            make_runnable(&file, 0o755);
            words.push(file.display().to_string());
        }
        words.push(program.display().to_string());
        words.extend(arguments.iter().map(|word| (*word).to_owned()));
        Mpi::Open.settle(Run::of(&self.shell).arg(ADDRESSES[0]).args(words))
    }

    /// What the session of a node says of itself.
    fn summary(&self, node: usize) -> Summary {
        self.turns.summary_in(&format!("{}.json", NAMES[node]))
    }
}

/// Ranks that need two to three times the budget of their node, one at a time on each.
#[test]
fn a_budget_on_each_node() {
    let Some(mut nodes) = Nodes::new() else { return };
    // Nobody is let in because the machine stands still for a while.
    nodes.turns = nodes.turns.with("--turn-patience=3600000");
    let built = Mpi::Open.built("");
    for arguments in [&["kmeans", "12", "1"], &["sort", "8", "1"], &["contract", "8", "1"]] {
        let plain = nodes.job(false, 4, &built, arguments).finish();
        plain.exited(0);
        let outcome = nodes.job(true, 4, &built, arguments).finish();
        outcome.exited(0);
        assert_eq!(results(&outcome), results(&plain), "{arguments:?}");
        for node in 0..2 {
            let summary = nodes.summary(node);
            assert_eq!(summary.number("processes"), 2, "{arguments:?}: ranks of node {node}");
            assert!(summary.number("turns") > 2, "{arguments:?}: no turns");
            assert!(summary.number("bytes_out") > 0, "{arguments:?}: nothing was paged");
            assert_eq!(summary.number("ranks_let_in"), 0, "{arguments:?}");
            let (peak, budget) = (summary.number("peak_resident"), summary.number("budget"));
            assert!(peak <= budget + budget / 50 + (2 << 20), "{arguments:?}: {peak} of {budget}");
        }
    }
}

/// Whoever keeps asking for what a rank of another node is to do does not keep that one's node-mates from it.
#[test]
fn nobody_waits_for_ever_on_two_nodes() {
    let Some(nodes) = Nodes::new() else { return };
    let program = Mpi::Open.program("tempt.c");
    for what in ["test", "iprobe"] {
        let plain = nodes.job(false, 3, &program, &[what]).finish();
        plain.exited(0);
        let outcome = nodes.job(true, 3, &program, &[what]).finish();
        outcome.exited(0);
        assert_eq!(lines(&outcome), lines(&plain), "{what}");
    }
}
