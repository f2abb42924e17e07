//! Options of a memory server that other commands have with another meaning: variables and files give those of programs, so they
//! have neither here.

use super::PLAIN;
use crate::spec::{Kind, Spec};

pub(super) const MEMORY: Spec = Spec {
    name: "memory",
    short: Some('m'),
    kind: Kind::Size,
    value: "SIZE",
    help: "RAM that all clients may have together",
    long: "RAM that all clients may have together, such as 512M or 64G: no more than the machine, or the cgroup, has.",
    commands: &["serve"],
    ..PLAIN
};

pub(super) const PAGES: Spec = Spec {
    name: "pages",
    kind: Kind::Pages,
    value: "SIZE",
    default: "small",
    help: "size of the pages of the memory that is lent",
    long: "huge asks for large pages (2 MiB) for the memory that is lent, anything else does not.",
    commands: &["serve"],
    ..PLAIN
};
