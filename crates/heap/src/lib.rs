//! malloc on managed regions.
#![no_std]
