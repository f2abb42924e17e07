//! What lies between the pager and the store, where something does: how it is put there, and what it has to tell.

use super::{LinuxMachine, Setup};
use crate::remote::Remote;
use crate::tiers::{Below, Inheritance, Tiers, TiersConfig};
use ream_page::StoreId;

impl LinuxMachine {
    /// Keeps pages compressed, and seals them on their way to the store. In a forked child with what it `inherits` of its parent, whose store is
    /// that one from now on.
    ///
    /// # Errors
    /// What failed.
    pub fn interpose(&mut self, config: &TiersConfig, inherits: Option<(Inheritance, StoreId)>) -> Result<(), Setup> {
        self.tiers = Some(Tiers::new(config, self.io_limit, inherits)?);
        Ok(())
    }

    /// Whether pages of the store's file are sealed.
    pub fn seals_files(&self) -> bool {
        self.tiers.as_ref().is_some_and(Tiers::is_sealed)
    }

    /// The end of a transfer that is to be told next.
    pub(super) fn next_ended(&mut self) -> Option<(u32, i32)> {
        let ended = self.ended.pop();
        if ended.is_some() {
            return ended;
        }
        let Some(tiers) = &mut self.tiers else { return self.remote.as_mut().and_then(Remote::pop_ended) };
        // What memory servers have done, they have done for the tiers; numbers behind those of transfers are blocks.
        while let Some((tag, result)) = self.remote.as_mut().and_then(Remote::pop_ended) {
            match tag.checked_sub(self.io_limit) {
                None => tiers.happened(false, tag, result),
                Some(block) => tiers.happened(true, block, result),
            }
        }
        let (remote, io_limit) = (self.remote.as_mut(), self.io_limit);
        tiers.pop_ended(&mut Below { io: &mut self.io, files: &self.stores, remote, io_limit })
    }

    /// A child is about to be forked: what it reads stays as it is until [`LinuxMachine::thaw`].
    pub fn freeze(&mut self) {
        if let Some(tiers) = &mut self.tiers {
            tiers.freeze();
        }
        if let Some(remote) = &mut self.remote {
            remote.freeze(self.tiers.is_none());
        }
    }

    /// No child is there any more that reads what was frozen.
    pub fn thaw(&mut self) {
        if let Some(tiers) = &mut self.tiers {
            tiers.thaw();
        }
        if let Some(remote) = &mut self.remote {
            remote.thaw();
        }
    }
}
