//! Jobs on a real API server, with no more rights than upstream's roles give: what the server says of each write, and what
//! is left in the end.

use std::time::Duration;

use auth::UserInfo;
use base::{Clock, Random};
use controller::{ClientMetrics, Controller, Engine, Informers};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::server::{TestServer, admin, start_without_flow_control};

const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const PODS: &str = "/api/v1/namespaces/default/pods";

/// A server, the controllers that Jobs meet, and Nodes that end Pods as their labels say: `ends: Succeeded`.
struct Cluster {
    server: TestServer,
    metrics: ClientMetrics,
}

impl Cluster {
    async fn start() -> Self {
        let (_, server) = start_without_flow_control().await;
        let metrics = ClientMetrics::new(server.server.metrics());
        let client = |user: UserInfo| {
            let service =
                server.server.service().map_request(move |mut request: http::Request<kube::client::Body>| {
                    request.extensions_mut().insert(user.clone());
                    request
                });
            kube::Client::new(service, "default")
        };
        let (clock, random) = (Clock::system(), Random::seeded(1));
        let informers = Informers::metered(
            client(admin()),
            server.tasks.clone(),
            clock,
            random,
            metrics.of_part("tester"),
        );
        let engine = Engine::new(informers.clone(), "controllermanager");
        let rows: [Controller; 4] = [
            controllers::job::CONTROLLER,
            controllers::job::ORPHANS,
            controllers::ttl_after_finished::CONTROLLER,
            controllers::garbage_collector::CONTROLLER,
        ];
        for row in rows {
            let account =
                if row.queue.starts_with("garbage") { "generic-garbage-collector" } else { row.name };
            let name = format!("system:serviceaccount:kube-system:{account}");
            let groups =
                ["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"];
            let groups = groups.map(str::to_owned).to_vec();
            engine.start_as(row, client(UserInfo { name, groups, ..UserInfo::default() }));
        }
        let cluster = Self { server, metrics };
        cluster.end_pods(&informers);
        cluster
    }

    /// Ends Pods in the way that they ask for.
    fn end_pods(&self, informers: &Informers) {
        let mut changes = informers.informer::<Pod>().subscribe();
        let service = self.server.server.service();
        informers.tasks().spawn("nodes", async move {
            loop {
                for change in changes.next().await {
                    let Some(pod) = change.new else { continue };
                    let phase =
                        pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
                    let wanted = pod.metadata.labels.as_ref().and_then(|labels| labels.get("ends"));
                    let Some(wanted) = wanted.filter(|_| phase == "Pending") else { continue };
                    let path = format!("{PODS}/{}/status", pod.metadata.name.as_deref().unwrap());
                    let body = json!({"status": {"phase": wanted}}).to_string();
                    let headers = [("content-type", "application/merge-patch+json")];
                    crate::server::send(service.clone(), Some(admin()), "PATCH", &path, &headers, body).await;
                }
            }
        });
    }

    async fn make(&self, name: &str, labels: &str, spec: &str) {
        let job = format!(
            "{{metadata: {{name: {name}}}, spec: {{{spec}, template: {{metadata: {{labels: {{{labels}}}}}, spec: {{restartPolicy: \
             Never, containers: [{{name: c, image: i}}]}}}}}}}}"
        );
        let made = self.server.call("POST", JOBS, &job).await;
        assert_eq!(made.code, 201, "{}", made.body);
        assert!(made.body["metadata"]["name"] == name);
    }

    async fn patch(&self, name: &str, patch: &str) {
        let headers = [("content-type", "application/merge-patch+json")];
        let answer = self.server.call_with("PATCH", &format!("{JOBS}/{name}"), &headers, patch).await;
        assert_eq!(answer.code, 200, "{}", answer.body);
    }

    async fn delete(&self, name: &str, policy: &str) {
        let options = json!({"propagationPolicy": policy}).to_string();
        let answer = self.server.call("DELETE", &format!("{JOBS}/{name}"), &options).await;
        assert!(answer.code.is_success(), "{}", answer.body);
    }

    async fn job(&self, name: &str) -> Value {
        self.server.call("GET", &format!("{JOBS}/{name}"), "").await.body
    }

    async fn pods(&self, job: &str) -> Vec<Value> {
        let list = self.server.call("GET", &format!("{PODS}?labelSelector=job-name={job}"), "").await.body;
        list["items"].as_array().cloned().unwrap_or_default()
    }

    async fn is(&self, name: &str, condition: &str) -> bool {
        let job = self.job(name).await;
        let mut conditions = job["status"]["conditions"].as_array().into_iter().flatten();
        conditions.any(|one| one["type"] == condition && one["status"] == "True")
    }

    async fn eventually(&self, what: &str, holds: impl AsyncFn() -> bool) {
        let end = tokio::time::Instant::now() + Duration::from_secs(60);
        while !holds().await {
            assert!(tokio::time::Instant::now() < end, "{what}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn until(&self, name: &str, condition: &str) -> Value {
        self.eventually(&format!("{name} is {condition}"), async || self.is(name, condition).await).await;
        self.job(name).await["status"].clone()
    }
}

fn is_tracked(pod: &Value) -> bool {
    pod["metadata"]["finalizers"]
        .as_array()
        .into_iter()
        .flatten()
        .any(|one| one == "batch.kubernetes.io/job-tracking")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_are_carried_out_to_their_ends_and_no_pod_is_held() {
    let cluster = Cluster::start().await;
    cluster.make("many", "ends: Succeeded", "completions: 120, parallelism: 40").await;
    cluster.make("bad", "ends: Failed", "backoffLimit: 0").await;
    cluster
        .make("indexed", "ends: Succeeded", "completionMode: Indexed, completions: 3, parallelism: 3")
        .await;
    let status = cluster.until("many", "Complete").await;
    let counts =
        ["succeeded", "failed", "active", "ready", "terminating"].map(|field| status[field].as_i64());
    assert_eq!(counts, [Some(120), None, None, Some(0), Some(0)], "{status}");
    let status = cluster.until("bad", "Failed").await;
    assert_eq!(
        (&status["failed"], &status["conditions"][0]["reason"]),
        (&json!(1), &json!("BackoffLimitExceeded"))
    );
    let status = cluster.until("indexed", "Complete").await;
    assert_eq!(status["completedIndexes"], "0-2", "{status}");
    for (job, count) in [("many", 120), ("bad", 1), ("indexed", 3)] {
        let pods = cluster.pods(job).await;
        assert_eq!((pods.len(), pods.iter().filter(|pod| is_tracked(pod)).count()), (count, 0), "{job}");
    }
    let text = cluster.metrics.registry().render();
    for line in [
        r#"job_controller_job_pods_finished_total{completion_mode="NonIndexed",result="succeeded"} 120"#,
        r#"job_controller_jobs_finished_total{completion_mode="NonIndexed",result="failed",reason="BackoffLimitExceeded"} 1"#,
        r#"job_controller_job_finished_indexes_total{status="succeeded",backoffLimit="global"} 3"#,
        r#"job_controller_terminated_pods_tracking_finalizer_total{event="delete"} 124"#,
    ] {
        assert!(text.lines().any(|told| told == line), "{line} is not in\n{text}");
    }
    cluster.delete("many", "Background").await;
    cluster.eventually("the Pods are gone", async || cluster.pods("many").await.is_empty()).await;
    cluster.server.stop().await;
}

#[tokio::test]
async fn a_job_is_suspended_and_resumed_and_deleted_while_its_pods_run() {
    let cluster = Cluster::start().await;
    cluster.make("slow", "a: b", "completions: 3, parallelism: 2").await;
    cluster.eventually("two Pods work", async || cluster.job("slow").await["status"]["active"] == 2).await;
    cluster.patch("slow", r#"{"spec": {"suspend": true}}"#).await;
    cluster.until("slow", "Suspended").await;
    cluster.eventually("no Pod is left", async || cluster.pods("slow").await.is_empty()).await;
    // The time in whole seconds has to be another one.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    cluster.patch("slow", r#"{"spec": {"suspend": false}}"#).await;
    cluster.eventually("it is resumed", async || cluster.job("slow").await["status"]["active"] == 2).await;
    let status = cluster.job("slow").await["status"].clone();
    assert_eq!(status["conditions"][0]["reason"], "JobResumed", "{status}");
    assert_eq!(status["failed"], Value::Null, "what was suspended has not failed: {status}");
    // Who lets the Pods go does not hold them either.
    cluster.delete("slow", "Orphan").await;
    cluster
        .eventually("the Pods are free", async || {
            let pods = cluster.pods("slow").await;
            pods.len() == 2 && !pods.iter().any(is_tracked)
        })
        .await;
    cluster.server.stop().await;
}

#[tokio::test]
async fn a_job_that_is_over_goes_when_it_asked_to_with_its_pods() {
    let cluster = Cluster::start().await;
    cluster.make("brief", "ends: Succeeded", "ttlSecondsAfterFinished: 0").await;
    cluster.eventually("it is gone", async || cluster.job("brief").await["code"] == 404).await;
    assert!(cluster.pods("brief").await.is_empty());
    cluster.make("elsewhere", "a: b", "managedBy: example.com/other").await;
    cluster.make("mine", "ends: Succeeded", "managedBy: kubernetes.io/job-controller").await;
    cluster.until("mine", "Complete").await;
    assert!(cluster.pods("elsewhere").await.is_empty());
    cluster.server.stop().await;
}
