//! Emptying compressed memory: what was not read since it came goes to the store below.

use super::blocks::Owner;
use super::zip::Step;
use super::{Below, PORTION, Tiers};
use crate::process;

/// Blocks that are left to writes.
const LEFT: usize = 8;
/// How long nothing is sunk after a failure, in microseconds.
const REST: u64 = 100_000;

impl Tiers {
    /// Goes on with emptying a segment, where room is short. Returns whether to go on at once.
    pub(super) fn sink(&mut self, below: &mut Below<'_>) -> bool {
        if !self.zip.as_mut().is_some_and(|zip| zip.begin()) {
            return false;
        }
        if self.rest_until > 0 {
            if process::now_us() < self.rest_until {
                return false;
            }
            self.rest_until = 0;
        }
        let (mut open, mut blocked) = (None, false);
        for _ in 0..PORTION {
            let (Some(zip), Some(own)) = (&mut self.zip, self.layers.get_mut(0)) else { return false };
            match zip.step(&mut own.zip, self.room) {
                Step::Done => {}
                Step::End => {
                    self.close(open.take(), below);
                    if let (Some(zip), Some(own)) = (&mut self.zip, self.layers.get(0)) {
                        zip.pass_on(&own.zip, self.room);
                    }
                    break;
                }
                Step::Sink(slot) => {
                    let owner = Owner::Segment(zip.number());
                    let room = open.is_some() || self.blocks.free() > LEFT;
                    if !room || !self.pass(owner, slot, &mut open, below) {
                        blocked = true;
                        break;
                    }
                    let place = open.and_then(|number| self.blocks.next(number));
                    let (Some(zip), Some(own), Some(place)) = (&mut self.zip, self.layers.get(0), place) else { break };
                    own.zip.bring(slot, place);
                    zip.sinks(&own.zip);
                }
            }
        }
        self.close(open, below);
        !blocked && self.zip.as_mut().is_some_and(|zip| zip.begin())
    }

    /// Pages of a segment have come below, or have not.
    pub(super) fn sank(&mut self, segment: u32, slot: u32, pages: u32, well: bool) {
        if well {
            self.counters.zip_sunk.add_alone(pages.into());
        } else {
            self.rest_until = process::now_us() + REST;
        }
        let (Some(zip), Some(own)) = (&mut self.zip, self.layers.get_mut(0)) else { return };
        for slot in slot..slot + pages {
            zip.sank(&mut own.zip, segment, slot, well, self.room);
        }
    }
}
