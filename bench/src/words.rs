//! The words of a command line, taken one by one: a value may follow its option after a space or an equals sign. A value that
//! nobody takes is an error.

/// The words after a command.
pub struct Words<'a> {
    rest: std::slice::Iter<'a, String>,
    /// The option that is being read, and the value that stands in its word.
    name: String,
    inline: Option<String>,
}

impl<'a> Words<'a> {
    /// Of these, from the first on.
    pub fn of(words: &'a [String]) -> Words<'a> {
        Words { rest: words.iter(), name: String::new(), inline: None }
    }

    /// The next option's name, or a word that is none; `None` after the last.
    ///
    /// # Errors
    /// One line: the option before has a value, and takes none.
    pub fn option(&mut self) -> Result<Option<String>, String> {
        if self.inline.is_some() {
            return Err(format!("{} takes no value", self.name));
        }
        let Some(word) = self.rest.next() else { return Ok(None) };
        let (name, value) = match word.split_once('=') {
            Some((name, value)) if name.starts_with("--") => (name, Some(value.to_owned())),
            _ => (word.as_str(), None),
        };
        (self.name, self.inline) = (name.to_owned(), value);
        Ok(Some(name.to_owned()))
    }

    /// The value of the option that came last.
    ///
    /// # Errors
    /// One line: there is none.
    pub fn value(&mut self) -> Result<String, String> {
        self.inline.take().or_else(|| self.rest.next().cloned()).ok_or_else(|| format!("{} needs a value", self.name))
    }

    /// That value, as whatever it is to be; `what` names that.
    ///
    /// # Errors
    /// One line: there is none, or it is nothing of the kind, or `fits` says no.
    pub fn parsed<T: std::str::FromStr>(&mut self, what: &str, fits: impl Fn(&T) -> bool) -> Result<T, String> {
        let text = self.value()?;
        text.parse().ok().filter(fits).ok_or_else(|| format!("'{text}' is no {what}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn values_stand_in_the_word_or_in_the_next() {
        let given = list(&["--a=x=y", "--b", "--c", "a=b", "--n", "7"]);
        let mut words = Words::of(&given);
        assert_eq!(words.option(), Ok(Some("--a".into())));
        assert_eq!(words.value(), Ok("x=y".into()));
        assert_eq!(words.option(), Ok(Some("--b".into())));
        assert_eq!(words.value(), Ok("--c".into()));
        assert_eq!(words.option(), Ok(Some("a=b".into())));
        assert_eq!(words.option(), Ok(Some("--n".into())));
        assert_eq!(words.parsed("number", |n: &u8| *n < 8), Ok(7));
        assert_eq!(words.option(), Ok(None));
    }

    #[test]
    fn what_is_missing_or_too_much_is_told() {
        let given = list(&["--flag=1", "--last"]);
        let mut words = Words::of(&given);
        assert_eq!(words.option(), Ok(Some("--flag".into())));
        assert_eq!(words.option(), Err("--flag takes no value".into()));
        let mut words = Words::of(&given[1..]);
        assert_eq!(words.option(), Ok(Some("--last".into())));
        assert_eq!(words.value(), Err("--last needs a value".into()));
        let given = list(&["--n", "x"]);
        let mut words = Words::of(&given);
        assert_eq!(words.option(), Ok(Some("--n".into())));
        assert_eq!(words.parsed("number", |_: &u8| true), Err("'x' is no number".into()));
        // The last one's value is noticed, too.
        let given = list(&["--flag=1"]);
        let mut words = Words::of(&given);
        assert_eq!((words.option(), words.option()), (Ok(Some("--flag".into())), Err("--flag takes no value".into())));
    }
}
