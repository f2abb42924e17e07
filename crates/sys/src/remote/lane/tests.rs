//! A lane without a connection, for tests of what uses one.

use super::*;

impl Lane {
    pub(in crate::remote) fn unconnected(bytes: usize) -> Lane {
        let hello = Hello { lease: 1, store: 1, purpose: Purpose::Write, random: [1; RANDOM] };
        let answer = Answer { store: 1, random: [2; RANDOM] };
        let (to, from) = directions(&hello, &answer, &[3; KEY]).unwrap();
        Lane::new(Fd::NONE, to, from, bytes).unwrap()
    }

    /// What was to be sent is.
    pub(in crate::remote) fn send_off(&mut self) {
        self.start = self.end;
    }

    /// The seals of a reply have come.
    pub(in crate::remote) fn bring(&mut self, seals: &[[u8; SEAL]]) {
        for (number, seal) in seals.iter().enumerate() {
            let start = HEADER + number * SEAL;
            self.back.as_mut_slice().get_mut(start..start + SEAL).unwrap().copy_from_slice(seal);
        }
    }
}
