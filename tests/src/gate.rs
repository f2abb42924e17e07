//! A proxy that can be told to do to connections what bad networks do: be slow, hold everything back, reset, close, or lose
//! one half.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use crate::space::Space;

/// What it does with bytes.
const PASS: u32 = 0;
const HOLD: u32 = 1;
/// From here on: passes them so many milliseconds late.
const SLOW: u32 = 2;

struct Shared {
    mode: AtomicU32,
    /// Whether a bit of each portion from the server is changed.
    lies: AtomicBool,
    /// Both halves of each connection: the client's, and the server's.
    open: Mutex<Vec<(TcpStream, TcpStream)>>,
}

/// The proxy.
pub struct Gate {
    /// Where it listens.
    pub address: String,
    shared: Arc<Shared>,
}

/// Ends a connection at once, with a reset to the other side.
fn abort(stream: &TcpStream) {
    let nowhere = libc::sockaddr { sa_family: libc::AF_UNSPEC as u16, sa_data: [0; 14] };
    // SAFETY: the kernel reads the address, which says that the socket is to be connected to nothing.
    unsafe { libc::connect(stream.as_raw_fd(), &raw const nowhere, size_of_val(&nowhere) as libc::socklen_t) };
}

impl Gate {
    /// Starts one at a host, before a server; it lives as long as the test.
    ///
    /// # Panics
    /// When there is no port.
    pub fn before(space: &Space, server: SocketAddr) -> Gate {
        let shared =
            Arc::new(Shared { mode: AtomicU32::new(PASS), lies: AtomicBool::new(false), open: Mutex::new(Vec::new()) });
        let (tell, told) = mpsc::channel();
        let ours = shared.clone();
        space.thread(move || {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
            tell.send(listener.local_addr().expect("an address").to_string()).expect("the test");
            for client in listener.incoming().flatten() {
                let shared = ours.clone();
                std::thread::spawn(move || connect(client, server, &shared));
            }
        });
        Gate { address: told.recv().expect("an address"), shared }
    }

    /// Passes everything.
    pub fn open(&self) {
        self.shared.mode.store(PASS, SeqCst);
    }

    /// Holds everything back, both ways, and keeps the connections.
    pub fn hold(&self) {
        self.shared.mode.store(HOLD, SeqCst);
    }

    /// Passes everything so much later.
    pub fn slow(&self, milliseconds: u32) {
        self.shared.mode.store(SLOW + milliseconds, SeqCst);
    }

    /// Changes a bit of each portion that comes from the server, or none any more.
    pub fn lie(&self, lies: bool) {
        self.shared.lies.store(lies, SeqCst);
    }

    fn each(&self, mut work: impl FnMut(usize, &(TcpStream, TcpStream))) {
        let mut open = self.shared.open.lock().expect("the connections");
        open.iter().enumerate().for_each(|(number, pair)| work(number, pair));
        open.clear();
    }

    /// Resets all connections.
    pub fn reset(&self) {
        self.each(|_, (client, server)| [client, server].into_iter().for_each(abort));
    }

    /// The server's half of each connection is reset; the client hears nothing more, and nothing of that.
    pub fn halve(&self) {
        self.hold();
        self.each(|_, (_, server)| abort(server));
    }

    /// Closes one of the connections, as a server would.
    pub fn close_one(&self, which: usize) {
        let mut open = self.shared.open.lock().expect("the connections");
        open.retain(|(client, _)| client.peer_addr().is_ok());
        if !open.is_empty() {
            let which = which % open.len();
            let (client, server) = open.swap_remove(which);
            let _ = client.shutdown(Shutdown::Both);
            let _ = server.shutdown(Shutdown::Both);
        }
    }
}

fn connect(client: TcpStream, server: SocketAddr, shared: &Arc<Shared>) {
    let Ok(there) = TcpStream::connect_timeout(&server, Duration::from_secs(1)) else {
        return abort(&client);
    };
    let _ = (client.set_nodelay(true), there.set_nodelay(true));
    let clone = |stream: &TcpStream| stream.try_clone().expect("a descriptor");
    shared.open.lock().expect("the connections").push((clone(&client), clone(&there)));
    let (back, forth) = ((clone(&there), clone(&client)), shared.clone());
    std::thread::spawn(move || pass(back.0, back.1, &forth, true));
    pass(client, there, shared, false);
}

fn pass(mut from: TcpStream, mut to: TcpStream, shared: &Shared, back: bool) {
    let mut bytes = vec![0; 256 << 10];
    loop {
        let got = from.read(&mut bytes);
        while shared.mode.load(SeqCst) == HOLD {
            std::thread::sleep(Duration::from_millis(2));
        }
        if let late @ 1.. = shared.mode.load(SeqCst).saturating_sub(SLOW) {
            std::thread::sleep(Duration::from_millis(late.into()));
        }
        if let (true, true, Ok(got @ 1..)) = (back, shared.lies.load(SeqCst), &got) {
            bytes[got / 2] ^= 16;
        }
        match got {
            Ok(got @ 1..) if to.write_all(&bytes[..got]).is_ok() => {}
            Ok(_) => {
                let _ = to.shutdown(Shutdown::Both);
                return;
            }
            Err(_) => return abort(&to),
        }
    }
}
