//! What `--pages` asks for: a size of pages for each region of a program's memory, and whether it is meant strictly.

use core::fmt;

/// Sizes of pages; the place of a word is the number stored in a session.
pub const PAGES: &[&str] = &["auto", "small", "64k", "huge", "hugetlb", "1g"];
/// Regions whose pages can be chosen; the place of a word is its index in [`PageChoices`].
pub const REGIONS: &[&str] = &["heap", "bss", "stack", "text", "shm"];

/// Place of `auto` in [`PAGES`].
pub const AUTO: u32 = 0;
/// Place of `small` in [`PAGES`].
pub const SMALL: u32 = 1;
/// Place of `64k` in [`PAGES`].
pub const MIDDLE: u32 = 2;
/// Place of `huge` in [`PAGES`].
pub const HUGE: u32 = 3;
/// Place of `hugetlb` in [`PAGES`].
pub const HUGETLB: u32 = 4;
/// Place of `1g` in [`PAGES`].
pub const GIGANTIC: u32 = 5;

/// Index of the heap and the program's own mappings.
pub const HEAP: usize = 0;
/// Index of static data.
pub const BSS: usize = 1;
/// Index of stacks.
pub const STACK: usize = 2;
/// Index of program code.
pub const TEXT: usize = 3;
/// Index of shared memory.
pub const SHM: usize = 4;

/// The pages of one region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageChoice {
    /// Place in [`PAGES`].
    pub size: u32,
    /// The program must not run with other pages than these.
    pub required: bool,
    /// Asked for this region by name.
    pub named: bool,
}

/// The pages of every region, in the order of [`REGIONS`].
pub type PageChoices = [PageChoice; REGIONS.len()];

/// What is asked for where nothing is said: shared memory keeps small pages unless it is named.
pub const DEFAULT_PAGES: PageChoices = {
    let auto = PageChoice { size: AUTO, required: false, named: false };
    [auto, auto, auto, auto, PageChoice { size: SMALL, ..auto }]
};

/// Why a text says nothing about pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PagesError<'a> {
    /// An empty part.
    Empty,
    /// No region has this name.
    Region(&'a str),
    /// No size has this name.
    Size(&'a str),
    /// Neither prefer nor require.
    Strictness(&'a str),
    /// The pool's pages do not suit this region.
    Pool(&'a str),
    /// Shared memory has no such pages.
    Shared,
    /// `auto` promises nothing that could be required.
    Auto,
    /// The region, or all of them, are given twice.
    Twice(&'a str),
}

impl fmt::Display for PagesError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |f: &mut fmt::Formatter<'_>, words: &[&str]| {
            for (index, word) in words.iter().enumerate() {
                write!(f, "{}{word}", if index == 0 { "" } else { ", " })?;
            }
            Ok(())
        };
        match self {
            PagesError::Empty => f.write_str("an empty part; write SIZE or REGION=SIZE"),
            PagesError::Region(word) => {
                write!(f, "{word} is no region; regions are ")?;
                list(f, REGIONS)
            }
            PagesError::Size(word) => {
                write!(f, "{word} is no size of pages; sizes are ")?;
                list(f, PAGES)
            }
            PagesError::Strictness(word) => write!(f, "{word}: after a size comes :prefer, :require or nothing"),
            PagesError::Pool(region) => write!(f, "{region} cannot lie on pages of a pool; write {region}=huge"),
            PagesError::Shared => f.write_str("shm can be small, huge or hugetlb"),
            PagesError::Auto => f.write_str("auto cannot be required; require huge, hugetlb or 1g"),
            PagesError::Twice(word) => write!(f, "{word} is given twice"),
        }
    }
}

/// Reads `[REGION=]SIZE[:prefer|:require]`, several of them with commas between. A size without a region goes for heap,
/// bss and stack; code and shared memory follow only where it is `small`, or `auto` or `huge` for code.
///
/// # Errors
/// Says in one line what is wrong with the text.
pub fn parse_pages(text: &str) -> Result<PageChoices, PagesError<'_>> {
    let mut choices = DEFAULT_PAGES;
    let mut general = None;
    for part in text.split(',') {
        let part = part.trim();
        if part.is_empty() {
            return Err(PagesError::Empty);
        }
        let (region, rest) = match part.split_once('=') {
            Some((region, rest)) => (Some(region.trim()), rest.trim()),
            None => (None, part),
        };
        let (size, strictness) = rest.split_once(':').unwrap_or((rest, "prefer"));
        let place = PAGES.iter().position(|word| *word == size).ok_or(PagesError::Size(size))? as u32;
        let required = match strictness {
            "prefer" => false,
            "require" => true,
            other => return Err(PagesError::Strictness(other)),
        };
        if required && place == AUTO {
            return Err(PagesError::Auto);
        }
        match region {
            None if general.replace((place, required)).is_some() => return Err(PagesError::Twice("the size")),
            None => {}
            Some(word) => {
                let index = REGIONS.iter().position(|name| *name == word).ok_or(PagesError::Region(word))?;
                if place >= HUGETLB && matches!(index, STACK | TEXT) {
                    return Err(PagesError::Pool(word));
                }
                if index == SHM && !matches!(place, SMALL | HUGE | HUGETLB) {
                    return Err(PagesError::Shared);
                }
                if let Some(choice) = choices.get_mut(index) {
                    if choice.named {
                        return Err(PagesError::Twice(word));
                    }
                    *choice = PageChoice { size: place, required, named: true };
                }
            }
        }
    }
    if let Some((size, required)) = general {
        for (index, choice) in choices.iter_mut().enumerate().filter(|(_, choice)| !choice.named) {
            match index {
                // Stacks grow and shrink: the nearest to the pool's pages that they can have.
                STACK => *choice = PageChoice { size: size.min(HUGE), required, named: false },
                TEXT => choice.size = if size == SMALL { SMALL } else { AUTO },
                SHM => {}
                _ => *choice = PageChoice { size, required, named: false },
            }
        }
    }
    Ok(choices)
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::string::ToString;

    fn sizes(text: &str) -> [u32; 5] {
        parse_pages(text).unwrap().map(|choice| choice.size)
    }

    #[test]
    fn one_size_for_all() {
        assert_eq!(sizes("auto"), DEFAULT_PAGES.map(|choice| choice.size));
        assert_eq!(sizes("small"), [SMALL; 5]);
        assert_eq!(sizes("huge"), [HUGE, HUGE, HUGE, AUTO, SMALL]);
        assert_eq!(sizes("1g"), [GIGANTIC, GIGANTIC, HUGE, AUTO, SMALL]);
        let strict = parse_pages("huge:require").unwrap();
        assert_eq!(strict.map(|choice| choice.required), [true, true, true, false, false]);
    }

    #[test]
    fn regions_have_their_own() {
        assert_eq!(sizes("heap=1g,bss=hugetlb,stack=huge,text=huge"), [GIGANTIC, HUGETLB, HUGE, HUGE, SMALL]);
        assert_eq!(sizes("shm=hugetlb, small"), [SMALL, SMALL, SMALL, SMALL, HUGETLB]);
        assert_eq!(sizes("shm=huge")[SHM], HUGE);
        let mixed = parse_pages("heap=hugetlb:require,huge:prefer").unwrap();
        assert!(mixed[HEAP].required && !mixed[BSS].required && mixed[HEAP].named);
        assert_eq!(mixed[BSS].size, HUGE);
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for (text, reason) in [
            ("", "an empty part; write SIZE or REGION=SIZE"),
            ("huge,", "an empty part; write SIZE or REGION=SIZE"),
            ("big", "big is no size of pages; sizes are auto, small, 64k, huge, hugetlb, 1g"),
            ("data=huge", "data is no region; regions are heap, bss, stack, text, shm"),
            ("stack=1g", "stack cannot lie on pages of a pool; write stack=huge"),
            ("shm=1g", "shm can be small, huge or hugetlb"),
            ("huge:always", "always: after a size comes :prefer, :require or nothing"),
            ("auto:require", "auto cannot be required; require huge, hugetlb or 1g"),
            ("heap=huge,heap=1g", "heap is given twice"),
            ("huge,small", "the size is given twice"),
        ] {
            assert_eq!(parse_pages(text).unwrap_err().to_string(), reason, "{text}");
        }
    }
}
