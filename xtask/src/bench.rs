//! `cargo xtask bench [--quick] [--only NAME]... [-o json]`: measures a release build. What is measured, and how, is the
//! crate `bench`; records are kept in `docs/bench`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

pub(crate) fn run() -> Result<()> {
    let root = crate::tidy::root()?;
    // Both in one build, so that they share what they depend on.
    step(cargo().args(["build", "--release", "-p", "knarr", "-p", "bench"]).current_dir(&root))?;
    let bench = target_directory(&root)?.join("release/bench");
    step(Command::new(bench).args(std::env::args().skip(2)))
}

/// Cargo as a shell calls it.
pub(crate) fn cargo() -> Command {
    as_from_a_shell("cargo")
}

/// What calls cargo. Build scripts look at what `cargo run` has told us about ourselves: what they make, and all that
/// stands on it, would be built anew each time.
pub(crate) fn as_from_a_shell(program: &str) -> Command {
    let mut command = Command::new(program);
    let ours = std::env::vars_os().map(|(name, _)| name).filter(|name| {
        let name = name.to_string_lossy();
        name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
    });
    for name in ours {
        command.env_remove(name);
    }
    command
}

pub(crate) fn target_directory(root: &Path) -> Result<PathBuf> {
    let output = cargo()
        .args(["metadata", "--no-deps", "--format-version=1"])
        .current_dir(root)
        .output()
        .context("run cargo metadata")?;
    let metadata: serde_json::Value =
        serde_json::from_slice(&output.stdout).context("read cargo metadata")?;
    let folder = metadata["target_directory"].as_str().context("cargo metadata names no target directory")?;
    Ok(folder.into())
}

pub(crate) fn step(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command.status().with_context(|| format!("run {program}"))?;
    if !status.success() {
        bail!("{program} ended with {status}");
    }
    Ok(())
}
