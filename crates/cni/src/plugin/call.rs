//! A call of a plugin, read from its environment and configuration. Source: CNI specification 1.1.0, section 2.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::attachment::Attachment;
use crate::plugins::Attached;
use crate::types::{CniError, CniResult, ErrorBody, PortMapping, VERSIONS, is_at_least, is_name};

/// Codes of errors. Source: CNI specification 1.1.0, "Error"; the eighth is libcni's.
pub(super) mod code {
    pub(crate) const INCOMPATIBLE_VERSION: u32 = 1;
    pub(crate) const UNSUPPORTED_FIELD: u32 = 2;
    pub(crate) const INVALID_ENVIRONMENT: u32 = 4;
    pub(crate) const IO: u32 = 5;
    pub(crate) const DECODING: u32 = 6;
    pub(crate) const INVALID_CONFIG: u32 = 7;
    pub(crate) const INVALID_NETNS: u32 = 8;
    pub(crate) const NOT_AVAILABLE: u32 = 50;
    /// libcni's own, for everything else.
    pub(crate) const INTERNAL: u32 = 999;
}

/// An interface's name has at most so many bytes.
const IFNAME_BYTES_MAX: usize = 15;

/// `CNI_COMMAND`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Add,
    Del,
    Check,
    Gc,
    Status,
    Version,
}

/// A verb's name, since which version of the specification it is there, and which variables it must have.
type VerbRow = (&'static str, Verb, (u32, u32), &'static [&'static str]);

const VERBS: [VerbRow; 6] = [
    ("ADD", Verb::Add, (0, 1), &["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"]),
    ("DEL", Verb::Del, (0, 1), &["CNI_CONTAINERID", "CNI_IFNAME"]),
    ("CHECK", Verb::Check, (0, 4), &["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"]),
    ("GC", Verb::Gc, (1, 1), &[]),
    ("STATUS", Verb::Status, (1, 1), &[]),
    ("VERSION", Verb::Version, (0, 1), &[]),
];

/// What a plugin is asked to do.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) verb: Verb,
    pub(super) network: String,
    pub(super) attachment: Attachment,
    /// For GC.
    pub(super) attached: Attached,
    pub(super) conf: Value,
}

impl Call {
    pub(super) fn read(env: impl Fn(&str) -> Option<String>, conf: Value) -> Result<Self, ErrorBody> {
        let set = |name: &str| env(name).filter(|value| !value.is_empty());
        let command = set("CNI_COMMAND").ok_or_else(|| missing(&["CNI_COMMAND"]))?;
        let row = VERBS.iter().find(|(name, ..)| *name == command);
        let (name, verb, since, needed) = row
            .ok_or_else(|| error(code::INVALID_ENVIRONMENT, format!("unknown CNI_COMMAND: {command}"), ""))?;
        let absent: Vec<&str> = needed.iter().copied().filter(|name| set(name).is_none()).collect();
        if !absent.is_empty() {
            return Err(missing(&absent));
        }
        let network = conf.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
        if *verb != Verb::Version {
            check_conf(&conf, &network, name, *since)?;
        }
        let attachment = read_attachment(&set, &conf)?;
        let may_be_own =
            set("CNI_NETNS_OVERRIDE").is_some_and(|it| it == "1" || it.eq_ignore_ascii_case("true"));
        if matches!(verb, Verb::Add | Verb::Del) && !may_be_own && is_own_netns(&attachment.netns_path) {
            let msg = "plugin's netns and netns from CNI_NETNS should not be the same";
            return Err(error(code::INVALID_NETNS, msg.to_owned(), ""));
        }
        let attached = if *verb == Verb::Gc { read_attached(&conf)? } else { Attached::default() };
        Ok(Self { verb: *verb, network, attachment, attached, conf })
    }

    /// The result of the plugin before this one.
    pub(super) fn previous(&self) -> Result<Option<CniResult>, CniError> {
        let Some(previous) = self.conf.get("prevResult").filter(|value| !value.is_null()) else {
            return Ok(None);
        };
        let invalid = |error: serde_json::Error| CniError::Config {
            path: self.network.clone().into(),
            reason: format!("prevResult: {error}"),
        };
        serde_json::from_value(previous.clone()).map(Some).map_err(invalid)
    }
}

/// One that is gone is nobody's.
fn is_own_netns(path: &Path) -> bool {
    let of = |path: &Path| fs::metadata(path).ok().map(|it| (it.dev(), it.ino()));
    let own = of(Path::new("/proc/thread-self/ns/net"));
    own.is_some() && of(path) == own
}

fn check_conf(conf: &Value, network: &str, command: &str, since: (u32, u32)) -> Result<(), ErrorBody> {
    let version = conf.get("cniVersion").and_then(Value::as_str).unwrap_or("0.1.0");
    if !VERSIONS.contains(&version) {
        let details = format!("config is {version:?}, plugin supports {VERSIONS:?}");
        return Err(error(code::INCOMPATIBLE_VERSION, "incompatible CNI versions".into(), &details));
    }
    if !is_at_least(version, since) {
        let details = format!("config is {version:?}");
        let msg = format!("config version does not allow {command}");
        return Err(error(code::INCOMPATIBLE_VERSION, msg, &details));
    }
    if network.is_empty() {
        return Err(error(code::INVALID_CONFIG, "missing network name".into(), ""));
    }
    if !is_name(network) {
        return Err(error(code::INVALID_CONFIG, "invalid characters found in network name".into(), network));
    }
    Ok(())
}

/// Wishes come from the runtime, from `args` of the configuration, or from `CNI_ARGS`: the first that says something.
fn read_attachment(set: &impl Fn(&str) -> Option<String>, conf: &Value) -> Result<Attachment, ErrorBody> {
    let container_id = set("CNI_CONTAINERID").unwrap_or_default();
    if !container_id.is_empty() && !is_name(&container_id) {
        let msg = "invalid characters in containerID".to_owned();
        return Err(error(code::INVALID_ENVIRONMENT, msg, &container_id));
    }
    let ifname = set("CNI_IFNAME").unwrap_or_default();
    let is_odd = |char: char| char == '/' || char == ':' || char.is_whitespace();
    if ifname.len() > IFNAME_BYTES_MAX || ifname == "." || ifname == ".." || ifname.contains(is_odd) {
        let msg = "interface name must be a name of at most 15 bytes without / : and spaces".to_owned();
        return Err(error(code::INVALID_ENVIRONMENT, msg, &ifname));
    }
    let arguments = set("CNI_ARGS").unwrap_or_default();
    let argument = |name: &str| {
        let mut pairs = arguments.split(';').filter_map(|pair| pair.split_once('='));
        pairs.find(|(found, _)| *found == name).map(|(_, value)| value.to_owned())
    };
    let told = conf.get("runtimeConfig").and_then(Value::as_object).cloned().unwrap_or_default();
    let invalid = |failed: serde_json::Error| {
        error(code::INVALID_CONFIG, "invalid runtimeConfig.portMappings".into(), &failed.to_string())
    };
    let ports = told.get("portMappings").filter(|ports| !ports.is_null()).cloned();
    let port_mappings: Vec<PortMapping> = ports
        .map_or(Ok(Vec::new()), |ports| serde_json::from_value(named_as_usual(ports)))
        .map_err(invalid)?;
    let mut capabilities = Map::new();
    let wishes =
        [("ips", argument("IP").map(|ip| json!([ip]))), ("mac", argument("MAC").map(|mac| json!(mac)))];
    for (name, last) in wishes {
        let from_args = conf.pointer(&format!("/args/cni/{name}"));
        let wish = told.get(name).or(from_args).filter(|wish| !wish.is_null()).cloned().or(last);
        capabilities.extend(wish.map(|wish| (name.to_owned(), wish)));
    }
    let limits = told.get("bandwidth").cloned().map(named_as_usual);
    capabilities.extend(limits.map(|limits| ("bandwidth".to_owned(), limits)));
    Ok(Attachment {
        container_id,
        netns_path: PathBuf::from(set("CNI_NETNS").unwrap_or_default()),
        ifname,
        pod_namespace: argument("K8S_POD_NAMESPACE").unwrap_or_default(),
        pod_name: argument("K8S_POD_NAME").unwrap_or_default(),
        pod_uid: argument("K8S_POD_UID").unwrap_or_default(),
        port_mappings,
        capabilities,
    })
}

/// What the runtime tells, with the names that CNI's conventions have: plugins in Go read any case, and containerd writes
/// some with a capital letter.
fn named_as_usual(told: Value) -> Value {
    const NAMES: [&str; 8] = [
        "hostPort",
        "containerPort",
        "protocol",
        "hostIP",
        "ingressRate",
        "ingressBurst",
        "egressRate",
        "egressBurst",
    ];
    let usual = |name: String| {
        let known = NAMES.into_iter().find(|known| known.eq_ignore_ascii_case(&name));
        known.map_or(name, str::to_owned)
    };
    match told {
        Value::Object(fields) => fields.into_iter().map(|(name, value)| (usual(name), value)).collect(),
        Value::Array(all) => all.into_iter().map(named_as_usual).collect(),
        other => other,
    }
}

fn read_attached(conf: &Value) -> Result<Attached, ErrorBody> {
    let invalid =
        || error(code::INVALID_CONFIG, "cni.dev/valid-attachments must be a list of attachments".into(), "");
    let list = conf.get("cni.dev/valid-attachments").and_then(Value::as_array).ok_or_else(invalid)?;
    let pair = |entry: &Value| {
        let text = |name: &str| entry.get(name)?.as_str().map(str::to_owned);
        Some((text("containerID")?, text("ifname")?))
    };
    // An entry that cannot be read must not free what it is about.
    let interfaces = list.iter().map(|entry| pair(entry).ok_or_else(invalid));
    Ok(Attached { interfaces: interfaces.collect::<Result<_, _>>()?, ..Attached::default() })
}

fn missing(names: &[&str]) -> ErrorBody {
    let names = names.join(",");
    error(code::INVALID_ENVIRONMENT, format!("required env variables [{names}] missing"), "")
}

fn error(code: u32, msg: String, details: &str) -> ErrorBody {
    ErrorBody { code, msg, details: details.to_owned() }
}

#[cfg(test)]
mod tests;
