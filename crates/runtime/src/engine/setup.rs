//! What a process's pager is made with: the machine, the room of its store, its processors.

use super::ENGINE;
use super::message::warn;
use super::pager::{Failure, THREAD, failed};
use super::{fork, remote};
use crate::lending::{self, LOANS};
use crate::regions::Kind;
use crate::{agent, pages};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use ream_page::{Block, Slot, StoreId};
use ream_stats::{Pages, Region, Session, whole_pages};
use ream_sys::digest::Key;
use ream_sys::file::{self, Fd, FileSystem};
use ream_sys::memory::MapSlice;
use ream_sys::uffd::Access;
use ream_sys::{Bequest, Errno, Inheritance, LinuxConfig, LinuxMachine, TIER_BLOCKS, TiersConfig, process};

/// Reads and writes in flight at most.
const IO_LIMIT: u32 = 256;

/// What a forked child has of its parent, beside the files.
#[derive(Default)]
pub(super) struct Inherited {
    /// What that has stored at memory servers.
    pub(super) bequest: Option<Bequest>,
    /// How its store is read, which has this number from now on.
    pub(super) kept: Option<(Inheritance, StoreId)>,
}

/// The machine of this process: store, userfaultfd, ring.
pub(super) fn machine(
    session: &'static Session,
    key: *const Key,
    inherited: Inherited,
) -> Result<LinuxMachine, Failure> {
    let settled = session.config();
    let filed = settled.zip_alone == 0 && (!settled.is_remote() || settled.has_local());
    let store = if filed { store_file(session)? } else { Fd::NONE };
    let slots = slots(session, store);
    let most = if settled.is_remote() && settled.below == 0 { room_to_grow(slots) } else { slots };
    SLOTS_OF_STORE.store(slots, SeqCst);
    MOST_SLOTS.store(most, SeqCst);
    THREAD.store(process::thread_id(), SeqCst);
    // What the session began with: a smaller budget may grow again.
    let frames = whole_pages(session.config().budget_bytes).next_multiple_of(512).min(1 << 30) as u32;
    let config = |move_pages, uring| LinuxConfig {
        small_frames: frames,
        huge_blocks: frames / 512,
        store,
        // SAFETY: drawn by `Key::draw`, whose memory is never freed and is inherited by children.
        key: unsafe { &*key },
        io_limit: IO_LIMIT,
        user_only: lending::on(),
        loans: lending::on().then_some(&LOANS),
        moving: Some(&ENGINE.moving),
        ask: agent::open,
        large: may_be_large,
        move_pages,
        uring,
    };
    let moves: &[bool] = match session.config().engine() {
        ream_stats::Engine::Auto | ream_stats::Engine::UserMode => &[true, false],
        ream_stats::Engine::Move => &[true],
        ream_stats::Engine::Copy | ream_stats::Engine::CopyAlways => &[false],
    };
    let swap = settled.swap();
    let rings: &[bool] = match session.config().io() {
        // Who receives is another thread.
        ream_stats::Io::Auto if swap.threads > 1 => &[false],
        ream_stats::Io::Auto => &[true, false],
        ream_stats::Io::Uring => &[true],
        ream_stats::Io::Threads => &[false],
    };
    // Best first; the first failure is the one to tell.
    let mut first = Failure { what: "finding an engine", errno: Errno(38) };
    let mut tried = false;
    for move_pages in moves {
        for uring in rings {
            match LinuxMachine::new(&config(*move_pages, *uring)) {
                Ok(machine) if machine.access() == Access::UserOnly && !lending::on() => {
                    // There the kernel's own accesses to absent pages fail, and system calls with them.
                    return Err(Failure { what: "obtaining a full userfaultfd", errno: Errno(1) });
                }
                Ok(mut machine) => {
                    let entry = ENGINE.entry().ok_or(Failure { what: "finding the session", errno: Errno(2) })?;
                    machine.count_space(session.ledger(), entry);
                    if let Some(remote) = remote::config(session, entry, (slots, most), IO_LIMIT + TIER_BLOCKS)? {
                        machine
                            .connect(&remote, inherited.bequest)
                            .map_err(|setup| Failure { what: setup.what, errno: setup.errno })?;
                    }
                    // A local copy of what is at memory servers is sealed with that.
                    let sealed = settled.encrypt != 0 && !settled.is_remote();
                    if sealed || settled.zip_bytes > 0 {
                        let tiers = TiersConfig {
                            sealed,
                            zip_bytes: settled.zip_bytes,
                            below: settled.zip_alone == 0,
                            ledger: session.ledger(),
                            process: entry,
                            store: entry.generation() as u32,
                            slots: most,
                        };
                        machine
                            .interpose(&tiers, inherited.kept)
                            .map_err(|setup| Failure { what: setup.what, errno: setup.errno })?;
                    }
                    if swap.suspends() {
                        let ready = machine.suspend_threads();
                        ready.map_err(|setup| Failure { what: setup.what, errno: setup.errno })?;
                    }
                    fork::publish(&machine);
                    session.uses(match (lending::on(), machine.moves()) {
                        (true, _) => ream_stats::Engine::UserMode,
                        (false, true) => ream_stats::Engine::Move,
                        (false, false) => ream_stats::Engine::Copy,
                    });
                    return Ok(machine);
                }
                Err(setup) if !tried => {
                    tried = true;
                    first = Failure { what: setup.what, errno: setup.errno };
                }
                Err(_) => {}
            }
        }
    }
    Err(first)
}

/// Whether a block may come back as a large page, by where it begins. Where all is small the kernel makes none by itself.
fn may_be_large(block: Block) -> bool {
    let [heap, data, stack] =
        [Region::Heap, Region::Static, Region::Stack].map(|region| pages::wanted(region) != Pages::Small);
    match (heap, data) {
        (true, true) => true,
        (false, false) => !stack,
        _ => match ENGINE.regions.read().kind_of(block.first()) {
            Some(Kind::Static) => data,
            _ => heap,
        },
    }
}

/// A store file of this process.
fn store_file(session: &Session) -> Result<Fd, Failure> {
    let config = session.config();
    let directory = config
        .file_directory()
        .as_c_str()
        .ok_or(Failure { what: "reading the store's directory", errno: Errno(22) })?;
    let store = file::create_store(directory).map(|store| store.fd);
    store.or_else(|error| agent::store().map_err(|_| error)).map_err(failed("creating the store"))
}

/// Slots that the store of this process may have, and that it may come to have.
static SLOTS_OF_STORE: AtomicU32 = AtomicU32::new(0);
static MOST_SLOTS: AtomicU32 = AtomicU32::new(0);

/// Whether it is the limit on the size of files that leaves it no more.
static SIZE_IS_LIMITED: AtomicBool = AtomicBool::new(false);

/// Whether the store is as large as the limit on the size of files allows.
pub(super) fn size_is_limited() -> bool {
    SIZE_IS_LIMITED.load(SeqCst)
}

/// Slots that this process's store may have, once it has one.
pub(super) fn slots_now() -> u32 {
    SLOTS_OF_STORE.load(SeqCst)
}

/// Slots that it may come to have.
pub(super) fn most_slots() -> u32 {
    MOST_SLOTS.load(SeqCst)
}

/// Most slots of a store: the session's limit, which others may use up before (see `count_space`), else what the file system
/// can spare.
fn slots(session: &Session, store: Fd) -> u32 {
    let mut bytes = session.config().store_limit_bytes;
    if session.config().is_remote() {
        bytes = session.servers().limit();
    } else if store != Fd::NONE {
        let limit = file::size_limit();
        bytes = if bytes == 0 { room(store) } else { bytes.min(limit) };
        SIZE_IS_LIMITED.store(bytes >= limit, SeqCst);
    }
    slots_of(bytes)
}

fn slots_of(bytes: u64) -> u32 {
    (bytes / 4096).clamp(512, Slot::most(0).into()) as u32
}

/// Memory servers may be added: tables are as large as eight times what there is now needs. They cost addresses only, until
/// they are used; where there are none to spare, they are as large as what there is now needs.
fn room_to_grow(slots: u32) -> u32 {
    /// What all tables take for a slot, at most, and as much again for the program.
    const BYTES_OF_SLOT: usize = 64;
    let most = slots.saturating_mul(8).min(Slot::most(0));
    let room = usize::try_from(most).ok().and_then(|most| most.checked_mul(BYTES_OF_SLOT));
    match room.map(MapSlice::<u8>::new) {
        Some(Ok(_)) => most,
        _ => slots,
    }
}

/// Slots that the store may have by now, where those are more than when this was last asked.
pub(super) fn more_slots() -> Option<u32> {
    let limit = ENGINE.session()?.servers().limit();
    // What is in no table cannot be had.
    let slots = slots_of(limit).min(most_slots());
    if limit == 0 || slots <= slots_now() {
        return None;
    }
    SLOTS_OF_STORE.store(slots, SeqCst);
    Some(slots)
}

/// Bytes that the file system of an open file can spare, and that it may have.
pub(super) fn room(file: Fd) -> u64 {
    let spare = |system: FileSystem| system.free.saturating_sub((system.bytes / 10).max(10 << 30));
    file::file_system(file).map_or(0, spare).min(file::size_limit())
}

/// Keeps the calling thread to the processors that the session wants pagers on.
pub(super) fn place() {
    let Some(session) = ENGINE.session() else { return };
    let mut wanted: Option<process::Processors> = None;
    for (index, word) in session.config().pager_cpus.iter().enumerate() {
        for bit in (0..64).filter(|bit| word >> bit & 1 != 0) {
            let number = index as u32 * 64 + bit;
            match &mut wanted {
                Some(set) => set.add(number),
                None => wanted = Some(process::Processors::only(number)),
            }
        }
    }
    if let Some(set) = wanted {
        // Once, not for each of our threads and of the process's children.
        static SAID: AtomicBool = AtomicBool::new(false);
        if process::set_processors(&set).is_err() && !SAID.swap(true, SeqCst) {
            warn(format_args!("--pager-cpus names no processor that this process may use; the pager runs on any"));
        }
    }
}
