//! A Node behind NAT, to which no server has a way: its tunnel is the way, and is there again after whatever breaks it.

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use testkit::clients::KUBECTLS;
use testkit::{Cluster, Lan, Process, Session, lan};

use crate::{BUSYBOX, must, servers};

/// How long a killed process may take to end.
const DEATH_MAX: Duration = Duration::from_secs(10);
const EXEC: &str = "eventually 'timeout 5 kubectl exec busybox -- hostname'";

fn join(agent: &Cluster, server: &str, token: &str) -> Process {
    let (ip, folder) = (lan::far_ip(1).to_string(), agent.data_dir().display().to_string());
    let flags = ["agent", "--server", server, "--token", token, "--node-ip", &ip, "--node-name", "host-1"];
    must(agent.start("agent", &[&flags[..], &["--data-dir", &folder]].concat()))
}

/// Ends all processes of some parts at once, as a crash does.
fn crash(cluster: &Cluster, parts: &[&str]) {
    let all: Vec<i32> = parts.iter().flat_map(|part| cluster.processes(part)).collect();
    assert!(!all.is_empty(), "{parts:?} run");
    let handles: Vec<_> = all.iter().filter_map(|pid| sys::process::PidFd::open(*pid).ok()).collect();
    for pid in all {
        assert!(matches!(kill(Pid::from_raw(pid), Signal::SIGKILL), Ok(()) | Err(nix::Error::ESRCH)));
    }
    assert!(handles.iter().all(|process| process.wait(DEATH_MAX).unwrap()), "all of it ends");
}

/// What breaks a tunnel, each time with a way that is there again afterwards.
fn break_and_heal(wire: &Lan, server: &Cluster, agent: &Cluster, session: &Session<'_>) {
    let healed = |what: &str, begun: Instant| {
        assert_eq!(must(session.must(EXEC)).trim(), "busybox", "{what}");
        println!("the way is there again {:.1?} after {what}", begun.elapsed());
    };
    let begun = Instant::now();
    crash(server, &["knarr control-plane"]);
    healed("the API server's end", begun);

    let begun = Instant::now();
    crash(agent, &["knarr node"]);
    healed("the end of the Node's process", begun);

    // Neither end is told anything: both have to notice.
    must(wire.unplug(1));
    let begun = Instant::now();
    must(session.must("eventually '! kubectl get --raw /knarr/tunnels | grep -q host-1'"));
    assert!(begun.elapsed() < Duration::from_secs(40), "{:?}", begun.elapsed());
    must(wire.plug(1));
    healed("the link's return", Instant::now());
}

#[test]
fn a_node_behind_nat_is_reached_through_its_tunnel() {
    let wire = must(Lan::new(2));
    must(wire.move_away(1));
    must(wire.hide(1));
    let mut server = must(Cluster::on_host(env!("CARGO_BIN_EXE_knarr"), &wire, 0));
    let mut agent = must(Cluster::on_host(env!("CARGO_BIN_EXE_knarr"), &wire, 1));
    must(server.import_busybox(BUSYBOX));
    must(agent.import_busybox(BUSYBOX));
    let near = lan::ip(0).to_string();
    let more = ["--network-backend", "vxlan", "--egress-selector-mode", "pod"];
    must(server.knarr(&[&["up", "--node-ip", &near, "--node-name", "host-0"], &more[..]].concat()));
    let told = must(server.knarr(&["token", "create"]));
    let (token, url) = (told.lines().next().unwrap(), format!("https://{near}:6443"));
    let node = join(&agent, &url, token);
    let session = must(Session::new(&server, KUBECTLS[1], "tunnels"));
    let script = include_str!("sessions/tunnels.txt");
    let script = servers::prepare(&session, ("tunnels", "hook"), include_str!("webhooks/hook.py"), script);
    must(session.run("tunnels.txt", &script));
    let host = must(Session::on_host(&agent));
    must(host.run("tunnels_host.txt", include_str!("sessions/tunnels_host.txt")));
    break_and_heal(&wire, &server, &agent, &session);

    // A Node that is deleted has no tunnel.
    must(node.stop());
    must(session.must("kubectl delete pods --all --grace-period=0 --force --wait=false >/dev/null 2>&1"));
    must(session.must(
        "kubectl delete node host-1 && eventually '! kubectl get --raw /knarr/tunnels | grep -q host-1'",
    ));
    drop(session);
    must(agent.remove());
    must(server.remove());
}
