//! Fault loop, frames, eviction, regions, budget.
#![no_std]
