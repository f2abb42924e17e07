//! Real programs, unmodified, with data of several times the budget: the same result as without Ream.

use ream_tests::{Run, Scratch, build_root, compare, installed, program, skip, tool};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A Python that can import `module`.
fn python_with(module: &str) -> Option<PathBuf> {
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
fn lines(path: &Path, count: u64) {
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

#[test]
fn sort_with_a_buffer_larger_than_the_budget() {
    let scratch = Scratch::new("sort");
    lines(&scratch.file("lines"), 1_500_000);
    let script = "LC_ALL=C sort -S 400M --parallel=2 lines | cksum; LC_ALL=C sort -S 400M -r lines | head -3";
    compare(72, 0, || Run::of("/bin/sh").args(["-c", script]).within(scratch.path()).unmeasured());
}

#[test]
fn sqlite_with_a_database_in_memory() {
    let Some(sqlite) = installed("sqlite3") else { return };
    let scratch = Scratch::new("sqlite");
    let script = "\
        create table t (id integer primary key, name text, note text);\n\
        with recursive n(i) as (select 0 union all select i + 1 from n where i < 399999)\n\
        insert into t select i, printf('%08x', (i * 2654435761) % 4294967296), printf('%0160d', i * 7919) from n;\n\
        create index by_name on t (name);\n\
        select count(*), min(name), max(name) from t;\n\
        update t set note = name || note where id % 3 = 0;\n\
        delete from t where id % 7 = 0;\n\
        select count(*), sum(length(note)), sum(id) from t;\n\
        select id, name from t order by name limit 5;\n\
        select substr(name, 1, 1) as first, count(*) from t group by first order by first;\n\
        pragma integrity_check;\n";
    fs::write(scratch.file("script.sql"), script).expect("the script");
    compare(72, 0, || Run::of(&sqlite).arg(":memory:").input(&scratch.file("script.sql")));
}

#[test]
fn perl_with_a_large_hash() {
    let Some(perl) = installed("perl") else { return };
    let script = "\
        my %h; my $n = 300000;\n\
        for my $i (1 .. $n) { $h{($i * 2654435761) % 4294967296} = \"value $i \" x 3; }\n\
        my $sum = 0; for my $i (1 .. $n) { my $v = $h{($i * 2654435761) % 4294967296}; $sum += length($v) * ($i % 7); }\n\
        delete $h{($_ * 2654435761) % 4294967296} for grep { $_ % 2 } 1 .. $n;\n\
        print scalar(keys %h), \" $sum\\n\"; my @s = sort { $a <=> $b } keys %h; print \"@s[0 .. 4]\\n\";";
    compare(48, 0, || Run::of(&perl).args(["-e", script]));
}

#[test]
fn python_with_numpy_arrays() {
    let Some(python) = python_with("numpy") else { return };
    compare(64, 0, || Run::of(&python).arg(program("py/arrays.py")).arg("96").unmeasured());
}

/// Where pip has put DuckDB, as it is pinned; it is in no package of Debian's.
fn duckdb(python: &Path) -> Option<PathBuf> {
    let place = program("py/duckdb.txt");
    let target = build_root().join("ream-tests/duckdb");
    let done = target.join("whole");
    if fs::metadata(&done).and_then(|done| done.modified()).ok()
        > fs::metadata(&place).and_then(|at| at.modified()).ok()
    {
        return Some(target);
    }
    let _ = fs::remove_dir_all(&target);
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps", "--require-hashes"]);
    pip.args(["--only-binary=:all:", "--target"]).arg(&target).arg("--requirement").arg(&place);
    let output = pip.output().expect("starting python3");
    if !output.status.success() {
        skip("duckdb", &String::from_utf8_lossy(&output.stderr));
        return None;
    }
    fs::write(done, "").expect("marking it as whole");
    Some(target)
}

#[test]
fn duckdb_with_tables_in_memory() {
    let Some(python) = python_with("pip") else { return };
    let Some(duckdb) = duckdb(&python) else { return };
    let run = || Run::of(&python).arg(program("py/queries.py")).arg(&duckdb).arg("800000").unmeasured();
    compare(96, 0, run);
}

#[test]
fn python_multiprocessing_by_fork_and_by_spawn() {
    let Some(python) = python_with("multiprocessing") else { return };
    compare(48, 0, || Run::of(&python).arg(program("py/processes.py")).arg("128").unmeasured());
}

#[test]
fn r_with_models_and_forked_workers() {
    let Some(rscript) = installed("Rscript") else { return };
    compare(200, 0, || Run::of(&rscript).arg("--vanilla").arg(program("R/model.R")).unmeasured());
}

#[test]
fn gcc_compiling_something_large() {
    let Some(gcc) = installed("gcc") else { return };
    let scratch = Scratch::new("gcc");
    let mut source = String::new();
    for i in 0..5000 {
        source += &format!(
            "struct s{i} {{ int a[{}]; long b; }};\nlong f{i}(struct s{i} *p, long x) {{ long t = x * {i};\n\
             for (int k = 0; k < {}; k++) {{ t += p->a[k] ^ (t >> {}); if (t & {}) t -= p->b; else t ^= k; }}\n\
             switch (t & 7) {{ case 0: return t + {i}; case 1: return t ^ 5; case 3: return p->b; default: return x; }} }}\n",
            i % 50 + 1,
            i % 50 + 1,
            i % 13 + 1,
            i % 255 + 1
        );
    }
    fs::write(scratch.file("large.c"), source).expect("the source");
    let script = format!("'{}' -O0 -g -c large.c -o large.o && cksum < large.o && rm large.o", gcc.display());
    compare(128, 0, || Run::of("/bin/sh").args(["-c", &script]).within(scratch.path()).unmeasured());
}

#[test]
fn node_with_many_objects() {
    let Some(node) = installed("node") else { return };
    let script = "\
        const all = []; let x = 1;\n\
        for (let i = 0; i < 300000; i++) { x = (x * 48271) % 2147483647; all.push({ key: x, text: 'n' + x, at: i }); }\n\
        const buffers = []; for (let i = 0; i < 40; i++) buffers.push(Buffer.alloc(2 << 20, i));\n\
        all.sort((a, b) => a.key - b.key); let sum = 0; for (const b of buffers) for (let i = 0; i < b.length; i += 999) sum += b[i];\n\
        console.log(all[0], all[299999], sum, JSON.stringify(all).length);";
    let run = || Run::of(&node).args(["-e", script]).unmeasured();
    let plain = run().finish();
    plain.exited(0);
    run().memory(64).finish().same_as(&plain);
}

#[test]
fn java_with_a_heap_larger_than_the_budget() {
    let (Some(java), Some(_)) = (installed("java"), installed("javac")) else { return };
    let scratch = Scratch::new("java");
    let source = "\
        import java.util.*;\n\
        public class Large { public static void main(String[] a) {\n\
          Random r = new Random(5); List<long[]> held = new ArrayList<>(); Map<Integer, String> map = new HashMap<>();\n\
          for (int i = 0; i < 600; i++) { long[] x = new long[32768]; for (int k = 0; k < x.length; k++) x[k] = r.nextLong();\n\
            held.add(x); if (i % 5 == 0) held.set(i / 2, x); map.put(i, \"v\" + i); }\n\
          long sum = 0; for (long[] x : held) { Arrays.sort(x); sum = sum * 31 + x[0] + x[x.length / 2]; }\n\
          System.out.println(sum + \" \" + map.size()); } }";
    fs::write(scratch.file("Large.java"), source).expect("the source");
    let run = || {
        let options = ["-Xmx256m", "-Xms256m", "-XX:+UseSerialGC", "Large.java"];
        Run::of(&java).args(options).within(scratch.path()).unmeasured()
    };
    let plain = run().finish();
    plain.exited(0);
    run().memory(128).finish().same_as(&plain);
}
