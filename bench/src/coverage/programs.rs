//! The rest of `ream bench coverage`: programs in C, C++ and Fortran, each linked in four ways, which the machine's own
//! compilers make of the sources that the tests use.

mod by_region;

use crate::coverage::{Row, rows, widest};
use crate::others::{self, PLAIN, under_ream};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::fs::Permissions;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Pages of 2 MiB that these programs can use.
pub const POOL: u64 = 640;

macro_rules! source {
    ($name:literal) => {
        ($name, include_str!(concat!("../../../tests/programs/", $name)))
    };
}

const SOURCES: &[(&str, &str)] = &[
    source!("c/common.h"),
    source!("c/look.h"),
    source!("c/look_fortran.c"),
    source!("c/coverage.c"),
    source!("c/text.c"),
    source!("c/library.c"),
    source!("c/library_user.c"),
    source!("cpp/coverage.cpp"),
    source!("f90/coverage.f90"),
];

/// Names of ways to link, what the compiler is told, and whether libraries can enter.
const KINDS: &[(&str, &[&str], bool)] = &[
    ("PIE", &["-pie", "-fPIE"], true),
    ("no PIE", &["-no-pie", "-fno-pie"], true),
    ("static", &["-static"], false),
    ("static PIE", &["-static-pie"], false),
];

/// A program of a language.
struct Part {
    compilers: &'static [&'static str],
    flags: &'static [&'static str],
    sources: &'static [&'static str],
    argument: Option<&'static str>,
    /// It needs the library.
    library: bool,
}

const C: Part =
    Part { compilers: &["cc", "gcc", "clang"], flags: &["-pthread"], sources: &[], argument: None, library: false };

const LANGUAGES: &[(&str, &[Part])] = &[
    (
        "C",
        &[
            Part { sources: &["c/coverage.c"], ..C },
            Part { sources: &["c/text.c"], argument: Some("pages"), ..C },
            Part { sources: &["c/library_user.c"], library: true, ..C },
        ],
    ),
    (
        "C++",
        &[Part {
            compilers: &["c++", "g++", "clang++"],
            flags: &["-std=c++17", "-pthread", "-Ic"],
            sources: &["cpp/coverage.cpp"],
            ..C
        }],
    ),
    (
        "Fortran",
        &[Part {
            compilers: &["gfortran"],
            // Its library calls this function at its end without asking for it.
            flags: &["-fopenmp", "-Wl,-u,pthread_mutex_destroy"],
            sources: &["f90/coverage.f90", "c/look_fortran.c"],
            ..C
        }],
    ),
];

/// The library, found by its name in the program's directory.
const LIBRARY: &[&str] = &["-shared", "-fPIC", "-Wl,-soname,liblook.so", "-o", "liblook.so", "c/library.c"];

/// Where the programs are made; removed when dropped.
struct Workshop(PathBuf);

impl Workshop {
    fn open(directory: &Path) -> Result<Workshop, String> {
        let path = directory.join(format!("ream-bench-{}", std::process::id()));
        let told = |error: std::io::Error| format!("{}: {error}", path.display());
        std::fs::create_dir(&path).map_err(told)?;
        let shop = Workshop(path.clone());
        for (name, text) in SOURCES {
            let file = path.join(name);
            file.parent().map_or(Ok(()), std::fs::create_dir_all).map_err(told)?;
            std::fs::write(file, text).map_err(told)?;
        }
        Ok(shop)
    }

    fn compile(&self, compilers: &[&str], arguments: &[&str]) -> Result<(), String> {
        for compiler in compilers {
            let mut command = Command::new(compiler);
            command.arg("-O2").args(arguments).current_dir(&self.0).stdin(Stdio::null());
            match command.output() {
                Ok(output) if output.status.success() => return Ok(()),
                Ok(output) => {
                    let errors = String::from_utf8_lossy(&output.stderr);
                    let line = errors.lines().find(|line| line.contains("rror")).unwrap_or_default();
                    return Err(format!("{compiler}: {}; {line}", output.status));
                }
                Err(_) => {}
            }
        }
        Err(format!("no compiler ({})", compilers.join(", ")))
    }

    /// The parts of a language that can be had, linked so.
    fn programs(&self, parts: &'static [Part], kind: &[&str], dynamic: bool) -> Result<Vec<Program>, String> {
        let mut programs = Vec::new();
        for part in parts.iter().filter(|part| dynamic || !part.library) {
            let library = ["-Wl,--no-as-needed", "./liblook.so", "-Wl,-rpath,$ORIGIN"];
            if part.library {
                self.compile(part.compilers, LIBRARY)?;
            }
            let name = format!("program-{}", programs.len());
            let linked: &[&str] = if part.library { &library } else { &[] };
            self.compile(part.compilers, &[kind, part.flags, &["-o", "linked"], part.sources, linked].concat())?;
            let path = self.0.join(name);
            install(&self.0.join("linked"), &path).map_err(|error| format!("{}: {error}", path.display()))?;
            programs.push((path, part));
        }
        Ok(programs)
    }
}

/// Copies a program page by page, and to the disk: linkers write so much at a time that the page cache may hold their
/// programs in large pages, and Ream leaves alone what is not on the disk yet.
fn install(from: &Path, to: &Path) -> std::io::Result<()> {
    let bytes = std::fs::read(from)?;
    let _ = std::fs::remove_file(to);
    let mut file = std::fs::File::create(to)?;
    bytes.chunks(4096).try_for_each(|page| file.write_all(page))?;
    file.set_permissions(Permissions::from_mode(0o755))?;
    file.sync_all()
}

impl Drop for Workshop {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

type Program = (PathBuf, &'static Part);
/// Name, KiB in RAM, KiB on large pages.
type Region = (String, u64, u64);

/// What a program says of itself: a line a region, or in its second line the whole blocks of its code and KiB of that on
/// large pages.
fn understand(text: &str, is_code: bool) -> Option<Vec<Region>> {
    if is_code {
        let (blocks, large) = text.lines().nth(1)?.split_once(' ')?;
        return Some(vec![("text".into(), blocks.parse::<u64>().ok()? * 2048, large.parse().ok()?)]);
    }
    let region = |line: &str| match *line.split(' ').collect::<Vec<_>>().as_slice() {
        [name, _, _, present, large] => Some((name.to_owned(), present.parse().ok()?, large.parse().ok()?)),
        _ => None,
    };
    text.lines().map(region).collect::<Option<Vec<_>>>().filter(|regions| !regions.is_empty())
}

fn look(row: &Row, ream: &Path, programs: &[Program]) -> Result<Vec<Region>, String> {
    let mut regions = Vec::new();
    for (program, part) in programs {
        // The page cache shares what an earlier run, under Ream, has made large in it.
        install(program, program).map_err(|error| format!("{}: {error}", program.display()))?;
        let mut command = match row.ream {
            [] => others::under(&row.setting, program),
            options => under_ream(ream, &options.iter().map(OsString::from).collect::<Vec<_>>(), program),
        };
        command.args(part.argument).env("OMP_STACKSIZE", "64M").stdin(Stdio::null());
        let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
        let errors = String::from_utf8_lossy(&output.stderr);
        let found = understand(&String::from_utf8_lossy(&output.stdout), part.argument.is_some());
        match found.filter(|_| output.status.success()) {
            Some(found) => regions.extend(found),
            None => return Err(format!("{}; {}", output.status, errors.lines().last().unwrap_or_default())),
        }
    }
    Ok(regions)
}

/// Measures all languages and ways to link under all settings in `effective`; returns whether under Ream most lies on large
/// pages in every one, and the figures. Programs are made in a directory below this one.
///
/// # Errors
/// What kept it from measuring.
pub fn run(ream: &Path, directory: &Path, effective: &[&str]) -> Result<(bool, Vec<Value>), String> {
    let shop = Workshop::open(directory)?;
    let (mut good, mut values, mut skipped) = (true, Vec::new(), Vec::new());
    for (language, parts) in LANGUAGES {
        let (mut heading, mut looks) = (false, Vec::new());
        for (kind, flags, dynamic) in KINDS {
            let programs = match shop.programs(parts, flags, *dynamic) {
                Ok(programs) => programs,
                Err(why) => {
                    skipped.push(format!("{language}, {kind}: NOT AVAILABLE HERE: {why}"));
                    values.push(json!({"program": language, "linked": kind, "not_available_here": why}));
                    continue;
                }
            };
            let mut shares = Vec::new();
            let preloaded = |row: &Row| row.setting.environment.iter().any(|(name, _)| *name == "LD_PRELOAD");
            for row in rows().filter(|row| effective.contains(&row.setting.name) && (*dynamic || !preloaded(row))) {
                let under = row.setting.name;
                let regions = match look(&row, ream, &programs) {
                    Ok(regions) => regions,
                    Err(why) if row.ream.is_empty() && under != PLAIN.name => {
                        skipped.push(format!("{language}, {kind}, {under}: {why}"));
                        values.push(json!({"program": language, "linked": kind, "under": under, "absent": why}));
                        continue;
                    }
                    Err(why) => return Err(format!("{language}, {kind}, {under}: {why}")),
                };
                if !std::mem::replace(&mut heading, true) {
                    let names: Vec<&str> = regions.iter().map(|(name, ..)| name.as_str()).collect();
                    println!("\n| {language} | under | {} | all |", names.join(" | "));
                    println!("|---|---|{}", "---:|".repeat(names.len() + 1));
                }
                println!("{}", line(kind, under, &regions, *dynamic || parts.len() == 1));
                shares.push((!row.ream.is_empty(), share(&regions)));
                values.push(json!({"program": language, "linked": kind, "under": under, "regions": regions}));
                looks.push((*kind, under, regions));
            }
            good &= widest(&shares);
        }
        println!("\n{}", by_region::table(language, &looks));
    }
    skipped.iter().for_each(|why| println!("\nleft out: {why}"));
    Ok((good, values))
}

fn share(regions: &[Region]) -> f64 {
    let (all, large) = regions.iter().fold((0, 0), |(all, large), region| (all + region.1, large + region.2));
    large as f64 / all.max(1) as f64
}

fn percent((_, present, large): &Region) -> String {
    match present {
        0 => "-".to_owned(),
        present => (large * 100 / present).to_string(),
    }
}

/// A line of the table; of a static program without the two regions of its library.
fn line(kind: &str, under: &str, regions: &[Region], complete: bool) -> String {
    let mut cells: Vec<String> = regions.iter().map(percent).collect();
    cells.resize(cells.len() + if complete { 0 } else { 2 }, "-".to_owned());
    format!("| {kind} | {under} | {} | {:.0} |", cells.join(" | "), share(regions) * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_programs_say_becomes_a_line() {
        let regions = understand("bss 31 31 1000 900\nheap 0 0 1000 1000\n", false).unwrap();
        assert_eq!(line("PIE", "x", &regions, true), "| PIE | x | 90 | 100 | 95 |");
        assert_eq!(line("static", "x", &regions, false), "| static | x | 90 | 100 | - | - | 95 |");
        assert_eq!(understand("17\n3 6144\n", true), Some(vec![("text".to_owned(), 6144, 6144)]));
        assert!(understand("bss 31\n", false).is_none() && understand("", false).is_none());
        assert!(understand("17\n", true).is_none());
    }

    #[test]
    fn a_program_that_is_installed_over_itself_is_the_same() {
        let shop = Workshop::open(&std::env::temp_dir()).unwrap();
        let (from, to) = (shop.0.join("c/text.c"), shop.0.join("installed"));
        install(&from, &to).unwrap();
        install(&to, &to).unwrap();
        assert_eq!(std::fs::read(&from).unwrap(), std::fs::read(&to).unwrap());
        assert_eq!(std::fs::metadata(&to).unwrap().permissions().mode() & 0o777, 0o755);
    }

    #[test]
    fn every_source_is_there() {
        let names: Vec<&str> = SOURCES.iter().map(|(name, _)| *name).collect();
        let parts = LANGUAGES.iter().flat_map(|(_, parts)| *parts);
        assert!(parts.flat_map(|part| part.sources).all(|source| names.contains(source)));
    }
}
