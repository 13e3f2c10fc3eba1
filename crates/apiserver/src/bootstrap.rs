//! What a new cluster has from the start: namespaces, priority classes, the `kubernetes` Service, RBAC defaults,
//! flow control.
//!
//! Everything is created through the verbs, as `system:apiserver`; what is there already is left alone.

pub(crate) mod flow;
mod platform;
mod rbac;

use std::collections::BTreeSet;
use std::net::IpAddr;

use auth::UserInfo;
use bytes::Bytes;
use futures::future::try_join_all;
use http::HeaderMap;
use machinery::metadata::{self, Metadata};
use serde_json::{Value, json};
use tracing::{info, warn};

use crate::api::Api;
use crate::kinds::{Kind, Part};
use crate::negotiate::Accept;
use crate::place::Placed;
use crate::request_info::{Query, RequestInfo, ResourceInfo, Scope, Verb};
use crate::status::{Error, Result};
use crate::verbs::{Request, create, update};

const NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

/// Creates what is missing.
///
/// # Errors
/// When the store or the cache fail.
pub async fn run(api: &Api) -> Result<()> {
    let namespaces =
        NAMESPACES.map(|name| ensure(api, "", "v1", "namespaces", "", json!({"metadata": {"name": name}})));
    try_join_all(namespaces).await?;
    let classes =
        priority_classes().map(|class| ensure(api, "scheduling.k8s.io", "v1", "priorityclasses", "", class));
    try_join_all(classes).await?;
    try_join_all(rbac::defaults()?.into_iter().map(|wanted| rbac::reconcile(api, wanted))).await?;
    platform::service_range(api).await?;
    kubernetes_service(api).await?;
    let ca = String::from_utf8_lossy(&api.config.client_ca_pem).into_owned();
    let mut authentication = json!({
        "metadata": {"name": "extension-apiserver-authentication"},
        "data": {"client-ca-file": ca},
    });
    for (key, value) in api.config.options.front_proxy.iter().flat_map(|proxy| proxy.published()) {
        authentication["data"][key] = value.into();
    }
    put(api, "", "v1", "configmaps", "kube-system", authentication).await?;
    flow::maintain(api).await?;
    platform::run(api).await?;
    token_tracking(api).await?;
    api.bootstrapped();
    info!("bootstrap objects are there");
    Ok(())
}

fn priority_classes() -> [Value; 2] {
    let class = |name: &str, value: i64, description: &str| {
        json!({
            "metadata": {"name": name},
            "value": value,
            "description": description,
        })
    };
    [
        class(
            "system-cluster-critical",
            2_000_000_000,
            "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
        ),
        class(
            "system-node-critical",
            2_000_001_000,
            "Used for system critical pods that must not be moved from their current node.",
        ),
    ]
}

/// Since when the use of tokens in Secrets is recorded.
async fn token_tracking(api: &Api) -> Result<()> {
    let object = json!({
        "metadata": {"name": "kube-apiserver-legacy-service-account-token-tracking"},
        "data": {"since": api.clock.now().strftime("%Y-%m-%d").to_string()},
    });
    ensure(api, "", "v1", "configmaps", "kube-system", object).await
}

/// The `kubernetes` Service at the first address of the range, and where it leads.
async fn kubernetes_service(api: &Api) -> Result<()> {
    let address =
        api.config.service_cidrs.main().nth(1).map(|address| address.to_string()).unwrap_or_default();
    let endpoint = api.config.advertise_address;
    let labels = json!({"component": "apiserver", "provider": "kubernetes"});
    let service = json!({
        "metadata": {"name": "kubernetes", "labels": labels},
        "spec": {
            "type": "ClusterIP",
            "clusterIP": address,
            "clusterIPs": [address],
            "ipFamilyPolicy": "SingleStack",
            "sessionAffinity": "None",
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": endpoint.port()}],
        },
    });
    ensure(api, "", "v1", "services", "default", service).await?;
    if api.config.options.is_one_of_many {
        return crate::peers::begin(api).await;
    }
    kubernetes_endpoints(api, &BTreeSet::from([endpoint.ip()])).await
}

/// Where the `kubernetes` Service leads: the API servers at `addresses`.
pub(crate) async fn kubernetes_endpoints(api: &Api, addresses: &BTreeSet<IpAddr>) -> Result<()> {
    let (port, is_ipv4) = (api.config.advertise_address.port(), api.config.advertise_address.is_ipv4());
    let ports = json!([{"name": "https", "port": port, "protocol": "TCP"}]);
    let skip = json!({"endpointslice.kubernetes.io/skip-mirror": "true"});
    let subset = json!({
        "addresses": addresses.iter().map(|ip| json!({"ip": ip.to_string()})).collect::<Vec<_>>(),
        "ports": ports,
    });
    let subsets = if addresses.is_empty() { json!([]) } else { json!([subset]) };
    let endpoints = json!({"metadata": {"name": "kubernetes", "labels": skip}, "subsets": subsets});
    put(api, "", "v1", "endpoints", "default", endpoints).await?;
    let endpoint = |ip: &IpAddr| json!({"addresses": [ip.to_string()], "conditions": {"ready": true}});
    let slice = json!({
        "metadata": {"name": "kubernetes", "labels": {"kubernetes.io/service-name": "kubernetes"}},
        "addressType": if is_ipv4 { "IPv4" } else { "IPv6" },
        "endpoints": addresses.iter().map(endpoint).collect::<Vec<_>>(),
        "ports": ports,
    });
    put(api, "discovery.k8s.io", "v1", "endpointslices", "default", slice).await
}

/// Creates an object unless it is there.
pub(crate) async fn ensure(
    api: &Api,
    group: &str,
    version: &str,
    resource: &str,
    namespace: &str,
    object: Value,
) -> Result<()> {
    let Some((request, object)) = request(api, (group, version, resource), namespace, object, Verb::Create)
    else {
        return Ok(());
    };
    let key = request.kind.key(namespace, Metadata::of(&object).name());
    api.cache.fresh().await?;
    if request.kind.cache().get(&key).is_some() {
        return Ok(());
    }
    match create::create_object(api, &request, object).await {
        Ok(_) => Ok(()),
        Err(error) if error.reason == "AlreadyExists" => Ok(()),
        Err(error) => {
            warn!(key, %error, "a bootstrap object was refused");
            Err(error)
        }
    }
}

/// Creates an object, or replaces all of it but its metadata.
pub(crate) async fn put(
    api: &Api,
    group: &str,
    version: &str,
    resource: &str,
    namespace: &str,
    object: Value,
) -> Result<()> {
    ensure(api, group, version, resource, namespace, object.clone()).await?;
    let Some((request, wanted)) = request(api, (group, version, resource), namespace, object, Verb::Update)
    else {
        return Ok(());
    };
    api.cache.fresh().await?;
    update::change(api, &request, Part::Object, |old| {
        let mut new = wanted.clone();
        if let (Some(new), Some(old)) = (new.as_object_mut(), old.as_object()) {
            new.insert("metadata".to_owned(), old.get("metadata").cloned().unwrap_or_default());
        }
        // Without it nobody else's change in between is a conflict.
        metadata::remove(&mut new, "resourceVersion");
        Ok(new)
    })
    .await?;
    Ok(())
}

/// A request of the API server to itself.
pub(crate) fn request(
    api: &Api,
    (group, version, resource): (&str, &str, &str),
    namespace: &str,
    object: Value,
    verb: Verb,
) -> Option<(Request, Value)> {
    request_of(api, api.kind(group, version, resource)?, namespace, object, verb)
}

/// As [`request`], for a kind that is at hand.
pub(crate) fn request_of(
    api: &Api,
    kind: &Kind,
    namespace: &str,
    mut object: Value,
    verb: Verb,
) -> Option<(Request, Value)> {
    let map = object.as_object_mut()?;
    map.insert("apiVersion".to_owned(), kind.api_version().into());
    map.insert("kind".to_owned(), kind.kind().into());
    let name = if verb == Verb::Create { String::new() } else { Metadata::of(&object).name().to_owned() };
    let resource = ResourceInfo {
        verb,
        group: kind.group().to_owned(),
        version: kind.version().to_owned(),
        scope: if namespace.is_empty() { Scope::Cluster } else { Scope::Namespace },
        namespace: namespace.to_owned(),
        resource: kind.resource().to_owned(),
        subresource: String::new(),
        name,
        rest: String::new(),
    };
    let info = RequestInfo {
        method: http::Method::POST,
        path: String::new(),
        raw_query: String::new(),
        query: Query::default(),
        resource: Some(resource.clone()),
    };
    let mut headers = HeaderMap::new();
    headers.insert(http::header::USER_AGENT, http::HeaderValue::from_static("kube-apiserver"));
    let request = Request {
        info,
        resource: Placed::new(kind, resource).ok()?,
        catalogue: api.catalogue.current(),
        kind: kind.clone(),
        user: system_user(),
        origin: None,
        headers,
        accept: Accept::JSON,
        body: Bytes::new(),
        received_us: api.clock.now().as_microsecond(),
        cause: 0,
        notes: Default::default(),
    };
    Some((request, object))
}

/// The API server's own identity. It may everything because it makes the roles that everybody else's rights come from; it
/// is a value in this process and no certificate or token is for it. Source: upstream's loopback client.
pub fn system_user() -> UserInfo {
    UserInfo {
        name: "system:apiserver".to_owned(),
        groups: vec!["system:masters".to_owned(), "system:authenticated".to_owned()],
        ..UserInfo::default()
    }
}

/// Waits for bootstrap to succeed, with backoff, and says so once.
pub async fn run_until_done(api: &Api) {
    let mut backoff =
        base::Backoff::new(std::time::Duration::from_millis(50), std::time::Duration::from_secs(5), 0.1);
    loop {
        match run(api).await {
            Ok(()) => return,
            Err(error) => report(&error),
        }
        tokio::time::sleep(backoff.next(&api.random)).await;
    }
}

fn report(error: &Error) {
    warn!(%error, "bootstrap failed; it is tried again");
}
