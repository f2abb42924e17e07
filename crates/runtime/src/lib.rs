//! libream.so: loaded before the program, it takes over malloc and anonymous memory and joins the session.
#![cfg_attr(not(test), no_std)]

pub mod regions;
