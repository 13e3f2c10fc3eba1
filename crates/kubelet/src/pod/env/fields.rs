//! The downward API: what a Pod may know about itself.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, ResourceFieldSelector, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::{EnvError, EnvSources};
use crate::pod::quantity;

/// The value at `path`, for `fieldRef`.
///
/// # Errors
/// The path is none that can be read.
pub(crate) fn pod_field(sources: &EnvSources, path: &str) -> Result<String, EnvError> {
    let metadata = &sources.pod.metadata;
    let spec = sources.pod.spec.as_ref();
    let entry = |map: Option<&BTreeMap<String, String>>, key: &str| {
        map.and_then(|m| m.get(key)).cloned().unwrap_or_default()
    };
    if let Some(key) = subscript(path, "metadata.labels") {
        return Ok(entry(metadata.labels.as_ref(), key));
    }
    if let Some(key) = subscript(path, "metadata.annotations") {
        return Ok(entry(metadata.annotations.as_ref(), key));
    }
    Ok(match path {
        "metadata.name" => metadata.name.clone().unwrap_or_default(),
        "metadata.namespace" => metadata.namespace.clone().unwrap_or_default(),
        "metadata.uid" => metadata.uid.clone().unwrap_or_default(),
        "metadata.labels" => lines(metadata.labels.as_ref()),
        "metadata.annotations" => lines(metadata.annotations.as_ref()),
        "spec.nodeName" => spec.and_then(|s| s.node_name.clone()).unwrap_or_default(),
        "spec.serviceAccountName" => spec.and_then(|s| s.service_account_name.clone()).unwrap_or_default(),
        "status.hostIP" => sources.host_ips.first().cloned().unwrap_or_default(),
        "status.hostIPs" => sources.host_ips.join(","),
        "status.podIP" => sources.pod_ips.first().cloned().unwrap_or_default(),
        "status.podIPs" => sources.pod_ips.join(","),
        _ => return Err(EnvError::FieldPath(path.to_owned())),
    })
}

/// `metadata.labels['key']` is `key`.
fn subscript<'a>(path: &'a str, map: &str) -> Option<&'a str> {
    path.strip_prefix(map)?.strip_prefix("['")?.strip_suffix("']")
}

/// One `key="value"` a line, sorted, as in downward API files.
fn lines(map: Option<&BTreeMap<String, String>>) -> String {
    let lines: Vec<_> = map
        .iter()
        .flat_map(|m| m.iter())
        .map(|(key, value)| format!("{key}={}", schema::go::quote(value)))
        .collect();
    lines.join("\n")
}

/// The value for `resourceFieldRef`, in units of its divisor, rounded up.
///
/// # Errors
/// The container or the resource does not exist.
pub(crate) fn resource_field(
    sources: &EnvSources,
    default_container: &str,
    selector: &ResourceFieldSelector,
) -> Result<String, EnvError> {
    let name = selector.container_name.as_deref().filter(|n| !n.is_empty()).unwrap_or(default_container);
    let spec = sources.pod.spec.as_ref();
    let mut containers =
        spec.into_iter().flat_map(|s| s.containers.iter().chain(s.init_containers.iter().flatten()));
    let container =
        containers.find(|c| c.name == name).ok_or_else(|| EnvError::NoContainer(name.to_owned()))?;
    let unsupported = || EnvError::Resource(selector.resource.clone());
    let (side, resource) = selector.resource.split_once('.').ok_or_else(unsupported)?;
    let has_default = matches!(resource, "cpu" | "memory" | "ephemeral-storage");
    if !has_default && !resource.starts_with("hugepages-") {
        return Err(unsupported());
    }
    let amount = match side {
        "requests" => requests(container).and_then(|all| amount(all, resource)).unwrap_or(0),
        "limits" => {
            let own = limits(container.resources.as_ref()).and_then(|all| amount(all, resource));
            let default = || default_limit(sources, resource).filter(|_| has_default);
            own.filter(|amount| *amount != 0).or_else(default).unwrap_or(0)
        }
        _ => return Err(unsupported()),
    };
    // CPU is counted in thousandths, all else in units; a divisor of zero means one unit.
    let (is_cpu, divisor) = (resource == "cpu", selector.divisor.as_ref());
    let unit = if is_cpu { 1000 } else { 1 };
    let step = divisor.map_or(0, if is_cpu { quantity::milli } else { quantity::whole });
    let step = if step == 0 { unit } else { step };
    Ok((amount / step + i64::from(amount % step > 0)).to_string())
}

/// What holds a container that has no limit: its Pod's, or all that the node can give.
///
/// Source: `defaultPodLimitsForDownwardAPI`, `pkg/kubelet`.
fn default_limit(sources: &EnvSources, resource: &str) -> Option<i64> {
    let of_pod = sources.pod.spec.as_ref().and_then(|spec| limits(spec.resources.as_ref()));
    let of_pod = of_pod.and_then(|all| amount(all, resource)).filter(|amount| *amount != 0);
    of_pod.or_else(|| sources.allocatable.get(resource).copied())
}

type Amounts = BTreeMap<String, Quantity>;

fn limits(resources: Option<&ResourceRequirements>) -> Option<&Amounts> {
    resources?.limits.as_ref()
}

fn requests(container: &Container) -> Option<&Amounts> {
    container.resources.as_ref()?.requests.as_ref()
}

fn amount(all: &Amounts, name: &str) -> Option<i64> {
    let value = all.get(name)?;
    Some(if name == "cpu" { quantity::milli(value) } else { quantity::whole(value) })
}
