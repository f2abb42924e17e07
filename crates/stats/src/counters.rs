//! What one process did, in numbers that others may read at any time; and how those of ended processes add up.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A number in shared memory. Readers may see it a moment late, never torn.
#[repr(transparent)]
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// A counter that stands at `value`.
    pub const fn new(value: u64) -> Counter {
        Counter(AtomicU64::new(value))
    }
    /// Its value.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
    /// Adds, whoever else adds at the same time.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }
    /// Adds without a locked instruction; only for a counter that one thread alone writes.
    pub fn add_alone(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }
    /// Sets the value.
    pub fn set(&self, value: u64) {
        self.0.store(value, Relaxed);
    }
    /// Raises the value to `value` if it is lower.
    pub fn raise(&self, value: u64) {
        self.0.fetch_max(value, Relaxed);
    }
    /// Takes the value and leaves zero.
    pub fn take(&self) -> u64 {
        self.0.swap(0, Relaxed)
    }
}

/// How the counters of several processes become one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Merge {
    Sum,
    Most,
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident: $merge:ident,)+) => {
        /// Counters of one process, or of all ended ones together.
        #[repr(C)]
        #[derive(Debug)]
        pub struct Counters {
            $($(#[$doc])* pub $name: Counter,)+
            /// Pages that came back after so many others were evicted: bucket `i` counts distances of `2^i` to
            /// `2^(i+1) - 1` pages. Tells how much more memory would have avoided how many reads.
            pub refault_distance: [Counter; Counters::DISTANCES],
        }

        impl Counters {
            /// All zero.
            pub const fn new() -> Counters {
                Counters {
                    $($name: Counter::new(0),)+
                    refault_distance: [const { Counter::new(0) }; Counters::DISTANCES],
                }
            }
            /// Moves everything from `self`, which is zero afterwards, to `total`.
            pub(crate) fn fold_into(&self, total: &Counters) {
                $(match Merge::$merge {
                    Merge::Sum => total.$name.add(self.$name.take()),
                    Merge::Most => total.$name.raise(self.$name.take()),
                })+
                for (from, to) in self.refault_distance.iter().zip(&total.refault_distance) {
                    to.add(from.take());
                }
            }
            /// Adds everything in `self`, which stays, to `total`.
            pub fn add_to(&self, total: &Counters) {
                $(match Merge::$merge {
                    Merge::Sum => total.$name.add(self.$name.get()),
                    Merge::Most => total.$name.raise(self.$name.get()),
                })+
                for (from, to) in self.refault_distance.iter().zip(&total.refault_distance) {
                    to.add(from.get());
                }
            }
            /// Name and value of each, in order.
            pub fn each(&self, mut tell: impl FnMut(&'static str, u64)) {
                $(tell(stringify!($name), self.$name.get());)+
            }
        }
    };
}

counters! {
    /// Faults that the pager answered.
    faults: Sum,
    /// Faults on pages that had been evicted.
    refaults: Sum,
    /// Pages first touched, filled with zeros.
    zero_fills: Sum,
    /// Evicted pages touched while still in the staging area, brought back without a read.
    rescues: Sum,
    /// Pages read ahead and then touched.
    ahead_hits: Sum,
    /// Pages read ahead and dropped untouched.
    ahead_misses: Sum,
    /// Bytes read from the store.
    bytes_in: Sum,
    /// Bytes written to the store.
    bytes_out: Sum,
    /// Reads from the store.
    reads: Sum,
    /// Writes to the store.
    writes: Sum,
    /// Pages hashed.
    hashes: Sum,
    /// Pages moved out of the program.
    evictions: Sum,
    /// Evicted pages that equalled their slot or were all zeros, and so were not written.
    evictions_clean: Sum,
    /// Nanoseconds that threads of the program waited for pages, added over threads.
    waited_ns: Sum,
    /// Nanoseconds of processor time that the pager used.
    pager_ns: Sum,
    /// Nanoseconds from the pager's engagement to the process's end.
    engaged_ns: Sum,
    /// Most pages that one process managed.
    peak_managed: Most,
    /// Most pages that one process had in RAM, staging included.
    peak_resident: Most,
    /// Most bytes that one process's store held; of a session, those that all of them held at one time.
    store_bytes: Most,
    /// Pages in RAM at the last look, and of those the ones mapped by large pages.
    sampled_resident: Sum,
    /// See `sampled_resident`.
    sampled_huge: Sum,
    /// Failed reads and writes that were tried again.
    io_retries: Sum,
    /// Connections to a memory server that were lost, by process and server.
    server_losses: Sum,
    /// Pages copied again to another memory server, or to the local copy, after such a loss.
    pages_copied_again: Sum,
    /// Pages of a memory server, or of the local copy, that were not what was written there: changed, exchanged or outdated.
    pages_not_genuine: Sum,
    /// Reads that were answered from compressed memory alone, and their pages.
    zip_reads: Sum,
    /// See `zip_reads`.
    zip_pages: Sum,
    /// Those of them that threads waited for, and how long those took, in microseconds, added up.
    zip_waited: Sum,
    /// See `zip_waited`.
    zip_waited_us: Sum,
    /// Reads that the store below compressed memory had to answer, and their pages.
    below_reads: Sum,
    /// See `below_reads`.
    below_pages: Sum,
    /// Those of them that threads waited for, and how long those took, in microseconds, added up.
    below_waited: Sum,
    /// See `below_waited`.
    below_waited_us: Sum,
    /// Pages that were compressed, and what became of them in bytes.
    zip_kept: Sum,
    /// See `zip_kept`.
    zip_kept_bytes: Sum,
    /// Pages that passed compressed memory by: not compressible, or there was no room just then.
    zip_passed: Sum,
    /// Pages that went from compressed memory to the store below.
    zip_sunk: Sum,
    /// Pages read from below that came to compressed memory, since they were read again and again.
    zip_risen: Sum,
    /// Reads that memory servers above a disk answered alone.
    servers_reads: Sum,
    /// Those of them that threads waited for, and how long those took, in microseconds, added up.
    servers_waited: Sum,
    /// See `servers_waited`.
    servers_waited_us: Sum,
    /// Reads that the disk below memory servers had to answer, or to help with.
    disk_reads: Sum,
    /// Those of them that threads waited for, and how long those took, in microseconds, added up.
    disk_waited: Sum,
    /// See `disk_waited`.
    disk_waited_us: Sum,
    /// Pages written to the disk below memory servers since none of those had room.
    servers_passed: Sum,
    /// Pages that went from memory servers to the disk below them.
    servers_sunk: Sum,
    /// Pages read from that disk that came to a memory server, since they were read again and again.
    servers_risen: Sum,
    /// Most bytes of compressed memory that one process had.
    zip_bytes: Most,
    /// Processes that the pager took over.
    engagements: Sum,
    /// Processes whose paging could not begin: all that they have stayed in RAM.
    engagements_failed: Sum,
    /// Forks of a process that was being paged.
    forks: Sum,
    /// Processes that joined the session.
    processes: Sum,
}

impl Default for Counters {
    fn default() -> Counters {
        Counters::new()
    }
}

impl Counters {
    /// Buckets of `refault_distance`.
    pub const DISTANCES: usize = 40;

    /// Counts a page that came back after `pages` others had been evicted.
    pub fn came_back_after(&self, pages: u64) {
        let bucket = (63 - (pages | 1).leading_zeros()) as usize;
        if let Some(counter) = self.refault_distance.get(bucket.min(Counters::DISTANCES - 1)) {
            counter.add(1);
        }
    }
    /// Pages of RAM beyond the present budget with which at least half of the refaults would not have happened;
    /// `None` when there were none.
    pub fn pages_to_halve_refaults(&self) -> Option<u64> {
        let total: u64 = self.refault_distance.iter().map(Counter::get).sum();
        if total == 0 {
            return None;
        }
        let mut avoided = 0;
        for (bucket, counter) in self.refault_distance.iter().enumerate() {
            avoided += counter.get();
            if avoided * 2 >= total {
                return Some(2 << bucket);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folding_sums_counts_and_keeps_peaks() {
        let total = Counters::default();
        for (faults, peak) in [(5, 100), (7, 40)] {
            let one = Counters::default();
            one.faults.add(faults);
            one.peak_resident.raise(peak);
            one.came_back_after(9);
            one.fold_into(&total);
            assert_eq!(one.faults.get(), 0);
        }
        assert_eq!(total.faults.get(), 12);
        assert_eq!(total.peak_resident.get(), 100);
        assert_eq!(total.refault_distance[3].get(), 2);
    }

    #[test]
    fn the_budget_that_halves_refaults() {
        let counters = Counters::default();
        assert_eq!(counters.pages_to_halve_refaults(), None);
        for _ in 0..3 {
            counters.came_back_after(1000);
        }
        for _ in 0..3 {
            counters.came_back_after(100_000);
        }
        assert_eq!(counters.pages_to_halve_refaults(), Some(1024));
        counters.came_back_after(u64::MAX);
        counters.came_back_after(0);
        assert_eq!(counters.refault_distance[Counters::DISTANCES - 1].get(), 1);
        assert_eq!(counters.refault_distance[0].get(), 1);
    }
}
