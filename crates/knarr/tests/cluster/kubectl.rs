//! The verbs of kubectl, oldest and newest version that is supported, against one cluster.

use testkit::clients::KUBECTLS;
use testkit::{Cluster, Session};

use crate::{cluster, must};

const SESSIONS: [(&str, &str); 10] = [
    ("objects.txt", include_str!("sessions/objects.txt")),
    ("workloads.txt", include_str!("sessions/workloads.txt")),
    ("stateful_sets.txt", include_str!("sessions/stateful_sets.txt")),
    ("daemon_sets.txt", include_str!("sessions/daemon_sets.txt")),
    ("jobs.txt", include_str!("sessions/jobs.txt")),
    ("pods.txt", include_str!("sessions/pods.txt")),
    ("network.txt", include_str!("sessions/network.txt")),
    ("apply.txt", include_str!("sessions/apply.txt")),
    ("custom.txt", include_str!("sessions/custom.txt")),
    ("preemption.txt", include_str!("sessions/preemption.txt")),
];

/// Every session with every version; all of them run, so that one report names everything that failed.
fn failures(cluster: &Cluster) -> Vec<String> {
    let mut failures = Vec::new();
    for kubectl in KUBECTLS {
        let namespace = kubectl.replace('.', "-");
        for (name, script) in SESSIONS {
            let ran = Session::new(cluster, kubectl, &namespace)
                .and_then(|session| session.run(&format!("{kubectl} {name}"), script));
            failures.extend(ran.err().map(|error| format!("{error:#}")));
        }
    }
    failures
}

#[test]
fn every_verb_of_kubectl_works() {
    let cluster = cluster();
    let failures = failures(&cluster);
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    must(cluster.remove());
}
