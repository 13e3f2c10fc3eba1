//! The kubelet's folder, where storage drivers look for it.
//!
//! Charts of drivers mount `/var/lib/kubelet` into their Pods and expect what the kubelet tells them about to be there:
//! its registration sockets, and the places of Pods' volumes. So a Node in the usual data directory has its kubelet there,
//! as k3s has, unless somebody else is; any Node can be told with `root-dir`, upstream's flag. Which folder it is stays
//! written down until no Pod has anything there. Mounts that a driver makes in its Pod have to reach the host: where the
//! host's mounts are private, the folder is made a shared mount of its own.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::layout::Layout;

/// Where upstream's kubelet is. Source: `--root-dir`.
const USUAL: &str = "/var/lib/kubelet";
/// The data directory that comes with it.
const USUAL_DATA: &str = "/var/lib/knarr";
/// What a kubelet makes in its folder; the rest is of whoever shares it.
const OWN: [&str; 7] = [
    "pods",
    "device-plugins",
    "image_manager",
    "cpu_manager_state",
    "plugins/kubernetes.io",
    "plugins/hostpath.csi.knarr.io",
    "plugins_registry",
];

/// Decides which folder is the kubelet's from now on.
///
/// # Errors
/// Another one is asked for while Pods have volumes in the old one, or it cannot be written down.
pub(super) fn settle(layout: &Layout, asked: Option<&Path>) -> Result<()> {
    let known = layout.kubelet();
    let wanted = match asked {
        Some(path) => std::path::absolute(path)?,
        None if layout.kubelet_root().exists() || is_used(&known) => known.clone(),
        None => usual(layout, Path::new(USUAL)).unwrap_or_else(|| known.clone()),
    };
    if wanted == known {
        return if layout.kubelet_root().exists() { share(&known) } else { Ok(()) };
    }
    if is_used(&known) {
        bail!(
            "the kubelet's folder is {} as long as Pods have volumes there: drain the Node before root-dir becomes {}",
            known.display(),
            wanted.display()
        );
    }
    fs::create_dir_all(&wanted).with_context(|| format!("make {}", wanted.display()))?;
    let wanted = wanted.canonicalize().with_context(|| format!("find {}", wanted.display()))?;
    fs::create_dir_all(layout.agent())?;
    fs::write(layout.kubelet_root(), wanted.as_os_str().as_encoded_bytes())
        .with_context(|| format!("write {}", layout.kubelet_root().display()))?;
    share(&wanted)
}

/// Makes mounts below the folder reach every container that has it.
fn share(root: &Path) -> Result<()> {
    let all = sys::mount::mounts()?;
    let of_root = all.iter().rev().filter(|mount| root.starts_with(&mount.target));
    let is_shared =
        of_root.max_by_key(|mount| mount.target.components().count()).is_some_and(|mount| mount.is_shared);
    if is_shared {
        return Ok(());
    }
    if is_used(root) {
        tracing::warn!(folder = %root.display(), "it is not on a shared mount: what drivers mount in their Pods is not seen");
        return Ok(());
    }
    let options = sys::mount::BindOptions { recursive: true, ..sys::mount::BindOptions::default() };
    sys::mount::bind(root, root, options)?;
    sys::mount::set_propagation_of_all(root, sys::mount::Propagation::Shared)?;
    Ok(())
}

/// Takes the folder's own mount away, if it is ours: a disk that somebody has mounted there stays.
fn unshare(root: &Path) -> Result<()> {
    let is_ours = |mount: &sys::mount::MountEntry| {
        let inside = mount.root.strip_prefix("/").unwrap_or(&mount.root);
        mount.target == root && !inside.as_os_str().is_empty() && root.ends_with(inside)
    };
    while sys::mount::mounts()?.iter().any(is_ours) {
        sys::mount::detach(root)?;
    }
    Ok(())
}

/// Upstream's folder, for the usual data directory, if nobody has it.
fn usual(layout: &Layout, folder: &Path) -> Option<PathBuf> {
    let is_free = match fs::read_dir(folder) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) => error.kind() == ErrorKind::NotFound,
    };
    (layout.root() == Path::new(USUAL_DATA) && is_free).then(|| folder.to_owned())
}

fn is_used(root: &Path) -> bool {
    fs::read_dir(root.join("pods")).is_ok_and(|mut pods| pods.next().is_some())
}

/// Takes back what the kubelet has made in a folder of its own.
///
/// # Errors
/// Something there cannot be unmounted or removed.
pub(super) fn remove(layout: &Layout) -> Result<()> {
    let root = layout.kubelet();
    if root.starts_with(layout.root()) {
        for folder in ["pods", "plugins"] {
            sys::mount::detach_inside(&root.join(folder))?;
        }
        return unshare(&root);
    }
    for name in OWN {
        let path = root.join(name);
        sys::mount::detach_inside(&path)?;
        let kept: Vec<PathBuf> = sys::mount::mounts()?.into_iter().map(|mount| mount.target).collect();
        if path.is_dir() {
            sys::tree::empty_beside(&path, &kept).with_context(|| format!("empty {}", path.display()))?;
        }
        match sys::tree::remove_beside(&path, &kept) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("remove {}", path.display()));
            }
            _ => {}
        }
    }
    unshare(&root)?;
    for folder in [root.join("plugins"), root] {
        match fs::remove_dir(&folder) {
            Err(error)
                if !matches!(
                    error.kind(),
                    ErrorKind::NotFound | ErrorKind::DirectoryNotEmpty | ErrorKind::ResourceBusy
                ) =>
            {
                return Err(error).with_context(|| format!("remove {}", folder.display()));
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_stays_the_kubelets_while_pods_have_something_there() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        assert!(nix::unistd::geteuid().is_root(), "this test mounts: run it as root");
        let layout = Layout::new(&base.join("data")).unwrap();
        assert_eq!(layout.kubelet(), base.join("data/kubelet"));
        settle(&layout, None).unwrap();
        assert_eq!(layout.kubelet(), base.join("data/kubelet"));
        let (one, two) = (base.join("one"), base.join("two"));
        settle(&layout, Some(&one)).unwrap();
        assert_eq!(layout.kubelet(), one);
        let is_shared =
            |path: &Path| sys::mount::mounts().unwrap().iter().any(|m| m.target == path && m.is_shared);
        assert!(is_shared(&one) || is_shared(Path::new("/")));
        fs::create_dir_all(one.join("pods/u")).unwrap();
        fs::create_dir_all(one.join("plugins/others")).unwrap();
        settle(&layout, None).unwrap();
        assert_eq!(layout.kubelet(), one);
        let error = settle(&layout, Some(&two)).unwrap_err().to_string();
        assert!(error.contains("drain the Node"), "{error}");
        remove(&layout).unwrap();
        assert!(!sys::mount::is_mounted(&one).unwrap());
        assert!(one.join("plugins/others").exists() && !one.join("pods").exists());
    }

    #[test]
    fn upstreams_folder_is_taken_for_the_usual_data_if_nobody_has_it() {
        let dir = tempfile::tempdir().unwrap();
        let usual_data = Layout::new(Path::new(USUAL_DATA)).unwrap();
        let folder = dir.path().join("kubelet");
        assert_eq!(usual(&usual_data, &folder), Some(folder.clone()));
        fs::create_dir(&folder).unwrap();
        assert_eq!(usual(&usual_data, &folder), Some(folder.clone()));
        assert_eq!(usual(&Layout::new(dir.path()).unwrap(), &folder), None);
        fs::write(folder.join("config.yaml"), "").unwrap();
        assert_eq!(usual(&usual_data, &folder), None);
    }
}
