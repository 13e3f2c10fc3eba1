//! Whether this host can run a cluster, before anything is changed on it.

use std::net::IpAddr;

use anyhow::{Context, Result, bail};

/// Checks what a Node cannot do without.
///
/// # Errors
/// One line that says what is missing and what to do.
pub(crate) fn check() -> Result<()> {
    if !nix::unistd::geteuid().is_root() {
        bail!("a node needs root to make namespaces, mounts and links; run this as root (`sudo knarr ...`)");
    }
    let filesystems = std::fs::read_to_string("/proc/filesystems").context("read /proc/filesystems")?;
    if !filesystems.lines().any(|line| line.trim_start_matches("nodev").trim() == "overlay") {
        bail!("this kernel has no overlayfs, which container images need; load it with `modprobe overlay`");
    }
    Ok(())
}

/// Checks that nobody listens on the API server's port.
///
/// # Errors
/// If somebody does.
pub(crate) fn check_port(address: IpAddr, port: u16) -> Result<()> {
    match std::net::TcpListener::bind((address, port)) {
        Ok(_) => Ok(()),
        Err(error) => {
            bail!("cannot listen on {address}:{port}: {error}; choose another with --https-listen-port")
        }
    }
}

/// The host's name in the form that a Node's name takes.
pub(crate) fn node_name() -> Result<String> {
    let name = nix::unistd::gethostname().context("read the host name")?;
    let name = name.to_string_lossy().to_lowercase();
    let name: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' }).collect();
    let name = name.trim_matches(['-', '.']).to_owned();
    if name.is_empty() {
        bail!("this host has no usable name; give one with --node-name");
    }
    Ok(name)
}

/// The first address that other machines could reach: not a loopback and not a link-local one.
pub(crate) fn node_ip() -> Result<IpAddr> {
    let addresses = sys::netlink::Route::open()?.addresses()?;
    let usable = |ip: &IpAddr| match ip {
        IpAddr::V4(ip) => !ip.is_loopback() && !ip.is_link_local() && !ip.is_unspecified(),
        IpAddr::V6(_) => false,
    };
    let found = addresses.into_iter().map(|address| address.ip).find(usable);
    found.context("this host has no address besides its loopback one; add one, or give it with --node-ip")
}
