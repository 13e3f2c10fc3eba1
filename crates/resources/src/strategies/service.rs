//! The fields that a Service is given, keeps and loses when it is written.
//!
//! Addresses and ports that were given out stay as long as the Service's type has them; a caller who changes the type
//! need not take away what the old type had.
//! Source: `pkg/registry/core/service/strategy.go`, `storage/{alloc,transaction}.go`.

use serde_json::{Map, Value, json};

use super::prepare::child;

type Spec = Map<String, Value>;

fn text<'a>(spec: &'a Spec, field: &str) -> &'a str {
    spec.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn list<'a>(spec: &'a Spec, field: &str) -> &'a [Value] {
    spec.get(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn has_cluster_ip(spec: &Spec) -> bool {
    text(spec, "type") != "ExternalName"
}

fn has_node_ports(spec: &Spec) -> bool {
    matches!(text(spec, "type"), "NodePort" | "LoadBalancer")
}

fn has_health_check(spec: &Spec) -> bool {
    text(spec, "type") == "LoadBalancer" && text(spec, "externalTrafficPolicy") == "Local"
}

fn is_balanced(spec: &Spec) -> bool {
    text(spec, "type") == "LoadBalancer"
}

fn is_reachable_from_outside(spec: &Spec) -> bool {
    has_node_ports(spec) || (text(spec, "type") == "ClusterIP" && !list(spec, "externalIPs").is_empty())
}

/// A new Service has no load balancer yet.
pub(super) fn create(service: &mut Value) {
    if let Some(map) = service.as_object_mut() {
        map.insert("status".to_owned(), json!({"loadBalancer": {}}));
    }
    let Some(spec) = child(service, "spec") else { return };
    if !text(spec, "clusterIP").is_empty() && list(spec, "clusterIPs").is_empty() {
        let ip = text(spec, "clusterIP").to_owned();
        spec.insert("clusterIPs".to_owned(), json!([ip]));
    }
}

/// What was given out stays, unless the Service's type no longer has it.
pub(super) fn update(new: &mut Value, old: &Value) {
    let empty = Spec::new();
    let old = old.get("spec").and_then(Value::as_object).unwrap_or(&empty);
    let Some(spec) = child(new, "spec") else { return };
    sync_cluster_ips(spec, old);
    keep_given(spec, old);
    drop_of_other_types(spec, old);
}

/// Who changes one of `clusterIP` and `clusterIPs` and leaves the other means both.
fn sync_cluster_ips(spec: &mut Spec, old: &Spec) {
    let is_same = |field: &str| spec.get(field) == old.get(field);
    match (is_same("clusterIP"), is_same("clusterIPs")) {
        (false, true) => match text(spec, "clusterIP").to_owned() {
            ip if ip.is_empty() => {
                spec.remove("clusterIPs");
            }
            ip => match spec.get_mut("clusterIPs").and_then(|ips| ips.get_mut(0)) {
                Some(first) => *first = ip.into(),
                None => {
                    spec.insert("clusterIPs".to_owned(), json!([ip]));
                }
            },
        },
        (true, false) if list(spec, "clusterIPs").is_empty() => {
            spec.remove("clusterIP");
        }
        (false, false) if list(spec, "clusterIPs").is_empty() && !text(spec, "clusterIP").is_empty() => {
            let ip = text(spec, "clusterIP").to_owned();
            spec.insert("clusterIPs".to_owned(), json!([ip]));
        }
        _ => {}
    }
}

fn keep_given(spec: &mut Spec, old: &Spec) {
    if has_cluster_ip(old) && has_cluster_ip(spec) {
        if text(spec, "clusterIP").is_empty() {
            copy(spec, old, "clusterIP");
        }
        if list(spec, "clusterIPs").is_empty() && spec.get("clusterIP") == old.get("clusterIP") {
            copy(spec, old, "clusterIPs");
        }
        for field in ["ipFamilies", "ipFamilyPolicy"] {
            if !spec.contains_key(field) {
                copy(spec, old, field);
            }
        }
    }
    if has_node_ports(old) && has_node_ports(spec) {
        keep_node_ports(spec, old);
    }
    let has_number = spec.get("healthCheckNodePort").and_then(Value::as_i64).unwrap_or_default() != 0;
    if has_health_check(old) && has_health_check(spec) && !has_number {
        copy(spec, old, "healthCheckNodePort");
    }
}

fn copy(spec: &mut Spec, old: &Spec, field: &str) {
    if let Some(value) = old.get(field) {
        spec.insert(field.to_owned(), value.clone());
    }
}

fn node_port(port: &Value) -> i64 {
    port.get("nodePort").and_then(Value::as_i64).unwrap_or_default()
}

/// A port without a node port keeps the one that was given out for the same port, unless another has it now.
fn keep_node_ports(spec: &mut Spec, old: &Spec) {
    let mut used: Vec<i64> = list(spec, "ports").iter().map(node_port).collect();
    for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        let same = |old: &&Value| ["port", "protocol"].iter().all(|f| old.get(*f) == port.get(*f));
        let given = list(old, "ports").iter().find(same).map_or(0, node_port);
        if node_port(port) != 0 || given == 0 || used.contains(&given) {
            continue;
        }
        used.push(given);
        if let Some(map) = port.as_object_mut() {
            map.insert("nodePort".to_owned(), given.into());
        }
    }
}

/// What only the old type has goes, if the caller left it as it was.
fn drop_of_other_types(spec: &mut Spec, old: &Spec) {
    let lost = |has: fn(&Spec) -> bool, spec: &Spec| has(old) && !has(spec);
    if lost(has_cluster_ip, spec) {
        if spec.get("clusterIPs") == old.get("clusterIPs") {
            spec.remove("clusterIP");
            spec.remove("clusterIPs");
        }
        for field in ["ipFamilies", "ipFamilyPolicy"] {
            drop_same(spec, old, field);
        }
    }
    if lost(has_node_ports, spec) {
        let ports = |spec: &Spec| list(spec, "ports").iter().map(node_port).collect::<Vec<_>>();
        if ports(spec).iter().all(|port| *port == 0 || ports(old).contains(port)) {
            for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
                port.as_object_mut().map(|map| map.remove("nodePort"));
            }
        }
    }
    if lost(has_health_check, spec) {
        drop_same(spec, old, "healthCheckNodePort");
    }
    if lost(is_balanced, spec) {
        drop_same(spec, old, "allocateLoadBalancerNodePorts");
        drop_same(spec, old, "loadBalancerClass");
    }
    if lost(is_reachable_from_outside, spec) {
        drop_same(spec, old, "externalTrafficPolicy");
    }
}

fn drop_same(spec: &mut Spec, old: &Spec, field: &str) {
    if spec.get(field) == old.get(field) {
        spec.remove(field);
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(old: &str, new: &str, expect: Expect) {
        let parse = |text: &str| serde_saphyr::from_str::<Value>(text).unwrap();
        let mut new = json!({"spec": parse(new)});
        update(&mut new, &json!({"spec": parse(old)}));
        expect.assert_eq(&new["spec"].to_string());
    }

    #[test]
    fn what_was_given_out_stays() {
        check(
            "{type: NodePort, clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1], ports: [{port: 80, protocol: TCP, nodePort: 30000}]}",
            "{type: NodePort, ports: [{port: 80, protocol: TCP}, {port: 81, protocol: TCP}]}",
            expect![[
                r#"{"clusterIP":"10.0.0.1","clusterIPs":["10.0.0.1"],"ports":[{"nodePort":30000,"port":80,"protocol":"TCP"},{"port":81,"protocol":"TCP"}],"type":"NodePort"}"#
            ]],
        );
    }

    #[test]
    fn an_external_name_has_no_address_of_its_own() {
        check(
            "{type: ClusterIP, clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1], ipFamilies: [IPv4], ipFamilyPolicy: SingleStack}",
            "{type: ExternalName, externalName: a.b, clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1], ipFamilies: [IPv4], ipFamilyPolicy: SingleStack}",
            expect![[r#"{"externalName":"a.b","type":"ExternalName"}"#]],
        );
    }

    #[test]
    fn a_type_without_node_ports_loses_them() {
        check(
            "{type: LoadBalancer, allocateLoadBalancerNodePorts: true, externalTrafficPolicy: Local, healthCheckNodePort: 31000, ports: [{port: 80, nodePort: 30000}]}",
            "{type: ClusterIP, allocateLoadBalancerNodePorts: true, externalTrafficPolicy: Local, healthCheckNodePort: 31000, ports: [{port: 80, nodePort: 30000}]}",
            expect![[r#"{"ports":[{"port":80}],"type":"ClusterIP"}"#]],
        );
    }
}
