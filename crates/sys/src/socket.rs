//! A client of a local socket that hands out descriptors: connect by an abstract name, see whose socket it is, send a
//! few bytes, receive a number and perhaps a descriptor.

use crate::Errno;
use crate::file::{self, Fd};
use crate::syscall::{call3, call5, call6, number};

const UNIX: usize = 1;
const STREAM: usize = 1;
const SOL_SOCKET: usize = 1;
const SO_PEERCRED: usize = 17;
const SO_RCVTIMEO: usize = 20;
const SO_SNDTIMEO: usize = 21;
const MSG_NOSIGNAL: usize = 0x4000;
const MSG_CMSG_CLOEXEC: usize = 0x4000_0000;
const SCM_RIGHTS: u32 = 1;
/// Longest abstract name, with its zero byte in front.
const NAME: usize = 108;

/// Who listens at the other end, as it was when it began to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Peer {
    /// Process number, in the caller's numbering; 0 if it has none there.
    pub pid: u32,
    /// Effective user.
    pub user: u32,
    /// Effective group.
    pub group: u32,
}

/// A connected socket, closed when dropped.
pub struct Socket(Fd);

impl Socket {
    /// Connects to an abstract name; it and each transfer after it may take so many seconds.
    pub fn connect(name: &[u8], seconds: u64) -> Result<Socket, Errno> {
        // SAFETY: no memory is touched.
        let fd = unsafe { call3(number::__NR_socket, UNIX, STREAM | linux_raw_sys::general::O_CLOEXEC as usize, 0) }?;
        let socket = Socket(Fd(fd as i32));
        let limit = [seconds, 0u64];
        for option in [SO_RCVTIMEO, SO_SNDTIMEO] {
            let place = limit.as_ptr().expose_provenance();
            // SAFETY: the kernel reads a timeval of 16 bytes.
            unsafe { call5(number::__NR_setsockopt, socket.0.arg(), SOL_SOCKET, option, place, size_of_val(&limit)) }?;
        }
        let mut address = [0u8; 2 + NAME];
        let family = (UNIX as u16).to_ne_bytes();
        for (place, byte) in address.iter_mut().zip(family.iter().chain(name)) {
            *place = *byte;
        }
        let length = 2 + name.len().min(NAME);
        // SAFETY: the kernel reads the address, of this length.
        unsafe { call3(number::__NR_connect, socket.0.arg(), address.as_ptr().expose_provenance(), length) }?;
        Ok(socket)
    }

    /// Who listens.
    pub fn peer(&self) -> Result<Peer, Errno> {
        let mut peer = Peer { pid: 0, user: u32::MAX, group: u32::MAX };
        let mut length = size_of::<Peer>() as u32;
        let (place, count) = ((&raw mut peer).expose_provenance(), (&raw mut length).expose_provenance());
        // SAFETY: the kernel writes a struct ucred, which is three words, and its length.
        unsafe { call5(number::__NR_getsockopt, self.0.arg(), SOL_SOCKET, SO_PEERCRED, place, count) }?;
        Ok(peer)
    }

    /// Sends a message.
    pub fn send(&self, bytes: &[u8]) -> Result<(), Errno> {
        let place = bytes.as_ptr().expose_provenance();
        // SAFETY: the kernel reads the bytes.
        let sent = unsafe { call6(number::__NR_sendto, self.0.arg(), place, bytes.len(), MSG_NOSIGNAL, 0, 0) }?;
        if sent == bytes.len() { Ok(()) } else { Err(Errno::IO) }
    }

    /// Receives a number, and the descriptor that came with it.
    pub fn receive(&self) -> Result<(u32, Option<Fd>), Errno> {
        /// struct cmsghdr with one descriptor.
        #[repr(C)]
        struct Control {
            length: usize,
            level: u32,
            kind: u32,
            fd: i32,
            padding: u32,
        }
        /// struct msghdr.
        #[repr(C)]
        struct Header {
            name: usize,
            name_length: usize,
            parts: usize,
            count: usize,
            control: usize,
            control_length: usize,
            flags: usize,
        }
        let mut answer = [0u8; 4];
        let part = [answer.as_mut_ptr().expose_provenance(), answer.len()];
        let mut control = Control { length: 0, level: 0, kind: 0, fd: -1, padding: 0 };
        let mut header = Header {
            name: 0,
            name_length: 0,
            parts: part.as_ptr().expose_provenance(),
            count: 1,
            control: (&raw mut control).expose_provenance(),
            control_length: size_of::<Control>(),
            flags: 0,
        };
        let place = (&raw mut header).expose_provenance();
        // SAFETY: the kernel writes into the answer and into the control message, at most their lengths.
        let got = unsafe { call3(number::__NR_recvmsg, self.0.arg(), place, MSG_CMSG_CLOEXEC) }?;
        let rights = header.control_length >= 20 && control.level == SOL_SOCKET as u32 && control.kind == SCM_RIGHTS;
        let fd = rights.then_some(Fd(control.fd)).filter(|fd| fd.0 >= 0);
        if got != answer.len() {
            fd.into_iter().for_each(file::close);
            return Err(Errno::IO);
        }
        Ok((u32::from_ne_bytes(answer), fd))
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        file::close(self.0);
    }
}
