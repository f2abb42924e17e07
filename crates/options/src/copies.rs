//! The options that say how many copies of a page there are where memory servers are the store.

use crate::spec::{Kind, Spec};
use crate::table::PLAIN;

const COMMANDS: &[&str] = &["run", "doctor"];

pub(crate) const REPLICAS: Spec = Spec {
    name: "replicas",
    kind: Kind::Count(1, 2),
    value: "NUMBER",
    help: "memory servers that each page is written to",
    long: "Memory servers that each page is written to: 1 or 2; by default 2 where --store names several. With 2, the loss \
           of a server costs a pause of two seconds at most, and its pages are copied again to another one. With 1, \
           several servers have more room, and the loss of any stops the program. Excludes --spill.",
    variable: "REAM_REPLICAS",
    in_file: true,
    commands: COMMANDS,
    ..PLAIN
};

pub(crate) const SPILL: Spec = Spec {
    name: "spill",
    kind: Kind::Text,
    value: "DIRECTORY",
    help: "write a copy of what goes to memory servers to a local disk",
    long: "Directory on a local disk that gets a copy of each page that goes to a memory server: written behind, and read \
           when the server is lost. A file without a name, as a store is, whose content is not encrypted. Excludes \
           --replicas.",
    variable: "REAM_SPILL",
    in_file: true,
    commands: COMMANDS,
    ..PLAIN
};

pub(crate) const DEADLINE: Spec = Spec {
    name: "store-deadline",
    kind: Kind::Count(1, 3600),
    value: "SECONDS",
    default: "30",
    help: "longest that a memory server may take to answer",
    long: "Longest that a memory server may take for an answer, in seconds. A server that takes longer counts as lost. One \
           whose pages have other copies counts as lost after a second already.",
    variable: "REAM_STORE_DEADLINE",
    in_file: true,
    ..PLAIN
};
