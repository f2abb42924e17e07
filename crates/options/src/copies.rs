//! The options that say how pages are stored: copies, deadlines and protocols where memory servers are the store, and
//! whether those on disk are encrypted.

use crate::spec::{Kind, Spec};
use crate::table::PLAIN;
use crate::value::SWAP_PROTOCOLS;

const COMMANDS: &[&str] = &["run", "doctor"];

pub(crate) const REPLICAS: Spec = Spec {
    name: "replicas",
    kind: Kind::Count(1, 2),
    value: "NUMBER",
    help: "memory servers that each page is written to",
    long: "Memory servers that each page is written to: 1 or 2; by default 2 where --store names several. With 2, the loss \
           of a server costs a pause of two seconds at most, and its pages are copied again to another one. With 1, \
           several servers have more room, and the loss of any stops the program. Excludes --spill and --parity.",
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
           when the server is lost. A file without a name, as a store is, whose content is encrypted with --encrypt. \
           Excludes --replicas and --parity.",
    variable: "REAM_SPILL",
    in_file: true,
    commands: COMMANDS,
    ..PLAIN
};

pub(crate) const PARITY: Spec = Spec {
    name: "parity",
    help: "write the sum of several memory servers' pages instead of copies",
    long: "Instead of a second copy of each page, one of three memory servers or more keeps the sum of what the others got, \
           each in turn: any one of them can be lost, and S servers hold S - 1 times what one does, less a ninth for \
           gaps that rewritten pages leave. What was lost is computed from what the others have, and written \
           anew. Excludes --replicas and --spill.",
    variable: "REAM_PARITY",
    in_file: true,
    commands: COMMANDS,
    ..PLAIN
};

pub(crate) const ENCRYPT: Spec = Spec {
    name: "encrypt",
    help: "encrypt what goes to the store on disk",
    long: "Encrypts each page on its way to the store's file, with a key that each process draws and never shows, and \
           notices when the file was changed, or pages in it were exchanged or set back: then the program is stopped. \
           With memory servers it encrypts the local copy (--spill); what goes to them is encrypted in any case.",
    variable: "REAM_ENCRYPT",
    in_file: true,
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

pub(crate) const PROTOCOL: Spec = Spec {
    name: "swap-protocol",
    kind: Kind::Choice(SWAP_PROTOCOLS),
    value: "NAME",
    default: "ream",
    help: "how pages are exchanged with memory servers, to compare",
    long: "How pages are exchanged with memory servers. ream: as fast as can be. r3, r58, r77: as the protocols of DLM \
           did, to compare with them: they stop all threads of the program while a page is brought in; r3 and r58 write \
           before they read; r3 does one after the other, in one thread. The results are the same, only slower. Needs \
           --store tcp://HOST:PORT.",
    variable: "REAM_SWAP_PROTOCOL",
    in_file: true,
    ..PLAIN
};
