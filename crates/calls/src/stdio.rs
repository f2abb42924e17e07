//! Streams: libc reads and writes large parts of a caller's memory directly, past the stream's buffer.

use crate::input::{call, lent};
use crate::list::wrapped;
use crate::loan::{MOST, length};
use crate::next::{Next, errno, set_errno};
use crate::way::{self, Way};
use core::mem::MaybeUninit;

/// Calls with offset and length of each part of at most so many bytes until one is short; returns whole items.
fn items(size: usize, count: usize, most: usize, mut call: impl FnMut(usize, usize) -> isize) -> isize {
    let Some(bytes) = size.checked_mul(count).filter(|bytes| *bytes > 0) else { return 0 };
    let mut done = 0;
    while done < bytes {
        let part = (bytes - done).min(most);
        let did = call(done, part) as usize;
        done += did;
        if did < part {
            break;
        }
    }
    (done / size) as isize
}

/// Most bytes of a part when this is written to a stream: libc hands large texts on as they are, and some files take them whole
/// only. Streams without a descriptor are memory.
fn most(size: usize, count: usize, stream: usize) -> usize {
    unsafe extern "C" {
        fn fileno(stream: usize) -> i32;
    }
    let bytes = size.saturating_mul(count);
    if bytes <= MOST {
        return MOST;
    }
    let before = errno();
    // SAFETY: a stream of the program's, as for the call itself.
    let fd = unsafe { fileno(stream) };
    set_errno(before);
    if fd >= 0 && way::of(fd as usize, bytes, true) == Way::Whole { bytes } else { MOST }
}

/// A handler of cancellation, as libc lists those of a thread.
#[repr(C)]
struct Handler {
    routine: usize,
    argument: usize,
    kind: i32,
    before: usize,
}

/// Does in parts what is one call to other threads: the stream stays locked from the first part to the last, also while libc
/// unlocks it in between, and a thread that is cancelled meanwhile unlocks it.
fn whole(size: usize, count: usize, stream: usize, parts: impl FnOnce() -> isize) -> isize {
    unsafe extern "C" {
        fn flockfile(stream: usize);
        fn funlockfile(stream: usize);
    }
    // Looked up: they moved from one library to another.
    static PUSH: Next = Next::new(c"_pthread_cleanup_push");
    static POP: Next = Next::new(c"_pthread_cleanup_pop");
    if size.saturating_mul(count) <= MOST {
        return parts();
    }
    let mut handler = MaybeUninit::<Handler>::uninit();
    let (place, unlock) = (handler.as_mut_ptr().expose_provenance(), funlockfile as *const () as usize);
    // SAFETY: a stream of the program's, as for the call itself.
    unsafe { flockfile(stream) };
    call!(PUSH, place, unlock, stream);
    let result = parts();
    call!(POP, place, 0);
    // SAFETY: locked above, by this thread.
    unsafe { funlockfile(stream) };
    result
}

wrapped! {
    raw [fread](to, size, count, stream) { |next| whole(size, count, stream, || {
        items(size, count, MOST, |done, part| lent(to + done, part, |to| call!(next, to, 1, part, stream)))
    }) };
    raw [fread_unlocked](to, size, count, stream) { |next| {
        items(size, count, MOST, |done, part| lent(to + done, part, |to| call!(next, to, 1, part, stream)))
    } };
    raw [fwrite](from, size, count, stream) { |next| whole(size, count, stream, || {
        let most = most(size, count, stream);
        items(size, count, most, |done, part| lent(from + done, part, |from| call!(next, from, 1, part, stream)))
    }) };
    raw [fwrite_unlocked](from, size, count, stream) { |next| {
        let most = most(size, count, stream);
        items(size, count, most, |done, part| lent(from + done, part, |from| call!(next, from, 1, part, stream)))
    } };
    raw [__fread_chk](to, room, size, count, stream) { |next| whole(size, count, stream, || {
        items(size, count, MOST, |done, part| lent(to + done, part, |to| call!(next, to, room - done, 1, part, stream)))
    }) };
    raw [__fread_unlocked_chk](to, room, size, count, stream) { |next| {
        items(size, count, MOST, |done, part| lent(to + done, part, |to| call!(next, to, room - done, 1, part, stream)))
    } };
    raw [fputs fputs_unlocked](text, stream) { |_next| put(text, stream) };
    plain [puts perror](a) [text(a)];
    plain [fopen fopen64 popen](a, b) [text(a)];
    plain [freopen freopen64](a, b, c) [text(a)];
    plain [system](a) [text(a)];
}

/// Writes a string to a stream, in parts.
fn put(text: usize, stream: usize) -> isize {
    const EOF: isize = -1;
    // SAFETY: a string of the program's.
    let bytes = unsafe { length(text) };
    // SAFETY: our own fwrite, with so many bytes of the program's.
    let done = unsafe { fwrite(text, 1, bytes, stream) };
    if done == bytes as isize { 1 } else { EOF }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_items_are_counted() {
        let run =
            |size, count, most: usize| items(size, count, MOST, |done, part| part.min(most - done.min(most)) as isize);
        assert_eq!(run(8, 1000, 8000), 1000);
        assert_eq!(run(8, 1000, 15), 1);
        assert_eq!(run(3, MOST, usize::MAX), MOST as isize);
        assert_eq!(run(3, MOST, 3 * MOST - 1), MOST as isize - 1);
        assert_eq!((run(0, 7, 9), run(7, 0, 9), run(usize::MAX, 2, 9)), (0, 0, 0));
    }
}
