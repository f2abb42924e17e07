//! The functions whose callers inside the library are led elsewhere by the linker. A file of its own, because the build
//! script of the library reads it, too.

/// Names for `-Wl,--wrap=NAME`. The library's own exported symbols of these names are not affected.
///
/// - `_rjem_je_arena_new`: every arena gets our hooks at birth, and its metadata does not go through them. (Hooks given
///   to an existing arena leave what it has already taken elsewhere; an arena created with hooks by the public call puts
///   its metadata through them.)
/// - `_rjem_je_arena_decay`: the end of a thread does not give back all free pages of its arena at once; the next thread
///   would fault them in again.
/// - `pthread_atfork`: jemalloc's fork handlers are called by ours, in the order of the locks.
/// - the memory calls: jemalloc's metadata is mapped by the kernel, not by the versions that the program gets.
pub const WRAPPED: [&str; 7] =
    ["_rjem_je_arena_new", "_rjem_je_arena_decay", "pthread_atfork", "mmap", "munmap", "mprotect", "madvise"];
