//! The kernel's word that processes wait for memory: pressure stall information.
//!
//! Where the kernel has none, nobody is woken and the timer must do. Source: `Documentation/accounting/psi.rst`.

use std::fs::File;
use std::io::Write;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

const FILE: &str = "/proc/pressure/memory";
/// Some process waited 150 ms within a second.
const TRIGGER: &[u8] = b"some 150000 1000000\0";

/// See the module.
pub(super) struct MemoryPressure(Option<AsyncFd<File>>);

impl MemoryPressure {
    /// Asks the kernel to tell.
    pub(super) fn open() -> Self {
        match open() {
            Ok(file) => Self(Some(file)),
            Err(error) => {
                tracing::debug!(%error, "the kernel does not tell when memory gets scarce");
                Self(None)
            }
        }
    }

    /// Waits until memory gets scarce; at most once a second.
    pub(super) async fn rises(&mut self) {
        let Some(file) = &mut self.0 else { return std::future::pending().await };
        match file.ready(Interest::PRIORITY).await {
            Ok(mut ready) => ready.clear_ready(),
            Err(error) => {
                tracing::warn!(%error, "the kernel tells no more when memory gets scarce");
                self.0 = None;
            }
        }
    }
}

#[expect(deprecated, reason = "its replacement is unsafe; a File keeps its descriptor for itself")]
fn open() -> std::io::Result<AsyncFd<File>> {
    let mut file = File::options().read(true).write(true).open(FILE)?;
    file.write_all(TRIGGER)?;
    AsyncFd::with_interest(file, Interest::PRIORITY)
}
