//! What the parts of a node decide from objects with null, empty and missing at every path of their schemas: nothing of it
//! stops them, and a good object beside is served.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::slice::from_ref as one;
use std::sync::Arc;

use controller::Kind;
use controller::informer::Transform;
use hickory_proto::rr::{Name, RecordType};
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kubelet::pod::snapshot::{Container, ContainerState, PodSnapshot, Sandbox, Step};
use kubelet::pod::status::NodeFacts;
use serde_json::{Value, json};

#[path = "../../../apiserver/tests/api/nothing.rs"]
mod nothing;

/// As informers decode.
fn typed<K: Kind>(object: &Value) -> Option<Arc<K>> {
    K::decode(&object.to_string(), &Transform::default()).ok().map(Arc::new)
}

/// Every change of a sound object and of one that says nothing else, and what each comes to.
fn poisons<K: Kind>(sound: &Value) -> Vec<(String, Arc<K>)> {
    let schema = schema::builtin().kind(K::GROUP, K::VERSION, K::KIND).unwrap();
    let bare = json!({"metadata": sound["metadata"]});
    let mut found = Vec::new();
    for (from, base) in [("sound", sound), ("bare", &bare)] {
        for change in nothing::changes(schema) {
            let mut object = base.clone();
            change.apply(&mut object);
            let text = format!("{from} {} {}", K::KIND, change.text());
            found
                .push((text.clone(), typed::<K>(&object).unwrap_or_else(|| panic!("{text} is not decoded"))));
        }
    }
    for is_leaf in [true, false] {
        let mut object = nothing::full_of_nulls(schema, is_leaf);
        object["metadata"]["name"] = sound["metadata"]["name"].clone();
        object["metadata"]["namespace"] = sound["metadata"]["namespace"].clone();
        found.extend(typed::<K>(&object).map(|object| (format!("{} full of nulls", K::KIND), object)));
    }
    assert!(found.len() > 100, "{} of {} are too few", found.len(), K::KIND);
    found
}

/// Fails with all for which `is_well` does not hold.
fn each<K>(poisons: &[(String, Arc<K>)], is_well: impl Fn(&Arc<K>) -> bool) {
    let holds = |object| catch_unwind(AssertUnwindSafe(|| is_well(object))).unwrap_or(false);
    let bad: Vec<&String> =
        poisons.iter().filter(|(_, object)| !holds(object)).map(|(text, _)| text).collect();
    assert!(bad.is_empty(), "{} of {}: {:#?}", bad.len(), poisons.len(), &bad[..bad.len().min(30)]);
}

fn service(name: &str, ip: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"clusterIP": ip, "clusterIPs": [ip], "selector": {"app": name}, "type": "ClusterIP",
            "ports": [{"port": 80, "protocol": "TCP", "targetPort": 8080}]},
    })
}

fn slice(service: &str, name: &str, ip: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"kubernetes.io/service-name": service}},
        "addressType": "IPv4",
        "ports": [{"port": 8080, "protocol": "TCP", "name": ""}],
        "endpoints": [{"addresses": [ip], "conditions": {"ready": true, "serving": true}, "nodeName": "n"}],
    })
}

/// All of them as new ones, whose keys are theirs.
fn news<K: Kind>(objects: &[Arc<K>]) -> Vec<proxy::News<K>> {
    let key = |object: &K| format!("default/{}", object.metadata().name.as_deref().unwrap_or_default());
    objects.iter().map(|object| (key(object), None, Some(object.clone()))).collect()
}

/// Whether rules and names of the Service `good` are there.
fn is_served(services: &[Arc<Service>], slices: &[Arc<EndpointSlice>]) -> bool {
    let config = proxy::Config {
        cluster_id: "test".into(),
        node_name: "n".into(),
        node_ips: vec![[192, 0, 2, 1].into()],
        service_cidrs: "10.43.0.0/16".parse().unwrap(),
        cluster_cidrs: "10.42.0.0/16".parse().unwrap(),
        local_addresses: vec![[10, 43, 0, 10].into()],
        mode: proxy::Mode::Nftables,
        node_port_addresses: proxy::NodePortAddresses::Primary,
        healthz_address: None,
        metrics_address: None,
    };
    let rules =
        proxy::tables(config, proxy::Changed { services: news(services), slices: news(slices), nodes: None });
    let has_rules = rules.iter().any(|table| table.chains.contains_key("endpoints/default/good//6"));
    let zone = dns::Zone::new(services, slices, "cluster.local", 1);
    let name = Name::from_ascii("good.default.svc.cluster.local.").unwrap();
    let answer = dns::answer(&zone, &name, RecordType::A);
    has_rules && format!("{answer:?}").contains("10.43.0.5")
}

#[test]
fn rules_and_names_are_made_beside_objects_with_nothing_at_any_path() {
    let good = typed::<Service>(&service("good", "10.43.0.5")).unwrap();
    let endpoint = typed::<EndpointSlice>(&slice("good", "good-1", "10.42.0.2")).unwrap();
    assert!(is_served(one(&good), one(&endpoint)));
    assert!(!is_served(&[], &[]));
    each(&poisons::<Service>(&service("bad", "10.43.0.6")), |bad| {
        is_served(&[bad.clone(), good.clone()], one(&endpoint))
            && is_served(&[good.clone(), bad.clone()], one(&endpoint))
    });
    // Of the same Service, and of one that is gone.
    for of in ["good", "other"] {
        each(&poisons::<EndpointSlice>(&slice(of, "bad-1", "10.42.0.3")), |bad| {
            is_served(one(&good), &[bad.clone(), endpoint.clone()])
        });
    }
}

/// A Pod as the kubelet sees it, before anything of it is there, and while its container runs.
fn states(pod: &Arc<Pod>) -> [PodSnapshot; 2] {
    let new = PodSnapshot { pod: Arc::clone(pod), ..PodSnapshot::default() };
    let container = Container {
        id: "c-0".into(),
        name: "c".into(),
        sandbox_id: "sb".into(),
        attempt: 0,
        state: ContainerState::Running { started_at: jiff::Timestamp::UNIX_EPOCH },
        image: "i".into(),
        image_ref: "i".into(),
        hash: String::new(),
        user: None,
        resources: None,
        recursive_mounts: Vec::new(),
    };
    let running = PodSnapshot {
        sandboxes: vec![Sandbox {
            id: "sb".into(),
            is_ready: true,
            ips: vec!["10.42.0.2".into()],
            lacks_ip: false,
            attempt: 0,
        }],
        containers: vec![container],
        volumes: Step::Ready(String::new()),
        ..new.clone()
    };
    [new, running]
}

#[test]
fn the_kubelet_decides_of_pods_with_nothing_at_any_path() {
    let now = "2026-01-01T12:00:00Z".parse().unwrap();
    let node = NodeFacts { host_ips: vec!["192.0.2.1".into()], runtime_name: "knarr".into() };
    let sound = json!({
        "metadata": {"name": "bad", "namespace": "default", "uid": "u"},
        "spec": {"nodeName": "n", "restartPolicy": "Always", "containers": [{"name": "c", "image": "i"}]},
        "status": {"phase": "Running", "podIP": "10.42.0.2"},
    });
    each(&poisons::<Pod>(&sound), |pod| {
        states(pod).iter().all(|snapshot| {
            let actions = kubelet::pod::next_actions::next_actions(snapshot, now);
            let status = kubelet::pod::status::pod_status(snapshot, &node, now);
            // It always knows what to say of the Pod, and what to do is never without an end.
            status.phase.is_some_and(|phase| !phase.is_empty()) && actions.len() < 100
        })
    });
}
