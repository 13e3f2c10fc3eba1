//! Owners of kinds that no informer knows: custom objects, for example. The server is asked for each.
//!
//! That one is gone counts only when the server knows its kind and says that this object is not there. Source:
//! `isDangling` in `pkg/controller/garbagecollector`.

use std::time::Duration;

use controller::question::Answer;
use controller::{Answers, Question};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use super::{Owner, kind_of, state_of};

/// How old an answer may be.
const FRESH: Duration = Duration::from_secs(30);

/// What is known about an owner of something in `namespace`, or what has to be asked first.
pub(super) fn look_up(
    answers: &Answers,
    owner: &OwnerReference,
    namespace: &str,
    now: Timestamp,
) -> Result<Owner, Box<Question>> {
    let not_before = now - FRESH;
    let discovery = match answers.resources(not_before) {
        None => return Err(Box::new(Question::Resources)),
        Some(Err(_)) => return Ok(Owner::Unknown),
        Some(Ok(discovery)) => discovery,
    };
    let (group, kind) = kind_of(owner);
    let Some(found) = discovery.by_kind(group, kind) else { return Ok(Owner::Unknown) };
    let resource = &found.resource;
    if resource.namespaced && namespace.is_empty() {
        return Ok(Owner::Impossible);
    }
    let place = if resource.namespaced { namespace } else { "" };
    let (name, uid) = (owner.name.clone(), owner.uid.clone());
    let question = Question::Object(resource.clone(), place.to_owned(), name, uid);
    match answers.get(&question, not_before) {
        Some(Ok(Answer::Object(Some(found)))) => Ok(state_of(&found.metadata, Owner::SolidForeign)),
        Some(Ok(Answer::Object(None))) => Ok(Owner::Gone),
        Some(_) => Ok(Owner::Unknown),
        None => Err(Box::new(question)),
    }
}
