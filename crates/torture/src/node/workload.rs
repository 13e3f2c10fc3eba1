//! Pods that come and go while processes are killed: each gets to what it is for and is deleted, or is deleted on the
//! way there.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use base::Random;
use k8s_openapi::api::core::v1::Pod;
use kube::api::AttachParams;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::Setup;
use super::client::{AGAIN_AFTER, Api, Client, NAMESPACE, TIMEOUT};
use super::oracle::is_reached;
use super::shapes::{self, MOVING, Shape, Visit};
use super::view::View;

/// A Pod that is not waited for is deleted after at most so long.
const HASTE_MILLIS_MAX: u64 = 900;
/// A Pod that got there stays for at most so long.
const STAY_MILLIS_MAX: u64 = 400;
/// Most replicas of the Deployment.
const REPLICAS_MAX: u64 = 3;
const DEPLOYMENT: &str = "moving";

/// The Pods that come and go.
pub(super) struct Workload {
    workers: Vec<JoinHandle<()>>,
    is_over: Arc<AtomicBool>,
    lived: Arc<AtomicUsize>,
}

#[derive(Clone)]
struct Worker {
    api: Api,
    view: Arc<View>,
    random: Random,
    is_over: Arc<AtomicBool>,
    lived: Arc<AtomicUsize>,
}

impl Workload {
    pub(super) fn start(client: &Client, view: &Arc<View>, setup: &Setup<'_>) -> Self {
        let (is_over, lived) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let worker = |number: u64| Worker {
            api: client.api.clone(),
            view: view.clone(),
            random: Random::seeded(setup.seed.wrapping_mul(31).wrapping_add(number)),
            is_over: is_over.clone(),
            lived: lived.clone(),
        };
        let beside = || {
            let worker = worker(0);
            (worker.api.clone(), worker.view.clone(), move || worker.goes_on())
        };
        let ((api, own_view, goes_on), owners) = (beside(), beside());
        let poison = super::poison::write(api, own_view, goes_on);
        let owners = super::owners::come_and_go(owners.0, owners.1, owners.2);
        let mut workers = vec![client.spawn(worker(0).scale()), client.spawn(poison), client.spawn(owners)];
        workers.extend((1..=setup.workers).map(|number| client.spawn(worker(number).work(number))));
        Self { workers, is_over, lived }
    }

    /// Waits until all Pods that came have gone; returns how many those were.
    pub(super) fn stop(self, client: &Client) -> Result<usize> {
        self.is_over.store(true, Ordering::Relaxed);
        let (workers, api) = (self.workers, client.api.clone());
        client.wait(async move {
            for worker in workers {
                worker.await?;
            }
            let gone = async {
                while !api.list("/api/v1/persistentvolumes").await?.is_empty() {
                    tokio::time::sleep(AGAIN_AFTER).await;
                }
                Ok(())
            };
            tokio::time::timeout(TIMEOUT, gone).await.context("volumes of claims that are gone are left")?
        })?;
        Ok(self.lived.load(Ordering::Relaxed))
    }
}

impl Worker {
    fn goes_on(&self) -> bool {
        !self.is_over.load(Ordering::Relaxed) && self.view.is_sound()
    }

    async fn pause(&self, millis_max: u64) {
        tokio::time::sleep(Duration::from_millis(self.random.below(millis_max))).await;
    }

    /// One Pod after the other.
    async fn work(self, worker: u64) {
        for number in 0.. {
            if !self.goes_on() {
                return;
            }
            let at = usize::try_from(self.random.below(MOVING.len() as u64)).unwrap_or(0);
            let Some(shape) = MOVING.get(at) else { continue };
            let name = format!("{}-{worker}-{number}", shape.name);
            if let Err(error) = self.life(shape, &name).await {
                self.view.blame(format!("{name}: {error:#}"));
            }
            self.lived.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// From its creation to its end.
    async fn life(&self, shape: &Shape, name: &str) -> Result<()> {
        if shape.claim {
            let claims = self.api.collection("persistentvolumeclaims");
            self.api.create(&claims, &shapes::volume_claim(name)).await?;
        }
        self.api.create(&self.api.collection("pods"), &(shape.pod)(name)).await?;
        // A volume that is being made when its claim goes is known to nobody yet: with upstream's provisioner, too, it
        // may stay when that is killed at that moment.
        let is_hasty = self.random.below(4) == 0 && !shape.claim;
        let mut visitor = None;
        if is_hasty {
            self.pause(HASTE_MILLIS_MAX).await;
        } else {
            self.reach(shape, name).await?;
            visitor = self.visit(shape, name).await?;
            self.pause(STAY_MILLIS_MAX).await;
        }
        // By force: nobody waits for the node then.
        let grace = i32::from(self.random.below(4) > 0);
        let path = format!("{}/{name}", self.api.collection("pods"));
        self.api.delete(&path, &json!({ "gracePeriodSeconds": grace })).await?;
        self.view
            .until("its end", |pods, _| (!pods.contains_key(name)).then_some(()), |pods| told(pods, name))
            .await?;
        if let Some(visitor) = visitor {
            visitor.abort();
        }
        if shape.claim {
            let path = format!("{}/{name}", self.api.collection("persistentvolumeclaims"));
            self.api.delete(&path, &json!({})).await?;
        }
        Ok(())
    }

    async fn reach(&self, shape: &Shape, name: &str) -> Result<()> {
        let what = format!("{:?}", shape.goal);
        let reached = self.view.until(
            &what,
            |pods, excuses| {
                let pod = pods.get(name)?;
                is_reached(pod, shape.goal, excuses.may_have_failed(name)).then_some(())
            },
            |pods| told(pods, name),
        );
        reached.await
    }

    async fn visit(&self, shape: &Shape, name: &str) -> Result<Option<JoinHandle<()>>> {
        match shape.visit {
            Visit::None => Ok(None),
            Visit::Debug => {
                let path = format!("{}/{name}/ephemeralcontainers", self.api.collection("pods"));
                self.api.patch(&path, &shapes::ephemeral()).await?;
                Ok(None)
            }
            Visit::Exec => {
                let (pods, name) = (self.api.pods(), name.to_owned());
                Ok(Some(tokio::spawn(async move {
                    let streams = AttachParams::default().stdin(false).stdout(true).stderr(false);
                    // It ends with the Pod, or with whoever carries it; both are fine.
                    if let Ok(process) = pods.exec(&name, ["sleep", "99999"], &streams).await {
                        drop(process.join().await);
                    }
                })))
            }
        }
    }

    /// A Deployment that is scaled up and down.
    async fn scale(self) {
        if let Err(error) = self.try_scale().await {
            self.view.blame(format!("{DEPLOYMENT}: {error:#}"));
        }
    }

    async fn try_scale(&self) -> Result<()> {
        let all = format!("/apis/apps/v1/namespaces/{NAMESPACE}/deployments");
        let one = format!("{all}/{DEPLOYMENT}");
        self.api.create(&all, &deployment()).await?;
        while self.goes_on() {
            let replicas = self.random.below(REPLICAS_MAX + 1);
            self.api.patch(&one, &json!({ "spec": { "replicas": replicas } })).await?;
            if self.random.below(3) == 0 {
                self.pause(HASTE_MILLIS_MAX).await;
            } else {
                self.have(usize::try_from(replicas)?).await?;
                self.pause(STAY_MILLIS_MAX).await;
            }
        }
        self.api.patch(&one, &json!({ "spec": { "replicas": 0 } })).await?;
        self.have(0).await?;
        self.api.delete(&one, &json!({ "propagationPolicy": "Background" })).await
    }

    /// Waits until so many Pods of the Deployment are there and Ready.
    async fn have(&self, replicas: usize) -> Result<()> {
        let of = |pods: &BTreeMap<String, Arc<Pod>>| -> Vec<Arc<Pod>> {
            let is_of = |pod: &&Arc<Pod>| {
                pod.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key("app"))
            };
            pods.values().filter(is_of).cloned().collect()
        };
        let what = format!("{replicas} Pods of the Deployment");
        let find = |pods: &BTreeMap<String, Arc<Pod>>, _: &super::view::Excuses<'_>| {
            let found = of(pods);
            let are_ready = found.iter().all(|pod| super::oracle::is_ready(pod));
            (found.len() == replicas && are_ready).then_some(())
        };
        let names = |pods: &BTreeMap<String, Arc<Pod>>| {
            format!("{:?}", of(pods).iter().map(|pod| pod.metadata.name.clone()).collect::<Vec<_>>())
        };
        self.view.until(&what, find, names).await
    }
}

fn told(pods: &BTreeMap<String, Arc<Pod>>, name: &str) -> String {
    match pods.get(name) {
        Some(pod) => format!("{:?} {:?}", pod.metadata.deletion_timestamp, pod.status),
        None => "there is none".to_owned(),
    }
}

fn deployment() -> Value {
    let labels = json!({ "app": DEPLOYMENT });
    let mut pod = (MOVING[0].pod)(DEPLOYMENT);
    pod["metadata"] = json!({ "labels": labels });
    json!({
        "metadata": { "name": DEPLOYMENT },
        "spec": { "replicas": 1, "selector": { "matchLabels": labels }, "template": pod },
    })
}
