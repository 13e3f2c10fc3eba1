//! Gateways, routes and grants as tables: what upstream's conformance suite asks, and what whoever means ill writes.

mod hostile;
mod requests;
mod usual;

use std::sync::Arc;

use expect_test::Expect;
use k8s_openapi::api::core::v1::{Namespace, Secret, Service};
use k8s_openapi::api::networking::v1::IngressClass;
use k8s_openapi::serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::gateway::{Gateway, GatewayClass, GrpcRoute, HttpRoute, ReferenceGrant};
use crate::plan::{Condition, Planned, Ports, Snapshot, by_key, by_service, key, plan};

const SERVICES: &str = "
- {metadata: {name: v1, namespace: infra}, spec: {ports: [{port: 8080}]}}
- {metadata: {name: v2, namespace: infra}, spec: {ports: [{port: 8080}]}}
- {metadata: {name: v3, namespace: infra}, spec: {ports: [{port: 8080}]}}
- {metadata: {name: h2c, namespace: infra}, spec: {ports: [{port: 8080, appProtocol: kubernetes.io/h2c}]}}
- {metadata: {name: out, namespace: infra}, spec: {type: ExternalName, externalName: a.example, ports: [{port: 8080}]}}
- {metadata: {name: web, namespace: apps}, spec: {ports: [{port: 8080}]}}";

const SLICES: &str = "
- {metadata: {name: v1, namespace: infra, labels: {kubernetes.io/service-name: v1}}, addressType: IPv4, ports: [{port: 3000}], endpoints: [{addresses: [10.0.0.1]}]}
- {metadata: {name: v2, namespace: infra, labels: {kubernetes.io/service-name: v2}}, addressType: IPv4, ports: [{port: 3000}], endpoints: [{addresses: [10.0.0.2]}]}
- {metadata: {name: v3, namespace: infra, labels: {kubernetes.io/service-name: v3}}, addressType: IPv4, ports: [{port: 3000}], endpoints: [{addresses: [10.0.0.4]}]}
- {metadata: {name: h2c, namespace: infra, labels: {kubernetes.io/service-name: h2c}}, addressType: IPv4, ports: [{port: 3000}], endpoints: [{addresses: [10.0.0.3]}]}
- {metadata: {name: web, namespace: apps, labels: {kubernetes.io/service-name: web}}, addressType: IPv4, ports: [{port: 3000}], endpoints: [{addresses: [10.0.1.1]}]}";

/// All of one kind among objects of several, which say their kind first.
fn of_kind<K: DeserializeOwned>(objects: &[Value], kind: &str) -> Vec<Arc<K>> {
    let of_kind = objects.iter().filter(|object| object["kind"] == kind);
    of_kind.map(|object| Arc::new(serde_json::from_value(object.clone()).unwrap())).collect()
}

fn parse<K: DeserializeOwned>(yaml: &str) -> Vec<Arc<K>> {
    let values: Vec<Value> = serde_saphyr::from_str(yaml).unwrap();
    values.into_iter().map(|value| Arc::new(serde_json::from_value(value).unwrap())).collect()
}

/// A Secret that can be shown.
fn certificate(namespace: &str, name: &str) -> Arc<Secret> {
    let made = rcgen::generate_simple_self_signed(["a.example".to_owned()]).unwrap();
    let bytes = |text: String| k8s_openapi::ByteString(text.into_bytes());
    let data = [("tls.crt", made.cert.pem()), ("tls.key", made.signing_key.serialize_pem())];
    let mut secret = Secret::default();
    secret.metadata.namespace = Some(namespace.to_owned());
    secret.metadata.name = Some(name.to_owned());
    secret.metadata.uid = Some(format!("{namespace}/{name}"));
    secret.data = Some(data.map(|(field, text)| (field.to_owned(), bytes(text))).into());
    Arc::new(secret)
}

fn snapshot(yaml: &str) -> Snapshot {
    snapshot_of(&serde_saphyr::from_str::<Vec<Value>>(yaml).unwrap())
}

fn snapshot_of(objects: &[Value]) -> Snapshot {
    let class =
        json!({"metadata": {"name": "knarr"}, "spec": {"controllerName": "knarr.io/gateway-controller"}});
    let other = json!({"metadata": {"name": "other"}, "spec": {"controllerName": "example.com/other"}});
    let mut snapshot = Snapshot {
        ingresses: of_kind(objects, "Ingress"),
        services: by_key(parse(SERVICES), |service: &Service| &service.metadata),
        slices: by_service(parse(SLICES)),
        ports: Ports { http: 80, https: 443, reserved: vec![6443..=6443, 30_000..=32_767] },
        ..Snapshot::default()
    };
    let mut garbage = Secret::default();
    garbage.metadata.namespace = Some("infra".to_owned());
    garbage.metadata.name = Some("garbage".to_owned());
    let secrets = [certificate("infra", "cert"), certificate("apps", "cert"), Arc::new(garbage)];
    snapshot.secrets = secrets.into_iter().map(|secret| (key(&secret.metadata), secret)).collect();
    snapshot.classes = parse::<IngressClass>("
- {metadata: {name: knarr, annotations: {ingressclass.kubernetes.io/is-default-class: 'true'}}, spec: {controller: knarr.io/ingress}}");
    let gateways = &mut snapshot.gateways;
    let classes = [class, other].map(|class| serde_json::from_value::<GatewayClass>(class).unwrap());
    gateways.classes = classes.map(Arc::new).into();
    gateways.gateways = of_kind::<Gateway>(objects, "Gateway");
    gateways.http_routes = of_kind::<HttpRoute>(objects, "HTTPRoute");
    gateways.grpc_routes = of_kind::<GrpcRoute>(objects, "GRPCRoute");
    gateways.grants = of_kind::<ReferenceGrant>(objects, "ReferenceGrant");
    let namespaces: Vec<Arc<Namespace>> = parse(
        "
- {metadata: {name: infra}}
- {metadata: {name: apps, labels: {team: web}}}",
    );
    gateways.namespaces =
        namespaces.into_iter().map(|one| (one.metadata.name.clone().unwrap(), one)).collect();
    snapshot
}

/// What is as it should be is not told.
fn conditions(all: &[Condition]) -> String {
    let usual =
        ["Accepted=Accepted", "Programmed=Programmed", "ResolvedRefs=ResolvedRefs", "Conflicted!NoConflicts"];
    let text = |one: &Condition| {
        let sign = if one.is_true { '=' } else { '!' };
        let short = format!("{}{sign}{}", one.kind, one.reason);
        let message = if one.message.is_empty() { String::new() } else { format!(" ({})", one.message) };
        (!usual.contains(&short.as_str())).then(|| format!(" {short}{message}"))
    };
    all.iter().filter_map(text).collect()
}

fn text(planned: &Planned) -> String {
    let mut text = planned.table.to_string();
    for ((listener, _), secrets) in &planned.certificates {
        let names: Vec<_> = secrets.iter().map(|secret| key(&secret.metadata)).collect();
        text.push_str(&format!("{} {} shows {}\n", listener.entrance, listener.host, names.join(", ")));
    }
    for (port, scheme) in &planned.table.ports {
        text.push_str(&format!("port {port} {}\n", scheme.as_str()));
    }
    for (name, gateway) in &planned.report.gateways {
        let served = if gateway.is_served { "" } else { " is not served" };
        text.push_str(&format!(
            "Gateway {name}{served}{}\n",
            conditions(std::slice::from_ref(&gateway.accepted))
        ));
        for listener in &gateway.listeners {
            let kinds = if listener.kinds.len() == 2 {
                String::new()
            } else {
                format!(" takes {:?}", listener.kinds)
            };
            let (name, attached) = (&listener.name, listener.attached);
            text.push_str(&format!("  {name}: {attached}{kinds}{}\n", conditions(&listener.conditions)));
        }
    }
    for ((kind, name), parents) in &planned.report.routes {
        for parent in parents {
            let section =
                parent.parent.section_name.as_deref().map(|name| format!("/{name}")).unwrap_or_default();
            let of = &parent.parent.name;
            text.push_str(&format!("{kind} {name} at {of}{section}:{}\n", conditions(&parent.conditions)));
        }
    }
    for (key, findings) in &planned.findings {
        for finding in findings {
            text.push_str(&format!("{key} {}: {finding}\n", finding.reason()));
        }
    }
    text
}

fn check(yaml: &str, expect: &Expect) {
    expect.assert_eq(&text(&plan(&snapshot(yaml))));
}

/// A Gateway with one listener for everything from everywhere.
const OPEN: &str = "
- kind: Gateway
  metadata: {name: open, namespace: infra}
  spec:
    gatewayClassName: knarr
    listeners: [{name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}]";

fn check_open(yaml: &str, expect: &Expect) {
    check(&format!("{OPEN}{yaml}"), expect);
}
