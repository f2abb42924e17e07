//! The table: every option and command of `ream`, once.

use crate::value::{ENGINES, FETCHES, IO, PAGES};

/// What values an option takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// None: the option is given or not. `=yes` and `=no` are accepted.
    Switch,
    /// `auto`, a percentage or a size; see [`crate::parse_memory`].
    Memory,
    /// A size in bytes; see [`crate::parse_size`].
    Size,
    /// A directory; may be given several times, in order of preference.
    Directories,
    /// Nothing, or a file after `=`. `=yes` and `=no` are accepted.
    OptionalFile,
    /// A level and perhaps a file: `LEVEL[:FILE]`.
    Log,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A list of processors; see [`crate::Processors`].
    Processors,
    /// A whole number between the two, both included.
    Count(u32, u32),
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

/// One command.
#[derive(Clone, Copy, Debug)]
pub struct Command {
    /// Its name.
    pub name: &'static str,
    /// What follows its name in a usage line.
    pub usage: &'static str,
    /// One line for `--help`, without a full stop.
    pub help: &'static str,
    /// Whole sentences for `ream help` and the man page; paragraphs end with an empty line.
    pub long: &'static str,
    /// The words it takes as its first argument, for completion.
    pub words: &'static [&'static str],
}

/// Every command, in the order of the help text.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "run",
        usage: "[OPTION]... [--] PROGRAM [ARGUMENT]...",
        help: "run a program within a memory budget",
        long: "Runs PROGRAM, unmodified, so that its data take at most the given amount of RAM. What does not fit \
               lives in a store, an unlinked file in a directory on a local disk, and comes and goes at the speed of \
               that disk. While everything fits, nothing is paged and nothing is slower.\n\n\
               ream becomes the program: process number, terminal, signals and exit status are the program's own. \
               Processes that it starts belong to the same session and share its budget.\n\n\
               PROGRAM must be a dynamically linked program of the system's own C library. A script is run by its \
               interpreter, to which the same applies.",
        words: &[],
    },
    Command {
        name: "doctor",
        usage: "[OPTION]...",
        help: "say what this machine offers, and how to mend what it lacks",
        long: "Looks at the kernel, at userfaultfd, io_uring, large pages, limits, the cgroup and the places for a \
               store, whose speed it measures, and says which engine a run would get and why. Every line has a \
               verdict, and where something is missing one command that mends it. Needs no privileges and changes \
               nothing.\n\n\
               The exit status is 0 when a run can page, and 1 when it cannot.",
        words: &[],
    },
    Command {
        name: "status",
        usage: "[PID] [OPTION]...",
        help: "show on which pages a running program's memory lies",
        long: "Shows for each region of process PID, heap, static data, stacks, code, shared memory and files, how much \
               of it is in RAM, and how much of that on pages of 2 MiB and of 1 GiB; and how many TLB entries it takes \
               to reach all of it. Regions with less than 2 MiB in RAM are summed up. Without PID, lists the \
               programs that run under Ream, with --all everybody's processes that may be looked at.\n\n\
               The exit status is 0, and 1 when no process was found.",
        words: &[],
    },
    Command {
        name: "bench",
        usage: "paging|fits|malloc|pages [OPTION]...",
        help: "measure Ream against the raw device, kernel swap and RAM",
        long: "paging: sequential, strided, random and skewed access to four times the budget, in turns with direct \
               I/O on the same store, kernel swap under the same limit (when root) and plain RAM. fits: data that \
               fit the budget, with and without Ream. malloc: small blocks, with and without Ream. pages: \
               computations on small pages, under Ream, and on large pages set by hand. `ream bench --help` lists \
               the options. The exit status is 0 when every requirement was met, and 1 when one was not.",
        words: &["paging", "fits", "malloc", "pages"],
    },
    Command {
        name: "completions",
        usage: "bash|zsh|fish",
        help: "print completions for a shell",
        long: "Prints the completions for a shell, made from the table of options.",
        words: SHELLS,
    },
    Command {
        name: "man",
        usage: "",
        help: "print the man page",
        long: "Prints the man page ream(1) in roff, made from the table of options: `ream man | man -l -`.",
        words: &[],
    },
    Command {
        name: "help",
        usage: "[COMMAND]",
        help: "explain a command and its options",
        long: "Explains a command and its options at length; without COMMAND, lists the commands.",
        words: &["run", "doctor", "status", "bench", "completions", "man"],
    },
];

const SHELLS: &[&str] = &["bash", "zsh", "fish"];

/// A switch of no command, from which the entries of the table differ.
const PLAIN: Spec = Spec {
    name: "",
    short: None,
    kind: Kind::Switch,
    value: "",
    default: "",
    help: "",
    long: "",
    variable: "",
    in_file: false,
    commands: &["run"],
    hidden: false,
};

/// Every option, in the order of the help text.
pub const OPTIONS: &[Spec] = &[
    Spec {
        name: "memory",
        short: Some('m'),
        kind: Kind::Memory,
        value: "SIZE|PERCENT%|auto",
        default: "auto",
        help: "RAM that the program's data may take",
        long: "RAM that the data of all processes of the session may take together. A size such as 512M, 1.5G or \
               1GiB; a percentage of the machine's RAM or of the cgroup's limit, whichever is smaller; or auto, \
               which is 90 % of the smaller of the cgroup's limit and the RAM that is available now. Never more than \
               the cgroup's limit less 64 MiB. Stacks, program code and files do not count.",
        variable: "REAM_MEMORY",
        in_file: true,
        ..PLAIN
    },
    Spec {
        name: "store",
        short: Some('s'),
        kind: Kind::Directories,
        value: "DIRECTORY",
        help: "where pages go that do not fit; may be repeated",
        long: "Directory on a local disk in which the store lies: a file without a name, readable by nobody else, \
               that vanishes with the program. When given several times, the first that can be used is. By default \
               the first of $SLURM_TMPDIR, $TMPDIR and /var/tmp that is on a disk (not in RAM) and has room. In the \
               environment, colons separate directories; one that cannot be used is then passed over with a warning.",
        variable: "REAM_STORE",
        in_file: true,
        commands: &["run", "doctor"],
        ..PLAIN
    },
    Spec {
        name: "store-limit",
        kind: Kind::Size,
        value: "SIZE",
        help: "most that the store may take",
        long: "Most that the stores of the session may take on disk. By default as much as leaves 10 % of the file \
               system, and at least 10 GiB, free. Space is claimed as it is needed. When the store is full the \
               program goes on within RAM as far as it can, and then stops with a message that says how much was \
               needed.",
        variable: "REAM_STORE_LIMIT",
        in_file: true,
        ..PLAIN
    },
    Spec {
        name: "threshold",
        kind: Kind::Size,
        value: "SIZE",
        default: "1M",
        help: "smallest block paged where not everything may be",
        long: "Smallest allocation that is paged where not everything can be, which is with the engine usermode. At \
               least 64K.",
        variable: "REAM_THRESHOLD",
        in_file: true,
        ..PLAIN
    },
    Spec {
        name: "summary",
        kind: Kind::OptionalFile,
        value: "FILE",
        help: "at the end, print what was done, or write it to FILE as JSON",
        long: "When the session ends, prints a summary to standard error: budget, peak resident, peak managed, \
               faults, bytes in and out, time waited, and so on. With =FILE it is written there instead, as JSON.",
        variable: "REAM_SUMMARY",
        in_file: true,
        ..PLAIN
    },
    Spec {
        name: "log",
        kind: Kind::Log,
        value: "LEVEL[:FILE]",
        default: "warn",
        help: "what to report while running, and where",
        long: "What Ream reports while the program runs: error, warn, info or debug. Written to standard error, or \
               appended to FILE.",
        variable: "REAM_LOG",
        in_file: true,
        ..PLAIN
    },
    Spec {
        name: "engine",
        kind: Kind::Choice(ENGINES),
        value: "ENGINE",
        default: "auto",
        help: "how pages come and go",
        long: "move: pages are moved in and out whole (full userfaultfd, Linux 6.8). copy: they are copied and \
               write-protected (full userfaultfd, Linux 5.7). usermode: only blocks from the threshold are paged, \
               which ordinary users may always do (Linux 5.11). auto: the first of these that the kernel allows. Any \
               other than auto is meant strictly: if it is not to be had, the program is not started.",
        variable: "REAM_ENGINE",
        in_file: true,
        ..PLAIN
    },
    Spec {
        name: "io",
        kind: Kind::Choice(IO),
        value: "METHOD",
        default: "auto",
        help: "how the store is read and written",
        long: "uring: io_uring. threads: a few threads with preadv2 and pwritev2. auto: io_uring where it is \
               allowed.",
        variable: "REAM_IO",
        in_file: true,
        ..PLAIN
    },
    Spec {
        name: "fetch",
        kind: Kind::Choice(FETCHES),
        value: "AMOUNT",
        default: "auto",
        help: "how much to bring in at a touch",
        long: "lazy: the extent touched and no more. aggressive: the rest of that allocation too, the nearest pages \
               first, up to five eighths of the budget. auto: what the program's access pattern suggests, with read-ahead.",
        variable: "REAM_FETCH",
        in_file: true,
        ..PLAIN
    },
    Spec {
        name: "pages",
        kind: Kind::Choice(PAGES),
        value: "SIZE",
        default: "auto",
        help: "size of the pages that the program's memory is given",
        long: "auto: large pages (2 MiB) for the heap, mappings and static arrays of 2 MiB or more, and for deep \
               stacks. huge: stacks from their first page on, too. small: 4 KiB pages only. ream status shows what a \
               program has.",
        variable: "REAM_PAGES",
        in_file: true,
        ..PLAIN
    },
    Spec {
        name: "no-exec-inherit",
        help: "programs that the program starts run without Ream",
        long: "Programs that the program starts by exec run without Ream. By default they belong to the session and \
               share its budget.",
        variable: "REAM_NO_EXEC_INHERIT",
        in_file: true,
        ..PLAIN
    },
    Spec {
        name: "pager-cpus",
        kind: Kind::Processors,
        value: "LIST",
        help: "processors on which Ream's own threads may run",
        long: "Processors on which Ream's own threads may run, such as 0-3,8. By default a pager runs where the \
               thread that waits for it slept.",
        variable: "REAM_PAGER_CPUS",
        in_file: true,
        ..PLAIN
    },
    Spec {
        name: "shards",
        kind: Kind::Count(1, 16),
        value: "NUMBER",
        help: "number of pager threads of a process",
        long: "Number of pager threads of a process.",
        variable: "REAM_SHARDS",
        hidden: true,
        ..PLAIN
    },
    Spec {
        name: "json",
        help: "print the findings as JSON",
        long: "Prints the findings as JSON.",
        commands: &["doctor", "status"],
        ..PLAIN
    },
    Spec {
        name: "all",
        help: "list every process that may be looked at",
        long: "Lists every process that may be looked at, not only those that run under Ream.",
        commands: &["status"],
        ..PLAIN
    },
    Spec {
        name: "help",
        short: Some('h'),
        help: "print help",
        long: "Prints help.",
        commands: &["", "run", "doctor", "status", "bench", "completions", "man", "help"],
        ..PLAIN
    },
    Spec {
        name: "version",
        short: Some('V'),
        help: "print the version",
        long: "Prints the version.",
        commands: &[""],
        ..PLAIN
    },
];

/// The option with this name that `command` takes (`""`: before any command).
pub fn find(command: &str, name: &str) -> Option<&'static Spec> {
    options_of(command).find(|spec| spec.name == name)
}

/// The options of a command, hidden ones too.
pub fn options_of<'a>(command: &'a str) -> impl Iterator<Item = &'static Spec> + use<'a> {
    OPTIONS.iter().filter(move |spec| spec.commands.contains(&command))
}

/// The command with this name.
pub fn command(name: &str) -> Option<&'static Command> {
    COMMANDS.iter().find(|command| command.name == name)
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::{LEVELS, Processors, parse_memory, parse_size};
    use std::collections::BTreeSet;

    #[test]
    fn names_letters_and_variables_are_unique() {
        let mut names = BTreeSet::new();
        let mut variables = BTreeSet::new();
        let mut letters = BTreeSet::new();
        for spec in OPTIONS {
            assert!(names.insert(spec.name), "{}", spec.name);
            assert!(spec.variable.is_empty() || variables.insert(spec.variable), "{}", spec.variable);
            assert!(spec.short.is_none_or(|letter| letters.insert(letter)), "{}", spec.name);
        }
    }

    /// A variable's name is the flag's, so that who knows one knows the other.
    #[test]
    fn variables_are_named_after_flags() {
        for spec in OPTIONS.iter().filter(|spec| !spec.variable.is_empty()) {
            let expected = std::format!("REAM_{}", spec.name.to_uppercase().replace('-', "_"));
            assert_eq!(spec.variable, expected);
        }
    }

    #[test]
    fn texts_are_whole() {
        for spec in OPTIONS {
            assert!(!spec.help.is_empty() && !spec.help.ends_with('.'), "{}", spec.name);
            assert!(spec.help.len() <= 64, "{}: {}", spec.name, spec.help.len());
            assert!(spec.long.ends_with('.') && !spec.long.contains("  "), "{}", spec.name);
            assert_eq!(spec.kind == Kind::Switch, spec.value.is_empty(), "{}", spec.name);
            assert!(spec.commands.iter().all(|name| name.is_empty() || command(name).is_some()), "{}", spec.name);
        }
        for command in COMMANDS {
            assert!(!command.help.ends_with('.') && command.long.ends_with('.'), "{}", command.name);
            assert!(!command.long.contains("  "), "{}", command.name);
        }
    }

    #[test]
    fn defaults_are_values_of_their_kind() {
        for spec in OPTIONS.iter().filter(|spec| !spec.default.is_empty()) {
            match spec.kind {
                Kind::Memory => assert!(parse_memory(spec.default).is_ok()),
                Kind::Size => assert!(parse_size(spec.default).is_ok()),
                Kind::Choice(words) => assert!(words.contains(&spec.default)),
                Kind::Log => assert!(LEVELS.contains(&spec.default)),
                Kind::Processors => assert!(Processors::parse(spec.default).is_ok()),
                other => panic!("{}: a default for {other:?}", spec.name),
            }
        }
    }
}
