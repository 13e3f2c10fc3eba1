//! Keeps the authorizers' indexes level with the watch cache.

use auth::authorizer::Authorizer;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::cache::{CacheEvent, CachedObject, EventType};

const CLUSTER_ROLES: &str = "/registry/clusterroles/";
const CLUSTER_ROLE_BINDINGS: &str = "/registry/clusterrolebindings/";
const ROLES: &str = "/registry/roles/";
const ROLE_BINDINGS: &str = "/registry/rolebindings/";
const PODS: &str = "/registry/pods/";
const VOLUMES: &str = "/registry/persistentvolumes/";
const ATTACHMENTS: &str = "/registry/volumeattachments/";

/// What the authorizers look at.
pub(super) const PREFIXES: [&str; 7] =
    [CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS, ROLES, ROLE_BINDINGS, PODS, VOLUMES, ATTACHMENTS];

/// Whether a change can matter: most changes of Pods do not move them.
pub(super) fn is_relevant(prefix: &str, event: &CacheEvent) -> bool {
    if prefix != PODS || event.event_type == EventType::Deleted {
        return PREFIXES.contains(&prefix);
    }
    let node = node_of(&event.object);
    !node.is_empty() && event.previous.as_ref().is_none_or(|previous| node_of(previous) != node)
}

fn node_of(pod: &CachedObject) -> String {
    #[derive(Deserialize, Default)]
    struct Pod {
        #[serde(default)]
        spec: Spec,
    }
    #[derive(Deserialize, Default)]
    struct Spec {
        #[serde(default, rename = "nodeName")]
        node_name: String,
    }
    serde_json::from_slice::<Pod>(&pod.json).unwrap_or_default().spec.node_name
}

/// Takes one change over.
pub(super) fn apply(authorizer: &mut Authorizer, prefix: &str, event: &CacheEvent) {
    if event.event_type != EventType::Deleted {
        return insert(authorizer, prefix, &event.object);
    }
    let rest = event.object.key.strip_prefix(prefix).unwrap_or_default();
    let (namespace, name) = rest.split_once('/').unwrap_or(("", rest));
    match prefix {
        CLUSTER_ROLES => authorizer.rbac_mut().remove_cluster_role(name),
        CLUSTER_ROLE_BINDINGS => authorizer.rbac_mut().remove_cluster_role_binding(name),
        ROLES => authorizer.rbac_mut().remove_role(namespace, name),
        ROLE_BINDINGS => authorizer.rbac_mut().remove_role_binding(namespace, name),
        PODS => authorizer.nodes_mut().remove_pod(namespace, name),
        VOLUMES => authorizer.nodes_mut().remove_volume(name),
        ATTACHMENTS => authorizer.nodes_mut().remove_attachment(name),
        _ => {}
    }
}

/// Takes one object over.
pub(super) fn insert(authorizer: &mut Authorizer, prefix: &str, object: &CachedObject) {
    match prefix {
        CLUSTER_ROLES => with(object, |role| authorizer.rbac_mut().insert_cluster_role(role)),
        CLUSTER_ROLE_BINDINGS => with(object, |b| authorizer.rbac_mut().insert_cluster_role_binding(b)),
        ROLES => with(object, |role| authorizer.rbac_mut().insert_role(role)),
        ROLE_BINDINGS => with(object, |binding| authorizer.rbac_mut().insert_role_binding(binding)),
        PODS => with(object, |pod| authorizer.nodes_mut().insert_pod(pod)),
        VOLUMES => with(object, |volume| authorizer.nodes_mut().insert_volume(volume)),
        ATTACHMENTS => with(object, |attachment| authorizer.nodes_mut().insert_attachment(attachment)),
        _ => {}
    }
}

fn with<K: DeserializeOwned>(object: &CachedObject, take: impl FnOnce(&K)) {
    match serde_json::from_slice(&object.json) {
        Ok(typed) => take(&typed),
        Err(failure) => tracing::warn!(key = %object.key, %failure, "an object is not what its kind says"),
    }
}
