//! The tiers of a program's store, where the first is compressed memory: what each has answered, and how fast.

use super::servers::session_of;
use ream_stats::{Counters, Tiers};

/// Those of a process's session, as text and as JSON; `None` where there are none.
pub fn of(id: u32) -> Option<(String, String)> {
    let session = session_of(id)?;
    let counters = Counters::default();
    session.add_to(&counters);
    let tiers = Tiers::of(session.config(), &counters)?;
    let (mut text, mut json) = (String::new(), String::new());
    tiers.write_text("tier ", &mut text).ok()?;
    tiers.write_json(&mut json).ok()?;
    Some((text, json))
}
