//! `componentstatuses`: how the parts of the control plane are. Deprecated since v1.19, and still what people ask first.
//!
//! Upstream asks `/healthz` of fixed ports of its own host. Here a part is well whose Lease somebody holds and renews,
//! wherever it runs; the store is asked what `/readyz` asks it.
//! Source: `pkg/registry/core/componentstatus`.

use machinery::metadata::Metadata;
use serde_json::{Value, json};

use crate::answer::Answer;
use crate::api::Api;
use crate::cache::CachedObject;
use crate::filter::Filter;
use crate::object::encode_stored;
use crate::request::Authorized;
use crate::request_info::Verb;
use crate::status::{Error, Result, Subject};
use crate::tree::text;

/// The parts, and the Leases in `kube-system` of those that lead.
const PARTS: [(&str, Option<&str>); 3] = [
    ("controller-manager", Some("kube-controller-manager")),
    ("scheduler", Some("kube-scheduler")),
    ("etcd-0", None),
];

/// Answers a GET or LIST.
///
/// # Errors
/// 404 for a part that there is not, 400 for bad selectors, 504 when the cache lags.
pub async fn read(api: &Api, request: &Authorized) -> Result<Answer> {
    let filter = Filter::of(&request.kind, &request.resource, &request.info.query)?;
    api.cache.fresh().await?;
    let mut found = Vec::new();
    for (name, lease) in PARTS {
        let fault = match lease {
            Some(lease) => fault_of_leader(api, lease),
            None => api.cache.faults().await.first().cloned(),
        };
        let status = status(name, fault);
        let stored = encode_stored(&status).map_err(Error::internal)?;
        let object = CachedObject::from_stored(request.kind.key("", name).into(), &stored, 0);
        if object.is_some_and(|object| filter.matches(&object)) {
            found.push(status);
        }
    }
    if request.resource.verb == Verb::List {
        return Ok(Answer::Unstored(found));
    }
    let name = &request.resource.name;
    let one = found.into_iter().find(|status| Metadata::of(status).name() == name);
    let subject = Subject { group: "", resource: "componentstatus" };
    one.map(Answer::value).ok_or_else(|| Error::not_found(subject, name))
}

fn status(name: &str, fault: Option<String>) -> Value {
    let mut condition = json!({"type": "Healthy", "status": "True", "message": "ok"});
    if let Some(fault) = fault {
        condition = json!({"type": "Healthy", "status": "False", "error": fault});
    }
    json!({
        "apiVersion": "v1",
        "kind": "ComponentStatus",
        "metadata": {"name": name, "creationTimestamp": null},
        "conditions": [condition],
    })
}

/// What is wrong with who leads by a Lease.
fn fault_of_leader(api: &Api, name: &str) -> Option<String> {
    let kind = api.kind("coordination.k8s.io", "v1", "leases")?;
    let lease = kind.cache().get(&kind.key("kube-system", name)).map(|lease| kind.value(&lease));
    match lease {
        Some(lease) if !text(&lease, "/spec/holderIdentity").is_empty() => {
            let renewed: Option<jiff::Timestamp> = text(&lease, "/spec/renewTime").parse().ok();
            let seconds = lease.pointer("/spec/leaseDurationSeconds").and_then(Value::as_i64).unwrap_or(0);
            let is_held = renewed
                .is_some_and(|renewed| renewed + jiff::SignedDuration::from_secs(seconds) >= api.clock.now());
            let holder = text(&lease, "/spec/holderIdentity");
            (!is_held).then(|| format!("{holder} no longer renews the Lease kube-system/{name}"))
        }
        _ => Some(format!("nobody holds the Lease kube-system/{name}")),
    }
}
