//! Where the real clients lie that `cargo xtask clients` fetched, and an OCI runtime.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

/// The kubectl versions that sessions run with; each is the name of a folder with a `kubectl` in it.
pub const KUBECTLS: [&str; 2] = ["kubectl-1.32", "kubectl-1.36"];

/// Debian's kubectl: it speaks SPDY where newer ones speak WebSocket, and asks for discovery the old way.
pub const KUBECTL_SPDY: &str = "kubectl-1.20";

/// The folder with the program `kubectl` of that version.
///
/// # Errors
/// If it has not been fetched; the message says how.
pub fn folder(name: &str) -> Result<PathBuf> {
    folder_with(name, "kubectl")
}

/// An OCI runtime that Debian does not have.
///
/// # Errors
/// If it has not been fetched; the message says how.
pub fn youki() -> Result<PathBuf> {
    Ok(folder_with("youki-0.7.0", "bin/youki")?.join("bin/youki"))
}

pub(crate) fn folder_with(name: &str, program: &str) -> Result<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.cache/clients").join(name);
    if !folder.join(program).is_file() {
        bail!("{} is missing in {}; run `cargo xtask clients`", name, folder.display());
    }
    Ok(folder.canonicalize()?)
}
