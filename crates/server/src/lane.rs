//! A lane, at the server: shows that both ends know the lease's secret, then answers requests in their order.

use crate::leases::{Attached, Holding, Leases};
use crate::listen::{Refused, Stranger};
use crate::stream::{GREETING, Incoming};
use ream_wire::hello::{ANSWER, Answer, HELLO, Hello, NEW_STORE, Purpose, directions};
use ream_wire::message::{ENDING, HEADER, Kind, Malformed, Reply, Request, Status};
use ream_wire::seal::Direction;
use ream_wire::{PAGE, SEAL};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Pages that are copied while others wait for the segment, and sent at once.
const PORTION: u32 = 64;

/// Stores that a lane may have made: one for each ancestor of a process.
const MORE: usize = 256;
/// How long a server stays awake for the next request of a thread that was answered.
const MOMENT: Duration = Duration::from_micros(40);

/// What a lane works for.
enum Share {
    /// A store.
    Pages(Attached),
    /// Nothing: the lease lives as long as it does.
    Lease(#[allow(dead_code, reason = "held")] Holding),
}

struct Lane {
    incoming: Incoming,
    from: Direction,
    to: Direction,
    share: Share,
    /// Further stores that it may write: copies of what other processes have stored.
    more: Vec<Attached>,
    leases: Arc<Leases>,
    out: Vec<u8>,
    /// What was asked for last.
    last: Kind,
}

/// Serves a lane until its client goes away.
pub(crate) fn serve(mut incoming: Incoming, leases: &Arc<Leases>, stranger: Stranger) -> Result<(), Refused> {
    let deadline = Instant::now() + GREETING;
    let bytes: [u8; HELLO] = incoming.array(deadline).map_err(Refused::greeting)?;
    let hello = Hello::parse(&bytes).ok_or(Refused::Stranger("no hello".to_owned()))?;
    let lease = leases.find(hello.lease).filter(|lease| Hello::genuine(&bytes, &lease.secret));
    let lease = lease.ok_or(Refused::Stranger("a lane without its lease's secret".to_owned()))?;
    // Whoever has recorded a hello may say it again. So nothing changes before the client has shown that it knows the secret now:
    // it has no share in lease or store until then, and of a new store only the number is told.
    let store = match (hello.purpose, hello.store) {
        (Purpose::Hold, _) => NEW_STORE,
        (Purpose::Write, NEW_STORE) => lease.number().ok_or(Refused::Stranger("no number for a store".to_owned()))?,
        (_, NEW_STORE) => return Err(Refused::Stranger("a lane without a store".to_owned())),
        (_, store) => store,
    };
    let answer = Answer { store, random: crate::listen::random().map_err(Refused::Io)? };
    let message: [u8; ANSWER] = answer.to_bytes(&hello, &lease.secret);
    incoming.send(&message).map_err(Refused::greeting)?;
    let (mut from, to) =
        directions(&hello, &answer, &lease.secret).ok_or(Refused::Io(io::Error::other("no keys could be derived")))?;
    let first = receive(&mut incoming, &mut from, deadline).map_err(|refused| match refused {
        Refused::Forged(_) => Refused::Stranger("a lane's first message is not genuine".to_owned()),
        Refused::Late => Refused::Stranger("a lane without a first message".to_owned()),
        other => other,
    })?;
    if first.0.kind != Kind::Ping {
        return Err(Refused::Stranger("a lane's first message is no ping".to_owned()));
    }
    let _guest = stranger.show_itself(&mut incoming, &lease.owner)?;
    let holding = leases.hold(hello.lease).ok_or(Refused::Stranger("the lease has ended".to_owned()))?;
    let share = match hello.purpose {
        Purpose::Hold => Share::Lease(holding),
        _ => {
            let attached = if hello.store == NEW_STORE { holding.create(store) } else { holding.attach(store) };
            Share::Pages(attached.ok_or(Refused::Stranger("no such store".to_owned()))?)
        }
    };
    let (leases, last) = (leases.clone(), Kind::Ping);
    let mut lane = Lane { incoming, from, to, share, more: Vec::new(), leases, out: Vec::new(), last };
    lane.serve(&first.0, &first.1)?;
    let is_waited_for = hello.purpose == Purpose::Demand;
    while lane.next(is_waited_for).map_err(Refused::Io)? {
        // Which is over: who is known has none.
        let (request, seals) = receive(&mut lane.incoming, &mut lane.from, deadline)?;
        lane.serve(&request, &seals)?;
    }
    Ok(())
}

/// The next request, genuine and in order, with the seals of its pages.
fn receive(
    incoming: &mut Incoming,
    from: &mut Direction,
    deadline: Instant,
) -> Result<(Request, Vec<[u8; SEAL]>), Refused> {
    let forged = |what: Malformed| Refused::Forged(format!("{what:?}"));
    let header: [u8; HEADER] = incoming.array(deadline).map_err(Refused::message)?;
    let request = Request::parse(&header).map_err(forged)?;
    if request.number != from.next() {
        return Err(forged(Malformed::Order));
    }
    let count = request.body() as usize;
    let bytes = incoming.take((count + 1) * SEAL, deadline).map_err(Refused::message)?;
    let (seals, tag) = bytes.split_at(count * SEAL);
    let tag: [u8; SEAL] = tag.try_into().map_err(|_| forged(Malformed::Length))?;
    if count == 0 {
        from.verify(&header, &tag).map_err(forged)?;
        return Ok((request, Vec::new()));
    }
    let message = [&header[..], seals].concat();
    let seals = seals.chunks_exact(SEAL).filter_map(|seal| seal.try_into().ok()).collect();
    from.verify(&message, &tag).map_err(forged)?;
    Ok((request, seals))
}

impl Lane {
    /// Waits for a message. A thread of the program waits for the answer to what comes by the lane for demand, and asks again
    /// as soon as it has it: so the server stays awake for a moment, for one client at a time.
    fn next(&mut self, is_waited_for: bool) -> io::Result<bool> {
        static LOOKING: AtomicBool = AtomicBool::new(false);
        if is_waited_for && self.last == Kind::Read && !LOOKING.swap(true, Ordering::Relaxed) {
            self.incoming.look(MOMENT);
            LOOKING.store(false, Ordering::Relaxed);
        }
        self.incoming.message()
    }

    /// Does what a request asks for, and replies.
    fn serve(&mut self, request: &Request, seals: &[[u8; SEAL]]) -> Result<(), Refused> {
        self.out.clear();
        self.last = request.kind;
        let counters = &self.leases.counters;
        let Share::Pages(attached) = &self.share else {
            let fine = request.kind == Kind::Ping;
            return self.reply(request, if fine { Status::Done } else { Status::Foreign });
        };
        let attached = self.more.iter().find(|more| more.store.id == request.store).unwrap_or(attached);
        let status = match request.kind {
            Kind::Ping => Status::Done,
            Kind::Make if self.more.len() < MORE => match attached.make(request.store) {
                Some(more) => {
                    self.more.push(more);
                    Status::Done
                }
                None => Status::Foreign,
            },
            Kind::Make => Status::Foreign,
            Kind::Free => attached.forget(request.store, request.slot, request.pages),
            Kind::Write => {
                counters.writes.add(1);
                let status = attached.admit(request.store, request.slot, request.pages);
                // Only who is known comes here.
                let deadline = Instant::now();
                let mut slot = request.slot;
                for seals in seals.chunks(PORTION as usize) {
                    let bytes = self.incoming.take(seals.len() * PAGE, deadline).map_err(Refused::message)?;
                    if status == Status::Done {
                        attached.write(slot, bytes, seals);
                        counters.pages_in.add(seals.len() as u64);
                    }
                    slot += seals.len() as u32;
                }
                status
            }
            Kind::Read => {
                counters.reads.add(1);
                self.out.resize(HEADER, 0);
                match attached.seals(request.store, request.slot, request.pages, &mut self.out) {
                    Ok(store) => return self.pages(request, &store),
                    Err(status) => {
                        // The client expects pages: what it hears is that, and the end.
                        self.out.clear();
                        counters.refused.add(1);
                        self.reply(request, status)?;
                        return Err(Refused::Forged("it reads what is not its own".to_owned()));
                    }
                }
            }
        };
        match status {
            Status::Full => counters.full.add(1),
            Status::Quota => counters.quota.add(1),
            Status::Foreign => counters.refused.add(1),
            Status::Done => {}
        }
        self.reply(request, status)
    }

    fn header(&self, request: &Request, status: Status) -> [u8; HEADER] {
        let ending = self.leases.counters.ending.load(Ordering::Relaxed);
        Reply { request: *request, status, notices: if ending { ENDING } else { 0 } }.to_bytes()
    }

    fn reply(&mut self, request: &Request, status: Status) -> Result<(), Refused> {
        let header = self.header(request, status);
        let tag = self.to.sign(&header);
        self.out.extend_from_slice(&header);
        self.out.extend_from_slice(&tag);
        self.incoming.send(&self.out).map_err(Refused::message)
    }

    /// Replies with pages, whose seals are in `out` already, behind room for the header.
    fn pages(&mut self, request: &Request, store: &crate::leases::Store) -> Result<(), Refused> {
        let header = self.header(request, Status::Done);
        if let Some(place) = self.out.get_mut(..HEADER) {
            place.copy_from_slice(&header);
        }
        let tag = self.to.sign(&self.out);
        self.out.extend_from_slice(&tag);
        let (mut slot, end) = (request.slot, request.slot + request.pages as u32);
        while slot < end {
            let count = PORTION.min(end - slot);
            store.pages(slot, count, &mut self.out);
            self.incoming.send(&self.out).map_err(Refused::message)?;
            self.out.clear();
            slot += count;
        }
        self.leases.counters.pages_out.add(request.pages as u64);
        if let Share::Pages(attached) = &self.share {
            attached.owner().sent.add(request.pages as u64);
        }
        Ok(())
    }
}
