//! The kinds of the API that informers hold, each with its one decoder.

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apiserverinternal::v1alpha1::StorageVersion;
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::certificates::v1beta1::{ClusterTrustBundle, PodCertificateRequest};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{
    ConfigMap, Endpoints, LimitRange, Namespace, Node, PersistentVolume, PersistentVolumeClaim,
    ReplicationController, ResourceQuota, Secret, Service, ServiceAccount,
};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::{IPAddress, Ingress, IngressClass, NetworkPolicy, ServiceCIDR};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice};
use k8s_openapi::api::resource::v1alpha3::DeviceTaintRule;
use k8s_openapi::api::scheduling::v1alpha1::Workload;
use k8s_openapi::api::storage::v1::{
    CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment, VolumeAttributesClass,
};
use k8s_openapi::api::storagemigration::v1beta1::StorageVersionMigration;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use super::PartialObject;

crate::decoded!(
    PartialObject,
    ConfigMap,
    Endpoints,
    LimitRange,
    Namespace,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    ReplicationController,
    ResourceQuota,
    Secret,
    Service,
    ServiceAccount,
    ControllerRevision,
    DaemonSet,
    Deployment,
    ReplicaSet,
    StatefulSet,
    HorizontalPodAutoscaler,
    CronJob,
    Job,
    CertificateSigningRequest,
    ClusterTrustBundle,
    PodCertificateRequest,
    EndpointSlice,
    IPAddress,
    Ingress,
    IngressClass,
    NetworkPolicy,
    ServiceCIDR,
    RuntimeClass,
    PodDisruptionBudget,
    ClusterRole,
    DeviceClass,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
    DeviceTaintRule,
    Workload,
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    StorageClass,
    VolumeAttachment,
    VolumeAttributesClass,
    StorageVersion,
    StorageVersionMigration,
    CustomResourceDefinition,
    Lease,
    MutatingWebhookConfiguration,
    ValidatingWebhookConfiguration,
    k8s_openapi::api::core::v1::Pod,
);
