//! The device itself: direct reads and writes of a file in the store's directory, through io_uring, at a given size and
//! depth. What Ream's figures are held against.

use crate::content::{PAGE, Random, mix};
use io_uring::{IoUring, opcode, types};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Instant;

/// Most operations in flight.
pub const DEPTH: usize = 16;
/// Largest operation in bytes.
pub const LARGEST: usize = 4 << 20;

/// What is read and written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pattern {
    /// In order, operations of `size` bytes.
    Reads {
        /// Bytes.
        size: usize,
    },
    /// In order, a write of the same size for every read, in another part of the file.
    Mixed {
        /// Bytes.
        size: usize,
    },
    /// Single pages at random.
    Random,
    /// Single pages at random, and as many pages written in order, in runs of 256 KiB.
    RandomMixed,
    /// `pages` pages at every multiple of `step` pages.
    Strided {
        /// Pages of one read.
        pages: usize,
        /// Pages from one start to the next.
        step: usize,
    },
}

/// What a slice came to.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Rate {
    /// Bytes read.
    pub bytes: f64,
    /// Reads.
    pub reads: f64,
    /// Wall time in seconds.
    pub seconds: f64,
}

impl Rate {
    /// Bytes read per second.
    pub fn bytes_per_second(&self) -> f64 {
        self.bytes / self.seconds
    }
    /// Reads per second.
    pub fn reads_per_second(&self) -> f64 {
        self.reads / self.seconds
    }
}

/// Memory that is read into and written from, in places of [`LARGEST`] bytes.
struct Buffers {
    memory: *mut u8,
    places: usize,
}

impl Buffers {
    /// Memory of so many bytes, [`DEPTH`] places at least, filled with what cannot be compressed.
    fn new(bytes: usize) -> io::Result<Buffers> {
        let places = (bytes / LARGEST).max(DEPTH);
        // SAFETY: a new private mapping, checked before use, and unmapped when this is dropped. Children do not get it: the
        // kernel would count it as theirs, in the peak of what they had in RAM.
        let memory = unsafe {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let memory = libc::mmap(std::ptr::null_mut(), places * LARGEST, protection, flags, -1, 0);
            if memory == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            libc::madvise(memory, places * LARGEST, libc::MADV_HUGEPAGE);
            libc::madvise(memory, places * LARGEST, libc::MADV_DONTFORK);
            memory.cast::<u8>()
        };
        // SAFETY: the whole mapping, before any operation uses it.
        let words = unsafe { std::slice::from_raw_parts_mut(memory.cast::<u64>(), places * LARGEST / 8) };
        words.iter_mut().enumerate().for_each(|(i, word)| *word = mix(i as u64));
        Ok(Buffers { memory, places })
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        // SAFETY: the whole mapping of `new`, which nothing refers to any more; what the device may still be writing to, after a
        // run that was interrupted, the kernel keeps until then.
        unsafe { libc::munmap(self.memory.cast(), self.places * LARGEST) };
    }
}

/// The file and the ring.
pub struct Raw {
    file: File,
    ring: IoUring,
    buffers: Buffers,
    kept: Buffers,
    bytes: u64,
    cursor: u64,
    strided: u64,
    random: Random,
}

struct Operation {
    write: bool,
    offset: u64,
    size: usize,
}

impl Raw {
    /// Makes an unnamed file of `bytes` bytes of distinct data in `directory`.
    ///
    /// # Errors
    /// No room, no direct I/O on this file system, or no io_uring.
    pub fn new(directory: &Path, bytes: u64) -> io::Result<Raw> {
        let flags = libc::O_TMPFILE | libc::O_DIRECT;
        let file = File::options().read(true).write(true).mode(0o600).custom_flags(flags).open(directory)?;
        let bytes = bytes / LARGEST as u64 * LARGEST as u64;
        let mut raw = Raw {
            file,
            ring: IoUring::new(2 * DEPTH as u32)?,
            buffers: Buffers::new(0)?,
            kept: Buffers::new(0)?,
            bytes,
            cursor: 0,
            strided: 0,
            random: Random(23),
        };
        let mut offset = 0;
        raw.run(4, |_| {
            let now = offset;
            offset += LARGEST as u64;
            (now < bytes).then_some(Operation { write: true, offset: now, size: LARGEST })
        })?;
        raw.file.sync_all()?;
        Ok(raw)
    }

    /// Does one slice of `seconds`, or of `bytes` bytes read if that is not 0.
    ///
    /// # Errors
    /// A read or write failed.
    pub fn slice(&mut self, pattern: Pattern, depth: usize, seconds: f64, bytes: u64) -> io::Result<Rate> {
        let begun = Instant::now();
        let (file_bytes, page) = (self.bytes, PAGE as u64);
        let mut cursor = self.cursor;
        let mut place = self.strided;
        let mut random = self.random.clone();
        let mut read = 0u64;
        let rate = self.run(depth, |turn| {
            let enough = if bytes > 0 { read >= bytes } else { begun.elapsed().as_secs_f64() >= seconds };
            if enough {
                return None;
            }
            let at_random = |random: &mut Random| random.below(file_bytes / page) * page;
            let operation = match pattern {
                Pattern::Reads { size } => {
                    let offset = cursor % file_bytes;
                    cursor += size as u64;
                    Operation { write: false, offset, size }
                }
                Pattern::Mixed { size } => {
                    let write = turn % 2 == 1;
                    let offset = (cursor + if write { file_bytes / 2 } else { 0 }) % file_bytes;
                    cursor += if write { size as u64 } else { 0 };
                    Operation { write, offset, size }
                }
                Pattern::Random => Operation { write: false, offset: at_random(&mut random), size: PAGE },
                Pattern::RandomMixed if turn % 65 == 64 => {
                    let size = 64 * PAGE;
                    let offset = cursor / size as u64 * size as u64 % file_bytes;
                    cursor += size as u64;
                    Operation { write: true, offset, size }
                }
                Pattern::RandomMixed => Operation { write: false, offset: at_random(&mut random), size: PAGE },
                Pattern::Strided { pages, step } => {
                    let (size, step) = ((pages * PAGE) as u64, step as u64 * page);
                    let per_round = file_bytes / step;
                    let offset = place % per_round * step + place / per_round * size % step;
                    place += 1;
                    Operation { write: false, offset, size: pages * PAGE }
                }
            };
            read += if operation.write { 0 } else { operation.size as u64 };
            Some(operation)
        });
        // Cursors of one pattern are multiples of its size; all sizes divide the largest one.
        self.cursor = cursor / LARGEST as u64 * LARGEST as u64 % self.bytes;
        self.strided = place;
        self.random = random;
        rate
    }

    /// Memory of so many bytes, for [`Raw::slice_kept`].
    ///
    /// # Errors
    /// There is not as much.
    pub fn keep(&mut self, bytes: u64) -> io::Result<()> {
        self.kept = Buffers::new(bytes as usize)?;
        Ok(())
    }

    /// The same slice, which reads into all of that memory in turns. The best way otherwise is often to read into a few buffers
    /// that stay in the processor's cache: whoever keeps what he reads cannot be faster than this.
    ///
    /// # Errors
    /// A read failed.
    pub fn slice_kept(&mut self, pattern: Pattern, depth: usize, seconds: f64) -> io::Result<Rate> {
        std::mem::swap(&mut self.buffers, &mut self.kept);
        let rate = self.slice(pattern, depth, seconds, 0);
        std::mem::swap(&mut self.buffers, &mut self.kept);
        rate
    }

    /// Keeps `depth` operations in flight until `next` has none, and waits for the last.
    fn run(&mut self, depth: usize, mut next: impl FnMut(u64) -> Option<Operation>) -> io::Result<Rate> {
        let begun = Instant::now();
        let (mut rate, mut turn, mut ended) = (Rate::default(), 0, false);
        let mut free: Vec<usize> = (0..depth.clamp(1, DEPTH)).collect();
        let mut in_flight: [(bool, usize); DEPTH] = [(false, 0); DEPTH];
        let mut failed = None;
        loop {
            while let (false, Some(buffer)) = (ended, free.last().copied()) {
                let Some(operation) = next(turn) else {
                    ended = true;
                    break;
                };
                free.pop();
                in_flight[buffer] = (operation.write, operation.size);
                let descriptor = types::Fd(self.file.as_raw_fd());
                // As many buffers as operations, or all memory in turns.
                let place = if self.buffers.places > DEPTH { turn as usize % self.buffers.places } else { buffer };
                // SAFETY: a place is LARGEST bytes long, and operations are no larger.
                let memory = unsafe { self.buffers.memory.add(place * LARGEST) };
                let size = operation.size as u32;
                let entry = if operation.write {
                    opcode::Write::new(descriptor, memory, size).offset(operation.offset).build()
                } else {
                    opcode::Read::new(descriptor, memory, size).offset(operation.offset).build()
                };
                // SAFETY: the buffer stays mapped, and is used by nothing else until its completion was seen.
                unsafe { self.ring.submission().push(&entry.user_data(buffer as u64)) }
                    .map_err(|_| io::Error::other("the ring is full"))?;
                turn += 1;
            }
            if free.len() == depth.clamp(1, DEPTH) {
                break;
            }
            self.ring.submit_and_wait(1)?;
            for completion in self.ring.completion() {
                let buffer = completion.user_data() as usize;
                let (write, size) = in_flight[buffer];
                free.push(buffer);
                if completion.result() != size as i32 {
                    ended = true;
                    failed = Some(match completion.result() {
                        error if error < 0 => io::Error::from_raw_os_error(-error),
                        short => io::Error::other(format!("{short} of {size} bytes")),
                    });
                } else if !write {
                    rate.bytes += size as f64;
                    rate.reads += 1.0;
                }
            }
        }
        rate.seconds = begun.elapsed().as_secs_f64();
        failed.map_or(Ok(rate), Err)
    }
}

/// The best way that was found for each kind of raw I/O.
#[derive(Clone, Copy, Debug)]
pub struct Best {
    /// Reading in order: pattern and depth.
    pub reads: (Pattern, usize),
    /// The same into all of the memory that is kept.
    pub kept: (Pattern, usize),
    /// One write per read, in order.
    pub mixed: (Pattern, usize),
}

impl Best {
    /// Tries sizes of 256 KiB to 4 MiB at depths of 1 to 16, `seconds` each.
    ///
    /// # Errors
    /// A read or write failed.
    pub fn find(raw: &mut Raw, seconds: f64) -> io::Result<Best> {
        let none = (Pattern::Random, 1);
        let mut best = Best { reads: none, kept: none, mixed: none };
        let (mut most_read, mut most_kept, mut most_mixed) = (0.0, 0.0, 0.0);
        for size in (0..5).map(|power| (256 << 10) << power) {
            for depth in [1, 2, 4, 8, 16] {
                let reads = raw.slice(Pattern::Reads { size }, depth, seconds, 0)?.bytes_per_second();
                if reads > most_read {
                    most_read = reads;
                    best.reads = (Pattern::Reads { size }, depth);
                }
                let kept = raw.slice_kept(Pattern::Reads { size }, depth, seconds)?.bytes_per_second();
                if kept > most_kept {
                    most_kept = kept;
                    best.kept = (Pattern::Reads { size }, depth);
                }
                let mixed = raw.slice(Pattern::Mixed { size }, depth, seconds, 0)?.bytes_per_second();
                if mixed > most_mixed {
                    most_mixed = mixed;
                    best.mixed = (Pattern::Mixed { size }, depth);
                }
            }
        }
        Ok(best)
    }
}
