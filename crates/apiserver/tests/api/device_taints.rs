//! Taints of devices: a server, a scheduler and the controller that ends Pods, with no more rights than upstream's role gives
//! it, in virtual time, as those see it who make slices, rules, claims and Pods.

use std::sync::Arc;
use std::time::Duration;

use auth::UserInfo;
use base::{Clock, Random};
use controller::trace::Reporter;
use controller::{Engine, Informers};
use jiff::Timestamp;
use machinery::features;
use serde_json::{Value, json};
use store::Store;
use store::embedded::{Embedded, Options, Threads};
use torture::simulation;
use tower::ServiceExt;

use crate::server::{self, TestServer, admin};

const PODS: &str = "/api/v1/namespaces/default/pods";
const EVENTS: &str = "/api/v1/namespaces/default/events";
const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";
const CLASSES: &str = "/apis/resource.k8s.io/v1/deviceclasses";
const RULES: &str = "/apis/resource.k8s.io/v1alpha3/devicetaintrules";
/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long all that is to happen may take.
const SOON: Duration = Duration::from_secs(60);

/// Runs what users do beside a scheduler and the controller with the features on; the time is not real.
fn run<F: Future<Output = ()>>(work: impl FnOnce(Arc<TestServer>) -> F) {
    let gates = ["DRADeviceTaints=true", "DRADeviceTaintRules=true"].map(|gate| gate.parse().unwrap());
    // Somebody in the same process may have done it before.
    features::turn_on(&gates).unwrap_or_else(drop);
    simulation::runtime().unwrap().block_on(async {
        let clock = Clock::simulated("2026-01-01T00:00:00Z".parse().unwrap());
        let (random, dir) = (Random::seeded(1), torture::folder().unwrap());
        let options = Options { clock: clock.clone(), threads: Threads::None, ..Options::default() };
        let store: Arc<dyn Store> = Arc::new(Embedded::open(&dir.path().join("db"), options).unwrap());
        let fair = |config: &mut apiserver::Config| config.options.is_fair = false;
        let server = Arc::new(server::start_at(clock.clone(), random.clone(), store, dir, None, fair).await);
        let tasks = server.tasks.child();
        let informers = Informers::new(client(&server, admin()), tasks.clone(), clock, random);
        let row = controllers::device_taint_eviction::CONTROLLER;
        let engine = Engine::new(informers.clone(), "controllermanager");
        engine.start_as(row, client(&server, account(row.name)));
        let settings = scheduler::Configuration::default();
        tasks.spawn("scheduler", scheduler::run(settings, informers, Reporter::disabled(), tasks.clone()));
        cluster(&server).await;
        work(Arc::clone(&server)).await;
        tasks.stop();
    });
}

fn client(server: &TestServer, user: UserInfo) -> kube::Client {
    let service =
        server.server.service().map_request(move |mut request: http::Request<kube::client::Body>| {
            request.extensions_mut().insert(user.clone());
            request
        });
    kube::Client::new(service, "default")
}

fn account(name: &str) -> UserInfo {
    let groups = ["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"];
    UserInfo {
        name: format!("system:serviceaccount:kube-system:{name}"),
        groups: groups.map(str::to_owned).to_vec(),
        ..UserInfo::default()
    }
}

async fn make(server: &TestServer, path: &str, object: Value) -> Value {
    let made = server.call("POST", path, &object.to_string()).await;
    assert_eq!(made.code, 201, "{}", made.body);
    made.body
}

async fn patch(server: &TestServer, path: &str, patch: Value) -> Value {
    let answer = server.call("PATCH", path, &patch.to_string()).await;
    assert_eq!(answer.code, 200, "{}", answer.body);
    answer.body
}

async fn get(server: &TestServer, path: &str) -> Value {
    server.call("GET", path, "").await.body
}

/// A Node with two devices, `d1` and `d2`.
async fn cluster(server: &TestServer) {
    let account = json!({"metadata": {"name": "default"}});
    make(server, "/api/v1/namespaces/default/serviceaccounts", account).await;
    make(server, "/api/v1/nodes", json!({"metadata": {"name": "one"}})).await;
    let has = json!({"cpu": "8", "memory": "8Gi", "pods": "110"});
    let status = json!({"status": {"capacity": has, "allocatable": has}});
    patch(server, "/api/v1/nodes/one/status", status).await;
    patch(server, "/api/v1/nodes/one", json!({"spec": {"taints": null}})).await;
    let selectors = json!([{"cel": {"expression": "device.driver == 'd.example'"}}]);
    make(server, CLASSES, json!({"metadata": {"name": "gpu"}, "spec": {"selectors": selectors}})).await;
    let pool = json!({"name": "one", "generation": 1, "resourceSliceCount": 1});
    let devices = json!([{"name": "d1"}, {"name": "d2"}]);
    let spec = json!({"driver": "d.example", "nodeName": "one", "pool": pool, "devices": devices});
    make(server, SLICES, json!({"metadata": {"name": "s"}, "spec": spec})).await;
}

/// A Pod with a claim of its name, which tolerates this.
async fn pod(server: &TestServer, name: &str, tolerations: Value) {
    let request = json!({"deviceClassName": "gpu", "tolerations": tolerations});
    let devices = json!({"requests": [{"name": "r", "exactly": request}]});
    make(server, CLAIMS, json!({"metadata": {"name": name}, "spec": {"devices": devices}})).await;
    let spec = json!({
        "containers": [{"name": "c", "image": "i:1", "resources": {"claims": [{"name": "r"}]}}],
        "resourceClaims": [{"name": "r", "resourceClaimName": name}],
    });
    make(server, PODS, json!({"metadata": {"name": name}, "spec": spec})).await;
}

/// The device that the claim of a Pod with a Node has; empty if it has none.
async fn device_of(server: &TestServer, name: &str) -> String {
    let (pod, claim) =
        (get(server, &format!("{PODS}/{name}")).await, get(server, &format!("{CLAIMS}/{name}")).await);
    let device = claim.pointer("/status/allocation/devices/results/0/device").and_then(Value::as_str);
    device.filter(|_| pod["spec"]["nodeName"] == "one").unwrap_or_default().to_owned()
}

/// Since when the Pod is being deleted; empty if it is not.
async fn deleted(server: &TestServer, name: &str) -> String {
    let pod = get(server, &format!("{PODS}/{name}")).await;
    pod["metadata"]["deletionTimestamp"].as_str().unwrap_or_default().to_owned()
}

/// What a rule's status says.
async fn status_of(server: &TestServer, rule: &str) -> String {
    let rule = get(server, &format!("{RULES}/{rule}")).await;
    let condition = &rule["status"]["conditions"][0];
    let part = |field: &str| condition[field].as_str().unwrap_or_default();
    format!("{} {}: {}", part("status"), part("reason"), part("message"))
}

/// What was told of Pods.
async fn told(server: &TestServer) -> Vec<String> {
    let events = get(server, EVENTS).await;
    let of_controller = |event: &&Value| event["reason"] == "DeviceTaintManagerEviction";
    let text = |event: &Value| {
        let (about, message) = (&event["involvedObject"]["name"], &event["message"]);
        format!("{}: {}", about.as_str().unwrap(), message.as_str().unwrap())
    };
    events["items"].as_array().unwrap().iter().filter(of_controller).map(text).collect()
}

/// Waits until what is looked at is as expected.
async fn until(expect: &str, look: impl AsyncFn() -> String) {
    let seen = async {
        while look().await != expect {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    if tokio::time::timeout(SOON, seen).await.is_err() {
        panic!("{expect:?} is to be seen, {:?} is", look().await);
    }
}

/// What is looked at is so and stays so for some time.
async fn stays(seconds: u64, expect: &str, look: impl AsyncFn() -> String) {
    for _ in 0..seconds {
        assert_eq!(look().await, expect);
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn at(text: &Value) -> Timestamp {
    text.as_str().unwrap().parse().unwrap()
}

#[test]
fn a_rule_keeps_pods_from_devices_and_ends_those_that_have_one_when_their_time_is_over() {
    run(async |server| {
        let server = &*server;
        let soft = json!({"deviceSelector": {"device": "d1"}, "taint": {"key": "k", "effect": "NoSchedule"}});
        let rule = make(server, RULES, json!({"metadata": {"name": "broken"}, "spec": soft})).await;
        assert_eq!((&rule["metadata"]["generation"], &rule["status"]), (&json!(1), &json!({})));
        assert_eq!(rule["spec"]["taint"]["timeAdded"], rule["metadata"]["creationTimestamp"]);
        let none_ends = "False OtherEffect: Eviction only happens for the NoExecute effect.";
        until(none_ends, async || status_of(server, "broken").await).await;
        pod(server, "plain", json!([])).await;
        until("d2", async || device_of(server, "plain").await).await;
        pod(server, "waits", json!([])).await;
        stays(20, "", async || device_of(server, "waits").await).await;
        let patient = json!([
            {"operator": "Exists", "effect": "NoSchedule"},
            {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60},
        ]);
        pod(server, "patient", patient.clone()).await;
        until("d1", async || device_of(server, "patient").await).await;
        let claim = get(server, &format!("{CLAIMS}/patient")).await;
        assert_eq!(claim["status"]["allocation"]["devices"]["results"][0]["tolerations"], patient);
        let hard = json!({"spec": {"taint": {"effect": "NoExecute", "timeAdded": null}}});
        let rule = patch(server, &format!("{RULES}/broken"), hard).await;
        assert_eq!(rule["metadata"]["generation"], 2);
        let pending = "True PodsPendingEviction: 1 pod needs to be evicted in 1 namespace.";
        until(pending, async || status_of(server, "broken").await).await;
        stays(50, "", async || deleted(server, "patient").await).await;
        let over = at(&rule["spec"]["taint"]["timeAdded"]) + Duration::from_secs(60);
        // The time of a deletion is that of its end.
        let gone = over + Duration::from_secs(30);
        until(&gone.to_string(), async || deleted(server, "patient").await).await;
        let pod = get(server, &format!("{PODS}/patient")).await;
        let conditions = pod["status"]["conditions"].as_array().unwrap();
        let target = conditions.iter().find(|one| one["type"] == "DisruptionTarget").unwrap();
        assert_eq!(target["reason"], "DeletionByDeviceTaintManager");
        let completed = "False Completed: 1 pod evicted since starting the controller.";
        until(completed, async || status_of(server, "broken").await).await;
        assert_eq!(told(server).await, ["patient: Marking for deletion"]);
        assert_eq!(deleted(server, "plain").await, "");
    });
}

#[test]
fn who_waits_for_a_device_has_it_when_its_rule_goes() {
    run(async |server| {
        let server = &*server;
        let all = json!({"deviceSelector": {}, "taint": {"key": "k", "effect": "NoExecute"}});
        make(server, RULES, json!({"metadata": {"name": "all"}, "spec": all})).await;
        pod(server, "waits", json!([])).await;
        stays(20, "", async || device_of(server, "waits").await).await;
        until("False NotStarted: ", async || status_of(server, "all").await).await;
        let answer = server.call("DELETE", &format!("{RULES}/all"), "").await;
        assert_eq!((answer.code.as_u16(), &answer.body["kind"]), (200, &json!("DeviceTaintRule")));
        until("d1", async || device_of(server, "waits").await).await;
    });
}

#[test]
fn a_taint_of_a_slice_that_goes_in_time_ends_nobody_and_a_rule_of_no_effect_tells_whom_it_would() {
    run(async |server| {
        let server = &*server;
        let patient = json!([{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 40}]);
        pod(server, "patient", patient).await;
        until("d1", async || device_of(server, "patient").await).await;
        let none =
            json!({"deviceSelector": {"driver": "d.example"}, "taint": {"key": "k", "effect": "None"}});
        make(server, RULES, json!({"metadata": {"name": "none"}, "spec": none})).await;
        let preview = "False NoEffect: 2 published devices selected. 1 allocated device selected. 1 pod would be evicted \
                       in 1 namespace if the effect was NoExecute. This information will not be updated again. Recreate \
                       the DeviceTaintRule to trigger an update.";
        until(preview, async || status_of(server, "none").await).await;
        let slice = format!("{SLICES}/s");
        let devices =
            |taints: Value| json!({"spec": {"devices": [{"name": "d1", "taints": taints}, {"name": "d2"}]}});
        let bad = json!([{"key": "k", "effect": "NoExecute"}]);
        let tainted = patch(server, &slice, devices(bad.clone())).await;
        at(&tainted["spec"]["devices"][0]["taints"][0]["timeAdded"]);
        stays(30, "", async || deleted(server, "patient").await).await;
        patch(server, &slice, devices(json!([]))).await;
        stays(30, "", async || deleted(server, "patient").await).await;
        assert_eq!(told(server).await, ["patient: Cancelling deletion"]);
        patch(server, &slice, devices(bad)).await;
        stays(35, "", async || deleted(server, "patient").await).await;
        until("false", async || deleted(server, "patient").await.is_empty().to_string()).await;
        assert_eq!(status_of(server, "none").await, preview);
    });
}
