//! Code that a static program runs inside its own libc's mprotect and mmap: the system call that stood there, and then the
//! advice that the kernel needs for large pages. It keeps every register that the call itself keeps, has no state, and
//! calls nothing, so threads, signal handlers and children of vfork may run it at any time.

/// The code, position-independent, and the places in it that are to be filled in.
pub struct Code {
    /// The bytes. After both functions follows the byte of wishes.
    pub bytes: &'static [u8],
    /// Where the functions begin: mprotect's and mmap's.
    pub entries: [usize; 2],
    /// Behind the jumps with which they end, relative ones of 32 bits.
    pub exits: [usize; 2],
}

/// Bits of the last byte: what is wished for.
pub mod wish {
    /// Heaps of other threads, and the program's own mappings of a large page and more.
    pub const HEAP: u8 = 1;
    /// Pieces that the program maps one by one.
    pub const PIECES: u8 = 2;
    /// Stacks of threads.
    pub const STACK: u8 = 4;
    /// Those from their first whole block on.
    pub const WHOLE_STACK: u8 = 8;
}

/// The code for this processor; `None` where there is none.
#[cfg(not(target_arch = "x86_64"))]
pub fn code() -> Option<Code> {
    None
}

// What the registers hold at both entries is what the kernel takes. The system call itself changes rax, rcx and r11.
//
// mprotect: glibc opens the heaps of other threads page by page, each page touched before the next is open, so that no large
// page fits. When it opens the first of a block, the rest of the block is opened as well, and lies on a large page from its
// first touch on. A heap's first block is left to be opened by and by, as a thread may need no more than a few pages of it; once
// complete it is made large with what is in it. A heap lies within 64 MiB that begin at a multiple of that, and its fourth word
// says how much of it has been open until now: exactly up to here. That is compared by the kernel (a futex that is waited for
// no time at all: ETIMEDOUT where it is so), as what is there need not be readable. Nobody else's memory is opened or made
// large. A refusal leaves everything as it is.
//
// mmap: reservations for those heaps are told by their size, kind and protection, and so are stacks of threads. Under `auto`
// the uppermost block of a stack, which every thread touches, is not advised: as in `runtime/src/stacks.rs`.
#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    ".pushsection .rodata.ream_hook, \"a\", @progbits",
    ".balign 8",
    ".globl ream_hook_begin, ream_hook_mprotect, ream_hook_mprotect_exit",
    ".globl ream_hook_mmap, ream_hook_mmap_exit, ream_hook_end",
    ".hidden ream_hook_begin, ream_hook_mprotect, ream_hook_mprotect_exit",
    ".hidden ream_hook_mmap, ream_hook_mmap_exit, ream_hook_end",
    "ream_hook_begin:",
    "ream_hook_mprotect:",
    "mov eax, 10",
    "syscall",
    "test rax, rax",
    "jnz 9f",
    "cmp edx, 3",
    "jne 9f",
    "test byte ptr [rip + 8f], 1",
    "jz 9f",
    // rcx: the end. It begins a block, or reaches into another one of the same 64 MiB.
    "lea rcx, [rdi + rsi + 4095]",
    "and rcx, -4096",
    "lea r11, [rcx - 1]",
    "xor r11, rdi",
    "cmp r11, 0x4000000",
    "jae 9f",
    "cmp r11, 0x200000",
    "jae 2f",
    "test edi, 0x1fffff",
    "jnz 9f",
    // r11: where a heap would begin; not one that is just made.
    "2:",
    "mov r11, rdi",
    "and r11, -0x4000000",
    "cmp r11, rdi",
    "je 9f",
    "push rdi",
    "push rsi",
    "push rdx",
    "push r10",
    "push rcx",
    "push r11",
    "mov edx, edi",
    "sub edx, r11d",
    "lea rdi, [r11 + 24]",
    "mov esi, 128", // FUTEX_WAIT_PRIVATE
    "lea r10, [rip + 6f]",
    "mov eax, 202", // futex
    "syscall",
    "cmp eax, -110", // ETIMEDOUT
    "jne 3f",
    // The first block is complete.
    "mov rdi, [rsp]",
    "mov rax, [rsp + 40]",
    "sub rax, rdi",
    "cmp rax, 0x200000",
    "ja 4f",
    "mov esi, 0x200000",
    "mov edx, 25", // MADV_COLLAPSE
    "mov eax, 28", // madvise
    "syscall",
    "4:",
    "mov rdi, [rsp + 8]",
    "lea rsi, [rdi + 0x1fffff]",
    "and rsi, -0x200000",
    "sub rsi, rdi",
    "jz 3f",
    "mov edx, 3",
    "mov eax, 10",
    "syscall",
    "3:",
    "pop r11",
    "pop rcx",
    "pop r10",
    "pop rdx",
    "pop rsi",
    "pop rdi",
    "xor eax, eax",
    "9:",
    ".byte 0xe9",
    ".long 0",
    "ream_hook_mprotect_exit:",
    ".balign 8",
    "6:",
    ".quad 0, 0",
    "ream_hook_mmap:",
    "mov eax, 9",
    "syscall",
    "cmp rax, -4096",
    "ja 9f",
    "push rdi",
    "push rsi",
    "push rdx",
    "push rax",
    "mov ecx, r10d",
    "cmp ecx, 0x22", // MAP_PRIVATE | MAP_ANONYMOUS
    "je 3f",
    "cmp ecx, 0x4022", // MAP_NORESERVE too
    "je 4f",
    "and ecx, -0x4001",
    "cmp ecx, 0x20022", // MAP_STACK too
    "jne 7f",
    // A stack, with or without a guard that is left of it.
    "test byte ptr [rip + 8f], 4",
    "jz 7f",
    "test edx, -4",
    "jnz 7f",
    "cmp rsi, 0x400000",
    "jb 7f",
    "test byte ptr [rip + 8f], 8",
    "jnz 6f",
    "lea rcx, [rax + rsi - 1]",
    "mov rsi, rcx",
    "and rsi, -0x200000",
    "sub rcx, rsi",
    "cmp rcx, 0x40000",
    "jae 2f",
    "sub rsi, 0x200000",
    "2:",
    "sub rsi, rax",
    "ja 6f",
    "jmp 7f",
    // A mapping of its own.
    "3:",
    "cmp edx, 3",
    "jne 7f",
    "cmp rsi, 0x200000",
    "jb 5f",
    "test byte ptr [rip + 8f], 1",
    "jnz 6f",
    "jmp 7f",
    // A reservation for a heap.
    "4:",
    "test edx, edx",
    "jnz 7f",
    "test byte ptr [rip + 8f], 1",
    "jz 7f",
    "cmp rsi, 0x8000000",
    "je 6f",
    "cmp rsi, 0x4000000",
    "je 6f",
    "jmp 7f",
    // A piece: the block that begins in it is complete where others lie above.
    "5:",
    "test byte ptr [rip + 8f], 2",
    "jz 7f",
    "cmp rsi, 0x40000",
    "jb 7f",
    "test rdi, rdi",
    "jnz 7f",
    "mov rdi, rax",
    "mov edx, 14", // MADV_HUGEPAGE
    "mov eax, 28",
    "syscall",
    "add rsi, rdi",
    "add rdi, 0x1fffff",
    "and rdi, -0x200000",
    "cmp rdi, rsi",
    "jae 7f",
    "mov esi, 0x200000",
    "mov edx, 25", // MADV_COLLAPSE
    "mov eax, 28",
    "syscall",
    "jmp 7f",
    "6:",
    "mov rdi, [rsp]",
    "mov edx, 14", // MADV_HUGEPAGE
    "mov eax, 28",
    "syscall",
    "7:",
    "pop rax",
    "pop rdx",
    "pop rsi",
    "pop rdi",
    "9:",
    ".byte 0xe9",
    ".long 0",
    "ream_hook_mmap_exit:",
    "8:",
    ".byte 0",
    "ream_hook_end:",
    ".popsection",
);

/// The code for this processor.
#[cfg(target_arch = "x86_64")]
pub fn code() -> Option<Code> {
    unsafe extern "C" {
        static ream_hook_begin: u8;
        static ream_hook_mprotect: u8;
        static ream_hook_mprotect_exit: u8;
        static ream_hook_mmap: u8;
        static ream_hook_mmap_exit: u8;
        static ream_hook_end: u8;
    }
    let start = &raw const ream_hook_begin;
    let at = |place: *const u8| place.addr() - start.addr();
    let length = at(&raw const ream_hook_end);
    Some(Code {
        // SAFETY: constant bytes between two labels of one section.
        bytes: unsafe { std::slice::from_raw_parts(start, length) },
        entries: [at(&raw const ream_hook_mprotect), at(&raw const ream_hook_mmap)],
        exits: [at(&raw const ream_hook_mprotect_exit), at(&raw const ream_hook_mmap_exit)],
    })
}
