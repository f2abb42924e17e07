//! Sizes in bytes as people write them: `4k`, `512M`, `1.5G`, `1GiB`. Exact: no floating point, overflow refused.

use core::fmt;

/// Why a text is not a size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SizeError {
    /// Nothing was given.
    Empty,
    /// It does not begin with a digit.
    NoNumber,
    /// The letters after the number are no unit.
    Unit,
    /// More than nine digits after the point.
    Decimals,
    /// A fraction of a byte.
    Fraction,
    /// More than 2^64 - 1 bytes.
    TooLarge,
}

impl fmt::Display for SizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SizeError::Empty => "no size given; write for example 512M or 1.5G",
            SizeError::NoNumber => "not a size; write for example 512M or 1.5G",
            SizeError::Unit => "unknown unit; use K, M, G, T or P (powers of 1024), or kB, MB, GB, TB or PB (of 1000)",
            SizeError::Decimals => "more than nine digits after the point; use a smaller unit",
            SizeError::Fraction => "not a whole number of bytes; add a unit such as M or G",
            SizeError::TooLarge => "more than 64 bits hold; use a smaller size",
        })
    }
}

/// Reads a decimal number with up to nine decimals from the start of `text`: the number times 10^9, whether it has
/// decimals, and what follows it.
pub(crate) fn parse_decimal(text: &str) -> Result<(u128, bool, &str), SizeError> {
    const DECIMALS: u32 = 9;
    let mut whole: u128 = 0;
    let mut digits = 0;
    let mut rest = text.as_bytes();
    while let [digit @ b'0'..=b'9', tail @ ..] = rest {
        whole =
            whole.checked_mul(10).and_then(|w| w.checked_add(u128::from(digit - b'0'))).ok_or(SizeError::TooLarge)?;
        digits += 1;
        rest = tail;
    }
    if digits == 0 {
        return Err(SizeError::NoNumber);
    }
    let mut decimals = 0;
    let mut fraction: u128 = 0;
    if let [b'.', tail @ ..] = rest {
        rest = tail;
        while let [digit @ b'0'..=b'9', tail @ ..] = rest {
            decimals += 1;
            if decimals > DECIMALS {
                return Err(SizeError::Decimals);
            }
            fraction = fraction * 10 + u128::from(digit - b'0');
            rest = tail;
        }
        if decimals == 0 {
            return Err(SizeError::NoNumber);
        }
    }
    let scaled = whole.checked_mul(10u128.pow(DECIMALS)).ok_or(SizeError::TooLarge)?;
    let billionths = scaled.checked_add(fraction * 10u128.pow(DECIMALS - decimals)).ok_or(SizeError::TooLarge)?;
    let used = text.len() - rest.len();
    Ok((billionths, fraction != 0, text.get(used..).unwrap_or("")))
}

/// Bytes of a unit, by its letters in any case; nothing and `B` are bytes.
fn unit_bytes(unit: &str) -> Option<u64> {
    let mut letters = [0u8; 3];
    for (place, letter) in letters.iter_mut().zip(unit.bytes()) {
        *place = letter.to_ascii_lowercase();
    }
    let power = match letters[0] {
        b'k' => 1,
        b'm' => 2,
        b'g' => 3,
        b't' => 4,
        b'p' => 5,
        _ => return if unit.is_empty() || unit.eq_ignore_ascii_case("b") { Some(1) } else { None },
    };
    match (unit.len(), letters[1], letters[2]) {
        (1, ..) | (3, b'i', b'b') => Some(1024u64.pow(power)),
        (2, b'b', _) => Some(1000u64.pow(power)),
        _ => None,
    }
}

/// Reads a size in bytes. A number, with decimals if wanted, and a unit: none or `B` for bytes; `K`, `M`, `G`, `T`,
/// `P` or `KiB` and so on for powers of 1024; `kB`, `MB` and so on for powers of 1000; case does not matter. What
/// decimals leave below one byte is cut off.
///
/// # Errors
/// Says in one line what is wrong with the text.
pub fn parse_size(text: &str) -> Result<u64, SizeError> {
    let text = text.trim();
    if text.is_empty() {
        return Err(SizeError::Empty);
    }
    let (billionths, fraction, rest) = parse_decimal(text)?;
    let unit = unit_bytes(rest.trim_start()).ok_or(SizeError::Unit)?;
    if fraction && unit == 1 {
        return Err(SizeError::Fraction);
    }
    let bytes = billionths.checked_mul(u128::from(unit)).ok_or(SizeError::TooLarge)? / 1_000_000_000;
    u64::try_from(bytes).map_err(|_| SizeError::TooLarge)
}

/// Shows a number of bytes with about three figures and a binary unit, as in `512 MiB`, `1.5 GiB`, `3.94 GiB`.
/// Rounded down.
pub fn show_size(bytes: u64) -> impl fmt::Display {
    struct Size(u64);
    impl fmt::Display for Size {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
            let power = (63 - (self.0 | 1).leading_zeros()) / 10;
            let unit = UNITS.get(power as usize).copied().unwrap_or("B");
            let one = 1u128 << (10 * power);
            let hundredths = u128::from(self.0) * 100 / one;
            let (whole, part) = (hundredths / 100, hundredths % 100);
            match part {
                0 => write!(f, "{whole} {unit}"),
                _ if whole >= 100 => write!(f, "{whole} {unit}"),
                _ if whole >= 10 || part % 10 == 0 => match part / 10 {
                    0 => write!(f, "{whole} {unit}"),
                    tenth => write!(f, "{whole}.{tenth} {unit}"),
                },
                _ => write!(f, "{whole}.{part:02} {unit}"),
            }
        }
    }
    Size(bytes)
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::format;
    use std::string::ToString;

    #[test]
    fn reads_what_people_write() {
        for (text, bytes) in [
            ("0", 0),
            ("1", 1),
            ("4k", 4096),
            ("4 KiB", 4096),
            ("4kB", 4000),
            ("512M", 512 << 20),
            ("512 mib", 512 << 20),
            ("1.5G", 3 << 29),
            ("1GiB", 1 << 30),
            ("1GB", 1_000_000_000),
            ("0.5M", 512 << 10),
            ("2T", 2 << 40),
            ("1P", 1 << 50),
            ("7b", 7),
            ("3.0", 3),
            (" 64M ", 64 << 20),
            ("0.000000001G", 1),
            ("18446744073709551615", u64::MAX),
            ("16383.999999999P", ((16_383_999_999_999u128 << 50) / 1_000_000_000) as u64),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn refuses_what_it_cannot_mean() {
        for (text, error) in [
            ("", SizeError::Empty),
            ("  ", SizeError::Empty),
            ("G", SizeError::NoNumber),
            ("-1G", SizeError::NoNumber),
            ("+1G", SizeError::NoNumber),
            (".5G", SizeError::NoNumber),
            ("1.G", SizeError::NoNumber),
            ("1e9", SizeError::Unit),
            ("1X", SizeError::Unit),
            ("1GG", SizeError::Unit),
            ("1GiBs", SizeError::Unit),
            ("1Gi", SizeError::Unit),
            ("1,5G", SizeError::Unit),
            ("1.5.5G", SizeError::Unit),
            ("1G 2", SizeError::Unit),
            ("0x10", SizeError::Unit),
            ("1µ", SizeError::Unit),
            ("1.0000000001G", SizeError::Decimals),
            ("1.5", SizeError::Fraction),
            ("0.1B", SizeError::Fraction),
            ("18446744073709551616", SizeError::TooLarge),
            ("16384P", SizeError::TooLarge),
            ("99999999999999999999999999999999999999999", SizeError::TooLarge),
        ] {
            assert_eq!(parse_size(text), Err(error), "{text}");
        }
    }

    /// Every shown size of a whole unit reads back as itself.
    #[test]
    fn shown_sizes_read_back() {
        for power in 0..60 {
            let bytes = 1u64 << power;
            let text = show_size(bytes).to_string();
            // Units above P are shown but not read.
            if power < 60 && !text.contains("EiB") {
                assert_eq!(parse_size(&text), Ok(bytes), "{text}");
            }
        }
        assert_eq!(show_size(0).to_string(), "0 B");
        assert_eq!(show_size(1023).to_string(), "1023 B");
        assert_eq!(show_size(3 << 29).to_string(), "1.5 GiB");
        assert_eq!(show_size((4 << 30) - (64 << 20)).to_string(), "3.93 GiB");
        assert_eq!(show_size(u64::MAX).to_string(), "15.9 EiB");
        assert_eq!(format!("{}", show_size((100 << 30) + 12345)), "100 GiB");
        assert_eq!(show_size((10 << 30) + (51 << 20)).to_string(), "10 GiB");
    }
}
