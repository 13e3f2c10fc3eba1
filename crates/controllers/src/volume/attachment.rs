//! The attach-detach controller: VolumeAttachments for the volumes that Pods need on their nodes, for drivers that want
//! to be asked.
//!
//! A volume that only one node may have is not attached to a second one. It is detached when no Pod there needs it and
//! the kubelet says that it does not use it any more; without that word only when the node has been unhealthy for six
//! minutes, or when somebody says that it is out of service. The attaching itself is the driver's sidecar's.
//!
//! A volume of a kind that a driver has taken over is that driver's. Where a Pod names one itself, no PersistentVolume
//! stands for it: its key is what its node calls it, and the attachment has all that the driver needs. iSCSI volumes have
//! no driver, see [`unasked`].
//! Source: `pkg/controller/volume/attachdetach`; KEP-2268, KEP-625.

mod unasked;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use controller::metadata::{is_deleting, name, namespace, uid};
use controller::pod::Pod;
use controller::volume::{
    attachment_name, claims_of, csi, is_exclusive, migration, unique_name, volume_name,
};
use controller::{Action, Change, Controller, EventType, Informers, Patch, Plan, Propagation, Source};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    AttachedVolume, CSIPersistentVolumeSource, Node, PersistentVolume, PersistentVolumeClaim,
};
use k8s_openapi::api::storage::v1::{
    CSIDriver, CSINode, VolumeAttachment, VolumeAttachmentSource, VolumeAttachmentSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;

use crate::options::Options;
use crate::pod::{is_finished, node_name, since_until};

/// How long an unhealthy node is waited for, where it is not waited for for ever. Source:
/// `ReconcilerMaxWaitForUnmountDuration`, `--disable-force-detach-on-timeout`.
const UNMOUNT_MAX: Duration = Duration::from_secs(6 * 60);
/// Source: `core/v1.TaintNodeOutOfService`.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// The controller's row. Keys are volumes: names of PersistentVolumes, and what nodes call Pods' own and those that have no
/// driver.
pub const CONTROLLER: Controller = Controller {
    name: "persistentvolume-attach-detach-controller",
    queue: "attachdetach",
    sources: |_| {
        vec![
            Source::of::<Pod>(volumes_of_pod),
            Source::of::<VolumeAttachment>(volume_of_attachment),
            Source::of::<PersistentVolume>(|change, informers| vec![key(informers, &change.key)]),
            Source::of::<PersistentVolumeClaim>(|change, informers| {
                let name = change.new.as_deref().map(volume_name).unwrap_or_default();
                if name.is_empty() { Vec::new() } else { vec![key(informers, name)] }
            }),
            Source::of::<Node>(volumes_of_node),
            Source::of::<CSINode>(|change, informers| attached_or_wanted(&change.key, informers)),
            Source::of::<CSIDriver>(volumes_of_driver),
        ]
    },
    reconcile: |informers, key, now| {
        if unasked::is_key(key) {
            return unasked::plan(&unasked::snapshot(informers, key), now);
        }
        snapshot(informers, key).map_or_else(Plan::nothing, |snapshot| plan(&snapshot, now))
    },
};

/// The key of a PersistentVolume.
fn key(informers: &Informers, volume: &str) -> String {
    let found = informers.informer::<PersistentVolume>().get(volume);
    found.and_then(|found| unasked::of_volume(&found)).unwrap_or_else(|| volume.to_owned())
}

/// What a decision about one volume is made from.
struct Snapshot {
    key: String,
    /// As its driver knows it.
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
    options: Arc<Options>,
}

fn snapshot(informers: &Informers, key: &str) -> Option<Snapshot> {
    let attachments = informers.informer::<VolumeAttachment>().list();
    let wanted = if is_own(key) { wanted_own(informers, key) } else { wanted(informers, key) };
    let volume = if is_own(key) {
        own_volume(key, wanted.values().flatten(), &attachments)?
    } else {
        migration::translated(&informers.informer::<PersistentVolume>().get(key)?)
    };
    let driver = csi(&volume)?.driver.clone();
    let attachable = informers.informer::<CSIDriver>().get(&driver);
    let nodes = informers.informer::<CSINode>().list();
    let has = |node: &&Arc<CSINode>| node.spec.drivers.iter().any(|one| one.name == driver);
    Some(Snapshot {
        key: key.to_owned(),
        wanted,
        attachments,
        nodes: informers
            .informer::<Node>()
            .list()
            .into_iter()
            .map(|n| (name(&n.metadata).to_owned(), n))
            .collect(),
        having: nodes.iter().filter(has).map(|node| name(&node.metadata).to_owned()).collect(),
        is_attachable: attachable.is_none_or(|driver| driver.spec.attach_required != Some(false)),
        volume,
        options: Options::of(informers),
    })
}

type ByNode = BTreeMap<String, Vec<Arc<Pod>>>;

fn by_node(pods: impl Iterator<Item = Arc<Pod>>) -> ByNode {
    let mut wanted = ByNode::new();
    for pod in pods.filter(|pod| !node_name(pod).is_empty() && !is_finished(pod)) {
        wanted.entry(node_name(&pod).to_owned()).or_default().push(pod);
    }
    wanted
}

/// The Pods that need a PersistentVolume.
fn wanted(informers: &Informers, volume: &str) -> ByNode {
    let claims = informers.informer::<PersistentVolumeClaim>();
    let found = informers.informer::<PersistentVolume>().get(volume);
    let claim = found.and_then(|found| super::claim_key(&found)).unwrap_or_default();
    if claims.get(&claim).is_none_or(|claim| volume_name(&claim) != volume) {
        return ByNode::new();
    }
    let pods = informers.informer::<Pod>().in_namespace(claim.split('/').next().unwrap_or_default());
    by_node(pods.into_iter().filter(|pod| claims_of(pod).contains(&claim)))
}

/// The Pods that name a volume themselves.
fn wanted_own(informers: &Informers, key: &str) -> ByNode {
    let pods = informers.informer::<Pod>().list();
    by_node(pods.into_iter().filter(|pod| own_volumes(pod).any(|(own, _)| own == key)))
}

/// Whether a key is that of a volume which Pods name themselves: names have no slash.
fn is_own(key: &str) -> bool {
    key.contains('/')
}

/// The volumes that a Pod names itself and that a driver has taken over, with their keys.
fn own_volumes(pod: &Pod) -> impl Iterator<Item = (String, PersistentVolume)> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let namespace = namespace(&pod.metadata);
    volumes.filter_map(move |volume| {
        let volume = migration::inline(volume, namespace)?.ok()?;
        Some((unique_name(csi(&volume)?), volume))
    })
}

/// The keys of the volumes that a Pod names itself.
fn own_keys(pod: &Pod) -> impl Iterator<Item = String> {
    own_volumes(pod).map(|(key, _)| key).chain(unasked::of_pod(pod).map(|(key, _)| key))
}

/// The volume as a Pod names it; when none does any more, as its attachment has it.
fn own_volume<'a>(
    key: &str,
    mut pods: impl Iterator<Item = &'a Arc<Pod>>,
    attachments: &[Arc<VolumeAttachment>],
) -> Option<Arc<PersistentVolume>> {
    let of_pod = pods.find_map(|pod| own_volumes(pod).find(|(own, _)| own == key));
    let of_attachment = || {
        let attachment = attachments.iter().find(|one| key_of(one).as_deref() == Some(key))?;
        let spec = attachment.spec.source.inline_volume_spec.clone();
        Some(PersistentVolume { spec, ..PersistentVolume::default() })
    };
    of_pod.map(|(_, volume)| volume).or_else(of_attachment).map(Arc::new)
}

/// The key of the volume that is attached.
fn key_of(attachment: &VolumeAttachment) -> Option<String> {
    let source = &attachment.spec.source;
    let own = || source.inline_volume_spec.as_ref()?.csi.as_ref().map(unique_name);
    source.persistent_volume_name.clone().or_else(own)
}

fn volumes_of_pod(change: &Change<Pod>, informers: &Informers) -> Vec<String> {
    let claims = informers.informer::<PersistentVolumeClaim>();
    let both = [change.old.as_deref(), change.new.as_deref()];
    let keys = both.into_iter().flatten().filter(|pod| !node_name(pod).is_empty()).flat_map(claims_of);
    let bound = keys.filter_map(|key| claims.get(&key)).map(|claim| key(informers, volume_name(&claim)));
    let mut volumes: Vec<String> = bound.collect();
    volumes.extend(both.into_iter().flatten().flat_map(own_keys));
    volumes.retain(|volume| !volume.is_empty());
    volumes.sort();
    volumes.dedup();
    volumes
}

fn volume_of_attachment(change: &Change<VolumeAttachment>, _: &Informers) -> Vec<String> {
    let any = change.new.as_ref().or(change.old.as_ref());
    any.and_then(|attachment| key_of(attachment)).into_iter().collect()
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
        return Vec::new();
    }
    let mut volumes = attached_or_wanted(&change.key, informers);
    // Other nodes may wait for what has gone from this one.
    volumes.extend(change.old.iter().flat_map(|node| unasked::attached(node)));
    volumes
}

/// The volumes that are attached to a node, or that a Pod there wants.
fn attached_or_wanted(node: &str, informers: &Informers) -> Vec<String> {
    let attachments = informers.informer::<VolumeAttachment>().list();
    let here = attachments.iter().filter(|attachment| attachment.spec.node_name == node);
    let mut volumes: Vec<String> = here.filter_map(|attachment| key_of(attachment)).collect();
    volumes.extend(informers.informer::<Node>().get(node).iter().flat_map(|node| unasked::attached(node)));
    let claims = informers.informer::<PersistentVolumeClaim>();
    for pod in informers.informer::<Pod>().list().iter().filter(|pod| node_name(pod) == node) {
        let keys = claims_of(pod);
        volumes
            .extend(keys.iter().filter_map(|key| claims.get(key)).map(|c| key(informers, volume_name(&c))));
        volumes.extend(own_keys(pod));
    }
    volumes.retain(|volume| !volume.is_empty());
    volumes.sort();
    volumes.dedup();
    volumes
}

fn volumes_of_driver(change: &Change<CSIDriver>, informers: &Informers) -> Vec<String> {
    let volumes = informers.informer::<PersistentVolume>().list();
    let is_of = |volume: &PersistentVolume| csi(volume).is_some_and(|source| source.driver == *change.key);
    let of = |volume: &&Arc<PersistentVolume>| is_of(&migration::translated(volume));
    let mut keys: Vec<String> =
        volumes.iter().filter(of).map(|volume| name(&volume.metadata).to_owned()).collect();
    let pods = informers.informer::<Pod>().list();
    let own = pods.iter().flat_map(|pod| own_volumes(pod)).filter(|(_, volume)| is_of(volume));
    keys.extend(own.map(|(key, _)| key));
    keys.sort();
    keys.dedup();
    keys
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

fn release(node: Option<&Node>, unique: &str, options: &Options, now: Timestamp) -> Release {
    let Some(node) = node else { return Release::Now };
    let used = node.status.iter().flat_map(|status| status.volumes_in_use.iter().flatten());
    if !used.into_iter().any(|used| used == unique) || is_out_of_service(node) {
        return Release::Now;
    }
    match unhealthy_since(node) {
        None => Release::WhenUnused,
        Some(_) if options.disable_force_detach_on_timeout => Release::WhenUnused,
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
    let own = |attachment: &&Arc<VolumeAttachment>| key_of(attachment).as_deref() == Some(&snapshot.key);
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
        match release(node, &unique, &snapshot.options, now) {
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
            plan.push_step(multi_attach(name(&volume.metadata), &snapshot.wanted, node, pods));
            continue;
        }
        is_taken = true;
        plan.push(attach(snapshot, source, node));
    }
    plan
}

/// Asks the driver for the volume on a node.
fn attach(snapshot: &Snapshot, source: &CSIPersistentVolumeSource, node: &str) -> Action {
    let volume = &*snapshot.volume;
    let of_pod = is_own(&snapshot.key);
    Action::create(&VolumeAttachment {
        metadata: ObjectMeta { name: Some(attachment_name(source, node)), ..ObjectMeta::default() },
        spec: VolumeAttachmentSpec {
            attacher: source.driver.clone(),
            node_name: node.to_owned(),
            source: VolumeAttachmentSource {
                inline_volume_spec: volume.spec.clone().filter(|_| of_pod),
                persistent_volume_name: volume.metadata.name.clone().filter(|_| !of_pod),
            },
        },
        status: None,
    })
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
            plan.push_step(succeeded(volume, pods));
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

/// Tells Pods that wait.
fn succeeded(volume: &str, pods: &[Arc<Pod>]) -> Vec<Action> {
    let message = format!("AttachVolume.Attach succeeded for volume \"{volume}\" ");
    let event =
        |pod: &Arc<Pod>| Action::event(&**pod, EventType::Normal, "SuccessfulAttachVolume", message.clone());
    pods.iter().map(event).collect()
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
        .filter_map(|attachment| attached_name(snapshot, attachment, node).map(as_attached))
        .collect();
    attached.extend(unasked::attached(node).map(as_attached));
    say_attached(node, attached)
}

fn as_attached(name: String) -> AttachedVolume {
    AttachedVolume { name, device_path: String::new() }
}

/// Has the node's status say that these are attached, if it does not.
fn say_attached(node: &Node, mut attached: Vec<AttachedVolume>) -> Vec<Action> {
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
    if key_of(attachment).as_deref() == Some(&snapshot.key) {
        return Some(unique_name(source));
    }
    let known = node.status.iter().flat_map(|status| status.volumes_attached.iter().flatten());
    let of = |handle: &&AttachedVolume| {
        let (driver, handle) = handle.name.strip_prefix("kubernetes.io/csi/")?.split_once('^')?;
        let source = CSIPersistentVolumeSource {
            driver: driver.to_owned(),
            volume_handle: handle.to_owned(),
            ..Default::default()
        };
        (attachment_name(&source, name(&node.metadata)) == name(&attachment.metadata)).then_some(())
    };
    known.into_iter().find(|handle| of(handle).is_some()).map(|handle| handle.name.clone())
}

/// Tells Pods why their volume stays elsewhere. Source: `reportMultiAttachError`.
fn multi_attach(volume: &str, wanted: &ByNode, node: &str, pods: &[Arc<Pod>]) -> Vec<Action> {
    let elsewhere = wanted.iter().filter(|(other, _)| *other != node);
    let others: Vec<&Arc<Pod>> = elsewhere.flat_map(|(_, pods)| pods).collect();
    let mut pods: Vec<_> = pods.to_vec();
    pods.sort_by_key(|pod| (namespace(&pod.metadata).to_owned(), name(&pod.metadata).to_owned()));
    let event = |pod: &Arc<Pod>| {
        let why = users(namespace(&pod.metadata), &others);
        let message = format!("Multi-Attach error for volume \"{volume}\" {why}");
        Action::event(&**pod, EventType::Warning, "FailedAttachVolume", message)
    };
    pods.iter().map(event).collect()
}

/// Who uses a volume, for somebody in a namespace: what Pods of others are called is nobody else's business.
fn users(own: &str, pods: &[&Arc<Pod>]) -> String {
    let (near, far): (Vec<&Arc<Pod>>, Vec<&Arc<Pod>>) =
        pods.iter().copied().partition(|pod| namespace(&pod.metadata) == own);
    let near: Vec<&str> = near.iter().map(|pod| name(&pod.metadata)).collect();
    match (near.as_slice(), far.len()) {
        ([], 0) => {
            "Volume is already exclusively attached to one node and can't be attached to another".to_owned()
        }
        ([], far) => format!("Volume is already used by {far} pod(s) in different namespaces"),
        (near, 0) => format!("Volume is already used by pod(s) {}", near.join(", ")),
        (near, far) => format!(
            "Volume is already used by pod(s) {} and {far} pod(s) in different namespaces",
            near.join(", ")
        ),
    }
}

#[cfg(test)]
mod tests;
