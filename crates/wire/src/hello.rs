//! How a connection begins: 16 bytes that say what it is for, and, for a lane, three messages that show to each end that
//! the other knows the lease's secret, without telling it.
//!
//! The client says which lease, which store and what for, adds a random number and authenticates all of it with the
//! secret; the server answers with a random number of its own, authenticated together with the client's. Both derive the
//! lane's keys from secret and random numbers. The client's first message must be a ping under these keys: only who knows
//! the secret now, and not who has recorded a conversation, gets a lane.

use crate::seal::{Direction, KEY};
use crate::{VERSION, part, put};
use ring::aead::AES_256_GCM;
use ring::{hkdf, hmac};

/// How every connection begins.
pub const MAGIC: &[u8; 8] = b"ReamWire";
/// Bytes of what a connection begins with.
pub const PREAMBLE: usize = 16;
/// Bytes that a client's first message has behind that.
pub const HELLO: usize = 80;
/// Bytes of the server's answer.
pub const ANSWER: usize = 80;
/// Bytes of a random number.
pub const RANDOM: usize = 32;
/// Bytes of a message's authentication.
const TAG: usize = 32;
/// A store to be made.
pub const NEW_STORE: u32 = 0;

/// What a connection is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Connection {
    /// Control, authenticated and encrypted: leases, status.
    Control = 1,
    /// Pages.
    Lane = 2,
    /// Control without any of that.
    Plain = 3,
}

impl Connection {
    /// The first bytes of such a connection.
    pub fn preamble(self) -> [u8; PREAMBLE] {
        let mut bytes = [0; PREAMBLE];
        put(&mut bytes, 0, MAGIC);
        put(&mut bytes, 8, &VERSION.to_le_bytes());
        put(&mut bytes, 10, &[self as u8]);
        bytes
    }

    /// What the first bytes say.
    ///
    /// # Errors
    /// The version of the other end where that is another one; `None` where this is no client of ours.
    pub fn parse(bytes: &[u8; PREAMBLE]) -> Result<Connection, Option<u16>> {
        if part::<8>(bytes, 0).as_ref() != Some(MAGIC) {
            return Err(None);
        }
        let version = part(bytes, 8).map_or(0, u16::from_le_bytes);
        if version != VERSION {
            return Err(Some(version));
        }
        let [kind, rest @ ..] = part::<6>(bytes, 10).ok_or(None)?;
        let known = [Connection::Control, Connection::Lane, Connection::Plain];
        known.into_iter().find(|known| *known as u8 == kind && rest == [0; 5]).ok_or(None)
    }
}

/// What a lane is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Purpose {
    /// Pages for which threads wait.
    Demand = 1,
    /// Pages that will be wanted soon.
    Ahead = 2,
    /// Pages to be kept; the first lane of a process, by which its store is made.
    Write = 3,
    /// Keeps a lease alive.
    Hold = 4,
}

impl Purpose {
    fn from(byte: u8) -> Option<Purpose> {
        [Purpose::Demand, Purpose::Ahead, Purpose::Write, Purpose::Hold].into_iter().find(|known| *known as u8 == byte)
    }
}

/// A client's first message on a lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hello {
    /// The lease.
    pub lease: u64,
    /// The process's store; [`NEW_STORE`] for its first lane, and for one that only holds the lease.
    pub store: u32,
    /// What the lane is for.
    pub purpose: Purpose,
    /// Drawn for this lane.
    pub random: [u8; RANDOM],
}

impl Hello {
    fn head(&self) -> [u8; HELLO - TAG] {
        let mut bytes = [0; HELLO - TAG];
        put(&mut bytes, 0, &self.lease.to_le_bytes());
        put(&mut bytes, 8, &self.store.to_le_bytes());
        put(&mut bytes, 12, &[self.purpose as u8]);
        put(&mut bytes, 16, &self.random);
        bytes
    }

    /// As it is sent.
    pub fn to_bytes(&self, secret: &[u8; KEY]) -> [u8; HELLO] {
        let head = self.head();
        let mut bytes = [0; HELLO];
        put(&mut bytes, 0, &head);
        put(&mut bytes, HELLO - TAG, hmac::sign(&key(secret), &head).as_ref());
        bytes
    }

    /// What was received, not yet authenticated: the lease has the secret that it takes.
    pub fn parse(bytes: &[u8; HELLO]) -> Option<Hello> {
        let [purpose, rest @ ..] = part::<4>(bytes, 12)?;
        if rest != [0; 3] {
            return None;
        }
        Some(Hello {
            lease: u64::from_le_bytes(part(bytes, 0)?),
            store: u32::from_le_bytes(part(bytes, 8)?),
            purpose: Purpose::from(purpose)?,
            random: part(bytes, 16)?,
        })
    }

    /// Whether it was made by who knows the secret.
    pub fn genuine(bytes: &[u8; HELLO], secret: &[u8; KEY]) -> bool {
        let (head, tag) = bytes.split_at(HELLO - TAG);
        hmac::verify(&key(secret), head, tag).is_ok()
    }
}

/// What the server answers to a lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    /// The store that the lane is for.
    pub store: u32,
    /// Drawn for this lane.
    pub random: [u8; RANDOM],
}

impl Answer {
    fn head(&self) -> [u8; ANSWER - TAG] {
        let mut bytes = [0; ANSWER - TAG];
        put(&mut bytes, 0, MAGIC);
        put(&mut bytes, 8, &self.store.to_le_bytes());
        put(&mut bytes, 16, &self.random);
        bytes
    }

    fn signed(head: &[u8], hello: &Hello, secret: &[u8; KEY]) -> hmac::Context {
        let mut context = hmac::Context::with_key(&key(secret));
        context.update(&hello.head());
        context.update(head);
        context
    }

    /// As it is sent.
    pub fn to_bytes(&self, hello: &Hello, secret: &[u8; KEY]) -> [u8; ANSWER] {
        let head = self.head();
        let mut bytes = [0; ANSWER];
        put(&mut bytes, 0, &head);
        put(&mut bytes, ANSWER - TAG, Answer::signed(&head, hello, secret).sign().as_ref());
        bytes
    }

    /// As it was received, if it was made for this hello by who knows the secret.
    pub fn parse(bytes: &[u8; ANSWER], hello: &Hello, secret: &[u8; KEY]) -> Option<Answer> {
        let (head, tag) = bytes.split_at(ANSWER - TAG);
        let expected = Answer::signed(head, hello, secret).sign();
        // Both are made from what the attacker may see; the comparison takes the same time wherever they differ.
        let differ = expected.as_ref().iter().zip(tag).fold(0, |all, (one, two)| all | (one ^ two));
        if differ != 0 || part::<8>(bytes, 0).as_ref() != Some(MAGIC) {
            return None;
        }
        Some(Answer { store: u32::from_le_bytes(part(bytes, 8)?), random: part(bytes, 16)? })
    }
}

/// A lane's keys: of what the client sends, and of what the server sends.
pub fn directions(hello: &Hello, answer: &Answer, secret: &[u8; KEY]) -> Option<(Direction, Direction)> {
    let mut salt = [0; 2 * RANDOM];
    put(&mut salt, 0, &hello.random);
    put(&mut salt, RANDOM, &answer.random);
    let drawn = hkdf::Salt::new(hkdf::HKDF_SHA256, &salt).extract(secret);
    let client = drawn.expand(&[b"ream lane, client"], &AES_256_GCM).ok().map(Direction::new)?;
    let server = drawn.expand(&[b"ream lane, server"], &AES_256_GCM).ok().map(Direction::new)?;
    Some((client, server))
}

fn key(secret: &[u8; KEY]) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, secret)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: [u8; KEY] = [3; KEY];
    const HI: Hello = Hello { lease: 1 << 50, store: 0, purpose: Purpose::Write, random: [1; RANDOM] };
    const YES: Answer = Answer { store: 9, random: [2; RANDOM] };

    #[test]
    fn both_ends_get_the_same_keys_and_different_ones_each_way() {
        let bytes = HI.to_bytes(&SECRET);
        assert_eq!(Hello::parse(&bytes), Some(HI));
        assert!(Hello::genuine(&bytes, &SECRET));
        let answer = Answer::parse(&YES.to_bytes(&HI, &SECRET), &HI, &SECRET);
        assert_eq!(answer, Some(YES));
        let (mut there, _) = directions(&HI, &YES, &SECRET).unwrap();
        let (mut here, mut back) = directions(&HI, &YES, &SECRET).unwrap();
        let tag = there.sign(b"message");
        assert!(back.verify(b"message", &tag).is_err());
        assert!(here.verify(b"message", &tag).is_ok());
        // The same again: a replay.
        assert!(here.verify(b"message", &tag).is_err());
        let tag = there.sign(b"message");
        assert!(here.verify(b"massage", &tag).is_err());
    }

    #[test]
    fn who_does_not_know_the_secret_is_refused() {
        let bytes = HI.to_bytes(&[4; KEY]);
        assert!(!Hello::genuine(&bytes, &SECRET));
        for at in 0..HELLO {
            let mut changed = HI.to_bytes(&SECRET);
            changed[at] ^= 1;
            assert!(!Hello::genuine(&changed, &SECRET), "byte {at}");
            let mut changed = YES.to_bytes(&HI, &SECRET);
            changed[at] ^= 1;
            assert_eq!(Answer::parse(&changed, &HI, &SECRET), None, "byte {at}");
        }
        // An answer recorded earlier.
        let later = Hello { random: [5; RANDOM], ..HI };
        assert_eq!(Answer::parse(&YES.to_bytes(&HI, &SECRET), &later, &SECRET), None);
        let other = Answer { random: [6; RANDOM], ..YES };
        let (mut there, _) = directions(&HI, &YES, &SECRET).unwrap();
        let (mut here, _) = directions(&HI, &other, &SECRET).unwrap();
        assert!(here.verify(b"", &there.sign(b"")).is_err());
    }

    #[test]
    fn other_protocols_are_no_clients() {
        for kind in [Connection::Control, Connection::Lane, Connection::Plain] {
            assert_eq!(Connection::parse(&kind.preamble()), Ok(kind));
        }
        assert_eq!(Connection::parse(b"GET / HTTP/1.1\r\n"), Err(None));
        assert_eq!(Connection::parse(b"ReamWire\x02\x00\x01\0\0\0\0\0"), Err(Some(2)));
        assert_eq!(Connection::parse(b"ReamWire\x01\x00\x09\0\0\0\0\0"), Err(None));
        assert_eq!(Connection::parse(b"ReamWire\x01\x00\x01\0\0\0\0\x01"), Err(None));
        assert_eq!(Hello::parse(&[0xff; HELLO]), None);
    }
}
