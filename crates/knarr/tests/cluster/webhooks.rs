//! Admission webhooks as their administrator sees them: a server in a Pod behind a Service puts a second container into the
//! Pods of a Deployment, and they run; it refuses what its policy does not allow, in its own words; when it is gone, nothing
//! is made that it had to be asked about.

use testkit::Session;
use testkit::clients::KUBECTLS;

use crate::{cluster, must, servers};

const NAMESPACE: &str = "hooks";

#[test]
fn webhooks_in_a_pod_change_and_refuse() {
    let cluster = cluster();
    let session = must(Session::new(&cluster, KUBECTLS[1], NAMESPACE));
    let script = include_str!("sessions/webhooks.txt");
    let script = servers::prepare(&session, (NAMESPACE, "hook"), include_str!("webhooks/hook.py"), script);
    must(session.run("webhooks.txt", &script));
    drop(session);
    must(cluster.remove());
}
