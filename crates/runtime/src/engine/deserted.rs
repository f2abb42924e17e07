//! The program's last thread has ended by itself (exit(2)): of a plain process nothing would be left. Ours go on, and nobody could
//! end them but by SIGKILL, so those that last look now and then whether they are alone, and end the process as it would have.

use ream_sys::process;

/// What one of our threads asks now and then.
#[derive(Default)]
pub(super) struct Deserted(ream_sys::deserted::Deserted);

impl Deserted {
    /// Ends the process if nobody of the program is left. The agent does the rest, as for one that ends by a raw exit_group(2).
    pub(super) fn look(&mut self, now_us: u64) {
        if let Some(status) = self.0.look(now_us) {
            process::end_process(status)
        }
    }

    /// Microseconds that the thread may sleep until it looks, `most` at most.
    pub(super) fn sleep(&self, most: u64) -> u64 {
        most.min(self.0.until_next(process::now_us()))
    }
}
