//! Modes of the Service proxy on a whole cluster: Services work in each, and one leaves nothing of another. IPVS is tried by the
//! proxy's own tests, under a kernel that has it.

use testkit::clients::KUBECTLS;
use testkit::{Cluster, Session};

use crate::{BUSYBOX, must};

fn session(cluster: &Cluster, name: &str, script: &str) {
    let session = must(Session::new(cluster, KUBECTLS[1], "modes"));
    must(session.run(name, script));
}

#[test]
fn services_work_by_iptables_and_a_change_of_mode_leaves_nothing_of_it() {
    let mut cluster = Cluster::new(env!("CARGO_BIN_EXE_knarr")).unwrap();
    must(cluster.import_busybox(BUSYBOX));
    must(cluster.up_with(&["--proxy-mode", "iptables"]));
    session(&cluster, "by_iptables.txt", include_str!("sessions/by_iptables.txt"));
    must(cluster.knarr(&["down"]));
    must(cluster.up());
    session(&cluster, "by_nftables.txt", include_str!("sessions/by_nftables.txt"));
    must(cluster.knarr(&["down"]));
    must(cluster.up_with(&["--proxy-mode", "iptables"]));
    session(&cluster, "by_iptables_again.txt", include_str!("sessions/by_iptables_again.txt"));
    must(cluster.remove());
}
