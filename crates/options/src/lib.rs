//! The one table of Ream's options, and the parsers of their values. Flags, environment, configuration file, help
//! text, man page and completions are all made from it.
#![no_std]
#![forbid(unsafe_code)]

mod processors;
mod size;
mod table;
mod value;

pub use processors::{Processors, ProcessorsError};
pub use size::{SizeError, parse_size, show_size};
pub use table::{COMMANDS, Command, Kind, OPTIONS, Spec, command, find, options_of};
pub use value::{ENGINES, FETCHES, IO, LEVELS, Memory, MemoryError, PAGES, parse_memory};
