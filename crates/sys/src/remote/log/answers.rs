//! What becomes of pieces: kept, or given to other servers, and then taken out of the sum again.

use super::*;
use crate::remote::changes::Change;

impl Remote {
    /// A server has answered to a piece.
    pub(in crate::remote) fn piece_answered(
        &mut self,
        index: usize,
        message: &Message,
        status: Status,
    ) -> Result<(), Lost> {
        let number = message.tag & !PIECE;
        let piece = self.log.pieces.get(number as usize).copied().ok_or(Lost::Refused)?;
        if piece.step != Step::Sent || usize::from(piece.server) != index {
            return Err(Lost::Refused);
        }
        match status {
            Status::Done if piece.write == SUM => {
                self.log.release(number);
                self.with_groups(|groups| {
                    if groups.get(piece.group).is_some_and(|it| it.sending) {
                        groups.let_go_of_sum(piece.group);
                    }
                    groups.answered(piece.group);
                });
            }
            // What came before it in the column may not have been kept.
            Status::Done if self.has_row(index, piece.row) => self.piece_kept(number, &piece),
            Status::Done => self.replace_piece(number),
            Status::Full | Status::Quota => {
                if let Some(peer) = self.peers.get_mut(index) {
                    peer.fill_up(process::now_us());
                }
                if piece.write == SUM {
                    self.with_groups(|groups| groups.sum_refused(piece.group));
                    if !core::mem::replace(&mut self.degraded, true) {
                        self.tell(News::Degraded);
                    }
                    self.mend.wake();
                    self.log.stale = true;
                } else {
                    self.with_groups(|groups| groups.cut(piece.group, index, piece.row));
                    self.log.sums.push(piece.group);
                }
                self.replace_piece(number);
            }
            _ => return Err(Lost::Refused),
        }
        Ok(())
    }

    fn piece_kept(&mut self, number: u32, piece: &Piece) {
        let Some(op) = self.ops.get(piece.write as usize).copied() else { return };
        let copied = piece.write.checked_sub(self.config.io_limit);
        // At once, and not when all of the write is kept: a read under way has asked for the rows of before.
        let change = if copied.is_some() { Change::Moved } else { Change::Written };
        self.changes.add(0, op.slot + piece.offset, piece.pages, change);
        self.log.kept(copied.is_some());
        if let Some(own) = self.tables.get_mut(0) {
            for at in 0..piece.pages {
                let slot = op.slot + piece.offset + at;
                if copied.is_none_or(|job| self.mend.has(job as usize, slot, own)) {
                    own.put_row(slot, piece.server.into(), piece.row + at, &mut self.counts);
                }
            }
        }
        self.with_groups(|groups| groups.answered(piece.group));
        self.log.release(number);
        if let Some(op) = self.ops.get_mut(piece.write as usize) {
            op.pieces -= 1;
            op.kept += piece.pages;
        }
        self.settle_pieces(piece.write);
    }

    fn has_row(&self, server: usize, row: u32) -> bool {
        self.tables.get(0).and_then(Table::groups).is_some_and(|groups| groups.has_row(server, row))
    }

    /// Takes what was sent as a piece out of its group's sum again.
    fn take_out(&mut self, piece: &Piece) {
        let Some(op) = self.ops.get(piece.write as usize).copied() else { return };
        let (Some(own), sealed) = (self.tables.get_mut(0), self.config.sealed) else { return };
        // SAFETY: as in `compose_piece`: the write has not ended.
        let parts = unsafe {
            core::slice::from_raw_parts(core::ptr::with_exposed_provenance::<Part>(op.address), op.parts as usize)
        };
        let pages = parts.iter().flat_map(|part| (part.address..part.address + part.bytes).step_by(PAGE_BYTES));
        for (at, page) in (0..piece.pages).zip(pages.skip(piece.offset as usize)) {
            if piece.blank >> at & 1 != 0 {
                continue;
            }
            let slot = op.slot + piece.offset + at;
            // That of the moment when it was sealed: sealed once more it comes to the same.
            let version = match piece.write.checked_sub(self.config.io_limit) {
                Some(job) => self.mend.version_of(job as usize, slot),
                None => own.version(slot),
            };
            let mut copy = [0; PAGE_BYTES];
            // SAFETY: a frame, whole; the copy is as large, and our own.
            unsafe {
                core::ptr::with_exposed_provenance::<u8>(page).copy_to_nonoverlapping(copy.as_mut_ptr(), PAGE_BYTES)
            };
            let place = seal::Place { lease: own.lease, store: own.store, slot, version };
            let seal = if sealed { self.key.seal(&place, &mut copy).unwrap_or_default() } else { [0; SEAL] };
            if let Some(groups) = own.groups_mut() {
                groups.add(piece.row + at, &copy, &seal);
            }
        }
    }

    /// A server has not kept a piece: somebody else is to have it. Where its column is lost, the sum is left as it is.
    pub(super) fn replace_piece(&mut self, number: u32) {
        let Some(piece) = self.log.pieces.get(number as usize).copied() else { return };
        if piece.write != SUM && piece.step == Step::Sent && self.up >> piece.server & 1 != 0 {
            self.take_out(&piece);
        }
        self.with_groups(|groups| groups.answered(piece.group));
        if piece.write == SUM {
            return self.log.release(number);
        }
        if let Some(piece) = self.log.pieces.get_mut(number as usize) {
            piece.step = Step::Waiting;
        }
        self.log.waiting.push(number);
    }

    pub(super) fn piece_failed(&mut self, number: u32, result: i32) {
        let Some(piece) = self.log.pieces.get(number as usize).copied() else { return };
        self.log.release(number);
        if let Some(op) = self.ops.get_mut(piece.write as usize) {
            op.pieces -= 1;
            op.failed = result;
        }
        self.settle_pieces(piece.write);
    }

    /// Ends a write when all its pieces have ended.
    fn settle_pieces(&mut self, tag: u32) {
        let Some(op) = self.ops.get(tag as usize).copied() else { return };
        if op.nature() != Nature::Write || op.pieces > 0 || op.done < op.pages {
            return;
        }
        if op.kept == op.pages {
            return self.end(tag, (op.pages as usize * PAGE_BYTES) as i32);
        }
        if tag < self.config.io_limit {
            // Not all of it: nobody wants any of it.
            if let Some(own) = self.tables.get_mut(0) {
                own.put(op.slot, op.pages, 0, &mut self.counts);
            }
            self.changes.add(0, op.slot, op.pages, Change::Written);
        }
        self.end(tag, op.failed);
    }

    /// Pieces that were on their way to a server that is lost go elsewhere.
    pub(in crate::remote) fn replace_pieces(&mut self, index: usize) {
        for number in 0..self.log.pieces.len() as u32 {
            let Some(piece) = self.log.pieces.get(number as usize) else { return };
            if usize::from(piece.server) == index && matches!(piece.step, Step::Queued | Step::Sent) {
                self.replace_piece(number);
            }
        }
    }
}
