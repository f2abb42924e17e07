//! Texts made from the table of options: help, man page, completions.

pub mod completions;
pub mod help;
pub mod man;

use ream_options::Spec;

/// A variable or file that matters to `ream` beyond the options.
pub(crate) struct Item {
    pub(crate) name: &'static str,
    pub(crate) text: &'static str,
}

/// Variables that no option has.
pub(crate) const VARIABLES: &[Item] = &[
    Item {
        name: crate::FILE_VARIABLE,
        text: "The configuration file; empty for none. By default $XDG_CONFIG_HOME/ream/config.toml, or \
               ~/.config/ream/config.toml.",
    },
    Item {
        name: crate::programs::VARIABLE,
        text: "The file with the settings of single programs; empty: no settings of programs count, those in the \
               configuration file included. By default programs.toml beside the configuration file.",
    },
    Item {
        name: crate::library::VARIABLE,
        text: "The library that works in the program, libream.so. By default the one installed with the command.",
    },
    Item {
        name: "REAM_SESSION",
        text: "Set for programs that run under Ream: where their session is. Not for users to set.",
    },
    Item {
        name: crate::outside::PLACED,
        text: "Set for programs that no library can enter: their number, by which ream status knows them. Not for users to \
               set.",
    },
];

/// Exit statuses of `ream run`.
pub(crate) const STATUSES: &[Item] = &[
    Item { name: "125", text: "ream itself failed, or an option is wrong." },
    Item { name: "126", text: "The program was found but cannot be executed." },
    Item { name: "127", text: "The program was not found." },
    Item { name: "other", text: "The program's own: ream has become the program." },
];

/// `-m, --memory=SIZE`, as help texts show a flag.
pub(crate) fn flag(spec: &Spec) -> String {
    use ream_options::Kind;
    let short = spec.short.map_or_else(String::new, |letter| format!("-{letter}, "));
    let value = match spec.kind {
        Kind::Switch => String::new(),
        Kind::OptionalFile | Kind::OptionalText(_) => format!("[={}]", spec.value),
        _ => format!(" {}", spec.value),
    };
    format!("{short}--{}{value}", spec.name)
}

/// The options of a command that help texts show.
pub(crate) fn shown(command: &str) -> impl Iterator<Item = &'static Spec> {
    ream_options::options_of(command).filter(|spec| !spec.hidden)
}
