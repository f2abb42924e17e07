//! The error numbers that the code tells apart, by their usual names.
//! Everything else travels as a bare [`Errno`].

use crate::Errno;

macro_rules! names {
    ($($name:ident = $number:literal, $meaning:literal;)*) => {
        impl Errno {
            $(#[doc = $meaning] pub const $name: Errno = Errno($number);)*
        }
    };
}

names! {
    PERM = 1, "Operation not permitted (EPERM).";
    NOENT = 2, "No such file, mapping or page (ENOENT).";
    SRCH = 3, "No such process (ESRCH).";
    INTR = 4, "Interrupted by a signal (EINTR).";
    IO = 5, "Input or output error (EIO).";
    NXIO = 6, "No such device, or nobody reads it (ENXIO).";
    BADF = 9, "Not an open descriptor (EBADF).";
    AGAIN = 11, "Try again (EAGAIN).";
    NOMEM = 12, "No memory, or no mapping there (ENOMEM).";
    ACCES = 13, "Permission denied (EACCES).";
    FAULT = 14, "Bad address (EFAULT).";
    BUSY = 16, "In use (EBUSY).";
    EXIST = 17, "Exists already (EEXIST).";
    NODEV = 19, "No such device (ENODEV).";
    ISDIR = 21, "Is a directory (EISDIR).";
    INVAL = 22, "Invalid argument (EINVAL).";
    MFILE = 24, "Too many open files (EMFILE).";
    NOTTY = 25, "The descriptor does not know this ioctl (ENOTTY).";
    FBIG = 27, "File too large, or the limit on its size is reached (EFBIG).";
    NOSPC = 28, "No space left (ENOSPC).";
    PIPE = 32, "Nobody reads any more (EPIPE).";
    NOSYS = 38, "The kernel does not know this call (ENOSYS).";
    TIME = 62, "A ring wait timed out (ETIME).";
    OPNOTSUPP = 95, "Not supported by this file system (EOPNOTSUPP).";
    TIMEDOUT = 110, "Timed out (ETIMEDOUT).";
}

impl Errno {
    /// The negative form in which the kernel hands errors to completion queues.
    pub const fn negative(self) -> i32 {
        -(self.0 as i32)
    }
}
