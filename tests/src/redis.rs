//! A client of redis-server, as small as the test needs it: commands and replies over its Unix socket.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// A reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// A status line or a number, as text.
    Line(String),
    /// A value.
    Bytes(Vec<u8>),
    /// No such key.
    Nil,
}

/// A connection.
pub struct Redis(BufReader<UnixStream>);

impl Redis {
    /// Connects as soon as the server answers.
    ///
    /// # Panics
    /// When it does not within half a minute.
    pub fn connect(socket: &Path) -> Redis {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            if let Ok(stream) = UnixStream::connect(socket) {
                stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
                let mut redis = Redis(BufReader::new(stream));
                if redis.ask(&[b"PING"]).is_ok_and(|reply| reply == Reply::Line("PONG".into())) {
                    return redis;
                }
            }
            assert!(Instant::now() < deadline, "redis-server does not answer");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Sends a command without waiting for the reply.
    ///
    /// # Errors
    /// The connection broke.
    pub fn send(&mut self, words: &[&[u8]]) -> io::Result<()> {
        let mut text = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            text.extend(format!("${}\r\n", word.len()).into_bytes());
            text.extend_from_slice(word);
            text.extend_from_slice(b"\r\n");
        }
        self.0.get_mut().write_all(&text)
    }

    /// Receives one reply.
    ///
    /// # Errors
    /// The connection broke, or the server reported an error.
    pub fn receive(&mut self) -> io::Result<Reply> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        let line = line.trim_end();
        let (kind, rest) = line.split_at_checked(1).ok_or(io::ErrorKind::UnexpectedEof)?;
        match kind {
            "+" | ":" => Ok(Reply::Line(rest.into())),
            "$" if rest == "-1" => Ok(Reply::Nil),
            "$" => {
                let length: usize = rest.parse().map_err(io::Error::other)?;
                let mut bytes = vec![0; length + 2];
                self.0.read_exact(&mut bytes)?;
                bytes.truncate(length);
                Ok(Reply::Bytes(bytes))
            }
            _ => Err(io::Error::other(line.to_owned())),
        }
    }

    /// Sends a command and receives its reply.
    ///
    /// # Errors
    /// As [`Redis::send`] and [`Redis::receive`].
    pub fn ask(&mut self, words: &[&[u8]]) -> io::Result<Reply> {
        self.send(words)?;
        self.receive()
    }
}
