//! The kernel as Ream needs it: one seam ([`Machine`]) between the pager and everything outside it, with a real twin
//! on userfaultfd and io_uring and a scripted fake for tests that need neither root nor a disk.
#![no_std]

#[cfg(feature = "fake")]
extern crate std;

pub mod clock;
mod copier;
pub mod deserted;
pub mod devices;
pub mod digest;
pub mod elf;
mod errno;
#[cfg(feature = "fake")]
pub mod fake;
pub mod file;
mod follow;
pub mod futex;
mod helper;
mod inbox;
mod io;
mod linux;
pub mod loans;
pub mod machine;
pub mod memory;
mod mover;
mod nodes;
pub mod pagemap;
mod pieces;
pub mod process;
mod procfs;
mod queue;
pub mod quiet;
mod remote;
pub mod ring;
pub mod rwlock;
pub mod socket;
pub mod space;
pub mod sparse;
mod staging;
pub mod suspend;
pub mod syscall;
pub mod tcp;
pub mod thread;
mod tiers;
pub mod uffd;
pub mod user;
mod workers;

pub use linux::{Anchors, LinuxConfig, LinuxMachine, Setup};
pub use machine::{Copied, Digest, Errno, Event, Events, Machine, Moved, NODES, Stop, Wait};
pub use pagemap::Mapped;
pub use remote::{Bequest, CONNECTING, Lost, News, RemoteConfig};
pub use tcp::Address;
pub use tiers::{Inheritance, TIER_BLOCKS, TiersConfig};
