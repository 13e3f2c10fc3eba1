//! Objects of these kinds, as informers hold them.

use std::fmt::Debug;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{ClusterResourceScope, Metadata, NamespaceResourceScope, Resource, ResourceScope};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::spec::{GatewayClassSpec, GatewaySpec, GrpcRouteSpec, HttpRouteSpec, ReferenceGrantSpec};

/// The group of all of them.
pub const GROUP: &str = "gateway.networking.k8s.io";
/// Versions that are understood: they differ in nothing that is read.
pub const VERSIONS: &[&str] = &["v1", "v1beta1"];

/// The specification of an object of a kind.
pub trait Spec: DeserializeOwned + Clone + Debug + Default + Send + Sync + 'static {
    /// `group/version`, in which the kind is known.
    const API_VERSION: &'static str;
    /// The version alone.
    const VERSION: &'static str;
    /// The kind.
    const KIND: &'static str;
    /// As URLs have it.
    const PLURAL: &'static str;
    /// Whether there is a namespace.
    type Scope: ResourceScope + 'static;
}

/// An object.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(bound(deserialize = "S: Spec"))]
pub struct Object<S> {
    /// Of the object.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The specification.
    #[serde(default)]
    pub spec: S,
    /// The status, by whomever it was written.
    #[serde(default)]
    pub status: Value,
}

controller::decoded!(
    Object<GatewayClassSpec>,
    Object<GatewaySpec>,
    Object<HttpRouteSpec>,
    Object<GrpcRouteSpec>,
    Object<ReferenceGrantSpec>,
);

impl<S: Spec> Resource for Object<S> {
    const API_VERSION: &'static str = S::API_VERSION;
    const GROUP: &'static str = GROUP;
    const KIND: &'static str = S::KIND;
    const VERSION: &'static str = S::VERSION;
    const URL_PATH_SEGMENT: &'static str = S::PLURAL;
    type Scope = S::Scope;
}

impl<S: Spec> Metadata for Object<S> {
    type Ty = ObjectMeta;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// A class of Gateways, and who serves them.
pub type GatewayClass = Object<GatewayClassSpec>;
/// A Gateway: the listeners where requests come in.
pub type Gateway = Object<GatewaySpec>;
/// An HTTPRoute: the targets of requests.
pub type HttpRoute = Object<HttpRouteSpec>;
/// A GRPCRoute: the targets of calls of gRPC.
pub type GrpcRoute = Object<GrpcRouteSpec>;
/// A ReferenceGrant: who may name what of its namespace from another one.
pub type ReferenceGrant = Object<ReferenceGrantSpec>;

impl Spec for GatewayClassSpec {
    const API_VERSION: &'static str = "gateway.networking.k8s.io/v1";
    const VERSION: &'static str = "v1";
    const KIND: &'static str = "GatewayClass";
    const PLURAL: &'static str = "gatewayclasses";
    type Scope = ClusterResourceScope;
}

impl Spec for GatewaySpec {
    const API_VERSION: &'static str = "gateway.networking.k8s.io/v1";
    const VERSION: &'static str = "v1";
    const KIND: &'static str = "Gateway";
    const PLURAL: &'static str = "gateways";
    type Scope = NamespaceResourceScope;
}

impl Spec for HttpRouteSpec {
    const API_VERSION: &'static str = "gateway.networking.k8s.io/v1";
    const VERSION: &'static str = "v1";
    const KIND: &'static str = "HTTPRoute";
    const PLURAL: &'static str = "httproutes";
    type Scope = NamespaceResourceScope;
}

impl Spec for GrpcRouteSpec {
    const API_VERSION: &'static str = "gateway.networking.k8s.io/v1";
    const VERSION: &'static str = "v1";
    const KIND: &'static str = "GRPCRoute";
    const PLURAL: &'static str = "grpcroutes";
    type Scope = NamespaceResourceScope;
}

impl Spec for ReferenceGrantSpec {
    const API_VERSION: &'static str = "gateway.networking.k8s.io/v1beta1";
    const VERSION: &'static str = "v1beta1";
    const KIND: &'static str = "ReferenceGrant";
    const PLURAL: &'static str = "referencegrants";
    type Scope = NamespaceResourceScope;
}
