//! Reading and writing: large buffers in parts, of which only one must be resident at a time.

use crate::list::wrapped;
use crate::loan::{Loan, MOST, value_at};

/// Vectors of one part.
const PARTS: usize = 16;

/// Calls with offset and length of each part until one is short. Returns what was done, or the first call's error.
fn in_parts(bytes: usize, mut call: impl FnMut(usize, usize) -> isize) -> isize {
    let mut done = 0;
    loop {
        let part = (bytes - done).min(MOST);
        let did = call(done, part);
        if did < 0 {
            return if done > 0 { done as isize } else { did };
        }
        done += did as usize;
        if (did as usize) < part || done >= bytes {
            return done as isize;
        }
    }
}

/// The same for vectors: calls with a shorter list and the offset of its beginning.
///
/// # Safety
/// So many pairs of address and length.
unsafe fn in_groups(parts: usize, count: usize, mut call: impl FnMut(usize, usize, usize) -> isize) -> isize {
    const IOV_MAX: usize = 1024;
    if count == 0 || count > IOV_MAX {
        return call(parts, count, 0);
    }
    let (mut done, mut index, mut skip) = (0usize, 0, 0);
    loop {
        let mut group = [[0usize; 2]; PARTS];
        let (mut used, mut bytes) = (0, 0);
        while used < PARTS && index < count && bytes < MOST {
            // SAFETY: the caller's promise.
            let [address, length] = unsafe { value_at::<[usize; 2]>(parts + index * 16) };
            let part = (length - skip).min(MOST - bytes);
            if let Some(place) = group.get_mut(used) {
                *place = [address.wrapping_add(skip), part];
            }
            (used, bytes, skip) = (used + 1, bytes + part, skip + part);
            if skip == length {
                (index, skip) = (index + 1, 0);
            }
        }
        let start = group.as_ptr().expose_provenance();
        // SAFETY: pairs of the caller's.
        let _loan = unsafe { Loan::new().parts(start, used) };
        let did = call(start, used, done);
        if did < 0 {
            return if done > 0 { done as isize } else { did };
        }
        done += did as usize;
        if (did as usize) < bytes || index == count {
            return done as isize;
        }
    }
}

/// `call!(next, argument...)`: the next library's function with these arguments.
macro_rules! call {
    ($next:expr $(, $argument:expr)*) => {{
        #[allow(unused_unsafe)]
        // SAFETY: the function that is wrapped, with its arguments as whole registers.
        unsafe { $next.get::<unsafe extern "C" fn($($crate::input::word!($argument)),*) -> isize>()($($argument),*) }
    }};
}
pub(crate) use call;

/// The type of every argument.
macro_rules! word {
    ($argument:expr) => {
        usize
    };
}
pub(crate) use word;

wrapped! {
    raw read(fd, buffer, bytes) |next| in_parts(bytes, |done, part| {
        let _loan = Loan::new().bytes(buffer + done, part);
        call!(next, fd, buffer + done, part)
    });
    raw write(fd, buffer, bytes) |next| in_parts(bytes, |done, part| {
        let _loan = Loan::new().bytes(buffer + done, part);
        call!(next, fd, buffer + done, part)
    });
    raw pread(fd, buffer, bytes, at) |next| in_parts(bytes, |done, part| {
        let _loan = Loan::new().bytes(buffer + done, part);
        call!(next, fd, buffer + done, part, at.wrapping_add(done))
    });
    raw pread64(fd, buffer, bytes, at) |next| in_parts(bytes, |done, part| {
        let _loan = Loan::new().bytes(buffer + done, part);
        call!(next, fd, buffer + done, part, at.wrapping_add(done))
    });
    raw pwrite(fd, buffer, bytes, at) |next| in_parts(bytes, |done, part| {
        let _loan = Loan::new().bytes(buffer + done, part);
        call!(next, fd, buffer + done, part, at.wrapping_add(done))
    });
    raw pwrite64(fd, buffer, bytes, at) |next| in_parts(bytes, |done, part| {
        let _loan = Loan::new().bytes(buffer + done, part);
        call!(next, fd, buffer + done, part, at.wrapping_add(done))
    });
    raw send(fd, buffer, bytes, flags) |next| in_parts(bytes, |done, part| {
        let _loan = Loan::new().bytes(buffer + done, part);
        call!(next, fd, buffer + done, part, flags)
    });
    raw readv(fd, parts, count) |next| {
        // SAFETY: the program's vectors.
        unsafe { in_groups(parts, count & 0xffff_ffff, |group, used, _| call!(next, fd, group, used)) }
    };
    raw writev(fd, parts, count) |next| {
        // SAFETY: the program's vectors.
        unsafe { in_groups(parts, count & 0xffff_ffff, |group, used, _| call!(next, fd, group, used)) }
    };
    raw preadv(fd, parts, count, at) |next| {
        // SAFETY: the program's vectors.
        unsafe { in_groups(parts, count & 0xffff_ffff, |group, used, done| call!(next, fd, group, used, at.wrapping_add(done))) }
    };
    raw preadv64(fd, parts, count, at) |next| {
        // SAFETY: the program's vectors.
        unsafe { in_groups(parts, count & 0xffff_ffff, |group, used, done| call!(next, fd, group, used, at.wrapping_add(done))) }
    };
    raw pwritev(fd, parts, count, at) |next| {
        // SAFETY: the program's vectors.
        unsafe { in_groups(parts, count & 0xffff_ffff, |group, used, done| call!(next, fd, group, used, at.wrapping_add(done))) }
    };
    raw pwritev64(fd, parts, count, at) |next| {
        // SAFETY: the program's vectors.
        unsafe { in_groups(parts, count & 0xffff_ffff, |group, used, done| call!(next, fd, group, used, at.wrapping_add(done))) }
    };
    raw preadv2(fd, parts, count, at, flags) |next| {
        // SAFETY: the program's vectors.
        unsafe { in_groups(parts, count & 0xffff_ffff, |group, used, done| call!(next, fd, group, used, behind(at, done), flags)) }
    };
    raw preadv64v2(fd, parts, count, at, flags) |next| {
        // SAFETY: the program's vectors.
        unsafe { in_groups(parts, count & 0xffff_ffff, |group, used, done| call!(next, fd, group, used, behind(at, done), flags)) }
    };
    raw pwritev2(fd, parts, count, at, flags) |next| {
        // SAFETY: the program's vectors.
        unsafe { in_groups(parts, count & 0xffff_ffff, |group, used, done| call!(next, fd, group, used, behind(at, done), flags)) }
    };
    raw pwritev64v2(fd, parts, count, at, flags) |next| {
        // SAFETY: the program's vectors.
        unsafe { in_groups(parts, count & 0xffff_ffff, |group, used, done| call!(next, fd, group, used, behind(at, done), flags)) }
    };
}

/// A position further on; -1 is that of the file.
fn behind(at: usize, done: usize) -> usize {
    if at == usize::MAX { at } else { at.wrapping_add(done) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_buffers_are_done_in_parts_until_one_is_short() {
        let mut calls = Vec::new();
        let mut run = |bytes, answers: &[isize]| {
            let mut answers = answers.iter();
            calls.clear();
            in_parts(bytes, |done, part| {
                calls.push((done, part));
                *answers.next().unwrap()
            })
        };
        let most = MOST as isize;
        assert_eq!(run(2 * MOST + 5, &[most, most, 5]), 2 * most + 5);
        assert_eq!(run(2 * MOST + 5, &[most, 7]), most + 7);
        assert_eq!(run(2 * MOST, &[most, -1]), most);
        assert_eq!(run(2 * MOST, &[-1]), -1);
        assert_eq!(run(0, &[0]), 0);
        assert_eq!(run(2 * MOST, &[most, most]), 2 * most);
        assert_eq!(calls, [(0, MOST), (MOST, MOST)]);
    }
}
