//! Where cold pages live: slots of the store file.
#![no_std]
