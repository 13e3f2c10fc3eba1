//! PodTopologyLabels: a Pod carries the labels that say where its Node is, so that it can read them as its own.
//!
//! What the Pod said of its own under these names is overwritten.
//! Source: `plugin/pkg/admission/podtopologylabels`, KEP-4742.

use machinery::metadata::metadata_mut;
use serde_json::{Map, Value};

use super::{Context, Operation, text};
use crate::kinds::Part;
use crate::status::Result;

const LABELS: [&str; 2] = ["topology.kubernetes.io/zone", "topology.kubernetes.io/region"];

/// Labels a Pod that comes to its Node.
pub(super) fn mutate(context: &Context<'_>, pod: &mut Value) -> Result<()> {
    let is_binding = context.is_core_kind("pods")
        && context.request.resource.subresource == "binding"
        && context.operation == Operation::Update(Part::Raw);
    let is_created = context.is_core("pods") && context.operation == Operation::Create;
    let node = text(pod, "/spec/nodeName");
    if node.is_empty() || !(is_binding || is_created) {
        return Ok(());
    }
    // Who comes to a Node that is not known has no place yet.
    let Some(node) = context.cached("", "v1", "nodes", "", node) else { return Ok(()) };
    let found = LABELS.into_iter().filter_map(|name| Some((name, node.labels().get(name)?.clone())));
    label(pod, found.collect());
    Ok(())
}

fn label(pod: &mut Value, found: Vec<(&str, String)>) {
    if found.is_empty() {
        return;
    }
    let Some(metadata) = metadata_mut(pod) else { return };
    let labels = metadata.entry("labels").or_insert_with(|| Value::Object(Map::new()));
    if let Some(labels) = labels.as_object_mut() {
        labels.extend(found.into_iter().map(|(name, value)| (name.to_owned(), value.into())));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_nodes_labels_win() {
        let mut own = json!({"metadata": {"labels": {"topology.kubernetes.io/zone": "mine", "app": "web"}}});
        label(&mut own, vec![("topology.kubernetes.io/zone", "a".to_owned())]);
        assert_eq!(own["metadata"]["labels"], json!({"topology.kubernetes.io/zone": "a", "app": "web"}));
        let mut bare = json!({"metadata": {}});
        label(&mut bare, vec![("topology.kubernetes.io/zone", "a".to_owned())]);
        assert_eq!(bare, json!({"metadata": {"labels": {"topology.kubernetes.io/zone": "a"}}}));
        label(&mut bare, Vec::new());
        assert_eq!(bare["metadata"]["labels"].as_object().map(Map::len), Some(1));
    }
}
