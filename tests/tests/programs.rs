//! Real programs, unmodified, with data of several times the budget: the same result as without Ream.

use ream_tests::real::{c_source, lines, perl_script, python_with, sql_script};
use ream_tests::{Run, Scratch, build_root, compare, installed, program, skip};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

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
    fs::write(scratch.file("script.sql"), sql_script(400_000)).expect("the script");
    compare(72, 0, || Run::of(&sqlite).arg(":memory:").input(&scratch.file("script.sql")));
}

#[test]
fn perl_with_a_large_hash() {
    let Some(perl) = installed("perl") else { return };
    let script = perl_script(300_000);
    compare(48, 0, || Run::of(&perl).args(["-e", &script]));
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
    fs::write(scratch.file("large.c"), c_source(5000)).expect("the source");
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
