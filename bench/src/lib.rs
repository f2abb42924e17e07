//! `ream bench`: workloads, and the runner that measures Ream in turns with the raw device, kernel swap and plain
//! memory, in one run on one machine.

#[macro_use]
mod told;

mod all;
pub mod arguments;
pub mod content;
pub mod coverage;
pub mod driver;
pub mod fits;
pub mod inside;
pub mod interrupt;
pub mod journal;
pub mod lru;
pub mod machine;
pub mod malloc;
pub mod measured;
pub mod mpi;
pub mod noise;
pub mod others;
pub mod pages;
pub mod paging;
pub mod pool;
pub mod raw;
pub mod remote;
pub mod report;
pub mod rows;
pub mod statistics;
pub mod swap;
mod words;
pub mod work;
mod zram;

pub use all::markdown::{figures, tables};
use arguments::Command;
use machine::Tlb;

/// Runs `ream bench` with the arguments after `bench`; returns the exit status: 0 when everything was measured and
/// every requirement met, 1 when one fell short, 125 when it could not be measured. `tlb` is for the description of the
/// machine.
pub fn main(args: Vec<String>, tlb: Tlb) -> i32 {
    interrupt::outlive_workers();
    let rest = args.get(1..).unwrap_or_default();
    let mut help = arguments::HELP;
    let result = match args.first().map(String::as_str) {
        Some("noise") => {
            help = noise::HELP;
            noise::main(rest, tlb)
        }
        Some("all") => all::main(rest, tlb),
        Some("compare") => all::compare(rest),
        Some("report") => all::report(rest),
        _ => chapter(&args),
    };
    if let Ok(None) = result {
        print!("{help}");
    }
    let result = match told::failed() {
        Some(why) => Err(format!("standard output: {why}")),
        None => result,
    };
    result.map_or_else(
        |error| {
            let what = if args.first().is_some_and(|word| word == "noise") { "noise" } else { "bench" };
            eprintln!("ream: {what}: {error}");
            125
        },
        |status| status.unwrap_or(0),
    )
}

/// Runs one of the chapters; `None` when help is asked for.
fn chapter(args: &[String]) -> Result<Option<i32>, String> {
    let command = arguments::parse(args)?;
    if !matches!(command, Command::Help) && std::env::var_os("REAM_SESSION").is_some() {
        return Err("runs under Ream itself, so nothing could be plain; start it outside".into());
    }
    // Swap is the machine's: one at a time.
    let swaps = match &command {
        Command::Paging(options) => options.swap,
        Command::Ranks(options) => options.swap,
        _ => false,
    };
    let _alone = if swaps { journal::alone()? } else { None };
    let good = match command {
        Command::Help => return Ok(None),
        Command::Paging(options) => paging::run(&options),
        Command::Fits(options) => fits::run(&options),
        Command::Remote(options) => remote::run(&options),
        Command::Malloc(options) => malloc::run(&options),
        Command::Inside(options) => inside::run(&options),
        Command::Pages(options) => pages::run(&options),
        Command::Coverage(options) => coverage::run(&options),
        Command::Ranks(options) => mpi::run(&options),
    };
    good.map(|good| Some(i32::from(!good)))
}
