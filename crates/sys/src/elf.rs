//! The words of ELF files by which programs are told apart, as elf(5) has them; for files of 64 bits.

/// What this processor's programs have in `e_machine`.
#[cfg(target_arch = "x86_64")]
pub const MACHINE: u16 = 62;
/// What this processor's programs have in `e_machine`.
#[cfg(target_arch = "aarch64")]
pub const MACHINE: u16 = 183;
/// `e_type` of a program that is loaded at the addresses that it names.
pub const TYPE_FIXED: u16 = 2;
/// `e_type` of a program or library that is loaded anywhere.
pub const TYPE_MOVABLE: u16 = 3;
/// Bytes of a program header.
pub const HEADER: usize = 56;
/// `p_type` of a segment that is loaded.
pub const SEGMENT_LOADED: u32 = 1;
/// `p_type` of the name of the linker that starts the program.
pub const SEGMENT_INTERPRETER: u32 = 3;
/// In `p_flags`: may be executed.
pub const EXECUTABLE: u32 = 1;
/// In `p_flags`: may be written.
pub const WRITABLE: u32 = 2;
