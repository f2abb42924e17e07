//! Room under the limit: the memory of populated frames that are free goes back to the kernel.

use crate::evict::CLUSTER;
use crate::shard::Shard;
use ream_page::{BLOCK_PAGES, Frame};
use ream_sys::Machine;

/// Runs of small frames that are emptied in one call: free ones that single pages have left lie scattered.
const RUNS: usize = 32;
/// Where any hole will do, as many: what is read next wants populated ones.
const FEW: usize = 4;

impl<M: Machine> Shard<M> {
    /// Gives free populated frames, then clean cooling ones, back to the kernel until `pages` more fit the limit.
    pub(crate) fn make_room(&mut self, pages: u64, spare_huge: bool) -> bool {
        // Where whole blocks come and go, they want the large frames that others have left.
        let spare_huge = spare_huge || self.extents.pages() >= BLOCK_PAGES as u64;
        while self.used + pages > self.limit {
            let missing = (self.used + pages - self.limit).min(BLOCK_PAGES as u64) as u32;
            let spares = spare_huge && self.frames.full_count() > 0;
            let emptied = !spares && self.empty_huge() || self.empty_small(missing, RUNS) > 0;
            if !emptied && !self.retire_one() {
                return false;
            }
        }
        true
    }

    /// Empties some of the frames that are free. Returns whether there were any.
    pub(crate) fn empty_some(&mut self) -> bool {
        self.empty_huge() || self.empty_small(u32::MAX, RUNS) > 0
    }

    /// Whether there is a place in the staging area for a page to be moved to; populated places that are free are
    /// emptied for that.
    pub(crate) fn spare_holes(&mut self) -> bool {
        self.frames.hole_count() > 0 || self.empty_small(CLUSTER as u32, FEW) > 0
    }

    /// Whether pages may be copied, for which their frames and their copies exist at once. Populated frames that are free make
    /// room for it, many at a time, when there are more than `spare` of them.
    pub(crate) fn room_for_copy(&mut self, pages: u32, spare: u64) -> bool {
        const BATCH: u64 = 32;
        let pages = pages as u64;
        if self.used + pages > self.limit {
            self.empty_small(BATCH.min(self.frames.full_count().saturating_sub(spare)) as u32, FEW);
        }
        self.used + pages <= self.limit
    }

    pub(crate) fn empty_huge(&mut self) -> bool {
        let Some(frame) = self.frames.take_any_huge_full() else { return false };
        self.give_huge_back(frame);
        true
    }

    /// Gives the memory of a huge frame that nothing needs back to the kernel, as much as there is.
    pub(crate) fn give_huge_back(&mut self, frame: Frame) {
        self.machine.empty_frames(&[(frame, BLOCK_PAGES)]);
        self.frames.put_huge_hole(frame);
        self.used -= BLOCK_PAGES as u64;
    }

    /// Empties small frames that are free, at most so many and in so many runs, the longest first. Returns how many.
    fn empty_small(&mut self, most: u32, most_runs: usize) -> u32 {
        let mut runs = [(Frame(0), 0); RUNS];
        let (mut len, mut emptied) = (0, 0);
        for place in runs.iter_mut().take(most_runs) {
            if emptied >= most {
                break;
            }
            let Some(run) = self.frames.take_any_full(most - emptied) else { break };
            *place = run;
            len += 1;
            emptied += run.1;
        }
        let runs = runs.get(..len).unwrap_or(&[]);
        if !runs.is_empty() {
            self.machine.empty_frames(runs);
        }
        for (frame, pages) in runs {
            self.frames.put_hole(*frame, *pages);
        }
        self.used -= emptied as u64;
        emptied
    }
}
