//! What the kernel says.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use sys::netns::NetNs;

use super::{Inventory, Kind};

/// The folder that the hierarchy of a cgroup is mounted at.
pub(super) fn hierarchy(cgroup: &Path) -> Option<PathBuf> {
    const ROOT: &str = "/sys/fs/cgroup";
    let is_unified = Path::new(ROOT).join("cgroup.controllers").exists();
    if is_unified {
        return Some(ROOT.into());
    }
    let name = cgroup.strip_prefix(ROOT).ok()?.components().next()?;
    Some(Path::new(ROOT).join(name))
}

/// The cgroups at and below `root`, and the processes in them.
pub(crate) fn cgroups(root: &Path, found: &mut Inventory, pids: &mut BTreeSet<String>) {
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        found.add(Kind::Cgroup, folder.display().to_string());
        let inside = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
        pids.extend(inside.lines().map(str::to_owned));
        folders.extend(entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()));
    }
}

/// The processes, and the network namespaces that they are in or hold.
pub(super) fn of_processes(pids: &BTreeSet<String>, host: &NetNs, found: &mut Inventory) -> Result<()> {
    let of = |path: &Path| fs::read_link(path).ok().map(|link| link.display().to_string());
    let ours = of(Path::new("/proc/self/ns/net"));
    let hosts = of(&PathBuf::from(format!("/proc/self/fd/{}", host.as_fd().as_raw_fd())));
    let mut namespaces = BTreeSet::new();
    for pid in pids {
        let folder = Path::new("/proc").join(pid);
        let Ok(command) = fs::read(folder.join("cmdline")) else { continue };
        let name = String::from_utf8_lossy(&command).replace('\0', " ").trim().to_owned();
        if name.is_empty() {
            // It has ended and waits for whoever reaps it.
            continue;
        }
        found.add(Kind::Process, name);
        let held = fs::read_dir(folder.join("fd")).into_iter().flatten().flatten();
        let held = held.filter_map(|entry| of(&entry.path())).filter(|link| link.starts_with("net:["));
        namespaces.extend(held.chain(of(&folder.join("ns/net"))));
    }
    let foreign =
        namespaces.into_iter().filter(|name| Some(name) != ours.as_ref() && Some(name) != hosts.as_ref());
    foreign.for_each(|name| found.add(Kind::NetworkNamespace, name));
    Ok(())
}

/// Mounts, loop devices, links, routes and rules.
pub(super) fn of_host(data_dir: &Path, host: &NetNs, found: &mut Inventory) -> Result<()> {
    for mount in sys::mount::mounts()?.into_iter().filter(|mount| mount.target.starts_with(data_dir)) {
        found.add(Kind::Mount, mount.target.display().to_string());
    }
    for device in fs::read_dir("/sys/block")?.flatten() {
        let backing = fs::read_to_string(device.path().join("loop/backing_file")).unwrap_or_default();
        if Path::new(backing.trim_end()).starts_with(data_dir) {
            found.add(Kind::LoopDevice, backing.trim_end());
        }
    }
    let (links, routes) = host.run(|| {
        let mut route = sys::netlink::Route::open()?;
        Ok((route.links()?, route.routes()?))
    })?;
    links.into_iter().for_each(|link| found.add(Kind::Link, link.name));
    routes.iter().for_each(|route| found.add(Kind::Route, format!("{:?}", route.destination)));
    rules(host, found)
}

/// Each thing that `nft` lists.
fn rules(host: &NetNs, found: &mut Inventory) -> Result<()> {
    let namespace = format!("--net=/proc/{}/fd/{}", std::process::id(), host.as_fd().as_raw_fd());
    let mut nft = Command::new("nsenter");
    nft.arg(namespace).args(["nft", "--stateless", "--json", "list", "ruleset"]).stdin(Stdio::null());
    let output = nft.output().context("run nft (Debian package nftables)")?;
    if !output.status.success() {
        bail!("nft list ruleset: {}", String::from_utf8_lossy(&output.stderr));
    }
    let listed: Value = serde_json::from_slice(&output.stdout).context("read what nft lists")?;
    for thing in listed["nftables"].as_array().into_iter().flatten() {
        flatten(thing, found);
    }
    Ok(())
}

/// A set is as many things as it has elements; where a thing lies in the kernel does not matter.
fn flatten(thing: &Value, found: &mut Inventory) {
    for (kind, body) in thing.as_object().into_iter().flatten().filter(|(kind, _)| *kind != "metainfo") {
        let mut body = body.clone();
        let elements = body.as_object_mut().and_then(|body| {
            body.remove("handle");
            body.remove("elem")
        });
        let place = format!(
            "{} {}",
            body["table"].as_str().unwrap_or_default(),
            body["name"].as_str().unwrap_or_default()
        );
        for element in elements.iter().flat_map(|elements| elements.as_array()).flatten() {
            found.add(Kind::Rule, format!("element of {place}: {element}"));
        }
        found.add(Kind::Rule, format!("{kind} {body}"));
    }
}
