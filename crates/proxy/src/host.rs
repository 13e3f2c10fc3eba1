//! What Services need on the host beside rules: a link that their addresses lead to, and addresses on it.
//!
//! Without a route, the host's own packets to a Service would be refused before nftables sees them. The link is a
//! bridge without ports: what no rule translates ends there.

use machinery::net::Family;
use sys::netlink::{Address, NewRoute, Route};

use crate::{Config, announce, backend, bits};

/// Makes the link, the routes to the Service addresses and the local addresses, as far as they are missing.
pub fn prepare(config: &Config) -> sys::Result<()> {
    let mut route = Route::open()?;
    let name = config.link_name();
    if route.link(&name)?.is_none() {
        route.create_bridge(&name)?;
    }
    if config.families().contains(&Family::V6) {
        // A host may have links without IPv6 by default.
        sys::netns::set_sysctl(&format!("net/ipv6/conf/{name}/disable_ipv6"), "0")?;
    }
    route.set_up(&name)?;
    let link = route.index(&name)?;
    for ip in &config.local_addresses {
        route.add_passive_address(Address { link, ip: *ip, prefix: bits(Family::of(*ip)) })?;
    }
    // The node's address may come later than the proxy: then the kernel chooses a source.
    let present = route.addresses()?;
    for services in config.service_cidrs.iter() {
        let node_ip = config.node_ip(services.family());
        route.add_route(&NewRoute {
            destination: Some((services.first(), services.bits())),
            source: node_ip.filter(|ip| present.iter().any(|address| address.ip == *ip)),
            link: Some(link),
            ..NewRoute::default()
        })?;
    }
    Ok(())
}

/// The parts of the cluster's Services in this network namespace: `link NAME`, `nftables table NAME`, and what else modes
/// have.
pub fn leftovers(cluster_id: &str) -> sys::Result<Vec<String>> {
    let mut found = Vec::new();
    let link = crate::link_name(cluster_id);
    if Route::open()?.link(&link)?.is_some() {
        found.push(format!("link {link}"));
    }
    found.extend(backend::leftovers(cluster_id)?);
    Ok(found)
}

/// Removes the rules of every mode and the link, with its addresses and routes. Returns what was there.
pub fn cleanup(cluster_id: &str) -> sys::Result<Vec<String>> {
    let found = leftovers(cluster_id)?;
    backend::cleanup(cluster_id)?;
    let link = crate::link_name(cluster_id);
    announce::withdraw(&link)?;
    Route::open()?.delete_link(&link)?;
    Ok(found)
}
