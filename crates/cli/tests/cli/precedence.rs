//! Command line before environment before file before defaults, seen from outside through what `--log info` says.

use crate::common::{Scratch, ended, ream, refuses};
use std::path::PathBuf;

/// What ream says that it chose, for these flags, variables and this configuration file.
fn chosen(flags: &[&str], variables: &[(&str, &str)], file: Option<&str>) -> String {
    let scratch = Scratch::new();
    let mut arguments = vec!["run", "--log", "info"];
    arguments.extend(flags);
    arguments.push("true");
    let mut command = ream(&arguments);
    if let Some(text) = file {
        command.env("REAM_CONFIG", scratch.write("config.toml", text, 0o644));
    }
    for (name, value) in variables {
        command.env(name, value);
    }
    let (status, _, err) = ended(&command.output().unwrap());
    assert_eq!(status, 0, "{err}");
    err
}

#[test]
fn layers_in_their_order() {
    let file = "memory = \"300M\"\nengine = \"copy\"\nio = \"threads\"\nstore-limit = 2097152";
    let said = chosen(&["-m", "100M"], &[("REAM_MEMORY", "200M"), ("REAM_ENGINE", "usermode")], Some(file));
    assert!(
        said.contains("budget 100 MiB") && said.contains("engine usermode") && said.contains("io threads"),
        "{said}"
    );
    // The tests' own variable stands before the file.
    assert!(said.contains("up to 64 MiB"), "{said}");
    let said = chosen(&[], &[("REAM_MEMORY", "200M"), ("REAM_STORE_LIMIT", "")], Some(file));
    assert!(said.contains("budget 200 MiB") && said.contains("engine copy") && said.contains("up to 2 MiB"), "{said}");
    let said = chosen(&[], &[], Some(file));
    assert!(said.contains("budget 300 MiB"), "{said}");
    let said = chosen(&[], &[], None);
    assert!(said.contains("engine auto, io auto"), "{said}");
}

#[test]
fn the_file_is_found_where_configuration_is() {
    let scratch = Scratch::new();
    std::fs::create_dir_all(scratch.path("xdg/ream")).unwrap();
    std::fs::create_dir_all(scratch.path(".config/ream")).unwrap();
    scratch.write("xdg/ream/config.toml", "memory = \"100M\"", 0o644);
    scratch.write(".config/ream/config.toml", "memory = \"200M\"", 0o644);
    let said = |changed: &[(&str, PathBuf)]| {
        let mut command = ream(&["run", "--log=info", "true"]);
        command.env_remove("REAM_CONFIG").env_remove("XDG_CONFIG_HOME").env("HOME", scratch.path(""));
        command.envs(changed.iter().map(|(name, value)| (name, value)));
        ended(&command.output().unwrap()).2
    };
    assert!(said(&[]).contains("budget 200 MiB"));
    assert!(said(&[("XDG_CONFIG_HOME", scratch.path("xdg"))]).contains("budget 100 MiB"));
    assert!(!said(&[("HOME", "/no/such".into())]).contains("budget 200 MiB"));
    let err = said(&[("REAM_CONFIG", "/no/such".into())]);
    assert_eq!(err, "ream: /no/such: No such file or directory; mend it, or set REAM_CONFIG=\n");
}

#[test]
fn a_bad_value_names_its_layer() {
    let scratch = Scratch::new();
    let file = scratch.write("c.toml", "io = \"fast\"", 0o644);
    let output = ream(&["run", "true"]).env("REAM_CONFIG", &file).output().unwrap();
    let (status, _, err) = ended(&output);
    assert_eq!(status, 125);
    assert_eq!(err, format!("ream: {}: io: \"fast\": not one of auto, uring, threads\n", file.display()));
    let output = ream(&["run", "true"]).env("REAM_IO", "fast").output().unwrap();
    assert_eq!(ended(&output).2, "ream: REAM_IO: \"fast\": not one of auto, uring, threads\n");
    refuses(&["run", "--io", "fast", "true"], 125, "ream: --io: \"fast\": not one of auto, uring, threads");
}

#[test]
fn a_store_of_the_environment_is_a_preference() {
    let output = ream(&["run", "true"]).env("REAM_STORE", "/dev/shm").env_remove("TMPDIR").output().unwrap();
    let (status, _, err) = ended(&output);
    assert_eq!(status, 0);
    assert!(err.starts_with("ream: store: /dev/shm: lies in RAM (tmpfs)") && err.contains("; using /"), "{err}");
    let output = ream(&["run", "--log=error", "true"]).env("REAM_STORE", "/dev/shm").output().unwrap();
    assert_eq!(ended(&output).2, "");
}

#[test]
fn messages_go_to_the_file() {
    let scratch = Scratch::new();
    let file = scratch.path("log");
    let option = format!("--log=info:{}", file.display());
    let output = ream(&["run", &option, "-m", "100M", "true"]).output().unwrap();
    assert_eq!(ended(&output), (0, String::new(), String::new()));
    assert!(std::fs::read_to_string(&file).unwrap().contains("ream: budget 100 MiB, store "));
}

/// What `ream serve` and `ream status` take from variables and the file; a budget for programs is not the size of a server.
#[test]
fn servers_and_their_clients_heed_the_layers() {
    let scratch = Scratch::new();
    let said = |arguments: &[&str], variables: &[(&str, &str)], file: &str| {
        let mut command = ream(arguments);
        command.env("REAM_CONFIG", scratch.write("config.toml", file, 0o644)).envs(variables.iter().copied());
        let (status, _, err) = ended(&command.output().unwrap());
        assert_eq!(status, 125, "{err}");
        err
    };
    let serve = ["serve", "--listen", "127.0.0.1:0", "--memory", "4M"];
    let key = scratch.path("key");
    let file = format!("key = {key:?}\nclients = \"/no/file\"\nservers = \"/no/file\"\nmemory = \"64M\"");
    let missing =
        |path: &str| format!("ream: --key: {path}: No such file or directory; make one by ream keys {path}\n");
    let in_file = missing(&key.display().to_string());
    assert_eq!(said(&serve, &[], &file), in_file);
    assert_eq!(said(&serve, &[("REAM_KEY", "/no/variable")], &file), missing("/no/variable"));
    assert_eq!(
        said(&[&serve[..], &["--key=/no/flag"]].concat(), &[("REAM_KEY", "/no/variable")], &file),
        missing("/no/flag")
    );
    assert!(ream(&["keys", key.to_str().unwrap()]).output().unwrap().status.success());
    assert_eq!(said(&serve, &[], &file), "ream: --clients: /no/file: No such file or directory\n");
    let clients = [("REAM_CLIENTS", "/no/variable")];
    assert_eq!(said(&serve, &clients, &file), "ream: --clients: /no/variable: No such file or directory\n");
    let err = said(&serve[..3], &[("REAM_MEMORY", "64M")], &file);
    assert!(err.starts_with("ream: serve: --memory is missing"), "{err}");
    let status = ["status", "--server", "tcp://127.0.0.1:1"];
    assert!(said(&status, &[], &file).contains(" into /no/file; "));
    assert!(said(&status, &[("REAM_SERVERS", "/no/variable")], &file).contains(" into /no/variable; "));
}
