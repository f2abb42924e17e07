//! The memory servers of a session as they are now: leases, which the agent renews when a server has lost them, free memory,
//! and what processes tell each other when one of them is lost; and, of one process, which of its pages have too few copies.

use crate::Remote;
use core::cell::UnsafeCell;
use core::sync::atomic::{
    AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release, Ordering::SeqCst, fence,
};

/// Most memory servers of a session.
pub const SERVERS: usize = 7;
/// The place of the local copy among them, behind the last.
pub const SPILL: usize = SERVERS;

/// How long the loss of one server keeps others from being given up for being slow, in microseconds.
const SHY: u64 = 500_000;

/// A lease as connections of it need it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Granted {
    /// Rises with each lease.
    pub generation: u32,
    /// Its number.
    pub lease: u64,
    /// What connections of it show that they know.
    pub secret: [u8; 32],
}

/// One server.
#[repr(C)]
#[derive(Debug)]
pub struct Server {
    /// Odd while the lease changes; twice the generation otherwise.
    sequence: AtomicU32,
    /// Raised by a process that was refused.
    doubts: AtomicU32,
    lease: AtomicU64,
    secret: [AtomicU64; 4],
    free: AtomicU64,
    latency: AtomicU64,
    losses: AtomicU64,
    /// Pages from it that were not genuine.
    forged: AtomicU64,
    /// How often it had no room for a process of the session.
    presses: AtomicU64,
    /// How often a process has lost it, or heard that it is about to end.
    alarms: AtomicU64,
    /// 1: the agent cannot reach it.
    away: AtomicU32,
    /// What the user is to be told of next: 0, a loss; [`LOST`], a return; [`ADDED`], that it is used.
    told: AtomicU32,
}

const LOST: u32 = 1;
const ADDED: u32 = 2;

impl Server {
    /// The lease of now; `None` while it changes for longer than it takes.
    pub fn granted(&self) -> Option<Granted> {
        // Whoever changes it may have been killed at that moment.
        for _ in 0..100_000 {
            let before = self.sequence.load(SeqCst);
            let mut secret = [0; 32];
            for (place, word) in secret.chunks_exact_mut(8).zip(&self.secret) {
                place.copy_from_slice(&word.load(SeqCst).to_ne_bytes());
            }
            let lease = self.lease.load(SeqCst);
            fence(SeqCst);
            if before & 1 == 0 && self.sequence.load(SeqCst) == before {
                return Some(Granted { generation: before / 2, lease, secret });
            }
            core::hint::spin_loop();
        }
        None
    }
    /// Replaces the lease. Only the launcher, and then the agent, does that; a reader waits meanwhile.
    pub fn grant(&self, lease: u64, secret: &[u8; 32]) {
        self.sequence.fetch_add(1, SeqCst);
        self.lease.store(lease, SeqCst);
        for (piece, word) in secret.chunks_exact(8).zip(&self.secret) {
            let mut number = [0; 8];
            number.copy_from_slice(piece);
            word.store(u64::from_ne_bytes(number), SeqCst);
        }
        self.sequence.fetch_add(1, SeqCst);
    }
    /// Rises with each lease.
    pub fn generation(&self) -> u32 {
        self.sequence.load(SeqCst) / 2
    }
    /// Bytes that it has left for this user, when the agent last asked.
    pub fn free(&self) -> u64 {
        self.free.load(SeqCst)
    }
    /// Sets that.
    pub fn set_free(&self, bytes: u64) {
        self.free.store(bytes, SeqCst);
    }
    /// Microseconds that a page takes, as a process measured it last.
    pub fn latency_us(&self) -> u64 {
        self.latency.load(SeqCst)
    }
    /// Sets that.
    pub fn set_latency_us(&self, us: u64) {
        self.latency.store(us, SeqCst);
    }
    /// Whether the agent cannot reach it.
    pub fn away(&self) -> bool {
        self.away.load(SeqCst) != 0
    }
    /// Sets that.
    pub fn set_away(&self, away: bool) {
        self.away.store(away.into(), SeqCst);
    }
    /// How often a process has lost it.
    pub fn losses(&self) -> u64 {
        self.losses.load(SeqCst)
    }
    /// How many pages from it were not what was written there, as processes have found.
    pub fn forged(&self) -> u64 {
        self.forged.load(SeqCst)
    }
    /// So many more were not.
    pub fn forge(&self, pages: u64) {
        self.forged.fetch_add(pages, SeqCst);
    }
    /// It had no room for what a process wanted to store.
    pub fn press(&self) {
        self.presses.fetch_add(1, Relaxed);
    }
    /// How often that was so.
    pub fn presses(&self) -> u64 {
        self.presses.load(Relaxed)
    }
    /// A process has found that it is gone, or about to go: the others are to ask it whether it is there for them.
    pub fn alarm(&self) {
        self.alarms.fetch_add(1, SeqCst);
    }
    /// How often that was so.
    pub fn alarms(&self) -> u64 {
        self.alarms.load(SeqCst)
    }
    /// A process was refused: the lease may have ended.
    pub fn doubt(&self) {
        self.doubts.fetch_add(1, SeqCst);
    }
    /// Whether one was since this was last asked.
    pub fn take_doubts(&self) -> bool {
        self.doubts.swap(0, SeqCst) != 0
    }
    /// True for the first to tell the user that it was lost, until [`Server::tell_return`].
    pub fn tell_loss(&self) -> bool {
        self.told.swap(LOST, SeqCst) != LOST
    }
    /// True for the first to tell the user that it is back.
    pub fn tell_return(&self) -> bool {
        self.told.compare_exchange(LOST, 0, SeqCst, SeqCst).is_ok()
    }
    /// True for the first to tell the user that one which was added is used.
    pub fn tell_use(&self) -> bool {
        self.told.compare_exchange(ADDED, 0, SeqCst, SeqCst).is_ok()
    }
}

/// All of them.
#[repr(C)]
#[derive(Debug)]
pub struct Servers {
    list: [Server; SERVERS],
    /// How many there are: records from there on are nobody's.
    count: AtomicU32,
    /// Most bytes that a store there may take.
    limit: AtomicU64,
    remotes: UnsafeCell<[Remote; SERVERS]>,
    /// The server lost last, plus one, in the upper byte; when, in microseconds, below.
    last: AtomicU64,
}

// SAFETY: of `remotes`, who reads looks at those below `count` only, and who writes at those from there on only: a record is
// whole before the count that tells of it is.
unsafe impl Sync for Servers {}

impl Servers {
    /// Where they are, and what was agreed with them; none changes any more.
    pub fn remotes(&self) -> &[Remote] {
        let count = self.count();
        // SAFETY: these were written before the count was raised, and are not written again; all bytes are valid in them.
        unsafe { core::slice::from_raw_parts(self.remotes.get().cast::<Remote>(), count) }
    }

    /// How many there are; it only rises.
    pub fn count(&self) -> usize {
        (self.count.load(Acquire) as usize).min(SERVERS)
    }

    /// One server more, for all processes at once; false when there is no place. `later`: to one that is at work already. Only
    /// the launcher, and then the agent, does that, one thread of it at a time.
    pub fn add(&self, remote: &Remote, later: bool) -> bool {
        let index = self.count();
        let Some(server) = self.list.get(index) else { return false };
        server.grant(remote.lease, &remote.secret);
        server.told.store(if later { ADDED } else { 0 }, SeqCst);
        // SAFETY: within the array; nobody reads it before the count is raised, and the caller alone writes.
        unsafe { self.remotes.get().cast::<Remote>().add(index).write(*remote) };
        self.count.store(index as u32 + 1, Release);
        true
    }

    /// Most bytes that all stores there may take, as far as the servers' quotas tell; it only rises.
    pub fn limit(&self) -> u64 {
        self.limit.load(Acquire)
    }

    /// They have more room now; not less.
    pub fn raise_limit(&self, bytes: u64) {
        self.limit.fetch_max(bytes, SeqCst);
    }

    /// One of them.
    pub fn get(&self, index: usize) -> Option<&Server> {
        self.list.get(index)
    }

    /// A process wants to give a server up only because it is slow. Not while another one was lost just now: two processes
    /// must not give up two servers at the same time, each relying on the other's.
    pub fn may_give_up(&self, index: usize, now_us: u64) -> bool {
        let before = self.last.load(SeqCst);
        let (server, when) = (before >> 56, before & WHEN);
        if server != 0 && server != index as u64 + 1 && (now_us & WHEN).saturating_sub(when) < SHY {
            return false;
        }
        self.last.compare_exchange(before, word(index, now_us), SeqCst, SeqCst).is_ok()
    }

    /// A process has lost a server.
    pub fn lose(&self, index: usize, now_us: u64) {
        self.last.store(word(index, now_us), SeqCst);
        if let Some(server) = self.list.get(index) {
            server.losses.fetch_add(1, SeqCst);
            server.alarm();
        }
    }
}

const WHEN: u64 = (1 << 56) - 1;

fn word(index: usize, now_us: u64) -> u64 {
    (index as u64 + 1) << 56 | now_us & WHEN
}

/// Which copies of a process's pages there are.
#[repr(C)]
#[derive(Debug)]
pub struct Copies {
    /// Pages stored, and of those the ones with fewer copies than wanted.
    stored: AtomicU64,
    missing: AtomicU64,
    /// Bit by server: it has the only copy of a page.
    sole: AtomicU32,
    /// Bit by server: the process has its connections to it.
    linked: AtomicU32,
    /// Pages of them that each server has, and the local copy.
    held: [AtomicU64; SERVERS + 1],
    /// How many alarms about each server its connections there have outlived.
    outlived: [AtomicU64; SERVERS],
}

impl Copies {
    /// Sets how many alarms about each server the connections there have outlived.
    pub fn set_outlived(&self, alarms: &[u64; SERVERS]) {
        for (place, alarms) in self.outlived.iter().zip(alarms) {
            place.store(*alarms, SeqCst);
        }
    }
    /// How many alarms about a server its connections there have outlived.
    pub fn outlived(&self, index: usize) -> u64 {
        self.outlived.get(index).map_or(0, |alarms| alarms.load(SeqCst))
    }
    /// Sets the rest.
    pub fn set(&self, stored: u64, missing: u64, sole: u32, linked: u32, held: &[u64; SERVERS + 1]) {
        for (place, pages) in self.held.iter().zip(held) {
            place.store(*pages, Relaxed);
        }
        self.stored.store(stored, SeqCst);
        self.sole.store(sole, SeqCst);
        self.linked.store(linked, SeqCst);
        self.missing.store(missing, SeqCst);
    }
    /// Pages of them that a server has, or, as [`SPILL`], the local copy.
    pub fn held(&self, who: usize) -> u64 {
        self.held.get(who).map_or(0, |pages| pages.load(Relaxed))
    }
    /// Pages stored.
    pub fn stored(&self) -> u64 {
        self.stored.load(SeqCst)
    }
    /// Pages with fewer copies than wanted.
    pub fn missing(&self) -> u64 {
        self.missing.load(SeqCst)
    }
    /// Bit by server: it has the only copy of a page.
    pub fn sole(&self) -> u32 {
        self.sole.load(SeqCst)
    }
    /// Bit by server: the process has its connections to it.
    pub fn linked(&self) -> u32 {
        self.linked.load(SeqCst)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    fn zeros() -> Servers {
        // SAFETY: atomics, and records for which zeros are a value.
        unsafe { std::mem::zeroed() }
    }

    #[test]
    fn leases_are_read_whole_while_they_change() {
        let servers = zeros();
        let server = servers.get(3).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| (1..=20_000u64).for_each(|number| server.grant(number, &[number as u8; 32])));
            let mut last = 0;
            while last < 20_000 {
                let Some(granted) = server.granted() else { continue };
                assert!(granted.secret == [granted.lease as u8; 32] && granted.lease >= last);
                assert_eq!(u64::from(granted.generation), granted.lease);
                last = granted.lease;
            }
        });
        assert!(servers.get(SERVERS).is_none());
    }

    #[test]
    fn two_servers_are_not_given_up_at_the_same_time() {
        let servers = zeros();
        let start = 1 << 40;
        assert!(servers.may_give_up(0, start));
        assert!(servers.may_give_up(0, start + 1));
        assert!(!servers.may_give_up(1, start + SHY / 2));
        assert!(servers.may_give_up(1, start + SHY + 10));
        servers.lose(2, start + SHY * 2);
        assert!(!servers.may_give_up(1, start + SHY * 2 + 1));
        assert_eq!((servers.get(2).unwrap().losses(), servers.get(2).unwrap().alarms()), (1, 1));
        let server = servers.get(0).unwrap();
        assert!(!server.take_doubts());
        server.doubt();
        assert!(server.take_doubts() && !server.take_doubts());
        assert!(!server.tell_return() && server.tell_loss() && !server.tell_loss() && server.tell_return());
    }

    fn numbered(number: u64) -> Remote {
        let mut name = [b'x'; 9];
        name[8] = b'0' + number as u8;
        let name = crate::Text::new(&name).unwrap();
        Remote { name, lease: number, secret: [number as u8; 32], quota: number, ..Remote::NONE }
    }

    #[test]
    fn servers_are_added_whole_while_others_look() {
        (0..200).for_each(|_| add_all_while_others_look(&zeros()));
    }

    fn add_all_while_others_look(servers: &Servers) {
        assert!(servers.remotes().is_empty());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 1..=SERVERS as u64 {
                    assert!(servers.add(&numbered(number), number > 1));
                    std::thread::yield_now();
                }
            });
            let mut seen = 0;
            while seen < SERVERS {
                let all = servers.remotes();
                assert!(all.len() >= seen, "they never become fewer");
                seen = all.len();
                for (index, remote) in all.iter().enumerate() {
                    assert!(*remote == numbered(index as u64 + 1), "{remote:?}");
                    let granted = servers.get(index).and_then(Server::granted).unwrap();
                    assert_eq!((granted.lease, granted.generation), (remote.lease, 1));
                }
            }
        });
        assert!(!servers.add(&numbered(9), true), "there is no place for more");
        assert_eq!(servers.remotes().len(), SERVERS);
    }

    #[test]
    fn of_a_new_server_it_is_told_once_that_it_is_used() {
        let servers = zeros();
        assert!(servers.add(&numbered(1), false) && servers.add(&numbered(2), true));
        let [first, second] = [0, 1].map(|index| servers.get(index).unwrap());
        assert!(!first.tell_use() && !second.tell_return());
        assert!(second.tell_use() && !second.tell_use());
        assert!(second.tell_loss() && !second.tell_use() && second.tell_return());
        // Lost before anybody used it.
        assert!(servers.add(&numbered(3), true));
        let third = servers.get(2).unwrap();
        assert!(third.tell_loss() && !third.tell_loss() && !third.tell_use() && third.tell_return());
    }

    #[test]
    fn the_limit_only_rises() {
        let servers = zeros();
        servers.raise_limit(10);
        servers.raise_limit(7);
        assert_eq!(servers.limit(), 10);
        servers.raise_limit(12);
        assert_eq!(servers.limit(), 12);
    }
}
