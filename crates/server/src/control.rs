//! The control connection: Noise_IK, so that both ends have shown who they are before either hears anything, and then
//! encrypted messages; or, without security, the same messages in clear.
//!
//! Messages, and those of the handshake, follow a length of two bytes. A request is one byte, its answer a byte that says
//! what became of it, and what was asked for.

use crate::keys::{PATTERN, Pair, Public};
use crate::stream::Incoming;
use ream_wire::hello::Connection;
use std::io;
use std::time::Instant;

/// Longest message, and longest that a stranger may send.
const MOST: usize = 32 << 10;
const MOST_GREETING: usize = 256;

/// Asks for a lease.
pub(crate) const LEASE: u8 = 1;
/// Asks for the server's figures.
pub(crate) const STATUS: u8 = 2;

/// It was done.
pub(crate) const DONE: u8 = 0;
/// The server is about to end.
pub(crate) const ENDING: u8 = 1;

/// What both ends have once they know each other.
pub(crate) struct Control {
    pub(crate) incoming: Incoming,
    noise: Option<snow::TransportState>,
}

fn wrong(error: snow::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.to_string())
}

fn send(incoming: &mut Incoming, bytes: &[u8]) -> io::Result<()> {
    let length = u16::try_from(bytes.len()).map_err(io::Error::other)?;
    incoming.send(&[&length.to_le_bytes(), bytes].concat())
}

fn receive(incoming: &mut Incoming, most: usize, deadline: Instant) -> io::Result<Vec<u8>> {
    let length = u16::from_le_bytes(incoming.array(deadline)?) as usize;
    if length > most {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "longer than any message"));
    }
    incoming.take(length, deadline).map(<[u8]>::to_vec)
}

impl Control {
    /// Without security.
    pub(crate) fn plain(incoming: Incoming) -> Control {
        Control { incoming, noise: None }
    }

    /// At a client, after the preamble was sent: shows who it is, to that server alone.
    pub(crate) fn call(mut incoming: Incoming, pair: &Pair, server: Public, deadline: Instant) -> io::Result<Control> {
        let prologue = Connection::Control.preamble();
        let pattern = PATTERN.parse().map_err(wrong)?;
        let builder = snow::Builder::new(pattern).prologue(&prologue).map_err(wrong)?;
        let builder = builder.local_private_key(pair.private()).map_err(wrong)?;
        let builder = builder.remote_public_key(&server.0).map_err(wrong)?;
        let mut noise = builder.build_initiator().map_err(wrong)?;
        let mut buffer = [0; MOST_GREETING];
        let length = noise.write_message(&[], &mut buffer).map_err(wrong)?;
        send(&mut incoming, buffer.get(..length).unwrap_or(&[]))?;
        let answer = receive(&mut incoming, MOST_GREETING, deadline)?;
        noise.read_message(&answer, &mut buffer).map_err(wrong)?;
        Ok(Control { incoming, noise: Some(noise.into_transport_mode().map_err(wrong)?) })
    }

    /// At a server: learns who calls. Whoever is not `known` gets no answer.
    pub(crate) fn answer<T>(
        mut incoming: Incoming,
        pair: &Pair,
        known: impl Fn(Public) -> Option<T>,
        deadline: Instant,
    ) -> io::Result<(Control, T)> {
        let prologue = Connection::Control.preamble();
        let pattern = PATTERN.parse().map_err(wrong)?;
        let builder = snow::Builder::new(pattern).prologue(&prologue).map_err(wrong)?;
        let mut noise = builder.local_private_key(pair.private()).map_err(wrong)?.build_responder().map_err(wrong)?;
        let mut buffer = [0; MOST_GREETING];
        let greeting = receive(&mut incoming, MOST_GREETING, deadline)?;
        noise.read_message(&greeting, &mut buffer).map_err(wrong)?;
        let caller = noise.get_remote_static().and_then(|key| key.try_into().ok()).map(Public);
        let caller = caller.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no key"))?;
        let Some(found) = known(caller) else {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("unknown key {caller}")));
        };
        let length = noise.write_message(&[], &mut buffer).map_err(wrong)?;
        send(&mut incoming, buffer.get(..length).unwrap_or(&[]))?;
        let noise = Some(noise.into_transport_mode().map_err(wrong)?);
        Ok((Control { incoming, noise }, found))
    }

    pub(crate) fn send(&mut self, message: &[u8]) -> io::Result<()> {
        match &mut self.noise {
            None => send(&mut self.incoming, message),
            Some(noise) => {
                let mut sealed = vec![0; message.len() + ream_wire::SEAL];
                let length = noise.write_message(message, &mut sealed).map_err(wrong)?;
                send(&mut self.incoming, sealed.get(..length).unwrap_or(&[]))
            }
        }
    }

    pub(crate) fn receive(&mut self, deadline: Instant) -> io::Result<Vec<u8>> {
        let bytes = receive(&mut self.incoming, MOST, deadline)?;
        match &mut self.noise {
            None => Ok(bytes),
            Some(noise) => {
                let mut clear = vec![0; bytes.len()];
                let length = noise.read_message(&bytes, &mut clear).map_err(wrong)?;
                clear.truncate(length);
                Ok(clear)
            }
        }
    }
}
