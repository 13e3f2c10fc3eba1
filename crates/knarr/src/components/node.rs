//! The node's process: runtime, kubelet, proxy, DNS. Root, but an ordinary client of the API.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use base::{Clock, Random, Tasks};
use cli::args::{NodePortArgs, Part, ProxyMode, ProxyModeArgs};
use controller::trace::Reporter;
use controller::{ClientMetrics, FlushedRules, Informers};
use jiff::Timestamp;
use machinery::net::Cidr;
use nix::sys::signal::Signal;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use tokio::signal::unix::{SignalKind, signal};

use super::Settings;
use super::authorities::KUBELET_CLIENT_CA;
use super::container_runtime::{self, ContainerRuntime};
use super::node_network::NodeNetwork;
use super::pod_routes::{Follower, Overlay, PodNetwork};
use super::servers::Servers;
use super::serving::{read_certificates, tls};
use super::tunnels::Tunnels;
use crate::async_runtime::AsyncRuntime;
use crate::kube_client;
use crate::layout::Layout;
use crate::ready::Ready;

/// The kubelet's port, as everywhere.
pub(crate) const KUBELET_PORT: u16 = 10_250;
/// Where the proxy says how it is, and what it counts. Source: kube-proxy's defaults.
const PROXY_HEALTHZ_PORT: u16 = 10_256;
const PROXY_METRICS_PORT: u16 = 10_249;

/// Runs the node until it is told to stop.
pub(crate) fn node(layout: &Layout) -> Result<()> {
    sys::process::die_with_parent(Signal::SIGKILL as i32)?;
    let settings = Settings::load(layout)?;
    // Volumes that are mounted into containers need a mount tree of their own that propagates.
    let runtime = AsyncRuntime::on_threads("node")?;
    runtime.block_on(run(&settings, layout))
}

/// The process of a Node: what its parts share.
struct NodeProcess<'a> {
    settings: &'a Settings,
    layout: &'a Layout,
    /// As kube-proxy.
    informers: Informers,
    /// As the kubelet.
    kubelet_informers: Informers,
    reporter: Reporter,
    tasks: Tasks,
}

async fn run(settings: &Settings, layout: &Layout) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let tasks = Tasks::new();
    let (clock, random) = (Clock::system(), Random::from_system());
    let servers = Servers::load(home(settings), layout)?;
    let client = async |kubeconfig: &Path, agent: &'static str| {
        servers.client(&kube_client::config(kubeconfig, agent).await?)
    };
    let connection = kube_client::config(&layout.agent_kubeconfig(), "kubelet").await?;
    let kubelet_client = servers.client(&connection)?;
    let proxy_client = client(&layout.proxy_kubeconfig(), "kube-proxy").await?;
    let reporter = Reporter::start(kubelet_client.clone(), &tasks);
    let metrics = ClientMetrics::default();
    let informers_as = |part, client| {
        let (clock, random) = (clock.clone(), random.clone());
        Informers::metered(client, tasks.clone(), clock, random, metrics.of_part(part))
    };
    let informers = informers_as("kube-proxy", proxy_client);
    let kubelet_informers = informers_as("kubelet", kubelet_client);
    tasks.spawn("API servers", servers.clone().follow(informers.clone()));
    let node = NodeProcess { settings, layout, informers, kubelet_informers, reporter, tasks };
    let NodeProcess { kubelet_informers, reporter, tasks, .. } = &node;
    let (node_network, ()) = tokio::select! {
        found = async {
            tokio::try_join!(node_network(settings, layout, kubelet_informers), node.start_network())
        } => found?,
        _ = terminate.recv() => return Ok(()),
        _ = interrupt.recv() => return Ok(()),
    };
    node.keep_wire();
    if settings.args.runs(Part::Kubelet) {
        let policed = node.policed()?;
        let flushed = pod_network_flushes(kubelet_informers, &settings.node_name);
        let told = container_runtime::Told { reporter: reporter.clone(), policed: policed.clone(), flushed };
        let container_runtime =
            container_runtime::open(&settings.args.container_runtime, layout, &node_network, told, tasks)
                .await?;
        node.start_policies(&node_network, policed);
        super::conflicts::follow(&settings.node_name, &settings.node_ips(), kubelet_informers, tasks);
        super::pod_cidr::follow(settings, layout, kubelet_informers, tasks);
        node.follow_routes(&node_network);
        let arguments = settings.args.registration.kubelet_args(&settings.args.kubelet_arg);
        super::kubelet_config::settle_root(layout, &arguments)?;
        if settings.args.runs(Part::CsiHostpath) {
            start_storage(&node_network, layout, tasks)?;
        }
        let server = own_server_config(layout, settings.node_ips())?;
        let config = kubelet::Config {
            client_certificate_ends: client_certificate_end(&connection),
            ..kubelet_config(&node_network, layout, Some(server))
        };
        let config = super::kubelet_config::of_node(config, layout, &arguments)?;
        node.start_tunnels(&config, &servers);
        tasks.spawn("readiness of the Node", announce_node(kubelet_informers.clone(), settings.clone()));
        start_kubelet(config, kubelet_informers.clone(), container_runtime, reporter.clone(), tasks);
    }
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        () = tasks.stopping() => {}
    }
    tasks.stop_and_wait().await;
    Ok(())
}

impl NodeProcess<'_> {
    /// Proxy and DNS, each once it works.
    async fn start_network(&self) -> Result<()> {
        if self.settings.args.runs(Part::Proxy) {
            self.start_proxy().await?;
            Ready::Proxy.announce();
        }
        if self.settings.args.runs(Part::Dns) {
            self.start_dns().await?;
            Ready::Dns.announce();
        }
        Ok(())
    }

    async fn start_proxy(&self) -> Result<()> {
        let Self { settings, layout, .. } = self;
        let config = proxy::Config {
            cluster_id: layout.cluster_id(),
            node_name: settings.node_name.clone(),
            node_ips: settings.node_ips(),
            cluster_cidrs: settings.args.cluster_cidr,
            service_cidrs: settings.args.service_cidr,
            local_addresses: settings.args.dns_addresses(),
            mode: proxy_mode(&settings.args.proxy_mode),
            node_port_addresses: node_port_addresses(&settings.args.node_ports)?,
            healthz_address: Some((Ipv4Addr::UNSPECIFIED, PROXY_HEALTHZ_PORT).into()),
            metrics_address: Some((Ipv4Addr::LOCALHOST, PROXY_METRICS_PORT).into()),
        };
        run_proxy(config, &self.informers, self.reporter.clone(), &self.tasks).await
    }

    /// Listens on the cluster's DNS address, which the proxy has put on its own link.
    async fn start_dns(&self) -> Result<()> {
        let args = &self.settings.args;
        let own = args.dns_addresses();
        let config = dns::Config {
            bind: own.iter().map(|ip| SocketAddr::new(*ip, 53)).collect(),
            domain: args.cluster_domain.clone(),
            upstreams: dns::upstreams(&std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default(), &own),
            reverse_cidrs: args.cluster_cidr.iter().chain(args.service_cidr.iter()).collect(),
        };
        let mut running = dns::run(&self.informers, config, self.reporter.clone(), &self.tasks).await?;
        running.ready.wait_for(|ready| *ready).await.context("DNS ended before it had begun")?;
        Ok(())
    }

    /// Keeps the rules between the Nodes of this host, if it has several.
    fn keep_wire(&self) {
        let Self { settings, layout, informers, tasks, .. } = self;
        let recorder = informers.recorder_on("kube-proxy", &settings.node_name);
        let rules = "between the Nodes of this host";
        let flushed = FlushedRules::new(informers, recorder, &settings.node_name, rules);
        super::local_network::keep_rules(settings, layout, flushed, tasks);
    }

    /// The sandboxes that network policies are for, if this Node has them; otherwise none of their rules are left.
    fn policed(&self) -> Result<Option<network_policy::Sandboxes>> {
        let Self { settings, layout, .. } = self;
        let is_builtin = container_runtime::has_builtin_network(&settings.args.container_runtime, layout);
        if settings.args.runs(Part::NetworkPolicy) && is_builtin {
            return Ok(Some(network_policy::Sandboxes::default()));
        }
        network_policy::cleanup(&layout.cluster_id()).context("remove the rules of network policies")?;
        Ok(None)
    }

    /// Enforces policies on these sandboxes. Those of before are known: what an earlier process has left in the kernel stays in
    /// force until then.
    fn start_policies(&self, node_network: &NodeNetwork, policed: Option<network_policy::Sandboxes>) {
        let Some(policed) = policed else { return };
        let config = network_policy::Config {
            cluster_id: self.layout.cluster_id(),
            node_name: self.settings.node_name.clone(),
            families: node_network.pod_cidrs.iter().map(Cidr::family).collect(),
        };
        network_policy::run(&self.informers, config, policed, self.reporter.clone(), &self.tasks);
    }

    /// Routes to the Pods of other Nodes.
    fn follow_routes(&self, node_network: &NodeNetwork) {
        let settings = self.settings;
        let is_foreign = settings.args.container_runtime.has_foreign_network();
        let overlay = Overlay::of(&settings.args.network, node_network).filter(|_| !is_foreign);
        let network = match (is_foreign, overlay) {
            (true, _) => PodNetwork::Foreign,
            (false, Some(_)) => PodNetwork::Overlay,
            (false, None) => PodNetwork::BuiltIn,
        };
        let follower = Follower {
            own_name: settings.node_name.clone(),
            cluster: node_network.cluster_cidrs,
            layout: self.layout.clone(),
            network,
            overlay,
            informers: self.informers.clone(),
            kubelet: self.kubelet_informers.clone(),
        };
        self.tasks.spawn("Pod routes", follower.follow());
    }

    /// The tunnels through which servers elsewhere reach this Node's kubelet, if it can be reached at all.
    fn start_tunnels(&self, config: &kubelet::Config, servers: &Servers) {
        let Some(server) = &config.server else { return };
        let listens = server.ips.first().copied().filter(|ip| !ip.is_unspecified());
        let tunnels = Tunnels {
            node_name: config.node_name.clone(),
            node_ips: config.node_ips.iter().filter_map(|ip| ip.parse().ok()).collect(),
            kubelet: SocketAddr::new(listens.unwrap_or(self.settings.node_ip), server.port),
            home: home(self.settings),
            servers: servers.clone(),
            layout: self.layout.clone(),
            random: self.kubelet_informers.random().clone(),
        };
        tunnels.start(&self.kubelet_informers, &self.tasks);
    }
}

/// Who tells of rules of the built-in network that somebody has taken.
pub(super) fn pod_network_flushes(informers: &Informers, node: &str) -> FlushedRules {
    FlushedRules::new(informers, informers.recorder_on("kubelet", node), node, "of the Pod network")
}

/// The driver of the default StorageClass, which the kubelet learns of as of any other.
fn start_storage(node_network: &NodeNetwork, layout: &Layout, tasks: &Tasks) -> Result<()> {
    let name = csi::driver::NAME;
    let config = csi::driver::Config {
        name: name.to_owned(),
        node_id: node_network.node_name.clone(),
        folder: layout.csi_hostpath(),
        socket: layout.kubelet().join("plugins").join(name).join("csi.sock"),
        registration_socket: Some(layout.kubelet().join("plugins_registry").join(format!("{name}-reg.sock"))),
        volumes_max: 0,
    };
    csi::driver::start(&config, tasks).context("start the host-path storage driver")
}

/// This host's own API server, if it has one.
pub(super) fn home(settings: &Settings) -> Option<SocketAddr> {
    settings.joined.is_none().then(|| super::identity::reachable(settings))
}

/// Waits until the Node has a range for its Pods, if it has Pods.
async fn node_network(settings: &Settings, layout: &Layout, informers: &Informers) -> Result<NodeNetwork> {
    let args = &settings.args;
    let cluster_cidrs = args.cluster_cidr;
    let pod_cidrs = match args.runs(Part::Kubelet) {
        true => super::pod_cidr::of_node(settings, layout, informers).await?,
        false => cluster_cidrs,
    };
    Ok(NodeNetwork {
        node_name: settings.node_name.clone(),
        node_ips: settings.node_ips(),
        provided_node_ips: args.node_ip.clone(),
        pod_cidrs,
        pod_mtu: super::pod_routes::pod_mtu(&args.network, settings.node_ip)?,
        cluster_cidrs,
        cluster_dns: args.dns_addresses(),
        cluster_domain: args.cluster_domain.clone(),
    })
}

/// How Services are led to endpoints.
pub(crate) fn proxy_mode(args: &ProxyModeArgs) -> proxy::Mode {
    match args.proxy_mode {
        ProxyMode::Nftables => proxy::Mode::Nftables,
        ProxyMode::Iptables => proxy::Mode::Iptables,
        ProxyMode::Ipvs => proxy::Mode::Ipvs(proxy::IpvsOptions {
            scheduler: args.ipvs_scheduler.clone(),
            exclude_cidrs: args.ipvs_exclude_cidrs.clone(),
            strict_arp: args.ipvs_strict_arp,
        }),
    }
}

/// Where ports of Nodes are.
pub(super) fn node_port_addresses(args: &NodePortArgs) -> Result<proxy::NodePortAddresses> {
    let networks = args.networks()?;
    Ok(match networks.is_empty() {
        true => proxy::NodePortAddresses::Primary,
        false => proxy::NodePortAddresses::Networks(networks),
    })
}

/// Ends when the first rules are in the kernel.
pub(super) async fn run_proxy(
    config: proxy::Config,
    informers: &Informers,
    reporter: Reporter,
    tasks: &Tasks,
) -> Result<()> {
    let mut commits = proxy::run(informers, config, reporter, tasks);
    commits.wait_for(|commits| *commits > 0).await.context("the proxy ended before it had begun")?;
    Ok(())
}

pub(super) fn kubelet_config(
    node_network: &NodeNetwork,
    layout: &Layout,
    server: Option<kubelet::ServerConfig>,
) -> kubelet::Config {
    kubelet::Config {
        node_name: node_network.node_name.clone(),
        node_ips: node_network.node_ips.iter().map(ToString::to_string).collect(),
        provided_node_ips: node_network.provided_node_ips.iter().map(ToString::to_string).collect(),
        root_dir: layout.kubelet(),
        pod_logs_dir: layout.pod_logs(),
        cgroup_root: format!("/knarr-{}", layout.cluster_id()),
        cluster_dns: node_network.cluster_dns.iter().map(ToString::to_string).collect(),
        cluster_domain: node_network.cluster_domain.clone(),
        server,
        ..kubelet::Config::default()
    }
}

pub(super) fn start_kubelet(
    config: kubelet::Config,
    informers: Informers,
    ContainerRuntime { runtime, images }: ContainerRuntime,
    reporter: Reporter,
    tasks: &Tasks,
) {
    let parts = kubelet::Parts {
        client: informers.client().clone(),
        informers: informers.clone(),
        runtime,
        images,
        tasks: tasks.clone(),
        clock: informers.clock().clone(),
        random: informers.random().clone(),
        reporter,
    };
    tasks.spawn("kubelet", async move {
        if let Err(error) = kubelet::run(config, parts).await {
            tracing::error!(error = %error, "the kubelet ended");
        }
    });
}

/// Tells when the Node object says Ready; of a network that is somebody else's, also that it lacks nothing but that.
async fn announce_node(informers: Informers, settings: Settings) {
    let name = settings.node_name;
    let scope =
        controller::Scope { field_selector: Some(format!("metadata.name={name}")), ..Default::default() };
    let nodes = informers.scoped::<k8s_openapi::api::core::v1::Node>(scope);
    let mut changes = nodes.subscribe();
    let mut is_registered = !settings.args.container_runtime.has_foreign_network();
    loop {
        let status = nodes.get(&name).and_then(|node| node.status.clone());
        let conditions = status.and_then(|status| status.conditions).unwrap_or_default();
        if let Some(ready) = conditions.iter().find(|condition| condition.type_ == "Ready") {
            let is_ready = ready.status == "True";
            if is_ready {
                Ready::Node.announce();
            }
            let message = ready.message.as_deref().unwrap_or_default();
            if !is_registered && (is_ready || message.starts_with(kubelet::NETWORK_NOT_READY)) {
                Ready::Registered.announce();
                is_registered = true;
            }
            if is_ready {
                return;
            }
        }
        changes.next().await;
    }
}

/// The kubelet's port, with the cluster's own files.
fn own_server_config(layout: &Layout, ips: Vec<IpAddr>) -> Result<kubelet::ServerConfig> {
    let file = |name: &str| layout.agent().join("tls").join(name);
    let listen = (ips, KUBELET_PORT);
    server_config(listen, &file("kubelet-server.crt"), &file("kubelet-server.key"), &file(KUBELET_CLIENT_CA))
}

/// TLS for the kubelet's port: a certificate that a client shows is of the cluster's authority of clients. What its
/// holder may do the API server says.
pub(super) fn server_config(
    (ips, port): (Vec<IpAddr>, u16),
    certificate: &Path,
    key: &Path,
    authority: &Path,
) -> Result<kubelet::ServerConfig> {
    let text = std::fs::read_to_string(certificate).unwrap_or_default();
    let chain = read_certificates(certificate)?;
    let key = PrivateKeyDer::from_pem_file(key).with_context(|| format!("read {}", key.display()))?;
    let config = tls(chain, key, Some(read_certificates(authority)?))?;
    Ok(kubelet::ServerConfig { ips, port, tls: Arc::new(config), certificate_ends: certificate_end(&text) })
}

fn certificate_end(pem: &str) -> Option<Timestamp> {
    Timestamp::from_second(auth::pki::ends_at(pem)?).ok()
}

/// When the certificate ends that a client shows; `None` if it shows none.
pub(super) fn client_certificate_end(config: &kube::Config) -> Option<Timestamp> {
    use base64::Engine;
    let auth = &config.auth_info;
    let pem = match (&auth.client_certificate_data, &auth.client_certificate) {
        (Some(data), _) => base64::engine::general_purpose::STANDARD.decode(data).ok()?,
        (None, Some(path)) => std::fs::read(path).ok()?,
        (None, None) => return None,
    };
    certificate_end(std::str::from_utf8(&pem).ok()?)
}
