//! The node as the API sees it: registration, status, lease.
//!
//! The lease is renewed every ten seconds and the status written every five minutes; a change of the conditions is
//! written at once.

mod facts;
mod lease;
mod object;

use std::sync::Arc;
use std::time::Duration;

use base::Backoff;
use cri::v1;
use k8s_openapi::api::core::v1::{Node, NodeCondition, NodeStatus};
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::context::Context;
pub(crate) use facts::{Machine, pids_max, read_machine};
pub(crate) use object::{allocatable, node as initial};

/// How soon the runtime is asked again while it is not ready.
const UNREADY_PERIOD: Duration = Duration::from_millis(100);

/// Registers the node and keeps its status and lease, until the group of tasks stops.
pub(crate) async fn run(context: Arc<Context>, machine: Arc<Machine>) {
    context.tasks.spawn("node lease", lease::keep(context.clone()));
    let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(7), 0.2);
    let recorded = loop {
        match register(&context, &machine).await {
            Ok(recorded) => break recorded,
            Err(error) => {
                tracing::warn!(%error, node = context.config.node_name, "the node was not registered");
            }
        }
        tokio::time::sleep(backoff.next(&context.random)).await;
    };
    keep_status(&context, &machine, recorded).await;
}

/// Creates the Node with its status, or brings an existing one's labels up to date. Gives the conditions that
/// the API server has.
async fn register(context: &Context, machine: &Machine) -> Result<Vec<NodeCondition>, kube::Error> {
    let api: Api<Node> = Api::all(context.client.clone());
    let mut node = object::node(&context.config, machine);
    let problem = runtime_problem(context).await;
    node.status = Some(status(context, machine, problem.as_deref(), &[]).await);
    let conditions = |node: Node| node.status.and_then(|s| s.conditions).unwrap_or_default();
    match api.create(&PostParams::default(), &node).await {
        Ok(node) => {
            tracing::info!(node = context.config.node_name, "registered the node");
            Ok(conditions(node))
        }
        Err(kube::Error::Api(status)) if status.code == 409 => {
            let patch = json!({"metadata": {"labels": node.metadata.labels}});
            api.patch(&context.config.node_name, &PatchParams::default(), &Patch::Merge(&patch))
                .await
                .map(conditions)
        }
        Err(error) => Err(error),
    }
}

async fn keep_status(context: &Context, machine: &Machine, mut recorded: Vec<NodeCondition>) {
    let api: Api<Node> = Api::all(context.client.clone());
    let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(10), 0.2);
    loop {
        let problem = runtime_problem(context).await;
        let status = status(context, machine, problem.as_deref(), &recorded).await;
        let patch = json!({"status": patch_of(&status)});
        let pause = match api
            .patch_status(&context.config.node_name, &PatchParams::default(), &Patch::Strategic(&patch))
            .await
        {
            Ok(_) => {
                backoff.reset();
                recorded = status.conditions.unwrap_or_default();
                if problem.is_some() { UNREADY_PERIOD } else { context.config.node_status_report_frequency }
            }
            Err(error) => {
                tracing::warn!(%error, "the node's status was not written");
                backoff.next(&context.random)
            }
        };
        if let Some(problem) = problem {
            wait_until_ready(context, &problem).await;
        } else {
            tokio::select! {
                () = context.node_state.changed() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }
}

/// Waits while the runtime has the same problem.
async fn wait_until_ready(context: &Context, problem: &str) {
    let mut backoff = Backoff::new(UNREADY_PERIOD, Duration::from_secs(5), 0.1);
    while runtime_problem(context).await.as_deref() == Some(problem) {
        tokio::time::sleep(backoff.next(&context.random)).await;
    }
}

/// Addresses and images are lists that are replaced as a whole.
fn patch_of(status: &NodeStatus) -> Value {
    let mut value = serde_json::to_value(status).unwrap_or_default();
    if let Some(addresses) = value.get_mut("addresses").and_then(Value::as_array_mut) {
        addresses.insert(0, json!({"$patch": "replace"}));
    }
    value
}

/// Why no Pod can run, in upstream's words; `None` if they can.
async fn runtime_problem(context: &Context) -> Option<String> {
    let answer = match context.runtime.status(v1::StatusRequest { verbose: false }).await {
        Ok(answer) => answer.status.unwrap_or_default(),
        Err(error) => return Some(format!("container runtime is down: {error}")),
    };
    let failed = |type_: &str| answer.conditions.iter().find(|c| c.r#type == type_ && !c.status).cloned();
    if let Some(condition) = failed("RuntimeReady") {
        return Some(format!(
            "container runtime not ready: RuntimeReady=false reason:{} message:{}",
            condition.reason, condition.message
        ));
    }
    let network = failed("NetworkReady")?;
    Some(format!(
        "container runtime network not ready: NetworkReady=false reason:{} message:{}",
        network.reason, network.message
    ))
}

async fn status(
    context: &Context,
    machine: &Machine,
    problem: Option<&str>,
    before: &[NodeCondition],
) -> NodeStatus {
    let images = match context.images.list_images(v1::ListImagesRequest { filter: None }).await {
        Ok(answer) => answer.images,
        Err(error) => {
            tracing::debug!(%error, "the runtime did not list its images");
            Vec::new()
        }
    };
    let now = context.clock.now();
    let plain = object::status(&context.config, machine);
    let (capacity, allocatable) = object::with_devices(&plain, &context.devices.counts());
    NodeStatus {
        capacity,
        allocatable,
        conditions: Some(object::conditions(problem, &context.node_state.pressure(), before, now)),
        images: Some(object::images(images)),
        ..plain
    }
}
