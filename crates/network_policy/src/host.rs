//! What policies have of this network namespace.

use sys::nftables::{self, TableFamily};

/// One of each.
const FAMILIES: [TableFamily; 2] = [TableFamily::Ipv4, TableFamily::Ipv6];

/// The tables of the cluster's policies in this network namespace: `nftables table NAME`.
///
/// # Errors
/// The kernel does not say.
pub fn leftovers(cluster_id: &str) -> sys::Result<Vec<String>> {
    let table = crate::table_name(cluster_id);
    let mut found = Vec::new();
    for family in FAMILIES {
        let names = nftables::table_names_of(family)?;
        found.extend(names.contains(&table).then(|| format!("nftables table {table}")));
    }
    Ok(found)
}

/// Removes the cluster's tables. Returns what was there.
///
/// # Errors
/// The kernel refuses.
pub fn cleanup(cluster_id: &str) -> sys::Result<Vec<String>> {
    let found = leftovers(cluster_id)?;
    for family in FAMILIES {
        nftables::delete_table_of(family, &crate::table_name(cluster_id))?;
    }
    Ok(found)
}
