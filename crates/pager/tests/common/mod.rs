//! A shard on the fake kernel and a program that uses it, for tests.

pub mod ops;
pub mod world;
