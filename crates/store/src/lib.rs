//! Where cold pages live: the slots of a process's store files, which are in use, and which a forked child still reads.
#![no_std]
#![forbid(unsafe_code)]

mod slots;
mod volumes;

pub use slots::{SEGMENT, Slots, SlotsFull};
pub use volumes::Volumes;
