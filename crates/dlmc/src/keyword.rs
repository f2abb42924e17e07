//! Finds the word `dlm` where it is a keyword: at file scope, in front of a declaration.

use crate::Problem;
use crate::token::{Kind, Token};

/// The keyword's tokens, in order. None when the program uses the word as a name of its own at file scope.
///
/// # Errors
/// When it stands in front of a declaration elsewhere.
pub fn keywords(source: &str, tokens: &[Token]) -> Result<Vec<Token>, Problem> {
    let mut depth = 0usize;
    let mut found = Vec::new();
    let mut misplaced = None;
    let code: Vec<&Token> = tokens.iter().filter(|token| token.kind != Kind::Directive).collect();
    for (index, token) in code.iter().enumerate() {
        match token.of(source) {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth = depth.saturating_sub(1),
            "dlm" => {
                let next = code.get(index + 1);
                let text = next.map_or("", |next| next.of(source));
                let before_declaration = next.is_some_and(|next| next.kind == Kind::Word)
                    && !matches!(text, "asm" | "__asm" | "__asm__" | "__attribute" | "__attribute__");
                match (depth, before_declaration) {
                    (0, _) if before_declaration || text == "*" => found.push(**token),
                    (0, _) => return Ok(Vec::new()),
                    (_, true) => misplaced = misplaced.or(Some(token.start)),
                    _ => {}
                }
            }
            _ => {}
        }
    }
    match misplaced {
        Some(at) => Err(Problem::at(at, "dlm declares arrays at file scope, not here")),
        None => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::tokens;

    fn count(source: &str) -> Option<usize> {
        keywords(source, &tokens(source)).ok().map(|found| found.len())
    }

    #[test]
    fn only_in_front_of_declarations_at_file_scope() {
        assert_eq!(count("dlm int a[3]; static dlm double b[2]; dlm\nstruct s c[1]; int dlm *p;"), Some(4));
        assert_eq!(count("int f(int dlm) { return dlm + 1; }"), Some(0));
        assert_eq!(count("struct s { int dlm; }; dlm int a[3];"), Some(1));
        assert_eq!(count("int f(void) { dlm int a[3]; }"), None);
        assert_eq!(count("void f(dlm int a[3]);"), None);
        assert_eq!(count("void f(void) { extern dlm int a[3]; }"), None);
    }

    #[test]
    fn a_programs_own_name() {
        assert_eq!(count("typedef struct s dlm; dlm x; void f(dlm y) { dlm z; }"), Some(0));
        assert_eq!(count("int dlm;"), Some(0));
        assert_eq!(count("int dlm __attribute__((unused));"), Some(0));
        assert_eq!(count("#pragma dlm int\nint dlm(int);"), Some(0));
    }
}
