//! Pages that are in RAM and in the store as well. When the store is full, their places there serve for others: so a program may
//! have as much as store and budget hold together.

use crate::shard::Shard;
use ream_page::{State, Step, StoreId, Word};
use ream_sys::Machine;

/// Fewer are not worth going through all pages for, again and again.
const WORTH: u32 = 16;

impl<M: Machine> Shard<M> {
    /// Looks whether what cools is as the store has it, so that its frames can be had. Where none is, frees the slots of the own
    /// store whose pages are mapped: they are written anew when they are evicted. Returns whether there is enough to go on with.
    pub(crate) fn give_up_duplicates(&mut self) -> bool {
        self.settle(u32::MAX);
        if self.count(State::Clean) > 0 {
            return true;
        }
        // A guarded page leaves without being written, but not where no frame is to be had for others.
        self.end_guards();
        let (slots, machine) = (&mut self.slots, &mut self.machine);
        let mut freed = 0;
        self.table.each_words_mut(|words| {
            for place in words {
                let word = Word(*place);
                // Of what is still guarded the slot counts, and of what is being written it will.
                if word.state() != State::Resident || word.guarded() || word.slot_in_flight() {
                    continue;
                }
                let Some((slot, StoreId::OWN)) = word.slot() else { continue };
                let Some(next) = word.step(Step::Forget) else { continue };
                *place = next.0;
                if slots.free(slot) {
                    machine.freed(slot);
                    freed += 1;
                }
            }
        });
        freed >= WORTH
    }
}
