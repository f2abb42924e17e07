//! Blocks whose pages go to a directory of their own: which directories those are, which ranges go there, and the files
//! that the pager has in them.

use super::mailbox::Command;
use super::message::warn;
use super::setup::room;
use super::{ENGINE, engaged, fork, masked};
use core::cell::UnsafeCell;
use core::ffi::CStr;
use core::fmt::Write as _;
use core::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use ream_page::{Run, StoreId, VOLUMES};
use ream_pager::{Places, Shard};
use ream_sys::file;
use ream_sys::futex::{Guard, Mutex};
use ream_sys::{Errno, LinuxMachine};

/// Longest name of a directory, with the zero byte behind it.
pub const NAME: usize = 1024;
/// Not supported here (EOPNOTSUPP).
const UNSUPPORTED: Errno = Errno(95);
/// All volumes are in use (ENOSPC).
const NO_ROOM: Errno = Errno(28);

/// The ranges, for a pager that begins later. Taken after all locks of the engine; whoever adds a directory holds it.
static PLACES: Mutex<Places> = Mutex::new(Places::new());

/// Names of directories by volume less one. Those that count are never changed: they are read without a lock.
struct Directories(UnsafeCell<[[u8; NAME]; VOLUMES - 1]>);
// SAFETY: an entry is written by the holder of `PLACES` before `COUNT` says that it is there, and only read afterwards.
unsafe impl Sync for Directories {}
static DIRECTORIES: Directories = Directories(UnsafeCell::new([[0; NAME]; VOLUMES - 1]));
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// While it exists, in a fork, nothing here changes.
pub struct Frozen {
    _places: Guard<'static, Places>,
}

/// Takes the lock for the duration of a fork. Signals are blocked then.
pub fn freeze() -> Frozen {
    Frozen { _places: PLACES.lock() }
}

fn directory(volume: u8) -> Option<&'static CStr> {
    let index = (volume as usize).checked_sub(1).filter(|index| *index < COUNT.load(SeqCst))?;
    // SAFETY: see `Directories`.
    let name = unsafe { (*DIRECTORIES.0.get()).get(index) }?;
    CStr::from_bytes_until_nul(name).ok()
}

/// The volume in a directory; 0 for the session's own.
///
/// # Errors
/// EOPNOTSUPP without a session, where its store is more or something else than files, and for a directory in memory;
/// ENOSPC when there are [`VOLUMES`] directories already; those of open(2) when no file can be made there.
pub fn find(name: &CStr) -> Result<u8, Errno> {
    let config = ENGINE.session().ok_or(UNSUPPORTED)?.config();
    if name == config.store_directory.as_c_str().ok_or(UNSUPPORTED)? {
        return Ok(0);
    }
    if config.is_remote() || config.zip_bytes > 0 || config.encrypt != 0 {
        return Err(UNSUPPORTED);
    }
    let mut known = [0; NAME];
    let length = resolve(name, &mut known)?;
    let known = known.get(..=length).and_then(|name| CStr::from_bytes_with_nul(name).ok()).ok_or(Errno::INVAL)?;
    if Some(known) == config.store_directory.as_c_str() {
        return Ok(0);
    }
    let store = file::create_store(known)?;
    let system = file::file_system(store.fd);
    file::close(store.fd);
    if system?.in_memory() {
        return Err(UNSUPPORTED);
    }
    masked(|| enter(known))
}

/// The name of a directory that stays the same wherever the program goes; its length.
fn resolve(name: &CStr, into: &mut [u8; NAME]) -> Result<usize, Errno> {
    let fd = file::open(name, file::flags::DIRECTORY | file::flags::READ, 0)?;
    let mut link = crate::say::Line::<64>::new();
    let _ = write!(link, "/proc/self/fd/{}\0", fd.0);
    let read = CStr::from_bytes_until_nul(link.as_bytes()).map_err(|_| Errno::INVAL);
    let read = read.and_then(|link| file::read_link(link, into));
    file::close(fd);
    // Without a byte left there may be more of it.
    read.and_then(|length| if length + 1 < NAME { Ok(length) } else { Err(Errno::INVAL) })
}

fn enter(name: &CStr) -> Result<u8, Errno> {
    let _one = PLACES.lock();
    let count = COUNT.load(SeqCst);
    if let Some(volume) = (1..=count as u8).find(|volume| directory(*volume) == Some(name)) {
        return Ok(volume);
    }
    // SAFETY: see `Directories`: the lock is held, and this entry does not count yet.
    let place = unsafe { (*DIRECTORIES.0.get()).get_mut(count) }.ok_or(NO_ROOM)?;
    for (to, from) in place.iter_mut().zip(name.to_bytes_with_nul()) {
        *to = *from;
    }
    COUNT.store(count + 1, SeqCst);
    Ok(count as u8 + 1)
}

/// The pages of a managed range go to a volume.
///
/// # Errors
/// ENOMEM when too many ranges do.
pub fn send(run: Run, volume: u8) -> Result<(), Errno> {
    masked(|| {
        PLACES.lock().set(run, volume)?;
        if engaged() {
            ENGINE.mailbox.call(Command::Send(run, volume));
        }
        Ok(())
    })
}

/// A range is unmapped: the pager hears of that otherwise.
pub fn forget(run: Run) {
    if COUNT.load(SeqCst) > 0 {
        masked(|| PLACES.lock().forget(run));
    }
}

/// In the pager: carries [`send`] out.
pub(super) fn sent(shard: &mut Shard<LinuxMachine>, run: Run, volume: u8) {
    if volume > 0 && !shard.has_volume(volume) {
        open(shard, volume);
    }
    // There are as many places as in the list above.
    let _ = shard.set_volume(run, volume);
}

/// In the pager, as it begins: tells it what is known.
pub(super) fn engage(shard: &mut Shard<LinuxMachine>) {
    if COUNT.load(SeqCst) > 0 {
        PLACES.lock().each(|run, volume| sent(shard, run, volume));
    }
}

/// In a forked child's pager: it has files of its own in the directories in which its parent had some. The lock is held by
/// the thread that waits for this one.
pub(super) fn engage_child(shard: &mut Shard<LinuxMachine>, had: [bool; VOLUMES]) {
    for (volume, _) in (0..).zip(had).skip(1).filter(|(_, had)| *had) {
        open(shard, volume);
    }
}

/// Which volumes a shard has.
pub(super) fn those_of(shard: &Shard<LinuxMachine>) -> [bool; VOLUMES] {
    core::array::from_fn(|volume| shard.has_volume(volume as u8))
}

fn open(shard: &mut Shard<LinuxMachine>, volume: u8) {
    let Some(directory) = directory(volume) else { return };
    let opened = file::create_store(directory).and_then(|store| {
        shard.machine_mut().add_volume(StoreId::OWN, volume, store.fd);
        let slots = room(store.fd) / ream_page::PAGE_BYTES as u64;
        shard.add_volume(volume, slots.min(u32::MAX.into()) as u32)
    });
    match opened {
        Ok(()) => fork::publish(shard.machine()),
        Err(error) => warn(format_args!(
            "there can be no file in {} (errno {}): blocks that ream_alloc was to keep there are kept in the session's store",
            directory.to_str().unwrap_or("a directory that ream_alloc was given"),
            error.0
        )),
    }
}
