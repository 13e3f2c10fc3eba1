//! Dynamic resource allocation on the node: drivers prepare the claims of a Pod before its sandbox is made, and take them
//! back when its containers have ended.
//!
//! Drivers come and go by their sockets ([`crate::plugins`]). What they say about devices are names of the container
//! device interface (CDI), which go to the runtime. Source: `pkg/kubelet/cm/dra`, KEP-4381.

pub(crate) mod api;
mod claims;
mod error;
mod slices;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use base::Backoff;
use controller::request;
use controller::resource_claim::{self, Meant, is_reserved_for, of_pod};
use cri::v1;
use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::api::resource::v1::ResourceClaim;
use parking_lot::Mutex;

use crate::context::Context;
use crate::metrics::{KubeletMetrics, Measure};
use crate::node_resources::NodeResources;
use crate::node_resources::pod_resources::api::DynamicResource;
use api::{ClaimsRequest, Driver};
use claims::{ClaimInfo, Claims, Prepared};
pub(crate) use error::DraError;

/// Before what a Pod that is gone has left is tried to be taken back again.
const RETRY_FIRST: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(60);

/// Drivers, and what they have prepared.
pub(crate) struct Dra {
    drivers: Mutex<BTreeMap<String, (u64, Driver)>>,
    counter: AtomicU64,
    claims: Mutex<Claims>,
    /// What earlier drivers offered has been taken back.
    is_wiped: tokio::sync::watch::Sender<bool>,
    metrics: Arc<KubeletMetrics>,
    /// Whoever holds it talks to drivers about claims: a claim that two Pods share is prepared once.
    turn: tokio::sync::Mutex<()>,
}

impl Dra {
    /// Takes up what the checkpoint in the kubelet's folder says. Blocking.
    pub(crate) fn open(root_dir: &Path, metrics: Arc<KubeletMetrics>) -> Self {
        Self {
            drivers: Mutex::default(),
            counter: AtomicU64::new(0),
            claims: Mutex::new(Claims::open(root_dir)),
            is_wiped: tokio::sync::watch::Sender::new(false),
            metrics,
            turn: tokio::sync::Mutex::default(),
        }
    }

    /// Waits until no slice of an earlier driver is left that could be taken for a new one's.
    pub(crate) async fn wiped(&self) {
        // The sender lives as long as we do.
        drop(self.is_wiped.subscribe().wait_for(|is_wiped| *is_wiped).await);
    }

    /// Takes a driver in; gives what [`Dra::remove`] knows it by.
    ///
    /// # Errors
    /// In upstream's words: it speaks nothing that is known.
    pub(crate) fn insert(&self, name: &str, endpoint: &Path, services: &[String]) -> Result<u64, DraError> {
        let driver = Driver::new(name, endpoint, services, &self.metrics).map_err(|source| {
            DraError::Versions { name: name.to_owned(), endpoint: endpoint.to_owned(), source }
        })?;
        let id = self.counter.fetch_add(1, Ordering::Relaxed);
        self.drivers.lock().insert(name.to_owned(), (id, driver));
        Ok(id)
    }

    /// Forgets the driver, unless another one has come under its name.
    pub(crate) fn remove(&self, name: &str, id: u64) -> bool {
        let mut all = self.drivers.lock();
        let is_same = all.get(name).is_some_and(|(known, _)| *known == id);
        if is_same {
            all.remove(name);
        }
        is_same
    }

    fn driver(&self, name: &str) -> Result<Driver, DraError> {
        let missing = || DraError::NotRegistered(name.to_owned());
        self.drivers.lock().get(name).map(|(_, driver)| driver.clone()).ok_or_else(missing)
    }

    /// Whether a driver has something to take back from the Pod.
    pub(crate) fn holds(&self, pod: &str) -> bool {
        self.claims.lock().has(pod)
    }

    /// How many claims are in use, and how many by driver.
    pub(crate) fn in_use(&self) -> (usize, BTreeMap<String, usize>) {
        self.claims.lock().in_use()
    }

    /// Has every claim of the Pod prepared.
    ///
    /// # Errors
    /// In upstream's words.
    pub(crate) async fn prepare(&self, context: &Context, pod: &Pod) -> Result<(), DraError> {
        self.measured("PrepareResources", self.try_prepare(context, pod)).await
    }

    async fn measured(
        &self,
        operation: &str,
        work: impl Future<Output = Result<(), DraError>>,
    ) -> Result<(), DraError> {
        let start = Instant::now();
        let result = work.await;
        let is_error = if result.is_err() { "true" } else { "false" };
        self.metrics.measure(Measure::ClaimOperations, &[operation, is_error], start.elapsed());
        result
    }

    async fn try_prepare(&self, context: &Context, pod: &Pod) -> Result<(), DraError> {
        let failed = |why| DraError::Prepare(Box::new(why));
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let mut wanted = Vec::new();
        for claim in of_pod(pod) {
            let Some(meant) = resource_claim::must_be(pod, claim).map_err(|error| failed(error.into()))?
            else {
                continue;
            };
            wanted.push(self.check(context, pod, &meant).await.map_err(failed)?);
        }
        if wanted.is_empty() {
            return Ok(());
        }
        let _turn = self.turn.lock().await;
        let mut missing = Vec::new();
        for info in wanted {
            if self.claims.lock().add(info.clone(), uid).map_err(failed)? {
                missing.push(info);
            }
        }
        let mut devices: BTreeMap<String, BTreeMap<String, Vec<Prepared>>> =
            missing.iter().map(|info| (info.key(), BTreeMap::new())).collect();
        for (name, claims) in by_driver(&missing) {
            let answers =
                prepare_with(&self.driver(&name).map_err(failed)?, &claims).await.map_err(failed)?;
            for (key, prepared) in answers {
                devices.entry(key).or_default().insert(name.clone(), prepared);
            }
        }
        self.claims.lock().prepared(devices).map_err(failed)
    }

    /// A claim that the Pod may use, and whose drivers are here. Nothing is written down before that is known.
    async fn check(&self, context: &Context, pod: &Pod, meant: &Meant) -> Result<ClaimInfo, DraError> {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let name = meant.name().unwrap_or_default();
        let claim = request::get::<ResourceClaim>(&context.client, namespace, name).await;
        let claim =
            claim.map_err(|source| DraError::Fetch { name: name.to_owned(), source: Box::new(source) })?;
        if matches!(meant, Meant::Made(_)) {
            resource_claim::check_owner(pod, &claim).map_err(DraError::NotOfPod)?;
        }
        if !is_reserved_for(pod, &claim) {
            let text = |part: &Option<String>| part.clone().unwrap_or_default();
            return Err(DraError::NotReserved {
                pod: text(&pod.metadata.name),
                pod_uid: text(&pod.metadata.uid),
                claim: name.to_owned(),
                claim_uid: text(&claim.metadata.uid),
            });
        }
        let info = ClaimInfo::of(&claim)?;
        info.drivers.keys().try_for_each(|driver| self.driver(driver).map(drop))?;
        Ok(info)
    }

    /// The devices of a container, for the runtime.
    ///
    /// # Errors
    /// In upstream's words: a claim is not prepared.
    pub(crate) fn devices(&self, pod: &Pod, container: &Container) -> Result<Vec<v1::CdiDevice>, DraError> {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let used = container.resources.as_ref().and_then(|resources| resources.claims.as_deref());
        let used = used.unwrap_or_default();
        let mut names: Vec<String> = Vec::new();
        let claims = self.claims.lock();
        for claim in of_pod(pod) {
            let meant = resource_claim::meant(pod, claim);
            for reference in used.iter().filter(|reference| reference.name == claim.name) {
                let Some(name) = meant.name() else { continue };
                let info = claims.get(&format!("{namespace}/{name}"));
                let missing =
                    || DraError::NotPrepared { namespace: namespace.to_owned(), name: name.to_owned() };
                let info = info.ok_or_else(missing)?;
                let request = reference.request.as_deref().filter(|request| !request.is_empty());
                for device in info.cdi_devices(request) {
                    if !names.contains(device) {
                        names.push(device.clone());
                    }
                }
            }
        }
        Ok(names.into_iter().map(|name| v1::CdiDevice { name }).collect())
    }

    /// What the container has by claims that are prepared, for monitoring. Source: `GetContainerClaimInfos`.
    pub(crate) fn resources(&self, pod: &Pod, container: &Container) -> Vec<DynamicResource> {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let used = container.resources.as_ref().and_then(|resources| resources.claims.as_deref());
        let used = used.unwrap_or_default();
        let claims = self.claims.lock();
        let named = of_pod(pod).iter().filter(|claim| used.iter().any(|used| used.name == claim.name));
        let found = named.filter_map(|claim| {
            let meant = resource_claim::meant(pod, claim);
            claims.get(&format!("{namespace}/{}", meant.name()?)).map(ClaimInfo::shown)
        });
        found.collect()
    }

    /// Has everything taken back that only this Pod uses.
    ///
    /// # Errors
    /// In upstream's words; what is left is tried again by whoever asks again.
    pub(crate) async fn unprepare(&self, pod: &str) -> Result<(), DraError> {
        if !self.holds(pod) {
            return Ok(());
        }
        self.measured("UnprepareResources", self.try_unprepare(pod)).await
    }

    async fn try_unprepare(&self, pod: &str) -> Result<(), DraError> {
        let failed = |why| DraError::Unprepare(Box::new(why));
        let _turn = self.turn.lock().await;
        let last = self.claims.lock().leave(pod).map_err(failed)?;
        for (name, claims) in by_driver(&last) {
            unprepare_with(&self.driver(&name).map_err(failed)?, &claims).await.map_err(failed)?;
        }
        self.claims.lock().forget(&last).map_err(failed)
    }
}

fn by_driver(claims: &[ClaimInfo]) -> BTreeMap<String, Vec<&ClaimInfo>> {
    let mut all: BTreeMap<String, Vec<&ClaimInfo>> = BTreeMap::new();
    for info in claims {
        for driver in info.drivers.keys() {
            all.entry(driver.clone()).or_default().push(info);
        }
    }
    all
}

fn request(claims: &[&ClaimInfo]) -> ClaimsRequest {
    ClaimsRequest { claims: claims.iter().map(|info| info.message()).collect() }
}

/// What a driver has prepared, by claim.
async fn prepare_with(
    driver: &Driver,
    claims: &[&ClaimInfo],
) -> Result<Vec<(String, Vec<Prepared>)>, DraError> {
    const CALL: &str = "NodePrepareResources";
    let answer = driver.node_prepare_resources(request(claims)).await;
    let mut answer = answer.map_err(|status| DraError::Call { call: CALL, status: Box::new(status) })?.claims;
    let mut prepared = Vec::new();
    for info in claims {
        let Some(result) = answer.remove(&info.uid) else { continue };
        if !result.error.is_empty() {
            return Err(DraError::Refused { call: CALL, claim: info.name.clone(), why: result.error });
        }
        prepared.push((info.key(), result.devices.into_iter().map(Prepared::from).collect()));
    }
    complete(CALL, claims.len() - prepared.len(), answer.keys().next())?;
    Ok(prepared)
}

async fn unprepare_with(driver: &Driver, claims: &[&ClaimInfo]) -> Result<(), DraError> {
    const CALL: &str = "NodeUnprepareResources";
    let answer = driver.node_unprepare_resources(request(claims)).await;
    let mut answer = answer.map_err(|status| DraError::Call { call: CALL, status: Box::new(status) })?.claims;
    let mut unfinished = 0;
    for info in claims {
        match answer.remove(&info.uid) {
            None => unfinished += 1,
            Some(result) if result.error.is_empty() => {}
            Some(result) => {
                return Err(DraError::Refused { call: CALL, claim: info.name.clone(), why: result.error });
            }
        }
    }
    complete(CALL, unfinished, answer.keys().next())
}

/// A driver answers for every claim, and for no other.
fn complete(call: &'static str, unfinished: usize, unknown: Option<&String>) -> Result<(), DraError> {
    match (unknown, unfinished) {
        (Some(uid), _) => Err(DraError::Unknown { call, uid: uid.clone() }),
        (None, 0) => Ok(()),
        (None, count) => Err(DraError::Skipped { call, count }),
    }
}

/// Takes back what Pods have left that are gone: neither the API nor the runtime knows them. Until it is done.
pub(crate) fn take_back(resources: &Arc<NodeResources>, known: &BTreeSet<String>) {
    let mut gone = resources.dra.claims.lock().pods();
    gone.retain(|pod| !known.contains(pod));
    for pod in gone {
        let resources = resources.clone();
        resources.tasks.clone().spawn("claims of a pod that is gone", async move {
            let mut backoff = Backoff::new(RETRY_FIRST, RETRY_MAX, 0.1);
            while let Err(error) = resources.dra.unprepare(&pod).await {
                tracing::info!(%error, pod, "claims of a pod that is gone are still prepared");
                tokio::time::sleep(backoff.next(&resources.random)).await;
            }
        });
    }
}

/// What no driver offers any more is not offered: at the start, when none has registered yet. None registers before.
pub(crate) fn start(resources: &Arc<NodeResources>) {
    let resources = resources.clone();
    resources.tasks.clone().spawn("resource slices", async move {
        slices::wipe(&resources, None).await;
        resources.dra.is_wiped.send_replace(true);
    });
}

/// The driver's last socket is gone: if none comes back soon, its devices are not offered any more.
pub(crate) fn driver_gone(resources: &Arc<NodeResources>, name: &str) {
    let (resources, name) = (resources.clone(), name.to_owned());
    resources.tasks.clone().spawn("resource slices of a driver that is gone", async move {
        tokio::time::sleep(slices::GRACE).await;
        if resources.dra.driver(&name).is_err() {
            slices::wipe(&resources, Some(&name)).await;
        }
    });
}

#[cfg(test)]
mod tests;
