//! Bare TCP, without anything of Ream's: what paging to a memory server is held against. A peer answers requests with pages,
//! takes bytes or gives them; a caller times that.

use ream_bench::content::PAGE;
use ream_bench::work::Times;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Bytes of a request for a page, and of what precedes the page in its reply: as many as Ream's have.
const HEAD: usize = 48;
/// Bytes that are sent at once in bulk.
const PIECE: usize = 128 << 10;

const PING: u8 = b'p';
const TAKE: u8 = b't';
const GIVE: u8 = b'g';

fn fail(what: &str, error: &io::Error) -> ! {
    eprintln!("ream-bench-worker: {what}: {error}");
    std::process::exit(125)
}

/// Waits for the end of standard input: what it holds, a network of its own for one, lives as long as the benchmark.
pub fn hold() {
    let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
}

/// Answers callers at an address, whose port is printed, until the end of standard input.
pub fn answer(address: &str) {
    let listener = TcpListener::bind(address).unwrap_or_else(|error| fail(address, &error));
    let own = listener.local_addr().unwrap_or_else(|error| fail(address, &error));
    println!("{own}");
    let _ = io::stdout().flush();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A caller that goes away in the middle is no fault.
            std::thread::spawn(move || serve(stream));
        }
    });
    hold();
}

fn serve(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut kind = [0; 1];
    stream.read_exact(&mut kind)?;
    match kind {
        [PING] => {
            let (mut request, reply) = ([0; HEAD], [7; HEAD + PAGE]);
            loop {
                stream.read_exact(&mut request)?;
                stream.write_all(&reply)?;
            }
        }
        [TAKE] => {
            let mut piece = vec![0; PIECE];
            while stream.read(&mut piece)? > 0 {}
        }
        [GIVE] => {
            let piece = vec![7; PIECE];
            loop {
                stream.write_all(&piece)?;
            }
        }
        _ => {}
    }
    Ok(())
}

fn connect(address: &str, kind: u8) -> TcpStream {
    let connect = || {
        let mut stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.write_all(&[kind])?;
        Ok(stream)
    };
    connect().unwrap_or_else(|error| fail(address, &error))
}

fn number<T: std::str::FromStr>(text: &str) -> T {
    text.parse().unwrap_or_else(|_| fail(text, &io::ErrorKind::InvalidInput.into()))
}

/// Asks for a page so many times, one after the other, and prints how long that took.
pub fn ping(address: &str, count: &str) {
    let mut stream = connect(address, PING);
    let (request, mut reply) = ([1; HEAD], vec![0; HEAD + PAGE]);
    let mut once = || {
        let begun = Instant::now();
        let done = stream.write_all(&request).and_then(|()| stream.read_exact(&mut reply));
        done.unwrap_or_else(|error| fail(address, &error));
        begun.elapsed().as_secs_f64() * 1e6
    };
    let times: Vec<f64> = (0..number(count)).map(|_| once()).collect();
    println!("{}", Times::of(&times));
}

/// Sends, or receives, by so many connections for so many seconds, and prints the bytes a second.
pub fn bulk(address: &str, send: bool, connections: &str, seconds: &str) {
    let limit = Duration::from_secs_f64(number::<f64>(seconds).clamp(0.01, 3600.0));
    let streams: Vec<TcpStream> =
        (0..number::<usize>(connections)).map(|_| connect(address, if send { TAKE } else { GIVE })).collect();
    let begun = Instant::now();
    let carry = |mut stream: TcpStream| {
        let (mut piece, mut bytes) = (vec![7; PIECE], 0);
        while begun.elapsed() < limit {
            let done = if send { stream.write(&piece) } else { stream.read(&mut piece) };
            bytes += done.unwrap_or_else(|error| fail(address, &error)) as u64;
        }
        bytes
    };
    let bytes: u64 = std::thread::scope(|scope| {
        let all: Vec<_> = streams.into_iter().map(|stream| scope.spawn(move || carry(stream))).collect();
        all.into_iter().map(|one| one.join().unwrap_or(0)).sum()
    });
    println!("{}", bytes as f64 / begun.elapsed().as_secs_f64());
}
