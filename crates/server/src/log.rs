//! The server's log: one line an event on standard error, `name=value` pairs. What strangers cause is written ten times a
//! second at most, and counted beyond that.

use std::fmt::Display;
use std::io::Write;
use std::sync::Mutex;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Lines a second that strangers may cause.
const MOST: u32 = 10;

static STRANGERS: Mutex<Option<(Instant, u32)>> = Mutex::new(None);

/// Writes a line about an event. Values hold no secrets; blanks and quotes in them are made underscores.
pub(crate) fn event(level: &str, name: &str, values: &[(&str, &dyn Display)]) {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut line = format!("time={}.{:03} level={level} event={name}", time.as_secs(), time.subsec_millis());
    for (name, value) in values {
        let value: String = value
            .to_string()
            .chars()
            .map(|c| if c.is_whitespace() || c.is_control() || c == '"' || c == '=' { '_' } else { c })
            .collect();
        line.push_str(&format!(" {name}={value}"));
    }
    line.push('\n');
    // Nobody is left to be told that this failed.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// The same for what anybody can cause.
pub(crate) fn stranger(name: &str, values: &[(&str, &dyn Display)]) {
    {
        let mut state = STRANGERS.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let (since, count) = state.get_or_insert((Instant::now(), 0));
        if since.elapsed().as_secs() >= 1 {
            let beyond = count.saturating_sub(MOST);
            if beyond > 0 {
                event("warn", "refused-more", &[("count", &beyond)]);
            }
            (*since, *count) = (Instant::now(), 0);
        }
        *count += 1;
        if *count > MOST {
            return;
        }
    }
    event("warn", name, values);
}
