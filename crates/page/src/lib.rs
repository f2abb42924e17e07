//! Units of memory and the state of a page. Pages, blocks, frames, slots and bytes are different types;
//! only this crate converts between them.
#![no_std]
#![forbid(unsafe_code)]

mod pages;
mod units;
mod word;

pub use pages::Pages;
pub use units::{ADDRESS_BITS, BLOCK_BYTES, BLOCK_PAGES, Block, Frame, PAGE_BYTES, Page, Run, Slot, StoreId, VOLUMES};
pub use word::{State, Step, Word};
