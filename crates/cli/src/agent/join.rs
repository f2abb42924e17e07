//! Ranks of a job that come to the session of the first one. Whoever is let in has its entry in the table before it is
//! answered: the session does not end before it has come.

use crate::os;
use ream_stats::Session;
use std::io::{self, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Mutex;
use std::time::Duration;

/// How long one that has connected may take to say what it wants.
const PATIENCE: Duration = Duration::from_secs(5);

/// Whether ranks are still let in.
#[derive(Clone, Copy)]
pub struct Doors(&'static Mutex<bool>);

impl Doors {
    /// For a session that nobody joins so.
    pub fn closed() -> Doors {
        Doors(Box::leak(Box::new(Mutex::new(false))))
    }

    /// Lets ranks in that were given the same options, as `digest` says, or others. `session` is what they are told.
    pub fn open(listener: UnixListener, session: &'static Session, address: String, digest: u64) -> io::Result<Doors> {
        let doors = Doors(Box::leak(Box::new(Mutex::new(true))));
        std::thread::Builder::new().stack_size(64 << 10).spawn(move || {
            for caller in listener.incoming() {
                match caller {
                    // Whoever goes away in between has changed its mind.
                    Ok(caller) => drop(doors.let_in(caller, session, &address, digest)),
                    Err(_) => std::thread::sleep(Duration::from_millis(10)),
                }
            }
        })?;
        Ok(doors)
    }

    /// Closes them if nobody is there; false when somebody is.
    pub fn close(self, nobody: impl FnOnce() -> bool) -> bool {
        let mut open = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let close = nobody();
        *open &= !close;
        close
    }

    fn let_in(self, mut caller: UnixStream, session: &Session, address: &str, digest: u64) -> io::Result<()> {
        let (pid, user) = os::peer(&caller)?;
        if user != os::user_and_group().0 || pid == 0 {
            return Ok(());
        }
        caller.set_read_timeout(Some(PATIENCE))?;
        caller.set_write_timeout(Some(PATIENCE))?;
        let mut theirs = [0; 8];
        caller.read_exact(&mut theirs)?;
        let who = super::find::here(pid).ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))?;
        let open = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        // Where the table is full it runs without Ream, and says so itself.
        if *open {
            if let Some(process) = session.claim(who, os::now_ms()).and_then(|index| session.process(index)) {
                // The program that it becomes is counted.
                process.counters.processes.take();
            }
            session.ring();
            os::wake(session.bell());
            let same = if u64::from_ne_bytes(theirs) == digest { "same" } else { "other" };
            caller.write_all(format!("{same} {address}").as_bytes())?;
        }
        Ok(())
    }
}
