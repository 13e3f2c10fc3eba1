//! Putting the plugins where a container runtime looks for them: links to the program, and a configuration that names
//! them.
//!
//! Nothing of anybody else's is replaced.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use machinery::net::Cidrs;
use serde_json::{Value, json};

use super::{Kind, LEASES, STATE, table_name};
use crate::cleanup;
use crate::files::{remove_if_there, write_whole};
use crate::network::plugins_of_network;
use crate::plugins::PREFIX;
use crate::types::CniError;

/// The network's name in the configuration that is installed, and the file's.
const NETWORK: &str = "knarr";
const FILE: &str = "10-knarr.conflist";

/// The content of the installed configuration.
#[derive(Clone, Debug)]
pub struct Installed {
    /// The bridge.
    pub bridge: String,
    /// The addresses of this node's Pods. Source: `Node.spec.podCIDR`.
    pub pod_cidrs: Cidrs,
    /// The addresses of all Pods: what goes elsewhere leaves with the node's address.
    pub cluster_cidrs: Cidrs,
    /// Largest packet in bytes, the kernel's default if `None`.
    pub mtu: Option<u32>,
    /// The directory of leases and rules; in the usual places if `None`.
    pub state_dir: Option<PathBuf>,
}

impl Installed {
    /// Runtimes that do not know of `cniVersions` take 1.0.0.
    fn conflist(&self) -> Value {
        let place = |name: &str, usual: &str| match &self.state_dir {
            Some(folder) => json!(folder.join(name)),
            None => json!(usual),
        };
        let mut plugins = plugins_of_network(&self.bridge, self.pod_cidrs, self.cluster_cidrs, self.mtu);
        for (plugin, kind) in plugins.iter_mut().zip([Kind::Bridge, Kind::Portmap, Kind::Bandwidth]) {
            plugin["type"] = json!(link_name(kind));
            plugin["stateDir"] = place("state", STATE);
        }
        let [bridge, ..] = &mut plugins;
        bridge["capabilities"] = json!({ "ips": true, "mac": true });
        bridge["ipam"]["type"] = json!(link_name(Kind::HostLocal));
        bridge["ipam"]["dataDir"] = place("leases", LEASES);
        json!({
            "cniVersion": "1.0.0",
            "cniVersions": ["0.3.1", "0.4.0", "1.0.0", "1.1.0"],
            "name": NETWORK,
            "plugins": plugins,
        })
    }
}

/// Containerd calls `loopback` by that name; the others have names that are nobody else's.
fn link_name(kind: Kind) -> String {
    match kind {
        Kind::Loopback => kind.name().to_owned(),
        _ => format!("{PREFIX}{}", kind.name()),
    }
}

/// Links all plugins under upstream's names: for plugins that delegate to them.
///
/// # Errors
/// The folder cannot be written.
pub fn link_plain(folder: &Path, program: &Path) -> Result<(), CniError> {
    fs::create_dir_all(folder).map_err(CniError::state(folder))?;
    Kind::ALL.into_iter().try_for_each(|kind| link(&folder.join(kind.name()), program))
}

/// Links the plugins in `bin_dir` and writes the configuration to `conf_dir`. Returns what was made.
///
/// # Errors
/// A folder cannot be written.
pub fn install(
    bin_dir: &Path,
    conf_dir: &Path,
    program: &Path,
    conf: &Installed,
) -> Result<Vec<PathBuf>, CniError> {
    let mut made = Vec::new();
    for folder in [bin_dir, conf_dir] {
        fs::create_dir_all(folder).map_err(CniError::state(folder))?;
    }
    for kind in Kind::ALL {
        let path = bin_dir.join(link_name(kind));
        if kind == Kind::Loopback && path.exists() && !is_own(&path, program) {
            continue;
        }
        link(&path, program)?;
        made.push(path);
    }
    let path = conf_dir.join(FILE);
    let text = serde_json::to_vec_pretty(&conf.conflist())
        .map_err(|error| CniError::state(&path)(io::Error::other(error)))?;
    // The last, so that whoever reads it finds the plugins.
    write_whole(&path, &text)?;
    made.push(path);
    Ok(made)
}

/// Takes back what [`install`] made, and the network's bridge, rules and leases. Returns what was removed.
///
/// # Errors
/// Something cannot be removed.
pub fn uninstall(bin_dir: &Path, conf_dir: &Path, program: &Path) -> Result<Vec<PathBuf>, CniError> {
    let mut removed = Vec::new();
    let file = conf_dir.join(FILE);
    let conf: Option<Value> = fs::read(&file).ok().and_then(|text| serde_json::from_slice(&text).ok());
    if let Some(conf) = conf {
        let text = |place: &str| conf.pointer(place).and_then(Value::as_str);
        if let Some(bridge) = text("/plugins/0/bridge") {
            cleanup::remove_links(bridge, &table_name(NETWORK))?;
        }
        cleanup::delete_tables(&table_name(NETWORK))?;
        for folder in [text("/plugins/0/ipam/dataDir"), text("/plugins/0/stateDir")].into_iter().flatten() {
            let path = Path::new(folder).join(NETWORK);
            match fs::remove_dir_all(&path) {
                Ok(()) => removed.push(path),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(CniError::state(path)(error)),
            }
        }
        // The last: it says where the others are.
        remove_if_there(&file)?;
        removed.push(file);
    }
    let links = Kind::ALL.map(|kind| bin_dir.join(link_name(kind)));
    for path in links.into_iter().filter(|path| is_own(path, program)) {
        remove_if_there(&path)?;
        removed.push(path);
    }
    Ok(removed)
}

fn is_own(path: &Path, program: &Path) -> bool {
    fs::read_link(path).is_ok_and(|target| target == program)
}

/// In one step: whoever runs it finds the old or the new.
fn link(path: &Path, program: &Path) -> Result<(), CniError> {
    if is_own(path, program) {
        return Ok(());
    }
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    remove_if_there(&beside)?;
    symlink(program, &beside).and_then(|()| fs::rename(&beside, path)).map_err(CniError::state(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_installed_is_taken_back_and_what_is_not_ours_stays() {
        let dir = tempfile::tempdir().unwrap();
        let (bin, net) = (dir.path().join("bin"), dir.path().join("net.d"));
        let conf = Installed {
            bridge: "knarr-none0".into(),
            pod_cidrs: "10.42.3.0/24".parse().unwrap(),
            cluster_cidrs: "10.42.0.0/16".parse().unwrap(),
            mtu: None,
            state_dir: Some(dir.path().join("kept")),
        };
        let program = Path::new("/usr/local/bin/knarr");
        let names = |folder: &Path| {
            let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
            let mut names: Vec<String> = entries.map(|name| name.into_string().unwrap()).collect();
            names.sort();
            names
        };
        let host = sys::netns::NetNs::anonymous().unwrap();
        host.run(|| {
            install(&bin, &net, program, &conf).unwrap();
            install(&bin, &net, program, &conf).unwrap();
            assert_eq!(
                names(&bin),
                ["knarr-bandwidth", "knarr-bridge", "knarr-host-local", "knarr-portmap", "loopback"]
            );
            assert_eq!(names(&net), [FILE]);
            fs::remove_file(bin.join("loopback")).unwrap();
            fs::write(bin.join("loopback"), "another's").unwrap();
            install(&bin, &net, program, &conf).unwrap();
            let kept = ["leases/knarr", "state/knarr"].map(|name| dir.path().join("kept").join(name));
            kept.iter().for_each(|folder| fs::create_dir_all(folder).unwrap());
            uninstall(&bin, &net, program).unwrap();
            assert!(kept.iter().all(|folder| !folder.exists()));
            Ok(())
        })
        .unwrap();
        assert_eq!((names(&bin), names(&net)), (vec!["loopback".to_owned()], Vec::new()));
    }
}
