//! What the kernel must have, tried rather than read off its version.

use std::path::Path;

use cli::args::{NetworkBackend, ProxyMode, ProxyModeArgs};
use machinery::net::{Cidrs, Family};

use super::{Finding, Subject};
use crate::components;
use crate::host::data_dir::plain;
use crate::layout::Layout;

pub(super) fn nftables(subject: &Subject<'_>) -> Finding {
    match subject.args.proxy_mode.proxy_mode {
        ProxyMode::Nftables => nftables_usable(),
        ProxyMode::Iptables | ProxyMode::Ipvs => Finding::Fine("not needed by Services".into()),
    }
}

/// What leads packets to Services, where that is not nftables.
pub(super) fn proxy_mode(subject: &Subject<'_>) -> Finding {
    proxy_mode_usable(&subject.args.proxy_mode, &subject.args.service_cidr)
}

pub(super) fn proxy_mode_usable(args: &ProxyModeArgs, services: &Cidrs) -> Finding {
    let name = match args.proxy_mode {
        ProxyMode::Nftables => return Finding::Fine("nftables".into()),
        ProxyMode::Iptables => "iptables",
        ProxyMode::Ipvs => "IPVS",
    };
    let mode = components::proxy_mode(args);
    let needs = format!("which Services need with --proxy-mode {}", name.to_lowercase());
    match proxy::try_mode(&mode, services) {
        Ok(()) => Finding::Fine(format!("{name}: usable")),
        Err(proxy::Missing::Iptables(error)) => Finding::failure(
            format!("cannot use iptables, {needs}: {}", cause(&error)),
            "install the package iptables, run with CAP_NET_ADMIN, or choose --proxy-mode nftables",
        ),
        Err(proxy::Missing::Ipvs(error)) => Finding::failure(
            format!("cannot use IPVS, {needs}: {}", cause(&error)),
            "load it with `modprobe ip_vs` and `modprobe ip_set` (CONFIG_IP_VS, CONFIG_IP_SET), run with CAP_NET_ADMIN, \
             or choose --proxy-mode nftables",
        ),
    }
}

pub(super) fn nftables_usable() -> Finding {
    match sys::nftables::try_table(&format!("knarr-check-{}", std::process::id())) {
        Ok(()) => Finding::Fine("usable".into()),
        Err(error) => Finding::failure(
            format!("cannot use nftables, which Services need: {}", cause(&error)),
            "load it with `modprobe nf_tables` (CONFIG_NF_TABLES_IPV4), run with CAP_NET_ADMIN, or leave Services to another proxy with \
             --disable proxy,dns",
        ),
    }
}

/// A cluster with addresses of IPv6 needs a kernel that has it, and has it on.
pub(super) fn ipv6(pods: Cidrs) -> Finding {
    judge_ipv6(pods, sys::netns::sysctl("net/ipv6/conf/all/disable_ipv6").ok().as_deref())
}

/// By the kernel's setting, if it has one. Pure.
fn judge_ipv6(pods: Cidrs, is_disabled: Option<&str>) -> Finding {
    let only_v4 = "give networks of IPv4 alone with --cluster-cidr and --service-cidr";
    match is_disabled {
        _ if pods.of(Family::V6).is_none() => Finding::Fine("not needed".into()),
        None => Finding::failure(
            format!("this kernel has no IPv6, which --cluster-cidr {pods} needs"),
            format!("boot it without ipv6.disable=1 (CONFIG_IPV6), or {only_v4}"),
        ),
        Some("1") => Finding::failure(
            format!("IPv6 is off on this host, and --cluster-cidr {pods} needs it"),
            format!("turn it on with `sysctl -w net.ipv6.conf.all.disable_ipv6=0`, or {only_v4}"),
        ),
        Some(_) => Finding::Fine("usable".into()),
    }
}

/// What carries packets between Nodes, where that is asked for.
pub(super) fn wireguard(subject: &Subject<'_>) -> Finding {
    if subject.args.network.network_backend != NetworkBackend::Wireguard {
        return Finding::Fine("not needed".into());
    }
    match sys::netlink::wireguard::Wireguard::open() {
        Ok(_) => Finding::Fine("usable".into()),
        Err(error) => Finding::failure(
            format!("cannot use WireGuard, which --network-backend wireguard needs: {}", cause(&error)),
            "load it with `modprobe wireguard` (CONFIG_WIREGUARD), or choose --network-backend vxlan",
        ),
    }
}

pub(super) fn overlayfs(subject: &Subject<'_>) -> Finding {
    overlay_at(subject.layout.root())
}

/// Tries an overlay whose upper directory is on the folder's file system, in a mount namespace of its own: nothing is
/// mounted for anybody else, and when this process is killed nothing stays but a folder, which the next check removes, or
/// `knarr reset`.
pub(super) fn overlay_at(root: &Path) -> Finding {
    forget_killed(root);
    let existing = root.ancestors().find(|folder| folder.is_dir()).unwrap_or(Path::new("/"));
    let folder = existing.join(format!("{}{}", Layout::CHECK, std::process::id()));
    let tried = std::thread::scope(|scope| {
        let thread = scope.spawn(|| try_overlay(&folder));
        thread.join().unwrap_or_else(|_| Err(std::io::Error::other("the check ended early")))
    });
    let removed = std::fs::remove_dir_all(&folder);
    match tried.and(removed) {
        Ok(()) => Finding::Fine(format!("usable in {}", existing.display())),
        Err(error) => Finding::failure(
            format!(
                "cannot mount overlayfs, which container images need, on {}: {}",
                existing.display(),
                plain(&error)
            ),
            "load it with `modprobe overlay`, or choose a folder on ext4, xfs, btrfs or tmpfs with --data-dir",
        ),
    }
}

/// Removes the folders of checks whose processes are gone. What cannot be removed says so when `knarr reset` comes to it.
fn forget_killed(root: &Path) {
    for entry in std::fs::read_dir(root).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let checker = name.to_str().and_then(Layout::checker);
        if checker.is_some_and(|process| !Path::new("/proc").join(process).exists()) {
            std::fs::remove_dir_all(entry.path()).ok();
        }
    }
}

fn try_overlay(folder: &Path) -> std::io::Result<()> {
    let [lower, upper, work, target] = ["lower", "upper", "work", "target"].map(|name| folder.join(name));
    for directory in [&lower, &upper, &work, &target] {
        std::fs::create_dir_all(directory)?;
    }
    sys::mount::own_namespace().map_err(io_error)?;
    sys::mount::overlay(&[lower], Some((&upper, &work)), &target).map_err(io_error)?;
    sys::mount::detach(&target).map_err(io_error)
}

fn io_error(error: sys::Error) -> std::io::Error {
    error
        .raw_os_error()
        .map_or_else(|| std::io::Error::other(cause(&error)), std::io::Error::from_raw_os_error)
}

/// Why, without what was attempted.
fn cause(error: &sys::Error) -> String {
    match error.raw_os_error() {
        Some(code) => plain(&std::io::Error::from_raw_os_error(code)),
        None => std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string),
    }
}

pub(super) fn cgroups(_: &Subject<'_>) -> Finding {
    cgroups_usable()
}

pub(super) fn cgroups_usable() -> Finding {
    match sys::cgroup::Cgroups::detect() {
        Err(error) => Finding::failure(
            format!("cannot use cgroups, which containers need: {}", cause(&error)),
            "mount them at /sys/fs/cgroup (`mount -t cgroup2 none /sys/fs/cgroup`)",
        ),
        Ok(cgroups) => {
            let missing: Vec<&str> =
                ["memory", "cpu", "pids"].into_iter().filter(|controller| !cgroups.has(controller)).collect();
            if missing.is_empty() {
                return Finding::Fine(format!("{:?}, with memory, cpu and pids", cgroups.version()));
            }
            Finding::warning(
                format!(
                    "{:?} without {}: limits of that kind have no effect",
                    cgroups.version(),
                    missing.join(", ")
                ),
                "turn the controllers on, on the kernel's command line or in the parent cgroup",
            )
        }
    }
}

pub(super) fn namespaces(_: &Subject<'_>) -> Finding {
    namespaces_usable()
}

pub(super) fn namespaces_usable() -> Finding {
    let all = ["mnt", "net", "pid", "ipc", "uts"];
    let missing: Vec<&str> =
        all.into_iter().filter(|kind| !Path::new("/proc/self/ns").join(kind).exists()).collect();
    if missing.is_empty() {
        return Finding::Fine(all.join(", "));
    }
    Finding::failure(
        format!("this kernel lacks the namespaces {}, which containers need", missing.join(", ")),
        "use a kernel that has them",
    )
}

pub(super) fn landlock(_: &Subject<'_>) -> Finding {
    match sys::landlock::version() {
        Some(version) => Finding::Fine(format!("version {version}")),
        None => Finding::warning(
            "this kernel has no Landlock: the control plane may read what every user may",
            "use a kernel with CONFIG_SECURITY_LANDLOCK, and landlock in its list of security modules (lsm=)",
        ),
    }
}

pub(super) fn seccomp(_: &Subject<'_>) -> Finding {
    if Path::new("/proc/sys/kernel/seccomp/actions_avail").exists() {
        return Finding::Fine("usable".into());
    }
    Finding::warning(
        "this kernel has no seccomp filters: containers can make every system call",
        "use a kernel with CONFIG_SECCOMP_FILTER",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_takes_away_what_killed_ones_have_left() {
        let root = tempfile::tempdir().unwrap();
        let of = |checker: &str| root.path().join(format!("{}{checker}", Layout::CHECK));
        // More than a process's id can be, one that is alive, and none.
        let [killed, alive, other] = ["4194305", "1", "list"].map(of);
        for folder in [&killed, &alive, &other] {
            std::fs::create_dir_all(folder.join("upper")).unwrap();
        }
        forget_killed(root.path());
        assert_eq!([killed, alive, other].map(|folder| folder.exists()), [false, true, true]);
        forget_killed(Path::new("/nowhere"));
    }

    #[test]
    fn a_cluster_with_ipv6_needs_a_kernel_that_has_it() {
        for (pods, is_disabled, expect) in [
            ("10.42.0.0/16", None, None),
            ("10.42.0.0/16", Some("1"), None),
            ("10.42.0.0/16,fd42::/56", Some("0"), None),
            ("fd42::/56", None, Some("this kernel has no IPv6, which --cluster-cidr fd42::/56 needs")),
            (
                "10.42.0.0/16,fd42::/56",
                Some("1"),
                Some("IPv6 is off on this host, and --cluster-cidr 10.42.0.0/16,fd42::/56 needs it"),
            ),
        ] {
            let found = match judge_ipv6(pods.parse().unwrap(), is_disabled) {
                Finding::Failure { what, .. } => Some(what),
                _ => None,
            };
            assert_eq!(found.as_deref(), expect, "{pods}");
        }
    }
}
