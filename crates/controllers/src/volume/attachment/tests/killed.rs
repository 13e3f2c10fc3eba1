//! A volume that goes from node to node, with a controller that is killed, or does not hear the answer, at every request:
//! between the attachment and the node's word of it, too. It is never on two nodes, nor on one that needs it no more.

use serde_json::Value;

use super::*;
use crate::fixture::world::{FaultyExecutor, Life, Trouble, World};

const ATTACHMENTS: &str = "volumeattachments";
const NODES: [&str; 2] = ["one", "two"];
const ROUNDS_MAX: usize = 20;

fn world() -> World {
    let mut world = World::default();
    for node in NODES {
        let ready = json!([{"type": "Ready", "status": "True"}]);
        world.put("nodes", json!({"metadata": {"name": node}, "status": {"conditions": ready}}));
    }
    world
}

fn seen(world: &World, wanted: Option<&str>) -> Snapshot {
    let pod = |_| Arc::new(parse("{metadata: {name: p, namespace: x}, spec: {containers: []}}"));
    let nodes = world.all::<Node>("nodes");
    Snapshot {
        key: "v".to_owned(),
        volume: Arc::new(parse(VOLUME)),
        wanted: wanted.map(|node| (node.to_owned(), vec![pod(node)])).into_iter().collect(),
        attachments: world.all(ATTACHMENTS),
        nodes: nodes.into_iter().map(|node| (name(&node.metadata).to_owned(), node)).collect(),
        having: NODES.map(str::to_owned).to_vec(),
        is_attachable: true,
        options: Arc::default(),
    }
}

/// The driver's sidecar: what an attachment asks for is done, and its end is held until it is undone.
fn attach(world: &mut World) {
    for attachment in world.all::<VolumeAttachment>(ATTACHMENTS) {
        let key = (attachment.spec.node_name.clone(), "h".to_owned());
        let patch = if is_deleting(&attachment.metadata) {
            world.made.remove(&key);
            json!({"metadata": {"finalizers": null}})
        } else {
            world.made.insert(key, 1);
            json!({"metadata": {"finalizers": ["external-attacher/d"]}, "status": {"attached": true}})
        };
        world.patch(ATTACHMENTS, name(&attachment.metadata), &patch);
    }
    assert!(world.made.len() < 2, "it is on two nodes: {world:#?}");
}

/// Each node's kubelet: it uses what it is told is there, as long as a Pod wants it.
fn mount(world: &mut World, wanted: Option<&str>) {
    for node in world.all::<Node>("nodes") {
        let of = name(&node.metadata).to_owned();
        let status = serde_json::to_value(&node.status).unwrap();
        let is_told = status["volumesAttached"].as_array().is_some_and(|all| !all.is_empty());
        assert!(!is_told || world.made.keys().any(|(there, _)| *there == of), "{of} is told what is not so");
        let is_used = wanted == Some(of.as_str()) && is_told;
        let used: Value = if is_used { json!(["kubernetes.io/csi/d^h"]) } else { json!([]) };
        world.patch("nodes", &of, &json!({"status": {"volumesInUse": used}}));
    }
}

fn settle(world: &mut World, wanted: Option<&str>, executor: &mut FaultyExecutor) {
    for _ in 0..ROUNDS_MAX {
        let before = world.clone();
        if executor.carry_out(world, plan(&seen(world, wanted), noon())) == Life::Dead {
            return;
        }
        mount(world, wanted);
        attach(world);
        if *world == before {
            return;
        }
    }
    panic!("it never comes to rest: {world:#?}");
}

fn check_end(world: &World, wanted: Option<&str>, told: &str) {
    let there: Vec<&str> = world.made.keys().map(|(node, _)| node.as_str()).collect();
    assert_eq!(there, wanted.as_slice(), "{told}");
    assert_eq!(world.all::<VolumeAttachment>(ATTACHMENTS).len(), there.len(), "{told}");
    for node in world.all::<Node>("nodes") {
        let said =
            node.status.as_ref().and_then(|status| status.volumes_attached.clone()).unwrap_or_default();
        let is_there = wanted == node.metadata.name.as_deref();
        assert_eq!(said.len(), usize::from(is_there), "{told}: {node:#?}");
    }
}

#[test]
fn a_kill_at_any_request_leaves_a_volume_where_it_is_wanted() {
    const PLACES: [Option<&str>; 3] = [None, Some("one"), Some("two")];
    for way in 0..PLACES.len().pow(3) {
        let [from, to, then] = [way % 3, way / 3 % 3, way / 9].map(|at| PLACES[at]);
        let mut start = world();
        settle(&mut start, from, &mut FaultyExecutor::default());
        check_end(&start, from, "at first");
        let mut calm = FaultyExecutor::default();
        settle(&mut start.clone(), to, &mut calm);
        assert_eq!(calm.requests() > 0, from != to, "{from:?} to {to:?}");
        for at in 0..=calm.requests() {
            for trouble in [Trouble::KilledAfter(at), Trouble::AnswerLost(at)] {
                let mut world = start.clone();
                settle(&mut world, to, &mut FaultyExecutor::with(trouble));
                settle(&mut world, then, &mut FaultyExecutor::default());
                check_end(&world, then, &format!("{from:?} to {to:?}, {trouble:?}, then {then:?}"));
            }
        }
    }
}
