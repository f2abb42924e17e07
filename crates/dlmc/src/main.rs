//! The command `dlmc`.

use ream_dlmc::command::{Arguments, Stage};
use ream_dlmc::translate::translate;
use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus, Stdio};

mod children;
mod scratch;

const HELP: &str = "\
dlmc: compiles C with dlm arrays, which Ream pages

  dlmc ARGUMENT...            the arguments of the C compiler, for example
                              dlmc -O2 -fopenmp prog.c -o prog
  dlmc --dlm-show ARGUMENT... prints what is compiled in place of each file

A file may declare arrays and structures of any size at file scope with the
word dlm in front: dlm double a[N][N]; they are used like others. Run the
program with ream run --memory SIZE -- ./prog, or set DLM_MEMORY=SIZE.

The compiler is cc, or what DLMC_CC names (mpicc, clang, \"gcc-13 -m64\").
";

fn main() -> ExitCode {
    let mut arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    if arguments.is_empty() || arguments[0] == "--help" {
        // A reader that has gone away has read enough.
        let _ = std::io::stdout().write_all(HELP.as_bytes());
        return ExitCode::from(u8::from(arguments.is_empty()));
    }
    let show = arguments[0] == "--dlm-show";
    if show {
        arguments.remove(0);
    }
    match run(arguments, show) {
        Ok(status) => end(status),
        Err(line) => {
            let _ = writeln!(std::io::stderr(), "{line}");
            ExitCode::FAILURE
        }
    }
}

/// Ends as the compiler did.
fn end(status: ExitStatus) -> ExitCode {
    match (status.code(), status.signal()) {
        (Some(code), _) => ExitCode::from(u8::try_from(code).unwrap_or(1)),
        (None, signal) => children::die(signal.unwrap_or(0)),
    }
}

fn run(arguments: Vec<OsString>, show: bool) -> Result<ExitStatus, String> {
    let arguments_read = Arguments::read(arguments.clone()).map_err(|why| format!("dlmc: {why}"))?;
    let prefix = prefix();
    let mut compiler = compiler();
    if let Some(include) =
        prefix.as_ref().map(|prefix| prefix.join("include")).filter(|path| path.join("dlm.h").is_file())
    {
        compiler.extend([OsString::from("-idirafter"), include.into()]);
    }
    if arguments_read.stage == Stage::Preprocess && !show {
        let error = Command::new(&compiler[0]).args(&compiler[1..]).args(arguments).exec();
        return Err(format!("dlmc: {}: {error}", compiler[0].to_string_lossy()));
    }
    children::watch();
    let scratch = scratch::Scratch::new().map_err(|why| format!("dlmc: {why}"))?;
    let mut made = Vec::new();
    for (number, source) in arguments_read.sources().into_iter().enumerate() {
        let text = match preprocessed(&compiler, &arguments_read.preprocess(source))? {
            Ok(text) => text,
            Err(status) => return Ok(status),
        };
        let name = source.to_string_lossy();
        let text = String::from_utf8(text).map_err(|_| format!("{name}:1: error: dlmc: reads UTF-8 only"))?;
        let new = translated(&text, &name)?;
        if show {
            let text = new.unwrap_or(text);
            std::io::stdout().write_all(text.as_bytes()).map_err(|error| format!("dlmc: standard output: {error}"))?;
            continue;
        }
        // Where lists are made, they are by now.
        let new = if arguments_read.lists() { new.or(Some(text)) } else { new };
        made.push(match new {
            Some(text) => Some(scratch.write(number, source, &text).map_err(|why| format!("dlmc: {why}"))?),
            None => None,
        });
    }
    if show {
        return Ok(ExitStatus::from_raw(0));
    }
    let mut command = Command::new(&compiler[0]);
    command.args(&compiler[1..]).args(arguments_read.compile(&made));
    if arguments_read.links_libraries() {
        command.args(libraries(prefix.as_deref()));
    }
    children::finish(&mut command)
}

/// Translates on a stack of its own: the parser descends as deep as expressions are nested, and sums of ten thousand terms
/// are.
fn translated(text: &str, name: &str) -> Result<Option<String>, String> {
    const STACK: usize = 256 << 20;
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, || translate(text, name));
        let thread = thread.map_err(|error| format!("dlmc: a stack of 256 MiB: {error}"))?;
        thread.join().unwrap_or_else(|_| Err(format!("{name}:1: error: dlmc: a defect of dlmc")))
    })
}

/// What the preprocessor writes, or how it failed, after it has said why.
fn preprocessed(compiler: &[OsString], arguments: &[OsString]) -> Result<Result<Vec<u8>, ExitStatus>, String> {
    let mut command = Command::new(&compiler[0]);
    command.args(&compiler[1..]).args(arguments).stdout(Stdio::piped());
    let (status, text) = children::output(&mut command)?;
    Ok(if status.success() { Ok(text) } else { Err(status) })
}

/// The compiler and its first arguments.
fn compiler() -> Vec<OsString> {
    let named = std::env::var("DLMC_CC").unwrap_or_default();
    let words: Vec<OsString> = named.split_whitespace().map(OsString::from).collect();
    if words.is_empty() { vec!["cc".into()] } else { words }
}

/// Where this installation is: the command lies in its bin.
fn prefix() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    own.parent()?.parent().map(Path::to_owned)
}

/// What a program with dlm arrays, or calls of dlm.h, is linked with.
fn libraries(prefix: Option<&Path>) -> Vec<OsString> {
    let mut result: Vec<OsString> = vec!["-x".into(), "none".into()];
    if let Some(directory) = prefix.map(|prefix| prefix.join("lib/ream")).filter(|path| path.join("libdlm.a").is_file())
    {
        // The program finds libream_inside.so by this, when DLM_MEMORY asks for it.
        let join = |option: &str| [OsStr::new(option), directory.as_os_str()].into_iter().collect::<OsString>();
        result.extend([join("-L"), join("-Wl,-rpath,")]);
    }
    result.extend(["-ldlm", "-ldl", "-pthread"].map(OsString::from));
    result
}
