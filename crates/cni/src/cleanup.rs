//! Taking back everything that the Pod network made on the host.

use std::fs;
use std::path::Path;

use machinery::net::Family;
use sys::netlink::{Link, Route};
use sys::nftables::{self, TableFamily};

use crate::plugins::{VETH_PREFIX, forwarding_before, ifbs_of};
use crate::types::CniError;

/// The remains of the cluster's Pod network in this network namespace: `link NAME`, `nftables table NAME`.
pub fn leftovers(cluster_id: &str) -> Result<Vec<String>, CniError> {
    let mut found: Vec<String> = links(&mut Route::open()?, cluster_id)?;
    found.iter_mut().for_each(|name| name.insert_str(0, "link "));
    let table = crate::table_name(cluster_id);
    if nftables::table_names()?.contains(&table) {
        found.push(format!("nftables table {table}"));
    }
    if nftables::table_names_of(TableFamily::Ipv6)?.contains(&table) {
        found.push(format!("nftables table ip6 {table}"));
    }
    if nftables::port::tables()?.contains(&table) {
        found.push(format!("nftables table netdev {table}"));
    }
    Ok(found)
}

/// Removes the cluster's links, tables and state, and sets back how packets are forwarded. Returns what was there.
pub fn cleanup(cluster_id: &str, state_dir: &Path) -> Result<Vec<String>, CniError> {
    let found = leftovers(cluster_id)?;
    let mut route = Route::open()?;
    for name in links(&mut route, cluster_id)? {
        route.delete_link(&name)?;
    }
    delete_tables(&crate::table_name(cluster_id))?;
    for family in [Family::V4, Family::V6] {
        sys::forwarding::restore(&forwarding_before(state_dir, family))?;
    }
    for dir in ["results", "networks"] {
        let path = state_dir.join(dir);
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(CniError::state(path)(error));
            }
            _ => {}
        }
    }
    Ok(found)
}

/// Deletes the tables of this name in all families that the plugins have rules in.
pub(crate) fn delete_tables(name: &str) -> Result<(), CniError> {
    for family in [TableFamily::Ipv4, TableFamily::Ipv6] {
        nftables::delete_table_of(family, name)?;
    }
    Ok(nftables::port::delete(name)?)
}

/// Removes a network's bridge with the Pods' links on it, and what their packets are led through.
pub(crate) fn remove_links(bridge: &str, table: &str) -> Result<(), CniError> {
    let mut route = Route::open()?;
    let links = links_of(&route.links()?, bridge, table);
    links.iter().try_for_each(|name| Ok(route.delete_link(name)?))
}

fn links(route: &mut Route, cluster_id: &str) -> Result<Vec<String>, CniError> {
    Ok(links_of(&route.links()?, &crate::bridge_name(cluster_id), &crate::table_name(cluster_id)))
}

/// The bridge last, so that a cleanup that was cut off finds the ports again.
fn links_of(all: &[Link], bridge: &str, table: &str) -> Vec<String> {
    let bridge = all.iter().find(|link| link.name == bridge);
    let index = bridge.map(|link| link.index);
    let is_port =
        |link: &&Link| index.is_some() && link.master == index && link.name.starts_with(VETH_PREFIX);
    let ports = all.iter().filter(is_port).chain(bridge).map(|link| link.name.as_str());
    ifbs_of(all, table).chain(ports).map(str::to_owned).collect()
}
