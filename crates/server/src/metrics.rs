//! Figures of a server: counted where things happen, shown as text that Prometheus reads, to whoever asks on the address
//! given for that, and to clients on their control connection.

use crate::leases::{Leases, lock};
use crate::{STACK, log};
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Those who are answered at a time. Whoever comes then takes the place of who has been there longest: an answer takes a
/// moment, so that one says nothing, or takes nothing.
const MOST: usize = 64;
/// How long who asks for figures may say, or take, nothing.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

/// A number that only grows.
#[derive(Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What happened since the server began.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) connections: Counter,
    /// Connections that ended before they had shown who they are, or that are none of ours.
    pub(crate) strangers: Counter,
    /// Connections ended since a message was not genuine, or out of order.
    pub(crate) forged: Counter,
    /// Connections turned away since there are too many.
    pub(crate) crowded: Counter,
    /// Connections ended since the client's host answered nothing any more.
    pub(crate) late: Counter,
    pub(crate) leases: Counter,
    pub(crate) reads: Counter,
    pub(crate) writes: Counter,
    pub(crate) pages_out: Counter,
    pub(crate) pages_in: Counter,
    pub(crate) full: Counter,
    pub(crate) quota: Counter,
    pub(crate) refused: Counter,
    /// Connections at the moment, and whether the server is about to end.
    pub(crate) open: std::sync::atomic::AtomicUsize,
    pub(crate) ending: std::sync::atomic::AtomicBool,
}

/// All figures.
pub(crate) fn text(leases: &Leases) -> String {
    let counters = &leases.counters;
    let mut text = String::new();
    let mut line = |name: &str, kind: &str, what: &str, value: u64| {
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "# HELP ream_server_{name} {what}\n# TYPE ream_server_{name} {kind}\nream_server_{name} {value}"
        );
    };
    line("memory_bytes", "gauge", "Memory that clients may have together.", leases.memory.limit());
    line("used_bytes", "gauge", "Memory that clients have.", leases.memory.used());
    line("leases", "gauge", "Sessions that have a lease.", leases.count() as u64);
    line("connections", "gauge", "Connections open.", counters.open.load(Ordering::Relaxed) as u64);
    line("ending", "gauge", "1 when the server is about to end.", counters.ending.load(Ordering::Relaxed).into());
    line("connections_total", "counter", "Connections accepted.", counters.connections.get());
    line("leases_total", "counter", "Leases given.", counters.leases.get());
    line("read_requests_total", "counter", "Requests for pages.", counters.reads.get());
    line("write_requests_total", "counter", "Requests to keep pages.", counters.writes.get());
    line("pages_sent_total", "counter", "Pages sent to clients.", counters.pages_out.get());
    line("pages_received_total", "counter", "Pages received from clients.", counters.pages_in.get());
    line("strangers_total", "counter", "Connections that did not show who they are.", counters.strangers.get());
    line("forged_total", "counter", "Connections ended for a message that was not genuine.", counters.forged.get());
    line("crowded_total", "counter", "Connections turned away, being too many.", counters.crowded.get());
    line(
        "late_total",
        "counter",
        "Connections ended since the client's host answered nothing any more.",
        counters.late.get(),
    );
    line("full_total", "counter", "Requests to keep pages refused, memory being full.", counters.full.get());
    line("quota_total", "counter", "The same, a client having all that it may.", counters.quota.get());
    line("refused_total", "counter", "Requests for what is not there or another's.", counters.refused.get());
    text
}

/// Connections, in the order in which they came.
#[derive(Default)]
struct Asking(Mutex<VecDeque<Arc<TcpStream>>>);

impl Asking {
    /// One more; the oldest ends where there are too many.
    fn enter(&self, stream: &Arc<TcpStream>) {
        let mut open = lock(&self.0);
        if open.len() >= MOST {
            if let Some(oldest) = open.pop_front() {
                // Where that fails, it has ended by itself.
                let _ = oldest.shutdown(Shutdown::Both);
            }
        }
        open.push_back(stream.clone());
    }

    fn leave(&self, stream: &Arc<TcpStream>) {
        lock(&self.0).retain(|other| !Arc::ptr_eq(other, stream));
    }
}

/// Answers whoever asks, for ever. Who says nothing, or takes nothing, has so much patience, and delays nobody else.
pub(crate) fn serve(listener: TcpListener, leases: Arc<Leases>, patience: Duration) {
    let asking = Arc::new(Asking::default());
    for stream in listener.incoming() {
        let Ok(stream) = stream.map(Arc::new) else {
            std::thread::sleep(Duration::from_millis(100));
            continue;
        };
        asking.enter(&stream);
        let (leases, theirs, asks) = (leases.clone(), asking.clone(), stream.clone());
        let served = std::thread::Builder::new().stack_size(STACK).spawn(move || {
            answer(&asks, &leases, patience);
            theirs.leave(&asks);
        });
        // Where no thread is to be had, the connection is closed.
        if served.is_err() {
            asking.leave(&stream);
        }
    }
}

fn answer(mut stream: &TcpStream, leases: &Leases, patience: Duration) {
    if stream.set_read_timeout(Some(patience)).is_err() || stream.set_write_timeout(Some(patience)).is_err() {
        return;
    }
    // One read: whoever asks in drips is not answered.
    let mut request = [0; 4096];
    let Ok(got) = stream.read(&mut request) else { return };
    let known = request.get(..got).is_some_and(|bytes| bytes.starts_with(b"GET /metrics"));
    let (status, body) = if known { ("200 OK", text(leases)) } else { ("404 Not Found", String::new()) };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    if let Err(error) = stream.write_all((head + &body).as_bytes()) {
        log::stranger("metrics", &[("error", &error)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_says_nothing_or_takes_nothing_delays_nobody() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        // Longer than a test takes.
        let patience = Duration::from_secs(3600);
        std::thread::spawn(move || serve(listener, Arc::new(Leases::new(1 << 30, false)), patience));
        let connect = || TcpStream::connect(address).unwrap();
        // More than are answered at a time.
        let silent: Vec<TcpStream> = (0..MOST + 5).map(|_| connect()).collect();
        let takes_nothing: Vec<TcpStream> = (0..5).map(|_| connect()).collect();
        for mut stream in &takes_nothing {
            stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        }
        let mut asks = connect();
        asks.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        asks.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let mut text = String::new();
        asks.read_to_string(&mut text).unwrap();
        assert!(
            text.starts_with("HTTP/1.1 200 OK") && text.contains("ream_server_memory_bytes 1073741824\n"),
            "{text}"
        );
        // The oldest have ended, and no more than were too many.
        let ended = |mut stream: &TcpStream| {
            stream.set_nonblocking(true).unwrap();
            stream.read(&mut [0]).is_ok()
        };
        let too_many = silent.len() + takes_nothing.len() + 1 - MOST;
        assert!(silent.iter().take(silent.len() - MOST).all(ended), "more than are answered at a time");
        assert!(silent.iter().skip(too_many).all(|stream| !ended(stream)), "one that had its place");
        drop(takes_nothing);
    }
}
