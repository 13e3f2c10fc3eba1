//! Where a load balancer is reached, as its provider says and as the Service's status has it.

use std::net::IpAddr;

use controller::metadata::{name, namespace, uid};
use controller::{Action, Patch};
use k8s_openapi::api::core::v1::Service;
use machinery::names;
use serde_json::{Value, json};

use crate::provider::{Refusal, nonsense};
use crate::v1;

/// Addresses and names of one load balancer; more are not believed.
const INGRESS_MAX: usize = 64;

/// One of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ingress {
    ip: String,
    hostname: String,
    /// `VIP` or `Proxy`; of an address only.
    ip_mode: String,
}

/// What a Service's status says.
pub(super) fn of(service: &Service) -> Vec<Ingress> {
    let status = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let all = status.and_then(|balancer| balancer.ingress.as_ref()).into_iter().flatten();
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    all.map(|one| Ingress { ip: text(&one.ip), hostname: text(&one.hostname), ip_mode: text(&one.ip_mode) })
        .collect()
}

/// Reads an answer.
///
/// # Errors
/// What of it cannot be: then all of it counts for nothing.
pub(super) fn read(status: Option<v1::LoadBalancerStatus>) -> Result<Vec<Ingress>, Refusal> {
    let status =
        status.ok_or_else(|| Refusal::nonsense("service status returned by EnsureLoadBalancer is nil"))?;
    if status.ingress.len() > INGRESS_MAX {
        return nonsense(format!(
            "there must be at most {INGRESS_MAX} addresses, not {}",
            status.ingress.len()
        ));
    }
    status.ingress.into_iter().map(one).collect()
}

fn one(
    v1::LoadBalancerIngress { ip, hostname, ip_mode }: v1::LoadBalancerIngress,
) -> Result<Ingress, Refusal> {
    if ip.is_empty() && hostname.is_empty() {
        return nonsense("a load balancer must be reached at an address or under a name");
    }
    if !ip.is_empty() && ip.parse::<IpAddr>().is_err() {
        return nonsense(format!("the load balancer's {ip:?} must be an IP address"));
    }
    if !hostname.is_empty()
        && let Some(why) = names::dns1123_subdomain(&hostname).into_iter().next()
    {
        return nonsense(format!("the load balancer's name {hostname:?} must be a DNS name: {why}"));
    }
    let ip_mode = match (ip.is_empty(), ip_mode.as_str()) {
        (true, "") => String::new(),
        (false, "") => "VIP".to_owned(),
        (false, "VIP" | "Proxy") => ip_mode,
        _ => return nonsense(format!("the mode {ip_mode:?} must be VIP or Proxy, and of an address")),
    };
    Ok(Ingress { ip, hostname, ip_mode })
}

/// Writes a Service's status, if it says something else.
pub(super) fn patch(service: &Service, wanted: &[Ingress]) -> Option<Action> {
    if of(service) == wanted {
        return None;
    }
    let shown = |one: &Ingress| {
        let fields = [("ip", &one.ip), ("hostname", &one.hostname), ("ipMode", &one.ip_mode)];
        let said = fields.into_iter().filter(|(_, value)| !value.is_empty());
        said.map(|(field, value)| (field.to_owned(), json!(value))).collect::<serde_json::Map<_, _>>().into()
    };
    let ingress: Vec<Value> = wanted.iter().map(shown).collect();
    let ingress = if ingress.is_empty() { Value::Null } else { Value::Array(ingress) };
    let meta = &service.metadata;
    let patch = json!({"metadata": {"uid": uid(meta)}, "status": {"loadBalancer": {"ingress": ingress}}});
    Some(Action::patch_status::<Service>(namespace(meta), name(meta), Patch::Strategic(patch)))
}
