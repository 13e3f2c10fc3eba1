//! Says of each class of our driver how much room it has on each Node, for the scheduler.
//!
//! Nodes say how much room there is in an annotation of their CSINode, which is theirs to write; the objects are made
//! here. Source: KEP-1472, `capacity` of external-provisioner.

use std::collections::BTreeMap;
use std::sync::Arc;

use controller::metadata::{key, name};
use controller::volume::annotation;
use controller::{Action, Change, Controller, Informers, Plan, Propagation, Source};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::storage::v1::{CSINode, CSIStorageCapacity, StorageClass};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};

use super::{DRIVER, TOPOLOGY_KEY};

/// On a CSINode: the bytes that are left for volumes of our driver.
const ROOM: &str = "hostpath.csi.knarr.io/available-bytes";
/// Whose the objects are. Source: `capacity.DriverNameLabel`, `ManagedByLabel` of external-provisioner.
const OF_DRIVER: &str = "csi.storage.k8s.io/drivername";
const MANAGED_BY: &str = "csi.storage.k8s.io/managed-by";
/// Where they are.
const NAMESPACE: &str = "kube-system";

/// The controller's row. Keys are Nodes.
pub const CONTROLLER: Controller = Controller {
    name: "csi-hostpath-capacity-controller",
    queue: "csi_hostpath_capacity",
    sources: |_| {
        vec![
            Source::of::<CSINode>(nodes_with_capacity),
            Source::of::<StorageClass>(every_node),
            Source::of::<CSIStorageCapacity>(node_of_capacity),
            Source::of::<Node>(|change, _| match change.new {
                Some(_) => Vec::new(),
                None => vec![change.key.to_string()],
            }),
        ]
    },
    reconcile: |informers, node, _| {
        let classes = informers.informer::<StorageClass>().list();
        let known = informers.informer::<CSIStorageCapacity>().in_namespace(NAMESPACE);
        plan(node, informers.informer::<CSINode>().get(node).as_deref(), &classes, &known)
    },
};

fn free_bytes(node: &CSINode) -> Option<i64> {
    let has_driver = node.spec.drivers.iter().any(|driver| driver.name == DRIVER);
    annotation(&node.metadata, ROOM).filter(|_| has_driver)?.parse().ok()
}

fn nodes_with_capacity(change: &Change<CSINode>, _: &Informers) -> Vec<String> {
    let free_bytes = |node: &Option<Arc<CSINode>>| node.as_deref().and_then(free_bytes);
    if free_bytes(&change.old) == free_bytes(&change.new) { Vec::new() } else { vec![change.key.to_string()] }
}

fn every_node(_: &Change<StorageClass>, informers: &Informers) -> Vec<String> {
    let nodes = informers.informer::<CSINode>().list();
    nodes.iter().filter(|node| free_bytes(node).is_some()).map(|node| key(&node.metadata)).collect()
}

fn node_of_capacity(change: &Change<CSIStorageCapacity>, _: &Informers) -> Vec<String> {
    let any = change.new.as_ref().or(change.old.as_ref());
    any.filter(|capacity| is_ours(capacity)).and_then(|capacity| node_of(capacity)).into_iter().collect()
}

fn is_ours(capacity: &CSIStorageCapacity) -> bool {
    let labels = capacity.metadata.labels.as_ref();
    let label = |key: &str| labels.and_then(|labels| labels.get(key)).map(String::as_str);
    label(OF_DRIVER) == Some(DRIVER) && label(MANAGED_BY) == Some("knarr")
}

fn node_of(capacity: &CSIStorageCapacity) -> Option<String> {
    capacity.node_topology.as_ref()?.match_labels.as_ref()?.get(TOPOLOGY_KEY).cloned()
}

/// Decides what is to be said of one Node.
fn plan(
    node: &str,
    csi_node: Option<&CSINode>,
    classes: &[Arc<StorageClass>],
    known: &[Arc<CSIStorageCapacity>],
) -> Plan {
    let mut plan = Plan::nothing();
    let free_bytes = csi_node.and_then(free_bytes);
    let ours = classes.iter().filter(|class| class.provisioner == DRIVER && free_bytes.is_some());
    let wanted: BTreeMap<&str, i64> =
        ours.map(|class| (name(&class.metadata), free_bytes.unwrap_or_default())).collect();
    let here = known.iter().filter(|one| is_ours(one) && node_of(one).as_deref() == Some(node));
    let mut told: BTreeMap<&str, &CSIStorageCapacity> = BTreeMap::new();
    for capacity in here {
        let class = capacity.storage_class_name.as_str();
        if !wanted.contains_key(class) || told.contains_key(class) {
            let (name, uid) = (name(&capacity.metadata), capacity.metadata.uid.as_deref());
            let propagation = Propagation::Background;
            plan.push(Action::delete::<CSIStorageCapacity>(NAMESPACE, name, uid, propagation, None));
            continue;
        }
        told.insert(class, capacity);
    }
    for (class, bytes) in wanted {
        let size = Some(Quantity(bytes.to_string()));
        let Some(old) = told.get(class) else {
            plan.push(Action::create(&capacity(node, class, size)));
            continue;
        };
        let bytes_of = |size: &Option<Quantity>| {
            let parsed = size.as_ref().and_then(|text| text.0.parse::<machinery::quantity::Quantity>().ok());
            parsed.map(|size| size.value())
        };
        if bytes_of(&old.capacity) != Some(bytes) {
            let mut new = (*old).clone();
            new.capacity.clone_from(&size);
            new.maximum_volume_size = size;
            plan.push(Action::update(&new));
        }
    }
    plan
}

fn capacity(node: &str, class: &str, size: Option<Quantity>) -> CSIStorageCapacity {
    let topology = BTreeMap::from([(TOPOLOGY_KEY.to_owned(), node.to_owned())]);
    let labels = [(OF_DRIVER, DRIVER), (MANAGED_BY, "knarr")];
    CSIStorageCapacity {
        metadata: ObjectMeta {
            name: Some(format!(
                "csisc-{}",
                &controller::volume::sha256(&[DRIVER, "/", class, "/", node])[..16]
            )),
            namespace: Some(NAMESPACE.to_owned()),
            labels: Some(labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into()),
            ..ObjectMeta::default()
        },
        capacity: size.clone(),
        maximum_volume_size: size,
        node_topology: Some(LabelSelector { match_labels: Some(topology), match_expressions: None }),
        storage_class_name: class.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::fixture::{list, parse, render};

    fn check(free_bytes: &str, known: &str, expect: Expect) {
        let node: CSINode = parse(&format!(
            "{{metadata: {{name: one{free_bytes}}}, spec: {{drivers: [{{name: hostpath.csi.knarr.io, nodeID: one}}]}}}}"
        ));
        let classes = "[{metadata: {name: fast}, provisioner: hostpath.csi.knarr.io}, {metadata: {name: other}, provisioner: other}]";
        expect.assert_eq(&render(&plan("one", Some(&node), &list(classes), &list(known))));
    }

    fn known(class: &str, size: &str) -> String {
        format!(
            "[{{metadata: {{name: k, namespace: kube-system, labels: {{csi.storage.k8s.io/drivername: hostpath.csi.knarr.io, csi.storage.k8s.io/managed-by: knarr}}}}, storageClassName: {class}, capacity: {size}, nodeTopology: {{matchLabels: {{topology.hostpath.csi.knarr.io/node: one}}}}}}]"
        )
    }

    const ROOMY: &str = ", annotations: {hostpath.csi.knarr.io/available-bytes: '1024'}";

    #[test]
    fn each_class_says_what_a_node_has_room_for() {
        check(
            ROOMY,
            "[]",
            expect![[r#"
            step
              create csistoragecapacities csisc-af1d817786e2486d
        "#]],
        );
        check(ROOMY, &known("fast", "1Ki"), expect![""]);
        let replaced = expect![[r#"
            step
              delete csistoragecapacities k
            step
              create csistoragecapacities csisc-af1d817786e2486d
        "#]];
        check(ROOMY, &known("gone", "1Ki"), replaced);
        check(
            "",
            &known("fast", "1Ki"),
            expect![[r#"
            step
              delete csistoragecapacities k
        "#]],
        );
    }
}
