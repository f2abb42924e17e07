//! The one table of options.
#![no_std]
