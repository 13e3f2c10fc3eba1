//! The asynchronous runtimes that commands and parts of the program work on.

use std::future::Future;
use std::io;
use std::pin::Pin;

use tokio::runtime::Builder;

/// A runtime; what is left of its tasks ends with it.
pub(crate) struct AsyncRuntime(tokio::runtime::Runtime);

impl AsyncRuntime {
    /// A runtime on the calling thread, for a command that asks somebody and is done.
    ///
    /// # Errors
    /// If the kernel has no descriptors for it.
    pub(crate) fn on_this_thread() -> io::Result<Self> {
        Builder::new_current_thread().enable_all().build().map(Self)
    }

    /// A runtime with a thread for each core, called `name`.
    ///
    /// # Errors
    /// If the kernel has no descriptors or threads for it.
    pub(crate) fn on_threads(name: &'static str) -> io::Result<Self> {
        Builder::new_multi_thread().enable_all().thread_name(name).build().map(Self)
    }

    /// What `work` comes to. It is boxed: a runtime's loop is built into the program for each type of future that it waits for.
    pub(crate) fn block_on<'a, T>(&self, work: impl Future<Output = T> + 'a) -> T {
        let work: Pin<Box<dyn Future<Output = T> + 'a>> = Box::pin(work);
        self.0.block_on(work)
    }
}
