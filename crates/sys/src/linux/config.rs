//! What a machine is made of, and why it could not be made.

use super::LinuxMachine;
use crate::Errno;
use crate::digest::Key;
use crate::file::Fd;
use crate::futex::Mutex;
use crate::loans::Loans;
use crate::uffd::Access;
use crate::user::Ask;
use ream_page::Block;

/// What a machine is made of.
pub struct LinuxConfig {
    /// Places for small frames; rounded up to whole blocks.
    pub small_frames: u32,
    /// Blocks of 512 places for huge frames.
    pub huge_blocks: u32,
    /// The process's own store, open for reading and writing.
    pub store: Fd,
    /// The key of all digests, from [`Key::draw`], the same in all processes that read each other's stores.
    pub key: &'static Key,
    /// Most reads and writes in flight, 1 to 1024.
    pub io_limit: u32,
    /// Only a userfaultfd of the kind that ordinary users get, even where a better one is allowed.
    pub user_only: bool,
    /// What the program's threads lend the kernel: necessary where the userfaultfd may be one for ordinary users only.
    pub loans: Option<&'static Loans>,
    /// Held by whoever moves or resizes the program's mappings, before the pager hears of it.
    pub moving: Option<&'static Mutex<()>>,
    /// Whom to ask for what this thread may not open.
    pub ask: Ask,
    /// Whether a block may be given a large page.
    pub large: fn(Block) -> bool,
    /// Move pages; otherwise copy them, which needs a full userfaultfd and does not recognise pins.
    pub move_pages: bool,
    /// Use io_uring; otherwise threads.
    pub uring: bool,
}

/// Why a machine could not be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Setup {
    /// What was tried.
    pub what: &'static str,
    /// How it failed.
    pub errno: Errno,
}

pub(super) fn fail(what: &'static str) -> impl Fn(Errno) -> Setup {
    move |errno| Setup { what, errno }
}

impl LinuxMachine {
    /// How the userfaultfd was obtained.
    pub fn access(&self) -> Access {
        self.inbox.uffd.access
    }

    /// Whether nothing is copied out from now on: a device may write to any page without our hearing of it. Pages that are moved
    /// by the kernel leave all the same, which refuses those.
    pub fn keep(&mut self, all: bool) {
        self.keeps = all;
    }

    /// Whether pages are moved by the kernel; otherwise they are copied.
    pub fn moves(&self) -> bool {
        self.memory.is_none()
    }
}
