//! This host: what it is called, its addresses and networks, and the folders of clusters on it.

pub(crate) mod data_dir;

use std::net::IpAddr;

use anyhow::{Context, Result, bail};
use machinery::net::{Cidr, Family};

/// The host's name in the form that a Node's name takes.
pub(crate) fn node_name() -> Result<String> {
    let name = nix::unistd::gethostname().context("read the host name")?;
    let name = name.to_string_lossy().to_lowercase();
    let name: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' }).collect();
    let name = name.trim_matches(['-', '.']).to_owned();
    if name.is_empty() {
        bail!("this host has no usable name; give one with --node-name");
    }
    Ok(name)
}

/// The Node's name that was given, or the host's: an empty one is none, as `--hostname-override` has it upstream.
///
/// # Errors
/// None was given, and the host has no usable name.
pub(crate) fn node_name_or_own(given: Option<&str>) -> Result<String> {
    match given {
        Some(name) if !name.is_empty() => Ok(name.to_owned()),
        _ => node_name(),
    }
}

/// How the names of links begin that clusters make for their Pods and Services.
const OWN_LINKS: [&str; 5] = ["kn-", "ks-", "kb-", "kx-", "kw-"];

/// The addresses that other machines could reach: not a loopback and not a link-local one, and none that a cluster here
/// has made.
pub(crate) fn addresses() -> Result<Vec<IpAddr>> {
    let mut route = sys::netlink::Route::open()?;
    let is_own = |name: &str| OWN_LINKS.iter().any(|prefix| name.starts_with(prefix));
    let own: Vec<u32> =
        route.links()?.iter().filter(|link| is_own(&link.name)).map(|link| link.index).collect();
    let addresses = route.lasting_addresses()?;
    let usable = |ip: &IpAddr| match ip {
        IpAddr::V4(ip) => !ip.is_loopback() && !ip.is_link_local() && !ip.is_unspecified(),
        IpAddr::V6(ip) => !ip.is_loopback() && !ip.is_unicast_link_local() && !ip.is_unspecified(),
    };
    let addresses = addresses.into_iter().filter(|address| !own.contains(&address.link));
    Ok(addresses.map(|address| address.ip).filter(usable).collect())
}

/// The networks that this host has addresses of or routes to, apart from those of one link.
pub(crate) fn networks(but: &str) -> Result<Vec<Cidr>> {
    let mut route = sys::netlink::Route::open()?;
    let but = route.link(but)?.map(|link| link.index);
    let addresses = route.addresses()?.into_iter().filter(|address| Some(address.link) != but);
    let addresses = addresses.filter_map(|address| Cidr::new(address.ip, address.prefix));
    let routes = route.routes()?.into_iter().filter(|entry| but.is_none() || entry.link != but);
    let routes = routes.filter_map(|entry| entry.destination).filter_map(|(ip, bits)| Cidr::new(ip, bits));
    Ok(addresses.chain(routes).map(Cidr::network).collect())
}

/// The first of [`addresses`] of each family, in this order.
///
/// # Errors
/// There is none of a family.
pub(crate) fn node_ips(families: impl IntoIterator<Item = Family>) -> Result<Vec<IpAddr>> {
    let has = addresses()?;
    families.into_iter().map(|family| first_of(&has, family)).collect()
}

/// # Errors
/// There is none of this family.
pub(crate) fn first_of(has: &[IpAddr], family: Family) -> Result<IpAddr> {
    has.iter().copied().find(|ip| Family::of(*ip) == family).with_context(|| {
        let which = if family == Family::V4 { "" } else { "IPv6 " };
        format!(
            "this host has no {which}address besides its loopback one; add one to a link, or give it with --node-ip"
        )
    })
}
