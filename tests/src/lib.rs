//! Black-box tests of Ream: what the tests in `tests/` share. Programs are compiled, run plain and under
//! `ream run`, and everything that a run may leave behind is looked for.

mod browser;
mod cgroup;
mod compare;
mod compile;
mod core_file;
mod fleet;
mod gate;
mod harm;
mod installation;
mod memory_server;
pub mod mpi;
mod outcome;
mod paged;
mod place;
mod pool;
mod process;
mod reachable;
pub mod real;
mod redis;
mod run;
mod runnable;
mod shmem;
mod skip;
mod space;

pub use browser::Browser;
pub use cgroup::Cgroup;
pub use compare::{Case, UNMANAGED, compare, installed};
pub use compile::{Build, build, compiled};
pub use core_file::{Dumped, core_in, dumped};
pub use fleet::{Fleet, Member, Steadfast};
pub use gate::Gate;
pub use harm::Harm;
pub use installation::{Installation, ran};
pub use memory_server::{Meddle, MemoryServer, Proxy, make_key};
pub use outcome::{Outcome, Summary};
pub use paged::{Condition, Paged};
pub use place::{
    Scratch, build_root, is_root, kernel_is_at_least, openable_by_all, program, ream_binary, ream_calls, ream_library,
    tool,
};
pub use pool::Pool;
pub use process::{Left, report};
pub use reachable::{NOBODY, Reachable};
pub use redis::{Redis, Reply};
pub use run::{Run, Running};
pub use runnable::{make_runnable, wait_until_written};
pub use shmem::Shmem;
pub use skip::{large_pages, skip};
pub use space::Space;

/// Bytes of a mebibyte.
pub const MIB: u64 = 1 << 20;
