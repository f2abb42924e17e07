//! What `ream` says and with what status it ends when it cannot do what it was asked: one line, "what: on what:
//! reason; what to do".

use std::borrow::Cow;
use std::fmt;
use std::io;

/// Status when ream itself fails, as with `env` and `timeout`.
pub const OWN: i32 = 125;
/// Status when the program was found but cannot be executed.
pub const NOT_EXECUTABLE: i32 = 126;
/// Status when the program was not found.
pub const NOT_FOUND: i32 = 127;

/// A failure: one line for the user and an exit status.
#[derive(Debug)]
pub struct Failure {
    /// Exit status.
    pub status: i32,
    /// The line, without the leading "ream: ".
    pub text: String,
}

impl Failure {
    /// A failure of ream itself.
    pub fn new(text: impl Into<String>) -> Failure {
        Failure { status: OWN, text: text.into() }
    }
    /// The same with another exit status.
    pub fn with_status(self, status: i32) -> Failure {
        Failure { status, ..self }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ream: {}", shown(&self.text))
    }
}

/// A text as a terminal may have it, on one line: what would move its cursor, or make it do other things, is written out.
pub fn shown(text: &str) -> Cow<'_, str> {
    // Also what has it show letters in another order.
    let turns = |letter| matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{2028}' | '\u{2029}');
    if !text.contains(|letter: char| letter.is_control() || turns(letter)) {
        return Cow::Borrowed(text);
    }
    let mut out = String::new();
    for letter in text.chars() {
        match letter {
            '\n' => out += "\\n",
            '\t' => out += "\\t",
            '\r' => out += "\\r",
            letter if letter.is_ascii_control() => out += &format!("\\x{:02x}", letter as u32),
            letter if letter.is_control() || turns(letter) => out += &format!("\\u{{{:x}}}", letter as u32),
            letter => out.push(letter),
        }
    }
    Cow::Owned(out)
}

/// The same of bytes that may be no text.
pub fn shown_bytes(bytes: &[u8]) -> String {
    let mut out = String::new();
    for chunk in bytes.utf8_chunks() {
        out += &shown(chunk.valid());
        chunk.invalid().iter().for_each(|byte| out += &format!("\\x{byte:02x}"));
    }
    out
}

/// What the system says about an error, without Rust's "(os error N)".
pub fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    match text.split_once(" (os error ") {
        Some((reason, _)) => reason.to_owned(),
        None => text,
    }
}

/// The word among `words` that `given` was probably meant to be.
pub fn nearest<'a>(given: &str, words: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let most = match given.chars().count() {
        0 => return None,
        1..=3 => 1,
        4..=6 => 2,
        _ => 3,
    };
    words.map(|word| (distance(given, word), word)).filter(|(far, _)| *far <= most).min().map(|(_, word)| word)
}

/// Letters to insert, delete, replace or exchange with their neighbour to get from one word to the other.
fn distance(from: &str, to: &str) -> usize {
    let (from, to): (Vec<char>, Vec<char>) = (from.chars().collect(), to.chars().collect());
    let mut rows = vec![vec![0; to.len() + 1]; from.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    for (j, cell) in rows[0].iter_mut().enumerate() {
        *cell = j;
    }
    for i in 1..=from.len() {
        for j in 1..=to.len() {
            let replace = rows[i - 1][j - 1] + usize::from(from[i - 1] != to[j - 1]);
            let mut best = replace.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = best;
        }
    }
    rows[from.len()][to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_was_meant() {
        let words = || ["memory", "store", "store-limit", "summary", "io"].into_iter();
        assert_eq!(nearest("memroy", words()), Some("memory"));
        assert_eq!(nearest("sumary", words()), Some("summary"));
        assert_eq!(nearest("store-limits", words()), Some("store-limit"));
        assert_eq!(nearest("oi", words()), Some("io"));
        assert_eq!(nearest("verbose", words()), None);
        assert_eq!(nearest("", words()), None);
    }

    #[test]
    fn nothing_reaches_a_terminal_but_text() {
        assert_eq!(shown("a \"b\" \\ é"), "a \"b\" \\ é");
        assert_eq!(shown("a\nb\u{1b}[31m\u{7f}\u{9b}\u{202e}c"), "a\\nb\\x1b[31m\\x7f\\u{9b}\\u{202e}c");
        assert_eq!(shown_bytes(b"a\xff\n\xc3\xa9"), "a\\xff\\n\u{e9}");
        assert_eq!(Failure::new("x\ny").to_string(), "ream: x\\ny");
    }

    #[test]
    fn reasons_are_the_systems_words() {
        assert_eq!(reason(&io::Error::from_raw_os_error(libc::ENOSPC)), "No space left on device");
        assert_eq!(reason(&io::Error::other("odd")), "odd");
    }
}
