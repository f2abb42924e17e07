//! Precedence and values of the settings, without looking at the machine.

use super::*;
use ream_stats::{Engine, Fetch, Io};
use std::path::Path;

fn flags(pairs: &[(&str, Option<&str>)]) -> Vec<Given> {
    pairs
        .iter()
        .map(|(name, text)| Given {
            spec: find("run", name).unwrap(),
            source: Source::Flag,
            text: text.map(OsString::from),
        })
        .collect()
}

fn settle(given: &[(&str, Option<&str>)], variables: &[(&str, &str)], file: &str) -> Result<Settings, String> {
    let variable = |name: &str| variables.iter().find(|(one, _)| *one == name).map(|(_, value)| OsString::from(value));
    let file = file::read(Path::new("/etc/x.toml"), file).map_err(|failure| failure.text)?;
    let files = vec![file.of(&["/bin/p".into()]), file.general];
    Settings::settle("run", flags(given), &variable, files).map_err(|failure| failure.text)
}

#[test]
fn flags_beat_variables_beat_the_file_beats_defaults() {
    let file = "memory = \"1G\"\nstore = [\"/f\", \"/g\"]\nio = \"threads\"\nthreshold = 2097152";
    let variables = [("REAM_MEMORY", "2G"), ("REAM_STORE", "/v:/w"), ("REAM_ENGINE", "copy")];
    let settings = settle(&[("memory", Some("3G")), ("store", Some("/a"))], &variables, file).unwrap();
    assert_eq!(settings.memory, Memory::Bytes(3 << 30));
    assert_eq!(settings.stores, [PathBuf::from("/a")]);
    assert_eq!((settings.engine, settings.io, settings.threshold), (2, 2, 2 << 20));
    let settings = settle(&[], &variables, file).unwrap();
    assert_eq!(settings.memory, Memory::Bytes(2 << 30));
    assert_eq!(settings.stores, [PathBuf::from("/v"), PathBuf::from("/w")]);
    assert_eq!(settings.stores_given.unwrap().source, Source::Environment);
    let settings = settle(&[], &[("REAM_MEMORY", "")], file).unwrap();
    assert_eq!(settings.memory, Memory::Bytes(1 << 30));
    assert_eq!(settings.stores, [PathBuf::from("/f"), PathBuf::from("/g")]);
    let settings = settle(&[], &[], "").unwrap();
    assert_eq!(settings.memory, Memory::Auto);
    assert!(settings.memory_given.is_none() && settings.stores.is_empty() && settings.exec_inherit);
}

#[test]
fn settings_of_the_program_stand_between_variables_and_the_general_ones() {
    let file = "memory = \"1G\"\nio = \"threads\"\nstore = \"/g\"\npages = \"huge\"\n\
                [program.\"/bin/p\"]\nmemory = \"2G\"\nio = \"uring\"\nstore = [\"/p\", \"/q\"]\n\
                [program.\"/bin/other\"]\nmemory = \"5G\"\npages = \"small\"";
    let settings = settle(&[], &[], file).unwrap();
    assert_eq!((settings.memory, settings.io), (Memory::Bytes(2 << 30), 1));
    assert_eq!(settings.stores, [PathBuf::from("/p"), PathBuf::from("/q")]);
    // What the section does not say, the general part does, and not another program's section.
    assert_eq!(settings.pages[0].size, ream_options::pages::HUGE);
    let told: Vec<_> = settings.from_files.iter().map(ToString::to_string).collect();
    assert!(told.contains(&"/etc/x.toml: /bin/p: memory".into()), "{told:?}");
    assert!(told.contains(&"/etc/x.toml: pages".into()), "{told:?}");
    let settings = settle(&[("io", Some("threads"))], &[("REAM_MEMORY", "3G")], file).unwrap();
    assert_eq!((settings.memory, settings.io), (Memory::Bytes(3 << 30), 2));
    let told: Vec<_> = settings.from_files.iter().map(ToString::to_string).collect();
    assert!(!told.iter().any(|one| one.contains("memory") || one.contains("io")), "{told:?}");
    let text = settle(&[], &[], "[program.\"/bin/p\"]\nmemory = \"x\"").unwrap_err();
    assert!(text.starts_with("/etc/x.toml: /bin/p: memory: \"x\": not a size"), "{text}");
}

#[test]
fn the_last_of_several_flags_counts() {
    let settings = settle(&[("memory", Some("1G")), ("memory", Some("50%"))], &[], "").unwrap();
    assert_eq!(settings.memory, Memory::Percent(50_000));
}

#[test]
fn the_table_s_defaults_are_those_of_the_settings() {
    let settings = settle(&[], &[], "").unwrap();
    for spec in options_of("run").filter(|spec| !spec.default.is_empty()) {
        let explicit = settle(&[(spec.name, Some(spec.default))], &[], "").unwrap();
        let shown = |mut settings: Settings| {
            settings.memory_given = None;
            format!("{settings:?}")
        };
        assert_eq!(shown(explicit), shown(settings.clone()), "{}", spec.name);
    }
}

#[test]
fn switches_and_summaries() {
    let summary = |given: &[(&str, Option<&str>)], variables: &[(&str, &str)], file: &str| {
        settle(given, variables, file).unwrap().summary
    };
    assert_eq!(summary(&[("summary", None)], &[], ""), Summary::Print);
    assert_eq!(summary(&[("summary", Some("/s.json"))], &[], ""), Summary::File("/s.json".into()));
    assert_eq!(summary(&[("summary", Some("no"))], &[("REAM_SUMMARY", "1")], ""), Summary::Off);
    assert_eq!(summary(&[], &[("REAM_SUMMARY", "1")], ""), Summary::Print);
    assert_eq!(summary(&[], &[], "summary = true"), Summary::Print);
    assert_eq!(summary(&[], &[], "summary = \"/t\""), Summary::File("/t".into()));
    assert!(!settle(&[("no-exec-inherit", None)], &[], "").unwrap().exec_inherit);
    assert!(settle(&[("no-exec-inherit", Some("no"))], &[], "no-exec-inherit = true").unwrap().exec_inherit);
    assert!(!settle(&[], &[("REAM_NO_EXEC_INHERIT", "1")], "").unwrap().exec_inherit);
}

#[test]
fn logs() {
    let settings = settle(&[("log", Some("debug:/l.txt"))], &[], "").unwrap();
    assert_eq!((settings.log_level, settings.log_file), (3, Some(PathBuf::from("/l.txt"))));
    let settings = settle(&[("log", Some("error"))], &[], "").unwrap();
    assert_eq!((settings.log_level, settings.log_file), (0, None));
}

#[test]
fn paths_become_absolute() {
    let settings = settle(&[("store", Some("x")), ("store", Some("file:/y"))], &[], "").unwrap();
    assert_eq!(settings.stores, [std::env::current_dir().unwrap().join("x"), PathBuf::from("/y")]);
}

#[test]
fn refusals_name_where_what_and_why() {
    let sizes = "unknown unit; use K, M, G, T or P (powers of 1024), or kB, MB, GB, TB or PB (of 1000)";
    for (flag, value, text) in [
        ("memory", "12Q", format!("--memory: \"12Q\": {sizes}")),
        ("memory", "", "--memory: no size given; write for example 512M or 1.5G".into()),
        ("memory", "101%", "--memory: \"101%\": not a percentage above 0% and up to 100%".into()),
        ("threshold", "4k", "--threshold: \"4k\": smaller than can be paged; give at least 64K".into()),
        (
            "engine",
            "mov",
            "--engine: \"mov\": not one of auto, move, copy, usermode, copy-always; did you mean move?".into(),
        ),
        ("fetch", "x", "--fetch: \"x\": not one of auto, lazy, aggressive".into()),
        ("log", "loud", "--log: \"loud\": not one of error, warn, info, debug".into()),
        ("log", "info:", "--log: \"info:\": no file after the colon".into()),
        ("summary", "", "--summary: no file given; write --summary=FILE".into()),
        ("pager-cpus", "3-1", "--pager-cpus: \"3-1\": a range ends before it begins; write for example 0-3".into()),
        ("bloat-age", "0", "--bloat-age: \"0\": not a whole number from 4 to 60000".into()),
        ("no-exec-inherit", "maybe", "--no-exec-inherit: \"maybe\": not yes or no".into()),
        ("store", "", "--store: no directory given".into()),
        (
            "store",
            "rdma://node:7400",
            "--store: \"rdma://node:7400\": neither a directory on a local disk nor tcp://HOST:PORT".into(),
        ),
        ("store", "tcp://node", "--store: \"tcp://node\": not tcp://HOST:PORT".into()),
        ("store", "tcp://node:0", "--store: \"tcp://node:0\": not tcp://HOST:PORT".into()),
        ("store", "tcp://a:1,b:1", "--store: \"tcp://a:1,b:1\": not tcp://HOST:PORT,tcp://HOST:PORT,...".into()),
        (
            "store",
            "tcp://a:1,tcp://a:1",
            "--store: \"tcp://a:1,tcp://a:1\": tcp://a:1 twice; copies must be at different servers".into(),
        ),
        (
            "replicas",
            "2",
            "--replicas: \"2\": only for memory servers; name some by --store tcp://HOST:PORT,...".into(),
        ),
        ("spill", "/x", "--spill: \"/x\": only for memory servers; name some by --store tcp://HOST:PORT,...".into()),
    ] {
        assert_eq!(settle(&[(flag, Some(value))], &[], "").unwrap_err(), text);
    }
    assert!(settle(&[], &[("REAM_MEMORY", "x")], "").unwrap_err().starts_with("REAM_MEMORY: \"x\": not a size"));
    assert!(settle(&[], &[], "memory = \"x\"").unwrap_err().starts_with("/etc/x.toml: memory: \"x\": not a size"));
}

#[test]
fn files_are_checked() {
    for (file, start) in [
        ("memroy = 1", "/etc/x.toml: line 1: memroy: no such key; did you mean memory?"),
        ("io = \"uring\"\nbloat-age = 1", "/etc/x.toml: line 2: bloat-age: no such key"),
        ("memory = 1.5", "/etc/x.toml: line 1: memory: not a string, a whole number, true or false"),
        ("\nio = [\"uring\"]", "/etc/x.toml: line 2: io: not a string"),
        ("[program.\"/a\"]\nmemroy = 1", "/etc/x.toml: line 2: memroy: no such key; did you mean memory?"),
        ("[program.a]\nmemory = 1", "/etc/x.toml: line 1: a: not an absolute path; write [program.\"/usr/bin/NAME\"]"),
        ("io = \"uring\"\nprogram = 1", "/etc/x.toml: line 2: program: not a section"),
        ("[program]\n\"/a\" = 1", "/etc/x.toml: line 2: /a: not a section"),
        ("memory = \"1G\"\nstore = ", "/etc/x.toml: line 2: "),
    ] {
        let text = settle(&[], &[], file).unwrap_err();
        assert!(text.starts_with(start), "{text}");
        assert!(!text.contains('\n'), "{text}");
    }
}

/// Words are stored by their place; the session's own enums must agree.
#[test]
fn places_of_words_are_the_stored_numbers() {
    let lower = |shown: String| shown.to_lowercase();
    for (place, word) in ENGINES.iter().enumerate() {
        assert_eq!(lower(format!("{:?}", Engine::from_u32(place as u32))), word.replace("-", ""));
    }
    for (place, word) in IO.iter().enumerate() {
        assert_eq!(lower(format!("{:?}", Io::from_u32(place as u32))), *word);
    }
    for (place, word) in FETCHES.iter().enumerate() {
        assert_eq!(lower(format!("{:?}", Fetch::from_u32(place as u32))), *word);
    }
}

#[test]
fn ranks_that_take_turns() {
    let settled = |flags: &[(&str, Option<&str>)]| settle(flags, &[], "");
    let settings = settled(&[]).unwrap();
    assert_eq!((settings.ranks_at_once, settings.next, settings.ranks_given.is_none()), (0, 0, true));
    let settings = settled(&[("ranks-at-once", Some("2")), ("next", Some("pending"))]).unwrap();
    assert_eq!((settings.ranks_at_once, settings.next, settings.ranks_given.is_some()), (2, 3, true));
    let text = settled(&[("ranks-at-once", Some("0"))]).unwrap_err();
    assert_eq!(text, "--ranks-at-once: \"0\": not a number of ranks, 1 or more, nor auto or all");
}

#[test]
fn tiers_of_a_store() {
    let of = |flags: &[(&str, Option<&str>)], variable: &str| {
        settle(flags, &[("REAM_STORE", variable)], "").map(|all| {
            let stores: Vec<_> = all.stores.iter().map(|path| path.display().to_string()).collect();
            (all.zip >> 20, all.memory_servers.clone(), stores, all.has_disk_below(), all.encrypt)
        })
    };
    let servers = || vec!["a:1".to_owned(), "b:2".to_owned()];
    let (zip, two) = (("store", Some("zip:64M")), ("store", Some("tcp://a:1,tcp://b:2")));
    let (first, second) = (("store", Some("/x")), ("store", Some("/y")));
    let disks = || vec!["/x".to_owned(), "/y".to_owned()];
    assert_eq!(of(&[zip, two, first, second], ""), Ok((64, servers(), disks(), true, false)));
    assert_eq!(of(&[two, first, ("encrypt", None)], ""), Ok((0, servers(), vec!["/x".to_owned()], true, true)));
    assert_eq!(of(&[two], ""), Ok((0, servers(), vec![], false, false)));
    assert_eq!(of(&[], "tcp://a:1,tcp://b:2:/x:/y"), Ok((0, servers(), disks(), true, false)));
    assert_eq!(of(&[], "zip:64M:tcp://a:1,tcp://b:2:/x"), Ok((64, servers(), vec!["/x".to_owned()], true, false)));
    assert_eq!(of(&[], "zip:64M:/x:/y"), Ok((64, vec![], disks(), false, false)));
    let refused = [
        (
            vec![first, two],
            "--store: \"tcp://a:1,tcp://b:2\": memory servers come before directories: what is below another is given after it",
        ),
        (
            vec![two, first, ("spill", Some("/y"))],
            "--spill: \"/y\": each page has a local copy then, so that no directory is below; give one of the two",
        ),
        (
            vec![("store", Some("tcp://a:1,tcp://b:1,tcp://c:1")), first, ("parity", None)],
            "--parity: only where nothing is below the memory servers; give --replicas or one copy instead",
        ),
    ];
    for (flags, why) in refused {
        assert_eq!(of(&flags, "").unwrap_err(), why);
    }
}

#[test]
fn copies_at_memory_servers() {
    let (one, two) = (("store", Some("tcp://a:1")), ("store", Some("tcp://a:1,tcp://b:1")));
    let settled = |flags: &[(&str, Option<&str>)]| {
        settle(flags, &[], "")
            .map(|settings| (settings.memory_servers.len(), settings.replicas, settings.spill.is_some()))
    };
    assert_eq!(settled(&[one]), Ok((1, 1, false)));
    assert_eq!(settled(&[two]), Ok((2, 2, false)));
    assert_eq!(settled(&[two, ("replicas", Some("1"))]), Ok((2, 1, false)));
    assert_eq!(settled(&[two, ("spill", Some("/x"))]), Ok((2, 1, true)));
    assert_eq!(
        settled(&[two, ("spill", Some("/x")), ("replicas", Some("2"))]).unwrap_err(),
        "--replicas: \"2\": --spill is a second copy, too; give one of the two"
    );
    assert_eq!(
        settled(&[one, ("replicas", Some("2"))]).unwrap_err(),
        "--replicas: \"2\": needs two memory servers; name another one, or a directory by --spill"
    );
    assert_eq!(
        settled(&[one, two]).unwrap_err(),
        "--store: \"tcp://a:1,tcp://b:1\": memory servers are one tier, and given once; commas separate several"
    );
    let three = ("store", Some("tcp://a:1,tcp://b:1,tcp://c:1"));
    let summed = |flags: &[(&str, Option<&str>)]| settle(flags, &[], "").map(|all| (all.replicas, all.parity));
    assert_eq!(summed(&[three]), Ok((2, false)));
    assert_eq!(summed(&[three, ("parity", None)]), Ok((1, true)));
    assert_eq!(summed(&[three, ("parity", Some("no")), ("replicas", Some("2"))]), Ok((2, false)));
    assert_eq!(
        summed(&[two, ("parity", None)]).unwrap_err(),
        "--parity: needs three memory servers; with two, --replicas=2 is the same"
    );
    assert_eq!(
        summed(&[three, ("parity", None), ("replicas", Some("2"))]).unwrap_err(),
        "--replicas: \"2\": --parity is in place of copies; give one of the two"
    );
    assert_eq!(
        summed(&[three, ("parity", None), ("spill", Some("/x"))]).unwrap_err(),
        "--spill: \"/x\": --parity is in place of copies; give one of the two"
    );
    assert_eq!(
        summed(&[("parity", None)]).unwrap_err(),
        "--parity: only for memory servers; name some by --store tcp://HOST:PORT,..."
    );
    // Without a local copy nothing at servers is left to be encrypted.
    let encrypted = |flags: &[(&str, Option<&str>)]| settle(flags, &[], "").map(|settings| settings.encrypt);
    assert_eq!(encrypted(&[two, ("spill", Some("/x")), ("encrypt", None)]), Ok(true));
    assert_eq!(encrypted(&[two, ("spill", Some("/x"))]), Ok(false));
    assert_eq!(
        encrypted(&[two, ("encrypt", None)]).unwrap_err(),
        "--encrypt: for a store on disk; what goes to memory servers is encrypted in any case"
    );
    // What a file says of copies does not matter without memory servers.
    assert_eq!(settle(&[], &[("REAM_REPLICAS", "2")], "").map(|settings| settings.replicas), Ok(1));
}
