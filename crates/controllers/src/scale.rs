//! The subresource `scale` of anything that has one: found by discovery, asked for where no informer knows it.

use controller::discovery::Served;
use controller::question::{Answer, Scale};
use controller::{Answers, AskError, Question, ResourceRef};
use jiff::{SignedDuration, Timestamp};

/// How old an answer about all kinds may be that does not name one.
const DISCOVERY_FRESH: SignedDuration = SignedDuration::from_secs(30);

/// What may have a scale.
pub(crate) struct Target<'a> {
    pub(crate) api_version: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
}

impl Target<'_> {
    fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }
}

/// The reason why the scale of something cannot be known. The words are upstream's.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ScaleError {
    /// The server did not answer.
    #[error(transparent)]
    Unanswered(#[from] AskError),
    /// What the group-version has cannot be discovered.
    #[error("{0}")]
    Undiscovered(String),
    /// There is no such kind.
    #[error("no matches for kind {kind:?} in version {api_version:?}")]
    NoKind {
        /// The kind.
        kind: String,
        /// Its version.
        api_version: String,
    },
    /// The resource has none.
    #[error("{0} does not implement the scale subresource")]
    NoScale(String),
    /// There is no such object.
    #[error("{resource} \"{name}\" not found")]
    NotFound {
        /// The resource's full name.
        resource: String,
        /// The object's.
        name: String,
    },
    /// A Pod is of nobody who would say.
    #[error("found no controllers for pod {0:?}")]
    NoController(String),
}

/// Of which resource the target is and what its scale says, if it is there; or why that cannot be known.
pub(crate) type Known = Result<(ResourceRef, Option<Scale>), ScaleError>;

/// What is known of the target's scale, if that was asked at `not_before` or later; or what has to be asked first.
pub(crate) fn ask(
    served: &Served,
    answers: &Answers,
    target: &Target<'_>,
    not_before: Timestamp,
) -> Result<Known, Box<Question>> {
    let Some(found) = served.by_kind(target.group(), target.kind) else {
        return match answers.resources(not_before - DISCOVERY_FRESH) {
            None => Err(Box::new(Question::Resources)),
            Some(Err(error)) => Ok(Err(error.into())),
            Some(Ok(_)) => Ok(Err(unknown(served, target))),
        };
    };
    let resource = &found.resource;
    if !found.subresources.iter().any(|name| name == "scale") {
        return Ok(Err(ScaleError::NoScale(resource.full_name())));
    }
    let namespace = if resource.namespaced { target.namespace } else { "" };
    let question = Question::Scale(resource.clone(), namespace.to_owned(), target.name.to_owned());
    match answers.get(&question, not_before) {
        None => Err(Box::new(question)),
        Some(Ok(Answer::Scale(scale))) => Ok(Ok((resource.clone(), scale))),
        Some(Ok(_)) => Ok(Ok((resource.clone(), None))),
        Some(Err(error)) => Ok(Err(error.into())),
    }
}

/// That a group cannot be discovered does not mean that it has no such kind.
fn unknown(served: &Served, target: &Target<'_>) -> ScaleError {
    let Target { api_version, kind, .. } = target;
    match served.failed().get(*api_version) {
        Some(why) => ScaleError::Undiscovered(why.clone()),
        None => ScaleError::NoKind { kind: (*kind).to_owned(), api_version: (*api_version).to_owned() },
    }
}
