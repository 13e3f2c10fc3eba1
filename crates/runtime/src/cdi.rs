//! The container device interface: what a device's name means for a container, as files on the host say.
//!
//! A container that is given devices by name (`vendor.com/class=name`) gets what the specs in the configured folders say of
//! them: environment, device nodes, mounts, groups and hooks. Files are read when a container is made; of two folders the
//! later one counts, and two files of one folder that say different things about a device make it unknown. What this
//! runtime cannot do is refused, not left out. Source: the CDI specification, version 1.0.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use cri::v1;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::devices::{HostDevice, device};
use crate::refusal::Refusal;

mod spec;

use spec::{ContainerEdits, DeviceNode, Hook, Mount, Spec};

/// The folders where specs are looked for, least important first. Source: `cdi.DefaultSpecDirs`.
pub const DEFAULT_DIRS: [&str; 2] = ["/etc/cdi", "/var/run/cdi"];
const INJECTION_FAILED: &str = "CDI device injection failed";
/// A larger file is none.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// The edits of the specs beside what CRI's configuration can say: the rest has been put there.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Edits {
    /// Options of mounts, such as `nosuid`, by the place in the container.
    pub(crate) mount_options: BTreeMap<String, Vec<String>>,
    /// Hooks as the OCI document has them.
    pub(crate) hooks: Map<String, Value>,
    /// Groups that the process is in.
    pub(crate) groups: Vec<u32>,
    nodes: Vec<DeviceNode>,
}

/// Puts what the named devices mean into the container's configuration. Gives the configuration as it was asked for, and
/// what has no place in it.
///
/// # Errors
/// In containerd's words: a device is unknown, or asks for what cannot be done.
pub(crate) fn inject(
    dirs: &[PathBuf],
    config: &mut v1::ContainerConfig,
) -> Result<(v1::ContainerConfig, Edits), Refusal> {
    let asked = config.clone();
    let names: Vec<String> = config.cdi_devices.iter().map(|device| device.name.clone()).collect();
    if names.is_empty() {
        return Ok((asked, Edits::default()));
    }
    let specs = read(dirs);
    let found = resolve(&specs, &names);
    let found = found.map_err(|unknown| {
        let why = Refusal::Missing(format!("unresolvable CDI devices {}", unknown.join(", ")));
        Refusal::step(INJECTION_FAILED)(why)
    })?;
    let mut edits = Edits::default();
    for one in found {
        edits.apply(one, config).map_err(Refusal::step(INJECTION_FAILED))?;
    }
    Ok((asked, edits))
}

/// The specs of each folder; what is none is told and left out.
fn read(dirs: &[PathBuf]) -> Vec<Vec<Spec>> {
    dirs.iter().map(|dir| read_dir(dir)).collect()
}

fn read_dir(dir: &Path) -> Vec<Spec> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.retain(|path| {
        let kind = path.extension().and_then(|kind| kind.to_str());
        matches!(kind, Some("json" | "yaml"))
    });
    paths.sort();
    let read = |path: PathBuf| match spec::read(&path, FILE_BYTES_MAX) {
        Ok(spec) => Some(spec),
        Err(error) => {
            tracing::warn!(error = base::error_chain(&error), path = %path.display(), "a CDI spec was left out");
            None
        }
    };
    paths.into_iter().filter_map(read).collect()
}

/// What applies for the devices, in order: each spec's own edits once, before those of its first device.
fn resolve<'a>(dirs: &'a [Vec<Spec>], names: &[String]) -> Result<Vec<&'a ContainerEdits>, Vec<String>> {
    let (mut all, mut unknown, mut seen) = (Vec::new(), Vec::new(), BTreeSet::new());
    for name in names {
        let Some((spec, device)) = find(dirs, name) else {
            unknown.push(name.clone());
            continue;
        };
        if seen.insert(std::ptr::from_ref(spec)) {
            all.push(&spec.container_edits);
        }
        all.push(device);
    }
    if unknown.is_empty() { Ok(all) } else { Err(unknown) }
}

fn find<'a>(dirs: &'a [Vec<Spec>], name: &str) -> Option<(&'a Spec, &'a ContainerEdits)> {
    let (kind, device) = name.split_once('=')?;
    for specs in dirs.iter().rev() {
        let of_kind = specs.iter().filter(|spec| spec.kind == kind);
        let mut found = of_kind.flat_map(|spec| {
            let devices = spec.devices.iter().filter(|known| known.name == device);
            devices.map(move |known| (spec, &known.container_edits))
        });
        match (found.next(), found.next()) {
            (None, _) => {}
            (Some(one), None) => return Some(one),
            // Nobody can say which of them is meant.
            (Some(_), Some(_)) => return None,
        }
    }
    None
}

impl Edits {
    fn apply(&mut self, edits: &ContainerEdits, config: &mut v1::ContainerConfig) -> Result<(), Refusal> {
        for variable in &edits.env {
            let (key, value) = variable
                .split_once('=')
                .ok_or_else(|| Refusal::Invalid(format!("invalid environment variable {variable:?}")))?;
            config.envs.retain(|known| known.key != key);
            config.envs.push(v1::KeyValue { key: key.to_owned(), value: value.to_owned() });
        }
        for mount in &edits.mounts {
            let (made, options) = mount_of(mount)?;
            config.mounts.retain(|known| known.container_path != made.container_path);
            self.mount_options.insert(made.container_path.clone(), options);
            config.mounts.push(made);
        }
        for node in &edits.device_nodes {
            self.nodes.retain(|known| known.path != node.path);
            self.nodes.push(node.clone());
        }
        for hook in &edits.hooks {
            let (name, made) = hook_of(hook)?;
            let list = self.hooks.entry(name).or_insert_with(|| json!([]));
            if let Some(list) = list.as_array_mut() {
                list.push(made);
            }
        }
        self.groups.extend(edits.additional_gids.iter().filter(|gid| **gid != 0));
        let refused = [("intelRdt", &edits.intel_rdt), ("netDevices", &edits.net_devices)];
        match refused.into_iter().find(|(_, value)| value.is_some()) {
            Some((field, _)) => Err(not_supported(field)),
            None => Ok(()),
        }
    }

    /// The device nodes; those without an owner belong to the user `owner` of the container's process.
    ///
    /// # Errors
    /// A node is not there.
    pub(crate) fn devices(&self, owner: (u32, u32)) -> Result<Vec<HostDevice>, Refusal> {
        let made = self.nodes.iter().map(|node| device_of(node, owner));
        made.collect::<Result<_, _>>().map_err(Refusal::step(INJECTION_FAILED))
    }
}

fn not_supported(what: impl std::fmt::Display) -> Refusal {
    Refusal::Unsupported(format!("{what} is not supported by this runtime"))
}

fn mount_of(mount: &Mount) -> Result<(v1::Mount, Vec<String>), Refusal> {
    let kind = mount.kind.as_deref().unwrap_or_default();
    if !matches!(kind, "" | "bind" | "none") {
        return Err(not_supported(format_args!("mount {:?} of type {kind:?}", mount.container_path)));
    }
    if !mount.container_path.starts_with('/') || !mount.host_path.starts_with('/') {
        let why = format!("mount {:?} from {:?} must be absolute", mount.container_path, mount.host_path);
        return Err(Refusal::Invalid(why));
    }
    // Else it would be made, as the sources of other mounts are.
    if !Path::new(&mount.host_path).exists() {
        return Err(Refusal::Missing(format!("failed to stat CDI mount source {:?}", mount.host_path)));
    }
    let has = |name: &str| mount.options.iter().any(|option| option == name);
    let propagation = if has("rshared") || has("shared") {
        v1::MountPropagation::PropagationBidirectional
    } else if has("rslave") || has("slave") {
        v1::MountPropagation::PropagationHostToContainer
    } else {
        v1::MountPropagation::PropagationPrivate
    };
    let made = v1::Mount {
        container_path: mount.container_path.clone(),
        host_path: mount.host_path.clone(),
        readonly: has("ro"),
        propagation: propagation.into(),
        ..v1::Mount::default()
    };
    const SAID: [&str; 10] =
        ["bind", "rbind", "ro", "rw", "private", "rprivate", "slave", "rslave", "shared", "rshared"];
    let rest = mount.options.iter().filter(|option| !SAID.contains(&option.as_str()));
    Ok((made, rest.cloned().collect()))
}

/// When the OCI runtime specification lets hooks run.
const HOOKS: [&str; 6] =
    ["prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"];

fn hook_of(hook: &Hook) -> Result<(String, Value), Refusal> {
    let name = &hook.hook_name;
    if !HOOKS.contains(&name.as_str()) {
        return Err(Refusal::Invalid(format!("invalid hook, hook name {name:?}")));
    }
    if !hook.path.starts_with('/') {
        return Err(Refusal::Invalid(format!("hook {name:?} with path {:?} must be absolute", hook.path)));
    }
    let mut made = json!({ "path": hook.path, "args": hook.args, "env": hook.env });
    if let Some(timeout) = hook.timeout {
        made["timeout"] = json!(timeout);
    }
    Ok((name.clone(), made))
}

fn device_of(node: &DeviceNode, (uid, gid): (u32, u32)) -> Result<HostDevice, Refusal> {
    let source = PathBuf::from(node.host_path.as_deref().unwrap_or(&node.path));
    let kind = node.kind.as_deref().unwrap_or_default();
    let found = device(&source, Path::new(&node.path), "rwm");
    let missing =
        || Refusal::Missing(format!("failed to stat CDI host device {:?}", source.display().to_string()));
    let (is_block, major, minor) = match (kind, node.major, node.minor) {
        ("b" | "c" | "u", Some(major), minor) if major != 0 => (kind == "b", major, minor.unwrap_or(0)),
        ("" | "b" | "c" | "u", _, _) => {
            let found = found.as_ref().ok_or_else(missing)?;
            (found.is_block, found.major, found.minor)
        }
        (other, _, _) => {
            return Err(not_supported(format_args!("device {:?} of type {other:?}", node.path)));
        }
    };
    let own = |own: u32| Some(own).filter(|own| *own > 0);
    let host = |read: fn(&HostDevice) -> u32| found.as_ref().map_or(0, read);
    Ok(HostDevice {
        path: node.path.clone(),
        is_block,
        major,
        minor,
        mode: node
            .file_mode
            .map_or_else(|| found.as_ref().map_or(0o666, |found| found.mode), |mode| mode & 0o777),
        uid: node.uid.or(own(uid)).unwrap_or_else(|| host(|found| found.uid)),
        gid: node.gid.or(own(gid)).unwrap_or_else(|| host(|found| found.gid)),
        access: node.permissions.clone().filter(|text| !text.is_empty()).unwrap_or_else(|| "rwm".to_owned()),
        source,
    })
}

#[cfg(test)]
mod tests;
