//! Streams in the history of faults: sequential, reverse, strided and several at once, each read ahead with a window
//! that grows as its guesses come true. A random fault matches none and moves one page.

mod kept;

use kept::{Displaced, Kept};

/// Largest extent in pages.
const LARGEST: u32 = 512;
/// Streams that are compared with every fault; further ones are found again by the page that continues them.
const STREAMS: usize = 32;
/// Most extents that one fault may ask for ahead.
pub const AHEAD: usize = 32;
/// Most runs of a strided stream that are kept ahead of its reader.
const RUNS: u32 = 240;
/// Times a stride has to come again before several runs are installed at one touch.
const PROVED: u32 = 8;
/// Most pages that one stream may have ahead of its reader: 64 MiB outlast the pauses of a device, and of one that reports
/// nothing before all that it was told is done (virtual ones do).
const ONE_STREAM: u32 = 16384;
/// Whole blocks between two probes of a sequential stream: whoever reads a little of every block faults no more often
/// than whoever reads all of it, so now and then a few pages only are installed, to see where the next fault is.
const PROBES: u32 = 32;
/// Most mapped pages behind a probe's end that whoever reads everything reads before its next fault.
const MAPPED: u64 = 64;
/// Faults within which a stream counts as active.
const ACTIVE: u64 = 64;
/// Faults within which a stride comes again that has been seen once.
const SOON: u64 = 8;
/// Least pages of an extent, however many streams there are.
const FEW: u32 = 4;
/// How far a run's start may lie from the previous one's for the two to be one strided stream.
const STRIDE: i64 = 16 * 512;

/// Which way a sequential stream runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// Towards higher addresses.
    Up,
    /// Towards lower addresses.
    Down,
}

/// What to do about one fault.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// First page and number of pages to bring in now; holds the faulting page.
    pub demand: (u64, u32),
    /// Extents to read ahead, nearest first.
    pub ahead: [(u64, u32); AHEAD],
    /// How many of them.
    pub ahead_len: usize,
    /// Whether the fault continued a stream.
    pub in_stream: bool,
    /// How many runs that follow at this distance in pages may be installed at once where they have been read already:
    /// their stream has proved itself, and a fault for each would cost more than it tells.
    pub follow: (u32, i64),
    /// Of what has been read ahead, install only so many pages from the fault on, to see what is touched next; 0: the whole
    /// extent of the demand.
    pub probe: u32,
    /// Which stream it was, for [`Streams::take_back`].
    stream: Option<usize>,
}

impl Plan {
    /// Brings in this page only.
    pub const fn single(page: u64) -> Plan {
        Plan {
            demand: (page, 1),
            ahead: [(0, 0); AHEAD],
            ahead_len: 0,
            in_stream: false,
            follow: (0, 0),
            probe: 0,
            stream: None,
        }
    }
    /// The extents to read ahead.
    pub fn ahead(&self) -> &[(u64, u32)] {
        self.ahead.get(..self.ahead_len).unwrap_or(&[])
    }
    fn push(&mut self, start: u64, pages: u32) -> bool {
        match self.ahead.get_mut(self.ahead_len) {
            Some(place) => {
                *place = (start, pages);
                self.ahead_len += 1;
                true
            }
            None => false,
        }
    }
}

#[derive(Clone, Copy)]
struct Stream {
    /// Fault that opened the current run.
    start: u64,
    /// The run's last fault.
    last: u64,
    /// First page after (before, when running down) what has been brought in.
    touch: u64,
    /// First page after (before) what has been asked for.
    front: u64,
    /// Pages of the next extent; 0 while the entry is unused.
    extent: u32,
    direction: Direction,
    /// Consecutive sequential matches.
    runs: u32,
    /// Distance between the starts of the last two runs and how often it came again.
    stride: i64,
    repeats: u32,
    /// Pages of one run of a strided stream.
    run: u32,
    /// Extents kept ahead of a strided stream.
    window: u32,
    /// Whole blocks asked for since the last probe.
    unprobed: u32,
    /// Block to be probed, and with how many pages; none if 0.
    probe_at: u64,
    probe_pages: u32,
    /// Where whoever reads everything faults next after a probe, and where the probe began; 0 when there is none.
    probe: u64,
    probed: u64,
    /// Where the last demand ends (begins, when running down) of which only a part came; 0 when all did.
    due: u64,
    used: u64,
}

const UNUSED: Stream = Stream {
    start: 0,
    last: 0,
    touch: 0,
    front: 0,
    extent: 0,
    direction: Direction::Up,
    runs: 0,
    stride: 0,
    repeats: 0,
    run: 1,
    window: 0,
    unprobed: 0,
    probe_at: 0,
    probe_pages: 0,
    probe: 0,
    probed: 0,
    due: 0,
    used: 0,
};

/// The streams of one shard.
pub struct Streams {
    table: [Stream; STREAMS],
    displaced: Displaced,
    clock: u64,
    /// Streams that go on among the displaced, as last counted; how many faults went on with one of these since, and when to
    /// count them again.
    crowd: u32,
    recalls: u32,
    recount: u64,
    /// Pages that all streams together may have ahead of their readers.
    window: u32,
    /// Pages that the next extents of all streams together may have, where there are more than the table holds.
    room: u32,
}

impl Streams {
    /// No history. `window`: pages that all streams together may have read ahead of their readers.
    pub const fn new(window: u32) -> Streams {
        Streams {
            table: [UNUSED; STREAMS],
            displaced: Displaced::none(),
            clock: 0,
            crowd: 0,
            recalls: 0,
            recount: 0,
            window,
            room: u32::MAX,
        }
    }

    /// Changes what the next extents of many streams together may have, in pages.
    pub fn set_room(&mut self, room: u32) {
        self.room = room;
    }

    /// Changes the read-ahead allowance, in pages.
    pub fn set_window(&mut self, window: u32) {
        self.window = window;
    }

    /// What one stream may have ahead of its reader, and its extents: a share for each that is being read.
    fn share(&self) -> Share {
        let active = self.table.iter().filter(|stream| {
            stream.extent != 0 && stream.runs + stream.repeats > 1 && self.clock - stream.used <= ACTIVE
        });
        let streams = (active.count() as u32 + self.crowd).max(1);
        let extent = if self.crowd > 0 { 1 << (self.room / streams).max(FEW).ilog2() } else { LARGEST };
        Share { window: (self.window / streams).min(ONE_STREAM), extent: extent.min(LARGEST) }
    }

    /// A place for one that begins or goes on; who had it is remembered as displaced. `first`: which should give way first.
    fn open(&mut self, stream: Stream, first: impl Fn(&Stream) -> bool) -> usize {
        let gives_way = |(_, stream): &(usize, &mut Stream)| (!first(stream), stream.used);
        let Some((index, place)) = self.table.iter_mut().enumerate().min_by_key(gives_way) else { return 0 };
        if let Some(kept) = core::mem::replace(place, stream).kept() {
            self.displaced.keep(kept);
        }
        index
    }

    /// The one among the displaced that a fault continues, in the table again.
    fn recall(&mut self, page: u64) -> Option<usize> {
        let kept = self.displaced.take(page, self.clock as u32)?;
        self.recalls += 1;
        Some(self.open(Stream::again(kept), |_| false))
    }

    /// Takes note of a fault on an absent page (stored, read ahead, or never written) and says what to bring in. `here` knows
    /// of a page whether it is mapped: it may be read without a fault.
    pub fn fault(&mut self, page: u64, here: impl Fn(u64) -> bool) -> Plan {
        self.note(page, here, true)
    }

    /// The same for a fault that was put off: where it continues no stream it has begun one already.
    pub fn fault_again(&mut self, page: u64, here: impl Fn(u64) -> bool) -> Plan {
        self.note(page, here, false)
    }

    fn note(&mut self, page: u64, here: impl Fn(u64) -> bool, begins: bool) -> Plan {
        self.clock += 1;
        let mut plan = Plan::single(page);
        let clock = self.clock;
        if clock >= self.recount {
            // Where most faults go on with a displaced stream, there are as many of these as wait for their turn.
            let recalls = core::mem::take(&mut self.recalls);
            let many = u64::from(recalls) > ACTIVE / 2;
            self.crowd = if many { self.displaced.being_read(clock as u32).max(recalls) } else { recalls };
            self.recount = clock + ACTIVE;
        }
        let share = self.share();
        // A strided walk passes where streams stopped long ago, and beside where it passed itself: those do not go on with a
        // page that it expects, and strided ones never.
        let active = |stream: &Stream| clock - stream.used <= ACTIVE;
        let expects = |stream: &Stream| active(stream) && stream.is_proved() && stream.strides_to(page).is_some();
        let expected = self.table.iter().any(expects);
        let goes_on = |stream: &Stream| stream.continues(page) && (active(stream) || !expected && stream.repeats == 0);
        if let Some((index, stream)) = self.table.iter_mut().enumerate().find(|(_, stream)| goes_on(stream)) {
            let skipped = page.wrapping_sub(stream.probe);
            if stream.probe != 0 && !(skipped <= MAPPED && (stream.probe..page).all(here)) {
                // It does not read everything: what it does read is learnt anew, from here on.
                *stream = Stream { used: clock, ..Stream::opened(page) };
                return plan;
            }
            stream.used = clock;
            stream.sequential(page, share, clock, &mut plan);
            plan.stream = Some(index);
            return plan;
        }
        if let Some(index) = if expected { None } else { self.recall(page) } {
            if let Some(stream) = self.table.get_mut(index) {
                stream.used = clock;
                match stream.runs {
                    // Of many places touched at random some are next to one that was touched before: once is no proof.
                    0 => stream.prove(page),
                    _ => stream.sequential(page, share, clock, &mut plan),
                }
            }
            plan.stream = Some(index);
            return plan;
        }
        if !begins {
            return plan;
        }
        // A stride seen once or twice comes again soon or never: of many random places some fit by chance.
        let is_near = |stream: &Stream| stream.extent != 0 && (page as i64 - stream.start as i64).abs() <= STRIDE;
        let is_stray = |stream: &Stream| stream.repeats < 3 && stream.runs < 2 && clock - stream.used > SOON;
        let near =
            self.table.iter_mut().enumerate().filter(|(_, stream)| is_near(stream) && !is_stray(stream)).min_by_key(
                |(_, stream)| {
                    // A stream whose stride this is comes before one that is merely closer.
                    (stream.strides_to(page).is_none(), (page as i64 - stream.start as i64).abs())
                },
            );
        let mut opened = Stream { used: clock, ..Stream::opened(page) };
        if let Some((index, stream)) = near {
            if let Some(strides) = stream.strides_to(page) {
                stream.used = clock;
                stream.strided(page, strides, share.window, &mut plan);
                plan.stream = Some(index);
                return plan;
            }
            // Remembered as a possible stride. The other may be a stream of its own that goes on, too.
            (opened.stride, opened.run) = (page as i64 - stream.start as i64, stream.run_length());
        }
        // Such strays give way first, so that there are never many of them where they could fit.
        plan.stream = Some(self.open(opened, |stream| is_near(stream) && is_stray(stream)));
        plan
    }

    /// The plan's probe was not made: everything is installed at once.
    pub fn forget_probe(&mut self, plan: &Plan) {
        if let Some(stream) = plan.stream.filter(|_| plan.probe > 0).and_then(|index| self.table.get_mut(index)) {
            stream.probe = 0;
        }
    }

    /// Nothing of the plan's demand came: the fault at `page` will be served again.
    pub fn put_off(&mut self, plan: &Plan, page: u64) {
        let Some(stream) = plan.stream.and_then(|index| self.table.get_mut(index)) else { return };
        if plan.in_stream && stream.repeats == 0 && stream.probe == 0 {
            stream.touch = page;
            stream.extent = (stream.extent / 4).max(1);
            stream.runs = stream.runs.saturating_sub(1).max(1);
        }
    }

    /// Of the plan's demand only the pages from `first` to before `end` came, or more than it: its stream goes on there.
    pub fn reached(&mut self, plan: &Plan, first: u64, end: u64) {
        let (start, pages) = plan.demand;
        let Some(stream) = plan.stream.and_then(|index| self.table.get_mut(index)) else { return };
        if stream.repeats > 0 || stream.probe != 0 {
            return;
        }
        match stream.direction {
            Direction::Up if end < start + pages as u64 => (stream.touch, stream.due) = (end, start + pages as u64),
            Direction::Up if end > start + pages as u64 => {
                (stream.touch, stream.front) = (end, stream.front.max(end));
            }
            Direction::Down if first > start => (stream.touch, stream.due) = (first.saturating_sub(1), start),
            _ => {}
        }
    }

    /// The extents of a plan from this one on could not be asked for: its stream will ask again at its next fault.
    pub fn take_back(&mut self, plan: &Plan, extent: usize) {
        let Some((start, pages)) = plan.ahead().get(extent).copied() else { return };
        let Some(stream) = plan.stream.and_then(|index| self.table.get_mut(index)) else { return };
        if start <= stream.probe_at {
            stream.probe_pages = 0;
        }
        stream.front = match stream.direction {
            Direction::Up => start,
            Direction::Down => start + pages as u64 - 1,
        };
    }

    /// Forgets everything (the address space changed under it).
    pub fn clear(&mut self) {
        self.table = [UNUSED; STREAMS];
        self.displaced = Displaced::none();
    }
}

/// What each of several streams may have.
#[derive(Clone, Copy)]
struct Share {
    /// Pages ahead of its reader.
    window: u32,
    /// Pages of an extent.
    extent: u32,
}

impl Stream {
    fn opened(page: u64) -> Stream {
        Stream { start: page, last: page, touch: page + 1, front: page + 1, extent: 1, ..UNUSED }
    }

    /// What is remembered of a sequential one that is displaced, or of one that may become that.
    fn kept(&self) -> Option<Kept> {
        (self.extent != 0 && self.repeats == 0 && self.probe == 0).then(|| Kept {
            touch: self.touch,
            ahead: self.front.abs_diff(self.touch) as u32,
            used: self.used as u32,
            extent: self.extent as u16,
            runs: self.runs.min(255) as u8,
            unprobed: self.unprobed.min(255) as u8,
            down: self.direction == Direction::Down,
        })
    }

    /// A displaced stream that goes on.
    fn again(kept: Kept) -> Stream {
        let (touch, ahead, behind) = (kept.touch, kept.ahead as u64, kept.extent as u64);
        let (direction, start, last, front) = match kept.down {
            false => (Direction::Up, touch.saturating_sub(behind), touch.saturating_sub(1), touch + ahead),
            true => (Direction::Down, touch + behind, touch + 1, touch.saturating_sub(ahead)),
        };
        Stream {
            start,
            last,
            touch,
            front,
            extent: kept.extent as u32,
            direction,
            runs: kept.runs as u32,
            unprobed: kept.unprobed as u32,
            ..UNUSED
        }
    }

    /// Pages of the current run so far.
    fn run_length(&self) -> u32 {
        match self.direction {
            // Whether what was brought in behind the last fault has been read is not known.
            Direction::Up => (self.last.saturating_sub(self.start) + 1).min(64) as u32,
            Direction::Down => 1,
        }
    }

    /// Whether its stride has come again often enough.
    fn is_proved(&self) -> bool {
        self.repeats >= PROVED
    }

    /// Whether the fault is the stream's next, or one a little further on that skipped pages already in memory.
    fn continues(&self, page: u64) -> bool {
        if self.extent == 0 {
            return false;
        }
        if self.repeats > 0 {
            // Inside a strided stream only a run that proves longer than the last goes on.
            return page == self.touch;
        }
        if self.probe != 0 && page > self.probed && page < self.touch {
            return true;
        }
        let slack = if self.runs == 0 { 0 } else { self.extent as u64 };
        match self.direction {
            Direction::Up if page >= self.touch && page <= self.touch.max(self.front) + slack => true,
            Direction::Down if page <= self.touch && page + slack >= self.touch.min(self.front) => true,
            // A second fault just below the first turns a new stream round.
            Direction::Up => self.runs == 0 && self.repeats == 0 && page + 1 == self.start,
            Direction::Down => false,
        }
    }

    /// A displaced one that had not gone on yet does so, or turns round.
    fn prove(&mut self, page: u64) {
        let is_up = page + 1 != self.start;
        (self.direction, self.touch) =
            if is_up { (Direction::Up, page + 1) } else { (Direction::Down, page.saturating_sub(1)) };
        (self.last, self.front, self.runs) = (page, self.touch, 1);
    }

    fn sequential(&mut self, page: u64, share: Share, clock: u64, plan: &mut Plan) {
        plan.in_stream = true;
        if self.probe != 0 {
            self.probe = 0;
            plan.demand = (page, self.touch.saturating_sub(page).max(1) as u32);
            return;
        }
        if self.runs == 0 && page + 1 == self.start {
            self.direction = Direction::Down;
            self.touch = page;
            self.front = page;
        }
        if self.repeats > 0 {
            self.front = self.touch;
            self.repeats = 0;
        }
        let due = core::mem::take(&mut self.due);
        let is_due = match self.direction {
            Direction::Up => page < due,
            Direction::Down => due != 0 && page >= due,
        };
        // What the last demand left out says nothing new.
        if !is_due {
            self.runs += 1;
            self.extent = (self.extent * 4).min(share.extent);
        }
        // A short run must not reach the next one of a strided stream; a long one is believed more the longer it lasts.
        let seen = (page.abs_diff(self.start) + 1).min(LARGEST as u64) as u32;
        let ahead = match self.extent {
            LARGEST => LARGEST * (16 + (self.runs / 4).min(16)),
            extent => extent.min(seen) * 8,
        };
        let ahead = ahead.min(share.window);
        self.last = page;
        match self.direction {
            Direction::Up => {
                // To the next natural boundary of the extent, so that the large ones are whole blocks.
                let end = align_down(page, self.extent) + self.extent as u64;
                plan.demand = (page, (end - page) as u32);
                if self.probe_pages > 0 && page >= self.probe_at && page < self.probe_at + LARGEST as u64 {
                    // Whoever reads here and there need not begin with the block's first page.
                    let first = self.probe_at + self.probe_pages as u64;
                    let until = if page < first { first } else { page + self.probe_pages as u64 };
                    if until < end {
                        (self.probed, self.probe) = (page, until);
                        plan.probe = (until - page) as u32;
                    }
                }
                if page >= self.probe_at {
                    self.probe_pages = 0;
                }
                self.touch = end;
                if self.front < end {
                    self.front = end;
                }
                while self.front < end + ahead as u64 {
                    let mut next = align_down(self.front, self.extent) + self.extent as u64;
                    let whole = next - self.front == LARGEST as u64;
                    if whole && self.unprobed >= PROBES && self.probe_pages == 0 {
                        // Read in two pieces, so that no large page has to be split. Not always as many pages, so that
                        // no stride fits by chance for long.
                        self.unprobed = 0;
                        self.probe_at = self.front;
                        self.probe_pages = 9 + (clock % 8) as u32;
                        next = self.front + self.probe_pages as u64;
                    }
                    if !plan.push(self.front, (next - self.front) as u32) {
                        break;
                    }
                    self.unprobed += whole as u32;
                    self.front = next;
                }
            }
            Direction::Down => {
                let start = align_down(page, self.extent);
                plan.demand = (start, (page - start) as u32 + 1);
                // `touch` and `front` are the next page below; page 0 is never the program's.
                self.touch = start.saturating_sub(1);
                if self.front > self.touch {
                    self.front = self.touch;
                }
                while self.front > 0 && self.front + ahead as u64 > self.touch {
                    let start = align_down(self.front, self.extent);
                    if !plan.push(start, (self.front - start) as u32 + 1) {
                        break;
                    }
                    self.front = start.saturating_sub(1);
                }
            }
        }
    }

    /// How many strides lead from the current run's start to this page, if a whole number does: one, or as many as may
    /// have been installed ahead.
    fn strides_to(&self, page: u64) -> Option<u32> {
        let delta = page as i64 - self.start as i64;
        if self.stride == 0 || delta % self.stride != 0 {
            return None;
        }
        let most = if self.repeats > 0 { self.window as i64 + 1 } else { 1 };
        let strides = delta / self.stride;
        (1..=most).contains(&strides).then_some(strides as u32)
    }

    fn strided(&mut self, page: u64, strides: u32, window: u32, plan: &mut Plan) {
        plan.in_stream = self.repeats > 0;
        let run = self.run.max(self.run_length());
        self.repeats = self.repeats.saturating_add(strides);
        let fresh = self.repeats == 1;
        plan.demand = (page, run);
        self.window = if fresh { 2 } else { (self.window * 2).min(RUNS).min(window / run).max(1) };
        if self.is_proved() {
            plan.follow = ((self.window / 3).min(LARGEST / run), self.stride);
        }
        // `front` counts, for a strided stream, the start of the next run to ask for.
        let step = self.stride;
        let reach = page as i64 + step * self.window as i64;
        let mut next = self.front as i64;
        let behind = if step > 0 { next <= page as i64 } else { next >= page as i64 };
        if fresh || behind {
            next = page as i64 + step;
        }
        while next > 0 && (if step > 0 { next <= reach } else { next >= reach }) {
            if !plan.push(next as u64, run) {
                break;
            }
            next += step;
        }
        let front = next.max(0) as u64;
        *self = Stream {
            start: page,
            last: page + run as u64 - 1,
            touch: page + run as u64,
            front,
            extent: 1,
            direction: Direction::Up,
            runs: 0,
            run,
            ..*self
        };
    }
}

fn align_down(page: u64, extent: u32) -> u64 {
    page - page % extent as u64
}

#[cfg(test)]
mod tests;
