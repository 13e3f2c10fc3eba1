//! The downward API: what a Pod may know about itself.

use k8s_openapi::api::core::v1::{Container, ResourceFieldSelector};

use super::EnvSources;
use crate::quantity;

/// The value at `path`, for `fieldRef`.
///
/// # Errors
/// The path is none that can be read.
pub(crate) fn pod_field(sources: &EnvSources, path: &str) -> Result<String, String> {
    let metadata = &sources.pod.metadata;
    let spec = sources.pod.spec.as_ref();
    let entry = |map: Option<&std::collections::BTreeMap<String, String>>, key: &str| {
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
        _ => return Err(format!("unsupported fieldPath: {path}")),
    })
}

/// `metadata.labels['key']` is `key`.
fn subscript<'a>(path: &'a str, map: &str) -> Option<&'a str> {
    path.strip_prefix(map)?.strip_prefix("['")?.strip_suffix("']")
}

/// One `key="value"` a line, sorted, as in downward API files.
fn lines(map: Option<&std::collections::BTreeMap<String, String>>) -> String {
    let lines: Vec<_> =
        map.iter().flat_map(|m| m.iter()).map(|(key, value)| format!("{key}={value:?}")).collect();
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
) -> Result<String, String> {
    let name = selector.container_name.as_deref().filter(|n| !n.is_empty()).unwrap_or(default_container);
    let spec = sources.pod.spec.as_ref();
    let mut containers =
        spec.into_iter().flat_map(|s| s.containers.iter().chain(s.init_containers.iter().flatten()));
    let container =
        containers.find(|c| c.name == name).ok_or_else(|| format!("container {name} not found"))?;
    let divisor = selector.divisor.as_ref().map_or(0, quantity::milli);
    let (amount, unit) = match selector.resource.as_str() {
        "limits.cpu" => (amount(container, "cpu", true).unwrap_or(sources.allocatable.0), 1000),
        "requests.cpu" => (amount(container, "cpu", false).unwrap_or(0), 1000),
        "limits.memory" => (amount(container, "memory", true).unwrap_or(sources.allocatable.1), 1),
        "requests.memory" => (amount(container, "memory", false).unwrap_or(0), 1),
        "limits.ephemeral-storage" => (amount(container, "ephemeral-storage", true).unwrap_or(0), 1),
        "requests.ephemeral-storage" => (amount(container, "ephemeral-storage", false).unwrap_or(0), 1),
        other => return Err(format!("unsupported container resource : {other}")),
    };
    // CPU is counted in thousandths, all else in units; a divisor of zero means one unit.
    let step = if divisor == 0 { unit } else { (divisor * unit / 1000).max(1) };
    Ok(((amount + step - 1) / step).to_string())
}

fn amount(container: &Container, name: &str, is_limit: bool) -> Option<i64> {
    let resources = container.resources.as_ref()?;
    let map = if is_limit { resources.limits.as_ref() } else { resources.requests.as_ref() };
    let value = map?.get(name)?;
    Some(if name == "cpu" { quantity::milli(value) } else { quantity::whole(value) })
}
