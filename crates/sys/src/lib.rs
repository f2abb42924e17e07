//! The kernel as Ream needs it: one seam ([`Machine`]) between the pager and everything outside it, with a real twin
//! on userfaultfd and io_uring and a scripted fake for tests that need neither root nor a disk.
#![no_std]

pub mod machine;

pub use machine::{Copied, Digest, Errno, Event, Events, Machine, Moved, Stop, Wait};
