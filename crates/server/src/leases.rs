//! Leases: what a session has of a server's memory. A lease lives as long as a connection of it, a store as long as a
//! lane of the process that made it or of a child that reads it: both are counted by values that live with connections.

use crate::keys::Public;
use crate::memory::{Account, COST, SEGMENT, Segment};
use crate::metrics::{Counter, Counters};
use ream_wire::message::Status;
use ream_wire::{PAGE, SEAL};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// Locks; a thread that panicked has left nothing half done that matters to others.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// A client, as long as the server runs.
pub(crate) struct Owner {
    pub(crate) name: String,
    /// `None`: anybody, where there is no security.
    key: Option<Public>,
    pub(crate) account: Account,
    /// Pages sent to it.
    pub(crate) sent: Counter,
}

/// Whose a connection is.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Whose {
    Client(Public),
    /// Nothing more is known of it.
    Host(IpAddr),
}

impl Owner {
    pub(crate) fn new(name: &str, key: Option<Public>, quota: u64) -> Owner {
        Owner { name: name.to_owned(), key, account: Account::new(quota), sent: Counter::default() }
    }

    /// Whose a connection of it from there is.
    pub(crate) fn whose(&self, address: IpAddr) -> Whose {
        self.key.map_or(Whose::Host(address), Whose::Client)
    }
}

/// All leases, and the memory that they share.
pub(crate) struct Leases {
    pub(crate) memory: Account,
    large: bool,
    list: Mutex<HashMap<u64, Arc<Lease>>>,
    pub(crate) counters: Counters,
}

/// What one session has.
pub(crate) struct Lease {
    pub(crate) id: u64,
    pub(crate) secret: [u8; 32],
    pub(crate) owner: Arc<Owner>,
    stores: Mutex<HashMap<u32, Arc<Store>>>,
    next: AtomicU32,
    connections: AtomicUsize,
    pub(crate) used: AtomicU64,
}

/// What one process has.
pub(crate) struct Store {
    pub(crate) id: u32,
    segments: Mutex<HashMap<u32, Arc<Mutex<Segment>>>>,
    lanes: AtomicUsize,
}

/// A connection's share in its lease: the last one ends it.
pub(crate) struct Holding {
    leases: Arc<Leases>,
    pub(crate) lease: Arc<Lease>,
}

/// A lane's share in its store: the last one ends it.
pub(crate) struct Attached {
    holding: Holding,
    pub(crate) store: Arc<Store>,
}

impl Leases {
    pub(crate) fn new(bytes: u64, large: bool) -> Leases {
        let list = Mutex::new(HashMap::new());
        Leases { memory: Account::new(bytes), large, list, counters: Counters::default() }
    }

    pub(crate) fn count(&self) -> usize {
        lock(&self.list).len()
    }

    /// Leases with a store: somebody pages, or may read what was stored. Others are only held.
    pub(crate) fn in_use(&self) -> usize {
        let leases: Vec<_> = lock(&self.list).values().cloned().collect();
        leases.iter().filter(|lease| !lock(&lease.stores).is_empty()).count()
    }

    /// A new lease, held by whoever gets this.
    pub(crate) fn make(self: &Arc<Leases>, id: u64, secret: [u8; 32], owner: Arc<Owner>) -> Option<Holding> {
        let lease = Arc::new(Lease {
            id,
            secret,
            owner,
            stores: Mutex::new(HashMap::new()),
            next: AtomicU32::new(1),
            connections: AtomicUsize::new(1),
            used: AtomicU64::new(0),
        });
        let mut list = lock(&self.list);
        if list.contains_key(&id) {
            return None;
        }
        list.insert(id, lease.clone());
        Some(Holding { leases: self.clone(), lease })
    }

    /// A lease, to see whether somebody knows its secret. This does not keep it.
    pub(crate) fn find(&self, id: u64) -> Option<Arc<Lease>> {
        lock(&self.list).get(&id).cloned()
    }

    /// A share in a lease that is there.
    pub(crate) fn hold(self: &Arc<Leases>, id: u64) -> Option<Holding> {
        let list = lock(&self.list);
        let lease = list.get(&id)?.clone();
        // Under the list's lock, as is the end of a lease.
        lease.connections.fetch_add(1, Ordering::Relaxed);
        Some(Holding { leases: self.clone(), lease })
    }
}

impl Lease {
    /// The number of a store that is to be made.
    pub(crate) fn number(&self) -> Option<u32> {
        // After four thousand million stores numbers would repeat.
        Some(self.next.fetch_add(1, Ordering::Relaxed)).filter(|id| *id != ream_wire::hello::NEW_STORE)
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        let ended = {
            let mut list = lock(&self.leases.list);
            let last = self.lease.connections.fetch_sub(1, Ordering::Relaxed) == 1;
            if last { list.remove(&self.lease.id) } else { None }
        };
        if let Some(lease) = ended {
            crate::log::event("info", "lease-ended", &[("lease", &Hex(lease.id)), ("client", &lease.owner.name)]);
        }
    }
}

/// Numbers of leases, as they are written in logs. They are no secrets.
pub(crate) struct Hex(pub(crate) u64);

impl std::fmt::Display for Hex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl Holding {
    /// A new store of this number, for a lane.
    pub(crate) fn create(self, id: u32) -> Option<Attached> {
        let mut stores = lock(&self.lease.stores);
        if stores.contains_key(&id) {
            return None;
        }
        let store = Arc::new(Store { id, segments: Mutex::new(HashMap::new()), lanes: AtomicUsize::new(1) });
        stores.insert(id, store.clone());
        drop(stores);
        Some(Attached { holding: self, store })
    }

    /// A store that is there, for a lane.
    pub(crate) fn attach(self, id: u32) -> Option<Attached> {
        let stores = lock(&self.lease.stores);
        let store = stores.get(&id)?.clone();
        store.lanes.fetch_add(1, Ordering::Relaxed);
        drop(stores);
        Some(Attached { holding: self, store })
    }
}

impl Attached {
    /// A share in a further store, whose number its clients have chosen: it is made where it is not there yet. What lies in it
    /// are copies of what nobody changes any more, so that several may write them.
    pub(crate) fn make(&self, id: u32) -> Option<Attached> {
        let holding = self.holding.leases.hold(self.holding.lease.id)?;
        let mut stores = lock(&self.holding.lease.stores);
        let store = stores.entry(id).or_insert_with(|| {
            Arc::new(Store { id, segments: Mutex::new(HashMap::new()), lanes: AtomicUsize::new(0) })
        });
        store.lanes.fetch_add(1, Ordering::Relaxed);
        let store = store.clone();
        drop(stores);
        Some(Attached { holding, store })
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let ended = {
            let mut stores = lock(&self.holding.lease.stores);
            let last = self.store.lanes.fetch_sub(1, Ordering::Relaxed) == 1;
            if last { stores.remove(&self.store.id) } else { None }
        };
        if let Some(store) = ended {
            // A reader in another lane may still hold a segment for the moment; it is unmapped when that has ended.
            let count = std::mem::take(&mut *lock(&store.segments)).len() as u64;
            self.give(count);
        }
    }
}

impl Attached {
    /// Whose it is.
    pub(crate) fn owner(&self) -> &Owner {
        &self.holding.lease.owner
    }

    /// The lease.
    pub(crate) fn lease(&self) -> &Lease {
        &self.holding.lease
    }

    fn give(&self, segments: u64) {
        self.holding.leases.memory.give(segments * COST);
        self.lease().owner.account.give(segments * COST);
        self.lease().used.fetch_sub(segments * COST, Ordering::Relaxed);
    }

    /// A store of this lease, to read from.
    fn readable(&self, store: u32) -> Option<Arc<Store>> {
        if store == self.store.id {
            return Some(self.store.clone());
        }
        lock(&self.lease().stores).get(&store).cloned()
    }

    /// The segments of all slots of a run, with memory behind them.
    fn claim(&self, slot: u32, pages: u16) -> Result<(), Status> {
        let leases = &self.holding.leases;
        let mut segments = lock(&self.store.segments);
        for index in slot / SEGMENT..=(slot + pages as u32 - 1) / SEGMENT {
            if segments.contains_key(&index) {
                continue;
            }
            if !self.lease().owner.account.take(COST) {
                return Err(Status::Quota);
            }
            if !leases.memory.take(COST) {
                self.lease().owner.account.give(COST);
                return Err(Status::Full);
            }
            let Some(segment) = Segment::new(leases.large) else {
                leases.memory.give(COST);
                self.lease().owner.account.give(COST);
                return Err(Status::Full);
            };
            self.lease().used.fetch_add(COST, Ordering::Relaxed);
            segments.insert(index, Arc::new(Mutex::new(segment)));
        }
        Ok(())
    }

    /// Whether pages of these slots of the store can be kept.
    pub(crate) fn admit(&self, store: u32, slot: u32, pages: u16) -> Status {
        if store != self.store.id {
            return Status::Foreign;
        }
        self.claim(slot, pages).err().unwrap_or(Status::Done)
    }

    /// Keeps pages of consecutive slots that were admitted.
    pub(crate) fn write(&self, slot: u32, pages: &[u8], seals: &[[u8; SEAL]]) {
        let mut cache = Cache::new(&self.store);
        for ((slot, page), seal) in (slot..).zip(pages.chunks_exact(PAGE)).zip(seals) {
            if let Some(segment) = cache.segment(slot) {
                lock(segment).write((slot % SEGMENT) as usize, page, seal);
            }
        }
    }

    /// Copies the seals of consecutive slots, zeros for those that hold nothing: a run is read with what lies between.
    pub(crate) fn seals(&self, store: u32, slot: u32, pages: u16, into: &mut Vec<u8>) -> Result<Arc<Store>, Status> {
        let store = self.readable(store).ok_or(Status::Foreign)?;
        let mut cache = Cache::new(&store);
        for slot in slot..slot + pages as u32 {
            let segment = cache.segment(slot).map(lock);
            let seal = segment.as_ref().and_then(|segment| segment.seal((slot % SEGMENT) as usize));
            into.extend_from_slice(seal.unwrap_or(&[0; SEAL]));
        }
        drop(cache);
        Ok(store)
    }

    /// Forgets consecutive slots; segments that hold nothing any more are given back.
    pub(crate) fn forget(&self, store: u32, slot: u32, pages: u16) -> Status {
        if store != self.store.id {
            return Status::Foreign;
        }
        let mut segments = lock(&self.store.segments);
        let mut ended = 0;
        for slot in slot..slot + pages as u32 {
            let Some(segment) = segments.get(&(slot / SEGMENT)) else { continue };
            let empty = {
                let mut segment = lock(segment);
                segment.forget((slot % SEGMENT) as usize);
                segment.is_empty()
            };
            if empty {
                segments.remove(&(slot / SEGMENT));
                ended += 1;
            }
        }
        drop(segments);
        self.give(ended);
        Status::Done
    }
}

impl Store {
    /// Copies pages of consecutive slots, zeros for those that hold nothing.
    pub(crate) fn pages(&self, slot: u32, pages: u32, into: &mut Vec<u8>) {
        let mut cache = Cache::new(self);
        for slot in slot..slot + pages {
            let segment = cache.segment(slot).map(lock);
            let page = segment.as_ref().and_then(|segment| segment.page((slot % SEGMENT) as usize));
            into.extend_from_slice(page.unwrap_or(&[0; PAGE]));
        }
    }
}

/// The segment last looked up.
struct Cache<'a> {
    store: &'a Store,
    last: Option<(u32, Arc<Mutex<Segment>>)>,
}

impl<'a> Cache<'a> {
    fn new(store: &'a Store) -> Cache<'a> {
        Cache { store, last: None }
    }

    fn segment(&mut self, slot: u32) -> Option<&Mutex<Segment>> {
        let index = slot / SEGMENT;
        if self.last.as_ref().is_none_or(|(last, _)| *last != index) {
            self.last = Some((index, lock(&self.store.segments).get(&index)?.clone()));
        }
        self.last.as_ref().map(|(_, segment)| &**segment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A lane with a store of its own.
    fn made(leases: &Arc<Leases>, lease: u64) -> Attached {
        let held = leases.hold(lease).unwrap();
        let number = held.lease.number().unwrap();
        held.create(number).unwrap()
    }

    fn leases(segments: u64, quota: u64) -> (Arc<Leases>, Arc<Owner>) {
        let owner = Arc::new(Owner::new("x", None, quota * COST));
        (Arc::new(Leases::new(segments * COST, false)), owner)
    }

    #[test]
    fn memory_goes_back_with_its_last_lane() {
        let (leases, owner) = leases(8, 8);
        let first = leases.make(7, [1; 32], owner.clone()).unwrap();
        assert!(leases.make(7, [2; 32], owner.clone()).is_none());
        let lane = made(&leases, 7);
        let id = lane.store.id;
        // A child that reads it.
        let other = leases.hold(7).unwrap().attach(id).unwrap();
        assert_eq!(lane.admit(id, 510, 4), Status::Done);
        lane.write(510, &[9; 4 * PAGE], &[[3; SEAL]; 4]);
        assert_eq!((leases.memory.used(), owner.account.used()), (2 * COST, 2 * COST));
        drop(lane);
        let mut seals = Vec::new();
        let store = other.seals(id, 510, 4, &mut seals).unwrap_or_else(|_| panic!("gone with its first lane"));
        let mut pages = Vec::new();
        store.pages(510, 4, &mut pages);
        assert!(pages == [9; 4 * PAGE] && seals == [3; 4 * SEAL]);
        drop((store, other));
        assert_eq!((leases.memory.used(), owner.account.used()), (0, 0));
        assert!(leases.hold(7).is_some_and(|held| held.attach(id).is_none()));
        let again = made(&leases, 7);
        assert!(again.store.id != id && leases.hold(7).is_some_and(|held| held.create(again.store.id).is_none()));
        drop(again);
        drop(first);
        assert_eq!(leases.count(), 0);
        assert!(leases.hold(7).is_none());
    }

    #[test]
    fn limits_hold_and_nothing_foreign_is_touched() {
        let (leases, owner) = leases(3, 2);
        let second = Arc::new(Owner::new("y", None, 9 * COST));
        let _one = leases.make(1, [1; 32], owner).unwrap();
        let _two = leases.make(2, [2; 32], second).unwrap();
        let mine = made(&leases, 1);
        let theirs = made(&leases, 2);
        let sibling = made(&leases, 1);
        assert_eq!(mine.admit(mine.store.id, 0, 512), Status::Done);
        assert_eq!(mine.admit(sibling.store.id, 0, 1), Status::Foreign);
        assert_eq!(mine.forget(sibling.store.id, 0, 1), Status::Foreign);
        assert_eq!(mine.admit(mine.store.id, 512, 1), Status::Done);
        assert_eq!(mine.admit(mine.store.id, 1024, 1), Status::Quota);
        assert_eq!(theirs.admit(theirs.store.id, 0, 1), Status::Done);
        assert_eq!(theirs.admit(theirs.store.id, 600, 1), Status::Full);
        // Not written yet, of another lease, beyond everything: nobody's bytes.
        let read = |lane: &Attached, store, slot| {
            let store = lane.seals(store, slot, 1, &mut Vec::new())?;
            let mut page = Vec::new();
            store.pages(slot, 1, &mut page);
            Ok(page[0])
        };
        assert_eq!(read(&mine, mine.store.id, 3), Ok(0));
        mine.write(3, &[1; PAGE], &[[0; SEAL]]);
        assert_eq!(read(&mine, mine.store.id, 3), Ok(1));
        assert_eq!(read(&sibling, mine.store.id, 3), Ok(1));
        assert_eq!(read(&mine, 99, 3), Err(Status::Foreign));
        // Their store has the same number as mine, in another lease.
        assert_eq!(read(&theirs, mine.store.id, 3), Ok(0));
        assert_eq!(read(&mine, mine.store.id, ream_wire::message::SLOTS - 1), Ok(0));
        assert_eq!(mine.forget(mine.store.id, 0, 512), Status::Done);
        assert_eq!(read(&mine, mine.store.id, 3), Ok(0));
        assert_eq!(theirs.admit(theirs.store.id, 600, 1), Status::Done);
    }
}
