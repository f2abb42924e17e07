//! The server's log: one line an event on standard error, `name=value` pairs. What strangers cause is written ten times a
//! second at most, and counted beyond that. So are lines that nobody takes: a server does not wait for whoever reads them.

use std::fmt::Display;
use std::io::Write;
use std::sync::Mutex;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Lines a second that strangers may cause.
const MOST: u32 = 10;

/// Longest line, in bytes: a pipe of which it is said that it takes something takes as much.
const LONGEST: usize = 4096;

static STRANGERS: Mutex<Option<(Instant, u32)>> = Mutex::new(None);
/// Lines that nobody has taken since one was last.
static LOST: Mutex<u64> = Mutex::new(0);

/// Writes a line about an event. Values hold no secrets; blanks and quotes in them are made underscores.
pub(crate) fn event(level: &str, name: &str, values: &[(&str, &dyn Display)]) {
    let mut lost = LOST.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if *lost > 0 && write(&line("warn", "lines-lost", &[("count", &*lost)])) {
        *lost = 0;
    }
    if *lost > 0 || !write(&line(level, name, values)) {
        *lost += 1;
    }
}

/// Writes a line, if that needs no waiting. Where it fails nobody is left to be told.
fn write(line: &str) -> bool {
    let takes = ream_sys::quiet::takes(ream_sys::file::Fd(2));
    if takes {
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
    takes
}

fn line(level: &str, name: &str, values: &[(&str, &dyn Display)]) -> String {
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
    let end = (0..LONGEST.min(line.len() + 1)).rfind(|end| line.is_char_boundary(*end)).unwrap_or(0);
    line.truncate(end);
    line.push('\n');
    line
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
