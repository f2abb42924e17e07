//! Files of settings that are read at boot, line by line: what they must contain, with what others have put into them
//! left as it is.

use crate::tree::Tree;

/// The first line of a file that setup makes.
const HEAD: &str = "# Made by ream setup; ream setup --undo takes it back.\n";

/// How the lines of a file are written, and which of their words say what a line is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// tmpfiles.d(5): type, path, four fields, value.
    Tmpfiles,
    /// sysfs.conf(5): path below /sys = value.
    Sysfs,
    /// sysctl.d(5): name = value.
    Sysctl,
    /// limits.conf(5): whom, which of the two limits, of what, value.
    Limits,
    /// One entry for the whole file.
    Whole,
}

impl Form {
    /// What a line is about; `None` for comments.
    fn subject(self, line: &str) -> Option<String> {
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            return None;
        }
        let words: Vec<_> = line.split_whitespace().collect();
        Some(match self {
            Form::Tmpfiles => words.get(1)?.to_string(),
            Form::Sysfs | Form::Sysctl => line.split('=').next()?.trim().trim_start_matches('-').replace('/', "."),
            Form::Limits => words.get(..3)?.join(" "),
            Form::Whole => String::new(),
        })
    }
}

/// What a file that now reads `had` must read so that it has these lines: lines about the same things are replaced,
/// others stay.
pub fn merged(form: Form, had: Option<&str>, lines: &[String]) -> String {
    let had = had.unwrap_or_default();
    if form != Form::Whole && lines.iter().all(|line| had.lines().any(|old| old == line)) {
        return had.to_owned();
    }
    let subjects: Vec<_> = lines.iter().filter_map(|line| form.subject(line)).collect();
    let stays = |line: &&str| form.subject(line).is_none_or(|subject| !subjects.contains(&subject));
    let mut text = if had.is_empty() { HEAD.to_owned() } else { String::new() };
    if form == Form::Whole {
        text = String::new();
    }
    for line in had.lines().filter(stays).chain(lines.iter().map(String::as_str)) {
        text += line;
        text.push('\n');
    }
    text
}

/// The file through which settings below /sys are made at boot: tmpfiles.d where there is a systemd-tmpfiles, which
/// distributions without systemd have, too; else the file of sysfsutils.
pub fn boot(tree: &Tree) -> (Form, &'static str) {
    let programs = ["/usr/bin/systemd-tmpfiles", "/bin/systemd-tmpfiles", "/usr/bin/tmpfiles", "/bin/tmpfiles"];
    match programs.iter().any(|program| tree.has(program)) {
        true => (Form::Tmpfiles, "/etc/tmpfiles.d/60-ream.conf"),
        false => (Form::Sysfs, "/etc/sysfs.d/60-ream.conf"),
    }
}

/// The line that sets a file of /sys at boot.
pub fn boot_line(form: Form, path: &str, value: &str) -> String {
    match form {
        // With the exclamation mark only at boot, not whenever a package calls systemd-tmpfiles.
        Form::Tmpfiles => format!("w! {path} - - - - {value}"),
        _ => format!("{} = {value}", path.trim_start_matches("/sys/")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(lines: &[&str]) -> Vec<String> {
        lines.iter().map(|line| line.to_string()).collect()
    }

    #[test]
    fn a_new_file_says_whose_it_is() {
        let text = merged(Form::Sysctl, None, &lines(&["a.b = 1"]));
        assert_eq!(text, format!("{HEAD}a.b = 1\n"));
        assert_eq!(merged(Form::Sysctl, Some(&text), &lines(&["a.b = 1"])), text);
    }

    #[test]
    fn only_lines_about_the_same_are_replaced() {
        let had = "# mine\na/b=7\nc.d = 2\n";
        assert_eq!(merged(Form::Sysctl, Some(had), &lines(&["a.b = 1"])), "# mine\nc.d = 2\na.b = 1\n");
        let had = "w! /sys/x - - - - 1\nw! /sys/y - - - - 2\n";
        let line = boot_line(Form::Tmpfiles, "/sys/x", "3");
        assert_eq!(merged(Form::Tmpfiles, Some(had), &[line]), "w! /sys/y - - - - 2\nw! /sys/x - - - - 3\n");
        let had = "@hpc - memlock 1\n@hpc - nofile 9\n";
        let text = merged(Form::Limits, Some(had), &lines(&["@hpc - memlock unlimited"]));
        assert_eq!(text, "@hpc - nofile 9\n@hpc - memlock unlimited\n");
        assert_eq!(merged(Form::Whole, Some("x\n"), &lines(&["y"])), "y\n");
    }
}
