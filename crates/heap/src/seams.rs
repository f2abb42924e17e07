//! How jemalloc is joined to the library that it is linked into, by the linker: `--wrap` for the functions it calls,
//! and a hidden symbol for its settings. The crate that makes the final library says [`seams!`](crate::seams) once and
//! passes the names in [`WRAPPED`](crate::WRAPPED) to the linker.

/// jemalloc's settings. No threads of its own; few arenas, made as threads come; free pages go back within seconds;
/// addresses are kept; nothing from sbrk.
#[doc(hidden)]
#[macro_export]
macro_rules! settings {
    () => {
        concat!(
            "background_thread:false,narenas:16,dirty_decay_ms:5000,muzzy_decay_ms:0,",
            "oversize_threshold:0,retain:true,dss:disabled,tcache_nslots_small_max:1000,lg_tcache_nslots_mul:4"
        )
    };
}

/// Functions of jemalloc that must run around a fork.
#[derive(Clone, Copy)]
pub struct ForkHandlers {
    /// Before the fork: takes all of jemalloc's locks.
    pub prepare: Option<unsafe extern "C" fn()>,
    /// After it, in the parent.
    pub parent: Option<unsafe extern "C" fn()>,
    /// After it, in the child.
    pub child: Option<unsafe extern "C" fn()>,
}

/// Defines the wrapped functions for a type that is [`Arenas`](crate::small::Arenas), and
/// `fn jemalloc_fork_handlers() -> ForkHandlers`.
#[macro_export]
macro_rules! seams {
    ($arenas:ty) => {
        use core::ffi::{c_int, c_uint, c_void};
        use core::sync::atomic::{AtomicPtr, Ordering};
        use $crate::seams::ForkHandlers;

        static HOOKS: $crate::small::Hooks = $crate::small::hooks::<$arenas>();

        /// jemalloc's `arena_config_t`.
        #[repr(C)]
        struct ArenaConfig {
            hooks: *const $crate::small::Hooks,
            metadata_use_hooks: bool,
        }

        unsafe extern "C" {
            #[link_name = "__real__rjem_je_arena_new"]
            fn real_arena_new(thread: *mut c_void, index: c_uint, config: *const ArenaConfig) -> *mut c_void;
            #[link_name = "_rjem_je_b0get"]
            fn first_base() -> *mut c_void;
            #[link_name = "_rjem_je_base_extent_hooks_set"]
            fn set_hooks(base: *mut c_void, hooks: *const $crate::small::Hooks) -> *const $crate::small::Hooks;
        }

        unsafe extern "C" fn arena_new(thread: *mut c_void, index: c_uint, _config: *const ArenaConfig) -> *mut c_void {
            let config = ArenaConfig { hooks: &raw const HOOKS, metadata_use_hooks: false };
            if index == 0 {
                // The first arena is made from a base that exists before it, and does not look at the configuration.
                // SAFETY: jemalloc's own functions, during its start, in one thread. Metadata has hooks of its own.
                unsafe { set_hooks(first_base(), &raw const HOOKS) };
            }
            // SAFETY: jemalloc's own arguments, and a configuration that it copies.
            unsafe { real_arena_new(thread, index, &raw const config) }
        }

        unsafe extern "C" {
            #[link_name = "__real__rjem_je_arena_decay"]
            fn real_arena_decay(thread: *mut c_void, arena: *mut c_void, background: bool, all: bool);
        }

        unsafe extern "C" fn arena_decay(thread: *mut c_void, arena: *mut c_void, background: bool, all: bool) {
            // SAFETY: jemalloc's own arguments.
            unsafe { real_arena_decay(thread, arena, background, all && $crate::small::purging()) }
        }

        static FORK: [AtomicPtr<c_void>; 3] = [const { AtomicPtr::new(core::ptr::null_mut()) }; 3];

        unsafe extern "C" fn register_atfork(prepare: *mut c_void, parent: *mut c_void, child: *mut c_void) -> c_int {
            for (place, handler) in FORK.iter().zip([prepare, parent, child]) {
                place.store(handler, Ordering::Release);
            }
            0
        }

        /// What jemalloc asked to be called around a fork; nothing before its first use.
        pub fn jemalloc_fork_handlers() -> ForkHandlers {
            let handler = |place: &AtomicPtr<c_void>| {
                let pointer = place.load(Ordering::Acquire);
                // SAFETY: null, or the function that jemalloc registered; both fit an optional function pointer.
                unsafe { core::mem::transmute::<*mut c_void, Option<unsafe extern "C" fn()>>(pointer) }
            };
            let [prepare, parent, child] = &FORK;
            ForkHandlers { prepare: handler(prepare), parent: handler(parent), child: handler(child) }
        }

        unsafe extern "C" fn plain_mmap(
            address: usize,
            bytes: usize,
            protection: c_int,
            flags: c_int,
            fd: c_int,
            offset: i64,
        ) -> *mut c_void {
            // SAFETY: jemalloc's own use of mmap.
            let result = unsafe {
                ream_sys::memory::mmap(address, bytes, protection as usize, flags as usize, fd, offset as u64)
            };
            result.map_or(core::ptr::without_provenance_mut(usize::MAX), |start| start.cast())
        }

        unsafe extern "C" fn plain_munmap(address: *mut c_void, bytes: usize) -> c_int {
            // SAFETY: jemalloc's own use of munmap.
            if unsafe { ream_sys::memory::unmap(address.cast(), bytes) }.is_ok() { 0 } else { -1 }
        }

        unsafe extern "C" fn plain_mprotect(address: usize, bytes: usize, protection: c_int) -> c_int {
            use ream_sys::syscall::{call3, number};
            // SAFETY: jemalloc's own use of mprotect.
            let result = unsafe { call3(number::__NR_mprotect, address, bytes, protection as usize) };
            if result.is_ok() { 0 } else { -1 }
        }

        unsafe extern "C" fn plain_madvise(address: usize, bytes: usize, advice: c_int) -> c_int {
            use ream_sys::syscall::{call3, number};
            // SAFETY: jemalloc's own use of madvise.
            let result = unsafe { call3(number::__NR_madvise, address, bytes, advice as usize) };
            if result.is_ok() { 0 } else { -1 }
        }

        $crate::wrap!("_rjem_je_arena_new", arena_new);
        $crate::wrap!("_rjem_je_arena_decay", arena_decay);
        $crate::wrap!("pthread_atfork", register_atfork);
        $crate::wrap!("mmap", plain_mmap);
        $crate::wrap!("munmap", plain_munmap);
        $crate::wrap!("mprotect", plain_mprotect);
        $crate::wrap!("madvise", plain_madvise);

        core::arch::global_asm!(
            ".pushsection .rodata.ream_settings,\"a\"",
            ".Lream_settings:",
            concat!(".asciz \"", $crate::settings!(), "\""),
            ".popsection",
            ".pushsection .data.rel.ro.ream_settings,\"aw\"",
            ".balign 8",
            ".globl _rjem_malloc_conf",
            ".hidden _rjem_malloc_conf",
            "_rjem_malloc_conf:",
            ".quad .Lream_settings",
            ".popsection",
        );
    };
}

/// Defines the hidden symbol `__wrap_NAME` as a jump to a function. In assembly, because a symbol that Rust exports by
/// name would be exported by the library too.
#[doc(hidden)]
#[macro_export]
macro_rules! wrap {
    ($name:literal, $function:ident) => {
        #[cfg(target_arch = "x86_64")]
        $crate::wrap!($name, $function, "jmp");
        #[cfg(target_arch = "aarch64")]
        $crate::wrap!($name, $function, "b");
    };
    ($name:literal, $function:ident, $jump:literal) => {
        core::arch::global_asm!(
            concat!(".globl __wrap_", $name),
            concat!(".hidden __wrap_", $name),
            concat!(".type __wrap_", $name, ", %function"),
            concat!("__wrap_", $name, ":"),
            concat!($jump, " {function}"),
            function = sym $function,
        );
    };
}
