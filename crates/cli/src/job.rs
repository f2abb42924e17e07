//! One session for all ranks of a job on a node. Each rank is a `ream run` of its own, started by the job's launcher; the
//! first one to take an abstract socket name, made of what the job is, begins the session and hands the socket to its
//! agent, and the others are let in there. The name goes with the agent.

use crate::agent::find;
use crate::failure::{Failure, reason};
use crate::os;
use crate::settings::Settings;
use std::ffi::OsString;
use std::io::{self, Read as _, Write as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::{Duration, Instant};

/// How long the first rank may take to begin the session: it asks for memory, and the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);
/// Most bytes of an answer.
const MOST: u64 = 4096;

/// How this process comes to its job's session.
pub enum Entrance {
    /// It begins the session, whose agent gets this.
    First(UnixListener),
    /// It was let in.
    Joined {
        /// Value of `REAM_SESSION`.
        session: String,
        /// Whether the one that began it was given the same options.
        same: bool,
    },
}

/// What the job is called on this node, from what its launcher has put into the environment: the same for all its
/// ranks here, and no other job's while it lasts. `None` where there is no launcher, or the process is in a session
/// already.
pub fn key(variable: &dyn Fn(&str) -> Option<OsString>) -> Option<String> {
    let text = |name: &str| variable(name)?.into_string().ok().filter(|text| !text.is_empty());
    if text("REAM_SESSION").is_some() {
        return None;
    }
    // Of a process that began with the same number before a restart of the machine nothing is left.
    let process = |pid: u32| format!("{pid} {}", find::here(pid).map_or(0, |process| process.start));
    // PMIx: Open MPI's mpirun, and srun with its plug-in.
    if let (Some(space), Some(_)) = (text("PMIX_NAMESPACE"), text("PMIX_RANK")) {
        let server = ["PMIX_SERVER_URI41", "PMIX_SERVER_URI4", "PMIX_SERVER_URI3", "PMIX_SERVER_URI21"];
        let server = server.iter().find_map(|name| text(name)).unwrap_or_default();
        return Some(format!("pmix {space} {server}"));
    }
    // PMI: MPICH's Hydra, and srun. The other end of its socket is the launcher's process on this node.
    if let (Some(_), Some(fd)) = (text("PMI_RANK"), text("PMI_FD")) {
        let launcher =
            fd.parse().ok().and_then(os::peer_of_inherited).unwrap_or_else(std::os::unix::process::parent_id);
        return Some(format!("pmi {}", process(launcher)));
    }
    if let (Some(_), Some(port)) = (text("PMI_RANK"), text("PMI_PORT")) {
        return Some(format!("pmi {port} {}", process(std::os::unix::process::parent_id())));
    }
    let slurm = (text("SLURM_JOB_ID"), text("SLURM_STEP_ID"), text("SLURM_PROCID"));
    if let (Some(job), Some(step), Some(_)) = slurm {
        return Some(format!("slurm {job} {step}"));
    }
    None
}

/// What has to be the same in all ranks, in one number.
pub fn digest_of(settings: &Settings) -> u64 {
    let what = (
        (&settings.memory, &settings.stores, settings.store_limit, settings.threshold),
        (settings.engine, settings.io, settings.fetch, settings.pages, settings.prefault, settings.lock),
        (settings.ranks_at_once, settings.next, settings.on_block, settings.on_run, settings.drop_received),
        (
            &settings.memory_servers,
            settings.replicas,
            &settings.spill,
            settings.parity,
            settings.encrypt,
            settings.zip,
            settings.swap_protocol,
        ),
    );
    digest(&format!("{what:?}"), 1)
}

/// FNV-1a: a name, not a secret.
fn digest(text: &str, seed: u64) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325 ^ seed;
    text.bytes().fold(start, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Comes to the session of a job.
///
/// # Errors
/// Somebody else listens under its name, or nobody answers in time.
pub fn enter(key: &str, digest_of_settings: u64) -> Result<Entrance, Failure> {
    let (user, _) = os::user_and_group();
    // Processes of other namespaces have other numbers.
    let space = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let text = format!("{key} {} {user}", space.display());
    let name = format!("ream-job-{:016x}{:016x}", digest(&text, 0), digest(&text, 0x9e37_79b9_7f4a_7c15));
    let failure = |error: io::Error| {
        Failure::new(format!("session of this job: {}; see --log=debug of its first rank", reason(&error)))
    };
    let address = SocketAddr::from_abstract_name(name).map_err(failure)?;
    let end = Instant::now() + PATIENCE;
    loop {
        match UnixListener::bind_addr(&address) {
            Ok(listener) => return Ok(Entrance::First(listener)),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => return Err(failure(error)),
        }
        match ask(&address, digest_of_settings, user) {
            Ok(joined) => return Ok(joined),
            // Whoever had the name has gone: somebody takes it anew.
            Err(error)
                if Instant::now() < end
                    && !matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::TimedOut) =>
            {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(error) => return Err(failure(error)),
        }
    }
}

fn ask(address: &SocketAddr, digest: u64, user: u32) -> io::Result<Entrance> {
    let mut stream = UnixStream::connect_addr(address)?;
    let timed_out = |error: io::Error| match error.kind() {
        io::ErrorKind::WouldBlock => io::Error::from(io::ErrorKind::TimedOut),
        _ => error,
    };
    if os::peer(&stream)?.1 != user {
        return Err(io::Error::from(io::ErrorKind::PermissionDenied));
    }
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(&digest.to_ne_bytes())?;
    let mut answer = String::new();
    (&mut stream).take(MOST).read_to_string(&mut answer).map_err(timed_out)?;
    match answer.split_once(' ') {
        Some((same, session)) => Ok(Entrance::Joined { session: session.to_owned(), same: same == "same" }),
        None => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(variables: &[(&str, &str)]) -> Option<String> {
        key(&|name| variables.iter().find(|(one, _)| *one == name).map(|(_, text)| OsString::from(text)))
    }

    #[test]
    fn the_launchers_ranks_are_known() {
        assert_eq!(named(&[]), None);
        let pmix = [("PMIX_NAMESPACE", "77"), ("PMIX_RANK", "3"), ("PMIX_SERVER_URI21", "77.0;tcp4://127.0.0.1:5")];
        assert_eq!(named(&pmix).unwrap(), "pmix 77 77.0;tcp4://127.0.0.1:5");
        let inside: Vec<_> = pmix.into_iter().chain([("REAM_SESSION", "/proc/1/fd/3:1-1")]).collect();
        assert_eq!(named(&inside), None);
        let slurm = [("SLURM_JOB_ID", "5"), ("SLURM_STEP_ID", "0"), ("SLURM_PROCID", "1")];
        assert_eq!(named(&slurm).unwrap(), "slurm 5 0");
        assert_eq!(named(&slurm[..2]), None);
        // No socket has this number: the parent is taken for the launcher.
        let parent = std::os::unix::process::parent_id();
        assert!(named(&[("PMI_RANK", "0"), ("PMI_FD", "9999")]).unwrap().starts_with(&format!("pmi {parent} ")));
    }

    #[test]
    fn the_first_one_has_the_name_until_it_goes() {
        let key = format!("test {}", std::process::id());
        let Ok(Entrance::First(listener)) = enter(&key, 1) else { panic!("not the first") };
        let answers = std::thread::spawn(move || {
            // It goes without an answer, as if killed; then another one comes first.
            drop(listener.accept().unwrap());
            drop(listener);
        });
        assert!(matches!(enter(&key, 1), Ok(Entrance::First(_))));
        answers.join().unwrap();
    }
}
