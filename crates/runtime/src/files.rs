//! The files that a Pod's containers share: resolv.conf, hostname.

use cri::v1::DnsConfig;

/// `/etc/resolv.conf` of a Pod; `host` is what it is without a configuration.
pub(crate) fn resolv_conf(dns: Option<&DnsConfig>, host: &str) -> String {
    let Some(dns) =
        dns.filter(|dns| !(dns.servers.is_empty() && dns.searches.is_empty() && dns.options.is_empty()))
    else {
        return host.to_owned();
    };
    let mut text = String::new();
    if !dns.searches.is_empty() {
        text.push_str(&format!("search {}\n", dns.searches.join(" ")));
    }
    for server in &dns.servers {
        text.push_str(&format!("nameserver {server}\n"));
    }
    if !dns.options.is_empty() {
        text.push_str(&format!("options {}\n", dns.options.join(" ")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolv_conf_has_what_the_pod_asks_for_or_what_the_host_has() {
        let dns = DnsConfig {
            servers: vec!["10.43.0.10".into()],
            searches: vec!["a.svc.cluster.local".into(), "svc.cluster.local".into()],
            options: vec!["ndots:5".into()],
        };
        let expect = "search a.svc.cluster.local svc.cluster.local\nnameserver 10.43.0.10\noptions ndots:5\n";
        assert_eq!(resolv_conf(Some(&dns), "host"), expect);
        assert_eq!(resolv_conf(None, "host"), "host");
        assert_eq!(resolv_conf(Some(&DnsConfig::default()), "host"), "host");
    }
}
