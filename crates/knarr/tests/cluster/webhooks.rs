//! Webhooks and policies as their administrator sees them: a server in a Pod behind a Service puts a second container into
//! the Pods of a Deployment, and they run; it refuses what it does not allow, in its own words; when it is gone, nothing is
//! made that it had to be asked about. Another one converts the objects of a kind between its versions. Policies refuse and
//! warn without any server.

use testkit::clients::KUBECTLS;
use testkit::{Cluster, Session};

use crate::{cluster, must, servers};

/// Namespaces, and what is typed there.
const SESSIONS: [(&str, &str, &str); 3] = [
    ("hooks", "webhooks.txt", include_str!("sessions/webhooks.txt")),
    ("conversion", "conversion.txt", include_str!("sessions/conversion.txt")),
    ("policies", "policies.txt", include_str!("sessions/policies.txt")),
];

/// What failed, if anything.
fn run(cluster: &Cluster, (namespace, name, script): (&str, &str, &str)) -> Option<String> {
    let session = must(Session::new(cluster, KUBECTLS[1], namespace));
    let program = include_str!("webhooks/hook.py");
    let script = servers::prepare(&session, (namespace, "hook"), program, script);
    session.run(name, &script).err().map(|error| format!("{error:#}"))
}

#[test]
fn webhooks_in_pods_and_policies_change_refuse_and_convert() {
    let cluster = cluster();
    let shared = &cluster;
    let failures: Vec<String> = std::thread::scope(|scope| {
        let running: Vec<_> = SESSIONS.map(|session| scope.spawn(move || run(shared, session))).into();
        running.into_iter().filter_map(|session| session.join().unwrap()).collect()
    });
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    must(cluster.remove());
}
