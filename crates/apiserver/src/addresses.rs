//! Addresses that are the cluster's own: those of its API servers, and the ranges of Services. Nobody is led there who
//! asks for something else, and nobody else may have one.

use std::collections::BTreeSet;
use std::net::IpAddr;

use machinery::net::Cidr;
use serde_json::Value;

use crate::cluster::Cluster;

/// Where the leases of API servers are.
pub(crate) const PREFIX: &str = "/registry/masterleases/";

/// The key of a server's lease.
pub(crate) fn key(address: IpAddr) -> String {
    format!("{PREFIX}{address}")
}

/// The addresses of those who have a lease, and this server's own: that it asks says that it lives.
pub(crate) fn alive(cluster: &Cluster) -> BTreeSet<IpAddr> {
    let leases = cluster.cache.resource(PREFIX).list(PREFIX, 0).objects;
    let held = leases.iter().filter_map(|lease| address(&lease.value()));
    held.chain([cluster.config.advertise_address.ip()]).collect()
}

fn address(lease: &Value) -> Option<IpAddr> {
    lease.pointer("/subsets/0/addresses/0/ip")?.as_str()?.parse().ok()
}

/// The networks of all ServiceCIDRs, ready or not.
pub(crate) fn service_networks(cluster: &Cluster) -> Vec<Cidr> {
    let Some(kind) = cluster.kind("networking.k8s.io", "v1", "servicecidrs") else { return Vec::new() };
    let objects = kind.cache().list(kind.prefix(), 0).objects;
    let values = objects.iter().map(|object| object.value());
    let texts = values.flat_map(|value| {
        let cidrs = value.pointer("/spec/cidrs").and_then(Value::as_array).cloned().unwrap_or_default();
        cidrs.into_iter().filter_map(|cidr| cidr.as_str()?.parse().ok())
    });
    texts.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_lease_says_where_its_server_is() {
        let lease = json!({"subsets": [{"addresses": [{"ip": "192.0.2.7"}]}]});
        assert_eq!(address(&lease), Some(IpAddr::from([192, 0, 2, 7])));
        for nothing in [json!({}), json!({"subsets": []}), json!({"subsets": [{"addresses": [{"ip": "x"}]}]})]
        {
            assert_eq!(address(&nothing), None, "{nothing}");
        }
        assert_eq!(key(IpAddr::from([192, 0, 2, 7])), "/registry/masterleases/192.0.2.7");
    }
}
