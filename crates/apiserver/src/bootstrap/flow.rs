//! Keeps the FlowSchemas and PriorityLevelConfigurations that every cluster has, as long as the server runs: the
//! mandatory ones as they must be, the suggested ones up to date unless their annotation says that they are the
//! operator's own. What is deleted comes back; what an older version had suggested goes.
//!
//! Source: `k8s.io/apiserver/pkg/util/flowcontrol`, `pkg/registry/flowcontrol/ensurer`.

use jiff::Timestamp;
use machinery::metadata::{self, Metadata};
use resources::flow_control;
use serde_json::{Value, json};

use crate::api::Api;
use crate::kinds::{GroupVersionResource, Kind, Part};
use crate::request::of_server;
use crate::request_info::Verb;
use crate::status::Result;
use crate::write::Decoded;
use crate::write::change::change;
use crate::write::delete;
use crate::write::loopback::ensure;
use crate::write::options::DeleteOptions;

const GROUP: &str = "flowcontrol.apiserver.k8s.io";

/// What has to be done about an object.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Nothing,
    /// Annotation and, if it says so, spec are brought up to date.
    Update {
        is_auto: bool,
    },
}

/// Compares an object with what it should be.
fn decide(current: &Value, wanted: &Value, is_mandatory: bool) -> Step {
    let metadata = Metadata::of(current);
    let annotation =
        metadata.annotation(flow_control::AUTO_UPDATE).and_then(|text| text.parse::<bool>().ok());
    // Without a word from the operator, an object that nobody has changed is kept up to date.
    let is_auto = is_mandatory || annotation.unwrap_or(metadata.generation() == 1);
    let is_current = current.get("spec") == wanted.get("spec");
    if annotation == Some(is_auto) && (is_current || !is_auto) {
        return Step::Nothing;
    }
    Step::Update { is_auto }
}

/// Brings all of them into order.
///
/// # Errors
/// When the store or the cache fail.
pub(crate) async fn maintain(api: &Api) -> Result<()> {
    let levels = ("prioritylevelconfigurations", flow_control::priority_levels());
    for (resource, all) in [levels, ("flowschemas", flow_control::flow_schemas())] {
        let Some(kind) = api.kind(GROUP, "v1", resource) else { continue };
        for wanted in all {
            keep(api, kind, wanted).await?;
        }
        let here = kind.cache().list(kind.prefix(), 0).objects;
        for object in here.iter().map(|object| kind.value(object)) {
            let name = Metadata::of(&object).name();
            let is_ours = Metadata::of(&object).annotation(flow_control::AUTO_UPDATE) == Some("true");
            if is_ours && all.iter().all(|wanted| Metadata::of(wanted).name() != name) {
                remove(api, resource, name).await?;
            }
        }
    }
    lead(api).await
}

/// Says in each schema's status whether its level is there. Source: `syncFlowSchemaStatus`.
async fn lead(api: &Api) -> Result<()> {
    let kinds = ["flowschemas", "prioritylevelconfigurations"].map(|name| api.kind(GROUP, "v1", name));
    let [Some(schemas), Some(levels)] = kinds else { return Ok(()) };
    // What was only just made counts too: nothing else may happen that would bring us here again.
    api.cache.fresh().await?;
    let here = schemas.cache().list(schemas.prefix(), 0).objects;
    for schema in here.iter().map(|object| schemas.value(object)) {
        let level = crate::tree::text(&schema, "/spec/priorityLevelConfiguration/name").to_owned();
        let is_there = levels.cache().get(&levels.key("", &level)).is_some();
        let now = api.clock.now();
        if dangling(&schema, &level, is_there, now).is_none() {
            continue;
        }
        let object = json!({"metadata": {"name": Metadata::of(&schema).name()}});
        let asked = of_server(api, schemas.group_version_resource(), "", object, Verb::Update);
        let Some((request, _)) = asked else { continue };
        let request = request.below("status");
        let outcome = change(api, &request, Part::Status, |old| {
            let mut new = old.clone();
            metadata::remove(&mut new, "resourceVersion");
            if let Some(condition) = dangling(old, &level, is_there, now) {
                let others = conditions(old).filter(|one| one.get("type") != condition.get("type"));
                let all: Vec<Value> = others.cloned().chain([condition.clone()]).collect();
                new["status"] = json!({"conditions": all});
            }
            Ok(Decoded::of_server(new))
        });
        match outcome.await {
            Err(failure) if failure.reason != "NotFound" => return Err(failure),
            _ => {}
        }
    }
    Ok(())
}

fn conditions(schema: &Value) -> impl Iterator<Item = &Value> {
    schema.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten()
}

/// The condition that a schema should have and has not.
fn dangling(schema: &Value, level: &str, is_there: bool, now: Timestamp) -> Option<Value> {
    let (status, reason, what) = match is_there {
        true => ("False", "Found", "it exists"),
        false => ("True", "NotFound", "there is no such object"),
    };
    let has = conditions(schema).any(|one| {
        one.get("type").is_some_and(|it| it == "Dangling") && one.get("status").is_some_and(|it| it == status)
    });
    (!has).then(|| {
        let about =
            format!("This FlowSchema references the PriorityLevelConfiguration object named {level:?}");
        json!({
            "type": "Dangling",
            "status": status,
            "lastTransitionTime": metadata::time(now),
            "reason": reason,
            "message": format!("{about} and {what}"),
        })
    })
}

async fn keep(api: &Api, kind: &Kind, wanted: &Value) -> Result<()> {
    let resource = kind.group_version_resource();
    let name = Metadata::of(wanted).name().to_owned();
    let Some(current) = kind.cache().get(&kind.key("", &name)) else {
        return ensure(api, resource, "", wanted.clone()).await;
    };
    let Some((request, mut wanted)) = of_server(api, resource, "", wanted.clone(), Verb::Update) else {
        return Ok(());
    };
    crate::codec::default(kind, &mut wanted)?;
    let is_mandatory = flow_control::mandatory(kind.kind(), &name).is_some();
    if decide(&kind.value(&current), &wanted, is_mandatory) == Step::Nothing {
        return Ok(());
    }
    let outcome = change(api, &request, Part::Object, |old| {
        let mut new = old.clone();
        metadata::remove(&mut new, "resourceVersion");
        if let Step::Update { is_auto } = decide(old, &wanted, is_mandatory) {
            if let Some(annotations) = metadata::metadata_mut(&mut new)
                .map(|map| map.entry("annotations").or_insert_with(|| json!({})))
            {
                annotations[flow_control::AUTO_UPDATE] = is_auto.to_string().into();
            }
            if is_auto && let Some(spec) = wanted.get("spec") {
                new["spec"] = spec.clone();
            }
        }
        Ok(Decoded::of_server(new))
    });
    match outcome.await {
        Err(failure) if failure.reason != "NotFound" => Err(failure),
        _ => Ok(()),
    }
}

async fn remove(api: &Api, resource: &str, name: &str) -> Result<()> {
    let object = json!({"metadata": {"name": name}});
    let resource = GroupVersionResource::new(GROUP, "v1", resource);
    let Some((request, _)) = of_server(api, resource, "", object, Verb::Delete) else {
        return Ok(());
    };
    match delete::delete(api, &request, &DeleteOptions::default()).await {
        Err(failure) if failure.reason != "NotFound" => Err(failure),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(metadata: &str, spec: i64, is_mandatory: bool, expect: Step) {
        let metadata: Value = serde_saphyr::from_str(metadata).unwrap();
        let (current, wanted) = (json!({"metadata": metadata, "spec": spec}), json!({"spec": 1}));
        assert_eq!(decide(&current, &wanted, is_mandatory), expect, "{metadata} {spec}");
    }

    const AUTO: &str = "{annotations: {apf.kubernetes.io/autoupdate-spec: 'true'}}";
    const OWN: &str = "{annotations: {apf.kubernetes.io/autoupdate-spec: 'false'}}";

    #[test]
    fn a_schema_says_whether_its_level_is_there() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let found = dangling(&json!({}), "a", true, now).unwrap();
        assert_eq!((&found["status"], &found["reason"]), (&json!("False"), &json!("Found")));
        let schema = json!({"status": {"conditions": [found]}});
        assert_eq!(dangling(&schema, "a", true, now), None);
        let lost = dangling(&schema, "a", false, now).unwrap();
        assert_eq!(
            lost["message"],
            "This FlowSchema references the PriorityLevelConfiguration object named \"a\" and there is no such object"
        );
    }

    #[test]
    fn suggested_objects_follow_unless_they_are_the_operators() {
        check(AUTO, 1, false, Step::Nothing);
        check(AUTO, 2, false, Step::Update { is_auto: true });
        check(OWN, 2, false, Step::Nothing);
    }

    #[test]
    fn without_an_annotation_the_generation_tells() {
        check("{generation: 1}", 1, false, Step::Update { is_auto: true });
        check("{generation: 2}", 2, false, Step::Update { is_auto: false });
    }

    #[test]
    fn mandatory_objects_follow_whatever_is_said() {
        check(AUTO, 1, true, Step::Nothing);
        check(OWN, 1, true, Step::Update { is_auto: true });
        check(AUTO, 2, true, Step::Update { is_auto: true });
    }
}
