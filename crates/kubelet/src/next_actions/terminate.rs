//! The way down: main containers first, then sidecars in reverse order, then the sandbox, then everything else.

use super::{PodAction, grace};
use crate::snapshot::{PodSnapshot, Role, init_role};

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

/// Takes the Pod down, and leaves what its object's readers may ask for: its logs. Source: `SyncTerminatedPod`.
pub(super) fn all_but_logs(snapshot: &PodSnapshot) -> Vec<PodAction> {
    let actions = containers_and_sandbox(snapshot);
    if !actions.is_empty() || is_in_use(snapshot) || snapshot.has_no_volumes() {
        return actions;
    }
    vec![PodAction::TakeVolumesDown]
}

/// Whether something is under way that would make something new after the cleaning up.
fn is_in_use(snapshot: &PodSnapshot) -> bool {
    let is_harmless = |key: &String| {
        key == "status" || key == "refresh" || key.starts_with("image/") || key.starts_with("cpus/")
    };
    !snapshot.busy.iter().all(is_harmless)
}

fn containers_and_sandbox(snapshot: &PodSnapshot) -> Vec<PodAction> {
    let kills = kills(snapshot, "Stopping container");
    let is_starting = snapshot.busy.iter().any(|key| key.starts_with("start/") || key == "sandbox");
    if !kills.is_empty() || is_starting {
        return kills;
    }
    let ready = snapshot.sandboxes.iter().filter(|s| s.is_ready);
    let mut actions: Vec<_> = ready.map(|s| PodAction::StopSandbox { id: s.id.clone() }).collect();
    actions.extend(snapshot.holds_claims.then_some(PodAction::UnprepareClaims));
    actions
}

fn kills(snapshot: &PodSnapshot, message: &str) -> Vec<PodAction> {
    let sidecars: Vec<&str> = snapshot
        .spec()
        .init_containers
        .iter()
        .flatten()
        .filter(|c| init_role(c) == Role::Sidecar)
        .map(|c| c.name.as_str())
        .collect();
    let kill = |c: &crate::snapshot::Container| PodAction::Kill {
        id: c.id.clone(),
        name: c.name.clone(),
        grace: grace(snapshot),
        message: format!("{message} {}", c.name),
    };
    let running = || snapshot.containers.iter().filter(|c| c.is_running());
    let first: Vec<_> = running().filter(|c| !sidecars.contains(&c.name.as_str())).map(kill).collect();
    if !first.is_empty() {
        return first;
    }
    let rank = |name: &str| sidecars.iter().position(|s| *s == name);
    running().max_by_key(|c| rank(&c.name)).map(kill).into_iter().collect()
}
