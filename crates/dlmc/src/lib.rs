//! `dlmc`: compiles C in which `dlm` in front of an array at file scope has Ream manage it, of whatever size it is. It
//! stands in for the C compiler, which it calls to preprocess each file and to compile what it has made of it.

pub mod command;
pub mod declare;
pub mod keyword;
pub mod mask;
pub mod names;
pub mod parse;
pub mod pragma;
pub mod token;
pub mod translate;

/// Why a file cannot be translated, and the byte of its preprocessed text where that shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where.
    pub at: usize,
    /// Why, without a full stop.
    pub text: String,
}

impl Problem {
    /// Of a place.
    pub fn at(at: usize, text: impl Into<String>) -> Problem {
        Problem { at, text: text.into() }
    }
}
