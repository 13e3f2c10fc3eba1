//! The parts alone: controllers, scheduler, kubelet and proxy as processes of their own, each with the identity that
//! upstream's roles are for, and a second one that takes over when the leader dies.

use std::path::Path;

use testkit::clients::KUBECTLS;
use testkit::cluster::{NODE_IP, NODE_NAME};
use testkit::inventory::{Inventory, leaks};
use testkit::{Cluster, Process, Session};

use crate::must;

/// Quick, so that a dead leader is not waited for long; not so quick that one that hardly gets to run loses its lead.
const QUICK_LEASE: [&str; 3] = [
    "--leader-elect-lease-duration=8s",
    "--leader-elect-renew-deadline=7s",
    "--leader-elect-retry-period=500ms",
];

/// `knarr controller-manager` or `knarr scheduler`, with the kubeconfig that the cluster made for it.
fn leader(cluster: &Cluster, part: &str, name: &str) -> Process {
    let kubeconfig = cluster.data_dir().join(format!("server/cred/{part}.kubeconfig"));
    let mut arguments = vec![part.to_owned(), format!("--kubeconfig={}", kubeconfig.display())];
    arguments.extend(QUICK_LEASE.map(str::to_owned));
    if part == "controller-manager" {
        arguments.extend(keys(cluster));
    }
    start(cluster, &format!("{part}-{name}"), &arguments)
}

/// The keys that controllers sign with, which a control plane that has none of its own must be given.
fn keys(cluster: &Cluster) -> impl Iterator<Item = String> {
    let keys = cluster.data_dir().join("server/tls");
    let flags = [
        ("cluster-signing-cert-file", "client-ca.crt"),
        ("cluster-signing-key-file", "client-ca.key"),
        ("cluster-signing-kubelet-serving-cert-file", "kubelet-serving-ca.crt"),
        ("cluster-signing-kubelet-serving-key-file", "kubelet-serving-ca.key"),
        ("service-account-private-key-file", "service-account.key"),
        ("root-ca-file", "ca.crt"),
    ];
    flags.into_iter().map(move |(flag, file)| format!("--{flag}={}", keys.join(file).display()))
}

fn start(cluster: &Cluster, name: &str, arguments: &[String]) -> Process {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    must(cluster.start(name, &arguments))
}

fn proxy(cluster: &Cluster, folder: &Path) -> Process {
    let kubeconfig = cluster.data_dir().join("agent/kube-proxy.kubeconfig");
    let arguments = [
        "proxy".to_owned(),
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--hostname-override={NODE_NAME}"),
        format!("--node-ip={NODE_IP}"),
        format!("--data-dir={}", folder.display()),
    ];
    start(cluster, "proxy", &arguments)
}

fn kubelet(cluster: &Cluster, folder: &Path) -> Process {
    let agent = cluster.data_dir().join("agent");
    let file = |name: &str| agent.join(name).display().to_string();
    must(cluster.start(
        "kubelet",
        &[
            "kubelet",
            &format!("--kubeconfig={}", file("kubelet.kubeconfig")),
            &format!("--hostname-override={NODE_NAME}"),
            &format!("--node-ip={NODE_IP}"),
            &format!("--data-dir={}", folder.display()),
            &format!("--tls-cert-file={}", file("tls/kubelet-server.crt")),
            &format!("--tls-private-key-file={}", file("tls/kubelet-server.key")),
            &format!("--client-ca-file={}", file("tls/client-ca.crt")),
            // How full this machine is matters to nobody here.
            "--eviction-hard=nodefs.available<0%,imagefs.available<0%",
        ],
    ))
}

#[test]
fn parts_run_alone_and_a_second_one_takes_over() {
    let mut cluster = Cluster::new(env!("CARGO_BIN_EXE_knarr")).unwrap();
    must(cluster.up_with(&["--disable", "controller-manager,scheduler", "--disable=agent"]));
    let folder = cluster.data_dir_beside("node");
    let session = must(Session::new(&cluster, KUBECTLS[1], "alone"));
    must(session.run("parts_none.txt", include_str!("sessions/parts_none.txt")));
    let mut first = ["controller-manager", "scheduler"].map(|part| leader(&cluster, part, "first"));
    let kubelet = kubelet(&cluster, &folder);
    let proxy = proxy(&cluster, &folder);
    must(session.run("parts_alone.txt", include_str!("sessions/parts_alone.txt")));

    let second = ["controller-manager", "scheduler"].map(|part| leader(&cluster, part, "second"));
    first.iter_mut().for_each(|leader| must(leader.kill()));
    must(session.run("parts_takeover.txt", include_str!("sessions/parts_takeover.txt")));

    second.into_iter().for_each(|leader| must(leader.stop()));
    must(kubelet.stop());
    must(proxy.stop());
    drop(session);
    must(cluster.remove());
}

/// What the kernel has of the cluster now and had not before.
fn left(cluster: &mut Cluster, before: &Inventory) -> Vec<String> {
    let all = leaks(before, &must(cluster.inventory(&[""])));
    // Which processes there are says itself by the cgroups.
    all.into_iter().filter(|line| !line.starts_with("Process")).collect()
}

#[test]
fn a_part_that_is_turned_off_leaves_nothing_on_the_host() {
    let mut cluster = Cluster::new(env!("CARGO_BIN_EXE_knarr")).unwrap();
    must(cluster.up_with(&["--disable-agent"]));
    let before = must(cluster.inventory(&[""]));
    must(cluster.knarr(&["down"]));
    must(cluster.up());
    let run = |cluster: &Cluster, name: &str, script: &str| {
        must(must(Session::new(cluster, KUBECTLS[1], "steady")).run(name, script));
    };
    run(&cluster, "before.txt", include_str!("sessions/before.txt"));
    let had = left(&mut cluster, &before);
    for kind in ["Mount", "Link kn-", "Link ks-", "Rule", "Cgroup"] {
        assert!(had.iter().any(|line| line.starts_with(kind)), "{kind}: {had:#?}");
    }

    must(cluster.knarr(&["down"]));
    must(cluster.up_with(&["--disable", "kubelet"]));
    let had = left(&mut cluster, &before);
    assert!(!had.iter().any(|line| line.starts_with("Link kn-") || line.starts_with("Cgroup")), "{had:#?}");
    assert!(had.iter().any(|line| line.starts_with("Link ks-")), "the proxy still runs: {had:#?}");
    must(cluster.knarr(&["down"]));
    must(cluster.up_with(&["--disable-agent"]));
    assert_eq!(left(&mut cluster, &before), Vec::<String>::new());

    must(cluster.knarr(&["down"]));
    must(cluster.up());
    run(
        &cluster,
        "the kubelet is on again",
        "$ kubectl run fresh --image=knarr.local/hello\npod/fresh created\n\
         $ kubectl wait --for=condition=Ready pod --all --timeout=120s | wc -l\n4\n",
    );
    must(cluster.remove());
}
