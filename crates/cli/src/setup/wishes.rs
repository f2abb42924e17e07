//! What the options of `ream setup` ask for.

use crate::arguments::Arguments;
use crate::failure::Failure;
use crate::settings::Given;
use ream_options::parse_size;
use std::path::PathBuf;

/// KiB of the two sizes of pages that pools have.
pub const TWO_MIB: u64 = 2048;
pub const ONE_GIB: u64 = 1 << 20;

/// Bytes of a pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Amount {
    /// Spread over the nodes as the kernel likes.
    Anywhere(u64),
    /// By NUMA node.
    Nodes(Vec<(u64, u64)>),
}

/// A pool that is asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pool {
    /// Size of its pages in KiB.
    pub page: u64,
    /// How much.
    pub amount: Amount,
}

/// A limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    /// So many bytes.
    Bytes(u64),
    /// None.
    Unlimited,
}

/// Everything that is asked for.
#[derive(Clone, Debug)]
pub struct Wishes {
    pub pools: Vec<Pool>,
    pub memlock: Option<Limit>,
    pub group: Option<String>,
    pub userfaultfd: bool,
    pub thp: bool,
    pub sysctl: bool,
    pub binfmt: bool,
    /// The program for marked binaries; `None` for the installed one.
    pub handler: Option<PathBuf>,
    pub dry_run: bool,
    pub undo: bool,
    /// The directory that stands for the root.
    pub root: PathBuf,
}

impl Wishes {
    /// Reads the options.
    ///
    /// # Errors
    /// The first that cannot be understood.
    pub fn read(arguments: &Arguments) -> Result<Wishes, Failure> {
        let last = |name: &str| arguments.flags.iter().rfind(|given| given.spec.name == name);
        let mut pools = Vec::new();
        for (name, page) in [("hugetlb", TWO_MIB), ("hugetlb-1g", ONE_GIB)] {
            if let Some(given) = last(name) {
                let amount = amount(given.word()?).map_err(|why| given.refuse(why))?;
                pools.push(Pool { page, amount });
            }
        }
        let memlock = match last("memlock") {
            Some(given) if given.word()? == "unlimited" => Some(Limit::Unlimited),
            Some(given) => match given.size()? {
                0..1024 => return Err(given.refuse("less than 1 KiB; give a size such as 4G, or unlimited")),
                bytes => Some(Limit::Bytes(bytes)),
            },
            None => None,
        };
        let group = match last("group") {
            Some(given) => Some(group(given)?),
            None => None,
        };
        let path = |given: &Given| given.path(given.text.as_deref().unwrap_or_default());
        let wishes = Wishes {
            pools,
            memlock,
            group,
            userfaultfd: !arguments.has("no-userfaultfd")?,
            thp: !arguments.has("no-thp")?,
            sysctl: !arguments.has("no-sysctl")?,
            binfmt: !arguments.has("no-binfmt")?,
            handler: last("handler").map(path).transpose()?,
            dry_run: arguments.has("dry-run")?,
            undo: arguments.has("undo")?,
            root: last("root").map(path).transpose()?.unwrap_or_else(|| "/".into()),
        };
        if wishes.undo {
            let allowed = ["undo", "dry-run", "root"];
            if let Some(given) = arguments.flags.iter().find(|given| !allowed.contains(&given.spec.name)) {
                return Err(Failure::new(format!("{given}: not with --undo, which takes everything back")));
            }
        }
        Ok(wishes)
    }
}

/// A group's name, in letters that no file of settings takes for anything else.
fn group(given: &Given) -> Result<String, Failure> {
    let name = given.word()?;
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if name.is_empty() || name.starts_with('-') || !name.chars().all(plain) {
        return Err(given.refuse("not a group's name"));
    }
    Ok(name.to_owned())
}

/// `4G`, or by node `0=4G,1=4G`.
fn amount(text: &str) -> Result<Amount, String> {
    let size = |text: &str| match parse_size(text) {
        Ok(0) => Err("reserves nothing; ream setup --undo gives back what setup has reserved".to_owned()),
        other => other.map_err(|error| error.to_string()),
    };
    if !text.contains('=') {
        return Ok(Amount::Anywhere(size(text)?));
    }
    let mut nodes = Vec::new();
    for part in text.split(',') {
        let (node, bytes) = part.split_once('=').ok_or("not by node as in 0=4G,1=4G")?;
        let node = node.trim().parse().map_err(|_| format!("{node}: not the number of a node"))?;
        if nodes.iter().any(|(other, _)| *other == node) {
            return Err(format!("node {node} is there twice"));
        }
        nodes.push((node, size(bytes)?));
    }
    Ok(Amount::Nodes(nodes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Wishes, String> {
        let words = line.split_whitespace().map(std::ffi::OsString::from);
        crate::arguments::parse(words).and_then(|arguments| Wishes::read(&arguments)).map_err(|failure| failure.text)
    }

    #[test]
    fn amounts() {
        assert_eq!(amount("4G"), Ok(Amount::Anywhere(4 << 30)));
        assert_eq!(amount("0=1G,3=512M"), Ok(Amount::Nodes(vec![(0, 1 << 30), (3, 512 << 20)])));
        assert!(amount("0=1G,0=1G").unwrap_err().contains("twice"));
        assert!(amount("x=1G").is_err() && amount("0=1G,2G").is_err() && amount("").is_err());
        assert!(amount("0").unwrap_err().contains("--undo"));
    }

    #[test]
    fn nothing_is_reserved_unless_asked_for() {
        let wishes = read("setup").unwrap();
        assert!(wishes.pools.is_empty() && wishes.memlock.is_none() && wishes.group.is_none());
        assert!(wishes.userfaultfd && wishes.thp && wishes.sysctl && wishes.binfmt && !wishes.undo);
    }

    #[test]
    fn mistakes_are_named() {
        for (line, text) in [
            ("setup --hugetlb many", "--hugetlb: \"many\": not a size; write for example 512M or 1.5G"),
            ("setup --memlock 10", "--memlock: \"10\": less than 1 KiB; give a size such as 4G, or unlimited"),
            ("setup --group a:b", "--group: \"a:b\": not a group's name"),
            ("setup --undo --no-thp", "--no-thp: not with --undo, which takes everything back"),
        ] {
            assert_eq!(read(line).unwrap_err(), text);
        }
    }
}
