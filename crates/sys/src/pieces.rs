//! A run of pages that is moved or copied by calls each of which may do a part of it.

use crate::{Moved, Stop};

/// What to do after a call.
pub(crate) enum Next {
    /// Go on with all that is left.
    Rest,
    /// Try a part of the same size.
    Again,
    /// Try one page.
    One,
    /// Try half as much: the range may span two mappings. A single page that fails so is at a mapping's fault.
    Half,
    /// Stop, for this reason.
    Stop(Stop),
}

/// Calls with the number of pages done and of those to do now, until all are done or a call says stop. A call returns
/// how many it did.
pub(crate) fn piecewise(pages: u32, mut call: impl FnMut(u32, u32) -> (u32, Next)) -> Moved {
    let (mut done, mut part) = (0, pages);
    while done < pages {
        part = part.clamp(1, pages - done);
        let (did, next) = call(done, part);
        done += did;
        let stop = match next {
            Next::Rest => {
                part = pages - done;
                continue;
            }
            Next::Again => continue,
            Next::One if part > 1 => {
                part = 1;
                continue;
            }
            Next::Half if part > 1 => {
                part /= 2;
                continue;
            }
            Next::One | Next::Half => Stop::Mapping,
            Next::Stop(stop) => stop,
        };
        return Moved { pages: done, stop: Some(stop) };
    }
    Moved { pages: done, stop: None }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::vec::Vec;

    #[test]
    fn parts_shrink_to_a_mapping_and_grow_again() {
        let mut calls = Vec::new();
        // A boundary between mappings after 5 pages.
        let moved = piecewise(16, |done, part| {
            calls.push((done, part));
            if done < 5 && done + part > 5 { (0, Next::Half) } else { (part, Next::Rest) }
        });
        assert_eq!((moved.pages, moved.stop), (16, None));
        assert_eq!(calls, [(0, 16), (0, 8), (0, 4), (4, 12), (4, 6), (4, 3), (4, 1), (5, 11)]);
    }

    #[test]
    fn what_was_done_counts_when_it_stops() {
        let busy = piecewise(8, |done, _| if done < 3 { (1, Next::Again) } else { (0, Next::Stop(Stop::Busy)) });
        assert_eq!((busy.pages, busy.stop), (3, Some(Stop::Busy)));
        let mut tries = 0;
        let stuck = piecewise(8, |_, part| {
            tries += 1;
            (0, if part > 2 { Next::One } else { Next::Half })
        });
        assert_eq!((stuck.pages, stuck.stop, tries), (0, Some(Stop::Mapping), 2));
        assert_eq!(piecewise(0, |_, _| (1, Next::Rest)).pages, 0);
    }
}
