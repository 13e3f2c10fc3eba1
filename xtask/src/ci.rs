//! What CI runs, and what anyone runs before a commit: `cargo xtask ci`.
//!
//! Installs what the tests need from Debian's packages when it is missing, then formats, lints, tidies and tests.
//! The whole-cluster tests run the real binary with real clients, as root, in network namespaces of their own.

use std::process::Command;

use anyhow::{Context, Result, bail};

/// Program, by name or path, and the Debian package that has it.
const NEEDED: &[(&str, &str)] = &[
    ("busybox", "busybox-static"),
    ("containerd", "containerd"),
    ("runc", "runc"),
    ("crun", "crun"),
    ("pkg-config", "pkg-config"),
    ("/usr/include/seccomp.h", "libseccomp-dev"),
    ("/usr/lib/cni/ptp", "containernetworking-plugins"),
    ("docker-registry", "docker-registry"),
    ("dbus-daemon", "dbus-daemon"),
    ("etcd", "etcd-server"),
    ("etcdctl", "etcd-client"),
    ("linux.uml", "user-mode-linux"),
    ("nft", "nftables"),
    ("nsenter", "util-linux"),
    ("script", "bsdutils"),
    ("curl", "curl"),
    ("openssl", "openssl"),
    ("strace", "strace"),
    ("faketime", "faketime"),
    ("npm", "npm"),
    ("node", "nodejs"),
    ("python3", "python3"),
    ("pip3", "python3-pip"),
    ("unzip", "unzip"),
];

pub(crate) fn run() -> Result<()> {
    install_needed()?;
    step("cargo", &["fmt", "--all", "--check"])?;
    crate::tidy::run()?;
    step("cargo", &["clippy", "--workspace", "--all-targets", "--quiet", "--", "--deny", "warnings"])?;
    step("cargo", &["test", "--workspace", "--quiet", "--no-fail-fast"])?;
    step("cargo", &["run", "--release", "--quiet", "--", "demo"])
}

fn install_needed() -> Result<()> {
    let missing: Vec<&str> =
        NEEDED.iter().filter(|(program, _)| !has(program)).map(|(_, package)| *package).collect();
    if !missing.is_empty() {
        step("apt-get", &["update", "--quiet"])?;
        let mut arguments = vec!["install", "--yes", "--quiet", "--no-install-recommends"];
        arguments.extend(missing);
        step("apt-get", &arguments)?;
    }
    crate::clients::run()
}

fn has(program: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths).any(|folder| folder.join(program).is_file())
}

fn step(program: &str, arguments: &[&str]) -> Result<()> {
    eprintln!("ci: {program} {}", arguments.join(" "));
    let mut command = if program == "cargo" { crate::bench::cargo() } else { Command::new(program) };
    let status = command
        .args(arguments)
        .current_dir(crate::tidy::root()?)
        .status()
        .with_context(|| format!("run {program}"))?;
    if !status.success() {
        bail!("`{program} {}` failed", arguments.join(" "));
    }
    Ok(())
}
