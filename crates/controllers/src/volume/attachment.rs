//! The attach-detach controller: VolumeAttachments for the volumes that Pods need on their nodes, for drivers that want
//! to be asked.
//!
//! A volume that only one node may have is not attached to a second one. It is detached when no Pod there needs it and
//! the kubelet says that it does not use it any more; without that word only when the node has been unhealthy for six
//! minutes, or when somebody says that it is out of service. The attaching itself is the driver's sidecar's.
//! Source: `pkg/controller/volume/attachdetach`; KEP-2268.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use controller::volume::{attachment_name, claims_of, csi, is_exclusive, unique_name, volume_name};
use controller::{Action, Change, Controller, EventType, Informers, Patch, Plan, Propagation, Source};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{AttachedVolume, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{
    CSIDriver, CSINode, VolumeAttachment, VolumeAttachmentSource, VolumeAttachmentSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;

use crate::object::{is_deleting, name, namespace, uid};
use crate::pod::{is_finished, node_name, since_until};

/// How long an unhealthy node is waited for. Source: `ReconcilerMaxWaitForUnmountDuration`.
const UNMOUNT_MAX: Duration = Duration::from_secs(6 * 60);
/// Source: `core/v1.TaintNodeOutOfService`.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// The controller's row. Keys are volumes.
pub const CONTROLLER: Controller = Controller {
    name: "persistentvolume-attach-detach-controller",
    queue: "attachdetach",
    sources: |_| {
        vec![
            Source::of::<Pod>(volumes_of_pod),
            Source::of::<VolumeAttachment>(volume_of_attachment),
            Source::of::<PersistentVolume>(|change, _| vec![change.key.clone()]),
            Source::of::<PersistentVolumeClaim>(|change, _| {
                let name = change.new.as_deref().map(volume_name).unwrap_or_default();
                if name.is_empty() { Vec::new() } else { vec![name.to_owned()] }
            }),
            Source::of::<Node>(volumes_of_node),
            Source::of::<CSINode>(|change, informers| attached_or_wanted(&change.key, informers)),
            Source::of::<CSIDriver>(volumes_of_driver),
        ]
    },
    reconcile: |informers, key, now| {
        snapshot(informers, key).map_or_else(Plan::nothing, |snapshot| plan(&snapshot, now))
    },
};

/// What a decision about one volume is made from.
struct Snapshot {
    volume: Arc<PersistentVolume>,
    /// The Pods that need it, by node.
    wanted: BTreeMap<String, Vec<Arc<Pod>>>,
    /// Every attachment, of other volumes too.
    attachments: Vec<Arc<VolumeAttachment>>,
    nodes: BTreeMap<String, Arc<Node>>,
    /// Which nodes have the driver.
    having: Vec<String>,
    /// Whether the driver wants to be asked.
    is_attachable: bool,
}

fn snapshot(informers: &Informers, key: &str) -> Option<Snapshot> {
    let volume = informers.informer::<PersistentVolume>().get(key)?;
    let driver = csi(&volume)?.driver.clone();
    let claim = super::claim_key(&volume).unwrap_or_default();
    let is_bound = informers
        .informer::<PersistentVolumeClaim>()
        .get(&claim)
        .is_some_and(|claim| volume_name(&claim) == key);
    let mut wanted: BTreeMap<String, Vec<Arc<Pod>>> = BTreeMap::new();
    if is_bound {
        let space = claim.split('/').next().unwrap_or_default();
        for pod in informers.informer::<Pod>().in_namespace(space) {
            if !node_name(&pod).is_empty() && !is_finished(&pod) && claims_of(&pod).contains(&claim) {
                wanted.entry(node_name(&pod).to_owned()).or_default().push(pod);
            }
        }
    }
    let attachable = informers.informer::<CSIDriver>().get(&driver);
    let nodes = informers.informer::<CSINode>().list();
    let has = |node: &&Arc<CSINode>| node.spec.drivers.iter().any(|one| one.name == driver);
    Some(Snapshot {
        wanted,
        attachments: informers.informer::<VolumeAttachment>().list(),
        nodes: informers
            .informer::<Node>()
            .list()
            .into_iter()
            .map(|n| (name(&n.metadata).to_owned(), n))
            .collect(),
        having: nodes.iter().filter(has).map(|node| name(&node.metadata).to_owned()).collect(),
        is_attachable: attachable.is_none_or(|driver| driver.spec.attach_required != Some(false)),
        volume,
    })
}

fn volumes_of_pod(change: &Change<Pod>, informers: &Informers) -> Vec<String> {
    let claims = informers.informer::<PersistentVolumeClaim>();
    let both = [change.old.as_deref(), change.new.as_deref()];
    let keys = both.into_iter().flatten().filter(|pod| !node_name(pod).is_empty()).flat_map(claims_of);
    let mut volumes: Vec<String> =
        keys.filter_map(|key| claims.get(&key)).map(|claim| volume_name(&claim).to_owned()).collect();
    volumes.retain(|volume| !volume.is_empty());
    volumes.sort();
    volumes.dedup();
    volumes
}

fn volume_of_attachment(change: &Change<VolumeAttachment>, _: &Informers) -> Vec<String> {
    let any = change.new.as_ref().or(change.old.as_ref());
    any.and_then(|attachment| attachment.spec.source.persistent_volume_name.clone()).into_iter().collect()
}

fn volumes_of_node(change: &Change<Node>, informers: &Informers) -> Vec<String> {
    let told = |node: &Option<Arc<Node>>| {
        node.as_ref().map(|node| {
            let status = node.status.as_ref();
            let used = status.and_then(|status| status.volumes_in_use.clone());
            let attached = status.and_then(|status| status.volumes_attached.clone());
            (used, attached, unhealthy_since(node), is_out_of_service(node))
        })
    };
    if told(&change.old) == told(&change.new) {
        Vec::new()
    } else {
        attached_or_wanted(&change.key, informers)
    }
}

/// The volumes that are attached to a node, or that a Pod there wants.
fn attached_or_wanted(node: &str, informers: &Informers) -> Vec<String> {
    let attachments = informers.informer::<VolumeAttachment>().list();
    let here = attachments.iter().filter(|attachment| attachment.spec.node_name == node);
    let mut volumes: Vec<String> =
        here.filter_map(|attachment| attachment.spec.source.persistent_volume_name.clone()).collect();
    let claims = informers.informer::<PersistentVolumeClaim>();
    for pod in informers.informer::<Pod>().list().iter().filter(|pod| node_name(pod) == node) {
        let keys = claims_of(pod);
        volumes.extend(keys.iter().filter_map(|key| claims.get(key)).map(|c| volume_name(&c).to_owned()));
    }
    volumes.retain(|volume| !volume.is_empty());
    volumes.sort();
    volumes.dedup();
    volumes
}

fn volumes_of_driver(change: &Change<CSIDriver>, informers: &Informers) -> Vec<String> {
    let volumes = informers.informer::<PersistentVolume>().list();
    let of = |volume: &&Arc<PersistentVolume>| csi(volume).is_some_and(|source| source.driver == change.key);
    volumes.iter().filter(of).map(|volume| name(&volume.metadata).to_owned()).collect()
}

/// Since when the node has not been Ready.
fn unhealthy_since(node: &Node) -> Option<Timestamp> {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let ready = conditions.into_iter().find(|condition| condition.type_ == "Ready")?;
    if ready.status == "True" {
        return None;
    }
    ready.last_transition_time.as_ref().map(|time| time.0)
}

fn is_out_of_service(node: &Node) -> bool {
    node.spec.iter().flat_map(|spec| spec.taints.iter().flatten()).any(|taint| taint.key == OUT_OF_SERVICE)
}

/// Whether, and when, a volume may be taken from its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Release {
    Now,
    After(Duration),
    WhenUnused,
}

fn release(node: Option<&Node>, unique: &str, now: Timestamp) -> Release {
    let Some(node) = node else { return Release::Now };
    let used = node.status.iter().flat_map(|status| status.volumes_in_use.iter().flatten());
    if !used.into_iter().any(|used| used == unique) || is_out_of_service(node) {
        return Release::Now;
    }
    match unhealthy_since(node) {
        None => Release::WhenUnused,
        Some(since) => match UNMOUNT_MAX.checked_sub(since_until(since, now)) {
            Some(left) if !left.is_zero() => Release::After(left),
            _ => Release::Now,
        },
    }
}

fn is_attached(attachment: &VolumeAttachment) -> bool {
    attachment.status.as_ref().is_some_and(|status| status.attached)
}

fn plan(snapshot: &Snapshot, now: Timestamp) -> Plan {
    let mut plan = Plan::nothing();
    let volume = &*snapshot.volume;
    let Some(source) = csi(volume) else { return plan };
    let unique = unique_name(source);
    let own = |attachment: &&Arc<VolumeAttachment>| {
        attachment.spec.source.persistent_volume_name == volume.metadata.name
    };
    let own: Vec<_> = snapshot.attachments.iter().filter(own).collect();
    let mut held: Vec<&str> = Vec::new();
    for attachment in &own {
        let node_key = attachment.spec.node_name.as_str();
        held.push(node_key);
        let pods = snapshot.wanted.get(node_key).filter(|_| snapshot.is_attachable);
        let node = snapshot.nodes.get(node_key).map(|node| &**node);
        if let Some(pods) = pods.filter(|_| !is_deleting(&attachment.metadata)) {
            told(&mut plan, snapshot, attachment, node, pods);
            continue;
        }
        if is_deleting(&attachment.metadata) {
            continue;
        }
        match release(node, &unique, now) {
            Release::WhenUnused => {}
            Release::After(left) => plan.requeue(left),
            Release::Now => {
                if let Some(node) = node {
                    plan.push_step(tell_node(snapshot, node, Some(name(&attachment.metadata))));
                }
                let (name, uid) = (name(&attachment.metadata), uid(&attachment.metadata));
                plan.push(Action::delete::<VolumeAttachment>(
                    "",
                    name,
                    Some(uid),
                    Propagation::Background,
                    None,
                ));
            }
        }
    }
    if !snapshot.is_attachable || is_deleting(&volume.metadata) && own.is_empty() {
        return plan;
    }
    let mut is_taken = !held.is_empty();
    for (node, pods) in &snapshot.wanted {
        if held.contains(&node.as_str()) || !snapshot.having.contains(node) {
            continue;
        }
        if is_taken && is_exclusive(volume) {
            plan.push_step(multi_attach(snapshot, node, pods));
            continue;
        }
        is_taken = true;
        plan.push(Action::create(&VolumeAttachment {
            metadata: ObjectMeta { name: Some(attachment_name(source, node)), ..ObjectMeta::default() },
            spec: VolumeAttachmentSpec {
                attacher: source.driver.clone(),
                node_name: node.clone(),
                source: VolumeAttachmentSource {
                    persistent_volume_name: volume.metadata.name.clone(),
                    ..VolumeAttachmentSource::default()
                },
            },
            status: None,
        }));
    }
    plan
}

/// What has become of an attachment is told to its node and to the Pods that wait.
fn told(
    plan: &mut Plan,
    snapshot: &Snapshot,
    attachment: &VolumeAttachment,
    node: Option<&Node>,
    pods: &[Arc<Pod>],
) {
    let volume = name(&snapshot.volume.metadata);
    if is_attached(attachment) {
        let told = node.map(|node| tell_node(snapshot, node, None)).unwrap_or_default();
        let is_news = !told.is_empty();
        plan.push_step(told);
        if is_news {
            let message = format!("AttachVolume.Attach succeeded for volume \"{volume}\" ");
            let event = |pod: &Arc<Pod>| {
                Action::event(&**pod, EventType::Normal, "SuccessfulAttachVolume", message.clone())
            };
            plan.push_step(pods.iter().map(event).collect());
        }
        return;
    }
    let error = attachment.status.as_ref().and_then(|status| status.attach_error.as_ref());
    if let Some(error) = error.and_then(|error| error.message.as_deref()) {
        let message = format!("AttachVolume.Attach failed for volume \"{volume}\" : {error}");
        let event =
            |pod: &Arc<Pod>| Action::event(&**pod, EventType::Warning, "FailedAttachVolume", message.clone());
        plan.push_step(pods.iter().map(event).collect());
    }
}

/// Has the node's status say what is attached to it, `without` an attachment that is about to go.
fn tell_node(snapshot: &Snapshot, node: &Node, without: Option<&str>) -> Vec<Action> {
    let here = |attachment: &&Arc<VolumeAttachment>| {
        attachment.spec.node_name == name(&node.metadata)
            && is_attached(attachment)
            && !is_deleting(&attachment.metadata)
            && Some(name(&attachment.metadata)) != without
    };
    let mut attached: Vec<AttachedVolume> = snapshot
        .attachments
        .iter()
        .filter(here)
        .filter_map(|attachment| {
            let handle = attached_name(snapshot, attachment, node)?;
            Some(AttachedVolume { name: handle, device_path: String::new() })
        })
        .collect();
    attached.sort_by(|a, b| a.name.cmp(&b.name));
    attached.dedup_by(|a, b| a.name == b.name);
    let known = node.status.as_ref().and_then(|status| status.volumes_attached.clone()).unwrap_or_default();
    if known == attached {
        return Vec::new();
    }
    let patch = json!({
        "metadata": {"resourceVersion": node.metadata.resource_version},
        "status": {"volumesAttached": attached},
    });
    vec![Action::patch_status::<Node>("", name(&node.metadata), Patch::Strategic(patch))]
}

/// What an attachment's volume is called; of other volumes than the one in question the node's own word is taken.
fn attached_name(snapshot: &Snapshot, attachment: &VolumeAttachment, node: &Node) -> Option<String> {
    let source = csi(&snapshot.volume)?;
    if attachment.spec.source.persistent_volume_name == snapshot.volume.metadata.name {
        return Some(unique_name(source));
    }
    let known = node.status.iter().flat_map(|status| status.volumes_attached.iter().flatten());
    let of = |handle: &&AttachedVolume| {
        let (driver, handle) = handle.name.strip_prefix("kubernetes.io/csi/")?.split_once('^')?;
        let source = k8s_openapi::api::core::v1::CSIPersistentVolumeSource {
            driver: driver.to_owned(),
            volume_handle: handle.to_owned(),
            ..Default::default()
        };
        (attachment_name(&source, name(&node.metadata)) == name(&attachment.metadata)).then_some(())
    };
    known.into_iter().find(|handle| of(handle).is_some()).map(|handle| handle.name.clone())
}

fn multi_attach(snapshot: &Snapshot, node: &str, pods: &[Arc<Pod>]) -> Vec<Action> {
    let volume = name(&snapshot.volume.metadata);
    let others: Vec<&str> = snapshot
        .wanted
        .iter()
        .filter(|(other, _)| *other != node)
        .flat_map(|(_, pods)| pods.iter().map(|pod| name(&pod.metadata)))
        .collect();
    let why = match others.as_slice() {
        [] => {
            "Volume is already exclusively attached to one node and can't be attached to another".to_owned()
        }
        pods => format!("Volume is already used by pod(s) {}", pods.join(", ")),
    };
    let message = format!("Multi-Attach error for volume \"{volume}\" {why}");
    let mut pods: Vec<_> = pods.to_vec();
    pods.sort_by_key(|pod| (namespace(&pod.metadata).to_owned(), name(&pod.metadata).to_owned()));
    let event =
        |pod: &Arc<Pod>| Action::event(&**pod, EventType::Warning, "FailedAttachVolume", message.clone());
    pods.iter().map(event).collect()
}

#[cfg(test)]
mod tests;
