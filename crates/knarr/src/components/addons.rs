//! Objects that every cluster has because of how knarr is built: the Service that stands for its DNS, and what Nodes
//! that join need.
//!
//! Each Node answers at the DNS address itself, so that Service has no selector; it keeps the address from being given
//! to anything else, and says where DNS is to those who look for it.

use std::fmt::Debug;

use anyhow::{Context, Result};
use cli::args::Part;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::api::storage::v1::{CSIDriver, StorageClass};
use kube::api::{Api, PostParams};
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::Settings;
use super::join::{self, ClusterConfig};

const NAMESPACE: &str = "kube-system";
/// Roles that are upstream's, and who has them here: hosts that come with a token ask for a certificate, Nodes for the
/// next one, and see the Services that they are to serve.
const BINDINGS: [(&str, &str, &str); 4] = [
    ("knarr:node-bootstrapper", "system:node-bootstrapper", join::TOKEN_GROUP),
    (
        "knarr:node-autoapprove-bootstrap",
        "system:certificates.k8s.io:certificatesigningrequests:nodeclient",
        join::TOKEN_GROUP,
    ),
    (
        "knarr:node-autoapprove-certificate-rotation",
        "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient",
        auth::NODES,
    ),
    ("knarr:node-proxier", "system:node-proxier", auth::NODES),
];

/// Creates what is not there.
///
/// # Errors
/// If the API server refuses, other than because it is there.
pub(super) async fn ensure(client: kube::Client, settings: &Settings) -> Result<()> {
    let (client, in_namespace) = (&client, Some(NAMESPACE));
    make::<Service>(client, in_namespace, dns(settings)).await?;
    make::<ConfigMap>(client, in_namespace, configuration(settings)?).await?;
    let name = "knarr:config-reader";
    let rule = json!({"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [join::CONFIG], "verbs": ["get"]});
    make::<Role>(client, in_namespace, json!({"metadata": {"name": name}, "rules": [rule]})).await?;
    make::<RoleBinding>(client, in_namespace, binding(name, "Role", name, &[group(auth::NODES)])).await?;
    for (name, role, of) in BINDINGS {
        make::<ClusterRoleBinding>(client, None, binding(name, "ClusterRole", role, &[group(of)])).await?;
    }
    let approver =
        json!({"kind": "ServiceAccount", "name": "certificate-controller", "namespace": NAMESPACE});
    let role = "system:certificates.k8s.io:kubelet-serving-approver";
    let bound = binding("knarr:kubelet-serving-approver", "ClusterRole", role, &[approver]);
    make::<ClusterRoleBinding>(client, None, bound).await?;
    let name = "knarr:authority-viewer";
    let rule = json!({"nonResourceURLs": ["/cacerts"], "verbs": ["get"]});
    make::<ClusterRole>(client, None, json!({"metadata": {"name": name}, "rules": [rule]})).await?;
    let everybody = [group(auth::AUTHENTICATED), group(auth::UNAUTHENTICATED)];
    make::<ClusterRoleBinding>(client, None, binding(name, "ClusterRole", name, &everybody)).await?;
    if settings.args.disable.contains(&Part::CsiHostpath) {
        return Ok(());
    }
    storage(client).await
}

/// The default StorageClass, its driver, and what the controller behind them may do.
async fn storage(client: &kube::Client) -> Result<()> {
    // What wakes the controller comes after what lets it do anything.
    let account = "csi-hostpath-controller";
    let name = "knarr:csi-hostpath-controller";
    let rule = |group: &str, resources: &[&str], verbs: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
    let rules = [
        rule("", &["persistentvolumes"], &["get", "create", "delete", "update", "patch"]),
        rule("", &["persistentvolumeclaims"], &["update", "patch"]),
        rule("", &["persistentvolumeclaims/status"], &["patch"]),
        // The driver's controller side is on the volume's Node.
        rule("", &["nodes/csi"], &["create"]),
        rule("storage.k8s.io", &["csistoragecapacities"], &["create", "delete", "update"]),
        rule("", &["events"], &["create", "patch", "update"]),
    ];
    own_rules(client, name, &json!({"metadata": {"name": name}, "rules": rules})).await?;
    let account = json!({"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE});
    make::<ClusterRoleBinding>(client, None, binding(name, "ClusterRole", name, &[account])).await?;
    let driver = csi::driver::NAME;
    let spec = json!({
        "attachRequired": false,
        "podInfoOnMount": true,
        "fsGroupPolicy": "File",
        "volumeLifecycleModes": ["Persistent", "Ephemeral"],
        "storageCapacity": true,
    });
    make::<CSIDriver>(client, None, json!({"metadata": {"name": driver}, "spec": spec})).await?;
    let class = json!({
        "metadata": {
            "name": "hostpath",
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        },
        "provisioner": driver,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowVolumeExpansion": true,
    });
    make::<StorageClass>(client, None, class).await
}

/// Creates the role, or gives it these rules: what an older build needed is not kept.
async fn own_rules(client: &kube::Client, name: &str, role: &Value) -> Result<()> {
    make::<ClusterRole>(client, None, role.clone()).await?;
    let api: Api<ClusterRole> = Api::all(client.clone());
    let wanted: ClusterRole = serde_json::from_value(role.clone())?;
    let mut known = api.get(name).await.with_context(|| format!("read the ClusterRole {name}"))?;
    if known.rules == wanted.rules {
        return Ok(());
    }
    known.rules = wanted.rules;
    let replaced = api.replace(name, &PostParams::default(), &known).await;
    replaced.map(drop).with_context(|| format!("replace the rules of the ClusterRole {name}"))
}

fn group(name: &str) -> Value {
    json!({"kind": "Group", "name": name, "apiGroup": "rbac.authorization.k8s.io"})
}

fn binding(name: &str, kind: &str, role: &str, subjects: &[Value]) -> Value {
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role});
    json!({"metadata": {"name": name}, "roleRef": role, "subjects": subjects})
}

/// What Nodes that join are told.
fn configuration(settings: &Settings) -> Result<Value> {
    let config = serde_json::to_string(&ClusterConfig::of(&settings.args))?;
    Ok(json!({"metadata": {"name": join::CONFIG}, "data": {"config": config}}))
}

fn dns(settings: &Settings) -> Value {
    json!({
        "metadata": {
            "name": "kube-dns",
            "labels": {
                "k8s-app": "kube-dns",
                "kubernetes.io/cluster-service": "true",
                "kubernetes.io/name": "CoreDNS",
            },
        },
        "spec": {
            "clusterIP": settings.args.cluster_dns.to_string(),
            "ports": [
                { "name": "dns", "port": 53, "protocol": "UDP" },
                { "name": "dns-tcp", "port": 53, "protocol": "TCP" },
            ],
        },
    })
}

async fn make<K>(client: &kube::Client, namespace: Option<&str>, object: Value) -> Result<()>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Serialize,
{
    let object: K = serde_json::from_value(object)?;
    let api: Api<K> = Api::all(client.clone());
    let path = api.resource_url().to_owned();
    let what = || format!("{} {}", K::kind(&()), object.name_any());
    let path = match namespace {
        Some(namespace) => K::url_path(&(), Some(namespace)),
        None => path,
    };
    let known = http::Request::get(format!("{path}/{}", object.name_any())).body(Vec::new())?;
    // One that is there may be as somebody wants it to be, and has its address if it is a Service.
    match client.request::<K>(known).await {
        Ok(_) => return Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() => {}
        Err(error) => return Err(error).with_context(|| format!("read the {}", what())),
    }
    let new = kube::core::Request::new(path).create(&PostParams::default(), serde_json::to_vec(&object)?)?;
    match client.request::<K>(new).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        Err(error) => Err(error).with_context(|| format!("create the {}", what())),
    }
}
