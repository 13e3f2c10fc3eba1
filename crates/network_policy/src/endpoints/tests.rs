use serde_json::{Value, json};

use super::*;

fn pod(name: &str, node: &str, more: Value) -> Arc<Pod> {
    let mut object = json!({
        "metadata": {"namespace": "n", "name": name, "uid": "1", "labels": {"app": name}, "annotations": {"much": "text"}},
        "spec": {"nodeName": node, "containers": [{"name": "c", "ports": [
            {"name": "web", "containerPort": 80}, {"containerPort": 81}, {"name": "dns", "containerPort": 53, "protocol": "UDP"},
        ]}]},
        "status": {"phase": "Running", "podIP": "10.42.1.2", "podIPs": [{"ip": "10.42.1.2"}, {"ip": "fd42::2"}]},
    });
    for part in ["metadata", "spec", "status"] {
        let fields = more[part].as_object().cloned().unwrap_or_default();
        object[part].as_object_mut().expect("fields").extend(fields);
    }
    Arc::new(serde_json::from_value(object).expect("a Pod"))
}

fn sandbox(uid: &str) -> Sandbox {
    Sandbox {
        namespace: "n".into(),
        name: "a".into(),
        uid: uid.into(),
        labels: [("app".to_owned(), "made-with".to_owned())].into(),
        addresses: vec!["10.42.0.9".parse().expect("an address")],
    }
}

/// An endpoint in a line.
fn line(endpoint: &Endpoint) -> String {
    let ips: Vec<String> = endpoint.addresses.iter().map(ToString::to_string).collect();
    let ports: Vec<String> =
        endpoint.ports.iter().map(|it| format!("{}={}/{}", it.name, it.port, it.protocol)).collect();
    let app = endpoint.labels.get("app").map_or("", String::as_str);
    let (locality, state) = (endpoint.locality, endpoint.state);
    format!("{app} {locality:?} {state:?} {} {}", ips.join(","), ports.join(","))
}

fn told(changed: &Changed) -> Vec<String> {
    let tell =
        |(id, it): &(String, Option<Endpoint>)| format!("{id}: {}", it.as_ref().map_or("gone".into(), line));
    changed.iter().map(tell).collect()
}

#[test]
fn pods_elsewhere_are_endpoints_while_they_have_addresses_of_their_own() {
    let running = "pod/n/a: a Elsewhere Running 10.42.1.2,fd42::2 dns=53/17,web=80/6";
    for (name, node, more, expect) in [
        ("running", "far", json!({}), running),
        ("here", "here", json!({}), "pod/n/a: gone"),
        ("on the host's network", "far", json!({"spec": {"hostNetwork": true}}), "pod/n/a: gone"),
        ("succeeded", "far", json!({"status": {"phase": "Succeeded"}}), "pod/n/a: gone"),
        ("failed", "far", json!({"status": {"phase": "Failed"}}), "pod/n/a: gone"),
        ("no address yet", "far", json!({"status": {"podIP": null, "podIPs": []}}), "pod/n/a: gone"),
        (
            "one field",
            "far",
            json!({"status": {"podIPs": null}}),
            "pod/n/a: a Elsewhere Running 10.42.1.2 dns=53/17,web=80/6",
        ),
        ("nonsense", "far", json!({"status": {"podIP": "x", "podIPs": [{"ip": "y"}, {}]}}), "pod/n/a: gone"),
        (
            "a sidecar",
            "far",
            json!({"spec": {"containers": [], "initContainers": [
                {"restartPolicy": "Always", "ports": [{"name": "side", "containerPort": 1}]},
                {"ports": [{"name": "init", "containerPort": 2}]},
            ]}}),
            "pod/n/a: a Elsewhere Running 10.42.1.2,fd42::2 side=1/6",
        ),
    ] {
        let mut endpoints = Endpoints::new("here");
        assert_eq!(told(&endpoints.pod("n/a", Some(pod("a", node, more)))), [expect], "{name}");
    }
}

#[test]
fn a_sandbox_has_the_labels_of_its_pod_and_no_other() {
    let mut endpoints = Endpoints::new("here");
    let one = BTreeMap::from([("s".to_owned(), sandbox("1"))]);
    assert_eq!(told(&endpoints.sandboxes(&one)), ["sandbox/s: made-with Here Running 10.42.0.9 "]);
    assert!(endpoints.sandboxes(&one).is_empty(), "nothing new");
    // Another Pod that had the name.
    let other = pod("a", "here", json!({"metadata": {"uid": "0"}}));
    let unchanged = "sandbox/s: made-with Here Running 10.42.0.9 ";
    assert_eq!(told(&endpoints.pod("n/a", Some(other))), ["pod/n/a: gone", unchanged]);
    let own = "sandbox/s: a Here Running 10.42.0.9 dns=53/17,web=80/6";
    assert_eq!(told(&endpoints.pod("n/a", Some(pod("a", "here", json!({}))))), ["pod/n/a: gone", own]);
    let over = pod("a", "here", json!({"status": {"phase": "Failed"}}));
    let expect = "sandbox/s: a Here Over 10.42.0.9 dns=53/17,web=80/6";
    assert_eq!(told(&endpoints.pod("n/a", Some(over))), ["pod/n/a: gone", expect], "still isolated");
    // Deleted by force while its containers run.
    assert_eq!(told(&endpoints.pod("n/a", None)), ["pod/n/a: gone", "sandbox/s: a Here Running 10.42.0.9 "]);
    assert_eq!(told(&endpoints.sandboxes(&BTreeMap::new())), ["sandbox/s: gone"]);
}

#[test]
fn a_static_pod_is_known_by_its_mirror() {
    let mut endpoints = Endpoints::new("here");
    endpoints.sandboxes(&BTreeMap::from([("s".to_owned(), sandbox("hash"))]));
    let mirror =
        pod("a", "here", json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "hash"}}}));
    let expect = "sandbox/s: a Here Running 10.42.0.9 dns=53/17,web=80/6";
    assert_eq!(told(&endpoints.pod("n/a", Some(mirror))), ["pod/n/a: gone", expect]);
}
