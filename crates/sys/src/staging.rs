//! The staging area: where frames live while no program address maps them.
//! Two mappings side by side, small frames and huge ones, never in a forked child, registered for protection only, so
//! that pages can be moved into them but touching a hole is served by the kernel and never by us.

use crate::file::Fd;
use crate::memory::{self, Advice, Protection};
use crate::uffd::{Uffd, mode};
use crate::{Errno, Setup};
use ream_page::{BLOCK_BYTES, BLOCK_PAGES, Frame, PAGE_BYTES, Page};

pub(crate) struct Staging {
    reservation: *mut u8,
    reserved: usize,
    /// Address of frame 0, a multiple of 2 MiB.
    base: usize,
    /// First huge frame.
    pub(crate) huge_start: u32,
    /// Number of frames.
    pub(crate) frames: u32,
    /// Whom the area is registered with.
    registered: Option<Uffd>,
}

fn fail(what: &'static str) -> impl Fn(Errno) -> Setup {
    move |errno| Setup { what, errno }
}

impl Staging {
    /// Without `large`, huge frames are made of small pages as well: copies arrive page by page, and the first must not
    /// populate the places of the others.
    pub(crate) fn new(small_frames: u32, huge_blocks: u32, large: bool, uffd: &Uffd) -> Result<Staging, Setup> {
        let too_many = Setup { what: "staging area", errno: Errno::INVAL };
        let huge_start = small_frames.checked_next_multiple_of(BLOCK_PAGES).ok_or(too_many)?;
        let huge = huge_blocks.checked_mul(BLOCK_PAGES).ok_or(too_many)?;
        let frames = huge_start.checked_add(huge).ok_or(too_many)?;
        let bytes = frames as usize * PAGE_BYTES;
        // A block without access before and after: no neighbour merges with it, and nothing runs out of it unseen.
        let reserved = bytes + 2 * BLOCK_BYTES;
        let reservation =
            memory::map(reserved, BLOCK_BYTES, Protection::None).map_err(fail("reserve the staging area"))?.as_ptr();
        let start = reservation.wrapping_add(BLOCK_BYTES);
        let staging = Staging {
            reservation,
            reserved,
            base: start.expose_provenance(),
            huge_start,
            frames,
            registered: Some(*uffd),
        };
        let cut = huge_start as usize * PAGE_BYTES;
        staging.prepare(0, cut, Advice::NoHugePage, uffd)?;
        let kind = if large { Advice::HugePage } else { Advice::NoHugePage };
        staging.prepare(cut, bytes - cut, kind, uffd)?;
        Ok(staging)
    }

    fn prepare(&self, offset: usize, bytes: usize, kind: Advice, uffd: &Uffd) -> Result<(), Setup> {
        if bytes == 0 {
            return Ok(());
        }
        let start = self.reservation.wrapping_add(BLOCK_BYTES + offset);
        let address = self.base + offset;
        // SAFETY: inside the reservation, which nobody uses yet.
        unsafe {
            memory::protect(start, bytes, Protection::ReadWrite).map_err(fail("open the staging area"))?;
            // A kernel without large pages refuses both kinds; frames are then small everywhere.
            let _ = memory::advise(address, bytes, kind);
            memory::advise(address, bytes, Advice::DontFork).map_err(fail("keep the staging area out of children"))?;
            let _ = memory::advise(address, bytes, Advice::DontDump);
        }
        uffd.register(address, bytes, mode::WRITE_PROTECT).map_err(fail("register the staging area"))
    }

    /// Ends registration, without which unmapping would wait until the one who unmaps has read a message about it.
    pub(crate) fn unregister(&mut self) {
        if let Some(uffd) = self.registered.take() {
            let _ = uffd.unregister(self.base, self.frames as usize * PAGE_BYTES);
        }
    }

    /// Address of a run of frames, if it lies inside.
    pub(crate) fn address(&self, frame: Frame, pages: u32) -> Option<usize> {
        let end = frame.0.checked_add(pages)?;
        (end <= self.frames).then(|| self.base + frame.0 as usize * PAGE_BYTES)
    }

    /// The same as a page number.
    pub(crate) fn page(&self, frame: Frame, pages: u32) -> Option<Page> {
        self.address(frame, pages).map(Page::containing)
    }

    /// Gives the memory of runs of frames back, in one call where the kernel can; `own` watches this process.
    ///
    /// # Safety
    /// Their content is lost: nobody may rely on it.
    pub(crate) unsafe fn empty(&self, runs: &[(Frame, u32)], own: Fd) {
        let mut parts = [[0; 2]; 32];
        for some in runs.chunks(parts.len()) {
            let mut count = 0;
            for (frame, pages) in some {
                if let (Some(address), Some(part)) = (self.address(*frame, *pages), parts.get_mut(count)) {
                    *part = [address, *pages as usize * PAGE_BYTES];
                    count += 1;
                }
            }
            let parts = parts.get(..count).unwrap_or(&[]);
            // SAFETY: the caller's promise.
            unsafe { memory::discard_each(own, parts) };
        }
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        self.unregister();
        // SAFETY: the machine that handed out frames is going away.
        let _ = unsafe { memory::unmap(self.reservation, self.reserved) };
    }
}
