//! NodeRestriction: what a kubelet may write, beyond what the Node authorizer can see from the request line.
//!
//! Pure: the request's objects come in as they are. Source: `plugin/pkg/admission/noderestriction`.

use std::collections::BTreeMap;

use machinery::node_labels::is_kubelets;
use serde_json::Value;

use crate::refusal::{Refusal, refuse, require};
use crate::signing::Asked;
use crate::{Attributes, UserInfo};

/// Signers of certificates for kubelets.
const KUBELET_SIGNERS: [&str; 2] =
    ["kubernetes.io/kubelet-serving", "kubernetes.io/kube-apiserver-client-kubelet"];

/// The objects of a write.
#[derive(Clone, Copy, Debug, Default)]
pub struct Objects<'a> {
    /// The object to be stored, or the TokenRequest or Eviction posted; `None` for deletions.
    pub new: Option<&'a Value>,
    /// The stored object.
    pub old: Option<&'a Value>,
    /// For Pods' subresources, token and certificate requests: the Pod that it is about, as stored.
    pub pod: Option<&'a Value>,
    /// For new Pods and certificate requests: the kubelet's Node, as stored.
    pub node: Option<&'a Value>,
    /// For certificate requests: the ServiceAccount that they name, as stored.
    pub account: Option<&'a Value>,
}

/// Checks a write; who is no kubelet passes. `attributes.verb` is `create`, `update`, `patch` or `delete`.
///
/// # Errors
/// The reason, as upstream words it, for `<resource> "<name>" is forbidden: <reason>`.
pub fn check(user: &UserInfo, attributes: &Attributes, objects: Objects<'_>) -> Result<(), Refusal> {
    let Some(node) = user.node() else {
        if user.is_nameless_node() {
            return refuse(format!("could not determine node from user {:?}", user.name));
        }
        return Ok(());
    };
    let is_create = attributes.verb == "create";
    match (attributes.group.as_str(), attributes.resource.as_str(), attributes.subresource.as_str()) {
        ("", "pods", "") if is_create => create_pod(node, objects),
        ("", "pods", "") if attributes.verb == "delete" => match objects.old {
            Some(pod) => own_pod(node, pod, "can only delete pods with spec.nodeName set to itself"),
            None => Ok(()),
        },
        ("", "pods", "") => refuse(format!(
            "unexpected operation {:?}, node {node:?} can only create and delete mirror pods",
            attributes.verb.to_uppercase()
        )),
        ("", "pods", "status") => pod_status(node, objects),
        ("", "pods", "eviction") => match objects.pod {
            Some(pod) if text(pod, "/spec/nodeName") != node => {
                refuse(format!("node {node} can only evict pods with spec.nodeName set to itself"))
            }
            _ => Ok(()),
        },
        ("", "pods", other) => {
            refuse(format!("unexpected pod subresource {other:?}, only 'status' and 'eviction' are allowed"))
        }
        ("", "nodes", _) => write_node(node, attributes, objects),
        ("", "persistentvolumeclaims", "status") => claim_status(node, objects),
        ("", "persistentvolumeclaims", _) => refuse("may only update PVC status"),
        ("", "serviceaccounts", "token") if is_create => token(node, objects),
        ("coordination.k8s.io", "leases", _) => lease(node, attributes, objects),
        ("storage.k8s.io", "csinodes", _) => csi_node(node, attributes, objects),
        ("resource.k8s.io", "resourceslices", _) => resource_slice(node, attributes, objects),
        ("certificates.k8s.io", "podcertificaterequests", "") if is_create => {
            pod_certificate(node, &attributes.namespace, objects)
        }
        ("certificates.k8s.io", "podcertificaterequests", "") => refuse("unexpected operation"),
        ("certificates.k8s.io", "podcertificaterequests", other) => {
            refuse(format!("unexpected subresource {other}"))
        }
        ("certificates.k8s.io", "certificatesigningrequests", "") if is_create => {
            certificate_request(node, objects.new.unwrap_or(&Value::Null))
        }
        _ => Ok(()),
    }
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn own_pod(node: &str, pod: &Value, rule: &str) -> Result<(), Refusal> {
    match text(pod, "/spec/nodeName") == node {
        true => Ok(()),
        false => refuse(format!("node {node:?} {rule}")),
    }
}

fn create_pod(node: &str, objects: Objects<'_>) -> Result<(), Refusal> {
    let pod = objects.new.unwrap_or(&Value::Null);
    if pod.pointer("/metadata/annotations/kubernetes.io~1config.mirror").is_none() {
        return refuse(format!(
            "pod does not have \"kubernetes.io/config.mirror\" annotation, node {node:?} can only create mirror pods"
        ));
    }
    own_pod(node, pod, "can only create pods with spec.nodeName set to itself")?;
    let owners = pod.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    match owners.map(Vec::as_slice).unwrap_or_default() {
        [owner] => mirror_owner(node, owner, objects.node)?,
        [] => {
            return refuse(format!(
                "node {node:?} can only create pods with an owner reference set to itself"
            ));
        }
        _ => {
            return refuse(format!(
                "node {node:?} can only create pods with a single owner reference set to itself"
            ));
        }
    }
    if !text(pod, "/spec/serviceAccountName").is_empty() {
        return refuse(format!("node {node:?} can not create pods that reference a service account"));
    }
    match references(pod) {
        Some(plural) => refuse(format!("node {node:?} can not create pods that reference {plural}")),
        None => Ok(()),
    }
}

fn mirror_owner(node: &str, owner: &Value, stored: Option<&Value>) -> Result<(), Refusal> {
    let is_node =
        text(owner, "/apiVersion") == "v1" && text(owner, "/kind") == "Node" && text(owner, "/name") == node;
    if !is_node {
        return refuse(format!("node {node:?} can only create pods with an owner reference set to itself"));
    }
    if owner.get("controller") != Some(&Value::Bool(true)) {
        return refuse(format!(
            "node {node:?} can only create pods with a controller owner reference set to itself"
        ));
    }
    if owner.get("blockOwnerDeletion") == Some(&Value::Bool(true)) {
        return refuse(format!("node {node:?} must not set blockOwnerDeletion on an owner reference"));
    }
    let Some(stored) = stored else { return refuse(format!("node {node:?} not found")) };
    let (asked, known) = (text(owner, "/uid"), text(stored, "/metadata/uid"));
    match asked == known {
        true => Ok(()),
        false => refuse(format!("node {node} UID mismatch: expected {asked} got {known}")),
    }
}

/// What a Pod refers to that a mirror Pod must not, in upstream's order.
fn references(pod: &Value) -> Option<&'static str> {
    let mut found = BTreeMap::new();
    collect(pod.get("spec").unwrap_or(&Value::Null), &mut found);
    const ORDER: [&str; 6] = [
        "secrets",
        "configmaps",
        "clustertrustbundles",
        "podcertificates",
        "persistentvolumeclaims",
        "resourceclaims",
    ];
    ORDER.into_iter().find(|plural| found.contains_key(plural))
}

fn collect(value: &Value, found: &mut BTreeMap<&'static str, ()>) {
    match value {
        Value::Object(fields) => {
            for (field, value) in fields {
                let plural = match field.as_str() {
                    "secretKeyRef" | "secretName" | "imagePullSecrets" | "secret" => Some("secrets"),
                    "configMapKeyRef" | "configMapRef" | "configMap" => Some("configmaps"),
                    "persistentVolumeClaim" | "ephemeral" => Some("persistentvolumeclaims"),
                    "clusterTrustBundle" => Some("clustertrustbundles"),
                    "podCertificate" => Some("podcertificates"),
                    "resourceClaims" => Some("resourceclaims"),
                    other if other.to_lowercase().ends_with("secretref") => Some("secrets"),
                    _ => None,
                };
                let is_empty = value.is_null() || value.as_array().is_some_and(Vec::is_empty);
                if let Some(plural) = plural.filter(|_| !is_empty) {
                    found.insert(plural, ());
                }
                collect(value, found);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, found)),
        _ => {}
    }
}

fn pod_status(node: &str, objects: Objects<'_>) -> Result<(), Refusal> {
    let (Some(old), Some(new)) = (objects.old, objects.new) else { return Ok(()) };
    own_pod(node, old, "can only update pod status for pods with spec.nodeName set to itself")?;
    if labels(old) != labels(new) {
        return refuse(format!("node {node:?} cannot update labels through pod status"));
    }
    let claims = |pod: &Value| pod.pointer("/status/resourceClaimStatuses").cloned();
    if claims(old) != claims(new) {
        return refuse(format!("node {node:?} cannot update resource claim statues"));
    }
    Ok(())
}

/// Of a claim's status a kubelet says how large the volume has become.
fn claim_status(node: &str, objects: Objects<'_>) -> Result<(), Refusal> {
    const METADATA: [&str; 2] = ["resourceVersion", "managedFields"];
    const STATUS: [&str; 4] = ["capacity", "conditions", "allocatedResourceStatuses", "allocatedResources"];
    let fixed = |object: Option<&Value>| {
        let mut object = object.cloned().unwrap_or_default();
        for (part, fields) in [("metadata", &METADATA[..]), ("status", &STATUS[..])] {
            let map = object.get_mut(part).and_then(Value::as_object_mut);
            map.into_iter().for_each(|map| map.retain(|field, _| !fields.contains(&field.as_str())));
        }
        object
    };
    match fixed(objects.new) == fixed(objects.old) {
        true => Ok(()),
        false => refuse(format!(
            "node {node:?} is not allowed to update fields other than status.capacity and status.conditions"
        )),
    }
}

fn write_node(node: &str, attributes: &Attributes, objects: Objects<'_>) -> Result<(), Refusal> {
    let name = match (attributes.name.as_str(), objects.new) {
        ("", Some(object)) => text(object, "/metadata/name"),
        (name, _) => name,
    };
    if name != node {
        return refuse(format!("node {node:?} is not allowed to modify node {name:?}"));
    }
    let Some(new) = objects.new else { return Ok(()) };
    let Some(old) = objects.old else {
        if new.pointer("/spec/configSource").is_some_and(|source| !source.is_null()) {
            return refuse(format!(
                "node {node:?} is not allowed to create pods with a non-nil configSource"
            ));
        }
        let set: Vec<&String> = labels(new).into_keys().filter(|label| !is_kubelets(label)).collect();
        return refuse_labels(&format!("node {node:?} is not allowed to set the following labels:"), &set);
    };
    if is_changed(old, new, "/spec/configSource") && new.pointer("/spec/configSource").is_some() {
        return refuse(format!(
            "node {node:?} is not allowed to update configSource to a new non-nil configSource"
        ));
    }
    if is_changed(old, new, "/spec/taints") {
        return refuse(format!("node {node:?} is not allowed to modify taints"));
    }
    if is_changed(old, new, "/metadata/ownerReferences") {
        return refuse(format!("node {node:?} is not allowed to modify ownerReferences"));
    }
    let (before, after) = (labels(old), labels(new));
    let mut changed: Vec<&String> = before.keys().chain(after.keys()).copied().collect();
    changed.retain(|label| before.get(label) != after.get(label) && !is_kubelets(label));
    changed.sort();
    changed.dedup();
    // Upstream does not say who.
    refuse_labels("is not allowed to modify labels:", &changed)
}

fn refuse_labels(what: &str, labels: &[&String]) -> Result<(), Refusal> {
    if labels.is_empty() {
        return Ok(());
    }
    let labels: Vec<&str> = labels.iter().map(|label| label.as_str()).collect();
    refuse(format!("{what} {}", labels.join(", ")))
}

fn is_changed(old: &Value, new: &Value, pointer: &str) -> bool {
    let value = |object: &Value| {
        let value = object.pointer(pointer).cloned().unwrap_or_default();
        if value.as_array().is_some_and(Vec::is_empty) { Value::Null } else { value }
    };
    value(old) != value(new)
}

fn labels(object: &Value) -> BTreeMap<&String, &Value> {
    object.pointer("/metadata/labels").and_then(Value::as_object).into_iter().flatten().collect()
}

fn token(node: &str, objects: Objects<'_>) -> Result<(), Refusal> {
    let request = objects.new.unwrap_or(&Value::Null);
    let bound = |field: &str| text(request, &format!("/spec/boundObjectRef/{field}"));
    if bound("apiVersion") != "v1" || bound("kind") != "Pod" || bound("name").is_empty() {
        return refuse("node requested token not bound to a pod");
    }
    if bound("uid").is_empty() {
        return refuse("node requested token with a pod binding without a uid");
    }
    let Some(pod) = objects.pod else {
        return refuse(format!("pod {:?} not found", bound("name")));
    };
    let uid = text(pod, "/metadata/uid");
    if uid != bound("uid") {
        return refuse(format!(
            "the UID in the bound object reference ({}) does not match the UID in record. The object might have \
             been deleted and then recreated",
            bound("uid")
        ));
    }
    match text(pod, "/spec/nodeName") == node {
        true => Ok(()),
        false => refuse("node requested token bound to a pod scheduled on a different node"),
    }
}

fn lease(node: &str, attributes: &Attributes, objects: Objects<'_>) -> Result<(), Refusal> {
    if attributes.namespace != "kube-node-lease" {
        return refuse("can only access leases in the \"kube-node-lease\" system namespace");
    }
    own_name(
        attributes,
        objects,
        node,
        "can only access node lease with the same name as the requesting node",
    )
}

fn csi_node(node: &str, attributes: &Attributes, objects: Objects<'_>) -> Result<(), Refusal> {
    own_name(attributes, objects, node, "can only access CSINode with the same name as the requesting node")
}

/// Updates are the Node authorizer's, which knows whose slice is named.
fn resource_slice(node: &str, attributes: &Attributes, objects: Objects<'_>) -> Result<(), Refusal> {
    let (verb, slice) = match attributes.verb.as_str() {
        "create" => ("create", objects.new),
        "delete" | "deletecollection" => ("delete", objects.old),
        _ => return Ok(()),
    };
    match slice.is_some_and(|slice| text(slice, "/spec/nodeName") == node) {
        true => Ok(()),
        false => {
            refuse(format!("can only {verb} ResourceSlice with the same NodeName as the requesting node"))
        }
    }
}

/// A kubelet asks for certificates for the Pods that run on its node only, and says truly who they are.
///
/// Where a cache that lags can be the reason, upstream says 500 instead of 403; a kubelet tries again either way.
/// Source: `admitPodCertificateRequest`, KEP-4317.
fn pod_certificate(node: &str, namespace: &str, objects: Objects<'_>) -> Result<(), Refusal> {
    const NAMED: &str = "named in the PodCertificateRequest";
    let request = objects.new.unwrap_or(&Value::Null);
    let asked = |field: &str| text(request, &format!("/spec/{field}"));
    let key = format!("{namespace}/{}", asked("podName"));
    let of_pod = format!("PodCertificateRequest for pod {key:?}");
    if asked("nodeName") != node {
        return refuse(format!(
            "PodCertificateRequest.Spec.NodeName={:?}, which is not the requesting node {node:?}",
            asked("nodeName")
        ));
    }
    let Some(stored) = objects.node else {
        return refuse(format!("while retrieving node {node:?} {NAMED}: node {node:?} not found"));
    };
    let (uid, known) = (asked("nodeUID"), text(stored, "/metadata/uid"));
    if uid != known {
        return refuse(format!(
            "{of_pod} names node UID {uid:?}, inconsistent with the running node ({known:?})"
        ));
    }
    let Some(pod) = objects.pod else {
        return refuse(format!("while retrieving pod {key:?} {NAMED}: pod {:?} not found", asked("podName")));
    };
    let (uid, known) = (asked("podUID"), text(pod, "/metadata/uid"));
    if uid != known {
        return refuse(format!(
            "{of_pod} contains pod UID ({uid:?}) which differs from running pod {known:?}"
        ));
    }
    if text(pod, "/spec/nodeName") != node {
        return refuse(format!("pod {key:?} is not running on node {node:?} {NAMED}"));
    }
    if pod.pointer("/metadata/annotations/kubernetes.io~1config.mirror").is_some() {
        return refuse(format!("pod {key:?} is a mirror pod"));
    }
    let (name, known) = (asked("serviceAccountName"), text(pod, "/spec/serviceAccountName"));
    if name != known {
        return refuse(format!(
            "{of_pod} contains serviceAccountName ({name:?}) that differs from running pod ({known:?})"
        ));
    }
    let Some(account) = objects.account else {
        let key = format!("{namespace}/{name}");
        return refuse(format!(
            "while retrieving service account {key:?} {NAMED}: serviceaccount {name:?} not found"
        ));
    };
    let (uid, known) = (asked("serviceAccountUID"), text(account, "/metadata/uid"));
    if uid != known {
        return refuse(format!(
            "{of_pod} names service account UID {uid:?}, which differs from the running service account ({known:?})"
        ));
    }
    Ok(())
}

/// A kubelet asks for certificates of its own name only.
fn certificate_request(node: &str, request: &Value) -> Result<(), Refusal> {
    if !KUBELET_SIGNERS.contains(&text(request, "/spec/signerName")) {
        return Ok(());
    }
    let asked = match Asked::parse(text(request, "/spec/request")) {
        Ok(asked) => asked,
        Err(error) => return refuse(format!("unable to parse csr: {error}")),
    };
    let name = format!("{}{node}", crate::NODE_USER_PREFIX);
    match asked.common_name == name {
        true => Ok(()),
        false => refuse(format!("can only create a node CSR with CN={name}")),
    }
}

/// The audience of the token that a TokenRequest asks for, empty for the API server's own.
///
/// # Errors
/// A kubelet asks for one at a time.
pub fn audience(request: &Value) -> Result<&str, Refusal> {
    let audiences = request.pointer("/spec/audiences").and_then(Value::as_array).map(Vec::as_slice);
    match audiences.unwrap_or_default() {
        [] => Ok(""),
        [one] => Ok(one.as_str().unwrap_or_default()),
        _ => refuse("node may only request 0 or 1 audiences"),
    }
}

/// `true` if a volume of the Pod has a token for that audience projected into it.
pub fn projects_audience(pod: &Value, audience: &str) -> bool {
    let list = |object: &Value, pointer: &str| -> Vec<Value> {
        object.pointer(pointer).and_then(Value::as_array).cloned().unwrap_or_default()
    };
    list(pod, "/spec/volumes")
        .iter()
        .flat_map(|volume| list(volume, "/projected/sources"))
        .filter_map(|source| source.get("serviceAccountToken").filter(|token| !token.is_null()).cloned())
        .any(|token| text(&token, "/audience") == audience)
}

fn own_name(
    attributes: &Attributes,
    objects: Objects<'_>,
    node: &str,
    rule: &'static str,
) -> Result<(), Refusal> {
    let is_create = attributes.verb == "create";
    let name = match objects.new.filter(|_| is_create) {
        Some(object) => text(object, "/metadata/name"),
        None => &attributes.name,
    };
    require(name == node, rule)
}

#[cfg(test)]
#[path = "node_restriction/tests.rs"]
mod tests;
