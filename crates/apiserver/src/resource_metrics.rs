//! `metrics.k8s.io`: what Nodes and Pods use now, for `kubectl top` and autoscalers. Nothing of it is stored: each
//! request asks the kubelets that it is about, which take two looks if nobody has asked them lately.
//!
//! Source: `k8s.io/metrics/pkg/apis/metrics/v1beta1`, and metrics-server for what is left out: what has no rate yet,
//! and whose kubelet does not answer.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::future::BoxFuture;
use http::{HeaderMap, Method, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use machinery::metadata::Metadata;
use machinery::quantity::{Format, Quantity};
use resources::columns::{Column, NODE_METRICS, POD_METRICS};
use resources::strategy::VIRTUAL;
use resources::{Resource, Scope, Shared, Text};
use serde_json::{Map, Value, json};

use crate::answer::Answer;
use crate::api::Api;
use crate::backend::kubelet::kubelet;
use crate::backend::{self, Outgoing};
use crate::cache::{CachedObject, Keys, ResourceCache};
use crate::catalogue::delegates::{Asked, Delegate};
use crate::catalogue::openapi;
use crate::connection_error::ConnectionError;
use crate::filter::Filter;
use crate::kinds::Kind;
use crate::request::{self, Authorized};
use crate::request_info::{ResourceInfo, Verb};
use crate::respond::{self, Body};
use crate::status::{Error, Result};
use crate::tree::text;
use crate::verbs;

/// The group.
pub const GROUP: &str = "metrics.k8s.io";
const VERSION: &str = "v1beta1";
/// What the names of its types begin with.
const PACKAGE: &str = "io.k8s.metrics.pkg.apis.metrics.v1beta1";
/// Kubelets that are asked at the same time.
const KUBELETS_MAX: usize = 32;
/// How long a kubelet may take. Source: metrics-server's `--kubelet-request-timeout`.
const TIMEOUT: Duration = Duration::from_secs(10);
/// A summary's size at most.
const SUMMARY_BYTES_MAX: usize = 64 << 20;
/// Without disks and network, which nobody here asks for.
const PATH: &str = "/stats/summary?only_cpu_and_memory=true";
/// Over which time a kubelet's rates are, at least.
const WINDOW: &str = "10s";

/// The server of the group.
pub struct ResourceMetrics {
    kinds: Vec<Kind>,
    /// Which finds the kubelets; it has this, in turn, in its catalogue.
    api: Weak<Api>,
}

impl ResourceMetrics {
    /// The group's two kinds, which can only be read.
    pub fn new(api: Weak<Api>) -> Self {
        let kind = |plural, kind, scope, columns: &'static [Column]| {
            let mut row = Resource::made((GROUP, VERSION), plural, "", kind, scope);
            row.verbs = &["get", "list"];
            row.strategy = Shared::Static(&VIRTUAL);
            row.storage_prefix = Text::Static("");
            row.columns = Shared::Static(columns);
            let nothing = ResourceCache::new(Keys::of_row(&row), 0);
            Kind::new(row, None, Arc::new(nothing))
        };
        let nodes = kind("nodes", "NodeMetrics", Scope::Cluster, NODE_METRICS);
        let pods = kind("pods", "PodMetrics", Scope::Namespaced, POD_METRICS);
        Self { kinds: vec![nodes, pods], api }
    }
}

impl Delegate for ResourceMetrics {
    fn group_version(&self) -> (&str, &str) {
        (GROUP, VERSION)
    }

    fn kinds(&self) -> &[Kind] {
        &self.kinds
    }

    fn openapi(&self) -> Vec<u8> {
        with_definitions(&openapi::of_kinds(self.group_version(), &self.kinds))
    }

    fn serve(&self, asked: Asked) -> BoxFuture<'_, Result<Response<Body>>> {
        Box::pin(async move {
            let api = self.api.upgrade().ok_or_else(|| Error::unavailable("the server is stopping"))?;
            let kind = self.kinds.iter().find(|kind| kind.resource() == asked.resource.resource);
            let kind = kind.ok_or_else(Error::unknown_path)?;
            let request = request::of_delegate(asked, kind, api.clock.now())?;
            verbs::check(&request)?;
            if !request.resource.subresource.is_empty() {
                return Err(Error::unknown_path());
            }
            verbs::check_verb(&request)?;
            let answer = read(&api, &request).await?;
            Ok(respond::answer(&request, answer, api.clock.now()))
        })
    }
}

/// Answers a GET or LIST.
///
/// # Errors
/// 404 for what is not there or has no measures, 400 for bad selectors.
async fn read(api: &Api, request: &Authorized) -> Result<Answer> {
    let measured = &request.kind;
    let of = api.kind("", "v1", measured.resource()).ok_or_else(Error::unknown_path)?;
    let mut resource = ResourceInfo::clone(&request.resource);
    resource.group = String::new();
    resource.version = "v1".to_owned();
    let filter = Filter::of(of, &resource, &request.info.query)?;
    let complete = api.cache.fresh().await?;
    let cache = of.cache();
    let mut objects = cache.read_list(&filter.prefix, complete)?.objects;
    objects.retain(|object| filter.matches(object));
    let is_one = request.resource.verb == Verb::Get;
    if is_one && objects.is_empty() {
        return Err(Error::not_found(request.subject(), &request.resource.name));
    }
    let objects: Vec<Value> = objects.iter().map(|object: &Arc<CachedObject>| of.value(object)).collect();
    let items = measure(api, measured, &objects).await;
    if is_one {
        let found = items.into_iter().next();
        return found
            .map(Answer::value)
            .ok_or_else(|| Error::not_found(request.subject(), &request.resource.name));
    }
    Ok(Answer::Unstored(items))
}

/// The measures of Nodes or Pods, in their order.
async fn measure(api: &Api, kind: &Kind, objects: &[Value]) -> Vec<Value> {
    let is_nodes = kind.resource() == "nodes";
    let node_of = |object: &Value| match is_nodes {
        true => Metadata::of(object).name().to_owned(),
        false => text(object, "/spec/nodeName").to_owned(),
    };
    let mut names: Vec<String> = objects.iter().map(node_of).filter(|name| !name.is_empty()).collect();
    names.sort();
    names.dedup();
    let asked = futures::stream::iter(names).map(|name| async move {
        let summary = tokio::time::timeout(TIMEOUT, ask(api, &name)).await;
        match summary.unwrap_or(Err(SummaryError::Deadline)) {
            Ok(summary) => Some((name, summary)),
            Err(failure) => {
                tracing::warn!(node = name, %failure, "a kubelet was not asked what its node uses");
                None
            }
        }
    });
    let summaries: BTreeMap<String, Value> =
        asked.buffer_unordered(KUBELETS_MAX).filter_map(std::future::ready).collect().await;
    let measured = objects.iter().filter_map(|object| {
        let summary = summaries.get(&node_of(object))?;
        if is_nodes { node(object, summary) } else { pod(object, summary) }
    });
    measured.collect()
}

/// A kubelet that did not say what is used.
#[derive(Debug, thiserror::Error)]
enum SummaryError {
    /// It could not be asked.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    /// It did not answer in time.
    #[error("it did not answer in time")]
    Deadline,
    /// It would not.
    #[error("{status}: {said}")]
    Status {
        /// Its status.
        status: StatusCode,
        /// Its words.
        said: String,
    },
    /// Its answer cannot be read.
    #[error(transparent)]
    Unreadable(#[from] serde_json::Error),
}

async fn ask(api: &Api, node: &str) -> Result<Value, SummaryError> {
    let kubelet = kubelet(api, node).await.map_err(ConnectionError::from)?;
    let outgoing = Outgoing {
        method: Method::GET,
        path: PATH.to_owned(),
        headers: HeaderMap::new(),
        body: backend::empty(),
    };
    let response = backend::send(api, &kubelet, outgoing).await?;
    let status = response.status();
    let body = Limited::new(response.into_body(), SUMMARY_BYTES_MAX).collect().await;
    let body: Bytes = body.map_err(ConnectionError::Body)?.to_bytes();
    if !status.is_success() {
        return Err(SummaryError::Status { status, said: String::from_utf8_lossy(&body).into_owned() });
    }
    Ok(serde_json::from_slice(&body)?)
}

/// CPU and memory; nothing as long as one of them is not known.
fn usage(measured: &Value) -> Option<Value> {
    let number = |pointer: &str| measured.pointer(pointer).and_then(Value::as_u64);
    let nanos = number("/cpu/usageNanoCores")?;
    let bytes = i64::try_from(number("/memory/workingSetBytes")?).ok()?;
    // In Ki, as metrics-server shows it.
    let memory = match bytes % 1024 {
        0 => format!("{}Ki", bytes / 1024),
        _ => Quantity::new(bytes, Format::BinarySi).to_string(),
    };
    Some(json!({"cpu": format!("{nanos}n"), "memory": memory}))
}

fn metadata_of(object: &Value, timestamp: &str) -> Value {
    let metadata = Metadata::of(object);
    let mut map = Map::new();
    map.insert("name".into(), metadata.name().into());
    let namespace = text(object, "/metadata/namespace");
    if !namespace.is_empty() {
        map.insert("namespace".into(), namespace.into());
    }
    map.insert("creationTimestamp".into(), timestamp.into());
    if let Some(labels) = object.pointer("/metadata/labels").filter(|labels| !labels.is_null()) {
        map.insert("labels".into(), labels.clone());
    }
    Value::Object(map)
}

fn node(object: &Value, summary: &Value) -> Option<Value> {
    let measured = summary.get("node")?;
    let timestamp = text(measured, "/cpu/time");
    Some(json!({
        "kind": "NodeMetrics",
        "apiVersion": "metrics.k8s.io/v1beta1",
        "metadata": metadata_of(object, timestamp),
        "timestamp": timestamp,
        "window": WINDOW,
        "usage": usage(measured)?,
    }))
}

fn pod(object: &Value, summary: &Value) -> Option<Value> {
    let uid = text(object, "/metadata/uid");
    // What the kubelet runs for a mirror has a uid of its own.
    let mirrored = text(object, "/metadata/annotations/kubernetes.io~1config.mirror");
    let pods = summary.get("pods").and_then(Value::as_array)?;
    let of_uid =
        |pod: &&Value| matches!(text(pod, "/podRef/uid"), found if found == uid || found == mirrored);
    let measured = pods.iter().find(of_uid)?;
    let containers = measured.get("containers").and_then(Value::as_array)?;
    let all: Option<Vec<Value>> = containers
        .iter()
        .map(|container| Some(json!({"name": container.get("name")?, "usage": usage(container)?})))
        .collect();
    let all = all.filter(|all| !all.is_empty())?;
    let timestamp = text(containers.first()?, "/cpu/time");
    Some(json!({
        "kind": "PodMetrics",
        "apiVersion": "metrics.k8s.io/v1beta1",
        "metadata": metadata_of(object, timestamp),
        "timestamp": timestamp,
        "window": WINDOW,
        "containers": all,
    }))
}

/// The group's OpenAPI document with its types, which are not among the API level's.
fn with_definitions(document: &[u8]) -> Vec<u8> {
    let Ok(mut document) = serde_json::from_slice::<Value>(document) else { return document.to_vec() };
    let text = |description: &str| json!({"type": "string", "description": description});
    let head = || {
        json!({
            "apiVersion": text("The version of the object's form."),
            "kind": text("The object's kind."),
            "metadata": {"type": "object", "description": "Standard metadata."},
        })
    };
    let usage = || {
        json!({
            "type": "object",
            "description": "CPU and memory in use.",
            "additionalProperties": {"type": "string"},
        })
    };
    let reference = |kind: &str| json!({"$ref": format!("#/components/schemas/{PACKAGE}.{kind}")});
    let mut add = |kind: &str, description: &str, properties: Value| {
        let mut definition = json!({"type": "object", "description": description, "properties": properties});
        if kind != "ContainerMetrics" {
            let gvk = json!([{"group": GROUP, "version": "v1beta1", "kind": kind}]);
            definition["x-kubernetes-group-version-kind"] = gvk;
        }
        document["components"]["schemas"][format!("{PACKAGE}.{kind}")] = definition;
    };
    let measured = || {
        let mut properties = head();
        properties["timestamp"] = text("When it was measured.");
        properties["window"] = text("Over which time.");
        properties
    };
    let mut node = measured();
    node["usage"] = usage();
    add("NodeMetrics", "What a Node uses.", node);
    let mut pod = measured();
    pod["containers"] = json!({"type": "array", "items": reference("ContainerMetrics")});
    add("PodMetrics", "What the containers of a Pod use.", pod);
    let container = json!({"name": text("The container's name."), "usage": usage()});
    add("ContainerMetrics", "What a container uses.", container);
    for kind in ["NodeMetrics", "PodMetrics"] {
        let mut list = head();
        list["items"] = json!({"type": "array", "items": reference(kind)});
        add(&format!("{kind}List"), "A list of measures.", list);
    }
    document.to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary() -> Value {
        json!({
            "node": {"cpu": {"time": "2026-01-01T00:00:00Z", "usageNanoCores": 1_500_000}, "memory": {"workingSetBytes": 2048}},
            "pods": [{
                "podRef": {"uid": "u1"},
                "containers": [{"name": "main", "cpu": {"time": "2026-01-01T00:00:00Z", "usageNanoCores": 250}, "memory": {"workingSetBytes": 1000}}],
            }, {
                "podRef": {"uid": "new"},
                "containers": [{"name": "main", "cpu": {}, "memory": {"workingSetBytes": 1000}}],
            }],
        })
    }

    #[test]
    fn what_has_no_rate_yet_is_left_out() {
        let object = |uid: &str| json!({"metadata": {"name": "web", "namespace": "shop", "uid": uid, "labels": {"a": "b"}}});
        let found = pod(&object("u1"), &summary()).unwrap();
        assert_eq!(found["containers"][0]["usage"], json!({"cpu": "250n", "memory": "1k"}));
        assert_eq!(found["metadata"]["labels"]["a"], "b");
        assert_eq!(pod(&object("new"), &summary()), None);
        assert_eq!(pod(&object("gone"), &summary()), None);
        let mut mirror = object("other");
        mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "u1"});
        assert!(pod(&mirror, &summary()).is_some());
        let found = node(&json!({"metadata": {"name": "n1"}}), &summary()).unwrap();
        assert_eq!(found["usage"], json!({"cpu": "1500000n", "memory": "2Ki"}));
    }
}
