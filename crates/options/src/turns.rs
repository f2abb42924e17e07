//! The options about ranks of an MPI job that take turns.

use crate::spec::{Kind, Spec};
use crate::table::PLAIN;
use core::fmt;

/// Which rank comes next; the place of a word is the number stored in a session.
pub const NEXT: &[&str] = &["vrss", "fifo", "lifo", "pending"];
/// What stands for the number of ranks at once beside a number.
pub const RANKS: &[&str] = &["auto", "all"];

pub(crate) const RANKS_AT_ONCE: Spec = Spec {
    name: "ranks-at-once",
    kind: Kind::Text,
    value: "NUMBER|auto|all",
    help: "ranks of an MPI job that compute at once on a node",
    long: "Ranks of an MPI job that compute at once on this node; the others wait in MPI, or for their turn, and their memory \
           is paged out before that of those that compute. auto, as without: all of them while the data of all processes \
           fit the budget; otherwise as many as their data fit, by what each rank manages on average, and at least one.",
    variable: "REAM_RANKS_AT_ONCE",
    in_file: true,
    ..PLAIN
};

pub(crate) const NEXT_RANK: Spec = Spec {
    name: "next",
    kind: Kind::Choice(NEXT),
    value: "RULE",
    default: "vrss",
    help: "which of the ranks that could compute does so next",
    long: "Which of the ranks that could compute gets the place that another one leaves: vrss, the one with most of its data in \
           RAM, which can run longest without paging; fifo, the one that has waited longest; lifo, the one that has waited \
           least; pending, the one that most messages were sent to since its last turn. No rank is passed over for ever.",
    variable: "REAM_NEXT",
    in_file: true,
    ..PLAIN
};

/// What happens with a rank's memory at a switch; the place of a word is the number stored in a session.
pub const SWITCH: &[&str] = &["auto", "lazy", "aggressive"];

pub(crate) const ON_BLOCK: Spec = Spec {
    name: "on-block",
    kind: Kind::Choice(SWITCH),
    value: "HOW",
    default: "auto",
    help: "what happens with a rank's memory when its turn ends",
    long: "What happens with the memory of a rank of an MPI job when another one computes in its place: lazy, its pages stay \
           until somebody needs the room; aggressive, what was changed is written at once in one sweep, and the room given up. \
           auto, as without: aggressive unless, in the last turns, nobody needed the room before the rank's turn came again.",
    variable: "REAM_ON_BLOCK",
    in_file: true,
    ..PLAIN
};

pub(crate) const ON_RUN: Spec = Spec {
    name: "on-run",
    kind: Kind::Choice(SWITCH),
    value: "HOW",
    default: "auto",
    help: "what happens with a rank's memory when its turn begins",
    long: "What happens with the memory of a rank of an MPI job when its turn comes again: lazy, pages come back when they are \
           touched; aggressive, what it had when its turn ended comes back at once, in big extents, while it computes. auto, as \
           without: whichever has its threads wait less for each second that they compute, as measured in its turns.",
    variable: "REAM_ON_RUN",
    in_file: true,
    ..PLAIN
};

pub(crate) const DROP_RECEIVED: Spec = Spec {
    name: "drop-received",
    kind: Kind::Choice(DROP),
    value: "yes|no",
    default: "yes",
    help: "do not save what a call of MPI is going to overwrite",
    long: "Pages of a buffer that a call of MPI is sure to overwrite wholly are given up when the call begins, and neither \
           written to the store nor read from it. With no, they are kept like all others.",
    variable: "REAM_DROP_RECEIVED",
    in_file: true,
    ..PLAIN
};

/// Whether what is going to be overwritten is dropped; the place of a word is the number stored in a session.
pub const DROP: &[&str] = &["no", "yes"];

pub(crate) const PATIENCE: Spec = Spec {
    name: "turn-patience",
    kind: Kind::Count(10, 3_600_000),
    value: "MILLISECONDS",
    help: "time after which a rank more may compute",
    long: "Time without a change after which a rank more may compute.",
    variable: "REAM_TURN_PATIENCE",
    hidden: true,
    ..PLAIN
};

/// Not a number of ranks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RanksError;

impl fmt::Display for RanksError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a number of ranks, 1 or more, nor auto or all")
    }
}

/// Reads a number of ranks at once: 0 stands for auto, the largest number for all.
///
/// # Errors
/// It is none.
pub fn parse_ranks(text: &str) -> Result<u32, RanksError> {
    match text {
        "auto" => Ok(0),
        "all" => Ok(u32::MAX),
        _ => text.parse().ok().filter(|number| *number > 0).ok_or(RanksError),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_ranks() {
        assert_eq!((parse_ranks("auto"), parse_ranks("all"), parse_ranks("7")), (Ok(0), Ok(u32::MAX), Ok(7)));
        for text in ["0", "", "-1", "two", "1.5"] {
            assert_eq!(parse_ranks(text), Err(RanksError), "{text}");
        }
    }
}
