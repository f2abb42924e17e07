//! Threads on nodes.

use super::World;

impl World {
    /// Each thread touches its area, `touches` times, so many pages further each time.
    pub fn stroll(&mut self, threads: &[(u32, u8)], touches: u16, write: bool, step: u64) {
        for touch in 0..touches as u64 {
            for (thread, area) in threads.iter().copied() {
                let pages = self.areas[area as usize].len() as u64;
                self.touch(thread, World::page(area as usize, (touch * step % pages) as usize), write);
            }
            for (thread, _) in threads {
                self.serve(*thread);
            }
        }
    }

    /// How many mapped pages of an area lie on the first node, and how many on others.
    pub fn nodes_of(&mut self, area: u8) -> [usize; 2] {
        let mut found = [0; 2];
        for index in 0..self.areas[area as usize].len() {
            let page = World::page(area as usize, index);
            if self.shard.machine().mapped(page).is_some() {
                found[(self.shard.machine().node_of_page(page) != 0) as usize] += 1;
            }
        }
        found
    }
}
