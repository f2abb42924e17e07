//! The one table of Ream's options, and the parsers of their values. Flags, environment, configuration file, help
//! text, man page and completions are all made from it.
#![no_std]
#![forbid(unsafe_code)]

mod commands;
mod copies;
pub mod pages;
pub mod prefault;
mod processors;
mod size;
mod spec;
mod table;
mod turns;
mod value;

pub use commands::{COMMANDS, Command, command, takes_program};
pub use pages::{PAGES, PageChoice, PageChoices, REGIONS, parse_pages};
pub use prefault::{LOCKS, PrefaultChoices, parse_prefault};
pub use processors::{Processors, ProcessorsError};
pub use size::{SizeError, parse_size, show_size};
pub use spec::{Kind, Spec};
pub use table::{OPTIONS, find, options_of};
pub use turns::{DROP, NEXT, RANKS, RanksError, SWITCH, parse_ranks};
pub use value::{ENGINES, FETCHES, IO, LEVELS, Memory, MemoryError, SWAP_PROTOCOLS, parse_memory};
