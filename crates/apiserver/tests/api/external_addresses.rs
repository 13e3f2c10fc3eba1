//! A Service's external addresses: nobody takes one by default, and none that is the cluster's own at all.

use crate::server::{self, TestServer, start_with};
use apiserver::admission::chosen;

const SERVICES: &str = "/api/v1/namespaces/default/services";
const DENIED: &str = "is forbidden: Use of external IPs is denied by admission control";

fn service(name: &str, spec: &str) -> String {
    format!("{{metadata: {{name: {name}}}, spec: {{ports: [{{port: 80}}], {spec}}}}}")
}

/// A server where external IPs may be used, with a second range of Services, a Node and Pods' range.
async fn open() -> TestServer {
    let server = start_with(None, |config| {
        config.options.admission_plugins = chosen(&[], &["DenyServiceExternalIPs".into()]).unwrap();
        config.options.pod_cidrs = vec!["10.42.0.0/16".parse().unwrap()];
        config.bind = None;
    })
    .await;
    let more = "{metadata: {name: more}, spec: {cidrs: [10.99.0.0/24, 'fd99::/112']}}";
    let made = server.call("POST", "/apis/networking.k8s.io/v1/servicecidrs", more).await;
    assert_eq!(made.code, 201, "{}", made.body);
    let node = "{metadata: {name: one}, spec: {podCIDR: 10.55.1.0/24, podCIDRs: [10.55.1.0/24]}}";
    assert_eq!(server.call("POST", "/api/v1/nodes", node).await.code, 201);
    let status = r#"{"status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.10"},
        {"type": "ExternalIP", "address": "203.0.113.7"}, {"type": "InternalIP", "address": "2001:db8::10"},
        {"type": "Hostname", "address": "one"}]}}"#;
    let written = server.call("PATCH", "/api/v1/nodes/one/status", status).await;
    assert_eq!(written.code, 200, "{}", written.body);
    server
}

/// Addresses, and what is said about them.
const HOSTILE: &[(&str, &str, &str)] = &[
    (
        "another Service's, or the API's own",
        "10.43.0.1",
        "may not be in the range of cluster IPs 10.43.0.0/16",
    ),
    ("cluster DNS", "10.43.0.10", "may not be in the range of cluster IPs 10.43.0.0/16"),
    ("the range's first", "10.43.0.0", "may not be in the range of cluster IPs 10.43.0.0/16"),
    ("the range's last", "10.43.255.255", "may not be in the range of cluster IPs 10.43.0.0/16"),
    ("in a range added later", "10.99.0.9", "may not be in the range of cluster IPs 10.99.0.0/24"),
    ("in its other family", "fd99::9", "may not be in the range of cluster IPs fd99::/112"),
    ("a Pod's", "10.42.0.44", "may not be in the range of Pods 10.42.0.0/16"),
    ("in a Node's own range", "10.55.1.7", "may not be in the range of Pods 10.55.1.0/24"),
    ("a Node's", "192.0.2.10", "may not be an address of Node \"one\""),
    ("a Node's external one", "203.0.113.7", "may not be an address of Node \"one\""),
    ("a Node's, longer", "2001:db8:0:0::0010", "may not be an address of Node \"one\""),
    ("the API server's", "10.0.0.1", "may not be an address of the API server"),
    ("mapped", "::ffff:10.43.0.1", "may not be in the range of cluster IPs 10.43.0.0/16"),
    ("mapped, in hexadecimal", "::ffff:a2b:1", "may not be in the range of cluster IPs 10.43.0.0/16"),
    ("with leading zeros", "010.043.000.001", "may not be in the range of cluster IPs 10.43.0.0/16"),
    ("loopback", "127.0.0.1", "loopback"),
    ("loopback, not the first", "127.9.9.9", "loopback"),
    ("loopback, mapped", "::ffff:127.0.0.1", "loopback"),
    ("loopback, long", "::1", "loopback"),
    ("link-local", "169.254.169.254", "link-local"),
    ("link-local, long", "fe80::1", "link-local"),
    ("unspecified", "0.0.0.0", "unspecified"),
    ("multicast", "224.0.0.251", "multicast"),
    ("broadcast", "255.255.255.255", "the broadcast address"),
];

#[tokio::test]
async fn addresses_that_belong_to_the_cluster_are_refused_in_every_field() {
    let server = open().await;
    let made = server.call("POST", SERVICES, &service("balanced", "type: LoadBalancer")).await;
    assert_eq!(made.code, 201, "{}", made.body);
    let plain = server.call("POST", SERVICES, &service("plain", "type: ClusterIP")).await;
    assert_eq!(plain.code, 201, "{}", plain.body);
    for (name, ip, why) in HOSTILE {
        let requests = [
            ("POST", SERVICES.to_owned(), service("x", &format!("externalIPs: [198.51.100.1, '{ip}']"))),
            (
                "POST",
                SERVICES.to_owned(),
                service("x", &format!("type: LoadBalancer, loadBalancerIP: '{ip}'")),
            ),
            ("PATCH", format!("{SERVICES}/plain"), format!(r#"{{"spec": {{"externalIPs": ["{ip}"]}}}}"#)),
            (
                "PATCH",
                format!("{SERVICES}/balanced/status"),
                format!(r#"{{"status": {{"loadBalancer": {{"ingress": [{{"ip": "{ip}"}}]}}}}}}"#),
            ),
        ];
        for (method, path, body) in requests {
            let answer = server.call(method, &path, &body).await;
            assert_eq!(answer.code, 422, "{name}: {method} {path} {body}: {}", answer.body);
            let message = answer.body["message"].as_str().unwrap();
            assert!(message.contains(why), "{name}: {message}");
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn addresses_from_outside_are_taken_and_kept() {
    let server = open().await;
    let made =
        server.call("POST", SERVICES, &service("web", "externalIPs: [198.51.100.1, '2001:db8::99']")).await;
    assert_eq!(made.code, 201, "{}", made.body);
    let path = format!("{SERVICES}/web");
    // What becomes the cluster's own later may stay where it is, and goes nowhere else.
    let late = r#"{"status": {"addresses": [{"type": "InternalIP", "address": "198.51.100.1"}]}}"#;
    assert_eq!(server.call("PATCH", "/api/v1/nodes/one/status", late).await.code, 200);
    let labelled = server.call("PATCH", &path, r#"{"metadata": {"labels": {"a": "b"}}}"#).await;
    assert_eq!(labelled.code, 200, "{}", labelled.body);
    let moved = server
        .call("PATCH", &path, r#"{"spec": {"type": "LoadBalancer", "loadBalancerIP": "198.51.100.1"}}"#)
        .await;
    assert_eq!(moved.code, 422, "{}", moved.body);
    let other = server.call("POST", SERVICES, &service("other", "externalIPs: [198.51.100.1]")).await;
    assert_eq!(
        other.body["message"],
        "Service \"other\" is invalid: spec.externalIPs[0]: Invalid value: \"198.51.100.1\": may not be an address of Node \"one\""
    );
    let gone = server.call("PATCH", &path, r#"{"spec": {"externalIPs": null}}"#).await;
    assert_eq!(gone.code, 200, "{}", gone.body);
    let back = server.call("PATCH", &path, r#"{"spec": {"externalIPs": ["198.51.100.1"]}}"#).await;
    assert_eq!(back.code, 422, "{}", back.body);
    server.stop().await;
}

#[tokio::test]
async fn a_load_balancer_that_is_a_proxy_may_be_on_a_node() {
    let server = open().await;
    let made = server.call("POST", SERVICES, &service("web", "type: LoadBalancer")).await;
    assert_eq!(made.code, 201, "{}", made.body);
    let path = format!("{SERVICES}/web/status");
    let ingress = |ip: &str, mode: &str| {
        format!(r#"{{"status": {{"loadBalancer": {{"ingress": [{{"ip": "{ip}", "ipMode": "{mode}"}}]}}}}}}"#)
    };
    for (ip, mode, code) in [
        ("203.0.113.9", "VIP", 200),
        ("192.0.2.10", "Proxy", 200),
        ("192.0.2.10", "VIP", 422),
        ("10.43.0.1", "Proxy", 422),
        ("10.42.0.9", "Proxy", 422),
    ] {
        let answer = server.call("PATCH", &path, &ingress(ip, mode)).await;
        assert_eq!(answer.code, code, "{ip} {mode}: {}", answer.body);
    }
    server.stop().await;
}

#[tokio::test]
async fn external_ips_are_denied_by_default_and_may_be_taken_away() {
    let dir = tempfile::tempdir().unwrap();
    let store: std::sync::Arc<dyn store::Store> = std::sync::Arc::new(
        store::embedded::Embedded::open(&dir.path().join("db"), store::embedded::Options::default()).unwrap(),
    );
    // One server where they are allowed, another on the same store where they are not.
    let lax = server::start_on(std::sync::Arc::clone(&store), dir, None, |config| {
        config.options.admission_plugins = chosen(&[], &["DenyServiceExternalIPs".into()]).unwrap();
    })
    .await;
    let strict = server::start_on(store, tempfile::tempdir().unwrap(), None, |_| {}).await;
    let two = "externalIPs: [198.51.100.1, 198.51.100.2]";
    let made = lax.call("POST", SERVICES, &service("web", two)).await;
    assert_eq!(made.code, 201, "{}", made.body);
    assert_eq!(strict.call("GET", &format!("{SERVICES}/web"), "").await.code, 200, "a consistent read");
    let denied = strict.call("POST", SERVICES, &service("new", two)).await;
    assert_eq!(
        (denied.code.as_u16(), denied.body["message"].as_str().unwrap()),
        (403, &*format!("services \"new\" {DENIED}"))
    );
    for (change, code) in [
        (r#"{"metadata": {"labels": {"a": "b"}}}"#, 200),
        (r#"{"spec": {"externalIPs": ["198.51.100.2", "198.51.100.1"]}}"#, 200),
        (r#"{"spec": {"externalIPs": ["198.51.100.1", "198.51.100.3"]}}"#, 403),
        (r#"{"spec": {"externalIPs": ["198.51.100.2"]}}"#, 200),
        (r#"{"spec": {"externalIPs": ["198.51.100.1"]}}"#, 403),
        (r#"{"spec": {"externalIPs": null}}"#, 200),
        (r#"{"spec": {"externalIPs": ["198.51.100.2"]}}"#, 403),
    ] {
        let answer = strict.call("PATCH", &format!("{SERVICES}/web"), change).await;
        assert_eq!(answer.code, code, "{change}: {}", answer.body);
    }
    lax.stop().await;
    strict.stop().await;
}

#[test]
fn the_plugin_goes_by_its_name_and_the_rule_without_one_stays() {
    let names = |disabled: &[String]| {
        chosen(&[], disabled).map(|plugins| apiserver::admission::running(&plugins).collect::<Vec<_>>())
    };
    assert!(names(&[]).unwrap().contains(&"DenyServiceExternalIPs"));
    let without = names(&["DenyServiceExternalIPs".into()]).unwrap();
    assert!(!without.contains(&"DenyServiceExternalIPs") && without.contains(&"ServiceExternalAddresses"));
    assert!(names(&["ServiceExternalAddresses".into()]).is_err());
}
