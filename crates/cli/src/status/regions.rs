//! What a process's mappings are, and on which pages they lie: /proc/PID/smaps, read and sorted by kind.

/// What a region is to its program.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// The heap: malloc's memory, and anonymous private mappings.
    Heap,
    /// Writable static data, .data and .bss, of the program and its libraries.
    Static,
    /// The stack that the program started with.
    MainStack,
    /// A stack of another thread.
    ThreadStack,
    /// Machine code.
    Code,
    /// Shared memory that no file on a disk holds.
    Shared,
    /// Mapped files, read-only data of programs among them.
    File,
    /// Frames on their way between the program and the store.
    Staging,
}

impl Kind {
    /// Every kind, in the order of a report.
    pub const ALL: [Kind; 8] = [
        Kind::Heap,
        Kind::Static,
        Kind::MainStack,
        Kind::ThreadStack,
        Kind::Code,
        Kind::Shared,
        Kind::File,
        Kind::Staging,
    ];

    /// Its name in a report.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Heap => "heap",
            Kind::Static => "static data",
            Kind::MainStack => "main stack",
            Kind::ThreadStack => "thread stack",
            Kind::Code => "code",
            Kind::Shared => "shared memory",
            Kind::File => "files",
            Kind::Staging => "staging",
        }
    }
}

/// Bytes, by where they are.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Amounts {
    /// Address space.
    pub size: u64,
    /// In RAM.
    pub resident: u64,
    /// Of those, on pages of 2 MiB.
    pub huge: u64,
    /// Of those, on pages of 1 GiB.
    pub giant: u64,
}

impl Amounts {
    /// The part of what is in RAM that lies on large pages, in percent; `None` where nothing is.
    pub fn share(&self) -> Option<u64> {
        (self.resident > 0).then(|| (self.huge + self.giant) * 100 / self.resident)
    }

    /// TLB entries that it takes to reach all of what is in RAM.
    pub fn entries(&self) -> u64 {
        let small = self.resident.saturating_sub(self.huge + self.giant);
        small / 4096 + self.huge / (2 << 20) + self.giant / (1 << 30)
    }

    /// Adds others.
    pub fn add(&mut self, other: &Amounts) {
        self.size += other.size;
        self.resident += other.resident;
        self.huge += other.huge;
        self.giant += other.giant;
    }
}

/// Neighbouring mappings of the same kind and file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Region {
    /// What it is.
    pub kind: Kind,
    /// The file, or what the kernel calls it; empty for anonymous memory.
    pub name: String,
    /// First byte.
    pub start: u64,
    /// First byte behind it.
    pub end: u64,
    /// How much is where.
    pub amounts: Amounts,
    /// Whether Ream pages it.
    pub paged: bool,
    /// Whether it is locked in RAM, by Ream or by its program.
    pub locked: bool,
}

/// One entry of smaps.
#[derive(Clone, Default, Debug)]
struct Mapping {
    start: u64,
    end: u64,
    permissions: [u8; 4],
    name: String,
    amounts: Amounts,
    /// The words of its VmFlags line.
    flags: Vec<String>,
}

impl Mapping {
    fn flag(&self, word: &str) -> bool {
        self.flags.iter().any(|flag| flag == word)
    }
    fn may(&self, letter: u8) -> bool {
        self.permissions.contains(&letter)
    }
    fn is_file(&self) -> bool {
        self.name.starts_with('/') && !self.is_shared_memory()
    }
    fn is_shared_memory(&self) -> bool {
        ["/dev/shm/", "/memfd:", "/SYSV", "/dev/zero", "/anon_hugepage"].iter().any(|name| self.name.starts_with(name))
    }
}

/// A program or library whose mappings have reached this address.
struct Object {
    name: String,
    reached: u64,
    /// Where its static data end.
    end: u64,
}

/// The regions of a process: its smaps file, the stack pointers of its threads as far as they are known, and how much
/// address space a program or library takes from its first mapping on.
pub fn regions(smaps: &str, stack_pointers: &[u64], span: impl Fn(&str) -> Option<u64>) -> Vec<Region> {
    let mut regions: Vec<Region> = Vec::new();
    let mut object: Option<Object> = None;
    let mut guard_end = 0;
    for mapping in mappings(smaps) {
        // The kernel joins what lies behind static data with them: the larger part counts.
        let middle = mapping.start + (mapping.end - mapping.start) / 2;
        let is_static = object.as_ref().is_some_and(|of| of.reached == mapping.start && middle <= of.end);
        let kind = kind_of(&mapping, is_static, guard_end, stack_pointers);
        if !mapping.may(b'r') && !mapping.may(b'w') && !mapping.may(b'x') && mapping.name.is_empty() {
            if mapping.end - mapping.start <= 64 << 10 {
                guard_end = mapping.end;
            }
            // Address space kept for later.
            if mapping.amounts.resident == 0 {
                object = None;
                continue;
            }
        }
        let mut name = mapping.name.clone();
        object = match (kind, object) {
            (Kind::Static, Some(of)) if name.is_empty() => {
                name.clone_from(&of.name);
                Some(Object { reached: mapping.end, ..of })
            }
            (_, Some(of)) if mapping.is_file() && of.name == name => Some(Object { reached: mapping.end, ..of }),
            _ if mapping.is_file() => {
                let end = span(&name).map_or(mapping.end, |bytes| mapping.start.saturating_add(bytes));
                Some(Object { name: name.clone(), reached: mapping.end, end })
            }
            _ => None,
        };
        let (paged, locked) = (mapping.flag("um"), mapping.flag("lo"));
        match regions.last_mut() {
            Some(last)
                if (last.end, last.kind, last.paged, last.locked) == (mapping.start, kind, paged, locked)
                    && last.name == name =>
            {
                last.end = mapping.end;
                last.amounts.add(&mapping.amounts);
            }
            _ => {
                let Mapping { start, end, amounts, .. } = mapping;
                regions.push(Region { kind, name, start, end, amounts, paged, locked });
            }
        }
    }
    regions
}

fn kind_of(mapping: &Mapping, is_static: bool, guard_end: u64, stack_pointers: &[u64]) -> Kind {
    if mapping.name == "[stack]" {
        return Kind::MainStack;
    }
    if mapping.may(b'x') {
        return Kind::Code;
    }
    if mapping.is_shared_memory() {
        return Kind::Shared;
    }
    if mapping.is_file() {
        let private = mapping.may(b'w') && mapping.may(b'p');
        return if private { Kind::Static } else { Kind::File };
    }
    if mapping.may(b's') {
        return Kind::Shared;
    }
    if mapping.flag("uw") && mapping.flag("dd") && !mapping.flag("um") {
        return Kind::Staging;
    }
    if mapping.name.is_empty() && is_static {
        return Kind::Static;
    }
    let holds = |pointer: &u64| (mapping.start..mapping.end).contains(pointer);
    let below_is_guard = guard_end == mapping.start && mapping.may(b'w');
    if !mapping.flag("um") && (below_is_guard || stack_pointers.iter().any(holds)) {
        return Kind::ThreadStack;
    }
    Kind::Heap
}

fn mappings(smaps: &str) -> Vec<Mapping> {
    let mut mappings: Vec<Mapping> = Vec::new();
    let mut page_bytes = 4096;
    for line in smaps.lines() {
        let (first, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let Some(name) = first.strip_suffix(':') else {
            mappings.extend(mapping(first, rest));
            page_bytes = 4096;
            continue;
        };
        let Some(last) = mappings.last_mut() else { continue };
        if name == "VmFlags" {
            last.flags = rest.split_whitespace().map(str::to_owned).collect();
            continue;
        }
        let kib = rest.split_whitespace().next().and_then(|word| word.parse::<u64>().ok());
        let Some(bytes) = kib.map(|kib| kib * 1024) else { continue };
        let amounts = &mut last.amounts;
        match name {
            "KernelPageSize" => page_bytes = bytes,
            "Rss" => amounts.resident += bytes,
            "AnonHugePages" | "ShmemPmdMapped" | "FilePmdMapped" => amounts.huge += bytes,
            // Not in Rss.
            "Shared_Hugetlb" | "Private_Hugetlb" => {
                amounts.resident += bytes;
                *(if page_bytes >= 1 << 30 { &mut amounts.giant } else { &mut amounts.huge }) += bytes;
            }
            _ => {}
        }
    }
    mappings
}

/// The first line of an entry.
fn mapping(range: &str, rest: &str) -> Option<Mapping> {
    let (start, end) = range.split_once('-')?;
    let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
    let mut rest = rest.trim_start();
    let mut word = || {
        let (word, behind) = rest.split_once(' ').unwrap_or((rest, ""));
        rest = behind.trim_start();
        word
    };
    let permissions = word().as_bytes().try_into().ok()?;
    for _ in ["offset", "device", "inode"] {
        word();
    }
    let amounts = Amounts { size: end - start, ..Amounts::default() };
    Some(Mapping { start, end, permissions, name: rest.to_owned(), amounts, flags: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
00400000-00600000 r-xp 00000000 fe:00 77                 /opt/a b/prog
Rss:                2048 kB
FilePmdMapped:      2048 kB
00600000-00602000 rw-p 00200000 fe:00 77                 /opt/a b/prog
Rss:                   8 kB
00602000-04602000 rw-p 00000000 00:00 0
Rss:               65536 kB
AnonHugePages:     63488 kB
VmFlags: rd wr mr mw me ac um hg
04602000-04702000 rw-p 00000000 00:00 0
Rss:                1024 kB
05000000-05021000 rw-p 00000000 00:00 0                  [heap]
Rss:                 100 kB
7f0000000000-7f0000001000 ---p 00000000 00:00 0
Rss:                   0 kB
VmFlags: mr mw me nr nh
7f0000001000-7f0000801000 rw-p 00000000 00:00 0
Rss:                   8 kB
VmFlags: rd wr mr mw me nr nh
7f0000a00000-7f0000c00000 rw-p 00000000 00:00 0
Rss:                   4 kB
7f0000c00000-7f0001000000 rw-p 00000000 00:00 0
Rss:                4096 kB
AnonHugePages:      2048 kB
VmFlags: rd wr mr mw me lo nr hg lf
7f0001000000-7f0002000000 rw-p 00000000 00:00 0
VmFlags: rd wr mr mw me uw dc nr dd hg
Rss:                  16 kB
7f0040000000-7f0080000000 rw-s 00000000 00:0f 9          /anon_hugepage (deleted)
Rss:                   0 kB
KernelPageSize:  1048576 kB
Shared_Hugetlb:  1048576 kB
7f0090000000-7f0090400000 rw-s 00000000 00:01 3          /dev/shm/x
Rss:                4096 kB
ShmemPmdMapped:     4096 kB
7ffd00000000-7ffd00800000 rw-p 00000000 00:00 0          [stack]
Rss:                4096 kB
AnonHugePages:      4096 kB
";

    #[test]
    fn mappings_are_told_apart() {
        let found = regions(SMAPS, &[0x7f00_00a0_1000], |name| (name == "/opt/a b/prog").then_some(0x0420_2000));
        let brief: Vec<_> =
            found.iter().map(|r| (r.kind, r.amounts.resident >> 10, r.amounts.share(), r.paged)).collect();
        assert_eq!(
            brief,
            [
                (Kind::Code, 2048, Some(100), false),
                (Kind::Static, 8, Some(0), false),
                (Kind::Static, 65536, Some(96), true),
                (Kind::Heap, 1024, Some(0), false),
                (Kind::Heap, 100, Some(0), false),
                (Kind::ThreadStack, 8, Some(0), false),
                (Kind::ThreadStack, 4, Some(0), false),
                (Kind::Heap, 4096, Some(50), false),
                (Kind::Staging, 16, Some(0), false),
                (Kind::Shared, 1 << 20, Some(100), false),
                (Kind::Shared, 4096, Some(100), false),
                (Kind::MainStack, 4096, Some(100), false),
            ]
        );
        assert_eq!((found[0].name.as_str(), found[2].name.as_str()), ("/opt/a b/prog", "/opt/a b/prog"));
        let locked: Vec<_> = found.iter().filter(|region| region.locked).map(|region| region.start).collect();
        assert_eq!(locked, [0x7f00_00c0_0000]);
        assert_eq!(found[9].amounts.giant, 1 << 30);
        assert_eq!(found[9].amounts.entries(), 1);
        assert_eq!(found[2].amounts.entries(), 31 + 512);
    }

    #[test]
    fn this_process_is_understood() {
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let found = regions(&smaps, &[], |name| crate::elf::span(&std::fs::File::open(name).ok()?));
        for kind in [Kind::Code, Kind::Static, Kind::MainStack, Kind::Heap, Kind::ThreadStack] {
            assert!(found.iter().any(|region| region.kind == kind), "no {kind:?}");
        }
        let sorted = found.windows(2).all(|pair| pair[0].end <= pair[1].start);
        assert!(sorted);
    }
}
