//! The commands of `ream`, once.

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
               PROGRAM is paged if it is a dynamically linked program of the system's own C library. Statically linked \
               programs get large pages only, and take no --memory. A script is run by its interpreter, to which the \
               same applies.",
        words: &[],
    },
    Command {
        name: "doctor",
        usage: "[OPTION]... [--] [PROGRAM [ARGUMENT]...]",
        help: "say what this machine offers, or what pages a program will get",
        long: "Looks at the kernel, at userfaultfd, io_uring, large pages, limits, the cgroup and the places for a \
               store, whose speed it measures, and says which engine a run would get and why. Every line has a \
               verdict, and where something is missing one command that mends it. Needs no privileges and changes \
               nothing.\n\n\
               With PROGRAM it says instead on which pages each region of that program will lie under `ream run`, \
               and why: heap, static data, stacks, shared memory, its code and its libraries'.\n\n\
               The exit status is 0 when a run can page or the program can be entered, and 1 when not.",
        words: &[],
    },
    Command {
        name: "setup",
        usage: "[OPTION]...",
        help: "prepare this machine for Ream, or take that back",
        long: "Lets users have the whole userfaultfd, switches transparent large pages on where they are off, raises \
               settings of the kernel that are too low, and enters the program that starts marked binaries in \
               binfmt_misc; with options, reserves large pages in pools and raises the limit on locked memory. All \
               of it now and, by files below /etc, at every boot. Each change is shown before it is made. What is \
               well already is left alone, so that a second call finds nothing to do. Only root can change the \
               machine; anybody can look at what would be done by --dry-run.\n\n\
               What was before is written to /var/lib/ream/setup.journal ahead of each change, so that --undo \
               restores it, also after a setup that was killed. What others have changed since is left as it is, \
               with a message.\n\n\
               The exit status is 0, and 1 when something could not be done, such as a pool that the kernel cannot \
               fill.",
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
               The exit status is 0, 1 when no process runs under Ream, and 125 when PID is none, or may not be looked at.",
        words: &[],
    },
    Command {
        name: "add-store",
        usage: "PID tcp://HOST:PORT",
        help: "give a running program one memory server more",
        long: "Adds a memory server to the session of process PID, which pages to memory servers already. From then on its \
               programs store pages there, and copies that were lost are made again there; how many copies each page has \
               stays as it is. The session may store more by what that server gives, up to eight times what it could at \
               first. There can be seven servers.\n\n\
               The session's agent calls the server, with the key and the list of servers that ream run was given: the \
               server's public key must be in that list. A session without security takes servers without only.\n\n\
               The exit status is 0, and 125 when the server was not added; a line says why.",
        words: &[],
    },
    Command {
        name: "compare",
        usage: "[OPTION]... [--] PROGRAM [ARGUMENT]...",
        help: "find out which settings a program runs best with",
        long: "Runs PROGRAM plain and under each of several settings, in turns, in an order drawn anew for each round, and \
               tells for each: wall time, processor time, peak memory, the ratio of its wall time to that of the plain \
               run of the same round with its 95 % interval, and whether the difference is real, which is when the \
               interval excludes 1. From these it says which settings to use. One more run of each, before the others, \
               does not count. Unless --with gives others, the settings are --pages=auto, --pages=small (only paging) \
               and --pages=huge.\n\n\
               Every run must end as the plain one did, with the same exit status and the same standard output, else its \
               settings count as failed. Where plain runs differ in output already, outputs are not compared. Each run \
               has a session of its own and no terminal; what it leaves running in its process group is ended. Settings \
               saved before do not count while settings are compared.\n\n\
               The exit status is 0 when all settings could be compared, 1 when some failed, 125 when nothing could be \
               compared, and 128 and the signal's number when it was interrupted; what was measured until then is \
               shown.",
        words: &[],
    },
    Command {
        name: "mark",
        usage: "[OPTION]... PROGRAM | --show PROGRAM...",
        help: "have a program run under Ream whoever starts it",
        long: "Marks PROGRAM, an ELF file, so that it runs under Ream whenever and by whomever it is started, with the \
               options given. They count before the configuration file, and behind the environment and the command \
               line of ream run. The machine must have Ream's entry in binfmt_misc; without, a marked program runs as \
               it always did.\n\n\
               The mark is four bytes in an unused field of the file's header (e_flags) and a block of options behind \
               its end; other tools take it for the program it is. The original stays beside it, as .PROGRAM.unmarked, \
               and is what is executed; it comes back with ream unmark. Where the marked file was changed since, or \
               copied without it, a copy in memory is executed.\n\n\
               Files that give rights are not marked. Of a program's hard links only the one named is. With --show, \
               says which programs are marked; the exit status is then 0 when all are, and 1 when one is not.",
        words: &[],
    },
    Command {
        name: "unmark",
        usage: "PROGRAM",
        help: "take a program's mark away",
        long: "Takes the mark away: the file is what it was before, to the byte.",
        words: &[],
    },
    Command {
        name: "serve",
        usage: "--listen ADDR:PORT --memory SIZE [OPTION]...",
        help: "lend this machine's memory to programs on others",
        long: "Keeps pages for programs that run on other machines with `ream run --store tcp://HOST:PORT`. Only those \
               whose public keys are in the file given by --clients are served. What they send is sealed by them: this \
               server cannot read it. A session's memory is given back to the kernel when the session ends or its \
               machine is gone, and nobody ever reads what another has left.\n\n\
               It writes one line an event to standard error, and sleeps while nobody wants anything.\n\n\
               The exit status is 0 after SIGTERM or SIGINT.",
        words: &[],
    },
    Command {
        name: "keys",
        usage: "[FILE]",
        help: "make a key pair for memory servers or clients, or show it",
        long: "Makes a key pair in FILE, by default ream/key in the user's configuration directory, which only its owner may \
               read, and prints the public key. If there is one already, only prints its public key.\n\n\
               A server's public key goes into the file --servers of its clients, as HOST:PORT PUBLIC-KEY; a client's into \
               the file --clients of its servers, as PUBLIC-KEY NAME.",
        words: &[],
    },
    Command {
        name: "noise",
        usage: "[OPTION]...",
        help: "measure the machine's noise, without and with an idle pager",
        long: "Looks on all processors at once for what the machine takes from a program that asks it for nothing: pieces \
               of fixed work and how long each takes, gaps in looking at the clock without pause (Selfish detours), and \
               the cost of system calls; plain and under Ream, whose pager has been at work before and is idle, in \
               turns. `ream noise --help` lists the options.\n\n\
               The exit status is 0 when the idle pager cannot be told from none, 1 when it can, and 125 when it could \
               not be measured.",
        words: &[],
    },
    Command {
        name: "bench",
        usage: "all|compare|report|paging|fits|malloc|inside|pages|mpi|remote|coverage [OPTION]...",
        help: "measure Ream against the raw device, kernel swap and RAM",
        long: "all: everything that follows but coverage, and the NAS kernels EP, CG, MG, FT and IS, plain, with large \
               pages and within a budget; writes a page with pictures, a text and all figures to a directory, and goes \
               on after an interruption. compare: what changed from one such file of figures to another beyond \
               noise; the exit status is 1 when anything got worse. report: the page of such a file anew.\n\n\
               paging: sequential, strided, random and skewed access to four times the budget, in turns with direct \
               I/O on the same store, kernel swap under the same limit (when root) and plain RAM. fits: data that \
               fit the budget, with and without Ream. malloc: small blocks, with and without Ream. inside: loops of R and Python with Ream switched on in them. pages: \
               computations of our own, R's and Python's on small pages, under Ream, on large pages set by hand, and \
               under other allocators that promise them, in turns. mpi: programs of MPI whose ranks need more memory than \
               there is. remote: paging to a memory server against the bare network. coverage: the part of a program's \
               memory that lies on large pages under Ream and under those. `ream bench --help` lists the options. The exit status is 0 \
               when every requirement that could be measured was met, 1 when one was not, and 125 when something could \
               not be measured that should have been.",
        words: &[
            "all", "compare", "report", "paging", "fits", "malloc", "inside", "pages", "mpi", "remote", "coverage",
        ],
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
        words: &[
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
        ],
    },
];

const SHELLS: &[&str] = &["bash", "zsh", "fish"];

/// Whether a command's options are followed by a program with arguments of its own.
pub fn takes_program(command: &str) -> bool {
    matches!(command, "run" | "compare" | "doctor")
}

/// The command with this name.
pub fn command(name: &str) -> Option<&'static Command> {
    COMMANDS.iter().find(|command| command.name == name)
}
