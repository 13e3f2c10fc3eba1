//! Keeps the APIServices of what this server serves: of built-in group-versions, and of those that
//! CustomResourceDefinitions make as they come and go.
//!
//! Which ones are its own is said by a label. What people make of a built-in one stays until the next start, as upstream; one
//! that is gone is made again. Those of CustomResourceDefinitions are kept as they must be, always.
//!
//! Source: `autoRegisterController` of `k8s.io/kube-aggregator`, `pkg/controlplane/controller/crdregistration`.

use std::collections::BTreeMap;
use std::time::Duration;

use base::Backoff;
use machinery::metadata::{self, Metadata};
use serde::Deserialize;
use serde_json::{Value, json};
use tracing::warn;

use super::parsed::Parsed;
use crate::api::Api;
use crate::bootstrap::api_services::{MANAGED, ON_START, api_service, api_services};
use crate::cache::watcher_index::IndexKey;
use crate::catalogue::priorities::{DEFINED, OWN_GROUP};
use crate::kinds::{GroupVersionResource, Part};
use crate::request;
use crate::request_info::Verb;
use crate::status::Result;
use crate::write::Decoded;
use crate::write::change::change;
use crate::write::delete;
use crate::write::loopback::ensure;
use crate::write::options::DeleteOptions;

/// Put right always.
const ALWAYS: &str = "true";
const RESOURCE: GroupVersionResource<'_> = GroupVersionResource::new(OWN_GROUP, "v1", "apiservices");
/// What of an APIService is looked at.
const PARTS: [&str; 4] = ["/metadata/name", "/metadata/labels", "/metadata/uid", "/spec"];
/// After something that failed.
const RETRY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(10));

/// What is to be done about one.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    Create(Value),
    /// The name and the specification.
    Replace(String, Value),
    /// The name and the uid.
    Delete(String, String),
}

/// When a plan is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    Start,
    Later,
}

/// Keeps them for ever.
pub async fn follow(api: &Api) {
    api.wait_bootstrapped().await;
    let kinds = (super::kind(api), api.kind("apiextensions.k8s.io", "v1", "customresourcedefinitions"));
    let (Some(services), Some(definitions)) = kinds else { return };
    let mut backoff = Backoff::new(RETRY.0, RETRY.1, 0.0);
    let mut moment = Moment::Start;
    let (mut defined, mut there) = (Parsed::default(), Parsed::default());
    loop {
        let revision = api.cache.revision();
        let mut changes =
            [services, definitions].map(|kind| kind.cache().watch(revision, IndexKey::Everything));
        let list = |kind: &crate::kinds::Kind| kind.cache().list(kind.prefix(), revision).objects;
        defined.update(list(definitions), |definition| served(&definition.json));
        there.update(list(services), |service| service.part(&PARTS));
        let steps = plan(&wanted(defined.all().flatten()), there.all(), moment);
        let mut is_done = true;
        for step in steps {
            if let Err(failure) = take(api, &step).await {
                warn!(?step, %failure, "an APIService was not kept; it is tried again");
                is_done = false;
            }
        }
        if !is_done {
            tokio::time::sleep(backoff.next(&api.random)).await;
            continue;
        }
        backoff.reset();
        moment = Moment::Later;
        let [one, other] = &mut changes;
        // Either says that something changed, or that too much did: in both cases all is read again.
        tokio::select! {
            _ = one.next() => {}
            _ = other.next() => {}
        }
    }
}

/// A group and one of its versions.
type GroupVersion = (String, String);

/// The group-versions in which a definition wants its objects to be served. Its schemas are passed over: there may be
/// hundreds of definitions, and they are nearly all of each.
fn served(definition: &[u8]) -> Vec<GroupVersion> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Definition {
        spec: Spec,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Spec {
        group: String,
        versions: Vec<Version>,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Version {
        name: String,
        served: bool,
    }
    let Definition { spec } = serde_json::from_slice(definition).unwrap_or_default();
    let served = spec.versions.into_iter().filter(|version| version.served);
    served.map(|version| (spec.group.clone(), version.name)).collect()
}

/// All that there should be, by name.
fn wanted<'a>(served: impl IntoIterator<Item = &'a GroupVersion>) -> BTreeMap<String, Value> {
    let by_name = |object: Value| (Metadata::of(&object).name().to_owned(), object);
    let is_built_in = |(group, version): &(&str, &str)| {
        let mut rows = resources::table().iter().filter(|row| row.is_served());
        rows.any(|row| (&*row.group, &*row.version) == (*group, *version))
    };
    let is_new = |named: &(&str, &str)| !named.0.is_empty() && !is_built_in(named);
    let named = served.into_iter().map(|(group, version)| (group.as_str(), version.as_str()));
    let defined = named.filter(is_new).map(|named| api_service(named, DEFINED, ALWAYS));
    api_services().chain(defined).map(by_name).collect()
}

/// What is to be done, in the order of names.
fn plan<'a>(
    wanted: &BTreeMap<String, Value>,
    there: impl IntoIterator<Item = &'a Value>,
    moment: Moment,
) -> Vec<Step> {
    let found: BTreeMap<&str, &Value> =
        there.into_iter().map(|one| (Metadata::of(one).name(), one)).collect();
    let absent = wanted.iter().filter(|(name, _)| !found.contains_key(name.as_str()));
    let mut steps: Vec<Step> = absent.map(|(_, object)| Step::Create(object.clone())).collect();
    for (name, one) in found {
        let is_kept = match Metadata::of(one).label(MANAGED) {
            Some(ALWAYS) => true,
            Some(ON_START) => moment == Moment::Start,
            _ => false,
        };
        if !is_kept {
            continue;
        }
        match wanted.get(name) {
            None => steps.push(Step::Delete(name.to_owned(), Metadata::of(one).uid().to_owned())),
            Some(object) if !is_as(&one["spec"], &object["spec"]) => {
                steps.push(Step::Replace(name.to_owned(), object["spec"].clone()));
            }
            Some(_) => {}
        }
    }
    steps
}

/// Whether a specification says nothing but what another does.
fn is_as(there: &Value, wanted: &Value) -> bool {
    let set = |spec: &Value| -> BTreeMap<String, Value> {
        let fields = spec.as_object().into_iter().flatten();
        let is_set = |value: &Value| !value.is_null() && *value != Value::Bool(false) && *value != json!("");
        // Core's group is empty, and may be left out.
        fields.filter(|(_, value)| is_set(value)).map(|(name, value)| (name.clone(), value.clone())).collect()
    };
    set(there) == set(wanted)
}

async fn take(api: &Api, step: &Step) -> Result<()> {
    let named = |name: &str| json!({"metadata": {"name": name}});
    match step {
        Step::Create(object) => ensure(api, RESOURCE, "", object.clone()).await,
        Step::Replace(name, spec) => {
            let Some((request, _)) = request::of_server(api, RESOURCE, "", named(name), Verb::Update) else {
                return Ok(());
            };
            let changed = change(api, &request, Part::Object, |old| {
                let mut new = old.clone();
                metadata::remove(&mut new, "resourceVersion");
                new["spec"] = spec.clone();
                Ok(Decoded::of_server(new))
            });
            unless_gone(changed.await.map(drop))
        }
        Step::Delete(name, uid) => {
            let Some((request, _)) = request::of_server(api, RESOURCE, "", named(name), Verb::Delete) else {
                return Ok(());
            };
            let options = DeleteOptions { uid: Some(uid.clone()), ..DeleteOptions::default() };
            unless_gone(delete::delete(api, &request, &options).await.map(drop))
        }
    }
}

/// What somebody else has removed or replaced is looked at again when that is known here.
fn unless_gone(done: Result<()>) -> Result<()> {
    match done {
        Err(failure) if failure.reason == "NotFound" || failure.reason == "Conflict" => Ok(()),
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(group: &str, versions: Value) -> Vec<GroupVersion> {
        served(json!({"kind": "x", "spec": {"group": group, "versions": versions}}).to_string().as_bytes())
    }

    fn as_stored(mut object: Value) -> Value {
        object["metadata"]["uid"] = "u".into();
        object["spec"]["service"] = Value::Null;
        object
    }

    #[test]
    fn only_what_is_served_and_not_built_in_is_registered() {
        let definitions = [
            definition(
                "example.com",
                json!([{"name": "v1", "served": true, "schema": {}}, {"name": "v1beta1", "served": false}]),
            ),
            definition("example.com", json!([{"name": "v1", "served": true}])),
            definition("apps", json!([{"name": "v1", "served": true}])),
            definition("", json!([{"name": "v1", "served": true}])),
            served(br#"{"spec": {"versions": "x"}}"#),
        ];
        let all = wanted(definitions.iter().flatten());
        let defined: Vec<&str> = all
            .iter()
            .filter(|(_, object)| Metadata::of(object).label(MANAGED) == Some(ALWAYS))
            .map(|(name, _)| name.as_str())
            .collect();
        assert_eq!(defined, ["v1.example.com"]);
        assert_eq!(all["v1.apps"]["metadata"]["labels"][MANAGED], ON_START);
    }

    #[test]
    fn what_people_make_of_a_built_in_one_stays_until_the_next_start() {
        let all = wanted(&definition("example.com", json!([{"name": "v1", "served": true}])));
        let mut there: Vec<Value> = all.values().cloned().map(as_stored).collect();
        let at = |there: &[Value], name: &str| {
            there.iter().position(|one| Metadata::of(one).name() == name).unwrap()
        };
        for moment in [Moment::Start, Moment::Later] {
            assert_eq!(plan(&all, &there, moment), []);
        }
        let service = json!({"namespace": "a", "name": "b", "port": 443});
        let (apps, defined) = (at(&there, "v1.apps"), at(&there, "v1.example.com"));
        there[apps]["spec"]["service"] = service.clone();
        assert_eq!(plan(&all, &there, Moment::Later), []);
        let put_right = Step::Replace("v1.apps".into(), all["v1.apps"]["spec"].clone());
        assert_eq!(plan(&all, &there, Moment::Start), [put_right]);
        there[defined]["spec"]["service"] = service;
        let put_right = Step::Replace("v1.example.com".into(), all["v1.example.com"]["spec"].clone());
        assert_eq!(plan(&all, &there, Moment::Later), [put_right]);
        // Whoever takes the label away has it.
        there[defined]["metadata"]["labels"] = json!({});
        assert_eq!(plan(&all, &there, Moment::Later), []);
    }

    #[test]
    fn what_is_gone_is_made_again_and_what_nobody_serves_goes() {
        let all = wanted(&[]);
        let mut there: Vec<Value> = all.values().cloned().map(as_stored).collect();
        there.retain(|one| Metadata::of(one).name() != "v1.apps");
        there.push(as_stored(api_service(("example.com", "v1"), DEFINED, ALWAYS)));
        let mut foreign = as_stored(api_service(("example.com", "v2"), DEFINED, ALWAYS));
        foreign["metadata"]["labels"] = Value::Null;
        there.push(foreign);
        let steps = plan(&all, &there, Moment::Later);
        let gone = Step::Delete("v1.example.com".into(), "u".into());
        assert_eq!(steps, [Step::Create(all["v1.apps"].clone()), gone]);
    }
}
