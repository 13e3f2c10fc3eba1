//! Finds the two packages through their own clients, `cargo` and `pip`, at pinned versions.

use anyhow::{Context as _, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The version of `k8s-pb` in the Rust registry.
const PB_VERSION: &str = "0.9.0";
/// The version of `kubernetes-validate`, a Python package.
const VALIDATE_VERSION: &str = "1.37.0";
/// The API level within `kubernetes-validate`.
const LEVEL: &str = "v1.35.0-local";

/// Where the sources lie.
pub(super) struct Sources {
    /// The root of the workspace.
    pub(super) root: PathBuf,
    /// `src/` of the `k8s-pb` package.
    pub(super) pb: PathBuf,
    /// The file of OpenAPI definitions.
    pub(super) definitions: PathBuf,
}

/// Fetches what is not there yet into `target/codegen`.
pub(super) fn fetch() -> Result<Sources> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask lies in the workspace")?;
    let scratch = root.join("target/codegen");
    std::fs::create_dir_all(&scratch)?;
    Ok(Sources { pb: pb(&scratch)?, definitions: definitions(&scratch)?, root: root.into() })
}

fn pb(scratch: &Path) -> Result<PathBuf> {
    let manifest = scratch.join("Cargo.toml");
    std::fs::write(
        &manifest,
        format!(
            "[package]\nname = \"scratch\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[lib]\npath = \"lib.rs\"\n\
             [workspace]\n[dependencies]\nk8s-pb = \"={PB_VERSION}\"\n"
        ),
    )?;
    std::fs::write(scratch.join("lib.rs"), "")?;
    let output = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()))
        .args(["metadata", "--format-version=1", "--manifest-path"])
        .arg(&manifest)
        .output()?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let package = metadata["packages"]
        .as_array()
        .and_then(|all| all.iter().find(|package| package["name"] == "k8s-pb"))
        .context("cargo metadata does not list k8s-pb")?;
    let manifest = package["manifest_path"].as_str().context("k8s-pb has no manifest path")?;
    Ok(Path::new(manifest).with_file_name("src"))
}

fn definitions(scratch: &Path) -> Result<PathBuf> {
    let file =
        scratch.join("kubernetes_validate/kubernetes-json-schema").join(LEVEL).join("_definitions.json");
    if file.exists() {
        return Ok(file);
    }
    run(Command::new("python3")
        .args(["-m", "pip", "download", "--no-deps", "--quiet", "--dest"])
        .arg(scratch)
        .arg(format!("kubernetes-validate=={VALIDATE_VERSION}")))?;
    let wheel = scratch.join(format!("kubernetes_validate-{VALIDATE_VERSION}-py3-none-any.whl"));
    run(Command::new("python3").args(["-m", "zipfile", "-e"]).arg(wheel).arg(scratch))?;
    ensure!(file.exists(), "kubernetes-validate {VALIDATE_VERSION} holds no {LEVEL}");
    Ok(file)
}

fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("run {command:?}"))?;
    ensure!(status.success(), "{command:?} ended with {status}");
    Ok(())
}
