//! Pods from files: they run whatever the API says, and without it.
//!
//! A file holds one Pod, as YAML or JSON. It is decoded, defaulted and validated as the API server would, and gets a
//! uid that is a hash of its content, so that another content is another Pod.
//! Source: `pkg/kubelet/config/{file,common}.go` of upstream.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use controller::informer::{Decode, Transform};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use machinery::field::FieldErrors;
use schema::walk::decode::{DecodeError, FieldValidation, from_value};
use schema::walk::default::Defaults;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use sys::folder_watch::FolderWatch;
use tokio::sync::watch;

use crate::context::Context;
use crate::pod::identity::HASH;
use crate::pod::identity::SOURCE;
use crate::pod::identity::namespaced_name;

/// Annotation: when the file was read.
const SEEN: &str = "kubernetes.io/config.seen";

/// Files that are read at most.
const FILES_MAX: usize = 1000;
/// A manifest's size at most. Source: `maxConfigLength`.
const FILE_BYTES_MAX: u64 = 10 << 20;

static DEFAULTS: LazyLock<Defaults> =
    LazyLock::new(|| Defaults::new(schema::builtin(), resources::defaults::rows()));

/// What is wrong with a manifest.
#[derive(Debug, thiserror::Error)]
enum ManifestError {
    #[error(transparent)]
    Text(#[from] serde_saphyr::Error),
    #[error("must be a Pod of v1, not kind {kind:?} of apiVersion {api_version:?}")]
    OtherKind { api_version: String, kind: String },
    #[error("metadata must be an object")]
    Metadata,
    #[error("{0}: Required value")]
    Required(&'static str),
    #[error(transparent)]
    Decode(#[from] DecodeError),
    #[error("invalid pod: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))]
    Invalid(FieldErrors),
    #[error("static pods may not reference {0}")]
    Reference(&'static str),
    #[error(transparent)]
    Object(#[from] serde_json::Error),
    #[error("Pods have no schema")]
    NoSchema,
    #[error("Pods have no row")]
    NoRow,
}

/// The static Pods by `namespace/name`.
pub(crate) type StaticPods = BTreeMap<String, Arc<Pod>>;

/// Reads the files now, and again whenever they change.
pub(crate) fn start(context: &Arc<Context>) -> watch::Receiver<Arc<StaticPods>> {
    let Some(path) = context.config.static_pod_path.clone() else {
        let (sender, receiver) = watch::channel(Arc::default());
        context.tasks.spawn("static pods", async move { sender.closed().await });
        return receiver;
    };
    let folder =
        if path.is_file() { path.parent().map(Path::to_owned).unwrap_or_default() } else { path.clone() };
    let watch = FolderWatch::new(&folder);
    let mut known = StaticPods::default();
    known = read(&path, &context.config.node_name, context.clock.now(), &known);
    let (sender, receiver) = watch::channel(Arc::new(known.clone()));
    let context = context.clone();
    context.tasks.clone().spawn("static pods", async move {
        let mut watch = match watch {
            Ok(watch) => watch,
            Err(error) => {
                tracing::error!(%error, path = %path.display(), "static pods are not watched");
                return sender.closed().await;
            }
        };
        loop {
            if let Err(error) = watch.changed().await {
                tracing::error!(%error, path = %path.display(), "static pods are not watched any more");
                return sender.closed().await;
            }
            known = read(&path, &context.config.node_name, context.clock.now(), &known);
            sender.send_if_modified(|sent| {
                let is_new = **sent != known;
                if is_new {
                    *sent = Arc::new(known.clone());
                }
                is_new
            });
        }
    });
    receiver
}

/// All Pods of the path. What has not changed stays as it is in `known`.
fn read(path: &Path, node_name: &str, now: Timestamp, known: &StaticPods) -> StaticPods {
    let mut pods = StaticPods::default();
    for file in files(path) {
        let text = match read_file(&file) {
            Ok(text) => text,
            Err(error) => {
                tracing::warn!(%error, file = %file.display(), "a static pod was not read");
                continue;
            }
        };
        if text.trim().is_empty() {
            continue;
        }
        match parse(&text, &file, node_name, now) {
            Ok(pod) => {
                let key = namespaced_name(&pod);
                if pods.contains_key(&key) {
                    tracing::warn!(pod = key, file = %file.display(), "an earlier file has a static pod of that name");
                }
                let same = known.get(&key).filter(|old| old.metadata.uid == pod.metadata.uid);
                let pod = same.cloned().unwrap_or_else(|| Arc::new(pod));
                pods.insert(key, pod);
            }
            Err(error) => tracing::error!(%error, file = %file.display(), "a static pod cannot be"),
        }
    }
    pods
}

fn files(path: &Path) -> Vec<PathBuf> {
    if path.is_file() {
        return vec![path.to_owned()];
    }
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let is_hidden = |path: &PathBuf| path.file_name().is_some_and(|n| n.as_encoded_bytes().starts_with(b"."));
    let mut files: Vec<_> =
        entries.map(|entry| entry.path()).filter(|path| path.is_file() && !is_hidden(path)).collect();
    files.sort();
    files.truncate(FILES_MAX);
    files
}

fn read_file(path: &Path) -> std::io::Result<String> {
    use std::io::Read;
    let mut text = String::new();
    std::fs::File::open(path)?.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// The Pod of a manifest.
///
/// # Errors
/// What is wrong with it, with the fields.
fn parse(text: &str, file: &Path, node_name: &str, now: Timestamp) -> Result<Pod, ManifestError> {
    // `defaultMode: 0644` is octal, as for upstream's parser.
    let options = serde_saphyr::options! { legacy_octal_numbers: true };
    let mut value: Value = serde_saphyr::from_str_with_options(text, options)?;
    let field =
        |value: &Value, name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (api_version, kind) = (field(&value, "apiVersion"), field(&value, "kind"));
    if (api_version.as_str(), kind.as_str()) != ("v1", "Pod") {
        return Err(ManifestError::OtherKind { api_version, kind });
    }
    let hash = identity(&mut value, file, node_name)?;
    let schema = schema::builtin().kind("", "v1", "Pod").ok_or(ManifestError::NoSchema)?;
    let decoded = from_value(schema, value, FieldValidation::Ignore)?;
    let mut value = decoded.value;
    DEFAULTS.apply(schema, &mut value);
    let row = resources::find("", "v1", "pods").ok_or(ManifestError::NoRow)?;
    let errors = row.validate_create(&value);
    if !errors.is_empty() {
        return Err(ManifestError::Invalid(errors));
    }
    if let Some(what) = api_reference(&value) {
        return Err(ManifestError::Reference(what));
    }
    annotate(&mut value, &[(HASH, &hash), (SEEN, &now.to_string()), (SOURCE, "file")]);
    value["status"] = json!({"phase": "Pending"});
    Ok(Pod::decode(&value.to_string(), &Transform::default())?)
}

/// Gives the Pod its names, node and toleration; the uid is a hash of all that and of where it comes from.
fn identity(value: &mut Value, file: &Path, node_name: &str) -> Result<String, ManifestError> {
    let metadata = value
        .as_object_mut()
        .and_then(|map| map.entry("metadata").or_insert_with(|| json!({})).as_object_mut());
    let metadata = metadata.ok_or(ManifestError::Metadata)?;
    let text = |map: &Map<String, Value>, name: &str| {
        map.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let name = text(metadata, "name");
    if name.is_empty() {
        return Err(ManifestError::Required("metadata.name"));
    }
    metadata.insert("name".into(), format!("{name}-{}", node_name.to_lowercase()).into());
    if text(metadata, "namespace").is_empty() {
        metadata.insert("namespace".into(), "default".into());
    }
    for own in
        ["resourceVersion", "creationTimestamp", "deletionTimestamp", "ownerReferences", "managedFields"]
    {
        metadata.remove(own);
    }
    let given = text(metadata, "uid");
    let spec = value.get_mut("spec").and_then(Value::as_object_mut);
    let spec = spec.ok_or(ManifestError::Required("spec"))?;
    spec.insert("nodeName".into(), node_name.into());
    tolerate(spec);
    // Objects of JSON have their keys in order: equal content has equal text.
    let content = format!("{value}host:{node_name}file:{}", file.display());
    let digest = Sha256::digest(content.as_bytes());
    let hex: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    let hash = if given.is_empty() { hex } else { given };
    value["metadata"]["uid"] = hash.clone().into();
    Ok(hash)
}

/// Nothing drives the Pod out. Source: `AddOrUpdateTolerationInPod`.
fn tolerate(spec: &mut Map<String, Value>) {
    let all = json!({"operator": "Exists", "effect": "NoExecute"});
    let tolerations = spec.entry("tolerations").or_insert_with(|| json!([]));
    let Some(tolerations) = tolerations.as_array_mut() else { return };
    let text = |one: &Value, name: &str| one.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let is_same = |one: &Value| {
        ["key", "operator", "value", "effect"].iter().all(|name| text(one, name) == text(&all, name))
    };
    match tolerations.iter_mut().find(|one| is_same(one)) {
        Some(one) => *one = all.clone(),
        None => tolerations.push(all.clone()),
    }
}

fn annotate(value: &mut Value, pairs: &[(&str, &str)]) {
    for (name, text) in pairs {
        value["metadata"]["annotations"][*name] = (*text).into();
    }
}

/// Where volumes name secrets. Source: `VisitPodSecretNames`.
const SECRETS: &[&str] = &[
    "/azureFile/secretName",
    "/cephfs/secretRef/name",
    "/cinder/secretRef/name",
    "/csi/nodePublishSecretRef/name",
    "/flexVolume/secretRef/name",
    "/iscsi/secretRef/name",
    "/rbd/secretRef/name",
    "/scaleIO/secretRef/name",
    "/secret/secretName",
    "/storageos/secretRef/name",
];
/// Volumes that need the API, and what of it.
const VOLUMES: &[(&str, &str)] = &[
    ("/csi", "csidrivers (via CSI volumes)"),
    ("/glusterfs", "endpoints (via glusterFS volumes)"),
    ("/persistentVolumeClaim", "persistentvolumeclaims"),
    ("/ephemeral", "persistentvolumeclaims (via ephemeral volumes)"),
];
/// Parts of projected volumes that need the API, and what of it.
const SOURCES: &[(&str, &str)] = &[
    ("/serviceAccountToken", "serviceaccounts (via projected volumes)"),
    ("/clusterTrustBundle", "clustertrustbundles"),
    ("/podCertificate", "podcertificates"),
];

/// What of the API the Pod needs, which a static one cannot have. Source: `podutil.HasAPIObjectReference`.
fn api_reference(pod: &Value) -> Option<&'static str> {
    let spec = pod.get("spec")?;
    let list =
        |value: &Value, name: &str| value.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
    let volumes = list(spec, "volumes");
    let projected = volumes.iter().filter_map(|volume| volume.get("projected"));
    let sources: Vec<Value> = projected.flat_map(|projected| list(projected, "sources")).collect();
    let containers: Vec<Value> =
        ["initContainers", "containers"].iter().flat_map(|kind| list(spec, kind)).collect();
    let of_containers = |name: &str| containers.iter().flat_map(|one| list(one, name)).collect::<Vec<_>>();
    let (env, env_from) = (of_containers("env"), of_containers("envFrom"));
    let names = |holder: &Value, path: &&str| {
        holder.pointer(path).and_then(Value::as_str).is_some_and(|name| !name.is_empty())
    };
    let any = |holders: &[Value], paths: &[&str]| {
        holders.iter().any(|holder| paths.iter().any(|path| names(holder, path)))
    };
    let found = |holders: &[Value], rows: &[(&str, &'static str)]| {
        let of = |holder: &Value| {
            rows.iter().find(|(path, _)| holder.pointer(path).is_some()).map(|(_, what)| *what)
        };
        holders.iter().find_map(of)
    };
    if any(std::slice::from_ref(spec), &["/serviceAccountName", "/serviceAccount"]) {
        return Some("serviceaccounts");
    }
    if any(&list(spec, "imagePullSecrets"), &["/name"])
        || any(&env_from, &["/secretRef/name"])
        || any(&env, &["/valueFrom/secretKeyRef/name"])
        || any(&sources, &["/secret/name"])
        || any(&volumes, SECRETS)
    {
        return Some("secrets");
    }
    if any(&env_from, &["/configMapRef/name"])
        || any(&env, &["/valueFrom/configMapKeyRef/name"])
        || any(&sources, &["/configMap/name"])
        || any(&volumes, &["/configMap/name"])
    {
        return Some("configmaps");
    }
    if !list(spec, "resourceClaims").is_empty() {
        return Some("resourceclaims");
    }
    found(&volumes, VOLUMES).or_else(|| found(&sources, SOURCES))
}

#[cfg(test)]
mod tests;
