//! What the table says of an option.

/// What values an option takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// None: the option is given or not. `=yes` and `=no` are accepted.
    Switch,
    /// `auto`, a percentage or a size; see [`crate::parse_memory`].
    Memory,
    /// A size in bytes; see [`crate::parse_size`].
    Size,
    /// Text that the command itself understands.
    Text,
    /// A directory; may be given several times, in order of preference.
    Directories,
    /// Nothing, or a file after `=`. `=yes` and `=no` are accepted.
    OptionalFile,
    /// Nothing, or after `=` text that the command itself understands, often one of these words. `=yes` and `=no` are
    /// accepted.
    OptionalText(&'static [&'static str]),
    /// A level and perhaps a file: `LEVEL[:FILE]`.
    Log,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Sizes of pages, by region; see [`crate::parse_pages`].
    Pages,
    /// A list of processors; see [`crate::Processors`].
    Processors,
    /// A whole number between the two, both included.
    Count(u32, u32),
    /// A file that is there.
    File,
    /// Any text; may be given several times.
    Texts,
}

/// One option.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// Its long flag without the dashes; also its key in the configuration file.
    pub name: &'static str,
    /// Its one-letter flag.
    pub short: Option<char>,
    /// What values it takes.
    pub kind: Kind,
    /// What stands for the value in help texts, empty for a switch.
    pub value: &'static str,
    /// The value it has when nobody gives one; empty when that is worked out, or when there is none.
    pub default: &'static str,
    /// One line for `--help`, without a full stop.
    pub help: &'static str,
    /// Whole sentences for `ream help` and the man page.
    pub long: &'static str,
    /// The environment variable that gives it, empty if none does.
    pub variable: &'static str,
    /// Whether the configuration file may give it.
    pub in_file: bool,
    /// The commands that take it.
    pub commands: &'static [&'static str],
    /// Left out of help texts: meant for tests of Ream itself.
    pub hidden: bool,
}
