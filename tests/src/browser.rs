//! A real browser without a screen: opens a page and says what it made of it.

use crate::place::{Scratch, tool};
use crate::skip;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Debian's Chromium, headless.
pub struct Browser {
    program: PathBuf,
    scratch: Scratch,
}

impl Browser {
    /// It; `None`, loudly, where there is none.
    pub fn find() -> Option<Browser> {
        let found = ["chromium", "chromium-browser", "google-chrome"].into_iter().find_map(tool);
        if found.is_none() {
            skip("pages in a browser", "no chromium");
        }
        found.map(|program| Browser { program, scratch: Scratch::new("browser") })
    }

    /// Runs it on a page in a window of this size, with what is asked for besides; returns its standard output and error.
    ///
    /// # Panics
    /// When it fails, or takes longer than two minutes.
    pub fn open(&self, address: &str, size: (u32, u32), words: &[String]) -> (String, String) {
        // A directory of its own each time: a profile that another one has locked is refused.
        let profile = self.scratch.directory(&format!("profile-{}", self.count()));
        let (out, errors) = (profile.join("out"), profile.join("errors"));
        let file = |path: &Path| std::fs::File::create(path).expect("a file for the browser's output");
        let mut command = Command::new(&self.program);
        command.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]);
        command.args(["--disable-background-networking", "--disable-component-update", "--disable-sync"]);
        command.args(["--hide-scrollbars", "--enable-logging=stderr", "--v=0", "--disable-dev-shm-usage"]);
        command.arg(format!("--window-size={},{}", size.0, size.1));
        command.arg(format!("--user-data-dir={}", profile.display())).args(words).arg(address);
        command.stdin(Stdio::null()).stdout(file(&out)).stderr(file(&errors));
        let mut child = command.spawn().expect("starting the browser");
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().expect("waiting for the browser") {
                break status;
            }
            if begun.elapsed() > Duration::from_secs(120) {
                let _ = child.kill();
                let _ = child.wait();
                panic!("the browser hangs: {}", std::fs::read_to_string(&errors).unwrap_or_default());
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        let read = |path: &Path| String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned();
        let (out, errors) = (read(&out), read(&errors));
        assert!(status.success(), "{command:?}: {status}\n{errors}");
        (out, errors)
    }

    fn count(&self) -> usize {
        std::fs::read_dir(self.scratch.path()).map_or(0, Iterator::count)
    }
}
