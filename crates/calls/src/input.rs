//! Reading and writing: large buffers in parts, of which only one must be resident at a time, where a program cannot tell.

use crate::list::{int, wrapped};
use crate::loan::{IOV_MAX, Loan, MOST, value_at};
use crate::next::{errno, set_errno};
use crate::way::{self, Way};

/// Vectors of one part.
const PARTS: usize = 64;
/// Most bytes that the kernel does in one call.
const LIMIT: usize = 0x7fff_f000;
/// More is an error to the kernel.
const LONGEST: usize = isize::MAX as usize;

/// Calls with offset and length of each part until one is short. Returns what was done, or the first call's error.
pub fn in_parts(bytes: usize, mut call: impl FnMut(usize, usize) -> isize) -> isize {
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

/// The same for vectors: calls with a list, its length and the offset of its beginning, for so many bytes, and only `once`
/// if that is said.
///
/// # Safety
/// So many pairs of address and length.
unsafe fn in_groups(
    [parts, count]: [usize; 2],
    bytes: usize,
    once: bool,
    mut call: impl FnMut(usize, usize, usize) -> isize,
) -> isize {
    let (mut done, mut index, mut skip) = (0usize, 0, 0);
    loop {
        let mut group = [[0usize; 2]; PARTS];
        let (mut used, mut wanted) = (0, 0);
        let most = (bytes - done).min(MOST);
        while used < PARTS && index < count && wanted < most {
            // SAFETY: the caller's promise.
            let [address, length] = unsafe { value_at::<[usize; 2]>(parts + index * 16) };
            let part = (length - skip).min(most - wanted);
            if let Some(place) = group.get_mut(used).filter(|_| part > 0) {
                *place = [address.wrapping_add(skip), part];
                used += 1;
            }
            (wanted, skip) = (wanted + part, skip + part);
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
        if once || (did as usize) < wanted || index == count || done >= bytes {
            return done as isize;
        }
    }
}

/// Moves a file's position by so many bytes; where it is then. errno stays as it is.
fn move_on(fd: usize, bytes: i64) -> Option<usize> {
    unsafe extern "C" {
        fn lseek(fd: i32, offset: i64, whence: i32) -> i64;
    }
    const FROM_HERE: i32 = 1;
    let before = errno();
    // SAFETY: no memory is passed.
    let place = unsafe { lseek(fd as i32, bytes, FROM_HERE) };
    set_errno(before);
    usize::try_from(place).ok()
}

/// Does in parts what is one call to others who share the file's position: that goes on over all of it first, so that they
/// come behind, and back again over what was not done. `work` gets the place to begin at, or none where there is no such
/// position.
fn from_own_place(fd: usize, bytes: usize, work: impl FnOnce(Option<usize>) -> isize) -> isize {
    let start = move_on(fd, bytes as i64).and_then(|end| end.checked_sub(bytes));
    let did = work(start);
    let left = bytes as i64 - did.max(0) as i64;
    if start.is_some() && left > 0 {
        move_on(fd, -left);
    }
    did
}

/// A call with one buffer. `at` is a place in the file, or none for its own position; `call` gets an address, a length, and
/// such a place.
pub fn transfer(
    fd: usize,
    [buffer, bytes]: [usize; 2],
    at: Option<usize>,
    way: impl FnOnce(usize) -> Way,
    mut call: impl FnMut(usize, usize, Option<usize>) -> isize,
) -> isize {
    if bytes > LONGEST {
        return call(buffer, bytes, at);
    }
    let bytes = bytes.min(LIMIT);
    let mut part = |at: Option<usize>, done: usize, part: usize| {
        let at = at.map(|at| at.wrapping_add(done));
        lent(buffer.wrapping_add(done), part, |place| call(place, part, at))
    };
    match way(bytes) {
        Way::Whole => part(at, 0, bytes),
        Way::Once => part(at, 0, bytes.min(MOST)),
        Way::Placed if at.is_none() => {
            from_own_place(fd, bytes, |start| in_parts(bytes, |done, length| part(start, done, length)))
        }
        Way::On | Way::Placed => in_parts(bytes, |done, length| part(at, done, length)),
    }
}

/// Bytes that vectors name.
///
/// # Safety
/// So many pairs of address and length.
pub unsafe fn bytes_of([parts, count]: [usize; 2]) -> usize {
    // SAFETY: the caller's promise.
    let length = |index: usize| unsafe { value_at::<[usize; 2]>(parts + index * 16) }[1];
    (0..count).fold(0usize, |sum, index| sum.saturating_add(length(index)))
}

/// [`transfer`] with vectors.
///
/// # Safety
/// So many pairs of address and length.
pub unsafe fn vectors(
    fd: usize,
    [parts, count]: [usize; 2],
    at: Option<usize>,
    way: impl FnOnce(usize) -> Way,
    mut call: impl FnMut(usize, usize, Option<usize>) -> isize,
) -> isize {
    if count > IOV_MAX {
        return call(parts, count, at);
    }
    // SAFETY: the caller's promise.
    let bytes = unsafe { bytes_of([parts, count]) };
    if bytes > LONGEST {
        return call(parts, count, at);
    }
    let bytes = bytes.min(LIMIT);
    let mut groups = |at: Option<usize>, once: bool| {
        // SAFETY: the caller's promise.
        unsafe {
            in_groups([parts, count], bytes, once, |group, used, done| {
                call(group, used, at.map(|at| at.wrapping_add(done)))
            })
        }
    };
    match way(bytes) {
        Way::Once => groups(at, true),
        Way::Placed if at.is_none() => from_own_place(fd, bytes, |start| groups(start, false)),
        Way::On | Way::Placed => groups(at, false),
        Way::Whole => {
            // SAFETY: the caller's promise.
            let _loan = unsafe { Loan::new().parts(parts, count) };
            call(parts, count, at)
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

/// [`vectors`] with those of a call.
fn program_vectors(
    fd: usize,
    parts: usize,
    count: usize,
    at: Option<usize>,
    way: impl FnOnce(usize) -> Way,
    call: impl FnMut(usize, usize, Option<usize>) -> isize,
) -> isize {
    // SAFETY: the program passes what the manual asks for.
    unsafe { vectors(fd, [parts, int(count)], at, way, call) }
}

/// Calls with an address whose bytes are lent meanwhile.
pub fn lent(address: usize, bytes: usize, call: impl FnOnce(usize) -> isize) -> isize {
    let _loan = Loan::new().bytes(address, bytes);
    call(address)
}

wrapped! {
    raw [read](fd, buffer, bytes) { |next| {
        transfer(fd, [buffer, bytes], None, |bytes| way::of(fd, bytes, false), |to, part, at| match at {
            None => call!(next, fd, to, part),
            // SAFETY: our own, with the same memory.
            Some(at) => unsafe { pread64(fd, to, part, at) },
        })
    } };
    raw [write](fd, buffer, bytes) { |next| {
        transfer(fd, [buffer, bytes], None, |bytes| way::of(fd, bytes, true), |from, part, at| match at {
            None => call!(next, fd, from, part),
            // SAFETY: our own, with the same memory.
            Some(at) => unsafe { pwrite64(fd, from, part, at) },
        })
    } };
    raw [pread pread64](fd, buffer, bytes, at) { |next| {
        transfer(fd, [buffer, bytes], Some(at), |bytes| way::of(fd, bytes, false), |to, part, place| {
            call!(next, fd, to, part, place.unwrap_or(at))
        })
    } };
    raw [pwrite pwrite64](fd, buffer, bytes, at) { |next| {
        transfer(fd, [buffer, bytes], Some(at), |bytes| way::of(fd, bytes, true), |from, part, place| {
            call!(next, fd, from, part, place.unwrap_or(at))
        })
    } };
    raw [readv](fd, parts, count) { |next| {
        program_vectors(fd, parts, count, None, |bytes| way::of(fd, bytes, false), |group, used, at| match at {
            None => call!(next, fd, group, used),
            // SAFETY: our own, with the same vectors.
            Some(at) => unsafe { preadv64(fd, group, used, at) },
        })
    } };
    raw [writev](fd, parts, count) { |next| {
        program_vectors(fd, parts, count, None, |bytes| way::of(fd, bytes, true), |group, used, at| match at {
            None => call!(next, fd, group, used),
            // SAFETY: our own, with the same vectors.
            Some(at) => unsafe { pwritev64(fd, group, used, at) },
        })
    } };
    raw [preadv preadv64](fd, parts, count, at) { |next| {
        program_vectors(fd, parts, count, Some(at), |bytes| way::of(fd, bytes, false), |group, used, place| {
            call!(next, fd, group, used, place.unwrap_or(at))
        })
    } };
    raw [pwritev pwritev64](fd, parts, count, at) { |next| {
        program_vectors(fd, parts, count, Some(at), |bytes| way::of(fd, bytes, true), |group, used, place| {
            call!(next, fd, group, used, place.unwrap_or(at))
        })
    } };
    raw [preadv2 preadv64v2](fd, parts, count, at, flags) { |next| {
        program_vectors(fd, parts, count, place(at), |bytes| flagged(fd, bytes, flags, false), |group, used, place| {
            call!(next, fd, group, used, place.unwrap_or(OWN), flags)
        })
    } };
    raw [pwritev2 pwritev64v2](fd, parts, count, at, flags) { |next| {
        program_vectors(fd, parts, count, place(at), |bytes| flagged(fd, bytes, flags, true), |group, used, place| {
            call!(next, fd, group, used, place.unwrap_or(OWN), flags)
        })
    } };
    // More than there is room for ends the program.
    raw [__read_chk](fd, buffer, bytes, room) { |next| {
        // SAFETY: our own, with the program's buffer.
        if bytes > room { call!(next, fd, buffer, bytes, room) } else { unsafe { read(fd, buffer, bytes) } }
    } };
    raw [__pread_chk __pread64_chk](fd, buffer, bytes, at, room) { |next| {
        // SAFETY: our own, with the program's buffer.
        if bytes > room { call!(next, fd, buffer, bytes, at, room) } else { unsafe { pread64(fd, buffer, bytes, at) } }
    } };
    // Names that libc's own libraries, and some allocators, use.
    raw [__read](fd, buffer, bytes) { |_next| {
        // SAFETY: our own, with the program's buffer.
        unsafe { read(fd, buffer, bytes) }
    } };
    raw [__write](fd, buffer, bytes) { |_next| {
        // SAFETY: our own, with the program's buffer.
        unsafe { write(fd, buffer, bytes) }
    } };
    raw [__pread64](fd, buffer, bytes, at) { |_next| {
        // SAFETY: our own, with the program's buffer.
        unsafe { pread64(fd, buffer, bytes, at) }
    } };
    raw [__pwrite64](fd, buffer, bytes, at) { |_next| {
        // SAFETY: our own, with the program's buffer.
        unsafe { pwrite64(fd, buffer, bytes, at) }
    } };
    raw [getrandom](buffer, bytes, flags) { |next| in_parts(bytes.min(LIMIT), |done, part| {
        lent(buffer.wrapping_add(done), part, |to| call!(next, to, part, flags))
    }) };
    raw [arc4random_buf](buffer, bytes) { |next| in_parts(bytes, |done, part| {
        lent(buffer.wrapping_add(done), part, |to| {
            if next.is_missing() {
                fill(to, part);
            } else {
                call!(next, to, part);
            }
            part as isize
        })
    }) };
}

/// Random bytes, or the end of the process, as arc4random_buf has it.
fn fill(to: usize, bytes: usize) {
    unsafe extern "C" {
        fn abort() -> !;
    }
    const INTERRUPTED: i32 = 4;
    let mut done = 0;
    while done < bytes {
        // SAFETY: our own, with the program's buffer.
        let did = unsafe { getrandom(to + done, bytes - done, 0) };
        if did >= 0 {
            done += did as usize;
        } else if errno() != INTERRUPTED {
            // SAFETY: ends the process.
            unsafe { abort() }
        }
    }
}

/// Stands for the file's own position.
const OWN: usize = usize::MAX;

fn place(at: usize) -> Option<usize> {
    (at != OWN).then_some(at)
}

/// How a call with flags is done: RWF_APPEND and RWF_ATOMIC make one thing of it.
fn flagged(fd: usize, bytes: usize, flags: usize, writing: bool) -> Way {
    const AS_ONE: usize = 0x10 | 0x40;
    if flags & AS_ONE != 0 { Way::Whole } else { way::of(fd, bytes, writing) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Seek as _, Write as _};
    use std::os::fd::AsRawFd as _;

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

    #[test]
    fn each_way_has_its_calls() {
        let run = |bytes: usize, at: Option<usize>, way: Way| {
            let mut calls = Vec::new();
            let did = transfer(
                usize::MAX,
                [0x1000, bytes],
                at,
                |_| way,
                |place, part, at| {
                    calls.push((place, part, at));
                    part as isize
                },
            );
            (did, calls)
        };
        let large = 2 * MOST + 5;
        let second = 0x1000 + MOST;
        assert_eq!(run(large, None, Way::Whole), (large as isize, vec![(0x1000, large, None)]));
        assert_eq!(run(large, None, Way::Once), (MOST as isize, vec![(0x1000, MOST, None)]));
        let (did, calls) = run(large, Some(7), Way::Placed);
        assert_eq!((did, calls.len(), calls[1]), (large as isize, 3, (second, MOST, Some(7 + MOST))));
        // No descriptor, and so no position.
        assert_eq!(run(large, None, Way::Placed).1[1], (second, MOST, None));
        assert_eq!(run(usize::MAX, None, Way::On).1, [(0x1000, usize::MAX, None)], "an error is the kernel's business");
    }

    #[test]
    fn vectors_stay_together_unless_they_are_large() {
        let run = |parts: &[[usize; 2]], at: Option<usize>, way: Way| {
            let mut calls = Vec::new();
            let start = parts.as_ptr().expose_provenance();
            let total = program_vectors(
                usize::MAX,
                start,
                parts.len(),
                at,
                |_| way,
                |group, used, at| {
                    // SAFETY: so many vectors.
                    let bytes = |index| unsafe { value_at::<[usize; 2]>(group + index * 16) }[1];
                    let sum = (0..used).map(bytes).sum::<usize>();
                    calls.push((used, at, sum));
                    sum as isize
                },
            );
            (total as usize, calls)
        };
        // A datagram of many pieces.
        assert_eq!(run(&[[0x1000, 10]; 500], None, Way::Whole), (5000, vec![(500, None, 5000)]));
        assert_eq!(run(&[], None, Way::Whole), (0, vec![(0, None, 0)]));
        let large = [[0x1000, MOST - 5], [0x2000, 10], [0x3000, MOST]];
        let all = 2 * MOST + 5;
        let parts = |at: Option<usize>| {
            let behind = |bytes| at.map(|at| at + bytes);
            vec![(2, at, MOST), (2, behind(MOST), MOST), (1, behind(2 * MOST), 5)]
        };
        assert_eq!(run(&large, None, Way::On), (all, parts(None)));
        assert_eq!(run(&large, Some(9), Way::Placed), (all, parts(Some(9))));
        assert_eq!(run(&large, None, Way::Once), (MOST, vec![(2, None, MOST)]));
        let late = [vec![[0x1000, 0]; 100], vec![[0x1000, MOST], [0x2000, 1]]].concat();
        assert_eq!(run(&late, None, Way::Once), (MOST, vec![(1, None, MOST)]), "nothing is no end");
        assert_eq!(run(&large, None, Way::Whole), (all, vec![(3, None, all)]));
    }

    #[test]
    fn the_position_ends_where_one_call_would_leave_it() {
        let path = std::env::temp_dir().join(format!("ream-input-{}", std::process::id()));
        let mut file = std::fs::File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        let from: Vec<u8> = (0..3 * MOST + 9).map(|index| (index / 1000) as u8).collect();
        let mut to = vec![0; from.len() + MOST];
        let fd = file.as_raw_fd() as usize;
        // SAFETY: as large as is said.
        let (wrote, had) = unsafe {
            let wrote = write(fd, from.as_ptr().expose_provenance(), from.len());
            file.write_all(b"end").unwrap();
            file.seek(std::io::SeekFrom::Start(5)).unwrap();
            (wrote, read(fd, to.as_mut_ptr().expose_provenance(), to.len()))
        };
        assert_eq!((wrote as usize, had as usize), (from.len(), from.len() + 3 - 5));
        assert!(to.starts_with(&from[5..]) && to[from.len() - 5..].starts_with(b"end"));
        assert_eq!(file.stream_position().unwrap(), from.len() as u64 + 3);
        assert_eq!(file.read(&mut to).unwrap(), 0);
        // SAFETY: as above.
        let refused = unsafe { read(usize::MAX, to.as_mut_ptr().expose_provenance(), to.len()) };
        assert_eq!(refused, -1);
    }
}
