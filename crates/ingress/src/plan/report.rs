//! The report for users on Gateways and routes, as conditions.
//!
//! Source: `GatewayConditionType`, `ListenerConditionType`, `RouteConditionType` and their reasons.

use std::collections::BTreeMap;

use crate::gateway::ParentReference;

/// A condition, without its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Such as `Accepted`.
    pub kind: &'static str,
    /// `true` if it is so.
    pub is_true: bool,
    /// For machines.
    pub reason: &'static str,
    /// For people.
    pub message: String,
}

impl Condition {
    /// It is so.
    pub fn yes(kind: &'static str, reason: &'static str) -> Self {
        Self { kind, is_true: true, reason, message: String::new() }
    }

    /// It is not so.
    pub fn no(kind: &'static str, reason: &'static str, message: impl Into<String>) -> Self {
        Self { kind, is_true: false, reason, message: message.into() }
    }

    /// It is as something has come out.
    pub(super) fn of(kind: &'static str, reason: &'static str, outcome: &Result<(), Refusal>) -> Self {
        match outcome {
            Ok(()) => Self::yes(kind, reason),
            Err(Refusal { reason, message }) => Self::no(kind, reason, message.clone()),
        }
    }
}

/// Why something is not so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    /// For machines.
    pub(super) reason: &'static str,
    /// For people.
    pub(super) message: String,
}

impl Refusal {
    pub(super) fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}

/// The report on everything that is served.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// By name.
    pub classes: BTreeMap<String, Condition>,
    /// By `namespace/name`.
    pub gateways: BTreeMap<String, GatewayReport>,
    /// Of HTTPRoutes and GRPCRoutes, by kind and `namespace/name`; those that attach to a Gateway of ours only.
    pub routes: BTreeMap<(&'static str, String), Vec<ParentReport>>,
}

/// The report on a Gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayReport {
    /// The condition `Accepted`: whether it can be served, whatever addresses it has.
    pub accepted: Condition,
    /// `true` if a listener is served.
    pub is_served: bool,
    /// In its order.
    pub listeners: Vec<ListenerReport>,
}

/// The report on a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerReport {
    /// Its name.
    pub name: String,
    /// Kinds of routes that may attach.
    pub kinds: Vec<&'static str>,
    /// The number of attached routes.
    pub attached: usize,
    /// All.
    pub conditions: Vec<Condition>,
}

/// The report on a route and something that it attaches to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParentReport {
    /// As the route names it.
    pub parent: ParentReference,
    /// All.
    pub conditions: Vec<Condition>,
}
