//! Configuration files in TOML: options as keys, for every program, and in sections `[program."/PATH"]` for one.

use super::{Given, Source};
use crate::failure::{Failure, nearest};
use ream_options::{Kind, OPTIONS, Spec};
use std::ops::Range;
use std::path::{Path, PathBuf};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The key of the sections for programs.
const PROGRAM: &str = "program";

/// What a configuration file gives.
#[derive(Clone, Default, Debug)]
pub struct Configuration {
    /// For every program.
    pub general: Vec<Given>,
    /// For one program: its path, and what is given for it.
    pub programs: Vec<(String, Vec<Given>)>,
}

impl Configuration {
    /// What is given for a program that goes by these names: the first name that has a section counts.
    pub fn of(&self, names: &[PathBuf]) -> Vec<Given> {
        let section = |name: &PathBuf| self.programs.iter().find(|(path, _)| Path::new(path) == name);
        names.iter().find_map(section).map(|(_, given)| given.clone()).unwrap_or_default()
    }
}

/// A file being read: what messages about it need.
struct Reading<'a> {
    path: &'a Path,
    text: &'a str,
}

/// Reads a configuration file.
///
/// # Errors
/// The first line that cannot be understood.
pub fn read(path: &Path, text: &str) -> Result<Configuration, Failure> {
    let reading = Reading { path, text };
    let table = DeTable::parse(text).map_err(|error| {
        let at = error.span().unwrap_or_default();
        reading.refuse(&at, error.message().lines().next().unwrap_or("not TOML"))
    })?;
    let mut found = Configuration::default();
    for (key, value) in table.get_ref() {
        match (key.get_ref().as_ref(), value.get_ref()) {
            (PROGRAM, DeValue::Table(programs)) => found.programs = reading.programs(programs)?,
            (PROGRAM, _) => {
                return Err(reading.refuse(&key.span(), "program: not a section; write [program.\"/usr/bin/NAME\"]"));
            }
            (name, _) => found.general.extend(reading.values(name, key, value, &Source::File(path.to_owned()))?),
        }
    }
    Ok(found)
}

impl Reading<'_> {
    fn refuse(&self, at: &Range<usize>, reason: &str) -> Failure {
        let at = at.start.min(self.text.len());
        let line = self.text.as_bytes()[..at].iter().filter(|b| **b == b'\n').count() + 1;
        Failure::new(format!("{}: line {line}: {reason}", self.path.display()))
    }

    fn programs(&self, sections: &DeTable<'_>) -> Result<Vec<(String, Vec<Given>)>, Failure> {
        let mut programs = Vec::new();
        for (program, section) in sections {
            let name = program.get_ref().as_ref();
            let DeValue::Table(section) = section.get_ref() else {
                let reason = format!("{name}: not a section; write [program.\"/usr/bin/NAME\"]");
                return Err(self.refuse(&program.span(), &reason));
            };
            if !name.starts_with('/') {
                let reason = format!("{name}: not an absolute path; write [program.\"/usr/bin/NAME\"]");
                return Err(self.refuse(&program.span(), &reason));
            }
            let source = Source::Program(self.path.to_owned(), name.to_owned());
            let mut given = Vec::new();
            for (key, value) in section {
                given.extend(self.values(key.get_ref(), key, value, &source)?);
            }
            programs.push((name.to_owned(), given));
        }
        Ok(programs)
    }

    /// What one key gives.
    fn values<K>(
        &self,
        name: &str,
        key: &Spanned<K>,
        value: &Spanned<DeValue<'_>>,
        source: &Source,
    ) -> Result<Vec<Given>, Failure> {
        let allowed = || OPTIONS.iter().filter(|spec| spec.in_file);
        let Some(spec) = allowed().find(|spec| spec.name == name) else {
            let meant = match nearest(name, allowed().map(|spec| spec.name)) {
                Some(meant) => format!("; did you mean {meant}?"),
                None => "; keys are the names of the options of ream run without the dashes".to_owned(),
            };
            return Err(self.refuse(&key.span(), &format!("{name}: no such key{meant}")));
        };
        let one = |value: &Spanned<DeValue<'_>>| self.value(spec, value, source);
        match value.get_ref() {
            DeValue::Array(values) if spec.kind == Kind::Directories => values.iter().map(one).collect(),
            _ => Ok(vec![one(value)?]),
        }
    }

    fn value(&self, spec: &'static Spec, value: &Spanned<DeValue<'_>>, source: &Source) -> Result<Given, Failure> {
        let text = match value.get_ref() {
            DeValue::String(text) => Some(text.as_ref().to_owned()),
            DeValue::Integer(number) => {
                i64::from_str_radix(number.as_str(), number.radix()).ok().map(|number| number.to_string())
            }
            DeValue::Boolean(yes) => Some(if *yes { "yes" } else { "no" }.to_owned()),
            _ => None,
        };
        match text {
            Some(text) => Ok(Given { spec, source: source.clone(), text: Some(text.into()) }),
            None => {
                let reason = format!("{}: not a string, a whole number, true or false", spec.name);
                Err(self.refuse(&value.span(), &reason))
            }
        }
    }
}
