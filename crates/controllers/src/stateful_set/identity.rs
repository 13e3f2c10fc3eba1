//! The identity of a Pod of a StatefulSet: its ordinal, name, host name and volumes, which outlive any one Pod.

use std::collections::BTreeMap;

use controller::{Action, Patch};
use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetSpec};
use k8s_openapi::api::core::v1::{PersistentVolumeClaimVolumeSource, Pod, PodSpec, PodTemplateSpec, Volume};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;

use crate::history::CONTROLLER_REVISION_HASH;
use crate::names::generate_name;
use crate::object::{controller_reference, label, name, namespace};

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
) -> Pod {
    let meta = template.metadata.clone().unwrap_or_default();
    let mut labels = meta.labels.unwrap_or_default();
    labels.insert(CONTROLLER_REVISION_HASH.to_owned(), revision.to_owned());
    let mut pod = Pod {
        metadata: ObjectMeta {
            generate_name: Some(generate_name(&set.metadata)),
            namespace: set.metadata.namespace.clone(),
            labels: Some(labels),
            annotations: meta.annotations,
            finalizers: meta.finalizers,
            owner_references: Some(vec![controller_reference(set)]),
            ..ObjectMeta::default()
        },
        spec: template.spec.clone(),
        status: None,
    };
    identify(set, spec, &mut pod, ordinal);
    pod
}

/// Gives `pod` the identity that it should have; nothing if it has it. Not all of the Pod is known here (`unread.rs`), so only
/// what is to be otherwise is written.
pub(super) fn correction(
    set: &StatefulSet,
    spec: &StatefulSetSpec,
    pod: &Pod,
    ordinal: i32,
) -> Option<Action> {
    let mut right = pod.clone();
    identify(set, spec, &mut right, ordinal);
    let (mut patch, meta) = (json!({}), &pod.metadata);
    if right.metadata.labels != meta.labels {
        let known = |label: &str| meta.labels.as_ref().and_then(|labels| labels.get(label));
        let new =
            right.metadata.labels.iter().flatten().filter(|(label, value)| known(label) != Some(*value));
        patch["metadata"]["labels"] = json!(new.collect::<BTreeMap<_, _>>());
    }
    let (was, is) = (pod.spec.as_ref()?, right.spec.as_ref()?);
    for (field, was, is) in
        [("hostname", &was.hostname, &is.hostname), ("subdomain", &was.subdomain, &is.subdomain)]
    {
        if was != is {
            patch["spec"][field] = json!(is);
        }
    }
    let volumes = |spec: &PodSpec| spec.volumes.clone().unwrap_or_default();
    if volumes(was) != volumes(is) {
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

fn identify(set: &StatefulSet, spec: &StatefulSetSpec, pod: &mut Pod, ordinal: i32) {
    let name = pod_name(set, ordinal);
    let labels = pod.metadata.labels.get_or_insert_default();
    labels.insert(POD_NAME.to_owned(), name.clone());
    labels.insert(POD_INDEX.to_owned(), ordinal.to_string());
    let pod_spec = pod.spec.get_or_insert_default();
    pod_spec.hostname = Some(name.clone());
    pod_spec.subdomain = spec.service_name.clone().filter(|service| !service.is_empty());
    pod.metadata.name = Some(name);
    mount_claims(set, spec, pod_spec, ordinal);
}

/// The claims' volumes take the place of the template's volumes of the same names; none moves if all are there.
fn mount_claims(set: &StatefulSet, spec: &StatefulSetSpec, pod_spec: &mut PodSpec, ordinal: i32) {
    let templates = spec.volume_claim_templates.iter().flatten().map(|claim| name(&claim.metadata));
    let wanted: Vec<(&str, String)> =
        templates.map(|template| (template, claim_name(set, template, ordinal))).collect();
    let volumes = pod_spec.volumes.get_or_insert_default();
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
        pod_spec.volumes = None;
    }
}
