//! What can be said of an object of any kind: that no part acts on it, that it waits for its finalizers, what its
//! conditions and Events say.

use machinery::unserved::unserved as row_of;
use serde_json::Value;

use super::{Found, Reason, Snapshot, list, reference, text, warnings};

/// Conditions that are well when they are False. Source: the kinds' API references; all others are well when True.
const BAD_WHEN_TRUE: &[&str] = &[
    "Failed",
    "FailureTarget",
    "ReplicaFailure",
    "ScalingLimited",
    "NonStructuralSchema",
    "Terminating",
    "Stalled",
    "Dangling",
    "NamespaceDeletionDiscoveryFailure",
    "NamespaceDeletionGroupVersionParsingFailure",
    "NamespaceDeletionContentFailure",
    "NamespaceContentRemaining",
    "NamespaceFinalizersRemaining",
];

/// Whether no part of this version acts on it.
pub(super) fn lacks_its_part(object: &Value, group: &str, plural: &str) -> bool {
    row_of(group, plural).is_some() && text(object, "/metadata/deletionTimestamp").is_empty()
}

pub(super) fn unserved(object: &Value, group: &str, plural: &str) -> Found {
    let what = row_of(group, plural).map(ToString::to_string).unwrap_or_default();
    (false, "is not acted on".into(), vec![Reason::new(&reference(object), what)])
}

pub(super) fn explain(snapshot: &Snapshot, subject: &Value) -> Found {
    let object = reference(subject);
    let mut reasons: Vec<Reason> = deletion(subject).into_iter().collect();
    let ill = list(subject, "/status/conditions").iter().filter(|condition| is_ill(condition));
    reasons.extend(ill.map(|condition| {
        let [kind, status, reason, message] =
            ["/type", "/status", "/reason", "/message"].map(|path| text(condition, path));
        let said = if message.is_empty() { reason } else { message };
        Reason::new(&object, format!("{kind} is {status}: {said}"))
    }));
    reasons.extend(warnings(snapshot, subject).into_iter().map(|what| Reason::new(&object, what)));
    let summary = match text(subject, "/metadata/deletionTimestamp").is_empty() {
        false => "is being deleted",
        true if reasons.is_empty() => "is there, and nothing is said against it",
        true => "is there, but not well",
    };
    (reasons.is_empty(), summary.into(), reasons)
}

fn is_ill(condition: &Value) -> bool {
    let [kind, status] = ["/type", "/status"].map(|path| text(condition, path));
    let well = if BAD_WHEN_TRUE.contains(&kind) { "False" } else { "True" };
    !status.is_empty() && status != well
}

/// What holds up an object that was deleted.
fn deletion(subject: &Value) -> Option<Reason> {
    if text(subject, "/metadata/deletionTimestamp").is_empty() {
        return None;
    }
    let finalizers: Vec<&str> = ["/metadata/finalizers", "/spec/finalizers"]
        .into_iter()
        .flat_map(|path| list(subject, path))
        .filter_map(Value::as_str)
        .collect();
    if finalizers.is_empty() {
        return Some(Reason::new(&reference(subject), "nothing holds it: it goes at once"));
    }
    let what = format!("finalizers keep it: {}", finalizers.join(", "));
    let fix = "whoever set them must remove them when its work is done";
    Some(Reason::new(&reference(subject), what).fix(fix))
}
