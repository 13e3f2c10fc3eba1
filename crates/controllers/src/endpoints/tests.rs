use expect_test::{Expect, expect};

use super::*;
use crate::fixture::{list, noon, parse, render};

fn check(pods: &str, existing: Option<&str>, expect: &Expect) {
    let service = "{metadata: {name: web, namespace: default, uid: s1, labels: {tier: front}}, \
                   spec: {selector: {app: web}, ports: [{name: http, port: 80, targetPort: 8080}]}}";
    let service_pods = ServicePods {
        service: Arc::new(parse(service)),
        pods: list(pods),
        nodes: BTreeMap::new(),
        revision: 3,
    };
    let endpoints = existing.map(|yaml| Arc::new(parse(yaml)));
    let snapshot = Snapshot { service_pods: Some(service_pods), has_service: true, endpoints };
    let plan = plan(&snapshot, "default/web", noon());
    let bodies = plan.actions().filter_map(|action| match action {
        Action::Request(request) => Some(format!("{:?} {}\n", request.verb, request.body)),
        _ => None,
    });
    expect.assert_eq(&bodies.collect::<String>());
}

fn pod(name: &str, ip: &str, status: &str) -> String {
    format!(
        "- metadata: {{name: {name}, namespace: default, uid: {name}-uid}}
  spec: {{nodeName: one, containers: []}}
  status: {{phase: Running, podIP: {ip}, conditions: [{{type: Ready, status: '{status}'}}]}}\n"
    )
}

#[test]
fn addresses_are_sorted_into_ready_and_not_ready() {
    let pods =
        pod("a", "10.42.0.10", "True") + &pod("b", "10.42.0.9", "True") + &pod("c", "10.42.0.3", "False");
    check(
        &pods,
        None,
        &expect![[r#"
        Create {"apiVersion":"v1","kind":"Endpoints","metadata":{"annotations":{"endpoints.kubernetes.io/last-change-trigger-time":"1970-01-01T00:00:00Z"},"labels":{"endpoints.kubernetes.io/managed-by":"endpoint-controller","tier":"front"},"name":"web","namespace":"default"},"subsets":[{"addresses":[{"ip":"10.42.0.9","nodeName":"one","targetRef":{"kind":"Pod","name":"b","namespace":"default","uid":"b-uid"}},{"ip":"10.42.0.10","nodeName":"one","targetRef":{"kind":"Pod","name":"a","namespace":"default","uid":"a-uid"}}],"notReadyAddresses":[{"ip":"10.42.0.3","nodeName":"one","targetRef":{"kind":"Pod","name":"c","namespace":"default","uid":"c-uid"}}],"ports":[{"name":"http","port":8080,"protocol":"TCP"}]}]}
    "#]],
    );
}

#[test]
fn only_what_changed_is_written() {
    let existing = "{metadata: {name: web, namespace: default, uid: e1, labels: {tier: front, \
                    endpoints.kubernetes.io/managed-by: endpoint-controller}}, subsets: [{addresses: [{ip: 10.42.0.2, \
                    nodeName: one, targetRef: {kind: Pod, namespace: default, name: a, uid: a-uid}}], \
                    ports: [{name: http, port: 8080, protocol: TCP}]}]}";
    check(&pod("a", "10.42.0.2", "True"), Some(existing), &expect![[""]]);
    check(
        "[]",
        Some(existing),
        &expect![[r#"
            Update {"apiVersion":"v1","kind":"Endpoints","metadata":{"annotations":{"endpoints.kubernetes.io/last-change-trigger-time":"1970-01-01T00:00:00Z"},"labels":{"endpoints.kubernetes.io/managed-by":"endpoint-controller","tier":"front"},"name":"web","namespace":"default","uid":"e1"}}
        "#]],
    );
}

#[test]
fn endpoints_go_with_their_service() {
    let left = "{metadata: {name: web, namespace: default, uid: e1, labels: {endpoints.kubernetes.io/managed-by: endpoint-controller}}}";
    for (yaml, expect) in [(left, "step\n  delete endpoints web\n"), ("{metadata: {name: web}}", "")] {
        let snapshot =
            Snapshot { service_pods: None, has_service: false, endpoints: Some(Arc::new(parse(yaml))) };
        assert_eq!(render(&plan(&snapshot, "default/web", noon())), expect);
    }
}

#[test]
fn endpoints_are_of_the_services_first_family() {
    let both = |name: &str, first: &str, second: &str| {
        pod(name, &format!("'{first}', podIPs: [{{ip: '{first}'}}, {{ip: '{second}'}}]"), "True")
    };
    let pods = both("a", "10.42.0.2", "fd42::2")
        + &both("b", "fd42::3", "10.42.0.3")
        + &pod("c", "'fd42::4'", "True");
    for (spec, expect) in [
        ("ipFamilies: [IPv4]", "10.42.0.2 10.42.0.3"),
        ("ipFamilies: [IPv6]", "fd42::2 fd42::3 fd42::4"),
        ("ipFamilies: [IPv6, IPv4]", "fd42::2 fd42::3 fd42::4"),
        ("clusterIP: 'fd43::7'", "fd42::2 fd42::3 fd42::4"),
        ("clusterIP: 10.43.0.7", "10.42.0.2 10.42.0.3"),
    ] {
        let service = format!(
            "{{metadata: {{name: web, namespace: default}}, spec: {{selector: {{app: web}}, {spec}}}}}"
        );
        let service_pods = ServicePods {
            service: Arc::new(parse(&service)),
            pods: list(&pods),
            nodes: BTreeMap::new(),
            revision: 3,
        };
        let ips: Vec<String> = subsets(&service_pods)
            .iter()
            .flat_map(|subset| subset.addresses.iter().flatten().map(|address| address.ip.clone()))
            .collect();
        assert_eq!(ips.join(" "), expect, "{spec}");
    }
}
