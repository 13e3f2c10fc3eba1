//! What the node part leaves on the host while it is down, and how it is taken back.

use anyhow::Result;

use crate::layout::Layout;

/// Ends every Pod and removes containers, sandboxes, images, cgroups, mounts and loop devices.
pub(crate) fn remove_pods(layout: &Layout) -> Result<()> {
    let cgroups = sys::cgroup::Cgroups::detect()?;
    let root = format!("/knarr-{}", layout.cluster_id());
    runtime::remove_remains(&layout.runtime(), &root, &cgroups)?;
    sys::mount::detach_below(layout.root())?;
    sys::loop_device::detach_below(layout.root())?;
    Ok(())
}

/// Removes links, addresses and nft tables.
pub(crate) fn remove_network(layout: &Layout) -> Result<()> {
    super::pod_routes::remove(layout)?;
    proxy::cleanup(&layout.cluster_id())?;
    cni::cleanup(&layout.cluster_id(), &layout.cni())?;
    Ok(())
}
