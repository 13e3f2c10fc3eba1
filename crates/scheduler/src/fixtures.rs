//! Small clusters for tests by tables: Nodes and Pods in few words, and what a plugin says of each Node.

use std::sync::Arc;

use controller::pod::Pod;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::node_info::{NodeInfo, Snapshot};
use crate::plugins::{Candidate, FILTERS, Remedy, SCORES, normalize};
use crate::transform::parse;

/// A Node: its name, labels, and what its spec and status have, as YAML.
pub(crate) type NodeRow<'a> = (&'a str, &'a str, &'a str);

/// A Pod of namespace `d`; `spec` is what it has beside a container.
pub(crate) fn pod(labels: &str, spec: &str) -> Pod {
    pod_in("d", labels, spec)
}

/// A Pod of this namespace.
pub(crate) fn pod_in(namespace: &str, labels: &str, spec: &str) -> Pod {
    parse(&format!(
        "{{metadata: {{name: p, namespace: {namespace}, uid: p, labels: {{{labels}}}}}, \
         spec: {{containers: [{{name: c}}], {spec}}}}}"
    ))
}

/// A Pod of one container that asks for this.
pub(crate) fn asking(requests: &str) -> Pod {
    asking_each(&[requests])
}

/// A Pod with a container for each of these.
pub(crate) fn asking_each(requests: &[&str]) -> Pod {
    let container = |requests: &&str| format!("{{name: c, resources: {{requests: {{{requests}}}}}}}");
    let containers: Vec<_> = requests.iter().map(container).collect();
    parse(&format!(
        "{{metadata: {{name: p, namespace: d, uid: p}}, spec: {{containers: [{}]}}}}",
        containers.join(", ")
    ))
}

/// What a Node has, for a [`NodeRow`].
pub(crate) fn allocatable(amounts: &str) -> String {
    format!("status: {{allocatable: {{{amounts}}}}}")
}

/// Nodes, and Pods that are on them: each with the Node's name. Whose Node is unknown is somewhere else.
pub(crate) fn cluster(nodes: &[NodeRow<'_>], placed: &[(&str, Pod)]) -> Snapshot {
    let mut snapshot = Snapshot::default();
    for (name, labels, more) in nodes {
        let node = format!("{{metadata: {{name: {name}, labels: {{{labels}}}}}, {more}}}");
        snapshot.set_node(Arc::new(parse::<Node>(&node)));
    }
    for (index, (node, pod)) in placed.iter().enumerate() {
        let mut pod = pod.clone();
        pod.metadata.uid = Some(format!("placed-{index}"));
        snapshot.place(&Arc::new(pod), node);
    }
    snapshot
}

/// What a plugin has against each Node: nothing, or its reasons, after a `!` if no Pod's going helps.
pub(crate) fn refusals(plugin: &str, pod: &Pod, snapshot: &Snapshot) -> Vec<String> {
    let candidate = Candidate::new(pod, None, snapshot);
    let row = FILTERS.iter().find(|row| row.name == plugin).expect("a filter");
    let said = |node: &NodeInfo| {
        let refusal = (row.filter)(&candidate, node).filter(|_| (row.concerns)(&candidate));
        refusal.map_or_else(String::new, |refusal| {
            let mark = if refusal.remedy == Remedy::Preemption { "" } else { "!" };
            format!("{mark}{}", refusal.reasons.join(", "))
        })
    };
    snapshot.nodes().map(said).collect()
}

/// A plugin's score for each Node, normalized; nothing if it isn't asked.
pub(crate) fn scores(
    plugin: &str,
    pod: &Pod,
    kin: Option<&LabelSelector>,
    snapshot: &Snapshot,
) -> Option<Vec<i64>> {
    let nodes: Vec<_> = snapshot.nodes().collect();
    scores_of(plugin, (pod, kin), &nodes, snapshot)
}

/// The same where only some of the Nodes are in question.
pub(crate) fn scores_of(
    plugin: &str,
    (pod, kin): (&Pod, Option<&LabelSelector>),
    nodes: &[&NodeInfo],
    snapshot: &Snapshot,
) -> Option<Vec<i64>> {
    let mut candidate = Candidate::new(pod, kin, snapshot);
    candidate.settle(nodes);
    let row = SCORES.iter().find(|row| row.name == plugin).expect("a score");
    let mut all: Vec<i64> = nodes.iter().map(|node| (row.score)(&candidate, node)).collect();
    normalize(&mut all, row.normalize);
    (row.concerns)(&candidate).then_some(all)
}

/// `key` has one of these values.
pub(crate) fn is_in(key: &str, values: &str) -> String {
    format!("{{key: {key}, operator: In, values: [{values}]}}")
}

/// `key` has none of these values.
pub(crate) fn not_in(key: &str, values: &str) -> String {
    format!("{{key: {key}, operator: NotIn, values: [{values}]}}")
}

/// There is such a key.
pub(crate) fn exists(key: &str) -> String {
    format!("{{key: {key}, operator: Exists}}")
}

/// There is no such key.
pub(crate) fn lacks(key: &str) -> String {
    format!("{{key: {key}, operator: DoesNotExist}}")
}
