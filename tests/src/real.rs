//! Real programs, unmodified, and data for them of whatever size is wanted.

use crate::place::{Scratch, program, tool};
use crate::{installed, skip};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A Python that can import `module`; `None`, loudly, without.
pub fn python_with(module: &str) -> Option<PathBuf> {
    let candidates = [PathBuf::from("/usr/bin/python3")].into_iter().chain(tool("python3"));
    let can = |path: &PathBuf| {
        let asked = Command::new(path).args(["-c", &format!("import {module}")]).output();
        asked.is_ok_and(|output| output.status.success())
    };
    let found = candidates.into_iter().find(can);
    if found.is_none() {
        skip("python3", &format!("no python3 that can import {module}"));
    }
    found
}

/// Lines that look random and are the same every time.
pub fn lines(path: &Path, count: u64) {
    let mut file = std::io::BufWriter::new(fs::File::create(path).expect("a file of lines"));
    let mut state = 88_172_645_463_325_252_u64;
    for _ in 0..count {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        writeln!(file, "{state:016x}{:016x}", state.wrapping_mul(0x9e37_79b9_7f4a_7c15)).expect("writing lines");
    }
    file.flush().expect("writing lines");
}

/// What sqlite3 is to do with a table of so many rows.
pub fn sql_script(rows: u64) -> String {
    format!(
        "\
        create table t (id integer primary key, name text, note text);\n\
        with recursive n(i) as (select 0 union all select i + 1 from n where i < {})\n\
        insert into t select i, printf('%08x', (i * 2654435761) % 4294967296), printf('%0160d', i * 7919) from n;\n\
        create index by_name on t (name);\n\
        select count(*), min(name), max(name) from t;\n\
        update t set note = name || note where id % 3 = 0;\n\
        delete from t where id % 7 = 0;\n\
        select count(*), sum(length(note)), sum(id) from t;\n\
        select id, name from t order by name limit 5;\n\
        select substr(name, 1, 1) as first, count(*) from t group by first order by first;\n\
        pragma integrity_check;\n",
        rows - 1
    )
}

/// A script for perl with a hash of so many entries.
pub fn perl_script(entries: u64) -> String {
    let rest = "\
        for my $i (1 .. $n) { $h{($i * 2654435761) % 4294967296} = \"value $i \" x 3; }\n\
        my $sum = 0; for my $i (1 .. $n) { my $v = $h{($i * 2654435761) % 4294967296}; $sum += length($v) * ($i % 7); }\n\
        delete $h{($_ * 2654435761) % 4294967296} for grep { $_ % 2 } 1 .. $n;\n\
        print scalar(keys %h), \" $sum\\n\"; my @s = sort { $a <=> $b } keys %h; print \"@s[0 .. 4]\\n\";";
    format!("my %h; my $n = {entries};\n{rest}")
}

/// A source in C with so many functions.
pub fn c_source(functions: u64) -> String {
    let function = |i: u64| {
        format!(
            "struct s{i} {{ int a[{}]; long b; }};\nlong f{i}(struct s{i} *p, long x) {{ long t = x * {i};\n\
             for (int k = 0; k < {}; k++) {{ t += p->a[k] ^ (t >> {}); if (t & {}) t -= p->b; else t ^= k; }}\n\
             switch (t & 7) {{ case 0: return t + {i}; case 1: return t ^ 5; case 3: return p->b; default: return x; }} }}\n",
            i % 50 + 1,
            i % 50 + 1,
            i % 13 + 1,
            i % 255 + 1
        )
    };
    (0..functions).map(function).collect()
}

/// A program that runs for some seconds in its budget, with data of two to four times that.
pub struct Real {
    /// What it is.
    pub name: &'static str,
    /// The budget.
    pub memory: &'static str,
    command: PathBuf,
    arguments: Vec<OsString>,
    input: Option<PathBuf>,
}

impl Real {
    /// Those that are installed; the others are skipped loudly. Their files are made in this directory.
    ///
    /// # Panics
    /// When files cannot be written.
    pub fn all(scratch: &Scratch) -> Vec<Real> {
        let (text, sql, c) = (scratch.file("lines"), scratch.file("script.sql"), scratch.file("large.c"));
        lines(&text, 800_000);
        fs::write(&sql, sql_script(300_000)).expect("the script");
        fs::write(&c, c_source(1800)).expect("the source");
        let (arrays, processes, model) = (program("py/arrays.py"), program("py/processes.py"), program("R/model.R"));
        let perl = perl_script(200_000);
        let real = |name, memory, command: Option<PathBuf>, arguments: &[&OsStr]| {
            let arguments = arguments.iter().map(OsString::from).collect();
            Some(Real { name, memory, command: command?, arguments, input: None })
        };
        let word = OsStr::new;
        let all = [
            real("sort", "32M", installed("sort"), &[word("-S200M"), word("--parallel=2"), text.as_ref()]),
            real("numpy", "32M", python_with("numpy"), &[arrays.as_ref(), word("96")]),
            real("R", "40M", installed("Rscript"), &[word("--vanilla"), model.as_ref(), word("8")]),
            real("sqlite3", "32M", installed("sqlite3"), &[word(":memory:")])
                .map(|real| Real { input: Some(sql), ..real }),
            real("gcc", "48M", installed("gcc"), &[word("-g"), word("-S"), word("-o-"), c.as_ref()]),
            real("multiprocessing", "32M", python_with("array"), &[processes.as_ref(), word("64")]),
            real("perl", "32M", installed("perl"), &[word("-e"), perl.as_ref()]),
        ];
        all.into_iter().flatten().collect()
    }

    /// Adds it to a command that starts programs, such as `ream run`.
    ///
    /// # Panics
    /// When its input is not there.
    pub fn add_to(&self, command: &mut Command) {
        command.arg(&self.command).args(&self.arguments).env("LC_ALL", "C");
        if let Some(input) = &self.input {
            command.stdin(fs::File::open(input).expect("the input"));
        }
    }

    /// What it prints when it runs by itself.
    ///
    /// # Panics
    /// When that fails.
    pub fn plain(&self) -> Vec<u8> {
        let mut command = Command::new("env");
        command.stdin(Stdio::null());
        self.add_to(&mut command);
        let output = command.output().expect("starting the program");
        assert!(output.status.success(), "{}: {output:?}", self.name);
        output.stdout
    }
}
