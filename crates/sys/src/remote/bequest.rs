//! What a forked child has of its parent's stores at memory servers, and how both keep them.

use super::table::Counts;
use super::{Lane, Lost, Peer, Remote, SERVERS, Table, WRITE, Way};
use crate::file::Fd;
use crate::memory::MapSlice;
use crate::{Errno, process};

/// What a forked child needs to read what its parent and ancestors have stored: in memory that it inherits.
pub struct Bequest {
    tables: MapSlice<Table>,
    count: usize,
    counts: Counts,
    /// How the parent reaches each server, where it does.
    pub(super) ways: [Option<(Way, u32)>; SERVERS],
}

impl Bequest {
    /// Opens a connection by which what the parent keeps alive at a server lives on: its own store, and those with copies
    /// of what its ancestors have stored.
    pub(super) fn anchor(&self, index: usize, way: &Way, deadline_us: u64) -> Result<Fd, Errno> {
        let tables = self.tables.as_slice().get(..self.count).unwrap_or(&[]);
        let (own, ancestors) = tables.split_first().ok_or(Errno::INVAL)?;
        let store = own.stores.get(index).copied().unwrap_or(0);
        let attics = ancestors.iter().filter_map(|table| table.attics.get(index).copied()).filter(|attic| *attic != 0);
        Lane::anchor(way, store, attics, process::now_us() + deadline_us)
    }
}

impl Remote {
    /// In a forked child: what it opened to keep its parent's store; no more than once.
    pub(crate) fn take_parents(&mut self) -> [Fd; SERVERS] {
        core::mem::replace(&mut self.parents, [Fd::NONE; SERVERS])
    }

    /// The connections by which the store lives: a child that has copies of them keeps it, until it has its own.
    pub(crate) fn anchors(&self) -> [Fd; SERVERS] {
        let anchor = |peer: &Peer| match &peer.lanes {
            Some(lanes) if peer.is_up() => lanes[WRITE].fd,
            _ => Fd::NONE,
        };
        core::array::from_fn(|index| self.peers.get(index).map_or(Fd::NONE, anchor))
    }

    /// In a forked child, of the parent's: what is needed to read it. Nothing of it is used any more afterwards.
    pub(crate) fn bequeath(&mut self) -> Bequest {
        let mut tables = core::mem::replace(&mut self.tables, MapSlice::empty());
        let mut count = self.table_count;
        let own = tables.get(0).copied();
        // The parent's own becomes the nearest ancestor's.
        if let (Some(own), Some(place)) = (own, tables.get_mut(count)) {
            *place = own;
            count += 1;
        }
        let way = |peer: &Peer| peer.way.filter(|_| peer.is_up()).map(|way| (way, peer.generation));
        let ways = core::array::from_fn(|index| self.peers.get(index).and_then(way));
        Bequest { tables, count, counts: self.counts, ways }
    }

    /// Takes over what a parent has bequeathed. What lies with servers that this process could not connect to, or where
    /// the parent's lease has ended, is lost to it.
    ///
    /// # Errors
    /// No memory.
    pub(crate) fn inherit(&mut self, bequest: Bequest) -> Result<(), Errno> {
        let own = self.tables.get(0).copied();
        (self.tables, self.table_count, self.counts) = (bequest.tables, bequest.count, bequest.counts);
        if let Some(own) = own {
            self.keep_table(0, own);
        }
        for table in self.tables.as_mut_slice().iter_mut().take(self.table_count).skip(1) {
            table.become_ancestor()?;
        }
        let mut gone = 0;
        for (index, way) in bequest.ways.iter().enumerate().take(self.count) {
            if way.is_none() || self.up >> index & 1 == 0 {
                gone |= 1 << index;
            }
        }
        self.mend.wake();
        self.log.count_anew();
        if gone != 0 {
            self.forget_copies(gone, Lost::Closed);
        }
        self.look_who_leaves();
        Ok(())
    }
}
