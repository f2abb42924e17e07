//! Translates a preprocessed file: `dlm int a[N][M];` becomes a pointer to such an array, `a` in expressions becomes what
//! it points to, and a function that runs before main gives it its memory.
//!
//! Both are one substitution, `(*a)` for `a`: it turns the declarator of an object into that of a pointer to it, whatever
//! its type, and a use of the object into a use of what the pointer points to. So sizes, addresses, and the compiler's
//! checks stay as they were.

use crate::Problem;
use crate::declare::{self, Declared};
use crate::keyword::keywords;
use crate::mask::mask;
use crate::names::{Meaning, Names};
use crate::parse::parse;
use crate::pragma;
use crate::token::{Kind, Places, Token, tokens, tokens_within};
use std::collections::HashSet;
use std::fmt::Write as _;

/// What other files know an array's pointer by. No C name is like it: a file that declares the array without `dlm` is not
/// linked, instead of taking the address for the data.
const LINKED_AS: &str = "dlm.";

/// Translates `source`, the preprocessor's output for `file`. `None` when it has no dlm declaration.
///
/// # Errors
/// A line as compilers write them, with the file and line of what cannot be translated.
pub fn translate(source: &str, file: &str) -> Result<Option<String>, String> {
    let all = tokens(source);
    let places = Places::of(source, &all, file);
    translated(source, &all, &places).map_err(|problem| {
        let place = places.at(source, problem.at);
        format!("{}:{}: error: dlmc: {}", place.file, place.line, problem.text)
    })
}

fn translated(source: &str, all: &[Token], places: &Places) -> Result<Option<String>, Problem> {
    let marked = keywords(source, all)?;
    if marked.is_empty() {
        return Ok(None);
    }
    let mut masked = mask(source, all, &marked);
    let unit = parse(source, all, places, &mut masked)?;
    let declared = declare::read(source, &unit, &marked)?;
    // The parser sees another letter in place of each byte of these.
    if let Some(array) = declared.arrays.iter().find(|array| !source[array.at..].starts_with(&array.name)) {
        return Err(Problem::at(array.at, "a dlm array's name cannot have letters beyond ASCII"));
    }
    let wanted: HashSet<String> = declared.arrays.iter().map(|array| array.name.clone()).collect();
    let names = Names::of(&unit, &wanted);

    let mut edits: Vec<(usize, usize, String)> = Vec::new();
    edits.extend(marked.iter().map(|keyword| (keyword.start, keyword.end, " ".repeat(keyword.end - keyword.start))));
    edits.extend(declared.zeros.iter().map(|zero| (zero.start, zero.end, lines_of(&source[zero.clone()]))));
    edits.extend(declared.ends.iter().map(|(end, name)| (*end, *end, format!(" __asm__(\"{LINKED_AS}{name}\")"))));
    let replace = |token: &Token| (token.start, token.end, format!("(*{})", token.of(source)));
    for token in all {
        let array = |word: &Token| {
            let name = word.of(source);
            word.kind == Kind::Word && wanted.contains(name) && !names.is_hidden(name, word.start)
        };
        if token.kind == Kind::Directive {
            edits.extend(pragma::uses(source, token, &array)?.iter().map(replace));
        } else if declared.places.contains(&token.start) {
            edits.push(replace(token));
        } else if array(token) {
            let name = token.of(source);
            match names.meanings.get(&token.start) {
                Some(Meaning::Use { constant: false }) => edits.push(replace(token)),
                Some(Meaning::Use { constant: true }) => {
                    let why = format!(
                        "{name} is a dlm array, whose address is not known before the program runs: set this in a function"
                    );
                    return Err(Problem::at(token.start, why));
                }
                Some(Meaning::Other) => {}
                None if is_attribute(source, &masked.hidden, token) => {}
                None => return Err(Problem::at(token.start, format!("it is not understood what {name} means here"))),
            }
        }
    }
    edits.sort();
    let mut text = String::with_capacity(source.len() + 4096);
    let mut at = 0;
    for (start, end, new) in edits {
        text.push_str(&source[at..start]);
        text.push_str(&new);
        at = end;
    }
    text.push_str(&source[at..]);
    text.push_str(&beginning(source, places, &declared));
    Ok(Some(text))
}

/// As many line ends as a text has.
fn lines_of(text: &str) -> String {
    text.chars().filter(|character| *character == '\n').collect()
}

/// Whether a word in a part that the parser did not see is the name of an attribute, and no argument of one.
fn is_attribute(source: &str, hidden: &[std::ops::Range<usize>], word: &Token) -> bool {
    let Some(range) = hidden.iter().find(|range| range.contains(&word.start)) else { return false };
    let depth =
        tokens_within(source, range.start, word.start).iter().fold(0i32, |depth, token| match token.of(source) {
            "(" | "[" => depth + 1,
            ")" | "]" => depth - 1,
            _ => depth,
        });
    let opening = &source[range.start..];
    (opening.starts_with("__attribute") || opening.starts_with("[[")) && depth == 2
}

/// The function that gives the arrays of this file their memory. It is a constructor, and no part of main: it runs before
/// other constructors, in libraries and files without main, and where main is of another language.
fn beginning(source: &str, places: &Places, declared: &Declared) -> String {
    let mut text = String::new();
    let defined: Vec<_> = declared.arrays.iter().filter(|array| array.defined).collect();
    if defined.is_empty() {
        return text;
    }
    // The flag 3, a header of the system, silences warnings about what the program's author did not write.
    let head = "\n# 1 \"<dlmc>\" 3\nextern void *dlm_array_begin(unsigned long, const char *);\n\
                static void __dlm_begin(void) __attribute__((constructor(101), used));\nstatic void __dlm_begin(void)\n{\n";
    text.push_str(head);
    for array in defined {
        let (place, name) = (places.at(source, array.at), &array.name);
        // Where two files define it, which compilers allow with -fcommon, the first to run gives it its memory.
        let _ = write!(
            text,
            "# {} \"{}\" 3\n_Static_assert(__alignof__({name}) <= 4096, \"dlm arrays are aligned to 4096 bytes\"); \
             if (!{name}) {name} = dlm_array_begin(sizeof (*{name}), \"{name}\");\n",
            place.line, place.file
        );
    }
    text.push_str("}\n");
    text
}

#[cfg(test)]
mod tests;
