//! A volume's life with a controller that is killed, or does not hear the answer, at every single request: between a driver's
//! call and the object that tells of it, too. Whatever comes then, no volume is left over and no claim has two.

use std::time::Duration;

use serde_json::json;

use super::*;
use crate::fixture::world::{FaultyExecutor, Life, Trouble, World};
use crate::volume::binder;

const CLAIMS: &str = "persistentvolumeclaims";
const VOLUMES: &str = "persistentvolumes";
const NODES: [&str; 3] = ["one", "three", "two"];
/// Runs of all controllers until nothing changes any more.
const ROUNDS_MAX: usize = 60;

fn world(class: &str) -> World {
    let mut world = World::default();
    for node in NODES {
        world.put("nodes", json!({"metadata": {"name": node}}));
    }
    world.put("storageclasses", parse(class));
    world
}

/// What the informers show of a claim.
fn seen(world: &World, claim: Arc<PersistentVolumeClaim>) -> ClaimSnapshot {
    let name = match volume_name(&claim) {
        "" => name(&claim),
        named => named.to_owned(),
    };
    let known = (world.get("storageclasses", "hostpath"), world.get(VOLUMES, &name));
    let nodes = world.all::<Node>("nodes").iter().map(|node| key(&node.metadata)).collect();
    seen_of(claim, known, nodes, |node| world.get::<Node>("nodes", node).is_some())
}

/// What binder and driver's controller want done about everything there is.
fn plans(world: &World, now: Timestamp) -> Vec<Plan> {
    let mut plans = Vec::new();
    for claim in world.all::<PersistentVolumeClaim>(CLAIMS) {
        plans.push(binder::plan_claim(&binder::ClaimSnapshot {
            volumes: world.all(VOLUMES),
            class: world.get("storageclasses", "hostpath"),
            classes: world.all("storageclasses"),
            pods: vec!["p".to_owned()],
            is_provisioned: true,
            claim: claim.clone(),
        }));
        plans.push(plan_claim(&seen(world, claim), now));
    }
    for volume in world.all::<PersistentVolume>(VOLUMES) {
        let claim = world.get(CLAIMS, "c");
        plans.push(binder::plan_volume(&binder::VolumeSnapshot { volume: volume.clone(), claim }));
        let has_node = node_of(&volume).is_some_and(|node| world.get::<Node>("nodes", node).is_some());
        plans.push(reclaim::plan(&volume, has_node));
    }
    plans
}

/// Chooses a Node where none is chosen, as the scheduler does for a Pod that waits.
fn schedule(world: &mut World) {
    let Some(claim) = world.get::<PersistentVolumeClaim>(CLAIMS, "c") else { return };
    let class: Arc<StorageClass> = world.get("storageclasses", "hostpath").unwrap();
    if waits(&class) && volume_name(&claim).is_empty() && annotation(&claim.metadata, SELECTED_NODE).is_none()
    {
        let node = NODES
            .into_iter()
            .find(|node| world.get::<Node>("nodes", node).is_some() && !world.full.contains(*node));
        world.patch(CLAIMS, "c", &json!({"metadata": {"annotations": {SELECTED_NODE: node}}}));
    }
}

fn waits(class: &StorageClass) -> bool {
    controller::volume::waits_for_consumer(class)
}

/// Runs everybody until nothing changes; each plan is of what there is when its turn comes.
fn settle(world: &mut World, executor: &mut FaultyExecutor) -> Life {
    let mut now = noon();
    for _ in 0..ROUNDS_MAX {
        let before = world.clone();
        schedule(world);
        let mut pause = None;
        for at in 0..plans(world, now).len() {
            let Some(plan) = plans(world, now).into_iter().nth(at) else { break };
            pause = pause.max(plan.requeue_after);
            if executor.carry_out(world, plan) == Life::Dead {
                return Life::Dead;
            }
        }
        match pause {
            None if *world == before => return Life::Alive,
            // What failed is tried again later.
            _ => now += pause.unwrap_or(Duration::from_secs(1)),
        }
    }
    panic!("it never comes to rest: {world:#?}");
}

/// What users and machines do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    Nothing,
    Claim,
    Grow,
    Delete,
    /// The scheduler gives up the Node that it has chosen, which it may as long as the claim has no volume.
    ChooseAnew,
    LoseNode,
    Fill,
}

fn act(world: &mut World, deed: Deed) {
    let claim: Option<Arc<PersistentVolumeClaim>> = world.get(CLAIMS, "c");
    match deed {
        Deed::Nothing => {}
        Deed::Claim => world.put(CLAIMS, parse(&super::claim(""))),
        Deed::Grow => {
            world.patch(CLAIMS, "c", &json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}}))
        }
        Deed::Delete => world.delete(CLAIMS, "c"),
        Deed::ChooseAnew => {
            let has_selected = claim.as_ref().is_some_and(|claim| {
                volume_name(claim).is_empty() && annotation(&claim.metadata, SELECTED_NODE).is_some()
            });
            if has_selected {
                let two = json!({"metadata": {"annotations": {SELECTED_NODE: "two"}}});
                world.patch(CLAIMS, "c", &two);
            }
        }
        Deed::LoseNode => world.lose_node("one"),
        Deed::Fill => world.full.extend(["one".to_owned(), "two".to_owned()]),
    }
}

/// Every file has an object on its Node, and every claim that is there has one volume of the size that it asks for.
fn check_end(world: &World, told: &str) {
    let volumes = world.all::<PersistentVolume>(VOLUMES);
    let of = |(node, id): &(String, String)| {
        volumes.iter().any(|volume| {
            node_of(volume) == Some(node) && csi(volume).is_some_and(|source| source.volume_handle == *id)
        })
    };
    assert!(world.made.keys().all(of), "{told}: a volume is left over: {world:#?}");
    let Some(claim) = world.get::<PersistentVolumeClaim>(CLAIMS, "c") else {
        assert!(volumes.is_empty(), "{told}: an object is left over: {world:#?}");
        return;
    };
    assert!(controller::volume::is_claim_bound(&claim), "{told}: {world:#?}");
    assert_eq!(volumes.len(), 1, "{told}: {world:#?}");
    assert_eq!(claim.metadata.finalizers.as_deref().unwrap_or_default(), [""; 0], "{told}");
    let wanted = controller::volume::requested(&claim);
    assert_eq!(controller::volume::capacity(&volumes[0]), wanted, "{told}");
    let capacity = &claim.status.as_ref().unwrap().capacity.as_ref().unwrap()["storage"].0;
    assert_eq!(capacity.parse::<machinery::quantity::Quantity>().unwrap(), wanted, "{told}: {world:#?}");
    let is_on_lost_node =
        !world.all::<Node>("nodes").iter().any(|node| node_of(&volumes[0]) == node.metadata.name.as_deref());
    if !is_on_lost_node {
        assert_eq!(world.made.values().copied().collect::<Vec<_>>(), [wanted.value()], "{told}: {world:#?}");
    }
}

/// Does `deed`, has the trouble come at every request that follows from it, and `then` what happens before somebody starts
/// anew. Says how many requests there are.
fn try_all(start: &World, deed: Deed, then: Deed) -> usize {
    let mut calm = FaultyExecutor::default();
    let mut whole = start.clone();
    act(&mut whole, deed);
    settle(&mut whole, &mut calm);
    check_end(&whole, "in peace");
    for at in 0..=calm.requests() {
        for trouble in [Trouble::KilledAfter(at), Trouble::AnswerLost(at)] {
            let mut world = start.clone();
            act(&mut world, deed);
            settle(&mut world, &mut FaultyExecutor::with(trouble));
            act(&mut world, then);
            settle(&mut world, &mut FaultyExecutor::default());
            check_end(&world, &format!("{deed:?}, {trouble:?}, then {then:?}"));
        }
    }
    calm.requests()
}

const IMMEDIATE: &str = "{metadata: {name: hostpath}, provisioner: hostpath.csi.knarr.io, volumeBindingMode: Immediate, reclaimPolicy: Delete}";

#[test]
fn a_kill_at_any_request_leaves_one_volume_or_none() {
    for class in [CLASS, IMMEDIATE] {
        let mut start = world(class);
        for deed in [Deed::Claim, Deed::Grow, Deed::Delete] {
            for then in [Deed::Nothing, Deed::Delete, Deed::ChooseAnew, Deed::LoseNode] {
                if (deed, then) == (Deed::Grow, Deed::LoseNode) {
                    continue;
                }
                assert!(try_all(&start, deed, then) > 1, "{deed:?} takes requests");
            }
            act(&mut start, deed);
            settle(&mut start, &mut FaultyExecutor::default());
        }
        assert!(start.made.is_empty() && start.all::<PersistentVolume>(VOLUMES).is_empty());
    }
}

#[test]
fn nodes_without_room_are_passed_over_whoever_chooses() {
    for class in [CLASS, IMMEDIATE] {
        for then in [Deed::Nothing, Deed::Delete] {
            let mut start = world(class);
            act(&mut start, Deed::Fill);
            assert!(try_all(&start, Deed::Claim, then) > 1);
            act(&mut start, Deed::Claim);
            settle(&mut start, &mut FaultyExecutor::default());
            assert_eq!(start.made.keys().map(|(node, _)| node.as_str()).collect::<Vec<_>>(), ["three"]);
        }
    }
}
