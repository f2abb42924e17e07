//! How pages are exchanged with memory servers: four knobs, and the settings of them that DLM's protocols amount to.
//! Whatever they are set to, the program computes the same.

/// A protocol by its name: a setting of all knobs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum SwapProtocol {
    /// Nothing waits that need not.
    Ream = 0,
    /// DLM's first one: one thread does one thing after the other.
    R3 = 1,
    /// DLM's second: another thread receives; pages are copied to where they belong.
    R58 = 2,
    /// DLM's third: another thread receives; pages arrive where they belong; writes do not hold up reads.
    R77 = 3,
}

/// When pages go out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PageOut {
    /// While pages come in, too.
    Overlapped,
    /// Pages that come in wait for it, and it waits for them.
    InTheWay,
}

/// How a page that has come is put where the program sees it, while its other threads run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Install {
    /// In one step, by the kernel; short runs are copied, longer ones moved.
    AtOnce,
    /// Copied, while all threads of the program stand still.
    SuspendAndCopy,
    /// Moved, while all threads of the program stand still.
    SuspendAndMove,
}

/// The knobs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Swap {
    /// 1: the pager does everything; 2: others receive and send for it.
    pub threads: u32,
    /// Reads and writes that may be under way together; 0: as many as fit. With 1, nothing is read ahead.
    pub in_flight: u32,
    /// When pages go out.
    pub page_out: PageOut,
    /// How pages are installed.
    pub install: Install,
}

impl Swap {
    /// Ream's own setting.
    pub const REAM: Swap = Swap { threads: 1, in_flight: 0, page_out: PageOut::Overlapped, install: Install::AtOnce };

    /// Whether threads stand still while pages are installed.
    pub const fn suspends(&self) -> bool {
        !matches!(self.install, Install::AtOnce)
    }

    /// Whether they stand still from before a page is asked for until it is there: whoever is alone and has stopped them
    /// waits for the page itself.
    pub const fn suspends_throughout(&self) -> bool {
        self.suspends() && self.threads == 1
    }
}

impl SwapProtocol {
    /// The protocol stored as `number`; Ream's for one that names none.
    pub const fn from_u32(number: u32) -> SwapProtocol {
        match number {
            1 => SwapProtocol::R3,
            2 => SwapProtocol::R58,
            3 => SwapProtocol::R77,
            _ => SwapProtocol::Ream,
        }
    }

    /// How the knobs are set.
    pub const fn knobs(self) -> Swap {
        match self {
            SwapProtocol::Ream => Swap::REAM,
            SwapProtocol::R3 => {
                Swap { threads: 1, in_flight: 1, page_out: PageOut::InTheWay, install: Install::SuspendAndMove }
            }
            SwapProtocol::R58 => {
                Swap { threads: 2, in_flight: 0, page_out: PageOut::InTheWay, install: Install::SuspendAndCopy }
            }
            SwapProtocol::R77 => {
                Swap { threads: 2, in_flight: 0, page_out: PageOut::Overlapped, install: Install::SuspendAndMove }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_protocol_of_dlm_suspends_throughout() {
        let all = [0, 1, 2, 3, 77].map(SwapProtocol::from_u32);
        assert_eq!(all[0], all[4]);
        assert_eq!(all.map(|protocol| protocol.knobs().suspends_throughout()), [false, true, false, false, false]);
        assert_eq!(all.map(|protocol| protocol.knobs().suspends()), [false, true, true, true, false]);
    }
}
