//! Variables by which Pods find services without DNS. Source: `pkg/kubelet/envvars` of upstream.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, Service};

/// For each service with a cluster address, in the order given.
///
/// Without `enableServiceLinks` only `default/kubernetes` is there.
pub(crate) fn service_variables(pod: &Pod, services: &[Arc<Service>]) -> Vec<(String, String)> {
    let links = pod.spec.as_ref().and_then(|s| s.enable_service_links).unwrap_or(true);
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let mut variables = Vec::new();
    let mut seen = Vec::new();
    let is_api = |s: &Service| {
        s.metadata.namespace.as_deref() == Some("default") && s.metadata.name.as_deref() == Some("kubernetes")
    };
    let own = services.iter().filter(|s| links && s.metadata.namespace.as_deref() == Some(namespace));
    for service in own.chain(services.iter().filter(|s| is_api(s))) {
        let name = service.metadata.name.clone().unwrap_or_default();
        if !seen.contains(&name)
            && let Some(own) = variables_of(&name, service)
        {
            variables.extend(own);
            seen.push(name);
        }
    }
    variables
}

fn variables_of(name: &str, service: &Service) -> Option<Vec<(String, String)>> {
    let spec = service.spec.as_ref()?;
    let ip = spec.cluster_ip.as_deref().filter(|ip| !ip.is_empty() && *ip != "None")?;
    let host = if ip.contains(':') { format!("[{ip}]") } else { ip.to_owned() };
    let ports = spec.ports.as_ref()?;
    let first = ports.first()?;
    let prefix = name.to_uppercase().replace('-', "_");
    let mut variables = vec![
        (format!("{prefix}_SERVICE_HOST"), ip.to_owned()),
        (format!("{prefix}_SERVICE_PORT"), first.port.to_string()),
    ];
    for port in ports {
        if let Some(port_name) = port.name.as_deref().filter(|n| !n.is_empty()) {
            let suffix = port_name.to_uppercase().replace('-', "_");
            variables.push((format!("{prefix}_SERVICE_PORT_{suffix}"), port.port.to_string()));
        }
    }
    for (index, port) in ports.iter().enumerate() {
        let protocol = port.protocol.clone().unwrap_or_else(|| "TCP".into());
        let url = format!("{}://{host}:{}", protocol.to_lowercase(), port.port);
        if index == 0 {
            variables.push((format!("{prefix}_PORT"), url.clone()));
        }
        let stem = format!("{prefix}_PORT_{}_{}", port.port, protocol.to_uppercase());
        variables.push((stem.clone(), url));
        variables.push((format!("{stem}_PROTO"), protocol.to_lowercase()));
        variables.push((format!("{stem}_PORT"), port.port.to_string()));
        variables.push((format!("{stem}_ADDR"), ip.to_owned()));
    }
    Some(variables)
}
