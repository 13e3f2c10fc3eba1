use std::sync::Arc;

use super::*;
use crate::families::{BOTH, config, ip, ipvs_options};
use crate::services::Services;
use crate::services::tests::{Random, news, world};

fn node_addresses() -> BTreeSet<IpAddr> {
    BOTH.into_iter().flat_map(|family| [1, 2].map(|last| ip(family, [192, 0, 2, last]))).collect()
}

/// What the changes have made so far.
#[derive(Debug, Default, PartialEq, Eq)]
struct Made {
    servers: BTreeMap<VirtualAddress, Server>,
    members: BTreeSet<Member>,
    addresses: BTreeSet<IpAddr>,
}

impl Made {
    fn take(&mut self, changes: Changes) {
        for (vip, old, new) in changes.servers {
            assert_eq!(self.servers.remove(&vip), old, "{vip}");
            self.servers.extend(new.map(|new| (vip, new)));
        }
        changes.members.gone.iter().for_each(|one| assert!(self.members.remove(one), "{one:?}"));
        changes.members.new.iter().for_each(|one| assert!(self.members.insert(*one), "{one:?}"));
        changes.addresses.gone.iter().for_each(|ip| assert!(self.addresses.remove(ip), "{ip}"));
        changes.addresses.new.iter().for_each(|ip| assert!(self.addresses.insert(*ip), "{ip}"));
    }

    fn of(plan: &Plan) -> Self {
        Self {
            servers: plan.servers().map(|(vip, server)| (vip, server.clone())).collect(),
            members: plan.members().copied().collect(),
            addresses: plan.addresses().collect(),
        }
    }
}

#[test]
fn differences_add_up_to_what_is_made_from_nothing() {
    let (config, options, node_addresses) = (Arc::new(config(&BOTH)), ipvs_options("rr"), node_addresses());
    let scope = Scope { config: &config, options: &options, node_addresses: &node_addresses };
    for seed in 1..40 {
        let mut random = Random(seed);
        let (mut services, mut known) = (Services::new(config.clone()), Default::default());
        let (mut plan, mut made) = (Plan::default(), Made::default());
        for step in 0..12 {
            let next = world(&mut random);
            let from = if step == 0 { &next } else { &known };
            let difference = services.update(news(from, &next));
            made.take(plan.change(&difference, scope));
            let whole = Plan::of(&services.whole(), scope);
            assert_eq!(plan, whole, "seed {seed}, step {step}");
            assert_eq!(made, Made::of(&whole), "seed {seed}, step {step}");
            known = next;
        }
    }
}

/// What a Service comes to, a line for each virtual server and each member of a set but those of `LoopBack`.
fn check(what: &str, spec: &str, endpoints: &str, expect: &[&str]) {
    let object = |yaml: String| -> serde_json::Value { serde_saphyr::from_str(&yaml).unwrap() };
    let service = object(format!(
        "{{metadata: {{namespace: a, name: b}}, spec: {{clusterIP: 10.43.0.5, ports: [{{port: 80, nodePort: 30080}}], {spec}}}, status: {{loadBalancer: {{ingress: [{{ip: 192.0.2.77}}]}}}}}}"
    ));
    let slice = object(format!(
        "{{metadata: {{namespace: a, name: b, labels: {{kubernetes.io/service-name: b}}}}, addressType: IPv4, ports: [{{port: 8080}}], endpoints: [{endpoints}]}}"
    ));
    let mut services = Services::new(Arc::new(config(&[Family::V4])));
    services.update(crate::Changed {
        services: vec![("a/b".into(), None, Some(Arc::new(serde_json::from_value(service).unwrap())))],
        slices: vec![("a/b".into(), None, Some(Arc::new(serde_json::from_value(slice).unwrap())))],
        nodes: None,
    });
    let (config, options, node_addresses) =
        (config(&[Family::V4]), ipvs_options("mh"), [[192, 0, 2, 1].into()].into());
    let scope = Scope { config: &config, options: &options, node_addresses: &node_addresses };
    let plan = Plan::of(&services.whole(), scope);
    let mut found: Vec<String> = plan
        .servers()
        .map(|(vip, server)| {
            assert!(server.service.is_by_port, "of `mh`");
            let to: Vec<String> = server.to.iter().map(|(ip, port)| format!("{ip}:{port}")).collect();
            let stays =
                server.service.persistence_seconds.map_or(String::new(), |seconds| format!(" {seconds}s"));
            format!("{}:{} -> {}{stays}", vip.ip, vip.port, to.join(" "))
        })
        .collect();
    found.extend(plan.members().filter(|(set, ..)| *set != Set::LoopBack).map(|(set, family, element)| {
        let ip = element.ip.map_or(String::new(), |ip| format!(" {ip}"));
        let port = element.port.map_or(String::new(), |(_, port)| format!(":{port}"));
        let other = element.other.map_or(String::new(), |(ip, bits)| format!(" {ip}/{bits}"));
        format!("{}{ip}{port}{other}", set.name(*family))
    }));
    assert_eq!(found, expect, "{what}");
}

#[test]
fn a_service_is_virtual_servers_and_members_of_sets() {
    let here = "{addresses: [10.42.0.2], nodeName: node-a}";
    let there = "{addresses: [10.42.1.2], nodeName: node-b}";
    check(
        "inside",
        "sessionAffinity: ClientIP",
        here,
        &[
            "10.43.0.5:80 -> 10.42.0.2:8080 10800s",
            "192.0.2.1:30080 -> 10.42.0.2:8080 10800s",
            "192.0.2.77:80 -> 10.42.0.2:8080 10800s",
            "KUBE-CLUSTER-IP 10.43.0.5:80",
            "KUBE-LOAD-BALANCER 192.0.2.77:80",
            "KUBE-NODE-PORT-TCP:30080",
            "KUBE-IPVS-IPS 10.43.0.5",
            "KUBE-IPVS-IPS 192.0.2.77",
        ],
    );
    check("no endpoints", "type: LoadBalancer", "", &["KUBE-IPVS-IPS 10.43.0.5", "KUBE-IPVS-IPS 192.0.2.77"]);
    let local = "type: LoadBalancer, externalTrafficPolicy: Local, internalTrafficPolicy: Local, loadBalancerSourceRanges: [192.0.2.0/24]";
    check(
        "what stays here, and is elsewhere",
        local,
        there,
        &[
            "192.0.2.1:30080 -> 10.42.1.2:8080",
            "192.0.2.77:80 -> 10.42.1.2:8080",
            "KUBE-LOAD-BALANCER 192.0.2.77:80",
            "KUBE-LOAD-BALANCER-LOCAL 192.0.2.77:80",
            "KUBE-LOAD-BALANCER-FW 192.0.2.77:80",
            "KUBE-LOAD-BALANCER-SOURCE-CIDR 192.0.2.77:80 192.0.2.0/24",
            "KUBE-LOAD-BALANCER-SOURCE-IP 192.0.2.77:80 192.0.2.77/32",
            "KUBE-NODE-PORT-TCP:30080",
            "KUBE-NODE-PORT-LOCAL-TCP:30080",
            "KUBE-NO-LOCAL 192.0.2.1:30080",
            "KUBE-NO-LOCAL 192.0.2.77:80",
            "KUBE-NO-LOCAL-INSIDE 10.43.0.5:80",
            "KUBE-IPVS-IPS 10.43.0.5",
            "KUBE-IPVS-IPS 192.0.2.77",
        ],
    );
    check(
        "what stays here, and is here",
        local,
        &format!("{here}, {there}"),
        &[
            "10.43.0.5:80 -> 10.42.0.2:8080",
            "192.0.2.1:30080 -> 10.42.0.2:8080",
            "192.0.2.77:80 -> 10.42.0.2:8080",
            "KUBE-CLUSTER-IP 10.43.0.5:80",
            "KUBE-LOAD-BALANCER 192.0.2.77:80",
            "KUBE-LOAD-BALANCER-LOCAL 192.0.2.77:80",
            "KUBE-LOAD-BALANCER-FW 192.0.2.77:80",
            "KUBE-LOAD-BALANCER-SOURCE-CIDR 192.0.2.77:80 192.0.2.0/24",
            "KUBE-LOAD-BALANCER-SOURCE-IP 192.0.2.77:80 192.0.2.77/32",
            "KUBE-NODE-PORT-TCP:30080",
            "KUBE-NODE-PORT-LOCAL-TCP:30080",
            "KUBE-IPVS-IPS 10.43.0.5",
            "KUBE-IPVS-IPS 192.0.2.77",
        ],
    );
}
