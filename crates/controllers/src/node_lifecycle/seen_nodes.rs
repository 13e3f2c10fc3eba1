//! The nodes that this process has seen: it tells of those that come and go.

use std::collections::BTreeMap;

use controller::metadata::uid;
use controller::{Action, EventType};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::Mutex;

/// The uids of nodes, by name.
#[derive(Debug, Default)]
pub(super) struct SeenNodes(Mutex<BTreeMap<String, String>>);

impl SeenNodes {
    /// What is to be told of the node of this name, as it is now.
    pub(super) fn tell(&self, name: &str, node: Option<&Node>) -> Vec<Action> {
        let mut known = self.0.lock();
        let now = node.map(|node| uid(&node.metadata).to_owned());
        let before = match &now {
            Some(uid) => known.insert(name.to_owned(), uid.clone()),
            None => known.remove(name),
        };
        if before == now {
            return Vec::new();
        }
        let told = |uid: String, reason: &str, message: String| {
            let metadata =
                ObjectMeta { name: Some(name.to_owned()), uid: Some(uid), ..ObjectMeta::default() };
            Action::event(&Node { metadata, ..Node::default() }, EventType::Normal, reason, message)
        };
        let went =
            before.map(|uid| told(uid, "RemovingNode", format!("Removing Node {name} from Controller")));
        let came =
            now.map(|uid| told(uid, "RegisteredNode", format!("Registered Node {name} in Controller")));
        went.into_iter().chain(came).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::parse;

    #[test]
    fn nodes_are_told_of_once_when_they_come_and_when_they_go() {
        let known = SeenNodes::default();
        for (uid, expect) in [
            (None, ""),
            (Some("a"), "a RegisteredNode: Registered Node one in Controller"),
            (Some("a"), ""),
            (
                Some("b"),
                "a RemovingNode: Removing Node one from Controller b RegisteredNode: Registered Node one in Controller",
            ),
            (None, "b RemovingNode: Removing Node one from Controller"),
            (None, ""),
        ] {
            let node = uid.map(|uid| parse::<Node>(&format!("{{metadata: {{name: one, uid: {uid}}}}}")));
            let told = known.tell("one", node.as_ref());
            let text = |action: &Action| match action {
                Action::Event(event) => {
                    let uid = event.regarding.uid.clone().unwrap_or_default();
                    format!("{uid} {}: {}", event.reason, event.message)
                }
                Action::Request(_) | Action::Count(_) | Action::Operation(_) => unreachable!("{action:?}"),
            };
            assert_eq!(told.iter().map(text).collect::<Vec<_>>().join(" "), expect, "{uid:?}");
        }
    }
}
