//! Whole programs that allocate much, as children of this one, which checks what they made: a compiler of C++, and Redis filled
//! over a socket. Prints the seconds that they took, and a sum of what came of it.

use ream_bench::content::mix;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What the sum of a text is.
fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(bytes.len() as u64, |sum, byte| mix(sum ^ u64::from(*byte)))
}

/// A child that ends with this process, whatever ends that.
fn tied(command: &mut Command) -> &mut Command {
    // SAFETY: between fork and exec: a system call on constants.
    unsafe {
        command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        })
    }
}

/// A program in C++ with so many functions, each of which has the compiler make maps of types of its own.
fn source(functions: u32) -> String {
    let mut text =
        "#include <algorithm>\n#include <map>\n#include <string>\n#include <vector>\ntemplate <int N> struct key {\n\
                    int value;\nbool operator<(const key &other) const { return value < other.value; }\n};\n"
            .to_owned();
    for number in 0..functions {
        text += &format!(
            "int f{number}(int n)\n{{\nstd::map<key<{number}>, std::vector<std::string>> all;\nfor (int i = 0; i < n; i++)\n\
             all[key<{number}>{{i % 7}}].push_back(std::to_string(i));\nint sum = 0;\nfor (auto &one : all) {{\n\
             std::sort(one.second.begin(), one.second.end());\nsum += (int)one.second.size();\n}}\nreturn sum;\n}}\n"
        );
    }
    text
}

/// Compiles; the sum is of the assembly, which must hold every function. `corrupt` takes one away.
pub fn compile(functions: u32, corrupt: bool) -> Result<(f64, u64), String> {
    let mut text = source(functions);
    if corrupt {
        text = text.replace("int f1(", "int g(");
    }
    let mut command = Command::new("c++");
    command.args(["-std=c++17", "-O1", "-S", "-x", "c++", "-o", "-", "-"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let begun = Instant::now();
    let mut child = tied(&mut command).spawn().map_err(|error| format!("c++: {error}"))?;
    let input = child.stdin.take();
    let writer = std::thread::spawn(move || input.map(|mut input| input.write_all(text.as_bytes())));
    let output = child.wait_with_output().map_err(|error| format!("c++: {error}"))?;
    let seconds = begun.elapsed().as_secs_f64();
    let _ = writer.join();
    let made = String::from_utf8_lossy(&output.stdout);
    let whole = (0..functions).all(|number| made.contains(&format!("_Z{}f{number}i:", number.to_string().len() + 1)));
    if !output.status.success() || !whole {
        return Err(format!("WRONG RESULT: c++ ended with {} and did not make every function", output.status));
    }
    Ok((seconds, sum(&output.stdout)))
}

/// A directory that goes when it is dropped, and a server that ends then.
struct Server {
    child: Child,
    directory: PathBuf,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

impl Server {
    fn start() -> Result<(Server, UnixStream), String> {
        let directory = std::env::temp_dir().join(format!("ream-bench-redis-{}", std::process::id()));
        std::fs::create_dir(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
        let socket = directory.join("s");
        let mut command = Command::new("redis-server");
        command.args(["--port", "0", "--save", "", "--appendonly", "no", "--daemonize", "no", "--unixsocket"]);
        command.arg(&socket).current_dir(&directory).stdin(Stdio::null()).stdout(Stdio::null());
        let child = tied(&mut command).spawn().map_err(|error| {
            let _ = std::fs::remove_dir_all(&directory);
            format!("redis-server: {error}")
        })?;
        let mut server = Server { child, directory };
        let stream = server.connect(&socket)?;
        // The socket is open, so its name is no longer needed: a kill leaves an empty directory at most, which goes here.
        let _ = std::fs::remove_dir_all(&server.directory);
        Ok((server, stream))
    }

    fn connect(&mut self, socket: &Path) -> Result<UnixStream, String> {
        let begun = Instant::now();
        loop {
            match UnixStream::connect(socket) {
                Ok(stream) => return Ok(stream),
                Err(error) if begun.elapsed() > Duration::from_secs(30) => {
                    return Err(format!("redis-server does not answer: {error}"));
                }
                Err(_) => {}
            }
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(format!("redis-server: {status}"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Key and value of an entry: values of 16 to 271 bytes.
fn entry(number: u64) -> (String, String) {
    let word = format!("{:016x}", mix(number));
    (format!("key:{number}"), word.repeat(1 + (mix(number) % 16) as usize))
}

/// A command in Redis's own form.
fn words(all: &[&str]) -> String {
    let mut text = format!("*{}\r\n", all.len());
    for word in all {
        text += &format!("${}\r\n{word}\r\n", word.len());
    }
    text
}

/// Sends commands in one go and reads the first line of each answer, and what follows where that announces it.
fn exchange(stream: &mut BufReader<UnixStream>, commands: &str, count: usize) -> Result<Vec<Vec<u8>>, String> {
    let failed = |error: std::io::Error| format!("redis-server: {error}");
    stream.get_mut().write_all(commands.as_bytes()).map_err(failed)?;
    let mut answers = Vec::with_capacity(count);
    for _ in 0..count {
        let mut line = String::new();
        stream.read_line(&mut line).map_err(failed)?;
        let announced = line.strip_prefix('$').and_then(|rest| rest.trim().parse::<usize>().ok());
        answers.push(match announced {
            Some(length) => {
                let mut bytes = vec![0; length + 2];
                stream.read_exact(&mut bytes).map_err(failed)?;
                bytes.truncate(length);
                bytes
            }
            None => line.trim().as_bytes().to_vec(),
        });
    }
    Ok(answers)
}

/// Fills Redis with so many entries, writes half of them over, deletes a quarter, and reads all. `corrupt` spoils one.
pub fn redis(entries: u64, corrupt: bool) -> Result<(f64, u64), String> {
    const BATCH: u64 = 500;
    let (server, stream) = Server::start()?;
    let mut stream = BufReader::new(stream);
    let begun = Instant::now();
    let mut all = |numbers: &mut dyn Iterator<Item = u64>, make: &dyn Fn(u64) -> String| {
        let mut answers = Vec::new();
        loop {
            let batch: Vec<u64> = numbers.take(BATCH as usize).collect();
            if batch.is_empty() {
                return Ok::<_, String>(answers);
            }
            let text: String = batch.iter().map(|number| make(*number)).collect();
            answers.extend(exchange(&mut stream, &text, batch.len())?);
        }
    };
    let set = |key: u64, content: u64| words(&["SET", &entry(key).0, &entry(content).1]);
    all(&mut (0..entries), &|number| set(number, number))?;
    all(&mut (0..entries).step_by(2), &|number| set(number, number + entries))?;
    all(&mut (0..entries).step_by(4), &|number| words(&["DEL", &entry(number).0]))?;
    if corrupt {
        all(&mut (0..1), &|_| words(&["SET", "key:1", "spoilt"]))?;
    }
    let kept: Vec<u64> = (0..entries).filter(|number| number % 4 != 0).collect();
    let answers = all(&mut kept.iter().copied(), &|number| words(&["GET", &entry(number).0]))?;
    let seconds = begun.elapsed().as_secs_f64();
    let count = all(&mut (0..1), &|_| words(&["DBSIZE"]))?;
    drop(server);
    let right = |(number, answer): (&u64, &Vec<u8>)| {
        let content = if number % 2 == 0 { number + entries } else { *number };
        *answer == entry(content).1.into_bytes()
    };
    let size = format!(":{}", kept.len());
    if !kept.iter().zip(&answers).all(right) || count.first() != Some(&size.into_bytes()) {
        return Err("WRONG RESULT: redis-server holds something else".into());
    }
    Ok((seconds, kept.len() as u64))
}
