//! userfaultfd: opening it in the best way allowed, and its calls. Structures and numbers are written out here and
//! checked at compile time, because the headers of older systems do not know the newer ones.

use crate::Errno;
use crate::file::{self, Fd};
use crate::syscall::{call1, call3, number};
use crate::user::{Ask, Closed};

/// How a userfaultfd was obtained, which decides whose faults it can answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// The system call, with the right to the kernel's own faults as well.
    Full,
    /// /dev/userfaultfd, with the same right.
    Device,
    /// Only faults of user code; the kernel's own accesses to absent pages fail with EFAULT.
    UserOnly,
}

/// Feature bits of the handshake.
pub mod feature {
    /// Faults tell whether they are write-protection faults.
    pub const WRITE_PROTECT: u64 = 1;
    /// mremap is reported, and registration moves along.
    pub const EVENT_REMAP: u64 = 1 << 2;
    /// Discarding (MADV_DONTNEED) is reported. A pager must not have it: whoever discards waits for it.
    pub const EVENT_REMOVE: u64 = 1 << 3;
    /// munmap is reported.
    pub const EVENT_UNMAP: u64 = 1 << 6;
    /// Faults tell the thread.
    pub const THREAD_ID: u64 = 1 << 8;
    /// Pages can be moved.
    pub const MOVE: u64 = 1 << 16;
}

/// Modes of registration.
pub mod mode {
    /// Touches of absent pages.
    pub const MISSING: u64 = 1;
    /// Writes to protected pages.
    pub const WRITE_PROTECT: u64 = 2;
}

const fn ioctl(direction: u32, number: u32, bytes: usize) -> u32 {
    direction << 30 | (bytes as u32) << 16 | 0xaa << 8 | number
}

const API: u32 = ioctl(3, 0x3f, size_of::<[u64; 3]>());
const REGISTER: u32 = ioctl(3, 0, size_of::<[u64; 4]>());
const UNREGISTER: u32 = ioctl(2, 1, size_of::<[u64; 2]>());
const WAKE: u32 = ioctl(2, 2, size_of::<[u64; 2]>());
const COPY: u32 = ioctl(3, 3, size_of::<[u64; 5]>());
const ZEROPAGE: u32 = ioctl(3, 4, size_of::<[u64; 4]>());
const MOVE: u32 = ioctl(3, 5, size_of::<[u64; 5]>());
const WRITEPROTECT: u32 = ioctl(3, 6, size_of::<[u64; 3]>());
const OPEN_DEVICE: u32 = 0xaa00;

const _: () = {
    use linux_raw_sys::general as raw;
    use linux_raw_sys::ioctl as known;
    assert!(API == known::UFFDIO_API && REGISTER == known::UFFDIO_REGISTER && UNREGISTER == known::UFFDIO_UNREGISTER);
    assert!(WAKE == known::UFFDIO_WAKE && COPY == known::UFFDIO_COPY && ZEROPAGE == known::UFFDIO_ZEROPAGE);
    assert!(WRITEPROTECT == known::UFFDIO_WRITEPROTECT && MOVE == 0xc028_aa05);
    assert!(size_of::<raw::uffd_msg>() == size_of::<Message>());
    assert!(size_of::<raw::uffdio_move>() == size_of::<[u64; 5]>());
    assert!(size_of::<raw::uffdio_writeprotect>() == size_of::<[u64; 3]>());
};

/// A message as the kernel writes it.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message {
    kind: u8,
    unused: [u8; 7],
    words: [u64; 3],
}

// SAFETY: integers.
unsafe impl crate::memory::Zeroable for Message {}

/// What a message says; addresses in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum News {
    /// A thread sleeps on an absent page.
    Missing {
        /// Somewhere in the page.
        address: u64,
        /// Whether it wanted to write.
        write: bool,
        /// Thread id, 0 when unknown.
        thread: u32,
    },
    /// A thread sleeps on a protected page.
    Protected {
        /// Somewhere in the page.
        address: u64,
    },
    /// A range was unmapped.
    Unmapped {
        /// First byte.
        start: u64,
        /// Byte after the last.
        end: u64,
    },
    /// A range is about to be discarded.
    Removed {
        /// First byte.
        start: u64,
        /// Byte after the last.
        end: u64,
    },
    /// A mapping was moved.
    Remapped {
        /// First byte before.
        from: u64,
        /// First byte now.
        to: u64,
        /// Bytes that moved.
        bytes: u64,
    },
    /// Something that was not asked for.
    Other,
}

impl Message {
    /// A message of no meaning.
    pub const EMPTY: Message = Message { kind: 0, unused: [0; 7], words: [0; 3] };

    /// What it says.
    pub fn news(&self) -> News {
        let [a, b, c] = self.words;
        match self.kind {
            // Page fault: flags, address, thread id.
            0x12 if a & 2 != 0 => News::Protected { address: b },
            0x12 => News::Missing { address: b, write: a & 1 != 0, thread: c as u32 },
            0x14 => News::Remapped { from: a, to: b, bytes: c },
            0x15 => News::Removed { start: a, end: b },
            0x16 => News::Unmapped { start: a, end: b },
            _ => News::Other,
        }
    }
}

/// Outcome of a move: bytes moved, counted from the first, and what stopped it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Bytes done.
    pub bytes: usize,
    /// `Ok` when all were.
    pub result: Result<(), Errno>,
}

/// A userfaultfd.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Uffd {
    /// Its descriptor, nonblocking and closed on exec.
    pub fd: Fd,
    /// How it was obtained.
    pub access: Access,
    /// The features that it has.
    pub features: u64,
}

const FLAGS: usize = (linux_raw_sys::general::O_CLOEXEC | linux_raw_sys::general::O_NONBLOCK) as usize;

/// Makes one through the device, which has asked nobody for rights since it was opened.
fn made_by(device: Fd) -> Result<Fd, Errno> {
    // SAFETY: no memory is touched.
    unsafe { call3(number::__NR_ioctl, device.arg(), OPEN_DEVICE as usize, FLAGS) }.map(|fd| Fd(fd as i32))
}

fn open_as(access: Access) -> Result<Fd, Errno> {
    const USER_MODE_ONLY: usize = 1;
    // SAFETY: no memory is touched.
    let fd = unsafe {
        match access {
            Access::Full => call1(number::__NR_userfaultfd, FLAGS),
            Access::UserOnly => call1(number::__NR_userfaultfd, FLAGS | USER_MODE_ONLY),
            Access::Device => {
                let device = file::open(c"/dev/userfaultfd", file::flags::READ_WRITE, 0)?;
                let fd = made_by(device);
                file::close(device);
                return fd;
            }
        }
    }?;
    Ok(Fd(fd as i32))
}

impl Uffd {
    /// Opens one in the best way allowed, with those of `wanted` features that the kernel has; the device, where it may
    /// not be opened, is asked for. With `user_only` the better ways are not tried.
    pub fn open(wanted: u64, user_only: bool, ask: Ask) -> Result<Uffd, Errno> {
        if user_only {
            return Uffd::open_with(Access::UserOnly, wanted);
        }
        let asked = |_| {
            let device = ask(Closed::Userfaultfd)?;
            let uffd = Uffd::make(Access::Device, wanted, || made_by(device));
            file::close(device);
            uffd
        };
        Uffd::open_with(Access::Full, wanted).or_else(|first| {
            let device = Uffd::open_with(Access::Device, wanted).or_else(asked);
            device.or_else(|_: Errno| Uffd::open_with(Access::UserOnly, wanted)).map_err(|_| first)
        })
    }

    /// Opens one in this way only.
    pub fn open_with(access: Access, wanted: u64) -> Result<Uffd, Errno> {
        Uffd::make(access, wanted, || open_as(access))
    }

    fn make(access: Access, wanted: u64, open: impl Fn() -> Result<Fd, Errno>) -> Result<Uffd, Errno> {
        // A handshake is for good, so the features are asked of a first descriptor and set on a second.
        let probe = Uffd { fd: open()?, access, features: 0 };
        let known = probe.handshake(0);
        file::close(probe.fd);
        let features = known? & wanted;
        let uffd = Uffd { fd: open()?, access, features };
        match uffd.handshake(features) {
            Ok(_) => Ok(uffd),
            Err(error) => {
                file::close(uffd.fd);
                Err(error)
            }
        }
    }

    /// Whether it has all of these features.
    pub fn has(&self, features: u64) -> bool {
        self.features & features == features
    }

    fn handshake(&self, features: u64) -> Result<u64, Errno> {
        let mut argument = [0xaa, features, 0];
        self.control(API, &mut argument)?;
        Ok(argument[1])
    }

    fn control<const N: usize>(&self, request: u32, argument: &mut [u64; N]) -> Result<usize, Errno> {
        let place = argument.as_mut_ptr().expose_provenance();
        // SAFETY: each request's structure has the size that its number says (checked above), which is N words. What
        // the calls do to memory is the public functions' to promise.
        unsafe { call3(number::__NR_ioctl, self.fd.arg(), request as usize, place) }
    }

    /// Registers a range; `modes` from [`mode`].
    pub fn register(&self, address: usize, bytes: usize, modes: u64) -> Result<(), Errno> {
        self.control(REGISTER, &mut [address as u64, bytes as u64, modes, 0]).map(|_| ())
    }

    /// Ends registration and wakes the range's sleepers.
    pub fn unregister(&self, address: usize, bytes: usize) -> Result<(), Errno> {
        let ended = self.control(UNREGISTER, &mut [address as u64, bytes as u64]).map(|_| ());
        // The kernel wakes before it keeps faults under the lock of a single mapping out (Linux 6.4 and later): one that
        // comes between would sleep for ever.
        self.wake(address, bytes);
        ended
    }

    /// Wakes those who sleep on faults in the range.
    pub fn wake(&self, address: usize, bytes: usize) {
        let _ = self.control(WAKE, &mut [address as u64, bytes as u64]);
    }

    /// Moves mapped pages to absent places, atomically page by page. With `wake`, whoever sleeps on those moved is
    /// woken.
    ///
    /// # Safety
    /// The pages leave `source`: nobody may rely on finding them there.
    pub unsafe fn move_pages(&self, destination: usize, source: usize, bytes: usize, wake: bool) -> Progress {
        const DONTWAKE: u64 = 1;
        let mode = if wake { 0 } else { DONTWAKE };
        let mut argument = [destination as u64, source as u64, bytes as u64, mode, 0];
        let result = self.control(MOVE, &mut argument);
        match result {
            Ok(_) => Progress { bytes, result: Ok(()) },
            // The count is negative when the kernel failed at once.
            Err(error) => Progress { bytes: (argument[4] as i64).max(0) as usize, result: Err(error) },
        }
    }

    /// Copies bytes into absent pages, and wakes whoever sleeps on those copied; with `protect` they appear write-protected.
    ///
    /// # Safety
    /// `source` is readable, and not itself served by this userfaultfd.
    pub unsafe fn copy(&self, destination: usize, source: usize, bytes: usize, protect: bool) -> Progress {
        const PROTECT: u64 = 2;
        let mode = if protect { PROTECT } else { 0 };
        let mut argument = [destination as u64, source as u64, bytes as u64, mode, 0];
        let result = self.control(COPY, &mut argument);
        match result {
            Ok(_) => Progress { bytes, result: Ok(()) },
            Err(error) => Progress { bytes: (argument[4] as i64).max(0) as usize, result: Err(error) },
        }
    }

    /// Maps zeros at absent pages. Wakes nobody.
    pub fn zero(&self, address: usize, bytes: usize) -> Result<(), Errno> {
        const DONTWAKE: u64 = 1;
        self.control(ZEROPAGE, &mut [address as u64, bytes as u64, DONTWAKE, 0]).map(|_| ())
    }

    /// Protects mapped pages against writing, or ends that and wakes the sleepers.
    pub fn write_protect(&self, address: usize, bytes: usize, on: bool) -> Result<(), Errno> {
        self.control(WRITEPROTECT, &mut [address as u64, bytes as u64, on as u64]).map(|_| ())
    }

    /// Reads messages; how many. EAGAIN when there are none.
    pub fn read(&self, messages: &mut [Message]) -> Result<usize, Errno> {
        let bytes = size_of_val(messages);
        let place = messages.as_mut_ptr().expose_provenance();
        // SAFETY: the kernel writes at most so many bytes, and any bytes are valid messages.
        unsafe { call3(number::__NR_read, self.fd.arg(), place, bytes) }.map(|got| got / size_of::<Message>())
    }

    /// Closes it: all its ranges are unregistered and their sleepers woken.
    pub fn close(self) {
        file::close(self.fd);
    }
}
