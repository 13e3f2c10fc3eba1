//! A whole kubelet against a pretended runtime and a pretended API server.

mod api;
mod certificates;
mod csi_driver;
mod device_plugin;
mod node_shutdown;
mod runtime;
mod start;
mod storage;
mod tokens;

use std::sync::Arc;
use std::time::Duration;

use base::{Clock, Random, Tasks};
use controller::Informers;
use controller::trace::Reporter;
use serde_json::{Value, json};

use crate::config::eviction::Policy as EvictionPolicy;
use crate::{Config, Parts, run};
use api::Api;
use runtime::Runtime;

const DEADLINE: Duration = Duration::from_secs(60);

struct Node {
    api: Api,
    runtime: Arc<Runtime>,
    clock: Clock,
    tasks: Tasks,
    /// Those of the kubelet that was started last.
    kubelet: parking_lot::Mutex<Tasks>,
    dir: tempfile::TempDir,
    /// Changes the configuration.
    change: Box<dyn Fn(&mut Config) + Send + Sync>,
}

impl Node {
    fn start() -> Self {
        Self::start_with(|_| {})
    }

    fn start_with(change: impl Fn(&mut Config) + Send + Sync + 'static) -> Self {
        Self::start_of(Api::default(), change)
    }

    /// With an API server that knows other things.
    fn start_of(api: Api, change: impl Fn(&mut Config) + Send + Sync + 'static) -> Self {
        Self::start_at(Clock::system(), api, change)
    }

    /// At another time.
    fn start_at(clock: Clock, api: Api, change: impl Fn(&mut Config) + Send + Sync + 'static) -> Self {
        let node = Self {
            api,
            runtime: Arc::new(Runtime::default()),
            clock,
            tasks: Tasks::new(),
            kubelet: parking_lot::Mutex::new(Tasks::new()),
            dir: tempfile::tempdir().unwrap(),
            change: Box::new(change),
        };
        node.spawn_kubelet();
        node
    }

    fn spawn_kubelet(&self) {
        let mut config = Config {
            node_name: "n1".into(),
            node_ips: vec!["10.0.0.1".into()],
            root_dir: self.dir.path().join("kubelet"),
            pod_logs_dir: self.dir.path().join("logs"),
            cgroup_root: "/knarr-test-that-is-not-there".into(),
            cgroups_per_qos: false,
            enforced: crate::config::Enforced::default(),
            sync_frequency: Duration::from_millis(100),
            static_pod_path: Some(self.dir.path().join("manifests")),
            // How full the disk of the machine is that runs the tests must not matter.
            eviction: EvictionPolicy { thresholds: Vec::new(), ..EvictionPolicy::default() },
            ..Config::default()
        };
        (self.change)(&mut config);
        let tasks = self.tasks.child();
        *self.kubelet.lock() = tasks.clone();
        let client = self.api.client();
        let (clock, random) = (self.clock.clone(), Random::seeded(1));
        let parts = Parts {
            informers: Informers::new(client.clone(), tasks.clone(), clock.clone(), random.clone()),
            client,
            runtime: self.runtime.clone(),
            images: self.runtime.clone(),
            tasks: tasks.clone(),
            clock,
            random,
            reporter: Reporter::disabled(),
        };
        tasks.spawn("kubelet", async move { run(config, parts).await.unwrap() });
    }

    /// Nothing of it is done any more when whoever calls this waits for something.
    fn stop_kubelet(&self) {
        self.kubelet.lock().stop();
    }

    async fn until(&self, what: &str, condition: impl Fn(&Value) -> bool) -> Value {
        let seen = self.api.until(|pod| condition(pod));
        match tokio::time::timeout(DEADLINE, seen).await {
            Ok(pod) => pod,
            Err(_) => panic!("{what} did not come: {:#}\n{:?}", self.api.pod(), self.runtime.calls()),
        }
    }

    async fn until_there(&self, path: &std::path::Path) {
        let mut watch = sys::folder_watch::FolderWatch::new(path.parent().unwrap()).unwrap();
        while !path.exists() {
            tokio::time::timeout(DEADLINE, watch.changed()).await.unwrap().unwrap();
        }
    }

    async fn until_not_there(&self, path: &std::path::Path) {
        let mut watch = sys::folder_watch::FolderWatch::new(path.parent().unwrap()).unwrap();
        while path.exists() {
            tokio::time::timeout(DEADLINE, watch.changed()).await.unwrap().unwrap();
        }
    }

    async fn until_called(&self, what: &str) {
        self.until_called_times(what, 1).await;
    }

    async fn until_called_times(&self, what: &str, times: usize) {
        if tokio::time::timeout(DEADLINE, self.runtime.until_called(what, times)).await.is_err() {
            panic!("`{what}` was not called {times} times: {:?}", self.runtime.calls());
        }
    }

    async fn until_gone(&self) {
        let gone = self.api.until_gone();
        if tokio::time::timeout(DEADLINE, gone).await.is_err() {
            panic!("the pod did not go: {:#}\n{:?}", self.api.pod(), self.runtime.calls());
        }
    }
}

fn pod(extra: Value) -> Value {
    let mut spec = json!({"nodeName": "n1", "restartPolicy": "Always", "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "main", "image": "img", "imagePullPolicy": "IfNotPresent"}]});
    for (key, value) in extra.as_object().unwrap() {
        spec[key] = value.clone();
    }
    json!({"apiVersion": "v1", "kind": "Pod", "spec": spec, "status": {"phase": "Pending"},
        "metadata": {"name": "web", "namespace": "shop", "uid": "u1", "generation": 1}})
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "True")
}

#[tokio::test]
async fn a_pod_runs_restarts_and_is_deleted() {
    let node = Node::start();
    node.api.put(pod(json!({})));
    let ready = node.until("readiness", is_ready).await;
    assert_eq!(ready["status"]["podIP"], "10.42.0.9");
    assert_eq!(ready["status"]["phase"], "Running");
    let container = &ready["status"]["containerStatuses"][0];
    assert!(container["containerID"].as_str().unwrap().starts_with("fake://"), "{container}");

    node.runtime.exit("main", 1);
    let restarted = |pod: &Value| pod["status"]["containerStatuses"][0]["restartCount"] == 1 && is_ready(pod);
    let pod = node.until("the restart", restarted).await;
    assert_eq!(pod["status"]["containerStatuses"][0]["lastState"]["terminated"]["exitCode"], 1);
    assert_eq!(pod["status"]["containerStatuses"][0]["lastState"]["terminated"]["reason"], "Error");

    node.runtime.exit("main", 1);
    let waits = |pod: &Value| {
        pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    };
    node.until("the back-off", waits).await;

    node.api.delete();
    node.until_gone().await;
    assert!(node.runtime.is_empty(), "{:?}", node.runtime.calls());
    assert!(!node.dir.path().join("kubelet/pods/u1").exists());
}

#[tokio::test]
async fn sidecars_end_in_their_turn_after_the_main_containers() {
    let node = Node::start();
    let sidecar = |name| json!({"name": name, "image": "img", "imagePullPolicy": "IfNotPresent", "restartPolicy": "Always"});
    node.api.put(pod(json!({"restartPolicy": "Never", "terminationGracePeriodSeconds": 600,
        "initContainers": [sidecar("first"), sidecar("second")]})));
    node.until("readiness", is_ready).await;
    node.runtime.exit("main", 0);
    let ended = node.until("the end", |pod| pod["status"]["phase"] != "Running").await;
    let sidecars = ended["status"]["initContainerStatuses"].as_array().unwrap();
    assert!(sidecars.iter().all(|sidecar| sidecar["state"]["terminated"].is_object()), "{ended:#}");
    let calls = node.runtime.calls();
    let stops: Vec<_> =
        calls.iter().filter_map(|call| call.strip_prefix("stop c")?.split(' ').next()).collect();
    assert_eq!(stops, ["3", "2"], "the one that came last goes first: {calls:?}");
}

#[tokio::test]
async fn what_happens_while_the_runtime_gives_no_events_is_not_missed() {
    let node = Node::start();
    node.api.put(pod(json!({})));
    node.until("readiness", is_ready).await;
    node.runtime.fall_silent();
    node.runtime.exit("main", 1);
    node.runtime.speak_again();
    let restarted = |pod: &Value| pod["status"]["containerStatuses"][0]["restartCount"] == 1 && is_ready(pod);
    node.until("the restart", restarted).await;
    // And it listens again.
    node.runtime.exit("main", 1);
    let waits = |pod: &Value| {
        pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    };
    node.until("the back-off", waits).await;
}

#[tokio::test]
async fn a_runtime_that_does_not_say_where_images_are_is_asked_again_when_it_is_there() {
    let node = Node::start();
    node.runtime.fall_silent();
    node.until_called("image fs info in vain").await;
    node.runtime.speak_again();
    node.until_called("image fs info answered").await;
}

#[tokio::test]
async fn a_restarted_kubelet_leaves_containers_alone() {
    let node = Node::start();
    node.api.put(pod(json!({})));
    node.until("readiness", is_ready).await;
    let calls = node.runtime.calls().len();
    let writes = node.api.status_writes();
    node.spawn_kubelet();
    node.api.annotate("touched");
    let second = node.runtime.clone();
    tokio::time::timeout(DEADLINE, second.until_listed(2)).await.unwrap();
    node.runtime.exit("main", 0);
    let restarted = |pod: &Value| pod["status"]["containerStatuses"][0]["restartCount"] == 1;
    node.until("the restart", restarted).await;
    let made = node.runtime.calls()[calls..].iter().filter(|c| c.starts_with("run sandbox")).count();
    assert_eq!(made, 0, "{:?}", node.runtime.calls());
    assert!(node.api.status_writes() >= writes);
}

#[tokio::test]
async fn init_containers_come_first_and_a_config_map_is_waited_for() {
    let node = Node::start();
    node.api.put(pod(json!({
        "initContainers": [{"name": "first", "image": "img"}],
        "volumes": [{"name": "conf", "configMap": {"name": "conf", "optional": true}}],
    })));
    let held = |pod: &Value| pod["status"]["initContainerStatuses"][0]["state"]["running"].is_object();
    let waiting = node.until("the init container", held).await;
    assert_eq!(waiting["status"]["containerStatuses"][0]["state"]["waiting"]["reason"], "PodInitializing");
    node.runtime.exit("first", 0);
    node.until("readiness", is_ready).await;
}

#[tokio::test]
async fn a_static_pod_runs_and_goes_with_its_file() {
    let node = Node::start();
    let manifests = node.dir.path().join("manifests");
    std::fs::create_dir(&manifests).unwrap();
    let file = manifests.join("web.yaml");
    let text = "{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {terminationGracePeriodSeconds: 1, \
                containers: [{name: main, image: img, imagePullPolicy: IfNotPresent}]}}";
    std::fs::write(&file, text).unwrap();
    node.until_called("start c").await;
    // Another content is another Pod, which waits for the first one's end.
    std::fs::write(&file, text.replace("img", "other")).unwrap();
    node.until_called("remove sandbox sb1").await;
    node.until_called("start c4").await;
    std::fs::remove_file(&file).unwrap();
    node.until_called("remove sandbox sb3").await;
}

#[tokio::test]
async fn a_static_pod_runs_and_is_restarted_while_the_api_is_away() {
    let node = Node::start_with(|_| {});
    node.api.set_away(true);
    let manifests = node.dir.path().join("manifests");
    std::fs::create_dir(&manifests).unwrap();
    let text = "{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {terminationGracePeriodSeconds: 1, \
                containers: [{name: main, image: img, imagePullPolicy: IfNotPresent}]}}";
    std::fs::write(manifests.join("web.yaml"), text).unwrap();
    node.until_called("start c").await;
    node.runtime.exit("main", 1);
    node.until_called("start c3").await;
    std::fs::remove_file(manifests.join("web.yaml")).unwrap();
    node.until_called("remove sandbox sb1").await;
}

/// More than half of a node's CPUs: two such Pods do not fit.
fn over_half() -> String {
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    format!("{}m", cpus * 1000 / 2 + 1)
}

async fn node_with_half_taken() -> Node {
    let node = Node::start();
    node.api.put(pod(json!({"containers": [{"name": "main", "image": "img",
        "imagePullPolicy": "IfNotPresent", "resources": {"requests": {"cpu": over_half()}}}]})));
    node.until("readiness", is_ready).await;
    node
}

/// A static Pod that goes before others.
fn put_critical(node: &Node) {
    let half = over_half();
    let manifests = node.dir.path().join("manifests");
    std::fs::create_dir(&manifests).unwrap();
    let text = format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: matters}}, spec: {{containers: [{{name: main, image: img, \
         imagePullPolicy: IfNotPresent, resources: {{requests: {{cpu: {half}}}}}}}]}}}}"
    );
    std::fs::write(manifests.join("matters.yaml"), text).unwrap();
}

#[tokio::test]
async fn a_pod_goes_for_a_critical_one() {
    let node = node_with_half_taken().await;
    put_critical(&node);
    let ended = node.until("the end", |pod| pod["status"]["phase"] == "Failed").await;
    assert_eq!(ended["status"]["reason"], "Preempting");
    assert_eq!(ended["status"]["message"], "Preempted in order to admit critical pod");
    node.until_called("start c4").await;
    let calls = node.runtime.calls();
    // However short its time is, it has two seconds.
    let stopped = calls.iter().position(|call| call == "stop c2 2");
    let made = calls.iter().rposition(|call| call == "run sandbox");
    assert!(stopped.is_some() && stopped < made, "{calls:?}");
}

#[tokio::test]
async fn a_pod_that_has_to_go_goes_though_the_kubelet_is_restarted() {
    let node = node_with_half_taken().await;
    node.runtime.set_obeys(false);
    put_critical(&node);
    node.until_called("stop c2").await;
    node.stop_kubelet();
    node.runtime.exit("main", 0);
    node.runtime.set_obeys(true);
    let calls = node.runtime.calls().len();
    node.spawn_kubelet();
    let ended = node.until("the end", |pod| pod["status"]["phase"] == "Failed").await;
    assert_eq!(ended["status"]["reason"], "Preempting");
    let conditions = ended["status"]["conditions"].as_array().unwrap();
    assert!(
        conditions.iter().any(|it| it["type"] == "DisruptionTarget" && it["status"] == "True"),
        "{ended:#}"
    );
    node.until_called_times("run sandbox", 2).await;
    let made = node.runtime.calls().split_off(calls);
    assert_eq!(made.iter().filter(|call| *call == "run sandbox").count(), 1, "the critical one's: {made:?}");
    // And so it stays.
    node.stop_kubelet();
    node.spawn_kubelet();
    node.api.delete();
    node.until_gone().await;
    assert!(!node.dir.path().join("kubelet/pods/u1").exists());
}

#[tokio::test]
async fn a_pod_that_does_not_fit_is_refused() {
    let node = Node::start();
    node.api.put(pod(json!({"containers": [{"name": "main", "image": "img",
        "resources": {"requests": {"cpu": "100000"}}}]})));
    let refused = node.until("the refusal", |pod| pod["status"]["phase"] == "Failed").await;
    assert_eq!(refused["status"]["reason"], "OutOfcpu");
    let message = refused["status"]["message"].as_str().unwrap();
    assert!(
        message.starts_with("Pod was rejected: Node didn't have enough resource: cpu, requested: 100000000")
    );
    assert!(node.runtime.calls().iter().all(|call| !call.starts_with("run sandbox")));
    node.api.delete();
    node.until_gone().await;
}
