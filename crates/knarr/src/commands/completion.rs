//! `knarr completion SHELL`: prints a script; `source <(knarr completion bash)`.

use std::io::{ErrorKind, Write};

use anyhow::Result;
use cli::args::Shell;

/// Prints it.
pub(crate) fn run(shell: Shell) -> Result<()> {
    match std::io::stdout().write_all(&cli::completion(shell)) {
        // Whoever reads has seen enough.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}
