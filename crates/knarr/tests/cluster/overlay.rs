//! Nodes in networks of their own, with routers between them that know nothing of Pods.

use sys::netlink::{Neighbour, Route};
use testkit::clients::KUBECTLS;
use testkit::{Cluster, Lan, Process, Session, lan};

use crate::{BUSYBOX, must};

const HOSTS: u8 = 3;

/// Host `number` as a Node of the server's cluster.
fn join(agent: &Cluster, number: u8, server: &str, token: &str) -> Process {
    let (ip, name) = (lan::far_ip(number).to_string(), format!("host-{number}"));
    let folder = agent.data_dir().display().to_string();
    let flags = ["agent", "--server", server, "--token", token, "--node-ip", &ip, "--node-name", &name];
    must(agent.start("agent", &[&flags[..], &["--data-dir", &folder]].concat()))
}

/// Whom a host's overlay sends frames to.
fn forwardings(wire: &Lan, number: u8) -> Vec<Neighbour> {
    let found = wire.host(number).run(|| {
        let mut route = Route::open()?;
        let links = route.links()?.into_iter().filter(|link| link.kind == "vxlan");
        let indices: Vec<u32> = links.map(|link| link.index).collect();
        assert_eq!(indices.len(), 1, "one overlay");
        route.forwardings(indices[0])
    });
    must(found.map_err(Into::into))
}

#[test]
fn three_nodes_behind_routers_are_one_network_by_vxlan() {
    let wire = must(Lan::new(HOSTS));
    (1..HOSTS).for_each(|number| must(wire.move_away(number)));
    let mut hosts: Vec<Cluster> =
        (0..HOSTS).map(|n| must(Cluster::on_host(env!("CARGO_BIN_EXE_knarr"), &wire, n))).collect();
    for host in &mut hosts {
        must(host.import_busybox(BUSYBOX));
    }
    let mut agents = hosts.split_off(1);
    let mut server = hosts.remove(0);
    let near = lan::ip(0).to_string();
    let flags = ["up", "--node-ip", &near, "--node-name", "host-0", "--network-backend", "vxlan"];
    must(server.knarr(&flags));
    let told = must(server.knarr(&["token", "create"]));
    let (token, url) = (told.lines().next().unwrap(), format!("https://{near}:6443"));
    let mut nodes: Vec<Process> =
        (1..).zip(&agents).map(|(number, agent)| join(agent, number, &url, token)).collect();
    let session = must(Session::new(&server, KUBECTLS[1], "overlay"));
    must(session.must("eventually '[ $(kubectl get nodes -o name | wc -l) = 3 ]'"));
    must(session.run("overlay.txt", include_str!("sessions/overlay.txt")));
    let ways: Vec<_> = forwardings(&wire, 0).into_iter().map(|to| to.ip).collect();
    assert_eq!(ways, [lan::far_ip(1), lan::far_ip(2)]);

    // Of a Node that goes nothing is left, on its host and on the others.
    let (last, node) = (agents.remove(1), nodes.remove(1));
    must(session.must("kubectl delete pods --all --timeout=60s --wait=false >/dev/null"));
    must(node.stop());
    must(last.remove());
    must(session.must("kubectl delete node host-2"));
    let begun = std::time::Instant::now();
    while forwardings(&wire, 0).len() != 1 {
        assert!(begun.elapsed() < std::time::Duration::from_secs(30), "{:?}", forwardings(&wire, 0));
        std::thread::yield_now();
    }
    drop(session);
    must(nodes.remove(0).stop());
    must(agents.remove(0).remove());
    must(server.remove());
    assert!(must(wire.routes(0)).iter().all(|route| route.gateway != Some([10, 42, 1, 0].into())));
}
