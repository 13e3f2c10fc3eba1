//! The cases of upstream's `node_ports_test.go`.

use controller::pod::Pod;

use crate::fixtures::{cluster, refusals};
use crate::transform::parse;

/// A Pod with these ports: protocol, address and number, with slashes between.
fn with_ports(ports: &[&str]) -> Pod {
    let port = |port: &&str| {
        let mut parts = port.split('/').map(str::to_owned);
        let mut part = || parts.next().expect("a part");
        let (protocol, address, number) = (part(), part(), part());
        format!("{{containerPort: 1, protocol: {protocol}, hostIP: '{address}', hostPort: {number}}}")
    };
    let ports: Vec<_> = ports.iter().map(port).collect();
    parse(&format!(
        "{{metadata: {{uid: p}}, spec: {{containers: [{{name: c, ports: [{}]}}]}}}}",
        ports.join(", ")
    ))
}

fn init_with_port(policy: &str) -> Pod {
    parse(&format!(
        "{{metadata: {{uid: p}}, spec: {{containers: [], initContainers: [{{name: i, {policy} \
         ports: [{{containerPort: 8001, hostPort: 8001, protocol: TCP}}]}}]}}}}"
    ))
}

fn check(case: &str, pod: &Pod, used: &[&str], fits: bool) {
    let snapshot = cluster(&[("n", "", "")], &[("n", with_ports(used))]);
    let expect = if fits { "" } else { "node(s) didn't have free ports for the requested pod ports" };
    assert_eq!(refusals("NodePorts", pod, &snapshot), [expect], "{case}");
}

#[test]
fn a_port_is_taken_by_address_protocol_and_number() {
    for (case, wants, used, fits) in [
        ("none", &[][..], &["TCP/127.0.0.1/80"][..], true),
        ("another", &["UDP/127.0.0.1/8080"], &["UDP/127.0.0.1/9090"], true),
        ("the same of UDP", &["UDP/127.0.0.1/8080"], &["UDP/127.0.0.1/8080"], false),
        ("the same of TCP", &["TCP/127.0.0.1/8080"], &["TCP/127.0.0.1/8080"], false),
        ("another address", &["TCP/127.0.0.1/8080"], &["TCP/127.0.0.2/8080"], true),
        ("another protocol", &["UDP/127.0.0.1/8080"], &["TCP/127.0.0.1/8080"], true),
        ("the second", &["UDP/127.0.0.1/8000", "UDP/127.0.0.1/8080"], &["UDP/127.0.0.1/8080"], false),
        (
            "the first",
            &["TCP/127.0.0.1/8001", "UDP/127.0.0.1/8080"],
            &["TCP/127.0.0.1/8001", "UDP/127.0.0.1/8081"],
            false,
        ),
        ("any address wanted", &["TCP/0.0.0.0/8001"], &["TCP/127.0.0.1/8001"], false),
        ("any of two", &["TCP/10.0.10.10/8001", "TCP/0.0.0.0/8001"], &["TCP/127.0.0.1/8001"], false),
        ("any address used", &["TCP/127.0.0.1/8001"], &["TCP/0.0.0.0/8001"], false),
        ("any address of another protocol", &["UDP/127.0.0.1/8001"], &["TCP/0.0.0.0/8001"], true),
        ("any address of both", &["UDP/127.0.0.1/8001"], &["TCP/0.0.0.0/8001", "UDP/0.0.0.0/8001"], false),
        ("no address is any", &["TCP//8001"], &["TCP/127.0.0.1/8001"], false),
        ("no host port", &["TCP/127.0.0.1/0"], &["TCP/127.0.0.1/0"], true),
    ] {
        check(case, &with_ports(wants), used, fits);
    }
    check("init containers are gone", &init_with_port(""), &["TCP/0.0.0.0/8001"], true);
    check("sidecars are not", &init_with_port("restartPolicy: Always,"), &["TCP/0.0.0.0/8001"], false);
}
