//! The Ingress controller: requests from outside reach the Pods of Services, by host and path.
//!
//! [`plan::plan`] is pure: Ingresses, their classes, Services, EndpointSlices and Secrets become a [`table::Table`], whose rows
//! know nothing of where they come from: other kinds of routes can be rendered into the same. [`run::run`] keeps the table
//! up to date and puts it before [`serve`], which carries requests; [`status`] is a controller that writes what users
//! are told. The two share nothing but the pure part: whoever parses what comes from the network writes nothing to the API.
//!
//! Endpoints are dialled themselves, without the way through the Service's address. Connections under way keep what they
//! have when the table changes.

pub mod certificates;
pub mod filters;
pub mod gateway;
pub mod gateway_status;
pub mod host;
pub mod hosts;
pub mod matching;
pub mod metrics;
pub mod path;
pub mod plan;
pub mod router;
pub mod run;
pub mod scheme;
pub mod serve;
pub mod status;
pub mod table;

/// The name of the class that is made at the start.
pub const CLASS: &str = "knarr";
/// The `spec.controller` of knarr's classes.
pub const CONTROLLER_NAME: &str = "knarr.io/ingress";
