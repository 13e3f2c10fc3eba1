//! A spec as it stands in a file, JSON or YAML, checked as a whole: a file with an error says nothing.

use std::path::Path;

use serde_json::Value;

use super::Deserialize;

/// What is wrong with a file.
#[derive(Debug, thiserror::Error)]
pub(super) enum SpecError {
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error("it is no file, or too large")]
    File,
    #[error(transparent)]
    Yaml(#[from] serde_saphyr::Error),
    #[error("invalid {0} {1:?}")]
    Invalid(&'static str, String),
    #[error("it has no devices")]
    NoDevices,
}

/// A vendor's devices of one class.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Spec {
    pub(super) cdi_version: String,
    /// `vendor.com/class`.
    pub(super) kind: String,
    pub(super) devices: Vec<Device>,
    /// What applies for any of the devices.
    pub(super) container_edits: ContainerEdits,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Device {
    pub(super) name: String,
    pub(super) container_edits: ContainerEdits,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ContainerEdits {
    /// `NAME=value`.
    pub(super) env: Vec<String>,
    pub(super) device_nodes: Vec<DeviceNode>,
    pub(super) mounts: Vec<Mount>,
    pub(super) hooks: Vec<Hook>,
    pub(super) additional_gids: Vec<u32>,
    pub(super) intel_rdt: Option<Value>,
    pub(super) net_devices: Option<Value>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct DeviceNode {
    /// In the container.
    pub(super) path: String,
    /// On the host; the same if it says nothing.
    pub(super) host_path: Option<String>,
    /// `b`, `c` or `u`.
    #[serde(rename = "type")]
    pub(super) kind: Option<String>,
    pub(super) major: Option<u64>,
    pub(super) minor: Option<u64>,
    pub(super) file_mode: Option<u32>,
    /// `r`, `w`, `m`.
    pub(super) permissions: Option<String>,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Mount {
    pub(super) host_path: String,
    pub(super) container_path: String,
    pub(super) options: Vec<String>,
    #[serde(rename = "type")]
    pub(super) kind: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Hook {
    pub(super) hook_name: String,
    pub(super) path: String,
    pub(super) args: Vec<String>,
    pub(super) env: Vec<String>,
    pub(super) timeout: Option<i64>,
}

/// Reads a file.
///
/// # Errors
/// What is wrong with it.
pub(super) fn read(path: &Path, bytes_max: u64) -> Result<Spec, SpecError> {
    let size = std::fs::metadata(path)?;
    if !size.is_file() || size.len() > bytes_max {
        return Err(SpecError::File);
    }
    parse(&std::fs::read_to_string(path)?)
}

/// Reads a spec; JSON is YAML.
pub(super) fn parse(text: &str) -> Result<Spec, SpecError> {
    let spec: Spec = serde_saphyr::from_str(text)?;
    let is_known = spec.cdi_version.split('.').next().is_some_and(|major| major == "0" || major == "1");
    if !is_known {
        return Err(SpecError::Invalid("version", spec.cdi_version));
    }
    let (vendor, class) = spec.kind.split_once('/').unwrap_or_default();
    if !is_name(vendor, "_-.") || !is_name(class, "_-.") {
        return Err(SpecError::Invalid("kind", spec.kind));
    }
    if let Some(device) = spec.devices.iter().find(|device| !is_name(&device.name, "_-.:")) {
        return Err(SpecError::Invalid("device name", device.name.clone()));
    }
    if spec.devices.is_empty() {
        return Err(SpecError::NoDevices);
    }
    Ok(spec)
}

/// Letters, digits, and these in between.
fn is_name(text: &str, between: &str) -> bool {
    let is_good = |c: char| c.is_ascii_alphanumeric() || between.contains(c);
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.ends_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(is_good)
}
