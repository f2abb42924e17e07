//! The files of stores: of the process's own and of its ancestors', each of up to [`VOLUMES`] volumes.

use super::LinuxMachine;
use crate::file::{self, Fd};
use crate::remote::Remote;
use ream_page::{StoreId, VOLUMES};
use ream_stats::SERVERS;

/// Descriptors by which a store lives: a connection to each memory server, and its files, the first volume's last.
pub type Anchors = [Fd; SERVERS + VOLUMES];

impl LinuxMachine {
    /// Where a volume of a store is; [`Fd::NONE`] where it is not in a file, or there is none.
    pub(super) fn file(&self, store: StoreId, volume: u8) -> Fd {
        match (volume as usize).checked_sub(1) {
            None => self.stores.get(store.0 as usize).copied(),
            Some(other) => self.others.get(store.0 as usize).and_then(|files| files.get(other)).copied(),
        }
        .unwrap_or(Fd::NONE)
    }

    /// Tells which file is a volume of the own store, open for reading and writing, or of an ancestor's, for reading. In the
    /// pager's descriptor table.
    pub fn add_volume(&mut self, store: StoreId, volume: u8, fd: Fd) {
        let place = match (volume as usize).checked_sub(1) {
            None => self.stores.get_mut(store.0 as usize),
            Some(other) => self.others.get_mut(store.0 as usize).and_then(|files| files.get_mut(other)),
        };
        if let Some(place) = place {
            *place = fd;
        }
    }

    /// Tells which files are an ancestor's store, from the descriptors by which it lives.
    pub fn add_store(&mut self, store: StoreId, anchors: &[Fd]) {
        for (volume, fd) in anchors.iter().rev().take(VOLUMES).enumerate() {
            self.add_volume(store, volume as u8, *fd);
        }
    }

    /// In a forked child: of the copies of descriptors by which its parent's store lives, exchanges those for which it has
    /// opened its own. What happens on the parent's connections, or with them, does not matter to it from then on.
    pub fn exchange_anchors(&mut self, anchors: &mut [Fd]) {
        let own = self.remote.as_mut().map(Remote::take_parents);
        for (anchor, own) in anchors.iter_mut().zip(own.into_iter().flatten()) {
            if own != Fd::NONE {
                file::close(core::mem::replace(anchor, own));
            }
        }
    }

    /// The descriptors by which the own store lives.
    pub fn anchors(&self) -> Anchors {
        let mut all = [Fd::NONE; SERVERS + VOLUMES];
        if let Some(remote) = &self.remote {
            all[..SERVERS].copy_from_slice(&remote.anchors());
        }
        for (place, volume) in all.iter_mut().rev().zip(0..VOLUMES as u8) {
            *place = self.file(StoreId::OWN, volume);
        }
        all
    }

    /// Whether the store is files as they are, so that other volumes can be added.
    pub fn takes_volumes(&self) -> bool {
        self.remote.is_none() && self.tiers.is_none()
    }

    /// Lets everybody who may look into this process open its files, and those of its ancestors: its children will.
    pub(super) fn open_stores_to_all(&self) {
        let all = self.stores.iter().chain(self.others.iter().flatten());
        all.filter(|store| **store != Fd::NONE).for_each(|store| file::open_to_all(*store));
    }
}
