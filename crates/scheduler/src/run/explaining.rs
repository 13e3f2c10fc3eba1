//! The reason why a Pod has no Node, as users read it: an event, and a condition if it says something new.
//!
//! A Pod is told one thing at a time, in the order of the attempts, so that what stands in its status is what the last one found.

use std::collections::HashMap;
use std::sync::Arc;

use controller::pod::Pod;
use controller::{Action, EventType, Patch, cause};
use jiff::Timestamp;
use serde_json::json;

use super::Scheduler;
use super::binding::{Progress, report};
use super::preempting::{key_of, nominating};
use crate::pod::names;
use crate::profile::event;

/// What an attempt has to say to its Pod.
#[derive(Debug, PartialEq)]
pub(super) struct Explanation {
    pub(super) pod: Arc<Pod>,
    pub(super) revision: u64,
    /// The condition's reason and message.
    pub(super) why: (&'static str, String),
    /// What the Pod's status is to say about the Node that it waits for, if that changes.
    pub(super) node: Option<Option<String>>,
}

/// The Pods that are being told something, by key, and what is next for each.
pub(super) struct Explaining<B>(HashMap<String, Next<B>>);

enum Next<B> {
    Nothing,
    Explanation(Explanation),
    /// It has a Node now: what is said would come after the binding, and be wrong.
    Binding(B),
}

impl<B> Default for Explaining<B> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<B> Explaining<B> {
    /// Gives the explanation back if nobody tells the Pod anything now. Else it is next, in place of another.
    fn say(&mut self, key: &str, mut explanation: Explanation) -> Option<Explanation> {
        let Some(next) = self.0.get_mut(key) else {
            self.0.insert(key.to_owned(), Next::Nothing);
            return Some(explanation);
        };
        if let Next::Explanation(replaced) = next {
            explanation.node = explanation.node.or_else(|| replaced.node.take());
        }
        *next = Next::Explanation(explanation);
        None
    }

    /// Gives the binding back if nobody tells the Pod anything now. Else it is next, in place of an explanation.
    pub(super) fn bind(&mut self, key: &str, binding: B) -> Option<B> {
        let Some(next) = self.0.get_mut(key) else { return Some(binding) };
        *next = Next::Binding(binding);
        None
    }

    /// The Pod was told; gives what comes next.
    fn go_on(&mut self, key: &str) -> Next<B> {
        match self.0.remove(key) {
            Some(Next::Explanation(next)) => {
                self.0.insert(key.to_owned(), Next::Nothing);
                Next::Explanation(next)
            }
            next => next.unwrap_or(Next::Nothing),
        }
    }
}

impl Scheduler {
    pub(super) fn say_why(&mut self, explanation: Explanation) {
        let key = key_of(&explanation.pod);
        if let Some(explanation) = self.explaining.say(&key, explanation) {
            let conditions = explanation.pod.status.as_ref().and_then(|status| status.conditions.as_deref());
            let known =
                conditions.unwrap_or_default().iter().find(|condition| condition.type_ == "PodScheduled");
            let is_known = known.is_some_and(|known| {
                known.status == "False" && known.message.as_deref() == Some(&explanation.why.1)
            });
            self.explain(key, explanation, is_known);
        }
    }

    /// The Pod was told why it has no Node.
    pub(super) fn said(&mut self, key: String) {
        match self.explaining.go_on(&key) {
            Next::Nothing => {}
            // What its status says since then is still on its way to us.
            Next::Explanation(next) => self.explain(key, next, false),
            Next::Binding(binding) => self.ready.push_back(binding),
        }
    }

    fn explain(&mut self, key: String, explanation: Explanation, is_known: bool) {
        self.at_work += 1;
        let (executor, finished, now) = (self.executor.clone(), self.finished.clone(), self.clock.now());
        self.tasks.spawn("explain", async move {
            let revision = explanation.revision;
            for action in actions(explanation, is_known, now) {
                if let Err(error) = cause::with(revision, executor.carry_out(action)).await {
                    tracing::info!(%error, "could not say why a pod is unschedulable");
                }
            }
            report(&finished, Progress::Said(key)).await;
        });
    }
}

/// The event, the condition unless the Pod has it, and the Node that it waits for.
fn actions(explanation: Explanation, is_known: bool, now: Timestamp) -> Vec<Action> {
    let Explanation { pod, why: (reason, why), node, .. } = explanation;
    let mut actions = vec![event(&pod, &pod, EventType::Warning, "FailedScheduling", why.clone())];
    if !is_known {
        actions.push(condition(&pod, reason, why, now));
    }
    actions.extend(node.map(|node| nominating(&pod, node.as_deref())));
    actions
}

/// The condition; no other Pod of that name gets it.
fn condition(pod: &Pod, reason: &str, why: String, now: Timestamp) -> Action {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let before = conditions.iter().find(|known| known.type_ == "PodScheduled" && known.status == "False");
    let since = before.and_then(|before| before.last_transition_time.clone());
    let since = since.map_or(now, |time| time.0).strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let condition = json!({
        "type": "PodScheduled",
        "status": "False",
        "reason": reason,
        "message": why,
        "lastTransitionTime": since,
    });
    let patch = json!({ "metadata": { "uid": pod.metadata.uid }, "status": { "conditions": [condition] } });
    let (namespace, name) = names(pod);
    Action::patch_status::<Pod>(namespace, name, Patch::Strategic(patch))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transform::parse;

    fn explanation(why: &str, node: Option<Option<&str>>) -> Explanation {
        let pod = Arc::new(parse("{metadata: {name: p, namespace: d, uid: u}, spec: {containers: []}}"));
        let node = node.map(|node| node.map(str::to_owned));
        Explanation { pod, revision: 1, why: ("Unschedulable", why.to_owned()), node }
    }

    fn next(explaining: &mut Explaining<&str>) -> String {
        match explaining.go_on("d/p") {
            Next::Nothing => "nothing".to_owned(),
            Next::Explanation(Explanation { why: (_, why), node, .. }) => format!("{why} {node:?}"),
            Next::Binding(binding) => binding.to_owned(),
        }
    }

    #[test]
    fn a_pod_is_told_one_thing_at_a_time_and_the_newest_last() {
        let mut explaining = Explaining::default();
        assert!(explaining.say("d/p", explanation("first", None)).is_some());
        assert!(explaining.say("d/other", explanation("another's", None)).is_some());
        assert!(explaining.say("d/p", explanation("second", Some(Some("a")))).is_none());
        assert!(explaining.say("d/p", explanation("third", None)).is_none());
        // What was to be said of its Node is not lost with the reason.
        assert_eq!(next(&mut explaining), r#"third Some(Some("a"))"#);
        assert!(explaining.say("d/p", explanation("fourth", Some(None))).is_none());
        assert_eq!(next(&mut explaining), "fourth Some(None)");
        assert_eq!(next(&mut explaining), "nothing");
        assert!(explaining.say("d/p", explanation("fifth", None)).is_some());
    }

    #[test]
    fn a_binding_waits_until_the_pod_was_told_and_comes_in_place_of_what_is_no_longer_so() {
        let mut explaining = Explaining::default();
        assert_eq!(explaining.bind("d/p", "at once"), Some("at once"));
        assert!(explaining.say("d/p", explanation("first", None)).is_some());
        assert!(explaining.say("d/p", explanation("second", None)).is_none());
        assert_eq!(explaining.bind("d/p", "bound"), None);
        assert_eq!(next(&mut explaining), "bound");
        assert_eq!(explaining.bind("d/p", "again"), Some("again"));
    }

    #[test]
    fn the_condition_is_for_this_pod_and_only_if_it_is_news() {
        let texts = |is_known| {
            let actions = actions(explanation("why", Some(None)), is_known, Timestamp::UNIX_EPOCH);
            actions.iter().map(|action| format!("{action:?}")).collect::<Vec<_>>()
        };
        let said = texts(false);
        assert_eq!(said.len(), 3);
        assert!(said[1].contains("PodScheduled") && said[1].contains(r#""uid": String("u")"#), "{}", said[1]);
        assert_eq!(texts(true).len(), 2);
    }
}
