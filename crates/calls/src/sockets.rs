//! Sockets: streams are sent and received in parts, messages as they are.

use crate::input::{bytes_of, call, lent, transfer, vectors};
use crate::list::{count, wrapped};
use crate::loan::{IOV_MAX, Loan, value_at};
use crate::way::{self, Way};

/// Bytes at an address, of which the number lies at another.
///
/// # Safety
/// Null, or the address of a length.
unsafe fn length_at(address: usize) -> usize {
    if address == 0 {
        return 0;
    }
    // SAFETY: the caller's promise.
    unsafe { count(value_at::<u32>(address) as usize) }
}

/// MSG_WAITALL: not before all is there.
const ALL: usize = 0x100;

/// How so much is sent. Flags that ask for something of their own (out of band, fast open, no copies) are for one call.
fn sending(fd: usize, bytes: usize, flags: usize) -> Way {
    // MSG_DONTROUTE, MSG_DONTWAIT, MSG_CONFIRM, MSG_NOSIGNAL, MSG_MORE.
    const PLAIN: usize = 0x4 | 0x40 | 0x800 | 0x4000 | 0x8000;
    if flags & !PLAIN != 0 { Way::Whole } else { way::of_socket(fd, bytes, true) }
}

/// How so much is received: in one call where it is only looked at, or cut off.
fn receiving(fd: usize, bytes: usize, flags: usize) -> Way {
    // MSG_DONTWAIT, MSG_WAITALL, MSG_NOSIGNAL, MSG_CMSG_CLOEXEC.
    const PLAIN: usize = 0x40 | ALL | 0x4000 | 0x4000_0000;
    if flags & !PLAIN != 0 { Way::Whole } else { way::of_socket(fd, bytes, flags & ALL != 0) }
}

/// With a name beside it, it is one call: as if with a flag of its own.
fn named(flags: usize, name: usize) -> usize {
    if name == 0 { flags & 0xffff_ffff } else { usize::MAX }
}

/// Calls with a message: with that of the program where it is one, else with parts of it, which have no name and nothing beside
/// them. Returns what was done, and the flags of the last part.
///
/// # Safety
/// The address of a message.
unsafe fn in_messages(
    fd: usize,
    message: usize,
    way: impl FnOnce(usize) -> Way,
    mut call: impl FnMut(usize) -> isize,
) -> (isize, Option<i32>) {
    const FLAGS: usize = 48;
    // SAFETY: the caller's promise: name, its length, vectors, their number, control data, their length.
    unsafe {
        let [name, _, parts, number, control, control_bytes] = value_at::<[usize; 6]>(message);
        let plain = name == 0 && (control == 0 || control_bytes == 0) && number <= IOV_MAX;
        let way = if plain { way(bytes_of([parts, number])) } else { Way::Whole };
        if way == Way::Whole {
            let _loan = Loan::new().message(message);
            return (call(message), None);
        }
        let mut flags = 0;
        let done = vectors(
            fd,
            [parts, number],
            None,
            |_| way,
            |group, used, _| {
                let header = [0, 0, group, used, 0, 0, 0];
                lent(header.as_ptr().expose_provenance(), size_of_val(&header), |header| {
                    let done = call(header);
                    flags = value_at(header + FLAGS);
                    done
                })
            },
        );
        (done, Some(flags))
    }
}

wrapped! {
    raw [sendmsg](fd, message, flags) { |next| {
        // SAFETY: the program's message.
        unsafe {
            in_messages(fd, message, |bytes| sending(fd, bytes, named(flags, 0)), |part| call!(next, fd, part, flags)).0
        }
    } };
    raw [recvmsg](fd, message, flags) { |next| {
        // SAFETY: the program's message, of which the flags are for us to fill in.
        unsafe {
            let way = |bytes: usize| receiving(fd, bytes, named(flags, 0));
            let (done, said) = in_messages(fd, message, way, |part| call!(next, fd, part, flags));
            if let Some(said) = said.filter(|_| done >= 0) {
                core::ptr::with_exposed_provenance_mut::<i32>(message + 48).write_unaligned(said);
            }
            done
        }
    } };
    raw [send](fd, buffer, bytes, flags) { |next| {
        transfer(fd, [buffer, bytes], None, |bytes| sending(fd, bytes, named(flags, 0)), |from, part, _| {
            call!(next, fd, from, part, flags)
        })
    } };
    raw [__send](fd, buffer, bytes, flags) { |_next| {
        // SAFETY: our own, with the program's buffer.
        unsafe { send(fd, buffer, bytes, flags) }
    } };
    raw [sendto](fd, buffer, bytes, flags, to, to_bytes) { |next| {
        let _loan = Loan::new().bytes(to, count(to_bytes));
        transfer(fd, [buffer, bytes], None, |bytes| sending(fd, bytes, named(flags, to)), |from, part, _| {
            call!(next, fd, from, part, flags, to, to_bytes)
        })
    } };
    raw [recv](fd, buffer, bytes, flags) { |next| {
        transfer(fd, [buffer, bytes], None, |bytes| receiving(fd, bytes, named(flags, 0)), |to, part, _| {
            call!(next, fd, to, part, flags)
        })
    } };
    raw [recvfrom](fd, buffer, bytes, flags, from, from_bytes) { |next| {
        // SAFETY: the program passes what the manual asks for.
        let _loan = Loan::new().page(from_bytes).bytes(from, unsafe { length_at(from_bytes) });
        transfer(fd, [buffer, bytes], None, |bytes| receiving(fd, bytes, named(flags, from)), |to, part, _| {
            call!(next, fd, to, part, flags, from, from_bytes)
        })
    } };
    // More than there is room for ends the program.
    raw [__recv_chk](fd, buffer, bytes, room, flags) { |next| {
        // SAFETY: our own, with the program's buffer.
        if bytes > room { call!(next, fd, buffer, bytes, room, flags) } else { unsafe { recv(fd, buffer, bytes, flags) } }
    } };
    raw [__recvfrom_chk](fd, buffer, bytes, room, flags, from, from_bytes) { |next| {
        if bytes > room {
            call!(next, fd, buffer, bytes, room, flags, from, from_bytes)
        } else {
            // SAFETY: our own, with the program's memory.
            unsafe { recvfrom(fd, buffer, bytes, flags, from, from_bytes) }
        }
    } };
    plain [sendmmsg](a, b, c, d) [messages(b, count(c))];
    plain [recvmmsg](a, b, c, d, e) [messages(b, count(c)) page(e)];
    plain [bind connect __connect](a, b, c) [bytes(b, count(c))];
    plain [accept getsockname getpeername](a, b, c) [page(c) bytes(b, length_at(c))];
    plain [accept4](a, b, c, d) [page(c) bytes(b, length_at(c))];
    plain [getsockopt](a, b, c, d, e) [page(e) bytes(d, length_at(e))];
    plain [socketpair](a, b, c, d) [page(d)];
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd as _;
    use std::os::unix::net::UnixStream;

    #[test]
    fn only_plain_calls_on_streams_are_divided() {
        let (socket, _other) = UnixStream::pair().unwrap();
        let (fd, large) = (socket.as_raw_fd() as usize, 2 << 20);
        const PEEK: usize = 2;
        assert_eq!(sending(fd, large, 0x4000), Way::On);
        assert_eq!(sending(fd, large, 1), Way::Whole, "out of band");
        assert_eq!(receiving(fd, large, 0), Way::Once);
        assert_eq!(receiving(fd, large, ALL), Way::On);
        assert_eq!(receiving(fd, large, ALL | PEEK), Way::Whole);
        assert_eq!(receiving(fd, large, named(0, 0x1000)), Way::Whole);
        assert_eq!(named(0xffff_ffff_0000_0040, 0), 0x40);
    }

    #[test]
    fn all_of_it_arrives() {
        let (here, there) = UnixStream::pair().unwrap();
        let from: Vec<u8> = (0..5 << 20).map(|index| (index / 777) as u8).collect();
        let mut to = vec![0u8; from.len()];
        std::thread::scope(|scope| {
            let from = &from;
            scope.spawn(move || {
                // SAFETY: as large as is said.
                let sent = unsafe { send(here.as_raw_fd() as usize, from.as_ptr().expose_provenance(), from.len(), 0) };
                assert_eq!(sent as usize, from.len());
            });
            let place = to.as_mut_ptr().expose_provenance();
            // SAFETY: as large as is said.
            let got = unsafe { recv(there.as_raw_fd() as usize, place, to.len(), ALL) };
            assert_eq!(got as usize, from.len());
        });
        assert!(from == to);
    }

    #[test]
    fn messages_of_streams_are_divided() {
        let (here, there) = UnixStream::pair().unwrap();
        let from: Vec<u8> = (0..3 << 20).map(|index| (index / 777) as u8).collect();
        let mut to = vec![0u8; from.len()];
        let message = |parts: &[[usize; 2]]| [0, 0, parts.as_ptr().expose_provenance(), parts.len(), 0, 0, usize::MAX];
        std::thread::scope(|scope| {
            let from = &from;
            scope.spawn(move || {
                let start = from.as_ptr().expose_provenance();
                let parts = [[start, 1000], [start + 1000, from.len() - 1000]];
                let message = message(&parts);
                // SAFETY: as large as is said.
                let sent = unsafe { sendmsg(here.as_raw_fd() as usize, message.as_ptr().expose_provenance(), 0) };
                assert_eq!(sent as usize, from.len());
            });
            let start = to.as_mut_ptr().expose_provenance();
            let parts = [[start, to.len() - 1000], [start + to.len() - 1000, 1000]];
            let mut message = message(&parts);
            let place = message.as_mut_ptr().expose_provenance();
            // SAFETY: as large as is said.
            let got = unsafe { recvmsg(there.as_raw_fd() as usize, place, ALL) };
            assert_eq!(got as usize, from.len());
            // SAFETY: written by the call.
            assert_eq!(unsafe { value_at::<i32>(place + 48) }, 0);
        });
        assert!(from == to);
    }
}
