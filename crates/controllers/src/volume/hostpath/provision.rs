//! A claim that waits for our driver gets a volume: an empty one, or a copy of another claim's.
//!
//! What is to be filled by somebody else (a populator) is left to them. Source: `getVolumeContentSource` of
//! external-provisioner, KEP-989, KEP-1495.

use std::collections::BTreeMap;

use controller::metadata::{is_deleting, key, namespace, uid};
use controller::plan::{Cause, FAILURE};
use controller::volume::{
    PROVISIONED_BY, PROVISIONER, SELECTED_NODE, annotation, capacity, claim_mode, csi, requested,
    volume_name, waits_for_consumer,
};
use controller::{Action, EventType, Patch, Plan};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    CSIPersistentVolumeSource, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PersistentVolume,
    PersistentVolumeClaim, PersistentVolumeSpec, VolumeNodeAffinity,
};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use super::conditions::RETRY;
use super::{
    ClaimSnapshot, DRIVER, FINALIZER, PROVISIONER_COMPONENT, TOPOLOGY_KEY, call, is_ours, name, node_of,
    note, wanted_attributes,
};
use crate::volume::{drop_finalizer, has_finalizer};

/// On a claim that is being copied. Source: `CloningProtectionController` of external-provisioner.
const COPIED: &str = "provisioner.storage.kubernetes.io/cloning-protection";
/// The parameter of a class with the type of file systems.
const FS_TYPE: &str = "csi.storage.k8s.io/fstype";
/// The failure after which the scheduler is to choose anew. Source: `checkError` of external-provisioner.
const NO_ROOM: Cause = Cause::Grpc("ResourceExhausted");

/// What a claim's volume is to be filled with.
enum Content<'a> {
    Nothing,
    CopyOf(&'a str),
    /// Somebody else's business.
    Populated,
    /// None that can be had.
    Refused(&'static str),
}

fn content(claim: &PersistentVolumeClaim) -> Content<'_> {
    let Some(spec) = &claim.spec else { return Content::Nothing };
    let (group, kind, name, elsewhere) = match (&spec.data_source_ref, &spec.data_source) {
        (Some(source), _) => {
            let elsewhere = source.namespace.is_some() && source.namespace != claim.metadata.namespace;
            (&source.api_group, source.kind.as_str(), source.name.as_str(), elsewhere)
        }
        (None, Some(source)) => (&source.api_group, source.kind.as_str(), source.name.as_str(), false),
        (None, None) => return Content::Nothing,
    };
    match (group.as_deref().unwrap_or_default(), kind) {
        ("", "PersistentVolumeClaim") if elsewhere => {
            Content::Refused("a claim of another namespace cannot be copied")
        }
        ("", "PersistentVolumeClaim") => Content::CopyOf(name),
        ("snapshot.storage.k8s.io", "VolumeSnapshot") => {
            Content::Refused("CSI driver hostpath.csi.knarr.io does not support snapshot restore")
        }
        _ => Content::Populated,
    }
}

/// The name of the claim, in the same namespace, that this one is to be a copy of.
pub(super) fn original(claim: &PersistentVolumeClaim) -> Option<&str> {
    match content(claim) {
        Content::CopyOf(name) => Some(name),
        _ => None,
    }
}

/// Whether the claim is kept because it is copied.
pub(super) fn is_held(claim: &PersistentVolumeClaim) -> bool {
    has_finalizer(&claim.metadata, COPIED)
}

/// Lets a claim go that nobody copies any more.
pub(super) fn let_go(snapshot: &ClaimSnapshot, _: Timestamp) -> Plan {
    let mut plan = Plan::nothing();
    let mut new = (*snapshot.claim).clone();
    if !snapshot.is_copied && drop_finalizer(&mut new.metadata, COPIED) {
        plan.push(Action::update(&new));
    }
    plan
}

/// Decides whether the claim gets a volume, and where.
pub(super) fn plan(snapshot: &ClaimSnapshot, now: Timestamp) -> Plan {
    let claim = &*snapshot.claim;
    let mut plan = Plan::nothing();
    let is_ours = annotation(&claim.metadata, PROVISIONER) == Some(DRIVER);
    let is_done = !volume_name(claim).is_empty() || snapshot.volume.is_some();
    if !is_ours || is_done || is_deleting(&claim.metadata) {
        return plan;
    }
    let Some(class) = snapshot.class.as_deref().filter(|class| class.provisioner == DRIVER) else {
        return plan;
    };
    if let Content::Populated = content(claim) {
        plan.push(told(claim, "Provisioning", "Assuming an external populator will provision the volume"));
        return plan;
    }
    let selected = annotation(&claim.metadata, SELECTED_NODE);
    let source = match source(snapshot) {
        Ok(source) => source,
        Err(unmade) => return refused(claim, class, &unmade.to_string()),
    };
    let attributes = match attributes(snapshot) {
        Ok(attributes) => attributes,
        Err(unmade) => return refused(claim, class, &unmade.to_string()),
    };
    let of_source = source.as_ref().and_then(|(_, volume)| node_of(volume));
    let node = match selected {
        Some(_) if !snapshot.has_selected => return choose_again(claim, plan),
        Some(node) if of_source.is_some_and(|there| there != node) => {
            let why = format!("the volume to copy is on node {}", of_source.unwrap_or_default());
            return choose_again(claim, refused(claim, class, &why));
        }
        Some(node) => Some(node),
        None if waits_for_consumer(class) => None,
        None => of_source.or_else(|| asked(snapshot)).or_else(|| allowed(snapshot, class).first().copied()),
    };
    if note::node(claim).is_some_and(|noted| node.is_some_and(|node| node != noted)) {
        // The Node was chosen anew.
        return note::take_back(snapshot);
    }
    if let Some(pause) = note::pause(claim, now).filter(|_| selected.is_none()) {
        plan.requeue(pause);
        return plan;
    }
    // A Node whose driver is not there yet is waited for.
    let Some(node) = node.filter(|node| snapshot.nodes.iter().any(|one| one == node)) else { return plan };
    plan = make(claim, class, node, source, &attributes);
    // A driver without room has made nothing.
    let elsewhere = match selected {
        Some(_) => Some(annotated(claim, &json!({SELECTED_NODE: null, note::NODE: null}))),
        None if of_source.is_some() => None,
        None => next(claim, &allowed(snapshot, class), node, now),
    };
    plan.on_failure_of = elsewhere.map(|action| (NO_ROOM, action)).into_iter().collect();
    plan
}

/// Has the driver on `node` make the volume, once it is written down that it may have.
fn make(
    claim: &PersistentVolumeClaim,
    class: &StorageClass,
    node: &str,
    source: Option<(&PersistentVolumeClaim, &PersistentVolume)>,
    attributes: &BTreeMap<String, String>,
) -> Plan {
    let mut plan = Plan::nothing();
    plan.push_step(note::write(claim, node).into_iter().collect());
    if let Some((original, _)) = source
        && !is_held(original)
    {
        let mut held = original.clone();
        held.metadata.finalizers.get_or_insert_default().push(COPIED.to_owned());
        plan.push(Action::update(&held));
    }
    let message =
        format!("External provisioner is provisioning volume for claim \"{}\"", key(&claim.metadata));
    plan.push(told(claim, "Provisioning", message));
    let mut request = request(claim, class, node);
    request["mutableParameters"] = json!(attributes);
    if let Some(source) = source.and_then(|(_, volume)| csi(volume)) {
        request["sourceVolumeId"] = source.volume_handle.as_str().into();
    }
    plan.push(call(node, request));
    plan.push(Action::create(&volume(claim, class, node)));
    let message = format!("Successfully provisioned volume {}", name(claim));
    plan.push(told(claim, "ProvisioningSucceeded", message));
    plan.on_failure = vec![failed(claim, class, FAILURE)];
    plan
}

/// Has the Node asked that comes after `node`; when each has been asked, after a while. Source: the topologies that
/// external-provisioner prefers, in order, where nobody has selected a Node.
fn next(claim: &PersistentVolumeClaim, order: &[&str], node: &str, now: Timestamp) -> Option<Action> {
    let (first, last) = (order.first()?, order.last()?);
    if first == last {
        return None;
    }
    let at = order.iter().position(|one| *one == node);
    let next = at.and_then(|at| order.get(at + 1)).unwrap_or(first);
    let pause = (*last == node).then(|| (now + RETRY).to_string());
    Some(annotated(claim, &json!({note::NODE: next, note::PAUSE: pause})))
}

/// What becomes of the claim.
fn told(claim: &PersistentVolumeClaim, reason: &str, message: impl Into<String>) -> Action {
    Action::event_from(PROVISIONER_COMPONENT, claim, EventType::Normal, reason, message)
}

/// Why the claim gets no volume.
fn failed(claim: &PersistentVolumeClaim, class: &StorageClass, why: &str) -> Action {
    let class = class.metadata.name.as_deref().unwrap_or_default();
    let message = format!("failed to provision volume with StorageClass \"{class}\": {why}");
    Action::event_from(PROVISIONER_COMPONENT, claim, EventType::Warning, "ProvisioningFailed", message)
}

fn refused(claim: &PersistentVolumeClaim, class: &StorageClass, why: &str) -> Plan {
    let mut plan = Plan::nothing();
    plan.push(failed(claim, class, why));
    plan
}

/// Has the scheduler choose another Node.
fn choose_again(claim: &PersistentVolumeClaim, mut plan: Plan) -> Plan {
    plan.push(annotated(claim, &json!({SELECTED_NODE: null})));
    plan
}

/// The claim with these annotations, without those that are null, whatever else has been written meanwhile.
fn annotated(claim: &PersistentVolumeClaim, annotations: &Value) -> Action {
    let (space, name) = (namespace(&claim.metadata), claim.metadata.name.as_deref().unwrap_or_default());
    let patch = json!({"metadata": {"uid": claim.metadata.uid, "annotations": annotations}});
    Action::patch::<PersistentVolumeClaim>(space, name, Patch::Merge(patch))
}

/// Why no volume is made for a claim. The words are those of external-provisioner.
#[derive(Debug, thiserror::Error)]
enum Unmade {
    #[error("{0}")]
    Source(&'static str),
    #[error("error getting PVC {0} from api server: persistentvolumeclaims \"{0}\" not found")]
    NoClaim(String),
    #[error("the PVC DataSource {0} is currently being deleted")]
    Deleting(String),
    #[error("the PVC DataSource {0} must have a status of Bound. Got {1}")]
    NotBound(String, String),
    #[error("the source volume {0} for PVC clone is not of driver {DRIVER}")]
    NotOurs(String),
    #[error(
        "the source PVC and destination PVCs must have the same volume mode for cloning.  Source is {0}, but new PVC \
         requested {1}"
    )]
    Mode(String, String),
    #[error(
        "error, new PVC request must be greater than or equal in size to the specified PVC data source, requested {0} \
         but source is {1}"
    )]
    Smaller(i64, i64),
    #[error("volumeattributesclass.storage.k8s.io \"{0}\" not found")]
    NoClass(String),
    #[error("VolumeAttributesClass {0} is for driver {1}, not {DRIVER}")]
    OtherClass(String, String),
}

/// The claim and the volume that are copied, if any are to be.
fn source(snapshot: &ClaimSnapshot) -> Result<Option<(&PersistentVolumeClaim, &PersistentVolume)>, Unmade> {
    let claim = &*snapshot.claim;
    let wanted = match content(claim) {
        Content::CopyOf(name) => name,
        Content::Refused(why) => return Err(Unmade::Source(why)),
        Content::Nothing | Content::Populated => return Ok(None),
    };
    let Some((original, volume)) = &snapshot.original else {
        return Err(Unmade::NoClaim(wanted.to_owned()));
    };
    if is_deleting(&original.metadata) {
        return Err(Unmade::Deleting(wanted.to_owned()));
    }
    let phase = original.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default();
    let Some(volume) = volume.as_deref().filter(|_| phase == "Bound") else {
        return Err(Unmade::NotBound(wanted.to_owned(), phase.to_owned()));
    };
    if !is_ours(volume) {
        let name = volume.metadata.name.as_deref().unwrap_or_default();
        return Err(Unmade::NotOurs(name.to_owned()));
    }
    if claim_mode(original) != claim_mode(claim) {
        return Err(Unmade::Mode(claim_mode(original).to_owned(), claim_mode(claim).to_owned()));
    }
    if requested(claim) < capacity(volume) {
        return Err(Unmade::Smaller(requested(claim).value(), capacity(volume).value()));
    }
    Ok(Some((original, volume)))
}

/// The parameters of the attributes that the claim asks for.
fn attributes(snapshot: &ClaimSnapshot) -> Result<BTreeMap<String, String>, Unmade> {
    let wanted = wanted_attributes(&snapshot.claim);
    match &snapshot.attributes {
        _ if wanted.is_empty() => Ok(BTreeMap::new()),
        None => Err(Unmade::NoClass(wanted.to_owned())),
        Some(class) if class.driver_name != DRIVER => {
            Err(Unmade::OtherClass(wanted.to_owned(), class.driver_name.clone()))
        }
        Some(class) => Ok(class.parameters.clone().unwrap_or_default()),
    }
}

/// The Node that has been asked before, if it still has the driver.
fn asked(snapshot: &ClaimSnapshot) -> Option<&str> {
    note::node(&snapshot.claim).filter(|noted| snapshot.nodes.iter().any(|node| node == noted))
}

/// The Nodes that the class allows for a volume that waits for nobody, in the order in which they are asked: always the
/// same for the same claim.
fn allowed<'a>(snapshot: &'a ClaimSnapshot, class: &StorageClass) -> Vec<&'a str> {
    let terms = class.allowed_topologies.as_deref().unwrap_or_default();
    let is_allowed = |node: &&String| {
        let holds = |term: &k8s_openapi::api::core::v1::TopologySelectorTerm| {
            let expressions = term.match_label_expressions.iter().flatten();
            expressions.into_iter().all(|one| one.key == TOPOLOGY_KEY && one.values.contains(node))
        };
        terms.is_empty() || terms.iter().any(holds)
    };
    let mut nodes: Vec<&str> = snapshot.nodes.iter().filter(is_allowed).map(String::as_str).collect();
    let sum = uid(&snapshot.claim.metadata).bytes().map(usize::from).sum::<usize>();
    let first = sum % nodes.len().max(1);
    nodes.rotate_left(first);
    nodes
}

fn request(claim: &PersistentVolumeClaim, class: &StorageClass, node: &str) -> serde_json::Value {
    let spec = claim.spec.as_ref();
    let limits = spec.and_then(|spec| spec.resources.as_ref()?.limits.as_ref()?.get("storage"));
    let limit: machinery::quantity::Quantity =
        limits.and_then(|text| text.0.parse().ok()).unwrap_or_default();
    json!({
        "driver": DRIVER,
        "call": "CreateVolume",
        "name": name(claim),
        "requiredBytes": requested(claim).value(),
        "limitBytes": limit.value(),
        "volumeMode": claim_mode(claim),
        "accessModes": spec.and_then(|spec| spec.access_modes.clone()).unwrap_or_default(),
        "parameters": class.parameters.clone().unwrap_or_default(),
        "fsType": fs_type(class),
        "topology": {TOPOLOGY_KEY: node},
    })
}

fn fs_type(class: &StorageClass) -> Option<String> {
    class.parameters.as_ref()?.get(FS_TYPE).cloned()
}

fn volume(claim: &PersistentVolumeClaim, class: &StorageClass, node: &str) -> PersistentVolume {
    let spec = claim.spec.clone().unwrap_or_default();
    let policy = class.reclaim_policy.clone().unwrap_or_else(|| "Delete".to_owned());
    let requests = spec.resources.and_then(|resources| resources.requests).unwrap_or_default();
    let capacity =
        requests.into_iter().filter(|(resource, _)| resource == "storage").collect::<BTreeMap<_, _>>();
    let expression = NodeSelectorRequirement {
        key: TOPOLOGY_KEY.to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![node.to_owned()]),
    };
    let term = NodeSelectorTerm { match_expressions: Some(vec![expression]), ..NodeSelectorTerm::default() };
    PersistentVolume {
        metadata: ObjectMeta {
            name: Some(name(claim)),
            annotations: Some(BTreeMap::from([
                (PROVISIONED_BY.to_owned(), DRIVER.to_owned()),
                ("volume.kubernetes.io/provisioner-deletion-secret-name".to_owned(), String::new()),
                ("volume.kubernetes.io/provisioner-deletion-secret-namespace".to_owned(), String::new()),
            ])),
            finalizers: (policy == "Delete").then(|| vec![FINALIZER.to_owned()]),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeSpec {
            access_modes: spec.access_modes,
            capacity: Some(capacity),
            claim_ref: Some(controller::volume::reference_to_claim(claim)),
            csi: Some(CSIPersistentVolumeSource {
                driver: DRIVER.to_owned(),
                volume_handle: name(claim),
                fs_type: fs_type(class),
                ..CSIPersistentVolumeSource::default()
            }),
            mount_options: class.mount_options.clone(),
            node_affinity: Some(VolumeNodeAffinity {
                required: Some(NodeSelector { node_selector_terms: vec![term] }),
            }),
            persistent_volume_reclaim_policy: Some(policy),
            storage_class_name: class.metadata.name.clone(),
            volume_attributes_class_name: spec.volume_attributes_class_name,
            volume_mode: Some(claim_mode(claim).to_owned()),
            ..PersistentVolumeSpec::default()
        }),
        status: None,
    }
}
