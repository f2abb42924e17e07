//! The memory server: keeps sealed pages for pagers on other machines; and the other end of its control connection.
//!
//! Every connection has a thread of its own that sleeps until its client says something, so an idle server does
//! nothing, and no client waits for another. What a client says is parsed, and checked for whose it is and how much it
//! may have, in safe Rust.

#![forbid(unsafe_code)]

pub mod client;
mod control;
pub mod keys;
mod lane;
mod leases;
mod listen;
mod log;
mod memory;
mod metrics;
mod places;
mod stream;

pub use listen::{Config, Server};
pub use memory::usable;
pub use stream::PATIENCE;

/// A connection's thread needs no more stack.
const STACK: usize = 128 << 10;
