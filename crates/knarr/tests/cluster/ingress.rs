//! Ingresses and Gateways as their users have them: TLS by name, both versions of HTTP, WebSockets, changes under load, what is
//! told of what is wrong; where the port is somebody else's; and a cluster without.

use std::path::Path;
use std::time::{Duration, Instant};

use testkit::clients::KUBECTLS;
use testkit::cluster::NODE_IP;
use testkit::{Cluster, Session};

use crate::{BUSYBOX, cluster, must};

/// There is no server of WebSockets in busybox: the Pod runs the host's Python, with the machine's files to read.
const ECHO: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: echo, labels: {app: echo}}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: echo
    image: BUSYBOX
    command: [busybox, chroot, /host, /usr/bin/python3, FOLDER/echo.py]
    readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}
    volumeMounts: [{name: host, mountPath: /host, readOnly: true}]
  volumes: [{name: host, hostPath: {path: /}}]
---
apiVersion: v1
kind: Service
metadata: {name: echo}
spec: {selector: {app: echo}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: echo}
spec:
  rules:
  - host: echo.example
    http: {paths: [{path: /echo, pathType: Prefix, backend: {service: {name: echo, port: {number: 80}}}}]}
"#;

/// Of the process that serves Ingresses: its share of memory in KiB, its user, and its capabilities.
fn facts(cluster: &Cluster) -> (u64, String, String) {
    let pids = cluster.processes("knarr ingress");
    assert_eq!(pids.len(), 1, "one process serves");
    let read = |file: &str| std::fs::read_to_string(format!("/proc/{}/{file}", pids[0])).unwrap();
    let field = |text: &str, name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().to_owned();
        line.split_whitespace().next().unwrap_or_default().to_owned()
    };
    let status = read("status");
    (field(&read("smaps_rollup"), "Pss:").parse().unwrap(), field(&status, "Uid:"), field(&status, "CapPrm:"))
}

/// The definitions of Gateways and routes: a user's own, in the folder that `KNARR_CRDS` names, or those of these tests.
fn gateway_definitions(folder: &Path) {
    std::fs::create_dir_all(folder).unwrap();
    let Some(given) = std::env::var_os("KNARR_CRDS") else {
        return std::fs::write(folder.join("crds.yaml"), include_str!("ingress/gateway-crds.yaml")).unwrap();
    };
    for plural in ["gatewayclasses", "gateways", "httproutes", "grpcroutes", "referencegrants"] {
        let name = format!("{plural}.gateway.networking.k8s.io.yaml");
        std::fs::copy(Path::new(&given).join("gateway-api").join(&name), folder.join(&name)).unwrap();
    }
}

#[test]
fn ingresses_and_gateways_are_served() {
    let cluster = cluster();
    let session = must(Session::new(&cluster, KUBECTLS[1], "shop"));
    let folder = session.folder().to_string_lossy().into_owned();
    let placed = |text: &str| text.replace("BUSYBOX", BUSYBOX).replace("FOLDER", &folder);
    let files = [
        ("echo.py", include_str!("ingress/echo.py").to_owned()),
        ("websocket.py", include_str!("ingress/websocket.py").to_owned()),
        ("tell.py", include_str!("ingress/tell.py").to_owned()),
        ("echo.yaml", placed(ECHO)),
        ("gateway.yaml", placed(include_str!("ingress/gateway.yaml"))),
    ];
    for (name, text) in files {
        std::fs::write(session.folder().join(name), text).unwrap();
    }
    for name in ["ingress.crt", "ingress.key"] {
        std::fs::copy(cluster.data_dir().join("agent/tls").join(name), session.folder().join(name)).unwrap();
    }
    must(session.run("ingress.txt", &include_str!("sessions/ingress.txt").replace("NODE", NODE_IP)));
    gateway_definitions(&session.folder().join("gateway-crds"));
    must(session.run("gateway.txt", &include_str!("sessions/gateway.txt").replace("NODE", NODE_IP)));
    let (kib, user, capabilities) = facts(&cluster);
    eprintln!("the process that serves Ingresses has {kib} KiB");
    assert_eq!((user.as_str(), capabilities.trim_start_matches('0')), ("64251", ""));
    must(cluster.remove());
}

/// A port that somebody else has is told, and taken when it is free; the cluster does not care. Without Ingresses there is
/// no process, no class and no port.
#[test]
fn a_port_that_is_taken_is_waited_for_and_ingresses_can_be_left_out() {
    let mut cluster = Cluster::new(env!("CARGO_BIN_EXE_knarr")).unwrap();
    let mut other = must(cluster.start_other("python3", &["-m", "http.server", "80"]));
    let session = must(Session::on_host(&cluster));
    must(session.must("eventually 'curl -s -o /dev/null http://127.0.0.1/'"));
    must(cluster.up());
    let session = must(Session::on_host(&cluster));
    must(session.must("eventually 'curl -sk https://127.0.0.1/ | grep \"no Ingress\"'"));
    assert!(cluster.log_tail().contains("--ingress-http-port"), "{}", cluster.log_tail());
    must(other.kill());
    let started = Instant::now();
    must(session.must("eventually 'curl -s http://127.0.0.1/ | grep \"no Ingress\"'"));
    assert!(started.elapsed() < Duration::from_secs(80));
    must(cluster.knarr(&["down"]));
    must(cluster.up_with(&["--disable", "ingress"]));
    assert!(cluster.processes("knarr ingress").is_empty());
    let session = must(Session::on_host(&cluster));
    assert!(session.must("curl -s http://127.0.0.1/").is_err());
    must(cluster.remove());
}
