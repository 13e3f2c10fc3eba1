//! Extensions of the API: admission, custom resources, aggregation, and the API server's own records.

use machinery::features::Feature;

use crate::columns as c;
use crate::resource::{Resource, STATUS, Scope};
use crate::strategies as s;

const fn row(
    api: (&'static str, &'static str),
    plural: &'static str,
    singular: &'static str,
    kind: &'static str,
) -> Resource {
    Resource::new(api, plural, singular, kind, Scope::Cluster)
}

const fn admission(version: &'static str) -> (&'static str, &'static str) {
    ("admissionregistration.k8s.io", version)
}

const fn mutating_policy(version: &'static str) -> Resource {
    row(admission(version), "mutatingadmissionpolicies", "mutatingadmissionpolicy", "MutatingAdmissionPolicy")
        .categories(&["api-extensions"])
        .strategy(&s::MUTATING_ADMISSION_POLICY)
        .columns(c::ADMISSION_POLICY)
        .stored_as("admissionregistration.k8s.io/v1beta1", None)
        .off()
}

const fn mutating_binding(version: &'static str) -> Resource {
    row(
        admission(version),
        "mutatingadmissionpolicybindings",
        "mutatingadmissionpolicybinding",
        "MutatingAdmissionPolicyBinding",
    )
    .categories(&["api-extensions"])
    .strategy(&s::MUTATING_ADMISSION_POLICY_BINDING)
    .columns(c::ADMISSION_POLICY_BINDING)
    .stored_as("admissionregistration.k8s.io/v1beta1", None)
    .off()
}

/// The rows of this file.
pub(super) const ROWS: &[Resource] = &[
    row(("apiregistration.k8s.io", "v1"), "apiservices", "apiservice", "APIService")
        .categories(&["api-extensions"])
        .stored_at("/registry/apiregistration.k8s.io/apiservices/")
        .sub(&[STATUS])
        .strategy(&s::API_SERVICE)
        .columns(c::API_SERVICE),
    row(
        admission("v1"),
        "mutatingwebhookconfigurations",
        "mutatingwebhookconfiguration",
        "MutatingWebhookConfiguration",
    )
    .categories(&["api-extensions"])
    .strategy(&s::WEBHOOK_CONFIGURATION)
    .columns(c::WEBHOOK_CONFIGURATION),
    row(
        admission("v1"),
        "validatingadmissionpolicies",
        "validatingadmissionpolicy",
        "ValidatingAdmissionPolicy",
    )
    .categories(&["api-extensions"])
    .sub(&[STATUS])
    .strategy(&s::VALIDATING_ADMISSION_POLICY)
    .columns(c::VALIDATING_ADMISSION_POLICY),
    row(
        admission("v1"),
        "validatingadmissionpolicybindings",
        "validatingadmissionpolicybinding",
        "ValidatingAdmissionPolicyBinding",
    )
    .categories(&["api-extensions"])
    .strategy(&s::VALIDATING_ADMISSION_POLICY_BINDING)
    .columns(c::ADMISSION_POLICY_BINDING),
    row(
        admission("v1"),
        "validatingwebhookconfigurations",
        "validatingwebhookconfiguration",
        "ValidatingWebhookConfiguration",
    )
    .categories(&["api-extensions"])
    .strategy(&s::WEBHOOK_CONFIGURATION)
    .columns(c::WEBHOOK_CONFIGURATION),
    mutating_policy("v1beta1").gated(Feature::MutatingAdmissionPolicy),
    mutating_binding("v1beta1").gated(Feature::MutatingAdmissionPolicy),
    mutating_policy("v1alpha1"),
    mutating_binding("v1alpha1"),
    row(
        ("apiextensions.k8s.io", "v1"),
        "customresourcedefinitions",
        "customresourcedefinition",
        "CustomResourceDefinition",
    )
    .short(&["crd", "crds"])
    .categories(&["api-extensions"])
    .stored_at("/registry/apiextensions.k8s.io/customresourcedefinitions/")
    .sub(&[STATUS])
    .strategy(&s::CUSTOM_RESOURCE_DEFINITION)
    .columns(c::CREATED_AT),
    row(("internal.apiserver.k8s.io", "v1alpha1"), "storageversions", "storageversion", "StorageVersion")
        .sub(&[STATUS])
        .strategy(&s::STORAGE_VERSION)
        .columns(c::STORAGE_VERSION)
        .gated(Feature::StorageVersionApi),
    row(
        ("storagemigration.k8s.io", "v1beta1"),
        "storageversionmigrations",
        "storageversionmigration",
        "StorageVersionMigration",
    )
    .sub(&[STATUS])
    .strategy(&s::STORAGE_VERSION_MIGRATION)
    .columns(c::STORAGE_VERSION_MIGRATION)
    .gated(Feature::StorageVersionMigrator),
];
