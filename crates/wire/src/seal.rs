//! Keys: that of one direction of a lane, which authenticates messages, and that of a process, which seals its pages.
//!
//! AES-256-GCM by `ring` for both. Of a page: 0.5 µs, where the other implementations that need neither the standard
//! library nor an allocator take 3.3 (aes-gcm), 5.0 (chacha20poly1305) and 19 (aegis in Rust).

use crate::message::Malformed;
use crate::{PAGE, SEAL, put};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf::Okm;

/// Bytes of a key.
pub const KEY: usize = 32;

fn gcm(bytes: &[u8; KEY]) -> Option<LessSafeKey> {
    UnboundKey::new(&AES_256_GCM, bytes).ok().map(LessSafeKey::new)
}

/// One direction of a lane. Each message has the next number, and no number is used twice.
pub struct Direction {
    key: LessSafeKey,
    next: u64,
}

impl Direction {
    /// From what was derived for it.
    pub(crate) fn new(derived: Okm<'_, &'static ring::aead::Algorithm>) -> Direction {
        Direction { key: LessSafeKey::new(UnboundKey::from(derived)), next: 0 }
    }

    fn nonce(&self) -> Nonce {
        let mut bytes = [0; 12];
        put(&mut bytes, 0, &self.next.to_le_bytes());
        put(&mut bytes, 8, b"lane");
        Nonce::assume_unique_for_key(bytes)
    }

    /// The number of the next message.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// What authenticates the next message: its header and the seals behind it.
    pub fn sign(&mut self, message: &[u8]) -> [u8; SEAL] {
        let mut bytes = [0; SEAL];
        // Fails for messages of 64 GiB only; zeros are then refused at the other end.
        if let Ok(tag) = self.key.seal_in_place_separate_tag(self.nonce(), Aad::from(message), &mut []) {
            put(&mut bytes, 0, tag.as_ref());
        }
        self.next += 1;
        bytes
    }

    /// Whether that is what was sent as the next message.
    ///
    /// # Errors
    /// [`Malformed::Forged`]; the lane is of no use any more then.
    pub fn verify(&mut self, message: &[u8], tag: &[u8; SEAL]) -> Result<(), Malformed> {
        let mut tag = *tag;
        let good = self.key.open_in_place(self.nonce(), Aad::from(message), &mut tag);
        self.next += 1;
        good.map(|_| ()).map_err(|_| Malformed::Forged)
    }
}

/// Where and when a page was written: what its seal binds it to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The lease.
    pub lease: u64,
    /// The store, which is one process's.
    pub store: u32,
    /// The slot.
    pub slot: u32,
    /// How often the slot has been written with this key, from 1.
    pub version: u32,
}

/// The key to a process's pages. With it slot and version are the nonce, so a version of a slot is sealed once.
pub struct PageKey(LessSafeKey);

impl PageKey {
    /// The key with these bytes, which are random.
    pub fn new(bytes: &[u8; KEY]) -> Option<PageKey> {
        gcm(bytes).map(PageKey)
    }

    fn nonce(place: &Place) -> Nonce {
        let mut bytes = [0; 12];
        put(&mut bytes, 0, &place.slot.to_le_bytes());
        put(&mut bytes, 4, &place.version.to_le_bytes());
        put(&mut bytes, 8, b"page");
        Nonce::assume_unique_for_key(bytes)
    }

    fn bound(place: &Place) -> [u8; 20] {
        let mut bytes = [0; 20];
        put(&mut bytes, 0, &place.lease.to_le_bytes());
        put(&mut bytes, 8, &place.store.to_le_bytes());
        put(&mut bytes, 12, &place.slot.to_le_bytes());
        put(&mut bytes, 16, &place.version.to_le_bytes());
        bytes
    }

    /// Encrypts a page where it is, and returns its seal. `None` never happens for a page of [`PAGE`] bytes.
    pub fn seal(&self, place: &Place, page: &mut [u8]) -> Option<[u8; SEAL]> {
        let tag = self.0.seal_in_place_separate_tag(Self::nonce(place), Aad::from(Self::bound(place)), page).ok()?;
        tag.as_ref().try_into().ok()
    }

    /// Decrypts a page where it is. False when it is not what was sealed for that place: then it holds zeros.
    pub fn open(&self, place: &Place, page: &mut [u8], seal: &[u8; SEAL]) -> bool {
        if page.len() != PAGE {
            return false;
        }
        let bound = Aad::from(Self::bound(place));
        let tag = ring::aead::Tag::try_from(seal.as_slice());
        let opened =
            tag.is_ok_and(|tag| self.0.open_in_place_separate_tag(Self::nonce(place), bound, tag, page, 0..).is_ok());
        if !opened {
            page.fill(0);
        }
        opened
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Place = Place { lease: 5, store: 1, slot: 77, version: 3 };

    #[test]
    fn pages_open_where_they_were_sealed_and_nowhere_else() {
        let key = PageKey::new(&[7; KEY]).unwrap();
        let mut page = [0x5a; PAGE];
        page[9] = 1;
        let clear = page;
        let seal = key.seal(&PLACE, &mut page).unwrap();
        assert_ne!(page, clear);
        let sealed = page;
        let open = |key: &PageKey, place: &Place, page: &[u8; PAGE], seal: &[u8; SEAL]| {
            let mut page = *page;
            key.open(place, &mut page, seal).then_some(page)
        };
        assert_eq!(open(&key, &PLACE, &sealed, &seal), Some(clear));
        // Another lease, store, slot, an older version (a rollback), another key, a changed bit of page or seal.
        for place in [
            Place { lease: 6, ..PLACE },
            Place { store: 2, ..PLACE },
            Place { slot: 78, ..PLACE },
            Place { version: 2, ..PLACE },
        ] {
            assert_eq!(open(&key, &place, &sealed, &seal), None, "{place:?}");
        }
        assert_eq!(open(&PageKey::new(&[8; KEY]).unwrap(), &PLACE, &sealed, &seal), None);
        let mut changed = sealed;
        changed[4095] ^= 1;
        assert_eq!(open(&key, &PLACE, &changed, &seal), None);
        let mut wrong = seal;
        wrong[0] ^= 0x80;
        assert_eq!(open(&key, &PLACE, &sealed, &wrong), None);
        assert!(!key.open(&PLACE, &mut [0; 100], &seal));
    }

    #[test]
    fn versions_of_a_page_look_nothing_alike() {
        let key = PageKey::new(&[7; KEY]).unwrap();
        let (mut one, mut two) = ([0; PAGE], [0; PAGE]);
        key.seal(&PLACE, &mut one).unwrap();
        key.seal(&Place { version: 4, ..PLACE }, &mut two).unwrap();
        assert!(one.iter().zip(&two).filter(|(one, two)| one == two).count() < 64);
    }
}
