//! `knarr completion SHELL`: prints a script; `source <(knarr completion bash)`.

use std::io::Write;

use anyhow::Result;
use cli::args::Shell;

/// Prints it.
pub(crate) fn run(shell: Shell) -> Result<()> {
    Ok(std::io::stdout().write_all(&cli::completion(shell))?)
}
