//! The control plane's process: store, API server, controllers, scheduler.
//!
//! Its first act is to give up root, once it has read the files that its flags name, and all that it does not need. Controllers and scheduler reach the API server through its own service,
//! without a socket, each as the user that upstream's roles are for.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use apiserver::{ApiServer, PortRange};
use auth::UserInfo;
use auth::issuing::Signers;
use base::{Clock, Random, Tasks};
use cli::args::Part;
use cli::controller_manager::OptionArgs;
use controller::lease::Timing;
use controller::trace::Reporter;
use controller::{ClientMetrics, Informers};
use nix::sys::signal::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tower::ServiceExt;

use super::Settings;
use super::authorities;
use super::cloud_controllers::{self, CloudControllers};
use super::controller_options::ControllerOptions;
use super::election::{election, lead_in_turns};
use super::users::{CONTROL_PLANE_GID, CONTROL_PLANE_UID};
use crate::async_runtime::AsyncRuntime;
use crate::layout::Layout;
use crate::ready::Ready;

/// Node ports, as upstream has them.
const NODE_PORTS: PortRange = PortRange { first: 30_000, last: 32_767 };
/// Requests, watches apart, that may be under way: upstream's two limits together.
const REQUESTS_IN_FLIGHT_MAX: usize = 600;
/// After a failed flush nobody knows what is on disk but whoever reads it anew.
const STORE_FAILED: &str = "the store failed; the control plane starts over from what is on disk";
/// How long no definition of a kind changes before memory is given back.
const AT_REST: Duration = Duration::from_secs(2);
/// The embedded store's file, in the server's folder.
const STORE: &str = "db/data.mdb";

/// Runs the control plane until it is told to stop.
pub(crate) fn control_plane(layout: &Layout) -> Result<()> {
    let parent = nix::unistd::getppid();
    let settings = Settings::load(layout)?;
    let options = super::api_options::options(
        &settings.args.api_server,
        &settings.issuer(),
        &layout.server().join("tls"),
    )?;
    super::api_options::own_log(&settings.args.api_server, CONTROL_PLANE_UID, CONTROL_PLANE_GID)?;
    // From here on everything is relative to the server's folder: its parents may be closed to the new user.
    std::env::set_current_dir(layout.server()).context("enter the control plane's folder")?;
    sys::process::drop_privileges(CONTROL_PLANE_UID, CONTROL_PLANE_GID)?;
    // The change of user has undone what the supervisor had arranged.
    sys::process::die_with_parent(Signal::SIGKILL as i32)?;
    if nix::unistd::getppid() != parent {
        bail!("the supervisor has ended");
    }
    super::confine::confine(&settings)?;
    let runtime = AsyncRuntime::on_threads("control-plane")?;
    // The same after a restart, so that the lead is ours at once: two servers with one Node's name cannot be.
    let identity = format!("{}_{}", settings.node_name, layout.cluster_id());
    runtime.block_on(run(&settings, options, &identity))
}

async fn run(settings: &Settings, options: apiserver::Options, identity: &str) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let (clock, random, tasks) = (Clock::system(), Random::from_system(), Tasks::new());
    let store = super::datastore::open(&settings.args.datastore, &clock, &random).await?;
    let service_account_key = options.service_accounts.key.clone();
    let config = api_server_config(settings, options)?;
    let server =
        apiserver::start(config, Arc::clone(&store), tasks.clone(), clock.clone(), random.clone()).await?;
    let metrics = ClientMetrics::new(server.metrics());
    let server = Arc::new(server);
    let parts = Parts { server, identity, tasks: &tasks, clock, random, metrics, service_account_key };
    if settings.args.runs(Part::ControllerManager) {
        parts.start_controllers(settings)?;
    }
    parts.start_cloud_controllers(settings)?;
    if settings.args.runs(Part::Scheduler) {
        parts.start_scheduler(settings)?;
    }
    let (server, clock, random) = (parts.server, parts.clock, parts.random);
    tokio::select! {
        () = server.ready() => {}
        () = store.failed() => bail!(STORE_FAILED),
    }
    let client = client_as(&server, "system:knarr", &[]);
    super::addons::ensure(client.clone(), settings).await?;
    if settings.args.runs(Part::Kubelet) {
        let informers = Informers::new(client, tasks.child(), clock, random);
        tasks.spawn("role of the Node", super::node_role::follow(informers, settings.node_name.clone()));
    }
    Ready::ApiServer.announce();
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        () = tasks.stopping() => {}
        () = reload_encryption(settings, &server) => {}
        () = super::configurations::follow(settings, &server) => {}
        () = give_memory_back(&server) => {}
        () = store.failed() => bail!(STORE_FAILED),
    }
    tasks.stop_and_wait().await;
    if let Err(error) = server.save_trace() {
        tracing::warn!(%error, "the trace of this run is not kept");
    }
    store.close().await.context("close the store")
}

/// Takes changes of the encryption configuration. Never ends.
async fn reload_encryption(settings: &Settings, server: &ApiServer) {
    if let Err(failure) = super::encryption::follow(settings.args.api_server.clone(), server).await {
        let failure = format!("{failure:#}");
        tracing::error!(failure, "changes of the encryption configuration count after a restart only");
    }
    std::future::pending().await
}

/// Gives back what reading definitions of kinds has taken for a moment, which is several times what is kept of them, and the
/// store's pages: all reads are answered from the watch cache. Never ends.
async fn give_memory_back(server: &ApiServer) {
    let mut revision = 0;
    loop {
        revision = server.definitions_rested(revision, AT_REST).await;
        sys::process::give_memory_back();
        if let Err(error) = sys::process::page_out(Path::new(STORE)) {
            tracing::debug!(%error, "the store's pages stay in memory");
        }
    }
}

/// How often the lead is renewed. Where others wait for it, they need not wait long.
fn timing(settings: &Settings) -> Timing {
    match settings.args.datastore.datastore_endpoint {
        None => Timing::default(),
        Some(_) => Timing {
            lease_duration: Duration::from_secs(10),
            renew_deadline: Duration::from_secs(7),
            renew_every: Duration::from_secs(2),
            retry_after: Duration::from_secs(1),
        },
    }
}

/// What the parts beside the API server are made with.
struct Parts<'a> {
    server: Arc<ApiServer>,
    identity: &'a str,
    tasks: &'a Tasks,
    clock: Clock,
    random: Random,
    metrics: ClientMetrics,
    /// What signs ServiceAccounts' tokens, if it is not the cluster's own key.
    service_account_key: Option<Vec<u8>>,
}

impl Parts<'_> {
    /// Makes informers of `user` in given tasks.
    fn informers_as(&self, user: &'static str) -> impl Fn(Tasks) -> Informers + Send + Sync + use<> {
        let client = client_as(&self.server, user, &[]);
        let part = user.strip_prefix("system:").unwrap_or(user);
        let (clock, random, metrics) = (self.clock.clone(), self.random.clone(), self.metrics.of_part(part));
        move |tasks| Informers::metered(client.clone(), tasks, clock.clone(), random.clone(), metrics.clone())
    }

    fn start_controllers(&self, settings: &Settings) -> Result<()> {
        let said = OptionArgs::from_pairs(&settings.args.kube_controller_manager_arg)?;
        let selection = selection(said.controllers.as_ref().unwrap_or(&settings.args.controllers))?;
        let options = ControllerOptions::read(&said)?;
        let keys = Keys::read(settings, self.service_account_key.clone())?;
        // Also where this host has no Node: others have.
        let serves_ingresses = !settings.args.disable.contains(&Part::Ingress);
        let ports = serves_ingresses.then(|| super::ingress::of_gateways(&settings.args));
        // What cannot be used is told at the start.
        keys.give_to(&self.informers_as("system:kube-controller-manager")(self.tasks.child()))?;
        let (server, make) = (Arc::clone(&self.server), self.informers_as("system:kube-controller-manager"));
        let election = election("kube-controller-manager", self.identity, timing(settings));
        lead_in_turns(election, self.tasks, make, move |informers| {
            let (given, server) = (keys.give_to(&informers), Arc::clone(&server));
            let selection = selection.clone();
            let (options, ports) = (options.clone(), ports.clone());
            async move {
                given?;
                let engine = options.engine(informers.clone());
                for row in selection.controllers() {
                    if !options.admits(row, &informers).await {
                        continue;
                    }
                    engine.start_as(*row, controller_client(&server, row.name));
                }
                if let Some(ports) = ports {
                    informers.setting_or(|| ports);
                    for row in [ingress::status::CONTROLLER, ingress::gateway_status::CONTROLLER] {
                        engine.start_as(row, controller_client(&server, row.name));
                    }
                }
                Ok(())
            }
        });
        Ok(())
    }

    /// The controllers of a cloud, if its provider was named; not confined to the cluster's own controllers, as whoever has a
    /// cloud may run those elsewhere.
    fn start_cloud_controllers(&self, settings: &Settings) -> Result<()> {
        let Some(endpoint) = &settings.args.cloud.cloud_provider_endpoint else { return Ok(()) };
        let said = settings.args.cloud.options()?;
        if said.allocate_node_cidrs {
            bail!(
                "--cloud-controller-manager-arg allocate-node-cidrs: the cluster's own controllers give Nodes their ranges"
            );
        }
        let cidr = said.cluster_cidr.unwrap_or(settings.args.cluster_cidr);
        let controllers = CloudControllers::read(&said, endpoint.socket(), Some(cidr), false)?;
        let (server, make) = (Arc::clone(&self.server), self.informers_as(auth::CLOUD_CONTROLLER_MANAGER));
        let election = election(cloud_controllers::LEASE, self.identity, timing(settings));
        lead_in_turns(election, self.tasks, make, move |informers| {
            let (controllers, server) = (controllers.clone(), Arc::clone(&server));
            async move {
                let (engine, rows) = controllers.begin(&informers).await?;
                for (row, account) in rows {
                    engine.start_as(row, client_of_account(&server, account));
                }
                Ok(())
            }
        });
        Ok(())
    }

    fn start_scheduler(&self, settings: &Settings) -> Result<()> {
        let configuration = super::scheduler_config::of_cluster(settings)?;
        let make = self.informers_as("system:kube-scheduler");
        let election = election("kube-scheduler", self.identity, timing(settings));
        lead_in_turns(election, self.tasks, make, move |informers: Informers| {
            let reporter = Reporter::start(informers.client().clone(), informers.tasks());
            run_scheduler(&informers, configuration.clone(), reporter);
            std::future::ready(Ok(()))
        });
        Ok(())
    }
}

/// Which controllers run.
///
/// # Errors
/// If a name is no controller's.
pub(super) fn selection(names: &[String]) -> Result<controllers::Selection> {
    let selection =
        controllers::Selection::new(names).map_err(anyhow::Error::msg).context("--controllers")?;
    for (controller, why) in selection.idle() {
        tracing::warn!(controller, why, "the controller is accepted, and does nothing");
    }
    Ok(selection)
}

/// A controller's own client: the ServiceAccount that upstream's role for it is bound to.
fn controller_client(server: &ApiServer, controller: &'static str) -> kube::Client {
    let Some(account) = account_of(controller) else {
        return client_as(server, "system:kube-controller-manager", &[]);
    };
    client_of_account(server, account)
}

/// A client that is a ServiceAccount of `kube-system`.
fn client_of_account(server: &ApiServer, account: &str) -> kube::Client {
    let account = format!("system:serviceaccount:kube-system:{account}");
    client_as(server, &account, &["system:serviceaccounts", "system:serviceaccounts:kube-system"])
}

/// The ServiceAccount that upstream gives a controller; `None` is for the one that fills the Secrets of all accounts,
/// which is the controller manager itself. Source: `app.NewControllerInitializers`.
pub(super) fn account_of(controller: &'static str) -> Option<&'static str> {
    if controller == controllers::token::CONTROLLER.name {
        return None;
    }
    Some(match controller {
        "bootstrap-signer-controller" => "bootstrap-signer",
        "certificatesigningrequest-approving-controller"
        | "certificatesigningrequest-cleaner-controller"
        | "certificatesigningrequest-signing-controller"
        | "kubelet-serving-approving-controller" => "certificate-controller",
        "persistentvolume-binder-controller" => "persistent-volume-binder",
        "persistentvolumeclaim-protection-controller" => "pvc-protection-controller",
        "persistentvolume-protection-controller" => "pv-protection-controller",
        "persistentvolume-attach-detach-controller" => "attachdetach-controller",
        "persistentvolume-expander-controller" => "expand-controller",
        "csi-hostpath-capacity-controller" => "csi-hostpath-controller",
        "endpoints-controller" => "endpoint-controller",
        "endpointslice-mirroring-controller" => "endpointslicemirroring-controller",
        "garbage-collector-controller" => "generic-garbage-collector",
        "horizontal-pod-autoscaler-controller" => "horizontal-pod-autoscaler",
        "legacy-serviceaccount-token-cleaner-controller" => "legacy-service-account-token-cleaner",
        "node-ipam-controller" | "node-lifecycle-controller" | "taint-eviction-controller" => {
            "node-controller"
        }
        "pod-garbage-collector-controller" => "pod-garbage-collector",
        "podcertificaterequest-cleaner-controller" => "podcertificaterequestcleaner",
        "root-ca-certificate-publisher-controller" => "root-ca-cert-publisher",
        "kube-apiserver-serving-clustertrustbundle-publisher-controller" => {
            "kube-apiserver-serving-clustertrustbundle-publisher"
        }
        "serviceaccount-controller" => "service-account-controller",
        "service-cidr-controller" => "service-cidrs-controller",
        "storageversion-garbage-collector-controller" => "storage-version-garbage-collector",
        "token-cleaner-controller" => "token-cleaner",
        "replicationcontroller-controller" => "replication-controller",
        same => same,
    })
}

pub(super) fn run_scheduler(
    informers: &Informers,
    configuration: scheduler::Configuration,
    reporter: Reporter,
) {
    let tasks = informers.tasks().clone();
    let run = scheduler::run(configuration, informers.clone(), reporter, tasks.clone());
    tasks.spawn("scheduler", run);
}

/// What a component calls itself. The first word manages the fields that it writes: all controllers are one manager,
/// as upstream's are; their ServiceAccount at the end tells them apart.
fn agent_of(user: &str) -> String {
    let name = user.rsplit(':').next().unwrap_or(user);
    if user.starts_with("system:serviceaccount:") {
        return format!("kube-controller-manager/{}/{user}", env!("CARGO_PKG_VERSION"));
    }
    format!("{name}/{}", env!("CARGO_PKG_VERSION"))
}

/// A client inside this process that is `user`.
fn client_as(server: &ApiServer, user: &str, groups: &[&str]) -> kube::Client {
    let groups = groups.iter().chain(&["system:authenticated"]).map(|&group| group.to_owned()).collect();
    let identity = UserInfo { name: user.to_owned(), groups, ..UserInfo::default() };
    let agent =
        http::HeaderValue::from_str(&agent_of(user)).unwrap_or(http::HeaderValue::from_static("knarr"));
    let service = server.service().map_request(move |mut request: http::Request<kube::client::Body>| {
        request.extensions_mut().insert(identity.clone());
        request.headers_mut().insert(http::header::USER_AGENT, agent.clone());
        request
    });
    kube::Client::new(service, "default")
}

/// What controllers are told: the keys that they sign with, and the Nodes' ranges.
struct Keys {
    authority_pem: String,
    signers: Signers,
    service_account_key: Vec<u8>,
    issuer: String,
    pod_ranges: controllers::node_ipam::Ranges,
    load_balancer: Option<controllers::service_lb::Settings>,
}

impl Keys {
    fn read(settings: &Settings, service_account_key: Option<Vec<u8>>) -> Result<Self> {
        let own = || auth::pki::service_account_key(Path::new("tls"));
        Ok(Self {
            authority_pem: authorities::read(Path::new("tls"), "ca.crt")?,
            signers: authorities::signers(Path::new("tls"))?,
            service_account_key: service_account_key.map_or_else(own, Ok)?,
            issuer: settings.issuer(),
            pod_ranges: controllers::node_ipam::Ranges {
                pods: settings.args.cluster_cidr,
                services: Some(settings.args.service_cidr),
            },
            load_balancer: settings.args.runs(Part::Servicelb).then(|| controllers::service_lb::Settings {
                pool: settings.args.servicelb_pool.clone(),
                own_ports: [settings.args.https_listen_port, super::KUBELET_PORT].into(),
            }),
        })
    }

    fn give_to(&self, informers: &Informers) -> Result<()> {
        let audiences = vec![self.issuer.clone()];
        let tokens = auth::token::Tokens::new(&self.service_account_key, &self.issuer, audiences);
        let tokens = tokens.context("read the service account key")?;
        informers.setting_or(|| controllers::root_ca::Bundle(self.authority_pem.clone()));
        informers.setting_or(|| self.signers.clone());
        informers.setting_or(|| tokens);
        informers.setting_or(|| self.pod_ranges);
        if let Some(load_balancer) = &self.load_balancer {
            informers.setting_or(|| load_balancer.clone());
        }
        Ok(())
    }
}

fn api_server_config(settings: &Settings, options: apiserver::Options) -> Result<apiserver::Config> {
    let read =
        |name: &str| std::fs::read(Path::new("tls").join(name)).with_context(|| format!("read tls/{name}"));
    let args = &settings.args;
    let issuer = settings.issuer();
    let (encryption, reloads_encryption) = super::encryption::load(&args.api_server)?;
    Ok(apiserver::Config {
        bind: Some(SocketAddr::new(args.bind_address, args.https_listen_port)),
        certificate_pem: read("apiserver.crt")?,
        key_pem: read("apiserver.key")?,
        client_ca_pem: authorities::client_bundle(Path::new("tls"), Clock::system().now())?.into_bytes(),
        root_ca_pem: read("ca.crt")?,
        service_account_key: auth::pki::service_account_key(Path::new("tls"))?,
        service_account_audiences: vec![issuer.clone()],
        service_account_issuer: issuer,
        kubelet_client_certificate_pem: read("apiserver-kubelet-client.crt")?,
        kubelet_client_key_pem: read("apiserver-kubelet-client.key")?,
        kubelet_ca_pem: read("kubelet-serving-ca.crt")?,
        advertise_address: SocketAddr::new(settings.advertised(), args.https_listen_port),
        service_cidrs: args.service_cidr,
        node_ports: NODE_PORTS,
        requests_in_flight_max: REQUESTS_IN_FLIGHT_MAX,
        options: apiserver::Options {
            encryption: Some(encryption),
            reloads_encryption,
            pod_cidrs: args.cluster_cidr.iter().collect(),
            is_one_of_many: args.datastore.datastore_endpoint.is_some(),
            hostname: settings.node_name.clone(),
            // In the server's folder, which is the current one.
            trace_file: Some("trace.json".into()),
            ..options
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_controller_has_the_account_of_a_role() {
        let (cluster, roles) = (auth::bootstrap::cluster_role_bindings(), auth::bootstrap::role_bindings());
        let subjects = cluster.iter().map(|one| &one.subjects).chain(roles.iter().map(|one| &one.subjects));
        let bound: Vec<&str> = subjects.flatten().flatten().map(|one| one.name.as_str()).collect();
        for controller in
            controllers::known().chain([&ingress::status::CONTROLLER, &ingress::gateway_status::CONTROLLER])
        {
            let Some(account) = account_of(controller.name) else { continue };
            assert!(bound.contains(&account), "{}: nothing is bound to {account}", controller.name);
        }
    }
}
