//! The agent's door: a socket with an abstract name, where processes of the session that have given up their user's rights
//! get what they may not open any more. Who does not know the session's nonce gets nothing.

use super::summarise;
use crate::keeper::Kept;
use crate::os;
use ream_stats::{Config, Need, Request, SERVER_NAME, Session, Text, socket_name};
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Callers that are served at a time; whoever says nothing is sent away soon.
const MOST: u32 = 64;
const PATIENCE: Duration = Duration::from_secs(5);
const STACK: usize = 256 << 10;

/// What is handed out, beside what the kernel has for everybody.
pub struct Door {
    memory: OwnedFd,
    nonce: u64,
    session: &'static Session,
    config: &'static Config,
    leases: Option<&'static Kept>,
}

/// Opens the door and serves whoever comes.
pub fn open(
    memory: &OwnedFd,
    nonce: u64,
    session: &'static Session,
    config: &'static Config,
    leases: Option<&'static Kept>,
) -> io::Result<()> {
    let name = socket_name(session.door());
    // Without the zero byte, which the name's kind stands for.
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name[1..])?)?;
    let door: &'static Door = Box::leak(Box::new(Door { memory: memory.try_clone()?, nonce, session, config, leases }));
    std::thread::Builder::new().stack_size(STACK).spawn(move || {
        static SERVED: AtomicU32 = AtomicU32::new(0);
        for caller in listener.incoming() {
            let Ok(caller) = caller else {
                // Most probably too many open files; they become fewer.
                std::thread::sleep(Duration::from_millis(10));
                continue;
            };
            if SERVED.fetch_add(1, Ordering::SeqCst) >= MOST {
                SERVED.fetch_sub(1, Ordering::SeqCst);
                continue;
            }
            let served = std::thread::Builder::new().stack_size(STACK).spawn(move || {
                // A caller that goes away has changed its mind.
                let _ = door.serve(caller);
                SERVED.fetch_sub(1, Ordering::SeqCst);
            });
            if served.is_err() {
                SERVED.fetch_sub(1, Ordering::SeqCst);
            }
        }
    })?;
    Ok(())
}

impl Door {
    fn serve(&self, mut caller: UnixStream) -> io::Result<()> {
        caller.set_read_timeout(Some(PATIENCE))?;
        caller.set_write_timeout(Some(PATIENCE))?;
        let mut bytes = [0; Request::BYTES];
        caller.read_exact(&mut bytes)?;
        let Some(request) = Request::from_bytes(&bytes).filter(|request| request.nonce == self.nonce) else {
            return Ok(());
        };
        if request.need == Need::Server {
            return self.add_server(caller);
        }
        match self.get(request.need, &caller) {
            Ok(file) => os::answer(&caller, 0, file.as_ref()),
            Err(error) => os::answer(&caller, error.raw_os_error().unwrap_or(libc::EIO), None),
        }
    }

    /// Adds the memory server whose name follows, and says what came of it: a number, 0 for success, and a line.
    fn add_server(&self, mut caller: UnixStream) -> io::Result<()> {
        let mut name = [0; SERVER_NAME];
        caller.read_exact(&mut name)?;
        // It says nothing more: there is something to read when it has gone.
        caller.set_nonblocking(true)?;
        let stays = || {
            let answer = (&caller).read(&mut [0]);
            answer.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
        };
        let name = Text::from_bytes(name);
        let outcome = match (std::str::from_utf8(name.as_bytes()), self.leases) {
            (_, None) => {
                Err("its session does not page to memory servers; only one that does can be given more".to_owned())
            }
            (Ok(name), Some(leases)) if !name.is_empty() => leases.add(name, stays).map_err(|failure| failure.text),
            _ => Err("not tcp://HOST:PORT".to_owned()),
        };
        let (number, line) = match outcome {
            Ok(line) => (0, line),
            Err(line) => (libc::EINVAL, line),
        };
        caller.write_all(&[&number.to_ne_bytes(), line.as_bytes()].concat())
    }

    fn get(&self, need: Need, caller: &UnixStream) -> io::Result<Option<OwnedFd>> {
        let file = match need {
            Need::Session => self.memory.try_clone()?,
            Need::Userfaultfd => {
                let mut options = std::fs::OpenOptions::new();
                options.read(true).write(true).custom_flags(libc::O_CLOEXEC).open("/dev/userfaultfd")?.into()
            }
            Need::Store => store(self.config.file_directory().as_bytes())?,
            Need::Pagemap => of_caller(caller, "pagemap", |_| true)?,
            Need::Memory => of_caller(caller, "mem", |rights| rights.user == 0 || rights.capabilities == 0)?,
            Need::Summary => {
                summarise(self.session, self.config);
                return Ok(None);
            }
            Need::Server => return Err(io::Error::from_raw_os_error(libc::EINVAL)),
        };
        Ok(Some(file))
    }
}

/// A store file in the directory for the session's files. Its user may open it again through /proc, where it is not to be seen by
/// anybody who may not look into the process.
fn store(directory: &[u8]) -> io::Result<OwnedFd> {
    let directory = CString::new(directory)?;
    let wrong = |error: ream_sys::Errno| io::Error::from_raw_os_error(error.0.into());
    let store = ream_sys::file::create_store(&directory).map_err(wrong)?;
    ream_sys::file::open_to_all(store.fd);
    #[allow(unsafe_code)]
    // SAFETY: just made, owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(store.fd.0) })
}

/// A file in the caller's /proc directory, if what it is by then may have that.
fn of_caller(caller: &UnixStream, name: &str, may: impl Fn(Rights) -> bool) -> io::Result<OwnedFd> {
    let refused = || io::Error::from_raw_os_error(libc::EACCES);
    let (pid, user) = os::peer(caller)?;
    if pid == 0 {
        // It is in a namespace that does not show here.
        return Err(refused());
    }
    let file = File::open(format!("/proc/{pid}/{name}"))?;
    // Looked at afterwards: the file is that of the memory which the process had when it was opened. Had it executed a
    // program with more rights before, it has them now.
    let rights = Rights::of(pid).filter(|rights| rights.user == user && may(*rights));
    // Its number may be another's by now, if it has handed the socket on and ended.
    let same = os::peer_process(caller).map_or(true, |process| !os::has_ended(&process));
    if same && rights.is_some() { Ok(file.into()) } else { Err(refused()) }
}

/// What a process may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Rights {
    /// The user that counts.
    user: u32,
    /// Capabilities that it has or can take.
    capabilities: u64,
}

impl Rights {
    fn of(pid: u32) -> Option<Rights> {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        Some(Rights {
            user: field("Uid:")?.split_whitespace().nth(1)?.parse().ok()?,
            capabilities: u64::from_str_radix(field("CapPrm:")?, 16).ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whose_process_it_is() {
        let (user, _) = os::user_and_group();
        let rights = Rights::of(std::process::id()).expect("our own rights");
        assert_eq!(rights.user, user);
        assert!(user == 0 || rights.capabilities == 0);
        assert_eq!(Rights::of(u32::MAX), None);
    }

    #[test]
    fn the_caller_gets_its_own_files() {
        let (one, other) = UnixStream::pair().expect("sockets");
        assert_eq!(os::peer(&one).expect("a peer").0, std::process::id());
        assert!(of_caller(&one, "pagemap", |_| true).is_ok());
        assert!(of_caller(&one, "mem", |_| false).is_err());
        let file = File::open("/dev/null").expect("a file").into();
        os::answer(&one, 0, Some(&file)).expect("an answer");
        let mut bytes = [1; 4];
        (&other).read_exact(&mut bytes).expect("four bytes");
        assert_eq!(bytes, [0; 4]);
    }
}
