//! Where everything of one cluster lies: under its data directory, and named after it.

use std::path::{Path, PathBuf};

/// The paths of a cluster.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    root: PathBuf,
}

impl Layout {
    /// The layout of the cluster in `root`, which need not exist yet.
    pub(crate) fn new(root: &Path) -> std::io::Result<Self> {
        Ok(Self { root: std::path::absolute(root)? })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Short, stable, different for each data directory: names links, cgroups and nft tables.
    pub(crate) fn cluster_id(&self) -> String {
        // FNV-1a: stable across builds, which `DefaultHasher` does not promise.
        let bytes = self.root.as_os_str().as_encoded_bytes();
        let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
        format!("{:08x}", (hash >> 32) ^ (hash & 0xffff_ffff))
    }

    /// The control plane's folder: all that its unprivileged user may see.
    pub(crate) fn server(&self) -> PathBuf {
        self.root.join("server")
    }

    /// The embedded store's folder.
    pub(crate) fn db(&self) -> PathBuf {
        self.server().join("db")
    }

    /// The Node's folder.
    pub(crate) fn agent(&self) -> PathBuf {
        self.root.join("agent")
    }

    pub(crate) fn agent_kubeconfig(&self) -> PathBuf {
        self.agent().join("kubelet.kubeconfig")
    }

    pub(crate) fn proxy_kubeconfig(&self) -> PathBuf {
        self.agent().join("kube-proxy.kubeconfig")
    }

    pub(crate) fn ingress_kubeconfig(&self) -> PathBuf {
        self.agent().join("ingress.kubeconfig")
    }

    /// The kubelet's folder: Pods' volumes, and where plugins and drivers listen. Below the cluster's own, unless
    /// [`Layout::kubelet_root`] names another.
    pub(crate) fn kubelet(&self) -> PathBuf {
        let named = std::fs::read_to_string(self.kubelet_root()).ok().map(PathBuf::from);
        named.filter(|path| path.is_absolute()).unwrap_or_else(|| self.root.join("kubelet"))
    }

    /// Says where the kubelet's folder is.
    pub(crate) fn kubelet_root(&self) -> PathBuf {
        self.agent().join("kubelet-root")
    }

    /// The other Nodes on this host, a folder each.
    pub(crate) fn nodes(&self) -> PathBuf {
        self.root.join("nodes")
    }

    /// Pods' logs.
    pub(crate) fn pod_logs(&self) -> PathBuf {
        self.root.join("kubelet/logs")
    }

    /// The volumes of the host-path driver.
    pub(crate) fn csi_hostpath(&self) -> PathBuf {
        self.root.join("csi-hostpath")
    }

    /// The container runtime's folder: sandboxes, containers, images.
    pub(crate) fn runtime(&self) -> PathBuf {
        self.root.join("runtime")
    }

    /// The built-in runtime's socket, in a folder for root alone.
    pub(crate) fn cri_socket(&self) -> PathBuf {
        self.root.join("run/cri.sock")
    }

    /// Where API servers were last seen.
    pub(crate) fn servers(&self) -> PathBuf {
        self.agent().join("servers.json")
    }

    /// Which tunnels to API servers stand.
    pub(crate) fn tunnels(&self) -> PathBuf {
        self.agent().join("tunnels.json")
    }

    /// The range of this Node's Pods.
    pub(crate) fn pod_cidr(&self) -> PathBuf {
        self.agent().join("pod-cidr")
    }

    /// The routes to other Nodes' Pods that were made on this host.
    pub(crate) fn pod_routes(&self) -> PathBuf {
        self.agent().join("pod-routes.json")
    }

    /// The runtime's images.
    pub(crate) fn images(&self) -> PathBuf {
        self.runtime().join("images")
    }

    /// What devices' names mean for containers of the built-in runtime, beside the host's own folders.
    pub(crate) fn cdi(&self) -> PathBuf {
        self.root.join("cdi")
    }

    /// Archives that are put here become images.
    pub(crate) fn images_folder(&self) -> PathBuf {
        self.root.join("images")
    }

    /// Archives of that folder that became none, and why; none if they are not for us to know.
    pub(crate) fn bad_archives(&self) -> Vec<(String, String)> {
        let failed = runtime::images::folder::failed(&self.images()).into_iter();
        let failed = failed.map(|(name, error)| (self.images_folder().join(name), error));
        // One that was removed is nobody's trouble any more.
        failed
            .filter(|(path, _)| path.exists())
            .map(|(path, error)| (path.display().to_string(), error))
            .collect()
    }

    /// Addresses and attachments of Pods.
    pub(crate) fn cni(&self) -> PathBuf {
        self.root.join("cni")
    }

    /// Says that the folder is a cluster's, and in which form things lie here. The first to come, the last to go.
    pub(crate) fn version(&self) -> PathBuf {
        self.root.join("version")
    }

    /// For controllers that run outside, when `--disable controller-manager` asks for it.
    pub(crate) fn controller_manager_kubeconfig(&self) -> PathBuf {
        self.server().join("cred/controller-manager.kubeconfig")
    }

    /// For the controllers of a cloud that run outside, when `--cloud-provider external` asks for them.
    pub(crate) fn cloud_controller_manager_kubeconfig(&self) -> PathBuf {
        self.server().join("cred/cloud-controller-manager.kubeconfig")
    }

    /// For a scheduler that runs outside, when `--disable scheduler` asks for it.
    pub(crate) fn scheduler_kubeconfig(&self) -> PathBuf {
        self.server().join("cred/scheduler.kubeconfig")
    }

    /// What the last `up` or `server` was told.
    pub(crate) fn config(&self) -> PathBuf {
        self.root.join("config.json")
    }

    /// Locked by the supervisor while it runs; holds its process id.
    pub(crate) fn lock(&self) -> PathBuf {
        self.root.join("knarr.pid")
    }

    /// Locked by a part that runs alone; holds its process id.
    pub(crate) fn part_lock(&self, part: &str) -> PathBuf {
        self.root.join(format!("{part}.pid"))
    }

    /// Which processes are the cluster's parts.
    pub(crate) fn parts(&self) -> PathBuf {
        self.root.join("parts")
    }

    /// What the keys that several servers share are sealed with. Root's alone: the control plane has no use for it.
    pub(crate) fn token(&self) -> PathBuf {
        self.root.join("token")
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.root.join("knarr.log")
    }

    /// Which kubeconfigs outside of this folder have the cluster's entries.
    pub(crate) fn kubeconfigs(&self) -> PathBuf {
        self.root.join("kubeconfigs.json")
    }

    /// What the folder begins with in which a check of the host tries something, before its process's id. It stays where
    /// that process is killed, until the next check.
    pub(crate) const CHECK: &str = ".knarr-check-";

    /// Whether knarr makes what has this name in the root. What else lies there is somebody else's.
    pub(crate) fn is_own(name: &str) -> bool {
        Self::OWN.contains(&name) || Self::checker(name).is_some()
    }

    /// The id of the process whose check has a folder of this name.
    pub(crate) fn checker(name: &str) -> Option<&str> {
        let is_number = |text: &&str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        name.strip_prefix(Self::CHECK).filter(is_number)
    }

    /// All that knarr makes in the root, by name, but for the folders of checks.
    const OWN: [&str; 24] = [
        "server",
        "agent",
        "nodes",
        "kubelet",
        "csi-hostpath",
        "runtime",
        "run",
        "cdi",
        "images",
        "cni",
        "config.json",
        "config.new",
        "knarr.pid",
        "kubelet.pid",
        "proxy.pid",
        "parts",
        "token",
        "token.new",
        "knarr.log",
        "kubeconfigs.json",
        "kubeconfigs.json.new",
        "admin.kubeconfig",
        "admin.kubeconfig.new",
        "version.new",
    ];

    /// Folders that are emptied also where somebody has mounted a disk for them. The mounts stay.
    pub(crate) fn places(&self) -> [PathBuf; 10] {
        [
            self.server(),
            self.db(),
            self.agent(),
            self.root.join("kubelet"),
            self.root.join("kubelet/pods"),
            self.csi_hostpath(),
            self.runtime(),
            self.runtime().join("sandboxes"),
            self.images(),
            self.cni(),
        ]
    }

    /// The administrator's kubeconfig.
    pub(crate) fn admin_kubeconfig(&self) -> PathBuf {
        self.root.join("admin.kubeconfig")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_clusters_have_two_ids() {
        let id = |path: &str| Layout::new(Path::new(path)).map(|layout| layout.cluster_id()).ok();
        assert_ne!(id("/a"), id("/b"));
        assert_eq!(id("/a"), id("/a"));
        assert_eq!(id("/a").map(|id| id.len()), Some(8));
    }
}
