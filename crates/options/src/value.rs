//! The words that options choose between, and amounts of memory.

use crate::size::{SizeError, parse_decimal, parse_size};
use core::fmt;

/// The engines; the place of a word is the number stored in a session.
pub const ENGINES: &[&str] = &["auto", "move", "copy", "usermode", "copy-always"];
/// Ways of reading and writing the store; the place of a word is the number stored in a session.
pub const IO: &[&str] = &["auto", "uring", "threads"];
/// How much is brought in at a touch; the place of a word is the number stored in a session.
pub const FETCHES: &[&str] = &["auto", "lazy", "aggressive"];
/// How pages go to memory servers and come from them; the place of a word is the number stored in a session.
pub const SWAP_PROTOCOLS: &[&str] = &["ream", "r3", "r58", "r77"];
/// Levels of messages; the place of a word is the number stored in a session.
pub const LEVELS: &[&str] = &["error", "warn", "info", "debug"];

/// An amount of memory as given to `--memory`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Memory {
    /// 90 % of what is available.
    Auto,
    /// Bytes.
    Bytes(u64),
    /// Thousandths of a percent of what the machine, or the cgroup, has.
    Percent(u32),
}

/// Why a text is not an amount of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemoryError {
    /// It is not a size.
    Size(SizeError),
    /// It is a percentage, but not between 0 and 100.
    Percent,
}

impl fmt::Display for MemoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MemoryError::Size(error) => error.fmt(f),
            MemoryError::Percent => f.write_str("not a percentage above 0% and up to 100%"),
        }
    }
}

impl Memory {
    /// That part of `total` bytes, for a percentage; the bytes themselves otherwise; `None` for auto.
    pub fn of(self, total: u64) -> Option<u64> {
        match self {
            Memory::Auto => None,
            Memory::Bytes(bytes) => Some(bytes),
            // At most 100 %, so it fits.
            Memory::Percent(thousandths) => Some((u128::from(total) * u128::from(thousandths) / 100_000) as u64),
        }
    }
}

/// Reads `auto`, a percentage such as `50%` or `12.5%`, or a size.
///
/// # Errors
/// Says in one line what is wrong with the text.
pub fn parse_memory(text: &str) -> Result<Memory, MemoryError> {
    let text = text.trim();
    if text == "auto" {
        return Ok(Memory::Auto);
    }
    let Some(number) = text.strip_suffix('%') else {
        return parse_size(text).map(Memory::Bytes).map_err(MemoryError::Size);
    };
    let (billionths, _, rest) = parse_decimal(number.trim_end()).map_err(|_| MemoryError::Percent)?;
    let thousandths = billionths / 1_000_000;
    if !rest.is_empty() || thousandths == 0 || billionths > 100_000_000_000 {
        return Err(MemoryError::Percent);
    }
    Ok(Memory::Percent(thousandths as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts() {
        assert_eq!(parse_memory("auto"), Ok(Memory::Auto));
        assert_eq!(parse_memory("1G"), Ok(Memory::Bytes(1 << 30)));
        assert_eq!(parse_memory("50%"), Ok(Memory::Percent(50_000)));
        assert_eq!(parse_memory("12.5 %"), Ok(Memory::Percent(12_500)));
        assert_eq!(parse_memory("100%"), Ok(Memory::Percent(100_000)));
        for text in ["0%", "100.001%", "%", "-5%", "5M%", "0.0001%", "1e1%", "200%"] {
            assert_eq!(parse_memory(text), Err(MemoryError::Percent), "{text}");
        }
        assert_eq!(parse_memory("Auto"), Err(MemoryError::Size(SizeError::NoNumber)));
    }

    #[test]
    fn parts_of_a_total() {
        assert_eq!(Memory::Percent(50_000).of(1001), Some(500));
        assert_eq!(Memory::Percent(100_000).of(u64::MAX), Some(u64::MAX));
        assert_eq!(Memory::Bytes(7).of(1), Some(7));
        assert_eq!(Memory::Auto.of(1), None);
    }
}
