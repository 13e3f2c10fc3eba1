//! The kinds of the Gateway API, as far as they are read here.
//!
//! They are custom kinds: their definitions are the user's, and come and go. What is not here is not looked at; what a
//! definition lets through that its text forbids must do no harm.
//! Source: gateway.networking.k8s.io/v1, standard channel.

mod informers;
mod object;
mod spec;

pub use informers::GatewayInformers;
pub use object::{
    GROUP, Gateway, GatewayClass, GrpcRoute, HttpRoute, Object, ReferenceGrant, Spec, VERSIONS,
};
pub use spec::*;

/// The `spec.controllerName` of knarr's classes.
pub const CONTROLLER_NAME: &str = "knarr.io/gateway-controller";
