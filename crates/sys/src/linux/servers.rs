//! Memory servers that are the store instead of files.

use super::{LinuxMachine, Setup, fail};
use crate::remote::{Bequest, News, Remote, RemoteConfig};

impl LinuxMachine {
    /// Connects to the memory servers that are the store; `bequest` is what a parent has stored there.
    ///
    /// # Errors
    /// What failed; with several servers only when none can be had.
    pub fn connect(&mut self, config: &RemoteConfig, bequest: Option<Bequest>) -> Result<(), Setup> {
        let remote = self.remote.insert(Remote::connect(config, bequest.as_ref())?);
        match bequest {
            Some(bequest) => remote.inherit(bequest).map_err(fail("mapping the state of inherited pages")),
            None => Ok(()),
        }
    }

    /// What has happened to memory servers since this was last asked.
    pub fn take_news(&mut self) -> Option<News> {
        self.remote.as_mut().and_then(Remote::take_news)
    }

    /// The memory server one of whose pages was not what was written there.
    pub fn forged(&self) -> Option<usize> {
        self.remote.as_ref().and_then(Remote::forged)
    }
}
