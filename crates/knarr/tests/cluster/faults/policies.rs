//! Which policies there are, and what they say about who reaches whom: the same sentence twice, once for Kubernetes and once
//! for who looks whether it holds.

use std::collections::BTreeSet;
use std::fmt::Write;

use base::Random;
use testkit::Session;

use crate::must;

/// The applications.
pub(super) const APPS: [&str; 3] = ["a", "b", "c"];

/// "Pods of this application are reached by (or reach) Pods of that one, or of none."
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Policy {
    is_ingress: bool,
    subject: usize,
    peer: Option<usize>,
}

/// Those that there are.
#[derive(Debug, Default)]
pub(super) struct Policies(BTreeSet<Policy>);

impl Policy {
    fn name(self) -> String {
        let direction = if self.is_ingress { "ingress" } else { "egress" };
        format!("{direction}-{}-{}", APPS[self.subject], self.peer.map_or("nobody", |peer| APPS[peer]))
    }

    fn object(self) -> String {
        let (list, ends, kind) =
            if self.is_ingress { ("ingress", "from", "Ingress") } else { ("egress", "to", "Egress") };
        let peer = self
            .peer
            .map(|peer| format!("{{{ends}: [{{podSelector: {{matchLabels: {{app: {}}}}}}}]}}", APPS[peer]));
        format!(
            "{{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {{name: {}}}, spec: {{podSelector: \
             {{matchLabels: {{app: {}}}}}, policyTypes: [{kind}], {list}: [{}]}}}}",
            self.name(),
            APPS[self.subject],
            peer.unwrap_or_default()
        )
    }
}

impl Policies {
    /// One more, or one less. Returns what changes, and the command that does it.
    pub(super) fn change(&mut self, random: &Random) -> (String, String) {
        let of = |below: usize| usize::try_from(random.below(below as u64)).unwrap();
        if !self.0.is_empty() && of(2) == 0 {
            let gone = *self.0.iter().nth(of(self.0.len())).unwrap();
            self.0.remove(&gone);
            let name = gone.name();
            let command = format!("kubectl delete networkpolicy {name} --ignore-not-found");
            return (format!("policy {name} goes"), command);
        }
        let (is_ingress, subject, peer) = (of(2) == 0, of(APPS.len()), of(APPS.len() + 1));
        let made = Policy { is_ingress, subject, peer: (peer < APPS.len()).then_some(peer) };
        self.0.insert(made);
        let command = format!("echo \"{}\" | kubectl apply -f -", made.object());
        (format!("policy {} comes", made.name()), command)
    }

    pub(super) fn describe(&self) -> String {
        self.0.iter().map(|policy| policy.name()).collect::<Vec<_>>().join(", ")
    }

    /// Source: `NetworkPolicySpec`: whoever no policy of a direction selects is open in it.
    fn allows(&self, from: usize, to: usize) -> bool {
        let direction = |is_ingress: bool, subject: usize, peer: usize| {
            let is_own = |policy: &&Policy| policy.is_ingress == is_ingress && policy.subject == subject;
            let mut own = self.0.iter().filter(is_own).peekable();
            own.peek().is_none() || own.any(|policy| policy.peer == Some(peer))
        };
        direction(true, to, from) && direction(false, from, to)
    }

    /// Connections that are not as they should be: from each Pod to each other one, and to the Services of other
    /// applications.
    pub(super) fn wrong(&self, session: &Session<'_>) -> Vec<String> {
        let pods = must(session.must(
            "kubectl get pods -l app -o \
             'jsonpath={range .items[*]}{.metadata.labels.app} {.metadata.name} {.status.podIP} {end}'",
        ));
        let services = must(session.must(
            "kubectl get services -o 'jsonpath={range .items[*]}{.metadata.name} {.spec.clusterIP} {end}'",
        ));
        let number = |app: &str| APPS.iter().position(|known| *known == app).unwrap();
        let words: Vec<&str> = pods.split_whitespace().collect();
        let pods: Vec<_> = words.chunks(3).map(|pod| (number(pod[0]), pod[1], pod[2])).collect();
        let words: Vec<&str> = services.split_whitespace().collect();
        let services: Vec<_> = words.chunks(2).map(|service| (number(service[0]), service[1])).collect();
        let mut expected = BTreeSet::new();
        let mut ask = String::new();
        for (app, name, ip) in &pods {
            let others = pods.iter().filter(|(.., other)| other != ip);
            let mut targets: Vec<(String, bool)> =
                others.map(|(to, _, other)| (format!("{other}:8080"), self.allows(*app, *to))).collect();
            // A Pod that reaches its own Service may reach itself.
            let others = services.iter().filter(|(to, _)| to != app);
            targets.extend(others.map(|(to, ip)| ((*ip).to_owned(), self.allows(*app, *to))));
            let names: Vec<&str> = targets.iter().map(|(target, _)| target.as_str()).collect();
            // All at once: who is not reached takes all its time.
            write!(
                ask,
                "kubectl exec {name} -- sh -c 'for to in {}; do (timeout 2 wget -q -O - http://$to/ >/dev/null 2>&1 && \
                 echo {name} $to yes || echo {name} $to no) & done; wait' & ",
                names.join(" ")
            )
            .unwrap();
            let line = |(to, may): (String, bool)| format!("{name} {to} {}", if may { "yes" } else { "no" });
            expected.extend(targets.into_iter().map(line));
        }
        let told = must(session.must(&(ask + "wait; true")));
        let told: BTreeSet<String> = told.lines().map(|line| line.trim().to_owned()).collect();
        expected.difference(&told).cloned().collect()
    }
}
