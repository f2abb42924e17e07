//! Why code does not lie on large pages, in words that follow the name of the file.

use ream_options::show_size;
use std::fmt;

/// The reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Why {
    /// There is too little of it, or none that fills a block: so many bytes.
    NoBlock(u64),
    /// It lies at other distances in memory than in the file.
    Displaced,
    /// The program is loaded at any page.
    AnyPage,
    /// Large pages are switched off for this process.
    Off,
    /// Others have it mapped on small pages.
    InUse,
    /// The file has been written just now and is not on the disk yet.
    Unwritten,
    /// Its file system has no disk behind it, so that nothing can be read again.
    InRam,
    /// What was read did not come as large pages.
    NotHeld,
    /// More than may be read, or it took too long.
    Bound,
    /// Nothing but that nobody has done it yet.
    Ready,
    /// The file could not be read or mapped: the kernel's reason.
    Failed(String),
    /// No aligned copy could be used: why.
    NoCopy(String),
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::NoBlock(bytes) => write!(f, "its {} of code fill no aligned 2 MiB", show_size(*bytes)),
            Why::Displaced => f.write_str(
                "its code lies at other distances in memory than in the file; link it with -z max-page-size=2M",
            ),
            Why::AnyPage => f.write_str(
                "it is loaded at any page (PIE); --pages=text=huge runs an aligned copy, or link it with -no-pie",
            ),
            Why::Off => f.write_str("large pages are switched off for this process (PR_SET_THP_DISABLE)"),
            Why::InUse => {
                f.write_str("another process has it mapped on small pages; when all have ended, the next run can")
            }
            Why::Unwritten => f.write_str("it was written just now and is not on the disk yet; sync writes it"),
            Why::InRam => f.write_str("it lies in a file system in RAM; on a disk it could be read as large pages"),
            Why::NotHeld => f.write_str(
                "the kernel did not read it as large pages: a file system without large folios, or fragmented memory",
            ),
            Why::Bound => f.write_str("there is more of it than is read for one start; the next run goes on"),
            Why::Ready => f.write_str("read so by the next run"),
            Why::Failed(reason) | Why::NoCopy(reason) => f.write_str(reason),
        }
    }
}
