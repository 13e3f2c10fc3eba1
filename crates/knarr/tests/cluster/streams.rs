//! exec, attach, cp, port-forward, proxy and logs: over WebSocket and over SPDY, with every kubectl that differs there.
//!
//! 1.20 speaks SPDY only; 1.32 and 1.36 speak WebSocket, and SPDY inside it for port-forward.

use testkit::Session;
use testkit::clients::{KUBECTL_SPDY, KUBECTLS};

use crate::{cluster, must};

/// Runs `script` with each kubectl in a namespace of its own, all at the same time.
fn check(script_name: &str, script: &str) {
    let cluster = cluster();
    let run = &|kubectl: &str| {
        let ran = Session::new(&cluster, kubectl, &kubectl.replace('.', "-"))
            .and_then(|session| session.run(&format!("{kubectl} {script_name}"), script));
        ran.err().map(|error| format!("{error:#}"))
    };
    let failures: Vec<String> = std::thread::scope(|scope| {
        let all: Vec<_> = KUBECTLS
            .into_iter()
            .chain([KUBECTL_SPDY])
            .map(|kubectl| scope.spawn(move || run(kubectl)))
            .collect();
        all.into_iter().filter_map(|one| one.join().unwrap()).collect()
    });
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    must(cluster.remove());
}

#[test]
fn bytes_reach_containers_and_ports_both_ways() {
    check("streams.txt", include_str!("sessions/streams.txt"));
}

#[test]
fn logs_take_every_option() {
    check("logs.txt", include_str!("sessions/logs.txt"));
}

#[test]
fn proxies_reach_pods_services_and_nodes() {
    check("proxy.txt", include_str!("sessions/proxy.txt"));
}
