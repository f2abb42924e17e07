//! Cuts preprocessed C into tokens, with their places; and tells the file and line that a place came from.

/// What a token is, as far as `dlmc` has to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A name or keyword.
    Word,
    /// A number.
    Number,
    /// A string or character constant.
    Text,
    /// One character of punctuation.
    Mark,
    /// A line that begins with `#`: the preprocessor's line numbers, or a pragma.
    Directive,
}

/// A token, as a range of the source's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    /// What it is.
    pub kind: Kind,
    /// Where it begins.
    pub start: usize,
    /// Where the next byte is.
    pub end: usize,
}

impl Token {
    /// Its text.
    pub fn of<'s>(&self, source: &'s str) -> &'s str {
        &source[self.start..self.end]
    }
}

/// All tokens of preprocessed C.
pub fn tokens(source: &str) -> Vec<Token> {
    cut(source, 0, source.len(), true)
}

/// The tokens within a part that is no directive, or the words of one.
pub fn tokens_within(source: &str, start: usize, end: usize) -> Vec<Token> {
    cut(source, start, end, false)
}

fn cut(source: &str, start: usize, end: usize, directives: bool) -> Vec<Token> {
    let bytes = &source.as_bytes()[..end];
    let mut found = Vec::new();
    let mut at = start;
    let mut fresh_line = directives;
    while at < end {
        let byte = bytes[at];
        let begin = at;
        let kind = match byte {
            b'\n' => {
                fresh_line = directives;
                at += 1;
                continue;
            }
            _ if byte.is_ascii_whitespace() || byte == 0x0b => {
                at += 1;
                continue;
            }
            b'#' if fresh_line => {
                while at < end && bytes[at] != b'\n' {
                    at += 1;
                }
                Kind::Directive
            }
            b'"' | b'\'' => {
                at = after_text(bytes, at);
                Kind::Text
            }
            _ if is_word(byte) && !byte.is_ascii_digit() => {
                while at < end && is_word(bytes[at]) {
                    at += 1;
                }
                Kind::Word
            }
            b'0'..=b'9' => {
                at = after_number(bytes, at);
                Kind::Number
            }
            b'.' if bytes.get(at + 1).is_some_and(u8::is_ascii_digit) => {
                at = after_number(bytes, at);
                Kind::Number
            }
            _ => {
                at += 1;
                Kind::Mark
            }
        };
        fresh_line = false;
        found.push(Token { kind, start: begin, end: at });
    }
    found
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$' || byte >= 0x80
}

fn after_text(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < bytes.len() && bytes[at] != bytes[start] && bytes[at] != b'\n' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(bytes.len())
}

fn after_number(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < bytes.len() {
        let sign = matches!(bytes[at], b'+' | b'-') && matches!(bytes[at - 1], b'e' | b'E' | b'p' | b'P');
        if !(is_word(bytes[at]) || bytes[at] == b'.' || sign) {
            break;
        }
        at += 1;
    }
    at
}

/// Where text came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// As the preprocessor wrote it, escapes included.
    pub file: String,
    /// From 1.
    pub line: usize,
    /// In a header of the system.
    pub system: bool,
}

/// The line markers of preprocessed C.
pub struct Places {
    /// For each marker: where the line after it begins, and what place that is.
    marks: Vec<(usize, Place)>,
}

impl Places {
    /// Reads them.
    pub fn of(source: &str, tokens: &[Token], file: &str) -> Places {
        let mut marks = vec![(0, Place { file: file.to_owned(), line: 1, system: false })];
        for token in tokens.iter().filter(|token| token.kind == Kind::Directive) {
            if let Some(place) = marker(token.of(source)) {
                marks.push((token.end + 1, place));
            }
        }
        Places { marks }
    }

    /// The place of a byte.
    pub fn at(&self, source: &str, offset: usize) -> Place {
        let (start, place) = &self.marks[self.marks.partition_point(|(start, _)| *start <= offset).max(1) - 1];
        let lines = source.as_bytes()[(*start).min(offset)..offset].iter().filter(|byte| **byte == b'\n').count();
        Place { line: place.line + lines, ..place.clone() }
    }
}

/// Reads `# 12 "file.c" 1 3` and `#line 12 "file.c"`.
fn marker(line: &str) -> Option<Place> {
    let rest = line.strip_prefix('#')?.trim_start();
    let rest = rest.strip_prefix("line").unwrap_or(rest).trim_start();
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let number = rest[..digits].parse().ok()?;
    let rest = rest[digits..].trim_start().strip_prefix('"')?;
    let quote = rest.rfind('"')?;
    let system = rest[quote + 1..].split_whitespace().any(|flag| flag == "3");
    Some(Place { file: rest[..quote].to_owned(), line: number, system })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_texts_and_directives() {
        let source = "a1 = 0x1e+2, 1e+2 .5f; // \n \"x\\\"# y\" 'q'\n#pragma omp x\n # not\nb#c";
        let words: Vec<&str> = tokens(source).iter().map(|token| token.of(source)).collect();
        let wanted = [
            "a1",
            "=",
            "0x1e+2",
            ",",
            "1e+2",
            ".5f",
            ";",
            "/",
            "/",
            "\"x\\\"# y\"",
            "'q'",
            "#pragma omp x",
            "# not",
            "b",
            "#",
            "c",
        ];
        assert_eq!(words, wanted);
    }

    #[test]
    fn unfinished_text_ends() {
        assert_eq!(tokens("\"a").len(), 1);
        assert_eq!(tokens("'\\").len(), 1);
        assert_eq!(tokens("'a\nb").len(), 2);
    }

    #[test]
    fn places_follow_the_markers() {
        let source = "# 1 \"a.c\"\nx\n# 7 \"/usr/include/h.h\" 1 3 4\n\ny\n#pragma z\n# 3 \"a.c\" 2\nw";
        let tokens = tokens(source);
        let places = Places::of(source, &tokens, "?");
        let at = |text: &str| places.at(source, source.find(text).unwrap());
        assert_eq!(at("x"), Place { file: "a.c".into(), line: 1, system: false });
        assert_eq!(at("y"), Place { file: "/usr/include/h.h".into(), line: 8, system: true });
        assert_eq!(at("w"), Place { file: "a.c".into(), line: 3, system: false });
        assert_eq!(places.at(source, 0).line, 1);
    }
}
