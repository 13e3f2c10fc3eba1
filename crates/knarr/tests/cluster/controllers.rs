//! What controllers do about what nobody else looks at, as kubectl shows it.

use testkit::Session;
use testkit::clients::KUBECTLS;

use crate::{cluster, must};

#[test]
fn traffic_stays_near_and_tokens_go_when_they_are_over() {
    let cluster = cluster();
    let session = must(Session::new(&cluster, KUBECTLS[1], "near"));
    must(session.run("controllers", include_str!("sessions/controllers.txt")));
    drop(session);
    must(cluster.remove());
}
