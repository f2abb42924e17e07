//! When the program must be stopped: its memory cannot be served any more, and it is told why.

use super::message::tell;
use super::setup::{size_is_limited, slots_now};
use super::{ENGINE, remote};
use ream_pager::{Fatal, Shard};
use ream_sys::{Errno, LinuxMachine, process};

/// Exit status when the program had to be stopped.
const STOPPED: i32 = 125;

/// Stops the program: its memory cannot be served any more.
pub(super) fn stop(why: Fatal, shard: &mut Shard<LinuxMachine>) -> ! {
    remote::explain(why, shard);
    match why {
        Fatal::Read(errno) => tell(format_args!(
            "the store could not be read (errno {}): the program is stopped, since its memory cannot be had back; check the disk",
            errno.0
        )),
        Fatal::Corrupt(slot, store) if shard.machine().seals_files() => tell(format_args!(
            "the store returned a page that is not what was sealed for that place (changed, exchanged or outdated; store {}, offset {}): the program is stopped; check the disk, and who may write to it",
            store.0,
            slot.offset()
        )),
        Fatal::Corrupt(slot, store) => tell(format_args!(
            "the store returned other data than were written there (store {}, offset {}): the program is stopped; check the disk",
            store.0,
            slot.offset()
        )),
        Fatal::StoreFull(errno) => {
            const NO_ROOM: [u16; 2] = [28, 122];
            const TOO_LARGE: u16 = Errno::FBIG.0;
            // Nearly all places are taken, of which that limit left no more: the disk may have room.
            let used_up = size_is_limited() && shard.slots_in_use() * 8 >= u64::from(slots_now()) * 7;
            let errno = match errno.map_or(28, |errno| errno.0) {
                28 if used_up => TOO_LARGE,
                errno => errno,
            };
            tell(format_args!(
                "the store {} (errno {}): it holds {} MiB, and {} MiB more are managed; the program is stopped; {}",
                match errno {
                    TOO_LARGE => "is as large as the limit on the size of files (ulimit -f) allows",
                    _ if NO_ROOM.contains(&errno) => "is full",
                    _ => "cannot be written any more",
                },
                errno,
                shard.slots_in_use() / 256,
                shard.used() / 256,
                match errno {
                    TOO_LARGE => "raise that limit, to more than the program's data",
                    _ if NO_ROOM.contains(&errno) && is_in_memory() => {
                        "make zip: larger, or name a directory or a memory server below it (--store zip:SIZE --store DIRECTORY)"
                    }
                    _ if NO_ROOM.contains(&errno) => "give --store a directory with more room or raise --store-limit",
                    _ => "check the disk, or give --store another one",
                }
            ))
        }
        Fatal::Internal(what) => {
            tell(format_args!("internal error: {what}; the program is stopped so that no wrong data are used"))
        }
    }
    end()
}

/// Whether the store is compressed memory alone.
fn is_in_memory() -> bool {
    ENGINE.session().is_some_and(|session| session.config().zip_alone != 0)
}

/// Ends the process.
pub(super) fn end() -> ! {
    process::end_process(STOPPED)
}
