//! `knarr version`

use std::io::Write;

/// Prints the version and the API level.
pub(crate) fn run() -> anyhow::Result<()> {
    writeln!(std::io::stdout(), "knarr {} (Kubernetes API v1.35)", env!("CARGO_PKG_VERSION"))?;
    Ok(())
}
