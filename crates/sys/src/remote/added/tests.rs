//! Servers that are added: who gets what is written, what lacks a copy, and what nobody has room for.

use super::super::tests::{remote, whole};
use super::super::{Lost, State};
use super::*;
use crate::remote::News;
use ream_page::{PAGE_BYTES, Slot};
use ream_stats::Text;

/// The session has servers with these ports, too.
fn tell(remote: &Remote, ports: &[u32]) {
    for port in ports {
        let name = Text::new(b"x").unwrap();
        let record = ream_stats::Remote { name, family: 4, port: *port, ..ream_stats::Remote::NONE };
        assert!(remote.config.session.servers().add(&record, true));
    }
}

/// A server that was called is there, without connections.
fn there(remote: &mut Remote, index: usize) {
    (remote.peers[index].state, remote.peers[index].free) = (State::Up, 1 << 40);
    remote.up |= 1 << index;
    remote.unused &= !(1 << index);
}

#[test]
fn a_server_alone_gets_company() {
    let page = [7; PAGE_BYTES];
    let mut remote = remote(1, |_| {});
    remote.mend = Mend::none();
    tell(&remote, &[1]);
    remote.take_in_new();
    assert!(remote.count == 1 && !remote.mend.is_some());
    remote.write(1, Slot(3), &whole(&page));
    tell(&remote, &[2, 3]);
    remote.take_in_new();
    assert_eq!((remote.count, remote.up, remote.unused), (3, 1, 0b110));
    assert!(remote.mend.is_some() && remote.peers[1].state == State::Down && remote.peers[1].retry_at == 0);
    there(&mut remote, 1);
    // What has its place keeps it; what has none goes where there is most room.
    assert_eq!((remote.targets(5), remote.targets(SEGMENT)), (1, 0b10));
    // Its loss is not the end where nothing was there.
    remote.lose(1, Lost::Closed);
    assert!(!remote.fatal && matches!(remote.take_news(), Some(News::Lost(1, _))));
}

#[test]
fn copies_that_are_missing_go_to_a_new_server() {
    let mut remote = remote(2, |config| config.replicas = 2);
    tell(&remote, &[1, 2]);
    remote.tables.get_mut(0).unwrap().begin(0, 1, &mut remote.counts);
    remote.tables.get_mut(0).unwrap().put(0, 1, 0b11, &mut remote.counts);
    remote.lose(0, Lost::Closed);
    assert_eq!((remote.counts.missing, remote.target_of(0, 0, 0b10)), (1, None));
    tell(&remote, &[3]);
    remote.take_in_new();
    assert_eq!(remote.target_of(0, 0, 0b10), None, "it is not there yet");
    there(&mut remote, 2);
    assert_eq!(remote.target_of(0, 0, 0b10), Some(2));
}

#[test]
fn a_write_that_nobody_has_room_for_waits_for_a_new_server() {
    let page = [7; PAGE_BYTES];
    let parts = whole(&page);
    let full = |remote: &mut Remote| {
        remote.write(1, Slot(0), &parts);
        remote.peers[0].fill_up(process::now_us());
        remote.part_failed(1, 0, Errno::NOSPC.negative());
    };
    let mut alone = remote(1, |_| {});
    tell(&alone, &[1]);
    full(&mut alone);
    assert_eq!(alone.pop_ended(), Some((1, Errno::NOSPC.negative())));
    let mut added = remote(1, |_| {});
    tell(&added, &[1, 2]);
    added.take_in_new();
    full(&mut added);
    assert_eq!(added.pop_ended(), None);
    there(&mut added, 1);
    added.begin_write(1);
    assert_eq!((added.ops.get(1).unwrap().targets, added.pop_ended()), (0b10, None));
    // Not for ever.
    let mut late = remote(1, |_| {});
    tell(&late, &[1, 2]);
    late.take_in_new();
    late.unused_until = 1;
    full(&mut late);
    assert_eq!(late.pop_ended(), Some((1, Errno::NOSPC.negative())));
}
