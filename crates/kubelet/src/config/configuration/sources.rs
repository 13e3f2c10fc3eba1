//! Where a configuration comes from: a file, a folder of drop-ins and flags, merged in that order.
//!
//! Source: `--config`, `--config-dir` (KEP-3983).

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::ConfigurationError;

const API_VERSION: &str = "kubelet.config.k8s.io/v1beta1";
const KIND: &str = "KubeletConfiguration";

/// Where a configuration comes from; later ones win.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// `--config`.
    pub file: Option<PathBuf>,
    /// `--config-dir`: files that end in `.conf`, in order of name.
    pub folder: Option<PathBuf>,
    /// What flags say, under the fields' names.
    pub flags: Value,
}

impl Sources {
    /// Reads everything and merges it. Blocking.
    ///
    /// # Errors
    /// A file cannot be read or is not what it should be.
    pub fn read(&self) -> Result<Value, ConfigurationError> {
        let mut merged = json!({});
        let mut files: Vec<PathBuf> = self.file.iter().cloned().collect();
        if let Some(folder) = &self.folder {
            files.extend(drop_ins(folder)?);
        }
        for path in files {
            let text = std::fs::read_to_string(&path)
                .map_err(|source| ConfigurationError::Read { path: path.clone(), source })?;
            let value =
                parse(&text).map_err(|flaw| ConfigurationError::Syntax { path, flaw: Box::new(flaw) })?;
            merge(&mut merged, value);
        }
        merge(&mut merged, self.flags.clone());
        Ok(merged)
    }
}

/// The reason why a file is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum SyntaxError {
    /// It is no YAML.
    #[error(transparent)]
    Yaml(#[from] serde_saphyr::Error),
    /// It has no fields.
    #[error("must be an object")]
    NoObject,
    /// It is something else.
    #[error("must be a {KIND} of {API_VERSION}, not apiVersion {api_version:?}, kind {kind:?}")]
    Kind {
        /// Its version.
        api_version: String,
        /// Its kind.
        kind: String,
    },
}

fn drop_ins(folder: &Path) -> Result<Vec<PathBuf>, ConfigurationError> {
    let error = |source| ConfigurationError::Read { path: folder.to_owned(), source };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(error)? {
        files.push(entry.map_err(error)?.path());
    }
    files.retain(|path| path.extension().is_some_and(|ending| ending == "conf"));
    files.sort();
    Ok(files)
}

fn parse(text: &str) -> Result<Value, SyntaxError> {
    let value: Value = serde_saphyr::from_str(text)?;
    let field = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default();
    if !value.is_object() {
        return Err(SyntaxError::NoObject);
    }
    if (field("apiVersion"), field("kind")) != (API_VERSION, KIND) {
        let (api_version, kind) = (field("apiVersion").to_owned(), field("kind").to_owned());
        return Err(SyntaxError::Kind { api_version, kind });
    }
    Ok(value)
}

/// Objects field by field, everything else as a whole; null takes away. Source: RFC 7396.
pub(super) fn merge(into: &mut Value, from: Value) {
    let (Value::Object(into), Value::Object(from)) = (&mut *into, &from) else {
        if !from.is_null() {
            *into = from;
        }
        return;
    };
    for (key, value) in from {
        match value {
            Value::Null => {
                into.remove(key);
            }
            value => merge(into.entry(key.clone()).or_insert(Value::Null), value.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drop_ins_and_flags_win_over_the_file_in_their_order() {
        let folder = tempfile::tempdir().unwrap();
        let head = format!("apiVersion: {API_VERSION}\nkind: {KIND}\n");
        let write = |name: &str, body: &str| {
            std::fs::write(folder.path().join(name), format!("{head}{body}")).unwrap()
        };
        write("main.yaml", "maxPods: 1\nclusterDomain: a\nkubeReserved: {cpu: 1, memory: 1Gi}\n");
        write("20.conf", "maxPods: 3\n");
        write("10.conf", "maxPods: 2\nkubeReserved: {cpu: 2}\n");
        write("ignored.txt", "nonsense: 1\n");
        let sources = Sources {
            file: Some(folder.path().join("main.yaml")),
            folder: Some(folder.path().to_owned()),
            flags: json!({"clusterDomain": "b"}),
        };
        let merged = sources.read().unwrap();
        assert_eq!(merged["maxPods"], 3);
        assert_eq!(merged["clusterDomain"], "b");
        assert_eq!(merged["kubeReserved"], json!({"cpu": 2, "memory": "1Gi"}));
        std::fs::write(folder.path().join("30.conf"), "maxPods: 1").unwrap();
        let error = sources.read().unwrap_err().to_string();
        assert!(error.contains("must be a KubeletConfiguration of kubelet.config.k8s.io/v1beta1"), "{error}");
    }

    /// Source: `TestMergeKubeletConfigurations` of upstream's `cmd/kubelet/app`.
    #[test]
    fn objects_are_merged_and_all_else_is_replaced() {
        for (name, into, from, expect) in [
            ("nothing", "{}", "{}", "{}"),
            ("nothing new", "{a: 1}", "{}", "{a: 1}"),
            ("something new", "{}", "{a: 1}", "{a: 1}"),
            (
                "another value",
                "{port: 10250, readOnlyPort: 10257}",
                "{port: 8080}",
                "{port: 8080, readOnlyPort: 10257}",
            ),
            (
                "a part of an object",
                "{authentication: {webhook: {enabled: true}, anonymous: {enabled: true}}}",
                "{authentication: {anonymous: {enabled: false}}}",
                "{authentication: {webhook: {enabled: true}, anonymous: {enabled: false}}}",
            ),
            (
                "more of a map",
                "{systemReserved: {memory: 1Gi}}",
                "{systemReserved: {cpu: '1', memory: 2Gi}}",
                "{systemReserved: {cpu: '1', memory: 2Gi}}",
            ),
            (
                "a list",
                "{allowedUnsafeSysctls: [a, b]}",
                "{allowedUnsafeSysctls: [c]}",
                "{allowedUnsafeSysctls: [c]}",
            ),
            ("an empty list", "{clusterDNS: [a]}", "{clusterDNS: []}", "{clusterDNS: []}"),
            (
                "a list of objects",
                "{reservedMemory: [{numaNode: 0}]}",
                "{reservedMemory: [{numaNode: 1}]}",
                "{reservedMemory: [{numaNode: 1}]}",
            ),
            ("nothing in place of something", "{maxPods: 7, port: 1}", "{maxPods: null}", "{port: 1}"),
            ("nothing in place of nothing", "{port: 1}", "{maxPods: null}", "{port: 1}"),
            ("nothing in an object", "{a: {b: 1, c: 2}}", "{a: {b: null}}", "{a: {c: 2}}"),
            ("an object in place of a value", "{a: 1}", "{a: {b: 2}}", "{a: {b: 2}}"),
            ("a value in place of an object", "{a: {b: 2}}", "{a: 1}", "{a: 1}"),
            ("flags that say nothing", "{a: 1}", "null", "{a: 1}"),
        ] {
            let [mut into, from, expect] =
                [into, from, expect].map(|text| serde_saphyr::from_str::<Value>(text).unwrap());
            merge(&mut into, from);
            assert_eq!(into, expect, "{name}");
        }
    }

    #[test]
    fn a_file_that_is_no_configuration_is_told() {
        let other = |version: &str, kind: &str| {
            format!("must be a {KIND} of {API_VERSION}, not apiVersion {version:?}, kind {kind:?}")
        };
        for (text, expect) in [
            (format!("apiVersion: {API_VERSION}\nkind: {KIND}"), None),
            (format!("{{\"apiVersion\": \"{API_VERSION}\", \"kind\": \"{KIND}\"}}"), None),
            (
                format!("apiVersion: kubelet.config.k8s.io/v2\nkind: {KIND}"),
                Some(other("kubelet.config.k8s.io/v2", KIND)),
            ),
            (format!("apiVersion: {API_VERSION}\nkind: Other"), Some(other(API_VERSION, "Other"))),
            ("maxPods: 1".to_owned(), Some(other("", ""))),
            ("kind: 7".to_owned(), Some(other("", ""))),
            ("[]".to_owned(), Some("must be an object".to_owned())),
            ("text".to_owned(), Some("must be an object".to_owned())),
        ] {
            let found = parse(&text).err().map(|flaw| flaw.to_string());
            assert_eq!(found, expect, "{text}");
        }
        assert!(matches!(parse("{").unwrap_err(), SyntaxError::Yaml(_)));
        let sources = Sources { file: Some("/none/kubelet.yaml".into()), ..Sources::default() };
        assert_eq!(
            sources.read().unwrap_err().to_string(),
            "read the kubelet's configuration /none/kubelet.yaml"
        );
        let sources = Sources { folder: Some("/none".into()), ..Sources::default() };
        assert_eq!(sources.read().unwrap_err().to_string(), "read the kubelet's configuration /none");
        let sources = Sources { flags: json!({"maxPods": 3}), ..Sources::default() };
        assert_eq!(sources.read().unwrap(), json!({"maxPods": 3}), "flags alone");
        assert_eq!(Sources::default().read().unwrap(), json!({}));
    }
}
