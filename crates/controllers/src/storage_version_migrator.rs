//! The storage version migrator: writes every object of a resource again, so that all are stored in today's version. Runs if
//! the feature StorageVersionMigrator is on.
//!
//! One migration of a resource runs at a time. It says up to which revision objects are written again: what is newer has been
//! written since. A write that changes nothing is none to the server unless the object is stored otherwise than it would be
//! today. Of a custom kind the definition is told that nothing is stored in earlier versions any more, unless it has changed
//! meanwhile.
//! Source: `pkg/controller/storageversionmigrator`, KEP-4192.

use std::sync::Arc;
use std::time::Duration;

use controller::metadata::{created, key, name, namespace, time, uid};
use controller::plan::{Cause, FAILURE};
use controller::{
    Action, Change, Controller, Following, Informers, PartialObject, Patch, Plan, ResourceRef, Source,
};
use jiff::Timestamp;
use k8s_openapi::api::storagemigration::v1beta1::StorageVersionMigration;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use crate::kinds::{self, Followed};
use crate::pod::since_until;

/// How long a resource that nobody serves is waited for.
const UNKNOWN_MAX: Duration = Duration::from_mins(1);
/// When to look again whether objects are known up to the revision that counts.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// How many objects are written at a time.
const STEP: usize = 32;
/// The type of a definition's condition.
const MIGRATING: &str = "StorageMigrating";

/// The controller's row. Keys are migrations.
pub const CONTROLLER: Controller = Controller {
    name: "storage-version-migrator-controller",
    queue: "storage-version-migrator-controller",
    sources: |_| {
        vec![
            // When one is over the next of the same resource begins.
            Source::of::<StorageVersionMigration>(|change, informers| {
                let target = change.object().map(|migration| Target::of(migration));
                target.map_or_else(Vec::new, |target| migrations_of(&target, informers))
            }),
            Source::of::<CustomResourceDefinition>(|_, _| Vec::new()),
            Source::discovered(GUESTS),
        ]
    },
    reconcile: |informers, key, now| {
        gather(informers, key).map_or_else(Plan::nothing, |seen| plan(&seen, now))
    },
};

const GUESTS: Following = Following {
    wants: kinds::is_dynamic,
    changed: |_: &Change<PartialObject>, _, _| Vec::new(),
    came: |resource, informers| {
        let target = Target { group: resource.group.clone(), plural: resource.plural.clone() };
        migrations_of(&target, informers)
    },
    went: |_, _, _| Vec::new(),
};

/// What is migrated.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Target {
    group: String,
    plural: String,
}

impl Target {
    fn of(migration: &StorageVersionMigration) -> Self {
        let spec = json!(migration.spec);
        let text = |field: &str| {
            spec.pointer(&format!("/resource/{field}")).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        Self { group: text("group"), plural: text("resource") }
    }
}

fn migrations_of(target: &Target, informers: &Informers) -> Vec<String> {
    let all = informers.informer::<StorageVersionMigration>().list();
    all.iter().filter(|one| Target::of(one) == *target).map(|one| key(&one.metadata)).collect()
}

/// The input of a decision about one migration.
pub struct Snapshot {
    /// The migration.
    pub migration: Arc<StorageVersionMigration>,
    /// All migrations of the same resource.
    pub all: Vec<Arc<StorageVersionMigration>>,
    /// The resource and its objects; nothing if nobody serves it.
    pub objects: Option<Objects>,
    /// The definition of a custom kind.
    pub definition: Option<Arc<CustomResourceDefinition>>,
}

/// The objects of a resource.
pub struct Objects {
    /// The resource.
    pub resource: ResourceRef,
    /// All that there are.
    pub all: Vec<Arc<PartialObject>>,
    /// Up to which revision that is so; 0 if they are not known yet.
    pub revision: u64,
}

fn gather(informers: &Informers, key: &str) -> Option<Snapshot> {
    let migrations = informers.informer::<StorageVersionMigration>();
    let migration = migrations.get(key)?;
    let target = Target::of(&migration);
    let mut all = migrations.list();
    all.retain(|one| Target::of(one) == target);
    let found = Followed::of(informers).by_plural(&target.group, &target.plural);
    let objects = found.map(|(resource, informer)| {
        let revision = if informer.is_synced() { informer.revision() } else { 0 };
        Objects { resource, all: informer.list(), revision }
    });
    let definitions = informers.informer::<CustomResourceDefinition>();
    let definition = definitions.get(&format!("{}.{}", target.plural, target.group));
    Some(Snapshot { migration, all, objects, definition })
}

/// Decides what is to be done about a migration.
pub fn plan(snapshot: &Snapshot, now: Timestamp) -> Plan {
    let migration = &*snapshot.migration;
    if is_over(migration) {
        return Plan::nothing();
    }
    let Some(limit) = limit(migration).filter(|_| is_true(migration, "Running")) else {
        return begin(snapshot, now);
    };
    let mut plan = Plan::nothing();
    let Some(objects) = &snapshot.objects else {
        if since_until(created(&migration.metadata), now) < UNKNOWN_MAX {
            plan.requeue(LOOK_AGAIN);
            return plan;
        }
        let why = "migration encountered unhandled error: resource does not exist in discovery";
        plan.push_step(told(snapshot, Outcome::Failed, now));
        plan.push(said(migration, ended(migration, Outcome::Failed, why, now)));
        return plan;
    };
    if objects.revision < limit {
        plan.requeue(LOOK_AGAIN);
        return plan;
    }
    let is_old = |object: &&Arc<PartialObject>| revision(&object.metadata).is_some_and(|own| own <= limit);
    let mut old: Vec<_> = objects.all.iter().filter(is_old).collect();
    old.sort_by_key(|object| key(&object.metadata));
    for some in old.chunks(STEP) {
        plan.push_step(some.iter().map(|object| rewritten(&objects.resource, object)).collect());
    }
    plan.push_step(told(snapshot, Outcome::Succeeded, now));
    plan.push(said(migration, ended(migration, Outcome::Succeeded, "", now)));
    let why = format!("migration encountered unhandled error: {FAILURE}");
    let failed = said(migration, ended(migration, Outcome::Failed, &why, now));
    plan.on_failure_of = vec![(Cause::Refused, failed)];
    plan
}

/// How a migration ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Succeeded,
    Failed,
}

/// Begins, unless another one of the resource runs or comes first.
fn begin(snapshot: &Snapshot, now: Timestamp) -> Plan {
    let migration = &*snapshot.migration;
    let mut plan = Plan::nothing();
    let age = |one: &StorageVersionMigration| (created(&one.metadata), name(&one.metadata).to_owned());
    let comes_first = |one: &&Arc<StorageVersionMigration>| {
        uid(&one.metadata) != uid(&migration.metadata)
            && !is_over(one)
            && (is_true(one, "Running") || age(one) < age(migration))
    };
    // Everything that was written before the migration itself has an earlier revision.
    let Some(limit) =
        revision(&migration.metadata).filter(|_| !snapshot.all.iter().any(|one| comes_first(&one)))
    else {
        return plan;
    };
    if let Some(definition) = &snapshot.definition {
        let message = format!("Migration {} is running", name(&migration.metadata));
        plan.push(migrating(definition, condition(MIGRATING, "True", "MigrationRunning", &message, now)));
    }
    let running = condition("Running", "True", "MigrationRunning", "The migration is running", now);
    plan.push(said(migration, json!({"conditions": [running], "resourceVersion": limit.to_string()})));
    plan
}

/// The status of a migration that is over.
fn ended(migration: &StorageVersionMigration, outcome: Outcome, message: &str, now: Timestamp) -> Value {
    let (kind, reason) = match outcome {
        Outcome::Succeeded => ("Succeeded", "StorageVersionMigrationSucceeded"),
        Outcome::Failed => ("Failed", "StorageVersionMigrationFailed"),
    };
    let running = condition("Running", "False", "MigrationCompleted", "Migration completed", now);
    let over = condition(kind, "True", reason, message, now);
    let revision = migration.status.as_ref().and_then(|status| status.resource_version.clone());
    json!({"conditions": [running, over], "resourceVersion": revision})
}

/// What the definition is told when a migration is over.
fn told(snapshot: &Snapshot, outcome: Outcome, now: Timestamp) -> Vec<Action> {
    let Some(definition) = &snapshot.definition else { return Vec::new() };
    let generation = definition.metadata.generation;
    let began_with = json!(definition.status);
    let began_with = conditions(&began_with).find(|one| one["type"] == MIGRATING);
    let is_same = began_with.is_some_and(|one| one["observedGeneration"].as_i64() == generation);
    let stored = definition.spec.versions.iter().find(|version| version.storage);
    let (reason, message) = match (outcome, is_same) {
        (Outcome::Failed, _) => ("MigrationFailed", "The migration has failed"),
        (Outcome::Succeeded, true) => {
            ("MigrationSucceeded", "The migration has succeeded and the stored versions have been updated")
        }
        (Outcome::Succeeded, false) => (
            "MigrationSucceeded",
            "The migration has succeeded but the stored versions have not been updated due to a generation mismatch",
        ),
    };
    let mut action = migrating(definition, condition(MIGRATING, "False", reason, message, now));
    if let (Outcome::Succeeded, true, Some(stored)) = (outcome, is_same, stored)
        && let Action::Request(request) = &mut action
    {
        request.body["status"]["storedVersions"] = json!([stored.name]);
    }
    vec![action]
}

/// Sets the condition `StorageMigrating` of a definition, if it is still as it was seen.
fn migrating(definition: &CustomResourceDefinition, mut new: Value) -> Action {
    new["observedGeneration"] = json!(definition.metadata.generation);
    let before = json!(definition.status);
    let others = conditions(&before).filter(|one| one["type"] != MIGRATING);
    let all: Vec<Value> = others.cloned().chain([new]).collect();
    let meta = &definition.metadata;
    let patch =
        json!({"metadata": {"resourceVersion": meta.resource_version}, "status": {"conditions": all}});
    Action::patch_status::<CustomResourceDefinition>("", name(meta), Patch::Merge(patch))
}

fn conditions(status: &Value) -> impl Iterator<Item = &Value> {
    status.get("conditions").and_then(Value::as_array).into_iter().flatten()
}

fn condition(kind: &str, status: &str, reason: &str, message: &str, now: Timestamp) -> Value {
    json!({"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": time(now)})
}

/// Writes a migration's status, of nothing but the migration that was looked at.
fn said(migration: &StorageVersionMigration, status: Value) -> Action {
    let meta = &migration.metadata;
    let patch = json!({"metadata": {"resourceVersion": meta.resource_version}, "status": status});
    Action::patch_status::<StorageVersionMigration>("", name(meta), Patch::Merge(patch))
}

/// A write that changes nothing, of the object as it was seen: one that was written since needs none.
fn rewritten(resource: &ResourceRef, object: &PartialObject) -> Action {
    let meta = &object.metadata;
    let patch = json!({"metadata": {"uid": uid(meta), "resourceVersion": meta.resource_version}});
    Action::patch_ref(resource.clone(), namespace(meta), name(meta), "", Patch::Merge(patch))
}

fn revision(meta: &ObjectMeta) -> Option<u64> {
    meta.resource_version.as_deref().and_then(|text| text.parse().ok())
}

/// Up to which revision objects are to be written again.
fn limit(migration: &StorageVersionMigration) -> Option<u64> {
    migration.status.as_ref()?.resource_version.as_deref()?.parse().ok()
}

fn is_true(migration: &StorageVersionMigration, kind: &str) -> bool {
    let all = migration.status.iter().flat_map(|status| status.conditions.iter().flatten());
    all.into_iter().any(|condition| condition.type_ == kind && condition.status == "True")
}

fn is_over(migration: &StorageVersionMigration) -> bool {
    is_true(migration, "Succeeded") || is_true(migration, "Failed")
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::fixture::{list, noon, parse, refused, render};

    const RUNNING: &str = "{resourceVersion: '20', conditions: [{type: Running, status: 'True', reason: R, message: '', \
                           lastTransitionTime: '2026-01-01T11:00:00Z'}]}";

    fn migration(name: &str, revision: u64, status: &str) -> Arc<StorageVersionMigration> {
        parse(&format!(
            "{{metadata: {{name: {name}, uid: {name}, resourceVersion: '{revision}', creationTimestamp: \
             '2026-01-01T11:59:30Z'}}, spec: {{resource: {{group: example.com, resource: gears}}}}, status: {status}}}"
        ))
    }

    fn definition(generation: i64) -> Arc<CustomResourceDefinition> {
        let version = |name: &str, stored: bool| format!("{{name: {name}, served: true, storage: {stored}}}");
        parse(&format!(
            "{{metadata: {{name: gears.example.com, resourceVersion: '9', generation: {generation}}}, spec: {{group: \
             example.com, scope: Namespaced, names: {{plural: gears, kind: Gear}}, versions: [{}, {}]}}, status: \
             {{storedVersions: [v1, v2], conditions: [{{type: StorageMigrating, status: 'True', reason: R, message: m, \
             observedGeneration: 3, lastTransitionTime: '2026-01-01T11:00:00Z'}}]}}}}",
            version("v1", false),
            version("v2", true)
        ))
    }

    fn gears(revision: u64) -> Objects {
        let all = list(
            "[{metadata: {name: new, namespace: a, uid: c, resourceVersion: '21'}}, \
             {metadata: {name: b, namespace: a, uid: b, resourceVersion: '20'}}, \
             {metadata: {name: a, namespace: a, uid: a, resourceVersion: '7'}}]",
        );
        let resource = ResourceRef {
            group: "example.com".into(),
            version: "v2".into(),
            kind: "Gear".into(),
            plural: "gears".into(),
            namespaced: true,
        };
        Objects { resource, all, revision }
    }

    fn check(
        migration: Arc<StorageVersionMigration>,
        others: &[Arc<StorageVersionMigration>],
        (objects, definition): (Option<Objects>, Option<Arc<CustomResourceDefinition>>),
        expect: Expect,
    ) -> Plan {
        let all = others.iter().chain([&migration]).cloned().collect();
        let plan = plan(&Snapshot { migration, all, objects, definition }, noon());
        expect.assert_eq(&render(&plan).replace("\"lastTransitionTime\":\"2026-01-01T12:00:00Z\",", ""));
        plan
    }

    #[test]
    fn one_migration_of_a_resource_runs_at_a_time() {
        let new = || migration("m", 20, "{}");
        check(
            new(),
            &[],
            (Some(gears(7)), None),
            expect![[r#"
            step
              patch storageversionmigrations/status m {"metadata":{"resourceVersion":"20"},"status":{"conditions":[{"message":"The migration is running","reason":"MigrationRunning","status":"True","type":"Running"}],"resourceVersion":"20"}}
        "#]],
        );
        check(new(), &[migration("z", 19, RUNNING)], (Some(gears(7)), None), expect![""]);
        check(new(), &[migration("a", 19, "{}")], (Some(gears(7)), None), expect![""]);
        let over = RUNNING.replace("Running", "Succeeded");
        check(migration("m", 22, &over), &[], (Some(gears(30)), None), expect![""]);
        let plan = check(
            new(),
            &[migration("a", 19, &over)],
            (None, Some(definition(4))),
            expect![[r#"
            step
              patch customresourcedefinitions/status gears.example.com {"metadata":{"resourceVersion":"9"},"status":{"conditions":[{"message":"Migration m is running","observedGeneration":4,"reason":"MigrationRunning","status":"True","type":"StorageMigrating"}]}}
            step
              patch storageversionmigrations/status m {"metadata":{"resourceVersion":"20"},"status":{"conditions":[{"message":"The migration is running","reason":"MigrationRunning","status":"True","type":"Running"}],"resourceVersion":"20"}}
        "#]],
        );
        assert!(plan.on_failure_of.is_empty());
    }

    #[test]
    fn what_was_there_is_written_again_and_then_the_old_versions_are_forgotten() {
        let running = || migration("m", 21, RUNNING);
        check(running(), &[], (Some(gears(19)), None), expect!["again after 5s\n"]);
        let plan = check(
            running(),
            &[],
            (Some(gears(20)), Some(definition(3))),
            expect![[r#"
            step
              patch gears a {"metadata":{"resourceVersion":"7","uid":"a"}}
              patch gears b {"metadata":{"resourceVersion":"20","uid":"b"}}
            step
              patch customresourcedefinitions/status gears.example.com {"metadata":{"resourceVersion":"9"},"status":{"conditions":[{"message":"The migration has succeeded and the stored versions have been updated","observedGeneration":3,"reason":"MigrationSucceeded","status":"False","type":"StorageMigrating"}],"storedVersions":["v2"]}}
            step
              patch storageversionmigrations/status m {"metadata":{"resourceVersion":"21"},"status":{"conditions":[{"message":"Migration completed","reason":"MigrationCompleted","status":"False","type":"Running"},{"message":"","reason":"StorageVersionMigrationSucceeded","status":"True","type":"Succeeded"}],"resourceVersion":"20"}}
        "#]],
        );
        let told = |failure: &str| {
            let told = plan.clone().about_failure(0, &refused(failure));
            told.iter().map(|action| format!("{action:?}")).collect::<Vec<_>>().join("\n")
        };
        assert_eq!(told("etcd is away"), "");
        let why = "migration encountered unhandled error: conversion webhook for x failed: no";
        assert!(told("conversion webhook for x failed: no").contains(why));
    }

    #[test]
    fn a_definition_that_has_changed_meanwhile_keeps_what_it_says_of_versions() {
        let running = migration("m", 21, RUNNING);
        let nothing = Objects { all: Vec::new(), ..gears(20) };
        check(
            running,
            &[],
            (Some(nothing), Some(definition(4))),
            expect![[r#"
            step
              patch customresourcedefinitions/status gears.example.com {"metadata":{"resourceVersion":"9"},"status":{"conditions":[{"message":"The migration has succeeded but the stored versions have not been updated due to a generation mismatch","observedGeneration":4,"reason":"MigrationSucceeded","status":"False","type":"StorageMigrating"}]}}
            step
              patch storageversionmigrations/status m {"metadata":{"resourceVersion":"21"},"status":{"conditions":[{"message":"Migration completed","reason":"MigrationCompleted","status":"False","type":"Running"},{"message":"","reason":"StorageVersionMigrationSucceeded","status":"True","type":"Succeeded"}],"resourceVersion":"20"}}
        "#]],
        );
    }

    #[test]
    fn what_nobody_serves_is_waited_for_and_then_given_up() {
        check(migration("m", 21, RUNNING), &[], (None, None), expect!["again after 5s\n"]);
        let mut old = (*migration("m", 21, RUNNING)).clone();
        old.metadata.creation_timestamp = Some(time("2026-01-01T11:58:00Z".parse().unwrap()));
        check(
            Arc::new(old),
            &[],
            (None, None),
            expect![[r#"
            step
              patch storageversionmigrations/status m {"metadata":{"resourceVersion":"21"},"status":{"conditions":[{"message":"Migration completed","reason":"MigrationCompleted","status":"False","type":"Running"},{"message":"migration encountered unhandled error: resource does not exist in discovery","reason":"StorageVersionMigrationFailed","status":"True","type":"Failed"}],"resourceVersion":"20"}}
        "#]],
        );
    }
}
