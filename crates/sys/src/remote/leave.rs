//! A server that is about to end is emptied before: its copies do not count, so what it has is copied to others, as after a loss
//! but from itself. When nothing there is missed its connections are closed, and it ends when nobody has any.

use super::{Lost, Nature, News, Remote, SPILLED, Table};
use crate::process;

/// How often it is looked whether a server is missed, in microseconds.
const LOOK: u64 = 50_000;

impl Remote {
    /// A server says that it is about to end.
    pub(super) fn note_ending(&mut self, index: usize) {
        if let Some(peer) = self.peers.get_mut(index) {
            if !peer.ending {
                peer.ending = true;
                self.tell(News::Ending(index));
                if let Some(server) = self.config.session.servers().get(index) {
                    server.alarm();
                }
                self.close_group();
                self.look_who_leaves();
            }
        }
    }

    /// Looks which of the servers that are used are about to end.
    pub(super) fn look_who_leaves(&mut self) {
        if !self.mend.is_some() {
            return;
        }
        let peers = self.peers.iter().enumerate().take(self.count);
        let leaving = peers.filter(|(_, peer)| peer.is_up() && peer.ending).fold(0, |all, (index, _)| all | 1 << index);
        if leaving == self.counts.leaving() {
            return;
        }
        let tables = self.tables.as_mut_slice().get_mut(..self.table_count).unwrap_or(&mut []);
        self.counts.set_leaving(leaving, tables);
        for groups in tables.iter_mut().filter_map(Table::groups_mut) {
            groups.leaving = leaving as u8;
        }
        self.log.count_anew();
        self.mend.wake();
    }

    /// Lets go of servers that are about to end and are not missed.
    pub(super) fn let_go(&mut self) {
        let leaving = self.counts.leaving();
        let now = process::now_us();
        if leaving == 0 || now < self.let_go_at {
            return;
        }
        self.let_go_at = now + LOOK;
        for index in (0..self.count).filter(|index| leaving >> index & 1 != 0) {
            if !self.is_written(index) && !self.is_missed(index) {
                self.do_without(index, Lost::Closed, News::Emptied(index));
            }
        }
    }

    /// Whether something is on its way to a server that it is to keep.
    fn is_written(&self, index: usize) -> bool {
        let to = |op: &super::Op| op.nature() == Nature::Write && op.open() >> index & 1 != 0;
        self.ops.as_slice().iter().any(to) || self.log.has_pieces_for(index)
    }

    /// Whether a server that is about to end has what too few of those that stay have: as many as there are to be, or, where
    /// there are not so many, all that there may ever be.
    fn is_missed(&self, index: usize) -> bool {
        let (leaving, bit) = (self.counts.leaving(), 1 << index);
        let servers = self.peers.iter().take(self.count).filter(|peer| !(peer.is_up() && peer.ending)).count() as u32;
        let places = servers + u32::from(self.config.spill);
        let wanted = if self.log.is_some() { 2 } else { self.config.replicas + u32::from(self.config.spill) };
        let needed = wanted.min(places).max(1);
        let below = self.config.below;
        // What is on the disk below is missed nowhere else, and all may come there.
        let needed = if below { self.config.replicas } else { needed };
        let few = |who: u32| !(below && who & SPILLED != 0) && (who & !leaving).count_ones() < needed;
        let mut tables = self.tables.as_slice().iter().take(self.table_count).enumerate();
        tables.any(|(number, table)| match table.groups() {
            None => (0..table.end).map(|slot| table.holder(slot)).any(|who| who & bit != 0 && few(who)),
            Some(groups) if number == 0 => groups.used().iter().any(|it| it.live > 0 && it.depends_on(bit as u8)),
            Some(groups) => (0..table.end).any(|slot| {
                let there =
                    table.column_of(slot).is_some() && groups.of(slot).is_some_and(|it| it.depends_on(bit as u8));
                let copies = table.copies_of(slot) & !SPILLED;
                (there || copies & bit != 0) && few(copies)
            }),
        })
    }
}

#[cfg(test)]
mod tests;
