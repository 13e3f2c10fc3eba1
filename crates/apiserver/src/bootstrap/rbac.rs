//! Creates the default roles and bindings, and gives back what was taken from them.
//!
//! Rules and subjects that administrators added stay.

use auth::bootstrap as defaults;
use k8s_openapi::api::rbac::v1::{PolicyRule, Subject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use machinery::metadata::{self, Metadata};
use serde::Serialize;
use serde_json::{Value, json};

use crate::api::Api;
use crate::kinds::{GroupVersionResource, Part};
use crate::request::of_server;
use crate::request_info::Verb;
use crate::status::{Error, Result};
use crate::write::Decoded;
use crate::write::change::change;
use crate::write::loopback::ensure;

const GROUP: &str = "rbac.authorization.k8s.io";

/// A default object and the resource it is of.
pub(super) type Wanted = (&'static str, Value);

/// Every default object.
///
/// # Errors
/// 500 if one cannot be encoded.
pub(super) fn defaults() -> Result<Vec<Wanted>> {
    let mut all = Vec::new();
    add(&mut all, "clusterroles", defaults::cluster_roles())?;
    add(&mut all, "clusterrolebindings", defaults::cluster_role_bindings())?;
    add(&mut all, "roles", defaults::roles())?;
    add(&mut all, "rolebindings", defaults::role_bindings())?;
    all.extend(span_reporters());
    all.extend(tunnel_openers());
    Ok(all)
}

/// Who may open tunnels: Nodes, each its own.
fn tunnel_openers() -> [Wanted; 2] {
    const NAME: &str = "system:knarr-node-tunnel";
    let rule = json!({"verbs": ["get"], "nonResourceURLs": [tunnel::PATH]});
    let nodes = json!({"kind": "Group", "apiGroup": GROUP, "name": auth::NODES});
    let role = json!({"apiGroup": GROUP, "kind": "ClusterRole", "name": NAME});
    [
        ("clusterroles", json!({"metadata": {"name": NAME}, "rules": [rule]})),
        ("clusterrolebindings", json!({"metadata": {"name": NAME}, "roleRef": role, "subjects": [nodes]})),
    ]
}

/// Who may report spans to `/debug/knarr/spans`: the parts that make steps of the chain.
fn span_reporters() -> [Wanted; 2] {
    const NAME: &str = "system:knarr-span-reporter";
    let users = ["system:kube-scheduler", "system:kube-controller-manager", "system:kube-proxy"];
    let mut subjects: Vec<Value> =
        users.iter().map(|user| json!({"kind": "User", "apiGroup": GROUP, "name": user})).collect();
    subjects.push(json!({"kind": "Group", "apiGroup": GROUP, "name": auth::NODES}));
    [
        (
            "clusterroles",
            json!({
                "metadata": {"name": NAME},
                "rules": [{"verbs": ["post"], "nonResourceURLs": ["/debug/knarr/spans"]}],
            }),
        ),
        (
            "clusterrolebindings",
            json!({
                "metadata": {"name": NAME},
                "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": NAME},
                "subjects": subjects,
            }),
        ),
    ]
}

fn add<K: Serialize>(all: &mut Vec<Wanted>, resource: &'static str, objects: Vec<K>) -> Result<()> {
    for object in objects {
        all.push((resource, serde_json::to_value(object).map_err(Error::internal)?));
    }
    Ok(())
}

/// Creates an object, or adds what it lacks.
pub(super) async fn reconcile(api: &Api, (resource, wanted): Wanted) -> Result<()> {
    let namespace = Metadata::of(&wanted).namespace().to_owned();
    let whole_name = GroupVersionResource::new(GROUP, "v1", resource);
    let Some((request, wanted)) = of_server(api, whole_name, &namespace, wanted, Verb::Update) else {
        return Ok(());
    };
    let Some(existing) = request.kind.cache().get(&request.key()) else {
        return ensure(api, whole_name, &namespace, wanted).await;
    };
    if merged(resource, &existing.value(), &wanted).is_none() {
        return Ok(());
    }
    change(api, &request, Part::Object, |old| {
        let mut new = merged(resource, old, &wanted).unwrap_or_else(|| old.clone());
        metadata::remove(&mut new, "resourceVersion");
        Ok(Decoded::of_server(new))
    })
    .await?;
    Ok(())
}

/// The existing object with what it lacks; `None` if it lacks nothing.
fn merged(resource: &str, existing: &Value, wanted: &Value) -> Option<Value> {
    let read_metadata = |object: &Value| -> ObjectMeta {
        serde_json::from_value(object.get("metadata").cloned().unwrap_or_default()).unwrap_or_default()
    };
    let (old, new) = (read_metadata(existing), read_metadata(wanted));
    let (object_metadata, field, list) = if resource.ends_with("bindings") {
        let list = |object: &Value| -> Vec<Subject> { items(object, "subjects") };
        let (metadata, subjects) =
            defaults::reconcile_subjects((&old, &list(existing)), (&new, &list(wanted)))?;
        (metadata, "subjects", json!(subjects))
    } else {
        let list = |object: &Value| -> Vec<PolicyRule> { items(object, "rules") };
        let (metadata, rules) = defaults::reconcile_role((&old, &list(existing)), (&new, &list(wanted)))?;
        (metadata, "rules", json!(rules))
    };
    let mut merged = existing.clone();
    merged.as_object_mut()?.insert("metadata".to_owned(), serde_json::to_value(object_metadata).ok()?);
    merged.as_object_mut()?.insert(field.to_owned(), list);
    Some(merged)
}

fn items<T: serde::de::DeserializeOwned>(object: &Value, field: &str) -> Vec<T> {
    serde_json::from_value(object.get(field).cloned().unwrap_or_else(|| json!([]))).unwrap_or_default()
}
