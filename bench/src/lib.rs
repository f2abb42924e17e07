//! `ream bench`: workloads, and the runner that measures Ream in turns with the raw device, kernel swap and plain
//! memory, in one run on one machine.

pub mod arguments;
pub mod content;
pub mod coverage;
pub mod driver;
pub mod fits;
pub mod lru;
pub mod malloc;
pub mod others;
pub mod pages;
pub mod paging;
pub mod pool;
pub mod raw;
pub mod report;
pub mod rows;
pub mod statistics;
pub mod swap;
pub mod work;

use arguments::Command;

/// Runs `ream bench` with the arguments after `bench`; returns the exit status: 0 when everything was measured and
/// every requirement met, 1 when one fell short, 125 when it could not be measured.
pub fn main(args: Vec<String>) -> i32 {
    let result = match arguments::parse(&args) {
        Ok(Command::Help) => {
            print!("{}", arguments::HELP);
            Ok(true)
        }
        Ok(Command::Paging(options)) => paging::run(&options),
        Ok(Command::Fits(options)) => fits::run(&options),
        Ok(Command::Malloc(options)) => malloc::run(&options),
        Ok(Command::Pages(options)) => pages::run(&options),
        Ok(Command::Coverage(options)) => coverage::run(&options),
        Err(error) => Err(error),
    };
    match result {
        Ok(true) => 0,
        Ok(false) => 1,
        Err(error) => {
            eprintln!("ream: bench: {error}");
            125
        }
    }
}
