//! What `knarr why` prints: why something is not running, from what the API says of it and of what it owns.
//!
//! [`explain`] is a pure function of a [`Snapshot`]: it walks from the object down its owner references to Pods and
//! containers, and reads conditions, states and Warning events on the way. It names causes; it guesses none.

mod autoscaler;
mod batch;
mod decision;
mod everything;
mod job;
mod kinds;
mod object;
mod placement;
mod pod;
mod reach;
mod workload;

use std::fmt;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

pub use decision::Decision;
pub use everything::{Everything, Object, everything};
pub use kinds::{KINDS, Kind};
pub use reach::Reach;

use crate::screen::wrapped;

/// An object and its surroundings, as the API server serves them.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The object that was asked for, with its `kind`.
    pub subject: Value,
    /// Its resource: group (empty for core) and plural.
    pub resource: (String, String),
    /// Everything of [`KINDS`] in its namespace, and the Nodes, with their `kind`.
    pub others: Vec<Value>,
    /// The Pods of all namespaces that have a Node.
    pub placed: Vec<Value>,
    /// The Events of its namespace.
    pub events: Vec<Value>,
    /// The time at which it was asked.
    pub now: Timestamp,
    /// The scheduler's last decision about it, if it is a Pod and that is still known.
    pub decision: Option<Decision>,
    /// The way to its kubelet, if it is a Node and that was asked.
    pub reach: Option<Reach>,
}

/// The reasons why an object is not running.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Answer {
    /// `deployment/web`
    pub object: String,
    /// `true` if it does what it was made for.
    pub running: bool,
    /// In one sentence.
    pub summary: String,
    /// Causes, those of the object itself first.
    pub reasons: Vec<Reason>,
}

/// One cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reason {
    /// Whose: `pod/web-1`.
    pub object: String,
    /// Others with the same cause.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<String>,
    /// The finding.
    pub what: String,
    /// The remedy, where one is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

impl Reason {
    fn new(object: &str, what: impl Into<String>) -> Self {
        Self { object: object.to_owned(), also: Vec::new(), what: what.into(), fix: None }
    }

    fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }
}

impl Answer {
    /// For people: no line is wider than `width`, where words allow it.
    #[must_use]
    pub fn render(&self, width: usize) -> String {
        let mut out = wrapped("", &format!("{} {}", self.object, self.summary), width);
        let mut last = "";
        for reason in &self.reasons {
            let depth = if reason.object == self.object { "  " } else { "    " };
            if reason.object != self.object && reason.object != last {
                let others = match reason.also.len() {
                    0 => String::new(),
                    more => format!(" and {more} more"),
                };
                out.push_str(&format!("  {}{others}\n", reason.object));
            }
            last = &reason.object;
            out.push_str(&wrapped(&format!("{depth}because  "), &reason.what, width));
            if let Some(fix) = &reason.fix {
                out.push_str(&wrapped(&format!("{depth}fix      "), fix, width));
            }
        }
        out
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(usize::MAX))
    }
}

/// Says why the subject is not running, or that it is.
#[must_use]
pub fn explain(snapshot: &Snapshot) -> Answer {
    let subject = &snapshot.subject;
    let object = reference(subject);
    let (group, plural) = (snapshot.resource.0.as_str(), snapshot.resource.1.as_str());
    let (running, summary, mut reasons) = match text(subject, "/kind") {
        _ if object::lacks_its_part(subject, group, plural) => object::unserved(subject, group, plural),
        "Pod" => pod::explain(snapshot, subject),
        "Service" => workload::service(snapshot, subject),
        "Node" => node(subject, snapshot.reach.as_ref()),
        "PersistentVolumeClaim" => claim(snapshot, subject),
        "Job" if group == "batch" => batch::job(snapshot, subject),
        "CronJob" if group == "batch" => batch::cron_job(snapshot, subject),
        "HorizontalPodAutoscaler" => autoscaler::explain(snapshot, subject),
        "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet" => workload::explain(snapshot, subject),
        _ => object::explain(snapshot, subject),
    };
    let undecodable = warnings(snapshot, subject).into_iter().filter(|what| what.starts_with(UNDECODABLE));
    let undecodable: Vec<Reason> = undecodable
        .map(|what| {
            Reason::new(&object, what).fix("write it anew without what is named; the next version is read")
        })
        .collect();
    reasons.splice(0..0, undecodable);
    Answer { object, running, summary, reasons: grouped(once(reasons)) }
}

/// The same of the same object is said once.
fn once(reasons: Vec<Reason>) -> Vec<Reason> {
    let mut told: Vec<Reason> = Vec::new();
    for reason in reasons {
        let is_told = |other: &Reason| other.object == reason.object && other.what == reason.what;
        if !told.iter().any(is_told) {
            told.push(reason);
        }
    }
    told
}

/// The reason of the events on objects that a part of the cluster cannot decode, and leaves as it last knew them.
const UNDECODABLE: &str = "FailedDecoding";

type Found = (bool, String, Vec<Reason>);

fn node(node: &Value, reach: Option<&Reach>) -> Found {
    let object = reference(node);
    let mut reasons = node_troubles(&object, node);
    reasons.extend(reach.and_then(|reach| reach.reason(&object)));
    let is_well = reasons.is_empty();
    if node.pointer("/spec/unschedulable") == Some(&Value::Bool(true)) {
        let name = text(node, "/metadata/name");
        reasons.push(
            Reason::new(&object, "is cordoned: no new Pods come here")
                .fix(format!("`kubectl uncordon {name}`")),
        );
    }
    let is_ready = condition(node, "Ready").is_some_and(|ready| text(ready, "/status") == "True");
    let summary = match (is_ready, is_well) {
        (true, true) => "is ready",
        (true, false) => "is ready, but not well",
        (false, _) => "is not ready",
    };
    let way = reach.filter(|_| is_ready).map_or("", Reach::told);
    (is_well, format!("{summary}{way}"), reasons)
}

/// Conditions of a Node that are not as they should be.
fn node_troubles(object: &str, node: &Value) -> Vec<Reason> {
    let conditions = list(node, "/status/conditions");
    if conditions.is_empty() {
        return vec![Reason::new(object, "no kubelet has said anything of it yet")];
    }
    let wrong = |condition: &&Value| {
        let should_be = if text(condition, "/type") == "Ready" { "True" } else { "False" };
        text(condition, "/status") != should_be
    };
    let told = |condition: &Value| {
        let [kind, status, reason, message] =
            ["/type", "/status", "/reason", "/message"].map(|path| text(condition, path));
        let told = Reason::new(object, format!("{kind} is {status}: {message}"));
        match (kind, reason) {
            ("NetworkUnavailable", "NoRouteCreated") => told.fix(
                "give the node an address on the network of the others (`--node-ip`), or start the servers with a network \
                 that crosses routers (`--network-backend vxlan`)",
            ),
            _ => told,
        }
    };
    conditions.iter().filter(wrong).map(told).collect()
}

fn claim(snapshot: &Snapshot, claim: &Value) -> Found {
    let object = reference(claim);
    let phase = text(claim, "/status/phase");
    if phase == "Bound" {
        return (true, "is bound".into(), Vec::new());
    }
    let told = |what: String| {
        let lacks_class = what.contains("storageclass.storage.k8s.io") && what.ends_with("not found");
        let told = Reason::new(&object, what);
        if !lacks_class {
            return told;
        }
        told.fix("name a class that there is (`kubectl get storageclass`), none for the default one, or make that one")
    };
    let mut reasons: Vec<Reason> = warnings(snapshot, claim).into_iter().map(told).collect();
    if let Some(event) = newest(snapshot, claim).filter(|event| text(event, "/type") == "Normal") {
        let fix = match text(event, "/reason") {
            "WaitForFirstConsumer" => Some("make a Pod that uses it"),
            "ExternalProvisioning" => Some("see that the driver of its StorageClass runs"),
            _ => None,
        };
        reasons.push(Reason {
            fix: fix.map(ToOwned::to_owned),
            ..Reason::new(&object, text(event, "/message"))
        });
    }
    (false, format!("is {}", if phase.is_empty() { "not looked at yet" } else { phase }), reasons)
}

/// The newest Warning of each reason about an object, with how often it came.
fn warnings(snapshot: &Snapshot, object: &Value) -> Vec<String> {
    const WARNINGS_MAX: usize = 3;
    let uid = text(object, "/metadata/uid");
    let about =
        |event: &&Value| text(event, "/involvedObject/uid") == uid && text(event, "/type") == "Warning";
    let mut events: Vec<&Value> = snapshot.events.iter().filter(about).collect();
    events.sort_by_key(|event| std::cmp::Reverse(last_seen(event)));
    let mut reasons_told: Vec<&str> = Vec::new();
    let mut told = Vec::new();
    for event in events {
        let reason = text(event, "/reason");
        if !reasons_told.contains(&reason) && told.len() < WARNINGS_MAX {
            reasons_told.push(reason);
            told.push(format!("{reason}: {}", text(event, "/message")));
        }
    }
    told
}

/// The newest Event about an object.
fn newest<'a>(snapshot: &'a Snapshot, object: &Value) -> Option<&'a Value> {
    let uid = text(object, "/metadata/uid");
    let about = |event: &&Value| !uid.is_empty() && text(event, "/involvedObject/uid") == uid;
    snapshot.events.iter().filter(about).max_by_key(|event| last_seen(event))
}

fn last_seen(event: &Value) -> &str {
    let paths = ["/lastTimestamp", "/series/lastObservedTime", "/eventTime", "/metadata/creationTimestamp"];
    paths.into_iter().map(|path| text(event, path)).find(|time| !time.is_empty()).unwrap_or_default()
}

/// The same causes of several objects, once.
fn grouped(reasons: Vec<Reason>) -> Vec<Reason> {
    let mut by_object: Vec<(String, Vec<Reason>)> = Vec::new();
    for reason in reasons {
        match by_object.iter_mut().find(|(object, _)| *object == reason.object) {
            Some((_, of_object)) => of_object.push(reason),
            None => by_object.push((reason.object.clone(), vec![reason])),
        }
    }
    let same = |a: &[Reason], b: &[Reason]| {
        a.len() == b.len()
            && a.iter().zip(b).all(|(a, b)| (&a.what, a.fix.is_some()) == (&b.what, b.fix.is_some()))
    };
    let mut groups: Vec<Vec<Reason>> = Vec::new();
    for (object, of_object) in by_object {
        match groups.iter_mut().find(|group| same(group, &of_object)) {
            Some(group) => group.iter_mut().for_each(|reason| reason.also.push(object.clone())),
            None => groups.push(of_object),
        }
    }
    groups.into_iter().flatten().collect()
}

/// `pod/web-1`
fn reference(object: &Value) -> String {
    format!("{}/{}", text(object, "/kind").to_lowercase(), text(object, "/metadata/name"))
}

fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    object.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

fn number(object: &Value, path: &str) -> Option<i64> {
    object.pointer(path).and_then(Value::as_i64)
}

fn list<'a>(object: &'a Value, path: &str) -> &'a [Value] {
    object.pointer(path).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    list(object, "/status/conditions").iter().find(|condition| text(condition, "/type") == kind)
}

#[cfg(test)]
mod tests;
