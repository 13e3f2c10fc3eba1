//! All that is wrong in a cluster, worst first: Nodes, then what owns Pods, then Pods, claims, Services and the rest.
//! What an owner already says of its Pods is not said again of each of them.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use super::{Answer, Reason, Snapshot, explain, list, text};

/// The defects of a cluster, and the number of objects that are well.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Everything {
    /// Worst first.
    pub wrong: Vec<Wrong>,
    /// The number of objects of each kind that were looked at.
    pub looked_at: BTreeMap<String, usize>,
}

/// An object that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Wrong {
    /// Empty for objects of the cluster.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// The reasons.
    #[serde(flatten)]
    pub answer: Answer,
}

impl Everything {
    /// Adds archives of this host's folder of images that became none: which, and why.
    pub fn not_imported(&mut self, archives: Vec<(String, String)>) {
        let wrong = |(file, error): (String, String)| {
            let object = format!("image archive {file}");
            let fix = "export the image anew into the same file, or remove it";
            let reasons = vec![Reason::new(&object, error).fix(fix)];
            let answer = Answer { object, running: false, summary: "was not imported".into(), reasons };
            Wrong { namespace: String::new(), answer }
        };
        self.wrong.extend(archives.into_iter().map(wrong));
    }

    /// For people, a paragraph for each; no line is wider than `width`, where words allow it.
    #[must_use]
    pub fn render(&self, width: usize) -> String {
        if self.wrong.is_empty() {
            let count = |(kind, count): (&String, &usize)| format!("{count} {kind}");
            let counts = self.looked_at.iter().map(count).collect::<Vec<_>>().join(", ");
            return format!("everything is well: {counts}\n");
        }
        let paragraph = |wrong: &Wrong| {
            let place =
                if wrong.namespace.is_empty() { String::new() } else { format!(" (in {})", wrong.namespace) };
            let answer =
                Answer { summary: format!("{}{place}", wrong.answer.summary), ..wrong.answer.clone() };
            answer.render(width)
        };
        self.wrong.iter().map(paragraph).collect::<Vec<_>>().join("\n")
    }
}

/// An object, and the group and plural of its resource.
pub type Object = (Value, (String, String));

/// Looks at all objects, each with its `kind` and with its group and plural at `/knarr` as the caller has put them.
#[must_use]
pub fn everything(objects: &[Object], events: &[Value], now: Timestamp) -> Everything {
    let mut found = Everything::default();
    let mut by_namespace: BTreeMap<&str, Vec<&Object>> = BTreeMap::new();
    for object in objects {
        by_namespace.entry(text(&object.0, "/metadata/namespace")).or_default().push(object);
    }
    let nodes: Vec<&Value> = of_kind(objects, "Node");
    let placed: Vec<Value> = of_kind(objects, "Pod")
        .into_iter()
        .filter(|pod| !text(pod, "/spec/nodeName").is_empty())
        .cloned()
        .collect();
    let mut wrong: Vec<(u8, Wrong)> = Vec::new();
    for (namespace, of_namespace) in &by_namespace {
        let others = of_namespace.iter().map(|(object, _)| object).chain(nodes.iter().copied()).cloned();
        let is_here = |event: &&Value| text(event, "/metadata/namespace") == *namespace;
        let mut snapshot = Snapshot {
            others: others.collect(),
            events: events.iter().filter(is_here).cloned().collect(),
            placed: placed.clone(),
            now,
            ..Snapshot::default()
        };
        let owners: BTreeSet<&str> =
            of_namespace.iter().map(|(object, _)| text(object, "/metadata/uid")).collect();
        for (object, resource) in of_namespace {
            let kind = text(object, "/kind");
            *found.looked_at.entry(kind.to_owned()).or_default() += 1;
            let Some(rank) = rank(object, &owners) else { continue };
            snapshot.subject = object.clone();
            snapshot.resource = resource.clone();
            let answer = explain(&snapshot);
            if !answer.running {
                wrong.push((rank, Wrong { namespace: (*namespace).to_owned(), answer }));
            }
        }
    }
    wrong.sort_by(|a, b| {
        (a.0, &a.1.namespace, &a.1.answer.object).cmp(&(b.0, &b.1.namespace, &b.1.answer.object))
    });
    found.wrong = wrong.into_iter().map(|(_, wrong)| wrong).collect();
    found
}

fn of_kind<'a>(objects: &'a [Object], kind: &str) -> Vec<&'a Value> {
    objects.iter().map(|(object, _)| object).filter(|object| text(object, "/kind") == kind).collect()
}

/// How bad it is that something of this kind is wrong; `None` for what its owner tells of.
fn rank(object: &Value, known: &BTreeSet<&str>) -> Option<u8> {
    let mut owners = list(object, "/metadata/ownerReferences").iter();
    let is_owned = owners.any(|owner| known.contains(text(owner, "/uid")));
    match text(object, "/kind") {
        "Node" => Some(0),
        "Namespace" if text(object, "/metadata/deletionTimestamp").is_empty() => None,
        "Namespace" => Some(4),
        _ if is_owned => None,
        "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet" | "ReplicationController" => Some(1),
        "Pod" => Some(2),
        "PersistentVolumeClaim" => Some(3),
        "Service" => Some(5),
        _ => Some(6),
    }
}
