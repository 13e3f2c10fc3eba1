//! The node's Lease in `kube-node-lease`: the sign of life that the node lifecycle controller looks at.

use std::sync::Arc;
use std::time::Duration;

use base::Backoff;
use controller::informer::{Decode, Transform};
use controller::request::{self, ApiRequest, Patch};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};

use crate::context::Context;

const NAMESPACE: &str = "kube-node-lease";

/// Renews the lease for ever.
pub(super) async fn keep(context: Arc<Context>) {
    let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(7), 0.2);
    let mut owner = None;
    loop {
        if owner.is_none() {
            owner = node_uid(&context).await;
        }
        let pause = match renew(&context, owner.as_deref()).await {
            Ok(()) => {
                backoff.reset();
                // A lease without its owner is put right as soon as the node is there.
                if owner.is_some() {
                    renew_every(&context).mul_f64(1.0 + 0.04 * context.random.unit())
                } else {
                    Duration::from_secs(1)
                }
            }
            Err(error) => {
                tracing::warn!(%error, "the node's lease was not renewed");
                backoff.next(&context.random)
            }
        };
        tokio::time::sleep(pause).await;
    }
}

/// A quarter of the duration, as upstream.
fn renew_every(context: &Context) -> Duration {
    let seconds = u64::try_from(context.config.node_lease_duration_seconds).unwrap_or(40);
    Duration::from_secs(seconds) / 4
}

async fn node_uid(context: &Context) -> Option<String> {
    request::find::<Node>(&context.client, "", &context.config.node_name).await.ok()??.metadata.uid
}

async fn renew(context: &Context, owner: Option<&str>) -> Result<(), kube::Error> {
    let name = &context.config.node_name;
    let renew_time = micro_time(context);
    let patch = json!({"spec": {"holderIdentity": name, "leaseDurationSeconds": context.config.node_lease_duration_seconds, "renewTime": renew_time},
        "metadata": owner_patch(name, owner)});
    let renewal = ApiRequest::patch_object::<Lease>(NAMESPACE, name, Patch::Merge(patch.clone()));
    match request::carry_out(&context.client, &renewal).await {
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        other => return other,
    }
    let mut lease = patch;
    lease["metadata"]["name"] = Value::from(name.as_str());
    lease["metadata"]["namespace"] = Value::from(NAMESPACE);
    let lease = Lease::decode(&lease.to_string(), &Transform::default()).map_err(kube::Error::SerdeError)?;
    request::carry_out(&context.client, &ApiRequest::create(&lease)).await
}

fn owner_patch(name: &str, owner: Option<&str>) -> Value {
    match owner {
        Some(uid) => {
            json!({"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}]})
        }
        None => json!({}),
    }
}

fn micro_time(context: &Context) -> String {
    let now = context.clock.now();
    format!("{now:.6}")
}
