//! What waits, and for how long.

use super::super::tests::{away, remote, whole, with_lanes};
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

#[test]
fn a_server_that_another_process_has_lost_is_asked_at_once() {
    let mut remote = with_lanes(2, |config| config.replicas = 2);
    let now = process::now_us();
    let asked = |remote: &Remote, index: usize| -> u32 {
        remote.peers[index].lanes.iter().flatten().map(|lane| lane.open_requests()).sum()
    };
    remote.knock(now);
    assert_eq!((asked(&remote, 0), asked(&remote, 1)), (0, 0), "they were heard just now");
    remote.config.session.servers().lose(0, now);
    let later = process::now_us() + 1;
    remote.knock(later);
    remote.publish();
    assert_eq!((asked(&remote, 0), asked(&remote, 1)), (LANES as u32, 0));
    assert_eq!(remote.config.process.copies().outlived(0), 0, "until it has answered");
    // Each lane has to.
    for lanes in 1..=LANES {
        remote.peers[0].lanes.as_mut().unwrap()[lanes - 1].heard = later + 1;
        remote.knock(later + 2);
        remote.publish();
        assert_eq!(remote.config.process.copies().outlived(0), u64::from(lanes == LANES));
    }
}
