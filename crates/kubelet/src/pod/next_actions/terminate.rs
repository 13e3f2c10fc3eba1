//! The way down: all containers at once, each in its turn, then the sandbox, then everything else.

use super::{JobKey, PodAction, grace};
use crate::pod::roles::{Role, init_role};
use crate::pod::snapshot::{Container, PodSnapshot};

/// Takes the Pod down and, when nothing is left of it on the node, deletes the object.
pub(super) fn all(snapshot: &PodSnapshot) -> Vec<PodAction> {
    if snapshot.is_cleaned {
        let may_delete = !snapshot.removed_from_api && snapshot.is_status_written;
        return if may_delete { vec![PodAction::Delete] } else { Vec::new() };
    }
    let actions = containers_and_sandbox(snapshot);
    if !actions.is_empty() || is_in_use(snapshot) {
        return actions;
    }
    vec![PodAction::Cleanup]
}

/// Takes all down but what tells how it was: dead containers with their logs. Source: `SyncTerminatedPod`.
pub(super) fn all_but_logs(snapshot: &PodSnapshot) -> Vec<PodAction> {
    let actions = containers_and_sandbox(snapshot);
    if !actions.is_empty() || snapshot.is_released || is_in_use(snapshot) {
        return actions;
    }
    vec![PodAction::Release]
}

/// What is under way would make something new after the cleaning up.
fn is_in_use(snapshot: &PodSnapshot) -> bool {
    snapshot.busy.iter().any(JobKey::makes_something)
}

fn containers_and_sandbox(snapshot: &PodSnapshot) -> Vec<PodAction> {
    let kills = kills(snapshot, |name| format!("Stopping container {name}"));
    let is_starting = snapshot.busy.iter().any(JobKey::starts_something);
    if !kills.is_empty() || is_starting {
        return kills;
    }
    let ready = snapshot.sandboxes.iter().filter(|s| s.is_ready);
    let mut actions: Vec<_> = ready.map(|s| PodAction::StopSandbox { id: s.id.clone() }).collect();
    actions.extend(snapshot.holds_claims.then_some(PodAction::UnprepareClaims));
    actions
}

/// Kills all that runs at once: who goes after others waits for them with its hook already run, in the same time.
///
/// Sidecars go after the main containers and after the sidecars that came up after them. Source:
/// `kuberuntime_termination_order.go` of upstream.
pub(super) fn kills(snapshot: &PodSnapshot, message: impl Fn(&str) -> String) -> Vec<PodAction> {
    let spec = snapshot.spec();
    let sidecars = spec.init_containers.iter().flatten().filter(|c| init_role(c) == Role::Sidecar);
    let names: Vec<&str> = sidecars.map(|c| c.name.as_str()).collect();
    let rank = |container: &Container| names.iter().position(|name| *name == container.name);
    let is_main = |container: &Container| spec.containers.iter().any(|c| c.name == container.name);
    let running: Vec<&Container> = snapshot.containers.iter().filter(|c| c.is_running()).collect();
    let goes_before = |other: &Container, container: &Container| match (rank(container), rank(other)) {
        (Some(own), Some(other)) => other > own,
        (Some(_), None) => is_main(other),
        (None, _) => false,
    };
    let kill = |container: &&Container| PodAction::Kill {
        id: container.id.clone(),
        name: container.name.clone(),
        grace: grace(snapshot),
        message: message(&container.name),
        after: running.iter().filter(|other| goes_before(other, container)).map(|c| c.id.clone()).collect(),
    };
    running.iter().map(kill).collect()
}
