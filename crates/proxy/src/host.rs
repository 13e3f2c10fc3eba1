//! What Services need on the host beside rules: a link that their addresses lead to, and addresses on it.
//!
//! Without a route, the host's own packets to a Service would be refused before nftables sees them. The link is a
//! bridge without ports: what no rule translates ends there.

use std::net::IpAddr;

use sys::netlink::{Address, NewRoute, Route};
use sys::nftables;

use crate::Config;

/// Makes the link, the route to the Service addresses and the local addresses, as far as they are missing.
pub fn prepare(config: &Config) -> sys::Result<()> {
    let mut route = Route::open()?;
    let name = config.link_name();
    if route.link(&name)?.is_none() {
        route.create_bridge(&name)?;
    }
    route.set_up(&name)?;
    let link = route.index(&name)?;
    for ip in &config.local_addresses {
        route.add_address(Address { link, ip: IpAddr::from(*ip), prefix: 32 })?;
    }
    let Some((network, prefix)) = config.services() else { return Ok(()) };
    // The node's address may come later than the proxy: then the kernel chooses a source.
    let has_node_ip = route.addresses()?.iter().any(|address| address.ip == config.node_ip);
    route.add_route(&NewRoute {
        destination: Some((network.into(), prefix)),
        source: has_node_ip.then(|| config.node_ip.into()),
        link: Some(link),
        ..NewRoute::default()
    })
}

/// What of the cluster's Services is in this network namespace: `link NAME`, `nftables table NAME`.
pub fn leftovers(cluster_id: &str) -> sys::Result<Vec<String>> {
    let mut found = Vec::new();
    let (link, table) = (crate::link_name(cluster_id), crate::table_name(cluster_id));
    if Route::open()?.link(&link)?.is_some() {
        found.push(format!("link {link}"));
    }
    if nftables::table_names()?.contains(&table) {
        found.push(format!("nftables table {table}"));
    }
    Ok(found)
}

/// Removes the cluster's table and link, with its addresses and route. Returns what was there.
pub fn cleanup(cluster_id: &str) -> sys::Result<Vec<String>> {
    let found = leftovers(cluster_id)?;
    nftables::delete_table(&crate::table_name(cluster_id))?;
    Route::open()?.delete_link(&crate::link_name(cluster_id))?;
    Ok(found)
}
