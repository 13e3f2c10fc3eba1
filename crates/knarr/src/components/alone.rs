//! One part alone, against any Kubernetes: what it needs is a kubeconfig. Flags are upstream's.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use auth::issuing::{Signer, Signers};
use base::{Clock, Random, Tasks};
use cli::args::{
    CloudControllerManagerArgs, ControllerManagerArgs, KubeletArgs, NodeIpamArgs, ProxyArgs, ServingArgs,
};
use cli::controller_manager::OptionArgs;
use controller::lease::{Election, Timing};
use controller::trace::Reporter;
use controller::{AfterBurst, ClientMetrics, Informers};
use controllers::node_ipam::Ranges;
use machinery::leader_election::LeaderElection;
use machinery::net::{Cidr, Cidrs, Family};

use super::cloud_controllers::{self, CloudControllers};
use super::controller_options::ControllerOptions;
use super::election::lead;
use super::node;
use super::node_network::NodeNetwork;
use super::{api_client, container_runtime, control_plane, credentials, serving};
use crate::host;
use crate::kube_client;
use crate::layout::Layout;

/// Where upstream's controller manager and scheduler say how they are.
const CONTROLLERS_PORT: u16 = 10_257;
const CLOUD_CONTROLLERS_PORT: u16 = 10_258;
const SCHEDULER_PORT: u16 = 10_259;

/// What a part reaches the API server with, and its tasks.
pub(crate) struct Connection {
    config: kube::Config,
    pub(crate) informers: Informers,
}

impl Connection {
    /// Reads the kubeconfig; connects when something is asked for.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub(crate) async fn new(kubeconfig: &Path, agent: &'static str, tasks: &Tasks) -> Result<Self> {
        let config = kube_client::config(kubeconfig, agent).await?;
        let client = api_client::client(&config, &api_client::by_name(&config)?)?;
        let (clock, random, metrics) = (Clock::system(), Random::from_system(), ClientMetrics::default());
        let informers = Informers::metered(client, tasks.clone(), clock, random, metrics.of_part(agent));
        informers.setting_or(|| AfterBurst(sys::process::give_memory_back));
        Ok(Self { config, informers })
    }

    /// One of a kind, as upstream's: several may run on one host.
    fn identity(&self) -> Result<String> {
        Ok(format!("{}_{}", host::node_name()?, self.informers.random().uuid()))
    }

    fn election(&self, how: &LeaderElection) -> Result<Option<Election>> {
        if !how.is_on {
            return Ok(None);
        }
        let (namespace, identity) = (how.namespace.clone(), self.identity()?);
        // One for the process's life.
        let name: &'static str = String::leak(how.name.clone());
        let timing = Timing {
            lease_duration: how.lease_duration,
            renew_deadline: how.renew_deadline,
            renew_every: how.retry_period,
            retry_after: how.retry_period,
        };
        Ok(Some(Election { namespace, name, identity, timing }))
    }
}

/// Which of several controller managers works.
pub(crate) fn election_of_controllers(args: &ControllerManagerArgs) -> LeaderElection {
    args.leader.or(LeaderElection::of("kube-controller-manager"))
}

/// `knarr controller-manager`: every controller, once it leads.
pub(crate) async fn start_controllers(args: &ControllerManagerArgs, connection: &Connection) -> Result<()> {
    let options = ControllerOptions::read(&options(args)?)?;
    let selection = control_plane::selection(&args.controllers)?;
    let authority = root_ca(args, &connection.config)?;
    connection.informers.setting_or(|| controllers::root_ca::Bundle(authority));
    let signers = signers(args)?;
    connection.informers.setting_or(|| signers);
    if let Some(tokens) = legacy_tokens(args)? {
        connection.informers.setting_or(|| tokens);
    }
    let ipam = &args.node_ipam;
    if let Some(ranges) =
        pod_ranges(ipam.allocate_node_cidrs, ipam.cluster_cidr, ipam.service_cluster_ip_range)?
    {
        connection.informers.setting_or(|| ranges);
    }
    serving::start(&args.serving, CONTROLLERS_PORT, &connection.informers).await?;
    let election = connection.election(&election_of_controllers(args))?;
    let own_accounts = args.use_service_account_credentials.then(|| connection.config.clone());
    lead(election, &connection.informers, async move |informers| {
        let engine = options.engine(informers.clone());
        for controller in selection.controllers() {
            if !options.admits(controller, &informers).await {
                continue;
            }
            let own = own_accounts.as_ref().zip(control_plane::account_of(controller.name));
            let Some((config, account)) = own else {
                engine.start(*controller);
                continue;
            };
            engine.start_as(*controller, credentials::client(account, config, &informers).await?);
        }
        Ok(())
    });
    Ok(())
}

/// Which of several cloud controller managers works.
pub(crate) fn election_of_cloud_controllers(args: &CloudControllerManagerArgs) -> LeaderElection {
    args.leader.or(LeaderElection::of(cloud_controllers::LEASE))
}

/// `knarr cloud-controller-manager`: the controllers of a cloud, once it leads and the cloud's provider answers.
pub(crate) async fn start_cloud_controllers(
    args: &CloudControllerManagerArgs,
    connection: &Connection,
) -> Result<()> {
    let said = &args.options;
    if said.cloud_config.is_some() {
        tracing::warn!("--cloud-config is accepted, and does nothing: the provider reads its own");
    }
    let ranges = pod_ranges(said.allocate_node_cidrs, said.cluster_cidr, None)?;
    let controllers =
        CloudControllers::read(said, args.cloud_provider_endpoint.socket(), said.cluster_cidr, true)?;
    serving::start(&args.serving, CLOUD_CONTROLLERS_PORT, &connection.informers).await?;
    let election = connection.election(&election_of_cloud_controllers(args))?;
    let own_accounts = args.use_service_account_credentials.then(|| connection.config.clone());
    lead(election, &connection.informers, async move |informers| {
        let ipam = ranges.map(|ranges| {
            informers.setting_or(|| ranges);
            (controllers::node_ipam::CONTROLLER, "node-controller")
        });
        let (engine, rows) = controllers.begin(&informers).await?;
        for (row, account) in rows.into_iter().chain(ipam) {
            match &own_accounts {
                Some(config) => engine.start_as(row, credentials::client(account, config, &informers).await?),
                None => engine.start(row),
            }
        }
        Ok(())
    });
    Ok(())
}

/// What flags say of the controllers, the short form of one of them included.
fn options(args: &ControllerManagerArgs) -> Result<OptionArgs> {
    let mut options = args.options.clone();
    let NodeIpamArgs { node_cidr_mask_size, cluster_cidr, .. } = &args.node_ipam;
    if let Some(bits) = node_cidr_mask_size {
        let family = match cluster_cidr {
            Some(cidrs) if cidrs.of(Family::V6).is_none() => "ipv4",
            Some(cidrs) if cidrs.of(Family::V4).is_none() => "ipv6",
            _ => bail!(
                "--node-cidr-mask-size needs a --cluster-cidr of one family; use --node-cidr-mask-size-ipv4 or \
                 --node-cidr-mask-size-ipv6"
            ),
        };
        options.fields.insert(format!("node-cidr-mask-size-{family}"), (*bits).into());
    }
    Ok(options)
}

/// What Nodes' ranges are taken from, if they are given any. Source: `startNodeIpamController`.
fn pod_ranges(is_wanted: bool, pods: Option<Cidrs>, services: Option<Cidrs>) -> Result<Option<Ranges>> {
    if !is_wanted {
        return Ok(None);
    }
    let pods = pods.context("--allocate-node-cidrs needs --cluster-cidr")?;
    Ok(Some(Ranges { pods, services }))
}

/// The authority that Pods are given: the file's, or the one that we trust ourselves.
fn root_ca(args: &ControllerManagerArgs, config: &kube::Config) -> Result<String> {
    if let Some(path) = &args.root_ca_file {
        return read("--root-ca-file", path);
    }
    use base64::Engine as _;
    let mut pem = String::new();
    for certificate in config.root_cert.iter().flatten() {
        let encoded = base64::engine::general_purpose::STANDARD.encode(certificate);
        pem.push_str("-----BEGIN CERTIFICATE-----\n");
        for line in encoded.as_bytes().chunks(64) {
            pem.push_str(&String::from_utf8_lossy(line));
            pem.push('\n');
        }
        pem.push_str("-----END CERTIFICATE-----\n");
    }
    Ok(pem)
}

fn read(flag: &str, path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("{flag}: read {}", path.display()))
}

/// Who signs certificate requests: one authority for all, or one for each signer's name.
fn signers(args: &ControllerManagerArgs) -> Result<Signers> {
    let one = |flag: &str, certificate: &Option<PathBuf>, key: &Option<PathBuf>| {
        let (Some(certificate), Some(key)) = (certificate, key) else { return Ok(None) };
        let (flag, key_flag) = (format!("--{flag}-cert-file"), format!("--{flag}-key-file"));
        let signer = Signer::new(&read(&flag, certificate)?, &read(&key_flag, key)?);
        signer.with_context(|| format!("read {flag}")).map(|signer| Some(Arc::new(signer)))
    };
    let all = one("cluster-signing", &args.cluster_signing_cert_file, &args.cluster_signing_key_file)?;
    let of = |name: &str, certificate, key| -> Result<_> {
        Ok(one(&format!("cluster-signing-{name}"), certificate, key)?.or_else(|| all.clone()))
    };
    let own = &args.signing;
    Ok(Signers {
        client: of(
            "kube-apiserver-client",
            &own.cluster_signing_kube_apiserver_client_cert_file,
            &own.cluster_signing_kube_apiserver_client_key_file,
        )?,
        kubelet_client: of(
            "kubelet-client",
            &own.cluster_signing_kubelet_client_cert_file,
            &own.cluster_signing_kubelet_client_key_file,
        )?,
        kubelet_serving: of(
            "kubelet-serving",
            &own.cluster_signing_kubelet_serving_cert_file,
            &own.cluster_signing_kubelet_serving_key_file,
        )?,
        legacy_unknown: of(
            "legacy-unknown",
            &own.cluster_signing_legacy_unknown_cert_file,
            &own.cluster_signing_legacy_unknown_key_file,
        )?,
    })
}

/// Who fills the Secrets of ServiceAccounts with tokens; these name no issuer of their own.
fn legacy_tokens(args: &ControllerManagerArgs) -> Result<Option<auth::token::Tokens>> {
    const FLAG: &str = "--service-account-private-key-file";
    let Some(path) = &args.service_account_private_key_file else { return Ok(None) };
    let key = auth::keys::pkcs8(read(FLAG, path)?.as_bytes());
    let key = key.with_context(|| format!("{FLAG}: {}", path.display()))?;
    let tokens = auth::token::Tokens::new(&key, "", Vec::new());
    tokens.with_context(|| format!("{FLAG}: {}", path.display())).map(Some)
}

/// `knarr scheduler`: the scheduler, once it leads.
pub(crate) async fn start_scheduler(
    serving: &ServingArgs,
    configuration: scheduler::Configuration,
    connection: &Connection,
) -> Result<()> {
    serving::start(serving, SCHEDULER_PORT, &connection.informers).await?;
    let election = connection.election(&configuration.leader_election)?;
    lead(election, &connection.informers, async |informers| {
        control_plane::run_scheduler(&informers, configuration, Reporter::disabled());
        Ok(())
    });
    Ok(())
}

/// A Node's addresses: those that were given, or one of each family of its Pods.
fn node_ips(given: &[IpAddr], pods: Cidrs) -> Result<Vec<IpAddr>> {
    cli::validate::node_ip::alone(given)?;
    if given.is_empty() { host::node_ips(pods.iter().map(Cidr::family)) } else { Ok(given.to_vec()) }
}

/// `knarr kubelet`: a kubelet with the built-in runtime and network, or on another runtime.
pub(crate) async fn start_kubelet(args: &KubeletArgs, layout: &Layout, connection: Connection) -> Result<()> {
    let node_network = NodeNetwork {
        node_name: host::node_name_or_own(args.node_name.as_deref())?,
        node_ips: node_ips(&args.node_ip, args.pod_cidr)?,
        provided_node_ips: args.node_ip.clone(),
        pod_cidrs: args.pod_cidr,
        pod_mtu: None,
        cluster_cidrs: args.pod_cidr,
        cluster_dns: args.cluster_dns.clone(),
        cluster_domain: args.cluster_domain.clone(),
    };
    let server = match (&args.tls_cert_file, &args.tls_private_key_file, &args.client_ca_file) {
        (Some(certificate), Some(key), Some(authority)) => {
            let listen = (node_network.node_ips.clone(), args.port);
            Some(node::server_config(listen, certificate, key, authority)?)
        }
        _ => None,
    };
    let tasks = connection.informers.tasks().clone();
    // Who watches policies for the Pods of a kubelet alone is its cluster's choice.
    let flushed = node::pod_network_flushes(&connection.informers, &node_network.node_name);
    let told = container_runtime::Told { reporter: Reporter::disabled(), policed: None, flushed };
    let container_runtime =
        container_runtime::open(&args.container_runtime, layout, &node_network, told, &tasks).await?;
    super::kubelet_root::settle(layout, args.configuration.root_dir.as_deref())?;
    let config = kubelet::Config {
        streaming_connection_idle_timeout: args.streaming_connection_idle_timeout,
        client_certificate_ends: node::client_certificate_end(&connection.config),
        ..node::kubelet_config(&node_network, layout, server)
    };
    let config = super::kubelet_config::read(config, &args.configuration)?;
    node::start_kubelet(config, connection.informers, container_runtime, Reporter::disabled(), &tasks);
    Ok(())
}

/// `knarr proxy`: Services to the kernel.
pub(crate) async fn start_proxy(args: &ProxyArgs, layout: &Layout, connection: Connection) -> Result<()> {
    let config = proxy::Config {
        cluster_id: layout.cluster_id(),
        node_name: host::node_name_or_own(args.node_name.as_deref())?,
        node_ips: args.node_ips(node_ips(&args.node_ip, args.cluster_cidr)?),
        cluster_cidrs: args.cluster_cidr,
        service_cidrs: args.service_cidr,
        local_addresses: Vec::new(),
        mode: node::proxy_mode(&args.proxy_mode),
        node_port_addresses: node::node_port_addresses(&args.node_ports)?,
        healthz_address: args.healthz_address(),
        metrics_address: args.metrics_address(),
    };
    let tasks = connection.informers.tasks().clone();
    node::run_proxy(config, &connection.informers, Reporter::disabled(), &tasks).await
}
