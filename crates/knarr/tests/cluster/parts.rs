//! The parts alone: controllers, scheduler, kubelet and proxy as processes of their own, each with the identity that
//! upstream's roles are for, and a second one that takes over when the leader dies.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;
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

/// What kubeadm says to a controller manager beside its keys.
const AS_KUBEADM: [&str; 5] = [
    "--allocate-node-cidrs=true",
    "--cluster-cidr=10.42.0.0/16",
    "--service-cluster-ip-range=10.43.0.0/16",
    "--cluster-name=kubernetes",
    "--enable-hostpath-provisioner=true",
];

/// `knarr controller-manager` or `knarr scheduler`, with the kubeconfig that the cluster made for it.
fn leader(cluster: &Cluster, part: &str, name: &str) -> Process {
    let kubeconfig = cluster.data_dir().join(format!("server/cred/{part}.kubeconfig"));
    let mut arguments = vec![part.to_owned(), format!("--kubeconfig={}", kubeconfig.display())];
    arguments.extend(QUICK_LEASE.map(str::to_owned));
    // Of those on one host one has the port.
    let is_first = name == "first";
    arguments.extend((!is_first).then(|| "--secure-port=0".to_owned()));
    arguments.push("--bind-address=127.0.0.1".to_owned());
    let asked = ["authentication", "authorization"];
    arguments.extend(asked.map(|what| format!("--{what}-kubeconfig={}", kubeconfig.display())));
    if part == "controller-manager" {
        arguments.extend(keys(cluster));
        arguments.extend(AS_KUBEADM.map(str::to_owned));
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

/// Who asked for what, and how it was answered, is all that is logged.
const AUDIT_POLICY: &str = "{apiVersion: audit.k8s.io/v1, kind: Policy, omitStages: [RequestReceived], \
                            rules: [{level: Metadata}]}";

/// Who the parts are, but for kubelets and those controllers that have accounts of their own.
const PARTS: [&str; 3] = ["system:kube-controller-manager", "system:kube-scheduler", "system:kube-proxy"];

/// What the parts asked for so far was granted by the roles that upstream gives them: `auth::bootstrap` has no others.
/// Their writes hardly ever met another version of the object: a PUT costs no second try.
fn upstreams_rights_were_enough(cluster: &Cluster) {
    let log = std::fs::read_to_string(cluster.data_dir().join("server/logs/audit.log")).unwrap();
    let (mut refused, mut writes, mut conflicts) =
        (BTreeSet::new(), BTreeMap::<String, u32>::new(), Vec::new());
    for event in log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
        let text =
            |pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let user = text("/user/username");
        let is_part = user.starts_with("system:serviceaccount:kube-system:")
            || user.starts_with("system:node:")
            || PARTS.contains(&user.as_str());
        let (verb, resource) = (text("/verb"), text("/objectRef/resource"));
        if !is_part || resource == "leases" {
            continue;
        }
        let what = format!("{user} {verb} {resource}/{}", text("/objectRef/subresource"));
        let code = event.pointer("/responseStatus/code").and_then(Value::as_i64);
        // What admission refuses, such as a new Pod in a namespace that is going, is no lack of rights.
        if text("/annotations/authorization.k8s.io~1decision") != "allow" {
            refused.insert(what.clone());
        }
        if ["update", "patch"].contains(&verb.as_str()) {
            *writes.entry(user).or_default() += 1;
            conflicts.extend((code == Some(409)).then_some(what));
        }
    }
    assert_eq!(refused, BTreeSet::new());
    let all: u32 = writes.values().sum();
    println!("{all} updates and patches, {} conflicts: {writes:#?} {conflicts:#?}", conflicts.len());
    for account in ["deployment", "replicaset", "statefulset", "daemon-set", "replication", "resourcequota"] {
        let account = format!("system:serviceaccount:kube-system:{account}-controller");
        assert!(writes.contains_key(&account), "{account} has written nothing: {writes:#?}");
    }
    assert!(conflicts.len() * 20 <= all as usize, "{} of {all}: {conflicts:#?}", conflicts.len());
}

#[test]
fn parts_run_alone_and_a_second_one_takes_over() {
    let mut cluster = Cluster::new(env!("CARGO_BIN_EXE_knarr")).unwrap();
    let policy = cluster.scratch().join("audit.yaml");
    std::fs::write(&policy, AUDIT_POLICY).unwrap();
    let policy = format!("--audit-policy-file={}", policy.display());
    must(cluster.up_with(&["--disable", "controller-manager,scheduler", "--disable=agent", &policy]));
    let folder = cluster.data_dir_beside("node");
    let session = must(Session::new(&cluster, KUBECTLS[1], "alone"));
    must(session.run("parts_none.txt", include_str!("sessions/parts_none.txt")));
    let mut first = ["controller-manager", "scheduler"].map(|part| leader(&cluster, part, "first"));
    let kubelet = kubelet(&cluster, &folder);
    let proxy = proxy(&cluster, &folder);
    must(session.run("parts_alone.txt", include_str!("sessions/parts_alone.txt")));
    must(session.run("parts_serving.txt", include_str!("sessions/parts_serving.txt")));
    must(session.run("parts_rights.txt", include_str!("sessions/parts_rights.txt")));
    upstreams_rights_were_enough(&cluster);

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
