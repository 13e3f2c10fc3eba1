//! Texts of the files that the kubelet makes for every Pod: `/etc/hosts` and the name server settings.
//!
//! Pure. Sources: `pkg/kubelet/kubelet_pods.go` (hosts) and `pkg/kubelet/network/dns` of upstream.

use cri::v1::DnsConfig;
use k8s_openapi::api::core::v1::{HostAlias, PodSpec};

/// How many search domains a resolver is given at most.
const SEARCHES_MAX: usize = 32;
/// Characters of one of them: resolvers fail over longer ones.
const SEARCH_DOMAIN_CHARS_MAX: usize = 253;
/// Characters of all search domains, with the spaces between them.
const SEARCH_CHARS_MAX: usize = 2048;
/// How many name servers a resolver is given at most.
const NAMESERVERS_MAX: usize = 3;
/// Characters of a host name that the kernel takes.
const KERNEL_NAME_MAX: usize = 64;
/// Characters of a host name without its domain.
const HOSTNAME_MAX: usize = 63;

/// The host name and, with a subdomain, the full name of a Pod.
pub fn names(
    pod_name: &str,
    namespace: &str,
    spec: &PodSpec,
    cluster_domain: &str,
) -> (String, Option<String>) {
    // Source: KEP-4762: it is the host's whole name, and DNS knows nothing of it.
    if let Some(name) = spec.hostname_override.as_ref().filter(|name| !name.is_empty()) {
        return (cut(name), None);
    }
    let hostname = cut(spec.hostname.as_deref().filter(|name| !name.is_empty()).unwrap_or(pod_name));
    let subdomain = spec.subdomain.as_deref().filter(|s| !s.is_empty());
    let full = subdomain.map(|subdomain| format!("{hostname}.{subdomain}.{namespace}.svc.{cluster_domain}"));
    (hostname, full)
}

/// Source: `truncatePodHostnameIfNeeded` of upstream.
fn cut(name: &str) -> String {
    match name.get(..HOSTNAME_MAX) {
        Some(start) if name.len() > HOSTNAME_MAX => start.trim_end_matches(['-', '.']).to_owned(),
        _ => name.to_owned(),
    }
}

/// The kernel takes no name of that length; in upstream's words.
#[derive(Debug, thiserror::Error)]
#[error(
    "failed to construct FQDN from Pod hostname and cluster domain, FQDN {full} is too long ({KERNEL_NAME_MAX} characters \
     is the max, {} characters requested)",
    full.len()
)]
pub struct NameTooLong {
    full: String,
}

/// What the Pod's kernel is told as its host name: the full one where the spec wants it.
///
/// # Errors
/// The full name is too long. Source: `setHostnameAsFQDN`.
pub fn kernel_name(
    pod_name: &str,
    namespace: &str,
    spec: &PodSpec,
    cluster_domain: &str,
) -> Result<String, NameTooLong> {
    let (short, full) = names(pod_name, namespace, spec, cluster_domain);
    match full.filter(|_| spec.set_hostname_as_fqdn == Some(true)) {
        None => Ok(short),
        Some(full) if full.len() <= KERNEL_NAME_MAX => Ok(full),
        Some(full) => Err(NameTooLong { full }),
    }
}

/// `/etc/hosts` of a Pod with its own network.
pub fn hosts(ips: &[String], hostname: &str, full_name: Option<&str>, aliases: &[HostAlias]) -> String {
    let mut text = String::from(
        "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\nfe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n",
    );
    for ip in ips {
        match full_name {
            Some(full) => text.push_str(&format!("{ip}\t{full}\t{hostname}\n")),
            None => text.push_str(&format!("{ip}\t{hostname}\n")),
        }
    }
    text + &alias_lines(aliases)
}

/// `/etc/hosts` of a Pod on the host's network: the host's, and the aliases.
pub fn host_network_hosts(host_file: &str, aliases: &[HostAlias]) -> String {
    format!("# Kubernetes-managed hosts file (host network).\n{host_file}{}", alias_lines(aliases))
}

fn alias_lines(aliases: &[HostAlias]) -> String {
    if aliases.is_empty() {
        return String::new();
    }
    let mut text = String::from("\n# Entries added by HostAliases.\n");
    for alias in aliases {
        text.push_str(&format!("{}\t{}\n", alias.ip, alias.hostnames.clone().unwrap_or_default().join("\t")));
    }
    text
}

/// What the cluster adds to name resolution.
#[derive(Clone, Debug, Default)]
pub struct ClusterDns {
    /// Addresses of the cluster's DNS.
    pub servers: Vec<String>,
    /// Such as `cluster.local`.
    pub domain: String,
    /// The Pod's own addresses of the loopback device, which stand for the host's name servers if those are not to be
    /// asked. Source: an empty `resolvConf`.
    pub loopback: Vec<String>,
}

/// Something that the Pod's name server settings are not as they should be for: an event.
#[derive(Debug, PartialEq, Eq)]
pub struct Complaint {
    /// Of the event.
    pub reason: &'static str,
    /// In upstream's words.
    pub message: String,
}

/// The resolver settings of a Pod. `host` is the text of the host's `resolv.conf`.
pub fn dns_config(namespace: &str, spec: &PodSpec, cluster: &ClusterDns, host: &str) -> DnsConfig {
    let mut config = whole_dns_config(namespace, spec, cluster, host);
    limit(&mut config);
    config
}

/// What of the resolver settings is missing or too much, as upstream's events tell it.
pub fn dns_complaints(namespace: &str, spec: &PodSpec, cluster: &ClusterDns, host: &str) -> Vec<Complaint> {
    let is_missing = wants_cluster(spec) && cluster.servers.is_empty();
    let missing = is_missing.then(|| Complaint {
        reason: "MissingClusterDNS",
        message: "kubelet does not have ClusterDNS IP configured and cannot create Pod using \"ClusterFirst\" policy. \
                  Falling back to \"Default\" policy."
            .to_owned(),
    });
    let too_much = limit(&mut whole_dns_config(namespace, spec, cluster, host));
    let too_much = too_much.into_iter().map(|message| Complaint { reason: "DNSConfigForming", message });
    missing.into_iter().chain(too_much).collect()
}

/// Whether names are looked up in the cluster. Source: `getPodDNSType` of upstream.
fn wants_cluster(spec: &PodSpec) -> bool {
    match spec.dns_policy.as_deref().unwrap_or("ClusterFirst") {
        "ClusterFirst" => spec.host_network != Some(true),
        "Default" | "None" => false,
        _ => true,
    }
}

/// Source: `formDNSConfigFitsLimits` of upstream.
fn limit(config: &mut DnsConfig) -> Vec<String> {
    let mut complaints = Vec::new();
    if config.servers.len() > NAMESERVERS_MAX {
        config.servers.truncate(NAMESERVERS_MAX);
        let line = config.servers.join(" ");
        complaints.push(format!(
            "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: {line}"
        ));
    }
    let given = config.searches.len();
    config.searches.truncate(SEARCHES_MAX);
    config.searches.retain(|domain| domain.len() <= SEARCH_DOMAIN_CHARS_MAX);
    while config.searches.join(" ").len() > SEARCH_CHARS_MAX {
        config.searches.pop();
    }
    if config.searches.len() < given {
        let line = config.searches.join(" ");
        complaints.push(format!(
            "Search Line limits were exceeded, some search paths have been omitted, the applied search line is: {line}"
        ));
    }
    complaints
}

fn whole_dns_config(namespace: &str, spec: &PodSpec, cluster: &ClusterDns, host: &str) -> DnsConfig {
    let mut config = match spec.dns_policy.as_deref() {
        Some("None") => DnsConfig::default(),
        _ => parse_resolv_conf(host),
    };
    if wants_cluster(spec) && !cluster.servers.is_empty() {
        let domain = &cluster.domain;
        config.servers.clone_from(&cluster.servers);
        if !domain.is_empty() {
            let own = [format!("{namespace}.svc.{domain}"), format!("svc.{domain}"), domain.clone()];
            config.searches.splice(0..0, own);
        }
        config.options = vec!["ndots:5".into()];
    } else if spec.dns_policy.as_deref() != Some("None") && !cluster.loopback.is_empty() {
        config.servers.extend(cluster.loopback.iter().cloned());
        config.searches = vec![".".into()];
    }
    if let Some(extra) = &spec.dns_config {
        config.servers.extend(extra.nameservers.iter().flatten().cloned());
        config.searches.extend(extra.searches.iter().flatten().cloned());
        for option in extra.options.iter().flatten() {
            let name = option.name.clone().unwrap_or_default();
            let option = match option.value.as_deref().filter(|value| !value.is_empty()) {
                Some(value) => format!("{name}:{value}"),
                None => name,
            };
            set_option(&mut config.options, option);
        }
    }
    dedup(&mut config.servers);
    dedup(&mut config.searches);
    config
}

fn dedup(items: &mut Vec<String>) {
    let mut seen = std::collections::BTreeSet::new();
    items.retain(|item| seen.insert(item.clone()));
}

/// The last one of a name counts.
fn set_option(options: &mut Vec<String>, option: String) {
    let name = |option: &str| option.split(':').next().unwrap_or_default().to_owned();
    options.retain(|other| name(other) != name(&option));
    options.push(option);
}

fn parse_resolv_conf(text: &str) -> DnsConfig {
    let mut config = DnsConfig::default();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let key = words.next();
        let rest = words.map(str::to_owned);
        match key {
            Some("nameserver") => config.servers.extend(rest.take(1)),
            Some("search") => {
                let domains = rest.filter(|domain| domain != ".");
                config.searches =
                    domains.map(|domain| domain.strip_suffix('.').unwrap_or(&domain).to_owned()).collect();
            }
            Some("options") => rest.for_each(|option| set_option(&mut config.options, option)),
            _ => {}
        }
    }
    config
}

#[cfg(test)]
mod tests;
