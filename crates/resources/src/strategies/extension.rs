//! The strategies of what extends the API: webhooks, admission policies, definitions, APIServices, migrations.

use serde_json::{Value, json};

use super::prepare::set_status;
use crate::definition::AnyExpression;
use crate::strategy::{Deletion, Generation, NameRule};
use crate::strategy::{GENERIC, SPEC, SPEC_AND_STATUS, STATUS_ONLY, Strategy};
use crate::validation as v;

/// Webhook configurations of both kinds.
pub const WEBHOOK_CONFIGURATION: Strategy = Strategy {
    allow_unconditional_update: false,
    generation: Generation::Content,
    validate_create: v::webhook::create,
    validate_update: v::webhook::update,
    ..GENERIC
};
/// ValidatingAdmissionPolicies.
pub const VALIDATING_ADMISSION_POLICY: Strategy = Strategy {
    allow_unconditional_update: false,
    validate_create: v::admission_policy::validating,
    validate_update: v::admission_policy::validating_update,
    validate_status_update: v::admission_policy::validating_status,
    ..SPEC_AND_STATUS
};
/// ValidatingAdmissionPolicyBindings.
pub const VALIDATING_ADMISSION_POLICY_BINDING: Strategy = Strategy {
    allow_unconditional_update: false,
    validate_create: v::admission_policy::validating_binding,
    validate_update: v::admission_policy::validating_binding_update,
    ..SPEC
};
/// MutatingAdmissionPolicies.
pub const MUTATING_ADMISSION_POLICY: Strategy = Strategy {
    allow_unconditional_update: false,
    validate_create: v::mutating_policy::policy,
    validate_update: v::mutating_policy::policy_update,
    ..SPEC
};
/// MutatingAdmissionPolicyBindings.
pub const MUTATING_ADMISSION_POLICY_BINDING: Strategy = Strategy {
    allow_unconditional_update: false,
    validate_create: v::mutating_policy::binding,
    validate_update: v::mutating_policy::binding_update,
    ..SPEC
};
/// CustomResourceDefinitions.
pub const CUSTOM_RESOURCE_DEFINITION: Strategy = Strategy {
    deletion: Deletion::Definition,
    allow_unconditional_update: false,
    prepare_for_create: definition_create,
    prepare_for_update: definition_update,
    validate_create: |new| v::crd::check(new, &AnyExpression),
    validate_update: |new, old| v::crd::update(new, old, &AnyExpression),
    validate_status_update: v::crd::status_update,
    warnings: v::crd::warnings,
    warnings_on_update: v::crd::warnings_on_update,
    ..SPEC_AND_STATUS
};
/// APIServices; their name is `version.group`.
pub const API_SERVICE: Strategy = Strategy {
    name_rule: NameRule::PathSegment,
    allow_unconditional_update: false,
    prepare_for_create: api_service_create,
    validate_create: v::api_service::check,
    validate_update: v::api_service::update,
    validate_status_update: v::api_service::status_update,
    ..STATUS_ONLY
};
/// StorageVersionMigrations.
pub const STORAGE_VERSION_MIGRATION: Strategy = Strategy {
    allow_unconditional_update: false,
    validate_create: v::storage_version::migration,
    validate_update: v::storage_version::migration_update,
    validate_status_update: v::storage_version::migration_status,
    ..STATUS_ONLY
};

/// StorageVersions.
pub const STORAGE_VERSION: Strategy = Strategy {
    allow_unconditional_update: false,
    name_rule: NameRule::PathSegment,
    validate_create: v::storage_version::version,
    validate_status_update: v::storage_version::version_status,
    ..STATUS_ONLY
};

/// The version in which custom resources are stored.
fn stored_version(definition: &Value) -> Option<Value> {
    let versions = definition.pointer("/spec/versions")?.as_array()?;
    let stored = versions.iter().find(|version| version.get("storage") == Some(&Value::Bool(true)))?;
    stored.get("name").cloned()
}

/// A new definition has no accepted names yet, and one stored version.
fn definition_create(definition: &mut Value) {
    let stored: Vec<_> = stored_version(definition).into_iter().collect();
    let names = json!({"plural": "", "kind": ""});
    set_status(definition, json!({"acceptedNames": names, "conditions": [], "storedVersions": stored}));
}

/// A version that becomes the stored one is remembered.
fn definition_update(new: &mut Value, _: &Value) {
    let Some(name) = stored_version(new) else { return };
    let Some(status) = new.get_mut("status").and_then(Value::as_object_mut) else { return };
    let stored = status.entry("storedVersions").or_insert_with(|| json!([]));
    if let Some(list) = stored.as_array_mut()
        && !list.contains(&name)
    {
        list.push(name);
    }
}

/// An APIService without a Service is served by this API server.
fn api_service_create(service: &mut Value) {
    let is_local = service.pointer("/spec/service").is_none_or(Value::is_null);
    let since = service.pointer("/metadata/creationTimestamp").cloned();
    let mut status = json!({});
    if is_local {
        let mut condition = json!({
            "type": "Available",
            "status": "True",
            "reason": "Local",
            "message": "Local APIServices are always available",
        });
        if let Some(since) = since {
            condition["lastTransitionTime"] = since;
        }
        status = json!({"conditions": [condition]});
    }
    set_status(service, status);
}
