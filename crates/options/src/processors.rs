//! Lists of processors as in `0-3,8`.

use core::fmt;

/// A set of processors, by number, below [`Processors::LIMIT`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Processors {
    bits: [u64; (Processors::LIMIT / 64) as usize],
}

/// Why a text is not a list of processors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProcessorsError {
    /// Not numbers and ranges with commas between them.
    Form,
    /// A range that ends before it begins.
    Backwards,
    /// A number beyond [`Processors::LIMIT`].
    TooLarge,
}

impl fmt::Display for ProcessorsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProcessorsError::Form => f.write_str("not a list of processors; write for example 0-3,8"),
            ProcessorsError::Backwards => f.write_str("a range ends before it begins; write for example 0-3"),
            ProcessorsError::TooLarge => write!(f, "processor numbers must be below {}", Processors::LIMIT),
        }
    }
}

impl Processors {
    /// Processor numbers are below this.
    pub const LIMIT: u32 = 1024;

    /// Reads a list of numbers and ranges.
    ///
    /// # Errors
    /// Says in one line what is wrong with the text.
    pub fn parse(text: &str) -> Result<Processors, ProcessorsError> {
        let number = |text: &str| -> Result<u32, ProcessorsError> {
            if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
                return Err(ProcessorsError::Form);
            }
            match text.parse::<u32>() {
                Ok(n) if n < Processors::LIMIT => Ok(n),
                _ => Err(ProcessorsError::TooLarge),
            }
        };
        let mut set = Processors::default();
        for part in text.trim().split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (number(first)?, number(last)?);
            if last < first {
                return Err(ProcessorsError::Backwards);
            }
            for n in first..=last {
                set.insert(n);
            }
        }
        Ok(set)
    }

    fn insert(&mut self, n: u32) {
        if let Some(word) = self.bits.get_mut((n / 64) as usize) {
            *word |= 1 << (n % 64);
        }
    }

    /// Whether processor `n` is in the set.
    pub fn contains(&self, n: u32) -> bool {
        self.bits.get((n / 64) as usize).is_some_and(|word| word >> (n % 64) & 1 != 0)
    }

    /// Number of processors in the set.
    pub fn count(&self) -> u32 {
        self.bits.iter().map(|word| word.count_ones()).sum()
    }

    /// The set as the kernel wants it: bit `n % 64` of word `n / 64`.
    pub fn words(&self) -> &[u64] {
        &self.bits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_ranges() {
        let set = Processors::parse("0-3,8,63-64").unwrap();
        assert_eq!(set.count(), 7);
        assert!([0, 1, 2, 3, 8, 63, 64].iter().all(|n| set.contains(*n)));
        assert!(!set.contains(4) && !set.contains(1023) && !set.contains(5000));
        assert_eq!(set.words()[0], 1 << 63 | 0b1_0000_1111);
    }

    #[test]
    fn what_is_no_list() {
        for text in ["", ",", "1,", "a", "1-", "-1", "1-2-3", "1 2", "+1"] {
            assert_eq!(Processors::parse(text), Err(ProcessorsError::Form), "{text}");
        }
        assert_eq!(Processors::parse("3-1"), Err(ProcessorsError::Backwards));
        assert_eq!(Processors::parse("1024"), Err(ProcessorsError::TooLarge));
        assert_eq!(Processors::parse("99999999999"), Err(ProcessorsError::TooLarge));
    }
}
