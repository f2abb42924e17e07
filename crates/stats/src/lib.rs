//! Counters and the ledger in memory shared by a session.
#![no_std]
