//! Executing programs: the kernel reads arguments and environment, which may be anywhere and of any size. It gets
//! copies.

use crate::input::call;
use crate::list::wrapped;
use crate::loan::{Loan, length, value_at};
use crate::next::set_errno;

unsafe extern "C" {
    fn mmap(address: usize, bytes: usize, protection: i32, flags: i32, fd: i32, offset: i64) -> usize;
    fn munmap(address: usize, bytes: usize) -> i32;
    static environ: usize;
}

const WORD: usize = size_of::<usize>();

/// A copy of strings and lists of strings, in memory of its own that is never paged out.
struct Copies {
    start: usize,
    bytes: usize,
    used: usize,
}

/// Bytes of a copy, rounded up so that lists are aligned.
fn whole(bytes: usize) -> usize {
    bytes.next_multiple_of(WORD)
}

/// Strings in a list that ends with null, and the bytes of its copy.
///
/// # Safety
/// Such a list, or null.
unsafe fn extent(list: usize) -> (usize, usize) {
    let (mut count, mut bytes) = (0, WORD);
    if list == 0 {
        return (count, bytes);
    }
    loop {
        // SAFETY: the caller's promise; the end was not reached yet.
        let text = unsafe { value_at::<usize>(list + count * WORD) };
        if text == 0 {
            return (count, bytes);
        }
        // SAFETY: the caller's promise.
        bytes += WORD + whole(unsafe { length(text) } + 1);
        count += 1;
    }
}

impl Copies {
    /// Room for so many bytes; `None` when there is no memory.
    fn new(bytes: usize) -> Option<Copies> {
        const READ_WRITE: i32 = 3;
        // A stack of its own kind: libream.so manages no such memory.
        const PRIVATE_ANONYMOUS_STACK: i32 = 0x2_0022;
        let bytes = bytes.max(1).next_multiple_of(4096);
        // SAFETY: without MAP_FIXED the kernel picks a range that nobody uses.
        let start = unsafe { mmap(0, bytes, READ_WRITE, PRIVATE_ANONYMOUS_STACK, -1, 0) };
        (start != usize::MAX).then_some(Copies { start, bytes, used: 0 })
    }

    /// Copies a string; null stays null.
    ///
    /// # Safety
    /// A string for which there is room, or null.
    unsafe fn text(&mut self, text: usize) -> usize {
        if text == 0 {
            return 0;
        }
        let to = self.start + self.used;
        // SAFETY: the caller's promise.
        unsafe {
            let bytes = length(text) + 1;
            let (from, place) =
                (core::ptr::with_exposed_provenance::<u8>(text), core::ptr::with_exposed_provenance_mut(to));
            core::ptr::copy_nonoverlapping(from, place, bytes);
            self.used += whole(bytes);
        }
        to
    }

    /// Copies a list; null stays null.
    ///
    /// # Safety
    /// A list for which there is room, or null.
    unsafe fn list(&mut self, list: usize) -> usize {
        if list == 0 {
            return 0;
        }
        // SAFETY: the caller's promise.
        unsafe {
            let (count, _) = extent(list);
            let to = self.start + self.used;
            self.used += (count + 1) * WORD;
            for index in 0..count {
                let copy = self.text(value_at(list + index * WORD));
                core::ptr::with_exposed_provenance_mut::<usize>(to + index * WORD).write(copy);
            }
            core::ptr::with_exposed_provenance_mut::<usize>(to + count * WORD).write(0);
            to
        }
    }
}

impl Drop for Copies {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`.
        unsafe { munmap(self.start, self.bytes) };
    }
}

/// Whether any of it is managed: mostly not, and then a process between vfork and exec leaves no copies with its parent.
///
/// # Safety
/// A string and two lists, or null.
unsafe fn any_managed(path: usize, arguments: usize, environment: usize) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        let mut loan = Loan::new().text(path);
        for list in [arguments, environment] {
            let (count, _) = extent(list);
            loan = loan.bytes(list, (count + 1) * WORD);
            for index in 0..count {
                loan = loan.text(value_at(list + index * WORD));
            }
        }
        !loan.is_empty()
    }
}

/// Calls with copies of a path, arguments and environment. Without memory for them it is `ENOMEM`.
///
/// # Safety
/// A string and two lists, or null.
unsafe fn with_copies(
    path: usize,
    arguments: usize,
    environment: usize,
    call: impl FnOnce(usize, usize, usize) -> isize,
) -> Result<isize, i32> {
    const ENOMEM: i32 = 12;
    // SAFETY: the caller's promise.
    unsafe {
        if !any_managed(path, arguments, environment) {
            return Ok(call(path, arguments, environment));
        }
        let bytes = whole(length(path) + 1) + extent(arguments).1 + extent(environment).1;
        let mut copies = Copies::new(bytes).ok_or(ENOMEM)?;
        let (path, arguments) = (copies.text(path), copies.list(arguments));
        let environment = copies.list(environment);
        Ok(call(path, arguments, environment))
    }
}

/// Calls with copies, and answers -1 with errno where there are none.
///
/// # Safety
/// A string and two lists, or null.
pub unsafe fn copied(
    [path, arguments, environment]: [usize; 3],
    call: impl FnOnce(usize, usize, usize) -> isize,
) -> isize {
    // SAFETY: the caller's promise.
    answer(unsafe { with_copies(path, arguments, environment, call) })
}

/// -1 with errno, for functions that answer so.
fn answer(result: Result<isize, i32>) -> isize {
    result.unwrap_or_else(|error| {
        set_errno(error);
        -1
    })
}

wrapped! {
    raw [execve](path, arguments, environment) { |next| {
        // SAFETY: the program's string and lists.
        unsafe { copied([path, arguments, environment], |path, arguments, environment| call!(next, path, arguments, environment)) }
    } };
    raw [execvpe](path, arguments, environment) { |next| {
        // SAFETY: the program's string and lists.
        unsafe { copied([path, arguments, environment], |path, arguments, environment| call!(next, path, arguments, environment)) }
    } };
    raw [execv](path, arguments) { |_next| {
        // SAFETY: our own, with libc's environment.
        unsafe { execve(path, arguments, environ) }
    } };
    raw [execvp](path, arguments) { |_next| {
        // SAFETY: our own, with libc's environment.
        unsafe { execvpe(path, arguments, environ) }
    } };
    raw [fexecve](fd, arguments, environment) { |next| {
        // SAFETY: the program's lists.
        unsafe { copied([0, arguments, environment], |_, arguments, environment| call!(next, fd, arguments, environment)) }
    } };
    raw [execveat](directory, path, arguments, environment, flags) { |next| {
        // SAFETY: the program's string and lists.
        unsafe { copied([path, arguments, environment], |path, arguments, environment| call!(next, directory, path, arguments, environment, flags)) }
    } };
    raw [posix_spawn](pid, path, actions, attributes, arguments, environment) { |next| {
        // The kernel reads priority and mask where they are.
        let _loan = Loan::new().page(attributes);
        // SAFETY: the program's string and lists.
        let result = unsafe { with_copies(path, arguments, environment, |path, arguments, environment| call!(next, pid, path, actions, attributes, arguments, environment)) };
        result.unwrap_or_else(|error| error as isize)
    } };
    raw [posix_spawnp](pid, path, actions, attributes, arguments, environment) { |next| {
        // The kernel reads priority and mask where they are.
        let _loan = Loan::new().page(attributes);
        // SAFETY: the program's string and lists.
        let result = unsafe { with_copies(path, arguments, environment, |path, arguments, environment| call!(next, pid, path, actions, attributes, arguments, environment)) };
        result.unwrap_or_else(|error| error as isize)
    } };
}

/// The arguments of execl and its kin: five in registers behind the path, the rest on the stack.
#[cfg(target_arch = "x86_64")]
struct Given<'a> {
    registers: [usize; 5],
    stacked: &'a crate::format::Stacked,
}

#[cfg(target_arch = "x86_64")]
impl Given<'_> {
    /// # Safety
    /// There is such an argument.
    unsafe fn at(&self, index: usize) -> usize {
        match self.registers.get(index) {
            Some(argument) => *argument,
            // SAFETY: the caller's promise.
            None => unsafe { value_at((&raw const *self.stacked).addr() + (index - self.registers.len()) * WORD) },
        }
    }
}

/// Words of a list of arguments that is made on the stack.
#[cfg(target_arch = "x86_64")]
const SHORT: usize = 128;

/// Executes with the arguments up to the null that ends them. The environment comes behind it if `environment` says so;
/// `search` looks in PATH.
///
/// # Safety
/// A path, and what follows it in the call.
#[cfg(target_arch = "x86_64")]
unsafe fn execute_list(path: usize, given: Given<'_>, environment: bool, search: bool) -> isize {
    // SAFETY: the caller's promise: null ends the list, and the environment may follow.
    unsafe {
        let mut count = 0;
        while given.at(count) != 0 {
            count += 1;
        }
        const ENOMEM: i32 = 12;
        // On the stack where it is short: a child of vfork would leave a mapping to its parent. Signals' stacks are small.
        let mut short = [0; SHORT];
        let mut long = None;
        let list = if count < SHORT {
            short.as_mut_ptr().expose_provenance()
        } else {
            let Some(copies) = Copies::new((count + 1) * WORD) else { return answer(Err(ENOMEM)) };
            long.insert(copies).start
        };
        for index in 0..count {
            core::ptr::with_exposed_provenance_mut::<usize>(list + index * WORD).write(given.at(index));
        }
        let variables = if environment { given.at(count + 1) } else { environ };
        if search { execvpe(path, list, variables) } else { execve(path, list, variables) }
    }
}

#[cfg(target_arch = "x86_64")]
macro_rules! lists {
    ($($name:ident $environment:literal $search:literal;)*) => {
        $(
            #[doc = concat!(stringify!($name), ", as the manual describes it.")]
            ///
            /// # Safety
            /// As the manual says.
            #[cfg_attr(not(test), unsafe(no_mangle))]
            #[allow(clippy::too_many_arguments)]
            pub unsafe extern "C" fn $name(
                path: usize, a: usize, b: usize, c: usize, d: usize, e: usize,
                stacked: crate::format::Stacked,
            ) -> isize {
                let given = Given { registers: [a, b, c, d, e], stacked: &stacked };
                // SAFETY: the program's arguments.
                unsafe { execute_list(path, given, $environment, $search) }
            }
        )*
    };
}
#[cfg(target_arch = "x86_64")]
lists! {
    execl false false;
    execle true false;
    execlp false true;
}
