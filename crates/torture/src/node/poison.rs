//! Objects that stricter readers than Go refuse, written as any client may, and the rule that goes with them: whatever
//! lies there, each part follows the store.
//!
//! Who follows shows what it follows: controllers and scheduler by a ReplicaSet whose Pod is bound, and a Service that
//! gets its EndpointSlice; the kubelet by what it says of that Pod.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Value, json};

use super::client::{AGAIN_AFTER, Api, NAMESPACE};
use super::oracle::late;
use super::view::View;

/// A probe that is not seen to its end counts as waited for so long.
const WAIT_MAX: Duration = Duration::from_secs(230);

/// Path of the collection, the object, and what is merged into its status: a time that is null, or is not there.
fn poisons(name: &str) -> Vec<(String, Value, Value)> {
    let core = |plural: &str| format!("/api/v1/namespaces/{NAMESPACE}/{plural}");
    let group = |group: &str, plural: &str| format!("/apis/{group}/namespaces/{NAMESPACE}/{plural}");
    let condition = json!({ "conditions": [{ "type": "Poison", "status": "True", "reason": "R", "message": "m",
        "lastTransitionTime": null }] });
    let metadata = json!({ "name": name });
    let labels = json!({ "poison": name });
    let template = json!({ "metadata": { "labels": labels }, "spec": { "containers": [{ "name": "c", "image": "i" }] } });
    let claim = json!({ "apiVersion": "v2", "kind": "Other", "metadata": { "name": "c" }, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } } });
    vec![
        (
            core("services"),
            json!({ "metadata": metadata, "spec": { "clusterIP": "None", "selector": labels } }),
            condition,
        ),
        (
            group("apps/v1", "statefulsets"),
            json!({ "metadata": metadata, "spec": { "replicas": 0, "serviceName": name, "template": template,
                "selector": { "matchLabels": labels }, "volumeClaimTemplates": [claim] } }),
            json!({ "conditions": [{ "type": "Poison", "status": "True", "lastTransitionTime": null }] }),
        ),
    ]
}

/// Writes poison and looks whether all goes on, again and again, while `goes_on`.
pub(super) async fn write(api: Api, view: std::sync::Arc<View>, goes_on: impl Fn() -> bool) {
    for number in 0.. {
        if !goes_on() {
            return;
        }
        if let Err(error) = round(&api, &view, &format!("poison-{number}")).await {
            view.blame(format!("poison-{number}: {error:#}"));
        }
    }
}

async fn round(api: &Api, view: &View, name: &str) -> Result<()> {
    let poisons = poisons(name);
    for (path, object, status) in &poisons {
        api.create(path, object).await?;
        api.patch(&format!("{path}/{name}/status"), &json!({ "status": status })).await?;
    }
    let probe = format!("probe-of-{name}");
    for (path, object) in probes(&probe) {
        api.create(&path, &object).await?;
    }
    let began = Instant::now();
    let mut missing = unmet(api, &probe).await?;
    while !missing.is_empty() && began.elapsed() < WAIT_MAX {
        tokio::time::sleep(AGAIN_AFTER).await;
        missing = unmet(api, &probe).await?;
    }
    for part in &missing {
        view.blame(format!("{name}: {}", late(part, WAIT_MAX).unwrap_or_default()));
    }
    if missing.is_empty()
        && let Some(breach) = late("somebody", began.elapsed())
    {
        view.blame(format!("{name}: {breach}"));
    }
    for (path, _) in probes(&probe) {
        api.delete(&format!("{path}/{probe}"), &json!({ "propagationPolicy": "Background" })).await?;
    }
    for (path, _, _) in &poisons {
        api.delete(&format!("{path}/{name}"), &json!({ "propagationPolicy": "Background" })).await?;
    }
    Ok(())
}

/// What the parts have to act on: a ReplicaSet of a Pod that wants no Node's room, and a Service for it.
fn probes(name: &str) -> Vec<(String, Value)> {
    let labels = json!({ "probe": name });
    let pod = json!({ "metadata": { "labels": labels }, "spec": { "terminationGracePeriodSeconds": 0,
        "containers": [{ "name": "c", "image": "none.invalid/none", "imagePullPolicy": "Never" }] } });
    let metadata = json!({ "name": name });
    vec![
        (
            format!("/api/v1/namespaces/{NAMESPACE}/services"),
            json!({ "metadata": metadata, "spec": { "selector": labels, "ports": [{ "port": 80 }] } }),
        ),
        (
            format!("/apis/apps/v1/namespaces/{NAMESPACE}/replicasets"),
            json!({ "metadata": metadata,
                "spec": { "replicas": 1, "selector": { "matchLabels": labels }, "template": pod } }),
        ),
    ]
}

/// The parts that have not acted on the probes yet.
async fn unmet(api: &Api, probe: &str) -> Result<Vec<&'static str>> {
    let pods =
        api.list(&format!("/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=probe%3D{probe}")).await?;
    let slices = format!("/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices");
    let slices = api.list(&format!("{slices}?labelSelector=kubernetes.io%2Fservice-name%3D{probe}")).await?;
    let is_bound = |pod: &Value| pod["spec"]["nodeName"].is_string();
    let is_looked_at = |pod: &Value| pod["status"]["containerStatuses"].is_array();
    let acted = [
        ("the ReplicaSet controller", !pods.is_empty()),
        ("the EndpointSlice controller", !slices.is_empty()),
        ("the scheduler", pods.iter().any(is_bound)),
        ("the kubelet", pods.iter().any(is_looked_at)),
    ];
    Ok(acted.into_iter().filter(|(_, has_acted)| !has_acted).map(|(part, _)| part).collect())
}
