//! The memory that a session shares: what its processes were told, what they hold of the budget, what they counted.
//!
//! One `ream run` makes one [`Session`] in a memfd; every process that descends from it maps the same bytes. Nothing
//! here makes system calls or allocates, so it may be used from any thread, in a signal handler or in a forked child.
#![no_std]

mod config;
mod counters;
mod ledger;
mod phases;
mod process;
mod request;
mod servers;
mod session;
mod summary;
mod swap;
mod tiers;
pub mod tunables;
mod turns;

pub use config::{Config, CpuMask, Engine, Fetch, Io, Lock, Pages, Region, Remote, Summary, Switch, Text};
pub use counters::{Counter, Counters};
pub use ledger::{Ledger, pinnable};
pub use phases::{Mark, PHASE_NAME, PHASES, Phase, Phases};
pub use process::{Identity, LEASES, Lifecycle, Process};
pub use request::{Address, Need, Request, SERVER_NAME, socket_name};
pub use servers::{Copies, Granted, SERVERS, SPILL, Server, Servers};
pub use session::{Expected, MAGIC, PROCESSES, Refused, Session, Swept, VERSION};
pub use summary::Report;
pub use swap::{Install, PageOut, Swap, SwapProtocol};
pub use tiers::Tiers;
pub use turns::{Decision, Next, Seat, Stand, Turns};

/// Pages of 4096 bytes that hold `bytes`, rounded down: a budget is never overdrawn by rounding.
pub const fn whole_pages(bytes: u64) -> u64 {
    bytes / 4096
}
