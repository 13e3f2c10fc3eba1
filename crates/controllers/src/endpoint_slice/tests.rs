use expect_test::{Expect, expect};

use super::*;
use crate::fixture::{list, noon, parse, render};

fn check(spec: &str, pods: &str, slices: &str, expect: &Expect) {
    expect.assert_eq(&render(&decide(&snapshot(spec, pods, slices), noon()).0));
}

fn snapshot(spec: &str, pods: &str, slices: &str) -> Snapshot {
    let service = format!(
        "{{metadata: {{name: web, namespace: default, uid: s1}}, \
         spec: {{selector: {{app: web}}, ipFamilies: [IPv4], {spec}}}}}"
    );
    let nodes = [("one".to_owned(), Some("z".to_owned()))].into();
    let service_pods =
        ServicePods { service: Arc::new(parse(&service)), pods: list(pods), nodes, revision: 3 };
    Snapshot { service_pods, slices: list(slices), shares: None, had_shares: false, endpoints_max: 100 }
}

fn created(spec: &str, pods: &str, expect: &Expect) {
    let plan = decide(&snapshot(spec, pods, "[]"), noon()).0;
    let bodies = plan.actions().filter_map(|action| match action {
        Action::Request(request) => Some(request.body.to_string() + "\n"),
        _ => None,
    });
    expect.assert_eq(&bodies.collect::<String>());
}

fn pod(name: &str, ip: &str, ready: bool, rest: &str) -> String {
    format!(
        "- metadata: {{name: {name}, namespace: default, uid: {name}-uid, labels: {{app: web}}{rest}}}
  spec: {{nodeName: one, containers: [{{name: a, ports: [{{name: http, containerPort: 8080}}]}}]}}
  status: {{phase: Running, podIP: {ip}, podIPs: [{{ip: {ip}}}], conditions: [{{type: Ready, status: '{}'}}]}}\n",
        if ready { "True" } else { "False" }
    )
}

fn slice(name: &str, pods: &[(&str, &str, bool)]) -> String {
    let mut yaml = format!(
        "- metadata: {{name: {name}, namespace: default, uid: {name}-uid, labels: \
         {{kubernetes.io/service-name: web, endpointslice.kubernetes.io/managed-by: endpointslice-controller.k8s.io}}}}
  addressType: IPv4
  ports: [{{name: '', port: 8080, protocol: TCP}}]
  endpoints:\n"
    );
    for (pod, ip, ready) in pods {
        yaml.push_str(&format!(
            "  - {{addresses: [{ip}], nodeName: one, zone: z, conditions: {{ready: {ready}, serving: {ready}, \
             terminating: false}}, targetRef: {{kind: Pod, namespace: default, name: {pod}, uid: {pod}-uid}}}}\n"
        ));
    }
    yaml
}

const PORT: &str = "ports: [{port: 80, targetPort: http}]";

#[test]
fn ready_pods_are_published() {
    let pods = pod("a", "10.42.0.2", true, "") + &pod("b", "10.42.0.3", false, "");
    created(
        PORT,
        &pods,
        &expect![[r#"
        {"addressType":"IPv4","apiVersion":"discovery.k8s.io/v1","endpoints":[{"addresses":["10.42.0.2"],"conditions":{"ready":true,"serving":true,"terminating":false},"nodeName":"one","targetRef":{"kind":"Pod","name":"a","namespace":"default","uid":"a-uid"},"zone":"z"},{"addresses":["10.42.0.3"],"conditions":{"ready":false,"serving":false,"terminating":false},"nodeName":"one","targetRef":{"kind":"Pod","name":"b","namespace":"default","uid":"b-uid"},"zone":"z"}],"kind":"EndpointSlice","metadata":{"annotations":{"endpoints.kubernetes.io/last-change-trigger-time":"1970-01-01T00:00:00Z"},"generateName":"web-","labels":{"endpointslice.kubernetes.io/managed-by":"endpointslice-controller.k8s.io","kubernetes.io/service-name":"web"},"name":"web-cbfgd","namespace":"default","ownerReferences":[{"apiVersion":"v1","blockOwnerDeletion":true,"controller":true,"kind":"Service","name":"web","uid":"s1"}]},"ports":[{"name":"","port":8080,"protocol":"TCP"}]}
    "#]],
    );
}

#[test]
fn a_terminating_pod_serves_but_is_not_ready() {
    let pods = pod("a", "10.42.0.2", true, ", deletionTimestamp: '2026-01-01T11:00:00Z'");
    created(
        PORT,
        &pods,
        &expect![[r#"
        {"addressType":"IPv4","apiVersion":"discovery.k8s.io/v1","endpoints":[{"addresses":["10.42.0.2"],"conditions":{"ready":false,"serving":true,"terminating":true},"nodeName":"one","targetRef":{"kind":"Pod","name":"a","namespace":"default","uid":"a-uid"},"zone":"z"}],"kind":"EndpointSlice","metadata":{"annotations":{"endpoints.kubernetes.io/last-change-trigger-time":"1970-01-01T00:00:00Z"},"generateName":"web-","labels":{"endpointslice.kubernetes.io/managed-by":"endpointslice-controller.k8s.io","kubernetes.io/service-name":"web"},"name":"web-cbfgd","namespace":"default","ownerReferences":[{"apiVersion":"v1","blockOwnerDeletion":true,"controller":true,"kind":"Service","name":"web","uid":"s1"}]},"ports":[{"name":"","port":8080,"protocol":"TCP"}]}
    "#]],
    );
}

#[test]
fn a_pod_whose_node_is_gone_is_not_published() {
    let check = |spec: &str, node: &str, expect: &[&str]| {
        let pods = pod("a", "10.42.0.2", true, "").replace("nodeName: one", node);
        let groups = endpoints_by_ports(&snapshot(spec, &pods, "[]").service_pods, "IPv4");
        let all = groups.iter().flat_map(|(_, endpoints)| endpoints);
        let found: Vec<_> = all.map(|one| one.zone.as_deref().unwrap_or("nowhere")).collect();
        assert_eq!(found, expect, "{spec} {node}");
    };
    check(PORT, "nodeName: one", &["z"]);
    check(PORT, "nodeName: gone", &[]);
    check(PORT, "hostname: none", &[]);
    let all = format!("{PORT}, publishNotReadyAddresses: true");
    check(&all, "nodeName: one", &["z"]);
    check(&all, "nodeName: gone", &["nowhere"]);
}

#[test]
fn a_service_without_pods_has_an_empty_slice() {
    created(
        PORT,
        "[]",
        &expect![[r#"
        {"addressType":"IPv4","apiVersion":"discovery.k8s.io/v1","endpoints":[],"kind":"EndpointSlice","metadata":{"annotations":{"endpoints.kubernetes.io/last-change-trigger-time":"1970-01-01T00:00:00Z"},"generateName":"web-","labels":{"endpointslice.kubernetes.io/managed-by":"endpointslice-controller.k8s.io","kubernetes.io/service-name":"web"},"name":"web-cbfgd","namespace":"default","ownerReferences":[{"apiVersion":"v1","blockOwnerDeletion":true,"controller":true,"kind":"Service","name":"web","uid":"s1"}]},"ports":[]}
    "#]],
    );
    created(
        "clusterIP: None",
        "[]",
        &expect![[r#"
        {"addressType":"IPv4","apiVersion":"discovery.k8s.io/v1","endpoints":[],"kind":"EndpointSlice","metadata":{"annotations":{"endpoints.kubernetes.io/last-change-trigger-time":"1970-01-01T00:00:00Z"},"generateName":"web-","labels":{"endpointslice.kubernetes.io/managed-by":"endpointslice-controller.k8s.io","kubernetes.io/service-name":"web","service.kubernetes.io/headless":""},"name":"web-cbfgd","namespace":"default","ownerReferences":[{"apiVersion":"v1","blockOwnerDeletion":true,"controller":true,"kind":"Service","name":"web","uid":"s1"}]},"ports":[]}
    "#]],
    );
}

#[test]
fn nothing_is_written_when_nothing_changed() {
    check(
        PORT,
        &pod("a", "10.42.0.2", true, ""),
        &slice("web-1", &[("a", "10.42.0.2", true)]),
        &expect![[""]],
    );
}

#[test]
fn a_change_touches_one_slice() {
    let pods =
        pod("a", "10.42.0.2", true, "") + &pod("b", "10.42.0.3", true, "") + &pod("c", "10.42.0.4", true, "");
    let slices = slice("web-1", &[("a", "10.42.0.2", true)]) + &slice("web-2", &[("b", "10.42.0.3", false)]);
    check(
        PORT,
        &pods,
        &slices,
        &expect![[r#"
            step
              update endpointslices web-2 {"addressType":"IPv4","apiVersion":"discovery.k8s.io/v1","endpoints":[{"addresses":["10.42.0.3"],"conditions":{"ready":true,"serving":true,"terminating":false},"nodeName":"one","targetRef":{"kind":"Pod","name":"b","namespace":"default","uid":"b-uid"},"zone":"z"},{"addresses":["10.42.0.4"],"conditions":{"ready":true,"serving":true,"terminating":false},"nodeName":"one","targetRef":{"kind":"Pod","name":"c","namespace":"default","uid":"c-uid"},"zone":"z"}],"kind":"EndpointSlice","metadata":{"annotations":{"endpoints.kubernetes.io/last-change-trigger-time":"1970-01-01T00:00:00Z"},"labels":{"endpointslice.kubernetes.io/managed-by":"endpointslice-controller.k8s.io","kubernetes.io/service-name":"web"},"name":"web-2","namespace":"default","uid":"web-2-uid"},"ports":[{"name":"","port":8080,"protocol":"TCP"}]}
        "#]],
    );
}

#[test]
fn an_empty_slice_is_reused_and_the_rest_goes() {
    let slices =
        slice("web-1", &[("gone1", "10.42.0.9", true)]) + &slice("web-2", &[("gone2", "10.42.0.8", true)]);
    check(
        PORT,
        "[]",
        &slices,
        &expect![[r#"
            step
              update endpointslices web-1 {"addressType":"IPv4","apiVersion":"discovery.k8s.io/v1","endpoints":[],"kind":"EndpointSlice","metadata":{"annotations":{"endpoints.kubernetes.io/last-change-trigger-time":"1970-01-01T00:00:00Z"},"labels":{"endpointslice.kubernetes.io/managed-by":"endpointslice-controller.k8s.io","kubernetes.io/service-name":"web"},"name":"web-1","namespace":"default","uid":"web-1-uid"},"ports":[]}
              delete endpointslices web-2
        "#]],
    );
}

#[test]
fn no_slice_holds_more_than_its_maximum() {
    let pods: String = (0..250).map(|n| pod(&format!("pod{n}"), &format!("10.42.1.{n}"), true, "")).collect();
    let plan = decide(&snapshot(PORT, &pods, "[]"), noon()).0;
    let sizes: Vec<usize> = plan
        .actions()
        .filter_map(|action| match action {
            Action::Request(request) => request.body["endpoints"].as_array().map(Vec::len),
            _ => None,
        })
        .collect();
    assert_eq!(sizes, [100, 100, 50]);
}

#[test]
fn each_family_of_a_service_has_slices_of_its_own() {
    let both = |name: &str, first: &str, second: &str| {
        let pod = pod(name, &format!("'{first}'"), true, "");
        let of = |ip: &str| format!("{{ip: '{ip}'}}");
        pod.replace(&format!("[{}]", of(first)), &format!("[{}, {}]", of(first), of(second)))
    };
    let pods = both("a", "10.42.0.2", "fd42::2")
        + &both("b", "fd42::3", "10.42.0.3")
        + &pod("c", "10.42.0.4", true, "")
        + &pod("d", "'fd42::5'", true, "");
    let had = slice("four", &[("a", "10.42.0.2", true)])
        + &slice("six", &[("a", "'fd42::2'", true)]).replace("addressType: IPv4", "addressType: IPv6");
    let check = |families: &[&str], slices: &str, expect: &[&str]| {
        let mut snapshot = snapshot(PORT, &pods, slices);
        let spec = Arc::make_mut(&mut snapshot.service_pods.service).spec.as_mut().unwrap();
        spec.ip_families = Some(families.iter().map(|family| (*family).to_owned()).collect());
        let plan = decide(&snapshot, noon()).0;
        let told = plan.actions().filter_map(|action| match action {
            Action::Request(request) => {
                let endpoints = request.body["endpoints"].as_array().cloned().unwrap_or_default();
                let ips: Vec<&str> =
                    endpoints.iter().filter_map(|one| one["addresses"][0].as_str()).collect();
                let family = request.body["addressType"].as_str().unwrap_or(&request.name);
                Some(format!("{:?} {family} {}", request.verb, ips.join(" ")).trim_end().to_owned())
            }
            _ => None,
        });
        let mut told: Vec<String> = told.collect();
        told.sort();
        assert_eq!(told, expect, "{families:?}");
    };
    let (four, six) = ("IPv4 10.42.0.2 10.42.0.3 10.42.0.4", "IPv6 fd42::2 fd42::3 fd42::5");
    check(&["IPv4"], "[]", &[&format!("Create {four}")]);
    check(&["IPv6"], "[]", &[&format!("Create {six}")]);
    check(&["IPv6", "IPv4"], "[]", &[&format!("Create {four}"), &format!("Create {six}")]);
    check(&["IPv4", "IPv6"], &had, &[&format!("Update {four}"), &format!("Update {six}")]);
    // What a family leaves behind goes, and nothing of it becomes the other's.
    check(&["IPv4"], &had, &["Delete six", &format!("Update {four}")]);
    check(&["IPv6"], &had, &["Delete four", &format!("Update {six}")]);
}
