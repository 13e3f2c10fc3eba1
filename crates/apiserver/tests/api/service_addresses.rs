//! Cluster IPs and node ports: each is one Service's, however many servers share the store.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::server::{TestServer, start, start_on, start_with};
use futures::future::join_all;
use serde_json::{Value, json};
use store::embedded::{Embedded, Options};

const SERVICES: &str = "/api/v1/namespaces/default/services";
const RANGES: &str = "/apis/networking.k8s.io/v1/servicecidrs";
const ADDRESSES: &str = "/apis/networking.k8s.io/v1/ipaddresses";

fn service(name: &str, spec: &str) -> String {
    format!("{{metadata: {{name: {name}}}, spec: {{ports: [{{port: 80}}]{spec}}}}}")
}

/// Asks until the answer is as wanted.
async fn wait_for(server: &TestServer, path: &str, what: impl Fn(&Value) -> bool) -> Value {
    let asking = async {
        loop {
            let answer = server.call("GET", path, "").await;
            if what(&answer.body) {
                return answer.body;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), asking).await.unwrap_or_else(|_| panic!("{path} in time"))
}

/// A server whose Services have addresses of IPv6 alone.
async fn start_of_ipv6() -> TestServer {
    start_with(None, |config| {
        config.service_cidrs = "fd43::/112".parse().unwrap();
        config.advertise_address = "[2001:db8::1]:6443".parse().unwrap();
    })
    .await
}

async fn two_servers(configure: fn(&mut apiserver::Config)) -> (TestServer, TestServer) {
    let dir = tempfile::tempdir().unwrap();
    let store: Arc<dyn store::Store> =
        Arc::new(Embedded::open(&dir.path().join("db"), Options::default()).unwrap());
    let one = start_on(Arc::clone(&store), dir, None, configure).await;
    let two = start_on(store, tempfile::tempdir().unwrap(), None, configure).await;
    (one, two)
}

#[tokio::test(flavor = "multi_thread")]
async fn two_servers_on_one_store_never_give_out_the_same_twice() {
    // Both seeds are the same, so both servers want the same addresses and ports.
    let (one, two) = two_servers(|config| {
        config.service_cidrs = "10.43.0.0/26".parse().unwrap();
        config.node_ports.last = 30063;
    })
    .await;
    let made = (0..60).map(|number| {
        let server = if number % 2 == 0 { &one } else { &two };
        async move { server.call("POST", SERVICES, &service(&format!("s{number}"), ", type: NodePort")).await }
    });
    let made = join_all(made).await;
    let mut addresses = BTreeSet::new();
    let mut ports = BTreeSet::new();
    for answer in &made {
        assert_eq!(answer.code, 201, "{}", answer.body);
        addresses.insert(answer.body["spec"]["clusterIP"].to_string());
        ports.insert(answer.body["spec"]["ports"][0]["nodePort"].as_u64().unwrap());
    }
    assert_eq!((addresses.len(), ports.len()), (60, 60));
    // One address is left (62 hosts, one is the API server's own), then none.
    let last = two.call("POST", SERVICES, &service("last", "")).await;
    assert_eq!(last.code, 201, "{}", last.body);
    let full = one.call("POST", SERVICES, &service("full", "")).await;
    assert_eq!(full.code, 500, "{}", full.body);
    assert_eq!(
        full.body["message"],
        "Internal error occurred: failed to allocate a serviceIP: range is full"
    );
    one.stop().await;
    two.stop().await;
}

#[tokio::test]
async fn what_a_service_gives_up_another_gets_at_once() {
    let server = start(None).await;
    let ports = ", type: NodePort, ports: [{port: 80, nodePort: 30080}]";
    let body = |name: &str| format!("{{metadata: {{name: {name}}}, spec: {{{}}}}}", &ports[2..]);
    assert_eq!(server.call("POST", SERVICES, &body("one")).await.code, 201);
    let taken = server.call("POST", SERVICES, &body("two")).await;
    assert_eq!(
        taken.body["message"],
        "Service \"two\" is invalid: spec.ports[0].nodePort: Invalid value: 30080: provided port is already allocated"
    );
    for change in [
        r#"{"spec": {"type": "ClusterIP"}}"#,
        r#"{"spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": 30080}]}}"#,
        r#"{"spec": {"ports": [{"port": 80, "nodePort": 30081}]}}"#,
    ] {
        let changed = server.call("PATCH", &format!("{SERVICES}/one"), change).await;
        assert_eq!(changed.code, 200, "{}", changed.body);
    }
    assert_eq!(server.call("POST", SERVICES, &body("two")).await.code, 201);
    let deleted = server.call("DELETE", &format!("{SERVICES}/two"), "").await;
    assert_eq!(deleted.code, 200);
    assert_eq!(server.call("POST", SERVICES, &body("three")).await.code, 201);
    server.stop().await;
}

#[tokio::test]
async fn a_dry_run_takes_nothing() {
    let server = start(None).await;
    let spec = ", type: NodePort, clusterIP: 10.43.0.9";
    let dry = server.call("POST", &format!("{SERVICES}?dryRun=All"), &service("dry", spec)).await;
    assert_eq!(dry.code, 201, "{}", dry.body);
    assert_eq!(server.call("GET", &format!("{ADDRESSES}/10.43.0.9"), "").await.code, 404);
    assert_eq!(server.call("POST", SERVICES, &service("wet", spec)).await.code, 201);
    server.stop().await;
}

#[tokio::test]
async fn a_range_that_users_add_gives_out_addresses() {
    let server = start_with(None, |config| config.service_cidrs = "10.43.0.0/30".parse().unwrap()).await;
    assert_eq!(server.call("POST", SERVICES, &service("one", "")).await.code, 201);
    assert_eq!(server.call("POST", SERVICES, &service("two", "")).await.code, 500);
    let out = server.call("POST", SERVICES, &service("two", ", clusterIP: 10.44.0.7")).await;
    assert_eq!(
        out.body["message"],
        "Service \"two\" is invalid: spec.clusterIPs: Invalid value: [\"10.44.0.7\"]: failed to allocate IP 10.44.0.7: the provided network does not match the current range"
    );
    let more = server.call("POST", RANGES, "{metadata: {name: more}, spec: {cidrs: [10.44.0.0/24]}}").await;
    assert_eq!(more.code, 201, "{}", more.body);
    let two = server.call("POST", SERVICES, &service("two", ", clusterIP: 10.44.0.7")).await;
    assert_eq!(two.code, 201, "{}", two.body);
    let three = server.call("POST", SERVICES, &service("three", "")).await;
    assert!(three.body["spec"]["clusterIP"].as_str().unwrap().starts_with("10.44.0."), "{}", three.body);
    let record = server.call("GET", &format!("{ADDRESSES}/10.44.0.7"), "").await;
    assert_eq!(
        record.body["spec"]["parentRef"],
        json!({"group": "", "resource": "services", "namespace": "default", "name": "two"})
    );
    server.stop().await;
}

#[tokio::test]
async fn a_record_that_somebody_takes_away_comes_back_with_an_event() {
    let server = start(None).await;
    let made = server.call("POST", SERVICES, &service("web", ", clusterIP: 10.43.0.7")).await;
    assert_eq!(made.code, 201, "{}", made.body);
    let record = format!("{ADDRESSES}/10.43.0.7");
    let uid = server.call("GET", &record, "").await.body["metadata"]["uid"].clone();
    assert_eq!(server.call("DELETE", &record, "").await.code, 200);
    let back = wait_for(&server, &record, |body| body["kind"] == "IPAddress").await;
    assert_ne!(back["metadata"]["uid"], uid);
    let events = "/apis/events.k8s.io/v1/namespaces/default/events";
    let is_told = |body: &Value| body["items"].as_array().is_some_and(|items| !items.is_empty());
    let told = wait_for(&server, events, is_told).await;
    assert_eq!(told["items"][0]["reason"], "ClusterIPNotAllocated");
    assert_eq!(told["items"][0]["note"], "Cluster IP [IPv4]: 10.43.0.7 is not allocated; repairing");
    assert_eq!(told["items"][0]["regarding"]["name"], "web");
    server.stop().await;
}

#[tokio::test]
async fn a_dual_stack_cluster_gives_addresses_of_both_families() {
    let server = start_with(None, |config| {
        config.service_cidrs = "10.43.0.0/16,fd43::/112".parse().unwrap();
    })
    .await;
    let made = server.call("POST", SERVICES, &service("web", ", ipFamilyPolicy: PreferDualStack")).await;
    assert_eq!(made.code, 201, "{}", made.body);
    let spec = &made.body["spec"];
    assert_eq!(spec["ipFamilies"], json!(["IPv4", "IPv6"]));
    let second = spec["clusterIPs"][1].as_str().unwrap().to_owned();
    assert!(second.starts_with("fd43::"), "{second}");
    assert_eq!(spec["clusterIP"], spec["clusterIPs"][0]);
    let single = server
        .call("PATCH", &format!("{SERVICES}/web"), r#"{"spec": {"ipFamilyPolicy": "SingleStack"}}"#)
        .await;
    assert_eq!(single.code, 200, "{}", single.body);
    assert_eq!(single.body["spec"]["clusterIPs"].as_array().unwrap().len(), 1);
    assert_eq!(server.call("GET", &format!("{ADDRESSES}/{second}"), "").await.code, 404);
    let dual = server
        .call("PATCH", &format!("{SERVICES}/web"), r#"{"spec": {"ipFamilyPolicy": "RequireDualStack"}}"#)
        .await;
    assert_eq!(dual.code, 200, "{}", dual.body);
    assert_eq!(dual.body["spec"]["clusterIPs"].as_array().unwrap().len(), 2);
    server.stop().await;
}

/// Addresses of a Service that was made, or what was said.
fn addresses(answer: &Value) -> String {
    let texts = |list: &Value| -> Vec<String> {
        list.as_array().into_iter().flatten().filter_map(|one| Some(one.as_str()?.to_owned())).collect()
    };
    match answer["kind"].as_str() {
        Some("Service") => texts(&answer["spec"]["clusterIPs"]).join(" "),
        _ => answer["message"].as_str().unwrap_or_default().to_owned(),
    }
}

#[tokio::test]
async fn the_kubernetes_service_of_a_cluster_of_ipv6_is_of_ipv6() {
    let server = start_of_ipv6().await;
    let kubernetes = server.call("GET", &format!("{SERVICES}/kubernetes"), "").await.body;
    assert_eq!(
        (addresses(&kubernetes).as_str(), &kubernetes["spec"]["ipFamilies"]),
        ("fd43::1", &json!(["IPv6"]))
    );
    let slice = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes";
    let slice = server.call("GET", slice, "").await.body;
    assert_eq!(slice["addressType"], "IPv6");
    assert_eq!(slice["endpoints"][0]["addresses"], json!(["2001:db8::1"]));
    let endpoints = server.call("GET", "/api/v1/namespaces/default/endpoints/kubernetes", "").await.body;
    assert_eq!(endpoints["subsets"][0]["addresses"], json!([{"ip": "2001:db8::1"}]));
    server.stop().await;
}

#[tokio::test]
async fn a_cluster_of_ipv6_gives_addresses_of_no_other_family() {
    let server = start_of_ipv6().await;
    let invalid = |name: &str, why: &str| format!("Service \"{name}\" is invalid: {why}");
    for (name, spec, expect) in [
        ("asked", ", clusterIP: 'fd43::7'", "fd43::7".to_owned()),
        ("headless", ", clusterIP: None, selector: {a: b}", "None".to_owned()),
        (
            "again",
            ", clusterIP: 'fd43::7'",
            invalid(
                "again",
                "spec.clusterIPs: Invalid value: [\"fd43::7\"]: failed to allocate IP fd43::7: provided IP is already allocated",
            ),
        ),
        (
            "outside",
            ", clusterIP: 'fd44::7'",
            invalid(
                "outside",
                "spec.clusterIPs: Invalid value: [\"fd44::7\"]: failed to allocate IP fd44::7: the provided network does not \
                 match the current range",
            ),
        ),
        (
            "first",
            ", clusterIP: 'fd43::'",
            invalid(
                "first",
                "spec.clusterIPs: Invalid value: [\"fd43::\"]: failed to allocate IP fd43::: the provided network does not \
                 match the current range",
            ),
        ),
        (
            "four",
            ", clusterIP: 10.43.0.7",
            invalid(
                "four",
                "spec.clusterIPs[0]: Invalid value: [\"10.43.0.7\"]: IPv4 is not configured on this cluster",
            ),
        ),
        (
            "both",
            ", ipFamilyPolicy: RequireDualStack",
            invalid(
                "both",
                "spec.ipFamilyPolicy: Invalid value: \"RequireDualStack\": this cluster is not configured for dual-stack services",
            ),
        ),
    ] {
        let made = server.call("POST", SERVICES, &service(name, spec)).await;
        assert_eq!(addresses(&made.body), expect, "{name}");
    }
    let any = server
        .call("POST", SERVICES, &service("any", ", type: NodePort, ipFamilyPolicy: PreferDualStack"))
        .await;
    let given = addresses(&any.body);
    assert!(given.starts_with("fd43::") && !given.contains(' '), "{given}");
    let record = server.call("GET", &format!("{ADDRESSES}/{given}"), "").await;
    assert_eq!(record.body["metadata"]["labels"]["ipaddress.kubernetes.io/ip-family"], "IPv6");
    server.stop().await;
}

#[tokio::test]
async fn a_service_goes_from_one_family_to_both_and_back_with_one_node_port() {
    let server = start_with(None, |config| {
        config.service_cidrs = "fd43::/112,10.43.0.0/16".parse().unwrap();
        config.advertise_address = "[2001:db8::1]:6443".parse().unwrap();
    })
    .await;
    let made = server.call("POST", SERVICES, &service("web", ", type: NodePort, clusterIP: 'fd43::7'")).await;
    assert_eq!(addresses(&made.body), "fd43::7");
    let port = made.body["spec"]["ports"][0]["nodePort"].clone();
    let path = format!("{SERVICES}/web");
    for round in 0..2 {
        let dual =
            server.call("PATCH", &path, r#"{"spec": {"ipFamilyPolicy": "RequireDualStack"}}"#).await.body;
        let (first, second) = {
            let texts = addresses(&dual);
            let (first, second) = texts.split_once(' ').unwrap();
            (first.to_owned(), second.to_owned())
        };
        assert!(first == "fd43::7" && second.starts_with("10.43."), "{round}: {first} {second}");
        assert_eq!(dual["spec"]["ports"][0]["nodePort"], port, "both families have one port");
        assert_eq!(server.call("GET", &format!("{ADDRESSES}/{second}"), "").await.code, 200);
        for (change, why) in [
            (json!({"clusterIPs": [second, "fd43::7"]}), "first value must match `clusterIP`"),
            (json!({"clusterIPs": ["fd43::7"]}), "must be 'SingleStack' to release the secondary cluster IP"),
            (json!({"ipFamilies": ["IPv6"]}), "must be 'SingleStack' to release the secondary IP family"),
            (json!({"ipFamilies": ["IPv4", "IPv6"]}), "expected an IPv6 value as indicated by"),
        ] {
            let refused = server.call("PATCH", &path, &json!({"spec": change}).to_string()).await;
            let told = refused.body["message"].as_str().unwrap_or_default().to_owned();
            assert!(refused.code == 422 && told.contains(why), "{change}: {}", refused.body);
        }
        let single = server.call("PATCH", &path, r#"{"spec": {"ipFamilyPolicy": "SingleStack"}}"#).await.body;
        assert_eq!(addresses(&single), "fd43::7");
        assert_eq!(server.call("GET", &format!("{ADDRESSES}/{second}"), "").await.code, 404);
    }
    let out = r#"{"spec": {"type": "ExternalName", "externalName": "a.b"}}"#;
    let external = server.call("PATCH", &path, out).await.body;
    assert_eq!((addresses(&external).as_str(), &external["spec"]["ipFamilies"]), ("", &Value::Null));
    assert_eq!(server.call("GET", &format!("{ADDRESSES}/fd43::7"), "").await.code, 404);
    server.stop().await;
}

#[tokio::test]
async fn a_cluster_becomes_one_of_both_families() {
    let dir = tempfile::tempdir().unwrap();
    let store: Arc<dyn store::Store> =
        Arc::new(Embedded::open(&dir.path().join("db"), Options::default()).unwrap());
    let one = start_on(Arc::clone(&store), dir, None, |_| {}).await;
    let made = one.call("POST", SERVICES, &service("old", ", ipFamilyPolicy: PreferDualStack")).await.body;
    assert!(!addresses(&made).contains(' '), "{made}");
    one.stop().await;
    let both = |config: &mut apiserver::Config| {
        config.service_cidrs = "10.43.0.0/16,fd43::/112".parse().unwrap();
    };
    let two = start_on(store, tempfile::tempdir().unwrap(), None, both).await;
    let range = two.call("GET", &format!("{RANGES}/kubernetes"), "").await.body;
    assert_eq!(range["spec"]["cidrs"], json!(["10.43.0.0/16", "fd43::/112"]));
    let new = two.call("POST", SERVICES, &service("new", ", ipFamilyPolicy: RequireDualStack")).await.body;
    assert!(addresses(&new).contains(" fd43::"), "{new}");
    // Who was there before is asked.
    let old = two.call("GET", &format!("{SERVICES}/old"), "").await.body;
    assert!(!addresses(&old).contains(' '), "{old}");
    let asked = r#"{"spec": {"ipFamilyPolicy": "RequireDualStack"}}"#;
    let old = two.call("PATCH", &format!("{SERVICES}/old"), asked).await.body;
    assert!(addresses(&old).contains(" fd43::"), "{old}");
    two.stop().await;
}

#[tokio::test]
async fn the_kubernetes_service_has_one_record() {
    let server = start(None).await;
    let all = server.call("GET", ADDRESSES, "").await;
    let names: Vec<&str> = all.body["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|one| one["metadata"]["name"].as_str())
        .collect();
    assert_eq!(names, ["10.43.0.1"]);
    server.stop().await;
}
