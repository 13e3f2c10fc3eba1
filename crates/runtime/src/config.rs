//! What a runtime is told when it is opened.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use crate::cdi;
use crate::network::PodNetwork;

/// The settings of a runtime.
#[derive(Clone)]
pub struct Config {
    /// Everything that it writes is below.
    pub data_dir: PathBuf,
    /// The cgroup of sandboxes without a parent and of the shims, such as `/knarr-1a2b3c4d`.
    pub cgroup_root: String,
    /// The command that runs [`crate::shim::main`]; what it is to be is added to it.
    pub shim_command: Vec<OsString>,
    /// Binaries of other OCI runtimes, by the name of their handler.
    pub handlers: BTreeMap<String, PathBuf>,
    /// Connects sandboxes; without it they have a loopback interface only.
    pub network: Option<Arc<dyn PodNetwork>>,
    /// The folders where specs of devices by name are looked for, least important first.
    pub cdi_dirs: Vec<PathBuf>,
    /// The settings of registries: a file in k3s' form, which need not exist.
    pub registries: PathBuf,
    /// The set that tasks run in.
    pub tasks: base::Tasks,
    /// Wall clock.
    pub clock: base::Clock,
    /// For ids.
    pub random: base::Random,
}

impl Config {
    /// A runtime in `data_dir` whose shims are this program again, called as `shim`.
    pub fn new(data_dir: PathBuf, cgroup_root: String, tasks: base::Tasks) -> Self {
        Self {
            data_dir,
            cgroup_root,
            shim_command: vec!["/proc/self/exe".into(), "shim".into()],
            handlers: BTreeMap::new(),
            network: None,
            cdi_dirs: cdi::DEFAULT_DIRS.iter().map(PathBuf::from).collect(),
            registries: "/etc/knarr/registries.yaml".into(),
            tasks,
            clock: base::Clock::system(),
            random: base::Random::from_system(),
        }
    }
}
