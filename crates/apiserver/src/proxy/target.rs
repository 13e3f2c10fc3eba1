//! The target of a proxied name: `NAME`, `NAME:PORT` or `SCHEME:NAME:PORT` of a Pod, Service or Node.
//!
//! Nobody gets to what only claims to be a Pod, nor to where the server does not connect to (`dial`).

use machinery::metadata::Metadata;
use machinery::net::Family;
use serde_json::Value;

use crate::api::Api;
use crate::backend::kubelet::{address, kubelet};
use crate::backend::{Backend, unverified};
use crate::dial::Destination;
use crate::request::Authorized;
use crate::status::{Error, Result};
use crate::tree::{items, text};

/// The parts of a proxied name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ProxiedName<'a> {
    scheme: &'a str,
    name: &'a str,
    port: &'a str,
}

impl<'a> ProxiedName<'a> {
    fn of(id: &'a str) -> Option<Self> {
        let parts: Vec<&str> = id.split(':').collect();
        let proxied = match parts.as_slice() {
            [name] => Self { scheme: "", name, port: "" },
            [name, port] => Self { scheme: "", name, port },
            [scheme @ ("" | "http" | "https"), name, port] => Self { scheme, name, port },
            _ => return None,
        };
        (!proxied.name.is_empty()).then_some(proxied)
    }

    fn default_port(self) -> u16 {
        if self.scheme == "https" { 443 } else { 80 }
    }

    fn backend(self, to: Destination) -> Result<Backend> {
        let tls = match self.scheme {
            "https" => Some(unverified().map_err(Error::internal)?),
            _ => None,
        };
        Ok(Backend { to, tls })
    }
}

/// Where a request is passed on to.
///
/// # Errors
/// 400 for malformed names and addresses that may not be reached, 404, 503 when nothing is there.
pub(super) async fn find(api: &Api, request: &Authorized) -> Result<Backend> {
    let id = request.resource.name.as_str();
    let (resource, namespace) = (request.resource.resource.as_str(), request.resource.namespace.as_str());
    let singular = &request.kind.row().singular;
    let proxied = ProxiedName::of(id)
        .ok_or_else(|| Error::bad_request(format!("invalid {singular} request {id:?}")))?;
    api.cache.fresh().await?;
    match resource {
        "nodes" => node(api, proxied).await,
        "services" => service(api, namespace, id, proxied).await,
        _ => pod(api, namespace, proxied).await,
    }
}

fn get(api: &Api, resource: &str, namespace: &str, name: &str) -> Result<Value> {
    let kind = api.kind("", "v1", resource).ok_or_else(Error::unknown_path)?;
    let found = kind.cache().get(&kind.key(namespace, name));
    found.map(|object| kind.value(&object)).ok_or_else(|| Error::not_found(kind.subject(), name))
}

fn number(text: &str) -> Result<u16> {
    text.parse().map_err(|_| Error::bad_request(format!("invalid port {text:?}")))
}

async fn pod(api: &Api, namespace: &str, proxied: ProxiedName<'_>) -> Result<Backend> {
    let pod = get(api, "pods", namespace, proxied.name)?;
    let port = match proxied.port {
        "" => first_port(&pod),
        port => Some(number(port)?),
    };
    let port = port.unwrap_or(proxied.default_port());
    proxied.backend(Destination::of_address(api, text(&pod, "/status/podIP"), port).await?)
}

/// The first port of the first container that has any.
fn first_port(pod: &Value) -> Option<u16> {
    let ports =
        items(pod, "/spec/containers").find_map(|container| container.pointer("/ports/0/containerPort"));
    ports.and_then(Value::as_u64).and_then(|port| u16::try_from(port).ok())
}

async fn node(api: &Api, proxied: ProxiedName<'_>) -> Result<Backend> {
    let (host, port) = address(api, proxied.name)?;
    if proxied.port.is_empty() || number(proxied.port)? == port {
        return kubelet(api, proxied.name).await;
    }
    let to = Destination::find(api, &host, number(proxied.port)?).await?;
    proxied.backend(to)
}

async fn service(api: &Api, namespace: &str, id: &str, proxied: ProxiedName<'_>) -> Result<Backend> {
    let service = get(api, "services", namespace, proxied.name)?;
    let port_name = match proxied.port.parse::<u64>() {
        Err(_) => proxied.port.to_owned(),
        Ok(wanted) => {
            let found = items(&service, "/spec/ports").find(|port| port["port"].as_u64() == Some(wanted));
            let found = found.ok_or_else(|| {
                Error::unavailable(format!("no service port {wanted} found for service {:?}", proxied.name))
            })?;
            text(found, "/name").to_owned()
        }
    };
    let main = text(&service, "/spec/ipFamilies/0");
    let (own, others): (Vec<_>, Vec<_>) = endpoints(api, namespace, proxied.name, &port_name)?
        .into_iter()
        .partition(|(address, _)| Family::parse(main).is_none_or(|main| is_of(main, address)));
    let mut ready = if own.is_empty() { others } else { own };
    if ready.is_empty() {
        return Err(Error::unavailable(format!("no endpoints available for service {id:?}")));
    }
    let chosen = usize::try_from(api.random.below(ready.len() as u64)).unwrap_or(0);
    let (address, port) = ready.swap_remove(chosen.min(ready.len() - 1));
    proxied.backend(Destination::of_address(api, &address, port).await?)
}

/// The Service's ready addresses for a port, those that really are a Pod's.
fn endpoints(api: &Api, namespace: &str, service: &str, port_name: &str) -> Result<Vec<(String, u16)>> {
    let kind = api.kind("discovery.k8s.io", "v1", "endpointslices").ok_or_else(Error::unknown_path)?;
    let listing = kind.cache().list(&kind.collection(namespace), api.cache.revision());
    let mut found = Vec::new();
    for object in &listing.objects {
        let slice = kind.value(object);
        if Metadata::of(&slice).label("kubernetes.io/service-name") != Some(service) {
            continue;
        }
        let port = items(&slice, "/ports").find(|port| text(port, "/name") == port_name);
        let port = port.and_then(|port| port["port"].as_u64()).and_then(|port| u16::try_from(port).ok());
        let Some(port) = port else { continue };
        let ready =
            items(&slice, "/endpoints").filter(|e| e.pointer("/conditions/ready") != Some(&false.into()));
        for endpoint in ready {
            let address = text(endpoint, "/addresses/0");
            if is_pods(api, namespace, endpoint, address) {
                found.push((address.to_owned(), port));
            }
        }
    }
    Ok(found)
}

fn is_of(family: Family, address: &str) -> bool {
    address.parse().is_ok_and(|ip| Family::of(ip) == family)
}

/// Whether an endpoint's address is the one of the Pod that it names: anybody may write EndpointSlices.
fn is_pods(api: &Api, namespace: &str, endpoint: &Value, address: &str) -> bool {
    let Ok(pod) = get(api, "pods", namespace, text(endpoint, "/targetRef/name")) else { return false };
    text(endpoint, "/targetRef/kind") == "Pod"
        && items(&pod, "/status/podIPs").any(|ip| text(ip, "/ip") == address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_up_to_three_parts() {
        let check = |id, expect: Option<(&str, &str, &str)>| {
            let expect = expect.map(|(scheme, name, port)| ProxiedName { scheme, name, port });
            assert_eq!(ProxiedName::of(id), expect, "{id}");
        };
        check("web", Some(("", "web", "")));
        check("web:80", Some(("", "web", "80")));
        check("https:web:443", Some(("https", "web", "443")));
        check("https:web:", Some(("https", "web", "")));
        check("ftp:web:21", None);
        check("a:b:c:d", None);
        check("", None);
    }
}
