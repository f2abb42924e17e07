//! Installing: frames whose content belongs to absent pages are put there, and whoever sleeps on those is woken.

use crate::shard::{Fatal, List, Shard};
use ream_page::{BLOCK_PAGES, Frame, Page, Run, Slot, State, Step, StoreId};
use ream_stats::Install;
use ream_sys::{Copied, Machine, Stop};

/// Runs up to so many pages are copied in: moving them would interrupt every processor that runs a thread of the program.
pub(crate) const COPIED: u32 = 8;
/// Pages that are copied at once.
const PORTION: u32 = 32;

impl<M: Machine> Shard<M> {
    pub(crate) fn install_and_wake(&mut self, run: (Frame, Page, u32)) {
        let (frame, page, pages) = run;
        if pages == 0 {
            return;
        }
        if !self.install(frame, page, pages) {
            self.machine.wake(Run { start: page, pages: pages as u64 });
        }
    }

    /// Installs frames at absent pages of one block: Zero ones filled, staged ones as they are. Frames that could not
    /// be installed are given up, with nothing lost: their pages go back to where their content is. Returns whether all
    /// were moved, and so whoever slept on them is awake; else the caller wakes them.
    pub(crate) fn install(&mut self, frame: Frame, page: Page, pages: u32) -> bool {
        let whole = pages == BLOCK_PAGES && self.frames.is_huge(frame);
        self.turn_to_frame(frame);
        if whole {
            self.machine.drop_table(page.block());
            self.even_heat(page.block());
        }
        let mut done = 0;
        let mut moved_all = true;
        let most = match self.swap.install {
            Install::AtOnce => COPIED,
            Install::SuspendAndCopy => BLOCK_PAGES,
            Install::SuspendAndMove => 0,
        };
        while pages <= most && done < pages {
            let want = (pages - done).min(PORTION);
            if !self.room_for_copy(want, 64) {
                break;
            }
            let (from, to) = (frame.plus(done), page.plus(done));
            let guard = most == COPIED && self.may_be_guarded(to, want) && self.guards_next(want);
            let outcome = self.machine.copy_run_in(from, to, want, guard);
            self.installed(from, to, outcome.pages, true);
            if guard {
                self.guarded(to, outcome.pages);
            }
            done += outcome.pages;
            if outcome.pages < want {
                break;
            }
        }
        let whole = whole && done == 0;
        while done < pages {
            let (from, to, want) = (frame.plus(done), page.plus(done), pages - done);
            let outcome = self.machine.move_in(from, to, want);
            self.installed(from, to, outcome.pages, false);
            done += outcome.pages;
            if done >= pages {
                break;
            }
            let (from, to) = (frame.plus(done), page.plus(done));
            moved_all &= outcome.stop.is_none();
            match outcome.stop {
                None => {}
                Some(Stop::Busy | Stop::Mapping) => match self.machine.copy_in(from, to) {
                    Copied::Done => {
                        self.room_for_copy(1, 0);
                        self.installed(from, to, 1, true);
                        done += 1;
                    }
                    Copied::Exists => {
                        self.found_mapped(from, to);
                        done += 1;
                    }
                    Copied::Gone | Copied::Failed => {
                        self.give_up(from, to);
                        done += 1;
                    }
                },
                Some(Stop::Exists) => {
                    self.found_mapped(from, to);
                    done += 1;
                }
                Some(Stop::Absent) => {
                    self.fail(Fatal::Internal("a populated frame was found empty"));
                    return false;
                }
            }
        }
        if whole && self.table.meta(page.block()).is_some_and(|meta| meta.resident() == BLOCK_PAGES) {
            if let Some(meta) = self.table.meta_mut(page.block()) {
                meta.set_huge(true);
            }
        }
        moved_all
    }

    /// Whether all that is about to be installed is what the pages' slots hold, and nobody waits to change it.
    fn may_be_guarded(&self, start: Page, pages: u32) -> bool {
        (0..pages).all(|index| {
            let word = self.table.word(start.plus(index));
            let for_writing = word.frame().is_none_or(|frame| self.frames.info(frame).for_writing());
            !for_writing && matches!(word.state(), State::Reading | State::Ahead | State::Clean)
        })
    }

    /// The step that installing this page's frame is.
    fn install_step(&self, frame: Frame, page: Page) -> Step {
        let info = self.frames.info(frame);
        match self.table.word(page).state() {
            State::Zero => Step::Fill,
            State::Cooling => {
                let (slot, store) = info.slot().map_or((None, StoreId::OWN), |(slot, store)| (Some(slot), store));
                Step::Rescue(slot, store)
            }
            _ => {
                let (slot, store) = info.slot().unwrap_or((Slot(0), StoreId::OWN));
                Step::Install(slot, store)
            }
        }
    }

    fn installed(&mut self, frame: Frame, page: Page, pages: u32, copied: bool) {
        if pages == 0 {
            return;
        }
        let mut run: Option<(Page, u32, bool)> = None;
        for index in 0..pages {
            let (frame, page) = (frame.plus(index), page.plus(index));
            let step = self.install_step(frame, page);
            // A slot still being written stays marked so.
            let in_flight = matches!(step, Step::Rescue(Some(_), _)) && self.frames.info(frame).slot_in_flight();
            self.step(page, step);
            if in_flight {
                let word = self.table.word(page);
                self.table.set(page, word.with_slot_in_flight());
            }
            let hot = self.table.word(page).hot();
            run = match run {
                Some((start, count, heat)) if heat == hot => Some((start, count + 1, hot)),
                other => {
                    if let Some((start, count, heat)) = other {
                        self.enqueue(start, count, heat);
                    }
                    Some((page, 1, hot))
                }
            };
        }
        if let Some((start, count, heat)) = run {
            self.enqueue(start, count, heat);
        }
        if copied {
            self.used += pages as u64;
            self.free_frames(frame, pages);
        } else {
            self.vacate_frames(frame, pages);
        }
    }

    /// Something is mapped where a frame was to go: the program's own newer content, which counts.
    fn found_mapped(&mut self, frame: Frame, page: Page) {
        if self.table.word(page).state() == State::Zero {
            // A discard that we were told of has not been carried out yet: the page is about to go.
            self.free_frames(frame, 1);
            return;
        }
        let step = self.install_step(frame, page);
        let in_flight = self.frames.info(frame).slot_in_flight();
        self.step(page, step);
        let word = self.table.word(page);
        if !in_flight {
            self.free_slot(word.slot());
        }
        self.step(page, Step::Forget);
        self.enqueue(page, 1, word.hot());
        self.used += 1;
        self.free_frames(frame, 1);
    }

    /// The page cannot be installed for now, or its mapping is gone: back to where its content is.
    fn give_up(&mut self, frame: Frame, page: Page) {
        let info = self.frames.info(frame);
        match self.table.word(page).state() {
            State::Zero => self.free_frames(frame, 1),
            State::Cooling => {
                // Stays in the staging area; compared again in its turn.
                self.frames.update(frame, |info| info.set_hashed(false));
                self.queue(List::Cooling, page, 1);
            }
            _ => {
                let (slot, store) = info.slot().unwrap_or((Slot(0), StoreId::OWN));
                self.step(page, Step::Drop(slot, store));
                self.free_frames(frame, 1);
            }
        }
    }
}
