//! Memory servers as the store of this process: where they are, and what is said when one is lost.

use super::message::{tell, warn};
use super::pager::Failure;
use super::setup::more_slots;
use super::stop::end;
use super::{ENGINE, fork};
use core::fmt;
use ream_pager::{Fatal, Shard};
use ream_stats::{Process, Remote, SERVERS, Session};
use ream_sys::{Address, Errno, LinuxMachine, Lost, News, RemoteConfig};

/// What a machine needs to use the session's memory servers; `None` when its store is a directory.
pub(super) fn config(
    session: &'static Session,
    process: &'static Process,
    (slots, most_slots): (u32, u32),
    io_limit: u32,
) -> Result<Option<RemoteConfig>, Failure> {
    let config = session.config();
    let Some(first) = config.remotes.first().filter(|first| first.is_some()) else { return Ok(None) };
    let mut servers = [None; SERVERS];
    for (place, remote) in servers.iter_mut().zip(session.remotes()) {
        let server = Address::new(remote.family, &remote.address, remote.port as u16, remote.scope);
        *place = Some(server.ok_or(Failure { what: "reading a memory server's address", errno: Errno::INVAL })?);
    }
    Ok(Some(RemoteConfig {
        session,
        process,
        servers,
        replicas: config.replicas,
        spill: config.spill != 0,
        below: config.below != 0,
        parity: config.parity != 0,
        spill_sealed: config.has_local() && config.encrypt != 0,
        sealed: first.sealed != 0,
        deadline_us: first.deadline_ms.saturating_mul(1000),
        slots,
        most_slots,
        io_limit,
    }))
}

/// Says that none can be reached, so that the program is stopped.
pub(super) fn tell_unreached(errno: Errno) {
    let several = remotes().count() > 1;
    tell(format_args!(
        "{} {} can{} be reached (errno {}): the program is stopped, since more of its memory would stay in RAM than the budget allows",
        if several { "none of the memory servers" } else { "the memory server" },
        Names(u32::MAX),
        if several { "" } else { "not" },
        errno.0
    ));
}

fn remotes() -> impl Iterator<Item = &'static Remote> {
    ENGINE.session().into_iter().flat_map(|session| session.remotes())
}

/// The names of these servers, by bit.
pub(super) struct Names(u32);

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = remotes().enumerate().filter(|(index, _)| self.0 >> index & 1 != 0);
        for (number, (_, remote)) in named.enumerate() {
            let comma = if number == 0 { "" } else { "," };
            write!(f, "{comma}tcp://{}", core::str::from_utf8(remote.name.as_bytes()).unwrap_or("?"))?;
        }
        Ok(())
    }
}

/// The servers' names behind a comma, or nothing.
pub(super) struct Behind;

impl fmt::Display for Behind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if remotes().next().is_none() { Ok(()) } else { write!(f, ", {}", Names(u32::MAX)) }
    }
}

/// The servers' names behind a comma, or nothing.
pub(super) fn name() -> Behind {
    Behind
}

/// How a server was lost, in words that follow its name.
struct How(Lost);

impl fmt::Display for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Lost::Closed => f.write_str("closed the connection"),
            Lost::Failed(errno) => write!(f, "cannot be reached any more (errno {})", errno.0),
            Lost::Late => f.write_str("does not answer"),
            Lost::Forged => f.write_str("sent what is not genuine"),
            Lost::Refused => f.write_str("does not know what it keeps for us"),
        }
    }
}

/// Says what has happened to memory servers, and stops the program when its memory is lost. What the store had no room for is
/// tried again when there are more of them.
pub(super) fn look(shard: &mut Shard<LinuxMachine>) {
    while let Some(news) = shard.machine_mut().take_news() {
        hear(news);
        if matches!(news, News::Back(_)) {
            shard.try_store_again();
        }
    }
    if let Some(slots) = more_slots() {
        shard.set_store_limit(slots);
    }
}

/// Whether pages have a sum instead of copies.
fn summed() -> bool {
    ENGINE.session().is_some_and(|session| session.config().parity != 0)
}

/// Whether a disk is below the memory servers.
fn is_above_a_disk() -> bool {
    ENGINE.session().is_some_and(|session| session.config().below != 0)
}

/// Whether it is the local copy, or --store-limit, that leaves no more room, and not the memory servers.
fn is_short_of_local_room() -> bool {
    ENGINE.session().is_some_and(|session| {
        let (config, limit) = (session.config(), session.servers().limit());
        config.spill != 0 && config.store_ceiling_bytes != 0 && limit >= config.store_ceiling_bytes
    })
}

/// Whether it is --store-limit, and not the memory servers, that leaves no more room: nearly all of it is taken.
fn has_stored_what_it_may(shard: &Shard<LinuxMachine>) -> bool {
    ENGINE.session().is_some_and(|session| {
        let (most, limit) = (session.config().store_ceiling_bytes, session.servers().limit());
        let stored = session.ledger().peak_stored().max(shard.slots_in_use() * 4096);
        most != 0 && limit >= most && stored / 7 >= most / 8
    })
}

/// What the file here is.
fn local() -> &'static str {
    if is_above_a_disk() { "the disk below the memory servers" } else { "the local copy (--spill)" }
}

fn hear(news: News) {
    let server = |index: usize| ENGINE.session().and_then(|session| session.servers().get(index));
    match news {
        News::Fatal(index, lost) => stop(index, lost),
        News::Lost(index, lost) if server(index).is_some_and(|server| server.tell_loss()) => warn(format_args!(
            "the memory server {} {}; the program goes on with {}",
            Names(1 << index),
            How(lost),
            if summed() {
                "what the others have, from which its pages are computed and written anew"
            } else if is_above_a_disk() {
                "what is at others, and on the disk below"
            } else {
                "the other copies of its pages, which are copied again where there is room"
            }
        )),
        News::Back(index) if server(index).is_some_and(|server| server.tell_return()) => {
            warn(format_args!("the memory server {} is used again", Names(1 << index)))
        }
        News::Back(index) if server(index).is_some_and(|server| server.tell_use()) => {
            warn(format_args!("the memory server {} is used from now on", Names(1 << index)))
        }
        News::Lost(..) | News::Back(_) => {}
        News::Emptied(index) => fork::let_go(index),
        News::Ending(index) => {
            let others = remotes().count() > 1;
            let below = is_above_a_disk();
            let alone = !others && !below && ENGINE.session().is_some_and(|session| session.config().copies() < 2);
            warn(format_args!(
                "the memory server {} is about to end; {}",
                Names(1 << index),
                if alone {
                    "the program will be stopped when it does"
                } else if below {
                    "its pages are moved elsewhere: to others, or to the disk below"
                } else if others {
                    "its pages are moved to the others, as far as they have room"
                } else {
                    "the local copy of its pages is used then"
                }
            ))
        }
        News::Forged(ream_stats::SPILL) => warn(format_args!(
            "{} held a page that is not what was sealed for that place (changed, exchanged or outdated); it is had from elsewhere",
            local()
        )),
        News::Forged(index) => warn(format_args!(
            "the memory server {} returned a page that is not what was sealed for that place (changed, exchanged or outdated); it is had from elsewhere",
            Names(1 << index)
        )),
        News::Degraded => warn(format_args!(
            "the memory servers have no room for all copies of pages; some have one copy only, and are lost with a server that has it"
        )),
        News::Spill(errno) if is_above_a_disk() => warn(format_args!(
            "the disk below the memory servers cannot be written (errno {}); until it can, pages go to those only, as far as they have room",
            errno.0
        )),
        News::Spill(errno) => warn(format_args!(
            "the local copy (--spill) cannot be written (errno {}); until it can, pages are at memory servers only",
            errno.0
        )),
    }
}

fn stop(index: usize, lost: Lost) -> ! {
    const WHY: &str = "the program is stopped, since its memory there cannot be had back";
    let name = Names(1 << index);
    match lost {
        Lost::Closed => tell(format_args!("the memory server {name} closed the connection: {WHY}")),
        Lost::Failed(errno) => {
            tell(format_args!("the connection to the memory server {name} failed (errno {}): {WHY}", errno.0))
        }
        Lost::Late => {
            let seconds = remotes().next().map_or(0, |remote| remote.deadline_ms / 1000);
            tell(format_args!("the memory server {name} has not answered for {seconds} s (--store-deadline): {WHY}"))
        }
        Lost::Forged => tell(format_args!("what came from the memory server {name} is not genuine: {WHY}")),
        Lost::Refused => tell(format_args!("the memory server {name} does not know what it keeps for us: {WHY}")),
    }
    end()
}

/// Says what only a memory server can be the cause of, and ends; returns when it is something else.
pub(super) fn explain(why: Fatal, shard: &mut Shard<LinuxMachine>) {
    if remotes().next().is_none() {
        return;
    }
    match why {
        Fatal::Corrupt(..) => {
            let forged = shard.machine_mut().forged();
            if forged == Some(ream_stats::SPILL) {
                tell(format_args!(
                    "{} returned a page that is not what was sealed for that place (changed, exchanged or outdated): the program is stopped, since nobody else has that page",
                    local()
                ));
                end()
            }
            if forged.is_none() && is_above_a_disk() {
                tell(format_args!(
                    "a memory server ({}), or the disk below, returned a page that was changed: the program is stopped, since its memory there cannot be had back",
                    Names(u32::MAX)
                ));
                end()
            }
            tell(format_args!(
                "the memory server {} returned a page that {}: the program is stopped, since its memory there cannot be had back",
                Names(forged.map_or(u32::MAX, |index| 1 << index)),
                if forged.is_some() {
                    "is not what was sealed for that place (changed, exchanged or outdated)"
                } else {
                    "was changed"
                },
            ));
        }
        Fatal::StoreFull(errno) => {
            let errno = errno.map_or(28, |errno| errno.0);
            if is_above_a_disk() || is_short_of_local_room() {
                tell(format_args!(
                    "{} {} has no room left for this program (errno {errno}), and each page has its place there: it holds {} MiB, and {} MiB more are managed; the program is stopped; raise --store-limit or name another directory",
                    if is_above_a_disk() {
                        "the disk below the memory servers"
                    } else {
                        "the local copy (--spill) beside"
                    },
                    Names(u32::MAX),
                    shard.slots_in_use() / 256,
                    shard.used() / 256,
                ));
                end()
            }
            if has_stored_what_it_may(shard) {
                tell(format_args!(
                    "the session may store no more (--store-limit): the memory server {} holds {} MiB of this program, and {} MiB more are managed; the program is stopped; raise --store-limit",
                    Names(u32::MAX),
                    shard.slots_in_use() / 256,
                    shard.used() / 256,
                ));
                end()
            }
            tell(format_args!(
                "the memory server {} has no room left for this program (errno {errno}): it holds {} MiB, and {} MiB more are managed; the program is stopped; raise --memory, --quota or the quota in the list of clients there, or add a server in time (ream add-store)",
                Names(u32::MAX),
                shard.slots_in_use() / 256,
                shard.used() / 256,
            ));
        }
        Fatal::Read(_) | Fatal::Internal(_) => return,
    }
    end()
}
