//! Device plugins: processes that say what devices the host has and prepare them for containers.
//!
//! They register at `device-plugins/kubelet.sock`, and are asked over sockets beside it: what they have, as a stream;
//! what a container with some of it needs. Source: `k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1`.

pub(crate) mod api;
mod error;
mod pool;
mod registration;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use base::Tasks;
use cri::v1;
use k8s_openapi::api::core::v1::{Container, PodSpec};
use machinery::names;
use parking_lot::Mutex;
use tonic::Request;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic_prost::ProstCodec;

use crate::machine::nodes::Nodes;
use crate::metrics::{Count, KubeletMetrics, Measure};
use crate::node_resources::NodeResources;
use crate::node_resources::topology::{Asker, Hint, Hints, Provider};
use crate::pod::admission::Rejection;
use api::{
    AllocateRequest, AllocateResponse, ContainerAllocateRequest, ContainerAllocateResponse,
    ContainerPreferredAllocationRequest, DevicePluginOptions, Empty, ListAndWatchResponse,
    PreStartContainerRequest, PreferredAllocationRequest, PreferredAllocationResponse, RegisterRequest,
};
pub(crate) use error::DevicePluginError;
use pool::Pool;

/// How long a plugin may be away, as for an update, before there are no such devices. Source: `endpointStopGracePeriod`.
const STOPPED_GRACE: Duration = Duration::from_secs(300);
/// What quotas call requests of a resource by, before its name.
const QUOTA: &str = "requests.";
/// Plugins at the same time.
const PLUGINS_MAX: usize = 256;

/// A registered plugin.
#[derive(Clone)]
struct Plugin {
    channel: Channel,
    options: DevicePluginOptions,
    /// Which of its registrations this is: an older stream's end means nothing.
    number: u64,
}

/// All plugins and their devices.
pub(crate) struct DevicePlugins {
    folder: PathBuf,
    pool: Mutex<Pool>,
    plugins: Mutex<HashMap<String, Plugin>>,
    counter: AtomicU64,
    /// What plugins have said, by Pod uid and container.
    answers: Mutex<HashMap<(String, String), Vec<Given>>>,
    /// All NUMA nodes.
    nodes: Nodes,
    metrics: Arc<KubeletMetrics>,
}

/// What a container has of one resource, and what its plugin says to that.
#[derive(Clone)]
struct Given {
    resource: String,
    ids: Vec<String>,
    answer: ContainerAllocateResponse,
}

/// A device, and the NUMA nodes that it is near.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placed {
    pub(crate) resource: String,
    pub(crate) id: String,
    pub(crate) nodes: Vec<i64>,
}

impl Provider for DevicePlugins {
    fn hints(&self, uid: &str, spec: &PodSpec, asker: Asker<'_>) -> Hints {
        self.pool.lock().hints(self.nodes, uid, spec, asker)
    }

    fn allocate(
        &self,
        uid: &str,
        spec: &PodSpec,
        container: &Container,
        hint: &Hint,
    ) -> Result<(), Rejection> {
        self.pool.lock().allocate(uid, spec, container, hint)
    }
}

impl DevicePlugins {
    /// Takes up what the checkpoint below the kubelet's folder says. Blocking.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub(crate) fn open(root_dir: &Path, nodes: Nodes, metrics: Arc<KubeletMetrics>) -> std::io::Result<Self> {
        let folder = root_dir.join("device-plugins");
        std::fs::create_dir_all(&folder)?;
        let pool = Mutex::new(Pool::open(&folder));
        let (plugins, answers) = (Mutex::default(), Mutex::default());
        Ok(Self { pool, folder, plugins, counter: AtomicU64::new(0), answers, nodes, metrics })
    }

    /// All devices, and those that can be given, by resource.
    pub(crate) fn counts(&self) -> BTreeMap<String, (i64, i64)> {
        self.pool.lock().counts()
    }

    /// Takes back what a Pod has.
    pub(crate) fn release(&self, uid: &str) {
        self.pool.lock().release(uid);
        self.answers.lock().retain(|(other, _), _| other != uid);
    }

    /// Takes back what Pods have that are not among `uids`.
    pub(crate) fn keep_only(&self, uids: &BTreeSet<String>) {
        self.pool.lock().keep_only(uids);
    }

    /// Asks the plugins for what the containers of a new Pod need, before anything of it is made.
    ///
    /// # Errors
    /// In upstream's words: a plugin is gone or refuses.
    pub(crate) async fn ask(&self, uid: &str) -> Result<(), Rejection> {
        let containers = self.pool.lock().containers(uid);
        for container in containers {
            self.answers(uid, &container).await.map_err(Rejection::unexpected)?;
        }
        Ok(())
    }

    /// What the plugins have said of a container, with what it has of each; asked now if that is not known any more.
    async fn answers(&self, uid: &str, container: &str) -> Result<Vec<Given>, DevicePluginError> {
        let key = (uid.to_owned(), container.to_owned());
        if let Some(known) = self.answers.lock().get(&key) {
            return Ok(known.clone());
        }
        let assigned = self.pool.lock().assigned(uid, container).cloned().unwrap_or_default();
        let mut all = Vec::new();
        for (resource, ids) in assigned {
            let plugin = self.plugin(&resource)?;
            let ids = self.preferred(&plugin, (uid, container), &resource, ids).await;
            let request = ContainerAllocateRequest { devices_ids: ids.clone() };
            let request = AllocateRequest { container_requests: vec![request] };
            let start = Instant::now();
            let answer: Result<AllocateResponse, DevicePluginError> =
                call(&plugin.channel, "/v1beta1.DevicePlugin/Allocate", request).await;
            self.metrics.measure(Measure::DevicePluginAllocation, &[&resource], start.elapsed());
            let answer = answer?;
            let Some(answer) = answer.container_responses.into_iter().next() else {
                return Err(DevicePluginError::NoAnswer(resource));
            };
            all.push(Given { resource, ids, answer });
        }
        self.answers.lock().insert(key, all.clone());
        Ok(all)
    }

    /// The plugin of that number is gone; `None` if another has come in its place already.
    fn lose(&self, resource: &str, number: u64) -> Option<u64> {
        let mut plugins = self.plugins.lock();
        plugins.get(resource).filter(|known| known.number == number)?;
        plugins.remove(resource);
        Some(self.pool.lock().lose(resource))
    }

    fn plugin(&self, resource: &str) -> Result<Plugin, DevicePluginError> {
        let plugin = self.plugins.lock().get(resource).cloned();
        plugin.ok_or_else(|| DevicePluginError::Gone(resource.to_owned()))
    }

    /// Puts what the plugins say into a container's configuration.
    ///
    /// # Errors
    /// A plugin is gone or refuses.
    pub(crate) async fn prepare(
        &self,
        uid: &str,
        container: &str,
        config: &mut v1::ContainerConfig,
    ) -> Result<(), DevicePluginError> {
        for Given { resource, ids, answer } in self.answers(uid, container).await? {
            add(config, answer);
            let Ok(plugin) = self.plugin(&resource) else { continue };
            if plugin.options.pre_start_required {
                let request = PreStartContainerRequest { devices_ids: ids };
                let path = "/v1beta1.DevicePlugin/PreStartContainer";
                let _: Empty = call(&plugin.channel, path, request).await?;
            }
        }
        Ok(())
    }

    /// What a container has: resource, id, and the NUMA nodes that the device is near.
    pub(crate) fn of_container(&self, uid: &str, container: &str) -> Vec<Placed> {
        let pool = self.pool.lock();
        let assigned = pool.assigned(uid, container).into_iter().flatten();
        let placed = |resource: &String, id: &String| Placed {
            resource: resource.clone(),
            id: id.clone(),
            nodes: pool.nodes_of(resource, id).to_vec(),
        };
        assigned
            .flat_map(|(resource, ids)| ids.iter().map(move |id| (resource, id)))
            .map(|(resource, id)| placed(resource, id))
            .collect()
    }

    /// What can be given at all.
    pub(crate) fn allocatable(&self) -> Vec<Placed> {
        let pool = self.pool.lock();
        let placed = |(resource, id, device): (&String, &String, &pool::Known)| Placed {
            resource: resource.clone(),
            id: id.clone(),
            nodes: device.nodes.clone(),
        };
        pool.healthy().map(placed).collect()
    }

    /// Asks the plugin which of those that are free it likes best.
    async fn preferred(
        &self,
        plugin: &Plugin,
        place: (&str, &str),
        resource: &str,
        ids: Vec<String>,
    ) -> Vec<String> {
        if !plugin.options.get_preferred_allocation_available {
            return ids;
        }
        let Some(offer) = self.pool.lock().offer(place, resource) else { return ids };
        let request = ContainerPreferredAllocationRequest {
            available_device_ids: offer.available,
            must_include_device_ids: offer.must_include,
            allocation_size: i32::try_from(offer.size).unwrap_or(i32::MAX),
        };
        let request = PreferredAllocationRequest { container_requests: vec![request] };
        let path = "/v1beta1.DevicePlugin/GetPreferredAllocation";
        let answer: Result<PreferredAllocationResponse, DevicePluginError> =
            call(&plugin.channel, path, request).await;
        let liked = answer.ok().and_then(|answer| answer.container_responses.into_iter().next());
        let mut pool = self.pool.lock();
        if let Some(liked) = liked {
            pool.prefer(place, resource, &liked.device_ids);
        }
        pool.assigned(place.0, place.1).and_then(|all| all.get(resource)).cloned().unwrap_or(ids)
    }
}

/// Adds what a plugin says. Of two that say the same of different things, the first counts.
/// Source: `deviceRunContainerOptions`.
fn add(config: &mut v1::ContainerConfig, answer: ContainerAllocateResponse) {
    for (key, value) in answer.envs {
        if config.envs.iter().all(|env| env.key != key) {
            config.envs.push(v1::KeyValue { key, value });
        }
    }
    for (key, value) in answer.annotations {
        config.annotations.entry(key).or_insert(value);
    }
    for api::Mount { container_path, host_path, read_only: readonly } in answer.mounts {
        if config.mounts.iter().all(|mount| mount.container_path != container_path) {
            config.mounts.push(v1::Mount { container_path, host_path, readonly, ..v1::Mount::default() });
        }
    }
    for api::DeviceSpec { container_path, host_path, permissions } in answer.devices {
        if config.devices.iter().all(|device| device.container_path != container_path) {
            config.devices.push(v1::Device { container_path, host_path, permissions });
        }
    }
    for api::CdiDevice { name } in answer.cdi_devices {
        if config.cdi_devices.iter().all(|device| device.name != name) {
            config.cdi_devices.push(v1::CdiDevice { name });
        }
    }
}

async fn call<Q, A>(channel: &Channel, path: &'static str, request: Q) -> Result<A, DevicePluginError>
where
    Q: prost::Message + 'static,
    A: prost::Message + Default + 'static,
{
    let answer = grpc::call(channel, path, request, None).await;
    answer.map_err(|status| DevicePluginError::Call(Box::new(status)))
}

/// Takes registrations until the group of tasks stops.
pub(crate) async fn run(resources: Arc<NodeResources>) {
    registration::serve(&resources).await;
}

/// Takes a plugin on: its devices are followed until it hangs up.
///
/// # Errors
/// In upstream's words: it is none that can be.
fn register(resources: &Arc<NodeResources>, request: RegisterRequest) -> Result<(), DevicePluginError> {
    let RegisterRequest { version, endpoint, resource_name, options } = request;
    if version != api::VERSION {
        return Err(DevicePluginError::Version(version));
    }
    check_name(&resource_name)?;
    if endpoint.is_empty() || endpoint.contains('/') {
        return Err(DevicePluginError::Endpoint(endpoint));
    }
    let socket = resources.devices.folder.join(&endpoint);
    take(resources, resource_name, &socket, options, resources.tasks.clone())
}

/// Source: `IsExtendedResourceName`: quotas must be able to name it, too.
fn check_name(resource: &str) -> Result<(), DevicePluginError> {
    let is_native = !resource.contains('/') || resource.contains("kubernetes.io/");
    let is_extended = !is_native
        && !resource.starts_with(QUOTA)
        && names::qualified_name(&format!("{QUOTA}{resource}")).is_empty();
    if is_extended { Ok(()) } else { Err(DevicePluginError::Name(resource.to_owned())) }
}

/// Whether a plugin whose socket is in `plugins_registry` can be taken on.
///
/// # Errors
/// In upstream's words.
pub(crate) fn check(resource: &str, versions: &[String]) -> Result<(), DevicePluginError> {
    if !versions.iter().any(|supported| supported == api::VERSION) {
        return Err(DevicePluginError::Versions(versions.to_vec()));
    }
    check_name(resource).map_err(|why| DevicePluginError::SocketName(Box::new(why)))
}

/// Follows the plugin that listens at `socket` until it hangs up or `tasks` stop.
///
/// # Errors
/// There are too many.
pub(crate) fn take(
    resources: &Arc<NodeResources>,
    resource_name: String,
    socket: &Path,
    options: Option<DevicePluginOptions>,
    tasks: Tasks,
) -> Result<(), DevicePluginError> {
    let channel = grpc::channel(socket);
    let plugins = &resources.devices;
    let mut known = plugins.plugins.lock();
    if known.len() >= PLUGINS_MAX && !known.contains_key(&resource_name) {
        return Err(DevicePluginError::TooMany);
    }
    let number = plugins.counter.fetch_add(1, Ordering::Relaxed);
    let plugin = Plugin { channel, options: options.unwrap_or_default(), number };
    known.insert(resource_name.clone(), plugin.clone());
    drop(known);
    tracing::info!(resource = resource_name, "a device plugin has registered");
    resources.metrics.count(Count::DevicePluginRegistrations, &[&resource_name]);
    let owner = resources.clone();
    resources
        .tasks
        .spawn("device plugin", async move { follow(&owner, &resource_name, plugin, &tasks).await });
    Ok(())
}

/// Follows what a plugin says about its devices.
async fn follow(resources: &NodeResources, resource: &str, plugin: Plugin, tasks: &Tasks) {
    tokio::select! {
        () = tasks.stopping() => tracing::info!(resource, "a device plugin's socket is gone"),
        error = listen(resources, resource, &plugin.channel) => {
            tracing::warn!(resource, %error, "a device plugin is gone");
        }
    }
    let Some(loss) = resources.devices.lose(resource, plugin.number) else { return };
    resources.node_state.touch();
    tokio::time::sleep(STOPPED_GRACE).await;
    if resources.devices.pool.lock().forget(resource, loss) {
        tracing::info!(resource, "a device plugin has not come back");
        resources.node_state.touch();
    }
}

/// Gives why there is no more to hear.
async fn listen(resources: &NodeResources, resource: &str, channel: &Channel) -> DevicePluginError {
    let options: Result<DevicePluginOptions, DevicePluginError> =
        call(channel, "/v1beta1.DevicePlugin/GetDevicePluginOptions", Empty {}).await;
    if let (Ok(options), Some(known)) = (options, resources.devices.plugins.lock().get_mut(resource)) {
        known.options = options;
    }
    match listen_to_devices(resources, resource, channel).await {
        Ok(()) => DevicePluginError::Ended,
        Err(error) => error,
    }
}

async fn listen_to_devices(
    resources: &NodeResources,
    resource: &str,
    channel: &Channel,
) -> Result<(), DevicePluginError> {
    let lost = |status| DevicePluginError::Lost(Box::new(status));
    let mut grpc = grpc::ready(channel).await.map_err(lost)?;
    let path = PathAndQuery::from_static("/v1beta1.DevicePlugin/ListAndWatch");
    let codec = ProstCodec::<Empty, ListAndWatchResponse>::default();
    let stream = grpc.server_streaming(Request::new(Empty {}), path, codec).await;
    let mut stream = stream.map_err(lost)?.into_inner();
    while let Some(answer) = stream.message().await.map_err(lost)? {
        if resources.devices.pool.lock().set(resource, &answer.devices) {
            resources.node_state.touch();
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
