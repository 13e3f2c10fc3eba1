//! Several servers on one etcd, each on a host of its own on one wire: all serve, one works, and when that one is
//! killed another goes on.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use testkit::clients::{self, KUBECTLS};
use testkit::etcd::{Etcd, Security};
use testkit::{Cluster, Lan, Session, lan};

use crate::{BUSYBOX, must};

pub(crate) const SERVERS: u8 = 3;
pub(crate) const TOKEN: &str = "the servers' own secret";
/// How long a killed process may take to end.
const DEATH_MAX: Duration = Duration::from_secs(10);
/// Services that each server is asked for at the same time.
const SERVICES: usize = 30;

/// A server, on the host of its number.
pub(crate) struct Server {
    pub(crate) number: u8,
    pub(crate) cluster: Cluster,
    datastore: Vec<String>,
}

impl Server {
    pub(crate) fn new(lan: &Lan, etcd: &Etcd<'_>, number: u8) -> Self {
        let mut datastore = vec![format!("--datastore-endpoint={}", etcd.urls().join(","))];
        if let Some(tls) = etcd.tls() {
            for (flag, file) in [("ca", &tls.authority), ("cert", &tls.certificate), ("key", &tls.key)] {
                datastore.push(format!("--datastore-{flag}file={}", file.display()));
            }
        }
        let cluster = must(Cluster::on_host(env!("CARGO_BIN_EXE_knarr"), lan, number));
        Self { number, cluster, datastore }
    }

    fn up(&mut self, token: &str) -> anyhow::Result<String> {
        self.up_with(token, &[])
    }

    pub(crate) fn up_with(&mut self, token: &str, more: &[&str]) -> anyhow::Result<String> {
        let (ip, name) = (lan::ip(self.number).to_string(), format!("host-{}", self.number));
        let mut flags = vec!["up", "--node-ip", &ip, "--node-name", &name, "--token", token];
        flags.extend(self.datastore.iter().map(String::as_str));
        self.cluster.knarr(&[&flags, more].concat())
    }

    fn session(&self) -> Session<'_> {
        must(Session::new(&self.cluster, KUBECTLS[1], "many"))
    }

    /// Process ids of a part, or of the supervisor.
    pub(crate) fn pids(&self, part: &str) -> Vec<Pid> {
        let all = self.cluster.processes(part);
        assert!(!all.is_empty(), "{part} runs on host {}", self.number);
        all.into_iter().map(Pid::from_raw).collect()
    }

    /// All of the server at once, as a power cut does it; containers stay. What dies with it has let go of its ports.
    pub(crate) fn crash(&self) {
        let parts = ["knarr server", "knarr control-plane", "knarr node", "knarr ingress"];
        let all = parts.iter().flat_map(|part| self.cluster.processes(part));
        let all: Vec<_> = all.filter_map(|pid| sys::process::PidFd::open(pid).ok()).collect();
        self.signal("knarr server", Signal::SIGKILL);
        assert!(all.iter().all(|process| process.wait(DEATH_MAX).unwrap()), "all of it ends");
    }

    pub(crate) fn signal(&self, part: &str, signal: Signal) {
        for pid in self.pids(part) {
            kill(pid, signal).unwrap();
        }
    }
}

/// All servers, each started with these flags.
pub(crate) fn start(lan: &Lan, etcd: &Etcd<'_>, flags: &[&str]) -> Vec<Server> {
    let mut servers: Vec<_> = (0..SERVERS).map(|number| Server::new(lan, etcd, number)).collect();
    // At the same moment, with nothing there yet: they have to agree.
    std::thread::scope(|scope| {
        let starting: Vec<_> =
            servers.iter_mut().map(|server| scope.spawn(|| server.up_with(TOKEN, flags))).collect();
        for one in starting {
            must(one.join().unwrap());
        }
    });
    servers
}

/// Who leads, as `session`'s server sees it.
fn leader(session: &Session<'_>, lease: &str) -> String {
    let command = format!("kubectl -n kube-system get lease {lease} -o jsonpath='{{.spec.holderIdentity}}'");
    must(session.must(&command))
}

fn server_of<'a>(servers: &'a [Server], holder: &str) -> &'a Server {
    let is_it = |server: &&Server| holder.starts_with(&format!("host-{}_", server.number));
    servers.iter().find(is_it).unwrap_or_else(|| panic!("no server is {holder:?}"))
}

const ADDRESSES: &str =
    "kubectl -n default get endpoints kubernetes -o jsonpath='{.subsets[0].addresses[*].ip}' 2>/dev/null";

fn wait_for(session: &Session<'_>, command: &str, expected: &str) {
    must(session.must(&format!(
        "held() {{\n{command}\n}}\neventually '[ \"$(held)\" = \"{expected}\" ]' || {{ held; false; }}"
    )));
}

/// Every server gives out addresses and ports at the same time; none is given twice.
fn services_collide_nowhere(servers: &[Server]) {
    std::thread::scope(|scope| {
        for server in servers {
            scope.spawn(|| {
                let session = server.session();
                let service = |n: usize| {
                    format!(
                        "{{apiVersion: v1, kind: Service, metadata: {{name: s-{}-{n}}}, \
                         spec: {{type: NodePort, selector: {{a: b}}, ports: [{{port: 80}}]}}}}\n---\n",
                        server.number
                    )
                };
                let all: String = (0..SERVICES).map(service).collect();
                std::fs::write(session.folder().join("services.yaml"), all).unwrap();
                must(session.must("kubectl create -f services.yaml"));
            });
        }
    });
    for server in servers {
        let held = must(server.session().must(
            "kubectl get services -o jsonpath='{range .items[*]}{.spec.clusterIP} {.spec.ports[0].nodePort}{\"\\n\"}{end}'",
        ));
        let count = SERVICES * usize::from(SERVERS);
        let column = |n: usize| held.lines().filter_map(move |line| line.split(' ').nth(n));
        for n in [0, 1] {
            assert_eq!(column(n).collect::<BTreeSet<_>>().len(), count, "column {n}:\n{held}");
            assert_eq!(column(n).count(), count);
        }
    }
    must(servers[0].session().must("kubectl delete services --all --wait=false"));
}

/// What one server has written, the next one reads at once; a revision of one is a revision of all.
fn what_one_writes_all_read(servers: &[Server]) {
    let sessions: Vec<_> = servers.iter().map(Server::session).collect();
    for n in 0..6 {
        let (here, there) = (&sessions[n % 3], &sessions[(n + 1) % 3]);
        let revision = must(here.must(&format!(
            "kubectl create configmap written-{n} --from-literal=n={n} -o jsonpath='{{.metadata.resourceVersion}}'"
        )));
        let names = must(there.must("kubectl get configmaps -o name"));
        assert!(names.contains(&format!("configmap/written-{n}\n")), "{names}");
        let not_older = format!(
            "kubectl get --raw '/api/v1/namespaces/many/configmaps?resourceVersion={revision}&resourceVersionMatch=NotOlderThan&limit=500'"
        );
        assert!(must(sessions[(n + 2) % 3].must(&not_older)).contains(&format!("\"written-{n}\"")));
    }
}

#[test]
fn three_servers_on_three_members_serve_and_one_works() {
    let wire = must(Lan::new(SERVERS));
    let mut etcd = must(Etcd::on_hosts(&wire, SERVERS, Security::Tls, &[]));
    let mut servers = start(&wire, &etcd, &[]);
    let all: Vec<String> = (0..SERVERS).map(|number| lan::ip(number).to_string()).collect();
    for server in &servers {
        wait_for(&server.session(), ADDRESSES, &all.join(" "));
        must(server.session().must("kubectl wait --for=condition=Ready node --all --timeout=60s"));
    }
    let ranges = "kubectl get nodes -o jsonpath='{.items[*].spec.podCIDR}'";
    let ranges: BTreeSet<String> =
        must(servers[0].session().must(ranges)).split(' ').map(str::to_owned).collect();
    assert_eq!(ranges.len(), usize::from(SERVERS), "{ranges:?}");
    what_one_writes_all_read(&servers);
    services_collide_nowhere(&servers);
    a_node_goes_on_without_its_own_api_server(&servers);

    // A rollout, and in the middle of it the leader's end.
    let holder = leader(&servers[0].session(), "kube-controller-manager");
    let dead = server_of(&servers, &holder).number;
    let next = &servers[usize::from((dead + 1) % SERVERS)];
    let session = next.session();
    must(session.must(
        "kubectl create deployment web --image=knarr.local/hello --replicas=6 && \
         kubectl rollout status deployment/web --timeout=90s && \
         kubectl patch deployment web -p '{\"spec\":{\"template\":{\"metadata\":{\"labels\":{\"round\":\"2\"}}}}}'",
    ));
    // And a member of etcd with it.
    must(etcd.kill(usize::from(dead)));
    servers[usize::from(dead)].crash();
    let killed = Instant::now();
    for lease in ["kube-controller-manager", "kube-scheduler"] {
        if server_of(&servers, &leader(&session, lease)).number == dead {
            let held =
                format!("kubectl -n kube-system get lease {lease} -o jsonpath='{{.spec.holderIdentity}}'");
            must(session.must(&format!("held() {{ {held}; }}; eventually 'held | grep -v ^host-{dead}_'")));
        }
        println!("{lease}: another server leads {:.1?} after the kill", killed.elapsed());
    }
    let rest: Vec<String> =
        (0..SERVERS).filter(|number| *number != dead).map(|number| lan::ip(number).to_string()).collect();
    wait_for(&session, ADDRESSES, &rest.join(" "));
    println!("the kubernetes Service leads to the others {:.1?} after the kill", killed.elapsed());
    drop(session);

    must(etcd.start(usize::from(dead)));
    must(servers[usize::from(dead)].up(TOKEN));
    for server in &servers {
        let session = server.session();
        wait_for(&session, ADDRESSES, &all.join(" "));
        must(session.must("kubectl rollout status deployment/web --timeout=100s"));
        wait_for(
            &session,
            "kubectl get pods -l app=web -o jsonpath=\"{.items[*].metadata.labels.round}\"",
            "2 2 2 2 2 2",
        );
        let sets = must(session.must(
            "kubectl get replicasets -l app=web -o jsonpath='{.items[*].status.replicas}' --sort-by=.metadata.creationTimestamp",
        ));
        assert_eq!(sets, "0 6", "two ReplicaSets, as without a kill");
    }
    for server in servers.drain(..) {
        must(server.cluster.remove());
    }
}

/// Its kubelet finds another one: a Pod that is meant for the Node runs there.
fn a_node_goes_on_without_its_own_api_server(servers: &[Server]) {
    let (alone, other) = (&servers[1], &servers[2]);
    // So that the API server is not started again at once.
    alone.signal("knarr server", Signal::SIGSTOP);
    alone.signal("knarr control-plane", Signal::SIGKILL);
    let session = other.session();
    let begun = Instant::now();
    must(session.must(
        "kubectl run alone --image=knarr.local/hello --overrides='{\"spec\":{\"nodeName\":\"host-1\"}}' && \
         kubectl wait --for=condition=Ready pod/alone --timeout=60s && kubectl delete pod alone --wait=false",
    ));
    println!("a Pod ran {:.1?} after its Node's API server was killed", begun.elapsed());
    alone.signal("knarr server", Signal::SIGCONT);
    drop(alone.session());
}

#[test]
fn a_server_with_another_token_is_told_so_in_one_line() {
    let wire = must(Lan::new(2));
    let etcd = must(Etcd::on_hosts(&wire, 1, Security::Plain, &[]));
    let mut first = Server::new(&wire, &etcd, 0);
    must(first.up(TOKEN));
    let mut second = Server::new(&wire, &etcd, 1);
    let refused = second.up("another").unwrap_err().to_string();
    assert!(refused.contains("the token is not the one of the cluster on this etcd"), "{refused}");
    must(second.cluster.remove());
    must(first.cluster.remove());
}

/// What `sh` prints within a Pod.
fn inside(session: &Session<'_>, pod: &str, command: &str) -> String {
    must(session.must(&format!("kubectl exec {pod} -- {command}")))
}

/// Another cluster's token is not even sent; none is taken that is wrong, or whose time is over. Each is told in a line.
fn bad_tokens_are_refused(server: &mut Cluster, agent: &Cluster, join: &[&str], token: &str) {
    let (cluster_hash, proof) = token.rsplit_once("::").unwrap();
    let folder = agent.data_dir().display().to_string();
    let refuse = |token: &str, why: &str| {
        let refused = said(agent, &[join, &[token, "--data-dir", &folder]].concat());
        let is_one_line = refused.starts_with("knarr: ") && refused.lines().count() == 1;
        assert!(is_one_line && refused.contains(why), "{token}: {refused}");
    };
    refuse(&format!("K10{}::{proof}", "0".repeat(64)), "is not the cluster that --token is for");
    let wrong = "the server does not take --token: it is wrong, or its time is over; `knarr token create`";
    refuse(&format!("{cluster_hash}::{}.{}", proof.split('.').next().unwrap(), "0".repeat(16)), wrong);
    let old = must(server.knarr(&["token", "create"]));
    let old = old.lines().next().unwrap();
    let of_old = old.rsplit_once("::").unwrap().1.split('.').next().unwrap();
    let over =
        [r#"{"stringData":{"expiration":"2026-01-01T00:00:00Z"}}"#, "--type=merge", "-n", "kube-system"];
    let mut kubectl = server.command(must(clients::folder(KUBECTLS[1])).join("kubectl"));
    let patched = kubectl.args(["patch", "secret", &format!("bootstrap-token-{of_old}"), "-p"]).args(over);
    assert!(patched.status().unwrap().success());
    refuse(old, wrong);
    for malformed in ["abc", proof, &format!("{cluster_hash}::{}", "x".repeat(23))] {
        refuse(
            malformed,
            "--token must have the form K10HASH::ID.SECRET: `knarr token create` on a server makes one",
        );
    }
}

#[test]
fn a_host_joins_with_a_token_and_its_pods_are_the_clusters() {
    let wire = must(Lan::new(2));
    let binary = env!("CARGO_BIN_EXE_knarr");
    let mut server = must(Cluster::on_host(binary, &wire, 0));
    let mut agent = must(Cluster::on_host(binary, &wire, 1));
    for cluster in [&mut server, &mut agent] {
        must(cluster.import_busybox(BUSYBOX));
    }
    let (first, second) = (lan::ip(0).to_string(), lan::ip(1).to_string());
    must(server.knarr(&["up", "--node-ip", &first, "--node-name", "host-0"]));
    let url = format!("https://{first}:6443");
    let told = must(server.knarr(&["token", "create", "--description", "for host 1"]));
    let (token, how) = told.split_once('\n').unwrap();
    assert!(how.contains(&format!("KNARR_TOKEN={token} knarr agent --server {url}")), "{how}");
    let id = token.rsplit_once("::").unwrap().1.split('.').next().unwrap();
    let listed = must(server.knarr(&["token", "list"]));
    assert!(listed.contains(id) && listed.contains("for host 1"), "{listed}");

    let join = ["agent", "--server", &url, "--node-ip", &second, "--node-name", "host-1", "--token"];
    bad_tokens_are_refused(&mut server, &agent, &join, token);

    let folder = agent.data_dir().display().to_string();
    let run = |agent: &Cluster, name: &str, more: &[&str]| {
        must(agent.start(name, &[&join[..7], &["--data-dir", &folder], more].concat()))
    };
    let node = run(&agent, "agent", &["--token", token]);
    let session = must(Session::new(&server, KUBECTLS[1], "joined"));
    must(session.run("joined.txt", include_str!("sessions/joined.txt")));

    // Both ways, by address and through the Service, whichever Node the endpoint is on.
    let address =
        |pod: &str| must(session.must(&format!("kubectl get pod {pod} -o jsonpath='{{.status.podIP}}'")));
    for (from, to) in [("on-0", "on-1"), ("on-1", "on-0")] {
        let command = format!(
            "sh -c 'until wget -q -O - http://{}:8080/; do :; done'",
            address(&format!("hello-{to}"))
        );
        assert!(inside(&session, &format!("busybox-{from}"), &command).contains(&format!("hello-{to}")));
        let both = "sh -c 'for n in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do \
                    wget -q -O - http://hello.joined.svc.cluster.local/; done; true'";
        // A Node hears of endpoints when it does.
        let begun = Instant::now();
        loop {
            let answers = inside(&session, &format!("busybox-{from}"), both);
            if answers.contains("hello-on-0") && answers.contains("hello-on-1") {
                break;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "{answers}");
        }
    }
    let before = must(wire.routes(0));
    assert!(before.iter().any(|route| route.gateway == Some(lan::ip(1).into())), "{before:?}");

    // It starts again without a token, and its Pods have gone on.
    must(node.stop());
    let node = run(&agent, "agent", &[]);
    // Its Node has been Ready all along: that it was away was not noticed yet.
    wait_for(&session, "kubectl exec busybox-on-1 -- echo here", "here");
    must(session.must("kubectl delete pods --all --timeout=60s"));
    drop(session);
    must(node.stop());
    must(server.knarr(&["token", "delete", id]));
    must(agent.remove());
    must(server.remove());
    let left = must(wire.routes(0));
    assert!(left.iter().all(|route| route.gateway.is_none()), "routes go with the cluster: {left:?}");
}

/// What `knarr` prints, whether it fails or not.
fn said(cluster: &Cluster, arguments: &[&str]) -> String {
    let mut command = cluster.command(env!("CARGO_BIN_EXE_knarr"));
    let output = command.args(arguments).env_remove("KUBECONFIG").output().unwrap();
    testkit::cluster::text(&output)
}

#[test]
fn a_node_that_cannot_route_to_the_others_pods_says_so_until_it_can() {
    let wire = must(Lan::new(2));
    must(wire.move_away(1));
    let binary = env!("CARGO_BIN_EXE_knarr");
    let mut server = must(Cluster::on_host(binary, &wire, 0));
    let agent = must(Cluster::on_host(binary, &wire, 1));
    let (near, far) = (lan::ip(0).to_string(), lan::far_ip(1).to_string());
    must(server.knarr(&["up", "--node-ip", &near, "--node-name", "host-0"]));
    let told = must(server.knarr(&["token", "create"]));
    let (token, _) = told.split_once('\n').unwrap();
    let (url, folder) = (format!("https://{near}:6443"), agent.data_dir().display().to_string());
    let join = ["agent", "--server", &url, "--token", token, "--node-ip", &far, "--node-name", "host-1"];
    let node = must(agent.start("agent", &[&join[..], &["--data-dir", &folder]].concat()));
    let session = must(Session::new(&server, KUBECTLS[1], "away"));
    must(session.run("no_route.txt", include_str!("sessions/no_route.txt")));

    let of_server = server.data_dir().display().to_string();
    let status = said(&server, &["status", "--data-dir", &of_server]);
    assert!(
        status.contains(&format!("2 ready   host-1 {far} (NetworkUnavailable), host-0 {near}")),
        "{status}"
    );
    let doctor = said(&agent, &["doctor", "--data-dir", &folder]);
    assert!(doctor.contains(&format!("no route to the Pods of the nodes at {near}")), "{doctor}");

    // What is tried again and again is told once.
    let count = |log: &str| log.lines().filter(|line| line.contains("no route to the Pods")).count();
    assert_eq!(count(&node.log()), 1, "{}", node.log());
    must(wire.add_address(0, lan::far_ip(0)));
    must(wire.add_address(1, lan::ip(1)));
    must(session.run("route_again.txt", include_str!("sessions/route_again.txt")));
    assert_eq!(count(&node.log()), 1, "{}", node.log());
    let doctor = said(&agent, &["doctor", "--data-dir", &folder]);
    assert!(doctor.contains("to 1 other nodes"), "{doctor}");
    drop(session);
    must(node.stop());
    must(agent.remove());
    must(server.remove());
}
