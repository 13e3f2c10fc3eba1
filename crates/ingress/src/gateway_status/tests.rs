use serde_json::Value;

use super::*;
use crate::gateway::GatewaySpec;

const NOW: &str = "2026-01-01T12:00:00Z";

fn parse<K: k8s_openapi::serde::de::DeserializeOwned>(yaml: &str) -> K {
    let value: Value = serde_saphyr::from_str(yaml).unwrap();
    serde_json::from_value(value).unwrap()
}

fn resource(kind: &str, plural: &str, namespaced: bool) -> ResourceRef {
    let text = str::to_owned;
    ResourceRef {
        group: text(GROUP),
        version: text("v1"),
        kind: text(kind),
        plural: text(plural),
        namespaced,
    }
}

fn resources() -> GatewayResources {
    GatewayResources {
        classes: Some(resource("GatewayClass", "gatewayclasses", false)),
        gateways: Some(resource("Gateway", "gateways", true)),
        http_routes: Some(resource("HTTPRoute", "httproutes", true)),
        grpc_routes: None,
    }
}

const CLASS_TEXT: &str =
    "{metadata: {name: knarr, uid: class}, spec: {controllerName: knarr.io/gateway-controller}}";

const GATEWAY: &str = "
metadata: {name: open, namespace: infra, uid: g, resourceVersion: '7', generation: 3}
spec:
  gatewayClassName: knarr
  listeners: [{name: http, port: 80, protocol: HTTP}, {name: low, port: 81, protocol: HTTP}]
status:
  conditions: [{type: Accepted, status: Unknown, reason: Pending, message: Waiting, lastTransitionTime: '1970-01-01T00:00:00Z'}, {type: Other, status: 'True'}]";

const ROUTE: &str = "
metadata: {name: web, namespace: infra, uid: r, resourceVersion: '8', generation: 2}
spec:
  parentRefs: [{name: open, sectionName: http}, {name: foreign}]
  hostnames: [a.example]
  rules: [{backendRefs: [{name: gone, port: 80}]}]
status:
  parents:
  - {controllerName: example.com/other, parentRef: {name: foreign}, conditions: [{type: Accepted, status: 'True'}]}
  - {controllerName: knarr.io/gateway-controller, parentRef: {name: left}, conditions: [{type: Accepted, status: 'True'}]}";

fn snapshot(classes: &[&str], gateways: &[&str], routes: &[&str]) -> Snapshot {
    let mut snapshot =
        Snapshot { ports: Ports { http: 80, https: 443, reserved: Vec::new() }, ..Snapshot::default() };
    snapshot.gateways.classes = classes.iter().map(|text| Arc::new(parse(text))).collect();
    snapshot.gateways.gateways = gateways.iter().map(|text| Arc::new(parse(text))).collect();
    snapshot.gateways.http_routes = routes.iter().map(|text| Arc::new(parse(text))).collect();
    snapshot
}

fn decide(snapshot: &Snapshot, nodes: &[&str], memory: &Memory) -> Vec<Value> {
    let planned = plan(snapshot);
    let decision = Decision {
        snapshot,
        planned: &planned,
        addresses: nodes.iter().map(|node| node.parse().unwrap()).collect(),
        resources: resources(),
        now: NOW.parse().unwrap(),
    };
    let text = |action: &Action| match action {
        Action::Request(request) => {
            let mut body = request.body.clone();
            body["to"] =
                format!("{} {}/{}", request.resource.plural, request.name, request.subresource).into();
            body
        }
        Action::Event(event) => Value::String(format!("{}: {}", event.reason, event.message)),
        Action::Count(_) | Action::Operation(_) => Value::Null,
    };
    decision.plan(memory).actions().map(text).collect()
}

/// The object after its status was written.
fn written<S: Spec>(object: &Arc<Object<S>>, patch: &Value) -> Arc<Object<S>> {
    let mut object = Object::clone(object);
    if object.status.is_null() {
        object.status = json!({});
    }
    for (name, value) in patch["status"].as_object().unwrap() {
        object.status[name] = value.clone();
    }
    Arc::new(object)
}

fn shown(conditions: &Value) -> Vec<String> {
    let field = |condition: &Value, name: &str| condition[name].as_str().unwrap_or_default().to_owned();
    let text = |one: &Value| {
        format!(
            "{}={} {} {}",
            field(one, "type"),
            field(one, "status"),
            field(one, "reason"),
            field(one, "lastTransitionTime")
        )
    };
    conditions.as_array().unwrap().iter().map(text).collect()
}

#[test]
fn the_class_is_made_where_its_kind_is_and_told_what_is_supported() {
    let memory = Memory::default();
    let made = decide(&snapshot(&[], &[], &[]), &[], &memory);
    assert_eq!(made.len(), 1);
    assert_eq!(
        (made[0]["to"].as_str(), made[0]["spec"]["controllerName"].as_str()),
        (Some("gatewayclasses knarr/"), Some(CONTROLLER_NAME))
    );

    let mut all = snapshot(
        &[CLASS_TEXT, "{metadata: {name: other}, spec: {controllerName: example.com/other}}"],
        &[],
        &[],
    );
    let told = decide(&all, &[], &memory);
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(shown(&told[0]["status"]["conditions"]), [format!("Accepted=True Accepted {NOW}")]);
    let features = told[0]["status"]["supportedFeatures"].as_array().unwrap();
    let names: Vec<&str> = features.iter().filter_map(|feature| feature["name"].as_str()).collect();
    assert!(names.is_sorted() && names.len() <= 64 && names.contains(&"HTTPRoute"), "{names:?}");
    // A definition without a place for features leaves them out; nobody tries for ever.
    let mut pruned = told[0].clone();
    pruned["status"].as_object_mut().unwrap().remove("supportedFeatures");
    all.gateways.classes[0] = written(&all.gateways.classes[0], &pruned);
    assert!(decide(&all, &[], &memory).is_empty());
    all.gateways.classes[0] = Arc::new(parse(
        "{metadata: {name: knarr, uid: new}, spec: {controllerName: knarr.io/gateway-controller, parametersRef: {name: x}}}",
    ));
    let told = decide(&all, &[], &memory);
    assert_eq!(shown(&told[0]["status"]["conditions"]), [format!("Accepted=False InvalidParameters {NOW}")]);
}

#[test]
fn gateways_and_routes_are_told_what_has_come_of_them_once() {
    let memory = Memory::default();
    let mut all = snapshot(&[CLASS_TEXT], &[GATEWAY], &[ROUTE]);
    let told = decide(&all, &["192.0.2.1", "2001:db8::1"], &memory);
    let names: Vec<_> = told.iter().filter_map(|one| one["to"].as_str()).collect();
    assert_eq!(names, ["gatewayclasses knarr/status", "gateways open/status", "httproutes web/status"]);
    let [class, gateway, route] = told.as_slice() else { panic!("{told:?}") };
    assert_eq!(
        (&gateway["metadata"]["uid"], &gateway["metadata"]["resourceVersion"]),
        (&json!("g"), &json!("7"))
    );
    let status = &gateway["status"];
    assert_eq!(
        shown(&status["conditions"]),
        [
            format!("Accepted=True ListenersNotValid {NOW}"),
            format!("Programmed=True Programmed {NOW}"),
            "Other=True  ".to_owned()
        ]
    );
    assert_eq!(status["conditions"][0]["observedGeneration"], 3);
    let addresses =
        json!([{"type": "IPAddress", "value": "192.0.2.1"}, {"type": "IPAddress", "value": "2001:db8::1"}]);
    assert_eq!(status["addresses"], addresses);
    assert_eq!(
        (&status["listeners"][0]["name"], &status["listeners"][0]["attachedRoutes"]),
        (&json!("http"), &json!(1))
    );
    let kinds = json!([{"group": GROUP, "kind": "HTTPRoute"}, {"group": GROUP, "kind": "GRPCRoute"}]);
    assert_eq!(status["listeners"][0]["supportedKinds"], kinds);
    assert_eq!(status["listeners"][1]["conditions"][0]["reason"], "PortUnavailable");
    let parents = route["status"]["parents"].as_array().unwrap();
    assert_eq!(parents.len(), 2, "what others say stays, and what is not so any more goes: {parents:?}");
    assert_eq!(parents[0]["controllerName"], "example.com/other");
    assert_eq!(parents[1]["parentRef"], json!({"name": "open", "sectionName": "http"}));
    let conditions =
        [format!("Accepted=True Accepted {NOW}"), format!("ResolvedRefs=False BackendNotFound {NOW}")];
    assert_eq!(shown(&parents[1]["conditions"]), conditions);

    let objects = &mut all.gateways;
    objects.classes[0] = written(&objects.classes[0], class);
    objects.gateways[0] = written(&objects.gateways[0], gateway);
    objects.http_routes[0] = written(&objects.http_routes[0], route);
    assert!(
        decide(&all, &["192.0.2.1", "2001:db8::1"], &memory).is_empty(),
        "what is written is not written again"
    );

    // Only what changes has another time.
    let told = decide(&all, &[], &memory);
    assert_eq!(told.len(), 1);
    assert_eq!(
        shown(&told[0]["status"]["conditions"])[1],
        format!("Programmed=False AddressNotAssigned {NOW}")
    );
    all.gateways.gateways.clear();
    let told = decide(&all, &[], &memory);
    assert_eq!(
        told[0]["status"]["parents"].as_array().map(Vec::len),
        Some(1),
        "its Gateway is gone: {told:?}"
    );
}

#[test]
fn a_gateway_has_the_addresses_that_it_asks_for_or_none() {
    let gateway = |addresses: &str| -> Gateway {
        let spec: GatewaySpec = parse(&format!("{{addresses: {addresses}}}"));
        Object { spec, ..Object::default() }
    };
    let report = GatewayReport {
        accepted: Condition::yes("Accepted", "Accepted"),
        is_served: true,
        listeners: Vec::new(),
    };
    let (empty, planned) = (Snapshot::default(), Planned::default());
    let nodes = vec!["192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap()];
    let decision = Decision {
        snapshot: &empty,
        planned: &planned,
        addresses: nodes,
        resources: resources(),
        now: NOW.parse().unwrap(),
    };
    for (asked, count, reason) in [
        ("[]", 2, "Programmed"),
        ("[{type: IPAddress, value: 192.0.2.2}]", 1, "Programmed"),
        ("[{type: IPAddress}]", 2, "Programmed"),
        ("[{value: 192.0.2.2}, {value: 192.0.2.9}]", 1, "AddressNotUsable"),
        ("[{value: none}]", 0, "AddressNotUsable"),
    ] {
        let (addresses, programmed) = decision.programmed(&gateway(asked), &report);
        assert_eq!((addresses.len(), programmed.reason), (count, reason), "{asked}");
    }
}

#[test]
fn an_ingress_learns_once_that_its_host_is_a_gateways() {
    let memory = Memory::default();
    let tls = GATEWAY.replace(
        "port: 81, protocol: HTTP",
        "port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: cert}]}",
    );
    let route = ROUTE.replace(", sectionName: http", "");
    let mut all = snapshot(&[CLASS_TEXT], &[&tls], &[&route]);
    all.classes = vec![Arc::new(parse("{metadata: {name: knarr}, spec: {controller: knarr.io/ingress}}"))];
    all.ingresses = vec![Arc::new(parse(
        "{metadata: {name: late, namespace: apps, creationTimestamp: '2026-01-01T00:00:00Z'}, spec: {ingressClassName: knarr, rules: [{host: a.example, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}]}}",
    ))];
    let events = |all: &Snapshot| -> Vec<Value> {
        decide(all, &[], &memory).into_iter().filter(Value::is_string).collect()
    };
    assert!(events(&all).is_empty(), "without a certificate the host with TLS is the Ingress's");
    let made = rcgen::generate_simple_self_signed(["a.example".to_owned()]).unwrap();
    let data = [("tls.crt", made.cert.pem()), ("tls.key", made.signing_key.serialize_pem())];
    let bytes = |text: String| k8s_openapi::ByteString(text.into_bytes());
    let data = data.map(|(name, text)| (name.to_owned(), bytes(text)));
    let secret = Secret { data: Some(data.into()), ..Secret::default() };
    all.secrets.insert("infra/cert".to_owned(), Arc::new(secret));
    let told = events(&all);
    assert_eq!(told, ["RuleConflict: host a.example belongs to a Gateway, by a route that is older"]);
    assert!(events(&all).is_empty());
}
