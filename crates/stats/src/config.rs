//! What the launcher resolved from flags, environment and config file: written once, before the session is shared,
//! and only read afterwards.

use crate::SERVERS;
use crate::ledger::store_limit;

/// A string of at most `N` bytes in shared memory; unused bytes are zero.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Text<const N: usize> {
    bytes: [u8; N],
}

impl<const N: usize> Text<N> {
    /// The empty string.
    pub const EMPTY: Text<N> = Text { bytes: [0; N] };

    /// A copy of `text`; `None` when it does not fit with a zero byte after it, or holds a zero byte.
    pub fn new(text: &[u8]) -> Option<Text<N>> {
        if text.len() >= N || text.contains(&0) {
            return None;
        }
        let mut bytes = [0; N];
        bytes.get_mut(..text.len())?.copy_from_slice(text);
        Some(Text { bytes })
    }
    /// What another process has sent; it ends before the first zero, or, where there is none, before the last byte.
    pub fn from_bytes(mut bytes: [u8; N]) -> Text<N> {
        if let Some(last) = bytes.last_mut() {
            *last = 0;
        }
        Text { bytes }
    }
    /// The bytes before the first zero.
    pub fn as_bytes(&self) -> &[u8] {
        let len = self.bytes.iter().position(|b| *b == 0).unwrap_or(N);
        self.bytes.get(..len).unwrap_or(&[])
    }
    /// The bytes with one zero after them, for a system call; `None` when nothing ends the string.
    pub fn as_c_str(&self) -> Option<&core::ffi::CStr> {
        core::ffi::CStr::from_bytes_until_nul(&self.bytes).ok()
    }
    /// Whether it is the empty string.
    pub fn is_empty(&self) -> bool {
        self.as_bytes().is_empty()
    }
}

/// Defines an enum that is stored as a `u32`; numbers that name no variant read as the first one.
macro_rules! stored_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $number:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u32)]
        pub enum $name { $($(#[$variant_doc])* $variant = $number,)+ }

        impl $name {
            /// The variant stored as `number`; the first one for a number that names none.
            pub const fn from_u32(number: u32) -> $name {
                match number {
                    $($number => $name::$variant,)+
                    _ => $name::from_u32(0),
                }
            }
        }
    };
}

stored_enum! {
    /// How absent pages are noticed and filled.
    Engine {
        /// The best the kernel offers to this user.
        Auto = 0,
        /// userfaultfd with UFFDIO_MOVE.
        Move = 1,
        /// userfaultfd without MOVE: protect, copy, drop.
        Copy = 2,
        /// userfaultfd of an ordinary user: the program's own touches only.
        UserMode = 3,
        /// [`Engine::Copy`], whatever devices may write meanwhile.
        CopyAlways = 4,
    }
}

stored_enum! {
    /// How the store is read and written.
    Io {
        /// io_uring where the kernel and the container allow it.
        Auto = 0,
        /// io_uring.
        Uring = 1,
        /// Threads with preadv2 and pwritev2.
        Threads = 2,
    }
}

stored_enum! {
    /// How much is brought in at a fault.
    Fetch {
        /// What the access pattern suggests.
        Auto = 0,
        /// The touched extent only.
        Lazy = 1,
        /// The rest of the allocation too, as far as the budget allows.
        Aggressive = 2,
    }
}

stored_enum! {
    /// What is done with a rank's memory when its turn ends or begins.
    Switch {
        /// What costs less, as measured.
        Auto = 0,
        /// Nothing: pages stay until somebody needs the room, and come back when they are touched.
        Lazy = 1,
        /// All at once: what was changed is written and the room given up; what was there is brought back.
        Aggressive = 2,
    }
}

stored_enum! {
    /// Which page size a region of memory is given.
    Pages {
        /// Large pages where they pay.
        Auto = 0,
        /// 4 KiB pages only.
        Small = 1,
        /// What the kernel gives without being asked: its middle sizes, where they are on for everybody.
        Plain = 2,
        /// Transparent large pages everywhere.
        Huge = 3,
        /// Pages of 2 MiB of the kernel's pool.
        Hugetlb = 4,
        /// Pages of 1 GiB of the kernel's pool.
        Gigantic = 5,
    }
}

impl Pages {
    /// Whether the kernel is to be advised to use large pages, also where the pool's have run out.
    pub const fn large(self) -> bool {
        !matches!(self, Pages::Small | Pages::Plain)
    }
    /// Whether pages of a pool are wanted.
    pub const fn pooled(self) -> bool {
        matches!(self, Pages::Hugetlb | Pages::Gigantic)
    }
}

/// Regions of memory whose pages can be chosen; the number is the index in [`Config::pages`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Region {
    /// malloc's memory, and mappings.
    Heap = 0,
    /// Static data.
    Static = 1,
    /// Stacks.
    Stack = 2,
    /// Program code.
    Code = 3,
    /// Memory that processes share.
    Shared = 4,
}

stored_enum! {
    /// Whether what lies on large pages is locked.
    Lock {
        /// It is not.
        Off = 0,
        /// As far as that is allowed.
        Prefer = 1,
        /// The program does not run without.
        Require = 2,
    }
}

stored_enum! {
    /// What happens with the closing summary.
    Summary {
        /// Nothing is printed.
        Off = 0,
        /// Text on standard error.
        Text = 1,
        /// JSON in the file `summary_path`.
        Json = 2,
    }
}

/// A memory server that is the session's store, or one of several.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Remote {
    /// `HOST:PORT`, as the user named it; empty: there is none.
    pub name: Text<256>,
    /// 4 or 6: the kind of `address`.
    pub family: u32,
    /// Port.
    pub port: u32,
    /// Address, most significant byte first; four bytes of the older kind.
    pub address: [u8; 16],
    /// Scope of an address that needs one.
    pub scope: u32,
    /// 1: pages are sealed; 0: the user wants no security.
    pub sealed: u32,
    /// Number of the session's first lease there.
    pub lease: u64,
    /// What connections of the lease show that they know.
    pub secret: [u8; 32],
    /// Longest that an answer may take, in milliseconds.
    pub deadline_ms: u64,
    /// Bytes that the session may have there, by its first lease; 0 where there is none yet.
    pub quota: u64,
    /// The number that it drew when it started; 0 where that is not known.
    pub instance: u64,
}

impl Remote {
    /// None.
    pub const NONE: Remote = Remote {
        name: Text::EMPTY,
        family: 0,
        port: 0,
        address: [0; 16],
        scope: 0,
        sealed: 0,
        lease: 0,
        secret: [0; 32],
        deadline_ms: 0,
        quota: 0,
        instance: 0,
    };
    /// Whether there is one.
    pub fn is_some(&self) -> bool {
        !self.name.is_empty()
    }
}

impl core::fmt::Debug for Remote {
    /// Without the secret.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Remote({:?}, sealed {})", core::str::from_utf8(self.name.as_bytes()), self.sealed)
    }
}

/// A set of processors, numbers 0 to 1023.
pub type CpuMask = [u64; 16];

/// Everything a process of the session has to know. Plain numbers and bytes, the same in every process.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// RAM for the managed pages of all processes, in bytes.
    pub budget_bytes: u64,
    /// Smallest allocation that may be paged where not everything is, in bytes.
    pub threshold_bytes: u64,
    /// Most bytes that all stores of the session may take on disk; 0: as much as the file system leaves. At memory servers it
    /// is what they have when the session begins: see [`crate::Servers::limit`].
    pub store_limit_bytes: u64,
    /// Most bytes that this may become when memory servers are added; 0: whatever they have.
    pub store_ceiling_bytes: u64,
    /// Directory of the store files.
    pub store_directory: Text<1024>,
    /// Stored form of [`Engine`].
    pub engine: u32,
    /// Stored form of [`Io`].
    pub io: u32,
    /// Stored form of [`Fetch`].
    pub fetch: u32,
    /// Stored forms of [`Pages`], by [`Region`].
    pub pages: [u32; 5],
    /// Bit by [`Region`]: the pages asked for are required, and the program stops where they cannot be had.
    pub pages_required: u32,
    /// Stored form of [`Summary`].
    pub summary: u32,
    /// File of the JSON summary.
    pub summary_path: Text<1024>,
    /// Messages up to this level are logged: 0 errors, 1 warnings, 2 information, 3 details.
    pub log_level: u32,
    /// 1: programs that a program of the session executes run under Ream too; 0: they do not.
    pub exec_inherit: u32,
    /// File that messages are appended to; empty: standard error.
    pub log_path: Text<1024>,
    /// Processors that pager threads may run on; all zero: any.
    pub pager_cpus: CpuMask,
    /// 1: pages of a pool are brought in when they are mapped, since a limit could refuse them at a touch, which kills.
    pub populate: u32,
    /// Percent of what is in RAM that large pages may waste before it is given back; 100 and more: whatever they like.
    pub bloat_percent: u32,
    /// How long a large page is left alone before it can be found wasteful, in milliseconds.
    pub bloat_age_ms: u32,
    /// Stored form of [`Lock`].
    pub lock: u32,
    /// Bit by [`Region`]: pages of a pool are reserved before they are needed.
    pub prefault: u32,
    /// Bit by [`Region`]: memory is brought in when it is mapped.
    pub prefault_populate: u32,
    /// Bit by [`Region`]: the program stops where that cannot be had.
    pub prefault_required: u32,
    /// How much of a region, in bytes, by [`Region`]; 0: all.
    pub prefault_bytes: [u64; 5],
    /// Stored form of [`Pages`]: what shared memory gets where pages of a pool do not suffice or suit.
    pub shared_next: u32,
    /// Ranks of an MPI job that may compute at once; 0: as many as fit.
    pub ranks_at_once: u32,
    /// Stored form of [`crate::Next`].
    pub next: u32,
    /// How long nothing happens before a rank more may compute, in milliseconds.
    pub patience_ms: u32,
    /// RAM for compressed pages of all processes, in bytes; 0: pages are not compressed.
    pub zip_bytes: u64,
    /// 1: there is nothing below the compressed pages.
    pub zip_alone: u32,
    /// 1: pages in store files are sealed.
    pub encrypt: u32,
    /// Stored form of [`SwapProtocol`](crate::SwapProtocol).
    pub swap_protocol: u32,
    /// Stored form of [`Switch`]: when a rank's turn ends.
    pub on_block: u32,
    /// Stored form of [`Switch`]: when a rank's turn begins.
    pub on_run: u32,
    /// 1: what a call of MPI is going to overwrite is not saved.
    pub drop_received: u32,
    /// 1: pages at memory servers have a sum instead of copies.
    pub parity: u32,
    /// The memory servers with which the session begins, if they are its store; those that there are come first. All that
    /// there are now are [`crate::Session::remotes`].
    pub remotes: [Remote; SERVERS],
    /// Memory servers that each page is written to.
    pub replicas: u32,
    /// 1: `spill_directory` is that of a local copy.
    pub spill: u32,
    /// 1: `spill_directory` is that of a tier below memory servers.
    pub below: u32,
    /// Directory of the local copies of what is at memory servers, or of the tier below them; else empty.
    pub spill_directory: Text<1024>,
    /// File of the user's key, and of the servers' keys: for the agent, which asks for leases again.
    pub key_path: Text<1024>,
    /// See `key_path`.
    pub servers_path: Text<1024>,
}

impl Config {
    /// The defaults, without a budget and a store directory.
    pub const fn new() -> Config {
        Config {
            budget_bytes: 0,
            threshold_bytes: 1 << 20,
            store_limit_bytes: 0,
            store_ceiling_bytes: 0,
            store_directory: Text::EMPTY,
            engine: 0,
            io: 0,
            fetch: 0,
            pages: [0; 5],
            pages_required: 0,
            summary: 0,
            summary_path: Text::EMPTY,
            log_level: 1,
            exec_inherit: 1,
            log_path: Text::EMPTY,
            pager_cpus: [0; 16],
            populate: 0,
            bloat_percent: 10,
            bloat_age_ms: 700,
            lock: 0,
            prefault: 0,
            prefault_populate: 0,
            prefault_required: 0,
            prefault_bytes: [0; 5],
            shared_next: Pages::Small as u32,
            ranks_at_once: 0,
            next: 0,
            patience_ms: 10_000,
            zip_bytes: 0,
            zip_alone: 0,
            encrypt: 0,
            swap_protocol: 0,
            on_block: 0,
            on_run: 0,
            drop_received: 1,
            parity: 0,
            remotes: [Remote::NONE; SERVERS],
            replicas: 1,
            spill: 0,
            below: 0,
            spill_directory: Text::EMPTY,
            key_path: Text::EMPTY,
            servers_path: Text::EMPTY,
        }
    }
    /// Whether the store is at memory servers.
    pub fn is_remote(&self) -> bool {
        self.remotes.first().is_some_and(Remote::is_some)
    }
    /// Whether a store at memory servers has a file here as well: a copy of each page, or a tier below.
    pub const fn has_local(&self) -> bool {
        self.spill | self.below != 0
    }
    /// Where the files of its processes are.
    pub fn file_directory(&self) -> &Text<1024> {
        if self.is_remote() { &self.spill_directory } else { &self.store_directory }
    }
    /// Most bytes that those files may take together.
    pub(crate) fn file_limit(&self) -> i64 {
        store_limit(if self.is_remote() { self.store_ceiling_bytes } else { self.store_limit_bytes })
    }
    /// Copies that each page is to have, where a sum counts as one.
    pub const fn copies(&self) -> u32 {
        self.replicas + self.spill + self.parity
    }
    /// The engine asked for.
    pub const fn engine(&self) -> Engine {
        Engine::from_u32(self.engine)
    }
    /// The way of reading and writing asked for.
    pub const fn io(&self) -> Io {
        Io::from_u32(self.io)
    }
    /// How much is brought in at a fault.
    pub const fn fetch(&self) -> Fetch {
        Fetch::from_u32(self.fetch)
    }
    /// How pages are exchanged with memory servers.
    pub fn swap(&self) -> crate::Swap {
        if self.is_remote() { crate::SwapProtocol::from_u32(self.swap_protocol).knobs() } else { crate::Swap::REAM }
    }
    /// What is done when a rank's turn ends.
    pub const fn on_block(&self) -> Switch {
        Switch::from_u32(self.on_block)
    }
    /// What is done when a rank's turn begins.
    pub const fn on_run(&self) -> Switch {
        Switch::from_u32(self.on_run)
    }
    /// The page size asked for in a region.
    pub fn pages(&self, region: Region) -> Pages {
        Pages::from_u32(self.pages.get(region as usize).copied().unwrap_or(0))
    }
    /// Whether the program must not run without that.
    pub const fn pages_required(&self, region: Region) -> bool {
        self.pages_required >> region as u32 & 1 != 0
    }
    /// Whether a program must not run where it cannot be given the pages of its memory; code is made ready beforehand.
    pub const fn promises_pages(&self) -> bool {
        self.pages_required & !(1 << Region::Code as u32) != 0
    }
    /// Whether what lies on large pages is locked.
    pub const fn lock(&self) -> Lock {
        Lock::from_u32(self.lock)
    }
    /// What happens with the summary.
    pub const fn summary(&self) -> Summary {
        Summary::from_u32(self.summary)
    }
}

impl Default for Config {
    fn default() -> Config {
        Config::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_keeps_what_fits_and_refuses_the_rest() {
        let text = Text::<8>::new(b"1234567").unwrap();
        assert_eq!(text.as_bytes(), b"1234567");
        assert_eq!(text.as_c_str().unwrap().to_bytes(), b"1234567");
        assert_eq!(Text::<8>::new(b"12345678"), None);
        assert_eq!(Text::<8>::new(b"a\0b"), None);
        assert!(Text::<8>::EMPTY.is_empty());
        assert_eq!(Text::from_bytes(*b"ab\0c").as_bytes(), b"ab");
        assert_eq!(Text::from_bytes(*b"abcd").as_c_str().unwrap().to_bytes(), b"abc");
    }

    #[test]
    fn unknown_numbers_read_as_the_default() {
        assert_eq!(Engine::from_u32(3), Engine::UserMode);
        assert_eq!(Engine::from_u32(77), Engine::Auto);
        assert_eq!(Io::from_u32(2), Io::Threads);
        assert_eq!(Summary::from_u32(u32::MAX), Summary::Off);
    }
}
