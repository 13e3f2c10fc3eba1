//! A kubelet changes its own node and the Pods on it, nothing else.
//!
//! The rules are `auth`'s; this finds the objects they are about.
//! Source: `plugin/pkg/admission/noderestriction`.

use auth::node_restriction::{Objects, audience, check, projects_audience};
use auth::{Attributes, Decision};
use machinery::metadata::Metadata;
use serde_json::Value;

use super::{Context, Operation, text};
use crate::cluster::Cluster;
use crate::request::Authorized;
use crate::security::attributes;
use crate::status::{Error, Result};

/// Refuses what is none of the node's business.
pub(super) fn validate(context: &Context<'_>, object: &Value) -> Result<()> {
    let is_pod = context.request.kind.group().is_empty() && context.request.kind.resource() == "pods";
    let is_delete = context.operation == Operation::Delete;
    let stored = if is_delete { Some(object) } else { context.old };
    let is_create = context.operation == Operation::Create;
    let is_certificate = is_create && context.request.kind.resource() == "podcertificaterequests";
    let node = context.request.user().node().filter(|_| is_create && (is_pod || is_certificate));
    let node = node.and_then(|name| context.lookup("", "v1", "nodes", "", name));
    let named = |resource: &str, pointer: &str| {
        node.as_ref().filter(|_| is_certificate)?;
        context.lookup("", "v1", resource, &context.request.resource.namespace, text(object, pointer))
    };
    let (pod, account) =
        (named("pods", "/spec/podName"), named("serviceaccounts", "/spec/serviceAccountName"));
    let objects = Objects {
        new: (!is_delete).then_some(object),
        old: stored,
        pod: pod.as_ref().or(stored.filter(|_| is_pod)),
        node: node.as_ref(),
        account: account.as_ref(),
    };
    refuse(context.request, objects, Metadata::of(object).name())
}

/// A kubelet asks for tokens for those audiences that the Pod's volumes are for; for another one it needs a right.
///
/// # Errors
/// 403 with upstream's text.
pub async fn validate_audience(
    cluster: &Cluster,
    request: &Authorized,
    posted: &Value,
    pod: Option<&Value>,
) -> Result<()> {
    let (Some(_), Some(pod)) = (request.user().node(), pod) else { return Ok(()) };
    let forbidden = |why: &str| Error::forbidden(request.subject(), &request.resource.name, why);
    let audience = audience(posted).map_err(|refusal| forbidden(&refusal.to_string()))?;
    if projects_audience(pod, audience)
        || drivers(cluster, pod).iter().any(|driver| asks_for(driver, audience))
    {
        return Ok(());
    }
    let attributes = Attributes {
        verb: "request-serviceaccounts-token-audience".to_owned(),
        resource: audience.to_owned(),
        namespace: request.resource.namespace.clone(),
        name: request.resource.name.clone(),
        is_resource: true,
        ..Attributes::default()
    };
    let verdict = cluster.security.decide(request.user(), &attributes).await;
    if matches!(verdict.decision, Decision::Allow(_)) {
        return Ok(());
    }
    Err(forbidden(&format!(
        "audience {audience:?} not found in pod spec volume, {} is not authorized to request tokens for this audience",
        request.user().name
    )))
}

/// The CSI drivers of a Pod's volumes, its own and those behind claims.
fn drivers(cluster: &Cluster, pod: &Value) -> Vec<Value> {
    let metadata = Metadata::of(pod);
    let lookup = |(group, resource): (&str, &str), namespace: &str, name: &str| {
        let kind = cluster.kind(group, "v1", resource)?;
        Some(kind.value(&*kind.cache().get(&kind.key(namespace, name))?))
    };
    let volumes = pod.pointer("/spec/volumes").and_then(Value::as_array).into_iter().flatten();
    let name = |volume: &Value| {
        if let Some(driver) = volume.pointer("/csi/driver").and_then(Value::as_str) {
            return Some(driver.to_owned());
        }
        let claim = match volume.get("ephemeral").filter(|ephemeral| !ephemeral.is_null()) {
            Some(_) => format!("{}-{}", metadata.name(), text(volume, "/name")),
            None => volume.pointer("/persistentVolumeClaim/claimName")?.as_str()?.to_owned(),
        };
        let claim = lookup(("", "persistentvolumeclaims"), metadata.namespace(), &claim)?;
        let volume = lookup(("", "persistentvolumes"), "", text(&claim, "/spec/volumeName"))?;
        Some(text(&volume, "/spec/csi/driver").to_owned())
    };
    volumes.filter_map(name).filter_map(|name| lookup(("storage.k8s.io", "csidrivers"), "", &name)).collect()
}

fn asks_for(driver: &Value, audience: &str) -> bool {
    let requests = driver.pointer("/spec/tokenRequests").and_then(Value::as_array).into_iter().flatten();
    requests.into_iter().any(|request| text(request, "/audience") == audience)
}

/// The same for what is posted below an object: evictions and token requests.
///
/// # Errors
/// 403 with upstream's text.
pub fn validate_posted(request: &Authorized, posted: &Value, pod: Option<&Value>) -> Result<()> {
    refuse(request, Objects { new: Some(posted), pod, ..Objects::default() }, &request.resource.name)
}

fn refuse(request: &Authorized, objects: Objects<'_>, name: &str) -> Result<()> {
    let mut attributes = attributes(&request.info);
    if attributes.name.is_empty() {
        attributes.name = name.to_owned();
    }
    check(request.user(), &attributes, objects)
        .map_err(|refusal| Error::forbidden(request.subject(), name, &refusal.to_string()))
}
