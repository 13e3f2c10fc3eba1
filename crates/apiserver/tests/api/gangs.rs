//! Gangs: a server and a scheduler in virtual time, as those see it who make Workloads and Pods that name them.

use std::sync::Arc;
use std::time::Duration;

use base::{Clock, Random};
use controller::Informers;
use controller::trace::Reporter;
use http::Request;
use kube::client::Body;
use machinery::features;
use serde_json::{Value, json};
use store::Store;
use store::embedded::{Embedded, Options, Threads};
use torture::simulation;
use tower::ServiceExt;

use crate::server::{self, TestServer, admin};

const PODS: &str = "/api/v1/namespaces/default/pods";
const WORKLOADS: &str = "/apis/scheduling.k8s.io/v1alpha1/namespaces/default/workloads";
/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long all that is to happen may take.
const SOON: Duration = Duration::from_secs(60);

/// Runs what users do beside a scheduler with the features on; the time is not real.
fn run<F: Future<Output = ()>>(work: impl FnOnce(Arc<TestServer>) -> F) {
    let gates = ["GenericWorkload=true", "GangScheduling=true"].map(|gate| gate.parse().unwrap());
    // Somebody in the same process may have done it before.
    features::turn_on(&gates).unwrap_or_else(drop);
    simulation::runtime().unwrap().block_on(async {
        let clock = Clock::simulated("2026-01-01T00:00:00Z".parse().unwrap());
        let (random, dir) = (Random::seeded(1), torture::folder().unwrap());
        let options = Options { clock: clock.clone(), threads: Threads::None, ..Options::default() };
        let store: Arc<dyn Store> = Arc::new(Embedded::open(&dir.path().join("db"), options).unwrap());
        let fair = |config: &mut apiserver::Config| config.options.is_fair = false;
        let server = Arc::new(server::start_at(clock.clone(), random.clone(), store, dir, None, fair).await);
        make(&server, "/api/v1/namespaces/default/serviceaccounts", json!({"metadata": {"name": "default"}}))
            .await;
        let tasks = server.tasks.child();
        let informers = Informers::new(client(&server), tasks.clone(), clock, random);
        let settings = scheduler::Configuration::default();
        tasks.spawn("scheduler", scheduler::run(settings, informers, Reporter::disabled(), tasks.clone()));
        work(Arc::clone(&server)).await;
        tasks.stop();
    });
}

fn client(server: &TestServer) -> kube::Client {
    let service = server.server.service();
    let service = tower::service_fn(move |mut request: Request<Body>| {
        request.extensions_mut().insert(admin());
        service.clone().oneshot(request)
    });
    kube::Client::new(service, "default")
}

async fn make(server: &TestServer, path: &str, object: Value) {
    let made = server.call("POST", path, &object.to_string()).await;
    assert_eq!(made.code, 201, "{}", made.body);
}

/// A Node with room for so many Pods of [`pod`].
async fn node(server: &TestServer, name: &str, pods: u32) {
    make(server, "/api/v1/nodes", json!({"metadata": {"name": name}})).await;
    let has = json!({"cpu": pods, "memory": "8Gi", "pods": "110"});
    let status = json!({"status": {"capacity": has, "allocatable": has}}).to_string();
    let path = format!("/api/v1/nodes/{name}");
    assert_eq!(server.call("PATCH", &format!("{path}/status"), &status).await.code, 200);
    // Whose first word is still out is tainted as not ready.
    assert_eq!(server.call("PATCH", &path, r#"{"spec": {"taints": null}}"#).await.code, 200);
}

/// A Pod that asks for one CPU; of a group of the Workload `w`, or of none.
async fn pod(server: &TestServer, name: &str, group: Option<&str>) {
    pod_with(
        server,
        name,
        json!({"workloadRef": group.map(|group| json!({"name": "w", "podGroup": group}))}),
    )
    .await;
}

async fn pod_with(server: &TestServer, name: &str, more: Value) {
    let container = json!({"name": "c", "image": "i:1", "resources": {"requests": {"cpu": "1"}}});
    let mut spec = json!({"containers": [container]});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    make(server, PODS, json!({"metadata": {"name": name}, "spec": spec})).await;
}

/// The Workload `w`: a gang of three, and Pods that are none.
async fn workload(server: &TestServer) {
    let groups = json!([
        {"name": "gang", "policy": {"gang": {"minCount": 3}}},
        {"name": "each", "policy": {"basic": {}}},
    ]);
    make(server, WORKLOADS, json!({"metadata": {"name": "w"}, "spec": {"podGroups": groups}})).await;
}

/// The names of the Pods that have a Node.
async fn bound(server: &TestServer) -> Vec<String> {
    let listed = server.call("GET", PODS, "").await.body;
    let pods = listed["items"].as_array().unwrap().iter();
    let with_node = pods.filter(|pod| pod["spec"]["nodeName"].is_string());
    with_node.map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

/// Waits until these Pods, and no others, have a Node.
async fn until_bound(server: &TestServer, names: &[&str]) {
    let seen = async {
        while bound(server).await != names {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    if tokio::time::timeout(SOON, seen).await.is_err() {
        panic!("{names:?} are to be bound, {:?} are", bound(server).await);
    }
}

/// These Pods, and no others, have a Node and go on having it for a while.
async fn stays_bound(server: &TestServer, names: &[&str]) {
    for _ in 0..SOON.as_secs() {
        assert_eq!(bound(server).await, names);
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// What a Pod's status says of its Node.
async fn told(server: &TestServer, name: &str) -> String {
    let pod = server.call("GET", &format!("{PODS}/{name}"), "").await.body;
    let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let scheduled = conditions.iter().find(|one| one["type"] == "PodScheduled");
    scheduled.and_then(|one| one["message"].as_str()).unwrap_or_default().to_owned()
}

#[test]
fn a_gang_waits_for_its_workload_for_enough_pods_and_for_room_for_all_of_them() {
    run(async |server| {
        node(&server, "small", 2).await;
        for name in ["a", "b"] {
            pod(&server, name, Some("gang")).await;
        }
        pod(&server, "each", Some("each")).await;
        stays_bound(&server, &[]).await;
        workload(&server).await;
        // Who is of no gang has waited for the Workload only.
        until_bound(&server, &["each"]).await;
        stays_bound(&server, &["each"]).await;
        assert_eq!(told(&server, "a").await, "", "nobody has tried it");
        pod(&server, "c", Some("gang")).await;
        // One has found the last place, and keeps it.
        stays_bound(&server, &["each"]).await;
        pod(&server, "lone", None).await;
        stays_bound(&server, &["each"]).await;
        assert!(told(&server, "lone").await.contains("1 Insufficient cpu"));
        node(&server, "large", 3).await;
        until_bound(&server, &["a", "b", "c", "each", "lone"]).await;
        // The gang is there: another of it need not wait.
        node(&server, "other", 1).await;
        pod(&server, "d", Some("gang")).await;
        until_bound(&server, &["a", "b", "c", "d", "each", "lone"]).await;
    });
}

#[test]
fn who_has_waited_for_the_others_for_too_long_gives_its_room_back() {
    run(async |server| {
        node(&server, "small", 2).await;
        workload(&server).await;
        for name in ["a", "b", "c"] {
            pod(&server, name, Some("gang")).await;
        }
        for _ in 0..4 {
            stays_bound(&server, &[]).await;
        }
        let mut messages = Vec::new();
        for name in ["a", "b", "c"] {
            messages.push(told(&server, name).await);
        }
        let count = |part: &str| messages.iter().filter(|message| message.contains(part)).count();
        assert_eq!((count("Insufficient cpu"), count("rejected")), (1, 0), "{messages:?}");
        stays_bound(&server, &[]).await;
        tokio::time::sleep(Duration::from_secs(10)).await;
        let mut messages = Vec::new();
        for name in ["a", "b"] {
            messages.push(told(&server, name).await);
        }
        // What the third has found then, one of the two misses.
        messages.sort();
        let message = messages.pop().unwrap();
        let (start, end) = (
            "0/1 nodes are available: 1 rejected due to timeout after waiting 5m0s",
            " at plugin GangScheduling.",
        );
        assert!(message.starts_with(start) && message.ends_with(end), "{message}");
        // There are not enough any more: those that still wait do so until their time is over, and then others have their room.
        assert_eq!(server.call("DELETE", &format!("{PODS}/c"), "").await.code, 200);
        pod(&server, "lone", None).await;
        for _ in 0..6 {
            tokio::time::sleep(SOON).await;
        }
        until_bound(&server, &["lone"]).await;
    });
}

#[test]
fn a_pod_that_waits_for_its_gang_makes_way_and_is_not_deleted() {
    run(async |server| {
        node(&server, "small", 2).await;
        workload(&server).await;
        make(
            &server,
            "/apis/scheduling.k8s.io/v1/priorityclasses",
            json!({"metadata": {"name": "important"}, "value": 1000}),
        )
        .await;
        for name in ["a", "b", "c"] {
            pod(&server, name, Some("gang")).await;
        }
        stays_bound(&server, &[]).await;
        pod_with(&server, "first", json!({"priorityClassName": "important"})).await;
        until_bound(&server, &["first"]).await;
        let listed = server.call("GET", PODS, "").await.body;
        let going = |pod: &&Value| pod["metadata"]["deletionTimestamp"].is_string();
        let pods = listed["items"].as_array().unwrap();
        assert_eq!((pods.len(), pods.iter().filter(going).count()), (4, 0));
        // What it was promised is anybody's again when the other goes.
        node(&server, "large", 2).await;
        until_bound(&server, &["a", "b", "c", "first"]).await;
    });
}

#[test]
fn room_of_a_pod_that_goes_while_it_waits_is_free_at_once() {
    run(async |server| {
        node(&server, "small", 2).await;
        workload(&server).await;
        for name in ["a", "b", "c"] {
            pod(&server, name, Some("gang")).await;
        }
        stays_bound(&server, &[]).await;
        pod(&server, "lone", None).await;
        stays_bound(&server, &[]).await;
        for name in ["a", "b", "c"] {
            assert_eq!(server.call("DELETE", &format!("{PODS}/{name}"), "").await.code, 200);
        }
        until_bound(&server, &["lone"]).await;
    });
}

#[test]
fn what_cannot_be_of_workloads_and_references_is_told() {
    run(async |server| {
        workload(&server).await;
        let refused = async |method: &str, path: &str, body: Value| {
            let answer = server.call(method, path, &body.to_string()).await;
            assert_eq!(answer.code, 422, "{}", answer.body);
            answer.body["message"].as_str().unwrap().to_owned()
        };
        let none =
            refused("POST", WORKLOADS, json!({"metadata": {"name": "x"}, "spec": {"podGroups": []}})).await;
        assert!(none.contains("spec.podGroups: Required value: must have at least one item"), "{none}");
        let other = json!({"spec": {"podGroups": [{"name": "gang", "policy": {"gang": {"minCount": 2}}}]}});
        let changed = refused("PATCH", &format!("{WORKLOADS}/w"), other).await;
        assert!(changed.contains("spec.podGroups") && changed.contains("field is immutable"), "{changed}");
        let reference = json!({"podGroup": "A", "podGroupReplicaKey": "a.b"});
        let container = json!({"name": "c", "image": "i:1"});
        let spec = json!({"containers": [container], "workloadRef": reference});
        let bad = refused("POST", PODS, json!({"metadata": {"name": "x"}, "spec": spec})).await;
        for part in [
            "spec.workloadRef.name: Invalid value: \"\"",
            "spec.workloadRef.podGroup: Invalid value: \"A\"",
            "spec.workloadRef.podGroupReplicaKey: Invalid value: \"a.b\"",
        ] {
            assert!(bad.contains(part), "{bad}");
        }
        pod(&server, "a", Some("gang")).await;
        let other = json!({"spec": {"workloadRef": {"name": "v", "podGroup": "gang"}}});
        let moved = refused("PATCH", &format!("{PODS}/a"), other).await;
        assert!(moved.contains("spec: Forbidden: pod updates may not change fields other than"), "{moved}");
    });
}
