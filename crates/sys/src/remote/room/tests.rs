//! What is given up for want of room, and what is not.

extern crate std;

use super::super::tests::{away, whole, with_lanes};
use super::super::{RemoteConfig, mend};
use super::*;
use crate::Errno;
use ream_page::{PAGE_BYTES, Slot};
use std::vec::Vec;

/// A store whose segments these have, and three servers without room.
fn full(segments: &[u32], change: impl FnOnce(&mut RemoteConfig)) -> Remote {
    let mut remote = with_lanes(3, |config| {
        config.replicas = 2;
        change(config);
    });
    for (segment, who) in (0..).zip(segments) {
        let own = remote.tables.get_mut(0).unwrap();
        assert!(own.begin(segment * SEGMENT, SEGMENT, &mut remote.counts));
        own.put(segment * SEGMENT, SEGMENT, *who, &mut remote.counts);
        *remote.homes.get_mut(segment as usize).unwrap() = *who as u8;
    }
    remote.peers.iter_mut().take(3).for_each(|peer| peer.fill_up(process::now_us()));
    remote
}

fn holders(remote: &Remote) -> Vec<u32> {
    let own = remote.tables.get(0).unwrap();
    let mut all = Vec::new();
    for segment in 0..own.end / SEGMENT {
        let who = own.holder(segment * SEGMENT + 9);
        if who == 0 {
            continue;
        }
        assert!(
            (segment * SEGMENT..(segment + 1) * SEGMENT).all(|slot| slot % SEGMENT == 5 || own.holder(slot) == who)
        );
        all.push(who);
    }
    all
}

/// A page is written to the last segment. Who is to have it, or why nobody has.
fn write(remote: &mut Remote) -> Result<u32, i32> {
    let page = [7; PAGE_BYTES];
    remote.write(1, Slot(9 * SEGMENT), &whole(&page));
    match remote.pop_ended() {
        Some((1, result)) => Err(result),
        _ => Ok(remote.ops.get(1).unwrap().targets),
    }
}

const REFUSED: Result<u32, i32> = Err(-28);

#[test]
fn second_copies_make_room() {
    assert_eq!(Errno::NOSPC.negative(), -28);
    let mut remote = full(&[0b11, 0b110, 0b101], |_| {});
    let targets = write(&mut remote).unwrap();
    assert_ne!(targets, 0);
    assert!(holders(&remote).iter().all(|who| who.count_ones() == 1), "one copy of each stays");
    assert_eq!((remote.counts.missing, remote.take_news()), (3 * u64::from(SEGMENT), Some(News::Degraded)));
    // Each is forgotten where it is not any more, and nowhere else; before anything is written there.
    let mut freed = Vec::new();
    for index in 0..3 {
        while let Some((slot, pages)) = remote.peers[index].frees.pop() {
            freed.push((slot / SEGMENT, 1 << index));
            assert_eq!((slot % SEGMENT, pages), (0, SEGMENT));
        }
    }
    freed.sort_unstable();
    let [one, two, three] = holders(&remote)[..] else { panic!("segments") };
    assert_eq!(freed, [(0, 0b11 ^ one), (1, 0b110 ^ two), (2, 0b101 ^ three)]);
    let homes = |segment| u32::from(*remote.homes.get(segment).unwrap());
    assert_eq!([homes(0), homes(1), homes(2)], [one, two, three]);
    // They are not made again at once, but when there is room.
    let now = process::now_us();
    remote.advance_mend();
    assert!(remote.room.holds(now) && remote.mend.free_place() == Some(0) && !remote.room.holds(now + 2 * HOLD));
    remote.room.has_more();
    remote.peers.iter_mut().for_each(super::super::Peer::has_room_again);
    remote.advance_mend();
    assert_ne!(remote.mend.free_place(), Some(0));
}

#[test]
fn what_a_server_refuses_finds_room_elsewhere() {
    let mut remote = full(&[0b11, 0b110], |_| {});
    remote.peers[2].has_room_again();
    assert_eq!(write(&mut remote), Ok(0b100));
    remote.peers[2].todo[super::super::WRITE].pop();
    remote.part_failed(1, 2, Errno::NOSPC.negative());
    assert!(holders(&remote).iter().all(|who| who.count_ones() == 1));
    assert_eq!((remote.pop_ended(), remote.ops.get(1).unwrap().bad), (None, 0));
    assert_ne!(remote.ops.get(1).unwrap().targets, 0);
}

#[test]
fn the_only_copy_is_never_given_up() {
    let mut remote = full(&[0b1, 0b10, 0b100], |_| {});
    assert_eq!((write(&mut remote), holders(&remote)), (REFUSED, [0b1, 0b10, 0b100].to_vec()));
    // Of one page in a segment there is one copy.
    let mut remote = full(&[0b11], |_| {});
    remote.tables.get_mut(0).unwrap().put(5, 1, 0b10, &mut remote.counts);
    write(&mut remote).unwrap();
    assert_eq!((holders(&remote), remote.tables.get(0).unwrap().holder(5)), ([0b10].to_vec(), 0b10));
    // And of another page the other.
    let mut remote = full(&[0b11, 0b11], |_| {});
    for (slot, who) in [(5, 0b10), (SEGMENT - 1, 0b1), (SEGMENT + 5, 0b101)] {
        remote.tables.get_mut(0).unwrap().put(slot, 1, who, &mut remote.counts);
    }
    assert_eq!(remote.spare_copy(0), None);
    assert_eq!(remote.spare_copy(1), Some(0));
    // The other server is away, or about to end.
    let mut remote = full(&[0b11, 0b11], |_| {});
    away(&mut remote, 1);
    assert_eq!((write(&mut remote), holders(&remote)), (Ok(0), [0b11, 0b11].to_vec()));
    let mut remote = full(&[0b11, 0b11], |_| {});
    remote.note_ending(1);
    assert_eq!((remote.spare_copy(0), remote.spare_copy(1)), (None, None));
}

#[test]
fn what_others_read_or_is_under_way_is_not_given_up() {
    let mut remote = full(&[0b11, 0b110], |_| {});
    remote.freeze(true);
    assert_eq!((write(&mut remote), holders(&remote)), (REFUSED, [0b11, 0b110].to_vec()));
    remote.thaw();
    write(&mut remote).unwrap();
    assert!(holders(&remote).iter().all(|who| who.count_ones() == 1));
    // Something of the first is read, and of the second copied.
    let mut remote = full(&[0b11, 0b110, 0b101], |_| {});
    *remote.ops.get_mut(2).unwrap() = Op::read(0, 3, 4, 0, 0);
    remote.start_job(0, mend::Job::new(0, SEGMENT, 3, 0));
    write(&mut remote).unwrap();
    assert_eq!((&holders(&remote)[..2], remote.spare_copy(2)), (&[0b11, 0b110][..], None));
}

#[test]
fn with_one_copy_or_a_disk_or_sums_nothing_is_given_up() {
    for change in [|config: &mut RemoteConfig| config.replicas = 1, |config: &mut RemoteConfig| config.below = true] {
        let mut remote = full(&[0b11, 0b110], change);
        assert!(!remote.give_up_copies());
        assert_eq!(holders(&remote), [0b11, 0b110]);
    }
    let mut remote = with_lanes(3, |config| (config.parity, config.replicas) = (true, 2));
    assert!(!remote.give_up_copies());
}

#[test]
fn not_all_is_given_up_at_once_and_nothing_is_looked_for_in_vain() {
    let mut remote = full(&[0b11; 18], |config| (config.slots, config.most_slots) = (20_000, 20_000));
    assert!(remote.give_up_copies());
    let still = |remote: &Remote| holders(remote).iter().filter(|who| who.count_ones() == 2).count();
    assert_eq!(still(&remote), 18 - ROUND as usize);
    assert!(remote.give_up_copies() && still(&remote) == 0 && !remote.give_up_copies());
    // Later, or when a server can be used again.
    remote.tables.get_mut(0).unwrap().put(0, SEGMENT, 0b11, &mut remote.counts);
    assert!(!remote.give_up_copies());
    remote.room.has_more();
    assert!(remote.give_up_copies());
}
