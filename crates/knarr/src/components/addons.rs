//! Objects that every cluster has because of how knarr is built: the Service that stands for its DNS, and what Nodes
//! that join need.
//!
//! Each Node answers at the DNS address itself, so that Service has no selector; it keeps the address from being given
//! to anything else, and says where DNS is to those who look for it. Roles and bindings are `auth::bootstrap`'s.

use std::fmt::Debug;
use std::path::Path;

use anyhow::{Context, Result};
use base::Clock;
use cli::args::Part;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Service};
use k8s_openapi::api::networking::v1::IngressClass;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use k8s_openapi::api::storage::v1::{CSIDriver, StorageClass};
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::join::{self, ClusterConfig};
use super::{Settings, authorities};

const NAMESPACE: &str = "kube-system";
/// The Service that stands for the DNS.
const DNS: &str = "kube-dns";
/// Nodes from before proxies had certificates of their own look at Services with their kubelet's.
const FORMER_PROXIES: &str = "knarr:node-proxier";

/// Creates what is not there.
///
/// # Errors
/// If the API server refuses, other than because it is there.
pub(super) async fn ensure(client: kube::Client, settings: &Settings) -> Result<()> {
    let (client, in_namespace) = (&client, Some(NAMESPACE));
    make::<Service>(client, in_namespace, dns(settings)).await?;
    widen_dns(client, settings).await?;
    make::<ConfigMap>(client, in_namespace, configuration(settings)?).await?;
    let believed = believed(Path::new("tls"))?;
    make::<ConfigMap>(client, in_namespace, believed.clone()).await?;
    renew(client, believed).await?;
    forget_former_proxies(client, settings).await?;
    if !settings.args.disable.contains(&Part::Ingress) {
        ingress_class(client).await?;
    }
    if settings.args.disable.contains(&Part::CsiHostpath) {
        return Ok(());
    }
    storage(client).await
}

/// The class of Ingresses that knarr serves itself; the default one, unless somebody has another.
async fn ingress_class(client: &kube::Client) -> Result<()> {
    let classes: Api<IngressClass> = Api::all(client.clone());
    let known = classes.list(&ListParams::default()).await.context("list the IngressClasses")?;
    if known.iter().any(|class| class.name_any() == ingress::CLASS) {
        return Ok(());
    }
    let has_default = known.iter().any(ingress::plan::is_default);
    let marks = (!has_default).then(|| json!({(ingress::plan::DEFAULT_CLASS): "true"}));
    let class = json!({
        "metadata": {"name": ingress::CLASS, "annotations": marks},
        "spec": {"controller": ingress::CONTROLLER_NAME},
    });
    make::<IngressClass>(client, None, class).await
}

/// The default StorageClass and its driver.
async fn storage(client: &kube::Client) -> Result<()> {
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

/// Whose certificates kubelets believe, and who signs theirs.
fn believed(tls: &Path) -> Result<Value> {
    let data = json!({
        join::CLIENT_CA: authorities::client_bundle(tls, Clock::system().now())?,
        join::KUBELET_SERVING_CA: authorities::read(tls, "kubelet-serving-ca.crt")?,
    });
    Ok(json!({"metadata": {"name": join::AUTHORITIES}, "data": data}))
}

/// Gives a ConfigMap that is there this data: Nodes must not believe what is over.
async fn renew(client: &kube::Client, wanted: Value) -> Result<()> {
    let wanted: ConfigMap = serde_json::from_value(wanted)?;
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let name = wanted.name_any();
    let mut known = api.get(&name).await.with_context(|| format!("read the ConfigMap {name}"))?;
    if known.data == wanted.data {
        return Ok(());
    }
    known.data = wanted.data;
    let replaced = api.replace(&name, &PostParams::default(), &known).await;
    replaced.map(drop).with_context(|| format!("replace the ConfigMap {name}"))
}

/// Takes from kubelets what only their proxies needed: at once if there is no Node but this host's, otherwise when all
/// Nodes must have got new certificates. An administrator may be quicker.
async fn forget_former_proxies(client: &kube::Client, settings: &Settings) -> Result<()> {
    let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
    if bindings.get_opt(FORMER_PROXIES).await.with_context(|| format!("read {FORMER_PROXIES}"))?.is_none() {
        return Ok(());
    }
    let nodes =
        Api::<Node>::all(client.clone()).list(&ListParams::default()).await.context("list the Nodes")?;
    let has_others = nodes.iter().any(|node| node.name_any() != settings.node_name);
    if has_others && authorities::has_former_clients(Path::new("tls"), Clock::system().now())? {
        tracing::warn!(
            "Nodes may read all Nodes until the ClusterRoleBinding {FORMER_PROXIES} is deleted: do that when every \
             `knarr agent` was started anew"
        );
        return Ok(());
    }
    match bindings.delete(FORMER_PROXIES, &DeleteParams::default()).await {
        Ok(_) => Ok(()),
        // Another server was quicker.
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(error) => Err(error).with_context(|| format!("delete the ClusterRoleBinding {FORMER_PROXIES}")),
    }
}

/// What Nodes that join are told.
fn configuration(settings: &Settings) -> Result<Value> {
    let config = serde_json::to_string(&ClusterConfig::of(&settings.args))?;
    Ok(json!({"metadata": {"name": join::CONFIG}, "data": {"config": config}}))
}

/// A cluster may have become one of both families: then its DNS has an address more.
async fn widen_dns(client: &kube::Client, settings: &Settings) -> Result<()> {
    let wanted: Vec<String> = settings.args.dns_addresses().iter().map(ToString::to_string).collect();
    let services: Api<Service> = Api::namespaced(client.clone(), NAMESPACE);
    let mut known = services.get(DNS).await.context("read the Service kube-dns")?;
    let Some(spec) = &mut known.spec else { return Ok(()) };
    if !is_widened(spec.cluster_ips.as_deref().unwrap_or_default(), &wanted) {
        return Ok(());
    }
    spec.cluster_ips = Some(wanted);
    spec.ip_family_policy = Some("PreferDualStack".to_owned());
    if let Err(error) = services.replace(DNS, &PostParams::default(), &known).await {
        // Nodes answer at that address all the same, but it is not kept for them.
        tracing::warn!(%error, "the Service kube-dns does not get its second address");
    }
    Ok(())
}

fn is_widened(has: &[String], wanted: &[String]) -> bool {
    matches!((has, wanted), ([one], [first, _]) if one == first)
}

fn dns(settings: &Settings) -> Value {
    let addresses = settings.args.dns_addresses();
    let policy = if addresses.len() > 1 { "PreferDualStack" } else { "SingleStack" };
    json!({
        "metadata": {
            "name": DNS,
            "labels": {
                "k8s-app": "kube-dns",
                "kubernetes.io/cluster-service": "true",
                "kubernetes.io/name": "CoreDNS",
            },
        },
        "spec": {
            "clusterIP": addresses.first(),
            "clusterIPs": addresses,
            "ipFamilyPolicy": policy,
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
