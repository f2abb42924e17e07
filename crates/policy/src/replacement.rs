//! Which part of the resident set gives way, and how many frames are kept free, clean and cooling.
//!
//! Pages enter the *new* queue. A page that is touched while it cools, or read again soon after it was evicted, has
//! proved that it is used and goes to the *hot* queue. New pages give way first, so one pass over everything leaves
//! the hot ones alone; hot pages are put to the test as well, more slowly, so that a working set that is no longer
//! used gives way in the end. (After 2Q, Johnson and Shasha 1994, and segmented FIFO, Turner and Levy 1981.)

/// The two queues of resident pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Queue {
    /// Came in once.
    New,
    /// Proved to be used.
    Hot,
}

impl Queue {
    fn other(self) -> Queue {
        match self {
            Queue::New => Queue::Hot,
            Queue::Hot => Queue::New,
        }
    }
}

/// Numbers of pages that the pager steers towards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Marks {
    /// Below this many free frames, clean cooling frames are taken.
    pub low: u64,
    /// Free frames, clean ones and writes under way together are kept at this.
    pub high: u64,
    /// Frames kept in the cooling stage besides.
    pub cooling: u64,
    /// Most frames held by read-ahead that nobody has touched yet.
    pub ahead: u64,
}

impl Marks {
    /// Marks for a limit of so many pages, when `extent` is the number of pages that are asked for at once. What is
    /// staged is not mapped, and a touch of it costs a fault: where single pages come and go, little is staged; where
    /// whole blocks do, enough to outlast a write. `halvings`: how often the stage is to be halved ([`Stage`]), down to
    /// what the largest requests need.
    pub fn for_limit(limit: u64, extent: u64, halvings: u32) -> Marks {
        let extent = extent.max(1);
        let low = (limit / 16).clamp(32, 16 * 1024).min(extent * 256);
        let low = (low >> halvings).max(low.min(extent + 64)).max(low.min(64));
        let cooling = (limit / 8).min(extent * 512);
        Marks { low, high: low * 2, cooling: (cooling >> halvings).max(cooling.min(64)), ahead: (limit / 8).max(16) }
    }
}

/// Whether the stage is too large: pages that are touched there had better stayed mapped.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stage {
    evictions: u64,
    rescues: u64,
    halvings: u32,
    spared: bool,
}

impl Stage {
    /// Evictions between two looks.
    const LOOK: u64 = 1024;
    const MOST: u32 = 4;
    /// Halvings more while data come round.
    const ROUND: u32 = 2;

    /// How often to halve the stage, given the numbers of pages evicted through it and of touches of staged ones so far.
    /// `round`: most of what is mapped is kept because data come round that do not all find room. If hardly any is touched in
    /// the stage, more of them find room where that is small.
    pub fn halvings(&mut self, evictions: u64, rescues: u64, round: bool) -> u32 {
        let (evicted, rescued) = (evictions.wrapping_sub(self.evictions), rescues.wrapping_sub(self.rescues));
        if evicted >= Stage::LOOK {
            (self.evictions, self.rescues) = (evictions, rescues);
            self.spared = rescued < evicted / 32;
            if rescued > evicted / 8 {
                self.halvings = (self.halvings + 1).min(Stage::MOST);
            } else if rescued < evicted / 32 {
                self.halvings = self.halvings.saturating_sub(1);
            }
        }
        self.halvings + if round && self.spared { Stage::ROUND } else { 0 }
    }

    /// Whether hardly anything was touched there of late, so that nothing is lost without it.
    pub fn is_spared(&self) -> bool {
        self.spared
    }
}

/// How many pages are asked for at once: rises with every larger request, and falls slowly.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extents {
    /// In 256ths of a page.
    level: u64,
}

impl Extents {
    /// Takes note of a request.
    pub fn ask(&mut self, pages: u32) {
        self.level = (self.level - self.level / 64).max(pages as u64 * 256);
    }
    /// The level as a power of two, so that it changes seldom.
    pub fn pages(&self) -> u64 {
        (self.level / 256).max(1).next_power_of_two()
    }
}

/// How the hot pages that were put to the test have fared: while most come back at once, few are tested; when hardly any
/// came back while everything could have passed through memory once, they are of a phase that has ended, and give way
/// like others.
#[derive(Clone, Copy, Debug, Default)]
pub struct Trial {
    evicted: u64,
    returned: u64,
    /// Of the last parts of a pass, the present one first.
    parts: [Tested; Trial::PARTS],
    /// The eviction clock when the present part began.
    began: u64,
    over: bool,
    /// Half of it has passed, and hardly a hot page was tested.
    due: bool,
    /// What new pages have given way since a hot one was tested, in turns; less than none after a large one.
    turns: i64,
    /// Pages by which the new ones that gave way since the phase ended are ahead of the hot ones.
    lead: i64,
    /// Of new and of hot pages.
    vain: [Vain; 2],
    /// Which queue the last victim came from.
    last: Option<Queue>,
}

/// Victims of a queue that could not leave.
#[derive(Clone, Copy, Debug, Default)]
struct Vain {
    /// So many in a row.
    row: u64,
    /// So many of the other queue go before this one is tried again.
    rest: u64,
}

/// Hot pages that were evicted, and those that were touched or read again soon.
#[derive(Clone, Copy, Debug, Default)]
struct Tested {
    evicted: u64,
    returned: u64,
}

impl Trial {
    /// Pages after which the past counts half.
    const MEMORY: u64 = 1024;
    /// Parts of a pass after which the phase is looked at.
    const PARTS: usize = 4;
    /// Hot pages to be tested in a part, for it to say anything.
    const ENOUGH: u64 = 8;
    /// One page that came back of so many tested says that the phase goes on.
    const FEW: u64 = 4;
    /// So many pages of one victim count as a turn more: where blocks come and go, victims are few.
    const TURN: u64 = 64;
    /// Most victims for which a queue rests whose own cannot leave.
    const REST: u64 = 64;

    /// Takes note of a victim, and how many pages it had. One that was not there any more counts, too.
    pub fn evicted(&mut self, queue: Queue, pages: u64) {
        self.last = Some(queue);
        if pages > 0 {
            self.vain[queue as usize] = Vain::default();
        }
        let rest = &mut self.vain[queue.other() as usize].rest;
        *rest = rest.saturating_sub(1);
        let turns = 1 + (pages / Trial::TURN) as i64;
        self.turns = match queue {
            Queue::New => self.turns + turns,
            Queue::Hot => {
                let others = self.interval() - 1;
                (self.turns - turns * others).max((1 - turns) * others)
            }
        };
        let sign = if queue == Queue::New { 1 } else { -1 };
        self.lead = if self.over { self.lead + sign * pages as i64 } else { 0 };
        if queue == Queue::New {
            return;
        }
        self.evicted += pages;
        self.parts[0].evicted += pages;
        if self.evicted > Trial::MEMORY {
            (self.evicted, self.returned) = (self.evicted / 2, self.returned / 2);
        }
    }
    /// Takes note, after [`Trial::evicted`], that a victim is there, but cannot leave: a device uses it. While hot ones cannot,
    /// new ones go, and hot ones when each of the new queue's `entries` was tried in vain.
    pub fn stuck(&mut self, queue: Queue, entries: u64) {
        let vain = &mut self.vain[queue as usize];
        vain.row += 1;
        if queue == Queue::Hot || vain.row > entries {
            vain.rest = vain.row.min(Trial::REST);
        }
    }
    /// Takes note of hot pages that were touched or read again soon after they were evicted.
    pub fn returned(&mut self, pages: u64) {
        self.returned += pages;
        self.parts[0].returned += pages;
        self.over &= self.hardly_any();
    }
    /// Whether hardly any came back of those tested in the last parts of a pass.
    fn hardly_any(&self) -> bool {
        let sum = |count: fn(&Tested) -> u64| self.parts.iter().map(count).sum::<u64>();
        sum(|part| part.returned) * Trial::FEW < sum(|part| part.evicted)
    }
    /// Takes note of the eviction clock, when there are `all` pages in RAM and in the store.
    pub fn pass(&mut self, evictions: u64, all: u64) {
        let (passed, part) = (evictions - self.began, (all / Trial::PARTS as u64).max(1));
        // Every part says something, also where all that was tested came back for long and few are tested.
        self.due = passed >= part / 2 && self.parts[0].evicted < Trial::ENOUGH;
        if passed < part {
            return;
        }
        self.began = evictions;
        let tested = self.parts.iter().all(|part| part.evicted >= Trial::ENOUGH);
        self.over = self.hardly_any() && (tested || self.over);
        self.parts.rotate_right(1);
        self.parts[0] = Tested::default();
    }
    /// Whether the hot pages are of a phase that has ended.
    pub fn is_over(&self) -> bool {
        self.over
    }
    /// Whether a page that came back belongs to the hot ones, of which there are so many among `all`, if it was one of them or
    /// not. Those that are being tested keep their places. There is an end to hot pages: of data that are gone through again
    /// and again, and are larger than memory, those that are hot stay and the others pass by, where otherwise each would be
    /// evicted before its turn comes.
    pub fn becomes_hot(&self, was: bool, hot: u64, all: u64) -> bool {
        let out = self.parts.iter().map(|part| part.evicted.saturating_sub(part.returned)).sum::<u64>();
        if was { hot * 8 < all * 7 } else { !self.over && (hot + out) * 6 < all * 5 }
    }
    /// Of how many turns one is a hot page's.
    fn interval(&self) -> i64 {
        match self.returned * 4 / (self.evicted + 64) {
            0 => 8,
            1 => 16,
            _ => 64,
        }
    }
    /// Which queue the next victim comes from.
    pub fn victim(&self, new: u64, hot: u64) -> Queue {
        if new == 0 {
            return Queue::Hot;
        }
        if hot == 0 {
            return Queue::New;
        }
        // New pages hold at least an eighth, so that they have time to prove themselves.
        let tested = self.turns >= self.interval() - 1 || self.due || self.over && self.lead >= 0;
        let queue = if new * 8 < new + hot || tested { Queue::Hot } else { Queue::New };
        let rests = |queue: Queue| self.vain[queue as usize].rest > 0;
        match (rests(queue), rests(queue.other())) {
            (false, _) => queue,
            (true, false) => queue.other(),
            // Both in turn, so that nothing is left untried.
            (true, true) => self.last.unwrap_or(queue).other(),
        }
    }
}

/// Whether what is read again was evicted only just now, nearly all of it: memory falls a little short of what is used,
/// and what lies around such a page, if it went at the same time, will be used again as well.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shortage {
    /// Share of reads, in 65536ths, the last ones counting most.
    level: u32,
}

impl Shortage {
    /// Takes note of a page that is read again, and whether it went only just now.
    pub fn read_again(&mut self, soon: bool) {
        self.level = self.level - self.level / 64 + if soon { 1024 } else { 0 };
    }
    /// Whether the pages around it are worth being read along.
    pub fn is_slight(&self) -> bool {
        self.level >= 3 << 14
    }
}

/// Whether a page that is read again so many evictions after its own belongs to the hot ones: had the resident set
/// been as much larger, it would not have been evicted at all.
pub fn refault_is_hot(distance: u64, resident: u64) -> bool {
    distance < resident
}

/// Whether a page that is read again together with many others so many evictions after its own may belong to the hot ones: a
/// part of what is gone through again and again is worth being kept, if it is not many times as large as memory.
pub fn comes_round(distance: u64, resident: u64) -> bool {
    distance / 2 < resident
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_leave_most_to_the_program() {
        for limit in [256u64, 4096, 1 << 18, 1 << 30] {
            let [random, ordered] = [1, 512].map(|extent| Marks::for_limit(limit, extent, 0));
            let [least, few] = [1, 512].map(|extent| Marks::for_limit(limit, extent, 4));
            for marks in [random, ordered, least, few] {
                assert!(marks.low <= marks.high);
                assert!(marks.high + marks.cooling <= limit / 2, "limit {limit}: {marks:?}");
            }
            assert!(random.high + random.cooling <= 1024);
        }
    }

    #[test]
    fn a_stage_that_is_touched_shrinks_and_grows_again() {
        let mut stage = Stage::default();
        assert_eq!(stage.halvings(1000, 900, false), 0);
        assert_eq!(stage.halvings(1024, 900, false), 1);
        for _ in 0..10 {
            let (evictions, rescues) = (stage.evictions + 2000, stage.rescues + 1000);
            stage.halvings(evictions, rescues, false);
        }
        assert_eq!(stage.halvings, Stage::MOST);
        assert!(Marks::for_limit(1 << 18, 512, Stage::MOST).high >= 512);
        for _ in 0..10 {
            let evictions = stage.evictions + 2000;
            stage.halvings(evictions, stage.rescues, false);
        }
        assert_eq!(stage.halvings, 0);
    }

    #[test]
    fn a_slight_shortage_is_one_where_nearly_all_comes_back_soon() {
        let mut shortage = Shortage::default();
        assert!(!shortage.is_slight());
        for turn in 0..1000 {
            shortage.read_again(turn % 16 != 0);
        }
        assert!(shortage.is_slight());
        for turn in 0..1000 {
            shortage.read_again(turn % 2 != 0);
        }
        assert!(!shortage.is_slight());
    }

    #[test]
    fn extents_rise_at_once_and_fall_slowly() {
        let mut extents = Extents::default();
        assert_eq!(extents.pages(), 1);
        extents.ask(512);
        assert_eq!(extents.pages(), 512);
        let singles = (0..).take_while(|_| {
            extents.ask(1);
            extents.pages() > 1
        });
        assert!((100..1000).contains(&singles.count()));
    }

    /// Hot pages among so many victims of these sizes.
    fn hot(trial: &Trial, turns: u64, pages: u64) -> u64 {
        let mut trial = *trial;
        let mut victim = || {
            let queue = trial.victim(1000, 1000);
            trial.evicted(queue, if queue == Queue::New { pages } else { 0 });
            queue
        };
        (0..turns).filter(|_| victim() == Queue::Hot).count() as u64
    }

    #[test]
    fn a_scan_takes_new_pages_first() {
        let mut trial = Trial::default();
        assert_eq!(hot(&trial, 6400, 1), 800);
        assert_eq!(trial.victim(0, 5), Queue::Hot);
        assert_eq!(trial.victim(5, 0), Queue::New);
        // Of blocks there are fewer, so that as many are tried in the time.
        assert_eq!(hot(&trial, 6400, 512), 3600);
        // But not where the hot ones are blocks as well.
        let blocks = (0..6400).filter(|_| {
            let queue = trial.victim(1000, 1000);
            trial.evicted(queue, 512);
            queue == Queue::Hot
        });
        assert_eq!(blocks.count(), 800);
        let mut trial = Trial::default();
        // What comes back is left alone, until it no longer does.
        for _ in 0..1000 {
            trial.evicted(Queue::Hot, 10);
            trial.returned(9);
        }
        assert_eq!(hot(&trial, 6400, 1), 100);
        assert_eq!(trial.victim(10, 1000), Queue::Hot);
        for _ in 0..1000 {
            trial.evicted(Queue::Hot, 10);
        }
        assert_eq!(hot(&trial, 6400, 1), 800);
    }

    #[test]
    fn what_cannot_leave_does_not_keep_the_others() {
        // How many of so many victims are hot, when those of `stuck` queues cannot leave, 10 new ones and 1000 hot ones.
        let hot = |mut trial: Trial, stuck: &[Queue], turns: u64| {
            let mut victim = || {
                let queue = trial.victim(1000, 1000);
                let is_stuck = stuck.contains(&queue);
                trial.evicted(queue, if is_stuck { 0 } else { 1 });
                if is_stuck {
                    trial.stuck(queue, 10);
                }
                queue
            };
            (0..turns).filter(|_| victim() == Queue::Hot).count() as u64
        };
        let over = Trial { over: true, ..Trial::default() };
        for trial in [Trial::default(), over] {
            // Hot ones are tried less and less.
            assert!((1..=1000 / 7).contains(&hot(trial, &[Queue::Hot], 1000)));
            // New ones are all tried before more hot ones go than should.
            assert!(hot(trial, &[Queue::New], 10) <= 6 && hot(trial, &[Queue::New], 1000) > 900);
            // Where nothing can leave all are tried.
            assert!((400..=600).contains(&hot(trial, &[Queue::New, Queue::Hot], 1000)));
        }
        // Few new ones, and none of the many hot ones can leave.
        let mut trial = Trial::default();
        let mut new = 0;
        for _ in 0..1000 {
            match trial.victim(100, 1000) {
                Queue::Hot => {
                    trial.evicted(Queue::Hot, 0);
                    trial.stuck(Queue::Hot, 10);
                }
                Queue::New => {
                    trial.evicted(Queue::New, 1);
                    new += 1;
                }
            }
        }
        assert!(new > 900, "{new}");
    }

    #[test]
    fn hot_pages_give_way_when_their_phase_has_ended() {
        let mut trial = Trial::default();
        // One pass over everything, during which nothing hot is used: it stays.
        let pass = |trial: &mut Trial, first: u64| {
            for clock in first * 1000..(first + 1) * 1000 {
                trial.evicted(Queue::Hot, 1);
                trial.pass(clock, 1000);
            }
        };
        trial.returned(4);
        pass(&mut trial, 0);
        assert_eq!((trial.is_over(), hot(&trial, 6400, 1)), (false, 800));
        // A second one: as many hot pages give way as others.
        pass(&mut trial, 1);
        assert!(trial.is_over());
        for pages in [2300, 5, 1] {
            trial.evicted(Queue::New, pages);
            assert_eq!(trial.victim(1000, 1000), Queue::Hot);
        }
        trial.evicted(Queue::Hot, 3000);
        assert_eq!(trial.victim(1000, 1000), Queue::New);
        // Some are used after all.
        trial.returned(1500);
        assert!(!trial.is_over());
        assert_eq!(trial.victim(1000, 1000), Queue::New);
        // What became hot only now has a pass of its own.
        let mut trial = Trial::default();
        for clock in 0..999 {
            if clock >= 500 {
                trial.evicted(Queue::Hot, 1);
            }
            trial.pass(clock, 1000);
            assert!(!trial.is_over());
        }
    }
}
