//! Three Nodes of one cluster under all faults at once, by a seed: processes are killed, Nodes are cut off and come back,
//! links go down, rules and routes are flushed, while Pods, Services and NetworkPolicies come, change and go. When that is
//! over every connection that policies allow works and every other does not, and nothing is left of what went.

mod net;
mod policies;

use std::time::{Duration, Instant};

use base::Random;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use testkit::clients::KUBECTLS;
use testkit::{Cluster, Session};

use crate::{BUSYBOX, must};
use net::{NODES, Nodes};
use policies::{APPS, Policies};

/// A seed that always runs.
const SEED: u64 = 20_260_101;
const NAMESPACE: &str = "faults";
const FAULTS: usize = 24;
const PAUSE_MILLIS_MAX: u64 = 400;
/// How long a Node is cut off at most between other faults.
const CUT_MILLIS_MAX: u64 = 3000;
/// How long connections may take to be as policies say.
const JUDGED_MAX: Duration = Duration::from_secs(30);
/// As short as kubelets' signs of life allow, which come every ten seconds.
const FLAGS: [&str; 4] = ["--nodes", "3", "--kube-controller-manager-arg", "node-monitor-grace-period=15s"];
/// All Nodes are Ready, all Pods are, and none is on its way out.
const SETTLED: &str = "kubectl wait --for=condition=Ready nodes --all --timeout=60s >/dev/null && \
     for app in a b c; do kubectl rollout status deployment/$app --timeout=60s >/dev/null || exit 1; done && \
     eventually '[ $(kubectl get pods -l app -o name | wc -l) = 9 ]'";

/// What happens to a cluster.
struct Torture<'a> {
    session: &'a Session<'a>,
    cluster: &'a Cluster,
    nodes: &'a Nodes,
    random: Random,
    policies: Policies,
}

impl Torture<'_> {
    fn below(&self, below: usize) -> usize {
        usize::try_from(self.random.below(below as u64)).unwrap()
    }

    /// Something that goes wrong, or somebody who changes something. Returns what.
    fn fault(&mut self) -> String {
        let node = self.below(NODES);
        match self.below(12) {
            0 => self.kill("knarr node"),
            1 => self.kill("knarr control-plane"),
            2 => {
                self.nodes.flush_rules(node);
                format!("the rules of Node {node} are flushed")
            }
            3 => {
                self.nodes.flush_routes(node);
                format!("the routes of Node {node} are flushed")
            }
            4 => {
                self.nodes.flap(node);
                format!("the link of Node {node} goes down and up")
            }
            5 => {
                let millis = self.random.below(CUT_MILLIS_MAX);
                let cut = self.nodes.cut(node);
                // The fault is the time; nothing is waited for.
                std::thread::sleep(Duration::from_millis(millis));
                self.nodes.rejoin(cut);
                format!("Node {node} is cut off for {millis} ms")
            }
            6..9 => self.change_policies(),
            number => self.change_workload(number),
        }
    }

    fn change_policies(&mut self) -> String {
        let (what, command) = self.policies.change(&self.random);
        self.user(&command);
        what
    }

    fn change_workload(&self, number: usize) -> String {
        let app = APPS[self.below(APPS.len())];
        match number {
            9 => {
                self.user(&format!("kubectl delete pods -l app={app} --wait=false"));
                format!("the Pods of {app} are deleted")
            }
            10 => {
                self.user(&format!("kubectl delete service {app} --ignore-not-found"));
                self.user(&format!(
                    "kubectl get service {app} || kubectl expose deployment {app} --port=80 --target-port=8080"
                ));
                format!("the Service of {app} is another")
            }
            _ => {
                self.user(&format!("kubectl scale deployment {app} --replicas=1"));
                self.user(&format!("kubectl scale deployment {app} --replicas=3"));
                format!("the Deployment of {app} shrinks and grows")
            }
        }
    }

    /// What somebody does who tries again while the server is away.
    fn user(&self, command: &str) {
        must(self.session.must(&format!("eventually '{{ {command}; }} >/dev/null'")));
    }

    fn kill(&self, part: &str) -> String {
        let all = self.cluster.processes(part);
        if all.is_empty() {
            return format!("no {part} runs");
        }
        let pid = all[self.below(all.len())];
        // One that has ended by itself is as good.
        assert!(matches!(kill(Pid::from_raw(pid), Signal::SIGKILL), Ok(()) | Err(nix::Error::ESRCH)));
        format!("{part} is killed")
    }

    /// Whether who may reach whom is as policies say.
    fn judge(&self, when: &str) {
        let begun = Instant::now();
        loop {
            let wrong = self.policies.wrong(self.session);
            if wrong.is_empty() {
                return eprintln!(
                    "faults: {when}: connections are as policies say, {:.1?} after it",
                    begun.elapsed()
                );
            }
            assert!(begun.elapsed() < JUDGED_MAX, "{when}, with {}: {wrong:#?}", self.policies.describe());
        }
    }

    /// As long as it takes to be given up: a Node's Pods run elsewhere then, and are ended when it comes back, with another
    /// process, to policies that have changed meanwhile.
    fn absence(&mut self) {
        let begun = Instant::now();
        let cut = self.nodes.cut(NODES - 1);
        let on_node = "kubectl get pods --field-selector spec.nodeName=test-3 -l app -o 'jsonpath={.items[*].metadata.name}'";
        let before = must(self.session.must(on_node));
        assert!(!before.trim().is_empty(), "Pods run there");
        must(self.session.must("kubectl wait --for=condition=Ready=Unknown node/test-3 --timeout=60s"));
        eprintln!("faults: the Node is given up after {:.1?}", begun.elapsed());
        for app in APPS {
            must(self.session.must(&format!(
                "eventually '[ $(kubectl get endpointslices -l kubernetes.io/service-name={app} -o \
                 jsonpath=\"{{.items[*].endpoints[?(@.conditions.ready==true)].nodeName}}\" | grep -c test-3) = 0 ]'"
            )));
        }
        eprintln!("faults: its Pods are no endpoints any more after {:.1?}", begun.elapsed());
        for _ in 0..3 {
            eprintln!("faults: meanwhile {}", self.change_policies());
        }
        self.kill("knarr node");
        self.nodes.rejoin(cut);
        let begun = Instant::now();
        must(self.session.must("kubectl wait --for=condition=Ready node/test-3 --timeout=60s"));
        let former = before.trim().replace(' ', "|");
        must(self.session.must(&format!("eventually '! kubectl get pods -o name | grep -E \"{former}\"'")));
        eprintln!("faults: the Node is back, and its Pods of before are gone, after {:.1?}", begun.elapsed());
    }

    /// Everything is taken from everybody at once, comes again, and is told.
    fn flush(&self) {
        (0..NODES).for_each(|node| self.nodes.flush_rules(node));
        (0..NODES).for_each(|node| self.nodes.flush_routes(node));
        self.judge("after a flush of everything");
        for told in ["FlushedRules .*of Services", "FlushedRules .*of the Pod network", "FlushedRoutes "] {
            must(self.session.must(&format!(
                "eventually 'kubectl get events -A --no-headers -o custom-columns=R:.reason,M:.message | grep -q \"{told}\"'"
            )));
        }
    }
}

fn survives(seed: u64) {
    eprintln!("faults: seed {seed}");
    let mut cluster = must(Cluster::new(env!("CARGO_BIN_EXE_knarr")));
    must(cluster.up_with(&FLAGS));
    must(cluster.import_busybox(BUSYBOX));
    let nodes = Nodes::of(&cluster);
    let session = must(Session::new(&cluster, KUBECTLS[1], NAMESPACE));
    must(session.must(include_str!("faults/workload.sh")));
    must(session.must(SETTLED));
    drop(session);
    let (before, machine) = (nodes.inventory(), must(cluster.inventory(&net::IGNORED)));

    let session = must(Session::new(&cluster, KUBECTLS[1], NAMESPACE));
    let (random, policies) = (Random::seeded(seed), Policies::default());
    let mut torture = Torture { session: &session, cluster: &cluster, nodes: &nodes, random, policies };
    torture.judge("at first");
    let begun = Instant::now();
    for _ in 0..FAULTS {
        eprintln!("faults: {:.1?}: {}", begun.elapsed(), torture.fault());
        std::thread::sleep(Duration::from_millis(torture.random.below(PAUSE_MILLIS_MAX)));
    }
    must(session.must(SETTLED));
    torture.judge("after the faults");
    torture.absence();
    must(session.must(SETTLED));
    torture.judge("after the absence");
    torture.flush();
    must(session.must("kubectl delete networkpolicies --all >/dev/null"));
    torture.policies = Policies::default();
    torture.judge("without policies");
    drop(session);

    nodes.have_no_more_than(&before);
    net::has_no_more_than(&mut cluster, &machine);
    must(cluster.remove());
}

#[test]
fn three_nodes_heal_from_whatever_happens_to_them() {
    torture::seeds(&[SEED], 0).into_iter().for_each(survives);
}
