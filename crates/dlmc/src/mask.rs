//! Makes of preprocessed C what the parser understands, without moving anything: extensions of compilers that say nothing
//! about which object a name means are blanked, or replaced by something of the same kind that is no longer.

use crate::token::{Kind, Token};
use std::ops::Range;

/// The text for the parser, and the parts of it in which names were blanked.
pub struct Masked {
    /// As long as the source.
    pub text: Vec<u8>,
    /// What was attributes and the like.
    pub hidden: Vec<Range<usize>>,
}

/// Words that one of another kind stands for.
const REPLACED: &[(&str, &str)] = &[
    ("__alignof", "sizeof"),
    ("__alignof__", "sizeof"),
    ("_Alignof", "sizeof"),
    ("__auto_type", "int"),
    ("__int128", "long"),
    ("__int128_t", "long"),
    ("__uint128_t", "long"),
    ("__float128", "double"),
    ("__float80", "double"),
    ("__ibm128", "double"),
    ("__thread", "volatile"),
    ("__const__", "const"),
    ("__extension__", ""),
    ("__real__", ""),
    ("__real", ""),
    ("__imag__", ""),
    ("__imag", ""),
];

/// Words that a value may follow: `&&` after one of them takes a label's address, and `[[` opens an attribute.
const NO_VALUES: &[&str] = &["return", "case", "else", "do", "sizeof", "goto"];

struct Mask<'s> {
    source: &'s str,
    tokens: &'s [Token],
    masked: Masked,
}

/// Masks a source.
pub fn mask(source: &str, tokens: &[Token], keywords: &[Token]) -> Masked {
    let text = source.bytes().map(|byte| if byte.is_ascii() { byte } else { b'_' }).collect();
    let mut mask = Mask { source, tokens, masked: Masked { text, hidden: Vec::new() } };
    for keyword in keywords {
        mask.write(keyword.start..keyword.end, "");
    }
    let mut index = 0;
    while index < tokens.len() {
        index = mask.step(index).max(index + 1);
    }
    mask.masked
}

impl Mask<'_> {
    fn text(&self, index: usize) -> &str {
        self.tokens.get(index).map_or("", |token| token.of(self.source))
    }

    /// Blanks a range, but for `words` at its beginning; line ends stay.
    fn write(&mut self, range: Range<usize>, words: &str) {
        for byte in &mut self.masked.text[range.clone()] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        self.masked.text[range.start..range.start + words.len()].copy_from_slice(words.as_bytes());
    }

    /// Blanks tokens in which the parser would have found names.
    fn hide(&mut self, from: usize, to: usize, words: &str) -> usize {
        let range = self.tokens[from].start..self.tokens[to].end;
        self.write(range.clone(), words);
        self.masked.hidden.push(range);
        to + 1
    }

    /// The bracket that closes the one at `index`, or the last token.
    fn closing(&self, index: usize) -> usize {
        let mut depth = 0usize;
        for at in index..self.tokens.len() {
            match self.text(at) {
                "(" | "[" | "{" => depth += 1,
                ")" | "]" | "}" if depth <= 1 => return at,
                ")" | "]" | "}" => depth -= 1,
                _ => {}
            }
        }
        self.tokens.len() - 1
    }

    /// Whether two tokens touch.
    fn touch(&self, index: usize) -> bool {
        self.tokens.get(index + 1).is_some_and(|next| next.start == self.tokens[index].end)
    }

    /// Whether what stands before a token is a value, so that an operator with two sides may follow.
    fn after_value(&self, index: usize) -> bool {
        let Some(before) = index.checked_sub(1).map(|before| self.tokens[before]) else { return false };
        let text = before.of(self.source);
        match before.kind {
            Kind::Word => !NO_VALUES.contains(&text),
            Kind::Number | Kind::Text => true,
            Kind::Mark => matches!(text, ")" | "]" | "}"),
            Kind::Directive => false,
        }
    }

    /// Looks at one token; returns the next to look at.
    fn step(&mut self, index: usize) -> usize {
        let token = self.tokens[index];
        let (word, next) = (token.of(self.source), index + 1);
        match token.kind {
            Kind::Directive => self.write(token.start..token.end, ""),
            Kind::Word => return self.word(index, word.to_owned().as_str()),
            Kind::Mark if word == "?" && self.text(next) == ":" => {
                // The shorter conditional is a choice of two, as || is.
                let range = token.start..self.tokens[next].end;
                self.write(range, "||");
                return next + 1;
            }
            Kind::Mark if word == "&" && self.text(next) == "&" && self.touch(index) => {
                let label = self.tokens.get(next + 1).filter(|label| label.kind == Kind::Word);
                if let (false, Some(label)) = (self.after_value(index), label) {
                    self.write(token.start..label.end, "0");
                }
                return next + 2;
            }
            Kind::Mark if word == "[" && self.text(next) == "[" && self.touch(index) && !self.after_value(index) => {
                let end = self.closing(index);
                return self.hide(index, end, "");
            }
            _ => {}
        }
        next
    }

    fn word(&mut self, index: usize, word: &str) -> usize {
        let token = self.tokens[index];
        let next = index + 1;
        match word {
            "__attribute__" | "__attribute" | "_Alignas" if self.text(next) == "(" => {
                let end = self.closing(next);
                return self.hide(index, end, "");
            }
            "__builtin_types_compatible_p" | "__builtin_has_attribute" if self.text(next) == "(" => {
                let end = self.closing(next);
                return self.hide(index, end, "0");
            }
            // Unlike __asm__, no keyword to the parser.
            "asm" => {
                let mut open = next;
                while matches!(self.text(open), "volatile" | "__volatile__" | "goto" | "inline" | "__inline__") {
                    open += 1;
                }
                if self.text(open) == "(" {
                    let end = self.closing(open);
                    return self.hide(index, end, "");
                }
            }
            "__label__" => {
                let mut end = next;
                while end + 1 < self.tokens.len() && self.text(end) != ";" {
                    end += 1;
                }
                self.write(token.start..self.tokens[end.min(self.tokens.len() - 1)].end, "");
                return end + 1;
            }
            "goto" if self.text(next) == "*" => self.write(token.start..token.end, ""),
            // Of a literal of a type: the parser takes the type for the operand.
            "sizeof" if self.text(next) == "(" && self.text(self.closing(next) + 1) == "{" => {
                self.write(token.start..token.end, "");
            }
            _ => {
                if let Some((_, instead)) = REPLACED.iter().find(|(name, _)| *name == word) {
                    self.write(token.start..token.end, instead);
                }
            }
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::tokens;

    fn masked(source: &str) -> String {
        let text = String::from_utf8(mask(source, &tokens(source), &[]).text).unwrap();
        assert_eq!(text.len(), source.len());
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn what_the_parser_does_not_know_is_gone() {
        assert_eq!(masked("int a __attribute__((aligned(3))), b;"), "int a , b;");
        assert_eq!(masked("[[nodiscard]] int f(void);"), "int f(void);");
        assert_eq!(masked("x = y ?: z; x = y ? : z;"), "x = y || z; x = y || z;");
        assert_eq!(
            masked("p = &&l; goto *p; q = a && b; r = f() && c; return &&l;"),
            "p = 0 ; *p; q = a && b; r = f() && c; return 0 ;"
        );
        assert_eq!(masked("__label__ a, b; c;"), "c;");
        assert_eq!(masked("asm volatile(\"nop\" : : \"r\"(a)); int x;"), "; int x;");
        assert_eq!(masked("unsigned __int128 x = __alignof__(y);"), "unsigned long x = sizeof (y);");
        assert_eq!(masked("sizeof (int[]){1} + sizeof (int)"), "(int[]){1} + sizeof (int)");
        assert_eq!(masked("#pragma x\nint \u{e9}t\u{e9};"), "int __t__;");
    }

    #[test]
    fn lines_stay() {
        let source = "__attribute__((\nunused)) int a;\n__label__\nx;";
        let text = mask(source, &tokens(source), &[]).text;
        assert_eq!(text.iter().filter(|byte| **byte == b'\n').count(), 3);
    }

    #[test]
    fn brackets_that_do_not_match() {
        for source in ["__attribute__((", "asm(", "__label__", "sizeof (", "[[", "&&", "?", "x = )))", "goto"] {
            masked(source);
        }
    }
}
