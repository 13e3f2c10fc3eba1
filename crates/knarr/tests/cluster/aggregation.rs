//! An API server of others as its administrator sees it: a Pod behind a Service and an APIService, which kubectl uses as it
//! uses the cluster's own; when it is gone, nothing but its own kinds is.

use testkit::Session;
use testkit::clients::KUBECTLS;

use crate::{cluster, must, servers};

const NAMESPACE: &str = "sea";

#[test]
fn an_api_server_in_a_pod_is_used_as_the_clusters_own() {
    let cluster = cluster();
    let session = must(Session::new(&cluster, KUBECTLS[1], NAMESPACE));
    let script = include_str!("sessions/aggregation.txt");
    let program = include_str!("aggregation/server.py");
    must(session.run("aggregation.txt", &servers::prepare(&session, (NAMESPACE, "wardle"), program, script)));
    drop(session);
    must(cluster.remove());
}
