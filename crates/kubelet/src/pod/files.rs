//! Texts of the files that the kubelet makes for every Pod: `/etc/hosts` and the name server settings.
//!
//! Pure. Sources: `pkg/kubelet/kubelet_pods.go` (hosts) and `pkg/kubelet/network/dns` of upstream.

use cri::v1::DnsConfig;
use k8s_openapi::api::core::v1::{HostAlias, PodSpec};

/// How many search domains a resolver is given at most.
const SEARCHES_MAX: usize = 32;
/// Characters of all search domains, with the spaces between them.
const SEARCH_CHARS_MAX: usize = 2048;
/// How many name servers a resolver is given at most.
const NAMESERVERS_MAX: usize = 3;
/// Characters of a host name that the kernel takes.
const KERNEL_NAME_MAX: usize = 64;

/// The host name and, with a subdomain, the full name of a Pod.
pub fn names(
    pod_name: &str,
    namespace: &str,
    spec: &PodSpec,
    cluster_domain: &str,
) -> (String, Option<String>) {
    // Source: KEP-4762: it is the host's whole name, and DNS knows nothing of it.
    if let Some(name) = spec.hostname_override.as_ref().filter(|name| !name.is_empty()) {
        return (name.clone(), None);
    }
    let hostname = spec.hostname.clone().unwrap_or_else(|| pod_name.chars().take(63).collect::<String>());
    let hostname = hostname.trim_end_matches(['-', '.']).to_owned();
    let subdomain = spec.subdomain.as_deref().filter(|s| !s.is_empty());
    let full = subdomain.map(|subdomain| format!("{hostname}.{subdomain}.{namespace}.svc.{cluster_domain}"));
    (hostname, full)
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
}

/// The resolver settings of a Pod. `host` is the text of the host's `resolv.conf`.
pub fn dns_config(namespace: &str, spec: &PodSpec, cluster: &ClusterDns, host: &str) -> DnsConfig {
    let mut config = whole_dns_config(namespace, spec, cluster, host);
    limit(&mut config);
    config
}

/// What of the resolver settings is too much, in the words of upstream's event `DNSConfigForming`.
pub fn dns_complaints(namespace: &str, spec: &PodSpec, cluster: &ClusterDns, host: &str) -> Vec<String> {
    limit(&mut whole_dns_config(namespace, spec, cluster, host))
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
    let policy = spec.dns_policy.as_deref().unwrap_or("ClusterFirst");
    let uses_cluster = match policy {
        "ClusterFirstWithHostNet" => true,
        "ClusterFirst" => spec.host_network != Some(true),
        _ => false,
    };
    let mut config = match policy {
        "None" => DnsConfig::default(),
        _ => parse_resolv_conf(host),
    };
    if uses_cluster && !cluster.servers.is_empty() {
        let domain = &cluster.domain;
        config.servers.clone_from(&cluster.servers);
        let mut searches = vec![format!("{namespace}.svc.{domain}"), format!("svc.{domain}"), domain.clone()];
        searches.append(&mut config.searches);
        config.searches = searches;
        config.options = vec!["ndots:5".into()];
    }
    if let Some(extra) = &spec.dns_config {
        config.servers.extend(extra.nameservers.iter().flatten().cloned());
        config.searches.extend(extra.searches.iter().flatten().cloned());
        for option in extra.options.iter().flatten() {
            let name = option.name.clone().unwrap_or_default();
            config.options.retain(|o| o.split(':').next() != Some(name.as_str()));
            config.options.push(match &option.value {
                Some(value) => format!("{name}:{value}"),
                None => name,
            });
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

fn parse_resolv_conf(text: &str) -> DnsConfig {
    let mut config = DnsConfig::default();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let key = words.next();
        let rest = words.map(str::to_owned);
        match key {
            Some("nameserver") => config.servers.extend(rest.take(1)),
            Some("search" | "domain") => config.searches = rest.filter(|s| s != ".").collect(),
            Some("options") => config.options = rest.collect(),
            _ => {}
        }
    }
    config
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    fn spec(text: &str) -> PodSpec {
        serde_saphyr::from_str(text).unwrap()
    }

    #[test]
    fn cluster_first_asks_the_cluster() {
        let cluster = ClusterDns { servers: vec!["10.43.0.10".into()], domain: "cluster.local".into() };
        let config =
            dns_config("shop", &spec("{containers: []}"), &cluster, "nameserver 1.1.1.1\nsearch lan\n");
        assert_eq!(config.servers, ["10.43.0.10"]);
        assert_eq!(config.searches, ["shop.svc.cluster.local", "svc.cluster.local", "cluster.local", "lan"]);
        assert_eq!(config.options, ["ndots:5"]);
        let host = dns_config(
            "shop",
            &spec("{containers: [], hostNetwork: true}"),
            &cluster,
            "nameserver 1.1.1.1\n",
        );
        assert_eq!(host.servers, ["1.1.1.1"]);
        let none = spec(
            "{containers: [], dnsPolicy: None, dnsConfig: {nameservers: [9.9.9.9], options: [{name: ndots, value: '2'}]}}",
        );
        let none = dns_config("shop", &none, &cluster, "nameserver 1.1.1.1\n");
        assert_eq!((none.servers, none.options), (vec!["9.9.9.9".into()], vec!["ndots:2".into()]));
    }

    #[test]
    fn what_a_resolver_would_not_take_is_left_out_and_told() {
        let cluster = ClusterDns { servers: vec!["10.43.0.10".into()], domain: "cluster.local".into() };
        let wanted = |servers: &str, searches: &str| {
            spec(&format!(
                "{{containers: [], dnsConfig: {{nameservers: [{servers}], searches: [{searches}]}}}}"
            ))
        };
        let check = |spec: &PodSpec, expect: &[&str]| {
            assert_eq!(dns_complaints("shop", spec, &cluster, ""), expect);
        };
        check(&wanted("1.1.1.1, 2.2.2.2", "a, b"), &[]);
        check(
            &wanted("1.1.1.1, 2.2.2.2, 3.3.3.3", ""),
            &[
                "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: 10.43.0.10 1.1.1.1 2.2.2.2",
            ],
        );
        let many: Vec<_> = (0..40).map(|number| format!("d{number}")).collect();
        let many = wanted("", &many.join(","));
        assert_eq!(dns_complaints("shop", &many, &cluster, "").len(), 1);
        assert_eq!(dns_config("shop", &many, &cluster, "").searches.len(), SEARCHES_MAX);
        let long = wanted("", &["a".repeat(1500), "b".repeat(1500)].join(","));
        assert_eq!(dns_config("shop", &long, &cluster, "").searches.len(), 4);
    }

    #[test]
    fn hosts_name_the_pod_and_its_aliases() {
        let aliases = [HostAlias { ip: "1.2.3.4".into(), hostnames: Some(vec!["a".into(), "b".into()]) }];
        let (hostname, full) =
            names("web-0", "shop", &spec("{containers: [], subdomain: web}"), "cluster.local");
        let text = hosts(&["10.42.0.2".into()], &hostname, full.as_deref(), &aliases);
        expect![[r#"
            # Kubernetes-managed hosts file.
            127.0.0.1	localhost
            ::1	localhost ip6-localhost ip6-loopback
            fe00::0	ip6-localnet
            fe00::0	ip6-mcastprefix
            fe00::1	ip6-allnodes
            fe00::2	ip6-allrouters
            10.42.0.2	web-0.web.shop.svc.cluster.local	web-0

            # Entries added by HostAliases.
            1.2.3.4	a	b
        "#]]
        .assert_eq(&text);
    }
}
