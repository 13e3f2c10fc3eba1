//! The Pods that must go so that a more important one finds room: DefaultPreemption, as pure functions.
//!
//! A victim has less priority than the Pod that wants room. On each Node as few go as possible, those that a
//! PodDisruptionBudget protects last; of the Nodes the one whose loss is smallest is chosen. The snapshot is changed
//! while thinking and is afterwards as it was.
//! Source: `plugins/defaultpreemption`, `framework/preemption` of kube-scheduler.

use std::cmp::Reverse;
use std::sync::Arc;

use controller::pod::Pod;
use controller::selector;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;

use crate::arguments::Candidates;
use crate::node_info::{NodeInfo, Snapshot};
use crate::plugins::{Candidate, Remedy};
use crate::pod::uid;
use crate::profile::Point;

/// The reason in a victim's condition. Source: `PodReasonPreemptionByScheduler`, core/v1.
pub const REASON: &str = "PreemptionByScheduler";
const NOT_HELPFUL: &str = "Preemption is not helpful for scheduling";
const NO_VICTIMS: &str = "No preemption victims found for incoming pod";

/// A Node that the Pod fits on if these victims go. Source: `Candidate` of `framework/preemption`.
#[derive(Clone, Debug)]
pub struct PreemptionCandidate {
    /// The Node.
    pub node: String,
    /// The victims, most important first.
    pub victims: Vec<Arc<Pod>>,
    /// How many of them a budget would have protected.
    pub(crate) violations: usize,
}

/// The answer for one Pod that fits nowhere.
#[derive(Clone, Debug)]
pub enum Preemption {
    /// Nobody is to go for Pods of this profile.
    NotAsked,
    /// These Pods go.
    Possible(PreemptionCandidate),
    /// Nobody's going helps; per Node why, as users read it.
    Useless(Vec<String>),
    /// The Pod may not ask for it, or has already.
    NotEligible(&'static str),
}

/// The priority of a Pod; 0 if it says none.
pub fn priority(pod: &Pod) -> i32 {
    pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0)
}

/// The Node that a Pod waits for while others leave it.
pub fn nominated(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.nominated_node_name.as_deref().filter(|name| !name.is_empty())
}

/// Looks for a Node that takes `pod` if others go; none takes it as things are. `chance` (any number) says at which Node the
/// search begins.
pub fn preempt(
    pod: &Pod,
    snapshot: &mut Snapshot,
    budgets: &[Arc<PodDisruptionBudget>],
    chance: u64,
) -> Preemption {
    match candidates(pod, snapshot, budgets, chance) {
        Ok((candidates, reasons)) => choose(candidates, reasons),
        Err(preemption) => preemption,
    }
}

/// The candidate whose loss is smallest; `reasons` if there is none.
pub(crate) fn choose(candidates: Vec<PreemptionCandidate>, reasons: Vec<String>) -> Preemption {
    candidates.into_iter().min_by_key(loss).map_or(Preemption::Useless(reasons), Preemption::Possible)
}

/// The candidates to choose from, and what is said of the other Nodes.
///
/// # Errors
/// None is looked for.
pub(crate) fn candidates(
    pod: &Pod,
    snapshot: &mut Snapshot,
    budgets: &[Arc<PodDisruptionBudget>],
    chance: u64,
) -> Result<(Vec<PreemptionCandidate>, Vec<String>), Preemption> {
    let profile = snapshot.profiles.of(pod).clone();
    if !profile.asks("DefaultPreemption", Point::PostFilter) {
        return Err(Preemption::NotAsked);
    }
    if pod.spec.as_ref().and_then(|spec| spec.preemption_policy.as_deref()) == Some("Never") {
        return Err(Preemption::NotEligible("not eligible due to preemptionPolicy=Never."));
    }
    let (nodes, mut reasons) = helpful(pod, snapshot);
    if is_preemption_running(pod, snapshot, &nodes) {
        let why = "not eligible due to a terminating pod on the nominated node.";
        return Err(Preemption::NotEligible(why));
    }
    let mut search = Search::new(nodes.len(), &profile.arguments.preemption);
    let first = usize::try_from(chance % u64::try_from(nodes.len().max(1)).unwrap_or(1)).unwrap_or(0);
    let nodes = nodes.iter().cycle().skip(first).take(nodes.len());
    let is_alone = !Candidate::new(pod, None, snapshot).asked().any(|plugin| FAR_SIGHTED.contains(&plugin));
    if is_alone {
        let candidate = Candidate::new(pod, None, snapshot);
        for node in nodes.filter_map(|node| snapshot.node(name(node))) {
            let dry_run = NodeDryRun { candidate: &candidate, node: node.clone(), snapshot };
            search.take(victims_on(pod, dry_run, budgets), &mut reasons);
            if search.is_over() {
                break;
            }
        }
    } else {
        for node in nodes {
            let dry_run = ClusterDryRun { pod, node: name(node), snapshot: &mut *snapshot };
            search.take(victims_on(pod, dry_run, budgets), &mut reasons);
            if search.is_over() {
                break;
            }
        }
    }
    Ok((search.candidates, reasons))
}

/// Filters that look at the Pods of other Nodes too; without them a Node can be judged alone.
const FAR_SIGHTED: [&str; 3] = ["InterPodAffinity", "PodTopologySpread", "VolumeRestrictions"];

/// The candidates that were found so far.
struct Search {
    candidates: Vec<PreemptionCandidate>,
    enough: usize,
}

impl Search {
    /// Among so many Nodes. Source: `GetOffsetAndNumCandidates`.
    fn new(nodes: usize, Candidates { percentage, absolute }: &Candidates) -> Self {
        Self { candidates: Vec::new(), enough: (nodes * percentage / 100).max(*absolute) }
    }

    fn take(&mut self, found: Result<PreemptionCandidate, Vec<String>>, reasons: &mut Vec<String>) {
        match found {
            Ok(candidate) => self.candidates.push(candidate),
            Err(why) => reasons.extend(why),
        }
    }

    fn is_over(&self) -> bool {
        self.candidates.len() >= self.enough
            && self.candidates.iter().any(|candidate| candidate.violations == 0)
    }
}

/// The Nodes that the Pod could have if others went, and what is said of the rest.
fn helpful(pod: &Pod, snapshot: &Snapshot) -> (Vec<Arc<Node>>, Vec<String>) {
    let candidate = Candidate::new(pod, None, snapshot);
    let (mut nodes, mut reasons) = (Vec::new(), Vec::new());
    for node in snapshot.nodes() {
        match candidate.refusal(node) {
            Some(refusal) if refusal.remedy != Remedy::Preemption => reasons.push(NOT_HELPFUL.to_owned()),
            _ => nodes.push(node.node.clone()),
        }
    }
    (nodes, reasons)
}

fn name(node: &Node) -> &str {
    node.metadata.name.as_deref().unwrap_or_default()
}

/// Whether victims of this Pod are still on their way out of its nominated Node.
fn is_preemption_running(pod: &Pod, snapshot: &Snapshot, helpful: &[Arc<Node>]) -> bool {
    let Some(node) = nominated(pod).filter(|node| helpful.iter().any(|other| name(other) == *node)) else {
        return false;
    };
    let is_victim = |other: &Arc<Pod>| {
        let conditions = other.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let target = conditions.into_iter().find(|condition| condition.type_ == "DisruptionTarget");
        other.metadata.deletion_timestamp.is_some()
            && priority(other) < priority(pod)
            && target
                .is_some_and(|target| target.status == "True" && target.reason.as_deref() == Some(REASON))
    };
    snapshot.node(node).is_some_and(|node| node.pods().any(is_victim))
}

/// A Node on which it is tried out who must go. Source: `DryRunPreemption`.
trait DryRun {
    /// Which Node it is.
    fn node(&self) -> &str;
    /// Who is there.
    fn pods(&self) -> Vec<Arc<Pod>>;
    /// Takes a Pod away.
    fn remove_pod(&mut self, pod: &Arc<Pod>);
    /// Puts it back.
    fn add_pod(&mut self, pod: &Arc<Pod>);
    /// Why the Node cannot take the new Pod as things are.
    fn refusal(&self) -> Option<Vec<String>>;
}

/// A copy of one Node, judged by what is known of all others.
struct NodeDryRun<'a> {
    candidate: &'a Candidate<'a>,
    node: NodeInfo,
    snapshot: &'a Snapshot,
}

impl DryRun for NodeDryRun<'_> {
    fn node(&self) -> &str {
        self.node.name()
    }

    fn pods(&self) -> Vec<Arc<Pod>> {
        self.node.pods().cloned().collect()
    }

    fn remove_pod(&mut self, pod: &Arc<Pod>) {
        if let Some(need) = self.snapshot.need(uid(pod)) {
            self.node.remove(uid(pod), need);
        }
    }

    fn add_pod(&mut self, pod: &Arc<Pod>) {
        if let Some(need) = self.snapshot.need(uid(pod)) {
            self.node.add(pod, need);
        }
    }

    fn refusal(&self) -> Option<Vec<String>> {
        self.candidate.refusal(&self.node).map(|refusal| refusal.reasons)
    }
}

/// A Node among all others, which are summed up anew after each step.
struct ClusterDryRun<'a> {
    pod: &'a Pod,
    node: &'a str,
    snapshot: &'a mut Snapshot,
}

impl DryRun for ClusterDryRun<'_> {
    fn node(&self) -> &str {
        self.node
    }

    fn pods(&self) -> Vec<Arc<Pod>> {
        self.snapshot.node(self.node).map(|node| node.pods().cloned().collect()).unwrap_or_default()
    }

    fn remove_pod(&mut self, pod: &Arc<Pod>) {
        self.snapshot.remove(uid(pod));
    }

    fn add_pod(&mut self, pod: &Arc<Pod>) {
        self.snapshot.place(pod, self.node);
    }

    fn refusal(&self) -> Option<Vec<String>> {
        let candidate = Candidate::new(self.pod, None, self.snapshot);
        candidate.refusal(self.snapshot.node(self.node)?).map(|refusal| refusal.reasons)
    }
}

/// Who must go, or why that would not help. Everyone is back afterwards.
fn victims_on(
    pod: &Pod,
    mut dry_run: impl DryRun,
    budgets: &[Arc<PodDisruptionBudget>],
) -> Result<PreemptionCandidate, Vec<String>> {
    let mut lesser = dry_run.pods();
    lesser.retain(|other| priority(other) < priority(pod));
    if lesser.is_empty() {
        return Err(vec![NO_VICTIMS.to_owned()]);
    }
    lesser.sort_by_key(|other| importance(other));
    lesser.iter().for_each(|other| dry_run.remove_pod(other));
    if let Some(why) = dry_run.refusal() {
        lesser.iter().for_each(|other| dry_run.add_pod(other));
        return Err(why);
    }
    let (protected, free) = by_budgets(&lesser, budgets);
    let mut victims = reprieve(&mut dry_run, &protected);
    let violations = victims.len();
    victims.extend(reprieve(&mut dry_run, &free));
    victims.iter().for_each(|other| dry_run.add_pod(other));
    victims.sort_by_key(|other| importance(other));
    Ok(PreemptionCandidate { node: dry_run.node().to_owned(), victims, violations })
}

/// Lets everyone stay who can, in order; gives those who cannot.
fn reprieve(dry_run: &mut impl DryRun, candidates: &[Arc<Pod>]) -> Vec<Arc<Pod>> {
    let mut victims = Vec::new();
    for other in candidates {
        dry_run.add_pod(other);
        if dry_run.refusal().is_some() {
            dry_run.remove_pod(other);
            victims.push(other.clone());
        }
    }
    victims
}

/// Sorts the most important Pod first: by priority, then by how long it runs.
fn importance(pod: &Pod) -> (Reverse<i32>, Timestamp) {
    (Reverse(priority(pod)), started(pod))
}

fn started(pod: &Pod) -> Timestamp {
    let time = pod.status.as_ref().and_then(|status| status.start_time.as_ref());
    time.map_or(Timestamp::MAX, |time| time.0)
}

/// Those whose going would break a budget, and the others; in the order in which they came.
fn by_budgets(pods: &[Arc<Pod>], budgets: &[Arc<PodDisruptionBudget>]) -> (Vec<Arc<Pod>>, Vec<Arc<Pod>>) {
    let mut allowed: Vec<i32> = budgets
        .iter()
        .map(|budget| budget.status.as_ref().map_or(0, |status| status.disruptions_allowed))
        .collect();
    pods.iter().cloned().partition(|pod| {
        let mut is_protected = false;
        for (budget, allowed) in budgets.iter().zip(&mut allowed) {
            if protects(budget, pod) {
                *allowed -= 1;
                is_protected |= *allowed < 0;
            }
        }
        is_protected
    })
}

/// Whether a budget counts the Pod's going; one that was evicted already is counted.
fn protects(budget: &PodDisruptionBudget, pod: &Pod) -> bool {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let gone = budget.status.as_ref().and_then(|status| status.disrupted_pods.as_ref());
    let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    budget.metadata.namespace == pod.metadata.namespace
        && pod.metadata.labels.as_ref().is_some_and(|labels| !labels.is_empty())
        && selector.is_some_and(|wanted| {
            !selector::is_empty(wanted) && selector::selects(wanted, pod.metadata.labels.as_ref())
        })
        && gone.is_none_or(|gone| !gone.contains_key(name))
}

/// What a Node's choice costs; the least is chosen: broken budgets, the highest priority that is hit, the sum of
/// priorities, the number of victims, and how long the most important ones have been running.
fn loss(candidate: &PreemptionCandidate) -> (usize, i32, i64, usize, Reverse<Timestamp>) {
    let priorities = || candidate.victims.iter().map(|pod| priority(pod));
    let highest = priorities().max().unwrap_or(i32::MIN);
    // Every victim counts, those of negative priority too.
    let sum = priorities().map(|priority| i64::from(priority) + i64::from(i32::MAX) + 1).sum();
    let most_important = candidate.victims.iter().filter(|pod| priority(pod) == highest);
    let earliest = most_important.map(|pod| started(pod)).min().unwrap_or(Timestamp::MAX);
    (candidate.violations, highest, sum, candidate.victims.len(), Reverse(earliest))
}

#[cfg(test)]
mod upstream;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transform::parse;
    use expect_test::{Expect, expect};

    /// A Pod of `cpu` and `priority`; `more` joins its status.
    fn pod(name: &str, cpu: i32, priority: i32, more: &str) -> Pod {
        parse(&format!(
            "{{metadata: {{name: {name}, namespace: d, uid: {name}, labels: {{app: {name}}}}}, \
             spec: {{priority: {priority}, containers: [{{name: c, resources: {{requests: {{cpu: '{cpu}'}}}}}}]}}, \
             status: {{{more}}}}}"
        ))
    }

    fn nodes(names: &[&str]) -> Snapshot {
        let mut snapshot = Snapshot::default();
        for name in names {
            let node =
                format!("{{metadata: {{name: {name}}}, status: {{allocatable: {{cpu: '4', pods: 9}}}}}}");
            snapshot.set_node(Arc::new(parse::<Node>(&node)));
        }
        snapshot
    }

    /// `placed`: node, name, CPUs, priority, status. The Pod that wants room has priority 10 and wants `cpu`.
    fn check(cpu: i32, placed: &[(&str, &str, i32, i32, &str)], budgets: &[&str], expected: Expect) {
        let mut snapshot = nodes(&["a", "b"]);
        for (node, name, cpu, priority, status) in placed {
            snapshot.place(&Arc::new(pod(name, *cpu, *priority, status)), node);
        }
        let used = |snapshot: &Snapshot| -> Vec<_> {
            snapshot.nodes().map(|node| (node.requested.clone(), node.pods().len())).collect()
        };
        let before = used(&snapshot);
        let budgets: Vec<_> = budgets.iter().map(|budget| Arc::new(parse(budget))).collect();
        let text = match preempt(&pod("vip", cpu, 10, ""), &mut snapshot, &budgets, 0) {
            Preemption::Possible(candidate) => {
                let names: Vec<_> =
                    candidate.victims.iter().flat_map(|pod| pod.metadata.name.clone()).collect();
                format!("{}: {}", candidate.node, names.join(" "))
            }
            Preemption::Useless(reasons) => reasons.join(", "),
            Preemption::NotEligible(why) => why.to_owned(),
            Preemption::NotAsked => "not asked".to_owned(),
        };
        assert_eq!(used(&snapshot), before, "the snapshot is as it was");
        expected.assert_eq(&text);
    }

    #[test]
    fn as_few_go_as_possible_and_the_least_important_first() {
        let placed = [
            ("a", "low", 1, 1, ""),
            ("a", "mid", 2, 5, ""),
            ("a", "less", 1, 0, ""),
            ("b", "peer", 4, 10, ""),
        ];
        check(1, &placed, &[], expect!["a: less"]);
        check(2, &placed, &[], expect!["a: low less"]);
        check(3, &placed, &[], expect!["a: mid less"]);
    }

    #[test]
    fn the_node_whose_loss_is_smallest_is_chosen() {
        check(4, &[("a", "x", 4, 5, ""), ("b", "y", 4, 4, "")], &[], expect!["b: y"]);
        check(4, &[("a", "x", 2, 5, ""), ("a", "z", 2, 5, ""), ("b", "y", 4, 5, "")], &[], expect!["b: y"]);
        check(
            4,
            &[
                ("a", "x", 4, 5, "startTime: '2026-01-01T00:00:00Z'"),
                ("b", "y", 4, 5, "startTime: '2026-01-02T00:00:00Z'"),
            ],
            &[],
            expect!["b: y"],
        );
    }

    #[test]
    fn budgets_are_broken_only_if_nothing_else_helps() {
        let budget = |app: &str| {
            format!(
                "{{metadata: {{name: b, namespace: d}}, spec: {{selector: {{matchLabels: {{app: {app}}}}}}}, status: {{disruptionsAllowed: 0, currentHealthy: 1, desiredHealthy: 1, expectedPods: 1}}}}"
            )
        };
        let two = [("a", "x", 4, 1, ""), ("b", "y", 4, 5, "")];
        check(4, &two, &[&budget("x")], expect!["b: y"]);
        check(4, &two[..1], &[&budget("x")], expect!["a: x"]);
        let same = [("a", "x", 2, 5, ""), ("a", "w", 2, 1, ""), ("b", "peer", 4, 10, "")];
        check(2, &same, &[&budget("w")], expect!["a: x"]);
    }

    #[test]
    fn who_cannot_be_helped_is_told_why() {
        check(
            4,
            &[("a", "peer", 1, 10, ""), ("a", "low", 3, 1, ""), ("b", "other", 4, 10, "")],
            &[],
            expect!["Insufficient cpu, No preemption victims found for incoming pod"],
        );
        check(
            9,
            &[("a", "low", 3, 1, "")],
            &[],
            expect!["Preemption is not helpful for scheduling, Preemption is not helpful for scheduling"],
        );
    }

    #[test]
    fn nobody_else_goes_while_victims_are_leaving() {
        let mut snapshot = nodes(&["a"]);
        let mut victim = pod(
            "victim",
            4,
            1,
            "conditions: [{type: DisruptionTarget, status: 'True', reason: PreemptionByScheduler}]",
        );
        victim.metadata.deletion_timestamp = Some(parse("'2026-01-01T00:00:00Z'"));
        snapshot.place(&Arc::new(victim), "a");
        let waiting = pod("vip", 4, 10, "nominatedNodeName: a");
        let answer = preempt(&waiting, &mut snapshot, &[], 0);
        assert!(matches!(answer, Preemption::NotEligible(why) if why.contains("terminating pod")));
        let other = pod("vip", 4, 10, "");
        assert!(matches!(preempt(&other, &mut snapshot, &[], 0), Preemption::Possible(_)));
    }
}
