//! What the options say about stores: their tiers, copies of pages, and what is encrypted.

use super::{Given, Settings};
use crate::failure::Failure;
use crate::settings::Source;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

impl Settings {
    /// The tiers, in the order given: compressed memory, memory servers, and directories, of which one is used.
    pub(super) fn settle_stores(&mut self, mut stores: Vec<Given>) -> Result<(), Failure> {
        self.stores_given = stores.first().cloned();
        if let Some(mut given) = stores.first().filter(|given| given.zip().is_some()).cloned() {
            stores.remove(0);
            // In the environment a colon comes next, and what is below.
            let text = given.zip().unwrap_or_default().to_owned();
            if let (Source::Environment, Some((size, rest))) = (&given.source, text.split_once(':')) {
                stores.push(Given { text: Some(rest.into()), ..given.clone() });
                given.text = Some(format!("zip:{size}").into());
            }
            self.zip = given.zip_size()?;
        }
        self.zip_alone = self.zip > 0 && stores.is_empty();
        if let Some(given) = stores.first() {
            self.stores_given = Some(given.clone());
        }
        for given in &stores {
            let mut text = given.text.clone().unwrap_or_default();
            if given.zip().is_some() {
                return Err(given.refuse("compressed memory can be the first tier only, and once"));
            }
            let mut rest = None;
            if given.source == Source::Environment {
                (text, rest) = before_directories(text);
            }
            let servers = given.servers(&text)?;
            if servers.is_empty() {
                rest = Some(text);
            } else if !self.stores.is_empty() {
                return Err(
                    given.refuse("memory servers come before directories: what is below another is given after it")
                );
            } else if !self.memory_servers.is_empty() {
                return Err(given.refuse("memory servers are one tier, and given once; commas separate several"));
            } else {
                self.memory_servers = servers;
            }
            let Some(rest) = rest else { continue };
            let parts: Vec<OsString> = match given.source {
                Source::Environment => {
                    rest.as_bytes().split(|b| *b == b':').map(|part| OsString::from_vec(part.to_vec())).collect()
                }
                _ => vec![rest],
            };
            for part in parts.into_iter().filter(|part| !part.is_empty() || given.source != Source::Environment) {
                self.stores.push(given.directory(&part)?);
            }
        }
        Ok(())
    }

    /// Whether there is a disk below memory servers.
    pub fn has_disk_below(&self) -> bool {
        !self.memory_servers.is_empty() && !self.stores.is_empty()
    }

    /// Whether what lies on disk is encrypted.
    pub(super) fn settle_encryption(&mut self, encrypt: Option<Given>) -> Result<(), Failure> {
        let Some(given) = encrypt else { return Ok(()) };
        let wanted = given.switch()?;
        self.encrypt = wanted && (self.memory_servers.is_empty() || self.spill.is_some() || !self.stores.is_empty());
        if wanted && self.zip_alone {
            return Err(given.refuse("for a store on disk; compressed pages stay in RAM"));
        }
        if wanted && !self.encrypt && given.source == Source::Flag {
            return Err(given.refuse("for a store on disk; what goes to memory servers is encrypted in any case"));
        }
        Ok(())
    }

    /// Memory servers without which a program is not started: as many as each page, or the sum that it is part of, goes to.
    pub fn least_servers(&self) -> usize {
        if self.parity { 2 } else { self.replicas as usize }
    }

    /// How many copies of a page there are to be, and where.
    pub(super) fn settle_copies(
        &mut self,
        replicas: Option<Given>,
        spill: Option<Given>,
        parity: Option<Given>,
    ) -> Result<(), Failure> {
        const NEITHER: &str = "only for memory servers; name some by --store tcp://HOST:PORT,...";
        let several = self.memory_servers.len() > 1;
        let summed = parity.as_ref().map_or(Ok(false), Given::switch)?;
        self.replicas = if several && spill.is_none() && !summed { 2 } else { 1 };
        if let (Some(parity), Some(other)) = (parity.as_ref().filter(|_| summed), replicas.as_ref().or(spill.as_ref()))
        {
            return Err(other.refuse(format!("{parity} is in place of copies; give one of the two")));
        }
        if let (Some(replicas), Some(spill)) = (&replicas, &spill) {
            return Err(replicas.refuse(format!("{spill} is a second copy, too; give one of the two")));
        }
        // Where there is no memory server, what a file says about copies there does not matter.
        let matters = |given: &Given| given.source == Source::Flag || !self.memory_servers.is_empty();
        if let Some(given) = replicas.filter(matters) {
            self.replicas = given.count()?;
            if self.memory_servers.is_empty() {
                return Err(given.refuse(NEITHER));
            }
            if self.replicas > 1 && !several {
                return Err(given.refuse("needs two memory servers; name another one, or a directory by --spill"));
            }
        }
        if let Some(given) = spill.filter(matters) {
            if self.memory_servers.is_empty() {
                return Err(given.refuse(NEITHER));
            }
            if self.has_disk_below() {
                return Err(
                    given.refuse("each page has a local copy then, so that no directory is below; give one of the two")
                );
            }
            self.spill = Some(given.directory(given.text.as_deref().unwrap_or_default())?);
        }
        if let Some(given) = parity.filter(|given| summed && matters(given)) {
            if self.memory_servers.is_empty() {
                return Err(given.refuse(NEITHER));
            }
            if self.memory_servers.len() < 3 {
                return Err(given.refuse("needs three memory servers; with two, --replicas=2 is the same"));
            }
            if self.has_disk_below() {
                return Err(
                    given.refuse("only where nothing is below the memory servers; give --replicas or one copy instead")
                );
            }
            self.parity = true;
        }
        Ok(())
    }
}

/// Memory servers in a list that colons separate, and the directories that follow them, if there are any.
fn before_directories(text: OsString) -> (OsString, Option<OsString>) {
    if !text.as_bytes().starts_with(b"tcp://") {
        return (text, None);
    }
    // That of `tcp://` is followed by two.
    let bytes = text.as_bytes();
    let ends = |at: &usize| bytes[*at..].starts_with(b":/") && !bytes[*at..].starts_with(b"://");
    let colon = (0..bytes.len()).find(ends);
    match colon {
        Some(at) => {
            let (servers, rest) = text.as_bytes().split_at(at);
            (OsString::from_vec(servers.to_vec()), Some(OsString::from_vec(rest[1..].to_vec())))
        }
        None => (text, None),
    }
}
