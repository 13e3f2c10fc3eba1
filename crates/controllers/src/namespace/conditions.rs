//! Conditions that say what a namespace waits for. Source: `NamespaceConditionType`, core/v1, and
//! `pkg/controller/namespace/deletion/status_condition_utils.go`.

use std::collections::BTreeMap;
use std::sync::Arc;

use controller::informer::PartialObject;
use controller::metadata::time;
use controller::plan::FAILURE;
use controller::{Action, ResourceRef};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, NamespaceCondition};

use super::Survey;

/// What the conditions follow from.
pub(super) struct Facts {
    /// Lines such as `pods. has 1 resource instances`.
    remaining: Vec<String>,
    finalizers: BTreeMap<String, usize>,
    discovery_failure: Option<String>,
    unreadable: Vec<String>,
    content_failures: Vec<String>,
}

/// What one condition says.
struct Told {
    type_: &'static str,
    /// What is wrong, if anything is: then the condition is true.
    wrong: Option<String>,
    /// The reasons when something is wrong and when nothing is.
    reasons: [&'static str; 2],
    /// What is said when nothing is wrong.
    well: &'static str,
}

impl Facts {
    pub(super) fn of(content: &[(ResourceRef, Vec<Arc<PartialObject>>)], survey: &Survey) -> Self {
        let known = content.iter().map(|(resource, objects)| (resource, objects.as_slice(), 0));
        let foreign = survey
            .content
            .iter()
            .map(|(found, content)| (&found.resource, content.objects.as_slice(), content.others));
        let (mut remaining, mut finalizers) = (Vec::new(), BTreeMap::new());
        for (resource, objects, others) in known.chain(foreign) {
            let (plural, group, count) = (&resource.plural, &resource.group, objects.len() + others);
            remaining.push(format!("{plural}.{group} has {count} resource instances"));
            for finalizer in objects.iter().flat_map(|object| object.metadata.finalizers.iter().flatten()) {
                *finalizers.entry(finalizer.clone()).or_default() += 1;
            }
        }
        remaining.sort();
        Self {
            remaining,
            finalizers,
            discovery_failure: survey.discovery_failure.clone(),
            unreadable: survey.unreadable.clone(),
            content_failures: survey.content_failures.clone(),
        }
    }

    /// The same when something could not be deleted.
    pub(super) fn failing(&self) -> Self {
        let mut content_failures = self.content_failures.clone();
        content_failures.push(FAILURE.to_owned());
        Self {
            remaining: self.remaining.clone(),
            finalizers: self.finalizers.clone(),
            discovery_failure: self.discovery_failure.clone(),
            unreadable: self.unreadable.clone(),
            content_failures,
        }
    }

    fn told(&self) -> [Told; 5] {
        let unreadable = self.unreadable.first();
        let failures = (!self.content_failures.is_empty()).then(|| {
            let (count, all) = (self.content_failures.len(), self.content_failures.join(", "));
            format!("Failed to delete all resource types, {count} remaining: {all}")
        });
        let remaining = (!self.remaining.is_empty())
            .then(|| format!("Some resources are remaining: {}", self.remaining.join(", ")));
        let held: Vec<String> = self
            .finalizers
            .iter()
            .map(|(finalizer, count)| format!("{finalizer} in {count} resource instances"))
            .collect();
        let held = (!held.is_empty())
            .then(|| format!("Some content in the namespace has finalizers remaining: {}", held.join(", ")));
        [
            Told {
                type_: "NamespaceDeletionDiscoveryFailure",
                wrong: self.discovery_failure.clone(),
                reasons: ["DiscoveryFailed", "ResourcesDiscovered"],
                well: "All resources successfully discovered",
            },
            Told {
                type_: "NamespaceDeletionGroupVersionParsingFailure",
                wrong: unreadable.map(|place| format!("unexpected GroupVersion string: {place}")),
                reasons: ["GroupVersionParsingFailed", "ParsedGroupVersions"],
                well: "All legacy kube types successfully parsed",
            },
            Told {
                type_: "NamespaceDeletionContentFailure",
                wrong: failures,
                reasons: ["ContentDeletionFailed", "ContentDeleted"],
                well: "All content successfully deleted, may be waiting on finalization",
            },
            Told {
                type_: "NamespaceContentRemaining",
                wrong: remaining,
                reasons: ["SomeResourcesRemain", "ContentRemoved"],
                well: "All content successfully removed",
            },
            Told {
                type_: "NamespaceFinalizersRemaining",
                wrong: held,
                reasons: ["SomeFinalizersRemain", "ContentHasNoFinalizers"],
                well: "All content-preserving finalizers finished",
            },
        ]
    }
}

/// Writes the conditions if any of them changes; those of others stay.
pub(super) fn report(namespace: &Namespace, facts: &Facts, now: Timestamp) -> Option<Action> {
    let old = namespace.status.clone().unwrap_or_default();
    let mut new = old.clone();
    new.phase = Some("Terminating".to_owned());
    let conditions = new.conditions.get_or_insert_default();
    for Told { type_, wrong, reasons: [bad, good], well } in facts.told() {
        let (status, reason) = if wrong.is_some() { ("True", bad) } else { ("False", good) };
        let message = wrong.unwrap_or_else(|| well.to_owned());
        let known = conditions.iter_mut().find(|condition| condition.type_ == type_);
        let since = known.as_ref().filter(|known| known.status == status);
        let condition = NamespaceCondition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message),
            last_transition_time: since
                .and_then(|known| known.last_transition_time.clone())
                .or_else(|| Some(time(now))),
        };
        match known {
            Some(known) => *known = condition,
            None => conditions.push(condition),
        }
    }
    (old != new).then(|| Action::update_status(&Namespace { status: Some(new), ..namespace.clone() }))
}
