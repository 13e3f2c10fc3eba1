//! What a cluster needs of its host, as rows: `server` and `up` stop at the first that fails, `doctor` tells of all.
//!
//! A finding is one line: what is wrong and why, and what to do about it. Looking changes nothing that stays.

mod capacity;
mod conflicts;
mod firewall;
mod kernel;
mod parts;
mod routes;
mod tunnels;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use anyhow::{Result, bail};
use cli::args::{Part, ProxyArgs, ProxyMode, ServerArgs};

use crate::components::KUBELET_PORT;
use crate::host;
use crate::host::data_dir::{self, plain};
use crate::layout::Layout;

const API_SERVER_PORT: &str = "API server's port";

/// What is looked at.
pub(crate) struct Subject<'a> {
    pub(crate) args: &'a ServerArgs,
    pub(crate) layout: &'a Layout,
    /// The Node's addresses, where they are known.
    pub(crate) node_ips: Vec<IpAddr>,
    /// Whether the cluster runs now: then it is the one that has its ports.
    pub(crate) is_running: bool,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    /// As it should be; what there is.
    Fine(String),
    /// Works, but not all of it, or not for long.
    Warning { what: String, fix: String },
    /// A cluster cannot run.
    Failure { what: String, fix: String },
}

impl Finding {
    fn failure(what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::Failure { what: what.into(), fix: fix.into() }
    }

    fn warning(what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::Warning { what: what.into(), fix: fix.into() }
    }
}

/// One thing to look at.
pub(crate) struct Check {
    pub(crate) name: &'static str,
    /// The part that needs it; it is skipped where that part does not run.
    part: Option<Part>,
    pub(crate) look: fn(&Subject<'_>) -> Finding,
}

/// All of them, in the order in which `server` looks.
const CHECKS: &[Check] = &[
    Check { name: "nftables", part: Some(Part::Proxy), look: kernel::nftables },
    Check { name: "proxy mode", part: Some(Part::Proxy), look: kernel::proxy_mode },
    Check { name: "overlayfs", part: Some(Part::Kubelet), look: kernel::overlayfs },
    Check { name: "cgroups", part: Some(Part::Kubelet), look: kernel::cgroups },
    Check { name: "namespaces", part: Some(Part::Kubelet), look: kernel::namespaces },
    Check { name: "seccomp", part: Some(Part::Kubelet), look: kernel::seccomp },
    Check { name: "wireguard", part: Some(Part::Kubelet), look: kernel::wireguard },
    Check { name: "ipv6", part: None, look: |subject| kernel::ipv6(subject.args.cluster_cidr) },
    Check { name: "node address", part: None, look: node_address },
    Check { name: API_SERVER_PORT, part: None, look: api_server_port },
    Check { name: "kubelet's port", part: Some(Part::Kubelet), look: kubelet_port },
];

/// What only `doctor` looks at: nothing here stops a cluster from starting.
const ADVICE: &[Check] = &[
    Check { name: "kernel", part: None, look: capacity::release },
    Check { name: "disk", part: None, look: capacity::disk },
    Check { name: "memory", part: None, look: capacity::memory },
    Check { name: "inotify", part: Some(Part::Kubelet), look: capacity::inotify },
    Check { name: "connections", part: Some(Part::Kubelet), look: capacity::connections },
    Check { name: "ingress ports", part: Some(Part::Ingress), look: ingress_ports },
    Check { name: "data directory", part: None, look: data_directory },
    Check { name: "landlock", part: None, look: kernel::landlock },
    Check { name: "firewall", part: Some(Part::Kubelet), look: firewall::forwarding },
    Check { name: "address conflicts", part: Some(Part::Kubelet), look: conflicts::look },
    Check { name: "pod network", part: Some(Part::Kubelet), look: pod_network },
    Check { name: "image archives", part: Some(Part::Kubelet), look: image_archives },
    Check { name: "pod routes", part: Some(Part::Kubelet), look: routes::look },
    Check { name: "tunnels", part: Some(Part::Kubelet), look: tunnels::look },
    Check { name: "remains", part: None, look: leftovers },
    Check { name: "parts", part: None, look: parts::look },
];

/// # Errors
/// If this process is not root's.
pub(crate) fn root() -> Result<()> {
    if nix::unistd::geteuid().is_root() {
        return Ok(());
    }
    bail!("a cluster needs root to make namespaces, mounts and links; run this as root (`sudo knarr ...`)")
}

/// Stops at the first thing that a cluster cannot do without.
///
/// # Errors
/// What it is, and what to do.
pub(crate) fn demand(subject: &Subject<'_>) -> Result<()> {
    CHECKS
        .iter()
        .filter(|check| check.concerns(subject.args))
        .try_for_each(|check| demanded((check.look)(subject)))
}

/// Stops where the kernel has not the families that the cluster has: before addresses are looked for.
///
/// # Errors
/// As [`demand`].
pub(crate) fn families(args: &ServerArgs) -> Result<()> {
    demanded(kernel::ipv6(args.cluster_cidr))
}

/// The same for a Node without an API server of its own.
///
/// # Errors
/// As [`demand`].
pub(crate) fn demand_of_node(subject: &Subject<'_>) -> Result<()> {
    let of_node = |check: &&Check| check.concerns(subject.args) && check.name != API_SERVER_PORT;
    CHECKS.iter().filter(of_node).try_for_each(|check| demanded((check.look)(subject)))
}

/// The same for what the proxy alone needs of the kernel.
///
/// # Errors
/// As [`demand`].
pub(crate) fn demand_of_proxy(args: &ProxyArgs) -> Result<()> {
    match args.proxy_mode.proxy_mode {
        ProxyMode::Nftables => demanded(kernel::nftables_usable()),
        ProxyMode::Iptables | ProxyMode::Ipvs => {
            demanded(kernel::proxy_mode_usable(&args.proxy_mode, &args.service_cidr))
        }
    }
}

/// The same for what the kubelet alone needs of the kernel.
///
/// # Errors
/// As [`demand`].
pub(crate) fn demand_of_kubelet(layout: &Layout) -> Result<()> {
    demanded(kernel::overlay_at(layout.root()))?;
    demanded(kernel::cgroups_usable())?;
    demanded(kernel::namespaces_usable())
}

fn demanded(finding: Finding) -> Result<()> {
    match finding {
        Finding::Failure { what, fix } => bail!("{what}; {fix}"),
        Finding::Fine(_) | Finding::Warning { .. } => Ok(()),
    }
}

/// Everything, for `doctor`.
pub(crate) fn all(subject: &Subject<'_>) -> Vec<(&'static str, Finding)> {
    let checks = CHECKS.iter().chain(ADVICE).filter(|check| check.concerns(subject.args));
    checks.map(|check| (check.name, (check.look)(subject))).collect()
}

impl Check {
    fn concerns(&self, args: &ServerArgs) -> bool {
        self.part.is_none_or(|part| args.runs(part))
    }
}

fn node_address(subject: &Subject<'_>) -> Finding {
    let has = match host::addresses() {
        Ok(has) => has,
        Err(error) => return Finding::failure(format!("{error:#}"), "run this as root"),
    };
    let list = has.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let wanted = &subject.node_ips;
    if wanted.is_empty() {
        let families = || subject.args.cluster_cidr.iter().map(|cidr| cidr.family());
        let missing = families().find_map(|family| host::first_of(&has, family).err());
        let missing = missing.map_or_else(|| "no address was chosen".to_owned(), |error| error.to_string());
        let (what, fix) = missing.split_once("; ").unwrap_or((&missing, "give one with --node-ip"));
        return Finding::failure(what, fix);
    }
    match wanted.iter().find(|ip| !has.contains(ip)) {
        None => Finding::Fine(wanted.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")),
        Some(ip) => Finding::failure(
            format!("{ip} is not an address of this host"),
            format!(
                "give one that is with --node-ip ({})",
                if list.is_empty() { "it has none" } else { &list }
            ),
        ),
    }
}

fn api_server_port(subject: &Subject<'_>) -> Finding {
    port(
        subject,
        subject.args.bind_address,
        subject.args.https_listen_port,
        "choose another with --https-listen-port",
    )
}

fn kubelet_port(subject: &Subject<'_>) -> Finding {
    let asked = cli::kubelet::ConfigurationArgs::from_pairs(&subject.args.kubelet_arg).ok();
    let number = asked.and_then(|asked| asked.port).unwrap_or(KUBELET_PORT);
    let look = |ip: &IpAddr| {
        port(
            subject,
            *ip,
            number,
            "another kubelet may run here: stop it, choose another port with --kubelet-arg port=10260, or leave this one \
         out with --disable agent",
        )
    };
    let mut found = subject.node_ips.iter().map(look);
    let first = found.next().unwrap_or_else(|| Finding::Fine("not looked at: no address".into()));
    found
        .find(|other| !matches!(other, Finding::Fine(_)))
        .filter(|_| matches!(first, Finding::Fine(_)))
        .unwrap_or(first)
}

/// A cluster runs without them.
fn ingress_ports(subject: &Subject<'_>) -> Finding {
    let args = &subject.args.ingress;
    let ports = [args.ingress_http_port, args.ingress_https_port];
    let ports = || ports.into_iter().filter(|port| *port != 0);
    let told: Vec<String> = ports().map(|port| port.to_string()).collect();
    if subject.is_running {
        return Finding::Fine(format!("{}, those of this cluster", told.join(" and ")));
    }
    let listen = |port| base::listen::blocking((Ipv4Addr::UNSPECIFIED, port).into());
    let taken = ports().find_map(|port| Some((port, listen(port).err()?)));
    match taken {
        None => Finding::Fine(format!("{} are free", told.join(" and "))),
        Some((port, error)) => Finding::warning(
            format!("cannot listen on {port}, so that Ingresses are not served there: {}", plain(&error)),
            "end who has it (`ss -ltnp`), choose others with --ingress-http-port and --ingress-https-port, or leave them \
             out with --disable ingress",
        ),
    }
}

fn port(subject: &Subject<'_>, address: IpAddr, port: u16, fix: &str) -> Finding {
    if subject.is_running {
        return Finding::Fine(format!("{port}, taken by this cluster"));
    }
    let address = SocketAddr::new(address, port);
    match base::listen::blocking(address) {
        Ok(_) => Finding::Fine(format!("{port} is free")),
        Err(error) => Finding::failure(format!("cannot listen on {address}: {}", plain(&error)), fix),
    }
}

fn data_directory(subject: &Subject<'_>) -> Finding {
    let root = subject.layout.root().display();
    match data_dir::look(subject.layout) {
        Ok(_) if subject.is_running => Finding::Fine(format!("{root}, a cluster that runs")),
        Ok(data_dir::State::Ours) => Finding::Fine(format!("{root}, a cluster that is stopped")),
        Ok(data_dir::State::New) => Finding::Fine(format!("{root}, no cluster yet")),
        Err(error) => {
            let text = error.to_string();
            let (what, fix) = text.split_once("; ").unwrap_or((&text, "choose another with --data-dir"));
            Finding::failure(what, fix)
        }
    }
}

/// Where other container runtimes have their networks' configurations, and what the manifests of networks write to.
const USUAL_CNI_CONF_DIR: &str = "/etc/cni/net.d";

fn pod_network(subject: &Subject<'_>) -> Finding {
    let runtime = &subject.args.container_runtime;
    if runtime.container_runtime_endpoint.is_some() {
        return Finding::Fine("the container runtime's".into());
    }
    if let Some(folder) = &runtime.cni_conf_dir {
        return Finding::Fine(format!("what is in {}", folder.display()));
    }
    let is_conf = |path: std::path::PathBuf| {
        path.extension().is_some_and(|it| it == "conflist" || it == "conf" || it == "json")
    };
    let mut entries = std::fs::read_dir(USUAL_CNI_CONF_DIR).into_iter().flatten().flatten();
    if !entries.any(|entry| is_conf(entry.path())) {
        return Finding::Fine("built in".into());
    }
    Finding::warning(
        format!("{USUAL_CNI_CONF_DIR} has a network's configuration, which this cluster does not use"),
        format!("if Pods are to be attached by it, start with --cni-conf-dir {USUAL_CNI_CONF_DIR}"),
    )
}

fn image_archives(subject: &Subject<'_>) -> Finding {
    match subject.layout.bad_archives().as_slice() {
        [] => Finding::Fine("none that cannot be imported".into()),
        bad => Finding::warning(
            bad.iter()
                .map(|(file, error)| format!("{file} was not imported: {error}"))
                .collect::<Vec<_>>()
                .join("; "),
            "export the image anew into the same file, or remove it",
        ),
    }
}

fn leftovers(_: &Subject<'_>) -> Finding {
    let (running, vanished): (Vec<_>, Vec<_>) =
        data_dir::vanished().into_iter().partition(|folder| has_processes(folder));
    let Some(first) = vanished.first() else {
        if let Some(first) = running.first() {
            return Finding::Fine(format!(
                "none; a cluster runs whose folder is not seen from here: {}",
                first.display()
            ));
        }
        return Finding::Fine("none of clusters that are gone".into());
    };
    let all = vanished.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(", ");
    Finding::warning(
        format!("links, tables or cgroups may be left of clusters whose folder is gone: {all}"),
        format!("remove them with `knarr reset --data-dir {}`", first.display()),
    )
}

/// Whether a process works for the cluster in this folder, which may be seen by that process alone.
fn has_processes(folder: &std::path::Path) -> bool {
    let wanted = folder.as_os_str().as_encoded_bytes();
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let own = std::process::id().to_string();
    let others = processes.filter(|process| process.file_name() != own.as_str());
    let mut commands = others.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
    commands.any(|command| {
        let mut words = command.split(|byte| *byte == 0);
        words.any(|word| {
            word == wanted || word.strip_prefix(b"--data-dir=").is_some_and(|word| word == wanted)
        })
    })
}
