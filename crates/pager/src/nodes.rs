//! NUMA: a frame belongs to the node on which its memory lies, and a page comes back to the node that it left.
//!
//! A block's node is that of the thread that touched it first and, from when its pages are first moved out, the one on
//! which the first of them was found: whatever the program or the kernel had arranged by then stays so. With one node
//! nothing here is done, and no call of the kernel made.

use crate::shard::Shard;
use ream_page::{Block, Frame, Page, Run};
use ream_sys::Machine;

impl<M: Machine> Shard<M> {
    /// Frames that are obtained, and memory that is populated, from now on come from this node.
    fn turn_to(&mut self, node: u8) {
        if self.node != node {
            self.node = node;
            self.frames.turn_to(node);
            self.machine.prefer(node);
        }
    }

    /// The same for the node of a block; where it has none yet, that of the thread which touches it.
    pub(crate) fn turn_to_block(&mut self, block: Block, thread: u32) {
        if self.nodes == 1 {
            return;
        }
        let node = self.table.meta(block).and_then(|meta| meta.node());
        if let Some(node) = node.or_else(|| self.machine.node_of_thread(thread)) {
            self.turn_to(node);
        }
    }

    /// The first pages of a block have been filled: the others will lie on the same node.
    pub(crate) fn settle_node(&mut self, block: Block) {
        if self.nodes > 1 && self.node < self.nodes {
            let node = self.node;
            if let Some(meta) = self.table.meta_mut(block).filter(|meta| meta.node().is_none()) {
                meta.set_node(node);
            }
        }
    }

    /// The same for the node on which a populated frame lies.
    pub(crate) fn turn_to_frame(&mut self, frame: Frame) {
        if self.nodes > 1 {
            self.turn_to(self.frames.node_of(frame));
        }
    }

    /// Fresh frames were obtained, and will be populated now.
    pub(crate) fn populated_here(&mut self, frame: Frame, pages: u32) {
        if self.nodes > 1 {
            self.frames.set_node(frame, pages, self.node);
        }
    }

    /// Pages of one block are about to be moved out to these frames: notes on which nodes they lie.
    pub(crate) fn note_nodes(&mut self, page: Page, frame: Frame, pages: u32) {
        if self.nodes == 1 {
            return;
        }
        let frames = &mut self.frames;
        let mut home = None;
        frames.set_node(frame, pages, self.node);
        self.machine.nodes_of(Run { start: page, pages: pages as u64 }, &mut |run, node| {
            home.get_or_insert(node);
            frames.set_node(frame.plus((run.start.0 - page.0) as u32), run.pages as u32, node);
        });
        let Some(home) = home else { return };
        if let Some(meta) = self.table.meta_mut(page.block()) {
            meta.set_node(home);
        }
        // Where pages are copied out, the copy lies where it is made.
        self.turn_to(home);
    }
}
