//! Tells the API of this node's drivers: CSINode, and on the Node the driver's id for it and its place in the world.
//!
//! Source: `pkg/volume/csi/nodeinfomanager`.

use controller::request::{self, ApiRequest, Patch};
use controller::volume::migration::{self, MIGRATED_PLUGINS};
use csi::v1;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::storage::v1::{CSINode, CSINodeDriver, CSINodeSpec, VolumeNodeResources};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde_json::{Map, Value, json};

use crate::volumes::Volumes;

/// On the Node: what drivers call it, as JSON.
const NODE_ID: &str = "csi.volume.kubernetes.io/nodeid";
/// How often a write is tried that others have overtaken.
const TRIES_MAX: usize = 8;

/// Adds the driver to what the API knows of this node.
///
/// # Errors
/// What the API server said.
pub(crate) async fn add(
    volumes: &Volumes,
    driver: &str,
    info: &v1::NodeGetInfoResponse,
) -> Result<(), kube::Error> {
    let _turn = volumes.csi.publishing.lock().await;
    let name = &volumes.config.node_name;
    let node: Node = request::get(&volumes.client, "", name).await?;
    let topology = info.accessible_topology.clone().unwrap_or_default().segments;
    let patch = json!({"metadata": {
        "annotations": {NODE_ID: with_id(&node, driver, Some(&info.node_id))},
        "labels": topology,
    }});
    let patch = ApiRequest::patch_object::<Node>("", name, Patch::Merge(patch));
    request::carry_out(&volumes.client, &patch).await?;
    let mut topology_keys: Vec<String> = topology.into_keys().collect();
    topology_keys.sort();
    let count = i32::try_from(info.max_volumes_per_node).ok().filter(|count| *count > 0);
    let entry = CSINodeDriver {
        name: driver.to_owned(),
        node_id: info.node_id.clone(),
        topology_keys: Some(topology_keys),
        allocatable: count.map(|count| VolumeNodeResources { count: Some(count) }),
    };
    change(volumes, &node, |drivers| {
        drivers.retain(|one| one.name != driver);
        drivers.push(entry.clone());
    })
    .await?;
    volumes.csi.upkeep.notify_one();
    Ok(())
}

/// Says how many volumes of the driver the node can have by now. Source: KEP-4876.
///
/// # Errors
/// What the API server said.
pub(crate) async fn update_count(volumes: &Volumes, driver: &str, count: i64) -> Result<(), kube::Error> {
    let _turn = volumes.csi.publishing.lock().await;
    let count = i32::try_from(count).ok().filter(|count| *count > 0);
    let allocatable = count.map(|count| VolumeNodeResources { count: Some(count) });
    change(volumes, &volumes.node(), |drivers| {
        for known in drivers.iter_mut().filter(|one| one.name == driver) {
            known.allocatable.clone_from(&allocatable);
        }
    })
    .await
}

/// Says on the CSINode how many bytes are left for volumes of the cluster's own driver, whose volumes stay here.
///
/// # Errors
/// What the API server said.
pub(crate) async fn update_room(volumes: &Volumes, driver: &str, bytes: i64) -> Result<(), kube::Error> {
    let (key, name) = (format!("{driver}/available-bytes"), &volumes.config.node_name);
    let Some(known) = request::find::<CSINode>(&volumes.client, "", name).await? else { return Ok(()) };
    let said = known.metadata.annotations.as_ref().and_then(|all| all.get(&key)?.parse::<i64>().ok());
    if said.is_some_and(|said| !is_news(said, bytes)) {
        return Ok(());
    }
    let patch = json!({"metadata": {"annotations": {key: bytes.to_string()}}});
    let patch = ApiRequest::patch_object::<CSINode>("", name, Patch::Merge(patch));
    request::carry_out(&volumes.client, &patch).await
}

/// Whether so many bytes are worth telling: less by a thirty-second, or more by a sixteenth.
fn is_news(said: i64, now: i64) -> bool {
    now < said - said / 32 || now > said + said / 16
}

/// Takes the driver out of what the API knows of this node.
///
/// # Errors
/// What the API server said.
pub(crate) async fn remove(volumes: &Volumes, driver: &str) -> Result<(), kube::Error> {
    let _turn = volumes.csi.publishing.lock().await;
    if volumes.csi.get(driver).is_ok() {
        // It has come back meanwhile.
        return Ok(());
    }
    let name = &volumes.config.node_name;
    let node: Node = request::get(&volumes.client, "", name).await?;
    change(volumes, &node, |drivers| drivers.retain(|one| one.name != driver)).await?;
    let patch = json!({"metadata": {"annotations": {NODE_ID: with_id(&node, driver, None)}}});
    let patch = ApiRequest::patch_object::<Node>("", name, Patch::Merge(patch));
    request::carry_out(&volumes.client, &patch).await
}

/// The annotation with a driver's id in it, or without; `None` when nothing is left.
fn with_id(node: &Node, driver: &str, id: Option<&str>) -> Option<String> {
    let old = node.metadata.annotations.as_ref().and_then(|all| all.get(NODE_ID));
    let mut ids: Map<String, Value> =
        old.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    match id {
        Some(id) => ids.insert(driver.to_owned(), id.into()),
        None => ids.remove(driver),
    };
    (!ids.is_empty()).then(|| Value::Object(ids).to_string())
}

/// Changes the drivers of this node's CSINode, which is made if it is not there.
async fn change(
    volumes: &Volumes,
    node: &Node,
    change: impl Fn(&mut Vec<CSINodeDriver>),
) -> Result<(), kube::Error> {
    let mut tries = 0;
    loop {
        tries += 1;
        let found: Option<CSINode> = request::find(&volumes.client, "", &volumes.config.node_name).await?;
        let write = match found {
            Some(mut object) => {
                let before = object.clone();
                note_migrated(&mut object.metadata);
                change(&mut object.spec.drivers);
                if object == before {
                    return Ok(());
                }
                ApiRequest::update(&object)
            }
            None => {
                let mut object = empty(node);
                change(&mut object.spec.drivers);
                ApiRequest::create(&object)
            }
        };
        match request::carry_out(&volumes.client, &write).await {
            Err(kube::Error::Api(status)) if status.code == 409 && tries < TRIES_MAX => {}
            other => return other,
        }
    }
}

fn empty(node: &Node) -> CSINode {
    let name = node.metadata.name.clone().unwrap_or_default();
    let owner = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: name.clone(),
        uid: node.metadata.uid.clone().unwrap_or_default(),
        ..OwnerReference::default()
    };
    let mut metadata =
        ObjectMeta { name: Some(name), owner_references: Some(vec![owner]), ..ObjectMeta::default() };
    note_migrated(&mut metadata);
    CSINode { metadata, spec: CSINodeSpec { drivers: Vec::new() } }
}

/// Says which old plugins' volumes this kubelet leaves to drivers. Source: `setMigrationAnnotation`.
fn note_migrated(metadata: &mut ObjectMeta) {
    let annotations = metadata.annotations.get_or_insert_default();
    annotations.insert(MIGRATED_PLUGINS.to_owned(), migration::plugins());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_news_when_it_has_changed_a_good_deal() {
        for (said, now, expect) in
            [(3200, 3200, false), (3200, 3101, false), (3200, 3099, true), (3200, 3401, true)]
        {
            assert_eq!(is_news(said, now), expect, "{said} {now}");
        }
    }

    #[test]
    fn a_node_has_an_id_for_each_driver() {
        let mut node = Node::default();
        assert_eq!(with_id(&node, "a", Some("1")).as_deref(), Some(r#"{"a":"1"}"#));
        node.metadata.annotations = Some([(NODE_ID.to_owned(), r#"{"a":"1","b":"2"}"#.to_owned())].into());
        assert_eq!(with_id(&node, "a", None).as_deref(), Some(r#"{"b":"2"}"#));
        node.metadata.annotations = Some([(NODE_ID.to_owned(), r#"{"a":"1"}"#.to_owned())].into());
        assert_eq!(with_id(&node, "a", None), None);
    }
}
