//! `knarr reset`: removes every trace of a cluster from this host.

use std::io::{ErrorKind, IsTerminal, Write, stdin};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use cli::args::ResetArgs;

use crate::commands::down;
use crate::components::{self, IsLeft, LocalNode};
use crate::host::data_dir;
use crate::layout::Layout;

/// Lists what goes, asks, and removes it.
pub(crate) fn run(args: &ResetArgs) -> Result<()> {
    let layout = Layout::new(&args.data.data_dir)?;
    let root = layout.root().display();
    if layout.root().exists() {
        if !layout.version().exists() {
            bail!("{root} is not a cluster's folder; nothing was removed");
        }
    } else if !data_dir::is_registered(&layout) {
        eprintln!("there is no cluster in {root}");
        return Ok(());
    }
    if let Some((cluster, node)) = components::owner_of_local_node(&layout) {
        return remove_local_node(&cluster, &node, args);
    }
    eprintln!("this removes the cluster in {}:", layout.root().display());
    for what in going(&layout) {
        eprintln!("  {what}");
    }
    if !args.yes && !confirmed()? {
        bail!("nothing was removed");
    }
    down::stop_all(&layout)?;
    remove_everything(&layout, &mut |what| eprintln!("removed {what}"))
}

/// One Node of several on this host. The cluster learns of it by the deletion of its object.
fn remove_local_node(cluster: &Layout, node: &LocalNode, args: &ResetArgs) -> Result<()> {
    let (root, number) = (cluster.root().display(), node.number);
    if down::running_pid(cluster)?.is_some() {
        bail!(
            "Node {number} goes up and down with its cluster; stop that with `knarr down --data-dir {root}`"
        );
    }
    eprintln!("this removes Node {number} of the cluster in {root}, with all that its Pods keep there");
    if !args.yes && !confirmed()? {
        bail!("nothing was removed");
    }
    let nodes = [node.clone()];
    remove_local_nodes(cluster, &nodes, IsLeft::Cluster)?;
    eprintln!("removed Node {number}; when the cluster runs again, `kubectl delete node` removes its object");
    Ok(())
}

/// What these Nodes have on the host, each in its own network.
fn remove_local_nodes(cluster: &Layout, nodes: &[LocalNode], is_left: IsLeft) -> Result<()> {
    for node in nodes {
        let of_network = || {
            if let Err(error) = components::detach_pods(&node.layout) {
                eprintln!("what network plugins have of the Pods of Node {} is left: {error:#}", node.number);
            }
            components::remove_network(&node.layout)
        };
        remove_pods(&node.layout)?;
        components::in_network(node, of_network).context("remove the network")?;
        if node.layout.version().exists() {
            remove_folder(&node.layout)
                .with_context(|| format!("remove {}", node.layout.root().display()))?;
        }
    }
    components::remove_local_network(cluster, nodes, is_left).context("remove the wire between the Nodes")
}

/// Pods, with what they have of volumes.
fn remove_pods(layout: &Layout) -> Result<()> {
    components::remove_pods(layout).context("remove the Pods")?;
    if let Err(error) = components::release_volumes(layout) {
        eprintln!("what the cluster's Pods had of iSCSI targets is left: {error:#}");
    }
    components::remove_mounts(layout).context("remove the mounts")
}

/// What goes, for people.
fn going(layout: &Layout) -> Vec<String> {
    let always = [
        "every Pod and its containers, volumes and images",
        "links, addresses, nft tables and cgroups",
        "all objects and keys",
    ];
    let added = components::written_kubeconfigs(layout).into_iter();
    let added = added.map(|file| format!("the context {} in {}", file.context, file.path.display()));
    always.into_iter().map(ToOwned::to_owned).chain(added).collect()
}

fn confirmed() -> Result<bool> {
    if !stdin().is_terminal() {
        bail!("nobody is there to confirm; say --yes");
    }
    eprint!("Go on? [y/N] ");
    std::io::stderr().flush()?;
    let mut answer = String::new();
    stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "yes"))
}

/// Takes back everything that the cluster did to this host; tells each part to `on_step`.
pub(crate) fn remove_everything(layout: &Layout, on_step: &mut dyn FnMut(&str)) -> Result<()> {
    match components::remove_foreign_pods(layout) {
        Ok(0) => {}
        Ok(count) => on_step(&format!("{count} Pods of the container runtime")),
        // The rest is removed all the same: the runtime may be gone for good.
        Err(error) => eprintln!("what the container runtime has of the cluster is left: {error:#}"),
    }
    let nodes = components::local_nodes(layout)?;
    if layout.nodes().exists() {
        remove_local_nodes(layout, &nodes, IsLeft::Nothing)?;
        on_step("the other Nodes");
    }
    remove_pods(layout)?;
    on_step("Pods, containers and cgroups");
    if let Err(error) = components::detach_pods(layout) {
        eprintln!("what network plugins have of the cluster's Pods is left: {error:#}");
    }
    components::remove_network(layout).context("remove the network")?;
    on_step("links, addresses and nft tables");
    for failed in components::take_back_kubeconfigs(layout) {
        eprintln!("{failed}");
    }
    if layout.root().exists() {
        remove_folder(layout).with_context(|| format!("remove {}", layout.root().display()))?;
    }
    data_dir::forget(layout)?;
    on_step("objects, keys and files");
    for left in left(layout)? {
        eprintln!("left as it is: {left}");
    }
    Ok(())
}

/// What knarr has made in the folder; what says that it is a cluster's goes last, so that a reset that was cut off can
/// be repeated. What is mounted by now is somebody else's.
fn remove_folder(layout: &Layout) -> Result<()> {
    let kept: Vec<PathBuf> = sys::mount::mounts()?.into_iter().map(|mount| mount.target).collect();
    let root = layout.root().canonicalize()?;
    let layout = Layout::new(&root)?;
    for entry in std::fs::read_dir(&root)? {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(Layout::is_own) {
            remove(&entry.path(), &layout.places(), &kept)?;
        }
    }
    std::fs::remove_file(layout.version())?;
    match std::fs::remove_dir(&root) {
        Err(error) if !matches!(error.kind(), ErrorKind::DirectoryNotEmpty | ErrorKind::ResourceBusy) => {
            Err(error.into())
        }
        _ => Ok(()),
    }
}

/// Empties the places that knarr fills, and removes all that is no mount.
fn remove(path: &Path, places: &[PathBuf], kept: &[PathBuf]) -> std::io::Result<()> {
    let is_place = |path: &Path| places.iter().any(|place| place == path);
    if is_place(path) && kept.iter().any(|mount| mount.starts_with(path)) {
        for entry in std::fs::read_dir(path)? {
            remove(&entry?.path(), places, kept)?;
        }
    }
    sys::tree::remove_beside(path, kept).map(drop)
}

/// What is not knarr's in the folder, or of it.
fn left(layout: &Layout) -> Result<Vec<String>> {
    let root = layout.root();
    let mounts = sys::mount::mounts()?.into_iter().map(|mount| mount.target);
    let mounts: Vec<PathBuf> = mounts.filter(|target| target.starts_with(root)).collect();
    let files = std::fs::read_dir(root).into_iter().flatten().flatten().map(|entry| entry.path());
    // A folder that only leads to a mount is told by that.
    let is_told = |path: &PathBuf| mounts.iter().any(|mount| mount != root && mount.starts_with(path));
    let files = files.filter(|path| !is_told(path)).map(|path| path.display().to_string());
    let mounts = mounts.iter().map(|mount| format!("what is mounted at {}", mount.display()));
    Ok(mounts.chain(files).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn cluster(root: &Path) -> Layout {
        let layout = Layout::new(root).unwrap();
        for folder in layout.places() {
            fs::create_dir_all(folder).unwrap();
        }
        for file in
            [layout.version(), layout.config(), layout.db().join("data"), layout.images().join("layer")]
        {
            fs::write(file, "x").unwrap();
        }
        // Of a check that was killed.
        fs::create_dir_all(root.join(".knarr-check-12/upper")).unwrap();
        layout
    }

    #[test]
    fn a_cluster_in_a_folder_of_its_own_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap().join("data");
        remove_folder(&cluster(&root)).unwrap();
        assert!(!root.exists());
    }

    #[test]
    fn mounts_and_files_of_somebody_else_stay_where_they_are() {
        assert!(nix::unistd::geteuid().is_root(), "this test mounts: run it as root");
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap().join("disk");
        fs::create_dir(&root).unwrap();
        sys::mount::tmpfs(&root, Some(4 << 20), 0o755).unwrap();
        let layout = cluster(&root);
        sys::mount::tmpfs(&layout.images(), Some(4 << 20), 0o755).unwrap();
        fs::write(layout.images().join("layer"), "x").unwrap();
        let others = layout.server().join("others");
        fs::create_dir(&others).unwrap();
        sys::mount::tmpfs(&others, Some(4 << 20), 0o755).unwrap();
        for file in [root.join("thesis.txt"), root.join(".knarr-check-list"), others.join("notes")] {
            fs::write(file, "x").unwrap();
        }
        components::remove_mounts(&layout).unwrap();
        remove_folder(&layout).unwrap();
        let is_mounted = |path: &Path| sys::mount::is_mounted(path).unwrap();
        assert!(is_mounted(&root) && is_mounted(&layout.images()) && is_mounted(&others));
        assert_eq!(fs::read_dir(layout.images()).unwrap().count(), 0, "a place is emptied");
        assert!(others.join("notes").exists() && root.join("thesis.txt").exists());
        assert!(root.join(".knarr-check-list").exists());
        assert!(!layout.db().exists() && !layout.config().exists() && !layout.version().exists());
        let told = left(&layout).unwrap();
        assert_eq!(told.len(), 5, "three mounts and two files: {told:?}");
        sys::mount::detach_below(&root).unwrap();
    }
}
