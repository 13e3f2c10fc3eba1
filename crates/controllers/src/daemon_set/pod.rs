//! A DaemonSet's Pod: meant for one Node, and not kept away by what only says that the Node is not well.

use std::cmp::Ordering;

use controller::metadata::{annotation, controller_reference, created, name};
use controller::pod::Pod;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{
    NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod as WholePod, PodSpec, PodTemplateSpec,
    Toleration,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::history::CONTROLLER_REVISION_HASH;
use crate::names::generate_name;
use crate::pod::node_name;

/// Source: `apps/v1.DeprecatedTemplateGeneration`, and the label that Pods carry for it.
const TEMPLATE_GENERATION: (&str, &str) =
    ("deprecated.daemonset.template.generation", "pod-template-generation");

/// Taints of the control plane's own that every daemon bears. Source: upstream's `AddOrUpdateDaemonPodTolerations`.
const TOLERATED: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];
/// Borne by daemons that bring the network up.
const TOLERATED_ON_HOST_NETWORK: (&str, &str) = ("node.kubernetes.io/network-unavailable", "NoSchedule");

/// The field by which a Pod is meant for a Node.
const NODE_NAME_FIELD: &str = "metadata.name";

/// The Pod of `set` for `node`, made from `template`, whose revision has this hash.
pub(super) fn pod(
    set: &DaemonSet,
    template: &PodTemplateSpec,
    hash: &str,
    node: &str,
    name: String,
) -> WholePod {
    let meta = template.metadata.clone().unwrap_or_default();
    let mut labels = meta.labels.unwrap_or_default();
    labels.insert(CONTROLLER_REVISION_HASH.to_owned(), hash.to_owned());
    let (generation, label) = TEMPLATE_GENERATION;
    if let Some(generation) = annotation(&set.metadata, generation).filter(|text| text.parse::<i64>().is_ok())
    {
        labels.insert(label.to_owned(), generation.to_owned());
    }
    let mut spec = template.spec.clone().unwrap_or_default();
    spec.tolerations = Some(tolerations(&spec));
    let affinity = spec.affinity.get_or_insert_default().node_affinity.get_or_insert_default();
    affinity.required_during_scheduling_ignored_during_execution = Some(only(node));
    WholePod {
        metadata: ObjectMeta {
            generate_name: Some(generate_name(&set.metadata)),
            name: Some(name),
            namespace: set.metadata.namespace.clone(),
            labels: Some(labels),
            annotations: meta.annotations,
            finalizers: meta.finalizers,
            owner_references: Some(vec![controller_reference(set)]),
            ..ObjectMeta::default()
        },
        spec: Some(spec),
        status: None,
    }
}

/// The template's tolerations and those that every daemon has.
pub(super) fn tolerations(pod: &PodSpec) -> Vec<Toleration> {
    let mut all = pod.tolerations.clone().unwrap_or_default();
    let on_host = pod.host_network == Some(true);
    for (key, effect) in TOLERATED.into_iter().chain(on_host.then_some(TOLERATED_ON_HOST_NETWORK)) {
        let toleration = Toleration {
            key: Some(key.to_owned()),
            operator: Some("Exists".to_owned()),
            effect: Some(effect.to_owned()),
            ..Toleration::default()
        };
        if !all.contains(&toleration) {
            all.push(toleration);
        }
    }
    all
}

/// The Node that `pod` is on or meant for.
pub(super) fn target(pod: &Pod) -> Option<&str> {
    if !node_name(pod).is_empty() {
        return Some(node_name(pod));
    }
    let affinity = pod.spec.as_ref()?.affinity.as_ref()?.node_affinity.as_ref()?;
    let required = affinity.required_during_scheduling_ignored_during_execution.as_ref()?;
    let fields = required.node_selector_terms.iter().flat_map(|term| term.match_fields.iter().flatten());
    let mut named = fields.filter(|field| field.key == NODE_NAME_FIELD && field.operator == "In");
    named.find_map(|field| match field.values.as_deref() {
        Some([node]) => Some(node.as_str()),
        _ => None,
    })
}

/// Those that are on a Node first, then by age. Source: upstream's `podByCreationTimestampAndPhase`.
pub(super) fn older_first(a: &Pod, b: &Pod) -> Ordering {
    let is_waiting = |pod: &Pod| node_name(pod).is_empty();
    let rank = |pod: &Pod| (is_waiting(pod), created(&pod.metadata));
    rank(a).cmp(&rank(b)).then_with(|| name(&a.metadata).cmp(name(&b.metadata)))
}

fn only(node: &str) -> NodeSelector {
    let field = NodeSelectorRequirement {
        key: NODE_NAME_FIELD.to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![node.to_owned()]),
    };
    let term = NodeSelectorTerm { match_fields: Some(vec![field]), match_expressions: None };
    NodeSelector { node_selector_terms: vec![term] }
}
