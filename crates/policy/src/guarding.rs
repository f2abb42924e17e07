//! Whether pages that are read for somebody are worth being guarded against writing: a guarded page that is not written to
//! leaves cheaply, one that is costs a fault.

/// What has become of guarded pages.
#[derive(Clone, Copy, Debug, Default)]
pub struct Guarding {
    installed: u32,
    written: u32,
    turns: u32,
}

impl Guarding {
    /// Pages after which the past counts half.
    const MEMORY: u32 = 4096;
    /// Of so many guarded pages one may be written to.
    const PATIENT: u32 = 8;
    /// While more are, one in so many runs is guarded, to see whether that has changed.
    const PROBE: u32 = 64;

    /// Whether a run of so many pages is to be guarded; if so it is counted.
    pub fn wanted(&mut self, pages: u32) -> bool {
        self.turns = self.turns.wrapping_add(1);
        let wanted = !self.is_vain() || self.turns % Guarding::PROBE == 0;
        if wanted {
            self.installed += pages;
            self.age();
        }
        wanted
    }

    /// A guarded page was written to.
    pub fn written(&mut self) {
        self.written += 1;
        self.age();
    }

    /// Whether most of what is read is written to soon.
    pub fn is_vain(&self) -> bool {
        self.written > self.installed / Guarding::PATIENT + Guarding::PATIENT
    }

    fn age(&mut self) {
        if self.installed.max(self.written) > Guarding::MEMORY {
            (self.installed, self.written) = (self.installed / 2, self.written / 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_to_is_guarded_no_more_but_for_probes() {
        let mut guarding = Guarding::default();
        assert!((0..10_000).all(|_| guarding.wanted(1)));
        // Everything that was read is changed.
        let events = (0..).take_while(|_| {
            guarding.written();
            !guarding.is_vain()
        });
        assert!(events.count() < 1000);
        let mut guarded = 0;
        for _ in 0..100_000 {
            if guarding.wanted(1) {
                guarded += 1;
                guarding.written();
            }
        }
        assert!((1000..2000).contains(&guarded), "{guarded}");
        // Nothing is changed any more.
        let until = (0..1_000_000).take_while(|_| {
            guarding.wanted(1);
            guarding.is_vain()
        });
        assert!(until.count() < 500_000);
        assert!((0..1000).all(|_| guarding.wanted(1)));
    }
}
