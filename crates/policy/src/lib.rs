//! What the pager does next, as pure functions of what it has seen: how far to read at a fault and ahead of it, and
//! which part of the resident set gives way.
#![no_std]
#![forbid(unsafe_code)]

mod calm;
mod guarding;
pub mod replacement;
pub mod streams;

pub use calm::Calm;
pub use guarding::Guarding;
pub use replacement::{Extents, Marks, Queue, Shortage, Stage, Trial};
pub use streams::{Direction, Plan, Streams};
