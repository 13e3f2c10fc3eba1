//! The content that is left in a namespace of resources that no informer knows, custom objects for example, or whose
//! informer has not seen the deletion yet.
//!
//! Upstream's controller goes by the server's discovery for every resource; here informers know most of them, and only
//! the rest is asked for, when the namespace is about to be finalized.

use std::sync::Arc;
use std::time::Duration;

use controller::question::{Answer, Content};
use controller::{Action, Answers, Discovered, Discovery, Propagation, Question, ResourceRef};
use jiff::Timestamp;

use super::deletions;
use crate::kinds::is_event;

/// How old an answer may be.
pub(super) const FRESH: Duration = Duration::from_secs(10);

/// The knowledge of resources that no informer knows.
#[derive(Clone, Debug)]
pub enum Foreign {
    /// These have to be answered first.
    Ask(Vec<Question>),
    /// All that there is to know.
    Known(Survey),
}

/// The content that is left, as the server said it.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    /// The content that is left, by resource.
    pub content: Vec<(Discovered, Arc<Content>)>,
    /// The reason why the server could not say which resources there are.
    pub discovery_failure: Option<String>,
    /// Groups and versions whose names are none.
    pub unreadable: Vec<String>,
    /// The reason why it could not say what is left.
    pub content_failures: Vec<String>,
}

impl Foreign {
    /// What was answered since the namespace took nothing new any more, and not long ago.
    pub(super) fn gather(
        answers: &Answers,
        namespace: &str,
        is_known: impl Fn(&ResourceRef) -> bool,
        not_before: Timestamp,
    ) -> Self {
        let discovery = match answers.resources(not_before) {
            None => return Self::Ask(vec![Question::Resources]),
            Some(Err(error)) => {
                let discovery_failure = Some(error.to_string());
                return Self::Known(Survey { discovery_failure, ..Survey::default() });
            }
            Some(Ok(discovery)) => discovery,
        };
        let mut survey = Survey {
            discovery_failure: failure(&discovery),
            unreadable: discovery.unreadable.clone(),
            ..Survey::default()
        };
        let mut questions = Vec::new();
        for found in
            discovery.resources.iter().filter(|found| can_be_left(found) && !is_known(&found.resource))
        {
            let question = Question::Content(found.resource.clone(), namespace.to_owned());
            match answers.get(&question, not_before) {
                Some(Ok(Answer::Content(content))) => survey.content.push((found.clone(), content)),
                Some(Err(error)) => survey.content_failures.push(error.to_string()),
                _ => questions.push(question),
            }
        }
        survey.content.retain(|(_, content)| !content.objects.is_empty() || content.others > 0);
        if questions.is_empty() { Self::Known(survey) } else { Self::Ask(questions) }
    }
}

/// Source: `namespaceConditionUpdater.ProcessDiscoverResourcesErr`.
fn failure(discovery: &Discovery) -> Option<String> {
    let failing = discovery.failed.len();
    discovery.failure().map(|what| format!("Discovery failed for some groups, {failing} failing: {what}"))
}

/// Whether objects of this resource can be left in a namespace. Events go at the end.
fn can_be_left(found: &Discovered) -> bool {
    let resource = &found.resource;
    resource.namespaced && found.allows(&["delete", "list"]) && !is_event(resource)
}

impl Survey {
    /// Whether it is certain that nothing is left.
    pub(super) fn is_empty(&self) -> bool {
        self.content.is_empty()
            && self.discovery_failure.is_none()
            && self.unreadable.is_empty()
            && self.content_failures.is_empty()
    }

    /// What deletes all that is not on its way out yet.
    pub(super) fn deletions(&self, namespace: &str) -> Vec<Action> {
        let of = |(found, content): &(Discovered, Arc<Content>)| {
            let each: Vec<Action> = deletions(&found.resource, &content.objects).collect();
            if (each.is_empty() && content.others == 0) || !found.allows(&["deletecollection"]) {
                return each;
            }
            vec![Action::delete_collection(found.resource.clone(), namespace, Propagation::Background)]
        };
        self.content.iter().flat_map(of).collect()
    }

    /// What to ask once that is done.
    pub(super) fn questions_after(&self, namespace: &str) -> Vec<Question> {
        let is_going = |(found, content): &&(Discovered, Arc<Content>)| {
            content.others > 0 || deletions(&found.resource, &content.objects).next().is_some()
        };
        let going = self.content.iter().filter(is_going);
        going.map(|(found, _)| Question::Content(found.resource.clone(), namespace.to_owned())).collect()
    }
}
