//! The table: every option of `ream`, once.

use crate::copies;
use crate::prefault::LOCKS;
use crate::spec::{Kind, Spec};
use crate::value::{ENGINES, FETCHES, IO};

/// Options of this command only.
const SETUP: &[&str] = &["setup"];

/// A switch of no command, from which entries differ.
pub(crate) const PLAIN: Spec = Spec {
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
               which is 90 % of the smaller of what others leave of the cgroup's limit and the RAM that is available now, and at \
               least 8 MiB. Never more than the cgroup's limit less 64 MiB. Stacks, program code and files do not count.",
        variable: "REAM_MEMORY",
        in_file: true,
        commands: &["run", "mark"],
        ..PLAIN
    },
    serve::MEMORY,
    Spec {
        name: "store",
        short: Some('s'),
        kind: Kind::Directories,
        value: "DIRECTORY|tcp://HOST:PORT,...|zip:SIZE",
        help: "where pages go that do not fit; may be repeated",
        long: "Directory on a local disk in which the store lies: a file without a name, readable by nobody else, \
               that vanishes with the program. When given several times, the first that can be used is. By default \
               the first of $SLURM_TMPDIR, $TMPDIR and /var/tmp that is on a disk (not in RAM) and has room. In the \
               environment, colons separate directories; one that cannot be used is then passed over with a warning.\n\n\
               tcp://HOST:PORT: the memory of another machine, on which ream serve runs. Both sides show who they are \
               (--key, --servers), and pages are sealed here: the server can neither read nor change them. With several \
               servers, separated by commas, each page goes to two (--replicas), or to one and to a local disk \
               (--spill): then any of them can be lost. With one alone its loss stops the program. A directory given \
               after them is the tier below: what they have no room for goes there, cold pages sink to it, and what is \
               read there again and again rises.\n\n\
               zip:SIZE, given first: SIZE of RAM beside --memory that holds pages compressed (lz4). Pages that can be \
               compressed go there; those that were not used for long sink to the --store given next, a directory or \
               memory servers, where others go at once. With nothing below, the program is stopped when it is full.",
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
        long: "Most that the stores of the session may take on disk. At least 2M; by default as much as leaves 10 % of the \
               file system, and at least 10 GiB, free. Space is claimed as it is needed. When the store is full the \
               program goes on within RAM as far as it can, and then stops with a message that says how much was \
               needed.",
        variable: "REAM_STORE_LIMIT",
        in_file: true,
        ..PLAIN
    },
    copies::ENCRYPT,
    copies::REPLICAS,
    copies::SPILL,
    copies::PARITY,
    copies::DEADLINE,
    copies::PROTOCOL,
    Spec {
        name: "key",
        kind: Kind::File,
        value: "FILE",
        help: "who this side is for memory servers, or their clients",
        long: "File with the key pair, made by ream keys, by which a client shows a memory server who it is, and a server \
               its clients. By default ream/key in the user's configuration directory.",
        variable: "REAM_KEY",
        in_file: true,
        commands: &["run", "doctor", "status", "serve"],
        ..PLAIN
    },
    Spec {
        name: "servers",
        kind: Kind::File,
        value: "FILE",
        help: "memory servers and their public keys",
        long: "File with a line HOST:PORT PUBLIC-KEY for each memory server, as it is named in --store. A server with \
               another key is not believed. By default ream/servers in the user's configuration directory.",
        variable: "REAM_SERVERS",
        in_file: true,
        commands: &["run", "doctor", "status"],
        ..PLAIN
    },
    Spec {
        name: "insecure",
        help: "no keys, no encryption: whoever is on the network may do all",
        long: "Uses a memory server, or is one, without keys and without encryption: whoever can reach the network between \
               both can read and change the program's memory. Both sides must say so.",
        commands: &["run", "doctor", "status", "serve"],
        ..PLAIN
    },
    Spec {
        name: "listen",
        kind: Kind::Text,
        value: "ADDR:PORT",
        help: "where to listen for clients",
        long: "Address and port at which clients are served, such as 10.0.0.5:7400, or [::]:7400 for all addresses.",
        commands: &["serve"],
        ..PLAIN
    },
    Spec {
        name: "clients",
        kind: Kind::File,
        value: "FILE",
        help: "public keys of those who are served",
        long: "File with a line PUBLIC-KEY [NAME [QUOTA]] for each client. Nobody else is served.",
        variable: "REAM_CLIENTS",
        in_file: true,
        commands: &["serve"],
        ..PLAIN
    },
    Spec {
        name: "quota",
        kind: Kind::Size,
        value: "SIZE",
        help: "most memory that one client may have",
        long: "Most memory that one client, that is one key, may have, where --clients says nothing else. By default all.",
        commands: &["serve"],
        ..PLAIN
    },
    Spec {
        name: "metrics",
        kind: Kind::Text,
        value: "ADDR:PORT",
        help: "where to show figures for Prometheus",
        long: "Address and port at which http://ADDR:PORT/metrics shows the server's figures in Prometheus' format, to \
               whoever asks.",
        commands: &["serve"],
        ..PLAIN
    },
    Spec {
        name: "drain",
        kind: Kind::Count(0, 86_400),
        value: "SECONDS",
        default: "30",
        help: "time that clients have to end when the server is to",
        long: "How long clients that are there may go on, after SIGTERM or SIGINT, before the server ends. It takes no new \
               ones meanwhile, and tells those that it has. The second signal ends it at once.",
        commands: &["serve"],
        ..PLAIN
    },
    Spec {
        name: "server",
        kind: Kind::Text,
        value: "tcp://HOST:PORT",
        help: "show what a memory server has and does",
        long: "Shows how much memory a memory server has and how much is taken, in all and by this client, and what it has \
               done so far.",
        commands: &["status"],
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
               faults, bytes in and out, time waited, and so on. With =FILE it is written there instead, as JSON. The \
               session ends with its last process: where others outlive the first one, as Python's multiprocessing \
               has them, or where that is killed, the summary comes after the command has returned. A FILE that cannot be written then, or a \
               FIFO that nobody reads, is said in one line; the exit status stays the program's.",
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
               appended to FILE; to standard error, too, what cannot be appended, as where FILE is a FIFO that nobody reads.",
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
               write-protected (full userfaultfd, Linux 5.7). What a device writes to memory by itself would be lost then: while the \
               program has an io_uring, a file opened with O_DIRECT, or a device for RDMA or graphics open, nothing leaves RAM, \
               and the budget may be exceeded, which is said. copy-always: the same without that care. usermode: only blocks from the threshold are paged, \
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
        kind: Kind::Pages,
        value: "SIZE|REGION=SIZE,...",
        default: "auto",
        help: "size of the pages that the program's memory is given",
        long: "SIZE is one of: auto, large pages (2 MiB) for the heap, mappings and static arrays of 2 MiB or more, and \
               for deep stacks; huge, the same and stacks from their first page on; small, 4 KiB pages only; 64k, the \
               kernel's middle size, where its administrator has switched that on; hugetlb and 1g, pages of 2 MiB or \
               1 GiB from the kernel's pool, which ream setup fills, for malloc and static arrays: they are never \
               paged, count in full against the budget, and are copied at a fork. What the pool cannot give is \
               made of the next smaller size. But with small, code whose file holds whole blocks of 2 MiB is read \
               into the page cache as large pages before the start.\n\n\
               REGION is heap, bss (static data), stack, text (program code) or shm (memory that processes share); \
               without it, SIZE goes for heap, bss and stack. shm=huge, for shared mappings, memfd, /dev/shm and System V \
               segments of 2 MiB or more, and shm=hugetlb, for those of them that are no files, are had by their name \
               only: such memory is never paged and outside the budget. And text=huge runs a program whose code cannot be had otherwise from an edited copy.\n\n\
               With :prefer, as without, what cannot be had is said, except for auto; with :require the program is \
               not started then, nor is one that it starts: they end with status 125 and one line. ream status shows what a program has.",
        variable: "REAM_PAGES",
        in_file: true,
        commands: &["run", "doctor", "mark"],
        ..PLAIN
    },
    serve::PAGES,
    Spec {
        name: "prefault",
        kind: Kind::OptionalText(&["heap", "bss", "stack", "text", "shm"]),
        value: "REGION[=SIZE],...",
        help: "memory that is there before the program touches it",
        long: "Memory that is there before the program touches it. REGION is heap, bss, stack, text or shm, as for --pages; \
               without a value, heap and bss. On pages of a pool: heap=SIZE is reserved in it before the program begins, and \
               again whenever a block is freed, so that others cannot take it; what has no SIZE is reserved when it is \
               mapped. Other memory is populated when it is mapped, so that a later touch is no page fault: with \
               heap=SIZE the first SIZE of the heap, otherwise as much as fits the budget; all static data; of stacks of \
               4 MiB and more the uppermost SIZE, otherwise all; code as far as it is mapped; shared anonymous mappings. \
               What does not fit --memory is refused. On a machine of several NUMA nodes heap, bss and shm are reserved only, \
               and lie where they are touched first, unless numactl says where.\n\n\
               With :prefer, as without, what is not to be had is said; with :require the program is not started, or stopped. \
               Every program of the session does the same; a shell that waits holds what it has reserved.",
        variable: "REAM_PREFAULT",
        in_file: true,
        commands: &["run", "mark"],
        ..PLAIN
    },
    Spec {
        name: "lock",
        kind: Kind::OptionalText(LOCKS),
        value: "prefer|require",
        help: "keep what lies on large pages in RAM, never paged",
        long: "Keeps what Ream places on large pages in RAM once it was touched: heap, static data and stacks are locked \
               (mlock2), pages of a pool are by nature. Neither Ream nor the kernel ever pages it, and devices can use it. It \
               counts against the budget with its full size when it is mapped; a quarter of the budget, and 16 MiB, stay \
               for what is not locked, and what goes beyond is paged as ever. RLIMIT_MEMLOCK must allow all that the budget \
               does. prefer, as without a value: says so where not, and locks nothing. require: does not start the \
               program, and stops it where memory would have to stay unlocked. A child of fork has nothing locked; a program \
               that is executed has its own.",
        variable: "REAM_LOCK",
        in_file: true,
        commands: &["run", "mark"],
        ..PLAIN
    },
    Spec {
        name: "bloat",
        kind: Kind::Count(0, 100),
        value: "PERCENT",
        default: "10",
        help: "waste by large pages that is not given back",
        long: "Percent of what is in RAM that large pages may hold in vain, with --pages=auto: beyond that, blocks that \
               are mostly zeros give these back and get small pages. 100 leaves everything as it is. Needs a kernel \
               that can move pages (Linux 6.8) and a whole userfaultfd.",
        variable: "REAM_BLOAT",
        in_file: true,
        ..PLAIN
    },
    Spec {
        name: "bloat-age",
        kind: Kind::Count(4, 60_000),
        value: "MILLISECONDS",
        help: "age from which a large page can be wasteful",
        long: "Age from which a large page can be found wasteful.",
        variable: "REAM_BLOAT_AGE",
        hidden: true,
        commands: &["run", "mark"],
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
    crate::turns::RANKS_AT_ONCE,
    crate::turns::NEXT_RANK,
    crate::turns::ON_BLOCK,
    crate::turns::ON_RUN,
    crate::turns::DROP_RECEIVED,
    crate::turns::PATIENCE,
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
        name: "runs",
        kind: Kind::Count(1, 1000),
        value: "NUMBER",
        default: "9",
        help: "rounds in which everything runs once",
        long: "Rounds, in each of which the program runs once plain and once under each of the settings. Intervals need 6; \
               with 9, one run of each end may be far off.",
        commands: &["compare"],
        ..PLAIN
    },
    Spec {
        name: "seconds",
        kind: Kind::Count(1, 31_536_000),
        value: "NUMBER",
        help: "begin no round that would not end by then",
        long: "Begins no further round when it would, by those before, end later than so many seconds after the start.",
        commands: &["compare"],
        ..PLAIN
    },
    Spec {
        name: "with",
        kind: Kind::Texts,
        value: "SETTINGS",
        help: "settings to try, such as \"--pages=huge\"; may be repeated",
        long: "Settings to try in place of those tried by default: options of ream run, in one argument, such as \
               \"--pages=huge --memory 2G\". May be given several times, the simplest first: of settings between which no \
               difference is found the first ones are recommended.",
        commands: &["compare"],
        ..PLAIN
    },
    Spec {
        name: "stdin",
        kind: Kind::File,
        value: "FILE",
        help: "standard input of each run",
        long: "File that each run reads as its standard input, from its beginning. By default the input is empty.",
        commands: &["compare"],
        ..PLAIN
    },
    Spec {
        name: "save",
        help: "let ream run use the settings found best for this program",
        long: "Writes the recommended settings, if there are any, to programs.toml beside the configuration file, where ream \
               run finds them whenever it runs this program. A program is known by its file, links resolved; a script \
               by its own file. Its other settings saved before are replaced.",
        commands: &["compare"],
        ..PLAIN
    },
    Spec {
        name: "json",
        help: "print the findings as JSON",
        long: "Prints the findings as JSON.",
        commands: &["doctor", "status", "compare"],
        ..PLAIN
    },
    Spec {
        name: "show",
        help: "say which programs are marked, and how",
        long: "Says of each program whether it is marked, and with which options.",
        commands: &["mark"],
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
        name: "dry-run",
        help: "show what would be changed, and change nothing",
        long: "Shows what would be changed, and changes nothing. With --undo, what would be taken back.",
        commands: SETUP,
        ..PLAIN
    },
    Spec {
        name: "undo",
        help: "restore what was before",
        long: "Restores what was before, from the last change to the first. Files and settings that others have \
               changed since are left as they are, with a message.",
        commands: SETUP,
        ..PLAIN
    },
    Spec {
        name: "hugetlb",
        kind: Kind::Text,
        value: "SIZE|NODE=SIZE,...",
        help: "reserve so much memory in pages of 2 MiB",
        long: "Reserves so much memory in pages of 2 MiB, spread over the NUMA nodes, or by node as in 0=4G,1=4G; now \
               and at boot. Nothing else can use it. A pool that is larger already stays as it is. When the kernel \
               has fewer pages than asked for, it says so, keeps what it got, and the rest comes at the next boot.",
        commands: SETUP,
        ..PLAIN
    },
    Spec {
        name: "hugetlb-1g",
        kind: Kind::Text,
        value: "SIZE|NODE=SIZE,...",
        help: "the same in pages of 1 GiB",
        long: "The same in pages of 1 GiB. A machine that has run for a while seldom has any: the words for the kernel's \
               command line that reserve them first of all at boot are printed. Boot loaders are left alone.",
        commands: SETUP,
        ..PLAIN
    },
    Spec {
        name: "memlock",
        kind: Kind::Text,
        value: "SIZE|unlimited",
        help: "memory that a process may lock",
        long: "Memory that a process of any user, or with --group of its members, may lock, from the next login on \
               (/etc/security/limits.d).",
        commands: SETUP,
        ..PLAIN
    },
    Spec {
        name: "group",
        kind: Kind::Text,
        value: "NAME",
        help: "for the members of this group, instead of for everybody",
        long: "Access to userfaultfd and the limit on locked memory are for the members of this group, instead of for \
               everybody; with a pool, so are shared segments of large pages (vm.hugetlb_shm_group). Whoever may use \
               userfaultfd can make the kernel wait in the middle of a system call of their own, which makes errors of \
               the kernel easier to exploit: where users are not trusted with that, name a group.",
        commands: SETUP,
        ..PLAIN
    },
    Spec {
        name: "no-userfaultfd",
        help: "leave access to userfaultfd as it is",
        long: "Leaves access to userfaultfd as it is.",
        commands: SETUP,
        ..PLAIN
    },
    Spec {
        name: "no-thp",
        help: "leave transparent large pages as they are",
        long: "Leaves transparent large pages as they are. By default they are set to madvise where they are off \
               (never).",
        commands: SETUP,
        ..PLAIN
    },
    Spec {
        name: "no-sysctl",
        help: "leave settings of the kernel that are too low",
        long: "Leaves vm.max_map_count, kernel.shmmax and kernel.shmall as they are. By default they are raised to 65530, \
               to the machine's RAM and to its pages where they are lower.",
        commands: SETUP,
        ..PLAIN
    },
    Spec {
        name: "no-binfmt",
        help: "leave binfmt_misc as it is",
        long: "Leaves binfmt_misc as it is: marked binaries then run without Ream.",
        commands: SETUP,
        ..PLAIN
    },
    Spec {
        name: "handler",
        kind: Kind::Text,
        value: "FILE",
        help: "the program that starts marked binaries",
        long: "The program that starts marked binaries. By default the one installed with the command.",
        commands: SETUP,
        hidden: true,
        ..PLAIN
    },
    Spec {
        name: "root",
        kind: Kind::Text,
        value: "DIRECTORY",
        help: "a directory that stands for the root of the file system",
        long: "A directory that stands for the root of the file system, /proc and /sys included.",
        commands: SETUP,
        hidden: true,
        ..PLAIN
    },
    Spec {
        name: "help",
        short: Some('h'),
        help: "print help",
        long: "Prints help.",
        commands: &[
            "",
            "run",
            "doctor",
            "setup",
            "status",
            "add-store",
            "compare",
            "mark",
            "unmark",
            "serve",
            "keys",
            "noise",
            "bench",
            "completions",
            "man",
            "help",
        ],
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

mod serve;
#[cfg(test)]
mod tests;
