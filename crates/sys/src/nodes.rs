//! NUMA nodes: which there are, on which one a page lies and a thread ran, and from which one memory comes.
//!
//! Nothing of this is done where the program was told by a policy of memory (numactl) from which nodes it takes it, or
//! where the kernel refuses such calls, as containers' filters do: then there is one node.

use crate::Errno;
use crate::file::{self, Fd};
use crate::machine::NODES;
use crate::syscall::{call3, call5, call6, number};
use core::ffi::CStr;
use ream_page::{BLOCK_PAGES, Page, Run};

// linux/mempolicy.h
const DEFAULT: usize = 0;
const PREFERRED: usize = 1;
/// Of `get_mempolicy`: the nodes that are allowed.
const ALLOWED: usize = 1 << 2;

/// Nodes of the kernel that are known: the largest number that a kernel is built for.
const IDS: usize = 1024;
const PROCESSORS: usize = 1024;
/// A processor of no node that is told apart.
const NOWHERE: u8 = u8::MAX;

type Mask = [u64; IDS / 64];

/// The nodes of this machine from which the calling thread may take memory.
pub(crate) struct Nodes {
    count: u8,
    /// The kernel's numbers of those that are told apart.
    ids: [u16; NODES],
    /// The node of each processor.
    processors: [u8; PROCESSORS],
}

impl Nodes {
    /// Those of the calling thread.
    pub(crate) fn find() -> Nodes {
        let mut nodes = Nodes { count: 1, ids: [0; NODES], processors: [0; PROCESSORS] };
        // Above all where there is but one, and on kernels without NUMA.
        let Some(found) = nodes_with_memory() else { return nodes };
        let mut count = 0;
        for id in (0..IDS).filter(|id| holds(&found, *id)) {
            if let Some(place) = nodes.ids.get_mut(count) {
                *place = id as u16;
            }
            count += 1;
        }
        if !(2..=NODES).contains(&count) || policy() != Ok(DEFAULT as i32) {
            return nodes;
        }
        nodes.processors = [NOWHERE; PROCESSORS];
        for node in 0..count as u8 {
            let of_node = processors_of(nodes.id(node)).unwrap_or([0; IDS / 64]);
            for (index, place) in nodes.processors.iter_mut().enumerate() {
                if holds(&of_node, index) {
                    *place = node;
                }
            }
        }
        nodes.count = count as u8;
        let able = nodes.set_preferred(0).is_ok() && set_policy(DEFAULT, None).is_ok();
        if !able {
            nodes.count = 1;
        }
        nodes
    }

    /// How many are told apart.
    pub(crate) fn count(&self) -> u8 {
        self.count
    }

    fn id(&self, node: u8) -> u16 {
        self.ids.get(node as usize).copied().unwrap_or(0)
    }

    fn node(&self, id: i32) -> Option<u8> {
        let ids = self.ids.get(..self.count as usize)?;
        ids.iter().position(|known| *known as i32 == id).map(|node| node as u8)
    }

    /// The node of a processor.
    pub(crate) fn of_processor(&self, processor: u32) -> Option<u8> {
        self.processors.get(processor as usize).copied().filter(|node| *node != NOWHERE)
    }

    /// Memory that the calling thread populates comes from this node, as long as it has some.
    pub(crate) fn set_preferred(&self, node: u8) -> Result<(), Errno> {
        set_policy(PREFERRED, Some(self.id(node)))
    }

    /// Reports on which nodes the mapped pages of a run lie that is no longer than a block.
    pub(crate) fn of_run(&self, run: Run, found: &mut dyn FnMut(Run, u8)) {
        let mut addresses = [0usize; BLOCK_PAGES as usize];
        let mut ids = [-1i32; BLOCK_PAGES as usize];
        let count = (run.pages as usize).min(BLOCK_PAGES as usize);
        for (index, place) in addresses.iter_mut().enumerate() {
            *place = run.start.plus(index as u32).address();
        }
        let (pages, status) = (addresses.as_ptr().expose_provenance(), ids.as_mut_ptr().expose_provenance());
        // SAFETY: without a list of nodes nothing is moved; the kernel reads `count` addresses and writes as many numbers.
        if unsafe { call6(number::__NR_move_pages, 0, count, pages, 0, status, 0) }.is_err() {
            return;
        }
        let mut last: Option<(Run, u8)> = None;
        for (index, id) in ids.iter().take(count).enumerate() {
            let page: Page = run.start.plus(index as u32);
            match (&mut last, self.node(*id)) {
                (Some((so_far, node)), Some(here)) if *node == here && so_far.end() == page => so_far.pages += 1,
                (_, here) => {
                    if let Some((done, node)) = last.take() {
                        found(done, node);
                    }
                    last = here.map(|node| (Run { start: page, pages: 1 }, node));
                }
            }
        }
        if let Some((done, node)) = last {
            found(done, node);
        }
    }
}

fn holds(mask: &Mask, index: usize) -> bool {
    mask.get(index / 64).is_some_and(|word| word >> (index % 64) & 1 != 0)
}

/// The policy of the calling thread.
fn policy() -> Result<i32, Errno> {
    let mut mode = -1i32;
    let place = (&raw mut mode).expose_provenance();
    // SAFETY: the kernel writes the mode.
    unsafe { call5(number::__NR_get_mempolicy, place, 0, 0, 0, 0) }?;
    Ok(mode)
}

fn set_policy(mode: usize, id: Option<u16>) -> Result<(), Errno> {
    let mut mask: Mask = [0; IDS / 64];
    if let Some((id, word)) = id.and_then(|id| Some((id, mask.get_mut(id as usize / 64)?))) {
        *word |= 1 << (id % 64);
    }
    let place = if id.is_some() { mask.as_ptr().expose_provenance() } else { 0 };
    // SAFETY: the kernel reads the mask. It counts one bit less than it is told.
    unsafe { call3(number::__NR_set_mempolicy, mode, place, if id.is_some() { IDS + 1 } else { 0 }) }.map(|_| ())
}

/// Nodes that have memory and from which the calling thread may take it. `None` when that cannot be told.
fn nodes_with_memory() -> Option<Mask> {
    let mut allowed: Mask = [0; IDS / 64];
    let place = allowed.as_mut_ptr().expose_provenance();
    // SAFETY: the kernel writes at most so many bits.
    unsafe { call5(number::__NR_get_mempolicy, 0, place, IDS, 0, ALLOWED) }.ok()?;
    let mut found = list(c"/sys/devices/system/node/has_memory")?;
    for (word, allowed) in found.iter_mut().zip(allowed) {
        *word &= allowed;
    }
    Some(found)
}

fn processors_of(id: u16) -> Option<Mask> {
    let mut path = [0u8; 48];
    let digits =
        [b'0' + (id / 1000) as u8, b'0' + (id / 100 % 10) as u8, b'0' + (id / 10 % 10) as u8, b'0' + (id % 10) as u8];
    let skip = digits.iter().take(3).take_while(|digit| **digit == b'0').count();
    let name = b"/sys/devices/system/node/node".iter().chain(digits.iter().skip(skip)).chain(b"/cpulist\0");
    for (place, letter) in path.iter_mut().zip(name) {
        *place = *letter;
    }
    list(CStr::from_bytes_until_nul(&path).ok()?)
}

/// Reads a file like `0-3,8`.
fn list(path: &CStr) -> Option<Mask> {
    let fd: Fd = file::open(path, file::flags::READ, 0).ok()?;
    let mut text = [0u8; 4096];
    let bytes = file::read_at(fd, &mut text, 0);
    file::close(fd);
    parse(text.get(..bytes.ok()?)?)
}

fn parse(text: &[u8]) -> Option<Mask> {
    let mut mask: Mask = [0; IDS / 64];
    for part in text.trim_ascii().split(|byte| *byte == b',').filter(|part| !part.is_empty()) {
        let text = core::str::from_utf8(part).ok()?;
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        for index in first..=last.min(IDS - 1) {
            if let Some(word) = mask.get_mut(index / 64) {
                *word |= 1 << (index % 64);
            }
        }
    }
    Some(mask)
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::vec::Vec;

    fn members(text: &str) -> Option<Vec<usize>> {
        let mask = parse(text.as_bytes())?;
        Some((0..IDS).filter(|index| holds(&mask, *index)).collect())
    }

    #[test]
    fn lists_are_read() {
        assert_eq!(members("0-1,4,8-9\n"), Some(std::vec![0, 1, 4, 8, 9]));
        assert_eq!(members("0\n"), Some(std::vec![0]));
        assert_eq!(members("\n"), Some(std::vec![]));
        assert_eq!(members("1020-5000"), Some((1020..1024).collect()));
        assert_eq!(members("a-b"), None);
    }

    #[test]
    fn this_machine_has_nodes_and_processors_are_on_them() {
        let nodes = Nodes::find();
        assert!((1..=NODES as u8).contains(&nodes.count()));
        // No policy is left behind.
        assert!(policy().is_err() || policy() == Ok(DEFAULT as i32));
        if nodes.count() == 1 {
            std::eprintln!("skipped: the machine has one NUMA node");
            return;
        }
        let here = crate::process::processors().unwrap();
        let nodes_of_processors: Vec<_> =
            (0..1024).filter(|cpu| here.contains(*cpu)).map(|cpu| nodes.of_processor(cpu)).collect();
        assert!(nodes_of_processors.iter().any(Option::is_some), "{nodes_of_processors:?}");
        // Memory comes from the node that was asked for, and its pages are found there.
        for node in 0..nodes.count() {
            nodes.set_preferred(node).unwrap();
            let memory = crate::memory::MapSlice::<u8>::new(64 << 12).unwrap();
            let start = Page::containing(memory.as_ptr().expose_provenance());
            (0..64).for_each(|index| {
                // SAFETY: inside the mapping.
                unsafe { memory.as_ptr().add(index << 12).write(1) }
            });
            let mut found = Vec::new();
            nodes.of_run(Run { start, pages: 64 }, &mut |run, node| found.push((run.pages, node)));
            set_policy(DEFAULT, None).unwrap();
            assert_eq!(found, [(64, node)]);
        }
    }
}
