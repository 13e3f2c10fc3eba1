//! Brings about what a Pod's volumes were promised, before the Pod is bound: volumes are set aside for claims, and
//! provisioners are told where to make others.
//!
//! Source: `BindPodVolumes`, `plugins/volumebinding` of kube-scheduler.

use std::collections::BTreeSet;
use std::time::Duration;

use controller::volume::{SELECTED_NODE, annotation, claim_ref, is_claim_bound, set_aside};
use controller::{Action, EventType, Hands, Informer, Informers};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};

use crate::storage::{Promise, claim_key};

/// How long volumes are waited for. Source: `VolumeBindingArgs.bindTimeoutSeconds`.
const BIND_MAX: Duration = Duration::from_secs(600);

/// Where the wait for volumes looks.
#[derive(Clone)]
pub(crate) struct Volumes {
    claims: Informer<PersistentVolumeClaim>,
    pods: Informer<Pod>,
}

impl Volumes {
    pub(crate) fn new(informers: &Informers) -> Self {
        Self { claims: informers.informer(), pods: informers.informer() }
    }
}

/// Writes what was promised and waits until every claim is bound.
///
/// # Errors
/// A text for the log; the Pod has been told by an event.
pub(crate) async fn bind(
    hands: &Hands,
    volumes: &Volumes,
    pod: &Pod,
    promise: &Promise,
) -> Result<(), String> {
    let bound = async {
        for action in actions(promise) {
            hands.carry_out(action).await?;
        }
        let waited = tokio::time::timeout(BIND_MAX, wait(volumes, pod, promise)).await;
        waited.unwrap_or_else(|_| Err("context deadline exceeded".to_owned()))
    };
    let Err(why) = bound.await else { return Ok(()) };
    let text = format!("running PreBind plugin \"VolumeBinding\": binding volumes: {why}");
    hands.carry_out(Action::event(pod, EventType::Warning, "FailedScheduling", text.clone())).await?;
    Err(text)
}

/// The writes: volumes name their claims, claims their Node.
fn actions(promise: &Promise) -> Vec<Action> {
    let unnamed = promise
        .bind
        .iter()
        .filter(|(volume, claim)| claim_ref(volume).is_none_or(|known| known.uid != claim.metadata.uid));
    let volumes = unnamed.map(|(volume, claim)| Action::update(&set_aside(volume, claim)));
    let chosen = promise
        .provision
        .iter()
        .filter(|claim| annotation(&claim.metadata, SELECTED_NODE) != Some(&promise.node));
    let claims = chosen.map(|claim| {
        let mut new = (**claim).clone();
        new.metadata
            .annotations
            .get_or_insert_default()
            .insert(SELECTED_NODE.to_owned(), promise.node.clone());
        Action::update(&new)
    });
    volumes.chain(claims).collect()
}

async fn wait(volumes: &Volumes, pod: &Pod, promise: &Promise) -> Result<(), String> {
    let (mut claims, mut pods) = (volumes.claims.subscribe(), volumes.pods.subscribe());
    // The first news are of everything that there is; whether our own writes are seen shows in the claims themselves.
    let mut chosen = BTreeSet::new();
    loop {
        if is_done(volumes, promise, &mut chosen)? {
            return Ok(());
        }
        let meta = &pod.metadata;
        let text = |part: &Option<String>| part.clone().unwrap_or_default();
        let key = format!("{}/{}", text(&meta.namespace), text(&meta.name));
        if volumes.pods.get(&key).is_none_or(|known| known.metadata.uid != meta.uid) {
            return Err("the pod is gone".to_owned());
        }
        tokio::select! {
            _ = claims.next() => {}
            _ = pods.next() => {}
        }
    }
}

/// Whether every claim is bound, or that it will not be.
fn is_done(volumes: &Volumes, promise: &Promise, chosen: &mut BTreeSet<String>) -> Result<bool, String> {
    let known = |claim: &PersistentVolumeClaim| {
        let name = claim.metadata.name.as_deref().unwrap_or_default();
        let found =
            volumes.claims.get(&claim_key(claim)).filter(|now| now.metadata.uid == claim.metadata.uid);
        found.ok_or_else(|| format!("persistentvolumeclaim \"{name}\" not found"))
    };
    let mut is_done = true;
    for (_, claim) in &promise.bind {
        let now = known(claim)?;
        is_done &= is_claim_bound(&now);
    }
    for claim in &promise.provision {
        let now = known(claim)?;
        if is_claim_bound(&now) {
            continue;
        }
        is_done = false;
        let selected = annotation(&now.metadata, SELECTED_NODE);
        if selected == Some(&promise.node) {
            chosen.insert(claim_key(claim));
        } else if chosen.contains(&claim_key(claim)) {
            // The provisioner has given up there.
            return Err(format!(
                "provisioning failed for PVC \"{}\"",
                now.metadata.name.clone().unwrap_or_default()
            ));
        }
    }
    Ok(is_done)
}
