//! The confirmation of a binding: a Pod is bound, and it is known for certain whether it is.
//!
//! An answer that is lost says nothing: the Pod may be bound, or be bound yet. Who took its resources back then would give them
//! to somebody else. Upstream does, and leaves it to the kubelet to refuse one of the two.

use std::time::Duration;

use controller::pod::Pod;
use controller::{Action, ActionExecutor, Undone, request};
use serde_json::json;

use crate::pod::{names, uid};

/// Before a Pod is looked at of which nobody knows whether it is bound, at first and at most.
const LOOK_AFTER: Duration = Duration::from_secs(1);
const LOOK_AFTER_MAX: Duration = Duration::from_secs(10);

/// The Node of a Pod, compared with the one that it is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Assignment {
    /// It is that Node.
    Bound,
    /// It has none.
    Unbound,
    /// It is another, or the Pod is gone.
    Elsewhere,
}

/// What is known of a binding so far.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    End(Result<(), Undone>),
    TryAgain,
}

/// Binds the Pod; ends when it is known what became of it.
///
/// # Errors
/// Why it is not bound.
pub(super) async fn bind(
    client: &kube::Client,
    executor: &ActionExecutor,
    pod: &Pod,
    node: &str,
) -> Result<(), Undone> {
    let (namespace, name) = names(pod);
    let mut undone = match executor.carry_out(binding(pod, node)).await {
        Ok(()) => return Ok(()),
        Err(refused @ Undone::Refused(_)) => return Err(refused),
        Err(open) => open,
    };
    let mut wait = LOOK_AFTER;
    loop {
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(LOOK_AFTER_MAX);
        let Some(assignment) = assignment(request::get(client, namespace, name).await, uid(pod), node) else {
            continue;
        };
        if let Step::End(ended) = next(assignment, &undone) {
            return ended;
        }
        match executor.carry_out(binding(pod, node)).await {
            Ok(()) => return Ok(()),
            Err(again) => undone = again,
        }
    }
}

/// Nothing if the API server does not say.
fn assignment(found: Result<Pod, kube::Error>, of: &str, node: &str) -> Option<Assignment> {
    let pod = match found {
        Ok(pod) => pod,
        Err(kube::Error::Api(status)) if status.code < 500 => return Some(Assignment::Elsewhere),
        Err(_) => return None,
    };
    let on = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
    Some(match on {
        _ if uid(&pod) != of => Assignment::Elsewhere,
        "" => Assignment::Unbound,
        on if on == node => Assignment::Bound,
        _ => Assignment::Elsewhere,
    })
}

/// A Pod without a Node may get it yet by the request that was not answered; by the next one for certain, or not at all.
fn next(assignment: Assignment, undone: &Undone) -> Step {
    match (assignment, undone) {
        (Assignment::Bound, _) => Step::End(Ok(())),
        (Assignment::Unbound, Undone::Open(_)) => Step::TryAgain,
        (Assignment::Unbound | Assignment::Elsewhere, undone) => Step::End(Err(undone.clone())),
    }
}

fn binding(pod: &Pod, node: &str) -> Action {
    let (namespace, name) = names(pod);
    let body = json!({
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": { "name": name, "namespace": namespace, "uid": uid(pod) },
        "target": { "apiVersion": "v1", "kind": "Node", "name": node },
    });
    Action::create_subresource::<Pod>(namespace, name, "binding", body)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(uid: &str, node: Option<&str>) -> Result<Pod, kube::Error> {
        let pod =
            json!({"metadata": {"name": "p", "uid": uid}, "spec": {"containers": [], "nodeName": node}});
        Ok(serde_json::from_value(pod).expect("a Pod"))
    }

    fn answered(code: u16) -> Result<Pod, kube::Error> {
        let status = json!({"status": "Failure", "code": code, "message": "m", "reason": "r"});
        Err(kube::Error::Api(serde_json::from_value(status).expect("a Status")))
    }

    #[test]
    fn only_what_the_server_says_counts() {
        let check = |found, expect| assert_eq!(assignment(found, "u", "n"), expect);
        check(pod("u", Some("n")), Some(Assignment::Bound));
        check(pod("u", None), Some(Assignment::Unbound));
        check(pod("u", Some("")), Some(Assignment::Unbound));
        check(pod("u", Some("m")), Some(Assignment::Elsewhere));
        check(pod("other", Some("n")), Some(Assignment::Elsewhere));
        check(answered(404), Some(Assignment::Elsewhere));
        check(answered(500), None);
        check(answered(504), None);
        check(Err(kube::Error::LinesCodecMaxLineLengthExceeded), None);
    }

    #[test]
    fn it_ends_when_it_is_known() {
        let (open, refused) = (Undone::Open("late".into()), Undone::Refused("no".into()));
        let check = |assignment, undone: &Undone, expect| {
            assert_eq!(next(assignment, undone), expect, "{assignment:?} {undone:?}")
        };
        check(Assignment::Bound, &open, Step::End(Ok(())));
        check(Assignment::Unbound, &open, Step::TryAgain);
        check(Assignment::Elsewhere, &open, Step::End(Err(open.clone())));
        // The first request has arrived before the second, which was refused therefore.
        check(Assignment::Bound, &refused, Step::End(Ok(())));
        check(Assignment::Unbound, &refused, Step::End(Err(refused.clone())));
        check(Assignment::Elsewhere, &refused, Step::End(Err(refused.clone())));
    }
}
