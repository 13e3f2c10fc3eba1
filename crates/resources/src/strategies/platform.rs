//! The strategies of what the workloads stand on: storage, networking, admission, extension, flow control, devices,
//! certificates, and the questions about access.

use super::prepare::not_attached;
use super::{certificate, claim, gated, volume};
use crate::definition::AnyExpression;
use crate::resource::{Deletion, Generation, NameRule};
use crate::strategy::{
    FREE_STATUS_ONLY, GENERIC, SPEC, SPEC_AND_FREE_STATUS, SPEC_AND_STATUS, STATUS_ONLY, Strategy, Unowned,
    VIRTUAL,
};
use crate::validation as v;

mod prepare;

/// PersistentVolumeClaims.
pub const PERSISTENT_VOLUME_CLAIM: Strategy = Strategy {
    prepare_for_create: claim::create,
    prepare_for_update: claim::update,
    validate_create: v::persistent_volume_claim::check,
    validate_update: v::persistent_volume_claim::update,
    validate_status_update: v::persistent_volume_claim::status_update,
    warnings: v::persistent_volume_claim::warnings,
    warnings_on_update: |new, _| v::persistent_volume_claim::warnings(new),
    ..FREE_STATUS_ONLY
};
/// PersistentVolumes.
pub const PERSISTENT_VOLUME: Strategy = Strategy {
    prepare_for_create: volume::create,
    prepare_for_status_update: volume::status_update,
    validate_create: v::persistent_volume::check,
    validate_update: v::persistent_volume::update,
    warnings: v::persistent_volume::warnings,
    warnings_on_update: |new, _| v::persistent_volume::warnings(new),
    ..FREE_STATUS_ONLY
};
/// StorageClasses.
pub const STORAGE_CLASS: Strategy = Strategy {
    validate_create: v::storage::class,
    validate_update: v::storage::class_update,
    warnings: v::storage::class_warnings,
    warnings_on_update: |new, _| v::storage::class_warnings(new),
    ..GENERIC
};
/// VolumeAttributesClasses.
pub const VOLUME_ATTRIBUTES_CLASS: Strategy = Strategy {
    validate_create: v::storage::attributes_class,
    validate_update: v::storage::attributes_class_update,
    ..GENERIC
};
/// VolumeAttachments.
pub const VOLUME_ATTACHMENT: Strategy = Strategy {
    allow_unconditional_update: false,
    prepare_for_create: not_attached,
    validate_create: v::storage::attachment,
    validate_update: v::storage::attachment_update,
    validate_status_update: v::storage::attachment_update,
    ..STATUS_ONLY
};
/// CSIDrivers.
pub const CSI_DRIVER: Strategy = Strategy {
    allow_unconditional_update: false,
    validate_create: v::csi::driver,
    validate_update: v::csi::driver_update,
    ..SPEC
};
/// CSINodes.
pub const CSI_NODE: Strategy = Strategy {
    allow_unconditional_update: false,
    validate_create: v::csi::node,
    validate_update: v::csi::node_update,
    ..GENERIC
};
/// CSIStorageCapacities.
pub const CSI_STORAGE_CAPACITY: Strategy = Strategy {
    allow_unconditional_update: false,
    validate_create: v::csi::capacity,
    validate_update: v::csi::capacity_update,
    ..GENERIC
};

/// Ingresses.
pub const INGRESS: Strategy = Strategy {
    prepare_for_create: prepare::no_load_balancer,
    validate_create: v::ingress::create,
    validate_update: v::ingress::update,
    validate_status_update: v::ingress::status_update,
    warnings: v::ingress::warnings,
    warnings_on_status_update: |new, _| v::warnings::load_balancer(new),
    ..SPEC_AND_FREE_STATUS
};
/// IngressClasses.
pub const INGRESS_CLASS: Strategy =
    Strategy { validate_create: v::ingress::class, validate_update: v::ingress::class_update, ..SPEC };
/// NetworkPolicies.
pub const NETWORK_POLICY: Strategy = Strategy {
    validate_create: v::network_policy::check,
    validate_update: v::network_policy::update,
    warnings: v::network_policy::warnings,
    warnings_on_update: |new, _| v::network_policy::warnings(new),
    ..SPEC
};
/// IPAddresses; their name is the address.
pub const IP_ADDRESS: Strategy = Strategy {
    name_rule: NameRule::PathSegment,
    validate_create: v::ip::address,
    validate_update: v::ip::address_update,
    ..GENERIC
};
/// ServiceCIDRs.
pub const SERVICE_CIDR: Strategy = Strategy {
    validate_create: v::ip::service_cidr,
    validate_update: v::ip::service_cidr_update,
    ..FREE_STATUS_ONLY
};

/// CertificateSigningRequests; their names are free.
pub const CERTIFICATE_SIGNING_REQUEST: Strategy = Strategy {
    unowned: Unowned {
        by_object: &[&["spec"]],
        by_status: &[&["status", "conditions"]],
        by_approval: &[&["status", "certificate"]],
    },
    name_rule: NameRule::PathSegment,
    prepare_for_update: prepare::request_update,
    prepare_for_status_update: certificate::status_update,
    validate_create: v::certificates::request,
    validate_update: v::certificates::request_update,
    validate_status_update: v::certificates::request_status,
    ..FREE_STATUS_ONLY
};
/// ClusterTrustBundles; their name has the signer's in it.
pub const CLUSTER_TRUST_BUNDLE: Strategy = Strategy {
    name_rule: NameRule::PathSegment,
    allow_unconditional_update: false,
    validate_create: v::certificates::bundle,
    validate_update: v::certificates::bundle_update,
    ..GENERIC
};

/// PodCertificateRequests: what is asked for stays.
pub const POD_CERTIFICATE_REQUEST: Strategy = Strategy {
    allow_unconditional_update: false,
    validate_create: v::pod_certificates::request,
    validate_update: v::pod_certificates::request_update,
    validate_status_update: v::pod_certificates::request_status,
    ..STATUS_ONLY
};

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
    prepare_for_create: prepare::definition_create,
    prepare_for_update: prepare::definition_update,
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
    prepare_for_create: prepare::api_service_create,
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

/// FlowSchemas.
pub const FLOW_SCHEMA: Strategy = Strategy {
    validate_create: v::flow_control::schema,
    validate_update: v::flow_control::schema_update,
    validate_status_update: v::flow_control::status_update,
    ..SPEC_AND_STATUS
};
/// PriorityLevelConfigurations.
pub const PRIORITY_LEVEL_CONFIGURATION: Strategy = Strategy {
    validate_create: v::flow_control::level,
    validate_update: v::flow_control::level_update,
    validate_status_update: v::flow_control::status_update,
    ..SPEC_AND_STATUS
};

/// DeviceClasses.
pub const DEVICE_CLASS: Strategy = Strategy {
    gated: gated::DEVICE_CLASS,
    validate_create: v::device::class,
    validate_update: v::device::class_update,
    ..SPEC
};
/// ResourceClaims.
pub const RESOURCE_CLAIM: Strategy = Strategy {
    gated: gated::RESOURCE_CLAIM,
    validate_create: v::device::claim,
    validate_update: v::device::claim_update,
    prepare_for_status_update: |new, old, _| prepare::forget_released_devices(new, old),
    validate_status_update: v::device::claim_status,
    ..STATUS_ONLY
};
/// ResourceClaimTemplates.
pub const RESOURCE_CLAIM_TEMPLATE: Strategy = Strategy {
    gated: gated::RESOURCE_CLAIM_TEMPLATE,
    validate_create: v::device::claim_template,
    validate_update: v::device::claim_update,
    ..GENERIC
};
/// ResourceSlices.
pub const RESOURCE_SLICE: Strategy = Strategy {
    gated: gated::RESOURCE_SLICE,
    validate_create: v::resource_slice::check,
    warnings: v::resource_slice::warnings,
    warnings_on_update: |new, _| v::resource_slice::warnings(new),
    validate_update: v::resource_slice::update,
    ..SPEC
};

/// SelfSubjectAccessReviews.
pub const SELF_SUBJECT_ACCESS_REVIEW: Strategy =
    Strategy { validate_create: v::review::own_access, ..VIRTUAL };
/// SubjectAccessReviews.
pub const SUBJECT_ACCESS_REVIEW: Strategy = Strategy { validate_create: v::review::access, ..VIRTUAL };
/// LocalSubjectAccessReviews.
pub const LOCAL_SUBJECT_ACCESS_REVIEW: Strategy =
    Strategy { validate_create: v::review::local_access, ..VIRTUAL };
