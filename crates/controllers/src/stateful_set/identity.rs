//! The identity of a Pod of a StatefulSet: its ordinal, name, host name and volumes, which outlive any one Pod.

use std::collections::BTreeMap;

use controller::metadata::{controller_reference, label, name, namespace};
use controller::pod::Pod;
use controller::{Action, Patch};
use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetSpec};
use k8s_openapi::api::core::v1::{
    PersistentVolumeClaimVolumeSource, Pod as WholePod, PodTemplateSpec, Volume,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;

use crate::history::CONTROLLER_REVISION_HASH;
use crate::names::generate_name;

/// Source: `apps/v1.StatefulSetPodNameLabel`.
const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";
/// Source: `apps/v1.PodIndexLabel`.
const POD_INDEX: &str = "apps.kubernetes.io/pod-index";

/// The ordinal of `pod` if its name makes it a member of `set`.
pub(super) fn ordinal(set: &StatefulSet, pod: &Pod) -> Option<i32> {
    let (parent, digits) = name(&pod.metadata).rsplit_once('-')?;
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    (parent == name(&set.metadata) && is_number).then(|| digits.parse().ok())?
}

/// `web-0`.
pub(super) fn pod_name(set: &StatefulSet, ordinal: i32) -> String {
    format!("{}-{ordinal}", name(&set.metadata))
}

/// `data-web-0`.
pub(super) fn claim_name(set: &StatefulSet, template: &str, ordinal: i32) -> String {
    format!("{template}-{}-{ordinal}", name(&set.metadata))
}

/// The first ordinal. Source: `StatefulSetOrdinals`, apps/v1.
pub(super) fn start(spec: &StatefulSetSpec) -> i32 {
    spec.ordinals.as_ref().and_then(|ordinals| ordinals.start).unwrap_or(0)
}

/// The revision that `pod` was made from, empty if it does not say.
pub(super) fn revision(pod: &Pod) -> &str {
    label(&pod.metadata, CONTROLLER_REVISION_HASH).unwrap_or_default()
}

/// The Pod of `set` with this ordinal, made from `template`, which is what `revision` holds.
pub(super) fn pod(
    set: &StatefulSet,
    spec: &StatefulSetSpec,
    template: &PodTemplateSpec,
    revision: &str,
    ordinal: i32,
) -> WholePod {
    let meta = template.metadata.clone().unwrap_or_default();
    let mut labels = meta.labels.unwrap_or_default();
    labels.insert(CONTROLLER_REVISION_HASH.to_owned(), revision.to_owned());
    let mut metadata = ObjectMeta {
        generate_name: Some(generate_name(&set.metadata)),
        namespace: set.metadata.namespace.clone(),
        labels: Some(labels),
        annotations: meta.annotations,
        finalizers: meta.finalizers,
        owner_references: Some(vec![controller_reference(set)]),
        ..ObjectMeta::default()
    };
    identify(set, &mut metadata, ordinal);
    let mut pod_spec = template.spec.clone().unwrap_or_default();
    pod_spec.hostname.clone_from(&metadata.name);
    pod_spec.subdomain = subdomain(spec);
    mount_claims(set, spec, &mut pod_spec.volumes, ordinal);
    WholePod { metadata, spec: Some(pod_spec), status: None }
}

/// Gives `pod` the identity that it should have; nothing if it has it. Not all of the Pod is known here (`transform.rs`), so
/// only what is to be otherwise is written.
pub(super) fn correction(
    set: &StatefulSet,
    spec: &StatefulSetSpec,
    pod: &Pod,
    ordinal: i32,
) -> Option<Action> {
    let mut right = pod.metadata.clone();
    identify(set, &mut right, ordinal);
    let (mut patch, meta) = (json!({}), &pod.metadata);
    if right.labels != meta.labels {
        let known = |label: &str| meta.labels.as_ref().and_then(|labels| labels.get(label));
        let new = right.labels.iter().flatten().filter(|(label, value)| known(label) != Some(*value));
        patch["metadata"]["labels"] = json!(new.collect::<BTreeMap<_, _>>());
    }
    let was = pod.spec.as_ref()?;
    for (field, was, is) in
        [("hostname", &was.hostname, &right.name), ("subdomain", &was.subdomain, &subdomain(spec))]
    {
        if was != is {
            patch["spec"][field] = json!(is);
        }
    }
    let mut volumes = was.volumes.clone();
    mount_claims(set, spec, &mut volumes, ordinal);
    if volumes.unwrap_or_default() != was.volumes.clone().unwrap_or_default() {
        let templates = spec.volume_claim_templates.iter().flatten().map(|claim| name(&claim.metadata));
        let claimed = templates.map(|template| {
            let source = json!({ "claimName": claim_name(set, template, ordinal) });
            let fields = ["name", "persistentVolumeClaim"];
            json!({ "$retainKeys": fields, "name": template, "persistentVolumeClaim": source })
        });
        patch["spec"]["volumes"] = claimed.collect();
    }
    if patch == json!({}) {
        return None;
    }
    patch["metadata"]["uid"] = json!(meta.uid);
    patch["metadata"]["resourceVersion"] = json!(meta.resource_version);
    Some(Action::patch::<Pod>(namespace(meta), name(meta), Patch::Strategic(patch)))
}

/// Gives metadata the name, which is also the Pod's hostname, and the labels of it.
fn identify(set: &StatefulSet, meta: &mut ObjectMeta, ordinal: i32) {
    let name = pod_name(set, ordinal);
    let labels = meta.labels.get_or_insert_default();
    labels.insert(POD_NAME.to_owned(), name.clone());
    labels.insert(POD_INDEX.to_owned(), ordinal.to_string());
    meta.name = Some(name);
}

fn subdomain(spec: &StatefulSetSpec) -> Option<String> {
    spec.service_name.clone().filter(|service| !service.is_empty())
}

/// The claims' volumes take the place of the template's volumes of the same names; none moves if all are there.
fn mount_claims(set: &StatefulSet, spec: &StatefulSetSpec, all: &mut Option<Vec<Volume>>, ordinal: i32) {
    let templates = spec.volume_claim_templates.iter().flatten().map(|claim| name(&claim.metadata));
    let wanted: Vec<(&str, String)> =
        templates.map(|template| (template, claim_name(set, template, ordinal))).collect();
    let volumes = all.get_or_insert_default();
    let is_there = |(template, claim): &(&str, String)| {
        volumes.iter().any(|volume| {
            let source = volume.persistent_volume_claim.as_ref();
            volume.name == *template && source.is_some_and(|source| source.claim_name == *claim)
        })
    };
    if !wanted.iter().all(is_there) {
        volumes.retain(|volume| wanted.iter().all(|(template, _)| volume.name != *template));
        let claimed = wanted.into_iter().map(|(template, claim)| Volume {
            name: template.to_owned(),
            persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
                claim_name: claim,
                read_only: None,
            }),
            ..Volume::default()
        });
        let rest = std::mem::take(volumes);
        volumes.extend(claimed.chain(rest));
    }
    if volumes.is_empty() {
        *all = None;
    }
}
