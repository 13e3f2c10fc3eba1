//! What controllers and schedulers may make of workloads, whichever of them are killed: rules over all that a store has had,
//! revision by revision.
//!
//! Only what was written counts, so nothing here knows how controllers decide; what they owe in the end is asked for when
//! nobody is killed any more ([`Judge::left`], [`Judge::held`]).

mod jobs;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::Value;
use store::{Event, Page, Revision};

pub use jobs::FINALIZER;
use jobs::Jobs;

/// Kinds of which nothing may be left when all that was asked for is deleted, by their folders in the store.
const MADE: [&str; 7] =
    ["pods", "jobs", "replicasets", "statefulsets", "deployments", "cronjobs", "controllerrevisions"];
/// When a Job was due. Source: `batch/v1`, `CronJobScheduledTimestampAnnotation`.
const SCHEDULED: &str = "/metadata/annotations/batch.kubernetes.io~1cronjob-scheduled-timestamp";

/// A promise about workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// Pods of a Node ask for no more than it has.
    NodesAreNotOverfull,
    /// A Pod that has a Node keeps it.
    PodsStayOnTheirNodes,
    /// Of several that could do the same, only whoever holds the Lease has anything written.
    OnlyTheLeaderWrites,
    /// No more Pods are there at once than their owner has ever wanted.
    NoSurplus,
    /// No two Pods have an index of a Job at once.
    OnePodPerIndex,
    /// No two Jobs are made for one time of a CronJob, nor a second one beside the first where that is forbidden.
    OneJobPerTurn,
    /// A Job's counts are those of the Pods which have ended.
    PodsAreCountedOnce,
}

/// A promise that was not kept, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breach {
    /// Which.
    pub rule: Rule,
    /// The revision that broke it.
    pub revision: Revision,
    /// The observation.
    pub what: String,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at {}: {}", self.rule, self.revision, self.what)
    }
}

/// The Pods of a Node that take up its resources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Taken {
    /// All that were given to it: what one scheduler owes, and several of which one leads.
    #[default]
    ByBound,
    /// Those that it has taken in: what is left to keep where several schedulers give at once, and know of each other only by
    /// what they have given. Whom there is no room for it refuses. Source: `OutOfcpu` of the kubelet.
    ByAdmitted,
}

/// All that is there, and what was wrong so far.
#[derive(Debug, Default)]
pub struct Judge {
    taken: Taken,
    /// By key without `/registry/`.
    objects: BTreeMap<String, Value>,
    /// The most Pods that a ReplicaSet has ever wanted, by its uid.
    wanted: BTreeMap<String, i64>,
    /// Jobs by CronJob and time.
    turns: BTreeMap<(String, String), String>,
    jobs: Jobs,
    /// All that is older has been seen.
    pub upto: Revision,
    /// Broken promises, in the order of their revisions.
    pub breaches: Vec<Breach>,
}

impl Judge {
    /// One for whom these Pods take room.
    #[must_use]
    pub fn by(taken: Taken) -> Self {
        Self { taken, ..Self::default() }
    }

    /// Looks at the next change of the store.
    pub fn see(&mut self, event: &Event) {
        let Some(key) = event.key.strip_prefix("/registry/") else { return };
        let kind = key.split('/').next().unwrap_or_default();
        let after = event.entry.as_ref().and_then(|entry| serde_json::from_slice::<Value>(&entry.value).ok());
        let before = match after.clone() {
            Some(object) => self.objects.insert(key.to_owned(), object),
            None => self.objects.remove(key),
        };
        let Some(after) = after else { return };
        let found = match kind {
            "pods" => self.pod(before.as_ref(), &after),
            "replicasets" => {
                let wanted = self.wanted.entry(text(&after, "/metadata/uid").to_owned()).or_default();
                *wanted = number(&after, "/spec/replicas").max(*wanted);
                Vec::new()
            }
            "jobs" => self.job(before.as_ref(), &after),
            _ => Vec::new(),
        };
        let revision = event.revision;
        self.breaches.extend(found.into_iter().map(|(rule, what)| Breach { rule, revision, what }));
    }

    /// Takes in what a store has that was opened again, and does not tell how it came to that.
    pub fn see_all(&mut self, page: &Page) {
        let there: BTreeSet<&str> = page.entries.iter().map(|entry| entry.key.as_str()).collect();
        let gone: Vec<String> = self.objects.keys().map(|key| format!("/registry/{key}")).collect();
        for key in gone.into_iter().filter(|key| !there.contains(key.as_str())) {
            let (revision, entry, previous, cause) = (page.revision, None, None, Default::default());
            self.see(&Event { revision, key, entry, previous, cause });
        }
        let upto = self.upto;
        for entry in page.entries.iter().filter(|entry| entry.revision > upto) {
            let (revision, key, cause) = (entry.revision, entry.key.clone(), Default::default());
            self.see(&Event { revision, key, entry: Some(entry.clone()), previous: None, cause });
        }
        self.upto = page.revision;
    }

    /// Takes note of something that a process has had written while it held this Lease, or somebody else.
    pub fn written(&mut self, lease: &str, process: &str) {
        let holder = self.objects.get(&format!("leases/{lease}"));
        let holder = holder.map(|lease| text(lease, "/spec/holderIdentity")).unwrap_or_default();
        if holder != process {
            let (rule, revision) = (Rule::OnlyTheLeaderWrites, self.upto);
            let what = format!("{process} has something written, and {holder:?} holds {lease}");
            self.breaches.push(Breach { rule, revision, what });
        }
    }

    /// The objects of a kind that are there.
    pub fn all(&self, kind: &str) -> impl Iterator<Item = &Value> {
        let folder = format!("{kind}/");
        self.objects.iter().filter(move |(key, _)| key.starts_with(&folder)).map(|(_, object)| object)
    }

    /// The objects of workloads that are still there.
    #[must_use]
    pub fn left(&self) -> Vec<&str> {
        let is_made = |key: &&String| MADE.contains(&key.split('/').next().unwrap_or_default());
        self.objects.keys().filter(is_made).map(String::as_str).collect()
    }

    /// Pods that are held for a Job which is over, or not there.
    #[must_use]
    pub fn held(&self) -> Vec<&str> {
        let working: BTreeSet<&str> = self
            .all("jobs")
            .filter(|job| jobs::outcome(job).is_none())
            .map(|job| text(job, "/metadata/uid"))
            .collect();
        let is_held = |pod: &&Value| {
            jobs::is_tracked(pod) && !owner(pod, "Job").is_some_and(|owner| working.contains(owner))
        };
        self.all("pods").filter(is_held).map(|pod| text(pod, "/metadata/name")).collect()
    }

    fn pod(&mut self, before: Option<&Value>, pod: &Value) -> Vec<(Rule, String)> {
        let mut found: Vec<(Rule, String)> = self.node_of(pod).into_iter().collect();
        found.extend(before.and_then(|before| moved(before, pod)));
        if let Some(owner) = owner(pod, "ReplicaSet") {
            let (there, wanted) = (self.active(owner).count(), self.wanted.get(owner).copied().unwrap_or(0));
            if i64::try_from(there).is_ok_and(|there| there > wanted) {
                found.push((Rule::NoSurplus, format!("{there} Pods of a ReplicaSet that wants {wanted}")));
            }
        }
        if let Some(owner) = owner(pod, "Job") {
            self.jobs.pod(owner, pod);
            found.extend(self.job_has(owner));
        }
        found
    }

    /// Whether the Pods of a Node fit on it.
    fn node_of(&self, pod: &Value) -> Option<(Rule, String)> {
        let name = text(pod, "/spec/nodeName");
        let node = self.objects.get(&format!("minions/{name}")).filter(|_| !name.is_empty())?;
        let takes = |pod: &&Value| self.taken == Taken::ByBound || text(pod, "/status/phase") == "Running";
        let there = self.all("pods").filter(|pod| text(pod, "/spec/nodeName") == name && !is_over(pod));
        let there = there.filter(takes);
        let asked: i64 = there.map(asked).sum();
        let has = milli(node.pointer("/status/allocatable/cpu"));
        (asked > has).then(|| (Rule::NodesAreNotOverfull, format!("{asked} of {has} on {name}")))
    }

    /// Pods of an owner that count as being there.
    fn active<'j>(&'j self, uid: &'j str) -> impl Iterator<Item = &'j Value> {
        let is_active = |pod: &&Value| !is_over(pod) && pod.pointer("/metadata/deletionTimestamp").is_none();
        let of = move |pod: &&Value| controller(pod).is_some_and(|owner| text(owner, "/uid") == uid);
        self.all("pods").filter(of).filter(is_active)
    }

    fn job_has(&self, uid: &str) -> Vec<(Rule, String)> {
        let Some(job) = self.all("jobs").find(|job| text(job, "/metadata/uid") == uid) else {
            return Vec::new();
        };
        let (there, wanted) = (self.active(uid).count(), number(job, "/spec/parallelism"));
        let name = text(job, "/metadata/name");
        let mut found = Vec::new();
        if i64::try_from(there).is_ok_and(|there| there > wanted) {
            found.push((Rule::NoSurplus, format!("{there} Pods of Job {name}, which wants {wanted}")));
        }
        let mut seen = BTreeSet::new();
        let indexes = self.active(uid).filter_map(jobs::index);
        for index in indexes.filter(|index| !seen.insert(*index)) {
            found.push((Rule::OnePodPerIndex, format!("index {index} of Job {name} is there twice")));
        }
        found
    }

    fn job(&mut self, before: Option<&Value>, job: &Value) -> Vec<(Rule, String)> {
        let mut found: Vec<_> = self.jobs.job(before, job);
        let Some(owner) = owner(job, "CronJob").filter(|_| before.is_none()) else { return found };
        let (due, name) = (text(job, SCHEDULED).to_owned(), text(job, "/metadata/name").to_owned());
        if let Some(other) = self.turns.insert((owner.to_owned(), due.clone()), name.clone()) {
            found.push((Rule::OneJobPerTurn, format!("{name} and {other} are of {due}")));
        }
        let is_forbidding = |one: &Value| text(one, "/spec/concurrencyPolicy") == "Forbid";
        let forbids =
            self.all("cronjobs").any(|one| text(one, "/metadata/uid") == owner && is_forbidding(one));
        let of = |job: &&Value| controller(job).is_some_and(|by| text(by, "/uid") == owner);
        let working = self.all("jobs").filter(of).filter(|job| jobs::outcome(job).is_none()).count();
        if forbids && working > 1 {
            found.push((Rule::OneJobPerTurn, format!("{name} was made beside another, which is forbidden")));
        }
        found
    }
}

/// Whether a Pod that had a Node has another, or none.
fn moved(before: &Value, pod: &Value) -> Option<(Rule, String)> {
    let node = |pod| text(pod, "/spec/nodeName");
    let is_same = text(before, "/metadata/uid") == text(pod, "/metadata/uid");
    let has_moved = is_same && !node(before).is_empty() && node(before) != node(pod);
    let name = text(pod, "/metadata/name");
    let what = || format!("Pod {name} was on {}, and is on {:?}", node(before), node(pod));
    has_moved.then(|| (Rule::PodsStayOnTheirNodes, what()))
}

fn text<'v>(value: &'v Value, pointer: &str) -> &'v str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn number(value: &Value, pointer: &str) -> i64 {
    value.pointer(pointer).and_then(Value::as_i64).unwrap_or(0)
}

/// Whether a Pod has ended.
fn is_over(pod: &Value) -> bool {
    matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
}

fn controller(object: &Value) -> Option<&Value> {
    let owners = object.pointer("/metadata/ownerReferences")?.as_array()?;
    owners.iter().find(|owner| owner["controller"] == true)
}

/// The uid of an object's controller, if that is of this kind.
fn owner<'v>(object: &'v Value, kind: &str) -> Option<&'v str> {
    controller(object).filter(|owner| owner["kind"] == kind).map(|owner| text(owner, "/uid"))
}

/// The CPU that a Pod asks for, in thousandths.
#[must_use]
pub fn asked(pod: &Value) -> i64 {
    let containers = pod.pointer("/spec/containers").and_then(Value::as_array).into_iter().flatten();
    containers.map(|container| milli(container.pointer("/resources/requests/cpu"))).sum()
}

/// Thousandths of a CPU; of the forms of quantities those that the API server writes for CPU.
#[must_use]
pub fn milli(quantity: Option<&Value>) -> i64 {
    let quantity = quantity.and_then(Value::as_str).unwrap_or_default();
    match quantity.strip_suffix('m') {
        Some(milli) => milli.parse().unwrap_or(0),
        None => quantity.parse::<i64>().map_or(0, |whole| whole * 1000),
    }
}
