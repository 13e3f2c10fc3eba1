//! The number of Pods that a controller wants: built-in ones say so in their spec, all others by their subresource
//! `scale`.
//!
//! Source: the finders of `pkg/controller/disruption`, `getScaleController` above all.

use std::time::Duration;

use controller::discovery::{Served, Watcher};
use controller::metadata::{controller_of, uid};
use controller::{Answers, Informers, Question};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::ReplicationController;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use crate::scale::{self, ScaleError, Target};

/// How old an answer about one object may be: no informer tells when it changes, but Pods do that come and go after it.
const FRESH: Duration = Duration::from_secs(5);

/// How many Pods a controller wants, if it is there, or why that cannot be known.
type Scale = Result<Option<i32>, ScaleError>;

/// What a controller in `place` wants, or what has to be asked first.
pub(super) fn of(
    informers: &Informers,
    owner: &OwnerReference,
    place: &str,
    now: Timestamp,
) -> Result<Scale, Box<Question>> {
    let (group, kind) = kind_of(owner);
    let is_built_in =
        matches!((group, kind), ("apps", "ReplicaSet" | "StatefulSet") | ("", "ReplicationController"));
    if is_built_in {
        return Ok(Ok(built_in(informers, owner, place)));
    }
    asked(&Watcher::of(informers).served(), &Answers::of(informers), owner, place, now)
}

/// A ReplicaSet of a Deployment wants as many as that.
fn built_in(informers: &Informers, owner: &OwnerReference, place: &str) -> Option<i32> {
    let key = format!("{place}/{}", owner.name);
    let is_it = |meta: &ObjectMeta| uid(meta) == owner.uid;
    let replicas = match owner.kind.as_str() {
        "ReplicaSet" => {
            let set = informers.informer::<ReplicaSet>().get(&key).filter(|set| is_it(&set.metadata))?;
            let of = controller_of(&set.metadata).filter(|of| kind_of(of) == ("apps", "Deployment"));
            let deployment = of.and_then(|of| {
                let found = informers.informer::<Deployment>().get(&format!("{place}/{}", of.name));
                found.filter(|found| uid(&found.metadata) == of.uid)
            });
            match deployment {
                Some(deployment) => deployment.spec.as_ref()?.replicas,
                None => set.spec.as_ref()?.replicas,
            }
        }
        "StatefulSet" => {
            let set = informers.informer::<StatefulSet>().get(&key).filter(|set| is_it(&set.metadata))?;
            set.spec.as_ref()?.replicas
        }
        _ => {
            let found = informers.informer::<ReplicationController>().get(&key);
            found.filter(|found| is_it(&found.metadata))?.spec.as_ref()?.replicas
        }
    };
    Some(replicas.unwrap_or(1))
}

fn asked(
    served: &Served,
    answers: &Answers,
    owner: &OwnerReference,
    place: &str,
    now: Timestamp,
) -> Result<Scale, Box<Question>> {
    let OwnerReference { api_version, kind, name, .. } = owner;
    let target = Target { api_version, kind, namespace: place, name };
    let known = scale::ask(served, answers, &target, now - FRESH)?;
    Ok(known.map(|(_, scale)| scale.filter(|scale| scale.uid == owner.uid).map(|scale| scale.replicas)))
}

fn kind_of(owner: &OwnerReference) -> (&str, &str) {
    (owner.api_version.split_once('/').map_or("", |(group, _)| group), &owner.kind)
}

#[cfg(test)]
mod tests {
    use controller::question::{self, Answer};
    use controller::{Discovered, Discovery, ResourceRef};

    use super::*;
    use crate::fixture::{noon, parse, unanswered};

    type Said = Result<Result<Option<i32>, String>, Box<Question>>;

    fn said(found: Result<Scale, Box<Question>>) -> Said {
        found.map(|scale| scale.map_err(|error| error.to_string()))
    }

    fn rollouts(subresources: &[&str]) -> Discovery {
        let resource = ResourceRef {
            group: "example.com".into(),
            version: "v1".into(),
            kind: "Rollout".into(),
            plural: "rollouts".into(),
            namespaced: true,
        };
        let subresources = subresources.iter().map(|&name| name.to_owned()).collect();
        let resources = vec![Discovered { resource, verbs: Vec::new(), subresources }];
        Discovery { resources, ..Discovery::default() }
    }

    #[test]
    fn a_controller_of_another_kind_is_asked_for_its_scale() {
        let owner = parse("{apiVersion: example.com/v1, kind: Rollout, name: web, uid: u1}");
        let answers = Answers::default();
        let look_up = |served: &Served| said(asked(served, &answers, &owner, "team", noon()));
        let nothing = Served::default();
        assert_eq!(look_up(&nothing), Err(Box::new(Question::Resources)));
        answers.put(Question::Resources, noon(), Err(unanswered("away")));
        assert_eq!(look_up(&nothing), Ok(Err("away".into())));
        answers.put(Question::Resources, noon(), Ok(Answer::Resources(Default::default())));
        let told = "no matches for kind \"Rollout\" in version \"example.com/v1\"";
        assert_eq!(look_up(&nothing), Ok(Err(told.into())));
        let failed =
            Discovery { failed: [("example.com/v1".into(), "stale".into())].into(), ..Discovery::default() };
        assert_eq!(look_up(&nothing.after(&Ok(failed))), Ok(Err("stale".into())));

        let without = nothing.after(&Ok(rollouts(&["status"])));
        let told = "rollouts.example.com does not implement the scale subresource";
        assert_eq!(look_up(&without), Ok(Err(told.into())));
        let served = nothing.after(&Ok(rollouts(&["scale", "status"])));
        let question = match look_up(&served) {
            Err(question) => *question,
            other => panic!("{other:?}"),
        };
        assert!(
            matches!(&question, Question::Scale(_, place, name) if (place.as_str(), name.as_str()) == ("team", "web"))
        );
        let scale = |uid: &str| {
            Ok(Answer::Scale(Some(question::Scale { uid: uid.into(), replicas: 7, ..Default::default() })))
        };
        for (answer, expect) in [
            (scale("u1"), Ok(Some(7))),
            (scale("other"), Ok(None)),
            (Ok(Answer::Scale(None)), Ok(None)),
            (Err(unanswered("forbidden")), Err("forbidden".to_owned())),
        ] {
            answers.put(question.clone(), noon(), answer);
            assert_eq!(look_up(&served), Ok(expect));
        }
        let later = said(asked(&served, &answers, &owner, "team", noon() + Duration::from_secs(6)));
        assert_eq!(later, Err(Box::new(question)));
    }
}
