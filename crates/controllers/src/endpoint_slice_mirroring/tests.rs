use expect_test::{Expect, expect};
use serde_json::Value;

use super::*;
use crate::fixture::{list, noon, parse, render};

const SERVICE: &str = "{metadata: {name: db, namespace: default}, spec: {ports: [{port: 5432}]}}";

fn snapshot(service: &str, endpoints: &str, slices: &str) -> Snapshot {
    Snapshot {
        endpoints: parse::<Option<Value>>(endpoints)
            .map(|value| Arc::new(serde_json::from_value(value).unwrap())),
        service: parse::<Option<Value>>(service)
            .map(|value| Arc::new(serde_json::from_value(value).unwrap())),
        slices: list(slices),
        revision: 9,
        addresses_max: 1_000,
    }
}

/// The plan; of slices that are made, also how they look.
fn check(service: &str, endpoints: &str, slices: &str, expect: &Expect) {
    let plan = plan(&snapshot(service, endpoints, slices), noon());
    let mut shown = render(&plan);
    for action in plan.actions() {
        let Action::Request(request) = action else { continue };
        if request.verb == controller::request::Verb::Create {
            let metadata = &request.body["metadata"];
            shown.push_str(&format!(
                "{} {} {} {} {}\n",
                metadata["labels"],
                metadata["annotations"],
                request.body["addressType"],
                request.body["ports"],
                request.body["endpoints"]
            ));
        }
    }
    expect.assert_eq(&shown);
}

fn endpoints(more: &str, subsets: &str) -> String {
    format!("{{metadata: {{name: db, namespace: default, uid: e1{more}}}, subsets: [{subsets}]}}")
}

const ONE: &str = "{addresses: [{ip: 10.0.0.1, nodeName: n1, hostname: a}], ports: [{port: 5432}]}";

/// The slice that `ONE` makes.
fn made(name: &str) -> String {
    let snapshot = snapshot(SERVICE, &endpoints("", ONE), "[]");
    let plan = plan(&snapshot, noon());
    let Some(Action::Request(request)) = plan.actions().next() else { panic!("a slice") };
    let mut slice = request.body.clone();
    slice["metadata"]["name"] = name.into();
    slice["metadata"]["uid"] = name.into();
    slice.to_string()
}

#[test]
fn written_endpoints_become_slices_by_family() {
    check(
        SERVICE,
        &endpoints(
            ", labels: {tier: data}, annotations: {note: x, endpoints.kubernetes.io/last-change-trigger-time: now}",
            "{addresses: [{ip: 10.0.0.1, nodeName: n1, hostname: a}, {ip: 'fd00::1'}], \
             notReadyAddresses: [{ip: 10.0.0.2}], ports: [{name: sql, port: 5432}]}",
        ),
        "[]",
        &expect![[r#"
            step
              create endpointslices db-fgpcw
              create endpointslices db-ws97q
            {"endpointslice.kubernetes.io/managed-by":"endpointslicemirroring-controller.k8s.io","kubernetes.io/service-name":"db","tier":"data"} {"note":"x"} "IPv4" [{"name":"sql","port":5432,"protocol":"TCP"}] [{"addresses":["10.0.0.1"],"conditions":{"ready":true},"hostname":"a","nodeName":"n1"},{"addresses":["10.0.0.2"],"conditions":{"ready":false}}]
            {"endpointslice.kubernetes.io/managed-by":"endpointslicemirroring-controller.k8s.io","kubernetes.io/service-name":"db","tier":"data"} {"note":"x"} "IPv6" [{"name":"sql","port":5432,"protocol":"TCP"}] [{"addresses":["fd00::1"],"conditions":{"ready":true}}]
        "#]],
    );
}

#[test]
fn what_is_mirrored_is_left_alone() {
    check(SERVICE, &endpoints("", ONE), &format!("[{}]", made("db-1")), &expect![[""]]);
}

#[test]
fn a_change_keeps_the_slice_and_surplus_goes() {
    let moved = ONE.replace("10.0.0.1", "10.0.0.9").replace("5432", "5433");
    check(
        SERVICE,
        &endpoints("", &moved),
        &format!("[{}, {}]", made("db-1"), made("db-2")),
        &expect![[r#"
        step
          update endpointslices db-1 {"addressType":"IPv4","apiVersion":"discovery.k8s.io/v1","endpoints":[{"addresses":["10.0.0.9"],"conditions":{"ready":true},"hostname":"a","nodeName":"n1"}],"kind":"EndpointSlice","metadata":{"generateName":"db-","labels":{"endpointslice.kubernetes.io/managed-by":"endpointslicemirroring-controller.k8s.io","kubernetes.io/service-name":"db"},"name":"db-1","namespace":"default","ownerReferences":[{"apiVersion":"v1","blockOwnerDeletion":true,"controller":true,"kind":"Endpoints","name":"db","uid":"e1"}],"uid":"db-1"},"ports":[{"name":"","port":5433,"protocol":"TCP"}]}
          delete endpointslices db-2
    "#]],
    );
}

#[test]
fn who_has_slices_of_their_own_or_is_no_endpoints_is_not_mirrored() {
    let slices = format!("[{}]", made("db-1"));
    for (service, endpoints) in [
        (SERVICE, endpoints(", labels: {endpointslice.kubernetes.io/skip-mirror: 'true'}", ONE)),
        (SERVICE, endpoints(", annotations: {control-plane.alpha.kubernetes.io/leader: '{}'}", ONE)),
        ("{metadata: {name: db}, spec: {selector: {app: db}}}", endpoints("", ONE)),
        ("null", endpoints("", ONE)),
        (SERVICE, "null".to_owned()),
    ] {
        let deleted = "step\n  delete endpointslices db-1\n";
        assert_eq!(render(&plan(&snapshot(service, &endpoints, &slices), noon())), deleted);
        assert!(plan(&snapshot(service, &endpoints, "[]"), noon()).is_empty());
    }
}

#[test]
fn addresses_that_are_none_and_too_many_are_told() {
    let many: Vec<String> = (0..1_100).map(|n| format!("{{ip: 10.0.{}.{}}}", n / 200, n % 200)).collect();
    let subset = format!("{{addresses: [{{ip: nonsense}}, {}], ports: [{{port: 1}}]}}", many.join(", "));
    let snapshot = snapshot(SERVICE, &endpoints("", &subset), "[]");
    let plan = plan(&snapshot, noon());
    let told: Vec<String> = plan
        .actions()
        .filter_map(|action| match action {
            Action::Event(event) => Some(format!("{}: {}", event.reason, event.message)),
            Action::Request(request) => Some(request.body["endpoints"].as_array()?.len().to_string()),
            Action::Count(_) | Action::Operation(_) => None,
        })
        .collect();
    assert_eq!(
        told,
        [
            "1000",
            "TooManyAddressesToMirror: A max of 1000 addresses can be mirrored to EndpointSlices per Endpoints subset. \
             101 addresses were skipped"
        ]
    );
    let few =
        self::snapshot(SERVICE, &endpoints("", "{addresses: [{ip: nonsense}], ports: [{port: 1}]}"), "[]");
    let plan = self::plan(&few, noon());
    assert!(render(&plan).contains("InvalidIPAddress: Skipped 1 invalid IP addresses when mirroring"));
}

#[test]
fn ports_with_the_same_addresses_come_together_and_not_ready_trumps_ready() {
    check(
        SERVICE,
        &endpoints(
            "",
            "{addresses: [{ip: 10.0.0.1}], ports: [{name: a, port: 1}]}, \
             {notReadyAddresses: [{ip: 10.0.0.1}], ports: [{name: a, port: 1}]}, \
             {notReadyAddresses: [{ip: 10.0.0.1}], ports: [{name: b, port: 2}]}, \
             {addresses: [{ip: 10.0.0.7}]}",
        ),
        "[]",
        &expect![[r#"
            step
              create endpointslices db-fgpcw
              create endpointslices db-ws97q
            {"endpointslice.kubernetes.io/managed-by":"endpointslicemirroring-controller.k8s.io","kubernetes.io/service-name":"db"} null "IPv4" [] [{"addresses":["10.0.0.7"],"conditions":{"ready":true}}]
            {"endpointslice.kubernetes.io/managed-by":"endpointslicemirroring-controller.k8s.io","kubernetes.io/service-name":"db"} null "IPv4" [{"name":"a","port":1,"protocol":"TCP"},{"name":"b","port":2,"protocol":"TCP"}] [{"addresses":["10.0.0.1"],"conditions":{"ready":false}}]
        "#]],
    );
}
