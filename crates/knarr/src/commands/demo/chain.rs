//! The story that the demo tells: create, watch it happen, ask it, hurt it, see it heal.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use base::{Clock, Random, Tasks};
use cli::Progress;
use cli::trace::Detail;
use controller::{Informer, Informers};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::json;

use super::checks;
use crate::commands::cluster::{self, Asked};
use crate::commands::trace;
use crate::layout::Layout;

const WAIT_MAX: Duration = Duration::from_secs(60);
const CLUSTER_DNS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 43, 0, 10));
const POD_PORT: u16 = 8080;

/// Tells it; fails at the first thing that does not hold.
pub(crate) async fn tell(replicas: u32, layout: &Layout, progress: &mut Progress) -> Result<()> {
    let cluster = cluster::administered(layout).await?;
    let client = cluster.client.clone();
    let tasks = Tasks::new();
    let informers = Informers::new(client.clone(), tasks.clone(), Clock::system(), Random::from_system());
    let story = Story { pods: informers.informer::<Pod>(), client, cluster, replicas };
    story.pods.synced().await;
    let told = story.tell(progress).await;
    tasks.stop_and_wait().await;
    told
}

struct Story {
    client: kube::Client,
    cluster: Asked,
    pods: Informer<Pod>,
    replicas: u32,
}

impl Story {
    async fn tell(&self, progress: &mut Progress) -> Result<()> {
        progress.section(&format!(
            "kubectl create deployment web --image=knarr.local/hello --replicas={}",
            self.replicas
        ));
        let service = self.create().await?;
        let pods = self.ready(|_| true).await.context("the Pods did not become Ready")?;
        progress.done(&format!("{} Pods are Ready", pods.len()));
        progress.section("Every Pod answers");
        self.ask(&pods, &service, progress).await?;
        progress.section("knarr trace deployment/web    # what caused what, and when, in ms");
        self.print_chain(progress).await?;
        progress.section("A container's process is killed");
        self.kill_a_container(&pods, progress).await?;
        progress.section("A Pod is deleted");
        self.delete_a_pod(progress).await
    }

    async fn create(&self) -> Result<Service> {
        let service: Service = serde_json::from_value(json!({
            "metadata": { "name": "web" },
            "spec": { "selector": { "app": "web" }, "ports": [{ "port": 80, "targetPort": POD_PORT }] },
        }))?;
        let deployment: Deployment = serde_json::from_value(json!({
            "metadata": { "name": "web", "labels": { "app": "web" } },
            "spec": {
                "replicas": self.replicas,
                "selector": { "matchLabels": { "app": "web" } },
                "template": {
                    "metadata": { "labels": { "app": "web" } },
                    "spec": {
                        "terminationGracePeriodSeconds": 1,
                        "containers": [{
                            "name": "hello",
                            "image": "knarr.local/hello",
                            "imagePullPolicy": "IfNotPresent",
                            "ports": [{ "containerPort": POD_PORT }],
                            "readinessProbe": { "httpGet": { "path": "/", "port": POD_PORT }, "periodSeconds": 1 },
                        }],
                    },
                },
            },
        }))?;
        let params = PostParams::default();
        let service = Api::default_namespaced(self.client.clone()).create(&params, &service).await?;
        Api::default_namespaced(self.client.clone()).create(&params, &deployment).await?;
        Ok(service)
    }

    /// Waits until as many Pods as wanted are Ready and `all` holds of each.
    async fn ready(&self, all: impl Fn(&Pod) -> bool) -> Result<Vec<Arc<Pod>>> {
        let mut changes = self.pods.subscribe();
        let wait = async {
            loop {
                let pods = self.web_pods();
                let ready = pods.iter().filter(|pod| is_ready(pod) && all(pod)).count();
                if ready == pods.len() && ready == self.replicas as usize {
                    return pods;
                }
                changes.next().await;
            }
        };
        match tokio::time::timeout(WAIT_MAX, wait).await {
            Ok(pods) => Ok(pods),
            Err(_) => bail!("after {} s: {}", WAIT_MAX.as_secs(), describe(&self.web_pods())),
        }
    }

    /// By now also what followed from the Pods' being Ready is there: endpoints, rules, names.
    async fn print_chain(&self, progress: &Progress) -> Result<()> {
        let chain = trace::fetch(&self.cluster, "deployments", "default", "web").await?;
        for line in cli::trace::tree(&chain, Detail::Steps) {
            progress.note(&format!("  {line}"));
        }
        Ok(())
    }

    fn web_pods(&self) -> Vec<Arc<Pod>> {
        let is_web = |pod: &Arc<Pod>| {
            pod.metadata
                .labels
                .as_ref()
                .is_some_and(|labels| labels.get("app").is_some_and(|app| app == "web"))
        };
        self.pods.in_namespace("default").into_iter().filter(is_web).collect()
    }

    async fn ask(&self, pods: &[Arc<Pod>], service: &Service, progress: &mut Progress) -> Result<()> {
        for pod in pods {
            let ip = pod_ip(pod)?;
            let answer = checks::http_get(SocketAddr::new(ip, POD_PORT)).await?;
            ensure!(answer == format!("hello from {}", name(pod)), "{ip} answered {answer:?}");
            progress.done(&format!("{ip}: {answer}"));
        }
        let cluster_ip: IpAddr = service
            .spec
            .as_ref()
            .and_then(|spec| spec.cluster_ip.as_deref())
            .context("the Service has no address")?
            .parse()?;
        let address = SocketAddr::new(cluster_ip, 80);
        let asked = tokio::time::timeout(WAIT_MAX, checks::http_get_once_open(address)).await;
        let answer = asked.context("the Service does not answer")?.context("ask the Service")?;
        progress.done(&format!("Service {cluster_ip}: {answer}"));
        let dns_name = "web.default.svc.cluster.local";
        let resolved = checks::resolve(CLUSTER_DNS, dns_name).await?;
        ensure!(resolved == cluster_ip, "{dns_name} is {resolved}, not {cluster_ip}");
        let answer = checks::http_get(SocketAddr::new(resolved, 80)).await?;
        progress.done(&format!("{dns_name} ({resolved}): {answer}"));
        Ok(())
    }

    async fn kill_a_container(&self, pods: &[Arc<Pod>], progress: &mut Progress) -> Result<()> {
        let pod = pods.first().context("there is no Pod")?;
        let container = container_id(pod).context("the Pod has no container")?;
        let pid = checks::kill_container(&container)?;
        progress.done(&format!("killed process {pid} of {}", name(pod)));
        let restarted =
            |other: &Pod| other.metadata.uid != pod.metadata.uid || restarts(other) == restarts(pod) + 1;
        self.ready(restarted).await.context("the container was not restarted")?;
        progress.done(&format!("the kubelet has restarted it; {} is Ready again", name(pod)));
        Ok(())
    }

    async fn delete_a_pod(&self, progress: &mut Progress) -> Result<()> {
        let pods = self.web_pods();
        let pod = pods.first().context("there is no Pod")?;
        let api: Api<Pod> = Api::default_namespaced(self.client.clone());
        api.delete(name(pod), &DeleteParams::default()).await?;
        progress.done(&format!("deleted {}", name(pod)));
        let known: Vec<_> = pods.iter().map(|pod| pod.metadata.uid.clone()).collect();
        let now = self
            .ready(|other| other.metadata.uid != pod.metadata.uid)
            .await
            .context("the Pod was not replaced")?;
        let new = now.iter().find(|pod| !known.contains(&pod.metadata.uid)).context("there is no new Pod")?;
        let answer = checks::http_get(SocketAddr::new(pod_ip(new)?, POD_PORT)).await?;
        progress.done(&format!("the ReplicaSet has replaced it: {answer}"));
        Ok(())
    }
}

fn name(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

fn pod_ip(pod: &Pod) -> Result<IpAddr> {
    let ip = pod.status.as_ref().and_then(|status| status.pod_ip.as_deref());
    Ok(ip.with_context(|| format!("{} has no address", name(pod)))?.parse()?)
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn restarts(pod: &Pod) -> i32 {
    let statuses =
        pod.status.as_ref().and_then(|status| status.container_statuses.as_deref()).unwrap_or_default();
    statuses.iter().map(|status| status.restart_count).sum()
}

fn container_id(pod: &Pod) -> Option<String> {
    pod.status.as_ref()?.container_statuses.as_ref()?.first()?.container_id.clone()
}

fn describe(pods: &[Arc<Pod>]) -> String {
    let one = |pod: &Arc<Pod>| {
        let status = serde_json::to_string(&pod.status).unwrap_or_default();
        format!("{}: {status}", name(pod))
    };
    if pods.is_empty() {
        "there is no Pod".to_owned()
    } else {
        pods.iter().map(one).collect::<Vec<_>>().join("; ")
    }
}
