//! malloc on managed regions: blocks of 4 MiB and more are mappings of their own ([`Large`]), smaller ones come from
//! jemalloc, whose extents are carved from managed chunks ([`Chunks`]) and whose metadata lies outside of them.
//!
//! The heap tells an [`Engine`] which pages it uses and which it has given up. It allocates nothing for itself but
//! mappings, and sets no `errno`.
#![no_std]

mod cache;
mod chunks;
mod large;
mod placing;
mod relocate;
#[cfg(feature = "small")]
pub mod seams;
#[cfg(feature = "small")]
pub mod small;
mod table;
mod wrapped;

use ream_page::{Page, Run};

pub use chunks::{Chunks, FrozenChunks};
pub use large::{FrozenLarge, LARGE_BYTES, Large};
pub use placing::{Placing, placing};
pub use relocate::{Left, relocate};
pub use wrapped::WRAPPED;

/// What pages of the heap hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// One large block.
    Large,
    /// Small blocks.
    Small,
}

/// What the heap tells the pager. All calls may come from any thread, with locks of the heap held; `add`, `moving`
/// and `moved` come inside [`placing`].
pub trait Engine {
    /// While it exists, the engine takes no ranges over.
    type Moving;
    /// While it exists, the engine relies on no content that is about to be discarded.
    type Discarding;
    /// The pages hold the program's data from now on. They are mapped and untouched, or have been touched but were
    /// not known before. Pages already added may be added again.
    fn add(run: Run, kind: Kind);
    /// The pages are about to be unmapped; what they hold is lost.
    fn remove(run: Run);
    /// What the pages hold is about to be lost: they read as zeros, and stay mapped. What is returned is kept until the kernel
    /// has discarded them.
    fn discard(run: Run) -> Self::Discarding;
    /// The kernel has moved the pages, present and absent ones, to another place, which the program does not know yet.
    fn moved(from: Run, to: Page);
    /// A range is about to be moved or resized by the kernel, which wants it to be one mapping. What is returned is
    /// kept until `moved` or `add` have said how that ended.
    fn moving(run: Run) -> Self::Moving;
    /// Whether memory is being paged, so that what is kept for later use costs others.
    fn engaged() -> bool;
    /// Whether the heap belongs to a session: its mappings are made without reserve.
    fn in_session() -> bool;
    /// Whether the kernel is asked for large pages.
    fn large_pages() -> bool {
        true
    }
    /// Whether a new block of so many bytes is to be managed, and lie on large pages where those are asked for. What is
    /// decided for a block goes for what it grows by.
    fn wanted(_bytes: usize) -> bool {
        true
    }
    /// Memory on pages of the kernel's pool, which is never paged: its address and length, at least `bytes` at a
    /// multiple of `align`, and if possible as much as is `welcome`. `None` where the session wants none, or there is
    /// none.
    fn pooled(_bytes: usize, _align: usize, _welcome: usize) -> Option<(usize, usize)> {
        None
    }
    /// Size of the pages when the address lies on pages of a pool: only whole ones can be unmapped.
    fn pool_unit(_address: usize) -> Option<usize> {
        None
    }
    /// Whether the program has said something of the run that must not outlive its block.
    fn marked(_run: Run) -> bool {
        false
    }
    /// Memory that [`Engine::pooled`] gave has been unmapped.
    fn unpooled(_run: Run) {}
}
