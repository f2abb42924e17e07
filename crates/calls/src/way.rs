//! Whether a call with more memory than one part may be done in several: what its descriptor stands for decides that.

use crate::list;
use crate::loan::{MOST, fits, value_at};
use crate::next::{errno, set_errno};

/// How a call is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// As one call, with everything resident: a message, a record, what is appended to a file.
    Whole,
    /// One part, and that is the answer: a reader of a stream is content with what there is.
    Once,
    /// Part after part.
    On,
    /// Part after part, each at a place of its own in the file.
    Placed,
}

const APPEND: i32 = 0x400;
#[cfg(target_arch = "x86_64")]
const PACKETS: i32 = 0x4000;
#[cfg(target_arch = "aarch64")]
const PACKETS: i32 = 0x1_0000;

/// How so many bytes are read from a descriptor, or written to it. errno stays as it is.
pub fn of(fd: usize, bytes: usize, writing: bool) -> Way {
    if bytes <= MOST {
        return Way::Whole;
    }
    let before = errno();
    let way = look(fd, bytes, writing);
    set_errno(before);
    way
}

/// How so many bytes are sent by a socket, or received with `all` until they are all there. errno stays as it is.
pub fn of_socket(fd: usize, bytes: usize, all: bool) -> Way {
    if bytes <= MOST {
        return Way::Whole;
    }
    let before = errno();
    let way = if is_byte_stream(fd) { stream(all) } else { Way::Whole };
    set_errno(before);
    way
}

/// A stream is written part after part, as the kernel itself does when there is no room.
fn stream(all: bool) -> Way {
    if all { Way::On } else { Way::Once }
}

fn look(fd: usize, bytes: usize, writing: bool) -> Way {
    const KIND: u32 = 0o170_000;
    const PIPE: u32 = 0o010_000;
    const CHARACTERS: u32 = 0o020_000;
    const BLOCKS: u32 = 0o060_000;
    const REGULAR: u32 = 0o100_000;
    const SOCKET: u32 = 0o140_000;
    let Some((mode, device)) = mode_and_device(fd) else { return Way::Whole };
    match mode & KIND {
        kind @ (REGULAR | BLOCKS) => {
            let one = writing && flags(fd) & APPEND != 0 || kind == REGULAR && !keeps_data(fd);
            if !one {
                Way::Placed
            } else if fits(bytes) {
                Way::Whole
            } else {
                // Better torn than out of memory.
                Way::On
            }
        }
        PIPE if flags(fd) & PACKETS != 0 => Way::Whole,
        PIPE => stream(writing),
        SOCKET if is_byte_stream(fd) => stream(writing),
        CHARACTERS if is_endless(device) => Way::On,
        // Messages of sockets, records of devices, events.
        _ => Way::Whole,
    }
}

/// Of null, zero, full, random and urandom, which have all that one asks for.
fn is_endless([major, minor]: [u32; 2]) -> bool {
    major == 1 && (3..=9).contains(&minor)
}

fn mode_and_device(fd: usize) -> Option<(u32, [u32; 2])> {
    // AT_EMPTY_PATH, and no question to a file server; STATX_TYPE.
    const ITSELF: usize = 0x1000 | 0x4000;
    const TYPE: usize = 1;
    let mut found = [0u64; 32];
    let place = found.as_mut_ptr().expose_provenance();
    // SAFETY: an empty string, and room for a `struct statx`, of which the fields are at these places.
    unsafe {
        let result = list::statx(fd, c"".as_ptr().expose_provenance(), ITSELF, TYPE, place);
        (result as i32 == 0).then(|| (value_at::<u16>(place + 28).into(), value_at(place + 128)))
    }
}

fn flags(fd: usize) -> i32 {
    const GET: usize = 3;
    // SAFETY: only asks.
    unsafe { list::fcntl(fd, GET, 0) as i32 }
}

/// Whether a regular file is what it seems: not one that the kernel makes up, where a write is a command. Those are on file
/// systems without room.
fn keeps_data(fd: usize) -> bool {
    const IN_MEMORY: u64 = 0x0102_1994;
    let mut found = [0u64; 16];
    let place = found.as_mut_ptr().expose_provenance();
    // SAFETY: room for a `struct statfs`, which begins with kind, block size and blocks.
    unsafe {
        let result = list::fstatfs64(fd, place);
        let [kind, _, blocks] = value_at::<[u64; 3]>(place);
        result as i32 == 0 && (blocks > 0 || kind == IN_MEMORY)
    }
}

/// Whether a socket carries bytes without boundaries.
fn is_byte_stream(fd: usize) -> bool {
    const TYPE: usize = 3;
    const PROTOCOL: usize = 38;
    const STREAM: i32 = 1;
    /// Has messages on such a socket, too.
    const SCTP: i32 = 132;
    option(fd, TYPE) == Some(STREAM) && option(fd, PROTOCOL) != Some(SCTP)
}

fn option(fd: usize, name: usize) -> Option<i32> {
    const SOCKET: usize = 1;
    let mut value = 0i32;
    let mut bytes = size_of::<i32>() as u32;
    let (place, length) = ((&raw mut value).expose_provenance(), (&raw mut bytes).expose_provenance());
    // SAFETY: an int and its size.
    unsafe {
        let result = crate::sockets::getsockopt(fd, SOCKET, name, place, length);
        (result as i32 == 0).then(|| value_at(place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{File, OpenOptions};
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
    use std::os::unix::net::{UnixDatagram, UnixStream};

    const LARGE: usize = 3 * MOST;

    /// Reading and writing.
    fn ways(file: &impl AsRawFd) -> [Way; 2] {
        let fd = file.as_raw_fd() as usize;
        [of(fd, LARGE, false), of(fd, LARGE, true)]
    }

    #[test]
    fn files_have_places_unless_they_are_appended_to() {
        let path = std::env::temp_dir().join(format!("ream-way-{}", std::process::id()));
        let file = File::create(&path).unwrap();
        let end = OpenOptions::new().append(true).open(&path).unwrap();
        assert_eq!(ways(&file), [Way::Placed; 2]);
        assert_eq!(ways(&end), [Way::Placed, Way::Whole]);
        assert_eq!(of(end.as_raw_fd() as usize, 1 << 30, true), Way::On, "more than fits");
        assert_eq!(of(file.as_raw_fd() as usize, MOST, true), Way::Whole, "no more than a part");
        std::fs::remove_file(path).unwrap();
        assert_eq!(ways(&File::open("/proc/self/maps").unwrap()), [Way::Whole; 2]);
    }

    #[test]
    fn streams_may_be_divided_and_messages_not() {
        let (reader, writer) = std::io::pipe().unwrap();
        assert_eq!((ways(&reader)[0], ways(&writer)[1]), (Way::Once, Way::On));
        let (stream, _other) = UnixStream::pair().unwrap();
        assert_eq!(ways(&stream), [Way::Once, Way::On]);
        let fd = stream.as_raw_fd() as usize;
        assert_eq!([of_socket(fd, LARGE, false), of_socket(fd, LARGE, true)], [Way::Once, Way::On]);
        let (message, _other) = UnixDatagram::pair().unwrap();
        assert_eq!(ways(&message), [Way::Whole; 2]);
        assert_eq!(of_socket(message.as_raw_fd() as usize, LARGE, true), Way::Whole);
        unsafe extern "C" {
            fn pipe2(ends: *mut [i32; 2], flags: i32) -> i32;
        }
        let mut ends = [0; 2];
        // SAFETY: room for two descriptors, which are nobody else's.
        let [_other, packets] = unsafe {
            assert_eq!(pipe2(&raw mut ends, PACKETS), 0);
            ends.map(|fd| OwnedFd::from_raw_fd(fd))
        };
        assert_eq!(ways(&packets), [Way::Whole; 2]);
    }

    #[test]
    fn of_devices_only_the_endless_are_divided() {
        assert_eq!(ways(&File::open("/dev/zero").unwrap()), [Way::On; 2]);
        assert!(is_endless([1, 9]) && !is_endless([1, 11]) && !is_endless([5, 3]));
        set_errno(7);
        assert_eq!((of(usize::MAX, LARGE, true), errno()), (Way::Whole, 7), "no descriptor");
    }
}
