//! `cargo xtask bench`: measures a release build.

use anyhow::Result;

pub(crate) fn run() -> Result<()> {
    anyhow::bail!("not yet")
}
