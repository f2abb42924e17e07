//! What waits, and for how long.

use super::super::tests::{away, remote, whole};
use super::*;
use ream_page::{PAGE_BYTES, Slot};

#[test]
fn one_write_that_waits_waits_from_its_beginning_on() {
    let mut remote = remote(2, |config| config.deadline_us = 1_000_000);
    away(&mut remote, 1);
    remote.peers[0].fill_up(process::now_us());
    let page = [7; PAGE_BYTES];
    let parts = whole(&page);
    remote.write(1, Slot(0), &parts);
    assert_eq!((remote.parked.len(), remote.pop_ended()), (1, None));
    // Asked again and again, it finds nobody.
    for _ in 0..3 {
        remote.parked_since -= 400_000;
        let since = remote.parked_since;
        remote.unpark();
        assert_eq!((remote.parked.len(), remote.parked_since), (1, since));
    }
    remote.look_at_clock();
    assert_eq!(remote.take_news(), Some(News::Fatal(1, Lost::Late)));
}
