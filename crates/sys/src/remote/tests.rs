//! What tests of this folder begin with: memory servers that nobody has called.

use super::*;
use ream_stats::{Config, Identity};

/// A store at so many servers. They count as there, and have no connections: what is asked of them stays where it waits.
pub(super) fn remote(servers: usize, change: impl FnOnce(&mut RemoteConfig)) -> Remote {
    let memory = MapSlice::<u8>::new(Session::BYTES).unwrap().leak().as_mut_ptr();
    // SAFETY: fresh zeros, for ever, and nobody else's.
    let session = unsafe { Session::create(memory, 1, &Config::new(), 0) };
    let process =
        session.claim(Identity { pid: 1, start: 1, space: 0 }, 0).and_then(|index| session.process(index)).unwrap();
    let address = Address::new(4, &[127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], 1, 0).unwrap();
    let mut config = RemoteConfig {
        session,
        process,
        servers: core::array::from_fn(|index| (index < servers).then_some(address)),
        replicas: 1,
        spill: false,
        below: false,
        parity: false,
        spill_sealed: false,
        sealed: true,
        deadline_us: 1_000_000,
        slots: 10_000,
        most_slots: 10_000,
        io_limit: 8,
    };
    change(&mut config);
    // With a local copy it needs no server to begin with.
    let spill = !config.below;
    let Ok(mut remote) = Remote::connect(&RemoteConfig { spill, ..config }, None) else { panic!("no memory") };
    remote.config.spill = config.spill;
    remote.spill.take_if(|_| !config.spill && !config.below);
    remote.counts = Counts::new(config.replicas + u32::from(config.spill), config.below);
    for peer in remote.peers.iter_mut().take(servers) {
        (peer.state, peer.free) = (State::Up, 1 << 30);
    }
    remote.up = (1 << servers) - 1;
    remote
}

/// The same, with lanes on which nothing is sent: what is asked is counted as asked.
pub(super) fn with_lanes(servers: usize, change: impl FnOnce(&mut RemoteConfig)) -> Remote {
    let mut remote = remote(servers, change);
    for peer in remote.peers.iter_mut().take(servers) {
        peer.lanes = Some(core::array::from_fn(|_| Lane::unconnected((CHUNK as usize + 1) * (PAGE_BYTES + 16))));
    }
    remote
}

/// A list of parts that is one run of pages.
pub(super) fn whole(pages: &[u8]) -> [Part; 1] {
    [Part { address: pages.as_ptr().expose_provenance(), bytes: pages.len() }]
}

/// A server is away.
pub(super) fn away(remote: &mut Remote, index: usize) {
    remote.up &= !(1 << index);
    remote.peers[index].state = State::Down;
    // It is not called for as long as a test takes.
    remote.peers[index].retry_at = u64::MAX;
}

#[test]
fn servers_that_are_about_to_end_are_written_to_where_no_other_has_room() {
    let page = [7; PAGE_BYTES];
    let parts = whole(&page);
    let targets = |change: fn(&mut [Peer; SERVERS])| {
        let mut remote = remote(2, |config| config.replicas = 2);
        change(&mut remote.peers);
        remote.write(1, Slot(0), &parts);
        assert_eq!(remote.pop_ended(), None);
        remote.ops.get(1).unwrap().targets
    };
    assert_eq!(targets(|peers| (peers[0].ending, peers[1].ending) = (true, true)), 0b11);
    assert_eq!(targets(|peers| peers[0].ending = true), 0b10);
    let full = |peers: &mut [Peer; SERVERS]| {
        peers[0].ending = true;
        peers[1].fill_up(process::now_us());
    };
    assert_eq!(targets(full), 0b01);
}

#[test]
fn there_is_a_place_for_the_news_that_ends_the_program() {
    let mut remote = remote(2, |_| {});
    (0..100).for_each(|_| remote.tell(News::Back(0)));
    remote.tell(News::Fatal(1, Lost::Late));
    let mut last = None;
    let mut count = 0;
    while let Some(news) = remote.take_news() {
        (last, count) = (Some(news), count + 1);
    }
    assert_eq!((last, count), (Some(News::Fatal(1, Lost::Late)), remote.news.len()));
}
