//! Keys: who a server and its clients are, and the files in which that is written.
//!
//! A private key's file has two lines, `private HEX` and `public HEX`, and nobody but its owner may read it. A server's
//! list of clients has lines `PUBLIC [NAME [QUOTA]]`, a client's list of servers lines `HOST:PORT PUBLIC`.

use snow::params::DHChoice;
use snow::resolvers::{CryptoResolver, DefaultResolver};
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// O_NONBLOCK.
const NONBLOCK: i32 = ream_sys::file::flags::NONBLOCK as i32;

/// What is spoken on a control connection.
pub(crate) const PATTERN: &str = "Noise_IK_25519_ChaChaPoly_BLAKE2s";

/// The public half of a key.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Public(pub [u8; 32]);

impl Public {
    /// From hexadecimal digits.
    pub fn parse(text: &str) -> Option<Public> {
        digits(text).map(Public)
    }
}

impl fmt::Display for Public {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Public {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A key pair. It does not show its private half.
#[derive(Clone)]
pub struct Pair {
    private: [u8; 32],
    /// What others know it by.
    pub public: Public,
}

impl fmt::Debug for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pair({})", self.public)
    }
}

fn digits(text: &str) -> Option<[u8; 32]> {
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    let mut bytes = [0; 32];
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * index..2 * index + 2)?, 16).ok()?;
    }
    Some(bytes)
}

impl Pair {
    /// A new one.
    ///
    /// # Errors
    /// No random numbers are to be had.
    pub fn generate() -> io::Result<Pair> {
        let pattern = PATTERN.parse().map_err(io::Error::other)?;
        let drawn = snow::Builder::new(pattern).generate_keypair().map_err(io::Error::other)?;
        let half =
            |bytes: Vec<u8>| <[u8; 32]>::try_from(bytes).map_err(|_| io::Error::other("a key of another length"));
        Ok(Pair { private: half(drawn.private)?, public: Public(half(drawn.public)?) })
    }

    pub(crate) fn private(&self) -> &[u8; 32] {
        &self.private
    }

    /// Writes it to a new file that only its owner may read, whole or not at all.
    ///
    /// # Errors
    /// What the file system says; `AlreadyExists` where there is one.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        let taken = || fs::symlink_metadata(path).is_ok();
        let taken_already = || Err(io::ErrorKind::AlreadyExists.into());
        let Some(name) = path.file_name().filter(|_| !taken()) else { return taken_already() };
        let mut other = name.to_owned();
        other.push(format!(".{}", std::process::id()));
        let other = path.with_file_name(other);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&other)?;
        let text = format!("private {}\npublic {}\n", Public(self.private), self.public);
        let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
        let saved = written.and_then(|()| match fs::hard_link(&other, path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(error),
            // A file system without such links.
            Err(_) if taken() => taken_already(),
            Err(_) => fs::rename(&other, path),
            Ok(()) => Ok(()),
        });
        let _ = fs::remove_file(&other);
        saved
    }

    /// Whether one half belongs to the other.
    fn is_one(&self) -> bool {
        let Some(mut half) = DefaultResolver.resolve_dh(&DHChoice::Curve25519) else { return false };
        half.set(&self.private);
        half.pubkey() == self.public.0
    }

    /// Reads it from a file.
    ///
    /// # Errors
    /// What the file system says; that it is no file, or that others may read or change it; that it holds no key.
    pub fn load(path: &Path) -> io::Result<Pair> {
        // Nobody may ever write to what is no file.
        let mut file = OpenOptions::new().read(true).custom_flags(NONBLOCK).open(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file; name another"));
        }
        let mode = metadata.mode();
        // systemd hands out credentials with an access list, which shows as the group's right to read.
        let credentials = std::env::var_os("CREDENTIALS_DIRECTORY").filter(|directory| !directory.is_empty());
        let group = if credentials.is_some_and(|directory| path.starts_with(directory)) { 0o030 } else { 0o070 };
        if mode & (group | 0o007) != 0 {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!("others may read or write it (mode {:03o}); chmod 600 it", mode & 0o777),
            ));
        }
        let text = read_small(&mut file)?;
        let half =
            |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).and_then(|rest| digits(rest.trim()));
        match (half("private "), half("public ")) {
            (Some(private), Some(public)) => {
                Some(Pair { private, public: Public(public) }).filter(Pair::is_one).ok_or_else(|| {
                    wrong("its public key is not that of its private key; put both back as they were made".to_owned())
                })
            }
            _ => Err(wrong("it holds no key made by ream keys".to_owned())),
        }
    }
}

fn read_small(file: &mut File) -> io::Result<String> {
    let mut text = String::new();
    file.take(1 << 20).read_to_string(&mut text)?;
    Ok(text)
}

fn wrong(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// A client that a server serves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Client {
    /// Who it is.
    pub public: Public,
    /// What it is called in logs.
    pub name: String,
    /// Most memory that all its leases may have together, in bytes, where it differs from the others'.
    pub quota: Option<u64>,
}

/// Reads a server's list of clients; `size` reads a quota.
///
/// # Errors
/// What the file system says, or the first line that cannot be understood.
pub fn clients(path: &Path, size: &dyn Fn(&str) -> Option<u64>) -> io::Result<Vec<Client>> {
    let text = read_small(&mut File::open(path)?)?;
    let mut list: Vec<Client> = Vec::new();
    for (number, line) in lines(&text) {
        let mut words = line.split_whitespace();
        let public = words.next().and_then(Public::parse);
        let public = public.ok_or_else(|| wrong(format!("line {number}: no public key of 64 digits")))?;
        let name = words.next().map_or_else(|| public.to_string().chars().take(8).collect(), str::to_owned);
        let quota = match words.next() {
            Some(text) => Some(size(text).ok_or_else(|| wrong(format!("line {number}: \"{text}\" is no size")))?),
            None => None,
        };
        if let Some(word) = words.next() {
            return Err(wrong(format!("line {number}: \"{word}\" behind the quota; a line is PUBLIC [NAME [QUOTA]]")));
        }
        if let Some(other) = list.iter().find(|other| other.public == public) {
            return Err(wrong(format!("line {number}: this key is there already, as {}", other.name)));
        }
        list.push(Client { public, name, quota });
    }
    if list.is_empty() {
        return Err(wrong("no client is in it; write a line PUBLIC [NAME [QUOTA]] for each".to_owned()));
    }
    Ok(list)
}

/// Finds a server's public key in a client's list.
///
/// # Errors
/// What the file system says, or the first line that cannot be understood.
pub fn server(path: &Path, address: &str) -> io::Result<Option<Public>> {
    let text = read_small(&mut File::open(path)?)?;
    let mut found = None;
    for (number, line) in lines(&text) {
        let (name, key) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let public = Public::parse(key.trim());
        let public =
            public.ok_or_else(|| wrong(format!("line {number}: not HOST:PORT and a public key of 64 digits")))?;
        if name == address {
            found.get_or_insert(public);
        }
    }
    Ok(found)
}

fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let code = text.lines().map(|line| line.split('#').next().unwrap_or("").trim());
    (1..).zip(code).filter(|(_, line)| !line.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(name: &str) -> std::path::PathBuf {
        let path = std::env::temp_dir().join(format!("ream-keys-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).unwrap();
        path
    }

    #[test]
    fn pairs_come_back_as_they_were_saved_and_show_nothing() {
        let directory = directory("pairs");
        let path = directory.join("key");
        let pair = Pair::generate().unwrap();
        pair.save(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let back = Pair::load(&path).unwrap();
        assert_eq!((back.private, back.public), (pair.private, pair.public));
        assert!(!format!("{pair:?}").contains(&Public(pair.private).to_string()));
        assert_eq!(pair.save(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o640)).unwrap();
        assert_eq!(Pair::load(&path).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        // Nothing else was left there, nor where it cannot be had.
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 1);
        for taken in [&directory, Path::new("/dev/null"), Path::new("/")] {
            assert_eq!(pair.save(taken).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
            assert!(Pair::load(taken).unwrap_err().to_string().starts_with("not a regular file"));
        }
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn halves_of_two_pairs_are_refused() {
        let directory = directory("halves");
        let path = directory.join("key");
        let [one, other] = [(); 2].map(|()| Pair::generate().unwrap());
        Pair { public: other.public, ..one.clone() }.save(&path).unwrap();
        let said = Pair::load(&path).unwrap_err().to_string();
        assert!(said.starts_with("its public key is not that of its private key"), "{said}");
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn lists_are_read() {
        let directory = directory("lists");
        let path = directory.join("list");
        let (one, two) = (Pair::generate().unwrap().public, Pair::generate().unwrap().public);
        std::fs::write(&path, format!("# who\n{one} nodeb 4\n\n{two} # plain\n")).unwrap();
        let list = clients(&path, &|text| text.parse().ok()).unwrap();
        assert_eq!(list.len(), 2);
        assert_eq!((list[0].name.as_str(), list[0].quota), ("nodeb", Some(4)));
        assert_eq!((list[1].name.len(), list[1].quota), (8, None));
        std::fs::write(&path, format!("{one} nodeb 4x\n")).unwrap();
        assert!(clients(&path, &|text| text.parse().ok()).unwrap_err().to_string().starts_with("line 1"));
        for (text, why) in [
            (format!("\n{one} ada 1 extra\n"), "line 2: \"extra\" behind the quota"),
            (format!("{one} ada\n{two}\n{one} bob 1\n"), "line 3: this key is there already, as ada"),
            ("# nobody\n\n".to_owned(), "no client is in it"),
        ] {
            std::fs::write(&path, text).unwrap();
            let said = clients(&path, &|text| text.parse().ok()).unwrap_err().to_string();
            assert!(said.starts_with(why), "{said}");
        }
        std::fs::write(&path, format!("a:1 {one}\nb:2 {two}\n")).unwrap();
        assert_eq!(server(&path, "b:2").unwrap(), Some(two));
        assert_eq!(server(&path, "c:2").unwrap(), None);
        std::fs::write(&path, "a:1\n").unwrap();
        assert!(server(&path, "a:1").is_err());
        std::fs::remove_dir_all(directory).unwrap();
    }
}
