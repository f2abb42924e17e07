//! Has the parser read a translation unit; what it cannot read in the system's headers is left out, where that changes no
//! meaning.

use crate::Problem;
use crate::mask::Masked;
use crate::token::{Kind, Places, Token};
use lang_c::ast::TranslationUnit;
use lang_c::driver::{Config, Flavor, parse_preprocessed};
use std::ops::Range;

/// Declarations of headers that are left out at most; more would be a compiler of another language.
const PATIENCE: usize = 200;

/// Parses what was masked.
///
/// # Errors
/// Where the source, not a header, cannot be read.
pub fn parse(source: &str, tokens: &[Token], places: &Places, masked: &mut Masked) -> Result<TranslationUnit, Problem> {
    let config = Config { cpp_command: String::new(), cpp_options: Vec::new(), flavor: Flavor::GnuC11 };
    let mut items = None;
    for _ in 0..PATIENCE {
        let text = String::from_utf8(masked.text.clone()).map_err(|_| Problem::at(0, "not text"))?;
        let error = match parse_preprocessed(&config, text) {
            Ok(parse) => return Ok(parse.unit),
            Err(error) => error,
        };
        let items = items.get_or_insert_with(|| split(source, tokens));
        let item = items.iter().find(|item| item.contains(&error.offset)).cloned();
        let problem = || {
            let rest = tokens.iter().find(|token| token.end > error.offset && token.kind != Kind::Directive);
            let word = rest.map_or("the end", |token| token.of(source));
            let at = rest.map_or(error.offset, |token| token.start);
            Problem::at(at, format!("not understood from '{word}' on: dlm files are C11 with GNU extensions"))
        };
        let item = item.ok_or_else(problem)?;
        let first = tokens.partition_point(|token| token.start < item.start);
        let is_typedef =
            tokens[first..].iter().take_while(|token| token.end <= item.end).any(|token| token.of(source) == "typedef");
        let gone = masked.text[item.clone()].iter().all(|byte| byte.is_ascii_whitespace());
        if is_typedef || gone || !places.at(source, item.start).system {
            return Err(problem());
        }
        for byte in &mut masked.text[item.clone()] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        masked.hidden.push(item);
    }
    Err(Problem::at(0, "the system's headers are not understood"))
}

/// The declarations and definitions of file scope.
fn split(source: &str, tokens: &[Token]) -> Vec<Range<usize>> {
    let mut items = Vec::new();
    let (mut depth, mut start, mut body) = (0usize, None, false);
    let mut before = "";
    for token in tokens.iter().filter(|token| token.kind != Kind::Directive) {
        let text = token.of(source);
        start.get_or_insert(token.start);
        match text {
            "{" => {
                // A function's body; a structure's follows a name or a keyword.
                body |= depth == 0 && before == ")";
                depth += 1;
            }
            "(" | "[" => depth += 1,
            ")" | "]" | "}" => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 && (text == ";" || text == "}" && body) {
            items.extend(start.take().map(|start| start..token.end));
            body = false;
        }
        before = text;
    }
    items
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mask::mask;
    use crate::token::tokens;

    #[test]
    fn items_of_file_scope() {
        let source = "int a; struct s { int b; } c;\n#pragma x\nint f(void) { ; { } } int d = (1);";
        let items: Vec<&str> = split(source, &tokens(source)).into_iter().map(|item| &source[item]).collect();
        assert_eq!(items, ["int a;", "struct s { int b; } c;", "int f(void) { ; { } }", "int d = (1);"]);
    }

    fn parsed(source: &str) -> Result<usize, Problem> {
        let tokens = tokens(source);
        let mut masked = mask(source, &tokens, &[]);
        parse(source, &tokens, &Places::of(source, &tokens, "x.c"), &mut masked).map(|unit| unit.0.len())
    }

    #[test]
    fn headers_may_hold_anything_but_types_that_are_not_understood() {
        let bad = "static inline int f(void) { int y; @@ }";
        let around = |text: &str, flag: &str| format!("# 1 \"h.h\" 1 {flag}\n{text}\n# 2 \"x.c\" 2\nint x;\n");
        assert_eq!(parsed(&around(bad, "3")).ok(), Some(1));
        assert!(parsed(&around(bad, "")).is_err());
        assert!(parsed(&around("typedef int @@;", "3")).is_err());
        let error = parsed("int x;\nint y = @;").expect_err("no C");
        assert_eq!(error.at, 15);
    }
}
