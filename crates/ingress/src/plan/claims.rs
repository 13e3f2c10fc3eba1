//! The requests of one Ingress, row by row.

use k8s_openapi::api::networking::v1::{Ingress, IngressBackend};

use crate::host::Host;
use crate::path::PathMatch;

/// What goes before what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rank {
    /// Somebody has written the path down.
    Rule,
    /// What is left over.
    Default,
}

/// A row that an Ingress asks for.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    pub(super) host: Host,
    pub(super) path: PathMatch,
    pub(super) rank: Rank,
    pub(super) backend: IngressBackend,
    /// Whether the Ingress names a certificate for the host.
    pub(super) has_tls: bool,
}

/// All rows that an Ingress asks for, in its order. A default backend gets what is left of its own hosts, and what is
/// left of all.
pub(super) fn claims(ingress: &Ingress) -> Vec<Claim> {
    let Some(spec) = &ingress.spec else { return Vec::new() };
    let has_tls = |host: &Host| match host {
        Host::Any => false,
        host => covered(ingress, host),
    };
    let mut claims = Vec::new();
    let mut hosts = Vec::new();
    for rule in spec.rules.iter().flatten() {
        let host = Host::of_rule(rule.host.as_deref().unwrap_or_default());
        for path in rule.http.iter().flat_map(|http| &http.paths) {
            let text = path.path.as_deref().filter(|path| !path.is_empty()).unwrap_or("/");
            let matched = match path.path_type.as_str() {
                "Exact" => PathMatch::exact(text),
                // What `ImplementationSpecific` means is ours to say.
                _ => PathMatch::prefix(text),
            };
            claims.push(Claim {
                has_tls: has_tls(&host),
                host: host.clone(),
                path: matched,
                rank: Rank::Rule,
                backend: path.backend.clone(),
            });
        }
        hosts.push(host);
    }
    let Some(default) = &spec.default_backend else { return claims };
    hosts.push(Host::Any);
    for host in hosts {
        let (backend, has_tls) = (default.clone(), has_tls(&host));
        claims.push(Claim { host, path: PathMatch::all(), rank: Rank::Default, backend, has_tls });
    }
    claims
}

/// Secrets with the hosts that they are for: those that are listed, or those of all rules.
pub(super) fn tls_claims(ingress: &Ingress) -> Vec<(String, Vec<Host>)> {
    let Some(spec) = &ingress.spec else { return Vec::new() };
    let named = spec.tls.iter().flatten().filter_map(|tls| {
        let secret = tls.secret_name.clone().filter(|name| !name.is_empty())?;
        Some((secret, hosts_of(ingress, tls.hosts.as_deref().unwrap_or_default())))
    });
    named.collect()
}

fn hosts_of(ingress: &Ingress, listed: &[String]) -> Vec<Host> {
    let rules = ingress.spec.iter().flat_map(|spec| spec.rules.iter().flatten());
    let hosts: Vec<Host> = match listed {
        [] => rules.filter_map(|rule| rule.host.as_deref()).map(Host::of_rule).collect(),
        listed => listed.iter().map(|host| Host::of_rule(host)).collect(),
    };
    // Whoever asks for no host by name is shown the certificate of no Ingress.
    hosts.into_iter().filter(|host| *host != Host::Any).collect()
}

/// Whether an Ingress has TLS for a host of its rules.
fn covered(ingress: &Ingress, host: &Host) -> bool {
    let all = ingress.spec.iter().flat_map(|spec| spec.tls.iter().flatten());
    all.flat_map(|tls| hosts_of(ingress, tls.hosts.as_deref().unwrap_or_default())).any(|covers| {
        let below = match host {
            Host::Exact(host) => crate::host::below_wildcard(host),
            _ => None,
        };
        covers == *host || matches!((&covers, below), (Host::Wildcard(rest), Some(below)) if rest == below)
    })
}

/// The names of the Services that an Ingress leads to.
pub fn services_of(ingress: &Ingress) -> Vec<String> {
    let backends = claims(ingress).into_iter().filter_map(|claim| claim.backend.service);
    let mut names: Vec<String> = backends.map(|service| service.name).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// The names of the Secrets whose certificates an Ingress shows.
pub fn secrets_of(ingress: &Ingress) -> Vec<String> {
    tls_claims(ingress).into_iter().map(|(secret, _)| secret).collect()
}
