//! Where cold pages live: the slots of a process's store file, which are in use, and which a forked child still reads.
#![no_std]
#![forbid(unsafe_code)]

mod slots;

pub use slots::{Slots, SlotsFull};
