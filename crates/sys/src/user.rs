//! Whose rights a thread has: users, groups and capabilities. The kernel keeps them for each thread; libc has all of its
//! threads follow one that changes them, but does not know those that we made.

use crate::Errno;
use crate::file::Fd;
use crate::syscall::{call1, call2, call3, number};

/// What a process may not open any more once it has given up rights that it had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Closed {
    /// /dev/userfaultfd.
    Userfaultfd,
    /// /proc/self/pagemap.
    Pagemap,
    /// /proc/self/mem, to read.
    Memory,
}

/// Asks somebody who still may; the descriptor is in the calling thread's table.
pub type Ask = fn(Closed) -> Result<Fd, Errno>;

/// Nobody to ask.
pub fn nobody(_: Closed) -> Result<Fd, Errno> {
    Err(Errno::ACCES)
}

/// Groups that a thread may be in beside its own.
const GROUPS: usize = 65_536;
/// Capabilities, 64 bits each: effective, permitted, inheritable.
type Capabilities = [u64; 3];

/// The rights of a thread. Large: not for stacks.
pub struct Rights {
    /// Real, effective and saved.
    users: [u32; 3],
    groups: [u32; 3],
    capabilities: Capabilities,
    others: [u32; GROUPS],
    other_count: usize,
}

impl Rights {
    /// Nobody's.
    pub const fn none() -> Rights {
        Rights { users: [0; 3], groups: [0; 3], capabilities: [0; 3], others: [0; GROUPS], other_count: 0 }
    }

    /// Takes down the calling thread's.
    pub fn note(&mut self) -> Result<(), Errno> {
        self.users = users()?;
        self.groups = groups()?;
        self.capabilities = capabilities()?;
        let place = self.others.as_mut_ptr().expose_provenance();
        // SAFETY: the kernel writes at most so many groups.
        self.other_count = unsafe { call2(number::__NR_getgroups, GROUPS, place) }?;
        Ok(())
    }

    /// Gives the calling thread these rights. False when it has more than these afterwards.
    pub fn assume(&self) -> bool {
        const KEEPCAPS: usize = 8;
        const DUMPABLE: usize = 3;
        const SET_DUMPABLE: usize = 4;
        // SAFETY: no memory is touched.
        let dumpable = unsafe {
            // Capabilities are set as they are noted down; they need not go when the users change.
            let _ = call2(number::__NR_prctl, KEEPCAPS, 1);
            call1(number::__NR_prctl, DUMPABLE)
        };
        // Whoever gains rights gets his user first and then can change the rest; whoever loses them, the other way round.
        for _ in 0..2 {
            let _ = self.set_others();
            let _ = set(number::__NR_setresgid, groups(), self.groups);
            let _ = set(number::__NR_setresuid, users(), self.users);
            let _ = self.set_capabilities();
        }
        if dumpable == Ok(1) {
            // The kernel makes a process undumpable when the rights of any thread change. The program's own change has
            // done that, where it does; if it has decided otherwise since, that stays.
            // SAFETY: no memory is touched.
            let _ = unsafe { call2(number::__NR_prctl, SET_DUMPABLE, 1) };
        }
        self.covers(users(), capabilities())
    }

    /// Whether a thread with these users and capabilities can do no more than one with the rights noted here.
    fn covers(&self, users: Result<[u32; 3], Errno>, capabilities: Result<Capabilities, Errno>) -> bool {
        let (Ok(users), Ok([_, permitted, _])) = (users, capabilities) else { return false };
        let root = |users: &[u32; 3]| users.contains(&0);
        let [_, allowed, _] = self.capabilities;
        (!root(&users) || root(&self.users)) && permitted & !allowed == 0
    }

    fn set_others(&self) -> Result<(), Errno> {
        let place = self.others.as_ptr().expose_provenance();
        // SAFETY: the kernel reads so many groups.
        unsafe { call2(number::__NR_setgroups, self.other_count, place) }.map(|_| ())
    }

    fn set_capabilities(&self) -> Result<(), Errno> {
        let [effective, permitted, inheritable] = self.capabilities;
        let [_, have, inherit] = capabilities()?;
        let permitted = permitted & have;
        let new = [effective & permitted, permitted, inheritable & (inherit | permitted)];
        let [low, high] = halves(new);
        let data = [low, high];
        let header = HEADER;
        let (head, place) = ((&raw const header).expose_provenance(), data.as_ptr().expose_provenance());
        // SAFETY: the kernel reads two structures of three words.
        unsafe { call2(number::__NR_capset, head, place) }.map(|_| ())
    }
}

/// Version 3, of the calling thread.
const HEADER: [u32; 2] = [0x2008_0522, 0];

/// Lower and upper halves, as the kernel has them.
fn halves(all: Capabilities) -> [[u32; 3]; 2] {
    [all.map(|word| word as u32), all.map(|word| (word >> 32) as u32)]
}

fn capabilities() -> Result<Capabilities, Errno> {
    let mut header = HEADER;
    let mut data = [[0u32; 3]; 2];
    let (head, place) = ((&raw mut header).expose_provenance(), data.as_mut_ptr().expose_provenance());
    // SAFETY: the kernel writes two structures of three words.
    unsafe { call2(number::__NR_capget, head, place) }?;
    let [[effective, permitted, inheritable], [a, b, c]] = data;
    let join = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
    Ok([join(effective, a), join(permitted, b), join(inheritable, c)])
}

fn users() -> Result<[u32; 3], Errno> {
    three(number::__NR_getresuid)
}

fn groups() -> Result<[u32; 3], Errno> {
    three(number::__NR_getresgid)
}

/// The effective user of the calling thread.
pub fn effective() -> u32 {
    users().map_or(u32::MAX, |[_, effective, _]| effective)
}

fn three(call: u32) -> Result<[u32; 3], Errno> {
    let mut ids = [0u32; 3];
    let [real, effective, saved] = ids.each_mut().map(|id| core::ptr::from_mut(id).expose_provenance());
    // SAFETY: the kernel writes the three.
    unsafe { call3(call, real, effective, saved) }?;
    Ok(ids)
}

fn set(call: u32, now: Result<[u32; 3], Errno>, wanted: [u32; 3]) -> Result<(), Errno> {
    if now? == wanted {
        return Ok(());
    }
    let [real, effective, saved] = wanted.map(|id| id as usize);
    // SAFETY: no memory is touched; rights are lost or had before.
    unsafe { call3(call, real, effective, saved) }.map(|_| ())
}
