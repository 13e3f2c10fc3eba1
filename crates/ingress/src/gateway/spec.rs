//! The specifications of objects of these kinds. Fields have upstream's names and defaults.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Source: `GatewayClassSpec`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GatewayClassSpec {
    /// The controller that serves its Gateways.
    pub controller_name: String,
    /// More for that controller.
    pub parameters_ref: Option<Value>,
}

/// Source: `GatewaySpec`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GatewaySpec {
    /// Its class.
    pub gateway_class_name: String,
    /// The listeners.
    pub listeners: Vec<GatewayListener>,
    /// At which addresses, if that matters.
    pub addresses: Vec<GatewayAddress>,
    /// The other settings of TLS, for all listeners.
    pub tls: Option<GatewayTls>,
}

/// Source: `GatewayTLSConfig`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GatewayTls {
    /// The validation of clients.
    pub frontend: Option<Value>,
}

/// Source: `GatewaySpecAddress`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GatewayAddress {
    /// `IPAddress`, if none.
    pub r#type: Option<String>,
    /// Any, if none.
    pub value: Option<String>,
}

/// Source: `Listener`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GatewayListener {
    /// Its own in the Gateway.
    pub name: String,
    /// All hosts, if none.
    pub hostname: Option<String>,
    /// Between 1 and 65535.
    pub port: i64,
    /// `HTTP`, `HTTPS`, or what is not served here.
    pub protocol: String,
    /// Of `HTTPS`.
    pub tls: Option<ListenerTls>,
    /// The routes that may attach.
    pub allowed_routes: Option<AllowedRoutes>,
}

/// Source: `ListenerTLSConfig`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ListenerTls {
    /// `Terminate`, if none.
    pub mode: Option<String>,
    /// The Secrets whose certificates are shown.
    pub certificate_refs: Vec<ObjectReference>,
    /// The validation of clients, in earlier versions.
    pub frontend_validation: Option<Value>,
}

/// Source: `AllowedRoutes`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AllowedRoutes {
    /// The Gateway's own, if none.
    pub namespaces: Option<RouteNamespaces>,
    /// All that the protocol has, if none.
    pub kinds: Vec<RouteGroupKind>,
}

/// Source: `RouteNamespaces`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RouteNamespaces {
    /// `Same`, if none, or `All`, `Selector`, `None`.
    pub from: Option<String>,
    /// Of `Selector`.
    pub selector: Option<LabelSelector>,
}

/// Source: `RouteGroupKind`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RouteGroupKind {
    /// This API's, if none.
    pub group: Option<String>,
    /// Of the routes.
    pub kind: String,
}

/// An object that is named. Source: `SecretObjectReference`, `BackendObjectReference`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectReference {
    /// The core one, if none.
    pub group: Option<String>,
    /// Depends on who names it, if none.
    pub kind: Option<String>,
    /// Its name.
    pub name: String,
    /// The namespace of whoever names it, if none.
    pub namespace: Option<String>,
    /// Of a Service.
    pub port: Option<i64>,
}

/// A parent that a route attaches to. Source: `ParentReference`.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct ParentReference {
    /// This API's, if none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// `Gateway`, if none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The route's own, if none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// A listener's name; all of them, if none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub section_name: Option<String>,
    /// Listeners' port; whatever it is, if none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<i64>,
}

/// Source: `HTTPRouteSpec`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpRouteSpec {
    /// The parents that it attaches to.
    pub parent_refs: Vec<ParentReference>,
    /// All of the listeners', if none.
    pub hostnames: Vec<String>,
    /// The rules: which requests go where.
    pub rules: Vec<HttpRouteRule>,
}

/// Source: `HTTPRouteRule`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpRouteRule {
    /// One of these; every request, if none.
    pub matches: Vec<HttpRouteMatch>,
    /// The filters for it.
    pub filters: Vec<RouteFilter>,
    /// The backends that get it.
    pub backend_refs: Vec<BackendRef>,
    /// The time-outs.
    pub timeouts: Option<RouteTimeouts>,
}

/// Source: `HTTPRouteTimeouts`; durations as of GEP-2257.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RouteTimeouts {
    /// For the client.
    pub request: Option<String>,
    /// Of a backend.
    pub backend_request: Option<String>,
}

/// Source: `HTTPRouteMatch`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpRouteMatch {
    /// Every path, if none.
    pub path: Option<TypedValue>,
    /// All of these.
    pub headers: Vec<NamedMatch>,
    /// All of these.
    pub query_params: Vec<NamedMatch>,
    /// Every one, if none.
    pub method: Option<String>,
}

/// Source: `HTTPPathMatch`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TypedValue {
    /// `PathPrefix`, if none.
    pub r#type: Option<String>,
    /// `/`, if none.
    pub value: Option<String>,
}

/// Source: `HTTPHeaderMatch`, `HTTPQueryParamMatch`, `GRPCHeaderMatch`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NamedMatch {
    /// `Exact`, if none.
    pub r#type: Option<String>,
    /// Of the header or parameter.
    pub name: String,
    /// The value that it is to be.
    pub value: String,
}

/// Source: `GRPCRouteSpec`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GrpcRouteSpec {
    /// The parents that it attaches to.
    pub parent_refs: Vec<ParentReference>,
    /// All of the listeners', if none.
    pub hostnames: Vec<String>,
    /// The rules: which calls go where.
    pub rules: Vec<GrpcRouteRule>,
}

/// Source: `GRPCRouteRule`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GrpcRouteRule {
    /// One of these; every call, if none.
    pub matches: Vec<GrpcRouteMatch>,
    /// The filters for it.
    pub filters: Vec<RouteFilter>,
    /// The backends that get it.
    pub backend_refs: Vec<BackendRef>,
}

/// Source: `GRPCRouteMatch`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GrpcRouteMatch {
    /// Every one, if none.
    pub method: Option<GrpcMethodMatch>,
    /// All of these.
    pub headers: Vec<NamedMatch>,
}

/// Source: `GRPCMethodMatch`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GrpcMethodMatch {
    /// `Exact`, if none.
    pub r#type: Option<String>,
    /// Every one, if none.
    pub service: Option<String>,
    /// Every one, if none.
    pub method: Option<String>,
}

/// Source: `HTTPBackendRef`, `GRPCBackendRef`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BackendRef {
    /// The object.
    #[serde(flatten)]
    pub to: ObjectReference,
    /// 1, if none.
    pub weight: Option<i64>,
    /// The filters for what it gets.
    pub filters: Vec<RouteFilter>,
}

/// Source: `HTTPRouteFilter`, `GRPCRouteFilter`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RouteFilter {
    /// The type: one of the following.
    pub r#type: String,
    /// See its type.
    pub request_header_modifier: Option<HeaderFilter>,
    /// See its type.
    pub response_header_modifier: Option<HeaderFilter>,
    /// See its type.
    pub request_redirect: Option<RedirectFilter>,
    /// See its type.
    #[serde(rename = "urlRewrite")]
    pub url_rewrite: Option<RewriteFilter>,
    /// See its type.
    pub request_mirror: Option<MirrorFilter>,
}

/// Source: `HTTPHeaderFilter`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HeaderFilter {
    /// In place of what is there.
    pub set: Vec<HeaderValue>,
    /// Beside what is there.
    pub add: Vec<HeaderValue>,
    /// Names.
    pub remove: Vec<String>,
}

/// Source: `HTTPHeader`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HeaderValue {
    /// Of the header.
    pub name: String,
    /// The value that it is to be.
    pub value: String,
}

/// Source: `HTTPRequestRedirectFilter`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RedirectFilter {
    /// `http` or `https`; the request's own, if none.
    pub scheme: Option<String>,
    /// The request's own, if none.
    pub hostname: Option<String>,
    /// The request's own, if none.
    pub path: Option<PathModifier>,
    /// That of the scheme, or the listener's, if none.
    pub port: Option<i64>,
    /// 302, if none.
    pub status_code: Option<i64>,
}

/// Source: `HTTPURLRewriteFilter`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RewriteFilter {
    /// The request's own, if none.
    pub hostname: Option<String>,
    /// The request's own, if none.
    pub path: Option<PathModifier>,
}

/// Source: `HTTPPathModifier`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PathModifier {
    /// The type: one of the following.
    pub r#type: String,
    /// See its type.
    pub replace_full_path: Option<String>,
    /// See its type.
    pub replace_prefix_match: Option<String>,
}

/// Source: `HTTPRequestMirrorFilter`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MirrorFilter {
    /// The backend that sees requests, too.
    pub backend_ref: ObjectReference,
    /// The percentage; all, if none.
    pub percent: Option<i64>,
    /// The same, of another number.
    pub fraction: Option<Fraction>,
}

/// Source: `Fraction`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Fraction {
    /// Of the denominator.
    pub numerator: i64,
    /// 100, if none.
    pub denominator: Option<i64>,
}

/// Source: `ReferenceGrantSpec`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReferenceGrantSpec {
    /// The objects that may name things.
    pub from: Vec<GrantFrom>,
    /// The things that may be named.
    pub to: Vec<GrantTo>,
}

/// Source: `ReferenceGrantFrom`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GrantFrom {
    /// Of whoever names something.
    pub group: String,
    /// Of whoever names something.
    pub kind: String,
    /// Of whoever names something.
    pub namespace: String,
}

/// Source: `ReferenceGrantTo`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GrantTo {
    /// Of what is named.
    pub group: String,
    /// Of what is named.
    pub kind: String,
    /// All, if none.
    pub name: Option<String>,
}
