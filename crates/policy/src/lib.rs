//! What the pager does next: read-ahead, victims, extent size.
#![no_std]
