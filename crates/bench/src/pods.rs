//! Deployments of the built-in image, and when a watch of the client's says that their Pods are Ready.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use futures::{Stream, StreamExt};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams, PostParams, WatchEvent, WatchParams};
use serde_json::json;

/// Deployments in the default namespace.
pub(crate) struct Deployments {
    deployments: Api<Deployment>,
    pods: Api<Pod>,
}

impl Deployments {
    pub(crate) async fn new(kubeconfig: &Path) -> Result<Self> {
        let client = kube::Client::try_from(crate::load::config(kubeconfig).await?)?;
        Ok(Self {
            deployments: Api::default_namespaced(client.clone()),
            pods: Api::default_namespaced(client),
        })
    }

    /// Makes a Deployment; returns the time from its POST until the watch has shown all its Pods Ready.
    pub(crate) async fn create(&self, name: &str, replicas: usize) -> Result<Duration> {
        let deployment = deployment(name, replicas)?;
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
    pub(crate) async fn delete(&self, name: &str) -> Result<()> {
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
fn deployment(name: &str, replicas: usize) -> Result<Deployment> {
    let labels = json!({ "app": name });
    Ok(serde_json::from_value(json!({
        "metadata": { "name": name, "labels": labels },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels },
                "spec": {
                    "terminationGracePeriodSeconds": 1,
                    "containers": [{
                        "name": "hello",
                        "image": "knarr.local/hello",
                        "imagePullPolicy": "IfNotPresent",
                    }],
                },
            },
        },
    }))?)
}
