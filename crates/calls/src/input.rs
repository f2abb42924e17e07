//! Reading and writing: large buffers in parts, of which only one must be resident at a time.

use crate::list::{int, wrapped};
use crate::loan::{Loan, MOST, value_at};

/// Vectors of one part.
const PARTS: usize = 64;

/// Whether a reader may ask for more after a part that came whole: not of pipes and sockets, where nothing more need ever
/// come, and who had asked for all at once would have been content.
fn goes_on(fd: usize) -> bool {
    unsafe extern "C" {
        fn lseek(fd: i32, offset: i64, whence: i32) -> i64;
    }
    const FROM_HERE: i32 = 1;
    // SAFETY: only asks.
    unsafe { lseek(fd as i32, 0, FROM_HERE) >= 0 }
}

/// Calls with offset and length of each part until one is short, or `more` says no. Returns what was done, or the first
/// call's error.
fn in_parts(bytes: usize, more: impl Fn() -> bool, mut call: impl FnMut(usize, usize) -> isize) -> isize {
    let mut done = 0;
    loop {
        let part = (bytes - done).min(MOST);
        let did = call(done, part);
        if did < 0 {
            return if done > 0 { done as isize } else { did };
        }
        done += did as usize;
        if (did as usize) < part || done >= bytes || !more() {
            return done as isize;
        }
    }
}

/// The same for vectors: calls with a list and the offset of its beginning. What is no more than a part is done in one
/// call, however many vectors it has: it may be a datagram, or a line that must not be torn.
///
/// # Safety
/// So many pairs of address and length.
unsafe fn in_groups(
    parts: usize,
    count: usize,
    more: impl Fn() -> bool,
    mut call: impl FnMut(usize, usize, usize) -> isize,
) -> isize {
    const IOV_MAX: usize = 1024;
    if count > IOV_MAX {
        return call(parts, count, 0);
    }
    // SAFETY: the caller's promise.
    let length = |index: usize| unsafe { value_at::<[usize; 2]>(parts + index * 16) }[1];
    if (0..count).fold(0usize, |sum, index| sum.saturating_add(length(index))) <= MOST {
        // SAFETY: the caller's promise.
        let _loan = unsafe { Loan::new().parts(parts, count) };
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
        if (did as usize) < bytes || index == count || !more() {
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

/// [`in_groups`] with the vectors of a call.
fn program_vectors(
    parts: usize,
    count: usize,
    more: impl Fn() -> bool,
    call: impl FnMut(usize, usize, usize) -> isize,
) -> isize {
    // SAFETY: the program passes what the manual asks for.
    unsafe { in_groups(parts, count, more, call) }
}

/// Calls with an address whose bytes are lent meanwhile.
pub fn lent(address: usize, bytes: usize, call: impl FnOnce(usize) -> isize) -> isize {
    let _loan = Loan::new().bytes(address, bytes);
    call(address)
}

wrapped! {
    raw [read](fd, buffer, bytes) { |next| in_parts(bytes, || goes_on(fd), |done, part| {
        lent(buffer + done, part, |to| call!(next, fd, to, part))
    }) };
    raw [write](fd, buffer, bytes) { |next| in_parts(bytes, || true, |done, part| {
        lent(buffer + done, part, |from| call!(next, fd, from, part))
    }) };
    raw [send](fd, buffer, bytes, flags) { |next| in_parts(bytes, || true, |done, part| {
        lent(buffer + done, part, |from| call!(next, fd, from, part, flags))
    }) };
    raw [pread pread64 pwrite pwrite64](fd, buffer, bytes, at) { |next| in_parts(bytes, || true, |done, part| {
        lent(buffer + done, part, |place| call!(next, fd, place, part, at.wrapping_add(done)))
    }) };
    raw [readv](fd, parts, count) { |next| program_vectors(parts, int(count), || goes_on(fd), |group, used, _| {
        call!(next, fd, group, used)
    }) };
    raw [writev](fd, parts, count) { |next| program_vectors(parts, int(count), || true, |group, used, _| {
        call!(next, fd, group, used)
    }) };
    raw [preadv preadv64 pwritev pwritev64](fd, parts, count, at) { |next| {
        program_vectors(parts, int(count), || true, |group, used, done| call!(next, fd, group, used, at.wrapping_add(done)))
    } };
    raw [preadv2 preadv64v2](fd, parts, count, at, flags) { |next| {
        program_vectors(parts, int(count), || at != OWN || goes_on(fd), |group, used, done| {
            call!(next, fd, group, used, behind(at, done), flags)
        })
    } };
    raw [pwritev2 pwritev64v2](fd, parts, count, at, flags) { |next| {
        program_vectors(parts, int(count), || true, |group, used, done| {
            call!(next, fd, group, used, behind(at, done), flags)
        })
    } };
}

/// Stands for the file's own position.
const OWN: usize = usize::MAX;

/// A position further on.
fn behind(at: usize, done: usize) -> usize {
    if at == OWN { at } else { at.wrapping_add(done) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_buffers_are_done_in_parts_until_one_is_short() {
        let mut calls = Vec::new();
        let mut run = |goes: bool, bytes, answers: &[isize]| {
            let mut answers = answers.iter();
            calls.clear();
            in_parts(
                bytes,
                || goes,
                |done, part| {
                    calls.push((done, part));
                    *answers.next().unwrap()
                },
            )
        };
        let most = MOST as isize;
        assert_eq!(run(true, 2 * MOST + 5, &[most, most, 5]), 2 * most + 5);
        assert_eq!(run(true, 2 * MOST + 5, &[most, 7]), most + 7);
        assert_eq!(run(true, 2 * MOST, &[most, -1]), most);
        assert_eq!(run(true, 2 * MOST, &[-1]), -1);
        assert_eq!(run(true, 0, &[0]), 0);
        assert_eq!(run(false, 2 * MOST, &[most]), most, "a pipe");
        assert_eq!(run(true, 2 * MOST, &[most, most]), 2 * most);
        assert_eq!(calls, [(0, MOST), (MOST, MOST)]);
    }

    #[test]
    fn vectors_stay_together_unless_they_are_large() {
        let mut calls = Vec::new();
        let mut run = |parts: &[[usize; 2]], goes: bool| {
            calls.clear();
            let total = program_vectors(
                parts.as_ptr().expose_provenance(),
                parts.len(),
                || goes,
                |group, used, done| {
                    // SAFETY: so many vectors.
                    let bytes = |index| unsafe { value_at::<[usize; 2]>(group + index * 16) }[1];
                    let sum = (0..used).map(bytes).sum::<usize>();
                    calls.push((used, done, sum));
                    sum as isize
                },
            );
            (total as usize, calls.clone())
        };
        // A datagram of many pieces.
        assert_eq!(run(&[[0x1000, 10]; 500], true), (5000, vec![(500, 0, 5000)]));
        assert_eq!(run(&[], true), (0, vec![(0, 0, 0)]));
        let large = [[0x1000, MOST - 5], [0x2000, 10], [0x3000, MOST]];
        let whole = vec![(2, 0, MOST), (2, MOST, MOST), (1, 2 * MOST, 5)];
        assert_eq!(run(&large, true), (2 * MOST + 5, whole));
        assert_eq!(run(&large, false), (MOST, vec![(2, 0, MOST)]));
    }
}
