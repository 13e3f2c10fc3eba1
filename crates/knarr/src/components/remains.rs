//! What the node part leaves on the host while it is down, and how it is taken back.

use anyhow::Result;

use crate::layout::Layout;

/// Ends every Pod and removes containers, sandboxes, images and cgroups.
pub(crate) fn remove_pods(layout: &Layout) -> Result<()> {
    let cgroups = sys::cgroup::Cgroups::detect()?;
    let root = format!("/knarr-{}", layout.cluster_id());
    runtime::remove_remains(&layout.runtime(), &root, &cgroups)?;
    sys::mount::detach_below(layout.root())?;
    Ok(())
}

/// Removes links, addresses and nft tables.
pub(crate) fn remove_network(layout: &Layout) -> Result<()> {
    proxy::cleanup(&layout.cluster_id())?;
    cni::cleanup(&layout.cluster_id(), &layout.cni())?;
    if let Ok(settings) = super::Settings::load(layout) {
        remove_dns_address(settings.args.cluster_dns)?;
    }
    Ok(())
}

fn remove_dns_address(ip: std::net::IpAddr) -> Result<()> {
    let mut route = sys::netlink::Route::open()?;
    let lo = route.index("lo")?;
    let own = route.addresses()?.into_iter().find(|address| address.ip == ip && address.link == lo);
    if let Some(address) = own {
        route.delete_address(address)?;
    }
    Ok(())
}
