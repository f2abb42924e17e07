//! What `--prefault` asks for: the regions whose memory is secured or brought in before it is used, and how much of
//! them; and what `--lock` asks for.

use crate::pages::{BSS, HEAP, PagesError, REGIONS, STACK};
use crate::size::{SizeError, parse_size};
use core::fmt;

/// How strictly `--lock` is meant; the place of a word, and one, is the number stored in a session.
pub const LOCKS: &[&str] = &["prefer", "require"];

/// What is to be there of one region before it is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PrefaultChoice {
    /// Whether it is asked for.
    pub wanted: bool,
    /// How many bytes of it; `None`: all.
    pub bytes: Option<u64>,
    /// The program must not run without.
    pub required: bool,
}

/// That of every region, in the order of [`REGIONS`].
pub type PrefaultChoices = [PrefaultChoice; REGIONS.len()];

const DEMAND: PrefaultChoice = PrefaultChoice { wanted: false, bytes: None, required: false };

/// Where nothing is said, memory comes at its first touch.
pub const DEFAULT_PREFAULT: PrefaultChoices = [DEMAND; REGIONS.len()];

/// What is asked for where no region is named: what counts against the budget.
pub const GENERAL_PREFAULT: PrefaultChoices = {
    let mut choices = DEFAULT_PREFAULT;
    choices[HEAP].wanted = true;
    choices[BSS].wanted = true;
    choices
};

/// Why a text says nothing about what is to be there beforehand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PrefaultError<'a> {
    /// An empty part, a region that is none, one given twice, or neither prefer nor require.
    Part(PagesError<'a>),
    /// Not a size.
    Size(SizeError),
    /// No bytes.
    Nothing,
    /// The size of this region is known.
    Known(&'a str),
}

impl fmt::Display for PrefaultError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PrefaultError::Part(PagesError::Empty) => f.write_str("an empty part; write REGION or REGION=SIZE"),
            PrefaultError::Part(error) => error.fmt(f),
            PrefaultError::Size(error) => error.fmt(f),
            PrefaultError::Nothing => f.write_str("a size of 0; leave the region out"),
            PrefaultError::Known(region) => {
                write!(f, "{region} has no size to choose; write {region}, and sizes for heap and stack")
            }
        }
    }
}

/// Reads `REGION[=SIZE][:prefer|:require]`, several of them with commas between. Heap and stack may have a size.
///
/// # Errors
/// Says in one line what is wrong with the text.
pub fn parse_prefault(text: &str) -> Result<PrefaultChoices, PrefaultError<'_>> {
    let mut choices = DEFAULT_PREFAULT;
    for part in text.split(',') {
        let part = part.trim();
        if part.is_empty() {
            return Err(PrefaultError::Part(PagesError::Empty));
        }
        let (what, strictness) = part.split_once(':').unwrap_or((part, "prefer"));
        let required = match strictness {
            "prefer" => false,
            "require" => true,
            other => return Err(PrefaultError::Part(PagesError::Strictness(other))),
        };
        let (word, bytes) = match what.split_once('=') {
            Some((word, size)) => (word.trim(), Some(parse_size(size.trim()).map_err(PrefaultError::Size)?)),
            None => (what, None),
        };
        let unknown = || PrefaultError::Part(PagesError::Region(word));
        let index = REGIONS.iter().position(|name| *name == word).ok_or_else(unknown)?;
        if bytes.is_some() && !matches!(index, HEAP | STACK) {
            return Err(PrefaultError::Known(word));
        }
        if bytes == Some(0) {
            return Err(PrefaultError::Nothing);
        }
        if let Some(choice) = choices.get_mut(index) {
            if choice.wanted {
                return Err(PrefaultError::Part(PagesError::Twice(word)));
            }
            *choice = PrefaultChoice { wanted: true, bytes, required };
        }
    }
    Ok(choices)
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::string::ToString;

    #[test]
    fn regions_with_and_without_a_size() {
        let choices = parse_prefault("heap=2G:require, bss,stack=1M").unwrap();
        assert_eq!(choices[HEAP], PrefaultChoice { wanted: true, bytes: Some(2 << 30), required: true });
        assert_eq!(choices[BSS], PrefaultChoice { wanted: true, bytes: None, required: false });
        assert_eq!(choices[STACK].bytes, Some(1 << 20));
        assert!(!choices[3].wanted && !choices[4].wanted);
        assert_eq!(parse_prefault("heap,bss"), Ok(GENERAL_PREFAULT));
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for (text, reason) in [
            ("", "an empty part; write REGION or REGION=SIZE"),
            ("heap,", "an empty part; write REGION or REGION=SIZE"),
            ("data", "data is no region; regions are heap, bss, stack, text, shm"),
            ("bss=4M", "bss has no size to choose; write bss, and sizes for heap and stack"),
            ("heap=0", "a size of 0; leave the region out"),
            ("heap=4M:always", "always: after a size comes :prefer, :require or nothing"),
            ("heap,heap=4M", "heap is given twice"),
        ] {
            assert_eq!(parse_prefault(text).unwrap_err().to_string(), reason, "{text}");
        }
        assert!(matches!(parse_prefault("heap=x"), Err(PrefaultError::Size(_))));
    }
}
