//! Deployments of the built-in image: how long until a watch of the client's says that their Pods are Ready.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use futures::{Stream, StreamExt};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams, PostParams, WatchEvent, WatchParams};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::bench::Bench;
use crate::load::STEP_MAX;
use crate::processes;

const MANY: usize = 30;

pub(super) fn measure(bench: &mut Bench) -> Result<()> {
    bench.with_cluster(async |bench, cluster| {
        let container = json!({ "image": "knarr.local/hello", "imagePullPolicy": "IfNotPresent" });
        let deployments = Deployments::new(&cluster.kubeconfig(), container).await?;
        let (mut took, runs) = (Vec::new(), bench.extent.of(20, 5));
        for run in 1..=runs {
            eprintln!("bench:   Deployment with 1 Pod, {run} of {runs}");
            took.push(create_and_delete(&deployments, &format!("one-{run}"), 1, async || Ok(())).await?);
        }
        bench.report.durations("Deployment POST to Pod Ready, 1 Pod", Some("50"), &took);
        let (mut took, mut shims, runs) = (Vec::new(), Vec::new(), bench.extent.of(3, 1));
        for run in 1..=runs {
            eprintln!("bench:   Deployment with {MANY} Pods, {run} of {runs}");
            let look = async || {
                for shim in processes::shims(&cluster.processes(""))? {
                    shims.push(processes::mebibytes(processes::pss_bytes(&[shim])?));
                }
                Ok(())
            };
            took.push(create_and_delete(&deployments, &format!("many-{run}"), MANY, look).await?);
        }
        let what = format!("{MANY}-Pod Deployment POST to all Ready");
        bench.report.durations(&what, Some("1500"), &took);
        bench.report.samples("  PSS of a Pod's shim", "MiB", Some("1.5"), &shims);
        Ok(())
    })
}

/// How long a Deployment takes to be Ready; `look` looks at it before it goes.
pub(super) async fn create_and_delete(
    deployments: &Deployments,
    name: &str,
    replicas: usize,
    look: impl AsyncFnOnce() -> Result<()>,
) -> Result<Duration> {
    let created = timeout(STEP_MAX, deployments.create(name, replicas)).await;
    let took = created.with_context(|| format!("{name} was not Ready in time"))??;
    look().await?;
    let deleted = timeout(STEP_MAX, deployments.delete(name)).await;
    deleted.with_context(|| format!("{name} was not deleted in time"))??;
    Ok(took)
}

/// Deployments in the default namespace, with one container of a kind.
pub(super) struct Deployments {
    deployments: Api<Deployment>,
    pods: Api<Pod>,
    container: Value,
}

impl Deployments {
    /// `container` needs no name.
    pub(super) async fn new(kubeconfig: &Path, container: Value) -> Result<Self> {
        let client = kube::Client::try_from(crate::load::config(kubeconfig).await?)?;
        Ok(Self {
            deployments: Api::default_namespaced(client.clone()),
            pods: Api::default_namespaced(client),
            container,
        })
    }

    /// Makes a Deployment; returns the time from its POST until the watch has shown all its Pods Ready.
    pub(super) async fn create(&self, name: &str, replicas: usize) -> Result<Duration> {
        let deployment = deployment(name, replicas, &self.container)?;
        let (_, pods) = self.watch(name).await?;
        let started = Instant::now();
        self.deployments.create(&PostParams::default(), &deployment).await.context("POST")?;
        let mut ready = BTreeSet::new();
        until(pods, |event| {
            if let WatchEvent::Added(pod) | WatchEvent::Modified(pod) = event
                && is_ready(&pod)
            {
                ready.extend(pod.metadata.name);
            }
            ready.len() == replicas
        })
        .await?;
        Ok(started.elapsed())
    }

    /// Deletes a Deployment and returns when the watch has shown the end of all its Pods.
    async fn delete(&self, name: &str) -> Result<()> {
        let (mut left, pods) = self.watch(name).await?;
        self.deployments.delete(name, &DeleteParams::background()).await.context("DELETE")?;
        if left.is_empty() {
            return Ok(());
        }
        until(pods, |event| {
            if let WatchEvent::Deleted(pod) = event {
                left.remove(&pod.metadata.name.unwrap_or_default());
            }
            left.is_empty()
        })
        .await
    }

    /// The names of a Deployment's Pods, and what happens to them from then on.
    async fn watch(
        &self,
        name: &str,
    ) -> Result<(BTreeSet<String>, impl Stream<Item = kube::Result<WatchEvent<Pod>>> + use<>)> {
        let label = format!("app={name}");
        let list = self.pods.list(&ListParams::default().labels(&label)).await.context("list Pods")?;
        let revision = list.metadata.resource_version.unwrap_or_default();
        let watch = WatchParams::default().labels(&label);
        let changes = self.pods.watch(&watch, &revision).await.context("watch Pods")?;
        Ok((list.items.into_iter().filter_map(|pod| pod.metadata.name).collect(), changes))
    }
}

/// Reads events until `is_done`.
async fn until(
    events: impl Stream<Item = kube::Result<WatchEvent<Pod>>>,
    mut is_done: impl FnMut(WatchEvent<Pod>) -> bool,
) -> Result<()> {
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.next().await {
        if is_done(event.context("watch Pods")?) {
            return Ok(());
        }
    }
    bail!("the watch of Pods ended too early")
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// No probe: Ready means that the container runs.
fn deployment(name: &str, replicas: usize, container: &Value) -> Result<Deployment> {
    let labels = json!({ "app": name });
    let mut container = container.clone();
    container["name"] = "it".into();
    Ok(serde_json::from_value(json!({
        "metadata": { "name": name, "labels": labels },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels },
                "spec": {
                    "terminationGracePeriodSeconds": 1,
                    "containers": [container],
                },
            },
        },
    }))?)
}
