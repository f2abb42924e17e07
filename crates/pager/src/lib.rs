//! The pager: one shard's fault loop, frames, eviction and write-back, against the kernel seam.
//!
//! A [`Shard`] is driven by one thread: it hands over events ([`Shard::event`]), lets the shard work
//! ([`Shard::work`]), and polls the machine. Nothing here blocks, allocates from the program's heap, or touches managed
//! memory.
#![no_std]

mod back;
mod buddy;
mod calm;
mod commands;
mod duplicates;
mod evict;
mod faults;
mod fork;
mod frames;
mod guard;
mod heat;
mod install;
mod io;
mod learn;
mod lists;
mod nodes;
mod queue;
mod room;
mod settle;
mod shard;
mod swap;
mod table;
mod turn;
mod volumes;
mod whole;
mod wishes;

pub use shard::{Config, Counters, Fatal, Fetch, Progress, Shard};
pub use volumes::{PLACES, Places};
pub use wishes::{HINTS, Usage, Usages, Whereabouts};
