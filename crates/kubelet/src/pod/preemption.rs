//! Which Pods go so that a critical one can be taken. Pure.
//!
//! As few as possible, of the lowest class of service, whose requests come nearest to what is lacking.
//! Source: `pkg/kubelet/preemption/preemption.go`.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, PodSpec};

use crate::pod::admission;
use crate::pod::identity::{is_critical, priority};
use crate::pod::qos::{QosClass, class_of};

/// Source: `PodStatus.reason`, and the event's.
pub(crate) const REASON: &str = "Preempting";
/// Source: `PodStatus.message`, and the event's.
pub(crate) const MESSAGE: &str = "Preempted in order to admit critical pod";

/// By resource, in the units of [`admission::Room`].
type Amounts = BTreeMap<String, i64>;

/// What all that may go together have too little of; in upstream's words.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("no set of running pods found to reclaim resources: [{}]", listed(.0))]
pub(crate) struct NotEnough(Amounts);

fn listed(missing: &Amounts) -> String {
    missing.iter().map(|(name, amount)| format!("(res: {name}, q: {amount}), ")).collect()
}

/// Who goes for `pod`, which lacks `lacking`.
///
/// # Errors
/// In upstream's words: everybody together has not enough.
pub(crate) fn victims(
    pod: &Pod,
    running: &[Arc<Pod>],
    lacking: &[(String, i64)],
) -> Result<Vec<Arc<Pod>>, NotEnough> {
    let of_class = |class: QosClass| -> Vec<Candidate> {
        let all = running.iter().filter(|other| may_preempt(pod, other)).map(Candidate::of);
        all.filter(|candidate| candidate.class == class).collect()
    };
    let (best_effort, burstable, guaranteed) =
        (of_class(QosClass::BestEffort), of_class(QosClass::Burstable), of_class(QosClass::Guaranteed));
    let lacking: Amounts = lacking.iter().cloned().collect();
    let missing = without(&lacking, best_effort.iter().chain(&burstable).chain(&guaranteed));
    if !missing.is_empty() {
        return Err(NotEnough(missing));
    }
    let guaranteed = nearest(guaranteed, without(&lacking, best_effort.iter().chain(&burstable)));
    let burstable = nearest(burstable, without(&lacking, best_effort.iter().chain(&guaranteed)));
    let best_effort = nearest(best_effort, without(&lacking, burstable.iter().chain(&guaranteed)));
    Ok(best_effort.into_iter().chain(burstable).chain(guaranteed).map(|one| one.pod).collect())
}

/// Whether `other` is to go for `pod`. Source: `kubetypes.Preemptable`.
fn may_preempt(pod: &Pod, other: &Pod) -> bool {
    (is_critical(pod) && !is_critical(other)) || priority(pod) > priority(other)
}

struct Candidate {
    pod: Arc<Pod>,
    class: QosClass,
    requests: Amounts,
}

impl Candidate {
    fn of(pod: &Arc<Pod>) -> Self {
        let empty = PodSpec::default();
        let spec = pod.spec.as_ref().unwrap_or(&empty);
        let mut requests = admission::requests(spec);
        requests.insert("pods".into(), 1);
        Self { class: class_of(spec), requests, pod: pod.clone() }
    }

    fn has(&self, name: &str) -> i64 {
        self.requests.get(name).copied().unwrap_or(0)
    }

    /// How far this Pod alone is from what is lacking; 0 if it has everything.
    fn distance(&self, lacking: &Amounts) -> f64 {
        let part = |(name, amount): (&String, &i64)| {
            // Amounts of resources are exact below 2^53, and more than that would not change the order.
            #[expect(clippy::cast_precision_loss, reason = "compared, never counted with")]
            let missing = (amount - self.has(name)).max(0) as f64 / *amount as f64;
            missing * missing
        };
        lacking.iter().map(part).sum()
    }

    /// The one that has less goes rather. Source: `smallerResourceRequest`.
    fn size(&self, other: &Self) -> Ordering {
        let by = |name: &str| self.has(name).cmp(&other.has(name));
        by("memory").then_with(|| by("cpu"))
    }
}

/// What is still lacking when `gone` are gone.
fn without<'a>(lacking: &Amounts, gone: impl Iterator<Item = &'a Candidate>) -> Amounts {
    let mut left = lacking.clone();
    for one in gone {
        for (name, amount) in &mut left {
            *amount -= one.has(name);
        }
    }
    left.retain(|_, amount| *amount > 0);
    left
}

/// Of the candidates the nearest, one after the other, until nothing is lacking.
fn nearest(mut candidates: Vec<Candidate>, mut lacking: Amounts) -> Vec<Candidate> {
    let mut chosen = Vec::new();
    while !lacking.is_empty() {
        let order = |a: &(usize, &Candidate), b: &(usize, &Candidate)| {
            a.1.distance(&lacking).total_cmp(&b.1.distance(&lacking)).then_with(|| a.1.size(b.1))
        };
        let Some((index, _)) = candidates.iter().enumerate().min_by(order) else { break };
        let one = candidates.remove(index);
        lacking = without(&lacking, std::iter::once(&one));
        chosen.push(one);
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, priority: i64, resources: &str) -> Arc<Pod> {
        let text = format!(
            "{{metadata: {{name: {name}, uid: {name}}}, spec: {{priority: {priority}, containers: [{{name: a, resources: {resources}}}]}}}}"
        );
        Arc::new(serde_saphyr::from_str(&text).unwrap())
    }

    fn running() -> Vec<Arc<Pod>> {
        let guaranteed = "{limits: {cpu: '1', memory: 1Gi}, requests: {cpu: '1', memory: 1Gi}}";
        vec![
            pod("best", 0, "{}"),
            pod("small", 0, "{requests: {cpu: 100m, memory: 100Mi}}"),
            pod("large", 0, "{requests: {cpu: 500m, memory: 500Mi}}"),
            pod("sure", 0, guaranteed),
            pod("critical", 2_000_000_000, guaranteed),
        ]
    }

    fn check(lacking: &[(&str, i64)], expect: Result<&[&str], &str>) {
        let lacking: Vec<_> = lacking.iter().map(|(name, amount)| ((*name).to_owned(), *amount)).collect();
        let found = victims(&pod("new", 2_000_000_000, "{}"), &running(), &lacking);
        let name = |pod: &Arc<Pod>| pod.metadata.name.clone().unwrap();
        let names = found.map(|all| all.iter().map(name).collect::<Vec<_>>());
        let expect = expect.map(|names| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        assert_eq!(names.map_err(|error| error.to_string()), expect.map_err(str::to_owned), "{lacking:?}");
    }

    #[test]
    fn as_few_go_as_possible_of_the_lowest_class() {
        check(&[("cpu", 50)], Ok(&["small"]));
        check(&[("cpu", 400)], Ok(&["large"]));
        check(&[("cpu", 550)], Ok(&["large", "small"]));
        check(&[("cpu", 700)], Ok(&["sure"]));
        check(&[("cpu", 1200)], Ok(&["large", "sure"]));
        check(&[("pods", 1)], Ok(&["best"]));
        check(&[("memory", 1 << 30), ("cpu", 10)], Ok(&["sure"]));
    }

    #[test]
    fn nobody_goes_in_vain() {
        let error = "no set of running pods found to reclaim resources: [(res: cpu, q: 400), ]";
        check(&[("cpu", 2000)], Err(error));
    }

    /// Source: `TestGetPodsToPreempt` of upstream's `pkg/kubelet/preemption`.
    #[test]
    #[expect(clippy::too_many_lines, reason = "a table")]
    fn who_goes_for_whom_is_as_upstream_says() {
        const CLUSTER: i64 = 2_000_000_000;
        const NODE: i64 = 2_000_001_000;
        let of = |name: &str| {
            let requests = |amount: u32| format!("requests: {{cpu: {amount}m, memory: {amount}Mi}}");
            let both = |amount: u32| {
                format!("{{{}, limits: {{cpu: {amount}m, memory: {amount}Mi}}}}", requests(amount))
            };
            match name {
                "burstable" => pod(name, 0, &format!("{{{}}}", requests(100))),
                "high-burstable" => pod(name, 0, &format!("{{{}}}", requests(300))),
                "guaranteed" => pod(name, 0, &both(100)),
                "high-guaranteed" => pod(name, 0, &both(300)),
                "cluster-critical" => pod(name, CLUSTER, &both(100)),
                "node-critical" => pod(name, NODE, &both(100)),
                _ => pod(name, 0, "{}"),
            }
        };
        const ALL: &str = "best-effort burstable high-burstable guaranteed high-guaranteed";
        for (name, priority, running, (cpu, memory, pods), expect) in [
            ("nothing is lacking", CLUSTER, "", (0, 0, 0), Some("")),
            ("nobody is there", CLUSTER, "", (0, 0, 1), None),
            ("it has all", CLUSTER, "burstable", (100, 100, 1), Some("burstable")),
            ("more than it has", CLUSTER, "burstable", (200, 200, 2), None),
            ("the lower class", CLUSTER, "burstable best-effort", (0, 0, 1), Some("best-effort")),
            (
                "of the two higher ones the lower",
                CLUSTER,
                "burstable guaranteed",
                (0, 0, 1),
                Some("burstable"),
            ),
            (
                "who asks for less, and has enough",
                CLUSTER,
                "best-effort high-burstable burstable",
                (100, 100, 0),
                Some("burstable"),
            ),
            (
                "who asks for more",
                CLUSTER,
                "best-effort burstable high-burstable",
                (150, 150, 0),
                Some("high-burstable"),
            ),
            ("several", CLUSTER, ALL, (350, 350, 0), Some("burstable high-burstable")),
            (
                "of the highest class, and then not all others",
                CLUSTER,
                ALL,
                (0, 550, 0),
                Some("high-burstable high-guaranteed"),
            ),
            (
                "a critical one for who matters more",
                NODE,
                "cluster-critical",
                (100, 0, 0),
                Some("cluster-critical"),
            ),
            ("never for who matters less", CLUSTER, "node-critical", (100, 0, 0), None),
            ("nor for who matters as much", CLUSTER, "cluster-critical", (100, 0, 0), None),
            ("an ordinary one goes for who matters more", 5, "burstable", (100, 0, 0), Some("burstable")),
        ] {
            let running: Vec<_> = running.split(' ').filter(|name| !name.is_empty()).map(of).collect();
            let lacking = [("cpu", cpu), ("memory", memory << 20), ("pods", pods)];
            let lacking = lacking.into_iter().filter(|(_, amount)| *amount > 0);
            let lacking: Vec<_> = lacking.map(|(name, amount)| (name.to_owned(), amount)).collect();
            let found = victims(&pod("new", priority, "{}"), &running, &lacking).ok();
            let names = found.map(|all| {
                let mut names: Vec<_> = all.iter().map(|pod| pod.metadata.name.clone().unwrap()).collect();
                names.sort();
                names.join(" ")
            });
            assert_eq!(names.as_deref(), expect, "{name}");
        }
    }
}
