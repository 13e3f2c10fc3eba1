//! What `knarr trace` and the demo print: the chain of events as a tree. An object hangs below the one whose change
//! made somebody create it, and below each object stand the steps that were done on it, in order of time.
//!
//! A step is a commit (a write to the API) or a span (something that made no revision, such as a sandbox that was
//! started). Times are since the first commit. Updates of status are counted, and shown on request.

use std::collections::BTreeMap;

use machinery::trace::{Chain, Commit, Span};

/// Wider first columns push the others aside.
const NAME_WIDTH: usize = 52;
const COMPONENT_WIDTH: usize = 24;

/// The part of a chain that is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Without updates of status.
    Steps,
    /// All of it.
    All,
}

#[derive(Default)]
struct Object {
    start_us: i64,
    end_us: i64,
    component: String,
    verb: String,
    parent: Option<String>,
    steps: Vec<Step>,
}

struct Step {
    start_us: i64,
    end_us: i64,
    component: String,
    text: String,
}

/// A line below an object: one of its steps, or another object.
enum Line<'a> {
    Step(&'a Step),
    Object(&'a str),
}

/// The lines.
#[must_use]
pub fn tree(chain: &Chain, detail: Detail) -> Vec<String> {
    let commits: Vec<&Commit> = chain.commits.iter().filter(|commit| !is_event(commit)).collect();
    let Some(zero) = commits.iter().map(|commit| commit.at_us).min() else { return Vec::new() };
    let (mut objects, mut hidden) = (objects(&commits), 0);
    for commit in &commits {
        let is_first = objects
            .get(&commit.key)
            .is_some_and(|object| object.start_us == commit.at_us && object.verb == verb(commit));
        if is_first {
            continue;
        }
        if detail == Detail::Steps && is_quiet(commit) {
            hidden += 1;
            continue;
        }
        let step = Step {
            start_us: commit.at_us,
            end_us: commit.committed_us,
            component: component(commit),
            text: verb(commit),
        };
        if let Some(object) = objects.get_mut(&commit.key) {
            object.steps.push(step);
        }
    }
    let by_revision: BTreeMap<u64, &str> =
        commits.iter().map(|commit| (commit.revision, commit.key.as_str())).collect();
    for span in &chain.spans {
        let key = if objects.contains_key(&span.object) { Some(span.object.as_str()) } else { None };
        let key = key.or_else(|| by_revision.get(&span.cause).copied());
        if let Some(object) = key.and_then(|key| objects.get_mut(key)) {
            object.steps.push(step_of_span(span));
        }
    }
    for object in objects.values_mut() {
        object.steps.sort_by_key(|step| step.start_us);
    }
    let mut out = Vec::new();
    let roots = in_time(objects.iter().filter(|(_, object)| object.parent.is_none()));
    let mut tree = Tree { objects: &objects, zero, out: &mut out };
    for root in roots {
        tree.print(root, "", "");
    }
    let ends = objects
        .values()
        .flat_map(|object| object.steps.iter().map(|step| step.end_us).chain([object.end_us]));
    let total = milliseconds(ends.max().unwrap_or(zero) - zero);
    let more = if hidden > 0 { format!("   ({hidden} quiet updates are hidden: -v)") } else { String::new() };
    out.push(format!("{total} ms from the first step to the last{more}"));
    out
}

fn is_event(commit: &Commit) -> bool {
    commit.key.starts_with("events/") || commit.key.contains("/events/") || commit.key.starts_with("leases/")
}

/// Updates that follow from what others have done: of a status, or of what is kept by controllers.
fn is_quiet(commit: &Commit) -> bool {
    !commit.is_deletion
        && (commit.subresource == "status" || matches!(commit.verb.as_str(), "update" | "patch" | "apply"))
        && (commit.subresource == "status" || commit.parent > 0)
}

/// Each object with its first commit; its parent is the object whose change was the cause of that.
fn objects(commits: &[&Commit]) -> BTreeMap<String, Object> {
    let by_revision: BTreeMap<u64, &str> =
        commits.iter().map(|commit| (commit.revision, commit.key.as_str())).collect();
    let mut objects: BTreeMap<String, Object> = BTreeMap::new();
    for commit in commits {
        let parent = by_revision.get(&commit.parent).filter(|key| **key != commit.key);
        // A chain of parents ends: what is here already may be one, what comes later may not.
        let parent = parent.filter(|key| objects.contains_key(**key)).map(|key| (*key).to_owned());
        objects.entry(commit.key.clone()).or_insert_with(|| Object {
            start_us: commit.at_us,
            end_us: commit.committed_us,
            component: component(commit),
            verb: verb(commit),
            parent,
            steps: Vec::new(),
        });
    }
    objects
}

fn in_time<'a>(objects: impl Iterator<Item = (&'a String, &'a Object)>) -> Vec<&'a str> {
    let mut all: Vec<(i64, &str)> = objects.map(|(key, object)| (object.start_us, key.as_str())).collect();
    all.sort_unstable();
    all.into_iter().map(|(_, key)| key).collect()
}

/// A tree of objects, which is written out from its roots.
struct Tree<'a> {
    objects: &'a BTreeMap<String, Object>,
    /// When the first step began, in Unix microseconds.
    zero: i64,
    out: &'a mut Vec<String>,
}

impl Tree<'_> {
    /// Writes out an object, its steps, and what it has caused. `own` stands before its own line, `below` before the others.
    fn print(&mut self, key: &str, own: &str, below: &str) {
        let (objects, zero) = (self.objects, self.zero);
        let Some(object) = objects.get(key) else { return };
        let what = match object.verb.as_str() {
            "create" => short(key),
            verb => format!("{} {verb}", short(key)),
        };
        self.out.push(line(
            &format!("{own}{what}"),
            &object.component,
            object.start_us - zero,
            object.end_us - zero,
        ));
        let children = objects.iter().filter(|(_, other)| other.parent.as_deref() == Some(key));
        let mut lines: Vec<(i64, Line<'_>)> = in_time(children)
            .into_iter()
            .filter_map(|key| Some((objects.get(key)?.start_us, Line::Object(key))))
            .collect();
        lines.extend(object.steps.iter().map(|step| (step.start_us, Line::Step(step))));
        lines.sort_by_key(|(start, _)| *start);
        let count = lines.len();
        for (number, (_, one)) in lines.into_iter().enumerate() {
            let (branch, on) = if number + 1 == count { ("└ ", "  ") } else { ("├ ", "│ ") };
            match one {
                Line::Object(key) => {
                    self.print(key, &format!("{below}{branch}"), &format!("{below}{on}"));
                }
                Line::Step(step) => {
                    let name = format!("{below}{branch}{}", step.text);
                    self.out.push(line(&name, &step.component, step.start_us - zero, step.end_us - zero));
                }
            }
        }
    }
}

fn verb(commit: &Commit) -> String {
    match (commit.is_deletion, commit.subresource.as_str()) {
        (true, _) => "deleted".to_owned(),
        (false, "binding") => "bound to a node".to_owned(),
        (false, "") => commit.verb.clone(),
        (false, subresource) => format!("{} {subresource}", commit.verb),
    }
}

/// In-process controllers share a user agent; their user tells them apart. A part has one name, its user's.
fn component(commit: &Commit) -> String {
    let user = commit.user.strip_prefix("system:").unwrap_or(&commit.user);
    let name = if commit.component.is_empty() { user } else { &commit.component };
    name.strip_prefix("kube-").unwrap_or(name).to_owned()
}

fn step_of_span(span: &Span) -> Step {
    let parts = [span.name.as_str(), span.detail.as_str()];
    let text: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    Step {
        start_us: span.start_us,
        end_us: span.end_us,
        component: span.component.strip_prefix("kube-").unwrap_or(&span.component).to_owned(),
        text: text.join("  "),
    }
}

/// `deployment/web` of `deployments/default/web`.
fn short(key: &str) -> String {
    let mut parts = key.split('/');
    let resource = parts.next().unwrap_or_default();
    format!("{}/{}", singular(resource), parts.next_back().unwrap_or_default())
}

fn singular(plural: &str) -> String {
    if let Some(stem) = plural.strip_suffix("ies") {
        return format!("{stem}y");
    }
    if plural == "endpoints" {
        return plural.to_owned();
    }
    let stem = ["sses", "xes"].into_iter().find(|end| plural.ends_with(end)).and(plural.strip_suffix("es"));
    stem.or_else(|| plural.strip_suffix('s')).unwrap_or(plural).to_owned()
}

fn line(name: &str, component: &str, start_us: i64, end_us: i64) -> String {
    let after = milliseconds(start_us);
    // What took no time that could be seen has one time.
    let until =
        if end_us - start_us < 1_000 { String::new() } else { format!(" … {}", milliseconds(end_us)) };
    format!("{name:<NAME_WIDTH$} {component:<COMPONENT_WIDTH$} +{after}{until}")
}

fn milliseconds(us: i64) -> String {
    format!("{}.{}", us / 1000, (us % 1000).abs() / 100)
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    fn commit(revision: u64, parent: u64, key: &str, verb: &str, component: &str) -> Commit {
        let at_us = 1_000_000 + i64::try_from(revision).unwrap() * 1_500;
        let (key, verb, component) = (key.into(), verb.into(), component.into());
        Commit {
            revision,
            parent,
            key,
            verb,
            component,
            at_us,
            committed_us: at_us + 300,
            ..Commit::default()
        }
    }

    fn check(chain: &Chain, detail: Detail, expected: Expect) {
        expected.assert_eq(&(tree(chain, detail).join("\n") + "\n"));
    }

    fn chain() -> Chain {
        let bind = commit(10, 9, "pods/default/web-r-1", "create", "scheduler");
        let status = commit(12, 10, "pods/default/web-r-1", "patch", "kubelet");
        let span = |name: &str, object: &str, (start_us, end_us)| Span {
            cause: 9,
            component: "kubelet".into(),
            name: name.into(),
            object: object.into(),
            start_us,
            end_us,
            ..Span::default()
        };
        Chain {
            commits: vec![
                commit(7, 0, "deployments/default/web", "create", "kubectl"),
                commit(8, 7, "replicasets/default/web-r", "create", "deployment-controller"),
                commit(9, 8, "pods/default/web-r-1", "create", "replicaset-controller"),
                Commit { subresource: "binding".into(), ..bind },
                commit(11, 9, "events/default/web-r-1.x", "create", "scheduler"),
                Commit { subresource: "status".into(), ..status },
                commit(13, 12, "endpointslices/default/web-x", "update", "endpointslice-controller"),
                Commit { is_deletion: true, ..commit(14, 7, "replicasets/default/web-r", "delete", "gc") },
            ],
            spans: vec![
                span("container started", "pods/default/web-r-1", (1_030_000, 1_071_000)),
                span("sandbox started", "pods/default/web-r-1", (1_016_000, 1_016_400)),
                span("rules programmed", "endpointslices/default/other", (1_080_000, 1_090_000)),
            ],
        }
    }

    #[test]
    fn objects_hang_below_what_they_were_made_for() {
        check(
            &chain(),
            Detail::Steps,
            expect![[r#"
            deployment/web                                       kubectl                  +0.0
            └ replicaset/web-r                                   deployment-controller    +1.5
              ├ pod/web-r-1                                      replicaset-controller    +3.0
              │ ├ bound to a node                                scheduler                +4.5
              │ ├ sandbox started                                kubelet                  +5.5
              │ ├ endpointslice/web-x update                     endpointslice-controller +9.0
              │ ├ container started                              kubelet                  +19.5 … 60.5
              │ └ rules programmed                               kubelet                  +69.5 … 79.5
              └ deleted                                          gc                       +10.5
            79.5 ms from the first step to the last   (1 quiet updates are hidden: -v)
        "#]],
        );
        check(
            &chain(),
            Detail::All,
            expect![[r#"
            deployment/web                                       kubectl                  +0.0
            └ replicaset/web-r                                   deployment-controller    +1.5
              ├ pod/web-r-1                                      replicaset-controller    +3.0
              │ ├ bound to a node                                scheduler                +4.5
              │ ├ sandbox started                                kubelet                  +5.5
              │ ├ patch status                                   kubelet                  +7.5
              │ ├ endpointslice/web-x update                     endpointslice-controller +9.0
              │ ├ container started                              kubelet                  +19.5 … 60.5
              │ └ rules programmed                               kubelet                  +69.5 … 79.5
              └ deleted                                          gc                       +10.5
            79.5 ms from the first step to the last
        "#]],
        );
        assert!(tree(&Chain::default(), Detail::All).is_empty());
    }

    #[test]
    fn resources_are_told_by_their_singular() {
        for (key, expected) in [
            ("pods/default/a", "pod/a"),
            ("networkpolicies/default/a", "networkpolicy/a"),
            ("storageclasses/a", "storageclass/a"),
            ("leases/default/a", "lease/a"),
            ("endpoints/default/a", "endpoints/a"),
            ("ingresses/default/a", "ingress/a"),
        ] {
            assert_eq!(short(key), expected);
        }
    }
}
