//! The measurements: where each metric of a HorizontalPodAutoscaler is asked for, and what the answers mean.
//!
//! Whoever serves these APIs is another server: what it sends may be anything.
//! Source: `pkg/controller/podautoscaler/metrics`; `metrics.k8s.io/v1beta1`, `custom.metrics.k8s.io/v1beta1` and `v1beta2`,
//! `external.metrics.k8s.io/v1beta1`.

use std::collections::BTreeMap;

use controller::Question;
use controller::discovery::Served;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::autoscaling::v2::{CrossVersionObjectReference, MetricIdentifier, MetricSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use machinery::quantity::Quantity;
use serde_json::Value;

use super::error::MetricError;

const CUSTOM: &str = "custom.metrics.k8s.io";
/// Over how long a metric was measured that does not say. Source: `metricServerDefaultMetricWindow`.
const WINDOW: SignedDuration = SignedDuration::from_mins(1);

/// The usage of one Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// In thousandths.
    pub value: i64,
    /// The time of the measurement.
    pub at: Timestamp,
    /// Over how long.
    pub window: SignedDuration,
}

/// By name of the Pod.
pub(super) type Readings = BTreeMap<String, Reading>;

/// A measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Measured {
    /// For each Pod.
    Pods(Readings),
    /// All in all, in thousandths.
    Total(i64),
}

/// Where a metric is asked for; why that cannot be said.
pub(super) fn question(
    spec: &MetricSpec,
    namespace: &str,
    selector: &str,
    served: &Served,
) -> Result<Question, MetricError> {
    let document = |path: String| Ok(Question::Document(path));
    let pods = |selector: &str| {
        document(format!(
            "/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods?labelSelector={}",
            escape(selector)
        ))
    };
    if let Some(metric) = spec.pods.as_ref().map(|pods| &pods.metric) {
        let (version, name, of) = (version(served), escape(&metric.name), escape(selector));
        let path = format!("/apis/{CUSTOM}/{version}/namespaces/{namespace}/pods/*/{name}");
        return document(format!(
            "{path}?labelSelector={of}{}",
            metric_selector(metric, "&metricLabelSelector=")?
        ));
    }
    if let Some(object) = &spec.object {
        let (version, name) = (version(served), escape(&object.metric.name));
        let place = place(&object.described_object, namespace, served)?;
        let query = metric_selector(&object.metric, "?metricLabelSelector=")?;
        return document(format!("/apis/{CUSTOM}/{version}/{place}/{name}{query}"));
    }
    if let Some(external) = &spec.external {
        let name = escape(&external.metric.name);
        let query = metric_selector(&external.metric, "?labelSelector=")?;
        return document(format!(
            "/apis/external.metrics.k8s.io/v1beta1/namespaces/{namespace}/{name}{query}"
        ));
    }
    pods(selector)
}

/// What an answer says about the metric that it was asked for.
pub(super) fn read(spec: &MetricSpec, answer: &Value) -> Result<Measured, MetricError> {
    let items = answer["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    let none = |api| Err(MetricError::Nothing(api));
    if spec.external.is_some() {
        if items.is_empty() {
            return none("external");
        }
        let total = items.iter().map(|item| amount(&item["value"]).unwrap_or_default());
        return Ok(Measured::Total(total.fold(0, i64::saturating_add)));
    }
    if spec.pods.is_none() && spec.object.is_none() {
        if items.is_empty() {
            return none("resource");
        }
        return Ok(Measured::Pods(resource_of_pods(spec, items)));
    }
    if items.is_empty() {
        return none("custom");
    }
    if spec.object.is_some() {
        let [item] = items else { return Err(MetricError::Several) };
        return amount(&item["value"]).map(Measured::Total).ok_or(MetricError::NoQuantity);
    }
    Ok(Measured::Pods(items.iter().filter_map(custom_of_pod).collect()))
}

fn resource_of_pods(spec: &MetricSpec, items: &[Value]) -> Readings {
    let (resource, container) = match (&spec.resource, &spec.container_resource) {
        (Some(resource), _) => (resource.name.as_str(), None),
        (None, Some(of)) => (of.name.as_str(), Some(of.container.as_str())),
        (None, None) => return Readings::new(),
    };
    let of_pod = |item: &Value| {
        let containers = item["containers"].as_array()?;
        let mut chosen =
            containers.iter().filter(|one| container.is_none_or(|name| one["name"] == name)).peekable();
        chosen.peek()?;
        let value =
            chosen.try_fold(0_i64, |sum, one| Some(sum.saturating_add(amount(&one["usage"][resource])?)))?;
        let window = item["window"].as_str().and_then(|text| machinery::duration::parse(text).ok());
        let window = window.map_or(WINDOW, SignedDuration::from_nanos);
        Some((item["metadata"]["name"].as_str()?.to_owned(), Reading { value, at: time(item), window }))
    };
    items.iter().filter_map(of_pod).collect()
}

fn custom_of_pod(item: &Value) -> Option<(String, Reading)> {
    // v1beta1 calls it `window`.
    let seconds = item["windowSeconds"].as_i64().or_else(|| item["window"].as_i64());
    let window = seconds.map_or(WINDOW, SignedDuration::from_secs);
    let name = item["describedObject"]["name"].as_str()?.to_owned();
    Some((name, Reading { value: amount(&item["value"])?, at: time(item), window }))
}

fn amount(value: &Value) -> Option<i64> {
    let parsed = match value {
        Value::String(text) => text.parse::<Quantity>(),
        Value::Number(number) => number.to_string().parse(),
        _ => return None,
    };
    parsed.ok().map(Quantity::milli_value)
}

fn time(item: &Value) -> Timestamp {
    item["timestamp"].as_str().and_then(|text| text.parse().ok()).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// The version in which custom metrics are served; adapters serve the elder one, too.
fn version(served: &Served) -> &str {
    let mut of_group = served.resources().filter(|one| one.resource.group == CUSTOM);
    of_group.next().map_or("v1beta1", |one| &one.resource.version)
}

/// `namespaces/team/ingresses.networking.k8s.io/web`; of a namespace, its own metrics.
fn place(
    object: &CrossVersionObjectReference,
    namespace: &str,
    served: &Served,
) -> Result<String, MetricError> {
    let CrossVersionObjectReference { api_version, kind, name } = object;
    let api_version = api_version.as_deref().unwrap_or_default();
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    if (group, kind.as_str()) == ("", "Namespace") {
        return Ok(format!("namespaces/{namespace}/metrics"));
    }
    let found = served.by_kind(group, kind);
    let unknown = || MetricError::NoKind { kind: kind.clone(), api_version: api_version.to_owned() };
    let found = found.ok_or_else(unknown)?;
    let resource = found.resource.full_name();
    Ok(format!("namespaces/{namespace}/{resource}/{}", escape(name)))
}

fn metric_selector(metric: &MetricIdentifier, before: &str) -> Result<String, MetricError> {
    let Some(selector) = &metric.selector else { return Ok(String::new()) };
    let text = written(selector)?;
    Ok(if text.is_empty() { text } else { format!("{before}{}", escape(&text)) })
}

/// A selector as queries have it.
fn written(selector: &LabelSelector) -> Result<String, MetricError> {
    let equal = selector.match_labels.iter().flatten().map(|(key, value)| Ok(format!("{key}={value}")));
    let others = selector.match_expressions.iter().flatten().map(|one| {
        let values = one.values.as_deref().unwrap_or_default().join(",");
        let key = &one.key;
        Ok(match one.operator.as_str() {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.clone(),
            "DoesNotExist" => format!("!{key}"),
            other => return Err(MetricError::Operator(other.to_owned())),
        })
    });
    equal.chain(others).collect::<Result<Vec<_>, MetricError>>().map(|all| all.join(","))
}

fn escape(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>().replace('+', "%20")
}
